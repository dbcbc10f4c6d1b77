"""Every route of the server refuses what does not come from its own page, and what is too large, late or malformed."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from functools import partial

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute

from anyreward.playground.security import Limits
from anyreward.playground.shelf import Shelf
from tests.playground.conftest import TOKEN
from tests.playground.serving import GOAL, Running, answer_on, good_body, served

EXAMPLES = {
    ("GET", "/"): "/",
    ("GET", "/page/{file}"): "/page/arrays.js",
    ("GET", "/api/agents"): "/api/agents",
    ("GET", "/api/agents/{identity}"): "/api/agents/ID",
    ("POST", "/api/agents/{identity}/answer"): "/api/agents/ID/answer",
    ("POST", "/api/agents/{identity}/explain"): "/api/agents/ID/explain",
    ("POST", "/api/agents/{identity}/act"): "/api/agents/ID/act",
    ("SOCKET", "/api/agents/{identity}/live"): "/api/agents/ID/live",
}
"""For every route, an address that is accepted. Each refusal below is tried on each of them."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "NONSENSE")
ELSEWHERE = (
    "../server.py",
    "..%2fserver.py",
    "%2e%2e/server.py",
    "%2e%2e%2fserver.py",
    "%252e%252e%252fserver.py",
    "..\\server.py",
    "..%5cserver.py",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "C:%5cWindows%5cwin.ini",
    "....//server.py",
    "server.py",
    "__init__.py",
    ".",
    "..",
    "%00",
    "arrays.js%00",
    "arrays.js/",
    "ARRAYS.JS",
    "%ff%fe",
    "*",
)
"""Names of files that must not be found."""


def routes(app: FastAPI) -> set[tuple[str, str]]:
    found = set()
    for route in app.routes:
        if isinstance(route, APIRoute):
            found |= {(method, route.path) for method in route.methods}
        else:
            assert isinstance(route, APIWebSocketRoute), f"{route} is of a kind that these tests do not know"
            found.add(("SOCKET", route.path))
    return found


def test_every_route_stands_in_the_table(server: Running) -> None:
    assert routes(server.app) == set(EXAMPLES)


ROWS = [pytest.param(method, path, id=f"{method} {path}") for (method, _), path in EXAMPLES.items()]
of_all = pytest.mark.parametrize(("method", "path"), ROWS)
of_posts = pytest.mark.parametrize(("method", "path"), [row for row in ROWS if row.values[0] == "POST"])


@of_all
def test_the_examples_are_accepted(server: Running, identity: str, method: str, path: str) -> None:
    """Otherwise the refusals below could have another reason."""
    accepted = 101 if method == "SOCKET" else 200
    for host in (server.host, f"localhost:{server.port}", f"LocalHost:{server.port}", f"[::1]:{server.port}"):
        origin = {"Origin": f"http://{host.lower()}"}
        given = server.ask(method, path.replace("ID", identity), {"Host": host, **origin})
        assert given.status == accepted, (host, given.body)
    for site in ("same-origin", "none"):
        assert server.ask(method, path.replace("ID", identity), {"Sec-Fetch-Site": site}).status == accepted


