"""What a user holds: a trained representation that answers rewards, saved and loaded as one folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.acting.evaluate import Scores, goal_quality, score_policies, state_features
from anyreward.acting.goals import GoalScores, goal_test_of, goal_z, measures, play_goals, together
from anyreward.acting.policy import Policy, action_probabilities
from anyreward.errors import UserError
from anyreward.learning.presets import Settings, settings_from_json
from anyreward.learning.replay import Transitions
from anyreward.representation.fb import Representation, make_representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import FeatureSample, infer_z, reward_values, with_backward
from anyreward.rewards.lookahead import LookaheadSample
from anyreward.rewards.reward import Goal, Reward
from anyreward.rewards.trust import Trust, consistent, represented
from anyreward.storage.files import as_json, read_json, sha256, write_together
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.spaces import pack_seen, space_from_json, space_to_json
from anyreward.worlds.world import World, from_id

FORMAT = 1
"""Version of the agent folder."""
ASK_SIZE = 0.7
"""The size of an asked z, in units of a typical goal's z. Below 1, greedy policies are steadier next to a goal, above,
costs weigh more; docs/presets.md has the figures."""


@dataclass(frozen=True, eq=False, repr=False)
class Agent:
    """A trained forward-backward representation with all it needs to answer alone."""

    representation: Representation
    features: FeatureMap
    sample: FeatureSample
    settings: Settings
    action_start: int = 0
    world_name: str = ""
    world_recipe: dict[str, Any] | None = None
    transitions: LookaheadSample | None = None
    """Distinct transitions kept for judging answers, where observations are categories."""
    updates: int = 0
    """Gradient updates done; fewer than ``settings.updates`` if training was interrupted."""

    def __repr__(self) -> str:
        return f"Agent({self.world_name}, d = {self.settings.dim}, {self.updates:,} updates)"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all tensors: equal for agents that answer equally."""
        return sha256(self._serialised())

    def ask(self, target: Reward, refine: int = 0) -> Policy:
        """The policy that answers a reward, at once: no planning and no further learning.

        ``refine`` changes that, where observations are categories: so many steps of value iteration for this reward,
        from F . z, on the transitions kept with the agent. It takes milliseconds and corrects what F got wrong.
        """
        if not isinstance(target, Reward):
            raise UserError(
                f"ask() takes a reward, got {type(target).__name__}. Make one with anyreward.goal(...) or "
                "anyreward.reward(function)."
            )
        z_R = infer_z(target, self.sample, self.features, self.representation)
        zs, scales = self.known_size(z_R[None])
        z, scale = zs[0], float(scales[0])
        if not z.any():
            warnings.warn(
                "This reward is zero wherever the agent has been: every policy is equally good.", stacklevel=2
            )
        policy = Policy(
            representation=self.representation,
            observation_space=self.features.observation_space,
            action_start=self.action_start,
            z=z,
            reward_scale=scale,
            judge=lambda policy: self._trust(target, policy),
            agent=self.fingerprint,
        )
        if not refine:
            return policy
        kept = self.kept_transitions
        rewards = torch.from_numpy(self._values(target, kept.rows.features) / scale)
        known = kept.refine(policy.preferences(kept.states), rewards, self.settings.gamma, refine)
        return replace(policy, correct=lambda packed, Q: kept.at(packed, known, Q))

    @property
    def kept_transitions(self) -> LookaheadSample:
        """The transitions kept with the agent; raises where there are none."""
        if self.transitions is None:
            raise UserError(
                "Answers are refined on transitions kept with the agent, and this one has none: they are kept where "
                "observations are categories. Ask without refine."
            )
        return self.transitions

    def known_size(self, z_R: Tensor) -> tuple[Tensor, Tensor]:
        """z_R (n, d) at the size that F knows best, and by what each was divided, (n,).

        Scaling a reward changes no optimal policy.
        """
        sphere = self.settings.z_norm == "sphere"
        size = self.settings.dim**0.5 if sphere else ASK_SIZE * self.sample.radius
        scale = z_R.norm(dim=1) / size
        scale = torch.where(scale > 0, scale, 1.0)
        return (z_R / scale[:, None]).to(self.representation.dtype), scale

    def _trust(self, target: Reward, policy: Policy) -> Trust:
        if not self.representation.feature_encoder.categorical and any(isinstance(t, Goal) for _, t in target.terms):
            return Trust(None, None)
        share = represented(self._values(target, self.sample.rows), self.sample)
        if self.transitions is None:
            return Trust(share, None)
        rewards = torch.from_numpy(self._values(target, self.transitions.rows.features) / policy.reward_scale)
        Q = policy.preferences(self.transitions.states).double()
        return Trust(share, consistent(self.transitions, Q, rewards, self.settings.gamma))

    def world(self) -> World:
        """The agent's world, opened again; raises for an agent of a dataset or an environment object."""
        if self.world_recipe is None:
            raise UserError(
                "This agent was trained from a dataset or an environment object, so its world cannot be reopened."
            )
        return from_id(self.world_recipe["id"], self.world_name, **self.world_recipe["kwargs"])

    def exact_mdp(self) -> FiniteMDP:
        """The finite MDP behind the agent's world; raises where there is none."""
        make = self.world().make
        mdp = finite_mdp(make(), self.settings.gamma) if make else None
        if mdp is None:
            raise UserError(
                f"{self.world_name} is not a finite MDP that can be solved exactly (mazes and toy-text environments "
                "are). Measure by playing: agent.reach_goals() where the world says when a goal is reached, else "
                "anyreward.evaluate(policy, world)."
            )
        return mdp

    def score(
        self,
        targets: Reward | list[Reward],
        mdp: FiniteMDP | None = None,
        temperature: float = 0.0,
        refine: int = 0,
    ) -> Scores:
        """Exact scores, on the agent's finite world, of the policies that answer some rewards."""
        mdp = mdp or self.exact_mdp()
        targets = [targets] if isinstance(targets, Reward) else targets
        if not targets:
            raise UserError("score() got an empty list of rewards.")
        states = self.packed_states(mdp)
        Q = torch.stack([self.ask(target, refine).preferences(states) for target in targets])
        pi = action_probabilities(Q, temperature=temperature).numpy()
        return score_policies(mdp, pi, np.stack([self.reward_table(target, mdp) for target in targets]))

    def goal_quality(self, mdp: FiniteMDP | None = None, temperature: float = 1.0) -> Scores:
        """The paper's policy quality with every state of the finite world as the goal."""
        return goal_quality(self.representation, self.features, mdp or self.exact_mdp(), temperature)

    def reach_goals(
        self,
        goals: int | np.ndarray[Any, Any] | None = None,
        seed: int = 0,
        epsilon: float | None = None,
        world: World | None = None,
    ) -> GoalScores:
        """Play one episode for each goal, as the paper does it in this world.

        Args:
            goals: how many random ones, or themselves (n, k); by default all where they are a list, else 1,000.
            seed: of goals, starts and random actions.
            epsilon: share of random actions, if not the paper's; 1 measures the random policy.
            world: the world to play in, if it cannot be reopened from what the agent remembers.
        """
        world = world or self.world()
        test = goal_test_of(world)
        if not measures(test, self.features):
            raise UserError(
                f"Goals of {world.name} are given in the features that it names itself; this agent's B sees others."
            )
        if epsilon is not None and not 0 <= epsilon <= 1:
            raise UserError(f"epsilon is {epsilon}; accepted: 0 to 1.")
        if goals is None:
            goals = 1_000 if test.every is None else test.every
        if isinstance(goals, int):
            if goals < 1:
                raise UserError(f"goals is {goals}; it must be positive.")
            goals = test.draw(np.random.default_rng(seed), goals)
        goals, width = np.asarray(goals, dtype=np.float64), test.draw(np.random.default_rng(0), 1).shape[1]
        if goals.ndim != 2 or len(goals) == 0 or goals.shape[1] != width:
            raise UserError(f"goals have the shape {goals.shape}; expected (n, {width}), or how many to draw.")
        Z = goal_z(self.representation, self.features, goals, self.settings.z_norm == "sphere")
        env = world.make_vector(together(world, len(goals)), max_episode_steps=test.steps + 1)
        with closing(env) if world.recipe is not None else nullcontext():  # an object stays its owner's to close
            return play_goals(
                env,
                test,
                goals,
                self.features,
                lambda packed, which: self.representation.q(packed, Z[which]),
                epsilon,
                seed,
            )

    def reward_table(self, target: Reward, mdp: FiniteMDP) -> np.ndarray[Any, Any]:
        """(S, A) the reward of every state and action of a finite MDP."""
        rows = state_features(mdp, self.features)  # (S, A, packed)
        return self._values(target, rows.flatten(0, 1)).reshape(mdp.states, mdp.actions)

    def save(self, folder: str | Path, overwrite: bool = False, beside: dict[str, bytes] | None = None) -> Path:
        """Write the agent as one folder: agent.json and weights.safetensors. No pickle.

        ``beside`` are files that belong to it, by name, and change with it.
        """
        folder = Path(folder)
        if (folder / "agent.json").exists() and not overwrite:
            raise UserError(f"{folder} holds an agent already. Choose another folder, or pass overwrite=True.")
        content = self._serialised()
        config = {
            "format": FORMAT,
            "weights_sha256": sha256(content),
            "updates": self.updates,
            "world": {"name": self.world_name, "recipe": self.world_recipe},
            "observation_space": space_to_json(self.features.observation_space),
            "actions": {"n": self.features.actions, "start": self.action_start},
            "features": {
                "kind": self.features.kind,
                "include_action": self.features.include_action,
                "function_width": self.features.function_width,
                "names": self.features.names,
            },
            "settings": self.settings.to_json(),
        }
        files = {"weights.safetensors": content, **(beside or {}), "agent.json": as_json(config)}
        write_together({folder / name: data for name, data in files.items()})  # agent.json last: it holds their hash
        return folder

    def _values(self, target: Reward, rows: Tensor) -> np.ndarray[Any, Any]:
        return reward_values(target, rows, self.features, self.representation)

    def packed_states(self, mdp: FiniteMDP) -> Tensor:
        """(S, packed) the observation of every state of a finite MDP."""
        return torch.from_numpy(pack_seen(self.features.observation_space, mdp.observations))

    def _serialised(self) -> bytes:
        tensors = {"sample.rows": self.sample.rows, "sample.weights": self.sample.weights}
        tensors["sample.covariance"] = self.sample.covariance
        if self.features.table is not None:
            tensors["feature_table"] = torch.from_numpy(np.asarray(self.features.table, dtype=np.float64))
        if self.transitions is not None:
            tensors |= {f"transitions.{name}": column for name, column in self.transitions.rows._asdict().items()}
            tensors["transitions.counts"] = self.transitions.counts
        for name, module in _modules(self.representation).items():
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        return save_tensors({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})


