"""The gradient step made fast: flat memory, and the same step compiled."""
