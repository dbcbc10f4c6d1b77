"""Load on the playground's server: clients that drag a painted spot, each as fast as its answers come.

    python benchmarks/playground_load.py                        # two minutes; close other programs
    python benchmarks/playground_load.py --seconds 2 3 --json /tmp/load.json

A server in a process of its own, `anyreward play`; 20 clients for 30 seconds, then 200 clients for 60 seconds, all over
the loopback interface, each on one connection. The clients run on the same cores as the server. Reports requests,
responses by status, errors of connections, latencies, and the memory of the server. Results:
benchmarks/results/playground/load.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "playground" / "load.json"
CLIENTS = (20, 200)
PATIENCE = 60.0
"""Seconds after which a request counts as an error."""
PLACES = 60
"""Places of the spot along its circle."""


@dataclass
class Client:
    """One connection over which requests are sent, one after the other."""

    port: int
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> int:
        """Send JSON and read the response; counts its status, or the error (then the status is 0)."""
        since = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                status = await self._exchange(path, body)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            self.statuses[type(error).__name__] += 1
            await self.close()
            return 0
        self.seconds.append(time.perf_counter() - since)
        self.statuses[str(status)] += 1
        return status

    async def _exchange(self, path: str, body: bytes) -> int:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        host = f"127.0.0.1:{self.port}"
        lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", answer)
        await self._reader.readexactly(int(length[1]) if length else 0)
        if "connection: close" in answer:
            await self.close()
        return int(answer.split()[1])

    async def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None


def spots(scene: dict[str, Any]) -> list[bytes]:
    """Tasks whose reward is a painted spot at places along a circle."""
    width, height = scene["grid"]["width"], scene["grid"]["height"]
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    tasks = []
    for angle in np.linspace(0, 2 * np.pi, PLACES, endpoint=False):
        paint = np.exp(-((x - 0.6 * np.cos(angle)) ** 2 + (y - 0.6 * np.sin(angle)) ** 2) / 0.05).ravel().round(3)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], paint > 0, [False]])))
        runs = [[int(a), *paint[a:b].tolist()] for a, b in edges.reshape(-1, 2)]
        tasks.append(json.dumps({"terms": [{"kind": "paint", "runs": runs, "weight": 1.0}]}).encode())
    return tasks


async def drag(port: int, path: str, tasks: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Many clients at once, for a time; what they have seen."""
    until = time.perf_counter() + seconds

    async def one(client: Client, place: int) -> None:
        while time.perf_counter() < until:
            await client.post(path, tasks[place % PLACES])
            place += 1
        await client.close()

    all_clients = [Client(port) for _ in range(clients)]
    since = time.perf_counter()
    await asyncio.gather(*(one(client, 7 * i) for i, client in enumerate(all_clients)))
    took = time.perf_counter() - since
    statuses = sum((client.statuses for client in all_clients), Counter[str]())
    latencies = 1000 * np.array([latency for client in all_clients for latency in client.seconds] or [np.nan])
    median, p95, p99 = np.percentile(latencies, [50, 95, 99])
    return {
        "clients": clients,
        "seconds": round(took, 2),
        "requests": sum(statuses.values()),
        "per_second": round(sum(statuses.values()) / took, 1),
        "statuses": dict(statuses),
        "status_5xx": sum(number for status, number in statuses.items() if re.fullmatch(r"5\d\d", status)),
        "errors": sum(number for status, number in statuses.items() if not status.isdigit()),
        "fewest_of_a_client": min(len(client.seconds) for client in all_clients),
        "latency_ms": {"median": round(median, 2), "p95": round(p95, 2), "p99": round(p99, 2)},
        "slowest_ms": round(float(latencies.max()), 2),
    }


def memory(pid: int) -> float | None:
    """The resident memory of a process in MiB; None where the system does not tell."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return round(int(found[1]) / 1024, 1) if found else None


@contextmanager
def server(log: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`anyreward play` in a process of its own, and its port."""
    command = [sys.executable, "-m", "anyreward", "play", "--no-browser", "--runs", str(log.parent / "no-runs")]
    with log.open("w") as errors:
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            assert process.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert address is not None, log.read_text()
            yield process, int(address[1])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def read(port: int, path: str) -> Any:
    """JSON of the server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as response:
        return json.load(response)


def measure(name: str, seconds: list[float]) -> dict[str, Any]:
    """All phases with one agent that comes with the package."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with server(log) as (process, port):
            identity = next(one["id"] for one in read(port, "/api/agents")["agents"] if one["shipped"] == name)
            tasks = spots(read(port, f"/api/agents/{identity}"))
            path = f"/api/agents/{identity}/answer"
            asyncio.run(drag(port, path, tasks, 2, 1.0))  # what is made once
            phases, mebibytes = [], [memory(process.pid)]
            for clients, duration in zip(CLIENTS, seconds, strict=True):
                phases.append(asyncio.run(drag(port, path, tasks, clients, duration)))
                mebibytes.append(memory(process.pid))
                assert process.poll() is None, f"the server ended with {process.returncode}: {log.read_text()}"
                print(json.dumps(phases[-1]), f"memory {mebibytes[-1]} MiB", flush=True)
            time.sleep(2)
            mebibytes.append(memory(process.pid))
        logged = log.read_text().splitlines()
    keys = ["before", *(f"after_{clients}" for clients in CLIENTS), "at_rest"]
    return {
        "agent": name,
        "phases": phases,
        "memory_mib": dict(zip(keys, mebibytes, strict=True)),
        "logged": logged[:20],
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agent", default="four-rooms", help="an agent that comes with the package")
    parser.add_argument("--seconds", type=float, nargs=2, default=[30.0, 60.0], help="duration of the two phases")
    parser.add_argument("--json", type=Path, default=RESULTS, help="file for the results")
    given = parser.parse_args()
    result = measure(given.agent, given.seconds)
    print("memory, MiB:", result["memory_mib"], "logged:", result["logged"])
    write_json(given.json, result)


if __name__ == "__main__":
    main()
