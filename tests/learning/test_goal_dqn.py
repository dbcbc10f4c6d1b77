"""Goal-oriented DQN: targets, hindsight and gradients, each against an answer known beforehand."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward import UserError, preset
from anyreward.learning.collect import Collector
from anyreward.learning.goal_dqn import GoalBatch, GoalDQN, Goals, goal_targets, goal_updates, hindsight
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import RunSettings, Settings
from anyreward.learning.update import Learner
from anyreward.model.features import feature_map
from anyreward.model.model import Model
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.goals import GoalTest, Tolerance
from anyreward.worlds.stepping import Stepper
from tests.learning.test_collect import LIMITS, MODES, TRUNCATES, WHO, Counting

ACTIONS = ActionSet(3, start=5)
"""of `Counting`"""


def test_targets_by_hand() -> None:
    rewards, discount = torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.tensor([0.9, 0.9, 0.0, 0.9])
    Q_next = torch.tensor([[1.0, 3.0], [2.0, -1.0], [8.0, 9.0], [4.0, 4.5]])
    # 0 + 0.9 * 3; 1 + 0.9 * 2; terminated: the reward alone; 0.9 * 4.5
    assert torch.allclose(goal_targets(rewards, discount, Q_next, 0.9), torch.tensor([2.7, 2.8, 1.0, 4.05]))


def test_targets_stay_between_nothing_and_always_being_there() -> None:
    discount, Q_next = torch.full((3,), 0.9), torch.tensor([[30.0, 5.0], [-7.0, -3.0], [10.0, 0.0]])
    aims = goal_targets(torch.tensor([1.0, 0.0, 1.0]), discount, Q_next, 0.9)
    assert torch.allclose(aims, torch.tensor([10.0, 0.0, 10.0]))  # 28, -2.7 and 1 + 9


@settings(max_examples=30, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=50), st.floats(0, 1), st.integers(0, 2**31))
def test_hindsight_stays_within_the_episode(left: list[int], share: float, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    replaced, later = hindsight(torch.tensor(left), share, random)
    assert ((later >= 0) & (later <= torch.tensor(left))).all()
    if share in (0.0, 1.0):
        assert (replaced == bool(share)).all()


def test_hindsight_takes_every_later_moment_equally_often() -> None:
    replaced, later = hindsight(torch.full((40_000,), 3), 0.8, torch.Generator().manual_seed(0))
    assert float(replaced.double().mean()) == pytest.approx(0.8, abs=0.01)
    assert (torch.bincount(later) / 40_000).tolist() == pytest.approx([0.25] * 4, abs=0.01)


def episodes(mode: AutoresetMode, steps: int) -> Transitions:
    """From four environments whose episodes have 1, 3, 4 and 7 steps; goals are numbered as they are drawn."""
    env = SyncVectorEnv([lambda i=i: Counting(i, LIMITS[i], TRUNCATES[i]) for i in range(4)], autoreset_mode=mode)
    drawn = iter(range(10_000))
    phi = feature_map("auto", env.single_observation_space, ACTIONS)
    collector = Collector(Stepper(env), phi, 0, next_features=True, whole_episodes=True)

    def goals(n: int) -> torch.Tensor:
        return torch.tensor([[next(drawn), 0, 0] for _ in range(n)], dtype=torch.float32)

    parts = [collector.collect(steps, 0.5, lambda packed, z: torch.zeros(len(packed), dtype=torch.int64), goals)]
    parts.append(collector.collect(steps, 1.0, None, goals))  # goals are drawn for uniform actions too
    columns = zip(*(part.columns.values() for part in parts), strict=True)
    return Transitions(*(torch.cat(column) for column in columns))


@pytest.mark.parametrize("mode", MODES)
def test_episodes_come_whole_and_in_order(mode: AutoresetMode) -> None:
    rows = episodes(mode, 60)
    assert rows.goals is not None
    assert rows.left is not None
    assert rows.next_features is not None
    assert len(rows.actions) >= 120
    start, goals = 0, []
    while start < len(rows.actions):
        length = int(rows.left[start]) + 1
        episode = rows.at(torch.arange(start, start + length))
        who = int(episode.observations[0, WHO])
        assert length == LIMITS[who]
        assert episode.left.tolist() == list(range(length))[::-1]
        assert episode.observations[:, 0].tolist() == list(range(length))
        assert torch.equal(episode.next_features[:-1], episode.features[1:])
        assert len(set(episode.goals[:, 0].tolist())) == 1
        goals.append(float(episode.goals[0, 0]))
        assert episode.terminated.tolist() == [False] * (length - 1) + [not TRUNCATES[who]]
        start += length
    assert len(set(goals)) == len(goals)  # each episode has its own


def test_an_episode_without_end_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyreward.learning.collect.LONGEST_EPISODE", 3)
    rows = episodes(AutoresetMode.SAME_STEP, 60)
    assert rows.left is not None
    assert rows.goals is not None
    long = rows.at((rows.observations[:, WHO] == 3).nonzero().squeeze(1))  # episodes of seven steps
    assert long.left[:7].tolist() == [2, 1, 0, 2, 1, 0, 0]
    assert len(long.goals[:7, 0].unique()) == 3  # each part has a goal of its own
    assert long.observations[:7, 0].tolist() == list(range(7))


S, A, LENGTH = 60, 3, 5


def chain(capacity: int, n: int) -> tuple[Model, Replay]:
    """A replay of episodes of five steps, through states that no other episode among the last sixty visits."""
    phi = feature_map("auto", gym.spaces.Discrete(S), A)
    model = GoalDQN.fresh(phi, preset("paper", method="goal-dqn", hidden=8, layers=2))
    replay = Replay(capacity)
    t = torch.arange(n)
    place = t.remainder(S)[:, None].float()
    after = (t + 1).remainder(S)[:, None].float()
    rows = Transitions(place, t % A, after, t % 7 == 6, place, after, torch.zeros(n, 1), LENGTH - 1 - t % LENGTH)
    for piece in t.split(20):
        replay.add(rows.at(piece))
    return model, replay


def drawn(model: Model, replay: Replay, s: Settings, n: int) -> GoalBatch:
    """n minibatches, where a goal is reached by being there."""
    method = GoalDQN(model, replay, s, RunSettings())
    method.goals = Goals(lambda _: pytest.fail("no episodes"), lambda a, g: (a == g).all(1))
    return method.draw(n)


@pytest.mark.parametrize("n", [50, 80], ids=["filling", "wrapped around"])
def test_goals_of_hindsight_are_reached_later_in_the_same_episode(n: int) -> None:
    model, replay = chain(52, n)  # no whole number of episodes: one crosses the end of the ring
    s = preset("fast", method="goal-dqn-her", hindsight=1.0, batch_size=64, gamma=0.9)
    batch = drawn(model, replay, s, 40)
    # a goal's number, less one, says which step reached it
    now, goal = batch.x[..., 0].flatten(), batch.goals.argmax(-1).flatten()
    ahead = (goal - now - 1) % S
    assert (ahead <= LENGTH - 1 - now % LENGTH).all()
    assert len(now.unique()) == min(n, 52)  # of 60 places: what was held
    assert (torch.bincount(ahead, minlength=LENGTH) > 0).all()
    assert torch.equal(batch.rewards.flatten(), (ahead == 0).float())
    assert torch.equal(batch.discount.flatten() > 0, now % 7 != 6) if n == 50 else (batch.discount == 0).any()


def test_without_hindsight_goals_are_those_of_the_episode() -> None:
    model, replay = chain(50, 50)
    s = preset("fast", method="goal-dqn", batch_size=64)
    batch = drawn(model, replay, s, 3)
    assert (batch.goals.argmax(-1) == 0).all()
    assert torch.equal(batch.rewards, (batch.next_x[..., 0] == 0).float())  # paid for getting there
    assert (batch.actions.diff(dim=1) >= 0).all()


@pytest.mark.parametrize("changes", [{}, {"action_input": True, "wide": 1, "layer_norm": True}], ids=["paper", "fast"])
@pytest.mark.parametrize("numbers", [False, True], ids=["categories", "numbers"])
def test_the_step_is_adams_on_the_squared_error(changes: dict[str, Any], numbers: bool) -> None:
    torch.manual_seed(0)
    space = gym.spaces.Box(-1, 1, (3,), np.float32) if numbers else gym.spaces.Discrete(6)
    s = preset("paper", method="goal-dqn", normalise=False, hidden=16, layers=2, **changes)
    model = GoalDQN.fresh(feature_map("auto", space, A), s)
    F = model.F.double()
    plain, frozen = copy.deepcopy(F), copy.deepcopy(F)
    learner = Learner(F, model.B)
    n, b = 2, 12
    width = 3 if numbers else 6
    x, next_x = (
        torch.randn(n, b, 3, dtype=torch.float64) if numbers else torch.randint(6, (n, b, 1)) for _ in range(2)
    )
    actions = torch.randint(A, (n, b)).sort(1).values
    group = GoalBatch(
        x,
        actions,
        torch.stack([torch.bincount(row, minlength=A) for row in actions]),
        next_x,
        0.9 * (torch.rand(n, b, dtype=torch.float64) < 0.8),
        torch.randn(n, b, width, dtype=torch.float64),
        (torch.rand(n, b, dtype=torch.float64) < 0.5).double(),
    )
    last = goal_updates(learner, group, [0.01, 0.003], gamma=0.9)
    optimiser = torch.optim.Adam(plain.parameters(), lr=0.01)
    for i, rate in enumerate([0.01, 0.003]):
        aims = []
        for j in range(b):  # one row at a time, as a book would have it
            Q = frozen(next_x[i, j : j + 1], group.goals[i, j : j + 1])[0, :, 0].detach()
            aims.append(min(max(group.rewards[i, j] + group.discount[i, j] * Q.max(), 0.0), 10.0))
        Q = plain(x[i], group.goals[i]).squeeze(2)[torch.arange(b), actions[i]]
        loss = 0.5 * (Q - torch.stack([torch.as_tensor(aim) for aim in aims])).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()
    assert float(last.losses()["bellman_loss"]) == pytest.approx(float(loss.detach()))
    for ours, theirs in zip(F.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_goals_by_protocol_and_by_what_was_visited() -> None:
    s, empty = preset("fast", method="goal-dqn"), Replay(10)
    numbers, places = (
        GoalDQN.fresh(feature_map("auto", space, A), s)
        for space in (gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(9))
    )

    def goals_in(test: GoalTest | None, model: Model, replay: Replay, start: torch.Tensor) -> Goals:
        method = GoalDQN(model, replay, s, RunSettings())
        method.enter(test, start, seed=3)
        assert method.goals is not None
        return method.goals

    test = GoalTest(lambda rng, n: rng.random((n, 2)), Tolerance("box", 0.05), steps=3)
    goals = goals_in(test, numbers, empty, torch.zeros(1, 2))
    assert goals.draw(4).dtype == torch.float32
    assert goals.draw(4).shape == (4, 2)
    near, far = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.54, 0.56]])
    assert goals.reached(near, near).tolist() == [True]
    assert goals.reached(near, far).tolist() == [False]
    start = torch.tensor([[4.0], [7.0]])
    goals = goals_in(None, places, empty, start)
    assert set(goals.draw(50).flatten().tolist()) == {4.0, 7.0}  # nothing else is known yet
    model, replay = chain(50, 20)
    goals = goals_in(None, model, replay, start)
    assert set(goals.draw(500).flatten().tolist()) == set(range(20))
    with pytest.raises(UserError, match="This environment has none, and its features are numbers"):
        goals_in(None, numbers, empty, torch.zeros(1, 2))
