"""Exploration of what was tried least: plan a way to pairs (s, a) with few visits, and take it.

States are categories, or a few numbers that points represent. The transitions seen so far give a model P(s' | s, a), on
which value iteration finds the way: a pair that was never tried is worth 1, one with half the average number of visits
0, and any pair at least gamma times what follows. Uniform actions would reach some states only after exponentially many
steps, such as the flag of MountainCar or the far corner of FrozenLake.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.learning.tables import can_list
from anyreward.learning.transition_model import TransitionModel, count_model, neighbour_model
from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import KnownRows, mixture
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.recorded import State, generator, random_state

MOST_NUMBERS = 8
"""Largest number of continuous components of an observation."""
MOST_ACTIONS, LEVELS = 27, (9, 5, 3)
"""Actions of a box: largest number of listed ones, and how many values of each number are tried first."""
EPSILON = 0.2
"""Share of uniform actions."""
GAMMA = 0.99
SWEEPS = 200
"""Largest number of sweeps of value iteration for a plan."""
GROWTH = 1.25
"""The model is estimated again when there are this many times as many transitions."""
FIRST = 1_000
"""Transitions with uniform actions before the first plan."""
PER_PAIR = 10
"""Numbers: transitions for each pair of a point and an action; there are fewer points while there are few data."""
POINTS = 2_500
"""Numbers: largest number of points."""
MODEL_ROWS = 50_000
"""Numbers: largest number of transitions that the model is estimated from."""
SMALL_PLAN = 10**5
"""Largest number of outcomes in the model for a new plan in every cycle; larger models are planned on less often."""


def few_actions(acts: ActionSet) -> ActionSet | None:
    """The listed actions; those of a box at its ends, in the middle, and between if they are few. None: too many."""
    if not acts.continuous:
        return acts
    return next((acts.listed(n) for n in LEVELS if n**acts.width <= MOST_ACTIONS), None)


def can_explore(phi: FeatureMap) -> bool:
    """Whether the states can be listed, or consist of few enough numbers, and actions can be listed."""
    return can_list(phi.seen_space, phi.ends, MOST_NUMBERS) and few_actions(phi.action_set) is not None


class Explorer:
    """The behaviour policy that goes to the pairs (s, a) tried least so far."""

    def __init__(self, encoder: Encoder, phi: FeatureMap, seed: int) -> None:
        self._encoder, self._phi = encoder, phi
        self._random = np.random.default_rng(seed)
        self._states = KnownRows(encoder)
        self._model: TransitionModel | None = None
        self._visits = torch.zeros(0, phi.actions)
        self._Q = torch.zeros(0, phi.actions)
        self._estimated = self._counted = 0  # transitions in the model, and in the visits
        self._waited = 0

    def know(self, states: KnownRows, model: TransitionModel) -> None:
        """Explore a model that is known already, as if nothing had been visited."""
        self._states, self._model = states, model
        self._visits = torch.zeros(model.states, self._phi.actions)
        self.plan()

    def see(self, rows: Transitions, total: int) -> None:
        """Take all transitions so far (n, ...) into account; ``total`` counts those that were replaced, too."""
        if total < FIRST:
            return
        rows = rows.map(lambda column: column.cpu())
        if self._model is None or total >= GROWTH * self._estimated or total < self._counted:
            self._estimate(rows)
            self._estimated = self._counted = total
        else:
            n = len(rows.actions)  # the last rows, which follow each other in the ring
            last = torch.arange(max(self._counted, total - n), total) % n
            self.visited(rows.observations[last], rows.actions[last])
            self._counted = total
            self._waited += 1
            if self._waited * SMALL_PLAN < self._model_size:
                return
        self._waited = 0
        self.plan()

    def state(self) -> tuple[dict[str, Tensor], State]:
        """Tensors and JSON from which another explorer continues."""
        tensors = {f"states.{name}": value for name, value in self._states.state_dict().items()}
        tensors |= {"visits": self._visits, "Q": self._Q}
        if self._model is not None:
            tensors |= {name: getattr(self._model, name) for name in ("following", "share", "seen")}
        counters = {"estimated": self._estimated, "counted": self._counted, "waited": self._waited}
        return tensors, counters | {"random": random_state(self._random)}

    def load_state(self, tensors: Mapping[str, Tensor], about: State) -> None:
        """The inverse of `state`."""
        known = {name[7:]: value for name, value in tensors.items() if name.startswith("states.")}
        self._states.load_state_dict(known)
        self._visits, self._Q = tensors["visits"].clone(), tensors["Q"].clone()
        if "following" in tensors:
            following, share, seen = (tensors[name].clone() for name in ("following", "share", "seen"))
            self._model = TransitionModel(following, share, seen)
        self._estimated, self._counted, self._waited = (about[name] for name in ("estimated", "counted", "waited"))
        self._random = generator(about["random"])

    @property
    def _model_size(self) -> int:
        return 0 if self._model is None else self._model.share.numel()

    def _estimate(self, rows: Transitions) -> None:
        phi, n = self._phi, len(rows.actions)
        if self._encoder.categorical:
            self._model, _ = count_model(self._states, rows, phi.actions, phi.ends)
        else:
            most = max(20, min(POINTS, n // (PER_PAIR * phi.actions)))
            self._model, _ = neighbour_model(self._states, rows, phi.actions, phi.ends, most, MODEL_ROWS, effects=False)
        self._visits = torch.zeros(self._model.states, phi.actions)
        self.visited(rows.observations, rows.actions)

    def visited(self, observations: Tensor, actions: Tensor) -> None:
        """Count visits of packed observations (n, packed) with actions (n,)."""
        if len(actions) == 0:
            return
        index, share = self._states.locate(observations)
        nearest = index.gather(1, share.argmax(1, keepdim=True)).squeeze(1)
        pairs = nearest * self._phi.actions + actions.cpu()
        known = share.amax(1) > 0
        self._visits += torch.bincount(pairs[known], minlength=self._visits.numel()).view_as(self._visits)

    def plan(self) -> None:
        """Value iteration: a pair is worth 1 if it was never tried, 0 from half the average number of visits on."""
        model = self._model
        assert model is not None
        over = self._states.rows[:, -1] > 0.5 if self._phi.ends else torch.zeros(model.states, dtype=torch.bool)
        least = max(1.0, float(self._visits[~over].mean()) / 2)
        worth = (1 - self._visits / least).clamp(min=0) ** 2
        worth[over] = 0.0
        n = model.share.shape[2]
        following, share = model.following.view(-1, n), (GAMMA * model.share).float().view(-1, n)
        V = worth.amax(1)
        for _ in range(SWEEPS):
            Q = torch.maximum(worth, mixture(V[:, None], following, share).view_as(worth))
            new = Q.amax(1)
            done = float((new - V).abs().max()) < 1e-3
            V = new
            if done:
                break
        self._Q = Q

    def greedy(self, packed: Tensor, tasks: Tensor) -> Tensor:
        """(n,) actions at packed observations (n, packed); uniform in unknown states, and among equally good ones."""
        noise = torch.from_numpy(self._random.random((len(packed), self._phi.actions), dtype=np.float32))
        if self._model is None:
            return noise.argmax(1)
        index, share = self._states.locate(packed)
        Q = (self._Q[index] * share[..., None]).sum(1)  # (n, A)
        return (Q + 1e-6 * noise).argmax(1)

    @staticmethod
    def new_tasks(n: int) -> Tensor:
        """(n, 1) nothing: episodes have no task of their own."""
        return torch.zeros(n, 1)
