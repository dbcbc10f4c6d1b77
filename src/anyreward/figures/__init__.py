"""Figures of results; nothing here trains."""
