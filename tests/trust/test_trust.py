"""How far answers can be trusted: every ingredient against exact figures, and the whole against true scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.learning.machine import threads
from anyreward.learning.replay import Transitions
from anyreward.rewards.inference import Inferred
from anyreward.rewards.knowledge import Episodes, FeatureSample
from anyreward.training.prepare import split_off
from anyreward.trust.measures import bellman_residual, conditioning, represented, thin_rows, typicality
from anyreward.trust.report import verdict_of
from anyreward.trust.small_world import SmallWorld, same_pairs, small_world
from tests.conftest import TINY
from tests.exact import GAMMA, exact_agent, garnet

NOTHING = Inferred(torch.ones(3, dtype=torch.float64))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As reports have it: for many small operations a second thread does not pay, above all on a busy machine."""
    with threads(1):
        yield


def test_represented_is_the_r_squared_of_the_projection() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((50, 4)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(50)))
    sample = FeatureSample(torch.zeros(50, 1), weights, B, (B * weights[:, None]).T @ B)
    inside = (B @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)).numpy()
    assert represented(inside, sample) == pytest.approx(1.0, abs=1e-5)
    r = rng.standard_normal(50)
    root = weights.sqrt().numpy()
    fit, *_ = np.linalg.lstsq(B.numpy() * root[:, None], r * root, rcond=None)
    expected = 1 - ((r - B.numpy() @ fit) ** 2 * root**2).sum() / (r**2 * root**2).sum()
    assert represented(r, sample) == pytest.approx(expected, abs=1e-5)
    assert represented(np.zeros(50), sample) == 1.0


def every_transition(mdp: ar.FiniteMDP, times: int = 2_000) -> Transitions:
    """Each transition about as often as it is likely, all actions alike."""
    seen = np.round(times * mdp.P).astype(int)
    s, a, following = (np.repeat(x, seen[np.nonzero(seen)]) for x in np.nonzero(seen))
    return Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(len(s), dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )


def paid(world: SmallWorld, r: np.ndarray) -> torch.Tensor:
    """(1, N) the rewards of the transitions of a small world, for rewards of states."""
    return torch.from_numpy(r)[world.rows.features[:, 0].long()][None]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_small_world_of_all_transitions_is_the_world(seed: int) -> None:
    mdp = garnet(seed=seed)
    agent, rows = exact_agent(mdp), every_transition(mdp)
    world = small_world(rows, None, agent.model, torch.eye(6, dtype=torch.float64)[:2], GAMMA, None)
    rng = np.random.default_rng(seed)
    assert world.near[:, :, 0].unique().numel() == 18  # every pair stands for itself
    assert float(world.share[:, :, 0].min()) > 0.98
    for _ in range(10):
        r, actions = rng.standard_normal(6), rng.integers(3, size=6)
        ends = world.weights.numpy()
        values = [
            mdp.policy_value(np.eye(3)[actions], r),
            mdp.policy_value(np.full((6, 3), 1 / 3), r),
            mdp.optimal_value(r),
        ]
        J, random, best = (ends @ V for V in values)
        score, value = world.score(torch.from_numpy(actions), paid(world, r))
        assert value == pytest.approx(J, abs=0.05 * np.abs(r).max())
        assert score == pytest.approx(max(-1.0, (J - random) / (best - random)), abs=0.05)


