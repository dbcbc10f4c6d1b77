"""The settings of a training run, and the two presets: `paper` as published, `fast` as we would have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from anyreward.errors import UserError
from anyreward.representation.fb import GOAL_METHODS


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a training run. The defaults are the paper's for the discrete maze."""

    method: Literal["fb", "goal-dqn", "goal-dqn-her", "successor-features"] = "fb"
    """What is learned: forward-backward representations; goal-oriented DQN, a Q(s, a, g), also with hindsight replay;
    or universal successor features, where B is given and F alone is learned."""
    dim: int = 100
    """d, the dimension of F, B and z; with basis state it is as wide as the features. Of no use to goal-dqn. With
    landmarks it is an upper bound (0: as many as there are features and memory; 100 for networks)."""
    landmarks: int = 0
    """Landmarks at most (0: none, and F(s, a, z) is a network, as in the paper): F and B then are tables with one
    policy for each landmark, where states can be listed or have at most three numbers. Elsewhere F stays a network.
    Where tables would be large, 64 landmarks are enough."""
    updates: int = 800_000
    """Gradient updates in all (paper: 800 epochs of 25 cycles of 40)."""
    gamma: float = 0.99
    """Discount factor."""
    batch_size: int = 128
    """b, the size of each of the two minibatches; the Bellman loss runs over all b x b pairs."""
    learning_rate: float = 0.001
    """Adam's learning rate."""
    learning_rate_decay: float = 0.0
    """Share of the run, at its end, over which the learning rate falls linearly to 1% (0: it stays)."""
    temperature: float = 200.0
    """tau of the softmax policy in the Bellman target."""
    orthonormality: float = 1.0
    """lambda, the weight of the loss that keeps E[B B^T] near the identity."""
    target_retention: float = 0.95
    """alpha: target <- alpha * target + (1 - alpha) * online, each time the targets move."""
    target_every: int = 40
    """Updates between two moves of the target networks (paper: once a cycle)."""
    hidden: int = 256
    """Units in each hidden layer."""
    layers: int = 3
    """Hidden layers of F and of B."""
    layer_norm: bool = False
    """Layer normalisation before every ReLU but the last, in both networks."""
    action_input: bool = False
    """Whether the action is an input of F, with weights of its own for the observation, instead of choosing among F's
    outputs (the paper's way)."""
    wide: int = 0
    """Width, in multiples of ``hidden``, of a network of one hidden layer that is added to F's deep one (0: none)."""
    encoding: Literal["plain", "unit", "rbf"] = "plain"
    """What F and B see of numbers: themselves (see ``normalise``); bounded ones scaled to 0 to 1; or the radial basis
    functions of the paper's continuous maze, 21 along each of at most two bounded numbers."""
    normalise: bool = True
    """Running normalisation of the numbers (Box entries) that F and B see; categories are one-hot either way."""
    z_sampling: Literal["cauchy", "sphere", "mixture"] = "cauchy"
    """Where training draws z from: the paper's Cauchy-scaled directions, the sphere of radius sqrt(d), or a mixture
    of Cauchy with B of replay features."""
    z_goals: float = 0.4
    """Mixture only: share of z that are B of one replay feature."""
    z_sums: float = 0.4
    """Mixture only: share of z that are signed sums of two to four such B."""
    z_rewards: float = 0.0
    """Mixture only: share of z that are sums of many such B with normal weights, as a dense random reward has."""
    z_norm: Literal["free", "sphere"] = "free"
    """Whether z keep the length they are drawn with, or all are scaled to sqrt(d), in training and when asked: the
    temperature then is as low, or high, for every reward."""
    pairs: Literal["minibatch", "all", "average"] = "minibatch"
    """What each (s, a) of a minibatch is paired with in the losses: a second minibatch (the paper); all features of the
    replay with their frequency, where they are categories and no more than two minibatches (else a second minibatch);
    or a second minibatch with moving averages of its moments."""
    average_share: float = 0.3
    """Moving averages only: share of the newest minibatch in them."""
    features: Literal["auto", "observation", "achieved_goal"] = "auto"
    """phi, what B sees: the whole observation, or achieved_goal of a goal environment; auto takes the latter where
    there is one."""
    first_step: int = 0
    """From which t on successor measures count: 0, the paper's definition, or 1, the variant of its appendix, which
    leaves the state itself out; rewards may not depend on the action then."""
    bias: bool = False
    """Whether a third network m-bar(s, z, g), which does not see the action, is added to F . B: then F . B has to tell
    no more than advantages. An update takes several times as long."""
    basis: Literal["state", "rbf", "fourier", "laplacian"] = "laplacian"
    """Successor features only: what B is. The features themselves; Gaussians around points of the data; cosines of
    random frequencies; or the smoothest functions on the graph of the data's transitions. It is made orthonormal, and
    fixed, after the warm-up."""
    hindsight: float = 0.8
    """goal-dqn-her only: share of goals that are replaced by what was reached later in the same episode."""
    features_include_action: bool = False
    """Whether B sees the action too, B(s, a), so that rewards may depend on it."""
    exploration: float = 1.0
    """epsilon of the behaviour policy: 1 is uniform; below, the rest of the time the greedy action of pi_z, with one
    z an episode."""
    environments: int = 4
    """Environments that are stepped together when collecting."""
    warmup_steps: int = 0
    """Transitions collected before the first cycle, with uniform actions."""
    steps_per_cycle: int = 200
    """Transitions collected at the start of each cycle (paper: 4 episodes of 50 steps)."""
    updates_per_cycle: int = 40
    """Gradient updates in each cycle."""
    replay_size: int = 1_000_000
    """Transitions that the replay keeps; older ones make room."""
    replay_file: str = ""
    """Images only: keep the replay's frames in this file, new and removed at the end, instead of in memory."""
    feature_sample: int = 20_000
    """Features of the training distribution kept with the agent (all distinct ones where features are categories)."""
    evaluate_every: int = 1_000
    """Updates between two lines of metrics."""
    seed: int = 0
    """Seed of everything random."""
    threads: int = 0
    """CPU threads (0: as many as the size of an update is worth, and the machine has)."""
    device: str = "cpu"
    """Where to train: cpu, or cuda (networks, replay and minibatches move there)."""
    compile: bool = False
    """Compile the updates: on a CPU once for all runs, in half a minute, with F and B on threads of their own; on CUDA
    with torch.compile and CUDA graphs."""
    bfloat16: bool = False
    """Let autocast run the networks in bfloat16 where that will do."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            if get_args(hint) and value not in get_args(hint):
                raise UserError(f"{field.name} is {value!r}; accepted: {', '.join(get_args(hint))}.")
            if hint is int and isinstance(value, int | np.integer) and not isinstance(value, bool):
                object.__setattr__(self, field.name, int(value))  # a NumPy integer would not fit into JSON
            elif hint is int:
                raise UserError(f"{field.name} is {value!r}; expected a whole number.")
            if hint is bool and not isinstance(value, bool):
                raise UserError(f"{field.name} is {value!r}; accepted: True, False.")
            if hint is float and (not isinstance(value, int | float) or isinstance(value, bool)):
                raise UserError(f"{field.name} is {value!r}; expected a number.")
        if self.device.split(":")[0] not in ("cpu", "cuda"):
            raise UserError(f"device is {self.device!r}; accepted: cpu, cuda, cuda:0, cuda:1, ...")
        if self.first_step not in (0, 1):
            raise UserError(f"first_step is {self.first_step}; accepted: 0, 1.")
        if self.first_step == 1 and self.features_include_action:
            raise UserError(
                "first_step is 1 and features_include_action is on, but successor measures from t = 1 leave out what "
                "the action at hand pays: turn one of the two off."
            )
        if (self.first_step == 1 or self.bias or self.method != "fb") and self.compile:
            raise UserError(
                "compile is on, but neither first_step = 1 nor bias nor other methods than fb are compiled. Turn "
                "compile off."
            )
        if self.method in GOAL_METHODS and (self.first_step or self.bias or self.features_include_action):
            raise UserError(f"method is {self.method}, which knows no first_step, bias or features_include_action.")
        if self.method in GOAL_METHODS and self.z_norm != "free":
            raise UserError(f"method is {self.method}, whose goals have no length to change: z_norm must be 'free'.")
        if self.method == "successor-features" and self.warmup_steps == 0:
            raise UserError(
                "method is successor-features, whose B is fitted to the warm-up: warmup_steps must be positive."
            )
        if self.bias and self.pairs == "average":
            raise UserError("bias is on, which needs pairs themselves: pairs may not be 'average'.")
        ranges = {
            "exploration": (0.0, 1.0),
            "target_retention": (0.0, 1.0),
            "learning_rate_decay": (0.0, 1.0),
            "average_share": (0.0, 1.0),
            "hindsight": (0.0, 1.0),
            "z_goals": (0.0, 1.0),
            "z_sums": (0.0, 1.0 - self.z_goals),
            "z_rewards": (0.0, 1.0 - self.z_goals - self.z_sums),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high + 1e-9:
                raise UserError(f"{name} is {getattr(self, name)}; accepted: {low:g} to {high:g}.")
        if not 0 < self.gamma < 1:
            raise UserError(f"gamma is {self.gamma}; accepted: 0 < gamma < 1 (the successor measure is infinite at 1).")
        may_be_zero = {
            "gamma",
            "warmup_steps",
            "steps_per_cycle",
            "seed",
            "orthonormality",
            "threads",
            "wide",
            "dim",
            "landmarks",
            "first_step",
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and field.name not in ranges and not isinstance(value, bool):
                least = 0 if field.name in may_be_zero else 1 if hints[field.name] is int else 1e-12
                if not least <= value < float("inf"):
                    raise UserError(f"{field.name} is {value}; it must be {'at least 0' if not least else 'positive'}.")

    def with_(self, **changes: Any) -> Settings:
        """These settings with some changed; an unknown name raises."""
        return replace(self, **_known(changes))

    def to_json(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)


def _known(names: Mapping[str, Any]) -> dict[str, Any]:
    accepted = {field.name for field in fields(Settings)}
    for name in names:
        if name not in accepted:
            raise UserError(f"There is no setting {name!r}. Settings: {', '.join(sorted(accepted))}.")
    return dict(names)


def settings_from_json(data: Mapping[str, Any]) -> Settings:
    """The inverse of `Settings.to_json`; unknown keys raise."""
    return Settings(**_known(data))


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
    "z_sampling": "mixture",
    "z_goals": 0.3,
    "z_sums": 0.3,
    "z_rewards": 0.3,
    "z_norm": "sphere",
    "pairs": "all",
}
"""Every difference of preset `fast` from preset `paper`; docs/presets.md says what each buys."""


METHODS: dict[str, dict[str, Any]] = {
    "fb": {},
    "goal-dqn": {"z_norm": "free"},
    "goal-dqn-her": {"z_norm": "free"},
    "successor-features": {"warmup_steps": 10_000, "orthonormality": 0.0},
}
"""What each method changes in either preset."""
PAPER: dict[str, dict[str, Any]] = {"goal-dqn": {"exploration": 0.2}, "goal-dqn-her": {"exploration": 0.2}}
"""What the paper's table of goal-oriented DQN has otherwise than that of FB; `fast` explores as FB does, which is
better (docs/baselines.md)."""


def preset(name: str = "fast", **changes: Any) -> Settings:
    """The settings of a preset, ``paper`` or ``fast``, for a method, with some changed by name."""
    if name not in ("paper", "fast"):
        raise UserError(f"There is no preset {name!r}; accepted: fast, paper.")
    method = changes.get("method", "fb")
    start = FAST if name == "fast" else PAPER.get(method, {})
    return Settings().with_(**start | METHODS.get(method, {}) | changes)
