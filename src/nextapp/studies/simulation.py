"""A fleet of synthetic phones trains a common Q, round by round, on one machine or several.

All random numbers are keyed by (seed, phone, round), so a killed run that resumes from its last
checkpoint ends with the same Q, for any number of threads or shards.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.data.cutting import Split
from nextapp.evaluation import Exam, exam, find_preset
from nextapp.evaluation.seqmf import SeqMF
from nextapp.evaluation.static import score_predictions, user_means
from nextapp.fleet.columns import Fleet
from nextapp.fleet.rounds import (
    PlacedFleet,
    Sums,
    check_device,
    cosine,
    estimate_sum,
    place_fleet,
    public_clips,
    public_seed,
)
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.learners import (
    OPTIMISERS,
    Optimiser,
    SeqMFLearner,
    read_checkpoint,
    starting_vectors,
    take_step,
    write_checkpoint,
)
from nextapp.predictors.training import Training
from nextapp.privacy import MECHANISMS, Mechanism
from nextapp.settings import setting, unknown
from nextapp.storage import write_atomically
from nextapp.studies.experiment import plain_values, versions
from nextapp.studies.mechanisms import mechanism_for_simulation
from nextapp.table import bootstrap_means, interval
from nextapp.wire import Broadcast, Floats, ModelSettings

PUBLIC_PHONES = 400  # public synthetic phones, drawn with another seed, that give the default clip


@dataclass(frozen=True)
class SimulationSettings:
    """A simulated federation.

    With ``exact`` every report is simulated, else their sum is drawn from its distribution where it
    has one that is cheap to draw. With ``clip`` None the clip is the median norm of the gradients
    of 400 public synthetic phones, drawn with another seed. HR@5 is measured on ``sample`` phones
    outside the federation: they solve their user vectors from the first four fifths of their
    launches and predict the last fifth. Without ``keep_shards`` the phones of a shard are made
    again in every round.
    """

    phones: int = setting(text="Number of phones.", least=1)
    apps: int = setting(2_000, "Apps in the catalogue.", least=2)
    dim: int = setting(16, "Length of an app vector.", least=1)
    rounds: int = setting(10, "Steps on the app vectors.", least=1)
    mechanism: str = setting("identity", "identity, harmony, walsh, …", metavar="NAME")
    seed: int = setting(0, "Random seed.")
    epsilon: float | None = setting(None, "Privacy budget ε of one report.")
    clip: float | None = setting(
        None, "Bound on a gradient. Default: from public synthetic phones."
    )
    exact: bool = setting(False, "Random bits for every phone, instead of drawing their sum.")
    days: int = setting(3, "Days of history on a phone.", least=1)
    sample: int = setting(1_000, "Further phones, on which HR@5 is measured.", least=2)
    shards: int = setting(1, "Parts in which the fleet is made.", least=1)
    keep_shards: bool = True
    training: Training = Training(ModelSettings(alpha=0.0), dim=16, rate=0.01)

    def __post_init__(self) -> None:
        for name in ("phones", "apps", "dim", "sample", "shards", "days"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)!r}.")
        if self.rounds < 0:
            raise ValueError(f"rounds must be 0 or more, got {self.rounds!r}.")
        if self.mechanism not in MECHANISMS:
            raise ValueError(unknown("mechanism", self.mechanism, MECHANISMS))
        if self.mechanism == "identity" and self.epsilon is not None:
            raise ValueError("the mechanism 'identity' has no epsilon: it protects nothing.")
        if self.mechanism != "identity" and self.epsilon is None:
            raise ValueError(f"the mechanism {self.mechanism!r} needs an epsilon.")
        object.__setattr__(self, "training", replace(self.training, dim=self.dim))
        if self.shards > self.phones:
            raise ValueError(
                f"{self.phones:,} phones can be cut in 1 to {self.phones:,} shards, got "
                f"{self.shards}."
            )
        self.build_mechanism(1.0)

    @property
    def parameters(self) -> synthetic.Parameters:
        """Parameters of all phones: first the fleet, then the sample outside it."""
        return synthetic.fleet_parameters(self.phones + self.sample, self.apps, self.days)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The first phone of each shard, and the one after its last; almost equally many."""
        cuts = np.linspace(0, self.phones, self.shards + 1).astype(int).tolist()
        return list(pairwise(cuts))

    def build_mechanism(self, clip: float) -> Mechanism:
        return mechanism_for_simulation(self.mechanism, self.epsilon, self.apps, self.dim, clip)


