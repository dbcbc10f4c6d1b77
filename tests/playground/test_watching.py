"""The socket: a real environment that a policy plays, and everything that ends it."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close
from websockets.sync.client import ClientConnection, connect

import anyreward as ar
from anyreward.playground.security import Limits
from anyreward.playground.shelf import Shelf
from tests.conftest import TINY
from tests.playground.serving import Running, served

RIGHT = {"terms": [{"kind": "goal", "at": [0.5, 0.0], "weight": 1.0}]}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # as `serve` does


@pytest.fixture(scope="module")
def car(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """A barely trained agent of a world that is rendered."""
    folder = tmp_path_factory.mktemp("runs") / "car"
    ar.train("MountainCar-v0", out=folder, **TINY)
    return Shelf(folder, folder / "none")


EARLIER: set[threading.Thread] = set()


@pytest.fixture(autouse=True, scope="module")
def earlier() -> None:
    """The threads that other tests have left are not counted."""
    EARLIER.update(threading.enumerate())


def watched() -> list[str]:
    """The threads of environments that are open."""
    names = [thread.name for thread in set(threading.enumerate()) - EARLIER]
    return [name for name in names if name.startswith(("anyreward-live", "watched"))]


def soon(what: Any, seconds: float = 10) -> bool:
    """Whether something becomes true."""
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(what())


@pytest.fixture
def server(car: Shelf) -> Iterator[Running]:
    with served(car, limits=Limits(idle_seconds=60, steps=50)) as running:
        yield running
    assert soon(lambda: not watched())  # every environment is closed


def open_socket(server: Running, shelf: Shelf) -> ClientConnection:
    identity = shelf.entries()[0]["id"]
    origin: Any = f"http://{server.host}"
    return connect(f"ws://{server.host}/api/agents/{identity}/live", origin=origin, proxy=None, close_timeout=1)


def state_and_picture(socket: ClientConnection) -> tuple[dict[str, Any], bytes]:
    state = socket.recv(timeout=20)
    assert isinstance(state, str)
    picture = socket.recv(timeout=20)
    assert isinstance(picture, bytes)
    assert picture.startswith(b"\x89PNG")
    return json.loads(state), picture


def until_error(socket: ClientConnection) -> str:
    """The next error, past states and pictures."""
    while True:
        message = socket.recv(timeout=20)
        if isinstance(message, str) and "error" in (found := json.loads(message)):
            return str(found["error"])


def until_closed(socket: ClientConnection) -> Close:
    """The reason that the server gives for closing the socket."""
    end = None
    try:
        while True:
            socket.recv(timeout=20)
    except ConnectionClosed as closed:
        end = closed.rcvd
    assert end is not None
    return end


def test_an_environment_is_played(server: Running, car: Shelf) -> None:
    with open_socket(server, car) as socket:
        state, picture = state_and_picture(socket)
        assert (state["steps"], state["live"]["rendered"]) == (0, True)
        size = (state["live"]["width"], state["live"]["height"])
        assert struct.unpack(">II", picture[16:24]) == size
        with pytest.raises(TimeoutError):  # nothing moves without a task
            socket.recv(timeout=0.3)
        socket.send(json.dumps({"task": RIGHT}))
        states = [state_and_picture(socket)[0] for _ in range(10)]
        assert [state["steps"] for state in states] == list(range(1, 11))
        assert len({tuple(state["features"]) for state in states}) > 1
        socket.send(json.dumps({"pause": True}))
        since = time.monotonic()
        with contextlib.suppress(TimeoutError):
            while True:
                socket.recv(timeout=0.5)
                assert time.monotonic() - since < 10
        socket.send(json.dumps({"restart": [-0.3, 0.0]}))  # also while it pauses
        state, _ = state_and_picture(socket)
        assert state["steps"] == 0
        assert state["placed"]
        assert state["features"] == pytest.approx([-0.3, 0.0], abs=1e-6)
        socket.send(json.dumps({"pause": False, "restart": None}))
        assert state_and_picture(socket)[0]["steps"] == 0
        assert state_and_picture(socket)[0]["steps"] == 1


def test_the_speed_is_kept_and_episodes_follow_each_other(car: Shelf) -> None:
    with served(car, limits=Limits(steps=10)) as server, open_socket(server, car) as socket:
        state_and_picture(socket)
        socket.send(json.dumps({"task": RIGHT}))
        state_and_picture(socket)
        since = time.monotonic()
        for _ in range(15):
            state_and_picture(socket)
        assert 1.2 < time.monotonic() - since < 5
    with served(car, limits=Limits(steps=1000)) as server, open_socket(server, car) as socket:
        state_and_picture(socket)
        socket.send(json.dumps({"task": RIGHT}))
        while not (state := state_and_picture(socket)[0])["over"]:
            assert state["steps"] < 200
        assert state["steps"] == 200
        assert state_and_picture(socket)[0]["steps"] == 1


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "{}", "null", '{"x": 1}', '{"pause": 1}', '{"restart": 1}', '{"restart": [1, 2, 3]}',
     '{"restart": [NaN, 0]}', '{"restart": ["x", 0]}', '{"task": 1}', '{"task": {"terms": [1]}}', "[" * 10_000, b"{}",
     '{"task": {"terms": [{"kind": "expression", "text": "\\ud800", "weight": 1}]}}'],
)  # fmt: skip
def test_mistakes_are_answered_and_the_session_goes_on(server: Running, car: Shelf, message: str | bytes) -> None:
    with open_socket(server, car) as socket:
        state_and_picture(socket)
        socket.send(message)
        assert len(until_error(socket).split()) > 2
        socket.send(json.dumps({"task": RIGHT}))
        assert state_and_picture(socket)[0]["steps"] == 1


def test_a_message_that_is_too_large_ends_the_session(server: Running, car: Shelf) -> None:
    with open_socket(server, car) as socket:
        socket.send(json.dumps({"task": "x" * Limits().body}))
        assert until_closed(socket).code == 1009


def test_at_most_four_environments(server: Running, car: Shelf) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(open_socket(server, car)) for _ in range(4)]
        for socket in sockets:
            state_and_picture(socket)
        for _ in range(3):
            with open_socket(server, car) as more:
                end = until_closed(more)
            assert end.code == 1013
            assert "close one of them" in end.reason
        assert server.ask("GET", "/api/agents").status == 200
        sockets[0].close()
        assert soon(lambda: len([name for name in watched() if name.startswith("watched")]) == 3)
        with open_socket(server, car) as again:
            state_and_picture(again)


def test_clients_that_vanish_leave_nothing(server: Running, car: Shelf) -> None:
    for _ in range(6):  # more than may be open at once
        with open_socket(server, car) as socket:
            state_and_picture(socket)
            socket.send(json.dumps({"task": RIGHT}))
            state_and_picture(socket)
            socket.socket.shutdown(SHUT_RDWR)  # without a word
        assert soon(lambda: not watched())


def test_a_client_that_leaves_while_the_environment_opens(server: Running, car: Shelf) -> None:
    for _ in range(6):
        with open_socket(server, car) as socket:
            socket.socket.shutdown(SHUT_RDWR)
        assert soon(lambda: not watched())


def test_silence_ends_the_session(car: Shelf) -> None:
    with served(car, limits=Limits(idle_seconds=1)) as server, open_socket(server, car) as socket:
        state_and_picture(socket)
        socket.send(json.dumps({"task": RIGHT}))
        since = time.monotonic()
        assert "Nothing was heard" in until_closed(socket).reason
        assert 0.9 < time.monotonic() - since < 10
        assert soon(lambda: not watched())


def test_a_client_that_does_not_read_is_left(car: Shelf) -> None:
    with served(car, limits=Limits(slow_seconds=0.5, steps=1000)) as server:
        with server.connect() as connection:
            identity = car.entries()[0]["id"]
            connection.sendall(server.head("SOCKET", f"/api/agents/{identity}/live"))
            connection.recv(2000)
            assert soon(lambda: bool(watched()))
            text = json.dumps({"task": RIGHT}).encode()
            connection.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)  # masked by zeros
            assert soon(lambda: not watched(), 30)
        assert server.ask("GET", "/api/agents").status == 200


def test_a_fast_client_does_not_stop_the_server(server: Running, car: Shelf) -> None:
    with open_socket(server, car) as socket:
        state_and_picture(socket)
        stop = threading.Event()

        def flood() -> None:
            with contextlib.suppress(ConnectionClosed):
                while not stop.is_set():
                    socket.send(json.dumps({"task": RIGHT, "pause": False}))

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            seen = 0
            until = time.monotonic() + 2
            while time.monotonic() < until:
                seen += isinstance(socket.recv(timeout=20), bytes)
                assert server.ask("GET", "/api/agents").status == 200
            assert seen > 1  # steps go on, although the policy is asked for again and again
        finally:
            stop.set()
            while flooding.is_alive():
                with contextlib.suppress(TimeoutError, ConnectionClosed):
                    socket.recv(timeout=0.1)


def test_a_world_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = {
        "observations": rng.random((50, 2)),
        "actions": np.arange(50) % 3,
        "next_observations": rng.random((50, 2)),
    }
    np.savez(tmp_path / "walk.npz", **steps)
    ar.train(str(tmp_path / "walk.npz"), out=tmp_path / "offline", **TINY)
    shelf = Shelf(tmp_path / "offline", tmp_path / "none")
    with served(shelf) as server, open_socket(server, shelf) as socket:
        assert len(until_error(socket).split()) > 3
        assert until_closed(socket).code == 4400


def test_unknown_agents_have_no_socket(server: Running) -> None:
    origin: Any = f"http://{server.host}"
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{server.host}/api/agents/nobody/live", origin=origin, proxy=None)
    assert refused.value.response.status_code == 404
