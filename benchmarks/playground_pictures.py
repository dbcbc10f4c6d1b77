"""Draw the pictures of docs/playground.md, and export its two pages (docs/playground/).

python benchmarks/playground_pictures.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

from anyreward.playground.export import export_page

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "playground"
PORT = 8898
PACMAN = Path("benchmarks/results/worlds/ms-pacman-fast-seed0")
PAGES = {
    "four-rooms": ["four-rooms", "four-rooms-d25", "four-rooms-d10", "four-rooms-d4"],
    "continuous-maze": ["continuous-maze", "continuous-maze-d25"],
}


def opened(browser: Browser, address: str, name: str, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
    """The page with an agent."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address)
    while not page.evaluate("Boolean(window.playground && window.playground.ready)"):
        page.wait_for_timeout(50)
    page.select_option("#agent", label=name)
    while name not in page.evaluate("[playground.engine.scene.shipped, playground.engine.scene.run].join()"):
        page.wait_for_timeout(50)
    page.wait_for_timeout(300)
    return page


def stroke(page: Page, tool: str, *places: tuple[float, float]) -> None:
    """Use a tool at places, given as shares of the picture."""
    page.click(f"#tools button[data-tool={tool}]")
    box = page.locator("#world").bounding_box()
    assert box is not None
    at = [(box["x"] + u * box["width"], box["y"] + v * box["height"]) for u, v in places]
    page.mouse.move(*at[0])
    page.mouse.down()
    for x, y in at[1:]:
        page.mouse.move(x, y, steps=12)
    page.mouse.up()


def settled(page: Page, more: int = 900) -> None:
    """Wait for the answer and its explanation, and a moment for the agents."""
    while page.evaluate("playground.explained !== playground.version"):
        page.wait_for_timeout(50)
    page.wait_for_timeout(more)


def cell(x: int, y: int) -> tuple[float, float]:
    """The place of a cell of the four rooms."""
    return (x + 0.5) / 11, (y + 0.5) / 11


def screen(x: float, y: float) -> tuple[float, float]:
    """The place of a pixel of Ms. Pacman's screen, which is drawn within margins, 540 pixels wide or so."""
    return (34 + x / 160 * 490) / 534, (8 + y / 210 * 659) / 701


def draw(browser: Browser, address: str) -> None:
    """All pictures."""
    page = opened(browser, address, "four-rooms")
    stroke(page, "reward", cell(8, 8), cell(9, 8), cell(9, 9))
    stroke(page, "cost", cell(4, 2), cell(5, 2))
    stroke(page, "goal", cell(9, 1))
    for at in (cell(1, 9), cell(3, 4)):
        stroke(page, "agent", at)
    stroke(page, "agent", cell(1, 1))
    settled(page)
    page.mouse.move(5, 5)
    page.screenshot(path=FOLDER / "four-rooms.png")
    page = opened(browser, address, "continuous-maze")
    stroke(page, "reward", (0.9, 0.2), (0.92, 0.4))
    stroke(page, "cost", (0.55, 0.45), (0.6, 0.6))
    for at in ((0.2, 0.8), (0.5, 0.2), (0.15, 0.15)):
        stroke(page, "agent", at)
    settled(page)
    page.screenshot(path=FOLDER / "continuous-maze.png")
    page = opened(browser, address, "mountain-car")
    stroke(page, "reward", (0.8, 0.3), (0.9, 0.4))
    settled(page)
    page.click("#live-run")
    page.wait_for_timeout(6_000)
    page.screenshot(path=FOLDER / "mountain-car.png")
    page = opened(browser, address, "fetch-reach")
    stroke(page, "goal", (0.62, 0.4))
    settled(page)
    page.click("#live-run")
    page.wait_for_timeout(5_000)
    page.screenshot(path=FOLDER / "fetch-reach.png")
    page = opened(browser, address, PACMAN.name)
    page.wait_for_timeout(2_500)
    stroke(page, "goal", screen(11, 103))
    stroke(page, "avoid", screen(45, 103))
    settled(page, 4_000)
    page.screenshot(path=FOLDER / "ms-pacman.png")
    page = opened(browser, address, "four-rooms-d4", 390, 844, dark=True)
    page.select_option("#preset", label="the nearest of two goals")
    settled(page)
    page.screenshot(path=FOLDER / "phone.png", full_page=True)


def main() -> None:
    """Export the pages, and draw the pictures of a served page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, agents in PAGES.items():
        size = export_page([Path(f"shipped:{agent}") for agent in agents], FOLDER / f"{name}.html")
        print(f"{name}.html: {size / 1e6:.1f} MB")
    command = [sys.executable, "-m", "anyreward", "play", str(PACMAN), "--port", str(PORT), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert server.stdout is not None
        print(server.stdout.readline().strip())
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]) as browser,
        ):
            draw(browser, f"http://127.0.0.1:{PORT}/")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
