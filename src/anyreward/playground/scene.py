"""An agent as the page shows it: two features of its world are drawn, and answers are computed on their grid."""

from __future__ import annotations

import threading
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from anyreward.acting.better import better_refined
from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.model.landmarks import MOST_ROUNDS
from anyreward.playground.arrays import encoded
from anyreward.playground.live import action_names, ranges, screen
from anyreward.playground.optimum import Optimum, optimum_of
from anyreward.playground.task import numbers, reward_of
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.maze import Maze, MazeEnv
from anyreward.worlds.spaces import Array, leaves

SQUARE_POINTS, PLANE_POINTS, SCREEN_POINTS, MOST_POINTS = 41, 33, 41, 101
"""Points along an axis: of the continuous maze, of other numbers, of a screen, and of categories at most."""
EDGE = 0.005
"""Share of the training data that may lie beyond each end of an axis."""
ROWS = 3_000
"""Number of held-out observations at which values are computed where features are not observations."""
NEAREST = 3
"""Number of these whose values are averaged at a point of the grid."""
REACH = 1.5
"""A point of the grid is drawn if one of these lies within this number of grid steps."""
QUICK_ROUNDS = 3
"""Rounds of policy iteration while a stroke goes on."""
MOST_WALKERS = 32
"""Largest number of places at which actions are asked for at once."""
NO_ACTION = 255
"""The action at a point of the grid where there is none."""
_warnings = threading.Lock()
"""Held while warnings are recorded: the recorder belongs to the whole program, not to a thread."""


@dataclass(frozen=True)
class Axis:
    """A feature that is drawn, and the values at which it is."""

    name: str
    index: int
    """its column among the features"""
    low: float
    high: float
    points: int
    whole: bool = False
    """whether its values are whole numbers: categories, cells"""

    @property
    def values(self) -> Array:
        """(points,) the drawn values."""
        return np.linspace(self.low, self.high, self.points)


