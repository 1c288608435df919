"""How many phones does a mechanism need to beat its controls? The paper does not study this.

Fleets of synthetic phones train a common Q through a mechanism, from a random start. Phones outside
the fleet then solve their user vectors with this Q and predict their later launches. A mechanism
is useful if their HR@5 is above that of three controls: Q frozen at its start (frozen); the same
steps with a gradient sum of zero, where only λQ and the optimiser act (zero); and zero gradients
encoded by the mechanism, where its noise acts too (noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from nextapp.data import synthetic
from nextapp.evaluation.dynamic_environment import FROZEN, ZERO
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import fleet_phones, public_clips, public_seed, zero_phones
from nextapp.learners import OPTIMISERS, SeqMFLearner, run_rounds, starting_vectors
from nextapp.predictors.training import Training
from nextapp.privacy import Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import check_epsilon
from nextapp.studies.experiment import check_names, plain_values, versions
from nextapp.studies.mechanisms import FORMS, NOISE, NONE, mechanism_for_simulation
from nextapp.studies.simulation import HeldOutPhones
from nextapp.table import CONFIDENCE
from nextapp.wire import Broadcast, Floats, ModelSettings

NOISE_ALONE = "noise"
MECHANISMS = (
    "laplace", "laplace-l1", "harmony", "kashin", "qharmony-printed", "walsh",
)  # fmt: skip

_STAND_INS = 400


@dataclass(frozen=True)
class PhonesNeeded:
    """Settings of the study.

    ``phones`` are numbers of phones that train, in increasing order; none is always one of the
    mechanisms. Each trains for ``rounds`` rounds; in each, every phone reports with ``epsilon``. A
    world is one simulated population with its own seed. The learning rate is the best of ``rates``
    on the ``validation`` phones of a separate world with ``seed``; so are those of the controls
    none and zero. It is chosen for every number of phones up to ``tune_up_to``; larger fleets use
    the last choice, and its noise control. HR@5 is measured on ``sample`` phones in each of
    ``seeds`` other worlds. Kashin, of which every coefficient is needed, is run
    with at most ``exact_up_to`` phones.
    """

    epsilon: float
    phones: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 100_000)
    mechanisms: tuple[str, ...] = MECHANISMS
    apps: int = 87
    rounds: int = 10
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    seeds: int = 5
    seed: int = 0
    sample: int = 500
    validation: int = 1_000
    days: int = 3
    tune_up_to: int = 10_000
    exact_up_to: int = 3_000
    training: Training = Training(ModelSettings(alpha=0.0), dim=16)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        for name in ("apps", "rounds", "seeds", "sample", "validation", "days"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)!r}.")
        if not self.phones or min(self.phones) < 1 or list(self.phones) != sorted({*self.phones}):
            raise ValueError(f"phones must be increasing numbers >= 1, got {self.phones}.")
        if self.seeds < 2:
            raise ValueError(f"seeds must be 2 or more for an interval, got {self.seeds!r}.")
        if not self.rates:
            raise ValueError("rates must name at least one learning rate.")
        if self.tune_up_to < self.phones[0]:
            raise ValueError(
                f"tune_up_to must be at least the smallest number of phones, {self.phones[0]:,}, "
                f"got {self.tune_up_to:,}."
            )
        check_names("mechanism", self.mechanisms, tuple(FORMS))

    def sizes(self, name: str) -> list[int]:
        """The numbers of phones with which a mechanism is run."""
        return [n for n in self.phones if name != "kashin" or n <= self.exact_up_to]


class _World:
    """The phones of one seed: a fleet up to the largest size, and phones outside it."""

    def __init__(self, study: PhonesNeeded, seed: int, n_outside: int) -> None:
        most = max(study.phones)
        parameters = synthetic.fleet_parameters(most + n_outside, study.apps, study.days)
        self.fleet = Fleet.of_synthetic(parameters, seed, 0, most)
        self.held_out = HeldOutPhones.of(parameters, seed, most)
        self.seed = seed
        self.study = study
        training = study.training
        start = starting_vectors(study.apps, training.dim, training.scale, seed)
        self.begin = Broadcast(0, start, training.model)
        public = synthetic.fleet_parameters(_STAND_INS, study.apps, study.days)
        self._clips = public_clips(public, public_seed(seed), self.begin)

    def mechanism(self, name: str) -> Mechanism:
        study = self.study
        return mechanism_for_simulation(
            name, study.epsilon, study.apps, study.training.dim, self._clips
        )

    def hit_rates(self, name: str, n_phones: int, rate: float) -> Floats:
        """HR@5 of the phones outside after training with a mechanism, or with a control.

        Under the name of a mechanism and `NOISE` the phones have no launches: only the mechanism's
        noise and λQ change Q.
        """
        if name == FROZEN:
            return self.held_out.hit_rates(self.begin)
        training = self.study.training
        optimiser = OPTIMISERS[training.optimiser](rate)
        mechanism = self.mechanism(NONE if name == ZERO else name)
        server = SeqMFLearner(self.begin.app_vectors, training.model, optimiser, mechanism)
        fleet = self.fleet.shard(0, n_phones)
        if name.endswith(NOISE):
            fleet = Fleet.without_launches(n_phones, fleet.n_apps)
        phones = zero_phones if name == ZERO else fleet_phones(fleet, mechanism, self.seed)
        run_rounds(server, phones, self.study.rounds)
        return self.held_out.hit_rates(server.broadcast)


@dataclass(frozen=True, eq=False)
class PhonesNeededResult:
    """HR@5 of the phones outside, by (mechanism, number of phones): one array per world.

    The controls `FROZEN` and `ZERO` have no phones; that of a mechanism's noise is there for the
    numbers of phones for which rates were chosen.
    """

    study: PhonesNeeded
    rates: Mapping[tuple[str, int], float]
    hit_rates: Mapping[tuple[str, int], Sequence[Floats]]

    def figures(self, name: str, n_phones: int) -> dict[str, dict[str, float]]:
        """HR@5 and its gains over the controls, each a mean over worlds with an interval."""
        sizes = [n for each, n in self.hit_rates if each == f"{name}{NOISE}" and n <= n_phones]
        noise = (f"{name}{NOISE}", max(sizes)) if sizes else (ZERO, 0)
        four = (self.hit_rates[key] for key in ((name, n_phones), (FROZEN, 0), (ZERO, 0), noise))
        compared = [
            np.stack([mine, mine - frozen, mine - zero, mine - alone], axis=1)
            for mine, frozen, zero, alone in zip(*four, strict=True)
        ]
        names = ("HR@5", f"gain_over_{FROZEN}", f"gain_over_{ZERO}", f"gain_over_{NOISE_ALONE}")
        return dict(zip(names, _over_worlds(compared), strict=True))

    def answer(self, name: str) -> int | None:
        """The number of phones from which the mechanism beats all controls, or None.

        It beats a control if the interval of its gain lies above 0.
        """
        best = None
        for n_phones in reversed(self.study.sizes(name)):
            found = self.figures(name, n_phones)
            if min(found[f"gain_over_{each}"]["low"] for each in (FROZEN, ZERO, NOISE_ALONE)) <= 0:
                break
            best = n_phones
        return best

    def as_json(self) -> dict[str, Any]:
        study = self.study
        names = (NONE, *study.mechanisms)
        rows: dict[str, Any] = {}
        for name in names:
            found = [self.figures(name, n) for n in study.sizes(name)]
            rows[name] = {
                "phones": study.sizes(name),
                **{
                    key: {part: [each[key][part] for each in found] for part in found[0][key]}
                    for key in found[0]
                },
                "rate": [self.rates[name, n] for n in study.sizes(name)],
                "epsilon_spent": None
                if name == NONE or FORMS[name].unsafe
                else study.rounds * study.epsilon,
            }
        frozen, zero = (self.hit_rates[name, 0] for name in (FROZEN, ZERO))
        controls = _over_worlds([np.stack(pair, axis=1) for pair in zip(frozen, zero, strict=True)])
        return {
            "mechanisms": rows,
            "controls": {
                FROZEN: {"HR@5": controls[0]},
                ZERO: {"HR@5": controls[1], "rate": self.rates[ZERO, 0]},
            },
            "answer": {name: self.answer(name) for name in names},
            "largest_tried": {name: max(study.sizes(name), default=0) for name in names},
            "intervals": "95 %, Student's t over worlds; gains are paired in each world",
            "data": "synthetic phones, not data of people",
            "settings": plain_values(study),
            "seed": study.seed,
            "versions": versions(),
        }


def run(study: PhonesNeeded, report: Progress = silent) -> PhonesNeededResult:
    """Choose the learning rates in a separate world, then measure in the others."""
    pairs = [(name, n) for name in (NONE, *study.mechanisms) for n in study.sizes(name)]
    tuned = [(ZERO, 0), *(pair for pair in pairs if pair[1] <= study.tune_up_to)]
    noises = [(f"{name}{NOISE}", n) for name, n in tuned if name not in (NONE, ZERO)]
    measured = [(FROZEN, 0), (ZERO, 0), *pairs, *noises]
    total = study.seeds * len(measured) + len(study.rates) * len(tuned)
    done = 0

    def report_step(what: str) -> None:
        nonlocal done
        report(what, done, total)
        done += 1

    report("making phones", 0, total)
    tuning = _World(study, study.seed, study.validation)
    rates: dict[tuple[str, int], float] = {}
    for name, n in tuned:
        found = []
        for rate in study.rates:
            report_step(f"rate of {name}, {n:,} phones")
            found.append(float(tuning.hit_rates(name, n, rate).mean()))
        rates[name, n] = study.rates[int(np.argmax(found))]
    for name, n in pairs:
        largest = max(size for other, size in tuned if other == name)
        rates.setdefault((name, n), rates[name, largest])
    del tuning
    hit_rates: dict[tuple[str, int], list[Floats]] = {pair: [] for pair in measured}
    for number in range(study.seeds):
        world = _World(study, study.seed + 1 + number, study.sample)
        for (name, n), by_world in hit_rates.items():
            report_step(f"{name}, {n:,} phones, world {number + 1}")
            rate = rates.get((name.removesuffix(NOISE), n), 0.0)
            by_world.append(world.hit_rates(name, n, rate))
    return PhonesNeededResult(study, rates, hit_rates)


def _over_worlds(by_world: Sequence[Floats]) -> list[dict[str, float]]:
    """For each column the mean over worlds and its 95 % interval by Student's t.

    Worlds differ in their phones, their initial Q and all random bits of the mechanism. All phones
    of a world share the same noise in Q: so worlds, not phones, are the independent samples.
    """
    means = np.array([each.mean(axis=0) for each in by_world])
    n = len(means)
    reach = (
        float(student.ppf((1 + CONFIDENCE) / 2, n - 1)) * means.std(axis=0, ddof=1) / math.sqrt(n)
    )
    return [
        {"mean": float(middle), "low": float(middle - half), "high": float(middle + half)}
        for middle, half in zip(means.mean(axis=0), reach, strict=True)
    ]