@of_all
def test_other_hosts_are_refused(server: Running, identity: str, method: str, path: str) -> None:
    """A site whose name is made to lead to this machine (DNS rebinding) still names itself in Host and Origin."""
    port, path = server.port, path.replace("ID", identity)
    hosts = ["evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", f"127.0.0.1:{port}0"]
    hosts += [f"localhost.evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"0.0.0.0:{port}", f"127.1:{port}"]
    hosts += [f"127.0.0.2:{port}", f"2130706433:{port}", f"localhost.:{port}", f"::1:{port}"]
    for host in hosts:
        for origin in (f"http://{host}", f"http://{server.host}"):
            given = server.ask(method, path, {"Host": host, "Origin": origin})
            assert given.status == 421, (host, given.body)
    assert server.ask(method, path, {"Host": ""}).status in (400, 421)
    assert server.ask(method, path, {"Host": None}).status == 400
    twice = server.head(method, path).replace(b"Host: ", b"Host: evil.example\r\nHost: ")
    assert server.send(twice, method).status == 400
    if method != "SOCKET":
        old = server.head(method, path, {"Host": None}).replace(b"HTTP/1.1", b"HTTP/1.0")
        assert server.send(old, method).status == 421
        body = json.dumps(good_body(path)).encode() if method == "POST" else b""
        absolute = server.head(method, f"http://evil.example{path}", {"Content-Length": str(len(body))}) + body
        assert server.send(absolute, method).status == 404


@of_all
def test_other_origins_are_refused(server: Running, identity: str, method: str, path: str) -> None:
    port, path = server.port, path.replace("ID", identity)
    origins = ["http://evil.example", f"http://evil.example:{port}", "null", "", f"https://{server.host}", server.host]
    origins += [f"http://{server.host}/", f"http://{server.host}.evil.example", f"http://localhost:{port}"]
    origins += ["http://127.0.0.1", "http://127.0.0.1:1", "file://", f"http://evil@{server.host}"]
    for origin in origins:
        assert server.ask(method, path, {"Origin": origin}).status == 403, origin
    if method != "GET":
        assert server.ask(method, path, {"Origin": None}).status == 403
    own = f"Origin: http://{server.host}\r\n"
    twice = server.head(method, path, {"Origin": None})[:-2] + f"{own}Origin: http://evil.example\r\n\r\n".encode()
    assert server.send(twice, method).status == (400 if method == "SOCKET" else 403)


@of_all
def test_requests_from_other_sites_are_refused(server: Running, identity: str, method: str, path: str) -> None:
    """Without an Origin, as for a script or an image in another page, the browser still says where it comes from."""
    for site in ["cross-site", "nonsense"] + (["same-site"] if method != "SOCKET" else []):
        given = server.ask(method, path.replace("ID", identity), {"Sec-Fetch-Site": site})
        assert given.status == (200 if path == "/" else 403)  # a link to the page may be followed


@of_all
def test_a_token_is_needed_everywhere(secret_server: Running, identity: str, method: str, path: str) -> None:
    path, cookie = path.replace("ID", identity), f"anyreward-{secret_server.port}"
    accepted = 101 if method == "SOCKET" else 200
    for good in (
        {"Authorization": f"Bearer {TOKEN}"},
        {"Authorization": f"bearer  {TOKEN} "},
        {"Cookie": f"{cookie}={TOKEN}"},
        {"Cookie": f'other="x; y"; a@b; {cookie}={TOKEN}; {cookie}x=1'},
    ):
        assert secret_server.ask(method, path, good).status == accepted
    wrong: list[dict[str, str | None]] = [{}, {"Authorization": ""}, {"Authorization": TOKEN}, {"Cookie": ""}]
    for token in ("", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é", f'"{TOKEN}"', "*", "\x00"):
        wrong += [{"Authorization": f"Bearer {token}"}, {"Cookie": f"{cookie}={token}"}]
    wrong += [{"Authorization": f"Basic {TOKEN}"}, {"Cookie": f"anyreward={TOKEN}"}, {"Cookie": TOKEN}]
    wrong += [{"X-Token": TOKEN, "Referer": f"http://{secret_server.host}/?token={TOKEN}"}]
    for headers in wrong:
        given = secret_server.ask(method, path, headers)
        assert given.status in (400, 401), headers  # 400: bytes that no header may have
        assert TOKEN not in str(given)
    if path != "/":
        assert secret_server.ask(method, f"{path}?token={TOKEN}").status == 401


def test_the_token_of_the_address_becomes_a_cookie(secret_server: Running) -> None:
    given = secret_server.ask("GET", f"/?token={TOKEN}")
    assert (given.status, given.headers["location"]) == (303, "/")
    cookie, *flags = given.headers["set-cookie"].split("; ")
    assert set(flags) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert secret_server.ask("GET", "/", {"Cookie": cookie}).status == 200
    for wrong in ("", "?token=", "?token=x", f"?token={TOKEN}x", f"?Token={TOKEN}", "?token=%ff", f"?a=token={TOKEN}"):
        assert secret_server.ask("GET", f"/{wrong}").status == 401
    assert secret_server.ask("POST", f"/?token={TOKEN}").status == 401
    assert secret_server.ask("GET", f"/?token={TOKEN}", {"Host": "evil.example"}).status == 421


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_are_refused(server: Running, identity: str, method: str) -> None:
    for (own, _), path in EXAMPLES.items():
        if method != own:
            expected = 404 if own == "SOCKET" else 405
            given = server.ask(method, path.replace("ID", identity), {"Origin": f"http://{server.host}"})
            assert given.status == expected, (method, path)
            assert given.headers.get("allow") == (None if own == "SOCKET" else own)


@of_all
def test_a_socket_is_at_one_address_only(server: Running, identity: str, method: str, path: str) -> None:
    if method != "SOCKET":
        assert server.ask("SOCKET", path.replace("ID", identity)).status == 404


@pytest.mark.parametrize("where", ELSEWHERE)
def test_no_path_leads_to_a_file(server: Running, where: str) -> None:
    for base in ("/page/", "/page/../", "/page/x/", "/", "//", "/api/agents/", "/api/agents/../../page/"):
        given = server.ask("GET", base + where)
        assert given.status in (400, 404), base
        assert b"import" not in given.body
        assert b"root:" not in given.body
    for route in ("answer", "explain", "act"):
        assert server.ask("POST", f"/api/agents/{where}/{route}").status in (400, 404)
    assert server.ask("SOCKET", f"/api/agents/{where}/live").status in (400, 404)


@pytest.mark.parametrize("name", ["0", "ID0", "%00", "é".encode().hex(), "x" * 5000, "%2e%2e", "null", "__class__"])
def test_unknown_agents_are_not_found(server: Running, identity: str, name: str) -> None:
    for (method, template), path in EXAMPLES.items():
        if "{identity}" in template:
            given = server.ask(method, path.replace("ID", name.replace("ID", identity)))
            assert given.status == 404
            assert "no agent" in given.json["error"]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/api", "/api/", "/api/agents/", "/page/", "/x"])
def test_there_is_nothing_else(server: Running, path: str) -> None:
    assert server.ask("GET", path).status == 404


@of_posts
@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "application/jsonx", "json",
     "application/json, text/plain", "text/plain; application/json", "application/json\r\nContent-Type: text/plain"],
)  # fmt: skip
def test_other_types_are_refused(server: Running, identity: str, method: str, path: str, kind: str | None) -> None:
    """A form or a script of another page can send these types without asking first."""
    assert server.ask(method, path.replace("ID", identity), {"Content-Type": kind}).status == 415


