"""What each request must pass before it reaches a route: a plain ASGI middleware, so that it covers the socket too."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from anyreward.errors import UserError, shown

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LOOPBACK = "127.0.0.1"
"""The address that the server listens at, if no other is given: programs of this machine alone reach it."""
HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
"""Headers of every response."""
DEEPEST = 32
"""Largest number of nested lists and objects in JSON."""
DRAINED = 64
"""Of a body that is too large, this many times the limit is read and dropped: then most clients see the refusal."""
SHORTEST_TOKEN = 16
"""Smallest number of characters in a token."""

logger = logging.getLogger("anyreward.playground")


@dataclass(frozen=True)
class Limits:
    """What a client may use."""

    body: int = 256 * 1024
    """Largest number of bytes in the body of a request, or in a message of the socket."""
    body_seconds: float = 10.0
    """Time to receive the whole body of a request."""
    head_seconds: float = 10.0
    """Time to receive the line and the headers of a request."""
    connections: int = 800
    """Connections at once: below the usual limit of 1,024 open files."""
    sessions: int = 4
    """Environments that are watched at once."""
    idle_seconds: float = 600.0
    """Time without a message after which a watched environment is closed."""
    slow_seconds: float = 10.0
    """Time to take one message of the socket; a client that needs longer is disconnected."""
    steps: float = 8.0
    """Steps of a watched environment in a second, at the usual pace."""


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str, headers: Headers | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers or []


class Gone(Exception):
    """The client has disconnected; nobody reads an answer."""


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(host: str, port: int) -> str:
    """The host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_access(host: str, token: str | None) -> None:
    """Raise a UserError for a host whose requests could not be recognised, and for a token that is easy to guess."""
    plain = ip_address(host) or re.fullmatch("[A-Za-z0-9][A-Za-z0-9.-]*", host)
    if not plain or ip_address(host) in ("0.0.0.0", "::"):
        raise UserError(
            f"--host is {shown(host)}; give the one address or name under which browsers reach this machine, such as "
            "192.168.1.5. Requests that name another host are refused."
        )
    if token is not None and not re.fullmatch(rf"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},200}}", token):
        raise UserError(
            f"This token is not accepted; it must have {SHORTEST_TOKEN} to 200 letters, digits, - and _. Without "
            "--token, a random one is made where one is needed."
        )


def ip_address(host: str) -> str:
    """The short form of an IP address, as browsers write it; empty for a name."""
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return ""


def allowed_hosts(host: str, port: int) -> frozenset[bytes]:
    """The accepted values of the header Host. Browsers name the site there, so a name made to lead here is refused."""
    names = {ip_address(host) or host.lower()}
    if is_loopback(host):
        names |= {LOOPBACK, "localhost", "::1"}
    found = {address(name, port) for name in names}
    if port == 80:
        found |= {one.removesuffix(":80") for one in found}
    return frozenset(one.encode("latin-1", "replace") for one in found)


