"""`train` and `resume`: train an agent in a world or on a dataset, with progress, metrics and a run folder."""

from anyreward.training.train import resume, train

__all__ = ["resume", "train"]
