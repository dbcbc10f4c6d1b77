"""anyreward: learn one representation of a world without reward, then answer any reward at once."""

from anyreward.acting import Policy, RandomPolicy, RewardedTransitions, Scores, evaluate, rollout
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning import Dataset, Settings, open_dataset, preset
from anyreward.loading import load
from anyreward.rewards import (
    Reward,
    RewardModel,
    Trust,
    demonstration,
    fit_mlp,
    from_z,
    goal,
    goals,
    reward,
    samples,
)
from anyreward.theory import FiniteMDP, finite_mdp
from anyreward.training import resume, train
from anyreward.worlds import World, open_world

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Dataset",
    "FiniteMDP",
    "Policy",
    "RandomPolicy",
    "Reward",
    "RewardModel",
    "RewardedTransitions",
    "Scores",
    "Settings",
    "Trust",
    "UserError",
    "World",
    "demonstration",
    "evaluate",
    "finite_mdp",
    "fit_mlp",
    "from_z",
    "goal",
    "goals",
    "load",
    "open_dataset",
    "open_world",
    "preset",
    "resume",
    "reward",
    "rollout",
    "samples",
    "train",
]
