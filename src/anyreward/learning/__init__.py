"""Phase 1: learning F and B without reward."""

from anyreward.learning.datasets import Dataset, open_dataset
from anyreward.learning.presets import Settings, preset
from anyreward.learning.train import learn

__all__ = ["Dataset", "Settings", "learn", "open_dataset", "preset"]
