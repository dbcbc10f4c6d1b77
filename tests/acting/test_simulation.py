"""Simulated episodes: the model of steps against known dynamics, and returns against those of the environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import anyreward as ar
from anyreward.acting.better import better_refined
from anyreward.acting.simulation import Simulator, greedy_actions, reward_function, simulator
from anyreward.learning.local_model import LocalModel
from anyreward.learning.replay import Transitions
from anyreward.theory.pendulum import pendulum_step


def moved(step: float, noise: float = 0.0, wall: bool = False, n: int = 4_000) -> tuple[Transitions, np.ndarray]:
    """Transitions of a point with a velocity in a unit square, which actions change; the scale of its states."""
    rng = np.random.default_rng(0)
    x, a = rng.uniform(-1, 1, size=(n, 2)), rng.integers(2, size=n)
    change = np.stack([step * x[:, 1], step * (2 * a - 1)], 1) + noise * rng.standard_normal((n, 2))
    if wall:  # nothing moves across the line x = 0
        change[np.sign(x[:, 0]) != np.sign(x[:, 0] + change[:, 0]), 0] = 0.0
    over = x[:, 0] + change[:, 0] > 0.9
    after = np.concatenate([x + change, over[:, None]], 1)
    before = np.concatenate([x, np.zeros((n, 1))], 1)
    columns = [torch.from_numpy(c).float() for c in (before, after)]
    rows = Transitions(columns[0], torch.from_numpy(a), columns[1], torch.zeros(n, dtype=torch.bool), columns[0])
    return rows, np.ones(2)


def test_smooth_changes_are_interpolated() -> None:
    rows, scale = moved(0.2)
    model = LocalModel(rows, 2, True, scale)
    assert model.smooth
    x = np.random.default_rng(1).uniform(-0.7, 0.7, size=(50, 2))
    after, over, _ = model.step(x, np.ones(50, dtype=int))
    np.testing.assert_allclose(after, x + np.stack([0.2 * x[:, 1], np.full(50, 0.2)], 1), atol=1e-4)
    clear = np.abs(after[:, 0] - 0.9) > 0.05
    np.testing.assert_array_equal(over[clear], (after[:, 0] > 0.9)[clear])


def test_noise_and_walls_are_kept() -> None:
    rows, scale = moved(0.2, noise=0.1)
    model = LocalModel(rows, 2, True, scale)
    assert not model.smooth
    after, _, _ = model.step(np.zeros((200, 2)) + 1e-3 * np.arange(200)[:, None], np.zeros(200, dtype=int))
    assert after[:, 0].std() > 0.05  # different transitions are nearest
    rows, scale = moved(0.2, wall=True, n=20_000)
    x = np.random.default_rng(1).uniform(-0.9, -0.05, size=(200, 2))
    after, _, _ = LocalModel(rows, 2, True, scale).step(x, np.ones(200, dtype=int))
    assert np.mean(after[:, 0] > 0.02) < 0.05


@pytest.fixture(scope="module")
def agent() -> ar.Agent:
    """An agent with a useless network, but with data."""
    return ar.train("CartPole-v1", dim=4, hidden=8, layers=1, wide=0, batch_size=8, updates=4_000, progress=False)


def balancing(packed: Tensor) -> Tensor:
    """A good policy for CartPole: push towards where the pole falls."""
    return (packed[:, 2] + 0.3 * packed[:, 3] + 0.02 * packed[:, 0] + 0.03 * packed[:, 1] > 0).long()


class Balancing:
    def act(self, observation: np.ndarray) -> int | np.ndarray:
        """Balance."""
        actions = balancing(torch.from_numpy(np.atleast_2d(observation))).numpy()
        return int(actions[0]) if np.ndim(observation) == 1 else actions


def test_simulated_returns_are_those_of_the_environment(agent: ar.Agent) -> None:
    assert agent.knowledge.episodes is not None
    assert agent.knowledge.episodes.limit == 500
    assert float(agent.knowledge.episodes.starts.abs().max()) <= 0.05
    simulate = simulator(agent.knowledge)
    assert simulate is not None
    pays = reward_function(ar.reward("1 - ended"), agent.knowledge)
    played = simulate.play([balancing, None], pays, 64)
    real = ar.evaluate(Balancing(), "CartPole-v1", episodes=50, seed=1).mean
    random = ar.evaluate(ar.RandomPolicy(2), "CartPole-v1", episodes=100, seed=1).mean
    balanced, at_random = played.returns.mean(1)
    np.testing.assert_array_equal(simulate.play([balancing, None], pays, 64).returns, played.returns)
    assert balanced == pytest.approx(real, rel=0.15)  # 2,000 transitions, 500 steps
    assert at_random == pytest.approx(random, rel=0.25)
    # without discount for the comparison, and discounted beside it
    expected = np.mean((1 - 0.99 ** played.returns[0]) / 0.01)
    assert played.discounted[0].mean() == pytest.approx(expected, rel=1e-6)


def test_the_better_one_is_taken(agent: ar.Agent, tmp_path: Path) -> None:
    reward = ar.reward("-abs(f0) - 5 * abs(f2) - 5 * ended")
    plain, planned = agent.ask(reward, refine=0), agent.ask(reward, refine=1)
    assert (plain.refined, planned.refined) == (False, True)
    answer = agent.ask(reward)
    assert answer.refined
    assert "refined" in repr(answer)
    policies = (plain, planned, answer)
    returns = [ar.evaluate(policy, "CartPole-v1", 30, seed=1, reward=reward).mean for policy in policies]
    assert returns[1] > returns[0] + 2
    assert returns[2] == returns[1]
    # nothing replaces a policy that balances as long as it is allowed to
    plain = agent.ask(ar.reward("1"), refine=0)
    good = replace(plain, corrections=(lambda policy, packed, Q: torch.eye(2)[balancing(packed)],))
    assert better_refined(good) is good
    assert good.trust.predicted is not None
    assert good.trust.predicted > 0.9
    assert plain.trust.predicted is not None
    assert plain.trust.predicted < 0.7
    again = ar.load(agent.save(tmp_path / "run"))
    observation = np.array([0.01, 0.2, -0.03, 0.1], dtype=np.float32)
    np.testing.assert_allclose(again.ask(reward).q(observation), answer.q(observation))


def test_a_plan_is_saved_with_its_policy(agent: ar.Agent, tmp_path: Path) -> None:
    reward = ar.reward("-abs(f0) - 5 * abs(f2) - 5 * ended")
    planned = agent.ask(reward, refine=1)
    again = agent.load_policy(planned.save(tmp_path / "planned.json"))
    states = agent.sample.rows[:50, :4].numpy()
    np.testing.assert_array_equal(again.q(states), planned.q(states))
    assert again.refined
    plain = agent.load_policy(agent.ask(reward, refine=0).save(tmp_path / "plain.json"))
    assert not plain.refined  # it is the policy that was saved, not the one that `ask` prefers
    with pytest.raises(ar.UserError, match="are not saved"):
        agent.ask(reward, refine=1, improve=2).save(tmp_path / "improved.json")


def test_smooth_environments_keep_points_beside_their_tables() -> None:
    car = ar.train("MountainCar-v0", updates=2_000, progress=False)
    assert car.model.landmarks is not None
    assert car.knowledge.points is not None
    assert len(car.knowledge.points.features) > 900
    maze = ar.train("continuous-maze", updates=200, progress=False)
    assert maze.model.landmarks is not None
    assert maze.knowledge.points is None  # it has walls and noise


def test_a_goal_among_numbers_is_simulated_with_a_size(agent: ar.Agent) -> None:
    goal = ar.goal(0.0, 0.0, 0.0, 0.0)
    pays = reward_function(goal, agent.knowledge)
    rows = agent.sample.rows
    paid = pays(rows)
    assert 20 <= np.count_nonzero(paid) <= 60  # with ended = 0 and ended = 1
    assert (agent.sample.weights.numpy() * paid).sum() == pytest.approx(1.0, rel=2.0)
    assert greedy_actions(agent.ask(goal))(rows[:5, :5]).shape == (5,)


def test_networks_that_were_chosen_stay_networks() -> None:
    agent = ar.train("continuous-maze", landmarks=0, dim=4, hidden=8, updates=40, progress=False)
    assert agent.knowledge.points is not None
    assert not agent.ask(ar.reward("x")).refined


def swings(n: int) -> Transitions:
    """Random transitions of Gymnasium's pendulum, without terminal states."""
    rng = np.random.default_rng(0)
    states = np.stack([rng.uniform(-np.pi, np.pi, n), rng.uniform(-8, 8, n)], 1)
    torques = rng.choice([-1, -0.5, 0, 0.5, 1], n)
    before, after = (torch.from_numpy(seen(s)).float() for s in (states, pendulum_step(states, 2 * torques)))
    return Transitions(before, torch.from_numpy(torques).float()[:, None], after, torch.zeros(n).bool(), before)


