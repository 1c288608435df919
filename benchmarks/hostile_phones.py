"""How far phones that lie together can lift an app that nobody has, with and without coins.

    python benchmarks/hostile_phones.py [--quick]

100 apps, d = 16, Adam at rate .01, 30 rounds. One app is on no phone. 5 % of the phones agree to
lift it: they want its row of Q to go the way that their own phones look, u, the mean of p + q_last.
Honest phones report by the law of their sum (docs/fleet-law.md), liars by reports of the protocol.

free     As it was before coins. walsh: the liars try 9,600 seeds a round, all codewords of each,
         and all send the one that points most against u in that row. harmony: they send entries of
         that row only, with the signs they want.
coins    As it is: seed or positions are drawn from token and round. walsh: each sends the best
         of the m codewords that its seed allows. harmony: each chooses the signs of the positions
         it was given: for the app in its row, against the others elsewhere.

rank     Of the app among all 100 by the light score, eq. (8), after the last launch of an honest
         phone: the median over 300 phones, then over the seeds. 1 is the best, 50 is chance.
push     What one liar adds to the sum of a round in the direction it wants, in that row, in units
         of the mean length of an honest phone's whole clipped gradient.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nextapp import model
from nextapp.data import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.reporting import sum_reports
from nextapp.learners import SeqMFLearner, adam, random_vectors
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism
from nextapp.privacy.mechanism import Mechanism
from nextapp.randomness import DeviceCoins, KeyedBits, distinct
from nextapp.server.simulated_phones import launches
from nextapp.wire import Broadcast, ModelSettings, Report

N_APPS, DIM, RATE = 100, 16, 0.01
TARGET = N_APPS - 1  # on no phone: launches are of the other 99
LIARS = 0.05
SEEDS_TRIED = 9_600
N_ASKED, N_LOOKING = 300, 50  # honest phones that are asked for a rank, liars that make u
ATTACKS = ("none", "free", "coins")


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
    core.update(broadcast)
    return core.user_vector + broadcast.app_vectors[core.history[-1]]


def rank(core: PhoneCore, broadcast: Broadcast) -> int:
    core.update(broadcast)
    scores = model.light_scores(broadcast.app_vectors, core.user_vector, core.history[-1:])
    return 1 + int((scores > scores[TARGET]).sum())


class Coalition:
    """Phones that lie together; their reports are all such as the protocol allows."""

    def __init__(self, made: Mechanism, attack: str, n: int, seed: int) -> None:
        self.made, self.attack, self.n = made, attack, n
        words = KeyedBits(seed, purpose="tokens").words(4 * n).reshape(n, 4)
        self.tokens = [row.astype("<u8").tobytes() for row in words]
        self._bits = KeyedBits(seed, purpose="tries")

    def reports(self, u: np.ndarray, round: int) -> list[Report]:
        """To move the app's row along u, its gradient must point along −u."""
        wanted = np.zeros((N_APPS, DIM))
        wanted[TARGET] = -u
        if self.made.name == "walsh":
            return self._codewords(wanted, round)
        return self._signs(wanted, round)

    def _codewords(self, wanted: np.ndarray, round: int) -> list[Report]:
        def scores(seed: int) -> np.ndarray:
            return self.made._alignments(1e6 * wanted, seed)  # of its direction alone

        if self.attack == "coins":
            seeds = [int(DeviceCoins(token, round).words(1)[0]) for token in self.tokens]
            return [self._report(seed, int(scores(seed).argmax()), round) for seed in seeds]
        tried = [int(word) for word in self._bits.words(SEEDS_TRIED)]
        best = max(tried, key=lambda seed: scores(seed).max())
        return [self._report(best, int(scores(best).argmax()), round)] * self.n

    def _report(self, seed: int, j: int, round: int) -> Report:
        return Report(self.made.name, round, self.made.payload(seed, j))

    def _signs(self, wanted: np.ndarray, round: int) -> list[Report]:
        k, D = self.made.k, self.made.D
        against = np.tile(-wanted[TARGET], (N_APPS, 1))
        against[TARGET] = wanted[TARGET]
        signs = against.ravel() > 0
        reports = []
        for number, token in enumerate(self.tokens):
            if self.attack == "coins":
                positions = distinct(DeviceCoins(token, round), k, D)
            else:
                first = TARGET * DIM
                positions = sorted(first + (number * k + place) % DIM for place in range(k))
            payload = self.made._fields.pack(positions, [int(signs[at]) for at in positions])
            reports.append(Report(self.made.name, round, payload))
        return reports