def read_json(text: bytes | str) -> Any:
    """JSON of a client; raises Refused if it is not JSON, has NaN or infinite numbers, or is nested too deeply."""
    try:
        found = json.loads(
            text.decode() if isinstance(text, bytes) else text, parse_constant=_constant, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(400, f"This is not valid JSON: {reason}.") from None
    level, depth = [found], 0
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        if depth > DEEPEST:
            raise Refused(400, f"This JSON is nested too deeply; at most {DEEPEST} levels are accepted.")
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{shown(text)} is too large")
    return value


def error_body(sentence: str, **more: Any) -> bytes:
    """A sentence as the body of a response; ASCII, because a client's text in it may not be valid Unicode."""
    return json.dumps({"error": sentence, **more}).encode()


def details(error: UserError) -> dict[str, Any]:
    """Where in an expression a mistake is, and what it is, if the error says so."""
    at, what = getattr(error, "at", None), getattr(error, "what", None)
    return ({"at": at} if isinstance(at, int) else {}) | ({"what": what} if isinstance(what, str) else {})


class Guard:
    """The middleware. Its checks come before routes, so that no route can be without them."""

    def __init__(self, app: App, hosts: frozenset[bytes], token: str | None, cookie: str, limits: Limits) -> None:
        self.app, self.hosts, self.limits = app, hosts, limits
        self.token = None if token is None else token.encode()
        self.cookie = cookie.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, pass it on, and turn any error into a response."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        reply = _Reply(scope, send)
        try:
            self._check(scope)
            if scope["type"] == "http":
                receive = await self._with_body(scope, receive)
            reply.heard = True
            await self.app(scope, receive, reply.send)
        except Gone:
            pass
        except Refused as refused:
            await reply.refuse(refused.status, str(refused), refused.headers)
        except UserError as error:
            await reply.refuse(400, str(error), [], **details(error))
        except Exception:
            logger.exception("Error in %s %s", scope.get("method", "the socket"), shown(scope["path"]))
            await reply.refuse(500, "The server made an error; its terminal shows more.", [])

    def _check(self, scope: Scope) -> None:
        """Raise Refused unless the request comes from the page itself, or from a program with the token."""
        method = scope["method"] if scope["type"] == "http" else ""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            accepted = ", ".join(sorted(one.decode("latin-1") for one in self.hosts))
            raise Refused(421, f"This server answers requests for {accepted} only.")
        origins = _values(scope, b"origin")
        needed = method not in ("GET", "HEAD")
        if origins != [b"http://" + hosts[0].lower()] and (origins or needed):
            raise Refused(
                403, "This server answers its own page only; the header Origin names another one, or is missing."
            )
        sites = {b"same-origin", b"none"} if method else {b"same-origin", b"same-site", b"none"}  # Origin is exact
        if scope["path"] != "/" and not set(_values(scope, b"sec-fetch-site")) <= sites:
            raise Refused(403, "This server answers its own page only; this request comes from another site.")
        self._check_token(scope, method)

    def _check_token(self, scope: Scope, method: str) -> None:
        """Raise Refused unless the request has the token, if one is needed; one in the URL becomes a cookie."""
        if self.token is None:
            return
        query = parse_qs(scope["query_string"].decode("latin-1"), encoding="latin-1")
        asked = query.get("token", []) if (method, scope["path"]) == ("GET", "/") else []
        if any(secrets.compare_digest(one.encode("latin-1"), self.token) for one in asked):
            cookie = self.cookie + b"=" + self.token + b"; HttpOnly; SameSite=Strict; Path=/"
            raise Refused(303, "The token is kept in a cookie.", [(b"location", b"/"), (b"set-cookie", cookie)])
        pairs = [part.strip().partition(b"=") for one in _values(scope, b"cookie") for part in one.split(b";")]
        given = [value for name, _, value in pairs if name == self.cookie]
        given += [one[7:].strip() for one in _values(scope, b"authorization") if one[:7].lower() == b"bearer "]
        if not any(secrets.compare_digest(one, self.token) for one in given):
            sentence = "A token is needed: open the address with ?token=... that `anyreward play` has printed."
            raise Refused(401, sentence, [(b"www-authenticate", b"Bearer")])

    async def _with_body(self, scope: Scope, receive: Receive) -> Receive:
        """A receive that gives the whole body of a request at once; raises Refused if it is too large or too slow."""
        lengths, coded = _values(scope, b"content-length"), _values(scope, b"transfer-encoding")
        if scope["method"] != "POST":
            if coded or any(length.strip(b"0 ") for length in lengths):
                raise Refused(400, "Only POST requests have a body.")
            return receive
        if [one.split(b";")[0].strip().lower() for one in _values(scope, b"content-type")] != [b"application/json"]:
            raise Refused(415, "The body must be JSON, with the header Content-Type: application/json.")
        if coded and lengths:
            raise Refused(400, "A request has a Content-Length or a Transfer-Encoding, not both.")
        if any(
            len(length) > 9 or not length.isdigit() or int(length) > DRAINED * self.limits.body for length in lengths
        ):
            raise self._too_large()
        body = await self._read(receive)

        async def whole() -> Message:
            nonlocal body
            if body is None:
                return await receive()  # waits until the client disconnects
            given, body = body, None
            return {"type": "http.request", "body": given, "more_body": False}

        return whole

    async def _read(self, receive: Receive) -> bytes | None:
        body, size, more = bytearray(), 0, True
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while more and size <= DRAINED * self.limits.body:  # a client that still sends may not see a refusal
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    size += len(message.get("body", b""))
                    if size <= self.limits.body:
                        body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            seconds = self.limits.body_seconds
            raise Refused(408, f"The body did not arrive within {seconds:g} seconds.") from None
        if size > self.limits.body:
            raise self._too_large()
        return bytes(body)

    def _too_large(self) -> Refused:
        return Refused(413, f"The body is too large; at most {self.limits.body // 1024} KiB are accepted.")


class _Reply:
    """What is sent for one request: the headers are added, and a refusal takes the form that is possible."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope, self._send = scope, send
        self.started = False
        self.heard = False
        """Whether the whole request was read, so that another one can follow on this connection."""

    async def send(self, message: Message) -> None:
        """Send a message of the application, with the headers of every response."""
        kind = message["type"]
        if kind == "websocket.close" and not self.started:  # no route
            await self.refuse(404, "There is no socket at this address.", [])
            return
        if kind in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            self.started = True
            given, own = message.get("headers", []), {name for name, _ in HEADERS}
            message = {**message, "headers": [*((n, v) for n, v in given if n.lower() not in own), *HEADERS]}
        await self._send(message)

    async def refuse(self, status: int, sentence: str, headers: Headers, **more: Any) -> None:
        """Answer with a status and a sentence; an open socket is closed instead."""
        socket = self.scope["type"] == "websocket"
        try:
            if self.started:
                if socket:
                    await self._send({"type": "websocket.close", "code": 1011, "reason": "The server made an error."})
                return
            if socket and "websocket.http.response" not in self.scope.get("extensions", {}):
                self.started = True
                await self._send({"type": "websocket.close", "code": 1008})
                return
            body = error_body(sentence, **more)
            sent = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
            kind = "websocket.http.response" if socket else "http.response"
            ends = [] if self.heard or status == 303 else [(b"connection", b"close")]
            await self.send({"type": f"{kind}.start", "status": status, "headers": [*sent, *ends]})
            await self._send({"type": f"{kind}.body", "body": body, "more_body": False})
        except OSError:  # the client has disconnected
            pass


def _values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header."""
    return [value for key, value in scope["headers"] if key.lower() == name]
