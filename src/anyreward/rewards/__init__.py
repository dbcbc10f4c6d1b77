"""Phase 2: rewards, and the z that answers them."""

from anyreward.rewards.reward import Reward, goal, reward

__all__ = ["Reward", "goal", "reward"]
