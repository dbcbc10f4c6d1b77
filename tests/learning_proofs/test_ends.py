"""Terminal states as states: values against exact ones, every way of giving a reward, and exploration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
from anyreward.acting.exact import reward_table
from anyreward.learning.collect import Collector, with_ends
from anyreward.learning.explorer import EPSILON, Explorer
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import preset
from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap
from anyreward.training.train import untrained
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.stepping import opened

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class TableWorld(gym.Env[np.int64, np.int64]):
    """A toy-text environment with a table P; rewards are paid on steps, and states 5 and 6 are terminal."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.P: Table = {}
        for s in range(7):
            self.P[s] = {}
            for a in range(3):
                one, two = rng.choice(7, 2, replace=False)
                share, pay = rng.integers(2, 9) / 10, rng.integers(-3, 4) / 2
                outcomes = [(share, int(one)), (1 - share, int(two))]
                self.P[s][a] = [(p, t, float(pay + 2 * (t == 5)), t >= 5) for p, t in outcomes]
        self.observation_space, self.action_space = gym.spaces.Discrete(7), gym.spaces.Discrete(3)
        self.s, self.steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self.s, self.steps = 0, 0
        return np.int64(0), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        outcomes = self.P[self.s][int(action)]
        _, self.s, reward, over = outcomes[self.np_random.choice(len(outcomes), p=[o[0] for o in outcomes])]
        self.steps += 1
        return np.int64(self.s), reward, over, self.steps >= 30, {}


@pytest.fixture(scope="module", params=[0, 1])
def trained(request: pytest.FixtureRequest) -> tuple[ar.Agent, TableWorld, ar.FiniteMDP]:
    env = TableWorld(request.param)
    agent = ar.train(env, updates=6_000, gamma=0.95, seed=0, evaluate_every=6_000, progress=False)
    mdp = ar.finite_mdp(env, 0.95)
    assert mdp is not None
    return agent, env, mdp


def by_hand(env: TableWorld, r: Any, r_end: Any, gamma: float) -> np.ndarray[Any, Any]:
    """(S, A) the expected reward of a pair: r(s, a), and gamma times r_end(s') where the step ends in s'."""
    return np.array(
        [
            [r(s, a) + gamma * sum(p * r_end(t) for p, t, _, over in env.P[s][a] if over) for a in range(3)]
            for s in env.P
        ]
    )


