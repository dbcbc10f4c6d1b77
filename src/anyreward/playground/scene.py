"""An agent as the page shows it: two features of its world are drawn, and answers are computed on their grid."""

from __future__ import annotations

import threading
import warnings
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from anyreward.acting.better import better_refined
from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.model.landmarks import MOST_ROUNDS
from anyreward.playground.arrays import encoded
from anyreward.playground.axes import View
from anyreward.playground.grid import NO_ACTION, Grid
from anyreward.playground.live import described_actions, ranges
from anyreward.playground.optimum import Optimum, optimum_of
from anyreward.playground.task import numbers, reward_of
from anyreward.theory.pendulum import GRAVITY
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.maze import Maze, MazeEnv
from anyreward.worlds.point_mass import LENGTH, PointMassMazeEnv
from anyreward.worlds.spaces import Array

QUICK_ROUNDS = 3
"""Rounds of policy iteration while a stroke goes on."""
PENDULUM_PACE = 2.5
"""A step of the pendulum is a twentieth of a second, shorter than in most worlds: at the usual pace it would crawl."""
MOST_WALKERS = 32
"""Largest number of places at which actions are asked for at once."""
_warnings = threading.Lock()
"""Held while warnings are recorded: the recorder belongs to the whole program, not to a thread."""


class Scene:
    """A loaded agent with the two coordinates that are drawn."""

    def __init__(
        self,
        agent: Agent,
        identity: str = "",
        run: str | None = None,
        shipped: str | None = None,
        drawn: tuple[int, int] | None = None,
    ) -> None:
        self.agent, self.identity, self.run, self.shipped = agent, identity, run, shipped
        knowledge = agent.knowledge
        if knowledge.method.goals_only:
            raise UserError(f"The playground needs any reward; {agent.settings.method} supports single goals only.")
        self.env = self._open()
        self.kind = self._kind()
        self._view = View(agent, self.env, self.kind)
        self.axes = self._view.axes(drawn)
        self.grid = Grid(self._view, self.axes)
        tables = agent.model.landmarks
        if tables is not None:  # a stroke changes a task little by little
            tables.warm = torch.zeros(len(tables.P.states))
        self.pace = PENDULUM_PACE if self.kind == "pendulum" else 1.0
        """how many times faster than others its real environment is shown"""
        self._lock = threading.Lock()

    def _open(self) -> gym.Env[Any, Any] | None:
        """The agent's world, to look at; None if it cannot be opened again."""
        if self.agent.world_recipe is None:
            return None
        try:
            make = self.agent.world().make
            return make().unwrapped if make else None
        except UserError:  # such as an environment of a package that is not installed
            return None

    def _kind(self) -> str:
        phi, names = self.agent.model.phi, {"anyreward/MsPacman-v0": "screen", "anyreward/FetchReach-v0": "arm"}
        if isinstance(self.env, MazeEnv) and phi.table is not None:
            return "maze"
        if isinstance(self.env, ContinuousMazeEnv) and phi.kind == "observation":
            return "square"
        if isinstance(self.env, PendulumEnv) and phi.kind == "observation" and _is_usual(self.env):
            return "pendulum"
        return names.get((self.agent.world_recipe or {}).get("id", ""), "plane")

    @property
    def maze(self) -> Maze | None:
        """The drawn maze, if the world is one."""
        return self._view.maze

    def observations_at(self, places: Array) -> Array:
        """Observations at places (n, 2) of the two drawn features."""
        if self.maze is not None:
            x, y = np.round(places).astype(np.int64).T
            inside = (x >= 0) & (x < self.maze.width) & (y >= 0) & (y < self.maze.height)
            cells = y * self.maze.width + x
            if not (inside & np.isin(cells, self.maze.free)).all():
                raise UserError("A place of the task is not a free cell of the maze.")
            return np.asarray(cells)
        if self.kind != "square":
            raise UserError("Demonstrations can be drawn in mazes only.")
        return np.asarray(places, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """What the page needs to know of the agent, as JSON."""
        agent, phi = self.agent, self.agent.model.phi
        mazes, acts, known = self.kind in ("maze", "square"), phi.action_set, described_actions(phi, self.env)
        counted = [f"action {i + acts.start}" for i in range(phi.actions)]
        scene: dict[str, Any] = {
            "id": self.identity,
            "name": agent.world_name,
            "run": self.run,
            "shipped": self.shipped,
            "agent": agent.fingerprint,
            "method": "tables" if agent.model.landmarks is not None else "networks",
            "dim": agent.knowledge.dim,
            "updates": agent.updates,
            "gamma": agent.settings.gamma,
            "kind": self.kind,
            "features": list(phi.column_names),
            "axes": [axis.describe() for axis in self.axes],
            "coordinates": self._view.labels,
            "grid": {
                "width": self.axes[0].points,
                "height": self.axes[1].points,
                "up": self.kind in ("square", "pendulum", "plane", "arm"),
            },
            "fixed": {phi.column_names[i]: value for i, value in self.grid.fixed.items()},
            "actions": [] if acts.box else known or counted,
            "box": known if acts.box else None,
            "listed": acts.table.tolist() if acts.levels else None,
            "episode": agent.knowledge.episodes.limit if agent.knowledge.episodes else 0,
            "paintable": self.kind in ("maze", "square", "pendulum", "plane"),
            "demonstrable": mazes,
            "live": not mazes and self.env is not None,
            "exact": self.optimum is not None,
            "ranges": [list(ends) for ends in ranges(agent)],
        }
        if self.maze is not None:
            scene["drawing"] = self.maze.drawing
        if isinstance(self.env, ContinuousMazeEnv):
            scene["walls"] = self.env.plane.walls.tolist()
        if isinstance(self.env, PointMassMazeEnv) and [axis.index for axis in self.axes] == [0, 1]:
            scene["walls"] = [[-LENGTH, 0.0, LENGTH, 0.0], [0.0, -LENGTH, 0.0, LENGTH]]
        return scene

    @cached_property
    def optimum(self) -> Optimum | None:
        """The world solved exactly, where it can be."""
        return optimum_of(self.agent, self.env) if self.kind in ("maze", "square", "pendulum") else None

    def answer(self, task: Any, quick: bool = False) -> dict[str, Any]:
        """The answer F . z to a task, at once: z_R, and values and greedy actions on the grid.

        With ``quick``, for a stroke that goes on, tables take a few rounds from the last answer on.
        """
        policy, notes = self._asked(task)
        return self._drawn(policy, quick) | {"notes": notes}

    def _asked(self, task: Any) -> tuple[Policy, list[str]]:
        """The answer F . z to a task, and the texts of the warnings."""
        reward = reward_of(task, self)
        with _warnings, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            policy = self.agent.ask(reward, refine=0)
        return policy, [str(warning.message) for warning in caught]

    def _drawn(self, policy: Policy, quick: bool = False) -> dict[str, Any]:
        tables = self.agent.model.landmarks
        with self._lock:  # the tables keep answers, and how many rounds they take
            if tables is not None:
                tables.rounds = QUICK_ROUNDS if quick else MOST_ROUNDS
            try:
                value, action = self.grid.answer(policy)
            finally:
                if tables is not None:
                    tables.rounds = MOST_ROUNDS
        drawn = {"push": encoded(action)} if action.ndim == 2 else {"action": encoded(action, "u1")}
        return {"z": encoded(policy.belief.found.z), "value": encoded(value), **drawn}

    def explain(self, task: Any) -> dict[str, Any]:
        """What takes longer: the trust report, the optimum, the landmarks, and the policy that `ask` returns."""
        plain, notes = self._asked(task)
        policy = better_refined(plain)
        trust = policy.trust
        found: dict[str, Any] = {
            "trust": {"verdict": trust.verdict, "reasons": list(trust.reasons), "text": str(trust)},
            "notes": notes,
            "planned": policy.refined,
        }
        if policy.refined:  # the answer that was drawn so far was F . z alone
            found["answer"] = self._drawn(policy)
        if self.optimum is not None and not policy.clueless:
            found["optimum"] = self.optimum.compare(policy, self.grid.points)
        found |= self._landmarks(policy)
        return found

    def _landmarks(self, policy: Policy) -> dict[str, Any]:
        """The landmark that leads from each point of the grid: places (k, 2), and the index of each point's."""
        tables = self.agent.model.landmarks
        plain = not (policy.corrections or policy.clueless) and self.kind in ("maze", "square")
        if tables is None or not len(tables.landmarks) or not plain:
            return {}
        which, rows = self.grid.rows
        observations = rows.numpy() if self.kind == "square" else rows.numpy().astype(np.int64).ravel()
        places, index = np.unique(policy.landmark(observations)[0], axis=0, return_inverse=True)
        leads = np.full(len(self.grid.points), -1)
        leads[which] = index.ravel()
        return {"landmarks": {"places": places.tolist(), "leads": encoded(leads, "<i2")}}

    def acts(self, task: Any, places: Any) -> dict[str, Any]:
        """The greedy actions, counted from zero, at places of the two drawn features, for agents that walk there."""
        if not isinstance(places, list) or not 0 < len(places) <= MOST_WALKERS:
            raise UserError(f"at is {shown(places)}; expected 1 to {MOST_WALKERS} places, [x, y] each.")
        at = self.observations_at(np.stack([numbers(place, "A place", 2, 2) for place in places]))
        policy, _ = self._asked(task)
        with self._lock:
            actions = np.full(len(at), NO_ACTION) if policy.clueless else policy.act(at, warn=False)
        return {"actions": (actions - self.agent.model.phi.action_set.start).tolist()}

    def policy(self, task: Any) -> Policy:
        """The policy that is watched in the real environment: the one that `ask` returns."""
        return better_refined(self._asked(task)[0])


def _is_usual(env: PendulumEnv) -> bool:
    """Whether a pendulum has the usual gravity, mass and length."""
    return bool((env.g, env.m, env.l) == (GRAVITY, 1.0, 1.0))
