"""The equations of sections 3 and 4 of the paper, for one phone.

Q (n_apps, d)   app vectors, one row per app         p (d,)       user vector
S (n_apps, n_apps)  the phone's transition weights   c (n_apps,)  confidence, the diagonal of C
a (n_apps,)     1 for apps the phone has launched    h (n_apps,)  short-term score, diag(S Q Qᵀ)
F (n_apps, d)   gradient of the loss in Q            lam, alpha, gamma   λ, α, γ

First the dense forms, as printed. Below them the forms that run on a phone, ``phone_…``: they use
only the phone's own apps and are equal to the dense ones. The equation numbers count the paper's
numbered equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nextapp.wire import READINGS, Broadcast, Floats, inference_window

Apps = npt.NDArray[np.integer]

# --- the dense forms, as printed ---------------------------------------------------------------


_NUMBERS_AT_ONCE = 1 << 16  # half a MiB


def top(scores: Floats, n: int, candidates: npt.ArrayLike | None = None) -> npt.NDArray[np.intp]:
    """The n best apps among the candidates A_u (default: all apps), best first, eq. (2).

    Fewer than n candidates give fewer than n apps. Equal scores keep the order of the candidates.
    """
    scores = np.asarray(scores)
    among = np.arange(len(scores)) if candidates is None else np.asarray(candidates, np.intp)
    chosen = scores[among]
    if not np.isfinite(chosen).all():
        raise ValueError("scores must be finite: NaN and infinity cannot be ranked.")
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n!r}.")
    return among[np.argsort(-chosen, kind="stable")[:n]]


def loss(Q: Floats, p: Floats, c: Floats, a: Floats, S: Floats, lam: float) -> float:
    """One phone's part of the loss, eq. (3), without the common term λ‖Q‖².

    ½ ‖r − a‖²_C + λ/2 ‖p‖²
    """
    residual = scores(Q, p, S) - a
    return float(0.5 * residual @ (c * residual) + 0.5 * lam * p @ p)


def scores(Q: Floats, p: Floats, S: Floats) -> Floats:
    """The relevance score r of every app in training, eq. (4): r = Q p + h."""
    return Q @ p + short_term(S, Q)


def transitions(history: npt.ArrayLike, n_apps: int, reading: str = "example") -> Floats:
    """S_u, the phone's transition weights, eq. (5) and its example (6).

    The equation and the example disagree (PAPER.md, R1), so there are readings; n(j→i) counts i
    immediately after j:

        example    S_ij = n(i→j) / n(i→·)    row = previous app, column = next, rows sum to 1
        equation   S_ij = n(j→i) / n(i→·)    as eq. (5) is printed
        authors    S_ij = n(j→i) / n(·→i)    row = next, column = previous, rows sum to 1
        none       S = 0                     the MF model

    A row whose denominator is 0 is 0.

    Parameters
    ----------
    history : apps in the order of their launches

    Returns
    -------
    S : (n_apps, n_apps)
    """
    stats = phone_statistics(_check_history(history, n_apps), reading)
    S = np.zeros((n_apps, n_apps))
    S[stats.apps[stats.rows], stats.apps[stats.columns]] = stats.weights
    return S


def short_term(S: Floats, Q: Floats) -> Floats:
    """h, the short-term score of every app, eq. (7): h_i = Σ_j S_ij q_iᵀ q_j."""
    return np.asarray(np.sum((S @ Q) * Q, axis=1))


def light_scores(Q: Floats, p: Floats, recent: npt.ArrayLike, inference: str = "sum") -> Floats:
    """The light score r̂ of every app at inference, eq. (8).

        r̂_i = q_iᵀ p + q_iᵀ q_s,   q_s = Σ_{k in s} q_k

    ``recent`` is s, the session so far, with repeats, oldest first. Other values of ``inference``
    replace the sum (PAPER.md, R7).
    """
    return Q @ (p + session_vector(Q[np.asarray(recent, np.intp)], inference))


def session_vector(vectors: Floats, inference: str) -> Floats:
    """q_s of eq. (8) from the vectors (l, d) of the session's launches, oldest first."""
    window = inference_window(inference)
    if len(vectors) == 0 or inference == "none":
        return np.zeros(vectors.shape[1])
    if inference == "mean":
        return np.asarray(vectors.mean(axis=0))
    if inference == "last":
        return np.asarray(vectors[-1])
    return np.asarray(vectors[-window:].sum(axis=0) if window else vectors.sum(axis=0))