WAYS: dict[str, tuple[ar.Reward, Any, Any]] = {
    "the goal is terminal": (ar.goal(5), lambda s, a: 0.0, lambda t: float(t == 5)),
    "any end": (ar.end(), lambda s, a: 0.0, lambda t: 1.0),
    "one end": (ar.end("f0 == 6"), lambda s, a: 0.0, lambda t: float(t == 6)),
    "an end by a function": (ar.end(lambda g: g[:, 0] - 5), lambda s, a: 0.0, lambda t: t - 5.0),
    "-1 in every state": (ar.reward("-1"), lambda s, a: -1.0, lambda t: -1.0),
    "-1 until the end": (ar.reward("ended - 1"), lambda s, a: -1.0, lambda t: 0.0),
    "actions": (ar.reward("action - f0 * (1 - ended)"), lambda s, a: a - s, lambda t: 0.0),
    "a function of both": (ar.reward(lambda g, a: a * (g[:, 0] == 2)), lambda s, a: a * (s == 2), lambda t: 0.0),
    "all together": (
        ar.goal(3) - 0.5 * ar.goal(6) + 2 * ar.end("f0 == 5") + ar.reward("-0.1"),
        lambda s, a: (s == 3) - 0.1,
        lambda t: -0.5 * (t == 6) + 2 * (t == 5) - 0.1,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_answered_optimally(trained: tuple[ar.Agent, TableWorld, ar.FiniteMDP], way: str) -> None:
    agent, env, mdp = trained
    reward, r, r_end = WAYS[way]
    expected = by_hand(env, r, r_end, 0.95)
    reached = np.arange(5)  # not the terminal states
    np.testing.assert_allclose(reward_table(reward, agent.knowledge, mdp)[reached], expected[reached], atol=1e-9)
    pi = agent.ask(reward).probabilities(mdp.observations)
    value, best = mdp.policy_value(pi, expected), mdp.optimal_value(expected)
    spread = np.ptp(np.stack([best, mdp.policy_value(np.full((7, 3), 1 / 3), expected)])[:, reached])
    assert (value[reached] >= best[reached] - 0.03 * max(float(spread), 1e-3)).all()


def test_the_reward_of_the_world_from_samples(trained: tuple[ar.Agent, TableWorld, ar.FiniteMDP]) -> None:
    """Rewards on steps, which depend on the action and on where the step ends."""
    agent, env, mdp = trained
    own = np.array([[sum(p * pay for p, _, pay, _ in env.P[s][a]) for a in range(3)] for s in env.P])
    policy = agent.ask(agent.sample_rewards(env, budget=6_000, progress=False))
    value = mdp.policy_value(policy.probabilities(mdp.observations), own)
    best = mdp.optimal_value(own)
    assert (value[:5] >= best[:5] - 0.05 * np.ptp(best[:5])).all()
    assert policy.q(np.arange(5)).max(1) == pytest.approx(best[:5], abs=0.1 * float(np.abs(best).max()))


def test_an_end_in_a_world_without_ends_is_refused() -> None:
    agent = ar.train("four-rooms", updates=40, progress=False)
    for reward in (ar.end(), ar.reward("x * ended"), ar.end(lambda g: g[:, 0])):
        with pytest.raises(ar.UserError, match="knows no terminal states"):
            agent.ask(reward)
    with pytest.raises(ar.UserError, match=r"B sees no actions\. Train with features_include_action=True"):
        agent.ask(ar.reward("x * action"))


def test_a_reward_on_arrival_is_counted_when_played(trained: tuple[ar.Agent, TableWorld, ar.FiniteMDP]) -> None:
    agent, env, _ = trained
    policy = agent.ask(ar.end())
    ended = [episode.terminated for episode in ar.rollout(policy, env, episodes=50, seed=0)]
    assert ar.evaluate(policy, env, episodes=50, seed=0, reward=ar.end()).totals.tolist() == [float(x) for x in ended]
    assert sum(ended) > 25


def test_a_cycle_without_new_steps_is_no_news() -> None:
    agent = ar.train("CliffWalking-v1", updates=120, warmup_steps=1_500, steps_per_cycle=0, progress=False)
    assert agent.updates == 120


def test_terminal_states_follow_the_steps_into_them() -> None:
    rows = {
        "observations": np.array([[1.0, 0], [2, 0]], dtype=np.float32),
        "actions": np.array([1, 0]),
        "next_observations": np.array([[2.0, 0], [3, 1]], dtype=np.float32),
        "terminated": np.array([False, True]),
        "features": np.array([[1.0, 0], [2, 0]], dtype=np.float32),
        "next_features": np.array([[2.0, 0], [3, 1]], dtype=np.float32),
        "rewards": np.array([5.0, 7.0]),
    }
    found = with_ends(rows, np.random.default_rng(0), ActionSet(2))
    assert found["observations"].tolist() == [[1, 0], [2, 0], [3, 1]]
    assert found["next_observations"].tolist() == [[2, 0], [3, 1], [3, 1]]
    assert found["terminated"].tolist() == [False, False, True]
    assert found["features"].tolist() == [[1, 0], [2, 0], [3, 1]]
    assert found["rewards"].tolist() == [5.0, 7.0, 0.0]


def test_features_of_goals_with_actions_and_ends() -> None:
    phi = FeatureMap("observation", gym.spaces.Discrete(4), ActionSet(2), include_action=True, ends=True)
    assert phi.column_names == ("f0", "action", "ended")
    assert phi.with_actions(np.array([[3.0]]))[0].tolist() == [[3, 0, 0], [3, 1, 0], [3, 0, 1]]
    seen = phi.seen(np.array([1, 2]), np.array([False, True]))
    assert seen.tolist() == [[1, 0], [2, 1]]
    assert phi.of(np.array([1, 2]), seen, np.array([1, 1])).tolist() == [[1, 1, 0], [2, 0, 1]]  # no action at the end


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1_000))
def test_the_explorer_goes_to_what_was_tried_least(seed: int) -> None:
    """In a corridor whose left end is never left by chance, it walks to the pairs without visits."""
    n, rng = 30, np.random.default_rng(seed)
    phi = FeatureMap("observation", gym.spaces.Discrete(n), ActionSet(2))
    explorer = Explorer(Encoder(gym.spaces.Discrete(n)), phi, seed)
    s = rng.integers(0, n - 1, size=3_000)
    a = rng.integers(0, 2, size=3_000)
    new = rng.integers(0, n)  # the pair (new, right) was never tried
    keep = (s != new) | (a == 0)
    s, a = s[keep], a[keep]
    t = np.where(a == 1, s + 1, np.maximum(s - 1, 0))
    columns = [torch.from_numpy(c).float()[:, None] for c in (s, t)]
    nothing = torch.zeros(len(s), dtype=torch.bool)
    data = Transitions(columns[0], torch.from_numpy(a), columns[1], nothing, columns[0])
    explorer.see(data, len(s))
    if new < n - 1:
        left = torch.arange(0, new).float()[:, None]
        assert (explorer.greedy(left, explorer.new_tasks(len(left))) == 1).all()
        assert explorer.greedy(torch.tensor([[float(new)]]), explorer.new_tasks(1)).tolist() == [1]


def test_the_far_corner_of_a_frozen_lake_is_reached() -> None:
    """Uniform actions arrive once in 500 episodes."""
    agent = ar.train("FrozenLake8x8-v1", updates=3_000, seed=0, evaluate_every=3_000, progress=False)
    assert ar.evaluate(agent.ask(ar.goal(63)), "FrozenLake8x8-v1", episodes=200).mean > 0.6


def test_mountain_car_is_explored_to_its_flag() -> None:
    """Uniform actions never get there."""
    world = ar.open_world("MountainCar-v0")
    model = untrained(world, preset("fast")).model
    with opened(world, 4) as stepper:
        collector, replay = Collector(stepper, model.phi, 0), Replay(50_000)
        explorer = Explorer(model.observation_encoder, model.phi, 0)
        replay.add(collector.collect(1_000))
        while len(replay) < 25_000:
            explorer.see(replay.transitions, replay.added)
            replay.add(collector.collect(200, EPSILON, explorer.greedy, explorer.new_tasks))
    assert replay.transitions.terminated.sum() >= 5
    assert replay.transitions.observations[:, 0].min() < -1.19


def test_rare_ends_count_even_if_no_held_out_row_has_one(trained: tuple[ar.Agent, TableWorld, ar.FiniteMDP]) -> None:
    """A constant matters where episodes end, so it must not be taken out."""
    agent, _, _ = trained
    assert agent.held_out is not None
    live = agent.held_out.at(torch.nonzero(~agent.held_out.terminated).squeeze(1))
    assert replace(agent.knowledge, held_out=live).may_end
    assert not ar.train("four-rooms", updates=40, progress=False).knowledge.may_end
