"""Tabular F and B over the states seen in training: the successor features of landmark policies, and their maximum.

A landmark is a state; its policy is the best one for reaching it and staying there. F has one table for each landmark,
and answers a reward by generalised policy improvement over all of them (the end of Theorem "main-extended"):

    F_k(s, a) = B(s, a) + gamma sum_s' P(s' | s, a) V_k(s'),    V_k(s) = F_k(s, pi_k(s))
    Q(s, a) = F(s, a, z) . z = B(s, a) . z + gamma sum_s' P(s' | s, a) max_k V_k(s') . z

These are the values of policies, so they are at most the optimal ones. Where they are not optimal, sweeps of value
iteration over the table of transitions make them so (`LandmarkForward.best`).

The tables are filled in by `anyreward.learning.tables`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, eye_array
from scipy.sparse.linalg import splu
from scipy.spatial import Delaunay, KDTree, QhullError
from torch import Tensor, nn

from anyreward.model.encoding import Encoder
from anyreward.model.interpolation import AROUND, Surface, barycentric, simplex_shares
from anyreward.worlds.spaces import Array

TABLE_AT_ONCE = 2**25
"""Largest number of table entries in one batch of answers."""
MOST_CORNERS = 4
"""Largest number of known rows that a row is interpolated from."""
TRIANGULATED = (2, 3)
"""Numbers of dimensions in which known rows may be triangulated."""
TOLERANCE, PRECISE, MOST_ROUNDS = 5e-7, 1e-9, 2_000
"""Sweeps of value iteration stop when no value changes by more than this share of the range of values: in float32, and
in float64."""
EVALUATIONS, SOLVED = 20, 8
"""Sweeps that follow the same actions between two choices of actions, and choices until their values are solved for."""
EQUAL = 0.05
"""Values of landmarks that differ by less than this share of the range of values count as equal in explanations."""
DENSE = 4_000
"""Largest number of states for which linear systems are solved densely."""
REMEMBERED = 64
"""Number of answers that are cached, so that acting step by step computes each once."""


class GrowingModule(nn.Module):
    """A module whose buffer sizes depend on the data: loading a state dict takes the sizes that were saved."""

    later: tuple[str, ...] = ()
    """Buffers that agents saved by earlier versions lack; they stay as they are."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in self.later:
            state.setdefault(f"{prefix}{name}", self._buffers[name])
        for name in self._buffers:
            if f"{prefix}{name}" in state:
                setattr(self, name, torch.empty_like(state[f"{prefix}{name}"]))
        super()._load_from_state_dict(state, prefix, *rest)