@of_posts
def test_a_type_may_have_parameters(server: Running, identity: str, method: str, path: str) -> None:
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.ask(method, path.replace("ID", identity), kind).status == 200


BAD_JSON = {
    "empty": b"", "blank": b" ", "cut off": b'{"terms": [', "no JSON": b"terms=1", "two": b"{} {}",
    "UTF-16": '{"terms": []}'.encode("utf-16"), "a byte order mark": b'\xef\xbb\xbf{"terms": []}', "NUL": b"\x00",
    "bytes": b"\xff\xfe",
    "deep lists": b"[" * 100_000, "deep objects": b'{"a":' * 40_000, "closed deep lists": b"[" * 9_000 + b"]" * 9_000,
    "a little too deep": b"[" * 33 + b"]" * 33, "a long number": b"1" * 5_000, "a large number": b"[1e999]",
    "NaN": b'{"terms": [{"kind": "goal", "at": [NaN, 1], "weight": 1}]}', "Infinity": b"[-Infinity]",
}  # fmt: skip
BAD_TASKS = [
    [], 1, b"null", "x", True, {}, {"x": 1}, {"terms": [], "x": 1},
    {"terms": None}, {"terms": {}}, {"terms": [1]}, {"terms": [{}]},
    {"terms": [{"kind": "goal", "at": [2, 8]}]}, {"terms": [{"kind": "goal", "at": "2,8", "weight": 1}]},
    {"terms": [{"kind": "goal", "at": [2, 8], "weight": "1"}]}, {"terms": [{"kind": ["goal"], "at": [], "weight": 1}]},
    {"terms": [{"kind": "goal", "at": [10**400, 8], "weight": 1}]}, {"terms": GOAL["terms"] * 1000},
    {"terms": [{"kind": "paint", "runs": [[10**9, 1.0]], "weight": 1}]},
    {"terms": [{"kind": "paint", "runs": [[-1, 1.0]], "weight": 1}]},
    {"terms": [{"kind": "demonstration", "states": [[-1, 0]], "weight": 1}]},
    {"terms": [{"kind": "expression", "text": "__import__('os')", "weight": 1}]},
    {"terms": [{"kind": "expression", "text": "(" * 900, "weight": 1}]},
    {"terms": [{"kind": "expression", "text": "\ud800", "weight": 1}]},
    {"terms": [{"kind": "\ud800", "text": "x", "weight": 1}]},
]  # fmt: skip


