"""The learning methods by name."""

from __future__ import annotations

from anyreward.errors import UserError
from anyreward.learning.forward_backward import ForwardBackward, SuccessorFeatures, basis_dim
from anyreward.learning.goal_dqn import GoalDQN
from anyreward.learning.landmarks import Landmarks
from anyreward.learning.method import Method
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.features import FeatureMap

METHODS: dict[str, type[Method]] = {
    "fb": ForwardBackward,
    "goal-dqn": GoalDQN,
    "goal-dqn-her": GoalDQN,
    "successor-features": SuccessorFeatures,
}
NETWORK_DIM, BOX_DIM = 100, 50
"""Default d of networks, and of those for continuous actions."""


def method_of(phi: FeatureMap, s: Settings) -> type[Method]:
    """The learning method for these features and settings; landmarks if they are possible."""
    return Landmarks if Landmarks.possible(phi, s) else METHODS[s.method]


def settled_dim(phi: FeatureMap, s: Settings) -> Settings:
    """The settings with the method's d; tables determine theirs from the data."""
    if s.method == "successor-features":
        s = s.with_(dim=basis_dim(phi, s))
    if s.dim == 0 and not Landmarks.possible(phi, s):
        s = s.with_(dim=BOX_DIM if phi.action_set.continuous else NETWORK_DIM)
    return s


def check_compile(phi: FeatureMap, s: Settings, run: RunSettings) -> None:
    """Raise a UserError if compile is on and the updates have no compiled version."""
    if run.compile and phi.action_set.continuous:
        raise UserError("compile is on, but compiled updates support no continuous actions. Turn compile off.")
    if run.compile and (s.method != "fb" or s.first_step or s.bias):
        raise UserError(
            "compile is on, but compiled updates support neither first_step=1 nor bias nor methods other than fb. Turn "
            "compile off."
        )
