"""`anyreward bench`, `doctor`, `selfcheck` and `demo`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anyreward.selfcheck.check import Name, run_checks
from anyreward.storage.files import write_json
from anyreward.tools.bench import PARTS, Part, run_bench
from anyreward.tools.demo import UPDATES, run_demo
from anyreward.tools.doctor import check_parts
from anyreward.tools.tables import titled


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine, with the four rooms and with images; close other programs first."""

    parts: tuple[Part, ...] = PARTS
    """Benchmarks to run."""
    dim: int = 100
    """d, the dimension of F, B and z, in the timed updates."""
    cycles: int = 50
    """Number of timed cycles (of 40 updates each)."""
    compile: bool = True
    """Also time compiled updates."""
    json: Path | None = None
    """Also write the results to this JSON file."""

    def run(self) -> None:
        """Measure, and print and write the results."""
        show = partial(print, file=sys.stderr)
        figures = run_bench(self.parts, self.dim, show, self.cycles, self.compile)
        table = Table(show_header=False, box=None)
        for name, value in _rows(figures):
            table.add_row(name, value)
        Console().print(table)
        if self.json:
            write_json(self.json, figures)


def _rows(figures: dict[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    """Nested figures as lines of a table."""
    for name, value in figures.items():
        if isinstance(value, dict) and set(value) == {"median", "quartiles"}:
            low, high = value["quartiles"]
            yield f"{indent}{name}", f"{value['median']:.4g}  (quartiles {low:.4g} to {high:.4g})"
        elif isinstance(value, dict):
            yield f"{indent}{name}", ""
            yield from _rows(value, indent + "  ")
        else:
            yield f"{indent}{name}", f"{value:,.4g}" if isinstance(value, float) else f"{value}"


@dataclass(frozen=True)
class Doctor:
    """Check which optional parts work on this machine, by using them."""

    def run(self) -> None:
        """Try each part; print what is missing and how to install it."""
        table = titled("anyreward doctor", ("part", "works", "details"))
        for name, works, seen in check_parts():
            table.add_row(name, "yes" if works else "no", escape(seen))
        Console().print(table)


@dataclass(frozen=True)
class Selfcheck:
    """Try faults of every kind on this machine: killed runs, flipped bits, bad files, settings and environments.

    Exits with 1 if anything was lost, accepted in silence, or ended in a traceback.
    """

    scale: float = 0.01
    """Number of trials, relative to the full check, which takes about ten minutes on two cores."""
    seed: int = 0
    """Seed of all random numbers."""
    only: tuple[Name, ...] = ()
    """Only these checks."""
    minutes: float = 0.0
    """Also repeat training, asking and evaluating for this number of minutes, to see whether memory grows."""
    json: Path | None = None
    """Also write the results to this file."""

    def run(self) -> None:
        """Run the checks, and print one table."""
        table = titled("anyreward selfcheck", ("fault", "tried", "survived", "lost or wrong", ""))
        results = []
        for result in run_checks(self.scale, self.seed, self.only, self.minutes):
            results.append(result)
            print(f"{result.fault}: {result.tried:,} tried, {result.failed:,} failed", flush=True)
            survived, notes = f"{result.tried - result.failed:,}", "; ".join([*result.failures, result.note])
            table.add_row(result.fault, f"{result.tried:,}", survived, f"{result.failed:,}", escape(notes.strip("; ")))
        Console().print(table)
        if self.json is not None:
            write_json(self.json, {"scale": self.scale, "seed": self.seed, "checks": [asdict(r) for r in results]})
        if any(result.failed for result in results):
            raise SystemExit(1)


@dataclass(frozen=True)
class Demo:
    """Train in the four rooms in a few seconds, then show the policies for three rewards not seen in training."""

    out: Path = Path("demo")
    """Folder for the agent and the picture."""
    updates: int = UPDATES
    """Gradient updates."""
    seed: int = 0
    """Seed of all random numbers."""

    def run(self) -> None:
        """Run the demo."""
        run_demo(self.out, self.updates, self.seed)
