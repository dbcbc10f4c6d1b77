"""The settings of a training run, and the two presets: `paper` as published, and `fast`, which we recommend.

`Settings` determine the result; `RunSettings` determine how it is computed.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import numpy as np

from anyreward.errors import UserError, shown
from anyreward.model.latent import ZMixture, ZNorm
from anyreward.storage import user_path


@dataclass(frozen=True)
class Range:
    """The range of accepted values of a field, as part of its annotation."""

    low: float
    high: float = math.inf
    exclusive: bool = False
    """Whether the two bounds themselves are excluded."""
    most: float | None = None
    """The largest value that a machine can handle, if it is below ``high``."""

    def __contains__(self, value: float) -> bool:
        largest = sys.float_info.max if self.most is None else self.most
        if not -largest <= value <= largest:  # a whole number may be too large for floating point
            return False
        return self.low < value < self.high if self.exclusive else self.low <= value <= self.high

    def __str__(self) -> str:
        most = "" if self.most is None else f" (at most {self.most:,})"
        if self.high < math.inf:
            both = f"{self.low:g} < value < {self.high:g}" if self.exclusive else f"{self.low:g} to {self.high:g}"
            return both + most
        return (f"above {self.low:g}" if self.exclusive else f"{self.low:g} or more") + most


MOST_NUMBERS = 2**30
"""Largest number of floating-point numbers that networks and minibatches may need, by estimate: 4 GB."""

Seed = Annotated[int, Range(0, most=2**63 - 1)]
Count = Annotated[int, Range(0, most=10**12)]
Positive = Annotated[int, Range(1, most=10**12)]
Above = Annotated[float, Range(0, exclusive=True)]
Share = Annotated[float, Range(0, 1)]
Method = Literal["fb", "goal-dqn", "goal-dqn-her", "successor-features"]


@dataclass(frozen=True)
class Settings:
    """Settings that determine the result of training. The defaults are the paper's for the discrete maze."""

    method: Method = "fb"
    """The learning method. fb: forward-backward representations.
    goal-dqn, goal-dqn-her: goal-oriented DQN, Q(s, a, g), without or with hindsight replay.
    successor-features: universal successor features, where B is fixed and only F is learned."""
    dim: Annotated[int, Range(0, most=10_000)] = 100
    """d, the dimension of F, B and z; for tables an upper bound. 0: the number of features (networks: 100, or 50 with
    continuous actions).
    With basis "state" it is the width of the features. goal-dqn does not use it."""
    landmarks: Annotated[int, Range(0, most=100_000)] = 0
    """Largest number of landmarks: states for which tables of F and B hold one policy each.
    0: F(s, a, z) and B are networks, as in the paper.
    Tables need states that can be listed or consist of at most three numbers; otherwise networks are trained.
    If tables would be large, at most 16 landmarks are used."""
    updates: Positive = 800_000
    """Gradient updates in total (paper: 800 epochs of 25 cycles of 40)."""
    gamma: Annotated[float, Range(0, 1, exclusive=True, most=0.999_999)] = 0.99
    """Discount factor of a transition."""
    batch_size: Annotated[int, Range(1, most=10_000)] = 128
    """b, the size of each of the two minibatches. The Bellman loss is a mean over all b x b pairs."""
    learning_rate: Above = 0.001
    """Adam's learning rate."""
    learning_rate_decay: Share = 0.0
    """Share of the run, at its end, over which the learning rate falls linearly to 1% (0: constant)."""
    temperature: Above = 200.0
    """tau of the softmax policy in the Bellman target."""
    orthonormality: Annotated[float, Range(0)] = 1.0
    """lambda, the weight of the loss that keeps E[B B^T] near the identity."""
    target_retention: Share = 0.95
    """alpha of the target networks: target <- alpha * target + (1 - alpha) * online, at each target update."""
    target_every: Positive = 40
    """Gradient updates between two updates of the target networks (paper: once per cycle)."""
    hidden: Annotated[int, Range(1, most=10_000)] = 256
    """Units in each hidden layer."""
    layers: Annotated[int, Range(1, most=100)] = 3
    """Hidden layers of F and of B."""
    layer_norm: bool = False
    """Layer normalisation before every ReLU except the last, in both networks."""
    action_input: bool = False
    """Whether the action is an input of F. If not, F has one block of outputs per action, as in the paper."""
    wide: Annotated[int, Range(0, most=20)] = 0
    """Width, in multiples of ``hidden``, of a network of one hidden layer whose output is added to F (0: none)."""
    actor: Literal["network", "samples"] = "network"
    """Continuous actions: how pi_z chooses. network: an actor network, trained to maximise F(s, pi_z(s), z) . z.
    samples: the best of some actions; in targets, a softmax over ``action_samples`` random ones."""
    actor_learning_rate: Annotated[float, Range(0)] = 0.0
    """Learning rate of the actor (0: as ``learning_rate``)."""
    backward_learning_rate: Annotated[float, Range(0)] = 0.0
    """Continuous actions: learning rate of B (0: as ``learning_rate``)."""
    twin: Literal["off", "mean", "min"] = "off"
    """Continuous actions: whether two F are learned. off: one. mean, min: two, of which targets take the mean, or the
    one with the smaller F . z."""
    actor_twin: Literal["mean", "min"] = "mean"
    """With two F: which one the actor maximises, their mean or the smaller one."""
    smoothing: Annotated[float, Range(0, most=10)] = 0.2
    """Standard deviation of the noise of the actor's actions in targets and in its loss, clipped at 0.3. Actions are
    scaled to -1..1."""
    action_samples: Annotated[int, Range(1, most=10_000)] = 16
    """Without an actor: number of random actions for each state in targets."""
    action_levels: Annotated[int, Range(2, most=100)] = 5
    """Tables with continuous actions: number of values of each number of the action that are tried."""
    action_repeat: Annotated[int, Range(0, most=1_000)] = 1
    """Steps of the environment for which training repeats an action, which are one transition. ``gamma`` is the
    discount of a transition. 0: chosen before training, by how fast the state changes; 1 for tables."""
    b_norm: ZNorm = "free"
    """free: B has any length. sphere: every B(s, a) has the length sqrt(d)."""
    encoding: Literal["plain", "unit", "rbf"] = "plain"
    """Encoding of numbers for F and B. plain: unchanged (see ``normalise``). unit: bounded numbers scaled to 0..1.
    rbf: the radial basis functions of the paper's continuous maze, 21 along each of at most two bounded numbers."""
    normalise: bool = True
    """Whether numbers (Box entries) are normalised by a running mean and standard deviation; categories are one-hot."""
    z_mixture: ZMixture = field(default_factory=ZMixture)
    """Shares of the distributions that z is drawn from in training; the rest is the paper's Cauchy distribution."""
    z_norm: ZNorm = "free"
    """free: in training, z keeps the length that it is drawn with.
    sphere: z is scaled to length sqrt(d), in training and in ``ask``, so that one temperature suits every reward."""
    pairs: Literal["minibatch", "all"] = "minibatch"
    """What each (s, a) of a minibatch is paired with in the losses.
    minibatch: a second minibatch, as in the paper.
    all: all features of the replay buffer with their frequencies, if they are categories and fit in two minibatches."""
    features: Literal["auto", "observation", "achieved_goal"] = "auto"
    """phi, the input of B: the whole observation, or achieved_goal of a goal environment.
    auto: achieved_goal if there is one."""
    first_step: Annotated[int, Range(0, 1)] = 0
    """First time step of successor measures: 0, the paper's definition, or 1, the variant of its appendix.
    With 1, the current state is left out, and rewards cannot depend on the action."""
    bias: bool = False
    """Whether a third network m-bar(s, z, g), which does not see the action, is added to F . B.
    An update then takes several times as long."""
    basis: Literal["state", "rbf", "fourier", "laplacian"] = "laplacian"
    """For successor-features only: the functions in B, which is made orthonormal after the warm-up and then fixed.
    state: the features themselves. rbf: Gaussians around points of the data. fourier: cosines of random frequencies.
    laplacian: the smoothest functions on the graph of the transitions."""
    hindsight: Share = 0.8
    """For goal-dqn-her only: share of goals that are replaced by features reached later in the same episode."""
    features_include_action: bool | None = None
    """Whether B sees the action too, B(s, a), so that rewards may depend on it. None: it does if episodes may terminate
    and tables can list all pairs of a state and an action (at most 4,096)."""
    exploration: Share = 1.0
    """epsilon of the behaviour policy, the probability of a uniformly random action.
    Other actions are the greedy ones of a random z, with one z per episode."""
    explore: Literal["z", "rare", "novel"] = "z"
    """The behaviour policy. z: uniform actions, or pi_z with one z per episode (see ``exploration``).
    rare: go to the states and actions that were tried least, with a fifth of uniform actions. This needs actions that
    can be listed, and states that can be listed or consist of at most eight numbers. Otherwise novel is used with
    continuous actions, and z with others and for goal-dqn.
    novel: half of the z are those of a reward for new features, by random network distillation."""
    z_steps: Count = 0
    """Steps for which the behaviour policy keeps its z (0: whole episodes)."""
    random_steps: Positive = 1
    """Continuous actions: largest number of steps for which a random action is kept. The number is drawn, so that slow
    and fast movements have the same share of the time."""
    exploration_noise: Annotated[float, Range(0, most=10)] = 0.2
    """Continuous actions: standard deviation of the noise of the other actions of the behaviour policy."""
    warmup_steps: Count = 0
    """Transitions collected before the first cycle, with uniformly random actions."""
    steps_per_cycle: Count = 200
    """Transitions collected at the start of each cycle (paper: 4 episodes of 50 steps)."""
    updates_per_cycle: Positive = 40
    """Gradient updates in each cycle."""
    replay_size: Annotated[int, Range(1, most=10**9)] = 1_000_000
    """Capacity of the replay buffer, in transitions. When it is full, the oldest are replaced."""
    feature_sample: Annotated[int, Range(1, most=1_000_000)] = 20_000
    """Number of features of the training data kept with the agent (all distinct ones if they are categories)."""
    seed: Seed = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        mixture: Any = self.z_mixture
        if isinstance(mixture, Mapping) and set(mixture) <= {field.name for field in fields(ZMixture)}:
            mixture = ZMixture(**mixture)
            object.__setattr__(self, "z_mixture", mixture)
        check_fields(self)
        self._check_memory()
        if self.first_step == 1 and self.features_include_action:
            raise UserError(
                "first_step is 1 and features_include_action is on, but successor measures from t = 1 leave out the "
                "reward of the current action. Set first_step=0 or features_include_action=False."
            )
        refused = self.first_step or self.bias or self.features_include_action or self.z_norm != "free"
        if self.method.startswith("goal-") and refused:
            raise UserError(
                f"method is {self.method}, which supports neither first_step, bias, features_include_action nor "
                "z_norm='sphere'."
            )
        if self.method == "successor-features" and self.warmup_steps == 0:
            raise UserError(
                "method is successor-features, whose B is fitted to the warm-up: warmup_steps must be positive."
            )

    def _check_memory(self) -> None:
        """Raise if the networks, their minibatches or the sample of rho cannot fit into memory."""
        d, b = self.dim or 100, self.batch_size
        rows = b * min(self.updates, self.updates_per_cycle, self.target_every)
        weights = 2 * self.layers * self.hidden**2 + self.hidden * d * (2 + self.wide)
        needs = {
            "hidden, layers, wide or dim": 10 * weights,  # F and B, with targets, gradients and Adam's two moments
            "batch_size": b * (6 * b + 4 * (self.layers * self.hidden + d)),  # the pairs, and the layers' outputs
            "updates_per_cycle or batch_size": 3 * min(self.updates, self.updates_per_cycle) * b * d,
            "target_every, batch_size or hidden": 2 * rows * self.hidden * (self.layers + self.wide),  # the targets
            "feature_sample or dim": 2 * d * (self.feature_sample + d),  # in float64
        }
        for names, numbers in needs.items():
            if numbers > MOST_NUMBERS:
                gigabytes = f"about {4e-9 * numbers:,.1f} GB; accepted: at most {4e-9 * MOST_NUMBERS:.1f} GB"
                raise UserError(f"Training with these settings needs {gigabytes}. Lower {names}.")

    def with_(self, **changes: Any) -> Settings:
        """These settings with some changed; an unknown name raises."""
        return replace(self, **_known(Settings, changes))

    @property
    def transitions(self) -> int:
        """The number of transitions that a run collects; tables collect more where there are many states."""
        return self.warmup_steps + self.updates * self.steps_per_cycle // self.updates_per_cycle


