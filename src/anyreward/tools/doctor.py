"""Check which optional parts work on this machine, by using them."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.figures.maze import pyplot
from anyreward.learning.fast.compiled import build_command
from anyreward.storage.files import available_memory
from anyreward.storage.metrics import MetricsLog
from anyreward.worlds.fetch_reach import check_mujoco
from anyreward.worlds.ms_pacman import check_ale


def check_parts() -> Iterator[tuple[str, bool, str]]:
    """The name of each part, whether it works, and details or what to do."""
    for name, check in PARTS.items():
        try:
            yield name, True, check()
        except UserError as error:
            yield name, False, str(error)
        except Exception as error:  # installed but broken: show the user any error
            yield name, False, f"{type(error).__name__}: {error}".splitlines()[0]


def _core() -> str:
    memory = available_memory() / 2**30
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, gymnasium {gym.__version__}, "
        f"{os.cpu_count()} cores, {memory:.0f} GiB free"
    )


def _compiler() -> str:
    command = build_command()
    if command is None:
        raise UserError("no C++ compiler: install g++ or clang++, or set CXX (training works without one, more slowly)")
    smallest = [command[0], "-x", "c++", "-std=c++20", "-fsyntax-only", "-"]
    outcome = subprocess.run(smallest, input="#include <vector>\nint main() {}\n", capture_output=True, text=True)
    if outcome.returncode != 0:
        raise UserError(f"{command[0]} does not compile C++20: {outcome.stderr.strip().splitlines()[-1]}")
    return f"{command[0]} compiles C++20 (--compile builds the updates once)"


def _cuda() -> str:
    if not torch.cuda.is_available():
        raise UserError("PyTorch sees no CUDA device; everything runs on the CPU")
    return torch.cuda.get_device_name()


def _step(identity: str) -> str:
    env = gym.make(identity)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()
    return "one step taken"


def _picture() -> str:
    env = gym.make("anyreward/FetchReach-v0", render_mode="rgb_array")
    env.reset(seed=0)
    image = np.asarray(env.render())
    env.close()
    if image.std() == 0:
        raise UserError("the picture is empty; try MUJOCO_GL=egl (libegl1) or MUJOCO_GL=osmesa (libosmesa6)")
    return f"a picture of {image.shape[1]} x {image.shape[0]} (MUJOCO_GL={os.environ.get('MUJOCO_GL', 'not set')})"


def _figures() -> str:
    plt = pyplot()
    plt.close(plt.figure())
    return f"matplotlib {metadata.version('matplotlib')}"


def _datasets() -> str:
    try:
        for name in ("minari", "h5py"):
            import_module(name)
        return f"minari {metadata.version('minari')}, h5py {metadata.version('h5py')}"
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed: pip install 'anyreward[datasets]'") from None


def _tensorboard() -> str:
    with tempfile.TemporaryDirectory() as folder, MetricsLog(Path(folder), tensorboard=True) as log:
        log.write({"updates": 1, "one": 1.0})
    return f"tensorboard {metadata.version('tensorboard')}"


def _playground() -> str:
    needed = ("fastapi", "uvicorn", "websockets")
    try:
        for name in needed:
            import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed: pip install 'anyreward[play]'") from None
    return ", ".join(f"{name} {metadata.version(name)}" for name in needed)


PARTS: dict[str, Callable[[], str]] = {
    "core": _core,
    "compiled updates": _compiler,
    "CUDA": _cuda,
    "FetchReach": lambda: f"{check_mujoco()}; {_step('anyreward/FetchReach-v0')}",
    "FetchReach, pictures": _picture,
    "Ms. Pacman": lambda: f"{check_ale()}; {_step('anyreward/MsPacman-v0')}",
    "figures": _figures,
    "datasets": _datasets,
    "TensorBoard": _tensorboard,
    "playground": _playground,
}
