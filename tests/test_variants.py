"""Agents with a bias, and with successor measures from t = 1: all that others can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward import UserError
from anyreward.acting.better import refinable
from anyreward.acting.exact import reward_table
from anyreward.experiments.all_rewards import state_values, tables_to_z
from anyreward.learning.batch import draw, known_features
from anyreward.learning.replay import Replay
from anyreward.model.latent import preprocess_z
from anyreward.model.networks import Bias
from anyreward.rewards.state_value import MOST_ROWS, state_value
from tests.conftest import TINY

VARIANTS: dict[str, dict[str, Any]] = {
    "bias": {"bias": True},
    "from t = 1": {"first_step": 1},
    "both": {"bias": True, "first_step": 1},
}
REWARDS = {
    "goal": ar.goal((2, 8)),
    "expression": ar.reward("x - 0.3 * y"),
    "both": ar.goal((2, 8)) - 0.5 * ar.reward("x > 5"),
}
CELLS = np.array([12, 25, 62, 108])


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants") / "run"
    ar.train("four-rooms", out=folder, warmup_steps=6_000, **TINY, **VARIANTS[request.param])  # every pair is seen
    return folder


def test_it_answers_the_same_when_loaded(variant: Path) -> None:
    trained, again = ar.load(variant), ar.load(variant)
    assert trained.fingerprint == again.fingerprint
    for target in REWARDS.values():
        q = trained.ask(target).q(CELLS)
        assert np.isfinite(q).all()
        assert (q == again.ask(target).q(CELLS)).all()
    assert ("bias.meet.weight" in torch.nn.ModuleDict(trained.model.modules).state_dict()) is trained.settings.bias


def test_it_learns_on(variant: Path, tmp_path: Path) -> None:
    """With the bias, its target and what was seen of next states: in two parts as in one."""
    s = ar.load(variant).settings
    small = TINY | {"updates": 40}
    halves = {"bias": s.bias, "first_step": s.first_step, "warmup_steps": 600, "steps_per_cycle": 0}
    halves |= {"learning_rate_decay": 0.0}
    whole = ar.train("four-rooms", **(small | {"updates": 80}), **halves)
    ar.train("four-rooms", out=tmp_path / "run", **small, **halves)
    resumed = ar.resume(tmp_path / "run", updates=80, progress=False)
    for name, module in whole.model.modules.items():
        for key, value in module.state_dict().items():
            assert torch.equal(value, resumed.model.modules[name].state_dict()[key]), (name, key)


def test_values_are_whole_and_preferences_are_not(variant: Path) -> None:
    """Q = F . z_R + r + E_rho[m-bar r], each added up here by hand."""
    agent = ar.load(variant)
    for target in REWARDS.values():
        policy, mdp = agent.ask(target), agent.exact_mdp()
        packed = torch.from_numpy(CELLS[:, None]).float()
        expected = policy.reward_scale * policy.preferences(packed).double().numpy()
        if agent.settings.first_step:
            here = np.searchsorted(mdp.observations, CELLS)
            expected = expected + reward_table(target, agent.knowledge, mdp)[here, 0][:, None]
        if agent.settings.bias:
            cells = agent.sample.rows[:, 0].long().numpy()
            paid = reward_table(target, agent.knowledge, mdp)[np.searchsorted(mdp.observations, cells), 0]
            m_bar = agent.model.bias_map(packed, policy.z, agent.sample.rows).double().numpy()
            expected = expected + (m_bar @ (agent.sample.weights.numpy() * paid))[:, None]
        assert policy.q(CELLS) == pytest.approx(expected, rel=1e-5, abs=1e-8)
        assert policy.q(int(CELLS[0])) == pytest.approx(expected[0], rel=1e-5)
        assert policy.value(CELLS) == pytest.approx(expected.max(1), rel=1e-5)
        assert (policy.act(CELLS) == expected.argmax(1)).all()


def test_refining_starts_from_whole_values(variant: Path) -> None:
    agent, target = ar.load(variant), REWARDS["both"]
    mdp = agent.exact_mdp()
    Q = agent.ask(target).q(mdp.observations)
    r = reward_table(target, agent.knowledge, mdp)
    refined = agent.ask(target, refine=1).q(mdp.observations)
    assert refined == pytest.approx(mdp.q_value(Q.max(1), r), rel=1e-4, abs=1e-4)
    kept = refinable(agent.knowledge)
    tables = np.stack([reward_table(each, agent.knowledge, mdp) for each in REWARDS.values()])
    together = state_values(agent, mdp, tables, *tables_to_z(agent, mdp, tables))  # the suite's way, many at once
    for each, found in zip(REWARDS.values(), together, strict=True):
        policy = agent.ask(each)
        whole = policy.action_values(kept.states, kept.features) - policy.preferences(kept.states).double()
        assert found.numpy() == pytest.approx(whole[:, 0].numpy(), rel=1e-4, abs=1e-6)
    many = agent.ask(target, refine=2_000).q(mdp.observations)
    assert many == pytest.approx(mdp.q_value(mdp.optimal_value(r), r), rel=1e-3, abs=1e-3)


def test_it_can_be_trusted_tuned_and_observed(variant: Path) -> None:
    agent = ar.load(variant)
    policy = agent.ask(REWARDS["expression"])
    assert policy.trust.residual is not None
    assert policy.trust.predicted is not None
    rows = agent.held_out
    assert rows is not None
    before, after = (policy.q(o[:, 0].long().numpy()) for o in (rows.observations, rows.next_observations))
    pi = torch.softmax(torch.from_numpy(after) / policy.reward_scale / agent.settings.temperature, 1).numpy()
    x, y = rows.observations[:, 0].numpy() % 11, rows.observations[:, 0].numpy() // 11
    now = before[np.arange(len(before)), rows.actions]
    error = now - (x - 0.3 * y) - agent.settings.gamma * (pi * after).sum(1)
    assert policy.trust.residual == pytest.approx(np.sqrt((error**2).mean()) / now.std(ddof=1), rel=1e-3)
    tuned = agent.finetune(policy, steps=200, updates=20, progress=False)
    assert np.isfinite(tuned.q(CELLS)).all()
    policy.observe([[2.0, 8.0]], [1.0])
    assert np.isfinite(policy.q(CELLS)).all()


def test_policy_improvement_needs_whole_promises(variant: Path) -> None:
    agent = ar.load(variant)
    if not agent.settings.bias:
        plain = agent.ask(REWARDS["goal"]).q(CELLS)
        assert (agent.ask(REWARDS["goal"], improve=20).q(CELLS) >= plain - 1e-9).all()
        return
    with pytest.raises(UserError, match=r"With a bias.*cannot be compared.*Ask without improve"):
        agent.ask(REWARDS["goal"], improve=20)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_numbers_goals_and_endings(changes: dict[str, Any]) -> None:
    """CartPole: numbers, and episodes that end; a goal among numbers is a point, which a bias answers by itself."""
    agent = ar.train("CartPole-v1", **TINY, **changes)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(5, 4)).astype(np.float32) / 10
    goal = agent.sample.rows[3].numpy()
    for target in (ar.reward("abs(f2) < 0.05"), ar.goal(goal), ar.goal(goal) + ar.reward("f0")):
        policy = agent.ask(target)
        assert np.isfinite(policy.q(observations)).all()
        assert policy.trust.verdict
    if changes.get("bias"):
        policy = agent.ask(ar.goal(goal), refine=0)
        packed = torch.from_numpy(agent.model.phi.seen(observations))
        m_bar = agent.model.bias_map(packed, policy.z, torch.from_numpy(goal[None]))
        F = policy.reward_scale * policy.preferences(packed).double()
        assert policy.q(observations) == pytest.approx((F + m_bar).numpy(), rel=1e-4, abs=1e-5)


def test_next_features_enter_the_loss_and_rho_does_not_change() -> None:
    """Minibatches pair F_i with the next state's features; those to compare with are drawn from rho as ever."""
    agent = ar.train("four-rooms", first_step=1, pairs="minibatch", **(TINY | {"updates": 40}))
    rows = agent.held_out
    assert rows is not None
    assert rows.next_features is not None
    assert torch.equal(rows.next_features, rows.next_observations)
    replay = Replay(10_000)
    replay.add(rows)
    random = torch.Generator().manual_seed(0)
    encoder = agent.model.feature_encoder
    for known in (None, known_features(encoder, rows.features, 300, rows.next_features)):
        batch = draw(agent.model, replay, agent.settings, 1, random, known).each()[0]
        assert torch.equal(batch.g[batch.here], batch.next_x)  # one cell, one column, in both encoders
        assert float(batch.second.sum()) == pytest.approx(1.0)
        assert known is None or torch.equal(batch.second, known.frequency)