@dataclass(frozen=True)
class RunSettings:
    """How a run is computed. A resumed run may change these."""

    environments: Annotated[int, Range(1, most=1_000)] = 4
    """Environments that are stepped together when collecting."""
    evaluate_every: Positive = 1_000
    """Updates between two lines of metrics."""
    threads: Annotated[int, Range(0, most=1_000)] = 0
    """CPU threads (0: chosen by the cost of an update, at most PyTorch's default)."""
    device: str = "cpu"
    """Where to train: cpu or cuda (networks, replay buffer and minibatches move there)."""
    compile: bool = False
    """Compile the updates (CPU only), with F and B in parallel. The first run takes half a minute to compile."""
    save_every: Above = 300.0
    """Seconds between two saves during a run; it is also saved after its first cycle and at its end."""
    step_timeout: Annotated[float, Range(0)] = 0.0
    """Seconds after which a step of the environment counts as hanging (0: no limit)."""
    replay_file: str = ""
    """For images only: keep the frames of the replay buffer in this new file instead of in memory.
    It is removed at the end."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not re.fullmatch(r"(cpu|cuda)(:\d{1,2})?", self.device, re.ASCII):
            raise UserError(f"device is {shown(self.device)}; accepted: cpu, cuda, cuda:0, cuda:1, ...")
        if self.replay_file:
            object.__setattr__(self, "replay_file", str(user_path(self.replay_file)))
        if self.compile and self.device != "cpu":
            raise UserError(f"compile is on and device is {self.device!r}, but updates are compiled only for the CPU.")

    def with_(self, **changes: Any) -> RunSettings:
        """These settings with some changed; an unknown name raises."""
        return replace(self, **_known(RunSettings, changes))


class RunChanges(TypedDict, total=False):
    """The settings that may change when a run is resumed."""

    replay_size: int
    environments: int
    evaluate_every: int
    threads: int
    device: str
    compile: bool
    save_every: float
    step_timeout: float
    replay_file: str


class SettingChanges(RunChanges, total=False):
    """The settings that `train` takes as keyword arguments."""

    method: Method
    dim: int
    landmarks: int
    updates: int
    gamma: float
    batch_size: int
    learning_rate: float
    learning_rate_decay: float
    temperature: float
    orthonormality: float
    target_retention: float
    target_every: int
    hidden: int
    layers: int
    layer_norm: bool
    action_input: bool
    wide: int
    actor: Literal["network", "samples"]
    actor_learning_rate: float
    backward_learning_rate: float
    twin: Literal["off", "mean", "min"]
    actor_twin: Literal["mean", "min"]
    smoothing: float
    action_samples: int
    action_levels: int
    action_repeat: int
    b_norm: ZNorm
    encoding: Literal["plain", "unit", "rbf"]
    normalise: bool
    z_mixture: ZMixture
    z_norm: ZNorm
    pairs: Literal["minibatch", "all"]
    first_step: int
    bias: bool
    basis: Literal["state", "rbf", "fourier", "laplacian"]
    hindsight: float
    features_include_action: bool | None
    exploration: float
    explore: Literal["z", "rare", "novel"]
    z_steps: int
    random_steps: int
    exploration_noise: float
    warmup_steps: int
    steps_per_cycle: int
    updates_per_cycle: int
    feature_sample: int
    seed: int


def check_fields(settings: object, prefix: str = "") -> None:
    """Raise unless every annotated field of a dataclass has its type and lies in its range.

    NumPy's numbers become Python's, which JSON can hold. ``prefix`` is put before the names of fields in messages.
    """
    kind: Any = type(settings)  # mypy does not take a type of any kind as hashable
    for name, (kinds, accepted) in _rules(kind).items():
        value = getattr(settings, name)
        if isinstance(value, np.integer | np.floating | np.bool_):
            value = value.item()
            object.__setattr__(settings, name, value)
        _check_value(prefix + name, value, kinds, accepted)


@cache
def _rules(kind: type) -> dict[str, tuple[tuple[Any, ...], Range | None]]:
    """The accepted types of each field, and its range; fields of types that are not checked are left out."""
    rules = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        accepted = None
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds: list[Any] = []
        for option in options:
            if get_origin(option) is Annotated:
                option, *extras = get_args(option)
                accepted = next((extra for extra in extras if isinstance(extra, Range)), accepted)
            kinds.append(option)
        if all(k in (int, float, bool, str, ZMixture, type(None)) or get_origin(k) is Literal for k in kinds):
            rules[name] = (tuple(kinds), accepted)
    return rules


def _check_value(name: str, value: Any, kinds: tuple[Any, ...], accepted: Range | None) -> None:
    """Raise unless a value has one of the types, and lies in the range if it is a number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    for kind in kinds:
        if get_origin(kind) is Literal:
            fits = isinstance(value, str) and value in get_args(kind)
        elif kind in (int, float):
            fits = whole or (kind is float and isinstance(value, float))
        else:
            fits = isinstance(value, kind)
        if fits:
            break
    else:
        raise UserError(f"{name} is {shown(value)}; {_expected(kinds)}.")
    if accepted is not None and isinstance(value, int | float) and value not in accepted:
        raise UserError(f"{name} is {shown(value)}; accepted: {accepted}.")


