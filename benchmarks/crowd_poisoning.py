"""How far phones that lie together lift an app in new phones' suggestions, through the crowd.

    python benchmarks/crowd_poisoning.py [--quick] [--out FILE]

A server of the crowd as `nextapp serve` starts it: walsh, one report of each of 100,000 synthetic
phones of 87 apps about transitions. A part of the phones agree on a target, an app that few launch,
and on a direction of the answer; each sends, of the m codewords that the coins of its token allow,
the one that points most in that direction: no phone can push harder. m is what a new server asks
for at this ε (`nextapp.privacy.walsh.fewest_bits`), and 256 to compare.

column    the target after every app
popular   the target after the apps that are launched most, in proportion
balanced  popular, and these apps after the target: what comes in goes out again

Honest phones answer by `PhoneCore`; their mean gets the noise of the law. New phones have the
target and are measured over their launches 10 to 50:

named     how often the target is among the first five, of all predictions
lift      that, less what it is with the crowd of honest phones alone
HR@5      of these phones' predictions
change    in standard errors, as the server notes it (`nextapp.learners.anomalies`), if the liars
          begin in the last of ten rounds
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nextapp.crowd import entry_variance
from nextapp.data import synthetic
from nextapp.learners import CrowdLearner
from nextapp.learners.anomalies import anomaly_of_transitions
from nextapp.phone.core import PhoneCore
from nextapp.predictors.nextapp import online_scores
from nextapp.privacy import requested_mechanism
from nextapp.privacy.mechanism import Mechanism
from nextapp.server.settings import settings_of
from nextapp.wire import Crowd

N_APPS, N_PHONES, N_ASKED, N_NEW = 87, 100_000, 2_000, 400
FIRST, LAST = 10, 50
CASES = ((1.0, {}), (1.0, {"options": {"b": 8}}), (4.5, {}))  # ε, further settings of a server
SHARES = (0.01, 0.05)
DIRECTIONS = ("column", "popular", "balanced")
TARGETS = (40, 55, 70)  # by place in the list by launches
NAMES = tuple(f"app-{row:04d}" for row in range(N_APPS))


@dataclass(frozen=True)
class World:
    """Honest phones' mean answer, how often each app is launched, and the new phones."""

    mean: np.ndarray
    launched: np.ndarray
    new: list[tuple[np.ndarray, np.ndarray]]


# What a phone answers does not depend on ε, so that one world serves all cases.
def build_world(made: Mechanism, learner: CrowdLearner, seed: int, asked: int, new: int) -> World:
    parameters = synthetic.fleet_parameters(asked + new, N_APPS)
    log = synthetic.make(parameters, seed)
    mean = np.zeros((N_APPS, N_APPS + 1))
    phones = []
    for user in range(asked + new):
        rows = slice(log.starts[user], log.starts[user + 1])
        apps, seconds = log.app[rows].astype(np.int64), log.time[rows] / 1000
        if user >= asked:
            if len(apps) >= LAST:
                phones.append((apps, seconds[:LAST]))
            continue
        core = PhoneCore()
        for app, second in zip(apps.tolist(), seconds.tolist(), strict=True):
            core.observe(app, second)
        core.take(learner.broadcast)
        answer = core.answer()
        length = float(np.sqrt(answer.share @ answer.share))
        mean.ravel()[answer.cells] += answer.share * min(1.0, made.clip / max(length, 1e-12))
    launched = np.bincount(log.app[: log.starts[asked]], minlength=N_APPS)
    return World(mean / asked, launched / launched.sum(), phones)


def direction(kind: str, target: int, launched: np.ndarray) -> np.ndarray:
    """(n_apps, n_apps + 1), of length 1."""
    wanted = np.zeros((N_APPS, N_APPS + 1))
    weight = np.ones(N_APPS) if kind == "column" else launched.copy()
    weight[target] = 0.0
    wanted[:, target] = weight
    if kind == "balanced":
        wanted[target, :-1] = weight
    return wanted / np.linalg.norm(wanted)


