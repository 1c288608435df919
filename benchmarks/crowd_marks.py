"""How much of what a crowd is worth to new phones is left at ε: the whole table of marks.

Each row is a population and a number of phones, each of which reports once in its life. Rows of
people are copies of the phones of a real log (`nextapp new-phones LOG --copies N`); new phones are
other people of the same log. Rows of synthetic phones are fleets of `synthetic:fleet`; a million of
them are copies of 100,000. "kept" is the part of the non-private gain in HR@5 over launches 10 to
50 that is left, with a 95 % interval over new phones.

    python benchmarks/crowd_marks.py --logs FOLDER --seeds 7,8,9

prints two tables. The first seed has all rows, the others those of synthetic fleets. About ten
minutes on one core; with --quick three. Rows whose log is not in the folder are skipped, and so are
rows that do not begin as --only says. Another seed draws other new phones, other synthetic worlds
and other noise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from nextapp.data.loading import read_log
from nextapp.studies import new_phones
from nextapp.studies.new_phones import NewPhoneStudy

EPSILONS = (4.5, 1.0)


class Row(NamedTuple):
    """A population; ``marks`` are those of the share kept at each of `EPSILONS`."""

    name: str
    source: str
    copies: int
    marks: tuple[float, float]

    @property
    def synthetic(self) -> bool:
        return self.source.startswith("synthetic:")


LONG = "synthetic:fleet,phones=100000,apps=2000"
ROWS = (
    Row("people: reality-a (114 apps)", "reality-a.csv.gz", 100_000, (0.80, 0.60)),
    Row("people: EPM (80 windows)", "epm.csv.gz", 100_000, (0.65, 0.30)),
    Row("people: Schonlau (635 programs)", "schonlau.csv.gz", 100_000, (0.75, 0.15)),
    Row("people: Schonlau (635 programs)", "schonlau.csv.gz", 1_000_000, (0.88, 0.65)),
    Row("synthetic, 87 apps", "synthetic:fleet,phones=100000", 0, (0.90, 0.65)),
    Row("synthetic, 87 apps", "synthetic:fleet,phones=10000", 0, (0.70, 0.30)),
    Row("synthetic, 2,000 apps", LONG, 0, (0.40, 0.15)),
    Row("synthetic, 2,000 apps", LONG, 1_000_000, (0.55, 0.35)),
)
Results = dict[tuple[int, Row], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--logs", type=Path, help="folder of reality-a, epm and schonlau")
    parser.add_argument("--seeds", default="7,8,9", help="all rows of the first, synthetic of all")
    parser.add_argument("--draws", type=int, default=5, help="draws of new phones from a log")
    parser.add_argument("--new", type=int, default=400, help="new phones of a synthetic fleet")
    parser.add_argument("--only", default="", help="rows whose name begins with this")
    parser.add_argument("--quick", action="store_true", help="2 draws, 150 new phones")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    draws, n_new = (2, 150) if given.quick else (given.draws, given.new)
    seeds = [int(each) for each in given.seeds.split(",")]
    found: Results = {}
    for seed in seeds:
        for row in ROWS:
            if not row.name.startswith(given.only) or (seed != seeds[0] and not row.synthetic):
                continue
            log = None
            if not row.synthetic:
                if given.logs is None or not (given.logs / row.source).exists():
                    continue
                log = read_log(given.logs / row.source)
            settings = NewPhoneStudy(
                row.source, draws=draws, epsilons=EPSILONS, launches=new_phones.HEADLINE[1],
                at_most=n_new, copies=row.copies, seed=seed,
            )  # fmt: skip
            start = time.perf_counter()
            found[seed, row] = new_phones.run(settings, log)
            seconds = time.perf_counter() - start
            print(f"seed {seed}, {seconds:.0f} s: {main_line(row, found[seed, row])}",
                  file=sys.stderr, flush=True)  # fmt: skip
    print(f"{main_table(found, seeds[0])}\n{by_seed(found, seeds)}")
    if given.json is not None:
        rows = [
            {"seed": seed, **row._asdict(), "result": result}
            for (seed, row), result in found.items()
        ]
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def main_table(found: Results, seed: int) -> str:
    heads = ["", "phones", "without", "gain, non-private"]
    heads += [f"gain, ε {epsilon:g}" for epsilon in EPSILONS]
    heads += [f"kept at ε {epsilon:g} (mark)" for epsilon in EPSILONS]
    lines = ["| " + " | ".join(heads) + " |", "|---|--:|---|---|---|---|--:|--:|"]
    lines += [main_line(row, found[seed, row]) for row in ROWS if (seed, row) in found]
    missed = sum(line.count("**") for line in lines) // 2
    n_marks = len(EPSILONS) * (len(lines) - 2)
    words = f"HR@1 / HR@3 / HR@5, seed {seed}. Bold type: {missed} of the {n_marks} marks missed."
    return "\n".join([*lines, "", words, ""])


def main_line(row: Row, result: dict[str, Any]) -> str:
    """A row of the table."""
    priors = result["priors"]
    private = [priors[new_phones.private(epsilon)] for epsilon in EPSILONS]
    cells = [row.name, f"{result['n_crowd'][0]:,}", three(priors[new_phones.WITHOUT], "HR", "")]
    cells += [three(each, "gain", "+") for each in (priors[new_phones.OPEN], *private)]
    for each, mark in zip(private, row.marks, strict=True):
        kept = each["kept"]["HR@5"]
        low, high = round(100 * kept["low"]), round(100 * kept["high"])
        cell = f"{kept['mean']:.0%} ({low} to {high}; {mark:.0%})".replace("%", " %")
        cells.append(f"**{cell}**" if round(kept["mean"], 2) < mark else cell)
    return "| " + " | ".join(cells) + " |"


def three(prior: dict[str, Any], what: str, sign: str) -> str:
    """HR@1, 3 and 5 over the headline's launches, without the 0 before the point."""
    means = (prior["headline"][f"{what}@{cutoff}"]["mean"] for cutoff in new_phones.CUTOFFS)
    return " / ".join(f"{mean:{sign}.3f}".replace("0.", ".").replace("-", "−") for mean in means)


def by_seed(found: Results, seeds: list[int]) -> str:
    """What synthetic fleets keep in the worlds of all seeds."""
    heads = ["synthetic fleets, kept at ε 4.5 / 1", *(f"seed {each}" for each in seeds)]
    lines = ["| " + " | ".join([*heads, "mean", "mark"]) + " |"]
    lines.append("|---" + "|--:" * (len(seeds) + 2) + "|")
    for row in ROWS:
        if not row.synthetic or any((seed, row) not in found for seed in seeds):
            continue
        kept = [
            [found[seed, row]["priors"][new_phones.private(epsilon)]["kept"]["HR@5"]["mean"]
             for epsilon in EPSILONS]
            for seed in seeds
        ]  # fmt: skip
        mean = [sum(column) / len(seeds) for column in zip(*kept, strict=True)]
        n_phones = found[seeds[0], row]["n_crowd"][0]
        cells = [
            " / ".join(f"{100 * each:.0f}" for each in both) + " %"
            for both in [*kept, mean, row.marks]
        ]
        lines.append("| " + " | ".join([f"{row.name}, {n_phones:,} phones", *cells]) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
