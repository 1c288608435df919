"""How far phones that lie together can lift an app: in a federation of SeqMF, and in a crowd.

    python benchmarks/poisoning.py seqmf [--quick] [--out FILE]     # half an hour on two cores
    python benchmarks/poisoning.py crowd [--quick] [--out FILE]     # a minute or two

All liars keep to the protocol: their coins are those of their tokens, and each sends the report,
of those that its coins allow, that pushes hardest.

seqmf
    100 apps, d = 16, Adam at rate .01, 30 rounds. One app is on no phone. 5 % of the phones agree
    to lift it: they want its row of Q to go the way that their own phones look, u, the mean of
    p + q_last. Every report of the honest ones is simulated. walsh: a liar sends the best of its m
    codewords. harmony: it chooses the signs at its positions, for the app in its row, against the
    others elsewhere.

    rank  Of the app among all 100 by the light score, eq. (8), after the last launch of an honest
          phone: the median over 300 phones, then over the seeds. 1 is the best, 50 is chance.
    push  What one liar adds to the sum of a round in the direction it wants, in that row, in units
          of the mean length of an honest phone's whole clipped gradient.

crowd
    A server of the crowd as `nextapp serve` starts it: walsh, one report of each of 100,000
    synthetic phones of 87 apps about transitions. A part of the phones agree on a target, an app
    that few launch, and on a direction of the answer. m is what a new server asks for at this ε
    (`nextapp.privacy.walsh.fewest_bits`), and 256 to compare.

    column    the target after every app
    popular   the target after the apps that are launched most, in proportion
    balanced  popular, and these apps after the target: what comes in goes out again

    Honest phones answer by `PhoneCore`; their mean gets the noise of the law. New phones have the
    target and are measured over their launches 10 to 50:

    named    how often the target is among the first five, of all predictions
    lift     that, less what it is with the crowd of honest phones alone
    HR@5     of these phones' predictions
    change   in standard errors, as the server notes it (`nextapp.learners`), if the liars
             begin in the last of ten rounds
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nextapp import model
from nextapp.data import synthetic
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import sum_reports
from nextapp.learners import (
    CrowdLearner,
    SeqMFLearner,
    adam,
    anomaly_of_transitions,
    starting_vectors,
)
from nextapp.phone.core import PhoneCore
from nextapp.predictors.nextapp import online_scores
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.privacy.mechanism import Mechanism
from nextapp.randomness import KeyedBits, TokenCoins, distinct
from nextapp.server.settings import settings_of
from nextapp.server.simulated_phones import launches
from nextapp.wire import Broadcast, Crowd, ModelSettings, Report

SEQMF_APPS, DIM, RATE = 100, 16, 0.01
TARGET = SEQMF_APPS - 1  # on no phone: launches are of the other 99
LIARS = 0.05
RANKED, N_LOOKING = 300, 50  # honest phones that are asked for a rank, liars that make u

CROWD_APPS, N_PHONES, N_ANSWERING, N_NEW = 87, 100_000, 2_000, 400
FIRST, LAST = 10, 50
CASES = ((1.0, {}), (1.0, {"options": {"b": 8}}), (4.5, {}))  # ε, further settings of a server
SHARES = (0.01, 0.05)
DIRECTIONS = ("column", "popular", "balanced")
TARGETS = (40, 55, 70)  # by place in the list by launches
NAMES = tuple(f"app-{row:04d}" for row in range(CROWD_APPS))

Table = list[str]  # lines of Markdown


# --- a federation of SeqMF -----------------------------------------------------------------------


def cores(log: LaunchLog, users: range) -> list[PhoneCore]:
    """Phones one by one, each with its own launches."""
    found = []
    for user in users:
        core = PhoneCore()
        rows = slice(log.starts[user], log.starts[user + 1])
        for app, when in zip(log.app[rows].tolist(), log.time[rows].tolist(), strict=True):
            core.observe(app, when / 1000)
        found.append(core)
    return found


def looks(core: PhoneCore, broadcast: Broadcast) -> np.ndarray:
    """What a phone scores apps by after its last launch: p + q_last."""
    core.take(broadcast)
    return core.user_vector + broadcast.app_vectors[core.history[-1]]


def rank(core: PhoneCore, broadcast: Broadcast) -> int:
    core.take(broadcast)
    scores = model.light_scores(broadcast.app_vectors, core.user_vector, core.history[-1:])
    return 1 + int((scores > scores[TARGET]).sum())


def _coins(liar: bytes, round: int) -> TokenCoins:
    """Those of the token that a liar spends in a round: it has one, and one draw."""
    return TokenCoins(liar + round.to_bytes(8, "little"))


class Coalition:
    """Phones that lie together; their reports are all such as the protocol allows."""

    def __init__(self, made: Mechanism, n: int, seed: int) -> None:
        self.made = made
        words = KeyedBits(seed, purpose="tokens").words(4 * n).reshape(n, 4)
        self.tokens = [row.astype("<u8").tobytes() for row in words]

    def reports(self, u: np.ndarray, round: int) -> list[Report]:
        """To move the app's row along u, its gradient must point along −u."""
        wanted = np.zeros((SEQMF_APPS, DIM))
        wanted[TARGET] = -u
        if self.made.name == "walsh":
            return self._codewords(wanted, round)
        return self._signs(wanted, round)

    def _codewords(self, wanted: np.ndarray, round: int) -> list[Report]:
        reports = []
        for token in self.tokens:
            seed = int(_coins(token, round).words(1)[0])
            best = self.made._alignments(1e6 * wanted, seed).argmax()  # of its direction alone
            payload = self.made.payload(seed, int(best))
            reports.append(Report(self.made.name, round, payload))
        return reports

    def _signs(self, wanted: np.ndarray, round: int) -> list[Report]:
        against = np.tile(-wanted[TARGET], (SEQMF_APPS, 1))
        against[TARGET] = wanted[TARGET]
        signs = against.ravel() > 0
        reports = []
        for token in self.tokens:
            positions = distinct(_coins(token, round), self.made.k, self.made.D)
            payload = self.made._fields.pack(positions, [int(signs[at]) for at in positions])
            reports.append(Report(self.made.name, round, payload))
        return reports


