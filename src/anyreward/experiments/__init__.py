"""Experiments on trained agents."""
