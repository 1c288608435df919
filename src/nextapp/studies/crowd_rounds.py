"""A crowd prior learnt from gradients, in rounds: the rivals of `nextapp.crowd`'s counts.

    seqmf      gradients of Q, eq. (12);              P(next | last) = softmax β q_iᵀq_j
    directed   gradients of Q and R, nextapp.directed; P(next | last) = softmax β q_iᵀr_j

Every phone reports only once, with its whole ε: its clipped gradient, through codebook, in one of
the rounds. Without ε the gradients are sent unprotected, and phones report several times.

The hyper-parameters of training, a `Plan`, are public: they are tuned on public synthetic phones
drawn with another seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nextapp.crowd import crowd_of_vectors
from nextapp.data import LaunchLog, synthetic
from nextapp.fleet.clip import gradient_lengths
from nextapp.fleet.columns import Fleet
from nextapp.fleet.reporting import GRADIENTS, sum_reports
from nextapp.fleet.rounds import RoundSum, play_round
from nextapp.learners import adam, starting_vectors
from nextapp.names import unknown
from nextapp.privacy import Mechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.studies.mechanisms import NONE, mechanism_for_simulation
from nextapp.wire import Broadcast, Crowd, Floats, ModelSettings

WAYS = GRADIENTS
MECHANISM = "codebook"
SCALE = 0.1  # standard deviation of the initial vectors

MOST_EXACT = 20_000
"""Up to so many phones every report is simulated; else the sum is drawn from its distribution."""

STAND_INS = 2_000  # public synthetic phones for tuning
# Phones × apps in a round of plain gradients and of tuning: 500 and 128 phones for 87 apps, fewer
# for larger catalogues, where each phone takes longer.
_PLAIN_CELLS, _REHEARSAL_CELLS = 43_500, 11_136
_FEWEST = 16  # phones per round
_NORMS = 100  # public phones whose gradients give the clip


@dataclass(frozen=True)
class Plan:
    """Hyper-parameters: ``sharpness`` is β; ``clip`` is None for gradients without privacy."""

    way: str
    rounds: int
    rate: float
    sharpness: float
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise ValueError(unknown("way", self.way, WAYS))
        if self.rounds < 1:
            raise ValueError(f"rounds must be 1 or more, got {self.rounds!r}.")

    @property
    def dim(self) -> int:
        return DIMS[self.way]

    @property
    def model(self) -> ModelSettings:
        return MODELS[self.way]

    def n_rows(self, n_apps: int) -> int:
        return n_apps * (2 if self.way == "directed" else 1)

    def build_mechanism(self, epsilon: float | None, n_apps: int) -> Mechanism:
        """The mechanism that encodes a phone's only report."""
        name = NONE if epsilon is None else MECHANISM
        clip = self.clip if self.clip is not None else math.nan
        return mechanism_for_simulation(name, epsilon, self.n_rows(n_apps), self.dim, clip)

    def slope(self, mean: Floats, n_reports: int, broadcast: Broadcast) -> Floats:
        """Gradient of the mean loss per phone; for SeqMF with the regulariser of eq. (13)."""
        if self.way == "directed":
            return mean
        return mean + self.model.lam / n_reports * broadcast.app_vectors

    def crowd(self, vectors: Floats) -> Crowd:
        """The crowd prior that trained vectors give."""
        if self.way == "directed":
            following, last = np.split(vectors, 2)
            return crowd_of_vectors(following, last, self.sharpness)
        return crowd_of_vectors(vectors, vectors, self.sharpness)


# Chosen by `choose_plan`: for the directed model λ = 10 was the best of 0.1 to 10, and d = 32 of 4
# to 32 (64 is slightly better at twice the cost); for SeqMF nothing beat the default settings.
MODELS = {"seqmf": ModelSettings(), "directed": ModelSettings(lam=10.0)}
DIMS = {"seqmf": 16, "directed": 32}
SHARPNESSES = {"seqmf": (0.0, 1.0, 3.0, 10.0, 30.0), "directed": (0.0, 0.5, 1.0, 2.0)}
STEPS = {
    "seqmf": ((20, 0.003), (20, 0.01), (20, 0.03), (20, 0.1), (60, 0.003), (60, 0.01), (60, 0.03)),
    "directed": ((20, 0.03), (60, 0.03), (60, 0.1), (150, 0.03)),
}
"""Pairs of rounds and learning rate that `choose_plan` tries."""

