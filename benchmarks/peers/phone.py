"""The phone step in plain NumPy, as the peers' clients run it."""

import math

import numpy as np


def gradient(Q, apps, counts, previous, following, times, lam):
    """The phone's own rows of F; it solves p on the way."""
    own, k = Q[apps], len(apps)
    S = np.zeros((k, k), Q.dtype)
    S[previous, following] = times
    S /= np.maximum(S.sum(axis=1, keepdims=True), 1)
    SQ = S @ own
    h = (SQ * own).sum(axis=1)
    c = (counts / max(counts.sum(), 1)).astype(Q.dtype)
    A = own.T @ (c[:, None] * own)
    A.flat[:: len(A) + 1] += lam
    p = np.linalg.solve(A, own.T @ (c * (1 - h)))
    D = (c * (own @ p + h - 1))[:, None]
    return D * (p + SQ) + S.T @ (D * own)


def harmony(rng, apps, F, n_apps, clip, epsilon):
    """One random position (app, column) and the random sign that is sent for it."""
    app, column = divmod(int(rng.integers(n_apps * F.shape[1])), F.shape[1])
    i = int(np.searchsorted(apps, app))
    x = float(F[i, column]) / clip if i < len(apps) and apps[i] == app else 0.0
    lean = min(max(x, -1.0), 1.0) * math.tanh(epsilon / 2)
    return app, column, 1 if rng.random() < 0.5 + 0.5 * lean else -1
