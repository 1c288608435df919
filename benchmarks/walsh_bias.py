"""How far `walsh` is from unbiased, by the number L of Walsh functions in a codeword.

    python benchmarks/walsh_bias.py [--seeds 40000]

μ is computed for Gaussian codewords; a sum of L signs is not quite Gaussian. Three questions:

one entry      a phone with a single entry, the worst there is. Exact: alignments are L coin tosses.
other phones   the alignment of the codeword that is sent, over μ, less 1; with a standard error.
leak           what a phone with three equal entries adds to the place v XOR v' XOR v'', as a share
               of ‖x‖ = 1; with a standard error, and the forecast (t² − 1)/L x³ of
               docs/privacy/mechanisms.md.

The code of a seed is drawn here anew, from NumPy's generator, for any L; rows of a codeword are
either those of `nextapp.privacy.walsh` (turned), the same for all codewords (shared), or all their
own (free).
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import stats

from nextapp.audit.attacks import synthetic_phones
from nextapp.crowd import transition_vector
from nextapp.privacy.mechanism import into_ball
from nextapp.privacy.walsh import Walsh, order_statistics, places, sign_bits, walsh_transform

LS = (4, 8, 16, 32, 64, 128, 256)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.5, 8.0)
M = 256
UNIT = 2.0**22
N_APPS = 87


def of_one_entry(L: int, k: int) -> float:
    """E of the mean of the k largest of M sums of L signs, over √L.

    The sum of the k largest is Σ_t min(k, number of those at t or above) over the steps t.
    """
    steps = np.arange(L + 1)
    at_least = stats.binom.sf(steps - 1, L, 0.5)
    counts = np.arange(M + 1)
    capped = [np.minimum(counts, k) @ stats.binom.pmf(counts, M, p) for p in at_least[1:]]
    return (-L + 2 * sum(capped) / k) / math.sqrt(L)


def exact_table() -> None:
    tops = np.cumsum(order_statistics(M))
    print("one entry, exact: relative bias in %")
    print("epsilon    k " + "".join(f"{f'L={L}':>9}" for L in LS))
    for epsilon in EPSILONS:
        k = Walsh(n_apps=1, d=1, epsilon=epsilon, clip=1.0).k
        biases = [100 * (of_one_entry(L, k) / (tops[k - 1] / k) - 1) for L in LS]
        print(f"{epsilon:7} {k:4} " + "".join(f"{bias:9.2f}" for bias in biases))


def phones() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Cells of 87 apps and their entries, in units of the clip."""
    D = N_APPS * (N_APPS + 1)
    two, three = np.array([5, 700]), np.array([5, 700, 3000])
    found = {
        "two entries": (two, np.full(2, math.sqrt(1 / 2))),
        "three entries": (three, np.full(3, math.sqrt(1 / 3))),
        "one, half long": (np.array([5, D]), np.array([0.5, math.sqrt(0.75)])),
    }
    histories = synthetic_phones(3, N_APPS, 4, seed=3).histories
    for number, history in enumerate(histories):
        shares = transition_vector(history, N_APPS)
        x = into_ball(shares.share, "l2", 0.13)
        rest = math.sqrt(max(0.0, 1 - float(x @ x)))
        found[f"synthetic {number}"] = np.append(shares.cells, D), np.append(x, rest)
    return found


def rows_of(kind: str, L: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """(M, L) rows of the codewords of one seed."""
    first = rng.integers(0, 1 << n, L)
    if kind == "shared":
        return np.broadcast_to(first, (M, L))
    if kind == "free":
        return rng.integers(0, 1 << n, (M, L))
    turns = np.arange(L) % n
    j = np.arange(M)[:, None]
    return first ^ ((j << turns | j >> (n - turns)) & ((1 << n) - 1))


def measure(cells, entries, L, k, kind, n_seeds, rng):
    """For each seed the mean over the k best of their alignments, and of their entries at ⊕ v."""
    n = (N_APPS * (N_APPS + 1)).bit_length()
    v = places(cells, n)
    x = np.zeros(1 << n)
    whole = np.rint(UNIT * entries)  # as on a phone: sums of fractions break ties by their rounding
    x[v] = np.where(sign_bits(v), -whole, whole)
    X = walsh_transform(x)
    elsewhere = walsh_transform(np.eye(1, 1 << n, np.bitwise_xor.reduce(v))[0])
    found = np.empty((n_seeds, 2))
    for number in range(n_seeds):
        rows = rows_of(kind, L, n, rng)
        signs = 2 * rng.integers(0, 2, (M, L), dtype=np.int8) - 1
        s = (X[rows] * signs).sum(axis=1)
        best = np.argpartition(-s, k - 1)[:k]
        there = (elsewhere[rows[best]] * signs[best]).sum(axis=1) / math.sqrt(L)
        found[number] = s[best].mean() / (UNIT * math.sqrt(L)), there.mean()
    return found


def sampled_table(n_seeds: int) -> None:
    rng = np.random.default_rng(0)
    tops = np.cumsum(order_statistics(M))
    cases = [("turned", 8), ("turned", 16), ("turned", 64), ("free", 64), ("shared", 64)]
    for epsilon in (1.0, 4.5):
        k = Walsh(n_apps=1, d=1, epsilon=epsilon, clip=1.0).k
        lean, t = tops[k - 1] / k, stats.norm.isf(k / M)
        print(f"\nepsilon {epsilon}, k {k}, {n_seeds} seeds: relative bias, % (standard error)")
        print(f"{'':16}" + "".join(f"{f'{kind} L={L}':>17}" for kind, L in cases))
        for name, (cells, entries) in phones().items():
            drawn = [measure(cells, entries, L, k, kind, n_seeds, rng) for kind, L in cases]
            means = [100 * found.mean(axis=0) / lean for found in drawn]
            errors = [100 * found.std(axis=0) / math.sqrt(n_seeds) / lean for found in drawn]
            pairs = list(zip(means, errors, strict=True))
            print(
                f"{name:16}" + "".join(f"{f'{b[0] - 100:.2f} ({e[0]:.2f})':>17}" for b, e in pairs)
            )
            if name == "three entries":
                sign = np.prod(np.where(sign_bits(places(cells, 13)), -1, 1))
                print(
                    f"{'  leak':16}"
                    + "".join(f"{f'{sign * b[1]:.2f} ({e[1]:.2f})':>17}" for b, e in pairs)
                )
                due = [100 * (t * t - 1) / L * entries[0] ** 3 for _, L in cases]
                print(f"{'  forecast':16}" + "".join(f"{each:17.2f}" for each in due))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=8_000)
    given = parser.parse_args()
    exact_table()
    sampled_table(given.seeds)


if __name__ == "__main__":
    main()
