"""Every way to give a reward, against exact answers: an exact representation must answer with the optimal policy."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
from anyreward.rewards.inference import infer
from anyreward.rewards.knowledge import FeatureSample
from anyreward.rewards.regression import mean_z, regression_z, statistics, whitening
from tests.exact import TableEnv, counts, exact_agent, garnet

R = np.array([0.3, -1.0, 0.0, 2.0, 0.5, -0.2])


def table(g: np.ndarray) -> np.ndarray:
    return R[g[:, 0].astype(int)]


class Model:
    def predict(self, features: np.ndarray) -> np.ndarray:
        return table(features)


WAYS = {
    "goals": lambda s: sum(float(r) * ar.goal(i) for i, r in enumerate(R)),
    "goals at once": lambda s: ar.goals(np.arange(6), R),
    "goals by state": lambda s: sum(float(r) * ar.goal(state=i) for i, r in enumerate(R)),
    "function": lambda s: ar.reward(table),
    "expression": lambda s: ar.reward("0.3*(f0==0) - (f0==1) + 2*(f0==3) + 0.5*(f0==4) - 0.2*(f0==5)"),
    "samples": lambda s: ar.samples(s, table(s)),
    "few samples": lambda s: ar.samples(np.arange(6), R),
    "samples of another distribution": lambda s: ar.samples(
        [0, 1, 1, 1, 2, 3, 4, 5] * 10, R[[0, 1, 1, 1, 2, 3, 4, 5] * 10], "other"
    ),
    "model": lambda s: ar.reward(Model()),
    "two ways added": lambda s: ar.reward(lambda g: table(g) - 1) + ar.samples(s, np.ones(len(s))),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_optimal_q(way: str, seed: int) -> None:
    mdp = garnet(seed=seed)
    agent = exact_agent(mdp)
    with warnings.catch_warnings():
        if way == "few samples":  # six of them are few, and it says so only if they leave something unseen
            warnings.simplefilter("error")
        policy = agent.ask(WAYS[way](np.repeat(np.arange(6), counts(mdp)).reshape(-1, 1)))
    best = mdp.q_value(mdp.optimal_value(R), R)
    close = 1e-3 if way == "few samples" else 1e-8
    assert policy.q(np.arange(6)) == pytest.approx(best, abs=close * np.abs(best).max())
    assert policy.act(np.arange(6)).tolist() == best.argmax(1).tolist()
    assert policy.value(np.arange(6)) == pytest.approx(mdp.optimal_value(R), abs=close * np.abs(best).max())


def test_a_demonstration_is_to_be_where_it_was() -> None:
    mdp = garnet()
    agent, way = exact_agent(mdp), [0, 3, 3, 3, 2, 3]
    rho = counts(mdp) / counts(mdp).sum()
    r = np.bincount(way, minlength=6) / len(way) / rho  # E_rho[r B] = mean of B along it
    policy = agent.ask(ar.demonstration(way))
    assert policy.q(np.arange(6)) == pytest.approx(mdp.q_value(mdp.optimal_value(r), r))


def test_an_environment_is_a_black_box() -> None:
    mdp = garnet()
    agent, env = exact_agent(mdp), TableEnv(garnet(), R, noise=0.3)
    target = agent.sample_rewards(env, budget=4_000, seed=1, progress=False)
    found = infer(target, agent.knowledge)
    assert found.samples == 4_000
    assert found.error < 0.05 * float(found.z.norm())
    sample = agent.sample  # steps of any policy give E[r B] under rho
    exact = (sample.weights * torch.from_numpy(R)[sample.rows[:, 0].long()]) @ sample.B
    assert float((found.z - exact).norm()) < 4 * found.error
    with pytest.raises(ar.UserError, match="budget is 0"):
        agent.sample_rewards(env, budget=0)
    with pytest.raises(ar.UserError, match="was trained on observations"):
        agent.sample_rewards("CartPole-v1", budget=10, progress=False)


def test_progress_of_asking_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    exact_agent(garnet()).sample_rewards(TableEnv(garnet(), R), budget=2_000)
    err = capsys.readouterr().err
    assert "2,000/2,000 steps" in err
    assert "steps/s" in err


def test_z_is_saved_with_the_name_of_its_agent(tmp_path: Path) -> None:
    agent, other = exact_agent(garnet()), exact_agent(garnet(), seed=1)
    policy = agent.ask(ar.reward(table))
    path = policy.save(tmp_path / "task.json")
    again = agent.ask(ar.from_z(path))
    assert torch.equal(again.z, policy.z)
    assert again.q(np.arange(6)) == pytest.approx(policy.q(np.arange(6)))
    assert agent.load_policy(path).act(np.arange(6)).tolist() == policy.act(np.arange(6)).tolist()
    twice = agent.ask(ar.from_z(path) + ar.reward(table))
    assert twice.reward_scale == pytest.approx(2 * policy.reward_scale)
    with pytest.raises(ar.UserError, match="agents cannot use each other's z"):
        other.ask(ar.from_z(path))
    with pytest.raises(ar.UserError, match=r"does not end in \.json"):
        policy.save(tmp_path / "task.txt")
    (tmp_path / "broken.json").write_text('{"format": 9}')
    with pytest.raises(ar.UserError, match="is not a saved z"):
        ar.from_z(tmp_path / "broken.json")
    with pytest.raises(ar.UserError, match=r"no nowhere\.json"):
        ar.from_z(tmp_path / "nowhere.json")
    with pytest.raises(ar.UserError, match="4 numbers; a z of this agent has 6"):
        agent.ask(ar.from_z(np.ones(4)))


@given(st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=40)
def test_another_distribution_gives_the_same_z(seed: int, linear: bool) -> None:
    """Proposition linearz: z_test = z_rho if rho_test = rho, or if r is linear in B."""
    rng = np.random.default_rng(seed)
    mixed = np.linalg.qr(rng.standard_normal((5, 5)))[0] * 10 ** rng.uniform(-1, 1, size=5)
    B = torch.from_numpy(rng.standard_normal((200, 5)) @ mixed)
    white = whitening(B.T @ B / 200)
    r = B @ torch.from_numpy(rng.standard_normal(5)) if linear else torch.from_numpy(rng.standard_normal(200))
    rows = rng.choice(200, size=150) if linear else np.arange(200)
    estimate = regression_z(statistics(B[rows], r[rows]), white)
    assert estimate.z.numpy() == pytest.approx((r @ B / 200).numpy(), rel=1e-6, abs=1e-7)
    assert estimate.ridge == 0


def test_regression_is_the_papers_formula() -> None:
    rng = np.random.default_rng(3)
    B, T = (torch.from_numpy(rng.standard_normal((300, 4)) * scale) for scale in (1.0, [1.0, 2.0, 0.5, 3.0]))
    r = torch.from_numpy(rng.standard_normal(300))
    cov_rho, cov_test = B.T @ B / 300, T.T @ T / 300
    expected = cov_rho @ torch.linalg.solve(cov_test, T.T @ r / 300)
    assert torch.allclose(regression_z(statistics(T, r), whitening(cov_rho)).z, expected)


def test_standard_errors_are_those_of_many_repetitions() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((4_000, 3)))
    white = whitening(B.T @ B / 4_000)
    for way, r in ((mean_z, B[:, 0] ** 2), (partial(regression_z, white=white), B[:, 0])):
        zs, errors = [], []
        for _ in range(300):
            rows = rng.choice(4_000, size=200)
            estimate = way(statistics(B[rows], r[rows] + torch.from_numpy(0.5 * rng.standard_normal(200))))
            zs.append(estimate.z)
            errors.append(estimate.error)
        spread = float(torch.stack(zs).var(0).sum().sqrt())
        assert np.mean(errors) == pytest.approx(spread, rel=0.1)


def test_few_or_narrow_samples_get_a_ridge_and_a_warning(agent: ar.Agent) -> None:
    places = np.array([[2, 8], [2, 7], [3, 8], [1, 1]] * 3, dtype=float)
    with pytest.warns(UserWarning, match=r"4 of the 12 directions .* ill-conditioned"):
        policy = agent.ask(ar.samples(places, [1, 0, 0, 0] * 3, "other"))
    assert policy.trust.verdict != "good"
    assert "directions of B" in str(policy.trust)
    assert float(policy.z.norm()) > 0


def test_a_ridge_beats_none_where_samples_are_few_and_noisy() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((5_000, 30)))
    white, w = whitening(B.T @ B / 5_000), torch.from_numpy(rng.standard_normal(30))
    truth, errors = B.T @ (B @ w) / 5_000, []
    for _ in range(20):
        rows = rng.choice(5_000, size=35)
        m = statistics(B[rows], B[rows] @ w + torch.from_numpy(5 * rng.standard_normal(35)))
        without = white.back @ torch.linalg.solve(white.into @ m.BB @ white.into.T, white.into @ m.rB)
        errors.append([float((z - truth).norm()) for z in (regression_z(m, white).z, without)])
    ridged, plain = np.median(errors, axis=0)
    assert ridged < 0.5 * plain


def test_rewards_that_come_while_acting_are_the_same_as_all_at_once(agent: ar.Agent) -> None:
    rng = np.random.default_rng(0)
    places = agent.model.phi.readable(agent.sample.rows.numpy())[rng.integers(len(agent.sample.rows), size=400)]
    rewards = np.sin(places[:, 0]) + 0.1 * rng.standard_normal(400)
    policy = agent.ask(ar.samples())
    assert policy.probabilities(24) == pytest.approx(np.full(5, 0.2))  # knows nothing yet
    assert len({policy.act(24) for _ in range(50)}) > 1
    for i in range(0, 400, 50):
        policy.observe(places[i : i + 50], rewards[i : i + 50])
    policy.observe(places[0], rewards[0])  # one at a time
    places, rewards = np.concatenate([places, places[:1]]), np.append(rewards, rewards[0])
    batch = agent.ask(ar.samples(places, rewards, "other"))
    assert torch.allclose(policy.z, batch.z, atol=1e-4)
    assert policy.reward_scale == pytest.approx(batch.reward_scale)
    assert policy.trust.samples == 401
    with pytest.raises(ar.UserError, match="nan at index 1"):
        policy.observe(places[:2], [0.0, np.nan])
    with pytest.raises(ar.UserError, match="with refine, improve or tuning"):
        agent.ask(ar.goal(2, 8), refine=2).observe(places, rewards)


def test_what_is_seen_corrects_what_was_believed() -> None:
    mdp = garnet()
    agent = exact_agent(mdp)
    policy = agent.ask(ar.goal(0))
    states = np.tile(np.arange(6), 20)
    policy.observe(states, R[states])  # it was never goal(0)
    best = mdp.q_value(mdp.optimal_value(R), R)
    assert policy.q(np.arange(6)) == pytest.approx(best)


def test_the_same_reward_in_five_ways_is_the_same_policy(agent: ar.Agent, tmp_path: Path) -> None:
    rows = torch.multinomial(agent.sample.weights, 3_000, True, generator=torch.Generator().manual_seed(0)).numpy()
    places = agent.model.phi.readable(agent.sample.rows.numpy())
    table = {tuple(p): float(p[0] == 2 and p[1] == 8) - 0.5 * float(p[0] == 5 and p[1] == 2) for p in places}
    exact = [
        ar.goal(2, 8) - 0.5 * ar.goal(5, 2),
        ar.goals([[2, 8], [5, 2]], [1, -0.5]),
        ar.reward(lambda g: (g == [2, 8]).all(1) - 0.5 * (g == [5, 2]).all(1)),
        ar.reward("(x == 2) * (y == 8) - 0.5 * (x == 5) * (y == 2)"),
        ar.reward(type("Table", (), {"predict": lambda self, g: np.array([table[tuple(p)] for p in g])})()),
        ar.goal(state=8 * 11 + 2) - ar.goal(5, 2) / 2,
    ]
    first = agent.ask(exact[0])
    exact.append(ar.from_z(first.save(tmp_path / "z.json")))
    cells = agent.sample.rows[:, 0].long().numpy()  # a state that was never visited would give a warning
    for way in exact[1:]:
        policy = agent.ask(way)
        assert torch.allclose(policy.z, first.z, atol=1e-5)
        assert policy.act(cells).tolist() == first.act(cells).tolist()
    seen = agent.ask(ar.samples(places[rows], [table[tuple(p)] for p in places[rows]]))
    cosine = torch.nn.functional.cosine_similarity(seen.z, first.z, dim=0)
    assert cosine > 0.9  # an estimate, from 3,000 samples


def test_functions_of_state_and_action() -> None:
    agent = ar.train(
        "four-rooms", dim=8, hidden=8, updates=40, features_include_action=True, warmup_steps=4_000, progress=False
    )
    ways = [
        ar.reward(lambda s, a: (s[:, 0] == 2) * (a == 1)),
        ar.reward(lambda g: (g[:, 0] == 2) * (g[:, 2] == 1)),
        ar.reward("(x == 2) * (action == 1)"),
        ar.reward("(f0 == 2) * (f2 == 1)"),
    ]
    zs = [agent.ask(way).z for way in ways]
    assert all(torch.allclose(z, zs[0]) for z in zs)
    any_action = sum(ar.goal(2, 8, a) for a in range(5))
    assert torch.allclose(agent.ask(ar.goal(2, 8)).z, agent.ask(any_action).z)
    assert torch.allclose(agent.ask(ar.goal(8 * 11 + 2)).z, agent.ask(any_action).z)
    assert torch.allclose(agent.ask(ar.goal(state=8 * 11 + 2)).z, agent.ask(any_action).z)
    with pytest.raises(ar.UserError, match="needs them"):
        agent.ask(ar.demonstration([24, 25, 26]))
    moves = agent.ask(ar.demonstration([24, 25, 26], [1, 1]))
    both = agent.model.backward_map(torch.tensor([[24.0, 1.0], [25.0, 1.0]])).double().mean(0)
    assert torch.allclose(moves.reward_scale * moves.z.double(), both, rtol=1e-5)
    with pytest.raises(ar.UserError, match="between 0 and 4"):
        agent.ask(ar.demonstration([24, 25], [7, 1]))
    with pytest.raises(ar.UserError, match="whole numbers"):
        agent.ask(ar.demonstration([24, 25], [0.5, 1]))
    with pytest.raises(ar.UserError, match=r"expected numbers \(n,\)"):
        agent.ask(ar.demonstration([24, 25], [[1], [2]]))


def test_a_function_of_actions_needs_an_agent_that_sees_them(agent: ar.Agent) -> None:
    with pytest.raises(ar.UserError, match="sees no actions"):
        agent.ask(ar.reward(lambda s, a: a))
    with pytest.raises(ar.UserError, match="action"):
        agent.ask(ar.reward("x * action"))


def test_goals_among_numbers_and_observations_of_goal_worlds() -> None:
    agent = ar.train("continuous-maze", landmarks=0, dim=6, hidden=8, updates=40, warmup_steps=2_000, progress=False)
    place = np.array([0.25, 0.5], dtype=np.float32)
    assert torch.allclose(agent.ask(ar.goal(0.25, 0.5)).z, agent.ask(ar.goal(state=place)).z)
    trust = agent.ask(ar.goal(0.25, 0.5)).trust
    assert trust.represented is None
    assert trust.thin == 0
    assert trust.predicted is not None
    with pytest.warns(UserWarning, match="lies outside"):
        beyond = agent.ask(ar.goal(0.25, 1.5))
    assert beyond.trust.thin == 1
    assert beyond.trust.verdict != "good"
    along = agent.model.backward_map(torch.from_numpy(np.stack([place, place + 0.1]))).double().mean(0)
    way = agent.ask(ar.demonstration([place, place + 0.1]))
    assert torch.allclose(way.belief.found.z, along, rtol=1e-5)
    with pytest.raises(ar.UserError, match="a single one"):
        agent.ask(ar.demonstration(place))
    with pytest.raises(ar.UserError, match="in row 1"):
        agent.ask(ar.demonstration(np.array([[0.1, 0.1], [0.1, np.nan]], dtype=np.float32)))


def test_a_point_among_numbers_pays_nowhere() -> None:
    agent = ar.train("continuous-maze", landmarks=0, dim=6, hidden=8, updates=40, environments=2, progress=False)
    point = ar.goal(0.25, 0.5)
    policy, world = agent.ask(point), agent.world()
    for count in (
        lambda: ar.evaluate(policy, world, episodes=20, reward=point),
        lambda: agent.finetune(policy, progress=False),
    ):
        with pytest.raises(ar.UserError, match="a single point among continuous features"):
            count()
    near = ar.evaluate(policy, world, episodes=3, reward=ar.reward("hypot(x - 0.25, y - 0.5) < 0.3"))
    assert near.totals.shape == (3,)
    assert (near.totals == np.round(near.totals)).all()
    for bad in (np.array([np.nan, 0.5], dtype=np.float32),):
        with pytest.raises(ar.UserError, match="not finite"):
            agent.ask(ar.goal(state=bad))
    with pytest.raises(ar.UserError, match="not finite"), np.errstate(over="ignore"):
        agent.ask(ar.goal(1e300, 0))
    with pytest.warns(UserWarning, match="2 of 3 rows lie outside the training data"):
        agent.ask(ar.demonstration(np.array([[0.5, 0.5], [4, 4], [5, 5]], dtype=np.float32)))


def test_what_cancels_leaves_nothing(agent: ar.Agent) -> None:
    places = agent.model.phi.readable(agent.sample.rows.numpy())
    with pytest.warns(UserWarning, match="every policy is equally good"):
        policy = agent.ask(ar.reward("1") - ar.goals(places))
    assert policy.clueless


def test_a_loaded_agent_still_knows_its_world(tmp_path: Path) -> None:
    """Whose observations are bounded here and unbounded there."""
    agent = ar.train("CartPole-v1", dim=4, hidden=8, updates=40, progress=False)
    again = ar.load(agent.save(tmp_path / "run"))
    assert again.model.phi.observation_space == agent.model.phi.observation_space
    assert str(again.sample_rewards("CartPole-v1", budget=20, progress=False)) == "20 samples from another distribution"


def test_a_small_model_learns_from_few_samples() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, size=(300, 2))
    truth = lambda g: np.exp(-((g[:, 0] - 3) ** 2 + (g[:, 1] - 6) ** 2) / 8)  # noqa: E731
    model = ar.fit_mlp(x, truth(x) + 0.05 * rng.standard_normal(300), seed=1)
    fresh = rng.uniform(0, 10, size=(1_000, 2))
    assert np.corrcoef(model.predict(fresh), truth(fresh))[0, 1] > 0.95
    again = ar.fit_mlp(x, truth(x), seed=1)
    assert np.array_equal(again.predict(fresh), ar.fit_mlp(x, truth(x), seed=1).predict(fresh))
    constant = ar.fit_mlp(x, np.full(300, 2.0)).predict(fresh)
    assert constant == pytest.approx(np.full(1_000, 2.0), abs=0.1)
    with pytest.raises(ar.UserError, match="at least 5"):
        ar.fit_mlp(x[:3], [1, 2, 3])
    with pytest.raises(ar.UserError, match="this model takes"):
        model.predict(x[:, :1])


def test_constant_rewards_are_pointed_out(agent: ar.Agent) -> None:
    with pytest.warns(UserWarning, match="is 3 everywhere"):
        agent.ask(ar.reward("3"))
    lake = ar.train("CartPole-v1", dim=4, hidden=8, updates=40, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lake.ask(ar.reward("1"))  # to live on is worth something where episodes can end


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ar.samples([[1, 2], [3, 4]], [1, np.inf]), "inf at index 1"),
        (lambda: ar.samples([[1, np.nan]], [1]), r"nan at index \(0, 1\)"),
        (lambda: ar.samples([[1, 2]], [1, 2, 3]), "expected"),
        (lambda: ar.samples([[1, 2]], [1], "nearby"), "accepted: 'training', 'other'"),
        (lambda: ar.goals([[1, 2]], [1, 2]), r"weights \(2,\)"),
        (lambda: ar.goals([[1, np.nan]]), "index"),
        (lambda: ar.goal([[1, 2], [3, 4]]), "use goals"),
        (lambda: ar.goal(1, state=3), "not both"),
        (lambda: ar.demonstration([]), "got none"),
        (lambda: ar.demonstration(3), "got none"),
        (lambda: ar.samples([1, 2, 3, 4, 5, 6], [1, 2, 3]), "expected"),
        (lambda: ar.from_z([[1.0]]), "expected"),
        (lambda: ar.from_z([np.nan]), "index 0"),
        (lambda: ar.reward("x +"), r"\^"),
    ],
)
def test_mistakes_are_named(make: object, message: str) -> None:
    with pytest.raises(ar.UserError, match=message):
        make()


def test_samples_at_places_that_are_none(agent: ar.Agent) -> None:
    with pytest.raises(ar.UserError, match=r"no state at 40, 2 \(A sample\)"):
        agent.ask(ar.samples([[1, 1], [40, 2]], [0, 1]))
    with pytest.raises(ar.UserError, match="has 3 numbers"):
        agent.ask(ar.samples([[1, 1, 1]], [0]))


def test_asking_again_costs_a_matrix_vector_product() -> None:
    """100,000 cached features, d = 100, a function reward: under 20 ms after the first call.

    Time of this thread, so that other programs do not count.
    """
    rng, n, d = np.random.default_rng(0), 100_000, 100
    base = ar.train("continuous-maze", landmarks=0, dim=d, hidden=32, updates=40, environments=2, progress=False)
    rows = torch.from_numpy(rng.random((n, 2))).float()
    weights = torch.full((n,), 1 / n, dtype=torch.float64)
    B = base.model.backward_map(rows[:100]).double().repeat(n // 100, 1)
    sample = FeatureSample(rows, weights, B, B.T @ B / n)
    agent = replace(base, knowledge=replace(base.knowledge, sample=sample))
    seconds = []
    for i in range(12):
        target = ar.reward(lambda g, i=i: np.exp(-((g[:, 0] - 0.1 * i) ** 2 + (g[:, 1] - 0.3) ** 2) / 0.02))
        begun = time.thread_time()
        agent.ask(target)
        seconds.append(time.thread_time() - begun)
    assert min(seconds[1:]) < 0.020


def test_gymnasium_ids_pay_their_own_reward() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=8, updates=40, warmup_steps=2_000, progress=False)
    target = agent.sample_rewards("CartPole-v1", budget=500, progress=False)
    assert str(target) == "500 samples from another distribution"
    assert agent.ask(2 * target - ar.goal(0.0, 0.0, 0.0, 0.0)).trust.samples == 500
    with pytest.raises(ar.UserError, match="neither the name of a world"):
        agent.sample_rewards("Nowhere-v9")
    env = gym.make("CartPole-v1")
    agent.sample_rewards(env, budget=50, progress=False)
    env.reset()  # an object stays its owner's: it is still open


def test_a_reward_for_single_rows_says_that_it_must_be_vectorised(agent: ar.Agent) -> None:
    def one_at_a_time(g: np.ndarray[Any, Any]) -> float:
        return 1.0 if g[:, 0] > 3 else 0.0

    with pytest.raises(ar.UserError, match=r"one_at_a_time failed: The truth value .* It must be vectorised"):
        agent.ask(ar.reward(one_at_a_time))


def test_the_mean_is_a_named_choice(agent: ar.Agent) -> None:
    rows = agent.model.phi.readable(agent.sample.rows.numpy())
    exact = agent.ask(ar.reward("x - y")).belief.found.z
    draw = np.random.default_rng(0).choice(len(rows), size=3_000, p=agent.sample.weights.numpy())
    seen, r = rows[draw], rows[draw, 0] - rows[draw, 1]
    mean, auto = (infer(ar.samples(seen, r, estimator=e), agent.knowledge) for e in ("mean", "auto"))
    B = agent.knowledge.B(agent.sample.rows[draw])
    assert torch.allclose(mean.z, torch.from_numpy(r) @ B / 3_000)
    assert float((auto.z - exact).norm()) < float((mean.z - exact).norm())
    assert auto.error < mean.error
    with pytest.raises(ar.UserError, match="estimator is 'median'"):
        ar.samples(seen, r, estimator="median")  # type: ignore[arg-type]  # a wrong name
    with pytest.raises(ar.UserError, match="needs samples of the training distribution"):
        ar.samples(seen, r, distribution="other", estimator="mean")


def test_what_was_not_sampled_pays_the_mean() -> None:
    """In CliffWalking every step costs 1: steps that were not sampled must not look free."""
    agent = ar.train("CliffWalking-v1", updates=1_000, evaluate_every=1_000, progress=False)
    rows = agent.model.phi.readable(agent.sample.rows.numpy())
    some = rows[(rows[:, 2] == 0) & (rows[:, 0] % 2 == 0)]
    with pytest.warns(UserWarning, match="assumes the mean reward along the others"):
        policy = agent.ask(ar.samples(some, np.full(len(some), -1.0), "other"))
    paid = policy.reward.values(agent.knowledge, agent.sample.rows)
    assert paid[rows[:, 2] == 0] == pytest.approx(-1.0, abs=1e-3)
    assert paid[rows[:, 2] == 1] == pytest.approx(0.0, abs=1e-3)
