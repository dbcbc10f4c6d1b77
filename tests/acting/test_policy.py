from __future__ import annotations

import copy
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.acting.exact import policy_tables, reward_table, score_policies
from anyreward.acting.policy import action_probabilities
from anyreward.rewards.knowledge import with_backward

TARGET = ar.goal(2, 8) - 0.5 * ar.goal(5, 2)


def test_q_is_f_times_z_and_value_its_maximum(agent: ar.Agent) -> None:
    policy, cells = agent.ask(TARGET), np.array([12, 13, 24])
    rows = torch.from_numpy(cells[:, None]).float()
    F = agent.model.forward_map(rows, policy.z.expand(3, -1))
    assert np.allclose(policy.q(cells), policy.reward_scale * (F @ policy.z).numpy(), rtol=1e-5)
    assert np.allclose(policy.value(cells), policy.q(cells).max(1))
    assert policy.act(cells).tolist() == policy.q(cells).argmax(1).tolist()


def test_one_observation_is_a_batch_of_one(agent: ar.Agent) -> None:
    policy = agent.ask(TARGET)
    assert np.allclose(policy.q(24), policy.q([24])[0])
    assert policy.act(24) == policy.act([24])[0]
    assert isinstance(policy.act(24), int)
    assert policy.value(24).shape == ()
    with pytest.raises(ar.UserError, match="got shape"):
        policy.act([[1, 2]])


def test_actions_follow_their_probabilities(agent: ar.Agent) -> None:
    cells = np.full(20_000, 24)
    for policy in (agent.ask(TARGET).epsilon_greedy(0.5), agent.ask(TARGET).boltzmann(1.0)):
        frequency = np.bincount(policy.seeded(1).act(cells), minlength=5) / len(cells)
        assert np.allclose(frequency, policy.probabilities(24), atol=0.02)
        assert policy.seeded(1).act(cells).tolist() == policy.seeded(1).act(cells).tolist()
    assert agent.ask(TARGET).boltzmann(1.0).greedy().act(24) == agent.ask(TARGET).act(24)


def test_probabilities_by_hand() -> None:
    Q = torch.tensor([[0.0, 2.0, 1.0]])
    assert torch.allclose(action_probabilities(Q, epsilon=0.3), torch.tensor([[0.1, 0.8, 0.1]], dtype=torch.float64))
    e = np.exp([0.0, 1.0, 0.5])
    assert np.allclose(action_probabilities(Q, temperature=2.0)[0], e / e.sum())
    for bad in (lambda p: p.epsilon_greedy(1.5), lambda p: p.boltzmann(0.0)):
        with pytest.raises(ar.UserError, match=r"accepted|positive"):
            bad(ar.train("four-rooms", dim=4, hidden=8, updates=40, progress=False).ask(ar.goal(24)))


def test_exact_scores_agree_with_the_policies_one_by_one(agent: ar.Agent) -> None:
    mdp = agent.exact_mdp()
    targets = [TARGET, ar.reward(lambda g: np.sin(g[:, 0]))]
    scores = agent.score(targets, mdp)
    for i, target in enumerate(targets):
        policy = agent.ask(target)
        pi, r = policy.probabilities(mdp.observations), reward_table(target, agent.knowledge, mdp)
        assert scores.value[i] == pytest.approx(mdp.policy_value(pi, r).mean())
        assert scores.optimal[i] == pytest.approx(mdp.optimal_value(r).mean())
        assert scores.random[i] == pytest.approx(mdp.policy_value(np.full_like(pi, 0.2), r).mean())


def test_the_optimal_policy_scores_one() -> None:
    mdp = ar.finite_mdp(ar.open_world("four-rooms").make(), 0.99)
    assert mdp is not None
    r = mdp.on_states(np.random.default_rng(0).standard_normal((3, mdp.states)))
    Q = mdp.q_value(mdp.optimal_value(r), r)
    scores = score_policies(mdp, np.eye(5)[Q.argmax(-1)], r)
    assert np.allclose(scores.ratio, 1)
    assert np.allclose(scores.normalised, 1)


def test_scores_of_goals_are_the_papers_protocol(agent: ar.Agent) -> None:
    """Goal by goal: z = B(g) at the length of training, softmax(F.z / 1), mean of V over the states by mean of V*."""
    F, B = (copy.deepcopy(network).double() for network in (agent.model.F, agent.model.B))
    model = replace(agent.model, F=F, B=B)  # no float32 rounding in the way
    sample = with_backward(model, agent.sample.rows, agent.sample.weights)
    agent = replace(agent, knowledge=replace(agent.knowledge, model=model, sample=sample))
    mdp, quality = agent.exact_mdp(), agent.score(temperature=1.0).ratio
    assert quality.shape == (68,)
    rows = torch.from_numpy(mdp.observations[:, None]).float()
    for g in (0, 30, 67):
        z = agent.model.backward_map(rows[g : g + 1])
        z = 12**0.5 * z / z.norm()
        pi = policy_tables(agent.model, rows, z, temperature=1.0)[0]
        F = agent.model.forward_map(rows, z.expand(68, -1))
        assert np.allclose(pi, torch.softmax((F @ z[0]).double(), dim=1).numpy(), atol=1e-6)
        r = np.eye(68)[g]
        assert quality[g] == pytest.approx(mdp.policy_value(pi, r).mean() / mdp.optimal_value(r).mean())


