"""Drawing minibatches and z (Algorithm 1, lines 15 to 17), for several updates at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import Settings
from anyreward.model.encoding import Encoder
from anyreward.model.latent import preprocess_z, trained_length
from anyreward.model.model import Model

MOST_CATEGORIES = 2**16
"""Largest number of categories for which a table of counts is used."""


class Batch(NamedTuple):
    """The encoded inputs of an update: one minibatch, or n of them stacked along a first dimension of every field."""

    x: Tensor
    """(b, width) observations s_i, or (b, k) their one-hot columns"""
    actions: Tensor
    """(b,) a_i, in ascending order; or (b, width) actions of a box"""
    counts: Tensor
    """(A,) how often each action was taken; empty on a GPU and for a box"""
    next_x: Tensor
    """(b, width) next observations s_{i+1}"""
    discount: Tensor
    """(b,) gamma, or 0 where the transition terminated"""
    z: Tensor
    """(b, d) z_i, independent of the second minibatch"""
    shown_z: Tensor
    """(b, d) z_i, preprocessed as the input of F"""
    g: Tensor
    """(m, features) the features of both minibatches, each distinct one once where they are categories"""
    here: Tensor
    """(b,) phi(s_i, a_i), as row numbers of ``g``; phi(s_{i+1}) if successor measures count from t = 1"""
    first: Tensor
    """weights of the first rows of ``g`` in the first minibatch"""
    second: Tensor
    """weights of the last rows of ``g`` in the second, independent minibatch"""

    def each(self) -> list[Batch]:
        """The minibatches of a stack."""
        return [Batch(*fields) for fields in zip(*(field.unbind() for field in self), strict=True)]


def split(stack: Any, n: int) -> tuple[Any, Any]:
    """The first n minibatches of a stack, which is a named tuple such as `Batch`, and the others."""
    return stack._make(field[:n] for field in stack), stack._make(field[n:] for field in stack)


class KnownFeatures(NamedTuple):
    """All distinct features of the replay buffer, if they are few categories."""

    rows: Tensor
    """(m, packed)"""
    frequency: Tensor
    """(m,) their share of the replay buffer; zero for features of next states only"""
    row_of: Tensor
    """(categories,) the row number of each code"""


def known_features(
    encoder: Encoder, features: Tensor, most: int, following: Tensor | None = None
) -> KnownFeatures | None:
    """The distinct features (n, packed) of a replay buffer with their frequencies; None if more than ``most``.

    ``following`` (n, packed) are the features of next states, which are included if given.
    """
    if not encoder.categorical or encoder.categories > MOST_CATEGORIES:
        return None
    n = len(features)
    if following is not None:
        features = torch.cat([features, following])
    codes = encoder.codes(features)
    present = torch.bincount(codes, minlength=encoder.categories).nonzero().squeeze(1)
    if len(present) > most:
        return None
    counts = torch.bincount(codes[:n], minlength=encoder.categories)
    everywhere = torch.arange(len(codes), device=codes.device)
    row_of = torch.zeros_like(counts).scatter_(0, present, everywhere[: len(present)])
    example = torch.empty_like(present).scatter_(0, row_of[codes], everywhere)
    return KnownFeatures(features[example], counts[present] / n, row_of)


def draw_rows(
    model: Model, replay: Replay, s: Settings, n: int, random: torch.Generator
) -> tuple[Tensor, Transitions, dict[str, Tensor]]:
    """Draw the transitions of n minibatches: their numbers (n b,) in the replay buffer, rows, and first five columns.

    Each minibatch is sorted by its listed actions, so that F's last layer can process the rows of one action at a time.
    The columns are the fields of `Batch` from ``x`` to ``discount``.
    """
    held, b, observe = replay.transitions, s.batch_size, model.observation_encoder
    device = held.actions.device
    index = torch.randint(len(replay), (n, b), generator=random, device=device)
    if model.phi.action_set.continuous:
        actions, counts, index = held.actions[index], torch.zeros(n, 0), index.flatten()
    else:
        actions, order = held.actions[index].sort(1)
        counts = _counts(actions, model.actions)
        index = index.gather(1, order).flatten()
    rows = replay.at(index)
    columns = {
        "x": observe.compact(rows.observations).view(n, b, -1),
        "actions": actions,
        "counts": counts if device.type == "cpu" else counts[:, :0],  # reading it would synchronise a GPU
        "next_x": observe.compact(rows.next_observations).view(n, b, -1),
        "discount": s.gamma * (~rows.terminated).to(torch.float32).view(n, b),
    }
    return index, rows, columns


def draw(
    model: Model,
    replay: Replay,
    s: Settings,
    n: int,
    random: torch.Generator,
    known: KnownFeatures | None = None,
) -> Batch:
    """Draw the minibatches of n updates, stacked and encoded, without z (see `with_z`).

    ``known`` features replace the second minibatches.
    """
    held, b = replay.transitions, s.batch_size
    device = held.actions.device
    _, rows, columns = draw_rows(model, replay, s, n, random)
    encoder = model.feature_encoder
    shared = encoder.categorical
    own = rows.next_features if s.first_step and rows.next_features is not None else rows.features  # multiplies F_i
    if known is not None:
        features, here = known.rows, known.row_of[encoder.codes(own)].view(n, b)
        first, second = _counts(here, len(features)) / b, known.frequency.expand(n, -1)
    else:
        other = held.features[torch.randint(len(replay), (n * b,), generator=random, device=device)]
        features = torch.cat([own, other])
        if shared:  # compute B once for each distinct row
            distinct, index = encoder.distinct(features)
            shared = len(distinct) <= 2 * b
        if shared:
            features, (here, there) = distinct, index.view(2, n, b)
            first, second = _counts(here, len(features)) / b, _counts(there, len(features)) / b
        else:
            features = features.view(2, n, b, -1).transpose(0, 1).flatten(0, 2)  # both minibatches of each update
            here = torch.arange(b, device=device).expand(n, b)
            first = second = torch.full((n, b), 1 / b, device=device)
    g = encoder.compact(features)
    no_z = torch.empty(n, b, 0, device=device)
    return Batch(
        **columns,
        z=no_z,
        shown_z=no_z,
        g=g.expand(n, -1, -1) if shared else g.view(n, 2 * b, -1),
        here=here,
        first=first,
        second=second,
    )


def with_z(batch: Batch, model: Model, replay: Replay, s: Settings, random: torch.Generator) -> Batch:
    """The minibatches with z drawn for them, from the current B."""
    n, b = batch.actions.shape[:2]
    z = draw_z(model, replay, s, n * b, random)
    return batch._replace(z=z.view(n, b, -1), shown_z=preprocess_z(z).view(n, b, -1))


def draw_z(model: Model, replay: Replay, s: Settings, n: int, random: torch.Generator) -> Tensor:
    """(n, d) random z, for updates or for new episodes; B is computed on a separate minibatch."""
    B = None
    if s.z_mixture.needs_B and len(replay):
        B = model.backward_map(draw_features(replay, random, s.batch_size))
    return trained_length(s.z_mixture.draw(n, s.dim, B, random), s.z_norm)


def draw_features(replay: Replay, random: torch.Generator, n: int) -> Tensor:
    """(n, packed) random features of the replay buffer."""
    rows = torch.randint(len(replay), (n,), generator=random, device=random.device)
    return replay.transitions.features[rows]


def _counts(values: Tensor, most: int) -> Tensor:
    """(n, most) how often each whole number below ``most`` is in each row of values (n, b)."""
    n = len(values)
    offset = most * torch.arange(n, device=values.device)[:, None]
    return torch.bincount((values + offset).flatten(), minlength=n * most).view(n, most)


def rho_rows(model: Model, replay: Replay, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows (n,) of the replay buffer that represent rho, and their weights (n,), with a sum of one.

    All rows if features are categories; else ``most`` random ones, with all terminal states, which are few.
    """
    if model.feature_encoder.categorical or not model.phi.ends:
        chosen = replay.sample(most, seed, every=model.feature_encoder.categorical)
        return chosen, torch.full((len(chosen),), 1 / len(chosen), dtype=torch.float64)
    ended = replay.transitions.features[:, -1] > 0.5
    order = replay.sample(replay.size, seed)  # a random order of all rows
    chosen = torch.cat([order[ended[order]][: most // 4], order[~ended[order]][:most]])
    last = ended[chosen]
    weights = torch.where(last, ended.double().mean() / last.sum(), (~ended).double().mean() / (~last).sum())
    return chosen, weights.cpu()
