"""Phase 3: policies, rollouts and evaluation."""

from anyreward.acting.exact import Scores, score_goals, score_policies
from anyreward.acting.finetune import RewardedTransitions
from anyreward.acting.play import Episode, GoalScores, RandomPolicy, Returns, evaluate, rollout
from anyreward.acting.policy import Acts, Policy

__all__ = [
    "Acts",
    "Episode",
    "GoalScores",
    "Policy",
    "RandomPolicy",
    "Returns",
    "RewardedTransitions",
    "Scores",
    "evaluate",
    "rollout",
    "score_goals",
    "score_policies",
]
