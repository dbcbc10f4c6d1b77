"""An agent as one JSON object with everything that its answers need: what an exported page holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, eye_array, kron
from scipy.sparse.linalg import spsolve
from torch import Tensor, nn

from anyreward.acting.exact import packed_states
from anyreward.errors import UserError
from anyreward.model.landmarks import KnownRows, LandmarkForward, TableBackward
from anyreward.model.latent import ASKED_LENGTH
from anyreward.model.model import Model
from anyreward.model.networks import Backward, Forward
from anyreward.model.rank import RANK_SHARE
from anyreward.playground.arrays import encoded
from anyreward.playground.optimum import PendulumOptimum
from anyreward.playground.scene import Scene
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import Array

MOST_LANDMARK_NUMBERS = 2**21
"""Largest number of entries of the landmarks' tables that a page holds; larger ones only explain answers."""
TYPES = {"f2": "<f2", "f4": "<f4", "f8": "<f8", "u1": "u1", "u2": "<u2", "i2": "<i2", "u4": "<u4"}
NO_STATE = 65_535
"""The state of a point of the grid that has none."""


class Bundle:
    """Numbers and arrays by name, as the page reads them."""

    def __init__(self, scene: Scene) -> None:
        _check(scene)
        self.scene = scene
        self.arrays: dict[str, Any] = {}
        self.network: dict[str, Any] | None = None
        agent, model = scene.agent, scene.agent.model
        sample, settings = agent.sample, agent.settings
        self.numbers: dict[str, Any] = {
            "dim": agent.knowledge.dim,
            "gamma": settings.gamma,
            "actions": model.actions,
            "ridge": float(RANK_SHARE * torch.linalg.eigvalsh(sample.covariance)[-1]),
        }
        features = model.phi.readable(sample.rows.numpy())
        self.add("features", features[:, : len(model.phi.column_names)], "f4")
        self.add("weights", sample.weights, "f8")
        self.add_sparse("b", sample.B)
        if isinstance(model.F, LandmarkForward) and isinstance(model.B, TableBackward):
            self._tables(model.F, model.B)
        elif isinstance(model.F, Forward) and isinstance(model.B, Backward):
            self.network = self._networks(model, model.F, model.B)
        else:
            raise UserError("This agent's B is a fixed basis, which cannot be exported; use `anyreward play`.")
        if isinstance(scene.optimum, PendulumOptimum):
            self._pendulum(scene.optimum)
        elif scene.optimum is not None:
            self._world(scene.optimum.mdp, scene.optimum.places)

    def add(self, name: str, values: Any, dtype: str) -> str:
        """Add an array under a name."""
        values = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        self.arrays[name] = {"type": dtype, "data": encoded(values, TYPES[dtype])}
        return name

    def add_sparse(self, prefix: str, rows: Tensor | csr_matrix) -> None:
        """Add a matrix as its nonzero entries: Start, Column and Value."""
        matrix = rows if isinstance(rows, csr_matrix) else csr_matrix(rows.double().numpy())
        self.add(f"{prefix}Start", matrix.indptr, "u4")
        self.add(f"{prefix}Column", matrix.indices, "u2" if matrix.shape[1] <= NO_STATE else "u4")
        self.add(f"{prefix}Value", matrix.data, "f4")

    def _tables(self, F: LandmarkForward, B: TableBackward) -> None:
        scene, states = self.scene, F.P.states
        self.numbers |= {"states": len(states), "corners": states.corners}
        self.add_sparse("p", F.P.matrix())
        self.add("seen", F.P.seen, "u1")
        self.add_sparse("o", F.B.flatten(0, 1))
        which, rows = scene.grid.rows
        index, share = states.locate(rows)
        self.add("gridAt", which, "u2")
        self.add("gridIndex", index, "u2")
        self.add("gridShare", share, "f4")
        if scene.kind in ("square", "pendulum"):
            self._known(states)
            if scene.optimum is not None:
                index, share = states.locate(packed_states(scene.optimum.mdp, scene.agent.model.phi))
                self.add("worldIndex", index, "u2")
                self.add("worldShare", share, "f4")
        if scene.kind == "square":
            self.numbers["centreCorners"] = B.known.corners
            self.add("centres", B.known.rows, "f4")
            self.add("centreScale", B.known.scale, "f8")
            if B.known.triangulation is not None:
                self.add("centreTriangles", B.known.triangulation, "u2")
            self.add_sparse("t", B.table)
        if len(F.landmarks) == len(states) and 0 < F.V.numel() <= MOST_LANDMARK_NUMBERS:
            self.add("landmarkV", F.V, "f2")

    def _known(self, known: KnownRows) -> None:
        """The points that stand for states of numbers, and how others are interpolated between them."""
        width = self.scene.agent.model.phi.state_packed
        self.add("points", known.rows[:, :width], "f4")
        self.add("scale", known.scale[:width], "f8")
        if len(known.examples):
            self.add("examples", known.examples[:, :width], "f4")
            self.add("exampleOf", known.example_of, "u2")
            self.add("alike", known.alike, "u2")
        if known._surface is not None:
            self.add("planes", known._surface[0]._axes, "f4")
        elif known.triangulation is not None:
            self.add("triangles", known.triangulation, "u2")

    def _networks(self, model: Model, F: Forward, B: Backward) -> dict[str, Any]:
        knowledge, sample, encoder = self.scene.agent.knowledge, self.scene.agent.sample, model.observation_encoder
        centred = not (knowledge.may_end or knowledge.settings.first_step or knowledge.settings.bias)
        sphere = knowledge.settings.z_norm == "sphere"
        asked = knowledge.dim**0.5 if sphere else ASKED_LENGTH * sample.radius
        self.numbers |= {"centred": centred, "asked": asked}
        into = sample.white.into
        self.add("meanB", sample.mean_B, "f8")
        self.add("project", into.T @ into, "f8")
        self.add("intoMean", into.T @ into @ sample.mean_B, "f8")
        self.add("gridAt", self.scene.grid.rows[0], "u2")
        described: dict[str, Any] = {"width": F.width, "byAction": F.action_input, "rbf": encoder.rbf}
        described["forward"] = [self._layers(f"f{i}", part) for i, part in enumerate(F.parts)]
        described["backward"] = [self._layers("b0", B.net)]
        if encoder.box is not None:
            described["low"], described["high"] = encoder.box
        elif self.scene.kind == "square":
            described["mean"] = encoder.mean.tolist() if encoder.normalise else [0.0, 0.0]
            std = encoder.variance.sqrt().clamp_min(0.01) if encoder.normalise else torch.ones(2)
            described["std"] = std.tolist()
        return described

    def _layers(self, prefix: str, part: nn.Sequential) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for i, layer in enumerate(part):
            if isinstance(layer, nn.ReLU):
                found.append({"kind": "relu"})
                continue
            assert isinstance(layer, nn.Linear | nn.LayerNorm)
            kind = "linear" if isinstance(layer, nn.Linear) else "norm"
            weight, bias = (self.add(f"{prefix}{i}{n}", getattr(layer, n), "f4") for n in ("weight", "bias"))
            found.append({"kind": kind, "weight": weight, "bias": bias})
        return found

    def _world(self, mdp: FiniteMDP, places: Array) -> None:
        self.numbers["worldStates"] = mdp.states
        P = mdp.P if mdp.is_sparse else csr_matrix(np.asarray(mdp.P).reshape(-1, mdp.states))
        self.add_sparse("exact", (csr_matrix(P) * mdp.gamma).tocsr())
        self.add("worldPlaces", places, "f4")
        optimum = self.scene.optimum
        assert optimum is not None
        near, inside = optimum.nearest(self.scene.grid.points)
        self.add("worldGrid", np.where(inside, near, NO_STATE), "u2")

    def _pendulum(self, optimum: PendulumOptimum) -> None:
        """The size of the pendulum's grid, whose transitions the page computes, and the values of the random policy.

        The mean value of the random policy is a weighted sum of the rewards at the states.
        """
        grid, mdp = optimum.grid, optimum.mdp
        sizes = {"worldAngles": len(grid.angles), "worldSpeeds": len(grid.speeds), "worldTorques": len(grid.torques)}
        self.numbers |= sizes
        P = csr_matrix(mdp.P if mdp.is_sparse else np.asarray(mdp.P).reshape(-1, mdp.states))
        random = kron(eye_array(mdp.states), np.full((1, mdp.actions), 1 / mdp.actions)) @ P
        visits = spsolve((eye_array(mdp.states) - mdp.gamma * random).T.tocsc(), np.full(mdp.states, 1 / mdp.states))
        self.add("worldRandom", visits, "f8")

    def as_json(self) -> dict[str, Any]:
        """The bundle as JSON."""
        found = {"scene": self.scene.describe(), "numbers": self.numbers, "arrays": self.arrays}
        return found if self.network is None else found | {"network": self.network}


def _check(scene: Scene) -> None:
    """Raise unless a page can compute the answers of a scene's agent."""
    agent, settings = scene.agent, scene.agent.settings
    instead = "Use `anyreward play` for it."
    if scene.kind not in ("maze", "square", "pendulum"):
        if agent.world_recipe is None:
            raise UserError(
                f"{agent.world_name} cannot be exported: the agent was trained on an environment object or a dataset, "
                "so its world cannot be opened again. Train by name, Gymnasium id or maze drawing."
            )
        raise UserError(
            f"{agent.world_name} cannot be exported: only mazes, the continuous maze and Pendulum-v1 can be computed "
            f"in a page. {instead}"
        )
    if settings.bias or settings.first_step or agent.model.phi.include_action:
        raise UserError(f"Agents with a bias, first_step=1 or features_include_action cannot be exported. {instead}")
    if scene.kind == "pendulum" and not isinstance(agent.model.F, LandmarkForward):
        raise UserError(
            f"{agent.world_name} cannot be exported: this agent has networks, and a page computes the pendulum with "
            f"tables only. Train with tables, or use `anyreward play`."
        )