@dataclass(frozen=True)
class Outcome:
    rank: float
    push: float


def length(core: PhoneCore, broadcast: Broadcast, made: Mechanism) -> float:
    core.update(broadcast)
    return float(np.linalg.norm(made.apply_clip(core.gradient())))


def clip_of(name: str, some: list[PhoneCore], broadcast: Broadcast) -> float:
    """Nine phones of ten are within it, so few are cut."""
    sizes = []
    for core in some:
        core.update(broadcast)
        gradient = core.gradient().dense()
        sizes.append(np.linalg.norm(gradient) if name == "walsh" else np.abs(gradient).max())
    return float(np.quantile(sizes, 0.9))


def played(
    log: LaunchLog, name: str, epsilon: float, attack: str, rounds: int, seed: int
) -> Outcome:
    """So many rounds of a federation, with or without liars."""
    n = log.n_users
    n_liars = int(LIARS * n)
    some = cores(log, range(n_liars, min(n, n_liars + N_ASKED)))
    looking = cores(log, range(min(n_liars, N_LOOKING)))
    fleet = Fleet.of_histories(log.starts, log.app.astype(np.int32), N_APPS)
    start = random_vectors(N_APPS, DIM, 0.1, np.random.default_rng(seed))
    clip = clip_of(name, some, Broadcast(0, start, ModelSettings()))
    made = mechanism(name, n_apps=N_APPS, d=DIM, epsilon=epsilon, clip=clip)
    server = SeqMFLearner(start, ModelSettings(), adam(RATE), made)
    honest = np.ones(n, bool)
    if attack != "none":
        honest[:n_liars] = False
    coalition = Coalition(made, attack, n_liars, seed)
    pushes = []
    for number in range(rounds):
        broadcast = server.broadcast
        sums = sum_reports(
            fleet, broadcast, made, seed, np.zeros((n, DIM)), honest, mode="law"
        )  # fmt: skip
        total = sums.n_reports * sums.mean(made)
        if attack != "none":
            u = np.mean([looks(core, broadcast) for core in looking], axis=0)
            u /= np.linalg.norm(u)
            added = n_liars * made.decode(coalition.reports(u, number))
            usual = np.mean([length(core, broadcast, made) for core in some[:N_LOOKING]])
            pushes.append(float(added[TARGET] @ -u) / n_liars / usual)
            total = total + added
        server.apply_sum(total, n)
    ranks = [rank(core, server.broadcast) for core in some]
    return Outcome(float(np.median(ranks)), float(np.mean(pushes)) if pushes else 0.0)


def table(rows: list[tuple[str, float, int, dict[str, list[Outcome]]]]) -> str:
    lines = [
        "| mechanism | ε | phones | rank, no liars | free | coins | push, free | coins |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, epsilon, n, found in rows:
        ranks = [f"{np.median([one.rank for one in found[attack]]):g}" for attack in ATTACKS]
        pushes = [f"{np.mean([one.push for one in found[a]]):.1f}" for a in ATTACKS[1:]]
        cells = [name, f"{epsilon:g}", f"{n:,}", *ranks, *pushes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="1,000 phones, 5 rounds, one seed")
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", type=Path, help="write the table here, too")
    given = options.parse_args()
    sizes = (1_000,) if given.quick else (1_000, 10_000)
    rounds, n_seeds = (5, 1) if given.quick else (given.rounds, given.seeds)
    cases = [(name, e, n) for n in sizes for name in ("walsh", "harmony") for e in (4.0, 1.0)]
    rows, began = [], time.monotonic()
    for done, (name, epsilon, n) in enumerate(cases):
        found: dict[str, list[Outcome]] = {attack: [] for attack in ATTACKS}
        for seed in range(n_seeds):
            log = launches(n, TARGET, seed)
            for attack in ATTACKS:
                found[attack].append(played(log, name, epsilon, attack, rounds, seed))
                words = f"{done + 1}/{len(cases)} {name} ε {epsilon:g}, {n:,} phones, seed {seed}"
                taken = f"{time.monotonic() - began:.0f} s"
                print(f"\r{words}, {attack:<5} {taken}  ", end="", file=sys.stderr, flush=True)
        rows.append((name, epsilon, n, found))
    print(file=sys.stderr)
    print(table(rows))
    if given.out:
        given.out.write_text(table(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
