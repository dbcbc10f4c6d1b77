"""Finite MDPs solved exactly."""

from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp

__all__ = ["FiniteMDP", "finite_mdp"]
