"""Environments with continuous actions: any Box, any observations, one environment or several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import anyreward as ar
from anyreward.training import prepare

TINY: dict[str, Any] = {
    "landmarks": 0,
    "dim": 8,
    "hidden": 16,
    "batch_size": 16,
    "steps_per_cycle": 40,
    "warmup_steps": 60,
    "updates": 80,
    "action_repeat": 1,
    "progress": False,
}


@pytest.fixture(scope="module", autouse=True)
def few_held_out() -> Iterator[None]:
    """Steps that only take time here."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in prepare.HELD_OUT:
            patch.setitem(prepare.HELD_OUT, kind, 100)
        yield


class Walk(gym.Env[Any, Any]):
    """The first numbers of an action move the state; episodes of 20 steps."""

    def __init__(self, action_space: Any, observation_space: gym.Space[Any] | None = None) -> None:
        self.action_space = action_space
        self.observation_space = observation_space or spaces.Box(-5, 5, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), (action, self.action_space)
        self.t += 1
        low, high = (end.astype(float).ravel()[0] for end in (self.action_space.low, self.action_space.high))
        share = (float(np.ravel(action)[0]) - low) / (high - low)
        self.x = np.clip(self.x + np.array([0.2 * share - 0.1, 0.05]), -5, 5)
        return self._seen(), float(self.x[0]), False, self.t == 20, {}

    def _seen(self) -> Any:
        """The position, in the form of the observation space."""
        x, space = self.x.astype(np.float32), self.observation_space
        match space:
            case spaces.Dict():
                return {"at": x, "side": int(x[0] > 0), "bits": (x > 0).astype(np.int8)}
            case spaces.Discrete():
                return int(np.clip(x[0] + 5, 0, 9))
            case spaces.Box() if len(space.shape) == 3:
                return np.full(space.shape, int(20 * (x[0] + 5)), dtype=np.uint8)
        return x


ACTIONS: dict[str, Any] = {
    "two by two": spaces.Box(-1, 1, (2, 2)),
    "whole numbers": spaces.Box(-3, 3, (2,), np.int64),
    "bytes": spaces.Box(0, 255, (1,), np.uint8),
    "asymmetric": spaces.Box(np.array([0, -3], np.float32), np.array([5, 1], np.float32)),
    "no dimension": spaces.Box(0, 5, ()),
    "float64": spaces.Box(0.1, 0.3, (3,), np.float64),
    "one number that is fixed": spaces.Box(np.array([-1, 1], np.float32), np.array([1, 1], np.float32)),
}


def used(env: Walk, folder: Path, **changes: Any) -> None:
    """Train, save, load, ask, play and resume."""
    agent = ar.train(env, out=folder, **{**TINY, **changes})
    loaded = ar.load(folder)
    policy = agent.ask(ar.reward("f0"), refine=0)
    seen, _ = env.reset(seed=0)
    action = policy.act(seen)
    assert env.action_space.contains(action)
    assert np.array_equal(loaded.ask(ar.reward("f0"), refine=0).act(seen), action)
    assert np.isfinite(policy.q(seen, action))
    assert np.isfinite(ar.evaluate(policy.epsilon_greedy(0.3), env, episodes=2).mean)
    ar.resume(folder, source=Walk(env.action_space, env.observation_space), updates=120, progress=False)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.filterwarnings("ignore:.*Casting input x")  # Gymnasium's vector environments pass a number
def test_boxes_of_any_shape(kind: str, tmp_path: Path) -> None:
    used(Walk(ACTIONS[kind]), tmp_path / "run", features_include_action=kind == "two by two")


BITS = {"at": spaces.Box(-5, 5, (2,)), "side": spaces.Discrete(2), "bits": spaces.MultiBinary(2)}


