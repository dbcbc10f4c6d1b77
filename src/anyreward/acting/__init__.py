"""Phase 3: acting on an answer, and measuring how well it does."""

from anyreward.acting.evaluate import Scores, goal_quality, score_policies
from anyreward.acting.finetune import RewardedTransitions
from anyreward.acting.policy import Acts, Policy
from anyreward.acting.rollout import Episode, RandomPolicy, Returns, evaluate, rollout

__all__ = [
    "Acts",
    "Episode",
    "Policy",
    "RandomPolicy",
    "Returns",
    "RewardedTransitions",
    "Scores",
    "evaluate",
    "goal_quality",
    "rollout",
    "score_policies",
]
