"""A directed embedding model of the next app, a rival of the crowd's counts.

Q (n_apps, d)   vectors of the next apps               p (d,)   user vector
R (n_apps, d)   vectors of the last apps               w (n_last, n_apps)   shares of transitions
last (n_last,)  the apps of w's rows

    P(i | j, u) = softmax_i q_iᵀ(p + r_j)
    L = − Σ_ji w_ji log P(i | j, u) + λ/2 ‖p‖²

SeqMF's q_iᵀq_j is symmetric in i and j; q_iᵀr_j is not. This module has the phone's side: the user
vector, and the gradient of L in Q and R, a matrix that any gradient mechanism can encode.
`nextapp.fleet.directed_steps` does the same for many phones, and `nextapp.studies.crowd_rounds`
trains the model in rounds: `nextapp coldstart --way directed`, and the model `nextapp-directed`.
Results: docs/decisions/0008-what-the-crowd-tells.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.wire import Floats

NEWTON_STEPS = 3


class Transitions(NamedTuple):
    """Shares of one phone's transitions: all of `share` (n_last, n_apps) sum to 1."""

    last: npt.NDArray[np.int64]
    share: Floats


def transitions_of(history: npt.NDArray[np.integer], n_apps: int) -> Transitions:
    """The shares of transitions of a history of launches, oldest first."""
    last, row = np.unique(history[:-1], return_inverse=True)
    share = np.zeros((len(last), n_apps))
    np.add.at(share, (row, history[1:]), 1.0 / max(1, len(history) - 1))
    return Transitions(last.astype(np.int64), share)


def probabilities(Q: Floats, R: Floats, p: Floats, last: npt.NDArray[np.int64]) -> Floats:
    """P(i | j, u) for these last apps, (n_last, n_apps)."""
    scores = (p + R[last]) @ Q.T
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = chances / chances.sum(axis=1, keepdims=True)
    return found


def loss(Q: Floats, R: Floats, p: Floats, phone: Transitions, lam: float) -> float:
    """L of one phone."""
    chances = probabilities(Q, R, p, phone.last)
    return float(-(phone.share * np.log(chances)).sum() + lam / 2 * p @ p)


def user_vector(Q: Floats, R: Floats, phone: Transitions, lam: float) -> Floats:
    """The p that minimises L, by a few Newton steps from 0; L is convex in p."""
    p = np.zeros(Q.shape[1])
    weight = phone.share.sum(axis=1)
    for _ in range(NEWTON_STEPS if len(phone.last) else 0):
        chances = probabilities(Q, R, p, phone.last)
        slope = (weight[:, None] * chances - phone.share).sum(axis=0) @ Q + lam * p
        means = chances @ Q  # (n_last, d)
        H = (Q * (weight @ chances)[:, None]).T @ Q - (means * weight[:, None]).T @ means
        p = p - np.linalg.solve(H + lam * np.eye(len(p)), slope)
    return p


def gradient(Q: Floats, R: Floats, p: Floats, phone: Transitions) -> Floats:
    """(2 n_apps, d): the gradient of L in Q, stacked on that in R."""
    error = phone.share.sum(axis=1)[:, None] * probabilities(Q, R, p, phone.last) - phone.share
    found = np.zeros((2 * len(Q), Q.shape[1]))
    found[: len(Q)] = error.T @ (p + R[phone.last])
    found[len(Q) + phone.last] = error @ Q
    return found
