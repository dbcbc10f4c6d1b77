"""Robots of other packages, by their ids, with default settings: what agents trained without reward answer.

    python benchmarks/robots.py point-maze 0             # 200 random goals in PointMaze_Medium-v3
    python benchmarks/robots.py reacher 0                # 200 random goals of Reacher-v5
    python benchmarks/robots.py mountain-car 0           # MountainCarContinuous-v0, its own reward
    python benchmarks/robots.py half-cheetah 0           # forward, backward and stand, asked of one agent; an hour
    python benchmarks/robots.py --table

Returns are without discount, means over 20 episodes (100 in the mountain car). "asked" is the default of `ask`, "alone"
is F . z (refine=0), and "random" are uniformly random actions. Results: benchmarks/results/robots/WORLD-seedN.json, and
the agent in runs/WORLD-seedN.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import anyreward as ar
from anyreward.storage.files import write_json
from anyreward.storage.metrics import read_metrics
from anyreward.worlds import robotics

RESULTS = Path(__file__).parent / "results" / "robots"
GOALS = 200
NEAR = 0.05
"""Distance from a target of Reacher at which it counts as reached; the arm is 0.21 long."""
CHEETAH = {
    "forward": "min(f8, 10)",
    "backward": "min(-f8, 10)",
    "stand": "(abs(f8) < 0.5) * (abs(f1) < 0.5)",
}
"""Rewards of features: f8 is the forward speed (m/s) and f1 the angle of the body (rad)."""
Result = dict[str, Any]
Acts = Callable[[Any], Any]


def played(env: gym.Env[Any, Any], act: Acts, seed: int) -> list[tuple[Any, float, dict[str, Any]]]:
    """The observations, rewards and infos of the steps of an episode."""
    observation, _ = env.reset(seed=seed)
    steps, over = [], False
    while not over:
        observation, reward, terminated, truncated, info = env.step(act(observation))
        steps.append((observation, float(reward), info))
        over = terminated or truncated
    return steps


def answers(agent: ar.Agent, reward: Any) -> dict[str, Any]:
    """The policies that are compared."""
    space = agent.world().action_space
    return {"asked": agent.ask(reward), "alone": agent.ask(reward, refine=0), "random": ar.RandomPolicy(space)}


def point_maze(agent: ar.Agent) -> Result:
    """The share of goals that are reached within the 600 steps of an episode."""
    env, won = gym.make("PointMaze_Medium-v3"), {"asked": 0, "alone": 0, "random": 0}
    for number in range(GOALS):
        goal = env.reset(seed=number)[0]["desired_goal"]  # the episode with this seed has it too
        for name, policy in answers(agent, ar.goal(*map(float, goal))).items():
            won[name] += any(info["success"] for _, _, info in played(env, policy.act, number))
    return {name: count / GOALS for name, count in won.items()}


def reacher(agent: ar.Agent) -> Result:
    """The mean distance of the fingertip from the target at the end, and the share of targets that were reached."""
    env = gym.make("Reacher-v5")
    apart: dict[str, list[float]] = {"asked": [], "alone": [], "random": []}
    for number in range(GOALS):
        x, y = env.reset(seed=number)[0][4:6]
        # the fingertip is (f8, f9) from the target (f4, f5) of its own episode
        reward = ar.reward(f"-hypot(f8 + f4 - {x:.4f}, f9 + f5 - {y:.4f})")
        for name, policy in answers(agent, reward).items():
            apart[name].append(float(np.hypot(*played(env, policy.act, number)[-1][0][8:10])))
    return {name: {"distance": np.mean(d), "reached": np.mean(np.array(d) < NEAR)} for name, d in apart.items()}


def mountain_car(agent: ar.Agent) -> Result:
    """The mean return of the environment's own reward, with its cost of the force."""
    reward, env = ar.reward("100 * ended"), "MountainCarContinuous-v0"
    return {name: ar.evaluate(p, env, episodes=100, seed=1).mean for name, p in answers(agent, reward).items()}


def half_cheetah(agent: ar.Agent) -> Result:
    """For each of three rewards: its mean in a step, the mean forward speed, and what trust predicts."""
    env = gym.make("HalfCheetah-v5")
    found: Result = {}
    for task, text in CHEETAH.items():
        reward = ar.reward(text)
        about: Result = {"trust": agent.ask(reward).trust.predicted}
        found[task] = about
        for name, policy in answers(agent, reward).items():
            rows = np.stack([o for seed in range(20) for o, _, _ in played(env, policy.act, seed)])
            paid = {"forward": np.minimum(rows[:, 8], 10), "backward": np.minimum(-rows[:, 8], 10)}
            paid["stand"] = (np.abs(rows[:, 8]) < 0.5) & (np.abs(rows[:, 1]) < 0.5)
            about[name] = {"reward": paid[task].mean(), "speed": rows[:, 8].mean()}
    return found


WORLDS: dict[str, tuple[str, Callable[[ar.Agent], Result], dict[str, Any]]] = {
    "point-maze": ("PointMaze_Medium-v3", point_maze, {}),
    "reacher": ("Reacher-v5", reacher, {}),
    "mountain-car": ("MountainCarContinuous-v0", mountain_car, {}),
    "half-cheetah": ("HalfCheetah-v5", half_cheetah, {"updates": 60_000}),
}
"""The Gymnasium id, what is measured, and the settings that are not the defaults."""


def main() -> None:
    """Measure, or print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=WORLDS, nargs="?")
    parser.add_argument("seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--minutes", type=float, help="stop training after this time")
    parser.add_argument("--measure", action="store_true", help="of the agents that are in runs/ already")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table or options.world is None:
        for path in sorted(RESULTS.glob("*.json")):
            print(path.stem, json.dumps(json.loads(path.read_text())))
        return
    identity, measure, settings = WORLDS[options.world]
    robotics.register(identity)
    for seed in options.seeds:
        folder = Path(f"runs/{options.world}-seed{seed}")
        if not options.measure:
            ar.train(identity, seed=seed, out=folder, overwrite=True, minutes=options.minutes, **settings)
        agent, last = ar.load(folder), read_metrics(folder)[-1]
        found: Result = {"training_seconds": round(last["seconds"]), "updates": agent.updates}
        found |= {"action_repeat": agent.settings.action_repeat} | measure(agent)
        found = json.loads(json.dumps(found, default=float), parse_float=lambda text: round(float(text), 3))
        write_json(RESULTS / f"{options.world}-seed{seed}.json", found)
        print(options.world, seed, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