def seen(states: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(states[:, 0]), np.sin(states[:, 0]), states[:, 1]], 1)


def test_many_steps_stay_on_the_surface_of_states() -> None:
    """A pendulum's cosine and sine stay on the circle, and it swings as the real one does."""
    scale = np.array([0.7, 0.7, 4.6])
    model = LocalModel(swings(10_000), 0, False, scale)
    assert model.smooth
    states = np.stack([np.linspace(-3, 3, 50), np.zeros(50)], 1)
    x, real = seen(states) / scale, states

    def torque(y: np.ndarray) -> np.ndarray:
        """Brakes: without it, small differences would grow."""
        return np.clip(-0.5 * y[:, 2], -1, 1).astype(np.float32)

    for _ in range(300):
        real = pendulum_step(real, 2 * torque(seen(real)))
        x, _, _ = model.step(x, torque(x * scale)[:, None])
        radius = np.hypot(x[:, 0] * scale[0], x[:, 1] * scale[1])
        assert np.abs(radius - 1).max() < 0.05
    np.testing.assert_allclose(x * scale, seen(real), atol=0.1)


def test_where_no_episode_terminates_returns_are_discounted_without_end() -> None:
    """Pendulum has a time limit, but no terminal states: its episodes start anywhere and go on."""
    pendulum = ar.train("Pendulum-v1", updates=400, action_repeat=1, progress=False)
    knowledge, simulate = pendulum.knowledge, simulator(pendulum.knowledge)
    assert knowledge.episodes is not None
    assert knowledge.episodes.limit == 200
    assert simulate is not None
    gamma = knowledge.settings.gamma
    one = simulate.play([None], lambda features: np.ones(len(features)), 8)
    assert one.returns == pytest.approx(1 / (1 - gamma))
    np.testing.assert_array_equal(one.returns, one.discounted)
    speeds = 4.6 * np.abs(simulate.play([None], lambda features: np.zeros(len(features)), 200).starts[:, 2])
    assert speeds.max() > 2  # an episode of the environment starts with a speed of at most 1
    # against the environment itself, whose state can be set; with as many held-out transitions as a full run has
    policy = pendulum.ask(ar.reward("f0"))
    rows, flag = swings(10_000), torch.zeros(10_000, 1)
    before, after = torch.cat([rows.observations, flag], 1), torch.cat([rows.next_observations, flag], 1)
    listed = torch.from_numpy(pendulum.model.phi.action_set.nearest(rows.actions.numpy()))
    simulate = Simulator(knowledge, rows._replace(observations=before, next_observations=after, actions=listed))
    played = simulate.play([greedy_actions(policy)], reward_function(policy.reward, knowledge), 64)
    x = simulate.packed(played.starts)[:, :3].double().numpy()
    states, real, weight = np.stack([np.arctan2(x[:, 1], x[:, 0]), x[:, 2]], 1), np.zeros(64), 1.0
    for _ in range(2_000):
        real += weight * np.cos(states[:, 0])
        states = pendulum_step(states, policy.act(seen(states).astype(np.float32), warn=False)[:, 0].astype(float))
        weight *= gamma
    real += weight / (1 - gamma) * np.cos(states[:, 0])  # it stays upright
    assert played.returns.mean() == pytest.approx(real.mean(), rel=0.02)


def test_looking_ahead_takes_the_best_simulated_step(agent: ar.Agent) -> None:
    simulate, points = simulator(agent.knowledge), agent.knowledge.points
    assert simulate is not None
    assert points is not None
    held_out = agent.knowledge.held_out
    assert held_out is not None
    rows = held_out.observations[held_out.observations[:, -1] < 0.5][:200]
    upright = simulate.looking_ahead(lambda packed: -(packed[:, 2] + 0.3 * packed[:, 3]).abs(), points.action_set)
    falling = rows[(rows[:, 2] + 0.3 * rows[:, 3]).abs() > 0.1]
    pushed = upright(falling)
    assert ((falling[:, 2] + 0.3 * falling[:, 3] > 0) == (pushed == 1)).float().mean() > 0.95
