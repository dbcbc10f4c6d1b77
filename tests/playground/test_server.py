"""What the server answers, in which order, and to how many."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import anyreward as ar
from anyreward.cli import main
from anyreward.errors import UserError
from anyreward.playground.scene import Scene
from anyreward.playground.security import (
    LOOPBACK,
    Guard,
    Limits,
    Receive,
    Send,
    allowed_hosts,
    check_access,
    error_body,
)
from anyreward.playground.security import Scope as AnyScope
from anyreward.playground.server import PORT, create_app, listen, page_files
from anyreward.playground.shelf import Shelf
from playground_load import Client
from tests.playground.serving import GOAL, Running, answer_on, running, served

EXPRESSION = {"terms": [{"kind": "expression", "text": "(x > 6) * exp(-y)", "weight": 1.0}]}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # as `serve` does: a tiny agent is warned about


def test_answers_are_those_of_the_library(server: Running, identity: str, agent: ar.Agent, shelf: Shelf) -> None:
    for task, reward in ((GOAL, ar.goal(2, 8)), (EXPRESSION, ar.reward("(x > 6) * exp(-y)"))):
        given = server.ask("POST", f"/api/agents/{identity}/answer", body=task)
        assert given.status == 200
        z = np.frombuffer(base64.b64decode(given.json["z"]), dtype="<f4")
        np.testing.assert_allclose(z, agent.ask(reward, refine=0).belief.found.z.numpy(), rtol=1e-5, atol=1e-7)
        assert given.json == json.loads(json.dumps(shelf.scene(identity).answer(task)))


def test_actions_are_those_of_the_policy(server: Running, identity: str, agent: ar.Agent, shelf: Shelf) -> None:
    maze = shelf.scene(identity).maze
    assert maze is not None
    cells = maze.free[:20]
    places = [[int(cell % maze.width), int(cell // maze.width)] for cell in cells]
    given = server.ask("POST", f"/api/agents/{identity}/act", body={**GOAL, "at": places})
    assert given.json == {"actions": agent.ask(ar.goal(2, 8), refine=0).act(cells).tolist()}
    for wrong in (
        GOAL,
        {**GOAL, "at": []},
        {**GOAL, "at": [[2]]},
        {**GOAL, "at": "x"},
        {**GOAL, "at": [[2, 8]], "x": 1},
    ):
        assert server.ask("POST", f"/api/agents/{identity}/act", body=wrong).status == 400


def test_agents_are_described(server: Running, identity: str, run_folder: Path) -> None:
    agents = server.ask("GET", "/api/agents").json["agents"]
    assert agents[0]["id"] == identity
    assert agents[0]["run"] == str(run_folder)
    scene = server.ask("GET", f"/api/agents/{identity}").json
    assert (scene["id"], scene["kind"], scene["grid"]["width"]) == (identity, "maze", 11)
    explained = server.ask("POST", f"/api/agents/{identity}/explain", body=GOAL)
    assert explained.status == 200
    assert explained.json["trust"]["verdict"]


def test_the_page_is_served_from_memory(server: Running) -> None:
    files = page_files()
    assert {"index.html", "style.css", "arrays.js"} <= set(files)
    folder = Path(sys.modules[create_app.__module__].__file__ or "").parent / "page"
    for name, (content, kind) in files.items():
        assert content == (folder / name).read_bytes()
        given = server.ask("GET", f"/page/{name}")
        assert (given.body, given.headers["content-type"]) == (content, kind)
    assert server.ask("GET", "/").body == files["index.html"][0]
    assert server.ask("GET", "/").headers["content-type"] == "text/html; charset=utf-8"


def test_mistakes_in_expressions_say_where_they_are(server: Running, identity: str) -> None:
    wrong = {"terms": [{"kind": "expression", "text": "x + spam", "weight": 1.0}]}
    given = server.ask("POST", f"/api/agents/{identity}/answer", body=wrong)
    assert given.status == 400
    assert given.json["at"] == 4
    assert "spam" in given.json["what"]
    assert "spam" in given.json["error"]


def test_a_damaged_agent_is_a_sentence(run_folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in run_folder.iterdir():
        if path.is_file():
            (damaged / path.name).write_bytes(path.read_bytes())
    shelf = Shelf(damaged, tmp_path / "none")
    identity = shelf.entries()[0]["id"]
    for path in damaged.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-10])
    with served(shelf) as server:
        given = server.ask("GET", f"/api/agents/{identity}")
        assert given.status == 400
        assert "Traceback" not in given.json["error"]


def test_errors_of_the_program_are_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: AnyScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        if scope["type"] == "websocket" and scope["path"] == "/open":
            await send({"type": "websocket.accept"})
        raise ZeroDivisionError("a secret")

    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    limits = Limits()
    guard = Guard(broken, allowed_hosts(LOOPBACK, port), None, "cookie", limits)
    with running(guard, listener, limits):
        server = Running(create_app(Shelf(None, Path("none")), port=port), port)
        for method in ("GET", "POST", "SOCKET"):
            given = server.ask(method, "/")
            assert given.status == 500
            assert b"secret" not in given.body
        with server.connect() as connection:
            connection.sendall(server.head("SOCKET", "/open"))
            received = b""
            while b"The server made an error." not in received:
                more = connection.recv(2**16)
                assert more
                received += more
            assert received.startswith(b"HTTP/1.1 101")
            assert b"secret" not in received
    assert caplog.text.count("ZeroDivisionError: a secret") == 4


def test_a_body_that_is_too_large_is_not_kept() -> None:
    """What is read of it is dropped."""
    limits = Limits()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": bytes(2**16), "more_body": True}

    async def app(scope: AnyScope, receive: Receive, send: Send) -> None:
        raise AssertionError("it must not be asked")

    headers = [(b"host", b"localhost:1"), (b"origin", b"http://localhost:1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    tracemalloc.start()
    asyncio.run(Guard(app, allowed_hosts(LOOPBACK, 1), None, "", limits)(scope, receive, send))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sent[0]["status"] == 413
    assert peak < 4 * limits.body


def test_errors_may_hold_any_text() -> None:
    """Half of a surrogate pair, which JSON can hold, cannot be encoded."""
    assert json.loads(error_body("\ud800 é", at=1)) == {"error": "\ud800 é", "at": 1}


class Gated(Shelf):
    """A shelf that lets one caller wait: its first use after ``close``, until ``open``."""

    def __init__(self, run: Path, folder: Path) -> None:
        super().__init__(run, folder)
        self.used = 0
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def scene(self, identity: str) -> Scene:
        found = super().scene(identity)
        self.used += 1
        if not self.gate.is_set() and not self.waiting.is_set():
            self.waiting.set()
            assert self.gate.wait(30)
        return found


def test_answers_do_not_wait_for_explanations_nor_are_made_for_nobody(run_folder: Path, tmp_path: Path) -> None:
    shelf = Gated(run_folder, tmp_path)
    identity = shelf.entries()[0]["id"]
    with served(shelf) as server:
        body = json.dumps(GOAL).encode()
        path = f"/api/agents/{identity}/explain"
        data = server.head("POST", path, {"Content-Length": str(len(body))}) + body
        assert server.send(data).status == 200
        shelf.gate.clear()
        connections = [server.connect() for _ in range(6)]
        for connection in connections:
            connection.sendall(data)
            shelf.waiting.wait(10)  # the first one is being explained
        before = shelf.used
        since = time.monotonic()
        for _ in range(5):
            assert server.ask("POST", f"/api/agents/{identity}/answer").status == 200
        assert time.monotonic() - since < 5
        assert shelf.used == before + 5
        for connection in connections[:4]:  # also the one whose explanation has begun
            connection.close()
        time.sleep(0.3)
        shelf.gate.set()
        for connection in connections[4:]:
            assert answer_on(connection).status == 200
            connection.close()
        assert shelf.used == before + 5 + 2  # the two that have waited
        assert server.send(data).status == 200  # all turns were given back


def test_two_hundred_clients(server: Running, identity: str) -> None:
    """All at once, and each of them twice on its connection."""

    async def answers(i: int) -> list[int]:
        client, body = Client(server.port), json.dumps(GOAL).replace("1.0", f"{1 + i}.0").encode()
        found = [await client.post(f"/api/agents/{identity}/answer", body) for _ in range(2)]
        await client.close()
        return found

    async def all_answers() -> list[list[int]]:
        return await asyncio.gather(*(answers(i) for i in range(200)))

    assert asyncio.run(all_answers()) == [[200, 200]] * 200


def test_connections_are_kept_unless_a_request_was_not_read(server: Running, identity: str) -> None:
    body = b"[]"
    data = server.head("POST", f"/api/agents/{identity}/answer", {"Content-Length": "2"}) + body
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(data)
            given = answer_on(connection)
            assert (given.status, given.headers.get("connection")) == (400, None)
    assert server.ask("POST", "/", {"Content-Type": "x"}).headers["connection"] == "close"


def test_other_machines_need_a_token(shelf: Shelf) -> None:
    assert create_app(shelf).state.token is None
    for host in ("192.168.1.5", "fe80::1", "server.example"):
        made, again = (create_app(shelf, host=host).state.token for _ in range(2))
        assert len(made) >= 40
        assert made != again
    assert allowed_hosts("192.168.1.5", 80) == {b"192.168.1.5", b"192.168.1.5:80"}
    assert allowed_hosts("Server.example", 81) == {b"server.example:81"}
    assert allowed_hosts("2001:DB8:0:0:0:0:0:1", 81) == {b"[2001:db8::1]:81"}
    assert allowed_hosts("::1", 81) == {b"[::1]:81", b"127.0.0.1:81", b"localhost:81"}


@pytest.mark.parametrize(
    "host", ["", "*", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "a b", "http://x", "x:1", "-x", "a/b", "x\r\ny", "é"]
)
def test_hosts_that_could_not_be_recognised_are_refused(shelf: Shelf, host: str) -> None:
    with pytest.raises(UserError, match="give the one address"):
        create_app(shelf, host=host)


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "x" * 201, "with spaces in it 123", "x" * 16 + "\n", "é" * 20]
)
def test_tokens_that_are_easy_to_guess_are_refused(token: str) -> None:
    with pytest.raises(UserError, match="token is not accepted"):
        check_access(LOOPBACK, token)


def test_a_port_that_is_taken() -> None:
    with listen(LOOPBACK, None) as first, listen("localhost", None) as second:
        assert PORT <= first.getsockname()[1] < second.getsockname()[1]
        assert first.getsockname()[0] == LOOPBACK
        with pytest.raises(UserError, match="is in use by another program"):
            listen(LOOPBACK, first.getsockname()[1])
    with pytest.raises(UserError, match="Listening at"):
        listen("192.0.2.1", None)  # an address that no machine has


def test_mistakes_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, message in (
        (["--host", "0.0.0.0"], "give the one address"),
        (["--token", "short"], "token is not accepted"),
        (["--port", "0"], "--port is 0"),
        ([str(tmp_path / "nothing")], "nothing"),
    ):
        assert main(["play", "--no-browser", *arguments]) == 2
        assert message in capsys.readouterr().err


def played(run_folder: Path, tmp_path: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "anyreward", "play", str(run_folder), "--no-browser", *arguments]
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address is not None
    return process, address[0]


def test_the_command_serves_until_it_is_interrupted(run_folder: Path, tmp_path: Path) -> None:
    process, url = played(run_folder, tmp_path)
    try:
        agents = httpx.get(f"{url}api/agents", trust_env=False).json()["agents"]
        assert agents[0]["run"] == str(run_folder)
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "Stopped.\n")


def test_the_command_makes_a_token(run_folder: Path, tmp_path: Path) -> None:
    process, url = played(run_folder, tmp_path, "--token", "random")
    try:
        base, _, token = url.partition("?token=")
        assert len(token) >= 40
        assert httpx.get(f"{base}?token=random", trust_env=False).status_code == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}api/agents", headers=bearer, trust_env=False).status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_the_command_takes_a_token(run_folder: Path, tmp_path: Path) -> None:
    process, url = played(run_folder, tmp_path, "--token", "0123456789abcdef")
    try:
        base, _, query = url.partition("?")
        assert query == "token=0123456789abcdef"
        assert httpx.get(f"{base}api/agents", trust_env=False).status_code == 401
        with httpx.Client(trust_env=False, follow_redirects=True) as web:
            page = web.get(url)
            assert (page.status_code, str(page.url)) == (200, base)
            assert web.get(f"{base}api/agents").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert "0123456789abcdef" not in output