class KnownRows(GrowingModule):
    """Rows seen in training, and the interpolation of other rows between them."""

    later = ("numbers",)
    rows: Tensor
    codes: Tensor
    scale: Tensor
    examples: Tensor
    """(e, packed) rows of the data with an assigned known row; empty if each row belongs to the nearest known row"""
    example_of: Tensor
    """(e,) the known row of each example"""
    alike: Tensor
    """(m, c) the nearest known rows in which actions have similar effects, the row itself first"""
    numbers: Tensor
    """(packed,) which columns are numbers and not the flag of terminal states, if rows are triangulated; else empty"""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.beside: Callable[[Tensor], Tensor] | None = None
        """(n, m) what counts for the distance of packed rows (n, packed) beside their numbers; not saved"""
        self.categorical, self._code = encoder.categorical, encoder.codes
        self.register_buffer("rows", torch.zeros(0, encoder.packed))
        self.register_buffer("codes", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("scale", torch.ones(encoder.packed))
        self.register_buffer("examples", torch.zeros(0, encoder.packed))
        self.register_buffer("example_of", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("alike", torch.zeros(0, 0, dtype=torch.int64))
        self.register_buffer("numbers", torch.zeros(0, dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.rows)

    def know(self, rows: Tensor, scale: Tensor | None = None, beside: Callable[[Tensor], Tensor] | None = None) -> None:
        """Set the known packed rows (m, packed), all distinct; ``scale`` is the unit of distance in each column."""
        self.beside = beside
        if self.categorical:
            codes, order = self._code(rows).sort()
            rows, self.codes = rows[order], codes
        self.rows = rows.clone()
        if scale is not None:
            self.scale = scale.to(rows)
        self.examples, self.example_of, self.alike = self.examples[:0], self.example_of[:0], self.alike[:0]
        self.numbers = self.numbers[:0]
        self._forget()

    def triangulate(self, ends: bool) -> None:
        """Interpolate in a triangulation of the known rows, which the nearest rows only resemble.

        Possible if these are two or three numbers, or lie on a surface among more. With ``ends`` the last column is the
        flag of terminal states, between which and others nothing is interpolated.
        """
        self.numbers = torch.arange(self.rows.shape[1]) < self.rows.shape[1] - ends
        self._forget()

    def _forget(self) -> None:
        for name in ("_tree", "_triangles", "_surface", "_points"):
            self.__dict__.pop(name, None)

    def tell_apart(self, examples: Tensor, example_of: Tensor, alike: Tensor) -> None:
        """Assign rows of the data (e, packed) to known rows (e,), and known rows to those that are alike, (m, c).

        Nearby points on different sides of a wall are not alike.
        """
        self.examples, self.example_of, self.alike = examples.clone(), example_of, alike
        self._forget()

    @property
    def corners(self) -> int:
        """The number of known rows that a row is interpolated from: 1 for categories, else the corners of a simplex.

        Of many numbers, a simplex has too many corners that are too far away.
        """
        return 1 if self.categorical else min(self.rows.shape[1] + 1, MOST_CORNERS, max(len(self.rows), 1))

    @cached_property
    def _tree(self) -> KDTree:
        """Finds the nearest example, or the nearest known row if there are no examples."""
        return KDTree((self._scaled(self.examples) if len(self.examples) else self._points).numpy())

    @cached_property
    def _points(self) -> Tensor:
        """(M, p) the known rows as `_placed`."""
        return self._placed(self.rows)

    @cached_property
    def _triangles(self) -> tuple[Delaunay, Array] | None:
        """The triangulation of the known rows, without terminal states, and their indices; None if there is none."""
        if int(self.numbers.sum()) not in TRIANGULATED or self._surface is not None:
            return None
        own = torch.nonzero(~self._flagged(self.rows)).squeeze(1)
        try:
            return Delaunay(self._scaled(self.rows)[own][:, self.numbers].numpy()), own.numpy()
        except (QhullError, ValueError):  # too few rows, or all on one line
            return None

    @cached_property
    def _surface(self) -> tuple[Surface, Tensor] | None:
        """The surface of the known rows, without terminal states, and their indices; None if they are on none."""
        if int(self.numbers.sum()) <= 2:
            return None
        own = torch.nonzero(~self._flagged(self.rows)).squeeze(1)
        if len(own) < AROUND:
            return None
        surface = Surface(self._scaled(self.rows)[own][:, self.numbers].numpy())
        return (surface, own) if surface.flat else None

    @property
    def triangulation(self) -> Array | None:
        """(t, 3) the known rows at the corners of each triangle; None if rows are not triangulated."""
        return None if self._triangles is None else np.asarray(self._triangles[1][self._triangles[0].simplices])

    def _flagged(self, rows: Tensor) -> Tensor:
        """(n,) which rows (n, packed) are terminal states."""
        return (rows[:, ~self.numbers] > 0.5).any(1)

    def _scaled(self, rows: Tensor) -> Tensor:
        return (rows / self.scale).double()

    def _placed(self, rows: Tensor) -> Tensor:
        """(n, p) the numbers by which packed rows (n, packed) are near each other."""
        x = self._scaled(rows)
        return x if self.beside is None else torch.cat([x, self.beside(rows)], 1)

    def locate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The known rows that packed rows (n, packed) are interpolated from, and their shares: (n, corners) each.

        A category that was never seen has the share 0. Numbers are interpolated in a triangulation, or between the
        nearest known rows that are alike; their shares are nonnegative and sum to one.
        """
        if len(self.rows) == 0:
            return torch.zeros(len(rows), 1, dtype=torch.int64), torch.zeros(len(rows), 1)
        if self.categorical:
            wanted = self._code(rows)
            index = torch.searchsorted(self.codes, wanted).clamp(max=len(self.codes) - 1)
            return index[:, None], (self.codes[index] == wanted).to(self.rows.dtype)[:, None]
        if self._surface is not None:
            return self._on_surface(rows, *self._surface)
        x = self._placed(rows)
        index, share = self._among_nearest(x)
        if self._triangles is not None:
            inside, corners, shares = barycentric(self._triangles[0], x[:, self.numbers].numpy())
            alive, width = ~self._flagged(rows), corners.shape[1]
            share[alive] = (torch.arange(self.corners) == 0).to(share)  # outside of all triangles: the nearest row
            inside &= alive.numpy()
            index[inside, :width] = torch.from_numpy(self._triangles[1][corners[inside]])
            share[inside] = 0.0
            share[inside, :width] = torch.from_numpy(shares[inside])
        return index, share.to(self.rows.dtype)

    def _on_surface(self, rows: Tensor, surface: Surface, own: Tensor) -> tuple[Tensor, Tensor]:
        """`locate` if the known rows ``own``, all but terminal states, are on a surface."""
        x, over = self._scaled(rows), self._flagged(rows)
        index, share = torch.zeros(len(x), self.corners, dtype=torch.int64), x.new_zeros(len(x), self.corners)
        if over.any():
            index[over], share[over] = self._among_nearest(x[over])
        corners, shares = surface.locate(x[~over][:, self.numbers].numpy())
        index[~over, :3], share[~over, :3] = own[torch.from_numpy(corners)], torch.from_numpy(shares)
        return index, share.to(self.rows.dtype)

    def _among_nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest known rows that are alike, and their shares, for placed rows x (n, p)."""
        points, k = self._points, self.corners
        if len(self.examples):
            candidates = self.alike[self.example_of[torch.from_numpy(self._tree.query(x.numpy())[1])]]  # (n, c)
            apart = (points[candidates] - x[:, None]).square().sum(2)
            index = candidates.gather(1, apart.topk(k, largest=False).indices)
        else:
            index = torch.from_numpy(self._tree.query(x.numpy(), k)[1]).view(len(x), k)
        return index, simplex_shares(x, points[index])


def mixture(V: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """(m, d) sum_j share_ij V[index_ij], of V (M, d), index and share (m, n), without copying these rows."""
    return nn.functional.embedding_bag(index, V.contiguous(), per_sample_weights=share.to(V), mode="sum")


@torch.no_grad()
def successor_features(following: Tensor, share: Tensor, paid: Tensor) -> Tensor:
    """(M, d) V with V = paid + P V, for ``paid`` (M, d) and transitions P: shares (M, n) of following states (M, n).

    The shares include the discount.
    """
    M, discount = len(paid), float(share.sum(1).max())
    here = torch.arange(M)[:, None]
    own = (share * (following == here)).sum(1)
    share = torch.where(following == here, 0.0, share)
    V, known = torch.zeros_like(paid), torch.zeros(M, dtype=torch.bool)

    def backup(rows: Tensor) -> Tensor:
        return (paid[rows] + mixture(V, following[rows], share[rows])) / (1 - own[rows])[:, None]

    # back-substitution: next are states whose successors are all known, as on the paths to a landmark
    while True:
        rows = torch.nonzero(~known & ~((share > 0) & ~known[following]).any(1)).squeeze(1)
        if len(rows) == 0:
            break
        V[rows], known[rows] = backup(rows), True
    rows = torch.nonzero(~known).squeeze(1)  # states on cycles, or leading to them
    if 0 < len(rows) <= DENSE:
        place = torch.full_like(known, -1, dtype=torch.int64).index_copy_(0, rows, torch.arange(len(rows)))
        among = torch.where(known[following[rows]], 0.0, share[rows])
        at = torch.arange(len(rows))[:, None] * len(rows) + place[following[rows]].clamp(min=0)
        system = torch.diag(1 - own[rows]).view(-1).index_add_(0, at.flatten(), -among.flatten())
        beyond = paid[rows] + mixture(V, following[rows], share[rows])  # V is zero where it is not known yet
        V[rows] = torch.linalg.solve(system.view(len(rows), -1), beyond)
        return V
    for _ in range(math.ceil(10 / max(1 - discount, 1e-3)) if len(rows) else 0):
        new = backup(rows)
        change = float((new - V[rows]).abs().max())
        V[rows] = new
        if change <= 1e-5 * float(new.abs().max()):
            break
    return V


class TableBackward(GrowingModule):
    """B(g) as a table with a row for each known feature, interpolated if features are numbers."""

    table: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 0))
        self.known = KnownRows(encoder)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, d) of packed features (n, packed); zero where a category was never seen."""
        if len(self.known) == 0:
            return self.table.new_zeros(len(rows), self.table.shape[1])
        index, share = self.known.locate(rows)
        return mixture(self.table, index, share)


class TransitionTable(GrowingModule):
    """gamma P(s' | s, a) among the states seen in training, and value iteration on it."""

    following: Tensor
    """(M, A, n) known states that an action leads to"""
    share: Tensor
    """(M, A, n) gamma times the probability of each; their sum is below gamma if an episode may end"""
    seen: Tensor
    """(M, A) whether the action was seen in the state"""

    def __init__(self, encoder: Encoder, actions: int) -> None:
        super().__init__()
        self.actions = actions
        self.register_buffer("following", torch.zeros(0, actions, 1, dtype=torch.int64))
        self.register_buffer("share", torch.zeros(0, actions, 1))
        self.register_buffer("seen", torch.zeros(0, actions, dtype=torch.bool))
        self.states = KnownRows(encoder)
        self._sparse: tuple[Tensor, csr_matrix] | None = None

    def optimal(self, rewards: Tensor, V: Tensor, rounds: int = MOST_ROUNDS) -> Tensor:
        """(n, M) the optimal values for rewards (n, M, 1 or A), from V (n, M): often they are optimal already.

        Two sweeps of value iteration over all rewards at once, then modified policy iteration for those that need more,
        in at most this number of rounds.
        """
        rounding, todo = 3e-7, torch.ones(len(V), dtype=torch.bool)
        for _ in range(2):
            new = self.seen_only(rewards + self.ahead(V)).amax(2)
            size = TOLERANCE * (new.amax(1) - new.amin(1)) + rounding * new.abs().amax(1)
            todo, V = (new - V).abs().amax(1) > size, new
            if not todo.any():
                break
        for i in torch.nonzero(todo).flatten().tolist():
            V[i] = torch.from_numpy(self._iterated(rewards[i].double().numpy(), V[i].double().numpy(), rounds))
        return V

    def _iterated(self, rewards: Array, V: Array, rounds: int) -> Array:
        """(M,) the optimal values for rewards (M, 1 or A), by modified policy iteration in float64 from V (M,).

        A sweep of value iteration chooses the actions, then several sweeps follow them: these cost A times less. Where
        these are too slow, because the discount is near one, the values of the actions are solved for.
        """
        M, A = len(V), self.actions
        P, seen, every = self.matrix(), self.seen.numpy(), np.arange(M)
        known, rewards = seen.any(1), np.broadcast_to(rewards, (M, A))
        for sweep in range(rounds):
            Q = np.where(seen, rewards + (P @ V).reshape(M, A), -np.inf)
            action = Q.argmax(1)
            new = np.where(known, Q[every, action], V)
            done = np.abs(new - V).max() <= PRECISE * np.ptp(new) + 1e-15 * np.abs(new).max()
            V = new
            if done:
                break
            own, paid = P[every * A + action], np.where(known, rewards[every, action], V)
            if sweep >= SOLVED and known.all():
                V = splu((eye_array(M) - own).tocsc()).solve(paid)
                continue
            for _ in range(EVALUATIONS):
                V = np.where(known, paid + own @ V, V)
        return V

    def matrix(self) -> csr_matrix:
        """(M A, M) the shares as a sparse matrix, made once for each table."""
        if self._sparse is None or self._sparse[0] is not self.share:
            M, A, n = self.share.shape
            values, columns = self.share.double().numpy().ravel(), self.following.numpy().ravel()
            matrix = csr_matrix((values, columns, np.arange(0, M * A * n + 1, n)), shape=(M * A, M))
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            self._sparse = (self.share, matrix)
        return self._sparse[1]

    def ahead(self, V: Tensor) -> Tensor:
        """(n, M, A) gamma E[V(s') | s, a] of V (n, M)."""
        n = self.share.shape[2]
        ahead = mixture(V.T, self.following.view(-1, n), self.share.view(-1, n))  # (M A, n)
        return ahead.T.view(len(V), -1, self.actions)

    def seen_only(self, Q: Tensor) -> Tensor:
        """Q (n, M, A), with actions that were never seen below all that were seen."""
        worst = Q.masked_fill(~self.seen, torch.inf).amin(2, keepdim=True)
        worst = worst.where(worst < torch.inf, 0.0)
        return torch.where(self.seen, Q, worst - 1e-3 * (1 + worst.abs()))

    def look_up(self, rows: Tensor, Q: Tensor, which: Tensor | None = None) -> Tensor:
        """(n, A) tables Q (m, M, A) at packed observations (n, packed); ``which`` (n,) selects the table of each."""
        if len(self.states) == 0:
            return torch.zeros(len(rows), self.actions)
        index, share = self.states.locate(rows)  # (n, corners)
        found = Q[0, index] if which is None else Q[which[:, None], index]  # (n, corners, A)
        return (found * share[..., None].to(Q)).sum(1)


class LandmarkForward(GrowingModule):
    """F(s, a, z) with a table for each landmark."""

    V: Tensor
    """(K, M, d) successor features of the landmarks' policies at the known states; empty if visits are kept. If not all
    states are landmarks, all tables by landmark have one more entry, for the policy of staying in place"""
    visits: Tensor
    """(K, M, n) float16: shares of the most visited features in the discounted visits of a policy"""
    where: Tensor
    """(K, M, n) int16: the indices of these features"""
    mass: Tensor
    """(K, M) the sum of all discounted visits: 1 / (1 - gamma) if episodes do not end"""
    mean: Tensor
    """(d,) E_rho[B]"""
    B: Tensor
    """(M, A, d) B(phi(s, a)), or (M, 1, d) where B does not see the action"""
    landmarks: Tensor
    """(K,) which of the known states are landmarks"""
    reach: Tensor
    """(K, M) E[gamma^T], where T is the time until a policy reaches its landmark"""

    def __init__(self, encoder: Encoder, actions: int) -> None:
        super().__init__()
        self.actions = actions
        self.register_buffer("visits", torch.zeros(0, 0, 0, dtype=torch.float16))
        self.register_buffer("where", torch.zeros(0, 0, 0, dtype=torch.int16))
        self.register_buffer("mass", torch.zeros(0, 0))
        self.register_buffer("mean", torch.zeros(0))
        self.register_buffer("B", torch.zeros(0, 1, 0))
        self.register_buffer("V", torch.zeros(0, 0, 0))
        self.register_buffer("landmarks", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("reach", torch.zeros(0, 0))
        self.P = TransitionTable(encoder, actions)
        self._answers: dict[bytes, Tensor] = {}
        self.warm: Tensor | None = None
        """(M,) the values that the next answer starts from, each time those of the last one; None: from zero"""
        self.rounds = MOST_ROUNDS
        """Largest number of rounds of policy iteration; with fewer, answers come sooner and are not kept."""

    def fill(self, **tables: Tensor) -> None:
        """Set new tables, by name."""
        for name, table in tables.items():
            setattr(self.P if hasattr(self.P, name) else self, name, table)
        self._answers.clear()

    def describe(self) -> str:
        """The sizes of the tables and the share of unseen actions, as text."""
        M, K, d = len(self.P.states), len(self.landmarks), self.B.shape[2]
        size = sum(table.numel() * table.element_size() for table in self.state_dict().values()) / 1e6
        lines = [f"Tables: {M:,} states, {K:,} landmarks, d = {d:,}, {size:.1f} MB."]
        unseen = float((~self.P.seen).float().mean()) if M else 1.0
        if unseen > 0.01:
            lines.append(
                f"{unseen:.0%} of all pairs of a known state and an action were never seen; such actions are never "
                "chosen. Train for longer (--updates), or explore from more starts."
            )
        return "\n".join(lines)

    def values(self, Z: Tensor) -> Tensor:
        """(n, K, M) V_k(s) . z: the value of each landmark's policy at each known state, for rewards Z (n, d)."""
        Z = Z.to(self.B)
        if len(self.V):
            K, M, d = self.V.shape
            return (Z @ self.V.view(K * M, d).T).view(len(Z), K, M)
        rewards = self._rewards(Z).T  # (d, n)
        found = [
            mixture(rewards, where.flatten(0, 1).int(), visits.flatten(0, 1)).T.view(len(Z), -1, len(self.P.states))
            for where, visits in zip(self._pieces(self.where), self._pieces(self.visits), strict=True)
        ]
        return torch.cat(found, 1) * self.mass

    def _rewards(self, Z: Tensor) -> Tensor:
        """(n, d) the mean reward of z (n, d) around each feature."""
        return torch.where(self.mean > 0, Z / self.mean.clamp(min=1e-30), torch.zeros_like(Z))

    def _pieces(self, x: Tensor) -> tuple[Tensor, ...]:
        """Tables of visits in chunks that are processed at once."""
        return torch.split(x, max(1, 2**23 // max(x[0].numel(), 1)))

    def best(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """(n, M) the optimal value of each state for rewards Z (n, d), and (n, K, M) of heading for each landmark.

        To head for a landmark is to follow its policy until it is reached, then to act optimally; or to stay there, if
        all states are landmarks.
        """
        values = self.values(Z)  # (n, K, M)
        V = self.P.optimal(torch.einsum("mad,nd->nma", self.B, Z), values.amax(1))
        K = len(self.landmarks)
        if len(self.P.states) == K:  # the best state to stay in is a landmark itself
            return V, values
        here = values[:, torch.arange(K), self.landmarks]  # (n, K) staying there
        values[:, :K].addcmul_(self.reach[:K], (V[:, self.landmarks] - here).clamp(min=0)[..., None])
        return V, values

    def best_rows(self, z: Tensor) -> Tensor:
        """(M, d) the successor features of the policy that `best` finds for a reward z (d,), from each state."""
        every, action = torch.arange(len(self.P.states)), self.table(z).argmax(1)  # (M,)
        own = self.B[every, action.clamp(max=self.B.shape[1] - 1)]  # (M, d)
        return successor_features(self.P.following[every, action], self.P.share[every, action], own)

    @torch.no_grad()
    def tables(self, Z: Tensor) -> Tensor:
        """(n, M, A) Q at the known states for rewards Z (n, d): the reward plus the `best` value of the next state."""
        K, M = len(self.landmarks), len(self.P.states)
        at_once = max(1, TABLE_AT_ONCE // max(K * M, self.P.share.numel(), 1))
        return torch.cat([self._tables(z) for z in torch.split(Z.to(self.B), at_once)])

    def _tables(self, Z: Tensor) -> Tensor:
        """See `tables`: value iteration from the best landmark's policy, max_k V_k . z, if all states are landmarks.

        Then this policy is often optimal. The values of few landmarks cost more than they save, so it starts from zero,
        or from the last answer (`warm`).
        """
        rewards = torch.einsum("mad,nd->nma", self.B, Z)
        all_states = len(self.landmarks) == len(self.P.states)
        zero = torch.zeros(len(self.P.states)).to(Z) if self.warm is None else self.warm
        start = self.values(Z).amax(1) if all_states else zero.expand(len(Z), -1)
        V = self.P.optimal(rewards, start, self.rounds)
        if self.warm is not None:
            self.warm = V[-1]
        return self.P.seen_only(rewards + self.P.ahead(V))

    def table(self, z: Tensor) -> Tensor:
        """(M, A) Q at the known states for one reward z (d,), cached."""
        key = z.to(self.B).numpy().tobytes()
        found = self._answers.get(key)
        if found is None:
            found = self.tables(z[None])[0]
            for oldest in list(self._answers)[: len(self._answers) + 1 - REMEMBERED]:
                self._answers.pop(oldest, None)  # several threads may answer
            if self.rounds == MOST_ROUNDS:
                self._answers[key] = found
        return found

    def q(self, rows: Tensor, z: Tensor) -> Tensor:
        """(n, A) Q at packed observations (n, packed), for one z (d,) or one each (n, d)."""
        if z.ndim == 1:
            return self.P.look_up(rows, self.table(z)[None])
        distinct, which = torch.unique(z, dim=0, return_inverse=True)
        return self.P.look_up(rows, self.tables(distinct), which)

    @torch.no_grad()
    def forward(self, rows: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), at packed observations (n, packed) for z (n, d)."""
        index, share = self.P.states.locate(rows)
        F = torch.zeros(len(rows), self.actions, z.shape[1], dtype=self.B.dtype)
        distinct, which = torch.unique(z, dim=0, return_inverse=True)
        for i, one in enumerate(distinct):
            mine = which == i
            V = self.best_rows(one)
            known, where = torch.unique(index[mine], return_inverse=True)
            following, likely = self.P.following[known].flatten(0, 1), self.P.share[known].flatten(0, 1)
            at = self.B[known] + mixture(V, following, likely).view(len(known), self.actions, -1)  # (m, A, d)
            F[mine] = torch.einsum("nk,nkad->nad", share[mine].to(at), at[where])
        return F

    @torch.no_grad()
    def leading(self, rows: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) the best landmark to head for, for z (d,), from packed observations (n, packed).

        Of several that are about equally good, such as those on one way, it is the last. -1 means to stay in place. The
        second result (n,) is the gap to the second best.
        """
        index, share = self.P.states.locate(rows)
        V, heading = (found[0] for found in self.best(z[None]))  # (M,), (K, M)
        values = torch.einsum("knc,nc->nk", heading[:, index], share.to(self.B))  # (n, K)
        best = values.topk(min(2, values.shape[1]), dim=1).values
        there = torch.full_like(values[0], -torch.inf)
        there[: len(self.landmarks)] = V[self.landmarks]  # acting optimally from each landmark on
        good = values >= best[:, :1] - EQUAL * (V.max() - V.min())
        which = torch.where(good, there, -torch.inf).argmax(1)
        stays = ~good[:, : len(self.landmarks)].any(1)
        return torch.where(stays, -1, which), best[:, 0] - best[:, -1]
