"""Pictures of an agent's answer in a world that is played: rollouts, and what is drawn of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.figures.films import Film, draw_film, draw_square, save_gif
from anyreward.representation.features import FeatureMap
from anyreward.rewards.reward import Goal, Reward
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.spaces import as_batch, pack_seen

Array = np.ndarray[Any, Any]
GRID = 81
"""Points along each side at which values are drawn."""
PATHS = 4
"""Paths drawn into a continuous maze."""
LONGEST = 1_000
"""Steps after which a rollout is cut, where the world itself has no limit."""


def picture(
    agent: Agent, policy: Policy, target: Reward, figure: Path | None, video: Path | None, seed: int = 0
) -> None:
    """Draw a rollout, or the values of a square with some paths, to where that is wanted; says where it is."""
    if figure is None and video is None:
        return
    if video is not None and video.suffix.lower() != ".gif":
        raise UserError(f"Films are written as GIFs; {video.name} does not end in .gif.")
    if agent.world_recipe is None:
        raise UserError("This agent's world cannot be reopened, so its answers cannot be drawn.")
    recipe = agent.world_recipe
    goals, forbidden = (places(target, sign) for sign in (1, -1))
    if recipe["id"] == "anyreward/ContinuousMaze-v0" and figure is not None:
        env = gym.make(recipe["id"], **recipe["kwargs"])
        assert isinstance(env.unwrapped, ContinuousMazeEnv)
        ways = [walk(policy, env, agent.features, seed + i) for i in range(PATHS)]
        panel = (str(target), values_on_grid(policy), ways, goals, forbidden)
        print("Picture:", draw_square([panel], env.unwrapped.plane.walls, figure))
        figure = None
    if figure is None and video is None:
        return
    film = record(agent, policy, target, seed)
    if figure is not None:
        print("Picture:", draw_film(film, goals, forbidden, figure, str(target)))
    if video is not None:
        print("Film:", save_gif(film, goals, forbidden, video))


def places(target: Reward, sign: int) -> Array:
    """(n, k) the goals of a reward whose weight has this sign."""
    found = [term.at for weight, term in target.terms if isinstance(term, Goal) and weight * sign > 0]
    return np.array(found) if found else np.zeros((0, 2))  # of states; an action behind them is not drawn


def values_on_grid(policy: Policy) -> Array:
    """(k, k) the value of every point of a grid over the unit square, by y and x."""
    ticks = np.linspace(0, 1, GRID, dtype=np.float32)
    x, y = np.meshgrid(ticks, ticks)
    return policy.value(np.stack([x.ravel(), y.ravel()], 1)).reshape(GRID, GRID)


def walk(policy: Policy, env: gym.Env[Any, Any], features: FeatureMap, seed: int) -> Array:
    """(steps + 1, k) the features along one episode."""
    observation, _ = env.reset(seed=seed)
    way, over = [observation], False
    while not over and len(way) <= LONGEST:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        way.append(observation)
        over = terminated or truncated
    return np.concatenate([_features(features, o) for o in way])


def record(agent: Agent, policy: Policy, target: Reward, seed: int = 0) -> Film:
    """One rendered episode; a world with goals of its own is shown the reward's, if it has one."""
    assert agent.world_recipe is not None
    try:
        return _record(agent, policy, target, seed, agent.world_recipe)
    except (TypeError, ImportError, gym.error.Error) as error:
        raise UserError(f"{agent.world_name} cannot be rendered: {error}") from error


def _record(agent: Agent, policy: Policy, target: Reward, seed: int, recipe: dict[str, Any]) -> Film:
    env = gym.make(recipe["id"], render_mode="rgb_array", **recipe["kwargs"])
    goals = places(target, 1)
    parts = env.observation_space.spaces if isinstance(env.observation_space, gym.spaces.Dict) else {}
    options = None
    if "desired_goal" in parts and len(goals):
        options = {"goal": goals[0][: gym.spaces.flatdim(parts["desired_goal"])]}  # without an action behind it
    observation, _ = env.reset(seed=seed, options=options)
    images, way, over = [np.asarray(env.render())], [_features(agent.features, observation)], False
    while not over and len(way) <= LONGEST:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        images.append(np.asarray(env.render()))
        way.append(_features(agent.features, observation))
        over = terminated or truncated
    on_screen, fps = bool(getattr(env.unwrapped, "on_screen", False)), float(env.metadata.get("render_fps") or 10)
    env.close()
    return Film(images, np.concatenate(way), on_screen, fps)


def _features(features: FeatureMap, observation: Any) -> Array:
    batch = as_batch(features.observation_space, observation)
    rows = features.of(batch, pack_seen(features.observation_space, batch), np.zeros(1, dtype=np.int64))
    return rows[:, :-1] if features.include_action else rows
