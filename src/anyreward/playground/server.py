"""The server of the playground: its routes, the threads that answer, and `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
import sys
import threading
import warnings
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from typing import Any, TypeVar

import torch
import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket
from starlette.exceptions import HTTPException

from anyreward.errors import UserError, shown
from anyreward.playground.connection import uvicorn_config
from anyreward.playground.scene import Scene
from anyreward.playground.security import (
    LOOPBACK,
    Gone,
    Guard,
    Limits,
    Refused,
    address,
    allowed_hosts,
    check_access,
    error_body,
    is_loopback,
    read_json,
)
from anyreward.playground.shelf import Shelf
from anyreward.playground.watching import Session

T = TypeVar("T")

TELEMETRY: Any = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}
"""Newer versions of FastAPI could send reports to another machine; older ones ignore this."""
PORT = 8765
"""The port that is tried first."""
PORTS = 20
"""Number of ports that are tried, if none is named."""
ANSWERING = 2
"""Threads that compute answers. Explanations, which take longer, have one of their own; so has loading."""
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
}
"""The files of the page that are served, by the end of their names, and their types."""


class Work:
    """A few threads that work for requests in the order of their arrival."""

    def __init__(self, threads: int, name: str) -> None:
        self._turns = asyncio.Semaphore(threads)
        self._threads = ThreadPoolExecutor(threads, name, partial(torch.set_num_threads, 1))

    async def do(self, request: Request | WebSocket, function: Callable[[], T]) -> T:
        """The result of a function; raises Gone if the client disconnects before its turn."""
        if self._turns.locked() and isinstance(request, Request):
            await self._wait(request)
        else:
            await self._turns.acquire()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        finally:
            self._turns.release()

    async def _wait(self, request: Request) -> None:
        """Wait for a turn, or for the end of the connection."""
        turn, gone = asyncio.ensure_future(self._turns.acquire()), asyncio.ensure_future(_gone(request))
        taken = False
        try:
            await asyncio.wait((turn, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise Gone
            taken = True
        finally:
            gone.cancel()
            if not taken and not turn.cancel() and not turn.cancelled():  # both came at once
                self._turns.release()


async def _gone(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Playground:
    """The routes."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self._shelf, self._limits = shelf, limits
        self._files = page_files()
        self._answers, self._explanations, self._loading = (
            Work(ANSWERING, "answer"),
            Work(1, "explain"),
            Work(1, "load"),
        )
        self._sessions = self._watched = 0

    async def index(self) -> Response:
        """The page."""
        return self._file("index.html")

    async def file(self, file: str) -> Response:
        """A module or the style sheet of the page, from memory."""
        return self._file(file)

    def _file(self, name: str) -> Response:
        if name not in self._files:
            raise Refused(404, "The page has no such file.")
        content, kind = self._files[name]
        return Response(content, media_type=kind)

    async def agents(self, request: Request) -> Response:
        """The agents that can be chosen."""
        return await self._json(request, self._loading, lambda: {"agents": self._shelf.entries()})

    async def agent(self, request: Request, identity: str) -> Response:
        """One agent as the page shows it; it is loaded."""
        return await self._json(request, self._loading, lambda: self._scene(identity).describe())

    async def answer(self, request: Request, identity: str) -> Response:
        """The answer to a task: fast."""
        body = await request.body()

        def answers() -> dict[str, Any]:
            scene, given = self._scene(identity), read_json(body)
            quick = given.pop("quick", False) if isinstance(given, dict) else False
            return scene.answer(given, quick is True)

        return await self._json(request, self._answers, answers)

    async def act(self, request: Request, identity: str) -> Response:
        """The actions of the policy of a task at places, for agents that walk in the page: fast."""
        body = await request.body()

        def acts() -> dict[str, Any]:
            scene, given = self._scene(identity), read_json(body)
            places = given.pop("at", None) if isinstance(given, dict) else None
            return scene.acts(given, places)

        return await self._json(request, self._answers, acts)

    async def explain(self, request: Request, identity: str) -> Response:
        """What takes longer: trust, the optimum, landmarks."""
        body = await request.body()
        return await self._json(request, self._explanations, lambda: self._scene(identity).explain(read_json(body)))

    async def live(self, socket: WebSocket, identity: str) -> None:
        """A policy in a real environment, watched."""
        scene = await self._loading.do(socket, partial(self._scene, identity))
        await socket.accept()
        if self._sessions >= self._limits.sessions:
            await socket.close(1013, f"{self._limits.sessions} environments are watched already; close one of them.")
            return
        self._sessions, self._watched = self._sessions + 1, self._watched + 1
        try:
            await Session(socket, scene, self._limits, self._watched).run()
        finally:
            self._sessions -= 1

    def _scene(self, identity: str) -> Scene:
        try:
            return self._shelf.scene(identity)
        except KeyError:
            raise Refused(404, f"There is no agent {shown(identity)}.") from None

    async def _json(self, request: Request, work: Work, function: Callable[[], dict[str, Any]]) -> Response:
        """The result of a function as JSON; both are made in a thread."""
        text = await work.do(request, lambda: json.dumps(function(), allow_nan=False).encode())
        return Response(text, media_type="application/json")


