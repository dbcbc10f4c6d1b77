"""`anyreward train` and `anyreward resume`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from anyreward.folder import holds_agent
from anyreward.learning.datasets.sources import SUFFIXES
from anyreward.learning.settings import RunSettings, Settings
from anyreward.tools.sweep import train_seeds
from anyreward.training import resume, train


@dataclass(frozen=True)
class Train:
    """Train an agent without reward, in an environment or from a dataset. --method selects a baseline."""

    source: tyro.conf.Positional[str]
    """four-rooms, a Gymnasium id, a maze drawing (.txt), or a dataset (.npz, .hdf5, a folder, minari:ID)."""
    settings: Annotated[Settings, tyro.conf.arg(name="")]
    run_settings: Annotated[RunSettings, tyro.conf.arg(name="")]
    preset: Literal["fast", "paper", "published"] = "fast"
    """Default values of the settings below. With continuous actions, some others are better: those that are not changed
    here get them (docs/continuous_actions.md). published: the size of the literature on continuous actions."""
    out: Path | None = None
    """The run folder. Without it: runs/SOURCE-PRESET-seedSEED."""
    overwrite: bool = False
    """Replace an existing agent in the run folder."""
    tensorboard: bool = False
    """Also write TensorBoard events; metrics.jsonl is always written."""
    minutes: float | None = None
    """Stop after this number of minutes. `anyreward resume` continues the run."""
    seeds: tuple[int, ...] = ()
    """Train with each of these seeds, in parallel processes and separate folders (instead of --seed)."""
    options: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """The names of the options on the command line; see `options`."""

    def run(self) -> None:
        """Train, and print the folder of the agent."""
        name = Path(self.source).stem if Path(self.source).suffix in (".txt", *SUFFIXES) else self.source
        slug = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        method = "" if self.settings.method == "fb" else f"-{self.settings.method}"
        name = f"{slug}{method}-{self.preset}-seed"
        if self.seeds:
            root = self.out / "seed" if self.out else Path("runs") / name
            folders = {seed: Path(f"{root}{seed}") for seed in self.seeds}
        else:
            folders = {self.settings.seed: self.out or Path("runs") / f"{name}{self.settings.seed}"}
        names = ("overwrite", "tensorboard", "minutes", "preset")
        options: dict[str, Any] = {name: getattr(self, name) for name in names} | self._given()
        try:
            if self.seeds:
                train_seeds(self.source, self.settings, self.run_settings, folders, **options)
            else:
                (out,) = folders.values()
                agent = train(self.source, run=self.run_settings, out=out, **options)
                if agent.model.landmarks is not None:
                    print(agent.model.landmarks.describe())
        except (KeyboardInterrupt, SystemExit) as error:
            raise _stopped(list(folders.values()), error) from None
        print("Agents:" if self.seeds else "Agent:", ", ".join(map(str, folders.values())))

    def _given(self) -> dict[str, Any]:
        """The settings that were given as options; the others are chosen by `train`, which knows the source."""
        names = [field.name for field in fields(Settings)]
        return {name: getattr(self.settings, name) for name in names if {name, f"no_{name}"} & set(self.options)}


def options(arguments: Sequence[str]) -> tuple[str, ...]:
    """The names of the options among the words of a command line, as they are written in Python."""
    words = (word.split("=")[0].split(".")[0] for word in arguments if word.startswith("--"))
    return tuple(word.lstrip("-").replace("-", "_") for word in words)


@dataclass(frozen=True)
class Resume:
    """Continue a training run that was stopped, or train for longer.

    Options that are not given keep the values of the run.
    """

    run_folder: tyro.conf.Positional[Path]
    """The run's folder."""
    updates: int | None = None
    """New total number of updates."""
    source: str | None = None
    """The dataset of the run, if it was trained on one."""
    tensorboard: bool = False
    """Also write TensorBoard events."""
    minutes: float | None = None
    """Stop after this number of minutes."""
    replay_size: int | None = None
    """New capacity of the replay buffer, in transitions."""
    replay_file: str | None = None
    """For images only: new file for the frames of the replay buffer."""
    threads: int | None = None
    """New number of CPU threads (0: chosen by the cost of an update)."""
    device: str | None = None
    """New device: cpu or cuda."""
    compile: bool | None = None
    """Whether to compile the updates."""
    environments: int | None = None
    """New number of environments that are stepped together."""
    evaluate_every: int | None = None
    """New number of updates between two lines of metrics."""
    save_every: float | None = None
    """New number of seconds between two saves."""
    step_timeout: float | None = None
    """New number of seconds after which a step of the environment counts as hanging (0: no limit)."""

    def run(self) -> None:
        """Continue training, and print the folder of the agent."""
        try:
            given: dict[str, Any] = {name: value for name, value in vars(self).items() if value is not None}
            resume(given.pop("run_folder"), **given)
        except (KeyboardInterrupt, SystemExit) as error:
            raise _stopped([self.run_folder], error) from None
        print("Agent:", self.run_folder)


def _stopped(folders: Sequence[Path], error: BaseException) -> SystemExit:
    """Say what was saved; the exit code is the conventional one, 128 + signal."""
    kept = [str(folder) for folder in folders if holds_agent(folder)]
    saved = f"the agent is saved in {', '.join(kept)}" if kept else "nothing was saved"
    again = f" To continue: anyreward resume {kept[0]}" if kept else ""
    print(f"anyreward: Stopped; {saved}.{again}", file=sys.stderr)
    return SystemExit(error.code if isinstance(error, SystemExit) else 128 + signal.SIGINT)
