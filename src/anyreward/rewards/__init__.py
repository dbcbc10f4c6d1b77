"""Phase 2: rewards, and the z that answers them."""

from anyreward.rewards.models import RewardModel, fit_mlp
from anyreward.rewards.reward import Reward, demonstration, from_z, goal, goals, reward, samples
from anyreward.rewards.trust import Trust

__all__ = [
    "Reward",
    "RewardModel",
    "Trust",
    "demonstration",
    "fit_mlp",
    "from_z",
    "goal",
    "goals",
    "reward",
    "samples",
]
