"""The report on an answer: a predicted score, a verdict and its reasons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.better import promised, refined_on_points
from anyreward.acting.policy import Policy
from anyreward.acting.simulation import LEAST_TRANSITIONS, greedy_actions, horizon, reward_function, simulator
from anyreward.errors import UserError
from anyreward.learning.machine import threads
from anyreward.model.latent import asked_length
from anyreward.rewards.inference import Inferred
from anyreward.rewards.kept import KeptPoints, points_of
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.regression import MOST_SEEN
from anyreward.trust.measures import bellman_residual, conditioning, represented, residual_of, thin_rows, typicality
from anyreward.trust.small_world import DRAWS, NO_GAIN, SmallWorld, small_world

Array = np.ndarray[Any, Any]
Verdict = Literal["good", "doubtful", "do not rely on it", "nothing to gain"]

GOOD, DOUBTFUL = 0.9, 0.7
"""Predicted scores from which on an answer is good, or doubtful (docs/trust.md)."""
MOST_THIN = 0.5
"""Share of the reward that may lie where training data is thin before an answer is doubtful."""
DOUBTFUL_ERROR, LARGEST_ERROR = 0.5, 1.0
"""Standard error of z, relative to z, from which on an answer is doubtful, or not to be relied on."""
LEAST_REPRESENTED, HARDLY_REPRESENTED = 0.8, 0.5
"""Share of a reward in the span of B below which an answer is doubtful, or not to be relied on."""
MOST_UNTRIED = 0.05
"""Share of actions in known states that may be untried before an answer is doubtful: they might lead to more."""
RARE = 0.01
"""A z is outside the range of training if at most this share of the z drawn in training are less typical."""
CODES = 4
"""Number of z for which F is compared, to find similar states and actions."""
TRAINING_Z = 2_000
"""Number of z drawn as in training, to measure how typical a z is."""
EPISODES = 128
"""Number of simulated episodes; half as many where episodes do not end, which take more steps."""
MOST_LOOKED_AT = 9
"""Largest number of listed actions among which a simulated plan looks ahead."""
PER_POINT = 4
"""Held-out transitions for each point of the plan that a simulated policy is compared with."""
Pays = Callable[[Tensor], Array]
"""The reward (n,) of packed features (n, packed)."""


@dataclass(frozen=True)
class Trust:
    """How far an answer can be trusted, without knowing the optimal policy. None means not available."""

    verdict: Verdict
    reasons: tuple[str, ...]
    predicted: float | None
    """The expected score of the policy, 0 for random and 1 for optimal, in a small MDP made of held-out transitions;
    where z was estimated, times the cosine that it should have with the true z."""
    value: float | None
    """Its discounted value there, in units of the reward: from the starts of episodes, if they may terminate, else the
    mean over states."""
    represented: float | None
    """R^2 under rho of the reward on the span of B; the rest is treated as zero. For samples, R^2 of the rewards seen,
    where the rest may also be noise. None for a goal among continuous features, a demonstration or a z."""
    residual: float | None
    """Root mean square of the Bellman residual of Q = F . z_R on held-out transitions, relative to the standard
    deviation of Q."""
    typical: float
    """The share of the z drawn in training that are less typical (have a larger Mahalanobis distance) than this one;
    near 0, F was not trained for it. 1 for tables, which are not trained on z."""
    rank: float
    """The effective rank of Cov B: the exponential of the entropy of its eigenvalues."""
    condition: float
    """The condition number of Cov B, among directions that were learned."""
    thin: float | None
    """The share of the reward that lies where training data is thin."""
    samples: int
    """Reward samples that z was estimated from; 0 if it was not."""
    effective_samples: float
    """The number of equally large samples that would have the same standard error."""
    error: float
    """The standard error of z, relative to its size."""

    def __str__(self) -> str:
        def known(value: float | None, text: str) -> str:
            return "not available" if value is None else text.format(value)

        lines = [
            ("trust", f"{self.verdict}: {'; '.join(self.reasons)}"),
            ("predicted", known(self.predicted, "score {:.2f} (0 = random, 1 = optimal)")),
            ("value", known(self.value, "{:.4g}, discounted")),
            ("represented", known(self.represented, "{:.2f} of the reward lies in the span of B (R^2)")),
            ("consistent", known(self.residual, "Bellman residual {:.2f} of the spread of Q, on held-out transitions")),
            ("z", f"{self.typical:.0%} of the z drawn in training are less typical than this one"),
            ("Cov B", f"effective rank {self.rank:.1f}, condition {self.condition:.3g}"),
            ("coverage", known(self.thin, "{:.0%} of the reward lies where training data is thin")),
        ]
        if self.samples:
            effective = f"{self.effective_samples:,.0f} effective"
            lines.append(("samples", f"{self.samples:,}, {effective}, standard error of z {self.error:.0%}"))
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def verdict_of(
    predicted: float | None,
    represented: float | None,
    thin: float | None,
    typical: float,
    found: Inferred,
    missing: str,
    has_values: bool = True,
    drawn: bool = False,
    untried: float = 0.0,
) -> tuple[Verdict, tuple[str, ...]]:
    """A verdict with its reasons: the predicted score decides, everything else can only lower it.

    ``missing`` says why there is no prediction; ``has_values`` whether the reward is known, so that what is not
    represented is not noise; ``drawn`` whether the prediction includes the uncertainty of samples; ``untried`` is the
    share of actions in known states that were never tried.
    """
    if not found.z.any():
        return "do not rely on it", ("z is zero, so this policy acts at random",)
    if predicted is not None and not math.isfinite(predicted):
        return "do not rely on it", (f"the predicted score is {predicted}",)
    order: list[Verdict] = ["good", "doubtful", "do not rely on it"]
    if predicted is None:
        level = 1
        reasons = [f"no prediction: {missing}"]
    else:
        level = 0 if predicted >= GOOD else 1 if predicted >= DOUBTFUL else 2
        reasons = [f"expected to earn {predicted:.2f} of what is possible"]
    noisy = 0 if drawn else 1
    share = 1.0 if represented is None else represented
    lowered = [
        (1, thin is not None and thin > MOST_THIN, "most of the reward lies where training data is thin"),
        (1, untried > MOST_UNTRIED, f"{untried:.0%} of the actions in known states were never tried"),
        (
            noisy,
            found.samples > 0 and found.seen < MOST_SEEN * found.of,
            f"samples determine only {found.seen} of {found.of} directions of B",
        ),
        (
            noisy,
            found.relative_error > DOUBTFUL_ERROR,
            f"the standard error of z is {found.relative_error:.0%} of z",
        ),
        (2 * noisy, found.relative_error > LARGEST_ERROR, "this error is larger than z itself"),
        (
            1 if share >= HARDLY_REPRESENTED else 2,
            (has_values or predicted is None) and share < (LEAST_REPRESENTED if has_values else HARDLY_REPRESENTED),
            f"B represents {max(share, 0.0):.2f} of the reward",
        ),
        (1, predicted is None and typical <= RARE, "z lies outside the range that F was trained on"),
    ]
    for least, holds, reason in lowered:
        if holds:
            level, reasons = max(level, least), [*reasons, reason]
    return order[level], tuple(reasons)


class Reference(NamedTuple):
    """Reference data for the reports of one agent; computed once."""

    world: SmallWorld | None
    """of transitions; None if there are too few, or policies are simulated"""
    points: KeptPoints | None
    """points on which the policy is planned that a simulated one is compared with"""
    training_z: Tensor
    """(n, d) drawn as in training; none for tables"""
    thin: Tensor
    """(n,) whether training data is thin at each row of the sample of rho"""

    @property
    def draws(self) -> bool:
        """Whether rewards and transitions are drawn, so that a prediction includes what is uncertain of them."""
        return self.world is not None and self.world.merged


_references: WeakKeyDictionary[Knowledge, Reference] = WeakKeyDictionary()


def reference(knowledge: Knowledge) -> Reference:
    """The reference data for the reports of an agent."""
    if knowledge not in _references:
        world, points, held_out, model = None, knowledge.points, knowledge.held_out, knowledge.model
        gamma = knowledge.settings.gamma
        if held_out is not None and simulator(knowledge) is not None:
            points = points or points_of(held_out, model, gamma, PER_POINT, effects=True)
        elif held_out is not None and len(held_out.actions) >= LEAST_TRANSITIONS:
            Z = knowledge.training_z(CODES, torch.Generator().manual_seed(0)).double()
            Z, _ = asked_length(Z, knowledge.settings.z_norm, knowledge.sample.radius)
            world = small_world(held_out, knowledge.kept, model, Z.to(model.dtype), gamma, knowledge.episodes)
        drawn = 0 if model.landmarks is not None else TRAINING_Z
        _references[knowledge] = Reference(
            world,
            points,
            knowledge.training_z(drawn, torch.Generator().manual_seed(1)),
            thin_rows(knowledge.sample.rows, knowledge.sample, knowledge.categorical),
        )
    return _references[knowledge]


def report(policy: Policy) -> Trust:
    """The report on an answer."""
    knowledge, found = policy.knowledge, policy.belief.found
    if knowledge.method.goals_only:
        raise UserError(f"{knowledge.settings.method} has no F and B, so there is no trust report on its policies.")
    broken = _broken(policy)
    if broken:
        seen = (found.samples, found.effective_samples, found.relative_error)
        return Trust("do not rely on it", (broken,), None, None, None, None, 0.0, math.nan, math.nan, None, *seen)
    known, sample, held_out = reference(knowledge), knowledge.sample, knowledge.held_out
    reward = policy.reward.settled(knowledge)
    _, masses = reward.split_atoms(knowledge)
    values = None if masses else reward.values(knowledge, sample.rows)
    share = represented(values, sample) if values is not None and reward.has_values else found.explained
    predicted = value = residual = None
    transitions = 0 if held_out is None else len(held_out.actions)
    missing = f"{transitions:,} held-out transitions are too few ({LEAST_TRANSITIONS:,} needed)"
    nothing = False
    if held_out is not None:
        pays = reward_function(reward, knowledge)
        r = torch.from_numpy(pays(held_out.features))
        residual = _residual(policy, r / policy.reward_scale)
        if not bool(r.any()):
            missing = "the reward is zero in all held-out transitions"
        elif not policy.z.any():  # a constant reward, whose mean was removed
            nothing = bool(found.z.any())
        else:
            predicted, value = _predicted(policy, known, pays)
            nothing = predicted is None and value is not None
    typical = 1.0 if policy.model.landmarks is not None else typicality(policy.z, known.training_z)
    thin = _thin_share(values, masses, knowledge, known.thin)
    drawn = predicted is not None and known.draws
    untried = known.world.untried if known.world is not None else 0.0
    verdict, reasons = verdict_of(predicted, share, thin, typical, found, missing, reward.has_values, drawn, untried)
    if nothing:
        verdict, reasons = "nothing to gain", ("no policy is expected to earn more than the random one",)
    if value is not None and not math.isfinite(value):
        verdict, reasons = "do not rely on it", (f"the predicted value is {value}",)
    rank, condition = conditioning(sample.covariance)
    return Trust(
        verdict,
        reasons,
        predicted,
        value,
        share,
        residual,
        typical,
        rank,
        condition,
        thin,
        found.samples,
        found.effective_samples,
        found.relative_error,
    )


def _broken(policy: Policy) -> str:
    """Where the agent or the policy holds NaN or infinity, as a reason; empty if it does not.

    The largest of values with NaN among them is NaN, so a broken policy would act, and could score, by chance.
    """
    knowledge, model = policy.knowledge, policy.model
    for name, module in model.modules.items():
        if any(bool(tensor.isnan().any()) for tensor in module.state_dict().values()):
            return f"the agent is damaged: its weights hold NaN ({name})"
    sample = knowledge.sample
    if not (torch.isfinite(sample.B).all() and torch.isfinite(sample.covariance).all()):
        return "the agent is damaged: B is not finite in its training data"
    held_out, episodes = knowledge.held_out, knowledge.episodes
    known = [held_out.observations, held_out.next_observations] if held_out is not None else []
    known += [episodes.starts] if episodes is not None else []
    Q = policy.preferences if not model.phi.action_set.continuous else lambda rows: policy.choose(rows)[1]
    finite = all(bool(torch.isfinite(Q(rows)).all()) for rows in known if len(rows))
    return "" if finite and torch.isfinite(policy.z).all() else "Q is not finite in states that were visited"


def _predicted(policy: Policy, known: Reference, pays: Pays) -> tuple[float | None, float | None]:
    """The predicted score of a policy, for a reward of packed features, and its value; None if not available.

    The score alone is None if there is nothing to gain.
    """
    score, value = None, None
    with threads(1):  # the operations are too small for several threads
        if known.world is not None:
            score, value = _tried_out(policy, known.world, pays)
        elif known.points is not None:
            score, value = _simulated(policy, known.points, pays)
    if score is not None and score > 0 and not known.draws:  # times the expected cosine of z and the true z
        score /= math.sqrt(1 + policy.belief.found.relative_error**2)
    return score, value


def _tried_out(policy: Policy, world: SmallWorld, pays: Pays) -> tuple[float | None, float]:
    """The score and the value of a policy in the small world, for a reward of packed features."""
    found, knowledge = policy.belief.found, policy.knowledge
    world, actions = world.with_actions(policy.choose(world.states)[0])
    rewards = torch.from_numpy(pays(world.rows.features))[None]
    if found.factor is not None and world.merged:
        noise = torch.randn(found.factor.shape[1], DRAWS, generator=torch.Generator().manual_seed(0)).double()
        drawn = knowledge.B(world.rows.features) @ knowledge.linear_reward(found.factor @ noise)  # (N, DRAWS)
        rewards = torch.cat([rewards, rewards + drawn.T])
    return world.score(actions, rewards)


def _simulated(policy: Policy, points: KeptPoints, pays: Pays) -> tuple[float | None, float]:
    """The score and the value of a policy in simulated episodes.

    The best return is the largest of this policy's, of F . z alone, of a plan's among points, of that with one step of
    lookahead if few actions are listed, and, where the environment is smooth or none of these is better than the random
    policy, of what the plan promises. Otherwise promises are too optimistic: they choose among noisy outcomes.
    """
    knowledge = policy.knowledge
    simulate = simulator(knowledge)
    assert simulate is not None
    plain = replace(policy, corrections=(), tuned=None, chooser=None, whole=False)
    changed = policy.corrections or policy.tuned or policy.chooser
    plan = refined_on_points(plain, points)
    compared = [None, *map(greedy_actions, [policy, plan] + [plain] * bool(changed))]
    if simulate.smooth and points.action_set.count <= MOST_LOOKED_AT and not knowledge.model.phi.include_action:
        compared.append(simulate.looking_ahead(lambda rows: plan.choose(rows)[1], points.action_set))
    steps, whole = horizon(knowledge)
    played = simulate.play(compared, pays, EPISODES if whole else EPISODES // 2)
    random, J, *others = played.returns.mean(1)
    best, value = max(J, *others), float(played.discounted[1].mean())
    rounding = NO_GAIN * steps * float(np.abs(pays(knowledge.sample.rows)).max())
    if simulate.smooth or best - random <= rounding:  # a poor plan does not mean that there is nothing to gain
        best = max(best, promised(points, pays, knowledge, simulate.packed(played.starts)))
    if best - random <= rounding:
        return None, value
    return float(np.clip((J - random) / (best - random), -1.0, 1.0)), value


def _residual(policy: Policy, r: Tensor) -> float:
    """The Bellman residual of a policy's Q on held-out transitions with rewards r (n,)."""
    knowledge, s = policy.knowledge, policy.knowledge.settings
    rows = knowledge.held_out
    assert rows is not None
    model = policy.model
    box, plain = model.phi.action_set.continuous, not policy.corrections and policy.tuned is None
    plain = plain and model.landmarks is None
    temperature = s.temperature if plain else 0.0  # corrected Q, and tables, are those of the greedy policy
    following = rows.features if rows.next_features is None else rows.next_features
    if box:
        now = policy.q_taken(rows.observations, rows.actions, rows.features)
        V = policy.greedy().state_values(rows.next_observations, following)
        return residual_of(now, V, rows, r, s.gamma)
    before = policy.action_values(rows.observations, rows.features)
    after = policy.action_values(rows.next_observations, following)
    return bellman_residual(before, after, rows, r, s.gamma, temperature)


def _thin_share(
    values: Array | None, masses: list[tuple[float, Tensor]], knowledge: Knowledge, thin: Tensor
) -> float | None:
    """E_rho[|r|; thin] / E_rho[|r|]; for goals that are points, the share of points where data is thin."""
    sample = knowledge.sample
    if values is None:
        rows = torch.cat([atoms for _, atoms in masses])
        return float(thin_rows(rows, sample, False).double().mean())
    size = sample.weights * torch.from_numpy(np.abs(values))
    return float(size[thin].sum() / size.sum()) if float(size.sum()) > 0 else None