def test_the_small_world_knows_that_episodes_end() -> None:
    # state 1 ends the episode when action 1 is taken: for the reward 1 everywhere, action 0 is best
    P = np.zeros((2, 2, 2))
    P[:, 0, 1], P[0, 1, 1] = 1.0, 1.0
    mdp = ar.FiniteMDP(P, GAMMA, np.arange(2))
    agent = exact_agent(mdp)
    s, a = np.repeat([0, 0, 1, 1], 300), np.tile(np.repeat([0, 1], 300), 2)
    ends = torch.from_numpy((s == 1) & (a == 1))
    rows = Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.ones(1_200, 1),
        ends,
        torch.from_numpy(s[:, None]).float(),
    )
    world = small_world(rows, None, agent.model, torch.eye(2, dtype=torch.float64), GAMMA, None)
    stays, value = world.score(torch.zeros(2, dtype=torch.int64), paid(world, np.ones(2)))
    leaves, one = world.score(torch.ones(2, dtype=torch.int64), paid(world, np.ones(2)))
    assert (stays, value) == (pytest.approx(1.0, abs=1e-4), pytest.approx(10.0, abs=1e-3))
    assert leaves < 0
    assert one == pytest.approx(1.0, abs=0.05)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("gamma", [0.5, 0.999])
def test_the_small_world_settles_at_any_discount(gamma: float) -> None:
    mdp = replace(garnet(), gamma=gamma)
    agent, rows = exact_agent(mdp), every_transition(mdp)
    world = small_world(rows, None, agent.model, torch.eye(6, dtype=torch.float64)[:2], gamma, None)
    r, actions = np.array([1.0, 2.0, 0.0, 0.5, 1.5, 3.0]), np.zeros(6, dtype=int)
    V = mdp.policy_value(np.eye(3)[actions], r)
    _, value = world.score(torch.from_numpy(actions), paid(world, r))
    assert value == pytest.approx(world.weights.numpy() @ V, rel=0.02)


def test_an_exact_q_has_no_bellman_residual() -> None:
    mdp = ar.finite_mdp(ar.open_world("four-rooms").make(), 0.9)
    assert mdp is not None
    r = np.random.default_rng(0).standard_normal(mdp.states)
    rows = every_transition(mdp, 1)
    Q = torch.from_numpy(mdp.q_value(mdp.optimal_value(r), r))
    before, after = (x[:, 0].long() for x in (rows.observations, rows.next_observations))
    paid = torch.from_numpy(r)[before]
    assert bellman_residual(Q[before], Q[after], rows, paid, 0.9, 0.0) == pytest.approx(0, abs=1e-9)
    spread = float(Q[before].gather(1, rows.actions[:, None]).std())
    assert bellman_residual(Q[before] + 1, Q[after] + 1, rows, paid, 0.9, 0.0) == pytest.approx(0.1 / spread)
    tau = 0.7
    pi = np.full((mdp.states, 5), 0.2)
    for _ in range(2_000):
        soft = mdp.q_value(mdp.policy_value(pi, r), r)
        pi = np.exp(soft / tau) / np.exp(soft / tau).sum(1, keepdims=True)
    soft_Q = torch.from_numpy(soft)
    assert bellman_residual(soft_Q[before], soft_Q[after], rows, paid, 0.9, tau) == pytest.approx(0, abs=1e-6)


def test_conditioning_by_hand() -> None:
    rank, condition = conditioning(torch.diag(torch.tensor([4.0, 4.0, 1.0, 0.0], dtype=torch.float64)))
    p = np.array([4, 4, 1]) / 9
    assert rank == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert condition == 4


def test_typical_is_the_share_of_training_further_out() -> None:
    training = torch.randn(5_000, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 1.0, 0.1])
    assert typicality(torch.zeros(4), training) == 1.0
    assert typicality(torch.tensor([0.0, 0.0, 0.0, 2.0]), training) < 0.001  # large where training never was
    assert 0.05 < typicality(torch.tensor([1.0, 1.0, 1.0, 0.1]), training) < 0.95


def test_thin_places() -> None:
    rows = torch.arange(10)[:, None].float()
    weights = torch.tensor([0.001] + [0.111] * 9, dtype=torch.float64)
    sample = FeatureSample(rows, weights, torch.zeros(10, 2), torch.eye(2))
    assert thin_rows(rows, sample, True).tolist() == [True] + [False] * 9
    assert thin_rows(torch.tensor([[77.0]]), sample, True).tolist() == [True]
    random = torch.Generator().manual_seed(0)
    cloud = torch.randn(3_000, 2, generator=random)
    numbers = FeatureSample(cloud, torch.full((3_000,), 1 / 3_000), torch.zeros(3_000, 2), torch.eye(2))
    assert thin_rows(torch.tensor([[0.0, 0.0], [8.0, 0.0]]), numbers, False).tolist() == [False, True]


