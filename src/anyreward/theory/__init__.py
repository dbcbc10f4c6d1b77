"""The paper's theory on finite MDPs, which are solved exactly. docs/theory.md lists the code of each statement."""

from anyreward.theory import bounds, navigation, stationary
from anyreward.theory.bounds import Bound
from anyreward.theory.fb import (
    FB,
    change_variables,
    exact,
    goals_are_pairs,
    goals_are_states,
    improvement,
    orthonormaliser,
    universal_successor_features,
    with_bias,
)
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.theory.garnet import garnet

__all__ = [
    "FB",
    "Bound",
    "FiniteMDP",
    "bounds",
    "change_variables",
    "exact",
    "finite_mdp",
    "garnet",
    "goals_are_pairs",
    "goals_are_states",
    "improvement",
    "navigation",
    "orthonormaliser",
    "stationary",
    "universal_successor_features",
    "with_bias",
]