@of_posts
@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_refused(server: Running, identity: str, method: str, path: str, name: str) -> None:
    given = server.ask(method, path.replace("ID", identity), body=BAD_JSON[name])
    assert (given.status, "JSON" in given.json["error"]) == (400, True)


@of_posts
@pytest.mark.parametrize("task", BAD_TASKS, ids=range(len(BAD_TASKS)))
def test_bad_tasks_are_refused(server: Running, identity: str, method: str, path: str, task: object) -> None:
    given = server.ask(method, path.replace("ID", identity), body=task)
    assert given.status == 400
    assert len(given.body) < 2000


@of_posts
def test_large_bodies_are_refused(server: Running, identity: str, method: str, path: str) -> None:
    path, limit = path.replace("ID", identity), Limits().body
    fits = json.dumps(good_body(path)).encode().ljust(limit)
    assert server.ask(method, path, body=fits).status == 200
    for size in (limit + 1, 2 * limit, 20 * limit):
        assert server.ask(method, path, body=fits.ljust(size)).status == 413
    for length in ("10000000000", "9" * 19):  # nothing is read
        assert server.send(server.head(method, path, {"Content-Length": length}), method).status == 413
    for length in ("-1", "x", "1, 2", "0x10", "+5", "1e3"):
        assert server.ask(method, path, {"Content-Length": length}, fits[:100]).status == 400
    chunked = server.head(method, path, {"Transfer-Encoding": "chunked"})
    chunk = b"%x\r\n%s\r\n" % (len(fits), fits)
    assert server.send(chunked + chunk + b"0\r\n\r\n", method).status == 200
    assert server.send(chunked + chunk + b"1\r\n \r\n0\r\n\r\n", method).status == 413
    with contextlib.suppress(ConnectionError, http.client.HTTPException), server.connect() as connection:
        connection.sendall(chunked)
        for _ in range(1000):  # without an end
            connection.sendall(chunk)
        pytest.fail("The server reads on.")
    assert server.ask(method, path).status == 200
    both = server.head(method, path, {"Transfer-Encoding": "chunked", "Content-Length": "5"})
    assert server.send(both + chunk + b"0\r\n\r\n", method).status == 400


@of_posts
def test_a_length_that_is_too_small_makes_no_second_request(
    server: Running, identity: str, method: str, path: str
) -> None:
    """What follows the declared length is another request, which is checked like any other."""
    path, body = path.replace("ID", identity), json.dumps(good_body(path)).encode()
    hidden = b"POST /api/agents HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(server.head(method, path, {"Content-Length": str(len(body))}) + body + hidden)
        received = b"".join(iter(partial(connection.recv, 2**16), b""))  # until the server closes the connection
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"421"]
    short = server.head(method, path, {"Content-Length": "5"}) + body
    assert server.send(short, method).status == 400