def confidence(counts: npt.ArrayLike, alpha: float, gamma: float) -> Floats:
    """c, the weight of each app's error, eq. (9).

        c_i = (d_i^γ + α) / (Σ_j d_j^γ + α N)

    d_i is the number of launches, and 0^γ is 0 also for γ = 0, so the weight of an app never
    launched is α. A phone without launches and α = 0 has c = 0.

    Parameters
    ----------
    counts : (n_apps,)
    """
    d = np.asarray(counts, np.float64)
    powers = np.where(d > 0, d, 1.0) ** gamma * (d > 0)
    total = powers.sum() + alpha * len(d)
    return (powers + alpha) / total if total > 0 else np.zeros(len(d))


def user_vector(Q: Floats, c: Floats, a: Floats, h: Floats, lam: float) -> Floats:
    """The user vector that minimises the loss for fixed Q, eq. (10).

        p = (Qᵀ C Q + λ I)⁻¹ Qᵀ C (a − h)

    Parameters
    ----------
    Q : (n_apps, d)
    c, a, h : (n_apps,)
    lam
        λ > 0, so the d x d system is positive definite for any history.

    Returns
    -------
    p : (d,)
    """
    A = Q.T @ (c[:, None] * Q) + lam * np.eye(Q.shape[1])  # (d, d)
    b = Q.T @ (c * (a - h))  # (d,)
    return np.linalg.solve(A, b)


def gradient(Q: Floats, p: Floats, c: Floats, a: Floats, S: Floats) -> Floats:
    """F(u), the gradient in Q of the phone's part of the loss, eq. (12).

        F = D e pᵀ + (D S + Sᵀ D) Q,   D = diag(C (r − a))

    Exact for any fixed S, in every reading.

    Returns
    -------
    F : (n_apps, d)
    """
    D = (c * (scores(Q, p, S) - a))[:, None]  # (n_apps, 1)
    return D * p + D * (S @ Q) + S.T @ (D * Q)


def _check_history(history: npt.ArrayLike, n_apps: int) -> Apps:
    apps = np.asarray(history)
    if apps.size == 0:
        return np.zeros(0, np.intp)
    if apps.ndim != 1 or not np.issubdtype(apps.dtype, np.integer):
        raise ValueError(
            f"a history must be a list of app numbers, got an array of {apps.dtype} with shape "
            f"{apps.shape}."
        )
    if apps.min() < 0 or apps.max() >= n_apps:
        raise ValueError(
            f"app numbers must be from 0 to {n_apps - 1}, got {apps.min()} to {apps.max()}."
        )
    return apps


# --- the forms that run on a phone: its own apps only ------------------------------------------


@dataclass(frozen=True, eq=False)
class PhoneStatistics:
    """The statistics of a history: the phone's own k apps and m distinct transitions.

    ``apps`` (k,) ascending, ``counts`` (k,); S has the entry ``weights[e]`` at row ``rows[e]`` and
    column ``columns[e]``, both positions in ``apps``.
    """

    apps: Apps
    counts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]
    weights: Floats


def phone_statistics(history: Apps, reading: str = "example") -> PhoneStatistics:
    """Launch counts and the entries of S_u of one history, eq. (5); see `transitions`."""
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {reading!r}.")
    apps, own, counts = np.unique(np.asarray(history), return_inverse=True, return_counts=True)
    k = len(apps)
    if reading == "none" or len(own) < 2:
        nothing = np.zeros(0, np.intp)
        return PhoneStatistics(apps, counts, nothing, nothing, np.zeros(0))
    pairs, n = np.unique(own[:-1] * k + own[1:], return_counts=True)  # n(previous → following)
    previous, following = np.divmod(pairs, k)
    n_out = np.bincount(previous, n, minlength=k)  # n(i → ·)
    n_in = np.bincount(following, n, minlength=k)  # n(· → i)
    if reading == "example":
        return PhoneStatistics(apps, counts, previous, following, n / n_out[previous])
    if reading == "authors":
        return PhoneStatistics(apps, counts, following, previous, n / n_in[following])
    defined = n_out[following] > 0
    previous, following, n = previous[defined], following[defined], n[defined]
    return PhoneStatistics(apps, counts, following, previous, n / n_out[following])


def phone_confidence(
    stats: PhoneStatistics, n_apps: int, alpha: float, gamma: float
) -> tuple[Floats, float]:
    """`confidence` of the phone's own apps (k,), and c0 of every other app, eq. (9)."""
    powers = stats.counts.astype(np.float64) ** gamma
    total = powers.sum() + alpha * n_apps
    return ((powers + alpha) / total, alpha / total) if total > 0 else (powers, 0.0)


