"""The agent: a trained model that answers rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from anyreward.acting.better import better_refined, check_steps, improved, other_z, planned, refined
from anyreward.acting.exact import Scores, packed_states, reward_table, score_goals, score_policies
from anyreward.acting.explore import sample_rewards
from anyreward.acting.finetune import Residual, RewardedTransitions, finetune
from anyreward.acting.finetune_box import BoxResidual, TunedBox
from anyreward.acting.play import GoalScores, reach_goals
from anyreward.acting.policy import PLAN, Policy, action_probabilities, checked_plan
from anyreward.errors import UserError
from anyreward.folder import Saved, load_folder, save_folder, serialised
from anyreward.learning.replay import Transitions
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.model import Model
from anyreward.rewards.coverage import Coverage, coverage
from anyreward.rewards.inference import belief, infer, warn_if_constant
from anyreward.rewards.knowledge import FeatureSample, Knowledge
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import from_z, read_task
from anyreward.storage import user_path
from anyreward.storage.files import sha256
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.spaces import Array
from anyreward.worlds.world import World, from_id, open_world


@dataclass(frozen=True, eq=False, repr=False)
class Agent:
    """A trained forward-backward representation, with everything needed to answer rewards."""

    knowledge: Knowledge
    run: RunSettings = field(default_factory=RunSettings)
    world_name: str = ""
    world_recipe: dict[str, Any] | None = None
    """How to open the agent's world again; None for a dataset or an environment object."""

    def __repr__(self) -> str:
        knowledge = self.knowledge
        what = self.settings.method if knowledge.method.goals_only else f"d = {knowledge.dim}"
        return f"Agent({self.world_name}, {what}, {self.updates:,} updates)"

    @property
    def model(self) -> Model:
        """F and B, with phi and the encoders."""
        return self.knowledge.model

    @property
    def settings(self) -> Settings:
        """The settings that it was trained with."""
        return self.knowledge.settings

    @property
    def sample(self) -> FeatureSample:
        """The sample of the training distribution rho."""
        return self.knowledge.sample

    @property
    def held_out(self) -> Transitions | None:
        """Transitions not used in training; None if there are none."""
        return self.knowledge.held_out

    @property
    def updates(self) -> int:
        """Gradient updates done; fewer than ``settings.updates`` if training was interrupted."""
        return self.knowledge.updates

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all saved tensors, without the settings: identifies the agent."""
        return sha256(serialised(self.knowledge))

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write the agent as one folder: agent.json and a file of weights."""
        folder = user_path(folder)
        save_folder(folder, self.as_saved, overwrite)
        return folder

    @classmethod
    def load(cls, folder: str | Path, features: Callable[[Any], Any] | None = None) -> Agent:
        """Read an agent's folder, or one that comes with the package, such as "shipped:four-rooms".

        ``features`` is the feature function, if the agent was trained with one.
        """
        return cls(*load_folder(user_path(folder), features))

    @property
    def as_saved(self) -> Saved:
        """The contents of its folder."""
        return Saved(self.knowledge, self.run, self.world_name, self.world_recipe)

    def ask(self, reward: Reward, refine: int | None = None, improve: int | str | Array | None = None) -> Policy:
        """The policy that answers a reward, without planning or further learning.

        Args:
            reward: the reward, in any of the forms of docs/rewards.md.
            refine: planning for this reward, starting from F . z, on transitions kept with the agent. With categories,
                the number of steps of value iteration. With at most eight numbers, any positive number means to plan
                among points, and None, the default, to do so if the result has a larger return in simulated episodes,
                in a model of held-out transitions. 0: F . z alone, at once.
            improve: generalised policy improvement: act by the maximum of the values of other policies pi_z' for this
                reward. A number of z' drawn as in training, or "goals" for B of training features, or the z'
                themselves (m, d).
        """
        if not isinstance(reward, Reward):
            raise UserError(
                f"ask() takes a reward, got {type(reward).__name__}. Make one with anyreward.goal(...), "
                "anyreward.reward(...), anyreward.samples(...), anyreward.demonstration(...) or anyreward.from_z(...)."
            )
        if refine is not None:
            check_steps(refine)
        for _, term in reward.terms:
            term.check_agent(self.fingerprint)
        if not self.can_answer(reward):
            raise UserError(
                f"Not possible: this agent's method, {self.settings.method}, supports single goals only, "
                f"anyreward.goal(...); the reward is {reward}. Train with method='fb' to ask for any reward."
            )
        if self.knowledge.method.goals_only and (refine or improve is not None):
            raise UserError(f"refine and improve correct F . z, which {self.settings.method} does not have.")
        found = infer(reward, self.knowledge)
        task = self.knowledge.task(found.z)
        if not self.knowledge.method.goals_only:
            warn_if_constant(found, reward, self.knowledge)
        policy = Policy(self.knowledge, reward, belief(found), task, self.fingerprint)
        if improve is not None:
            if self.settings.bias:
                raise UserError(
                    "improve compares the values F(s, a, z') . z_R of policies pi_z'. With a bias, which this agent "
                    "has, these are only a part of the values and cannot be compared. Ask without improve."
                )
            policy = improved(policy, other_z(improve, self.knowledge))
        if refine is None:
            return policy if improve is not None else better_refined(policy)
        return refined(policy, refine) if refine else policy

    def can_answer(self, reward: Reward) -> bool:
        """Whether this agent's method can answer a reward: goal-oriented DQN answers single goals only."""
        return reward.is_goal or not self.knowledge.method.goals_only

    def sample_rewards(
        self, world: World | str | Path | gym.Env[Any, Any], budget: int = 10_000, seed: int = 0, progress: bool = True
    ) -> Reward:
        """Samples of the reward of an environment: run the exploration policy again and record the rewards.

        Args:
            world: an environment like the agent's own, but with the reward: a name, a Gymnasium id or an object.
            budget: number of steps.
            seed: of starts and random actions.
            progress: whether to show progress.
        """
        if self.knowledge.method.goals_only:
            raise UserError(f"{self.settings.method} supports single goals only; it cannot use sampled rewards.")
        return sample_rewards(open_world(world), self.knowledge, budget, self.run.environments, seed, progress)

    def finetune(
        self,
        policy: Policy,
        source: World | str | Path | gym.Env[Any, Any] | RewardedTransitions | None = None,
        reward: Reward | None = None,
        *,
        steps: int = 20_000,
        updates: int = 5_000,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        epsilon: float = 0.6,
        seed: int = 0,
        progress: bool = True,
    ) -> Policy:
        """Improve a policy on the real reward by Q-learning: Q = F . z_R + q_theta. The agent is not changed.

        Args:
            policy: the policy to start from, without its planning among points; a new one is returned.
            source: an environment to learn in online (by default the agent's own world), or rewarded transitions.
            reward: the reward to learn for, if not the source's own; without a source, the policy's reward.
            steps: steps in the environment.
            updates: gradient updates.
            batch_size: transitions in a minibatch.
            learning_rate: of Adam; it falls linearly over the second half.
            epsilon: share of random actions while learning.
            seed: of networks, starts and random actions.
            progress: whether to show progress.
        """
        if policy.agent != self.fingerprint:
            raise UserError("This policy belongs to another agent; call finetune() of that agent.")
        if policy.refined and self.knowledge.points is not None:
            policy = self.ask(policy.reward, refine=0)
        if source is None and reward is None:
            reward = policy.reward
        known = None if reward is None else reward.settled(self.knowledge)
        rewards = None if known is None else lambda rows: known.values(self.knowledge, rows.features)
        source = self.world() if source is None else source
        tuned = finetune(policy, source, rewards, steps, updates, batch_size, learning_rate, epsilon, seed, progress)
        return tuned if reward is None else replace(tuned, reward=reward)

    def load_policy(self, path: str | Path) -> Policy:
        """Load a policy that was saved with `Policy.save`, including its fine-tuning or its plan among points."""
        path = user_path(path)
        data = read_task(path)
        policy = self.ask(from_z(path), refine=0)
        if "tensors_sha256" not in data:
            return policy
        beside = path.with_suffix(".safetensors")
        content = beside.read_bytes() if beside.is_file() else b""
        if sha256(content) != data["tensors_sha256"]:
            raise UserError(f"{beside} does not match {path.name}: it is missing, damaged or of another policy.")
        policy = replace(policy, task=policy.task._replace(scale=data["scale"]))
        try:
            tensors, points = load_tensors(content), self.knowledge.points
            if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
                raise ValueError("it holds NaN or infinity")
            if PLAN in tensors and points is not None:
                return planned(policy, checked_plan(points, tensors[PLAN], points.action_set.count))
            acts = self.model.phi.action_set
            with torch.random.fork_rng():  # new networks draw random weights before the saved ones are loaded
                if acts.continuous:
                    change = BoxResidual(self.model.observation_encoder, acts.width)
                    change.load_state_dict(tensors)
                    return replace(policy, chooser=TunedBox(change.requires_grad_(False)), whole=True)
                tuned = Residual(self.model.observation_encoder, self.model.actions)
            tuned.load_state_dict(tensors)
        except (ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{beside} does not fit this agent: {error}") from error
        return replace(policy, tuned=tuned.requires_grad_(False), whole=True)

    def coverage(self) -> Coverage:
        """Which part of the range of each feature the training data has visited; print it for a table."""
        return coverage(self.knowledge)

    def world(self) -> World:
        """Reopen the agent's world; raises for an agent of a dataset or an environment object."""
        if self.world_recipe is None:
            raise UserError(
                "This agent was trained from a dataset or an environment object, so its world cannot be reopened."
            )
        return from_id(self.world_recipe["id"], self.world_name, **self.world_recipe["kwargs"])

    def exact_mdp(self) -> FiniteMDP:
        """The finite MDP of the agent's world; raises if there is none."""
        make = self.world().make
        mdp = finite_mdp(make(), self.settings.gamma) if make else None
        if mdp is None:
            raise UserError(
                f"{self.world_name} is not a finite MDP that can be solved exactly (mazes and toy-text environments "
                "are). Evaluate by rollouts: agent.reach_goals() if the world defines when a goal is reached, else "
                "anyreward.evaluate(policy, world)."
            )
        return mdp

    def score(
        self,
        answers: Reward | Policy | Sequence[Reward | Policy] | None = None,
        mdp: FiniteMDP | None = None,
        temperature: float = 0.0,
        refine: int = 0,
        improve: int | str | Array | None = None,
    ) -> Scores:
        """Exact scores on the agent's finite world, one for each answer.

        Args:
            answers: rewards, for which the agent is asked here, or policies, which are scored as they act. By default
                every state as a goal: the paper's policy quality.
            mdp: the finite world, if not the agent's own.
            temperature: rewards and goals: act by softmax(F . z / temperature); 0 is greedy, 1 is the paper's.
            refine: rewards: as in `ask`.
            improve: rewards: as in `ask`.
        """
        mdp, knowledge = mdp or self.exact_mdp(), self.knowledge
        if answers is None:
            return score_goals(knowledge, mdp, temperature)
        answers = [answers] if isinstance(answers, Reward | Policy) else list(answers)
        if not answers:
            raise UserError("score() got an empty list of rewards.")
        pi, states = [], packed_states(mdp, self.model.phi)
        for answer in answers:
            if isinstance(answer, Policy):
                if refine or improve is not None or temperature:
                    raise UserError("score() takes temperature, refine and improve for rewards, not for policies.")
                pi.append(answer.probabilities(mdp.observations))
                continue
            Q = self.ask(answer, refine, improve).preferences(states)
            pi.append(action_probabilities(Q, temperature=temperature).numpy())
        rewards = [answer.reward if isinstance(answer, Policy) else answer for answer in answers]
        return score_policies(mdp, np.stack(pi), np.stack([reward_table(r, knowledge, mdp) for r in rewards]))

    def reach_goals(
        self, goals: int | Array | None = None, seed: int = 0, epsilon: float | None = None, world: World | None = None
    ) -> GoalScores:
        """Play one episode for each goal, by the paper's protocol for this world.

        Args:
            goals: a number of random goals, or the goals themselves (n, k); by default all goals if the world lists
                them, else 1,000 random ones.
            seed: of goals, starts and random actions.
            epsilon: share of random actions, if not the paper's; 1 measures the random policy.
            world: the world to play in, if it cannot be reopened.
        """
        return reach_goals(world or self.world(), self.knowledge, goals, seed, epsilon)
