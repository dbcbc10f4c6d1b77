"""The socket of the playground: a policy plays in a real environment while the page watches.

The page sends JSON with one or more of ``task`` (what the policy plays for), ``restart`` (a new episode; from a place
of the two drawn features, or null) and ``pause`` (true or false). The server sends each state as JSON, then a PNG of
it, unless it cannot be rendered; the first state also has ``live``, a description of the environment. After an
episode the next one follows. A mistake is answered with ``{"error": ...}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from fastapi import WebSocket, WebSocketDisconnect

from anyreward.acting.policy import Policy
from anyreward.errors import UserError, shown
from anyreward.playground.scene import Scene
from anyreward.playground.security import Gone, Limits, Refused, details, error_body, read_json

if TYPE_CHECKING:
    from anyreward.playground.live import Live

T = TypeVar("T")

BETWEEN_EPISODES = 1.0
"""Seconds for which the end of an episode is shown."""
BETWEEN_MESSAGES = 0.002
"""Seconds between two messages of a client that are read."""
KINDS = ("task", "restart", "pause")
"""What a message may hold."""
NOT_POSSIBLE = 4400
"""Code with which a socket is closed whose environment cannot be shown; its last message says why."""


class Session:
    """One environment and one socket, and a thread that waits for the environment."""

    def __init__(self, socket: WebSocket, scene: Scene, limits: Limits, seed: int = 0) -> None:
        self.socket, self.scene, self.limits, self.seed = socket, scene, limits, seed
        self._thread = ThreadPoolExecutor(1, "watched", partial(torch.set_num_threads, 1))
        self._wanted: dict[str, Any] = {}
        """what the client has sent since the last look; of each kind, the latest"""
        self._news = asyncio.Event()
        self._live: Live | None = None
        self._policy: Policy | None = None
        self._paused = False
        self._due = 0.0
        """when the next step is due"""

    async def run(self) -> None:
        """Show the environment until the client leaves, is silent for long, or does not read."""
        reader = asyncio.create_task(self._read())
        reader.add_done_callback(lambda _: self._news.set())
        try:
            await self._play(reader)
        except (WebSocketDisconnect, Gone):
            pass  # nobody reads any more
        except UserError as error:
            await self._say(error)
            await self.socket.close(NOT_POSSIBLE)
        finally:
            reader.cancel()
            closing = self._thread.submit(self._close)  # after what the thread is doing
            self._thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(closing))

    async def _play(self, reader: asyncio.Task[None]) -> None:
        await self._show(self._open)
        loop = asyncio.get_running_loop()
        self._due = heard = loop.time()
        while not reader.done():
            playing = self._policy is not None and not self._paused
            until = self._due if playing else heard + self.limits.idle_seconds
            if await self._heard(until - loop.time()):
                heard = loop.time()
                await self._obey()
            elif loop.time() - heard >= self.limits.idle_seconds:
                await self.socket.close(1000, "Nothing was heard from the page for a long time.")
                return
            if playing and loop.time() >= self._due:  # also if the page sends all the time
                self._due = max(self._due + 1 / (self.limits.steps * self.scene.pace), loop.time())
                await self._show(self._step)
        reader.result()

    async def _heard(self, seconds: float) -> bool:
        """Whether the client has sent something, or has left, after waiting for at most this time."""
        if not self._news.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(seconds, 0))
        return self._news.is_set()

    async def _read(self) -> None:
        """Keep the latest message of each kind; reading in turns with the thread keeps a fast client from flooding."""
        while True:
            message = await self.socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            try:
                self._wanted |= await self._in_thread(partial(read_message, message.get("text")))
            except Refused as refused:
                self._wanted["error"] = str(refused)
            self._news.set()
            await asyncio.sleep(BETWEEN_MESSAGES)

    async def _obey(self) -> None:
        """Do what the client wants."""
        wanted, self._wanted = self._wanted, {}
        self._news.clear()
        if "error" in wanted:
            await self._send(error_body(wanted["error"]).decode())
        self._paused = wanted.get("pause", self._paused)
        try:
            if "task" in wanted:
                self._policy = await self._in_thread(partial(self.scene.policy, wanted["task"]))
            if "restart" in wanted:
                await self._show(partial(self._restart, wanted["restart"]))
        except UserError as error:
            await self._say(error)

    async def _show(self, act: Callable[[], dict[str, Any]]) -> None:
        """Act, and send the state and its picture."""
        state, picture = await self._in_thread(partial(self._acted, act))
        if state["over"]:
            self._due += BETWEEN_EPISODES
        await self._send(json.dumps(state))
        if picture:
            await self._send(picture)

    async def _send(self, message: str | bytes) -> None:
        try:
            async with asyncio.timeout(self.limits.slow_seconds):
                await (self.socket.send_text(message) if isinstance(message, str) else self.socket.send_bytes(message))
        except TimeoutError:
            raise Gone from None

    async def _say(self, error: UserError) -> None:
        await self._send(error_body(str(error), **details(error)).decode())

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _acted(self, act: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], bytes]:
        state = act()
        assert self._live is not None
        return state, self._live.frame()

    def _open(self) -> dict[str, Any]:
        from anyreward.playground.live import Live  # here, because it imports what renders

        self._live = Live(self.scene.agent, self.seed, [axis.name for axis in self.scene.axes])
        return {**self._live.restart(), "live": self._live.describe()}

    def _restart(self, start: list[float] | None) -> dict[str, Any]:
        assert self._live is not None
        return self._live.restart(start)

    def _step(self) -> dict[str, Any]:
        assert self._live is not None
        assert self._policy is not None
        return self._live.step(self._policy)

    def _close(self) -> None:
        if self._live is not None:
            self._live.close()


def read_message(text: str | None) -> dict[str, Any]:
    """A message of the page; raises Refused if it is not one, or if it is binary."""
    if text is None:
        raise Refused(400, "Messages are text.")
    message = read_json(text)
    start = message.get("restart") if isinstance(message, dict) else None
    numbers = isinstance(start, list) and 0 < len(start) <= 2 and all(type(x) in (int, float) for x in start)
    if (
        not isinstance(message, dict)
        or not message
        or set(message) - set(KINDS)
        or not (start is None or numbers)
        or not isinstance(message.get("pause", False), bool)
    ):
        raise Refused(400, f'A message holds {", ".join(KINDS)}, such as {{"pause": true}}; got {shown(message)}.')
    return message
