"""Phase 2: rewards, and the z that answers them."""

from anyreward.rewards.coverage import Coverage, FeatureCoverage
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.models import RewardModel, fit_mlp
from anyreward.rewards.painted import painted
from anyreward.rewards.reward import Part, Reward, Term
from anyreward.rewards.terms import demonstration, end, from_z, goal, goals, reward, samples

__all__ = [
    "Coverage",
    "FeatureCoverage",
    "Knowledge",
    "Part",
    "Reward",
    "RewardModel",
    "Term",
    "demonstration",
    "end",
    "fit_mlp",
    "from_z",
    "goal",
    "goals",
    "painted",
    "reward",
    "samples",
]
