"""Pictures of continuous actions, for docs/continuous_actions.md.

python benchmarks/continuous_pictures.py pendulum runs/pendulum-tables-seed0 docs/pendulum.png
python benchmarks/continuous_pictures.py point-mass runs/point-mass-seed0 docs/point_mass.png
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import gymnasium as gym
import numpy as np
from matplotlib.patches import Rectangle

import anyreward as ar
from anyreward.experiments.pendulum import grid_of, near, on_grid
from anyreward.figures.maze import pyplot
from anyreward.worlds.point_mass import ARENA, GOALS, LENGTH, TASKS, THICKNESS
from anyreward.worlds.spaces import Array

plt = pyplot()
REWARDS: dict[str, Callable[[Array], Array]] = {
    "swing up and stand": lambda f: -np.square(np.arctan2(f[:, 1], f[:, 0])) - 0.1 * np.square(f[:, 2]),
    "spin as fast as possible": lambda f: np.abs(f[:, 2]),
    "hang at the left, at rest": near(np.array([np.pi / 2, 0.0]), 0.3),
}
"""Three rewards over the phase plane, of the cosine and the sine of the angle and of the speed."""
PATHS = 8


def pendulum(folder: str, path: str) -> None:
    """Value and torque over angle and speed, of the agent and of the optimum, for three rewards."""
    agent = ar.load(folder)
    grid = grid_of(agent)
    shape = (len(grid.angles), len(grid.speeds))
    names = ("value of the agent", "optimal value", "torque of the agent", "optimal torque")
    figure, axes = plt.subplots(len(REWARDS), 4, figsize=(13, 8.2), sharex=True, sharey=True, layout="constrained")
    for number, (title, reward) in enumerate(REWARDS.items()):
        row, r = axes[number], grid.mdp.on_states(reward(grid.mdp.observations.astype(np.float64)))
        pi, best = on_grid(agent.ask(ar.reward(reward, title)), grid), grid.mdp.optimal_policy(r)
        values = [grid.mdp.policy_value(pi, r), grid.mdp.optimal_value(r)]
        limits = {"vmin": min(v.min() for v in values), "vmax": max(v.max() for v in values)}
        extent = (-np.pi, np.pi, grid.speeds[0], grid.speeds[-1])
        for axis, name, data in zip(row, names, [*values, pi @ grid.torques, best @ grid.torques], strict=True):
            kind = limits | {"cmap": "viridis"} if "value" in name else {"cmap": "PuOr", "vmin": -2, "vmax": 2}
            image = axis.imshow(data.reshape(shape).T, origin="lower", extent=extent, aspect="auto", **kind)
            if number == 0:
                axis.set_title(name)
            if number == len(REWARDS) - 1:
                axis.set_xlabel("angle (0: upright)")
                axis.set_xticks([-np.pi, 0, np.pi], ["-π", "0", "π"])
            if name in names[1::2]:
                figure.colorbar(image, ax=axis)
        row[0].set_ylabel(f"{title}\n\nspeed")
    figure.savefig(path, dpi=64)


def point_mass(folder: str, path: str) -> None:
    """The paths of some episodes for each task."""
    agent = ar.load(folder)
    figure, axes = plt.subplots(2, 4, figsize=(13, 6.9), sharex=True, sharey=True, layout="constrained")
    for axis, (name, task) in zip(axes.flat, TASKS.items(), strict=True):
        policy = agent.ask(ar.reward(task, name))
        env = gym.make_vec("anyreward/PointMassMaze-v0", num_envs=PATHS, task=name)
        observations, _ = env.reset(seed=1)
        places, total = [observations], np.zeros(PATHS)
        for _ in range(999):
            observations, rewards, *_ = env.step(policy.act(observations))
            places.append(observations)
            total += rewards
        x, y = np.array(places)[:, :, 0], np.array(places)[:, :, 1]
        axis.plot(x, y, color="#0072B2", linewidth=0.8, alpha=0.7)
        axis.plot(x[0], y[0], "o", color="#E69F00", markersize=4, label="start")
        for width, height in ((LENGTH, THICKNESS), (THICKNESS, LENGTH)):
            axis.add_patch(Rectangle((-width, -height), 2 * width, 2 * height, color="0.3"))
        if name in GOALS:
            axis.plot(*GOALS[name], "*", color="#D55E00", markersize=11, label="goal")
        axis.set(xlim=(-ARENA, ARENA), ylim=(-ARENA, ARENA), aspect="equal")
        axis.set_title(f"{name.replace('_', ' ')}: {total.mean():.0f}")
    axes[0, 0].legend(loc="lower right")
    figure.savefig(path, dpi=64)


if __name__ == "__main__":
    {"pendulum": pendulum, "point-mass": point_mass}[sys.argv[1]](*sys.argv[2:4])
