"""The policy of goal-oriented DQN, which reaches single goals and answers nothing else."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from anyreward.acting.policy import Policy
from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import FeatureSample, Inferred, belief, check_visited
from anyreward.rewards.places import goal_rows
from anyreward.rewards.reward import Goal, Reward, TaskVector


def is_goal(target: Reward) -> bool:
    """Whether a reward is a single goal, with a positive weight: scaling it changes no policy."""
    return len(target.terms) == 1 and target.terms[0][0] > 0 and isinstance(target.terms[0][1], Goal | TaskVector)


def goal_policy(
    target: Reward,
    representation: Representation,
    features: FeatureMap,
    sample: FeatureSample,
    method: str,
    action_start: int,
    agent: str,
) -> Policy:
    """The policy of Q(s, a, g); see `Agent.ask`.

    Its Q counts how often the goal will be reached, discounted, from the next state on: a weight of the goal is left
    out, and so is what being there now would pay.
    """
    if not is_goal(target):
        raise UserError(
            f"Not possible: this agent's {method} reaches single goals, anyreward.goal(...), and has no answer to "
            f"{target}. Train with method='fb' to ask for any reward."
        )
    ((_, term),) = target.terms
    if isinstance(term, TaskVector):
        z = torch.tensor(term.z)
        if len(z) != sample.B.shape[1]:
            raise UserError(f"This z has {len(z)} numbers; a goal of this agent has {sample.B.shape[1]}.")
    else:
        assert isinstance(term, Goal)
        rows = torch.from_numpy(goal_rows(term, features, representation))
        check_visited(term, rows, sample, representation)
        z = representation.backward_map(rows)[0]

    def cannot(what: str) -> Any:
        def refuse(*_: Any) -> NoReturn:
            raise UserError(f"{method} {what}")

        return refuse

    return Policy(
        representation=representation,
        features=features,
        action_start=action_start,
        target=target,
        z=z.to(representation.dtype),
        reward_scale=1.0,
        belief=belief(Inferred(z.double())),
        judge=cannot("learns no model of the world to try its answers out in: there is no trust."),
        revise=cannot("reaches a goal that is known; it cannot learn from rewards seen."),
        agent=agent,
    )
