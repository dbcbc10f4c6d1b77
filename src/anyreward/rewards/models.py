"""A small neural network as a reward model, for few samples of the reward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError, shown
from anyreward.model.networks import mlp
from anyreward.rewards.terms import finite_numbers, sample_arrays
from anyreward.worlds.spaces import Array

HIDDEN, LAYERS = 64, 2
UPDATES, PATIENCE = 2_000, 300
"""Largest number of gradient updates, and the number without improvement on held-out rewards before stopping."""


class RewardModel:
    """A multilayer perceptron on standardised features, with ``predict(features)`` as in scikit-learn."""

    def __init__(self, net: torch.nn.Module, shift: Tensor, size: Tensor, mean: float, spread: float) -> None:
        self._net, self._shift, self._size, self._mean, self._spread = net, shift, size, mean, spread

    @torch.no_grad()
    def predict(self, features: Any) -> Array:
        """The rewards (n,) of features (n, k)."""
        x = torch.from_numpy(finite_numbers(features, "What predict() was given")).float()
        if x.ndim != 2 or x.shape[1] != len(self._shift):
            raise UserError(f"Features have the shape {tuple(x.shape)}; this model takes (n, {len(self._shift)}).")
        y = self._net((x - self._shift) / self._size).squeeze(1).double()
        return np.asarray((self._mean + self._spread * y).numpy())


def fit_mlp(features: Any, rewards: Any, seed: int = 0) -> RewardModel:
    """Fit a model to rewards (n,) at features (n, k) from any distribution, with early stopping on a fifth of them."""
    phi, r = sample_arrays(features, rewards)
    if len(r) < 5:
        raise UserError(f"fit_mlp() got {len(r)} samples; it needs at least 5.")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise UserError(f"seed is {shown(seed)}; accepted: whole numbers from 0 to 2**63 - 1.")
    x, y = torch.from_numpy(phi).float(), torch.from_numpy(r).float()
    shift, size = x.mean(0), x.std(0)
    size = torch.where(size > 0, size, 1.0)
    mean, spread = float(y.mean()), float(y.std()) or 1.0
    x, y = (x - shift) / size, (y - mean) / spread
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=random)
    held_out, train = order[: len(x) // 5], order[len(x) // 5 :]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = mlp(x.shape[1], 1, HIDDEN, LAYERS, layer_norm=False)
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-3)
    best, since, kept = float("inf"), 0, net.state_dict()
    for _ in range(UPDATES):
        rows = train[torch.randint(len(train), (min(256, len(train)),), generator=random)]
        loss = (net(x[rows]).squeeze(1) - y[rows]).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            error = float((net(x[held_out]).squeeze(1) - y[held_out]).square().mean())
        since += 1
        if error < best:
            best, since, kept = error, 0, {name: value.clone() for name, value in net.state_dict().items()}
        if since > PATIENCE:
            break
    net.load_state_dict(kept)
    return RewardModel(net.requires_grad_(False), shift, size, mean, spread)