def learnt(learner: CrowdLearner, mean: np.ndarray, made: Mechanism, seed: int) -> Crowd:
    """The crowd that a server publishes after one report of each phone."""
    noise = np.random.default_rng([seed, 1]).normal(size=mean.shape)
    learner.total = N_PHONES * (mean + noise * np.sqrt(entry_variance(made) / N_PHONES))
    learner.n_since = np.full(N_APPS, float(N_PHONES))
    crowd = learner.crowd()
    if crowd is None:
        raise RuntimeError("no crowd was learnt.")
    return crowd


def largest_change(
    learner: CrowdLearner,
    before: np.ndarray,
    mean: np.ndarray,
    crowd: Crowd,
    made: Mechanism,
    seed: int,
) -> float:
    """The largest change from nine rounds with one mean to a tenth with another."""
    noise = np.random.default_rng([seed, 2]).normal(size=(2, *mean.shape))
    variance = entry_variance(made)
    n, n_before = N_PHONES / 10, 0.9 * N_PHONES
    found = anomaly_of_transitions(
        n * mean + noise[0] * np.sqrt(variance * n),
        n,
        n_before * before + noise[1] * np.sqrt(variance * n_before),
        np.full(mean.shape, n_before),
        variance,
        crowd.popularity,
    )
    return 0.0 if found is None else found.errors


def named(world: World, target: int, crowd: Crowd | None) -> tuple[float, float]:
    """How often the target is named, and HR@5, on the new phones that have it."""
    found, hits = [], []
    for apps, seconds in world.new:
        own = np.unique(apps)
        if target not in own:
            continue
        scores = online_scores(apps, seconds, own, crowd)[FIRST:LAST]
        order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        found.append((own[order] == target).any(axis=1).mean())
        hits.append((own[order] == apps[FIRST:LAST, None]).any(axis=1).mean())
    return float(np.mean(found)), float(np.mean(hits))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="one target, fewer phones")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, help="write the table here, too")
    given = options.parse_args()
    asked, new = (1_000, 200) if given.quick else (N_ASKED, N_NEW)
    lines = [
        "| ε, m | push | liars | direction | named | lift | HR@5 | change |",
        "|---|---|---|---|---|---|---|---|",
    ]
    world: World | None = None
    for epsilon, more in CASES:
        settings = settings_of({"epsilon": epsilon, **more})
        learner = CrowdLearner(settings.requests, NAMES)
        made = requested_mechanism(
            replace(learner.broadcast, request=settings.requests.transitions)
        )
        world = world or build_world(made, learner, given.seed, asked, new)
        ranked = np.argsort(-world.launched, kind="stable")
        targets = [int(ranked[place]) for place in (TARGETS[1:2] if given.quick else TARGETS)]
        alone = np.mean([named(world, target, None) for target in targets], axis=0)
        honest = learnt(learner, world.mean, made, given.seed)
        usual = np.mean([named(world, target, honest) for target in targets], axis=0)
        case = f"| {epsilon:g}, {made.m} | {made.liar_weight:.1f}"
        quiet = largest_change(learner, world.mean, world.mean, honest, made, given.seed)
        lines.append(f"{case} | no crowd | | {alone[0]:.3f} | | {alone[1]:.3f} | |")
        lines.append(f"{case} | 0 | | {usual[0]:.3f} | | {usual[1]:.3f} | {quiet:.1f} |")
        for share in SHARES:
            for kind in DIRECTIONS:
                rows = []
                for target in targets:
                    wanted = direction(kind, target, world.launched)
                    mean = (1 - share) * world.mean + share * made.liar_weight * wanted
                    crowd = learnt(learner, mean, made, given.seed)
                    changed = largest_change(learner, world.mean, mean, honest, made, given.seed)
                    rows.append((*named(world, target, crowd), changed))
                one = np.mean(rows, axis=0)
                lines.append(
                    f"{case} | {share:.0%} | {kind} | {one[0]:.3f} | "
                    f"{one[0] - usual[0]:+.3f} | {one[1]:.3f} | {one[2]:.1f} |"
                )
                print(lines[-1], file=sys.stderr, flush=True)
    print("\n".join(lines))
    if given.out:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
