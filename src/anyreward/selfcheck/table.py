"""The result of a check: how often something was tried, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_SHOWN = 5
"""Number of failures whose description is kept."""


@dataclass
class Result:
    """Counts of one kind of fault."""

    fault: str
    tried: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    """descriptions of the first failures"""
    note: str = ""

    def tell(self, survived: bool, what: str) -> None:
        """Count one trial."""
        self.tried += 1
        if not survived:
            self.failed += 1
            self.failures = [*self.failures, what][:MOST_SHOWN]
