"""Scores of answers in Gymnasium's pendulum beside the optimum on a grid, for families of rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from anyreward.acting.exact import Scores
from anyreward.acting.play import Returns, evaluate
from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.rewards.terms import reward
from anyreward.theory.pendulum import PendulumGrid, pendulum_grid
from anyreward.worlds.spaces import Array

WORLD = "Pendulum-v1"
OWN = "-(arctan2(f1, f0)**2 + 0.1 * f2**2)"
"""The environment's own reward without its small cost of torque, which is not a function of the state."""
TORQUES = 9
"""Number of torques of the optimum."""
Reward = Callable[[Array], Array]
"""(n,) rewards of features (n, 3): cosine, sine and speed"""


def near(at: Array, width: float) -> Reward:
    """A Gaussian around an angle and a speed (in units of 3), given as (2,)."""

    def bump(features: Array) -> Array:
        angle = np.arctan2(features[:, 1], features[:, 0]) - at[0]
        apart = (angle + np.pi) % (2 * np.pi) - np.pi
        return np.asarray(np.exp(-(apart**2 + (features[:, 2] / 3 - at[1]) ** 2) / (2 * width**2)))

    return bump


def far(at: Array) -> Reward:
    """Minus the distance from an angle and a speed (in units of 3), given as (2,)."""

    def distance(features: Array) -> Array:
        apart = np.arctan2(features[:, 1], features[:, 0]) - at[0]
        return np.asarray(-np.hypot((apart + np.pi) % (2 * np.pi) - np.pi, features[:, 2] / 3 - at[1]))

    return distance


def place(rng: np.random.Generator) -> Array:
    """A random angle, and a speed up to 5."""
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-5 / 3, 5 / 3)])


def weighted(parts: list[tuple[float, Reward]]) -> Reward:
    """A sum of rewards."""
    return lambda features: np.asarray(sum(weight * part(features) for weight, part in parts))


def linear(direction: Array) -> Reward:
    """A linear function of cosine, sine and speed."""
    return lambda features: np.asarray(features[:, :3] @ (direction / np.array([1.0, 1.0, 8.0])))


FAMILIES: dict[str, Callable[[np.random.Generator], Reward]] = {
    "single goal": lambda rng: near(place(rng), 0.2),
    "2 to 5 goals": lambda rng: weighted([(1.0, near(place(rng), 0.2)) for _ in range(rng.integers(2, 6))]),
    "goal, 5 forbidden places": lambda rng: weighted(
        [(1.0, near(place(rng), 0.2)), *((-0.5, near(place(rng), 0.2)) for _ in range(5))]
    ),
    "small near, large far": lambda rng: weighted(
        [(1.0, near(place(rng), 0.2)), (rng.uniform(0.2, 0.8), near(np.array([np.pi, 0.0]), 0.3))]
    ),
    "smooth bump": lambda rng: near(place(rng), rng.uniform(0.4, 0.9)),
    "linear": lambda rng: linear(rng.standard_normal(3)),
    "dense": lambda rng: weighted([(rng.standard_normal(), near(place(rng), 0.3)) for _ in range(60)]),
    "goal - 1": lambda rng: weighted([(1.0, near(place(rng), 0.2)), (-1.0, lambda features: np.ones(len(features)))]),
    "-distance": lambda rng: far(place(rng)),
}


class Answered(NamedTuple):
    """The answers to the rewards of a family."""

    rewards: list[Reward]
    policies: list[Policy]
    scores: Scores


def grid_of(agent: Agent) -> PendulumGrid:
    """The grid on which answers of an agent of the pendulum are scored, with its discount."""
    if agent.world_name != WORLD:
        raise UserError(f"This suite is for agents of {WORLD}; this one is of {agent.world_name}.")
    return pendulum_grid(agent.settings.gamma, torques=TORQUES)


def on_grid(policy: Policy, grid: PendulumGrid) -> Array:
    """(S, A) a policy at the points of the grid: a torque between two of the grid's is split among them."""
    torque = np.asarray(policy.act(grid.mdp.observations, warn=False), dtype=np.float64)[:, 0]
    step = (torque - grid.torques[0]) / (grid.torques[1] - grid.torques[0])
    low = np.clip(np.floor(step).astype(int), 0, len(grid.torques) - 2)
    pi, row = np.zeros((len(torque), len(grid.torques))), np.arange(len(torque))
    pi[row, low], pi[row, low + 1] = 1 - (step - low), step - low
    return pi


def score_family(
    agent: Agent, grid: PendulumGrid, name: str, n: int, seed: int, refine: Sequence[int | None] = (None,)
) -> list[Answered]:
    """Exact scores on the grid of the answers to n rewards of a family, for each of some numbers of steps to refine."""
    rng, mdp, seen = np.random.default_rng([seed, *name.encode()]), grid.mdp, grid.mdp.observations.astype(np.float64)
    drawn = [FAMILIES[name](rng) for _ in range(n)]
    r = mdp.on_states(np.stack([one(seen) for one in drawn]))
    uniform = np.full((1, mdp.states, mdp.actions), 1.0 / mdp.actions)
    optimal, random = mdp.optimal_value(r).mean(1), mdp.policy_value(uniform, r).mean(1)
    answers = []
    for steps in refine:
        policies = [agent.ask(reward(one, name), steps) for one in drawn]
        values = [
            mdp.policy_value(on_grid(p, grid)[None], one[None]).mean() for p, one in zip(policies, r, strict=True)
        ]
        answers.append(Answered(drawn, policies, Scores(np.array(values), optimal, random)))
    return answers


def own_returns(agent: Agent, episodes: int = 100, seed: int = 1, refine: int | None = None) -> Returns:
    """Returns of the environment's own reward, the swing-up, asked of the agent."""
    return evaluate(agent.ask(reward(OWN), refine), gym.make(WORLD), episodes, seed)


def suite(agent: Agent, n: int, seed: int = 0, refine: int | None = None) -> dict[str, dict[str, Any]]:
    """A summary of the scores of all families: 0 for the random policy, 1 for the optimal one."""
    grid, found = grid_of(agent), {}
    for name in FAMILIES:
        (answered,) = score_family(agent, grid, name, n, seed, [refine])
        x = answered.scores.normalised
        found[name] = {"mean": float(x.mean()), "p5": float(np.percentile(x, 5)), "worst": float(x.min()), "rewards": n}
    return found