def _expected(kinds: tuple[Any, ...]) -> str:
    """What is accepted for a field of these types."""
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return f"accepted: {', '.join(get_args(kind))}"
    words = {
        int: "expected a whole number",
        float: "expected a number",
        bool: "accepted: True, False",
        str: "expected text",
        ZMixture: "expected ZMixture(goals=..., sums=..., rewards=...)",
    }
    return words[kind]


SETTINGS = {kind: {field.name for field in fields(kind)} for kind in (Settings, RunSettings)}
"""The names of all settings."""


def _known(kind: type[Settings] | type[RunSettings], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes by name; an unknown name raises."""
    for name in changes:
        if kind is Settings and name in SETTINGS[RunSettings]:
            raise UserError(f"{name} is a run setting: pass it to train(), or to RunSettings({name}=...).")
        if name not in SETTINGS[kind]:
            every = sorted(SETTINGS[Settings] | SETTINGS[RunSettings])
            raise UserError(f"There is no setting {shown(name)}. Settings: {', '.join(every)}.")
    return dict(changes)


def split_changes(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split changes by name into those of `Settings` and those of `RunSettings`; an unknown name raises."""
    of_run = {name: value for name, value in changes.items() if name in SETTINGS[RunSettings]}
    others = _known(Settings, {name: value for name, value in changes.items() if name not in of_run})
    if "method" in others:  # the other defaults depend on it
        _check_value("method", others["method"], *_rules(Settings)["method"])
    return others, of_run


FAST: dict[str, Any] = {
    "landmarks": 128,
    "dim": 0,
    "updates": 20_000,
    "learning_rate_decay": 0.5,
    "target_every": 5,
    "target_retention": 0.9,
    "temperature": 100.0,
    "layer_norm": True,
    "action_input": True,
    "wide": 2,
    "z_mixture": ZMixture(goals=0.3, sums=0.3, rewards=0.3),
    "z_norm": "sphere",
    "pairs": "all",
    "explore": "rare",
}
"""Every difference of preset `fast` from preset `paper` (docs/settings.md)."""

BOX: dict[str, dict[str, Any]] = {
    "fast": {
        "batch_size": 256,
        "exploration": 0.5,
        "random_steps": 100,
        "z_steps": 100,
        "steps_per_cycle": 1_000,
        "action_repeat": 0,
    },
    "paper": {"exploration": 0.5, "random_steps": 100},
    "published": {},
}
"""Changes to the presets for continuous actions (docs/continuous_actions.md)."""
PUBLISHED: dict[str, Any] = {
    "dim": 50,
    "updates": 3_000_000,
    "gamma": 0.98,
    "batch_size": 1_024,
    "hidden": 1_024,
    "learning_rate": 0.0001,
    "target_every": 1,
    "target_retention": 0.99,
    "layer_norm": True,
    "z_mixture": ZMixture(goals=0.5),
    "z_norm": "sphere",
    "b_norm": "sphere",
    "twin": "mean",
    "actor_twin": "mean",
    "exploration": 0.5,
    "random_steps": 100,
    "z_steps": 100,
    "explore": "novel",
    "steps_per_cycle": 40,
}
"""Preset `published`: the size and the hyperparameters of the literature on continuous actions."""

OF_METHOD: dict[str, dict[str, Any]] = {
    "goal-dqn": {"z_norm": "free"},
    "goal-dqn-her": {"z_norm": "free"},
    "successor-features": {"warmup_steps": 10_000, "orthonormality": 0.0},
}
"""The settings that each method changes in both presets."""
PAPER: dict[str, dict[str, Any]] = {"goal-dqn": {"exploration": 0.2}, "goal-dqn-her": {"exploration": 0.2}}
"""Changes to preset `paper` for goal-oriented DQN, as in the paper; `fast` explores as FB does (docs/baselines.md)."""


def preset(name: str = "fast", **changes: Any) -> Settings:
    """The settings of a preset, ``fast``, ``paper`` or ``published``, for a method, with some changed by name.

    `train` changes some more for continuous actions, `BOX`.
    """
    if not isinstance(name, str) or name not in BOX:
        raise UserError(f"There is no preset {shown(name)}; accepted: {', '.join(BOX)}.")
    method = changes.get("method", "fb")
    _check_value("method", method, *_rules(Settings)["method"])
    start = {"fast": FAST, "published": PUBLISHED}.get(name, PAPER.get(method, {}))
    return Settings().with_(**start | OF_METHOD.get(method, {}) | changes)
