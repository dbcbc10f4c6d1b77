"""anyreward: learn one representation of a world without reward, then answer any reward at once."""

from anyreward.acting import Policy, RandomPolicy, Scores, evaluate, rollout
from anyreward.agent import Agent, load
from anyreward.errors import UserError
from anyreward.learning import Dataset, Settings, open_dataset, preset
from anyreward.rewards import Reward, goal, reward
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
    "Scores",
    "Settings",
    "UserError",
    "World",
    "evaluate",
    "finite_mdp",
    "goal",
    "load",
    "open_dataset",
    "open_world",
    "preset",
    "resume",
    "reward",
    "rollout",
    "train",
]
