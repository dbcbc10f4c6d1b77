"""`anyreward train` and `anyreward resume`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from anyreward.errors import UserError
from anyreward.learning.settings import RunChanges, RunSettings, Settings
from anyreward.tools.sweep import train_seeds
from anyreward.training import resume, train


@dataclass(frozen=True)
class Train:
    """Learn a representation without reward, online in a world or offline from a dataset; or a baseline (--method)."""

    source: tyro.conf.Positional[str]
    """four-rooms, a Gymnasium id, a maze drawing (.txt), or a dataset (.npz, a Minari folder, minari:ID)."""
    settings: Annotated[Settings, tyro.conf.arg(name="")]
    run_settings: Annotated[RunSettings, tyro.conf.arg(name="")]
    preset: Literal["fast", "paper"] = "fast"
    """Default values of the settings below."""
    out: Path | None = None
    """The run folder (default: runs/SOURCE-PRESET-seedSEED)."""
    overwrite: bool = False
    """Replace an existing agent in the run folder."""
    tensorboard: bool = False
    """Also write TensorBoard events; metrics.jsonl is always written."""
    minutes: float | None = None
    """Stop after this time; `anyreward resume` continues the run."""
    seeds: tuple[int, ...] = ()
    """Train with each of these seeds, in parallel processes and separate folders (instead of --seed)."""

    def run(self) -> None:
        """Train, and print the folder of the agent."""
        name = Path(self.source).stem if Path(self.source).suffix in (".txt", ".npz") else self.source
        slug = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        method = "" if self.settings.method == "fb" else f"-{self.settings.method}"
        name = f"{slug}{method}-{self.preset}-seed"
        if self.seeds:
            root = self.out / "seed" if self.out else Path("runs") / name
            folders = {seed: Path(f"{root}{seed}") for seed in self.seeds}
        else:
            folders = {self.settings.seed: self.out or Path("runs") / f"{name}{self.settings.seed}"}
        try:
            if self.seeds:
                options: dict[str, Any] = {"tensorboard": self.tensorboard, "minutes": self.minutes}
                train_seeds(self.source, self.settings, self.run_settings, folders, self.overwrite, **options)
            else:
                out = folders[self.settings.seed]
                agent = train(
                    self.source,
                    settings=self.settings,
                    run=self.run_settings,
                    out=out,
                    overwrite=self.overwrite,
                    tensorboard=self.tensorboard,
                    minutes=self.minutes,
                )
                if agent.model.landmarks is not None:
                    print(agent.model.landmarks.describe())
        except KeyboardInterrupt:
            raise _stopped(list(folders.values())) from None
        print("Agents:" if self.seeds else "Agent:", ", ".join(map(str, folders.values())))


@dataclass(frozen=True)
class Resume:
    """Continue a training run that was stopped, or train for longer."""

    run_folder: tyro.conf.Positional[Path]
    """The run's folder."""
    updates: int | None = None
    """Total number of updates (default: that of the run's settings)."""
    source: str | None = None
    """The dataset of the run, if it was trained on one."""
    tensorboard: bool = False
    """Also write TensorBoard events."""
    minutes: float | None = None
    """Stop after this time."""
    replay_size: int | None = None
    """Capacity of the replay buffer, in transitions (default: as before)."""
    replay_file: str | None = None
    """Images only: new file for the frames of the replay buffer (default: as before)."""
    threads: int | None = None
    """CPU threads (default: as before)."""
    device: str | None = None
    """Where to train: cpu or cuda (default: as before)."""
    compile: bool | None = None
    """Whether to compile the updates (default: as before)."""
    environments: int | None = None
    """Environments that are stepped together (default: as before)."""
    evaluate_every: int | None = None
    """Updates between two lines of metrics (default: as before)."""

    def run(self) -> None:
        """Continue training, and print the folder of the agent."""
        try:
            given = {name: getattr(self, name) for name in RunChanges.__annotations__}
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            resume(
                self.run_folder,
                updates=self.updates,
                source=self.source,
                tensorboard=self.tensorboard,
                minutes=self.minutes,
                **changes,
            )
        except KeyboardInterrupt:
            raise _stopped([self.run_folder]) from None
        print("Agent:", self.run_folder)


def _stopped(folders: Sequence[Path]) -> UserError:
    kept = [str(folder) for folder in folders if (folder / "agent.json").exists()]
    saved = f"the agent is saved in {', '.join(kept)}" if kept else "nothing was saved"
    again = f" To continue: anyreward resume {kept[0]}" if kept else ""
    return UserError(f"Stopped; {saved}.{again}")
