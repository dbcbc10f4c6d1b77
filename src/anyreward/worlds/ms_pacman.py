"""The paper's Ms. Pacman: the Atari game from pixels, with goals at positions in its first maze."""

from __future__ import annotations

import json
from functools import cache
from importlib import metadata
from importlib.resources import files
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.worlds.goals import GoalTest, Tolerance
from anyreward.worlds.spaces import Array

ACTION_NAMES = ("stay", "up", "right", "left", "down")
_ACTIONS = (0, 2, 3, 4, 5)  # their numbers in the emulator
STACK, REPEATS, REPEAT = 4, 3, 4
"""Frames in an observation; frames that a step adds; emulator frames for each of them."""
SIDE, TOP = 84, 170
"""Pixels of a frame along each side; rows of the screen that show the maze."""
TUNE = 240
"""Emulator frames of the tune that the game plays before it begins."""
NEAR = 6
"""Largest difference in x or y, in pixels, at which a goal counts as reached."""
INSTALL = "pip install 'anyreward[worlds]', or: pip install 'ale-py>=0.12'"


class MsPacmanEnv(gym.Env[Any, np.int64]):
    """One life of Ms. Pacman: observation (4 frames of 84 x 84), achieved_goal (x, y on the screen) and desired_goal.

    A step is 12 frames of the emulator, without sticky actions; losing a life terminates the episode. The reward is
    the game's score, which training does not use. The game is deterministic: every episode starts in the same state.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012 (Gymnasium's own convention)
    own_process = True
    frames_per_step = REPEATS
    feature_names = ("x", "y")
    """The names of the numbers of achieved_goal."""
    settings = {  # noqa: RUF012 (constant)
        "gamma": 0.9,
        "learning_rate": 0.0001,
        "exploration": 0.2,
        "environments": 4,
        "steps_per_cycle": 100,
        "encoding": "unit",
        "replay_size": 500_000,
        "action_input": False,
        "wide": 0,
    }
    """Settings that this world overrides in both presets: the paper's hyperparameters and F, and half of the paper's
    replay buffer, which would take 21 GB."""
    goal_settings = {"learning_rate": 0.0005}  # noqa: RUF012 (constant)
    """Settings in which the paper's goal-oriented DQN differs."""

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        self.render_mode = render_mode
        self.game = _emulator()
        place = gym.spaces.Box(0.0, float(TOP), (2,), np.float32)
        images = gym.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.observation_space = gym.spaces.Dict(observation=images, achieved_goal=place, desired_goal=place)
        self.action_space = gym.spaces.Discrete(len(ACTION_NAMES))
        self.frames = np.zeros((STACK, SIDE, SIDE), dtype=np.uint8)
        self.goal = goals()[0]
        self._screens = np.zeros((2, *self.game.getScreenDims()), dtype=np.uint8)
        self._start: Any = None
        self._lives = 0
        self._place = np.zeros(2, dtype=np.float32)  # her position, or the last one before a life was lost

    @property
    def goal_test(self) -> GoalTest:
        """The goals of the paper's list, in episodes of 50 steps."""
        every = goals()
        near = Tolerance("box", NEAR)
        return GoalTest(lambda rng, n: every[rng.integers(len(every), size=n)], near, steps=50, every=every)

    @property
    def position(self) -> Array:
        """(x, y) of Ms. Pacman on the screen, from the game's memory."""
        ram = self.game.getRAM()
        return np.clip(np.array([int(ram[10]) - 8, int(ram[16]) + 6], dtype=np.float32), 0, TOP)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Start a new game after its opening tune, with a random goal of the list, or ``options={"goal": (x, y)}``."""
        super().reset(seed=seed)
        every = goals()
        given = (options or {}).get("goal")
        self.goal = every[self.np_random.integers(len(every))] if given is None else np.asarray(given, np.float32)
        if self.goal.shape != (2,) or not ((self.goal >= 0) & (self.goal <= TOP)).all():
            raise UserError(f"The goal is {given}; expected x and y from 0 to {TOP}.")
        if self._start is None:  # nothing is random before the first action, so the tune is played once
            self.game.reset_game()
            for _ in range(TUNE - 1):
                self.game.act(0)
            self._start = self.game.cloneState()
        self.game.restoreState(self._start)
        self.game.act(0)  # the last frame of the tune: the saved state does not include the screen
        self._lives, self._place = self.game.lives(), self.position
        self.frames[:] = shrink(self.game.getScreenGrayscale())
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Run 12 emulator frames; every fourth, as its maximum with the one before, is added to the observation."""
        score, chosen = 0.0, _ACTIONS[int(action)]
        self.frames = np.roll(self.frames, -REPEATS, axis=0)
        for i in range(REPEATS):
            for j in range(REPEAT):
                score += self.game.act(chosen)
                if j >= REPEAT - 2:
                    self.game.getScreenGrayscale(self._screens[j - REPEAT + 2])
            self.frames[STACK - REPEATS + i] = shrink(self._screens.max(0))
            lost = self.game.lives() < self._lives or self.game.game_over()
            if not lost:  # after losing a life, she is back at the start position
                self._place = self.position
        return self._observation(), score, bool(lost), False, {}

    def pixels(self, features: Array) -> Array:
        """(n, 2) where features (n, k) are in the rendered images: achieved_goal is in pixels."""
        return features[:, :2]

    def render(self) -> Array | None:
        """The screen in colour, (210, 160, 3)."""
        return np.asarray(self.game.getScreenRGB()) if self.render_mode else None

    def _observation(self) -> dict[str, Array]:
        goal = self.goal.astype(np.float32)
        return {"observation": self.frames.copy(), "achieved_goal": self._place.copy(), "desired_goal": goal}


