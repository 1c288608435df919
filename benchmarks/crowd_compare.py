"""Three ways to learn a prior from many phones, at equal total ε: hit rates of new phones.

    seqmf, directed    gradients in rounds, nextapp.studies.crowd_rounds
    subset, hadamard   one cell a phone through a frequency oracle, nextapp.crowd

Every phone reports once in its life, at its whole ε: the oracles take all reports in one round, the
gradients are followed over the rounds of a plan, each by its own share of the phones. The plan
(rounds, learning rate, clip, sharpness) of each way, fleet size and ε is rehearsed on synthetic
phones of another seed. Up to --exact-up-to phones every report of a gradient is played, of more the
sum is drawn from its law (docs/fleet-law.md); the oracles' reports are always played.

Each way ends in a `Crowd`, and the same new phones mix each into the same predictions. Figures are
over launches 10 to 50; intervals are 95 % over new phones, paired, all seeds pooled. --cache keeps
what was learnt (vectors, tallies, plans), so that measuring anew takes minutes; when phones mix a
crowd in differently, --sharpen chooses the sharpness of the plans anew, which needs no training.

    python benchmarks/crowd_compare.py --cache FOLDER --json compare.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from nextapp import directed
from nextapp.crowd import crowd_from, crowd_from_reports, crowd_of_vectors
from nextapp.data import collapse_repeats, synthetic
from nextapp.fleet.columns import Fleet
from nextapp.fleet.frequencies import mean_shares, tally_reports
from nextapp.intervals import bootstrap_means, interval
from nextapp.privacy import mechanism
from nextapp.studies import crowd_rounds
from nextapp.studies.coldstart import CUTOFFS, hit_rates, new_phones, worth_to

STAND_IN_SEED = 1_000_003
NEW_FROM = 2_000_000  # number of the first new phone: beyond every fleet
AT_ONCE = 20_000
OWN_LAMBDA, OWN_LAUNCHES = 1.0, 10  # a phone's own p: its λ, and the launches it is solved from


def hits(phones, crowds):
    """{name: (n_phones, 3)}: HR@1, 3, 5 of every phone with each crowd; None is no crowd.

    A crowd may be a list, one for each phone.
    """
    return {
        name: np.array(
            [
                hit_rates(one, crowd[number] if isinstance(crowd, list) else crowd)[-len(CUTOFFS) :]
                for number, one in enumerate(phones)
            ]
        )
        for name, crowd in crowds.items()
    }


class Learnt:
    """What was learnt, kept in a folder: plans, vectors, tallies."""

    def __init__(self, folder, parameters, exact_up_to, sharpen):
        folder.mkdir(parents=True, exist_ok=True)
        self.sharpen, self._sharpened = sharpen, set()
        self.folder, self.parameters, self.exact_up_to = folder, parameters, exact_up_to
        self.plans = folder / "plans.json"
        self._fleet = None
        self._worth = None

    def fleet(self, size, seed):
        """The first phones of a world; made once for the largest fleet asked for."""
        if self._fleet is None or self._fleet[0] != seed or len(self._fleet[1]) < size:
            self._fleet = None
            self._fleet = seed, made(self.parameters, seed, size)
        return self._fleet[1].shard(0, size)

    def plan(self, way, size, epsilon):
        known = json.loads(self.plans.read_text()) if self.plans.exists() else {}
        key = f"{way} {size if epsilon else 'any'} {epsilon}"
        if key not in known or (self.sharpen and key not in self._sharpened):
            if self._worth is None:
                first = crowd_rounds.STAND_INS
                self._worth = worth_to(new_phones(self.parameters, STAND_IN_SEED, first, 150))
            steps = [(known[key]["rounds"], known[key]["rate"])] if key in known else None
            plan = crowd_rounds.choose_plan(
                way, size, self.parameters, epsilon, STAND_IN_SEED, self._worth, steps
            )
            known[key] = asdict(plan)
            self._sharpened.add(key)
            self.plans.write_text(json.dumps(known, indent=1))
        return crowd_rounds.Plan(**known[key])

    def found(self, way, size, epsilon, seed):
        """Vectors, or a tally, or the mean shares; learnt if they are not there."""
        kept = self.folder / f"{way}-{size}-{epsilon}-{seed}.npy"
        if kept.exists():
            return np.load(kept)
        fleet = self.fleet(size, seed)
        if way in crowd_rounds.WAYS:
            plan = self.plan(way, size, epsilon)
            values = crowd_rounds.train_vectors(
                plan, fleet, epsilon, seed, mode=self.mode(size, epsilon), threads=1
            )
        elif epsilon is None:
            values = mean_shares(fleet)
        else:
            values = tally_reports(fleet, self.oracle(way, epsilon), seed, threads=1)
        np.save(kept, values)
        return values

    def crowd(self, way, size, epsilon, seed):
        values = self.found(way, size, epsilon, seed)
        if way in crowd_rounds.WAYS:
            return self.plan(way, size, epsilon).crowd(values)
        if epsilon is None:
            return crowd_from(values, 0.0)
        oracle = self.oracle(way, epsilon)
        return crowd_from_reports(oracle, oracle.estimate(values, size), size)

    def own_crowds(self, size, epsilon, seed, phones):
        """The directed model's crowds with each phone's own p, from its first launches."""
        plan = self.plan("directed", size, epsilon)
        Q, R = np.split(self.found("directed", size, epsilon, seed), 2)
        Q = plan.sharpness * Q
        crowds = []
        for one in phones:
            history = one.apps[:OWN_LAUNCHES]
            phone = directed.transitions_of(history, len(Q))
            p = directed.user_vector(Q, R, phone, OWN_LAMBDA)
            crowds.append(crowd_of_vectors(Q, R, 1.0, p))
        return crowds

    def mode(self, size, epsilon):
        return "exact" if epsilon is None or size <= self.exact_up_to else "law"

    def oracle(self, way, epsilon):
        n_apps = self.parameters.apps
        return mechanism(way, epsilon=epsilon, n_apps=n_apps, d=n_apps + 1)


def made(parameters, seed, size):
    shards = []
    for first in range(0, size, AT_ONCE):
        some = replace(parameters, phones=min(size, first + AT_ONCE))
        log = collapse_repeats(synthetic.make(some, seed, first))
        starts = log.starts.astype(np.int64)
        shards.append(Fleet.of_histories(starts, log.app, log.n_apps, first))
    return Fleet.join(shards)


def figures(values):
    """Mean and 95 % interval of each column, over its rows."""
    low, high = interval(bootstrap_means(values, 0))
    return [
        {"mean": float(m), "low": float(a), "high": float(b)}
        for m, a, b in zip(values.mean(axis=0), low, high, strict=True)
    ]


def row(way, size, epsilon, learnt, rates, rival):
    """One line of the result: HR gained over no crowd, and over the rival's crowd."""
    seeds = sorted(rates)
    gains = [rates[seed][way, size, epsilon] - rates[seed][None] for seed in seeds]
    gain = np.concatenate(gains)
    found = {
        "way": way,
        "phones": size,
        "epsilon": epsilon,
        "seeds": seeds,
        "n_new": len(gain),
        "played": learnt.mode(size, epsilon) if way in crowd_rounds.WAYS else "exact",
        "gain": figures(gain),
        "gain_by_seed": [each.mean(axis=0).tolist() for each in gains],
    }
    plan = way.removesuffix("+p")
    if plan in crowd_rounds.WAYS:
        found["plan"] = asdict(learnt.plan(plan, size, epsilon))
    if all((rival, size, epsilon) in rates[seed] for seed in seeds):
        other = [rates[s][way, size, epsilon] - rates[s][rival, size, epsilon] for s in seeds]
        found[f"minus_{rival}"] = figures(np.concatenate(other))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", default="1000,10000,100000,1000000")
    parser.add_argument("--epsilon", default="0.5,1,2,4.5", help="besides none")
    parser.add_argument("--ways", default="seqmf,directed,subset,hadamard")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--once-from", type=int, default=1_000_000, help="first seed only")
    parser.add_argument("--exact-up-to", type=int, default=crowd_rounds.MOST_EXACT)
    parser.add_argument("--apps", type=int, default=87)
    parser.add_argument("--new", type=int, default=300)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sharpen", action="store_true", help="choose the sharpness anew")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="the result as Markdown")
    given = parser.parse_args()
    sizes = [int(each) for each in given.phones.split(",")]
    epsilons = [None, *(float(each) for each in given.epsilon.split(","))]
    seeds = [int(each) for each in given.seeds.split(",")]
    ways = given.ways.split(",")
    learnt = Learnt(
        given.cache, synthetic.fleet_parameters(1, given.apps), given.exact_up_to, given.sharpen
    )
    result = {"settings": {**vars(given), "cache": "", "json": "", "table": ""}, "rows": []}
    phones, rates = {}, {}
    for seed in seeds:
        phones[seed] = new_phones(learnt.parameters, seed, NEW_FROM, given.new)
        rates[seed] = hits(phones[seed], {None: None})
    base = figures(np.concatenate([rates[seed][None] for seed in seeds]))
    result["without"] = base
    print(f"{given.apps} apps; without a crowd HR@1/3/5 {words(base, '')}", flush=True)
    print(f"{'phones':>8s} {'ε':>5s} {'way':10s} HR@1/3/5 gained", flush=True)
    for size in sizes:
        of = seeds[:1] if size >= given.once_from else seeds
        for seed in of:
            for epsilon in epsilons:
                for way in ways:
                    if way == "hadamard" and epsilon is None and "subset" in ways:
                        continue  # as subset
                    crowds = {(way, size, epsilon): learnt.crowd(way, size, epsilon, seed)}
                    if way == "directed":
                        own = learnt.own_crowds(size, epsilon, seed, phones[seed])
                        crowds["directed+p", size, epsilon] = own
                    rates[seed] |= hits(phones[seed], crowds)
        some = {seed: rates[seed] for seed in of}
        for epsilon in epsilons:
            for way in (*ways, "directed+p"):
                if (way, size, epsilon) not in rates[of[0]]:
                    continue
                found = row(way, size, epsilon, learnt, some, "subset")
                result["rows"].append(found)
                print(f"{size:8d} {epsilon or 'none':>5} {way:10s} {words(found['gain'])}")
        print(flush=True, end="")
        if given.json:
            given.json.write_text(json.dumps(result, indent=1))
        if given.table:
            given.table.write_text(table(result["rows"], ways))


