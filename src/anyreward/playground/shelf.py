"""The agents that the playground offers: the user's run folders, and those that come with the package."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import holds_agent
from anyreward.playground.scene import Scene
from anyreward.storage.files import read_json
from anyreward.storage.generations import INDEX
from anyreward.storage.shipped import PREFIX, shipped_agents, shipped_index, shipped_name

MOST_OPEN = 12
"""Largest number of agents that are kept in memory."""
FIRST = "four-rooms"
"""The agent that the page shows first, if the user names none."""
MOST_LISTED = 200
"""Largest number of run folders that are listed."""


class Shelf:
    """Agents by opaque ids, the one to begin with first; each is loaded when it is first used."""

    def __init__(self, run: Path | None = None, folder: Path = Path("runs")) -> None:
        runs = sorted(path for path in folder.iterdir() if holds_agent(path))[:MOST_LISTED] if folder.is_dir() else []
        shipped = [Path(f"{PREFIX}{name}") for name in sorted(shipped_agents(), key=lambda name: name != FIRST)]
        if run is not None:
            shipped = [run, *shipped]
            runs = [path for path in runs if path.resolve() != run.resolve()]
        self._places = {_identity(str(path)): path for path in [*shipped, *runs]}
        self._scenes: dict[str, Scene] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[dict[str, Any]]:
        """The id, name, world, d and folder of each agent, without loading it; damaged ones are left out."""
        found = []
        for identity, path in self._places.items():
            shipped = shipped_name(path)
            try:
                about = read_json(path / INDEX) if shipped is None else shipped_index(shipped, INDEX)
                world, dim = about["world"], int(about["settings"]["dim"])
            except (UserError, OSError, KeyError, TypeError, ValueError, AttributeError):
                continue
            run = None if shipped else str(path)
            # agents of one world, whose d can be compared; other objects than worlds by name have only their name
            group = _identity(json.dumps([world.get("name"), world.get("recipe")], sort_keys=True))
            entry = {"id": identity, "name": shipped or path.name, "world": str(world.get("name")), "dim": dim}
            found.append(entry | {"run": run, "shipped": shipped, "group": group})
        return found

    def scene(self, identity: str) -> Scene:
        """The agent with this id; raises a KeyError if there is none, and a UserError if it cannot be used.

        ID.i.j is the same agent, of which the features i and j are drawn.
        """
        plain, *drawn = identity.split(".")
        path = self._places[plain]
        if drawn and (len(drawn) != 2 or not all(len(part) <= 3 and part.isdecimal() for part in drawn)):
            raise KeyError(identity)
        chosen = (int(drawn[0]), int(drawn[1])) if drawn else None
        if (found := self._scenes.get(identity)) is not None:  # another one that is being loaded does not stop it
            return found
        with self._lock:
            if identity not in self._scenes:
                shipped = shipped_name(path)
                agent = self._scenes[plain].agent if plain in self._scenes else Agent.load(path)
                scene = Scene(agent, identity, None if shipped else str(path), shipped, chosen)
                while len(self._scenes) >= MOST_OPEN:
                    del self._scenes[next(iter(self._scenes))]
                self._scenes[identity] = scene
            return self._scenes[identity]


def _identity(text: str) -> str:
    """An id that says nothing of the text, such as a path, that it stands for."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