def phone_short_term(stats: PhoneStatistics, own: Floats) -> Floats:
    """`short_term` of the phone's own apps, eq. (7); it is 0 for every other app.

    ``own`` (k, d) are the rows of Q of the phone's apps, here and below.
    """
    similarity = np.empty(len(stats.rows))
    for part in _blocks(len(stats.rows), own.shape[1]):
        rows, columns = stats.rows[part], stats.columns[part]
        similarity[part] = np.einsum("ed,ed->e", own[rows], own[columns])
    return np.asarray(
        np.bincount(stats.rows, stats.weights * similarity, minlength=len(own)), np.float64
    )


def phone_terms(
    stats: PhoneStatistics, broadcast: Broadcast
) -> tuple[Floats, Floats, float, Floats]:
    """own (k, d), c (k,), c0 and h (k,): the terms of eqs. (10) and (12) other than p."""
    settings = broadcast.settings
    own = broadcast.app_vectors[stats.apps]
    c, c0 = phone_confidence(stats, broadcast.n_apps, settings.alpha, settings.gamma)
    return own, c, c0, phone_short_term(stats, own)


def phone_user_vector(
    own: Floats, gram: Floats, c: Floats, c0: float, h: Floats, lam: float
) -> Floats:
    """`user_vector` from the phone's own apps only, eq. (10), also for α > 0 (PAPER.md, R8).

        Qᵀ C Q = c0 QᵀQ + Σ_own (c − c0) q qᵀ,   Qᵀ C (a − h) = Σ_own c (1 − h) q

    ``gram`` (d, d) is QᵀQ, computed once per round.
    """
    A = c0 * gram + own.T @ ((c - c0)[:, None] * own) + lam * np.eye(own.shape[1])
    b = own.T @ (c * (1.0 - h))
    return np.linalg.solve(A, b)


@dataclass(frozen=True, eq=False)
class PhoneGradient:
    """F(u) in sparse form: a background of rank 1 for all apps, plus rows of the phone's own apps.

        F = c0 (Q p) pᵀ + rows, the latter at ``apps`` only

    For α = 0 the background is 0. ``app_vectors`` is Q, by reference.
    """

    apps: Apps
    rows: Floats
    c0: float
    p: Floats
    app_vectors: Floats

    def background(self) -> Floats:
        """(n_apps,): c0 Q p, the left factor of the background; its right factor is p."""
        return self.c0 * (self.app_vectors @ self.p)

    def dense(self) -> Floats:
        """F (n_apps, d), equal to `gradient`."""
        F = np.outer(self.background(), self.p) if self.c0 else np.zeros_like(self.app_vectors)
        F[self.apps] += self.rows
        return F


def phone_gradient(
    stats: PhoneStatistics, app_vectors: Floats, p: Floats, c: Floats, c0: float, h: Floats
) -> PhoneGradient:
    """`gradient` from the phone's own apps only, eq. (12)."""
    own = app_vectors[stats.apps]
    taste = own @ p
    D = c * (taste + h - 1.0)  # (k,), a = 1 for the phone's own apps
    DS = D[stats.rows] * stats.weights  # (m,), the entries of D S; Sᵀ D is its transpose
    rows = (D - c0 * taste)[:, None] * p
    rows += _product(stats.rows, stats.columns, DS, own)
    rows += _product(stats.columns, stats.rows, DS, own)
    return PhoneGradient(stats.apps, rows, c0, p, app_vectors)


def seqmf_gradient(history: Apps, broadcast: Broadcast) -> PhoneGradient:
    """F(u) of a phone with this history that has solved its user vector, eqs. (10) and (12)."""
    stats = phone_statistics(history, broadcast.settings.reading)
    own, c, c0, h = phone_terms(stats, broadcast)
    p = phone_user_vector(own, broadcast.gram, c, c0, h, broadcast.settings.lam)
    return phone_gradient(stats, broadcast.app_vectors, p, c, c0, h)


def _product(
    rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp], entries: Floats, own: Floats
) -> Floats:
    """The sparse matrix with these entries, times own (k, d), in O(entries · d)."""
    k, d = own.shape
    sums = np.zeros(k * d)
    for part in _blocks(len(rows), d):
        cells = rows[part, None] * d + np.arange(d)  # index of each term in the flattened (k, d)
        terms = entries[part, None] * own[columns[part]]
        np.add.at(sums, cells.ravel(), terms.ravel())  # in the order of the entries, block or not
    return sums.reshape(k, d)


def _blocks(n: int, d: int) -> list[slice]:
    """Blocks of n transitions whose (n, d) arrays stay small, so that memory use is bounded."""
    step = max(1, _NUMBERS_AT_ONCE // max(1, d))
    return [slice(start, start + step) for start in range(0, n, step)]
