from __future__ import annotations

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.rewards.inference import infer


def z_of(agent: ar.Agent, target: ar.Reward) -> torch.Tensor:
    return infer(target, agent.knowledge).z


def test_algebra_prints_as_written() -> None:
    assert str(ar.goal(2, 8) - 0.5 * ar.goal((5, 2))) == "goal(2, 8) - 0.5 * goal(5, 2)"
    assert str(-ar.goal(3) / 2) == "-0.5 * goal(3)"
    assert str(sum([ar.goal(1), ar.goal(2)], start=ar.Reward(()))) == "goal(1) + goal(2)"


def test_z_is_linear_in_the_reward(agent: ar.Agent) -> None:
    a, b = ar.goal(2, 8), ar.reward(lambda g: g[:, 0] * g[:, 1])
    assert torch.allclose(z_of(agent, 2 * a - b / 4), 2 * z_of(agent, a) - z_of(agent, b) / 4)


def test_z_is_the_mean_of_r_times_b_over_the_replay(agent: ar.Agent) -> None:
    """Against the definition, summed row by row."""
    r = np.random.default_rng(0).standard_normal(121)
    target = ar.reward(lambda g: r[(g[:, 1] * 11 + g[:, 0]).astype(int)])
    B = agent.model.backward_map(agent.sample.rows).double()
    cells = agent.sample.rows[:, 0].long()
    expected = sum(w * r[c] * b for w, c, b in zip(agent.sample.weights, cells, B, strict=True))
    assert torch.allclose(z_of(agent, target), expected)


def test_a_goal_is_an_indicator_however_it_is_given(agent: ar.Agent) -> None:
    cell = 8 * 11 + 2
    ways = [
        ar.goal(2, 8),
        ar.goal((2, 8)),
        ar.goal(np.array([2.0, 8.0])),
        ar.goal(cell),
        ar.reward(lambda g: (g[:, 0] == 2) & (g[:, 1] == 8)),
    ]
    first = z_of(agent, ways[0])
    for way in ways[1:]:
        assert torch.allclose(z_of(agent, way), first)
    values = ways[0].values(agent.knowledge, agent.sample.rows)
    assert values.sum() == 1
    assert values[agent.sample.rows[:, 0] == cell].tolist() == [1.0]


def test_rescaled_rewards_give_the_same_policy_and_rescaled_values(agent: ar.Agent) -> None:
    target, free = ar.goal(2, 8) - 0.5 * ar.goal(5, 2), agent.exact_mdp().observations
    policy, scaled = agent.ask(target), agent.ask(1000 * target)
    assert torch.allclose(policy.z, scaled.z)
    assert np.allclose(1000 * policy.q(free), scaled.q(free), rtol=1e-4)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (ar.goal(5, 1), "never visited"),  # a wall
        (ar.goal(40, 2), "accepted: x 0 to 10, y 0 to 10"),
        (ar.goal(1.5, 2), "no state at"),
        (ar.goal(1, 2, 3), "2 numbers \\(x, y\\) or 1"),
        (ar.goal(500), "from 0 to 120"),
        (ar.reward(lambda g: g), r"expected \(\d+,\)"),
        (ar.reward(lambda g: np.where(g[:, 0] == 3, np.nan, 1.0)), "is nan in row"),
    ],
)
def test_bad_rewards_say_what_is_wrong(agent: ar.Agent, target: ar.Reward, message: str) -> None:
    with pytest.raises(ar.UserError, match=message):
        agent.ask(target)


def test_what_is_not_a_reward_is_refused(agent: ar.Agent) -> None:
    with pytest.raises(ar.UserError, match="Make one with"):
        agent.ask("go to the corner")
    with pytest.raises(ar.UserError, match="takes a function"):
        ar.reward(3)
    with pytest.raises(ar.UserError, match="finite"):
        ar.goal(np.nan)
    with pytest.raises(ar.UserError, match="finite"):
        ar.goal(1) * float("inf")
    with pytest.raises(ar.UserError, match="not a list of numbers"):
        ar.goal("kitchen")
    with pytest.raises(TypeError):
        ar.goal(1) + 1


def test_a_zero_reward_warns(agent: ar.Agent) -> None:
    with pytest.warns(UserWarning, match="every policy is equally good"):
        agent.ask(0 * ar.goal(2, 8))