@of_all
def test_only_posts_have_bodies(server: Running, identity: str, method: str, path: str) -> None:
    if method == "GET":
        path = path.replace("ID", identity)
        assert server.ask(method, path, body=GOAL).status == 400
        chunked = server.head(method, path, {"Transfer-Encoding": "chunked"})
        assert server.send(chunked + b"5\r\n12345\r\n", method).status == 400


def test_slow_clients_are_refused(shelf: Shelf, identity: str) -> None:
    """Bytes that arrive now and then do not extend the time."""
    with served(shelf, limits=Limits(body_seconds=0.5, head_seconds=0.5)) as server:
        for (method, _), path in EXAMPLES.items():
            if method != "POST":
                continue
            path, body = path.replace("ID", identity), json.dumps(good_body(path)).encode()
            with server.connect() as connection:
                connection.sendall(server.head(method, path, {"Content-Length": str(len(body))}))
                since = time.monotonic()
                for i in range(4):
                    connection.sendall(body[i : i + 1])
                    time.sleep(0.1)
                assert answer_on(connection, method).status == 408
                assert 0.4 < time.monotonic() - since < 5
            chunked = server.head(method, path, {"Transfer-Encoding": "chunked"})
            assert server.send(chunked + b"ffffffffffffffff\r\nx", method).status == 408
            late = server.head(method, path, {"Content-Length": str(len(body) + 1)}) + body
            assert server.send(late, method).status == 408
        for start in (b"", b"G", b"GET / HTTP/1.1\r\nHost:", server.head("GET", "/") + b"GET"):
            with server.connect() as connection:
                connection.sendall(start)
                if b"\r\n\r\n" in start:
                    assert answer_on(connection).status == 200
                    connection.sendall(b" ")
                since = time.monotonic()
                assert connection.recv(1) == b""
                assert time.monotonic() - since < 5


def test_long_headers_and_other_bytes_are_refused(server: Running) -> None:
    assert server.ask("GET", "/api/agents", {"X-Long": "x" * 20_000}).status == 200
    assert server.ask("GET", "/api/agents", {"X-Long": "x" * 400_000}).status == 400
    assert server.ask("GET", "/" + "x" * 400_000).status == 400
    for text in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS \r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\r",
    ):
        assert server.send(text + 40_000 * b"\x00").status in (400, 421)


@pytest.mark.parametrize(
    "changes",
    [{"Sec-WebSocket-Key": None}, {"Sec-WebSocket-Key": "x"}, {"Sec-WebSocket-Key": "=" * 24},
     {"Sec-WebSocket-Version": None}, {"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Version": "13, 8"}],
)  # fmt: skip
def test_bad_handshakes_are_refused(server: Running, identity: str, changes: dict[str, str | None]) -> None:
    assert server.ask("SOCKET", f"/api/agents/{identity}/live", changes).status == 400


def test_odd_handshakes_are_accepted(server: Running, identity: str) -> None:
    """What the WebSocket library might refuse without the headers of every response does not reach it."""
    for name in ("Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol"):
        assert server.ask("SOCKET", f"/api/agents/{identity}/live", {name: ';;,="'}).status == 101
    assert server.ask("SOCKET", f"/api/agents/{identity}/live", {"Connection": "keep-alive, ,;, upgrade"}).status == 101
    post = server.head("SOCKET", f"/api/agents/{identity}/live").replace(b"GET", b"POST")
    assert server.send(post).status == 400


def test_only_so_many_connections(shelf: Shelf) -> None:
    with served(shelf, limits=Limits(connections=2)) as server:
        with server.connect() as first, server.connect():
            time.sleep(0.2)
            assert server.send(b"").status == 503
            first.sendall(server.head("GET", "/api/agents"))
            assert answer_on(first).status == 200
        time.sleep(0.2)
        assert server.ask("GET", "/api/agents").status == 200