@dataclass(frozen=True)
class Outcome:
    rank: float
    push: float


def length(core: PhoneCore, broadcast: Broadcast, made: Mechanism) -> float:
    core.take(broadcast)
    return float(np.linalg.norm(made.apply_clip(core.gradient())))


def clip_of(name: str, some: list[PhoneCore], broadcast: Broadcast) -> float:
    """Nine phones of ten are within it, so few are cut."""
    sizes = []
    for core in some:
        core.take(broadcast)
        gradient = core.gradient().dense()
        sizes.append(np.linalg.norm(gradient) if name == "walsh" else np.abs(gradient).max())
    return float(np.quantile(sizes, 0.9))


def seqmf_outcome(
    log: LaunchLog, name: str, epsilon: float, n_liars: int, rounds: int, seed: int
) -> Outcome:
    """Rounds of a federation in which the first phones lie."""
    n = log.n_users
    some = cores(log, range(int(LIARS * n), min(n, int(LIARS * n) + RANKED)))
    looking = cores(log, range(min(n_liars, N_LOOKING)))
    fleet = Fleet.of_histories(log.starts, log.app.astype(np.int32), SEQMF_APPS)
    start = starting_vectors(SEQMF_APPS, DIM, 0.1, seed)
    clip = clip_of(name, some, Broadcast(0, start, ModelSettings()))
    made = mechanism(name, n_apps=SEQMF_APPS, d=DIM, epsilon=epsilon, clip=clip)
    server = SeqMFLearner(start, ModelSettings(), adam(RATE), made)
    honest = np.ones(n, bool)
    honest[:n_liars] = False
    coalition = Coalition(made, n_liars, seed)
    pushes = []
    for number in range(rounds):
        broadcast = server.broadcast
        sums = sum_reports(fleet, broadcast, made, seed, np.zeros((n, DIM)), honest)
        total = sums.n_reports * sums.mean(made)
        if n_liars:
            u = np.mean([looks(core, broadcast) for core in looking], axis=0)
            u /= np.linalg.norm(u)
            added = n_liars * made.decode(coalition.reports(u, number))
            usual = np.mean([length(core, broadcast, made) for core in some[:N_LOOKING]])
            pushes.append(float(added[TARGET] @ -u) / n_liars / usual)
            total = total + added
        server.apply_sum(total, n)
    ranks = [rank(core, server.broadcast) for core in some]
    return Outcome(float(np.median(ranks)), float(np.mean(pushes)) if pushes else 0.0)


