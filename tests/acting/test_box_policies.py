"""Agents with continuous actions: every reward, every kind of policy, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import anyreward as ar

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
UP = np.array([1.0, 0.0, 0.0], dtype=np.float32)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> ar.Agent:
    """A barely trained agent of the pendulum with two F, an actor and a B of actions."""
    return ar.train(
        "Pendulum-v1",
        out=tmp_path_factory.mktemp("runs") / "pendulum",
        twin="min",
        explore="novel",
        features_include_action=True,
        **TINY,
    )


@pytest.fixture(scope="module")
def tables() -> ar.Agent:
    """An agent of the pendulum with tables over five torques."""
    return ar.train("Pendulum-v1", landmarks=4, dim=24, updates=120, feature_sample=2_000, progress=False)


def legal(action: Any) -> bool:
    return bool(spaces.Box(-2, 2, (1,)).contains(action))


FEATURES = np.column_stack([RNG.uniform(-1, 1, (40, 2)), RNG.uniform(-8, 8, 40), RNG.uniform(-2, 2, 40), np.zeros(40)])
REWARDS = {
    "goal": ar.goal(0.5, 0.5, 1.0),
    "goals": ar.goals([[0.5, 0.5, 1.0], [0.1, -0.9, 2.0]], [1.0, -2.0]),
    "expression": ar.reward("f0 - 0.1 * f2**2 - 0.01 * action**2"),
    "function": ar.reward(lambda g, action: g[:, 0] - 0.1 * action[:, 0] ** 2),
    "samples": ar.samples(FEATURES, FEATURES[:, 0] - FEATURES[:, 3] ** 2),
    "demonstration": ar.demonstration(FEATURES[:, :3], FEATURES[:, 3:4]),
    "painted": ar.painted(RNG.normal(size=(4, 6)), (-np.pi, -8), (np.pi, 8), ("arctan2(f1, f0)", "f2")),
    "sum": ar.reward("f0") - 2 * ar.reward("action"),
}


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.filterwarnings("ignore:.*outside the training data")
def test_every_reward(agent: ar.Agent, kind: str) -> None:
    policy = agent.ask(REWARDS[kind], refine=0)
    assert legal(policy.act(UP))
    assert np.isfinite(policy.value(UP))
    assert policy.q(UP, [1.0]).shape == ()
    assert legal(agent.ask(REWARDS[kind], refine=1).act(UP))


def test_policies_and_what_they_cannot_do(agent: ar.Agent) -> None:
    policy, three = agent.ask(ar.reward("f0"), refine=0), np.stack([UP] * 3)
    assert policy.act(three).shape == (3, 1)
    assert np.array_equal(policy.act(three)[1], policy.act(UP))
    for deterministic in (True, False):
        actions, state = policy.predict(three, state="kept", deterministic=deterministic)
        assert (actions.shape, actions.dtype, state) == ((3, 1), np.float32, "kept")
    assert policy.q(three, np.zeros((3, 1))).shape == (3,)
    uniform = policy.epsilon_greedy(1.0)
    drawn = uniform.act(np.stack([UP] * 400))
    assert drawn.min() < -1.9
    assert drawn.max() > 1.9
    assert legal(policy.epsilon_greedy(0.5).act(UP))
    assert policy.epsilon_greedy(0.3).value(UP) != policy.value(UP)
    for use in (lambda: policy.boltzmann(1.0), lambda: policy.probabilities(UP), lambda: policy.q(UP)):
        with pytest.raises(ar.UserError, match=r"listed actions|needs a list.*Box\(-2.0, 2.0, \(1,\)"):
            use()
    with pytest.raises(ar.UserError, match="between -2 and 2; row 0 has 3"):
        policy.q(UP, [3.0])
    with pytest.raises(ar.UserError, match="NaN or infinity"):
        policy.act(UP * np.nan)
    assert ar.evaluate(policy.epsilon_greedy(0.1), "Pendulum-v1", episodes=2).totals.shape == (2,)


def test_generalised_policy_improvement(agent: ar.Agent) -> None:
    target = ar.reward("f0")
    plain = agent.ask(target, refine=0)
    for improve in (3, "goals"):
        better = agent.ask(target, improve=improve)
        assert legal(better.act(UP))
        assert better.value(UP) >= plain.value(UP) - 1e-6
    assert legal(agent.ask(target, improve=2, refine=1).act(UP))


def test_trust_and_coverage(agent: ar.Agent) -> None:
    trust = agent.ask(ar.reward("f0"), refine=0).trust
    assert trust.predicted is not None
    assert "action" in str(agent.coverage())


@pytest.mark.filterwarnings("ignore:.*outside the training data")
def test_loaded_agents_answer_identically(agent: ar.Agent, tmp_path: Path) -> None:
    loaded = ar.load(agent.save(tmp_path / "agent"))
    assert loaded.fingerprint == agent.fingerprint
    many = RNG.uniform(-1, 1, (50, 3)).astype(np.float32)
    for kind in ("expression", "samples", "painted"):
        policy = agent.ask(REWARDS[kind], refine=0)
        same = loaded.load_policy(policy.save(tmp_path / f"{kind}.json"))
        assert np.array_equal(policy.act(many), same.act(many))
        again = loaded.ask(REWARDS[kind], refine=0)
        assert np.array_equal(policy.act(many), again.act(many))
        assert np.array_equal(policy.value(many), again.value(many))


@pytest.mark.filterwarnings("ignore:.*outside the training data")
def test_fine_tuning_is_saved_and_says_when_it_diverges(agent: ar.Agent, tmp_path: Path) -> None:
    policy = agent.ask(ar.reward("f0"), refine=0)
    tuned = agent.finetune(policy, steps=200, updates=40, progress=False)
    offline = agent.finetune(
        policy,
        ar.RewardedTransitions(
            observations=RNG.uniform(-1, 1, (200, 3)),
            actions=RNG.uniform(-2, 2, (200, 1)),
            rewards=RNG.normal(size=200),
            next_observations=RNG.uniform(-1, 1, (200, 3)),
        ),
        updates=40,
        progress=False,
    )
    for number, one in enumerate((tuned, offline)):
        assert legal(one.act(UP))
        assert one.act(UP) != policy.act(UP)
        loaded = agent.load_policy(one.save(tmp_path / f"{number}.json"))
        assert np.array_equal(loaded.act(UP), one.act(UP))
        assert legal(one.epsilon_greedy(0.5).act(UP))
    with pytest.raises(ar.UserError, match=r"Fine-tuning diverged. Lower learning_rate"):
        agent.finetune(policy, steps=400, updates=400, learning_rate=1e30, progress=False)


@pytest.mark.filterwarnings("ignore:.*outside the training data")
def test_sampled_rewards(agent: ar.Agent) -> None:
    reward = agent.sample_rewards("Pendulum-v1", 200, progress=False)
    assert legal(agent.ask(reward, refine=0).act(UP))


def test_tables_over_listed_torques(tables: ar.Agent, tmp_path: Path) -> None:
    policy = tables.ask(ar.reward("f0"), refine=0)
    listed = np.linspace(-2, 2, 5)
    assert policy.q(UP).shape == (5,)
    assert policy.probabilities(UP).sum() == pytest.approx(1)
    assert policy.act(UP) in listed
    assert policy.boltzmann(1.0).predict(UP, deterministic=False)[0] in listed
    assert policy.q(UP, [0.9]) == policy.q(UP)[3]  # of the nearest one
    where, lead = policy.landmark(UP)
    assert (where.shape, lead.shape) == ((4,), ())
    assert legal(tables.ask(ar.reward("f0"), refine=1).act(UP))
    assert tables.ask(ar.reward("f0"), improve=3).act(UP) in listed
    assert tables.finetune(policy, steps=200, updates=20, progress=False).act(UP) in listed
    loaded = ar.load(tables.save(tmp_path / "agent"))
    assert np.array_equal(loaded.ask(ar.reward("f0"), refine=0).q(UP), policy.q(UP))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bias": True}, "bias is on.*listed actions only"),
        ({"compile": True}, "no continuous actions. Turn compile off"),
        ({"method": "goal-dqn"}, "needs a definition of when a goal is reached"),
    ],
)
def test_what_is_not_supported_says_so(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ar.UserError, match=text):
        ar.train("Pendulum-v1", **{**TINY, **changes})


@pytest.mark.parametrize("basis", ["state", "laplacian"])
def test_successor_features(basis: Any) -> None:
    changes = {"method": "successor-features", "basis": basis, "features_include_action": True}
    agent = ar.train("Pendulum-v1", **{**TINY, **changes})
    assert legal(agent.ask(ar.reward("f0 - 0.1 * action**2"), refine=0).act(UP))


def test_a_dataset_with_terminations(tmp_path: Path) -> None:
    n = 400
    columns = {"observations": RNG.normal(size=(n, 2)), "next_observations": RNG.normal(size=(n, 2))}
    columns |= {"actions": RNG.uniform(0, 5, (n, 3)), "terminations": RNG.random(n) < 0.1}
    np.savez(tmp_path / "data.npz", **columns, action_low=0, action_high=5)
    agent = ar.train(tmp_path / "data.npz", out=tmp_path / "run", **TINY)
    action = agent.ask(ar.reward("f0"), refine=0).act(np.zeros(2))
    assert action.shape == (3,)
    assert ((action >= 0) & (action <= 5)).all()
    more = ar.resume(tmp_path / "run", source=tmp_path / "data.npz", updates=120, progress=False)
    assert torch.isfinite(more.sample.B).all()
