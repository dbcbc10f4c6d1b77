"""Offline datasets: transitions from files of several layouts (docs/datasets.md). Rewards are not read."""

from anyreward.learning.datasets.dataset import Dataset, packed_transitions
from anyreward.learning.datasets.sources import is_dataset, open_dataset

__all__ = ["Dataset", "is_dataset", "open_dataset", "packed_transitions"]