World = Callable[[Broadcast, Mechanism], Sums]
"""Where the phones are: it gives the sum of the reports of a round."""


class LocalWorld:
    """Shards in this process, by default all; they run on a `device` of `nextapp.fleet.rounds`."""

    def __init__(
        self,
        settings: SimulationSettings,
        shards: Sequence[tuple[int, int]] | None = None,
        device: str = "cpu",
    ) -> None:
        check_device(device)
        self.settings = settings
        self.device = device
        self.shards = settings.bounds if shards is None else shards
        self._placed: dict[int, PlacedFleet] = {}

    def __call__(self, broadcast: Broadcast, mechanism: Mechanism) -> Sums:
        seed, law = self.settings.seed, not self.settings.exact
        fleets = (self._fleet(number) for number in range(len(self.shards)))
        parts = (fleet(broadcast, mechanism, seed, law=law) for fleet in fleets)
        return functools.reduce(Sums.__add__, parts)

    def _fleet(self, number: int) -> PlacedFleet:
        if number in self._placed:
            return self._placed[number]
        fleet = Fleet.of_synthetic(
            self.settings.parameters, self.settings.seed, *self.shards[number]
        )
        placed = place_fleet(fleet, self.device)
        if self.settings.keep_shards:
            self._placed[number] = placed
        return placed


@dataclass(frozen=True, eq=False)
class HeldOutPhones:
    """Phones outside the federation, used to evaluate Q."""

    test: Exam
    fleet: Fleet
    seed: int

    @classmethod
    def of(cls, parameters: synthetic.Parameters, seed: int, first: int) -> HeldOutPhones:
        """The synthetic phones from number `first` on."""
        log = synthetic.make(parameters, seed, first)
        test = exam(log, Split.parse("fraction:0.8,0,0.2"), find_preset("honest"))
        return cls(test, Fleet.of_log(test.history), seed)

    def hit_rates(self, broadcast: Broadcast) -> Floats:
        """HR@5 of every phone of the sample under this Q."""
        user_vectors = solve_user_vectors(self.fleet, broadcast)
        predictor = SeqMF(Training(broadcast.settings, broadcast.dim), self.seed)
        predictor.app_vectors, predictor.user_vectors = broadcast.app_vectors, user_vectors
        values, _ = score_predictions(self.test, predictor, ["HR@5"])
        return user_means(self.test, values, self.test.within)[:, 0]


def public_clip(settings: SimulationSettings, broadcast: Broadcast) -> float:
    """The median norm of F(u) over public synthetic phones, drawn with another seed."""
    population = synthetic.fleet_parameters(PUBLIC_PHONES, settings.apps, settings.days)
    ball = settings.build_mechanism(1.0).ball
    clips = public_clips(population, public_seed(settings.seed), broadcast)
    return clips["l2" if ball == "none" else ball]


OnRound = Callable[[dict[str, Any]], None]


