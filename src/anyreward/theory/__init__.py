"""The paper's theory on finite MDPs, which are solved exactly. docs/theory.md lists the code of each statement."""

from anyreward.theory import bounds
from anyreward.theory.bounds import Bound
from anyreward.theory.fb import FB, exact, goals_are_states, with_bias
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp, garnet

__all__ = ["FB", "Bound", "FiniteMDP", "bounds", "exact", "finite_mdp", "garnet", "goals_are_states", "with_bias"]
