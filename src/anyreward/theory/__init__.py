"""Finite MDPs solved exactly."""

from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.theory.garnet import garnet

__all__ = ["FiniteMDP", "finite_mdp", "garnet"]
