"""Phase 1: learning F and B without reward."""

from anyreward.learning.datasets import Dataset, open_dataset
from anyreward.learning.loop import begin, learn
from anyreward.learning.settings import RunSettings, Settings, preset

__all__ = ["Dataset", "RunSettings", "Settings", "begin", "learn", "open_dataset", "preset"]
