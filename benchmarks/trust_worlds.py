"""Predicted and true scores of policies in Gymnasium environments whose optimum is known.

    python benchmarks/trust_worlds.py toy-text      # FrozenLake (4x4 and 8x8), CliffWalking, Taxi: exact
    python benchmarks/trust_worlds.py mountain-car  # the optimum of a fine grid, played
    python benchmarks/trust_worlds.py --table

Each environment has agents of three lengths of training, so that there are good and poor answers. The true score is
that of the return from the starts within the time limit, 0 for the random policy and 1 for the optimal one; in
CliffWalking, which has no time limit, of the discounted return. A goal that is a point in MountainCar is the ball that
its agent takes for it: a box of another size would be another reward.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import anyreward as ar
from anyreward.acting.exact import reward_table
from anyreward.acting.simulation import HORIZONS, reward_function
from anyreward.storage.files import write_json
from landmarks import print_trust

Array = np.ndarray[Any, Any]
RESULTS = Path(__file__).parent / "results" / "trust_worlds"
OWN = {
    "FrozenLake-v1": ar.goal(15),
    "FrozenLake8x8-v1": ar.goal(63),
    "CliffWalking-v1": ar.reward("ended - 1"),
    "Taxi-v4": 21 / 0.99 * ar.end() - ar.reward("1 - ended") - 9 * ar.reward("action > 3.5"),
}
LENGTHS = (200, 1_000, 20_000)
CAR_LENGTHS = (1_000, 4_000, 20_000)
GRID = 400
"""Squares along each of the two numbers of MountainCar."""


def exact_return(P: Array, r: Array, start: Array, steps: int, gamma: float, pi: Array | None) -> float:
    """The return of a policy pi (S, A), or of the best one, from a distribution of starts (S,)."""
    V = np.zeros(len(P))
    for _ in range(steps):
        Q = r + gamma * (P @ V)
        V = Q.max(1) if pi is None else (pi * Q).sum(1)
    return float(start @ V)


def toy_rewards(agent: ar.Agent, name: str, rng: np.random.Generator) -> list[tuple[str, ar.Reward]]:
    """The environment's own reward, in two ways, and random ones: goals, and a number for each state."""
    asked = [("own", OWN[name]), ("own, samples", agent.sample_rewards(name, 10_000, progress=False))]
    visited = np.unique(agent.sample.rows[:, 0].numpy()).astype(int)
    for goal in rng.choice(visited, size=min(6, len(visited)), replace=False):
        asked.append(("goal", ar.goal(int(goal))))
    for _ in range(6):
        table = rng.standard_normal(1_000)
        asked.append(("dense", ar.reward(lambda g, table=table: table[g[:, 0].astype(int)], "dense")))
    return asked


def toy_text() -> None:
    """Agents of toy-text environments, scored exactly."""
    found: list[dict[str, Any]] = []
    for name in OWN:
        world: Any = gym.make(name).unwrapped
        start = np.asarray(world.initial_state_distrib, dtype=np.float64)
        for updates in LENGTHS:
            agent = ar.train(name, updates=updates, seed=0, progress=False)
            mdp, limit = agent.exact_mdp(), agent.world().time_limit
            P = np.asarray(mdp.P.todense()) if mdp.is_sparse else mdp.P
            P = P.reshape(mdp.states, mdp.actions, mdp.states)
            steps, gamma = (limit, 1.0) if limit else (int(5 * HORIZONS / (1 - mdp.gamma)), mdp.gamma)
            for kind, reward in toy_rewards(agent, name, np.random.default_rng(0)):
                try:
                    policy = agent.ask(reward)
                except ar.UserError:
                    continue  # its goal was never visited
                known = OWN[name] if kind.startswith("own") else reward
                r, uniform = reward_table(known, agent.knowledge, mdp), np.full(P.shape[:2], 1 / P.shape[1])
                pi = policy.probabilities(mdp.observations)
                J, random, best = (exact_return(P, r, start, steps, gamma, p) for p in (pi, uniform, None))
                if best - random <= 1e-6 * steps * np.abs(r).max():
                    continue  # nothing to gain
                found.append(judged(policy, name, updates, kind, (J - random) / (best - random)))
            print(name, updates, np.mean([x["true"] for x in found if x["maze"] == name]), flush=True)
    finished(found, "toy-text")


def judged(policy: ar.Policy, name: str, updates: int, kind: str, true: float) -> dict[str, Any]:
    """A row of results."""
    trust = policy.trust
    about = {"maze": name, "updates": updates, "family": kind, "true": float(true)}
    return about | {"predicted": trust.predicted, "verdict": trust.verdict}


def car_step(x: Array, v: Array, action: int) -> tuple[Array, Array, Array]:
    """MountainCar: the next position and velocity, and whether the episode ends."""
    v = np.clip(v + 0.001 * (action - 1) - 0.0025 * np.cos(3 * x), -0.07, 0.07)
    x = np.clip(x + v, -1.2, 0.6)
    v = np.where((x <= -1.2) & (v < 0), 0.0, v)
    return x, v, (x >= 0.5) & (v >= 0)