def run(
    settings: SimulationSettings,
    world: World | None = None,
    folder: Path | None = None,
    on_round: OnRound = lambda record: None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Run the rounds; with a `folder`, save checkpoints there and resume from the last one.

    `on_round` is called with each round's record. Without a `world` the phones are simulated in
    this process, on this `device`.
    """
    check_device(device, settings.mechanism)
    start_vectors = starting_vectors(
        settings.apps, settings.dim, settings.training.scale, settings.seed
    )
    begin = Broadcast(0, start_vectors, settings.training.model)
    clip = settings.clip if settings.clip is not None else public_clip(settings, begin)
    mechanism = settings.build_mechanism(clip)
    epsilon = mechanism.guarantee.epsilon
    held_out = HeldOutPhones.of(settings.parameters, settings.seed, settings.phones)
    frozen = held_out.hit_rates(begin)
    world = world or LocalWorld(settings, device=device)
    optimiser = OPTIMISERS[settings.training.optimiser](settings.training.rate)
    described = plain_values(settings)
    saved = _Checkpoint(folder, described) if folder else None
    server = SeqMFLearner(start_vectors, settings.training.model, optimiser, mechanism)
    records: list[dict[str, Any]] = []
    if saved and saved.file.exists():
        server, records = saved.load(optimiser, mechanism)

    while server.broadcast.round < settings.rounds:
        began = time.perf_counter()
        broadcast = server.broadcast
        sums = world(broadcast, mechanism)
        estimate = estimate_sum(sums, mechanism)
        take_step(server, estimate)
        seconds = time.perf_counter() - began
        rates = held_out.hit_rates(server.broadcast)
        record = {
            "round": broadcast.round,
            "phones": sums.n_reports,
            "seconds": seconds,
            "phones_per_second": settings.phones / seconds,
            "loss": sums.loss / max(1, sums.n_reports),
            "cosine": None if estimate is None else cosine(estimate, sums.true_sum),
            **_measure(rates, frozen, settings.seed),
            "epsilon_spent": (  # each phone reports in every round
                server.broadcast.round * epsilon if math.isfinite(epsilon) else "no bound"
            ),
        }
        records.append(record)
        if saved:
            saved.save(server, records)
        on_round(record)
    return {
        "settings": described,
        "clip": clip,
        "guarantee": asdict(mechanism.guarantee),
        "frozen": _measure(frozen, frozen, settings.seed),
        "rounds": records,
        "sha256_of_app_vectors": hashlib.sha256(server.broadcast.app_vectors.tobytes()).hexdigest(),
        "seed": settings.seed,
        "versions": versions(),
    }


def _measure(rates: Floats, frozen: Floats, seed: int) -> dict[str, Any]:
    low, high = interval(bootstrap_means(np.stack([rates, rates - frozen], axis=1), seed))
    return {
        "hr5": float(rates.mean()),
        "hr5_ci95": [float(low[0]), float(high[0])],
        "hr5_gain": float((rates - frozen).mean()),
        "hr5_gain_ci95": [float(low[1]), float(high[1])],
    }


class _Checkpoint:
    """A folder whose `checkpoint.json` names the last complete round; it is written last."""

    def __init__(self, folder: Path, described: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / "checkpoint.json"
        self.described = {key: value for key, value in described.items() if key != "rounds"}

    def save(self, server: SeqMFLearner, records: list[dict[str, Any]]) -> None:
        number = server.broadcast.round
        write_checkpoint(self._server(number), server.state())
        about = {"round": number, "settings": self.described, "records": records}
        write_atomically(self.file, json.dumps(about).encode())
        self._server(number - 1).unlink(missing_ok=True)

    def load(
        self, optimiser: Optimiser, mechanism: Mechanism
    ) -> tuple[SeqMFLearner, list[dict[str, Any]]]:
        about = json.loads(self.file.read_text(encoding="utf-8"))
        if about["settings"] != self.described:
            changed = sorted(
                key for key in self.described if about["settings"].get(key) != self.described[key]
            )
            raise ValueError(
                f"{self.folder} has a checkpoint with other settings ({', '.join(changed)}): give "
                f"the same settings to continue, or another folder to start from the beginning."
            )
        state = read_checkpoint(self._server(about["round"]))
        return SeqMFLearner.restore(state, optimiser, mechanism), about["records"]

    def _server(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.server"