class Scene:
    """A loaded agent with the two features that are drawn."""

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
        self.axes = self._axes(drawn)
        tables = agent.model.landmarks
        if tables is not None:  # a stroke changes a task little by little
            tables.warm = torch.zeros(len(tables.P.states))
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
        return names.get((self.agent.world_recipe or {}).get("id", ""), "plane")

    @property
    def maze(self) -> Maze | None:
        """The drawn maze, if the world is one."""
        return self.env.maze if isinstance(self.env, MazeEnv) and self.kind == "maze" else None

    def _axes(self, chosen: tuple[int, int] | None) -> tuple[Axis, Axis]:
        phi, maze = self.agent.model.phi, self.maze
        names = phi.column_names
        if maze is not None:
            return Axis("x", 0, 0, maze.width - 1, maze.width), Axis("y", 1, 0, maze.height - 1, maze.height)
        if self.kind == "square":
            return Axis(names[0], 0, 0.0, 1.0, SQUARE_POINTS), Axis(names[1], 1, 0.0, 1.0, SQUARE_POINTS)
        if seen := screen(self.agent):
            (x0, y0), (x1, y1) = seen["low"], seen["high"]
            return Axis(names[0], 0, x0, x1, SCREEN_POINTS), Axis(names[1], 1, y0, y1, SCREEN_POINTS)
        drawn = phi.state_packed if phi.table is None else phi.table.shape[1]
        if drawn < 2:
            raise UserError(
                f"The playground draws two features, and this agent has one ({names[0]}). Train with a feature_table "
                "that gives each state two coordinates (docs/datasets.md)."
            )
        first, second = chosen or ((0, 1) if drawn == 2 or self.kind == "arm" else self._telling())
        if first == second or not {first, second} <= set(range(drawn)):
            raise UserError(f"The features {first} and {second} cannot be drawn; choose two of {', '.join(names)}.")
        return self.axis(first), self.axis(second)

    def axis(self, index: int) -> Axis:
        """The axis of a feature: the range of the training data, without its extremes."""
        phi, sample = self.agent.model.phi, self.agent.sample
        values = phi.readable(sample.rows.numpy())[:, index]
        parts = [leaf for leaf in leaves(phi.state_space) for _ in range(leaf.packed)]
        if phi.table is not None or parts[index].kind != "number":
            low, high = values.min(), max(values.max(), values.min() + 1)
            return Axis(
                phi.column_names[index], index, float(low), float(high), min(int(high - low) + 1, MOST_POINTS), True
            )
        low, high = np.quantile(values, [EDGE, 1 - EDGE])
        if not low < high:
            low, high = low - 0.5, high + 0.5
        return Axis(phi.column_names[index], index, float(low), float(high), PLANE_POINTS)

    def _telling(self) -> tuple[int, int]:
        """The two features that values depend on most: for random z, their variance between bins of the feature."""
        knowledge, phi = self.agent.knowledge, self.agent.model.phi
        rows = self._known_rows
        if rows is None:
            return 0, 1
        features = phi.readable(rows[1].numpy())
        Z, _ = knowledge.scaled(knowledge.training_z(8, torch.Generator().manual_seed(0)).double())
        explained = np.zeros(phi.state_packed)
        for z in Z:
            V = self.agent.model.q(rows[0][:500], z).amax(1).numpy()
            V = (V - V.mean()) / max(V.std(), 1e-12)
            for i in range(len(explained)):
                order = np.argsort(features[:500, i], kind="stable")
                explained[i] += np.mean([part.mean() ** 2 for part in np.array_split(V[order], 12)])
        first, second = np.sort(np.argsort(-explained)[:2])
        return int(first), int(second)

    @property
    def fixed(self) -> dict[int, float]:
        """The features that are not drawn, by index, and the values that they are held at: medians."""
        phi, sample = self.agent.model.phi, self.agent.sample
        drawn = {axis.index for axis in self.axes}
        if phi.kind != "observation" or phi.table is not None:
            return {}
        medians = np.quantile(sample.rows.numpy()[:, : phi.state_packed], 0.5, axis=0, method="nearest")
        return {i: float(medians[i]) for i in range(phi.state_packed) if i not in drawn}

    @cached_property
    def points(self) -> Array:
        """(n, 2) the points of the grid, row by row."""
        x, y = np.meshgrid(*(axis.values for axis in self.axes))
        return np.stack([x.ravel(), y.ravel()], 1)

    @cached_property
    def grid_rows(self) -> tuple[Array, Tensor]:
        """The indices of the points of the grid that have a state, and the packed observations (m, packed) there."""
        phi, maze = self.agent.model.phi, self.maze
        if maze is not None:
            return maze.free, torch.from_numpy(phi.seen(maze.free))
        if phi.table is not None:
            numbers = {tuple(place): number for number, place in enumerate(phi.table[:, :2].tolist())}
            found = [(i, numbers[tuple(p)]) for i, p in enumerate(self.points.tolist()) if tuple(p) in numbers]
            which, states = np.array(found, dtype=np.int64).reshape(-1, 2).T
            return which, torch.from_numpy(phi.seen(states))
        rows = np.zeros((len(self.points), phi.state_packed), dtype=np.float32)
        for axis, column in zip(self.axes, self.points.T, strict=True):
            rows[:, axis.index] = column
        for i, value in self.fixed.items():
            rows[:, i] = value
        return np.arange(len(rows)), torch.from_numpy(phi.marked(rows))

    @cached_property
    def _known_rows(self) -> tuple[Tensor, Tensor] | None:
        """(m, packed) held-out observations, and their packed features."""
        held_out = self.agent.held_out
        if held_out is None or len(held_out.actions) < 2:
            return None
        observations, features = held_out.observations, held_out.features
        return observations[:ROWS], features[:ROWS]

    @cached_property
    def _scatter(self) -> tuple[Array, Array, Tensor]:
        """Where features are not observations: points of the grid (m,), the rows near each (m, k), and all rows."""
        rows = self._known_rows
        if rows is None:  # no values are drawn
            return np.zeros(0, dtype=np.int64), np.zeros((0, NEAREST), dtype=np.int64), torch.zeros(0, 0)
        steps = np.array([(axis.high - axis.low) / (axis.points - 1) for axis in self.axes])
        places = self.agent.model.phi.readable(rows[1].numpy())[:, [axis.index for axis in self.axes]] / steps
        apart = np.linalg.norm(self.points[:, None] / steps - places, axis=2)  # (n, rows)
        near = np.argsort(apart, axis=1)[:, :NEAREST]
        which = np.flatnonzero(np.take_along_axis(apart, near, 1)[:, 0] <= REACH)
        return which, near[which], rows[0]

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
        mazes = self.kind in ("maze", "square")
        counted = [f"action {i + phi.action_set.start}" for i in range(phi.actions)]
        known = action_names(self.env) if self.env is not None else ()
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
            "axes": [asdict(axis) for axis in self.axes],
            "grid": {
                "width": self.axes[0].points,
                "height": self.axes[1].points,
                "up": self.kind in ("square", "plane", "arm"),
            },
            "fixed": {phi.column_names[i]: value for i, value in self.fixed.items()},
            "actions": list(known) or counted,
            "episode": agent.knowledge.episodes.limit if agent.knowledge.episodes else 0,
            "paintable": self.kind in ("maze", "square", "plane"),
            "demonstrable": mazes,
            "live": not mazes and self.env is not None,
            "exact": self.optimum is not None,
            "ranges": [list(ends) for ends in ranges(agent)],
        }
        if self.maze is not None:
            scene["drawing"] = self.maze.drawing
        if isinstance(self.env, ContinuousMazeEnv):
            scene["walls"] = self.env.plane.walls.tolist()
        return scene

    @cached_property
    def optimum(self) -> Optimum | None:
        """The world solved exactly, where it can be."""
        return optimum_of(self.agent, self.env) if self.kind in ("maze", "square") else None

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
                value, action = self.on_grid(policy)
            finally:
                if tables is not None:
                    tables.rounds = MOST_ROUNDS
        z = policy.belief.found.z
        return {"z": encoded(z), "value": encoded(value), "action": encoded(action, "u1")}

    def on_grid(self, policy: Policy) -> tuple[Array, Array]:
        """(n,) values, in units of the reward, and (n,) greedy actions at the points of the grid."""
        value = np.full(len(self.points), np.nan)
        action = np.full(len(self.points), NO_ACTION)
        phi = self.agent.model.phi
        if phi.kind == "observation":
            which, rows = self.grid_rows
            Q = self._q_of_tables(policy) if self._has_tables(policy) else self._q(policy, rows)
        else:
            which, near, rows = self._scatter
            if not len(which):
                return value, action
            Q = self._q(policy, rows)[near].mean(1)
        value[which] = Q.amax(1).numpy()
        action[which] = NO_ACTION if policy.clueless else Q.argmax(1).numpy()
        return value, action

    @cached_property
    def _grid_shares(self) -> tuple[Tensor, Tensor]:
        """(m, c) the known states that the points of the grid are interpolated from, and (m, c, 1) their shares."""
        tables = self.agent.model.landmarks
        assert tables is not None
        index, share = tables.P.states.locate(self.grid_rows[1])
        return index, share[..., None]

    @staticmethod
    def _has_tables(policy: Policy) -> bool:
        return policy.model.landmarks is not None and not policy.corrections and policy.tuned is None

    def _q_of_tables(self, policy: Policy) -> Tensor:
        """(m, A) the same as `_q` at the points of the grid, without looking them up each time."""
        tables, (index, share) = policy.model.landmarks, self._grid_shares
        assert tables is not None
        Q = (tables.table(policy.z)[index] * share).sum(1).double()
        return policy.reward_scale * Q + policy.task.constant

    def _q(self, policy: Policy, rows: Tensor) -> Tensor:
        """(m, A) Q at packed observations (m, packed), in units of the reward."""
        phi, features = self.agent.model.phi, None
        if phi.kind == "observation":
            features = torch.from_numpy(phi.of(None, rows.numpy(), np.zeros(len(rows), dtype=np.int64)))
        return policy.action_values(rows, features) * policy.reward_scale

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
            found["optimum"] = self.optimum.compare(policy, self.points)
        found |= self._landmarks(policy)
        return found

    def _landmarks(self, policy: Policy) -> dict[str, Any]:
        """The landmark that leads from each point of the grid: places (k, 2), and the index of each point's."""
        tables = self.agent.model.landmarks
        plain = not (policy.corrections or policy.clueless) and self.kind in ("maze", "square")
        if tables is None or not len(tables.landmarks) or not plain:
            return {}
        which, rows = self.grid_rows
        observations = rows.numpy() if self.kind == "square" else rows.numpy().astype(np.int64).ravel()
        places, index = np.unique(policy.landmark(observations)[0], axis=0, return_inverse=True)
        leads = np.full(len(self.points), -1)
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