class CarGrid:
    """MountainCar on a fine grid: the best actions for each number of steps left."""

    def __init__(self) -> None:
        xs, vs = np.linspace(-1.2, 0.6, GRID), np.linspace(-0.07, 0.07, GRID)
        self.x, self.v = (g.ravel() for g in np.meshgrid(xs, vs, indexing="ij"))
        self.after = []
        for action in range(3):
            x, v, over = car_step(self.x, self.v, action)
            i, j = (x + 1.2) / 1.8 * (GRID - 1), (v + 0.07) / 0.14 * (GRID - 1)
            i0, j0 = (np.minimum(k.astype(int), GRID - 2) for k in (i, j))
            u, w = i - i0, j - j0
            corners = [
                ((i0 + a) * GRID + j0 + b, (u if a else 1 - u) * (w if b else 1 - w)) for a in (0, 1) for b in (0, 1)
            ]
            self.after.append((corners, over, x, v))

    def plan(self, pays: Callable[[Array, Array, float], Array], steps: int) -> list[Array]:
        """Actions at all points, by the number of steps taken."""
        here, actions = pays(self.x, self.v, 0.0), []
        V = np.zeros_like(here)
        at_end = [pays(x, v, 1.0) for _, _, x, v in self.after]
        for _ in range(steps):
            Q = []
            for (corners, over, _, _), end in zip(self.after, at_end, strict=True):
                ahead = sum(share * V[index] for index, share in corners)
                Q.append(here + np.where(over, end, ahead))
            V = np.max(Q, axis=0)
            actions.append(np.argmax(Q, axis=0).astype(np.int8))
        return actions[::-1]

    def follow(self, plan: list[Array], x: Array, v: Array, t: int) -> Array:
        """The actions of a plan at the points nearest to states, after t steps."""
        i, j = np.rint((x + 1.2) / 1.8 * (GRID - 1)), np.rint((v + 0.07) / 0.14 * (GRID - 1))
        return np.asarray(plan[t][(i * GRID + j).astype(np.int64)])


def car_return(
    act: Callable[[Array, Array, int], Array], pays: Callable[[Array, Array, float], Array], steps: int = 200
) -> float:
    """The mean return of 200 episodes of MountainCar."""
    rng = np.random.default_rng(7)
    x, v = rng.uniform(-0.6, -0.4, size=200), np.zeros(200)
    live, total = np.ones(200, dtype=bool), np.zeros(200)
    for t in range(steps):
        total += live * pays(x, v, 0.0)
        actions = act(x, v, t)
        moved = [car_step(x, v, a) for a in range(3)]
        x, v, over = (np.choose(actions, [m[k] for m in moved]) for k in range(3))
        over = over.astype(bool) & live
        total += over * pays(x, v, 1.0)
        live &= ~over
    return float(total.mean())


def car_rewards() -> list[tuple[str, ar.Reward]]:
    """Rewards that people write, bumps, and goals that are points."""
    texts = ["-1", "f0", "abs(f1)", "-abs(f0)", "f1", "(f0 < -1)", "(f0 > 0.3) - 0.1 * ended", "-abs(f0 + 0.9)"]
    rng = np.random.default_rng(0)
    for x, v in zip(rng.uniform(-1.1, 0.4, 6), rng.uniform(-0.03, 0.03, 6), strict=True):
        texts.append(f"exp(-((f0 - {x:.3f}) / 0.1)**2 - ((f1 - {v:.4f}) / 0.01)**2)")
    asked = [("expression", ar.reward(text)) for text in texts]
    for x, v in zip(rng.uniform(-1.1, 0.4, 12), rng.uniform(-0.03, 0.03, 12), strict=True):
        asked.append(("point", ar.goal(float(x), float(v))))
    return asked


def paid(agent: ar.Agent, reward: ar.Reward) -> Callable[[Array, Array, float], Array]:
    """What a reward pays an agent at position and velocity."""
    function = reward_function(reward.settled(agent.knowledge), agent.knowledge)

    def pays(x: Array, v: Array, ended: float) -> Array:
        return function(torch.from_numpy(np.stack([x, v, np.full_like(x, ended)], 1).astype(np.float32)))

    return pays


def acting(policy: ar.Policy, x: Array, v: Array, t: int) -> Array:
    """The actions of a policy at positions and velocities."""
    return np.asarray(policy.act(np.stack([x, v], 1).astype(np.float32)))


def mountain_car() -> None:
    """Agents of MountainCar, played beside the optimal policies of a fine grid."""
    found: list[dict[str, Any]] = []
    grid, asked, rng = CarGrid(), car_rewards(), np.random.default_rng(0)
    agents = {n: ar.train("MountainCar-v0", updates=n, seed=0, progress=False) for n in CAR_LENGTHS}
    for kind, reward in asked:
        for updates, agent in agents.items():
            pays, policy = paid(agent, reward), agent.ask(reward)
            best = car_return(partial(grid.follow, grid.plan(pays, 200)), pays)
            random = car_return(lambda x, v, t: rng.integers(3, size=len(x)), pays)
            J = car_return(partial(acting, policy), pays)
            if best - random <= 1e-6:
                continue
            found.append(judged(policy, "MountainCar-v0", updates, kind, (J - random) / (best - random)))
            print(reward, updates, random, best, J, found[-1]["predicted"], flush=True)
    finished(found, "mountain-car")


def finished(found: list[dict[str, Any]], name: str) -> None:
    """Print and write results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / f"{name}.json", {"answers": found})
    print_trust(found)


def table() -> None:
    """Print correlations, by environment and together."""
    every: list[dict[str, Any]] = []
    for path in sorted(RESULTS.glob("*.json")):
        every += json.loads(path.read_text())["answers"]
    for name in sorted({x["maze"] for x in every}):
        for points in (False, True):
            some = [x for x in every if x["maze"] == name and (x["family"] == "point") == points]
            longest = max((x["updates"] for x in some), default=0)
            for updates in (0, longest) if some else ():
                print(f"\n{name}{', points' * points}, {f'{updates:,} updates' if updates else 'all'}")
                print_trust([x for x in some if updates in (0, x["updates"])])
    print("\ntoy-text")
    print_trust([x for x in every if "Mountain" not in x["maze"]])
    print("all")
    print_trust(every)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"toy-text": toy_text, "mountain-car": mountain_car, "--table": table}[sys.argv[1]]()
