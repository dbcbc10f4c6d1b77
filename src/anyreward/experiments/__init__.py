"""Experiments as data and their runners."""
