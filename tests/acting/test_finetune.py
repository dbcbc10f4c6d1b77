"""Fine-tuning on the real reward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import anyreward as ar
from anyreward.acting.finetune import Residual, TunedBatch, q_learning_loss
from anyreward.learning.machine import threads
from tests.exact import TableEnv, exact_agent, garnet

SHORT = {"steps": 1_500, "updates": 60, "progress": False}


@pytest.fixture(scope="module")
def poor() -> Iterator[ar.Agent]:
    """d is far too small for 68 cells. Rounding, and so the agent, depends on the number of threads."""
    with threads(2):
        yield ar.train("four-rooms", landmarks=0, dim=5, updates=1_000, threads=2, progress=False)


class Table(nn.Module):
    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows))

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        return self.rows[packed[:, 0].long()]


def test_the_loss_by_hand() -> None:
    q, target = Table([[1.0, 2.0], [0.0, 4.0]]), Table([[5.0, 6.0], [7.0, 8.0]])
    batch = TunedBatch(
        observations=torch.tensor([[0.0], [0.0]]),
        actions=torch.tensor([0, 1]),
        next_observations=torch.tensor([[1.0], [1.0]]),
        terminated=torch.tensor([False, True]),
        rewards=torch.tensor([0.5, -1.0]),
        base=torch.tensor([[10.0, 20.0], [10.0, 20.0]]),
        next_base=torch.tensor([[30.0, 25.0], [30.0, 25.0]]),
    )
    # s': Q = 30 + 0, 25 + 4: the first is best, and worth 30 + 7 to the target; Q(s, .) = 11 and 22
    errors = [11 - (0.5 + 0.9 * 37), 22 - (-1.0)]
    loss = q_learning_loss(q, target, batch, gamma=0.9)
    assert float(loss.detach()) == pytest.approx(0.5 * np.mean(np.square(errors)))
    loss.backward()
    assert q.rows.grad is not None
    assert q.rows.grad.tolist() == [[pytest.approx(errors[0] / 2), pytest.approx(errors[1] / 2)], [0, 0]]
    assert target.rows.grad is None


def test_it_begins_at_zero(agent: ar.Agent) -> None:
    q = Residual(agent.model.observation_encoder, 5, unit=3.0)
    assert not q(torch.tensor([[12.0], [24.0]])).any()


def test_targets_stay_within_the_possible_values() -> None:
    """A maximum over estimates that are too large does not raise itself."""
    batch = TunedBatch(
        torch.zeros(1, 1),
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, 1),
        torch.zeros(1, dtype=torch.bool),
        torch.ones(1),
        torch.zeros(1, 2),
        torch.full((1, 2), 500.0),
    )
    q = Table([[0.0, 0.0]])
    for limits, target in (((-10.0, 10.0), 10.0), ((-1000.0, 1000.0), 1 + 0.9 * 500)):
        assert float(q_learning_loss(q, q, batch, 0.9, limits).detach()) == pytest.approx(0.5 * target**2)


def test_a_poor_representation_becomes_good(poor: ar.Agent) -> None:
    """d = 5 in the four rooms: from far below to at least 0.98 of the optimum; the agent stays as it was."""
    before = poor.fingerprint
    target = ar.goal(9, 9)
    plain = poor.ask(target)
    tuned = poor.finetune(plain, reward=target, progress=False)
    mdp = poor.exact_mdp()
    assert poor.score(plain, mdp).ratio[0] < 0.6
    assert poor.score(tuned, mdp).ratio[0] >= 0.98
    del poor.__dict__["fingerprint"]
    assert poor.fingerprint == before
    assert tuned.trust.predicted is not None
    assert tuned.trust.predicted > 0.95


def test_offline_from_rewarded_transitions() -> None:
    """Of an exact agent that was asked for the wrong reward, in a random MDP: to the optimum of the right one."""
    mdp = garnet()
    agent = exact_agent(mdp)
    r = np.array([0.3, -1.0, 0.0, 2.0, 0.5, -0.2])
    wrong = agent.ask(ar.goal(1))
    rows = agent.held_out
    assert rows is not None
    s = rows.observations[:, 0].long().numpy()
    given = ar.RewardedTransitions(s, rows.actions.numpy(), r[s], rows.next_observations[:, 0].long().numpy())
    tuned = agent.finetune(wrong, given, updates=1_500, progress=False)
    states = np.arange(6)
    best, V = mdp.optimal_value(r), mdp.policy_value(tuned.probabilities(states), r)
    assert mdp.policy_value(wrong.probabilities(states), r).mean() < 0.5 * best.mean()
    assert V.mean() >= 0.98 * best.mean()
    assert tuned.value(states) == pytest.approx(best, abs=0.15 * np.abs(best).max())


def test_online_in_an_environment_of_ones_own() -> None:
    mdp = garnet(seed=1)
    agent, r = exact_agent(mdp), np.array([0.3, -1.0, 0.0, 2.0, 0.5, -0.2])
    env = TableEnv(mdp, r)
    tuned = agent.finetune(agent.ask(ar.goal(1)), env, steps=3_000, updates=1_500, progress=False)
    V = mdp.policy_value(tuned.probabilities(np.arange(6)), r)
    assert V.mean() >= 0.97 * mdp.optimal_value(r).mean()
    env.reset()


def test_saved_and_loaded(agent: ar.Agent, tmp_path: Path) -> None:
    tuned = agent.finetune(agent.ask(ar.goal(2, 8)), reward=ar.goal(2, 8), **SHORT)
    path = tuned.save(tmp_path / "tuned.json")
    again = agent.load_policy(path)
    cells = agent.exact_mdp().observations
    assert again.q(cells) == pytest.approx(tuned.q(cells))
    assert not np.allclose(agent.ask(ar.from_z(path)).q(cells), tuned.q(cells))  # z alone is the plain answer
    (tmp_path / "tuned.safetensors").write_bytes(b"damaged")
    with pytest.raises(ar.UserError, match="missing, damaged or of another policy"):
        agent.load_policy(path)
    with pytest.raises(ar.UserError, match="are not saved"):
        agent.ask(ar.goal(2, 8), refine=2).save(tmp_path / "refined.json")
    (tmp_path / "weights.safetensors").write_bytes(b"another's")
    with pytest.raises(ar.UserError, match="belongs to something else"):
        tuned.save(tmp_path / "weights.json")


def test_the_same_seed_tunes_the_same(agent: ar.Agent) -> None:
    one, two = (agent.finetune(agent.ask(ar.goal(2, 8)), reward=ar.goal(2, 8), seed=3, **SHORT) for _ in range(2))
    assert np.array_equal(one.q(np.arange(12, 20)), two.q(np.arange(12, 20)))


def test_numbers_and_terminations() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=16, updates=40, progress=False)
    tuned = agent.finetune(agent.ask(ar.reward("1")), "CartPole-v1", **SHORT)
    assert tuned.act(gym.make("CartPole-v1").reset(seed=0)[0]) in (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"updates": 0}, "updates is 0"),
        ({"epsilon": 2.0}, "epsilon is 2"),
        ({"source": "CartPole-v1"}, "was trained on observations"),
        ({"source": ar.RewardedTransitions([1, 2], [0, 1], [0.0], [2, 3])}, "must have the shape"),
        ({"source": ar.RewardedTransitions([1, 2], [0, 9], [0.0, 1.0], [2, 3])}, "between 0 and 4"),
        ({"source": ar.RewardedTransitions([1, 2], [0, 1], [0.0, np.nan], [2, 3])}, "transition 1 is nan"),
        ({"source": ar.RewardedTransitions([1, 2], [0, 1], [[0.0], [1.0]], [2, 3])}, r"the shape \(2,\)"),
    ],
)
def test_mistakes_are_named(agent: ar.Agent, options: dict[str, object], message: str) -> None:
    with pytest.raises(ar.UserError, match=message):
        agent.finetune(agent.ask(ar.goal(2, 8)), **{"progress": False, **options})


def test_what_was_asked_is_learned_for_unless_told_otherwise(agent: ar.Agent) -> None:
    told, asked = (agent.finetune(agent.ask(ar.goal(2, 8)), reward=r, **SHORT) for r in (ar.goal(2, 8), None))
    assert np.array_equal(told.q(np.arange(12, 20)), asked.q(np.arange(12, 20)))
    with pytest.warns(UserWarning, match="nothing to learn"):
        agent.finetune(agent.ask(ar.goal(2, 8)), "four-rooms", **SHORT)  # the world itself pays nothing
    other = ar.train("four-rooms", dim=4, hidden=8, updates=40, progress=False)
    with pytest.raises(ar.UserError, match="belongs to another agent"):
        other.finetune(agent.ask(ar.goal(2, 8)), **SHORT)


class Paying(gym.Wrapper):
    """The four rooms, where a cell pays what it is worth when it is left; episodes of seven steps."""

    def __init__(self, r: np.ndarray) -> None:
        super().__init__(gym.make("anyreward/FourRooms-v0", max_episode_steps=7))
        self.r = r

    def reset(self, **how: object) -> tuple[object, dict[str, object]]:
        self.cell, info = self.env.reset(**how)
        return self.cell, info

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        paid = float(self.r[self.cell])
        self.cell, _, terminated, truncated, info = self.env.step(action)
        return self.cell, paid, terminated, truncated, info


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode)[:2])
def test_every_reward_stays_with_its_transition(agent: ar.Agent, mode: gym.vector.AutoresetMode) -> None:
    """Also with many environments, whose steps do not fit the number asked for, in whatever way they reset."""
    r = np.random.default_rng(0).standard_normal(121)
    env = gym.vector.SyncVectorEnv([lambda: Paying(r)] * 37, autoreset_mode=mode)
    tuned = agent.finetune(agent.ask(ar.goal(2, 8)), env, steps=60, updates=30, progress=False)
    seen = tuned.reward.terms[0][1]
    cells = seen.features[:, 1] * 11 + seen.features[:, 0]
    assert len(cells) >= 60
    assert seen.rewards == pytest.approx(r[cells.astype(int)], rel=1e-5)
    env.close()


class Screen(gym.Env):
    """Four grey frames; episodes end after ten steps."""

    observation_space = gym.spaces.Box(0, 255, (4, 40, 40), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self.t = 0
        return self._see(), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.t += 1
        return self._see(), float(self.t), self.t >= 10, False, {}

    def _see(self) -> np.ndarray:
        return np.full((4, 40, 40), self.np_random.integers(256), dtype=np.uint8)


def test_images() -> None:
    small = {"dim": 4, "hidden": 8, "batch_size": 8, "updates": 40, "progress": False}
    agent = ar.train(Screen(), features=lambda o: o[:, 0, 0, :1] / 255.0, **small)
    policy = agent.ask(ar.reward(lambda g: g[:, 0]))
    tuned = agent.finetune(policy, Screen(), steps=150, updates=5, progress=False)
    black = np.zeros((4, 40, 40), dtype=np.uint8)
    assert tuned.q(black).shape == (2,)
    assert not np.allclose(tuned.q(black), policy.q(black))
    assert tuned.trust.predicted is None  # too few held-out images
    assert "too few" in str(tuned.trust)


def test_only_plain_answers_are_tuned(agent: ar.Agent) -> None:
    with pytest.raises(ar.UserError, match="without refine, improve and earlier fine-tuning"):
        agent.finetune(agent.ask(ar.goal(2, 8), refine=2), progress=False)
