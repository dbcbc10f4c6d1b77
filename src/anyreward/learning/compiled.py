"""The updates compiled: `updates.cpp`, built once with the machine's own C++ compiler and kept for all later runs."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

from anyreward.errors import UserError
from anyreward.learning.update import Batch, Learner, Losses, Targets, losses
from anyreward.representation.networks import Backward, Forward

SOURCE = Path(__file__).with_name("updates.cpp")


def compiled_updates(
    learner: Learner, F: nn.Module, B: nn.Module, two_threads: bool
) -> Callable[[Batch, Sequence[float], float, float], Losses]:
    """`update.updates` of a fresh learner of F and B, compiled: the same but for rounding.

    With ``two_threads`` F and B learn on a thread each, and each of the two uses as many threads as PyTorch is set to.
    """
    ours = isinstance(F, Forward) and F.eyes is None and isinstance(B, Backward)
    if not ours or learner.averages or learner.bfloat16:
        raise UserError(
            "compile is on, but on a CPU only minibatches (not pairs='average'), float32 (not bfloat16) and the fully "
            "connected networks of `make_representation` (not images) are compiled. Turn compile off, or change those."
        )
    assert isinstance(F, Forward)
    if not load_updates():
        raise UserError("compile is on, but the updates could not be compiled; see the warning. Turn compile off.")
    optimiser, size = learner.optimiser, sum(p.numel() for p in F.parameters())
    eps = next((m.eps for m in F.modules() if isinstance(m, nn.LayerNorm)), 0.0)
    deep = sum(isinstance(layer, nn.Linear) for layer in F.net)
    networks = []
    for network, target, part in (
        (F, learner.F_target, slice(None, size)),
        (B, learner.B_target, slice(size, None)),
    ):
        parameters = [p.detach() for p in network.parameters()]
        gradients = [p.grad for p in network.parameters()]
        still = [p.detach() for p in target.parameters()]
        vectors = (optimiser.flat, optimiser.gradient, optimiser.mean, optimiser.square)
        adam = [*(vector[part] for vector in vectors), optimiser.count.clone()]
        networks += [parameters, gradients, still, adam]

    def run(group: Batch, learning_rates: Sequence[float], temperature: float, orthonormality: float) -> Losses:
        F_last, B_last, F_next, B_target = torch.ops.anyreward.updates(
            *networks,
            list(group),
            list(learning_rates),
            temperature,
            orthonormality,
            eps,
            deep,
            F.action_input,
            two_threads,
        )
        return partial(losses, F_last, B_last, group.each()[-1], Targets(F_next, B_target))

    return run


@functools.cache
def load_updates() -> bool:
    """Build the operation unless that was done before, and load it; says why where that cannot be done."""
    command = build_command()
    if command is None:
        _say("there is no C++ compiler here (set CXX, or install g++ or clang++)")
        return False
    built = _cache() / f"updates-{_fingerprint(command)}.so"
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
            os.replace(fresh, built)  # whole or not at all, whoever else compiles at the same time
    torch.ops.load_library(built)  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    return True


def build_command() -> list[str] | None:
    """How `updates.cpp` is compiled here, but for where the result goes; None without a C++ compiler."""
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


def _fingerprint(command: list[str]) -> str:
    parts = [SOURCE.read_text(), torch.__version__, sys.platform, *command]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anyreward"


def _say(why: str) -> None:
    warnings.warn(f"compile is on, but {why}: running without it.", stacklevel=2)
