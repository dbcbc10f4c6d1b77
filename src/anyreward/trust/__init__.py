"""Reports on how far answers can be trusted, before they are tried in the world."""

from anyreward.trust.report import Trust, report

__all__ = ["Trust", "report"]