def test_what_is_seen_only_as_a_next_state_is_known_too() -> None:
    agent = ar.train("four-rooms", **(TINY | {"updates": 40}))
    features, following = torch.tensor([[12.0], [13.0], [12.0]]), torch.tensor([[13.0], [14.0], [13.0]])
    known = known_features(agent.model.feature_encoder, features, 300, following)
    assert known is not None
    found = dict(zip(known.rows[:, 0].tolist(), known.frequency.tolist(), strict=True))
    assert found == pytest.approx({12.0: 2 / 3, 13.0: 1 / 3, 14.0: 0.0})
    assert [float(known.rows[known.row_of[c], 0]) for c in (12, 13, 14)] == [12, 13, 14]


def test_offline_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    s, a = rng.integers(6, size=500), rng.integers(2, size=500)
    np.savez(tmp_path / "data.npz", observations=s, actions=a, next_observations=(s + a) % 6)
    agent = ar.train(tmp_path / "data.npz", first_step=1, bias=True, **TINY)
    assert np.isfinite(agent.ask(ar.reward("f0 == 3")).q(np.arange(6))).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_step": 2}, r"first_step is 2; accepted: 0 to 1"),
        ({"first_step": 1, "features_include_action": True}, r"Set first_step=0 or features_include_action=False"),
        ({"bias": True, "pairs": "average"}, r"pairs is 'average'; accepted: minibatch, all"),
        ({"bias": 1}, r"bias is 1; accepted: True, False"),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ar.preset("fast", **changes)


