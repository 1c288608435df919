"""The crowd's server: from many phones' shares under noise to what a new phone can start from.

π (n_apps, n_apps + 1)   mean shares of the phones, as `nextapp.shares` lays them out
σ                        standard error of one estimated entry of π

The estimate of π is unbiased and most of it is noise. `shrunk` gives each entry its expected value
under the distribution of true entries, which is itself fitted to all of them (empirical Bayes);
`crowd_from` turns the result into P(app) and P(next | last).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from nextapp.directed import probabilities
from nextapp.privacy import FrequencyOracle
from nextapp.server import RoundServer, write_atomically
from nextapp.shares import POPULARITY, check_popularity
from nextapp.wire import (
    Broadcast,
    Crowd,
    Floats,
    ModelSettings,
    ReportRequest,
    WireError,
    pack,
    settings_from,
    unpack,
)

MOST_FOLLOWERS = 64
"""Followers that are told of one app: the likeliest."""

LEAST_SHARE = 1e-3
"""A follower with a smaller share of its row is not told of."""

LEAST_SUPPORT = 10
"""Reports that must be expected to favour a cell by chance alone before any are believed."""

_ITERATIONS = 100
_LONG_RUN = 50  # launches after which P(app) no longer changes
_BIN = 0.1
_LOWEST, _HIGHEST = -6.0, 60.0  # in standard errors; above, an entry is left as it is


class CrowdServer(RoundServer):
    """Adds up reports of shares over all rounds and publishes what they tell as a `Crowd`.

    The same front as `nextapp.server.Server`; the app vectors of its broadcasts are those given,
    untouched; without any they are zeros.
    """

    mechanism: FrequencyOracle

    def __init__(
        self,
        mechanism: FrequencyOracle,
        apps: tuple[str, ...] = (),
        *,
        app_vectors: Floats | None = None,
        settings: ModelSettings | None = None,
        popularity: float = POPULARITY,
        options: Mapping[str, int | float | str] | None = None,
    ) -> None:
        super().__init__()
        n_apps = mechanism.n_apps
        if mechanism.d != n_apps + 1:
            raise ValueError(
                f"the shares of {n_apps} apps have {n_apps + 1} columns, the mechanism was made "
                f"for {mechanism.d}: give it d = n_apps + 1."
            )
        check_popularity(popularity)
        self.mechanism = mechanism
        self.popularity = popularity
        self.options = dict(options or {})  # what phones must be told to make the same mechanism
        request = ReportRequest(mechanism.name, mechanism.epsilon, options=self.options)
        vectors = np.zeros((n_apps, 1)) if app_vectors is None else app_vectors
        self.broadcast = Broadcast(0, vectors, settings or ModelSettings(), apps, request)
        self.total = np.zeros((n_apps, n_apps + 1))
        self.n_reports_in_all = 0

    def step_along(self, total: Floats, n_reports: int) -> Broadcast:
        """Close the round with a sum of estimates (n_apps, n_apps + 1) of `n_reports` reports."""
        self.total = self.total + total
        self.n_reports_in_all += n_reports
        return self._next(self.crowd())

    def pass_over(self) -> Broadcast:
        """Close the round without any reports."""
        return self._next(self.broadcast.crowd)

    def crowd(self) -> Crowd:
        """What all reports so far tell."""
        n = self.n_reports_in_all
        if n == 0:
            raise RuntimeError("a crowd needs at least one report.")
        return learnt_crowd(self.mechanism, self.total / n, n, self.popularity)

    def _next(self, crowd: Crowd | None) -> Broadcast:
        old = self.broadcast
        self.broadcast = replace(old, round=old.round + 1, crowd=crowd)
        return self.broadcast

    def save(self, path: Path) -> None:
        """Write a checkpoint; a crash at any instant leaves the one before it intact."""
        self._check_nothing_is_lost()
        words = {
            "kind": "nextapp crowd checkpoint",
            "round": str(self.broadcast.round),
            "settings": json.dumps(asdict(self.broadcast.settings)),
            "apps": json.dumps(self.broadcast.apps),
            "mechanism": repr(self.mechanism),
            "options": json.dumps(self.options),
            "popularity": repr(self.popularity),
            "n_reports": str(self.n_reports_in_all),
        }
        tensors = {"app_vectors": self.broadcast.app_vectors, "total": self.total}
        write_atomically(path, pack(tensors, words))

    @classmethod
    def load(cls, path: Path, mechanism: FrequencyOracle) -> CrowdServer:
        """The server as it was saved; it goes on as if it had never stopped."""
        tensors, words = unpack(path.read_bytes())
        if words.get("kind") != "nextapp crowd checkpoint":
            raise WireError(f"{path} is not a checkpoint of a nextapp crowd server.")
        if words["mechanism"] != repr(mechanism):
            raise ValueError(
                f"{path} was saved with the mechanism {words['mechanism']}, not {mechanism!r}: "
                f"give the same one."
            )
        server = cls(
            mechanism,
            tuple(json.loads(words["apps"])),
            app_vectors=np.array(tensors["app_vectors"]),
            settings=settings_from(json.loads(words["settings"])),
            popularity=float(words["popularity"]),
            options=json.loads(words.get("options", "{}")),
        )
        server.total = np.array(tensors["total"])
        server.n_reports_in_all = int(words["n_reports"])
        crowd = server.crowd() if server.n_reports_in_all else None
        server.broadcast = replace(server.broadcast, round=int(words["round"]), crowd=crowd)
        return server


def learnt_crowd(
    oracle: FrequencyOracle, estimate: Floats, n_reports: int, popularity: float = POPULARITY
) -> Crowd:
    """What an oracle's estimate of π from this many reports tells.

    Nothing, where a cell can expect fewer than `LEAST_SUPPORT` reports in its favour by chance: the
    noise is then far from normal, and `shrunk` would take it for knowledge.
    """
    if n_reports * oracle.n_favoured < LEAST_SUPPORT * oracle.n_outputs:
        estimate = np.zeros_like(estimate)
    return crowd_from(estimate, math.sqrt(oracle.cell_variance() / n_reports), popularity)


def crowd_from(estimate: Floats, error: float, popularity: float = POPULARITY) -> Crowd:
    """P(app) and P(next | last) from an estimate of π whose entries have the standard error σ.

        P(i)     ∝ E[π(i, n_apps)]
        P(i | j) = E[π(j, i)] / Σ_i E[π(j, i)]

    E is `shrunk`, over launches, over repeats (j, j) and over all other transitions. A row that the
    reports do not resolve comes out flat, and a flat row changes no ranking of a phone. Only the
    `MOST_FOLLOWERS` likeliest followers of an app are told; what they leave to 1 a phone fills with
    what it knows itself. With σ = 0 nothing is shrunk.
    """
    n_apps = len(estimate)
    check_popularity(popularity)
    told = _shares_of_launches(estimate, error, popularity)
    repeats = np.eye(n_apps, dtype=bool)
    known = np.empty((n_apps, n_apps))
    for kind in (repeats, ~repeats):
        known[kind] = shrunk(estimate[:, :-1][kind], error)
    share = known / np.maximum(known.sum(axis=1), 1e-300)[:, None]
    starts, following, kept = [0], [], []
    for row in share:
        best = np.argsort(-row, kind="stable")[:MOST_FOLLOWERS]
        best = np.sort(best[row[best] >= LEAST_SHARE])
        following.append(best)
        kept.append(row[best])
        starts.append(starts[-1] + len(best))
    return Crowd(
        told,
        np.array(starts, np.int64),
        np.concatenate(following).astype(np.int64) if n_apps else np.zeros(0, np.int64),
        np.concatenate(kept),
    )


def _shares_of_launches(estimate: Floats, error: float, popularity: float) -> Floats:
    """P(app): every app keeps a little, as a phone may have any."""
    n_apps = len(estimate)
    if popularity == 0:
        told = np.maximum(shrunk(estimate[:, :-1].sum(axis=0), error * math.sqrt(n_apps)), 0.0)
    else:
        told = np.maximum(shrunk(estimate[:, -1], error), 0.0)
    total = float(told.sum())
    told = told / total if total > 0 else np.full(n_apps, 1.0 / n_apps)
    told = 0.99 * told + 0.01 / n_apps
    return np.asarray(told / told.sum())


def shrunk(estimate: Floats, error: float) -> Floats:
    """E[θ | x] for entries x = θ + N(0, error²), θ >= 0, under the law of θ most likely for all x.

    Robbins (1956), Kiefer and Wolfowitz (1956); the law lives on a grid and is found by the EM
    algorithm on a histogram of x, so that the work does not grow with the number of entries.
    """
    if error == 0:
        return np.maximum(estimate, 0.0)
    z = np.clip(estimate / error, _LOWEST, _HIGHEST)
    edges = np.arange(_LOWEST, max(z.max(initial=0.0), 0.0) + 2 * _BIN, _BIN)
    count = np.histogram(z, edges)[0]
    middle = (edges[1:] + edges[:-1]) / 2
    theta = np.append(0.0, np.geomspace(0.05, max(1.0, edges[-1]), 60))
    likelihood = np.exp(-0.5 * (middle[:, None] - theta) ** 2)  # (bins, grid)
    law = np.full(len(theta), 1.0 / len(theta))
    seen = count > 0
    for _ in range(_ITERATIONS):
        weight = likelihood[seen] * law
        weight *= (count[seen] / weight.sum(axis=1))[:, None]
        law = weight.sum(axis=0) / weight.sum()
    weight = likelihood * law
    expected = weight @ theta / np.maximum(weight.sum(axis=1), 1e-300)
    return np.asarray(
        error * (np.interp(z, middle, expected) + np.maximum(estimate / error - _HIGHEST, 0.0))
    )


def crowd_of_vectors(
    coming: Floats, before: Floats, sharpness: float = 1.0, taste: Floats | None = None
) -> Crowd:
    """What vectors of apps as they come next, and as they came before, tell; (n_apps, d) each.

        P(i | j) = softmax_i β q_iᵀ(p + r_j)
        P(i)     = Σ_j P(j) P(i | j), where such launches lead in the long run

    q are the rows of `coming`, r those of `before`: Q and R of `nextapp.directed`, or both Q of
    SeqMF. `sharpness` is β; `taste` is p, 0 for the phone of average taste. The `MOST_FOLLOWERS`
    likeliest followers of an app are told, by what they have above the likeliest that is not: so a
    flat row tells nothing, however long the catalogue.
    """
    n_apps, d = coming.shape
    p = np.zeros(d) if taste is None else taste
    rows = probabilities(sharpness * coming, before, p, np.arange(n_apps))
    told = np.full(n_apps, 1.0 / n_apps)
    for _ in range(_LONG_RUN):
        told = told @ rows
    told = 0.99 * told + 0.01 / n_apps
    if n_apps > MOST_FOLLOWERS:
        untold = np.partition(rows, n_apps - MOST_FOLLOWERS - 1, axis=1)
        rows = rows - untold[:, n_apps - MOST_FOLLOWERS - 1, None]
    kept = rows >= LEAST_SHARE
    starts = np.append(0, np.cumsum(kept.sum(axis=1))).astype(np.int64)
    return Crowd(told / told.sum(), starts, np.nonzero(kept)[1].astype(np.int64), rows[kept])