def test_rollout_plays_whole_episodes(agent: ar.Agent) -> None:
    env = gym.make("anyreward/FourRooms-v0")
    episodes = ar.rollout(agent.ask(TARGET), env, episodes=2, seed=1)
    assert [len(e.actions) for e in episodes] == [50, 50]
    assert [len(e.observations) for e in episodes] == [51, 51]
    maze = env.unwrapped.maze
    for e in episodes:
        assert all(
            maze.successors[s, a] == t for s, a, t in zip(e.observations, e.actions, e.observations[1:], strict=False)
        )
    lake = gym.make("FrozenLake-v1")
    assert ar.rollout(ar.RandomPolicy(4), lake, episodes=5)[0].terminated
    with pytest.raises(ar.UserError, match="at least 1"):
        ar.rollout(agent.ask(TARGET), env, episodes=0)


def test_as_many_cells_as_actions_is_no_trap() -> None:
    agent = ar.train("#####\n#..##\n#...#\n#####", dim=6, hidden=8, updates=40, progress=False)
    scores = agent.score(temperature=1.0)
    assert scores.ratio.shape == (5,)
    assert np.allclose(scores.optimal, [agent.exact_mdp().optimal_value(r).mean() for r in np.eye(5)])


def test_terminal_states_are_no_goals() -> None:
    agent = ar.train("FrozenLake-v1", dim=6, hidden=8, updates=40, progress=False)
    assert len(agent.score(temperature=1.0).ratio) == 16 - 5  # four holes and the goal end the episode


def test_evaluate_plays_the_worlds_own_reward() -> None:
    played = ar.evaluate(ar.RandomPolicy(2, seed=0), "CartPole-v1", episodes=50, seed=0)
    assert 15 < played.mean < 35
    assert played.standard_error == pytest.approx(played.totals.std(ddof=1) / 50**0.5)
    assert "over 50 episodes" in str(played)
    env = gym.make_vec("CartPole-v1", num_envs=2)
    assert ar.evaluate(ar.RandomPolicy(2), env, episodes=5).totals.shape == (5,)
    env.reset()  # an object stays its owner's: it is still open


def test_ratio_is_silent_where_it_means_nothing() -> None:
    mdp = ar.finite_mdp(ar.open_world("four-rooms").make(), 0.99)
    assert mdp is not None
    pi = np.full((2, mdp.states, 5), 0.2)
    scores = score_policies(mdp, pi, mdp.on_states(np.stack([np.zeros(mdp.states), -np.ones(mdp.states)])))
    assert np.isnan(scores.ratio).all()


def test_observations_out_of_range_are_refused(agent: ar.Agent) -> None:
    for bad in (500, -1):
        with pytest.raises(ar.UserError, match="whole numbers from 0 to 120"):
            agent.ask(TARGET).act(bad)
    with pytest.raises(ar.UserError, match="empty list"):
        agent.score([])


def test_short_representations(agent: ar.Agent) -> None:
    assert repr(agent) == "Agent(four-rooms, d = 12, 200 updates)"
    assert repr(agent.ask(TARGET).boltzmann(2.0)).startswith("Policy(temperature 2, |z| = ")


@pytest.mark.parametrize("landmarks", [0, 128])
def test_acting_in_a_wall_warns_once(landmarks: int) -> None:
    small = {} if landmarks else {"dim": 8, "hidden": 8}
    agent = ar.train("four-rooms", landmarks=landmarks, updates=200, progress=False, **small)
    policy = agent.ask(TARGET)
    policy.act([12, 24])
    with pytest.warns(UserWarning, match=r"x = 0, y = 0, which was never visited in training.*not a wall") as caught:
        actions = policy.act([24, 0])
    assert caught[0].filename == __file__
    assert set(actions.tolist()) <= set(range(5))
    policy.act(0)  # once for a policy
    policy.predict(0)  # and its variants
    with pytest.warns(UserWarning, match="x = 10, y = 10"):
        agent.ask(TARGET).act(120)


def test_evaluations_visit_new_states_without_a_warning() -> None:
    """An agent of two rooms is played in all four."""
    maze = ar.open_world("four-rooms")
    env = maze.make_vector(100)
    before, _ = env.reset(seed=0)
    actions = np.random.default_rng(0).integers(5, size=100)
    following = env.step(actions)[0]
    left = (before % 11 < 5) & (following % 11 < 5)
    data = ar.Dataset(
        "left",
        maze.observation_space,
        maze.action_space,
        before[left],
        actions[left],
        following[left],
        left[left] & False,
    )
    agent = ar.train(data, updates=40, progress=False)
    policy = agent.ask(ar.reward("f0"))
    assert agent.knowledge.unvisited(torch.tensor([[13.0], [108.0]])).tolist()[1]
    assert len(ar.evaluate(policy, "four-rooms", episodes=20).totals) == 20
    with pytest.warns(UserWarning, match="f0 = 108, which was never visited"):
        policy.act(108)


@pytest.mark.parametrize("landmarks", [0, 128])
def test_terminal_states_do_not_warn(landmarks: int) -> None:
    """Vector environments ask for an action in the terminal state, too; it is then ignored."""
    small = {} if landmarks else {"dim": 8, "hidden": 8}
    agent = ar.train("FrozenLake-v1", landmarks=landmarks, updates=1_000, progress=False, **small)
    policy = agent.ask(ar.goal(15))
    assert agent.model.phi.ends
    policy.act(np.arange(16))
    ar.evaluate(policy, "FrozenLake-v1", episodes=20)


def test_numbers_do_not_warn() -> None:
    agent = ar.train("CartPole-v1", dim=8, hidden=8, updates=40, progress=False)
    agent.ask(ar.reward("f0")).act(np.full(4, 3.0, dtype=np.float32))
