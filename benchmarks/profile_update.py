"""Where the time of training goes: PyTorch's profiler over 200 updates of each preset.

python benchmarks/profile_update.py     # half a minute, on a quiet machine
"""

from __future__ import annotations

import time
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from anyreward.learning.loop import begin, learn
from anyreward.learning.settings import preset
from anyreward.storage.files import write_json
from anyreward.tools.bench import prepared
from anyreward.worlds.world import open_world

RESULTS = Path(__file__).parent / "results" / "profile.json"
CYCLES = 5
KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "dot"),
    "Adam": ("_fused_adam_",),
    "layer normalisation, ReLU": (
        "native_layer_norm",
        "native_layer_norm_backward",
        "threshold_backward",
        "clamp_min_",
    ),
    "bias gradients and other sums": ("sum", "mean"),
    "look-ups": ("index_select", "index_add_", "scatter_add_", "index", "embedding", "gather", "scatter_"),
    "drawing": ("randint", "random_", "normal_", "cauchy_", "rand", "uniform_", "randperm", "bincount", "sort"),
    "copies": ("copy_", "cat", "zero_", "fill_", "lerp_"),
}


def main() -> None:
    """Profile, print a table and write it."""
    shares: dict[str, dict[str, float]] = {}
    for name in ("fast", "paper"):
        s = preset(name, landmarks=0, dim=100)
        ready = prepared(open_world("four-rooms"), s)
        learning = learn(begin(ready.agent.model, ready.replay, s), ready.collector)
        with profile(activities=[ProfilerActivity.CPU]):  # the profiler itself must start up once
            next(learning)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            started = time.perf_counter()
            for _ in range(CYCLES):
                next(learning)
            total = time.perf_counter() - started
        own = {event.key.removeprefix("aten::"): event.self_cpu_time_total / 1e6 for event in profiler.key_averages()}
        share = {kind: sum(own.get(op, 0.0) for op in ops) / total for kind, ops in KINDS.items()}
        share["other operations, views"] = sum(own.values()) / total - sum(share.values())
        share["Python between operations, environment"] = 1 - sum(own.values()) / total
        shares[name] = share
    write_json(RESULTS, {"updates": CYCLES * s.updates_per_cycle, "share of the time": shares})
    print("| | `fast` | `paper` |\n| --- | --- | --- |")
    for kind in shares["fast"]:
        print(f"| {kind} |", " | ".join(f"{shares[name][kind]:.0%}" for name in ("fast", "paper")), "|")


if __name__ == "__main__":
    main()
