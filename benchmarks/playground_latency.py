"""Latency of the playground in a browser: from a movement of the mouse to the redrawn picture, while dragging.

    python benchmarks/playground_latency.py        # two minutes; close other programs

In both homes of the page (served by `anyreward play`, and exported as one file), in the four rooms and the continuous
maze, a headless Chromium drags the brush in circles, 60 movements a second, for 15 seconds each. A movement that comes
while an answer is computed is drawn with the next one; its latency counts from its own time. Results:
benchmarks/results/playground/latency.json.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from anyreward.playground.export import export_page
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "playground" / "latency.json"
PORT = 8899
SECONDS = 15.0
LIMITS = {"four-rooms": 50.0, "continuous-maze": 100.0}
"""Largest 95th percentile, in milliseconds."""


def drag(browser: Browser, address: str, name: str) -> dict[str, Any]:
    """The latencies of a drag in circles."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    while not page.evaluate("Boolean(window.playground && window.playground.ready)"):
        page.wait_for_timeout(50)
    page.select_option("#agent", label=name)
    while page.evaluate("playground.engine.scene.shipped") != name:
        page.wait_for_timeout(50)
    box = page.locator("#world").bounding_box()
    assert box is not None
    page.wait_for_timeout(500)
    began, moves, down = time.monotonic(), 0, False
    while (at := time.monotonic() - began) < SECONDS:
        angle = 1.3 * at
        x = box["x"] + box["width"] * (0.5 + 0.35 * math.cos(angle) * math.cos(angle / 7))
        y = box["y"] + box["height"] * (0.5 + 0.35 * math.sin(angle))
        page.mouse.move(x, y)
        if not down:
            page.mouse.down()
            down = True
        moves += 1
        if at > 0 and moves % 150 == 0:  # begin again, with an empty picture
            page.mouse.up()
            page.click("#clear")
            down = False
        time.sleep(max(0.0, moves / 60 - (time.monotonic() - began)))
    page.mouse.up()
    latency = np.array(page.evaluate("playground.latency"))
    page.close()
    percentiles = {f"p{q}": round(float(np.percentile(latency, q)), 1) for q in (50, 95, 99)}
    return {"moves": moves, "drawn": len(latency), **percentiles, "limit": LIMITS[name]}


def main() -> None:
    """Measure both homes, and write the results."""
    found: dict[str, Any] = {}
    command = [sys.executable, "-m", "anyreward", "play", "--port", str(PORT), "--no-browser"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        exported = Path(folder) / "page.html"
        export_page([Path(f"shipped:{name}") for name in LIMITS], exported)
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            print(server.stdout.readline().strip())
            with playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]) as browser:
                for home, address in (("served", f"http://127.0.0.1:{PORT}/"), ("exported", exported.as_uri())):
                    for name in LIMITS:
                        found[f"{home}, {name}"] = drag(browser, address, name)
                        print(f"{home}, {name}: {json.dumps(found[f'{home}, {name}'])}", flush=True)
        finally:
            server.terminate()
            server.wait()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS, {"seconds": SECONDS, "milliseconds": found})


if __name__ == "__main__":
    main()
