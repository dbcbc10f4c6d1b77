"""Train an agent in an environment without reward, then get its policy for any reward at once."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from anyreward.cli.asking import Ask
from anyreward.cli.comparing import Compare
from anyreward.cli.evaluating import Evaluate
from anyreward.cli.playing import Export, Play
from anyreward.cli.showing import Show
from anyreward.cli.theory import Theory
from anyreward.cli.tools import Bench, Demo, Doctor, Selfcheck
from anyreward.cli.training import Resume, Train, options
from anyreward.errors import UserError
from anyreward.learning.methods import METHODS
from anyreward.learning.settings import BOX, RunSettings, preset, split_changes
from anyreward.storage import user_path
from anyreward.worlds.world import NAMED, open_world


def _parse(arguments: Sequence[str]) -> Any:
    # The preset and the world decide the defaults that --help shows, so they are looked up before parsing.
    joined = " ".join(arguments).replace("=", " ").split()
    named, method = (
        joined[joined.index(name) + 1] if name in joined[:-1] else default
        for name, default in (("--preset", "fast"), ("--method", "fb"))
    )
    chosen = {"method": method} if method in METHODS else {}
    words = [word for before, word in itertools.pairwise(joined) if before not in ("--out", "--replay-file")]
    world = next((word for word in words if word in NAMED or word in NAMED.values()), None)
    own = open_world(world).settings_for(method) if world and joined[0] == "train" else {}
    of_settings, of_run = split_changes({**own, **chosen})
    s = preset(named if named in BOX else "fast", **of_settings)
    start = Train(tyro.MISSING, s, RunSettings(**of_run), options=options(arguments))
    commands = Union[  # noqa: UP007 (tyro takes a Union value)
        Annotated[Train, tyro.conf.subcommand(default=start)],
        Resume,
        Ask,
        Show,
        Play,
        Export,
        Evaluate,
        Compare,
        Theory,
        Bench,
        Doctor,
        Selfcheck,
        Demo,
    ]
    return tyro.cli(commands, args=arguments, prog="anyreward", description=__doc__)


def _with_home(command: Any) -> Any:
    """The command with ``~`` replaced by the home folder in all its paths: a shell leaves it in --out=~/runs."""
    changes: dict[str, Any] = {}
    for name, value in vars(command).items():
        if isinstance(value, Path):
            changes[name] = user_path(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Path):
            changes[name] = tuple(map(user_path, value))
    return replace(command, **changes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a mistake of the user gives a message on stderr and exit code 2."""
    try:
        _with_home(_parse(sys.argv[1:] if arguments is None else arguments)).run()
    except UserError as error:
        print(f"anyreward: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("anyreward: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a file that cannot be written or read, or a full disk
        print(f"anyreward: {error}", file=sys.stderr)
        return 2
    return 0
