"""A real server in a thread, and a client that sends any bytes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI

from anyreward.playground.connection import uvicorn_config
from anyreward.playground.security import App, Limits
from anyreward.playground.server import create_app
from anyreward.playground.shelf import Shelf

GOAL = {"terms": [{"kind": "goal", "at": [2, 8], "weight": 1.0}]}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
EXPECTED = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response."""
Changes = Mapping[str, str | None]


def good_body(path: str) -> dict[str, Any]:
    """A body that this address accepts."""
    return {**GOAL, "at": [[2, 8]]} if path.endswith("/act") else GOAL


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A server that runs, and its application."""

    app: FastAPI
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, seconds: float = 20) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def head(self, method: str, path: str, changes: Changes | None = None) -> bytes:
        """The line and headers of a request that is accepted, unless ``changes`` replace or remove (None) headers."""
        headers: dict[str, str | None] = {"Host": self.host}
        if method == "POST":
            headers |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        if method == "SOCKET":
            headers |= {"Origin": f"http://{self.host}", **UPGRADE}
        headers |= changes or {}
        lines = [f"{'GET' if method == 'SOCKET' else method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def ask(self, method: str, path: str, changes: Changes | None = None, body: Any = None) -> Answer:
        """Send a request with a whole body: JSON, or bytes as they are."""
        if body is None and method == "POST":
            body = good_body(path)
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        own = {"Content-Length": str(len(content))} if content or method == "POST" else {}
        return self.send(self.head(method, path, {**own, **(changes or {})}) + content, method)

    def send(self, data: bytes, method: str = "GET") -> Answer:
        """Send bytes on a connection of their own, and read one response."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):  # the server may refuse before it has read everything
                connection.sendall(data)
            return answer_on(connection, method)

    def identities(self) -> dict[str, str]:
        """The ids of the agents by name."""
        return {entry["name"]: entry["id"] for entry in self.ask("GET", "/api/agents").json["agents"]}


def answer_on(connection: socket.socket, method: str = "GET") -> Answer:
    """The next response on a connection; what every response must have is checked here."""
    response = http.client.HTTPResponse(connection, method="GET" if method == "SOCKET" else method)
    try:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        body = b"" if response.status == 101 else response.read()
    finally:
        response.close()
    for name, value in EXPECTED.items():
        assert headers.get(name) == value, (response.status, name)
    assert not [name for name in headers if name.startswith("access-control-")]
    assert "server" not in headers
    assert b"Traceback" not in body
    if response.status >= 400 and method != "HEAD":
        assert len(json.loads(body)["error"].split()) > 3  # a sentence
    return Answer(response.status, headers, body)


@contextlib.contextmanager
def running(app: App, port_socket: socket.socket, limits: Limits) -> Iterator[None]:
    """Serve an application at a listening socket, in a thread."""
    server = uvicorn.Server(uvicorn_config(app, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [port_socket]})
    threads = torch.get_num_threads()
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join(20)
        port_socket.close()
        torch.set_num_threads(threads)
        assert not thread.is_alive()


@contextlib.contextmanager
def served(shelf: Shelf, token: str | None = None, limits: Limits | None = None) -> Iterator[Running]:
    """The playground on a free port of this machine."""
    limits = limits or Limits()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # small, so that slow readers are soon noticed
    port = listener.getsockname()[1]
    app = create_app(shelf, port=port, token=token, limits=limits)
    with running(app, listener, limits):
        yield Running(app, port)