PLAIN = {"seqmf": Plan("seqmf", 20, 0.03, 3.0), "directed": Plan("directed", 60, 0.03, 1.0)}
"""Plans for gradients without privacy, chosen by `choose_plan`.

Except the directed model's sharpness: 1 is the model as trained. Synthetic phones would choose 2,
logs of real people on PCs would not.
"""

Worth = Callable[[Crowd], float]


def train_vectors(
    plan: Plan,
    fleet: Fleet,
    epsilon: float | None,
    seed: int,
    *,
    mode: str | None = None,
    threads: int | None = None,
) -> Floats:
    """The vectors after the rounds of a plan: (n_apps, d), or Q stacked on R.

    The phones are assigned to the rounds in their order, each to one; `mode` as in `sum_reports`,
    by default ``exact`` up to `MOST_EXACT` phones.
    """
    encoder = plan.build_mechanism(epsilon, fleet.n_apps)
    mode = mode or ("exact" if epsilon is None or len(fleet) <= MOST_EXACT else "law")
    learner = _Learner(plan, fleet.n_apps, seed)
    for cohort in cohorts(plan, fleet, once=epsilon is not None):
        if len(cohort) == 0:
            continue

        def phones(broadcast: Broadcast, cohort: Fleet = cohort) -> RoundSum:
            users, everyone = np.zeros((len(cohort), plan.dim)), np.ones(len(cohort), bool)
            sums = sum_reports(
                cohort, broadcast, encoder, seed, users, everyone, mode=mode, model=plan.way,
                threads=threads,
            )  # fmt: skip
            return RoundSum(plan.slope(sums.mean(encoder), sums.n_reports, broadcast))

        play_round(learner, phones)
    return learner.broadcast.app_vectors


class _Learner:
    """Vectors trained on `Plan.slope`: the mean of the reports, not their sum as in `SeqMFLearner`.

    So one learning rate fits cohorts of any size.
    """

    def __init__(self, plan: Plan, n_apps: int, seed: int) -> None:
        vectors = starting_vectors(plan.n_rows(n_apps), plan.dim, SCALE, seed)
        self.plan = plan
        self.broadcast = Broadcast(0, vectors, plan.model)
        self._optimiser = adam(plan.rate)
        self._state = self._optimiser.start(vectors)

    def apply_sum(self, slope: Floats) -> None:
        old = self.broadcast
        vectors, self._state = self._optimiser.step(old.app_vectors, slope, self._state)
        self.broadcast = replace(old, round=old.round + 1, app_vectors=vectors)

    def pass_over(self) -> None:
        self.broadcast = replace(self.broadcast, round=self.broadcast.round + 1)


