"""Five environments that no setting of the library was chosen on, each asked for its own reward with default settings.

    python benchmarks/strangers.py WORLD ...            # all worlds by default, seeds 0 to 2
    python benchmarks/strangers.py --table              # the results as a table

As in `own_rewards.py`, training sees no reward, and samples of 10,000 steps give it afterwards. The worlds differ in
what they observe: a state (FrozenLake), three categories (KeyDoor), four numbers (Inventory), a picture of 7 by 7 cells
with a direction and a text (MiniGrid), 400 bits (MinAtar). MiniGrid and MinAtar need the packages minigrid and minatar.

The best return of the first three is exact: that of the best policy that knows how many steps are left. An answer does
not know this; in Inventory, the difference is the pieces that are ordered in the last days and never sold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from math import exp, factorial
from pathlib import Path
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401, registers its environments
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.envs.toy_text.utils import categorical_sample
from minatar.gym import register_envs

from own_rewards import Own, main

RESULTS = Path(__file__).parent / "results" / "strangers"
Array = np.ndarray[Any, Any]
State = tuple[int, ...]
Chance = tuple[float, State, float, bool]
"""(probability, next state, reward, whether the episode terminates)"""
Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]
"""P[s][a] in the format of Gymnasium's toy-text environments."""


class Finite(gym.Env[Array, int]):
    """A finite MDP whose states are rows of whole numbers, which it observes; it starts in the first state."""

    states: list[State]
    P: Table

    def __init__(self, space: gym.Space[Any], actions: int) -> None:
        self.observation_space = space
        self.action_space: Any = gym.spaces.Discrete(actions)
        self.initial_state_distrib = np.zeros(len(self.states))
        self.initial_state_distrib[0] = 1.0
        self._state = 0

    def _observe(self) -> Array:
        return np.asarray(self.states[self._state], self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._state = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        outcomes = self.P[self._state][int(action)]
        index = categorical_sample([p for p, *_ in outcomes], self.np_random)
        _, self._state, reward, over = outcomes[index]
        return self._observe(), reward, over, False, {}


def tabulated(states: list[State], actions: int, outcomes: Callable[[State, int], Iterator[Chance]]) -> Table:
    """The table P of an MDP that is given by a function of state and action."""
    number = {state: i for i, state in enumerate(states)}
    return {
        i: {a: [(p, number[t], r, over) for p, t, r, over in outcomes(state, a)] for a in range(actions)}
        for state, i in number.items()
    }


class KeyDoor(Finite):
    """A grid with a key, a door that opens only with the key, and an exit behind it; it observes (row, column, key).

    A move goes to a random direction with probability 0.1. A step costs 0.01, the exit pays 1.
    """

    GRID = (
        "S  #   ",
        "   #   ",
        "   #   ",
        "   D   ",
        "   #   ",
        "K  #  E",
    )
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self) -> None:
        self.states, self.P = self._mdp()
        super().__init__(gym.spaces.MultiDiscrete([len(self.GRID), len(self.GRID[0]), 2]), len(self.MOVES))

    @staticmethod
    @cache
    def _mdp() -> tuple[list[State], Table]:
        grid, moves = KeyDoor.GRID, KeyDoor.MOVES
        states: list[State] = list(
            product(range(len(grid)), range(len(grid[0])), (0, 1))
        )  # (row, column, key), S first

        def outcomes(state: State, action: int) -> Iterator[Chance]:
            for direction, (down, right) in enumerate(moves):
                row, column, key = state[0] + down, state[1] + right, state[2]
                inside = 0 <= row < len(grid) and 0 <= column < len(grid[0])
                if not inside or grid[row][column] == "#" or (grid[row][column] == "D" and not key):
                    row, column = state[:2]
                over = grid[row][column] == "E"
                after = (row, column, int(key or grid[row][column] == "K"))
                yield 0.9 * (direction == action) + 0.1 / len(moves), after, 1.0 if over else -0.01, over

        return states, tabulated(states, len(moves), outcomes)


class Inventory(Finite):
    """A shop that orders 0 to 5 boxes of two pieces each day; it observes its stock and the three orders on their way.

    A day's demand is Poisson with mean 3, cut at 8; then the oldest order arrives. A piece earns 4 if it is sold, costs
    0.5 for each day in stock and 1 when it is ordered. Pieces beyond a stock of 20 are lost.
    """

    STOCK, ORDER, DEMAND, BOX = 20, 5, 8, 2

    def __init__(self) -> None:
        self.states, self.P = self._mdp()
        high = np.array([self.STOCK] + 3 * [self.ORDER], np.float32)
        super().__init__(gym.spaces.Box(np.zeros(4, np.float32), high), self.ORDER + 1)

    @staticmethod
    @cache
    def _mdp() -> tuple[list[State], Table]:
        stock, order, most, box = Inventory.STOCK, Inventory.ORDER, Inventory.DEMAND, Inventory.BOX
        states: list[State] = list(product(range(stock + 1), *3 * [range(order + 1)]))  # empty first
        weights = np.array([exp(-3) * 3**demand / factorial(demand) for demand in range(most)])
        chances = [*weights.tolist(), 1 - float(weights.sum())]

        def outcomes(state: State, action: int) -> Iterator[Chance]:
            held, first, second, third = state
            for demand, chance in enumerate(chances):
                sold = min(held, demand)
                left = held - sold
                after = (min(left + box * first, stock), second, third, action)
                yield chance, after, 4.0 * sold - 0.5 * left - 1.0 * box * action, False

        return states, tabulated(states, order + 1, outcomes)


gym.register(
    "strangers/FrozenLake6x6-v0",
    gym.spec("FrozenLake-v1").entry_point,
    max_episode_steps=100,
    kwargs={"desc": generate_random_map(6, seed=0)},
)
gym.register("strangers/KeyDoor-v0", lambda **_: KeyDoor(), max_episode_steps=100)
gym.register("strangers/Inventory-v0", lambda **_: Inventory(), max_episode_steps=50)
register_envs()

WORLDS = {
    "strangers/FrozenLake6x6-v0": Own(None, None, 2_000),
    "strangers/KeyDoor-v0": Own(None, None, 500),
    "strangers/Inventory-v0": Own(None, None, 500),
    "MiniGrid-Empty-5x5-v0": Own(None, 1 - 0.9 * 5 / 100),  # the shortest way has 5 steps, of at most 100
    "MinAtar/Breakout-v1": Own(None, None),
}


if __name__ == "__main__":
    main(WORLDS, RESULTS)