def _modules(representation: Representation) -> dict[str, torch.nn.Module]:
    r = representation
    return {"F": r.F, "B": r.B, "observation_encoder": r.observation_encoder, "feature_encoder": r.feature_encoder}


def fresh_representation(features: FeatureMap, s: Settings) -> Representation:
    """The networks of some settings, with weights as torch's own generator draws them."""
    return make_representation(
        features.seen_space,
        features.space,
        features.actions,
        s.dim,
        s.hidden,
        s.layers,
        s.layer_norm,
        s.normalise,
        s.action_input,
        s.wide,
        s.encoding,
    )


def load(folder: str | Path, features: Callable[[Any], Any] | None = None) -> Agent:
    """Read an agent folder. ``features`` gives a feature function again, if the agent was trained with one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"There is no agent folder at {folder}.")
    config = read_json(folder / "agent.json")
    if config.get("format") != FORMAT:
        raise UserError(f"{folder} has agent format {config.get('format')!r}; this anyreward reads format {FORMAT}.")
    weights = folder / "weights.safetensors"
    content = weights.read_bytes() if weights.is_file() else b""
    if sha256(content) != config["weights_sha256"]:
        raise UserError(f"{weights} does not match agent.json: it is missing, damaged or from another agent.")
    try:
        with torch.random.fork_rng():  # fresh networks draw their weights before they are given the saved ones
            return _restore(config, load_tensors(content), features)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder / 'agent.json'} does not fit its weights: {error}") from error


def _restore(config: dict[str, Any], tensors: dict[str, Tensor], features: Callable[[Any], Any] | None) -> Agent:
    s = settings_from_json(config["settings"])
    space = space_from_json(config["observation_space"])
    table, names = tensors.get("feature_table"), config["features"]["names"]
    fm = FeatureMap(
        kind=config["features"]["kind"],
        observation_space=space,
        actions=config["actions"]["n"],
        include_action=config["features"]["include_action"],
        function=features,
        function_width=config["features"]["function_width"],
        names=tuple(names) if names else None,
        table=None if table is None else table.numpy(),
    )
    representation = fresh_representation(fm, s)
    for name, module in _modules(representation).items():
        prefix = f"{name}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    kept = None
    if "transitions.counts" in tensors:
        rows = Transitions(*(tensors[f"transitions.{name}"] for name in Transitions._fields))
        kept = LookaheadSample(rows, tensors["transitions.counts"])
    return Agent(
        representation,
        fm,
        with_backward(representation, tensors["sample.rows"], tensors["sample.weights"], tensors["sample.covariance"]),
        s,
        action_start=config["actions"]["start"],
        world_name=config["world"]["name"],
        world_recipe=config["world"]["recipe"],
        transitions=kept,
        updates=config["updates"],
    )