def page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page and their types, by name: what is not here cannot be asked for."""
    folder = resources.files("anyreward.playground") / "page"
    found = [entry for entry in folder.iterdir() if entry.is_file()] if folder.is_dir() else []
    kinds = {entry.name: KINDS.get(entry.name.rpartition(".")[2]) for entry in found}
    return {entry.name: (entry.read_bytes(), kind) for entry in found if (kind := kinds[entry.name])}


def create_app(
    shelf: Shelf, *, host: str = LOOPBACK, port: int = PORT, token: str | None = None, limits: Limits | None = None
) -> FastAPI:
    """The application: agents of a shelf, for browsers that name this host and port.

    Other machines need a token, so at a host that is not loopback one is made if none is given; it is
    ``app.state.token``.
    """
    check_access(host, token)
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
    limits = limits or Limits()
    playground = Playground(shelf, limits)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, telemetry=TELEMETRY)
    app.state.token, app.state.limits = token, limits
    one = "/api/agents/{identity}"
    for path, route in (
        ("/", playground.index),
        ("/page/{file}", playground.file),
        ("/api/agents", playground.agents),
        (one, playground.agent),
    ):
        app.add_api_route(path, route, methods=["GET"])
    app.add_api_route(f"{one}/answer", playground.answer, methods=["POST"])
    app.add_api_route(f"{one}/act", playground.act, methods=["POST"])
    app.add_api_route(f"{one}/explain", playground.explain, methods=["POST"])
    app.add_api_websocket_route(f"{one}/live", playground.live)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_middleware(Guard, hosts=allowed_hosts(host, port), token=token, cookie=f"anyreward-{port}", limits=limits)
    return app


async def _no_route(request: Request, error: Exception) -> Response:
    """The answer of the router, such as 404 and 405, as JSON."""
    assert isinstance(error, HTTPException)
    sentences = {404: "There is nothing at this address.", 405: f"{request.method} is not possible at this address."}
    sentence = sentences.get(error.status_code, str(error.detail))
    return Response(error_body(sentence), error.status_code, error.headers, "application/json")


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port, at the first free one from PORT on."""
    host = LOOPBACK if host == "localhost" else host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(PORT, PORT + PORTS) if port is None else [port]:
        try:
            listener = socket.create_server((host, number), family=family, backlog=1024)
            # connections inherit it: else the second packet of an answer waits 40 ms for the first to be confirmed
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"Listening at {address(host, number)} is not possible: {error.strerror}.") from None
    taken = f"port {port} is" if port is not None else f"ports {PORT} to {PORT + PORTS - 1} are"
    raise UserError(f"At {host}, {taken} in use by another program. Choose another one with --port.")


def serve(
    shelf: Shelf, *, host: str = LOOPBACK, port: int | None = None, token: str | None = None, browser: bool = True
) -> None:
    """Serve the playground until Ctrl-C, print its address, and open it in a browser.

    With a token the browser is not opened: the arguments of programs can be read by other users of the machine.
    """
    check_access(host, token)
    with contextlib.closing(listen(host, port)) as listener:
        number = listener.getsockname()[1]
        app = create_app(shelf, host=host, port=number, token=token)
        url = f"http://{address(host, number)}/"
        secret = "" if app.state.token is None else f"?token={app.state.token}"
        print(f"The playground is at {url}{secret} (Ctrl-C ends it).", flush=True)
        if browser and not secret and _has_screen():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", UserWarning)  # the page shows what they say
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn_config(app, app.state.limits)).run(sockets=[listener])
    print("Stopped.")


def _has_screen() -> bool:
    """Whether a browser would have a window; without one, some take over the terminal."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