def test_verdicts() -> None:
    fine = (0.9, 0.1, 0.5, NOTHING, 2_000)
    assert verdict_of(0.95, *fine)[0] == "good"
    assert verdict_of(0.8, *fine)[0] == "doubtful"
    assert verdict_of(0.3, *fine)[0] == "do not rely on it"
    assert verdict_of(None, *fine)[0] == "doubtful"
    assert verdict_of(None, 0.2, 0.1, 0.5, NOTHING, 2_000)[0] == "do not rely on it"
    assert verdict_of(0.95, 0.9, 0.8, 0.5, NOTHING, 2_000)[0] == "doubtful"
    uncertain = torch.tensor([[1.0], [0.0], [0.0]])  # a standard error of one
    few = replace(NOTHING, samples=9, seen=3, of=3, factor=uncertain)
    verdict, reasons = verdict_of(0.95, 0.9, 0.1, 0.5, few, 2_000)
    assert verdict == "doubtful"
    assert "58%" in reasons[1]
    fewer = replace(few, factor=2 * uncertain)
    assert verdict_of(0.95, 0.9, 0.1, 0.5, fewer, 2_000)[0] == "do not rely on it"
    assert verdict_of(0.95, 0.9, 0.1, 0.5, fewer, 2_000, drawn=True)[0] == "good"  # the prediction includes it
    assert verdict_of(0.95, 0.9, 0.1, 0.5, replace(NOTHING, samples=9, seen=2, of=3), 2_000)[0] == "doubtful"
    assert verdict_of(0.95, 0.9, 0.1, 0.5, Inferred(torch.zeros(3)), 2_000)[0] == "do not rely on it"


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    ranks = [np.argsort(np.argsort(v)) for v in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def test_what_is_predicted_is_what_comes() -> None:
    """A half-trained agent, whose answers are good and bad: the ranks of predicted and true scores agree."""
    agent = ar.train("four-rooms", landmarks=0, dim=40, updates=600, seed=3, progress=False)
    mdp, rng = agent.exact_mdp(), np.random.default_rng(0)
    targets: list[ar.Reward] = []
    for _ in range(20):
        a, b, c = (tuple(agent.model.phi.table[cell]) for cell in rng.choice(mdp.observations, 3, replace=False))
        x, y, wide = rng.uniform(1, 9, 3)
        targets += [
            ar.goal(a),
            ar.goal(a) - 0.5 * ar.goal(b) - 0.5 * ar.goal(c),
            ar.reward(f"exp(-((x - {x:.3f}) ** 2 + (y - {y:.3f}) ** 2) / {wide:.3f})"),
            ar.reward(f"sin({x:.3f} * x) * cos({wide:.3f} * y)"),
        ]
    policies = [agent.ask(target) for target in targets]
    predicted = np.array([policy.trust.predicted for policy in policies])
    true = agent.score(policies, mdp).normalised
    assert np.ptp(true) > 0.5
    assert rank_correlation(predicted, true) > 0.9
    assert np.abs(predicted - true).mean() < 0.06
    values = np.array([policy.trust.value for policy in policies])
    assert np.corrcoef(values, agent.score(policies, mdp).value)[0, 1] > 0.95


def test_a_report_reads_well_and_is_data(agent: ar.Agent) -> None:
    trust = agent.ask(ar.goal(2, 8)).trust
    lines = str(trust).splitlines()
    assert lines[0].startswith(f"trust        {trust.verdict}: expected to earn")
    assert [line.split()[0] for line in lines] == [
        "trust", "predicted", "value", "represented", "consistent", "z", "Cov", "coverage",
    ]  # fmt: skip
    assert all(len(line) < 120 for line in lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = agent.ask(ar.samples([[2, 8], [3, 8]] * 5, [1.0, 0.0] * 5)).trust
    assert "samples      10, 5 effective" in str(seen)


def test_unknown_where_it_cannot_be_known() -> None:
    trained = ar.train("CartPole-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    agent = replace(trained, knowledge=replace(trained.knowledge, held_out=None))
    trust = agent.ask(ar.goal(0.0, 0.0, 0.0, 0.0)).trust
    assert (trust.predicted, trust.value, trust.residual, trust.represented) == (None,) * 4
    assert trust.verdict != "good"
    assert "not available" in str(trust)
    assert "0 held-out transitions are too few (1,000 needed)" in trust.reasons[0]


def test_nothing_known_is_not_good(agent: ar.Agent) -> None:
    for target in (ar.samples(), 0 * ar.goal(2, 8)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trust = agent.ask(target).trust
        assert trust.verdict == "do not rely on it"
        assert trust.predicted is None
    with pytest.warns(UserWarning, match="zero in all samples"):
        agent.ask(ar.samples([[2, 8], [3, 8]] * 200, np.zeros(400)))


def test_an_answer_that_changes_is_judged_anew(agent: ar.Agent) -> None:
    """By what was observed, or learned for, and no longer by what was asked."""
    mdp = agent.exact_mdp()
    places = agent.model.phi.readable(agent.sample.rows.numpy())
    policy = agent.ask(ar.goal(2, 8))
    copy = policy.greedy()
    policy.observe(np.tile(places, (20, 1)), np.tile(-places[:, 0], 20))
    new = agent.ask(ar.reward("-x"))
    seen, asked = policy.belief.found.z, new.belief.found.z
    assert torch.nn.functional.cosine_similarity(seen, asked, dim=0) > 0.99
    assert policy.trust.predicted == pytest.approx(agent.score(policy, mdp).normalised[0], abs=0.15)
    assert policy.trust.samples == 20 * len(places)
    assert copy.trust == agent.ask(ar.goal(2, 8)).trust  # a copy from before keeps what it knew
    tuned = agent.finetune(agent.ask(ar.goal(2, 8)), reward=ar.reward("-x"), steps=300, updates=60, progress=False)
    assert str(tuned.reward) == "-x"
    assert tuned.trust.predicted == pytest.approx(agent.score(tuned, mdp).normalised[0], abs=0.15)


def test_what_samples_say_of_the_span(agent: ar.Agent) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(len(agent.sample.rows), size=2_000)
    places, B = (
        agent.model.phi.readable(agent.sample.rows.numpy())[rows],
        agent.sample.B[torch.from_numpy(rows)].numpy(),
    )
    inside, noise = B @ rng.standard_normal(12), rng.standard_normal(2_000)
    assert agent.ask(ar.samples(places, inside)).trust.represented == pytest.approx(1.0, abs=1e-3)
    assert agent.ask(ar.samples(places, noise)).trust.represented < 0.1
    assert agent.ask(ar.from_z(np.ones(12))).trust.represented is None


def test_held_out_transitions_are_not_in_the_replay() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    assert agent.held_out is not None
    assert 2_000 <= len(agent.held_out.actions) < 2_010  # a whole number of steps of all environments
    learned = {row.tobytes() for row in agent.sample.rows.numpy()}
    new = [row.tobytes() not in learned for row in agent.held_out.features.numpy()]
    assert np.mean(new) > 0.99


def test_a_dataset_is_split() -> None:
    rng = np.random.default_rng(0)
    rows = every_transition(garnet(), 200)
    n = len(rows.actions)
    kept, unseen = split_off(rows, 1_000, seed=0)
    assert unseen is not None
    assert len(kept.actions) + len(unseen.actions) == n
    assert len(unseen.actions) == min(n // 10, 1_000)
    few = rows.at(torch.from_numpy(rng.integers(n, size=500)))
    assert split_off(few, 1_000, seed=0)[1] is None


def test_a_pair_that_was_seen_stands_for_itself() -> None:
    mdp = garnet()
    agent = exact_agent(mdp)
    seen = torch.tensor([0, 1, 2, 4, 5, 17])  # s A + a: all actions of state 0, two of state 1, one of state 5
    states = torch.arange(6).float()[:, None]
    Z = torch.eye(6, dtype=torch.float64)[:2]
    near, share = same_pairs(seen, states, agent.model, Z, states, False)
    assert near[0, :, 0].tolist() == [0, 1, 2]
    assert near[1, 1:, 0].tolist() == [3, 4]
    assert share[0, :, 0].tolist() == [1, 1, 1]
    torch.testing.assert_close(share.sum(2), torch.ones(6, 3, dtype=torch.float64))
    assert share[2].amax() < 1  # nothing is known of state 2: several similar pairs stand for it


def test_thin_data_lower_the_prediction() -> None:
    """The best policy of few transitions is not the best one: what is uncertain counts."""
    mdp, rng = garnet(), np.random.default_rng(0)
    agent, rewards = exact_agent(mdp), rng.standard_normal((20, 6))
    Z, scores = torch.eye(6, dtype=torch.float64)[:2], []
    for times in (3, 30, 3_000):
        s, a = (x.flatten() for x in np.meshgrid(np.repeat(np.arange(6), times), np.arange(3)))
        after = np.array([rng.choice(6, p=mdp.P[i, j]) for i, j in zip(s, a, strict=True)])
        rows = Transitions(
            torch.from_numpy(s[:, None]).float(),
            torch.from_numpy(a),
            torch.from_numpy(after[:, None]).float(),
            torch.zeros(len(s), dtype=torch.bool),
            torch.from_numpy(s[:, None]).float(),
        )
        world = small_world(rows, None, agent.model, Z, GAMMA, None)
        P = np.zeros_like(mdp.P)
        np.add.at(P, (s, a, after), 1 / times)
        guess = replace(mdp, P=P)
        best = [torch.from_numpy(guess.q_value(guess.optimal_value(r), r).argmax(1)) for r in rewards]
        scores.append(np.mean([world.score(b, paid(world, r))[0] for b, r in zip(best, rewards, strict=True)]))
    assert scores[0] < scores[1] < scores[2]
    assert scores[0] < 0.95
    assert scores[2] > 0.99


def test_starts_in_states_never_visited_mean_unknown_starts() -> None:
    """Each episode visits its start and ten more of 300 states; the estimate is the share that the next may miss."""
    rng, states = np.random.default_rng(0), 300
    for episodes in (10, 40, 400):
        shares = []
        for _ in range(100):
            begun = rng.integers(states, size=episodes)
            visited, new = np.zeros(states, dtype=bool), []
            for start in begun:
                new.append(not visited[start])
                visited[[start, *rng.integers(states, size=10)]] = True
            known = Episodes(torch.from_numpy(begun)[:, None].float(), 0, torch.tensor(new))
            shares.append((known.unknown, (~visited).mean()))
        estimated, true = np.mean(shares, axis=0)
        assert true - 0.1 < estimated < true + 0.2  # a little pessimistic: half of the recent starts came long before


class Corridor(gym.Env[Any, Any]):
    """Six states in a row; the last one is terminal."""

    observation_space, action_space = gym.spaces.Discrete(6), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.state = max(self.state + (1 if action else -1), 0)
        return self.state, 0.0, self.state == 5, False, {}


def test_a_time_limit_is_counted_without_discount() -> None:
    """A corridor of five states that ends at its far end, where the only reward is."""
    s = np.repeat(np.arange(6), 2)
    a, over = np.tile([0, 1], 6), s == 5
    after = np.where(over, s, np.where(a == 1, s + 1, np.maximum(s - 1, 0)))

    def seen(x: np.ndarray, ended: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.stack([x, ended], 1)).float()

    agent = ar.train(Corridor(), updates=40, progress=False)
    here, there = seen(s, over), seen(after, after == 5)
    features = torch.cat([here[:, :1], torch.from_numpy(np.where(over, 0, a))[:, None].float(), here[:, 1:]], 1)
    rows = Transitions(here, torch.from_numpy(a), there, torch.from_numpy(over), features, features)
    starts = torch.zeros(10, 2)
    ends = torch.from_numpy(over.astype(float))[None]
    for limit, expected in ((5, 1.0), (4, None)):
        world = small_world(
            rows, None, agent.model, torch.zeros(1, agent.knowledge.dim), 0.9, Episodes(starts, limit, torch.zeros(10))
        )
        score, value = world.score(torch.ones(6, dtype=torch.int64), ends[:, : len(world.rows.actions)])
        assert score == expected
        assert value == pytest.approx(0.9**5)


def test_a_run_of_little_data_is_not_trusted_where_it_knows_nothing() -> None:
    agent = ar.train("four-rooms", updates=40, seed=0, progress=False)
    mdp = agent.exact_mdp()
    targets = [ar.reward("x + y"), ar.reward("-hypot(x - 3, y - 8)"), ar.reward("(x > 6) * (y > 6)")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policies = [agent.ask(target) for target in targets]
    true = np.concatenate([agent.score(policy, mdp).normalised for policy in policies])
    assert [policy.trust.predicted for policy in policies] == pytest.approx(true, abs=0.15)
    assert true.min() < 0.5


@pytest.mark.parametrize("part", ["F", "B", "one weight"])
@pytest.mark.parametrize("changes", [{}, {"landmarks": 128, "dim": 0}], ids=["networks", "tables"])
def test_nan_is_never_good(part: str, changes: dict[str, Any]) -> None:
    agent = ar.train("four-rooms", **{**TINY, "updates": 80, "warmup_steps": 2_000, **changes})
    policy = agent.ask(ar.goal(9, 9), refine=0)
    before = policy.trust
    module = agent.model.B if part == "B" else agent.model.F
    tensors = [tensor for tensor in module.state_dict().values() if tensor.is_floating_point() and tensor.numel()]
    if part == "one weight":
        tensors[-1].view(-1)[0] = torch.nan
    else:
        for tensor in tensors:
            tensor.fill_(torch.nan)
    after = replace(policy).trust
    assert before.reasons != after.reasons
    assert after.verdict == "do not rely on it"
    assert "NaN" in after.reasons[0]
    assert "do not rely on it" in str(after)


def test_a_correction_that_is_not_finite_is_never_good(agent: ar.Agent) -> None:
    policy = agent.ask(ar.goal(9, 9), refine=0)
    for bad in (torch.nan, torch.inf):
        broken = replace(policy, corrections=(lambda policy, packed, Q, bad=bad: torch.where(Q[0, 0] == Q, bad, Q),))
        assert broken.trust.verdict == "do not rely on it"
        assert "not finite" in broken.trust.reasons[0]
    assert verdict_of(np.nan, 1.0, 0.0, 1.0, NOTHING, "")[0] == "do not rely on it"
    assert verdict_of(np.inf, 1.0, 0.0, 1.0, NOTHING, "")[0] == "do not rely on it"


def test_a_constant_reward_leaves_nothing_to_gain() -> None:
    """It is not for want of held-out transitions that there is no prediction."""
    agent = ar.train("...\n.#.\n...", updates=400, progress=False)
    with pytest.warns(UserWarning, match="every policy is equally good"):
        trust = agent.ask(ar.reward("-1")).trust
    assert trust.verdict == "nothing to gain"
    assert "too few" not in str(trust)