def seqmf_table(given: argparse.Namespace) -> Table:
    sizes = (1_000,) if given.quick else (1_000, 10_000)
    rounds, n_seeds = (5, 1) if given.quick else (given.rounds, given.seeds)
    cases = [(name, e, n) for n in sizes for name in ("walsh", "harmony") for e in (4.0, 1.0)]
    lines = [
        "| mechanism | ε | phones | rank, no liars | 5 % liars | push |",
        "|---|---|---|---|---|---|",
    ]
    began = time.monotonic()
    for done, (name, epsilon, n) in enumerate(cases):
        honest, lying = [], []
        for seed in range(n_seeds):
            log = launches(n, TARGET, seed)
            honest.append(seqmf_outcome(log, name, epsilon, 0, rounds, seed).rank)
            lying.append(seqmf_outcome(log, name, epsilon, int(LIARS * n), rounds, seed))
            what = f"{done + 1}/{len(cases)} {name} ε {epsilon:g}, {n:,} phones, seed {seed}"
            print(f"{what}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        rank, push = np.median([one.rank for one in lying]), np.mean([one.push for one in lying])
        lines.append(
            f"| {name} | {epsilon:g} | {n:,} | {np.median(honest):g} | {rank:g} | {push:.1f} |"
        )
    return lines


# --- the crowd -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Honest phones' mean answer, how often each app is launched, and the new phones."""

    mean: np.ndarray
    launched: np.ndarray
    new: list[tuple[np.ndarray, np.ndarray]]


# What a phone answers does not depend on ε, so that one world serves all cases.
def build_world(made: Mechanism, learner: CrowdLearner, seed: int, asked: int, new: int) -> World:
    parameters = synthetic.fleet_parameters(asked + new, CROWD_APPS)
    log = synthetic.make(parameters, seed)
    mean = np.zeros((CROWD_APPS, CROWD_APPS + 1))
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
    launched = np.bincount(log.app[: log.starts[asked]], minlength=CROWD_APPS)
    return World(mean / asked, launched / launched.sum(), phones)


def direction(kind: str, target: int, launched: np.ndarray) -> np.ndarray:
    """(n_apps, n_apps + 1), of length 1."""
    wanted = np.zeros((CROWD_APPS, CROWD_APPS + 1))
    weight = np.ones(CROWD_APPS) if kind == "column" else launched.copy()
    weight[target] = 0.0
    wanted[:, target] = weight
    if kind == "balanced":
        wanted[target, :-1] = weight
    return wanted / np.linalg.norm(wanted)


def learnt(learner: CrowdLearner, mean: np.ndarray, made: Mechanism, seed: int) -> Crowd:
    """The crowd that a server publishes after one report of each phone."""
    noise = np.random.default_rng([seed, 1]).normal(size=mean.shape)
    learner.total = N_PHONES * (mean + noise * np.sqrt(made.entry_variance / N_PHONES))
    learner.n_since = np.full(CROWD_APPS, float(N_PHONES))
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
    variance = made.entry_variance
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


def crowd_table(given: argparse.Namespace) -> Table:
    asked, new = (1_000, 200) if given.quick else (N_ANSWERING, N_NEW)
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
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    for name, table in (("seqmf", seqmf_table), ("crowd", crowd_table)):
        part = parts.add_parser(name)
        part.add_argument("--quick", action="store_true", help="fewer phones, rounds and seeds")
        part.add_argument("--out", type=Path, help="write the table here, too")
        part.set_defaults(table=table)
        if name == "seqmf":
            part.add_argument("--rounds", type=int, default=30)
            part.add_argument("--seeds", type=int, default=3)
        else:
            part.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    text = "\n".join(given.table(given))
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