@pytest.mark.parametrize("space", [spaces.Dict(BITS), spaces.Discrete(10)], ids=["dict", "category"])
@pytest.mark.parametrize("actor", ["network", "samples"])
def test_observations_of_any_kind(space: gym.Space[Any], actor: Any, tmp_path: Path) -> None:
    used(Walk(spaces.Box(-1, 1, (2,)), space), tmp_path / "run", actor=actor)


def test_images(tmp_path: Path) -> None:
    env = Walk(
        spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32)), spaces.Box(0, 255, (2, 40, 40), np.uint8)
    )

    def brightness(images: Any) -> Any:
        return np.asarray(images).reshape(len(images), -1)[:, :1].astype(np.float32)

    small = {**TINY, "updates": 40, "batch_size": 8}
    agent = ar.train(env, out=tmp_path / "run", features=brightness, **small)
    policy, (seen, _) = agent.ask(ar.reward("f0"), refine=0), env.reset(seed=0)
    assert env.action_space.contains(policy.act(seen))
    loaded = ar.Agent.load(tmp_path / "run", features=brightness)
    assert np.array_equal(loaded.ask(ar.reward("f0"), refine=0).act(seen), policy.act(seen))
    tuned = agent.finetune(policy, env, steps=40, updates=3, batch_size=8, progress=False)
    assert env.action_space.contains(tuned.act(seen))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments(mode: AutoresetMode) -> None:
    vector = SyncVectorEnv([lambda: Walk(spaces.Box(0, 5, (1,)))] * 3, autoreset_mode=mode)
    policy = ar.train(vector, **TINY).ask(ar.reward("f0"), refine=0)
    assert 0 <= policy.act(np.zeros(2))[0] <= 5
    vector.close()


def test_an_observation_of_nan_names_the_step() -> None:
    class Lost(Walk):
        def _seen(self) -> Any:
            return super()._seen() * (np.nan if self.t == 7 else 1)

    with pytest.raises(ar.UserError, match=r"^Lost, step 7: the observation holds NaN") as error:
        ar.train(Lost(spaces.Box(-1, 1, (1,))), **TINY)
    assert "\n" not in str(error.value)


def test_goal_dqn_lists_the_actions() -> None:
    where, levels = spaces.Discrete(10), {"method": "goal-dqn", "action_levels": 3}
    agent = ar.train(Walk(spaces.Box(-1, 1, (2,)), where), **{**TINY, **levels})
    policy = agent.ask(ar.goal(int(agent.sample.rows[0, 0])))
    assert policy.q(4).shape == (9,)
    assert set(policy.act(4).tolist()) <= {-1.0, 0.0, 1.0}
    with pytest.raises(ar.UserError, match=r"more than 32 actions. Lower action_levels"):
        ar.train(Walk(spaces.Box(-1, 1, (5,)), where), **{**TINY, **levels})


def test_a_policy_in_an_environment_with_other_actions(tmp_path: Path) -> None:
    policy = ar.train(Walk(spaces.Box(-1, 1, (2,))), **TINY).ask(ar.reward("f0"), refine=0)
    for other in (spaces.Box(-1, 1, (3,)), spaces.Discrete(3)):
        with pytest.raises(ar.UserError, match=r"chooses among the actions Box\(-1.0, 1.0, \(2,\).*Walk takes"):
            ar.evaluate(policy, Walk(other), episodes=1)
        with pytest.raises(ar.UserError, match="trained with"):
            ar.rollout(policy, Walk(other))
    wider = Walk(spaces.Box(-2, 2, (2,)))
    assert np.isfinite(ar.evaluate(policy, wider, episodes=2).mean)  # its actions are some of these
    with pytest.raises(ar.UserError, match=r"was trained on observations .* and actions Box"):
        ar.resume(trained(tmp_path), source=wider, updates=120, progress=False)


def trained(folder: Path) -> Path:
    """A run folder of a walk with actions from -1 to 1."""
    ar.train(Walk(spaces.Box(-1, 1, (2,))), out=folder, **TINY)
    return folder
