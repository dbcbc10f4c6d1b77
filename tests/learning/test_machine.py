"""Threads, devices and compilation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import anyreward as ar
from anyreward.learning.batch import Batch, draw, with_z
from anyreward.learning.fast.compiled import compiled_updates, load_updates
from anyreward.learning.machine import open_device, threads, threads_for, threads_of_one, update_flop
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model import Backward, Forward
from anyreward.model.networks import Bias, GoalInput
from anyreward.tools.bench import prepared
from tests.conftest import needs_compiler

SMALL = {"landmarks": 0, "dim": 8, "hidden": 16, "batch_size": 16, "updates": 80, "environments": 2, "progress": False}


def drawn(agent: ar.Agent, replay: Replay, s: ar.Settings) -> Batch:
    """Five minibatches, always the same."""
    random = torch.Generator().manual_seed(0)
    return with_z(draw(agent.model, replay, s, 5, random), agent.model, replay, s, random)


def weights(agent: ar.Agent) -> list[torch.Tensor]:
    return [*agent.model.F.parameters(), *agent.model.B.parameters()]


def test_threads_follow_the_work() -> None:
    four_rooms = update_flop(
        Forward(121, 5, 100, 256, 3, True), Backward(121, 100, 256, 3, True), ar.preset("fast", dim=100)
    )
    assert threads_for(four_rooms, 1) == 1
    assert threads_for(four_rooms, 2) == 2
    assert 2 < threads_for(four_rooms, 64) < 16
    assert threads_for(100 * four_rooms, 64) == 64
    assert threads_for(10, 64) == 1


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    ar.train("four-rooms", threads=1, **SMALL)
    assert torch.get_num_threads() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_device_is_said() -> None:
    with pytest.raises(ar.UserError, match="sees no CUDA device"):
        ar.train("four-rooms", device="cuda", **SMALL)
    with pytest.raises(ar.UserError, match="accepted: cpu, cuda"):
        ar.train("four-rooms", device="gpu", **SMALL)
    assert open_device("cpu").type == "cpu"


@pytest.mark.parametrize("kind", ["categories", "numbers"])
@pytest.mark.parametrize("what", ["F and B", "B is given", "with a bias"])
def test_an_update_stays_on_its_device(kind: str, what: str) -> None:
    """On the device `meta` nothing is computed, but an operation that mixed in a CPU tensor would raise."""
    n, b, d, m = 3, 6, 7, 5
    meta = {"device": "meta"}
    if kind == "categories":
        x, g = torch.zeros(n, b, 1, dtype=torch.int64, **meta), torch.zeros(m, 1, dtype=torch.int64, **meta)
        g, share = g.expand(n, -1, -1), torch.empty(n, m, **meta)
    else:
        x, g, share = torch.empty(n, b, 7, **meta), torch.empty(n, 2 * b, 7, **meta), torch.empty(n, b, **meta)
    whole = torch.zeros(n, b, dtype=torch.int64, **meta)
    z = torch.empty(n, b, d, **meta)
    group = Batch(x, whole, whole[:, :0], x, torch.empty(n, b, **meta), z, z, g, whole, share, share)
    F, B = Forward(7, 3, d, 8, 2, True).to("meta"), Backward(7, d, 8, 2, True).to("meta")
    bias = Bias(7, 7, d, 8, 2, True).to("meta") if what == "with a bias" else None
    learner = Learner(F, GoalInput(d) if what == "B is given" else B, bias)  # GoalInput: a B without parameters
    learner.BB = torch.empty(d, d, **meta) if what == "B is given" else None
    learner.networks.step = lambda rate: None  # type: ignore[method-assign]  # fused Adam has no meta kernel
    targets = bellman_targets(learner, group, 200.0)
    for batch, target in zip(group.each(), targets.each(), strict=True):
        report = update(learner, batch, target, 1.0, learning_rate=1e-3)
        for metrics in (report.losses(), report.diagnostics()):
            assert metrics
            assert all(metric.device.type == "meta" for metric in metrics.values())


@pytest.fixture
def fresh_load() -> Iterator[None]:
    """As in a process that has not tried to load the compiled updates yet."""
    load_updates.cache_clear()
    yield
    load_updates.cache_clear()


@pytest.mark.usefixtures("fresh_load")
def test_no_compiler_is_said_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler") as said:
        agents = [ar.train("four-rooms", compile=True, **SMALL) for _ in range(2)]
    assert len(said) == 1
    plain = ar.train("four-rooms", **SMALL)
    assert all(torch.equal(a, b) for a, b in zip(weights(agents[1]), weights(plain), strict=True))


@pytest.mark.usefixtures("fresh_load")
def test_a_compiler_that_fails_is_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "failing-compiler"
    failing.write_text("#!/bin/sh\necho 'updates.cpp:1: error: no such luck' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match="no such luck"):
        ar.train("four-rooms", compile=True, **SMALL)
    assert list((tmp_path / "cache" / "anyreward").iterdir()) == []


@pytest.mark.usefixtures("fresh_load")
@needs_compiler
def test_compiling_happens_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_updates()
    capsys.readouterr()
    load_updates.cache_clear()  # another process, later
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("compiled again"))
    assert load_updates()
    assert "Compiling" not in capsys.readouterr().err


@needs_compiler
@pytest.mark.parametrize("preset", ["paper", "fast"])
def test_compiled_runs_repeat_themselves_on_any_threads(preset: str) -> None:
    """Which thread computes a target is left to chance; the numbers are not."""
    options = {**SMALL, "preset": preset, "seed": 3}
    runs = [ar.train("four-rooms", compile=True, threads=count, **options) for count in (1, 2, 2, 2)]
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(weights(runs[0]), weights(run), strict=True))
    plain = ar.train("four-rooms", **options)
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(weights(plain), weights(runs[0]), strict=True))


@needs_compiler
def test_an_error_on_either_thread_is_raised_and_training_can_go_on() -> None:
    s = ar.preset("fast", landmarks=0, dim=8, hidden=16, batch_size=16)
    agent, replay, _, collector = prepared(ar.open_world("four-rooms"), s)
    replay.add(collector.collect(200))
    with threads(1):
        run = compiled_updates(Learner(agent.model.F, agent.model.B), two_threads=True)
        group = drawn(agent, replay, s)
        for field in ("x", "g"):  # F's side, and B's
            wrong = group._replace(**{field: torch.full_like(getattr(group, field), 1_000)})
            with pytest.raises((IndexError, RuntimeError), match="out of range"):
                run(wrong, [1e-3] * 5, 200.0, 1.0)
        assert torch.isfinite(run(group, [1e-3] * 5, 200.0, 1.0).losses()["bellman_loss"])


@needs_compiler
def test_what_cannot_be_compiled_is_said() -> None:
    for changes in ({"first_step": 1}, {"bias": True}, {"method": "successor-features"}, {"method": "goal-dqn"}):
        with pytest.raises(ar.UserError, match="Turn compile off"):
            ar.train("four-rooms", compile=True, **SMALL, **changes)
    F, B = Forward(7, 3, 4, 8, 2, True, image=(4, 84, 84)), Backward(7, 4, 8, 2, True)
    for learner in (Learner(F, B), Learner(Forward(7, 3, 4, 8, 2, True), GoalInput(7))):
        with pytest.raises(ar.UserError, match=r"only fully connected networks are compiled.* Turn compile off"):
            compiled_updates(learner, two_threads=False)


def test_half_of_the_threads_are_for_each_side() -> None:
    assert threads_of_one(RunSettings(threads=2)) == 2
    assert threads_of_one(RunSettings(threads=1, compile=True)) == 1
    assert threads_of_one(RunSettings(threads=2, compile=True)) == 1
    assert threads_of_one(RunSettings(threads=6, compile=True)) == 3


def test_elsewhere_the_order_of_actions_is_not_read() -> None:
    """Without counts, as on CUDA, F runs for all actions and the gradients are the same."""
    world = ar.open_world("four-rooms")
    s = ar.preset("fast", landmarks=0, dim=8, hidden=16, batch_size=16)
    results = []
    for counted in (True, False):
        agent, replay, _, collector = prepared(world, s)
        replay.add(collector.collect(200))
        learner = Learner(agent.model.F, agent.model.B)
        group = drawn(agent, replay, s)
        if not counted:
            group = group._replace(counts=group.counts[:, :0])
        targets = bellman_targets(learner, group, 200.0)
        for batch, target in zip(group.each(), targets.each(), strict=True):
            update(learner, batch, target, 1.0, learning_rate=1e-3)
        results.append(learner.networks.flat.detach().clone())
    assert torch.allclose(*results, atol=1e-5)