@pytest.mark.parametrize("changes", [{"first_step": 1}, {"bias": True}])
def test_variants_are_not_compiled(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """This is said at once, and not after half a minute of compiling."""
    monkeypatch.setattr("anyreward.training.prepare.load_updates", lambda: pytest.fail("compiled"))
    with pytest.raises(UserError, match=r"compile is on.*Turn compile off"):
        ar.train("four-rooms", compile=True, **TINY, **changes)


def test_m_bar_is_shown_the_z_that_training_showed_it(variant: Path) -> None:
    agent = ar.load(variant)
    model, z = agent.model, 3.0 * agent.ask(ar.goal(2, 8)).z  # of a length that matters
    if model.bias is None:
        assert not model.bias_map(agent.sample.rows, z, agent.sample.rows).any()
        return
    x, g = (encoder.compact(agent.sample.rows) for encoder in (model.observation_encoder,) * 2)
    with torch.no_grad():
        shown = model.bias(x, preprocess_z(z).expand(len(x), -1), g)
    assert torch.equal(model.bias_map(agent.sample.rows, z, agent.sample.rows), shown)


def test_the_rank_of_m_bar_is_not_bounded_by_its_vectors() -> None:
    torch.manual_seed(0)
    bias = Bias(width=40, features=40, dim=2, hidden=24, layers=2, layer_norm=False)
    with torch.no_grad():
        m = bias(torch.arange(40)[:, None], torch.zeros(40, 2), torch.arange(40)[:, None])
    assert int(torch.linalg.matrix_rank(m.double(), rtol=1e-6)) > 10  # a sum u(s) + v(g) has rank two


def test_what_a_goal_adds_to_the_value_of_a_state_is_its_weight() -> None:
    """Among numbers, where a goal is a unit of mass; and a sample of many rows counts as all of them."""
    agent = ar.train("continuous-maze", bias=True, **TINY, warmup_steps=2_000)
    assert len(agent.sample.rows) > MOST_ROWS
    at, z = torch.tensor([[0.2, 0.3], [0.8, 0.9]]), agent.ask(ar.goal(0.5, 0.5)).z

    def told(target: ar.Reward) -> np.ndarray:
        return state_value(target, agent.knowledge, z, at, None).numpy()

    m = agent.model.bias_map(at, z, torch.tensor([[0.5, 0.5]]))[:, 0].double().numpy()
    assert told(ar.goal(0.5, 0.5)) == pytest.approx(m, rel=1e-5)
    assert told(3 * ar.goal(0.5, 0.5)) == pytest.approx(3 * m, rel=1e-5)
    mean = agent.model.bias_map(at, z, agent.sample.rows).double().mean(1).numpy()  # of the reward one
    spread = agent.model.bias_map(at, z, agent.sample.rows).double().std(1).numpy()
    assert np.abs(told(ar.reward("x - x + 1")) - mean).max() < 5 * spread.max() / MOST_ROWS**0.5
