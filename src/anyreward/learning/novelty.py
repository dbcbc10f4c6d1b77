"""Exploration by novelty: pi_z of a reward for features that are new, by random network distillation.

A network is trained to agree with a random one on the features of the replay buffer. Where it does not agree yet, the
features are new. This error is a reward, so its z is E_rho[error B], and F answers it like any other. No second learner
is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from anyreward.learning.batch import draw_features
from anyreward.learning.replay import Replay
from anyreward.learning.settings import Settings
from anyreward.model.latent import asked_length
from anyreward.model.model import Model
from anyreward.model.networks import mlp

HIDDEN, CODE = 128, 32
ROWS, STEPS = 1_024, 8
"""Rows of a minibatch, and gradient steps for each new plan."""
LEARNING_RATE = 1e-3
SHARE = 0.5
"""Share of the episodes that go to what is new; the others have a random z."""
SHARPNESS = 2.0
"""The error is raised to this power, so that the newest features count most."""


class Novelty(nn.Module):
    """The two networks, and the z of their disagreement."""

    def __init__(self, model: Model, seed: int) -> None:
        super().__init__()
        self._model = [model]  # in a list: its weights are not part of this module
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            width = model.feature_encoder.width
            self.random = mlp(width, CODE, HIDDEN, 2, layer_norm=False).requires_grad_(False)
            self.learned = mlp(width, CODE, HIDDEN, 2, layer_norm=False)
        self._adam = torch.optim.Adam(self.learned.parameters(), LEARNING_RATE)

    def error(self, features: Tensor) -> Tensor:
        """(n,) the disagreement at packed features (n, packed)."""
        g = self._model[0].feature_encoder(features).float()
        error: Tensor = (self.learned(g) - self.random(g)).square().mean(1)
        return error

    def task(self, replay: Replay, s: Settings, n: int, random: torch.Generator) -> Tensor:
        """(n, d) the z of novelty, each of other rows of the replay buffer, after some gradient steps."""
        for _ in range(STEPS):
            loss = self.error(draw_features(replay, random, ROWS)).mean()
            self._adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's is untyped
            self._adam.step()
        z = []
        with torch.no_grad():
            for _ in range(n):
                rows = draw_features(replay, random, ROWS)
                new = self.error(rows) ** SHARPNESS
                new = new - new.mean()  # a constant reward changes no policy
                z.append(new @ self._model[0].backward_map(rows) / len(rows))
        Z = torch.stack(z).double()
        radius = float(self._model[0].backward_map(rows).double().square().sum(1).mean().sqrt())
        return asked_length(Z, s.z_norm, radius)[0].to(self._model[0].dtype)

    def state(self) -> dict[str, Tensor]:
        """The networks and Adam's averages: what a resumed run needs."""
        tensors = {name: value.clone() for name, value in self.state_dict().items()}
        for number, state in self._adam.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        weights = {name: value for name, value in tensors.items() if not name.startswith("adam.")}
        self.load_state_dict(weights)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("adam."):
                _, number, kind = name.split(".")
                moments.setdefault(int(number), {})[kind] = value
        if moments:
            whole = self._adam.state_dict()
            self._adam.load_state_dict({"state": moments, "param_groups": whole["param_groups"]})
