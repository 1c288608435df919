"""What a report by `walsh` costs a phone and a server, beside `codebook`, on transition vectors.

    python benchmarks/walsh_speed.py [--check]

encode     median of one report, of phones with 14 and 60 apps and 400 and 4,000 launches
dense      one report of a gradient that is nowhere 0: d = 16, α > 0
tally      reports a second that a server adds up, in batches of 4,096
estimate   the mean of all reports at the end, once a round
fleet      phones a second that a simulation plays, every phone's own bits, one thread

Processor time of one core: NumPy's BLAS is held to one thread. --check fails where a phone takes
over 5 ms at 2,000 apps, a server tallies under 20,000 reports a second or takes over a second for
the estimate.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import tally_transitions
from nextapp.privacy import Mechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.shares import Shares, transition_vector

CATALOGUES = (87, 1023, 2000)
BATCH, N_TIMED = 4096, 30
CODEBOOK_REPORTS = 20  # at 2,000 apps one takes a tenth of a second
N_FLEET = 4000
LIMITS = {"encode": 5.0, "tally": 20_000.0, "estimate": 1.0}


def phone(n_apps: int, n_own: int, n_launches: int) -> tuple[np.ndarray, Shares]:
    """A phone whose apps follow Zipf's law, and its shares."""
    rng = np.random.default_rng([n_apps, n_own])
    apps = rng.choice(n_apps, n_own, replace=False)
    weights = 1 / np.arange(1, n_own + 1)
    history = rng.choice(apps, n_launches, p=weights / weights.sum())
    return history, transition_vector(history, n_apps)


def made(name: str, n_apps: int, d: int) -> Mechanism:
    return mechanism(name, epsilon=1.0, n_apps=n_apps, d=d, clip=0.13)


def milliseconds(call: Callable[[int], object], n: int) -> float:
    times = []
    for number in range(n + 1):
        start = time.process_time()
        call(number)
        times.append(time.process_time() - start)
    return 1e3 * float(np.median(times[1:]))


def encode_ms(m: Mechanism, F: object, n: int = N_TIMED) -> float:
    return milliseconds(lambda number: m.encode(F, KeyedBits(0, number)), n)


def tally_rate(m: Mechanism, F: Shares, n: int) -> tuple[float, float]:
    """Reports a second, best of three; seconds of an estimate, best of three."""
    some = [m.encode(F, KeyedBits(1, number)) for number in range(min(n, 64))]
    reports = [some[number % len(some)] for number in range(n)]
    rates, seconds = [], []
    for _ in range(3):
        start = time.process_time()
        tally = m.tally(reports)
        middle = time.process_time()
        m.estimate(tally, n)
        rates.append(n / (middle - start))
        seconds.append(time.process_time() - middle)
    return max(rates), min(seconds)


def fleet_rate(n_apps: int) -> float:
    """Phones a second; 20 apps and 400 launches each."""
    histories = [phone(n_apps, 20, 400)[0] for _ in range(N_FLEET)]
    starts = np.arange(N_FLEET + 1, dtype=np.int64) * 400
    fleet = Fleet.of_histories(starts, np.concatenate(histories).astype(np.int32), n_apps)
    m = made("walsh", n_apps, n_apps + 1)
    tally_transitions(fleet.shard(0, 10), m, 0, threads=1)
    start = time.process_time()
    tally_transitions(fleet, m, 0, threads=1)
    return N_FLEET / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="fail where a limit is missed")
    given = parser.parse_args()
    missed = []
    for n_apps in CATALOGUES:
        for name in ("walsh", "codebook"):
            m = made(name, n_apps, n_apps + 1)
            slow = name == "codebook" and n_apps > 100
            few, many = phone(n_apps, 14, 400)[1], phone(n_apps, 60, 4000)[1]
            n = CODEBOOK_REPORTS if slow else N_TIMED
            short, long = encode_ms(m, few, n), encode_ms(m, many, n)
            rate, seconds = tally_rate(m, few, CODEBOOK_REPORTS if slow else BATCH)
            print(
                f"{n_apps:5} apps  {name:9} encode {short:7.2f} ms ({len(few.cells)} cells) "
                f"{long:7.2f} ms ({len(many.cells)} cells)   tally {rate:10,.0f} reports/s   "
                f"estimate {seconds:.3f} s"
            )
            if name == "walsh" and n_apps == max(CATALOGUES):
                found = {"encode": long, "tally": rate, "estimate": seconds}
                missed += [
                    what
                    for what, limit in LIMITS.items()
                    if (found[what] < limit if what == "tally" else found[what] > limit)
                ]
    for n_apps in (87, 2000):
        F = np.random.default_rng(0).normal(size=(n_apps, 16))
        for name in ("walsh", "codebook"):
            print(
                f"{n_apps:5} apps  {name:9} dense  {encode_ms(made(name, n_apps, 16), F):7.2f} ms"
            )
    for n_apps in (87, 2000):
        print(f"{n_apps:5} apps  walsh     fleet  {fleet_rate(n_apps):8,.0f} phones/s")
    if given.check and missed:
        raise SystemExit(f"over the limit: {', '.join(missed)}")


if __name__ == "__main__":
    main()
