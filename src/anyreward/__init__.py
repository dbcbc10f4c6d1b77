"""anyreward: learn one representation of a world without reward, then answer any reward at once."""

from anyreward.acting import (
    Episode,
    GoalScores,
    Policy,
    RandomPolicy,
    Returns,
    RewardedTransitions,
    Scores,
    evaluate,
    rollout,
)
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning import Dataset, RunSettings, Settings, open_dataset, preset
from anyreward.model import ZMixture
from anyreward.rewards import (
    Coverage,
    FeatureCoverage,
    Reward,
    RewardModel,
    Term,
    demonstration,
    end,
    fit_mlp,
    from_z,
    goal,
    goals,
    painted,
    reward,
    samples,
)
from anyreward.theory import FiniteMDP, finite_mdp
from anyreward.training import resume, train
from anyreward.trust import Trust
from anyreward.worlds import World, open_world

__version__ = "0.1.0"

load = Agent.load
"""The same as ``Agent.load``."""

__all__ = [
    "Agent",
    "Coverage",
    "Dataset",
    "Episode",
    "FeatureCoverage",
    "FiniteMDP",
    "GoalScores",
    "Policy",
    "RandomPolicy",
    "Returns",
    "Reward",
    "RewardModel",
    "RewardedTransitions",
    "RunSettings",
    "Scores",
    "Settings",
    "Term",
    "Trust",
    "UserError",
    "World",
    "ZMixture",
    "demonstration",
    "end",
    "evaluate",
    "finite_mdp",
    "fit_mlp",
    "from_z",
    "goal",
    "goals",
    "load",
    "open_dataset",
    "open_world",
    "painted",
    "preset",
    "resume",
    "reward",
    "rollout",
    "samples",
    "train",
]
