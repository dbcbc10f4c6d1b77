"""What a user holds: a trained representation that answers rewards, saved and loaded as one folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.acting.evaluate import Scores, goal_quality, score_policies, state_features
from anyreward.acting.finetune import Residual, RewardedTransitions, finetune
from anyreward.acting.goal_policy import goal_policy, is_goal
from anyreward.acting.goals import GoalScores, reach_goals
from anyreward.acting.improve import improvement, other_z
from anyreward.acting.policy import Acts, Correction, Policy, action_probabilities
from anyreward.acting.rollout import Returns, rollout
from anyreward.errors import UserError
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Transitions
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.representation.latent import Coordinates
from anyreward.rewards.baseline import baseline
from anyreward.rewards.blackbox import sample_rewards
from anyreward.rewards.examiner import Examiner
from anyreward.rewards.inference import (
    ROUNDING,
    Belief,
    FeatureSample,
    belief,
    infer,
    known_size,
    reward_values,
    settled,
    warn_if_moot,
    with_backward,
)
from anyreward.rewards.lookahead import LookaheadSample
from anyreward.rewards.places import sample_rows
from anyreward.rewards.reward import Demonstration, Reward, TaskVector, from_z, read_task
from anyreward.rewards.trust import Trust
from anyreward.storage.files import as_json, sha256, write_together
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.spaces import pack_seen, space_to_json, stack
from anyreward.worlds.world import World, from_id, open_world

Array = np.ndarray[Any, Any]

SMALL_MEAN = 0.5
"""A reward's mean that is smaller than this share of its spread is left in it."""
FORMAT = 1
"""Version of the agent folder."""


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
    """Distinct transitions of the training data, kept for refining answers, where observations are categories."""
    held_out: Transitions | None = None
    """Transitions that training has not seen, to judge answers by; None where it was interrupted."""
    updates: int = 0
    """Gradient updates done; fewer than ``settings.updates`` if training was interrupted."""

    def __repr__(self) -> str:
        what = self.settings.method if self.representation.of_goals else f"d = {self.sample.B.shape[-1]}"
        return f"Agent({self.world_name}, {what}, {self.updates:,} updates)"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all that is saved but the settings: equal for agents that answer equally."""
        return sha256(self._serialised())

    def ask(self, target: Reward, refine: int = 0, improve: int | str | Array | None = None) -> Policy:
        """The policy that answers a reward, at once: no planning and no further learning.

        Args:
            target: the reward, in any of the forms of docs/rewards.md.
            refine: changes that, where observations are categories: so many steps of value iteration for this reward,
                from F . z, on the transitions kept with the agent. It takes milliseconds and corrects what F got wrong.
            improve: generalised policy improvement: act by the best of what other policies pi_z' promise for this
                reward, too. How many z' like those of training, or "goals" for B of training features, or the z'
                themselves (m, d).
        """
        if not isinstance(target, Reward):
            raise UserError(
                f"ask() takes a reward, got {type(target).__name__}. Make one with anyreward.goal(...), "
                "anyreward.reward(...), anyreward.samples(...), anyreward.demonstration(...) or anyreward.from_z(...)."
            )
        for _, term in target.terms:
            if isinstance(term, TaskVector) and term.agent not in (None, self.fingerprint):
                raise UserError(
                    f"This z ({term}) belongs to the agent {str(term.agent)[:12]}..., and this agent is "
                    f"{self.fingerprint[:12]}...: another agent's z means nothing to it. Ask for the reward again."
                )
        if self.action_start:  # given as the environment counts them
            target = _from_zero(target, self.action_start)
        if self.representation.of_goals:
            if refine or improve is not None:
                raise UserError(f"refine and improve correct F . z, which {self.settings.method} does not have.")
            return goal_policy(
                target,
                self.representation,
                self.features,
                self.sample,
                self.settings.method,
                self.action_start,
                self.fingerprint,
            )
        found = infer(target, self.sample, self.features, self.representation)
        z, scale, constant = self._task(found.z)
        warn_if_moot(target, found, self._may_end)
        policy = Policy(
            representation=self.representation,
            features=self.features,
            action_start=self.action_start,
            target=target,
            z=z,
            reward_scale=scale,
            constant=constant,
            belief=belief(found),
            judge=self._trust,
            revise=self._revise,
            agent=self.fingerprint,
            baseline=self._baseline if self.settings.first_step or self.settings.bias else None,
        )
        corrections: list[Correction] = []
        if improve is not None:
            if self.settings.bias:
                raise UserError(
                    "improve compares what policies pi_z' promise, F(s, a, z') . z_R. With a bias, as this agent has "
                    "one, these are not whole values and cannot be compared. Ask without improve."
                )
            corrections.append(improvement(other_z(improve, self.sample, self.settings)))
        if refine:
            kept = self.kept_transitions
            rewards = torch.from_numpy(self._values(target, kept.rows.features) / scale)
            start = replace(policy, corrections=tuple(corrections)).action_values(kept.states, kept.features)
            known = kept.refine(start, rewards, self.settings.gamma, refine)
            corrections.append(lambda policy, packed, Q: kept.at(packed, known, Q))
            policy = replace(policy, baseline=None, constant=0.0)  # refined values are whole
        return replace(policy, corrections=tuple(corrections))

    def can_answer(self, target: Reward) -> bool:
        """Whether this agent's method has an answer to such a reward: goal-oriented DQN knows single goals alone."""
        return is_goal(target) if self.representation.of_goals else True

    def _task(self, z_R: Tensor) -> tuple[Tensor, float, float]:
        """What a policy needs of z_R (d,): z at its known size, its scale, and what the mean of the reward is worth."""
        zs, scales = self.known_size(z_R[None])
        return zs[0], float(scales[0]), float(self._mean_reward(z_R)) / (1 - self.settings.gamma)

    def _mean_reward(self, z_R: Tensor) -> Tensor:
        """(...) the mean under rho of the rewards with these z_R (..., d), where a constant changes no policy, else 0.

        That is where no episode ends by itself, and F . z is all of Q. A mean that is small beside the spread stays.
        """
        if self._may_end or self.settings.first_step or self.settings.bias:
            return torch.zeros(z_R.shape[:-1], dtype=z_R.dtype)
        w = z_R @ self.sample.white.into.T @ self.sample.white.into  # (..., d) the reward is B . w, as far as B goes
        mean = w @ self._mean_B
        spread = ((z_R * w).sum(-1) - mean.square()).clamp(min=0).sqrt()
        return torch.where(mean.abs() > SMALL_MEAN * spread, mean, 0.0)

    @cached_property
    def _mean_B(self) -> Tensor:
        """(d,) E_rho[B], the z of a reward that is one everywhere."""
        return self.sample.weights @ self.sample.B

    @property
    def _may_end(self) -> bool:
        """Whether episodes were seen to end by themselves; unknown counts as yes."""
        rows = self.held_out or (self.transitions.rows if self.transitions else None)
        return rows is None or bool(rows.terminated.any())

    def sample_rewards(
        self,
        world: World | str | Path | gym.Env[Any, Any],
        budget: int = 10_000,
        seed: int = 0,
        progress: bool = True,
    ) -> Reward:
        """The reward of an environment as a black box: run the exploration policy again and see what it pays.

        Args:
            world: an environment like the agent's own, but with the reward: a name, a Gymnasium id or an object.
            budget: how many steps.
            seed: of starts and random actions.
            progress: whether to show progress.
        """
        if self.representation.of_goals:
            raise UserError(f"{self.settings.method} reaches single goals; it has no use for the reward of a world.")
        return sample_rewards(
            open_world(world),
            self.sample,
            self.features,
            self.representation,
            self.settings,
            budget,
            seed,
            progress,
        )

    def finetune(
        self,
        policy: Policy,
        source: World | str | Path | gym.Env[Any, Any] | RewardedTransitions | None = None,
        reward: Reward | None = None,
        **options: Any,
    ) -> Policy:
        """Learn on the real reward what the answer lacks: Q = F . z_R + q_theta, by Q-learning; the agent stays as is.

        Args:
            policy: the answer to begin with; a new one is returned.
            source: an environment to learn in online, the agent's own world if none is given, or rewarded transitions.
            reward: what to learn for, if not what the source pays; without a source, what the policy was asked for.
            options: ``steps`` in the environment, gradient ``updates``, ``batch_size``, ``learning_rate``, ``epsilon``
                of acting, ``seed``, ``progress``.
        """
        if policy.agent != self.fingerprint:
            raise UserError("This policy is another agent's; fine-tune it with that one.")
        if source is None and reward is None:
            reward = policy.target
        known = None if reward is None else settled(reward, self.sample, self.features, self.representation)
        paid = None if known is None else lambda rows: self._values(known, rows.features)
        tuned = finetune(
            policy, self.world() if source is None else source, gamma=self.settings.gamma, rewards=paid, **options
        )
        return tuned if reward is None else replace(tuned, target=reward)

    def load_policy(self, path: str | Path) -> Policy:
        """The policy that `Policy.save` wrote, with what fine-tuning had learned."""
        path = Path(path)
        data = read_task(path)
        policy = self.ask(from_z(path))
        if "tuned_sha256" not in data:
            return policy
        beside = path.with_suffix(".safetensors")
        content = beside.read_bytes() if beside.is_file() else b""
        if sha256(content) != data["tuned_sha256"]:
            raise UserError(f"{beside} does not match {path.name}: it is missing, damaged or of another policy.")
        with torch.random.fork_rng():  # fresh networks draw their weights before they are given the saved ones
            tuned = Residual(self.representation.observation_encoder, self.features.actions)
        tuned.load_state_dict(load_tensors(content))
        return replace(policy, tuned=tuned.requires_grad_(False), reward_scale=data["scale"], baseline=None)

    def play(self, policy: Acts, target: Reward, episodes: int = 20, seed: int = 0) -> Returns:
        """Play a policy in the agent's world and count a reward: undiscounted totals, an episode each."""
        world, space = self.world(), self.features.observation_space
        assert world.make is not None  # it was opened by its id
        with closing(world.make()) as env:
            played = rollout(policy, env, episodes, seed)
        totals = []
        for episode in played:
            observations = stack(space, episode.observations[:-1])
            actions = np.asarray(episode.actions) - self.action_start
            rows = self.features.of(observations, pack_seen(space, observations), actions)
            totals.append(self._values(target, torch.from_numpy(rows)).sum())
        return Returns(np.asarray(totals))

    @property
    def kept_transitions(self) -> LookaheadSample:
        """The transitions kept with the agent; raises where there are none."""
        if self.representation.of_goals:
            raise UserError(f"refine corrects F . z, which {self.settings.method} does not have. Ask without refine.")
        if self.transitions is None:
            raise UserError(
                "Answers are refined on transitions kept with the agent, and this one has none: they are kept where "
                "observations are categories. Ask without refine."
            )
        return self.transitions

    def known_size(self, z_R: Tensor) -> tuple[Tensor, Tensor]:
        """z_R (n, d) at the size that F knows best, and by what each was divided, (n,).

        Where no episode ends, the mean of the reward is taken out first: it changes no policy, and would hide the rest.
        """
        centred = z_R.double() - self._mean_reward(z_R.double())[:, None] * self._mean_B
        centred = torch.where(
            centred.norm(dim=1, keepdim=True) > ROUNDING * z_R.norm(dim=1, keepdim=True), centred, 0.0
        )
        z, scale = known_size(centred, self.sample, self.settings)
        return z.to(self.representation.dtype), scale

    @cached_property
    def _examiner(self) -> Examiner:
        return Examiner(self.sample, self.features, self.representation, self.settings, self.held_out)

    def _revise(self, old: Belief, phi: Array, rewards: Array) -> tuple[Belief, Tensor, float, float]:
        rows = sample_rows(phi, self.features, self.representation)
        new = old.after(rows, rewards, self.sample, self.representation) if len(rewards) else old
        return new, *self._task(new.found.z)

    def _trust(self, policy: Policy) -> Trust:
        plain = not policy.corrections and policy.tuned is None and self.representation.landmarks is None
        temperature = self.settings.temperature if plain else 0.0  # corrected Q are those of the greedy policy
        return self._examiner.trust(
            policy.target,
            policy.belief.found,
            policy.z,
            policy.reward_scale,
            policy.preferences,
            policy.action_values,
            temperature,
        )

    def _baseline(self, policy: Policy, packed: Tensor, features: Tensor) -> Tensor:
        return baseline(
            policy.target,
            policy.z,
            packed,
            features,
            self.sample,
            self.features,
            self.representation,
            self.settings.first_step,
        )

    def orthonormalised(self) -> Agent:
        """The same agent in coordinates of z in which E_rho[B B^T] is the identity (Remark "normB").

        Policies and Q-values are the same; the z of a reward is another. Directions that B never takes are left out.
        It answers like any other agent, and cannot learn on.
        """
        if self.representation.of_goals:
            raise UserError(f"{self.settings.method} has no B, so there are no coordinates to change.")
        white = self.sample.white
        C, inverse = white.into, white.back
        if self.representation.coordinates is not None:
            earlier = self.representation.coordinates
            C, inverse = C @ earlier.C, earlier.inverse @ inverse
        representation = replace(self.representation, coordinates=Coordinates(C, inverse))
        sample = with_backward(representation, self.sample.rows, self.sample.weights)
        return replace(self, representation=representation, sample=sample)

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
        answers: Reward | Policy | Sequence[Reward | Policy],
        mdp: FiniteMDP | None = None,
        temperature: float = 0.0,
        **how: Any,
    ) -> Scores:
        """Exact scores, on the agent's finite world, of the policies that answer some rewards.

        Rewards are asked here, with what else `ask` takes (``refine``, ``improve``); policies are taken as they act.
        """
        mdp = mdp or self.exact_mdp()
        answers = [answers] if isinstance(answers, Reward | Policy) else list(answers)
        if not answers:
            raise UserError("score() got an empty list of rewards.")
        pi = []
        for answer in answers:
            if isinstance(answer, Policy):
                if how:
                    raise UserError(f"score() takes policies as they act; {', '.join(how)} is for rewards to ask.")
                pi.append(answer.probabilities(mdp.observations))
                continue
            Q = self.ask(answer, **how).preferences(self.packed_states(mdp))
            pi.append(action_probabilities(Q, temperature=temperature).numpy())
        targets = [answer.target if isinstance(answer, Policy) else answer for answer in answers]
        return score_policies(mdp, np.stack(pi), np.stack([self.reward_table(target, mdp) for target in targets]))

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
        sphere = self.settings.z_norm == "sphere"
        return reach_goals(
            world or self.world(), self.features, self.representation, sphere, goals, seed, epsilon, self.sample
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
                "tolerance": None if self.features.tolerance is None else asdict(self.features.tolerance),
            },
            "settings": self.settings.to_json(),
        }
        files = {"weights.safetensors": content, **(beside or {}), "agent.json": as_json(config)}
        write_together({folder / name: data for name, data in files.items()})  # agent.json last: it holds their hash
        return folder

    def _values(self, target: Reward, rows: Tensor) -> np.ndarray[Any, Any]:
        return reward_values(target, rows, self.features, self.representation, self.sample)

    def packed_states(self, mdp: FiniteMDP) -> Tensor:
        """(S, packed) the observation of every state of a finite MDP."""
        return torch.from_numpy(pack_seen(self.features.observation_space, mdp.observations))

    def _serialised(self) -> bytes:
        tensors = {"sample.rows": self.sample.rows, "sample.weights": self.sample.weights}
        tensors["sample.covariance"] = self.sample.covariance
        if self.features.table is not None:
            tensors["feature_table"] = torch.from_numpy(np.asarray(self.features.table, dtype=np.float64))
        if self.transitions is not None:
            tensors |= {f"transitions.{name}": column for name, column in self.transitions.rows.columns.items()}
            tensors["transitions.counts"] = self.transitions.counts
        if self.held_out is not None:
            tensors |= {f"held_out.{name}": column for name, column in self.held_out.columns.items()}
        if self.representation.coordinates is not None:
            tensors["coordinates.C"] = self.representation.coordinates.C
            tensors["coordinates.inverse"] = self.representation.coordinates.inverse
        for name, module in self.representation.modules.items():
            tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        return save_tensors({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})


def _from_zero(target: Reward, start: int) -> Reward:
    """The same reward, with the actions of demonstrations counted from zero."""
    terms = [
        (w, replace(t, actions=t.actions - start) if isinstance(t, Demonstration) and t.actions is not None else t)
        for w, t in target.terms
    ]
    return Reward(tuple(terms))
