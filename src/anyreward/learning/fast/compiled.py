"""Compiled updates: `updates.cpp`, built once with the machine's C++ compiler and cached for later runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anyreward.errors import UserError
from anyreward.learning.batch import Batch
from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.method import Report
from anyreward.learning.update import Learner, Targets, Updates, diagnostics, losses
from anyreward.model.networks import Backward, Forward

SOURCE = Path(__file__).with_name("updates.cpp")


def compiled_updates(learner: Learner, two_threads: bool) -> Updates:
    """The compiled version of `update.updates` for a learner; results differ by rounding only.

    With ``two_threads`` F and B are updated in parallel, each with the number of threads that PyTorch is set to.
    """
    F, B = learner.F, learner.B
    plain = learner.bias is None and learner.first_step == 0
    if not isinstance(F, Forward) or F.conv is not None or not isinstance(B, Backward) or not plain:
        raise UserError(
            "compile is on, but only fully connected networks are compiled: no images, no bias, first_step = 0. Turn "
            "compile off, or change those."
        )
    if not load_updates():
        raise UserError("compile is on, but the updates could not be compiled; see the warning. Turn compile off.")
    size = sum(p.numel() for p in F.parameters())
    flat = learner.networks
    networks = (
        *_network(flat, F, learner.F_target, slice(None, size)),
        *_network(flat, B, learner.B_target, slice(size, None)),
    )
    eps = next((m.eps for m in F.modules() if isinstance(m, nn.LayerNorm)), 0.0)
    shape = (eps, sum(isinstance(layer, nn.Linear) for layer in F.net), F.action_input)

    def run(group: Batch, learning_rates: Sequence[float], temperature: float, orthonormality: float) -> Report:
        F_last, B_last, F_next, B_target = torch.ops.anyreward.updates(
            *networks, flat.count, *shape, two_threads, *group, list(learning_rates), temperature, orthonormality
        )
        flat.count += len(learning_rates)
        batch = group.each()[-1]
        return Report(
            partial(losses, learner, F_last, B_last, batch, Targets(F_next, B_target)),
            partial(diagnostics, learner, F_last, B_last, batch, temperature),
        )

    return run


def _network(flat: FlatNetworks, network: nn.Module, target: nn.Module, part: slice) -> list[Any]:
    """The arguments of one network: its parameters, gradients and target, and Adam on its part of flat memory."""
    return [
        [p.detach() for p in network.parameters()],
        [p.grad for p in network.parameters()],
        [p.detach() for p in target.parameters()],
        [state[part] for state in (flat.flat, flat.gradient, flat.mean, flat.square)],
    ]


@cache
def load_updates() -> bool:
    """Load the compiled operation, and build it first if needed; if that fails, warns and returns False."""
    command = build_command()
    if command is None:
        _say("there is no C++ compiler here (set CXX, or install g++ or clang++)")
        return False
    determines = "\0".join([SOURCE.read_text(), torch.__version__, sys.platform, *command])
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anyreward"
    built = cached / f"updates-{hashlib.sha256(determines.encode()).hexdigest()[:16]}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        print("Compiling the updates, once for this machine; it takes about half a minute.", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            fresh = Path(folder) / built.name
            outcome = subprocess.run([*command, "-o", str(fresh)], capture_output=True, text=True)
            if outcome.returncode != 0:
                first = next((line for line in outcome.stderr.splitlines() if "error" in line), "no message")
                _say(f"the compiler failed: {first}")
                return False
            os.replace(fresh, built)  # atomic, in case another process compiles too
    torch.ops.load_library(built)  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    return True


def build_command() -> list[str] | None:
    """The command that compiles `updates.cpp`, without the output file; None without a C++ compiler."""
    named = os.environ.get("CXX")
    found = [name for name in ([named] if named else ["g++", "clang++", "c++"]) if shutil.which(name)]
    if not found or sys.platform == "win32":
        return None
    torch_folder = Path(torch.__file__).parent
    return [
        found[0],
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-w"),
        *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-isystem{torch_folder / 'include'}",
        f"-isystem{torch_folder / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
        str(SOURCE),
        *(f"-L{torch_folder / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"),
    ]


def _say(why: str) -> None:
    warnings.warn(f"compile is on, but {why}: running without it.", stacklevel=2)