@cache
def goals() -> Array:
    """(n, 2) the distinct goals of the paper's list, as x and y on the screen."""
    text = files("anyreward.worlds").joinpath("data/ms_pacman_goals.json").read_text(encoding="utf-8")
    return np.unique(np.asarray(json.loads(text)["goals"], dtype=np.float32), axis=0)


def shrink(screen: Array) -> Array:
    """(84, 84) the rows of a grey screen (210, 160) that show the maze, resized by area averaging."""
    return np.rint(_area(_area(screen[:TOP].astype(np.float32)).T).T).astype(np.uint8)


def _area(image: Array) -> Array:
    """Resize to 84 rows by area averaging: differences of the cumulative sum, which is linear within a row."""
    rows = len(image)
    bounds = np.arange(SIDE + 1) * (rows / SIDE)
    whole = np.minimum(bounds.astype(int), rows - 1)
    sums = np.zeros((rows, image.shape[1]))
    np.cumsum(image[:-1], axis=0, out=sums[1:])  # of the rows above
    upto = sums[whole] + (bounds - whole)[:, None] * image[whole]
    return np.asarray(np.diff(upto, axis=0) * (SIDE / rows))


def check_ale() -> str:
    """The emulator's version as text; raises if it is not installed."""
    try:
        return f"ale-py {metadata.version('ale-py')}"
    except metadata.PackageNotFoundError:
        raise UserError(f"Ms. Pacman needs ale-py, which is not installed: {INSTALL}.") from None


def _emulator() -> Any:
    check_ale()
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    game = ALEInterface()
    game.setFloat("repeat_action_probability", 0.0)
    game.setInt("random_seed", 0)
    rom = roms.get_rom_path("ms_pacman")
    if rom is None:
        raise UserError(f"This version of ale-py has no ROM of Ms. Pacman; newer versions include it: {INSTALL}.")
    game.loadROM(rom)
    return game


def register() -> None:
    """Register the game with Gymnasium: ``anyreward/MsPacman-v0``."""
    gym.register(id="anyreward/MsPacman-v0", entry_point="anyreward.worlds.ms_pacman:MsPacmanEnv", max_episode_steps=50)
