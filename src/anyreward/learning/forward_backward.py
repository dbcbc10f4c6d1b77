"""Forward-backward networks (Algorithm 1), and successor features: the same with a fixed B."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.learning.batch import Batch, KnownFeatures, draw, draw_z, known_features, with_z
from anyreward.learning.box_update import box_updates
from anyreward.learning.fast.compiled import compiled_updates
from anyreward.learning.gradient import GradientMethod
from anyreward.learning.method import Behaviour, Report, stream_seed
from anyreward.learning.novelty import SHARE, Novelty
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings, Settings
from anyreward.learning.update import Updates as ListedUpdates
from anyreward.learning.update import updates
from anyreward.model.actor import Actor, ForwardBox
from anyreward.model.basis import MOST_ROWS, Basis, state_width
from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap
from anyreward.model.model import Model, make_encoders
from anyreward.model.networks import Backward, Bias, Forward
from anyreward.worlds.recorded import State

Updates = Callable[[Batch, Sequence[float]], Report]
"""(minibatches, learning rates) -> report of the last update."""


class ForwardBackward(GradientMethod):
    """F and B as networks, learned together."""

    feature_encoding: ClassVar[str] = ""
    """The encoding of numbers for B, if it is not the setting."""

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        super().__init__(model, replay, s, run)
        box = model.phi.action_set.continuous
        if box:
            self._updates: Updates = partial(box_updates, self.learner, s, self.random)
        else:
            one: ListedUpdates = partial(updates, self.learner)
            if run.compile:
                one = compiled_updates(self.learner, two_threads=run.threads != 1)
            self._updates = lambda group, rates: one(group, rates, s.temperature, s.orthonormality)
        self._novelty: Novelty | None = None
        if s.explore == "novel" or (s.explore == "rare" and box):
            self._novelty = Novelty(model, stream_seed(s.seed, "novelty"))
        self._known: KnownFeatures | None = None
        self._counted = 0  # transitions that had been added when known features were counted

    @classmethod
    def fresh(cls, phi: FeatureMap, s: Settings) -> Model:
        """Networks with random weights."""
        observe, features = make_encoders(phi, s.normalise, s.encoding, cls.feature_encoding or s.encoding)
        acts = phi.action_set
        if acts.continuous:
            if s.bias:
                raise UserError("bias is on, but m-bar is supported for listed actions only. Turn bias off.")
            box = (observe.width, acts.width, s.dim, s.hidden, s.layers)
            F_box = ForwardBox(*box, 1 if s.twin == "off" else 2, observe.image)
            B = cls.fresh_B(phi, features, s)
            actor = Actor(*box, observe.image) if s.actor == "network" else None
            return Model(phi, observe, features, F_box, B, actor=actor)
        shape = (s.dim, s.hidden, s.layers, s.layer_norm)
        F = Forward(observe.width, phi.actions, *shape, s.action_input, s.wide, observe.image)
        B = cls.fresh_B(phi, features, s)
        bias = Bias(observe.width, features.width, *shape, observe.image) if s.bias else None
        return Model(phi, observe, features, F, B, bias)

    @classmethod
    def fresh_B(cls, phi: FeatureMap, features: Encoder, s: Settings) -> nn.Module:
        """An untrained B of encoded features."""
        return Backward(features.width, s.dim, s.hidden, s.layers, s.layer_norm, s.b_norm == "sphere")

    def behaviour(self, random: torch.Generator) -> Behaviour:
        """pi_z with z drawn as in training."""
        drawn = partial(draw_z, self.model, self.replay, self.s, random=random)
        if self._novelty is None:
            return Behaviour(self.model.greedy, drawn)
        novelty = self._novelty

        def tasks(n: int) -> Tensor:
            z = drawn(n)
            new = torch.rand(n, generator=random, device=random.device) < SHARE
            if len(self.replay) and bool(new.any()):
                z[new] = novelty.task(self.replay, self.s, int(new.sum()), random).to(z)
            return z

        return Behaviour(self.model.greedy, tasks)

    def state(self) -> tuple[dict[str, Tensor], State]:
        """With the networks of novelty."""
        tensors, about = super().state()
        if self._novelty is not None:
            tensors |= {f"novelty.{name}": value for name, value in self._novelty.state().items()}
        return tensors, about

    def load_state(self, tensors: Mapping[str, Tensor], about: State, done: int) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, about, done)
        if self._novelty is not None:
            self._novelty.load({name[8:]: value for name, value in tensors.items() if name.startswith("novelty.")})

    def draw(self, n: int) -> Batch:
        """Transitions and features, without z."""
        s, replay = self.s, self.replay
        if s.pairs == "all" and replay.added > self._counted:  # at most the rows of two minibatches for B
            held, self._counted = replay.transitions, replay.added
            following = held.next_features if s.first_step else None
            self._known = known_features(self.model.feature_encoder, held.features, 2 * s.batch_size, following)
        return draw(self.model, replay, s, n, self.random, self._known)

    def update(self, group: Batch, learning_rates: Sequence[float]) -> Report:
        """Gradient steps on F and B."""
        group = with_z(group, self.model, self.replay, self.s, self.random)  # z from the current B
        return self._updates(group, learning_rates)


class SuccessorFeatures(ForwardBackward):
    """Universal successor features: B is a basis fitted to the warm-up, and only F is learned."""

    feature_encoding = "plain"
    uses_next_features = True  # the Laplacian basis is fitted to them

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        super().__init__(model, replay, s, run)
        self._measured = 0  # transitions that had been added when E[B B^T] was measured

    @classmethod
    def fresh_B(cls, phi: FeatureMap, features: Encoder, s: Settings) -> nn.Module:
        """A basis that is not fitted yet."""
        return Basis(s.basis, features, s.dim, phi.table)

    def prepare(self) -> None:
        """Fit the basis to the data seen so far."""
        basis, encoder, rows = self.model.B, self.model.feature_encoder, self.replay.transitions
        assert isinstance(basis, Basis)
        assert rows.next_features is not None
        following = torch.where(rows.terminated[:, None], rows.features, rows.next_features)
        basis.fit(encoder.compact(rows.features), encoder.compact(following), self.random)

    def state(self) -> tuple[dict[str, Tensor], State]:
        """With E[B B^T]."""
        tensors, about = super().state()
        measured = {} if self.learner.BB is None else {"BB": self.learner.BB}
        return tensors | measured, about | {"measured": self._measured}

    def load_state(self, tensors: Mapping[str, Tensor], about: State, done: int) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, about, done)
        if "BB" in tensors:
            self.learner.BB, self._measured = tensors["BB"].to(self.model.device), about["measured"]

    def cycle(self, done: int, end: int) -> Report:
        """Gradient steps on F, with E[B B^T] of all data in place of a second minibatch."""
        replay = self.replay
        if replay.added > 1.1 * self._measured:
            self._measured = replay.added
            rows = torch.linspace(0, len(replay) - 1, min(len(replay), MOST_ROWS), device=self.model.device)
            B = self.model.backward_map(replay.transitions.features[rows.long()])
            self.learner.BB = B.T @ B / len(B)
        return super().cycle(done, end)


def basis_dim(phi: FeatureMap, s: Settings) -> int:
    """The d of successor features: the setting, or with basis "state" the width of the features."""
    return state_width(Encoder(phi.space, s.normalise)) if s.basis == "state" else s.dim
