"""metrics.jsonl: every column is documented, and the diagnostics are what the page says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

import anyreward as ar
from anyreward.learning.batch import draw, with_z
from anyreward.learning.collect import Collector
from anyreward.learning.loop import begin, learn
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunChanges, RunSettings, SettingChanges, Settings
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model.losses import boltzmann
from anyreward.storage.metrics import read_metrics
from anyreward.training.train import untrained
from anyreward.worlds.stepping import opened
from tests.conftest import TINY

DOCUMENTED = set(re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()))
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "networks": ("four-rooms", {}),
    "tables": ("four-rooms", {"landmarks": 128, "dim": 0}),
    "goal-dqn": ("four-rooms", {"method": "goal-dqn-her"}),
    "successor features": ("four-rooms", {"method": "successor-features", "warmup_steps": 500}),
    "goals that are played": ("continuous-maze", {"encoding": "plain"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_column_is_documented_and_finite(name: str, tmp_path: Path) -> None:
    world, changes = RUNS[name]
    ar.train(world, out=tmp_path, **{**TINY, "updates": 80, "evaluate_every": 40, **changes})
    lines = read_metrics(tmp_path)
    assert [line["updates"] for line in lines] == [40, 80]
    for line in lines:
        assert set(line) <= DOCUMENTED, set(line) - DOCUMENTED
        assert all(math.isfinite(value) for value in line.values())
        assert line["updates_per_second"] == pytest.approx(line["updates"] / line["seconds"])
    if name == "networks":
        assert {"F_norm", "B_off_diagonal", "policy_entropy", "F_gradient_norm", "B_gradient_norm"} <= set(lines[0])


def test_the_diagnostics_by_hand() -> None:
    """Against sums over the rows of a minibatch."""
    s = ar.preset("paper", hidden=16, dim=5, batch_size=24, updates=40, temperature=3.0)
    agent = untrained(ar.open_world("four-rooms"), s)
    model, replay, random = agent.model, Replay(1_000), torch.Generator().manual_seed(0)

    with opened(ar.open_world("four-rooms"), 4) as stepper:
        replay.add(Collector(stepper, model.phi, 0).collect(400))
    batch = with_z(draw(model, replay, s, 1, random), model, replay, s, random).each()[0]
    learner = Learner(model.F, model.B)
    with torch.no_grad():
        every = model.F(batch.x, batch.shown_z)
        F = every[torch.arange(24), batch.actions]
        B = model.B(batch.g)[-len(batch.second) :]
        Q = torch.einsum("bad,bd->ba", every, batch.z)
        pi = boltzmann(Q, s.temperature)
    targets = bellman_targets(learner, batch._replace(**{k: v[None] for k, v in batch._asdict().items()}), 3.0).each()
    report = update(learner, batch, targets[0], 1.0, 0.0, tau=3.0)  # a learning rate of zero changes nothing
    found = {name: float(value) for name, value in report.diagnostics().items()}
    covariance = sum(w * torch.outer(b, b) for w, b in zip(batch.second, B, strict=True))
    off = [float(covariance[i, j]) ** 2 for i in range(5) for j in range(5) if i != j]
    gradients = {
        name: math.sqrt(sum(float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None))
        for name, network in (("F", model.F), ("B", model.B))
    }
    expected = {
        "F_norm": float(F.norm(dim=1).mean()),
        "B_norm": sum(float(w * b.norm()) for w, b in zip(batch.second, B, strict=True)),
        "B_diagonal": float(covariance.diagonal().mean()),
        "B_off_diagonal": math.sqrt(sum(off) / len(off)),
        "q_mean": float((F * batch.z).sum(1).mean()),
        "q_std": float((F * batch.z).sum(1).std(correction=0)),
        "policy_entropy": float(-(pi * pi.log()).sum(1).mean()),
        "F_gradient_norm": gradients["F"],
        "B_gradient_norm": gradients["B"],
    }
    assert found == pytest.approx(expected, rel=1e-4)
    assert min(gradients.values()) > 0


def test_the_loop_reports_what_is_logged() -> None:
    s = ar.preset("fast", landmarks=0, hidden=16, dim=5, batch_size=24, updates=40)
    agent = untrained(ar.open_world("four-rooms"), s)

    with opened(ar.open_world("four-rooms"), 4) as stepper:
        collector = Collector(stepper, agent.model.phi, 0)
        done, report = next(learn(begin(agent.model, Replay(1_000), s), collector))
    assert done == 40
    assert set(report.losses()) == {"bellman_loss", "orthonormality_loss"}
    assert float(report.diagnostics()["policy_entropy"]) <= math.log(5) + 1e-6


def test_completion_knows_every_setting() -> None:
    """`train` and `resume` take keywords by these types."""
    every = set(get_type_hints(Settings)) | set(get_type_hints(RunSettings))
    assert set(SettingChanges.__annotations__) == every - {"features"}  # an argument of its own
    assert set(RunChanges.__annotations__) == set(get_type_hints(RunSettings)) | {"replay_size"}
