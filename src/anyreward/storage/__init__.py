"""Run folders: atomic files and metrics."""
