"""`train` and `resume`: from a world or a dataset to an agent, with progress, metrics and a run folder."""

from anyreward.training.train import resume, train

__all__ = ["resume", "train"]