def table(rows, ways) -> str:
    """Gains of all ways, then what stands between the directed model and subset."""
    found = {(each["phones"], each["epsilon"], each["way"]): each for each in rows}
    heads = ["phones", "ε", *ways, "directed − subset"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    before = None
    for size, epsilon in dict.fromkeys((each["phones"], each["epsilon"]) for each in rows):
        cells = [
            f"{size:,}" if size != before else "",
            "none" if epsilon is None else f"{epsilon:g}",
        ]
        before = size
        for way in ways:
            one = found.get((size, epsilon, way))
            cells.append(" / ".join(short(each["mean"]) for each in one["gain"]) if one else "")
        apart = found.get((size, epsilon, "directed"), {}).get("minus_subset", [])
        cells.append(
            " / ".join(
                f"{short(x['mean'])} ({short(x['low'])} to {short(x['high'])})" for x in apart
            )
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def short(value) -> str:
    """Three digits with a sign, as the pages write them."""
    digits = f"{abs(value):.3f}"[1:]
    return f"{'−' if value < 0 else '+'}{digits}" if digits != ".000" else "±.000"


def words(found, sign="+") -> str:
    return "  ".join(
        f"{one['mean']:{sign}.3f} ({one['low']:{sign}.3f} to {one['high']:{sign}.3f})"
        for one in found
    )


if __name__ == "__main__":
    main()
