"""A fleet of synthetic phones trains a common Q, round by round, on one machine or many.

Every draw is keyed by (seed, phone, round), so a run that was killed goes on from its last
checkpoint to the same Q, whatever the threads or shards.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nextapp.data import Split, synthetic
from nextapp.evaluation import Exam, exam, preset_named
from nextapp.evaluation.intervals import bootstrap_means, interval
from nextapp.evaluation.static import answered, user_means
from nextapp.fleet.clip import public_clips, public_seed
from nextapp.fleet.columns import Fleet
from nextapp.fleet.participation import Attendance, Participation, outcomes, tally
from nextapp.fleet.reporting import Sums, sum_reports
from nextapp.fleet.rounds import ReportSum, estimated_sum, play_round
from nextapp.fleet.sharding import Recipe, recipes
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.fleet.sum_law import cheapest_mode
from nextapp.learners import OPTIMISERS, Optimiser, SeqMFLearner, random_vectors, read_checkpoint
from nextapp.names import unknown
from nextapp.predictors import SeqMF, Training
from nextapp.privacy import FREQUENCY_MECHANISMS, MECHANISMS, Mechanism
from nextapp.randomness import KeyedBits
from nextapp.storage import write_atomically
from nextapp.studies.mechanisms import simulated_mechanism
from nextapp.studies.settings import training_values, versions
from nextapp.wire import Broadcast, Floats, pack, unpack

PUBLIC_PHONES = 400  # synthetic phones of another seed, from which the default clip is taken
REPORT_GRADIENTS = tuple(name for name in MECHANISMS if name not in FREQUENCY_MECHANISMS)


@dataclass(frozen=True)
class Settings:
    """A simulated federation.

    ``mode`` is ``exact``, ``law``, or ``auto``: law where the mechanism has one. ``clip`` None
    takes the median norm of the gradients of 400 public synthetic phones, drawn with another seed.
    ``sample`` phones outside the federation measure HR@5: they solve their user vectors from the
    first four fifths of their launches and predict the rest. ``zero_gradients`` is the control in
    which every phone reports a gradient of zero.
    """

    phones: int
    apps: int
    dim: int
    rounds: int
    mechanism: str
    seed: int
    epsilon: float | None = None
    clip: float | None = None
    mode: str = "auto"
    days: int = 3
    sample: int = 1_000
    shards: int = 1
    keep_shards: bool = True
    zero_gradients: bool = False
    training: Training = Training(dim=16)
    participation: Participation = Participation()

    def __post_init__(self) -> None:
        for name in ("phones", "apps", "dim", "sample", "shards", "days"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)!r}.")
        if self.rounds < 0:
            raise ValueError(f"rounds must be 0 or more, got {self.rounds!r}.")
        if self.mode not in ("auto", "exact", "law"):
            raise ValueError(f"mode must be auto, exact or law, got {self.mode!r}.")
        if self.participation.cohort > self.phones:
            raise ValueError(
                f"a cohort of {self.participation.cohort:,} is larger than the fleet of "
                f"{self.phones:,} phones."
            )
        if self.mechanism in FREQUENCY_MECHANISMS:
            raise ValueError(
                f"{self.mechanism} reports shares of transitions, not gradients, so there is no "
                f"step on the app vectors to simulate: `nextapp coldstart` says what such reports "
                f"are worth."
            )
        if self.mechanism not in MECHANISMS:
            raise ValueError(unknown("mechanism", self.mechanism, REPORT_GRADIENTS))
        if self.mechanism == "identity" and self.epsilon is not None:
            raise ValueError("the mechanism 'identity' has no epsilon: it protects nothing.")
        if self.mechanism != "identity" and self.epsilon is None:
            raise ValueError(f"the mechanism {self.mechanism!r} needs an epsilon.")
        object.__setattr__(self, "training", replace(self.training, dim=self.dim))
        recipes(self.phones, self.shards, self.parameters, self.seed)
        self.build_mechanism(1.0)

    @property
    def parameters(self) -> synthetic.Parameters:
        """Of the fleet and of the sample, whose phones come after it."""
        return synthetic.fleet_parameters(self.phones + self.sample, self.apps, self.days)

    @property
    def played_mode(self) -> str:
        if self.mode != "auto":
            return self.mode
        return cheapest_mode(self.mechanism)

    def build_mechanism(self, clip: float) -> Mechanism:
        return simulated_mechanism(self.mechanism, self.epsilon, self.apps, self.dim, clip)


class World(Protocol):
    """Where the phones are: in this process, in files, on other machines."""

    def play(
        self, broadcast: Broadcast, made: Mechanism, settings: Settings
    ) -> tuple[Sums, dict[str, int]]:
        """One round: the sum of the reports, and what became of the phones."""
        ...

    def attendance(self) -> list[Attendance]: ...


class LocalWorld:
    """Shards in this process; kept in memory, or made anew from their recipes each round."""

    def __init__(self, shards: Iterable[Recipe], n_world: int, *, keep: bool, empty: bool) -> None:
        self.shards = list(shards)
        self.n_world = n_world
        self.keep = keep
        self.empty = empty
        self._made: dict[int, Fleet] = {}
        self._attendance = [Attendance.fresh(shard.last - shard.first) for shard in self.shards]

    def attendance(self) -> list[Attendance]:
        return self._attendance

    def play(
        self, broadcast: Broadcast, made: Mechanism, settings: Settings
    ) -> tuple[Sums, dict[str, int]]:
        total: Sums | None = None
        counts: dict[str, int] = {}
        for number, attendance in enumerate(self._attendance):
            fleet = self._fleet(number)
            found = outcomes(
                settings.participation,
                len(fleet),
                fleet.first_phone,
                self.n_world,
                broadcast.round,
                settings.seed,
                attendance,
            )
            reporting = found == 0
            attendance.record(reporting, broadcast.round)
            sums = sum_reports(
                fleet,
                broadcast,
                made,
                settings.seed,
                np.zeros((len(fleet), broadcast.dim), np.float32),
                reporting,
                mode=settings.played_mode,
                dtype=np.float32,
            )
            total = sums if total is None else total + sums
            for reason, n in tally(found).items():
                counts[reason] = counts.get(reason, 0) + n
        if total is None:
            raise ValueError("a world has at least one shard.")
        return total, counts

    def _fleet(self, number: int) -> Fleet:
        if number in self._made:
            return self._made[number]
        recipe = self.shards[number]
        fleet = recipe.build()
        if self.empty:
            fleet = Fleet.without_launches(len(fleet), fleet.n_apps, fleet.first_phone)
        if self.keep:
            self._made[number] = fleet
        return fleet


@dataclass(frozen=True, eq=False)
class HeldOutPhones:
    """Phones outside the federation on which a Q is measured."""

    test: Exam
    fleet: Fleet
    seed: int

    @classmethod
    def of(cls, settings: Settings) -> HeldOutPhones:
        log = synthetic.make(settings.parameters, settings.seed, first=settings.phones)
        test = exam(log, Split.parse("fraction:0.8,0,0.2"), preset_named("honest"))
        return cls(test, Fleet.of_log(test.history), settings.seed)

    def hit_rates(self, broadcast: Broadcast) -> Floats:
        """HR@5 of every phone of the sample under this Q."""
        user_vectors = solve_user_vectors(self.fleet, broadcast)
        predictor = SeqMF(Training(broadcast.settings, broadcast.dim), self.seed)
        predictor.app_vectors, predictor.user_vectors = broadcast.app_vectors, user_vectors
        values = answered(self.test, predictor, ["HR@5"])
        return user_means(self.test, values, np.ones(len(values), bool))[:, 0]


def public_clip(settings: Settings, broadcast: Broadcast) -> float:
    """The median norm of F(u) over public synthetic phones, drawn with a seed of their own."""
    population = synthetic.fleet_parameters(PUBLIC_PHONES, settings.apps, settings.days)
    ball = settings.build_mechanism(1.0).ball
    clips = public_clips(population, public_seed(settings.seed), broadcast)
    return clips["l2" if ball == "none" else ball]


OnRound = Callable[[dict[str, Any]], None]


def run(
    settings: Settings,
    world: World | None = None,
    folder: Path | None = None,
    on_round: OnRound = lambda record: None,
) -> dict[str, Any]:
    """Play the rounds; with a `folder`, from its last checkpoint if it is of the same settings.

    `on_round` gets each round's record as it is done.
    """
    start_vectors = random_vectors(
        settings.apps,
        settings.dim,
        settings.training.scale,
        KeyedBits(settings.seed, purpose="Q").generator(),
    )
    begin = Broadcast(0, start_vectors, settings.training.model)
    clip = settings.clip if settings.clip is not None else public_clip(settings, begin)
    made = settings.build_mechanism(clip)
    held_out = HeldOutPhones.of(settings)
    frozen = held_out.hit_rates(begin)
    world = world or LocalWorld(
        recipes(settings.phones, settings.shards, settings.parameters, settings.seed),
        settings.phones,
        keep=settings.keep_shards,
        empty=settings.zero_gradients,
    )
    optimiser = OPTIMISERS[settings.training.optimiser](settings.training.rate)
    described = as_values(settings)
    saved = _Checkpoint(folder, described) if folder else None
    server = SeqMFLearner(start_vectors, settings.training.model, optimiser, made)
    records: list[dict[str, Any]] = []
    if saved and saved.there():
        server, records = saved.load(optimiser, made, world)

    def phones(broadcast: Broadcast) -> ReportSum:
        sums, outcomes = world.play(broadcast, made, settings)
        return ReportSum(estimated_sum(sums, made), sums, outcomes)

    while server.broadcast.round < settings.rounds:
        began = time.perf_counter()
        broadcast = server.broadcast
        told = play_round(server, phones)
        sums = told.sums
        seconds = time.perf_counter() - began
        rates = held_out.hit_rates(server.broadcast)
        record = {
            "round": broadcast.round,
            "phones": sums.n_reports,
            "seconds": seconds,
            "phones_per_second": settings.phones / seconds,
            "loss": sums.loss / max(1, sums.n_reports),
            "cosine": told.cosine,
            **_measured(rates, frozen, settings.seed),
            "bytes_up": sums.n_bytes_up,
            "bytes_down": told.outcomes["reports"] * len(broadcast.to_bytes()),
            "epsilon_spent": _spent(world, made),
            "outcomes": told.outcomes,
        }
        records.append(record)
        if saved:
            saved.save(server, records, world)
        on_round(record)
    return {
        "settings": described,
        "clip": clip,
        "guarantee": asdict(made.guarantee),
        "frozen": _measured(frozen, frozen, settings.seed),
        "rounds": records,
        "sha256_of_app_vectors": _digest(server.broadcast.app_vectors),
        "seed": settings.seed,
        "versions": versions(),
    }


def as_values(settings: Settings) -> dict[str, Any]:
    """The settings as plain values, for a result or a checkpoint."""
    values = asdict(settings)
    values["training"] = training_values(settings.training)
    values["participation"]["deadline_seconds"] = str(settings.participation.deadline_seconds)
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _measured(rates: Floats, frozen: Floats, seed: int) -> dict[str, Any]:
    low, high = interval(bootstrap_means(np.stack([rates, rates - frozen], axis=1), seed))
    return {
        "hr5": float(rates.mean()),
        "hr5_ci95": [float(low[0]), float(high[0])],
        "hr5_gain": float((rates - frozen).mean()),
        "hr5_gain_ci95": [float(low[1]), float(high[1])],
    }


def _spent(world: World, made: Mechanism) -> float | str:
    """The largest sum of ε any phone has spent."""
    most = max(int(part.n_reports.max(initial=0)) for part in world.attendance())
    epsilon = made.guarantee.epsilon
    return most * epsilon if math.isfinite(epsilon) else "no bound"


def _digest(vectors: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()


class _Checkpoint:
    """A folder whose `checkpoint.json` names the round that is whole; it is replaced last."""

    def __init__(self, folder: Path, described: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / "checkpoint.json"
        self.described = {key: value for key, value in described.items() if key != "rounds"}

    def there(self) -> bool:
        return self.file.exists()

    def save(self, server: SeqMFLearner, records: list[dict[str, Any]], world: World) -> None:
        number = server.broadcast.round
        server.save(self._server(number))
        columns = {
            f"{name}.{part}": getattr(attendance, name).astype(np.int64)
            for part, attendance in enumerate(world.attendance())
            for name in ("last_round", "n_reports")
        }
        write_atomically(self._attendance(number), pack(columns, {}))
        about = {"round": number, "settings": self.described, "records": records}
        write_atomically(self.file, json.dumps(about).encode())
        for old in (self._server(number - 1), self._attendance(number - 1)):
            old.unlink(missing_ok=True)

    def load(
        self, optimiser: Optimiser, made: Mechanism, world: World
    ) -> tuple[SeqMFLearner, list[dict[str, Any]]]:
        about = json.loads(self.file.read_text(encoding="utf-8"))
        if about["settings"] != self.described:
            changed = sorted(
                key for key in self.described if about["settings"].get(key) != self.described[key]
            )
            raise ValueError(
                f"{self.folder} holds a checkpoint of other settings ({', '.join(changed)}): give "
                f"the same ones to go on, or another folder to start anew."
            )
        columns, _ = unpack(self._attendance(about["round"]).read_bytes())
        for part, attendance in enumerate(world.attendance()):
            attendance.last_round[:] = columns[f"last_round.{part}"]
            attendance.n_reports[:] = columns[f"n_reports.{part}"]
        state = read_checkpoint(self._server(about["round"]))
        return SeqMFLearner.restore(state, optimiser, made), about["records"]

    def _server(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.server"

    def _attendance(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.attendance"
