"""A connection of uvicorn with limits of time and number, which has the headers of the application in all answers."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Any, ClassVar

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from anyreward.playground.security import HEADERS, App, Limits, error_body

STALLED_SECONDS = 30
"""Time without progress after which the system ends a connection whose client does not read."""


class Connection(H11Protocol):
    """One connection: refused if there are too many, and ended if a request does not arrive in time."""

    limits: ClassVar[Limits] = Limits()
    _late: asyncio.TimerHandle | None = None

    # uvicorn narrows the type that asyncio gives to the transport, so the same signature does not fit asyncio's class
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock, or refuse the connection."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if (
            peer is not None
            and hasattr(socket, "TCP_USER_TIMEOUT")
            and peer.family in (socket.AF_INET, socket.AF_INET6)
        ):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * STALLED_SECONDS)
        self._late = self.loop.call_later(self.limits.head_seconds, transport.close)
        if len(self.connections) > self.limits.connections:
            self._end(503, "Service Unavailable", "There are too many connections; try again later.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the clock runs from the first byte of a request to the end of its headers."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._late is None:
            self._late = self.loop.call_later(self.limits.head_seconds, self.transport.close)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass a request for a socket on, if it is one that the WebSocket library would not answer itself."""
        keys, versions = (self._values(name) for name in (b"sec-websocket-key", b"sec-websocket-version"))
        key = len(keys) == 1 and re.fullmatch(rb"[A-Za-z0-9+/]{22}==", keys[0])
        if event.method != b"GET" or not key or versions != [b"13"] or len(self._values(b"origin")) > 1:
            self._end(400, "Bad Request", "This is not a valid WebSocket handshake.")
            return
        others = (b"connection", b"upgrade", b"sec-websocket-extensions", b"sec-websocket-protocol")
        kept = [(name, value) for name, value in self.headers if name not in others]
        self.headers = [*kept, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        super().handle_websocket_upgrade(event)

    def _values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP; they reach no application."""
        self._end(400, "Bad Request", "This is not a valid HTTP request.")

    def _end(self, status: int, phrase: str, sentence: str) -> None:
        body = error_body(sentence)
        own = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = f"HTTP/1.1 {status} {phrase}\r\n".encode()
        self.transport.write(head + b"".join(b"%s: %s\r\n" % one for one in [*own, *HEADERS]) + b"\r\n" + body)
        self.transport.close()

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _of_interest(record: logging.LogRecord) -> bool:
    """Whether a message of uvicorn tells something: it takes a socket that was refused in words for an error."""
    return "without completing handshake" not in record.getMessage()


def uvicorn_config(app: App, limits: Limits) -> Config:
    """The settings of uvicorn: limits, and nothing that is not needed."""
    logging.getLogger("uvicorn.error").addFilter(_of_interest)
    settings: dict[str, Any] = {
        "http": type("LimitedConnection", (Connection,), {"limits": limits}),
        "h11_max_incomplete_event_size": 32 * 1024,
        "limit_concurrency": limits.connections + 50,  # after Connection's own
        "timeout_keep_alive": 15,
        "timeout_graceful_shutdown": 5,
        "ws_max_size": limits.body,
        "ws_per_message_deflate": False,
        "proxy_headers": False,
        "server_header": False,
        "lifespan": "off",
        "access_log": False,  # it would show tokens
        "log_level": "warning",
    }
    return Config(app, **settings)
