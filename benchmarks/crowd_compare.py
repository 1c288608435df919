"""Three ways to learn a prior from many phones, at equal total ε: hit rates of new phones.

    seqmf      the paper's gradients of Q; a phone's prior is softmax(β·light score)
    directed   gradients of a directed embedding, nextapp.directed; its prior is its P(next | last)
    subset, hadamard   one cell a phone through a frequency oracle, nextapp.crowd

Every phone reports once in its life, at its whole ε. The oracles take all reports in one round. The
gradients are followed over ROUNDS rounds, each by its own share of the phones, through codebook.
A round's mean gradient is taken over SAMPLE phones and the noise of codebook for the round's
phones is added from its normal limit (docs/fleet-law.md), so fleets of a million cost what small
ones do. Figures are over the new phones' launches 10 to 50.

The prior of each way goes into the same mix with the phone's own habits. Synthetic phones.

    python benchmarks/crowd_compare.py --phones 1000,10000,100000 --epsilon 0.5,1,2,4.5
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace

import numpy as np

from nextapp import directed, model
from nextapp.crowd import crowd_from, learnt_crowd
from nextapp.data import collapsed, synthetic
from nextapp.experiments.coldstart import HEADLINE, Passed, passed
from nextapp.fleet.columns import Fleet
from nextapp.fleet.frequencies import mean_shares, tallied
from nextapp.habits import mixed_with_crowd
from nextapp.privacy import mechanism
from nextapp.privacy.mechanism import into_ball
from nextapp.randomness import KeyedBits
from nextapp.server import adam, random_vectors
from nextapp.wire import Broadcast, ModelSettings

DIM, ROUNDS, SAMPLE, LAM = 16, 20, 100, 0.1
BETAS = (1.0, 3.0, 10.0, 30.0)


def hit_rates(phones: list[Passed], prior) -> np.ndarray:
    """HR@1, 3, 5 over the headline launches; prior(phone, launch) gives (popular, share, rest)."""
    hits = []
    for number, one in enumerate(phones):
        for launch in range(HEADLINE[0], min(HEADLINE[1], len(one.target))):
            scores = one.scores[launch]
            if prior is not None:
                cells = prior(number, one, launch)
                scores = mixed_with_crowd(scores, *cells, one.after[launch], one.seen[launch])
            target = scores[one.target[launch]]
            better, equal = int((scores > target).sum()), int((scores == target).sum())
            hits.append([min(max((n - better) / equal, 0.0), 1.0) for n in (1, 3, 5)])
    return np.mean(hits, axis=0)


def told_by(crowd):
    return lambda number, one, launch: crowd.cells(one.candidates, int(one.last[launch]))


def spoken(chances: np.ndarray):
    return np.full(len(chances), 1 / len(chances)), chances / chances.sum(), 0.0


def followed(gradient, start, sample, n_phones, epsilon, seed, rate=0.1):
    """Adam over ROUNDS rounds of clipped mean gradients with the noise of codebook."""
    generator = KeyedBits(seed, purpose="compare").generator()
    optimiser, vectors = adam(rate), start
    state = optimiser.start(vectors)
    lengths = [np.linalg.norm(gradient(vectors, each)) for each in sample[:100]]
    clip = float(np.median(lengths))
    noise = 0.0
    if epsilon is not None:
        m = mechanism("codebook", epsilon=epsilon, n_apps=len(start), d=DIM, clip=clip)
        noise = clip * math.sqrt(m.variance / start.size / max(1, n_phones // ROUNDS))
    for number in range(ROUNDS):
        some = sample[number * SAMPLE : (number + 1) * SAMPLE]
        mean = np.zeros(start.size)
        for each in some:
            flat = gradient(vectors, each).ravel()
            mean += flat if epsilon is None else clip * into_ball(flat, "l2", clip)
        step = (mean / len(some) + noise * generator.normal(size=start.size)).reshape(start.shape)
        vectors, state = optimiser.step(vectors, step, state)
    return vectors


def seqmf_gradient(settings):
    def gradient(vectors, history):
        broadcast = Broadcast(0, vectors, settings)
        stats = model.phone_statistics(history, settings.reading)
        own, c, c0, h = model.phone_terms(stats, broadcast)
        p = model.phone_user_vector(own, broadcast.gram, c, c0, h, settings.lam)
        return model.phone_gradient(stats, vectors, p, c, c0, h).dense()

    return gradient


def directed_gradient(vectors, history):
    Q, R = np.split(vectors, 2)
    phone = directed.transitions_of(history, len(Q))
    return directed.gradient(Q, R, directed.user_vector(Q, R, phone, LAM), phone)


def seqmf_prior(vectors, settings, histories, beta):
    broadcast = Broadcast(0, vectors, settings)

    def prior(number, one, launch):
        stats = model.phone_statistics(histories[number][:launch], settings.reading)
        own, c, c0, h = model.phone_terms(stats, broadcast)
        p = model.phone_user_vector(own, broadcast.gram, c, c0, h, settings.lam)
        scores = beta * vectors[one.candidates] @ (p + vectors[one.last[launch]])
        return spoken(np.exp(scores - scores.max()))

    return prior


def directed_prior(vectors, histories):
    Q, R = np.split(vectors, 2)

    def prior(number, one, launch):
        phone = directed.transitions_of(histories[number][:launch], len(Q))
        p = directed.user_vector(Q, R, phone, LAM)
        return spoken(
            directed.probabilities(Q, R, p, one.last[launch : launch + 1])[0][one.candidates]
        )

    return prior


def rates_of(way, size, epsilon, world) -> np.ndarray:
    """Hit rates of the new phones with the prior that this way gives them."""
    n_apps, seed, new, histories = world["n_apps"], world["seed"], world["new"], world["histories"]
    start = KeyedBits(seed, purpose="Q").generator()
    sample = (world["sample"][:size] * (1 + ROUNDS * SAMPLE // size))[: ROUNDS * SAMPLE]
    if way == "seqmf":
        settings = ModelSettings(inference="last")
        vectors = random_vectors(n_apps, DIM, 0.1, start)
        vectors = followed(seqmf_gradient(settings), vectors, sample, size, epsilon, seed)

        def at(beta, phones):
            return hit_rates(phones, seqmf_prior(vectors, settings, histories, beta))

        half = new[: len(new) // 2]  # β is chosen on one half of the new phones
        return at(max(BETAS, key=lambda beta: at(beta, half)[2]), new)
    if way == "directed":
        vectors = random_vectors(2 * n_apps, DIM, 0.1, start)
        vectors = followed(directed_gradient, vectors, sample, size, epsilon, seed)
        return hit_rates(new, directed_prior(vectors, histories))
    fleet = _fleet(world["parameters"], seed, size)
    if epsilon is None:
        return hit_rates(new, told_by(crowd_from(mean_shares(fleet), 0.0)))
    oracle = mechanism(way, epsilon=epsilon, n_apps=n_apps, d=n_apps + 1)
    estimate = oracle.estimate(tallied(fleet, oracle, seed), size)
    return hit_rates(new, told_by(learnt_crowd(oracle, estimate, size)))


def new_phones(parameters, seed, first):
    """Phones from number `first` on: their histories, and their own predictions."""
    log = collapsed(synthetic.make(parameters, seed, first))
    starts = log.starts
    long = np.flatnonzero(np.diff(starts) >= HEADLINE[1])
    histories = [log.app[starts[u] : starts[u + 1]].astype(np.int64) for u in long]
    times = [log.time[starts[u] : starts[u] + HEADLINE[1]] / 1000.0 for u in long]
    return histories, [
        passed(apps, when, np.unique(apps)) for apps, when in zip(histories, times, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", default="1000,10000,100000")
    parser.add_argument("--epsilon", default="0.5,1,2,4.5")
    parser.add_argument("--apps", type=int, default=87)
    parser.add_argument("--new", type=int, default=200)
    parser.add_argument("--ways", default="seqmf,directed,subset,hadamard")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    given = parser.parse_args()
    sizes = [int(each) for each in given.phones.split(",")]
    epsilons = [None, *(float(each) for each in given.epsilon.split(","))]
    parameters = synthetic.fleet_parameters(max(sizes) + given.new, given.apps)
    histories, new = new_phones(parameters, given.seed, max(sizes))
    begin, apps = synthetic.histories(parameters, given.seed, 0, min(max(sizes), ROUNDS * SAMPLE))
    sample = [apps[begin[k] : begin[k + 1]].astype(np.int64) for k in range(len(begin) - 1)]
    world = {
        "parameters": parameters,
        "n_apps": given.apps,
        "seed": given.seed,
        "new": new,
        "histories": histories,
        "sample": [each for each in sample if len(each) > 1],
    }
    base = hit_rates(new, None)
    print(f"{given.apps} apps, {len(new)} new phones, without a crowd: HR@1/3/5 {_words(base)}")
    print(f"{'way':9s} {'phones':>8s} {'ε':>5s}  HR@1/3/5 gained", flush=True)
    found = []
    for size in sizes:
        for way in given.ways.split(","):
            for epsilon in epsilons:
                gain = rates_of(way, size, epsilon, world) - base
                found.append(
                    {"way": way, "phones": size, "epsilon": epsilon, "gain": gain.tolist()}
                )
                print(f"{way:9s} {size:8d} {epsilon or 'none':>5}  {_words(gain, '+')}", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"base": base.tolist(), "found": found, "settings": vars(given)}, file)


def _fleet(parameters, seed, size):
    shards = []
    for first in range(0, size, 50_000):
        last = min(size, first + 50_000)
        starts, apps = synthetic.histories(replace(parameters, phones=last), seed, first, last)
        shards.append(Fleet.of_histories(starts, apps, parameters.apps, first))
    return Fleet.joined(shards)


def _words(rates, sign="") -> str:
    return " ".join(f"{rate:{sign}.3f}" for rate in rates)


if __name__ == "__main__":
    main()