def cohorts(plan: Plan, fleet: Fleet, once: bool) -> Iterator[Fleet]:
    """The phones of each round; `once`: no phone is in two of them."""
    n = len(fleet)
    if once:
        bounds = np.linspace(0, n, plan.rounds + 1).astype(int).tolist()
        yield from (fleet.shard(bounds[k], bounds[k + 1]) for k in range(plan.rounds))
        return
    size = min(n, max(_FEWEST, _PLAIN_CELLS // fleet.n_apps))
    for number in range(plan.rounds):
        first = number * size % (n - size + 1)
        yield fleet.shard(first, first + size)


def choose_plan(
    way: str,
    n_phones: int,
    parameters: synthetic.Parameters,
    epsilon: float | None,
    seed: int,
    worth: Worth,
    steps: Iterable[tuple[int, float]] | None = None,
) -> Plan:
    """Tune on public synthetic phones: the plan of `STEPS` and `SHARPNESSES` of highest `worth`.

    The public phones are drawn with `seed`, which must differ from the seed of the phones to learn
    from; the same holds for the phones behind `worth`. The clip is the median length of the public
    phones' first gradients. A simulated round takes the mean of a few clipped gradients and adds
    Gaussian noise with the variance of the mean of n_phones/rounds reports. `steps` replaces
    `STEPS`.
    """
    stand_ins = synthetic_fleet(replace(parameters, phones=STAND_INS), seed)
    clip = None if epsilon is None else _median_length(way, stand_ins, seed)
    best, most = None, -math.inf
    for rounds, rate in steps or STEPS[way]:
        if rounds > n_phones:
            continue
        plan = Plan(way, rounds, rate, 1.0, clip)
        vectors = _rehearsal(plan, stand_ins, n_phones, epsilon, seed)
        for sharpness in SHARPNESSES[way]:
            plan = replace(plan, sharpness=sharpness)
            value = worth(plan.crowd(vectors))
            if value > most:
                best, most = plan, value
    return best or Plan(way, 1, STEPS[way][0][1], 0.0, clip)


def synthetic_fleet(parameters: synthetic.Parameters, seed: int) -> Fleet:
    starts, apps = synthetic.histories(parameters, seed, 0, parameters.phones)
    return Fleet.of_histories(starts, apps, parameters.apps)


def _median_length(way: str, stand_ins: Fleet, seed: int) -> float:
    plan = Plan(way, 1, 1.0, 1.0)
    broadcast = _Learner(plan, stand_ins.n_apps, seed).broadcast
    plain = plan.build_mechanism(None, stand_ins.n_apps)
    lengths = gradient_lengths(
        _plain_sum(plan, stand_ins.shard(k, k + 1), broadcast, plain) for k in range(_NORMS)
    )
    return float(np.median(lengths["l2"]))


def _plain_sum(plan: Plan, fleet: Fleet, broadcast: Broadcast, plain: Mechanism) -> Floats:
    users, everyone = np.zeros((len(fleet), plan.dim)), np.ones(len(fleet), bool)
    sums = sum_reports(fleet, broadcast, plain, 0, users, everyone, model=plan.way, threads=1)
    return sums.true_sum


def _rehearsal(
    plan: Plan, stand_ins: Fleet, n_phones: int, epsilon: float | None, seed: int
) -> Floats:
    n_apps = stand_ins.n_apps
    learner = _Learner(plan, n_apps, seed)
    shape = learner.broadcast.app_vectors.shape
    in_a_round = n_phones if epsilon is None else n_phones // plan.rounds
    noise = 0.0
    if epsilon is not None and plan.clip is not None:
        variance = plan.build_mechanism(epsilon, n_apps).variance
        noise = plan.clip * math.sqrt(variance / learner.broadcast.app_vectors.size / in_a_round)
    plain = mechanism("identity", n_apps=shape[0], d=shape[1], clip=plan.clip)
    draws = KeyedBits(seed, purpose="rehearse").generator()
    size = min(in_a_round, max(_FEWEST, _REHEARSAL_CELLS // n_apps), len(stand_ins))
    for number in range(plan.rounds):
        first = number * size % (len(stand_ins) - size + 1)

        def phones(broadcast: Broadcast, first: int = first) -> RoundSum:
            cohort = stand_ins.shard(first, first + size)
            mean = _plain_sum(plan, cohort, broadcast, plain) / size
            mean = mean + noise * draws.normal(size=shape)
            return RoundSum(plan.slope(mean, in_a_round, broadcast))

        play_round(learner, phones)
    return learner.broadcast.app_vectors


def crowd_of_log(way: str, seed: int, history: LaunchLog) -> Crowd:
    """The crowd prior learnt from the gradients of all phones of a log, without privacy."""
    plan = PLAIN[way]
    return plan.crowd(train_vectors(plan, Fleet.of_log(history), None, seed))
