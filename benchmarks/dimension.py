"""The effect of d, as figures and pictures: errors and scores against d, singular values of successor measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anyreward.acting.exact import score_policies
from anyreward.agent import Agent
from anyreward.experiments.theory import KINDS, fb_tables, rewards_on_goals
from anyreward.figures.maze import finish, pyplot
from anyreward.model.losses import boltzmann
from anyreward.theory.fb import FB, exact, goal_measure
from anyreward.theory.stationary import SuccessorDensity, density_of, fb_loss, singular_values, truncated

Array = np.ndarray[Any, Any]

COLOURS = {"single goal": "#0072b2", "smooth": "#e69f00", "dense": "#009e73"}
"""Three colours that colour-blind people can distinguish."""
MARKERS = {"single goal": "o", "smooth": "s", "dense": "^"}


def rank_kept(agent: Agent) -> dict[str, Array]:
    """Singular values in L2(rho) of m^pi: of the random policy, and the root mean square over policies for goals."""
    fb = fb_tables(agent)
    fb = exact(fb.mdp, fb.rho, fb.phi)  # one-hot B: the true m^{pi_z} for every z
    uniform = np.full((fb.mdp.states, fb.mdp.actions), 1 / fb.mdp.actions)
    found = {"random policy": singular_values(_density(fb, uniform))}
    goals = [singular_values(density_of(fb, z, _starts(fb))) for z in np.eye(fb.goals)]
    found["optimal policies for single goals"] = np.sqrt(np.mean(np.square(goals), axis=0))
    return found


def dimension_figures(agent: Agent, n: int = 20, seed: int = 0) -> dict[str, Any]:
    """The effect of d: the error of F . B relative to m^{pi_z}, and the scores of answers, for each kind of reward.

    Errors are in L2(rho), relative to the norm of m. F . B is compared with m of the greedy pi_z, as in the theorems,
    and with m of the soft policy that F was trained on; each error is given with the smallest error of rank d (SVD).
    Scores are given with those of the exact F for the best B of the random policy in dimension d.
    """
    fb = fb_tables(agent)
    d = fb.dimension
    uniform = np.full((fb.mdp.states, fb.mdp.actions), 1 / fb.mdp.actions)
    _, B = truncated(_density(exact(fb.mdp, fb.rho, fb.phi), uniform), min(d, fb.goals))
    ideal = exact(fb.mdp, fb.rho, fb.phi, B)
    figures: dict[str, Any] = {
        "d": d,
        "variant": {"bias": agent.settings.bias, "first_step": agent.settings.first_step},
    }
    for kind in KINDS:
        rewards = rewards_on_goals(fb, kind, n, seed)
        errors = []
        for z in rewards @ (fb.rho[:, None] * fb.B):
            model = fb.model_density(z).reshape(-1, fb.goals)
            for pi in (fb.policy(z), training_policy(agent, fb, z)):
                true = _density(fb, pi)
                size, left = (singular_values(true)[i:] for i in (0, d))
                error = np.sqrt(fb_loss(true, model, np.eye(fb.goals)))
                errors.append(np.array([error, np.linalg.norm(left)]) / np.linalg.norm(size))
        greedy, soft = np.reshape(errors, (-1, 2, 2)).mean(0)
        figures[kind] = {
            "error": float(greedy[0]),
            "least error of rank d": float(greedy[1]),
            "error, policy of training": float(soft[0]),
            "least error of rank d, policy of training": float(soft[1]),
            "score": _score(fb, rewards),
            "score with exact F, best B": _score(ideal, rewards),
        }
    return figures


def training_policy(agent: Agent, fb: FB, z: Array) -> Array:
    """(S, A) softmax(F . z / tau), the soft policy whose successor measure F is trained on."""
    _, scale = agent.knowledge.scaled(torch.from_numpy(z)[None])
    return boltzmann(torch.from_numpy(fb.forward(z) @ z) / float(scale[0]), agent.settings.temperature).numpy()


def _score(fb: FB, rewards: Array) -> float:
    """The mean score over rewards, 0 = random, 1 = optimal."""
    pi = np.stack([fb.policy(fb.z_of(r)) for r in rewards])
    return float(score_policies(fb.mdp, pi, fb.on_pairs(rewards)).normalised.mean())


def _starts(fb: FB) -> Array:
    """(S A,) rho of the states with uniform actions, if goals do not depend on actions; else rho of the pairs."""
    share = 1 / fb.mdp.actions if (fb.phi == fb.phi[:, :1]).all() else 1.0
    return np.asarray(fb.rho[fb.phi.ravel()] * share)


def _density(fb: FB, pi: Array) -> SuccessorDensity:
    """m^pi of a policy (S, A) over goals, as a matrix."""
    M = goal_measure(fb.mdp, pi, fb.phi, fb.goals, fb.first)
    return SuccessorDensity(M.reshape(-1, fb.goals) / fb.rho, _starts(fb), fb.rho)


def draw_dimension(figures: Sequence[Mapping[str, Any]], path: Path, heading: str = "") -> Path:
    """Draw the FB error and the scores against d, from `experiments.theory.dimension_figures` for several d."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    d = [row["d"] for row in figures]
    for kind, colour in COLOURS.items():
        style = {"color": colour, "marker": MARKERS[kind]}
        left.plot(d, [row[kind]["error, policy of training"] for row in figures], **style, label=kind)
        least = [row[kind]["least error of rank d, policy of training"] for row in figures]
        left.plot(d, least, color=colour, linestyle=":")
        right.plot(d, [row[kind]["score"] for row in figures], **style)
        right.plot(d, [row[kind]["score with exact F, best B"] for row in figures], **style, linestyle="--", alpha=0.5)
    left.plot([], [], color="#555555", linestyle=":", label="left: least error of rank d")
    right.plot([], [], color="#555555", linestyle="--", label="right: exact F, best B of rank d")
    left.set(title="Error of F . B, relative to the successor density", xlabel="d", ylabel="relative error, L2(rho)")
    right.set(title="Answers: 0 = random, 1 = optimal", xlabel="d", ylabel="mean score", ylim=(None, 1.03))
    left.set_ylim(0, None)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(d, [str(x) for x in d])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    return finish(figure, path, heading)


def draw_singular_values(values: Mapping[str, Array], path: Path, heading: str = "") -> Path:
    """Draw the singular values of m^pi and the error of the best F . B of rank d."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for (name, sizes), colour, line in zip(values.items(), ("#0072b2", "#d55e00"), ("-", "--"), strict=True):
        rank = np.arange(1, len(sizes) + 1)
        left.plot(rank, sizes, color=colour, linestyle=line, linewidth=2.2, label=name)
        tail = np.sqrt(np.append(np.cumsum(sizes[::-1] ** 2)[::-1][1:], 0.0) / (sizes**2).sum())
        right.plot(rank, tail, color=colour, linestyle=line, linewidth=2.2)
    left.set(title="Singular values in L2(rho)", xlabel="index", ylabel="singular value", yscale="log")
    right.set(title="Error of the best F . B of rank d", xlabel="d", ylabel="relative error, L2(rho)")
    right.set_ylim(0, None)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return finish(figure, path, heading)
