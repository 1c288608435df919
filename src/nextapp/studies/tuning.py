"""Tuning of MF and SeqMF by their HR@5 on launches before the test part.

A study is a number of slots, one trial each. Slot s samples its settings with a generator keyed by
(seed, s), given the results of the slots before it. So a single process always gives the same
result, also after it was killed and resumed. With several processes each slot still has its own
random numbers, but which results it can see depends on timing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import pickle
import sqlite3
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from nextapp.data import LaunchLog, Split
from nextapp.data.cutting import launches_in_window
from nextapp.evaluation import METRICS, Exam, exam, find_preset, mark
from nextapp.names import unknown
from nextapp.predictors import Training, without_sequence
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.studies.processes import deaf_to_ctrl_c, end_with, received
from nextapp.studies.rounds import LabSeqMF, Rounds
from nextapp.studies.settings import Experiment, training_from, training_values
from nextapp.wire import WireError

HELD_OUT = 1 / 8
LOOKS = (2, 5, 10, 20)  # rounds after which a trial is measured, and pruned if below the median
STARTUP = 8  # first trials, which are never pruned, so that there is a median to compare with
TUNED = ("mf", "seqmf")
_PATIENCE = 120.0  # seconds to wait for another process to release the file
_OBJECTIVE = METRICS.index("HR@5")
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


def tuning_exam(log: LaunchLog, experiment: Experiment) -> Exam:
    """An exam that uses only the launches before the test part.

    It tests on the validation part of the split, or without one on the last eighth of each user's
    training launches.
    """
    preset = find_preset(experiment.preset)
    split = Split.parse(experiment.split)
    parts = split.cut(preset.collapse_repeats(log))
    if split.validation == 0:
        return exam(parts.history, Split("fraction", 1 - HELD_OUT, 0, HELD_OUT), preset)
    if split.by == "days":
        return exam(parts.history, Split("days", split.train, 0, split.validation), preset)
    share = split.train / (split.train + split.validation)
    return exam(parts.history, Split("fraction", share, 0, 1 - share), preset)


def wide(trial: optuna.Trial, model: str) -> dict[str, Any]:
    """The authors' grid, extended to wider ranges and more settings."""
    optimiser = trial.suggest_categorical("optimiser", ["sgd", "adam"])
    bounds = (1e-4, 1e-1) if optimiser == "adam" else (1e-4, 1.0)
    values = {
        "dim": trial.suggest_categorical("dim", [16, 32, 64]),
        "scale": trial.suggest_float("scale", 1e-3, 1.0, log=True),
        "optimiser": optimiser,
        "rate": trial.suggest_float(f"rate of {optimiser}", *bounds, log=True),
        "rounds": trial.suggest_categorical("rounds", [5, 20, 40]),
        "lam": trial.suggest_float("lam", 1e-3, 10.0, log=True),
        "alpha": trial.suggest_categorical("alpha", [0.0, 0.001, 0.01, 0.1, 1.0]),
        "gamma": trial.suggest_categorical("gamma", [0.1, 0.5, 1.0]),
    }
    if model == "seqmf":
        values["reading"] = trial.suggest_categorical("reading", ["example", "equation", "authors"])
        values["inference"] = trial.suggest_categorical(
            "inference", ["sum", "mean", "last", "window:3", "window:10"]
        )
    return values


PAPER_GRID: Mapping[str, tuple[Any, ...]] = {
    "dim": (24, 32, 64, 80),
    "lam": (0.01, 0.1, 1.0),
    "alpha": (0.001, 0.01, 0.1, 0.5, 1.0),
    "gamma": (0.01, 0.1, 0.5, 1.0),
    "rate": (1e-7, 5e-7, 1e-6, 5e-6, 1e-5, 5e-5, 1e-4),
    "optimiser": ("adam", "sgd"),
}
# Fixed settings of the authors: Q from N(0, 0.001²); 4 times: solve user vectors, 4 steps on Q.
AS_THE_AUTHORS = {"scale": 0.001, "rounds": 16, "solve_every": 4}


def paper(trial: optuna.Trial, model: str) -> dict[str, Any]:
    """A point of the authors' grid."""
    values = {name: trial.suggest_categorical(name, list(PAPER_GRID[name])) for name in PAPER_GRID}
    return values | AS_THE_AUTHORS | ({"reading": "authors"} if model == "seqmf" else {})


SPACES: Mapping[str, Callable[[optuna.Trial, str], dict[str, Any]]] = {
    "wide": wide,
    "paper": paper,
}
GRID_SIZE = int(np.prod([len(values) for values in PAPER_GRID.values()]))


@dataclass(frozen=True)
class Tuning:
    """``trials`` of the search space ``grid`` for each model, in ``jobs`` processes.

    Trials of the paper's grid are sampled without repeats; 0 means all of its points.
    """

    trials: int = 100
    grid: str = "wide"
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.grid not in SPACES:
            raise ValueError(unknown("grid", self.grid, SPACES))
        if self.grid == "paper" and not 0 <= self.trials <= GRID_SIZE:
            raise ValueError(
                f"the paper's grid has {GRID_SIZE:,} points: give 1 to {GRID_SIZE:,} trials, or 0 "
                f"for all, got {self.trials!r}."
            )
        if self.grid != "paper" and self.trials < 1:
            raise ValueError(f"trials must be 1 or more, got {self.trials!r}.")
        if self.jobs < 1:
            raise ValueError(f"jobs must be 1 or more, got {self.jobs!r}.")

    @property
    def n_slots(self) -> int:
        return self.trials or GRID_SIZE


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best training found, its HR@5 on the tuning part, and all trials, best first."""

    training: Training
    hit_rate: float
    trials: list[dict[str, Any]]

    def within(self, model: str, trials: int) -> Chosen:
        """What a tuning with only the first `trials` trials would have chosen."""
        return _best_of([row for row in self.trials if row["slot"] < trials], model)


def tune(
    log: LaunchLog,
    experiment: Experiment,
    model: str,
    progress: Progress = silent,
    *,
    tuning: Tuning | None = None,
    storage: Path | None = None,
) -> Chosen:
    """The best trial for ``model``, 'mf' or 'seqmf'; by default of ``experiment.tune`` trials.

    With a `storage` (an SQLite file) every finished trial is saved, and a killed study can be
    resumed. A trial whose training diverges gets HR@5 = 0.
    """
    tuning = tuning or Tuning(experiment.tune)
    job = _Job(log, experiment, model, tuning, str(storage) if storage else "")
    if tuning.jobs > 1 and not job.file:
        raise ValueError("trials in several processes need a storage file: give a storage.")
    with _quiet():
        study = job.study(create=True)
        _give_up_what_was_running(study)
        missing = sorted(set(range(tuning.n_slots)) - set(_slots(study)))
        work = _in_turn if tuning.jobs == 1 else _side_by_side
        announce = _Announcer(study, model, tuning.n_slots, progress)
        announce()
        for _ in work(job, missing):
            announce()
        return _best_trial(study, model)


@dataclass(frozen=True)
class _Announcer:
    study: optuna.Study
    model: str
    total: int
    progress: Progress

    def __call__(self) -> None:
        done = _slots(self.study)
        values = [trial.value or 0.0 for trial in done.values() if _complete(trial)]
        best = max(values, default=0.0)
        self.progress(f"tuning {self.model} (best HR@5 {best:.3f})", len(done), self.total)


class _Job:
    """What a process needs to run the slots of a study."""

    def __init__(
        self, log: LaunchLog, experiment: Experiment, model: str, tuning: Tuning, file: str
    ) -> None:
        if model not in TUNED:
            raise ValueError(unknown("model", model, TUNED))
        self.log, self.experiment, self.model = log, experiment, model
        self.tuning, self.file = tuning, file
        self._exam: Exam | None = None
        self._study: optuna.Study | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_exam": None, "_study": None}

    def study(self, *, create: bool = False) -> optuna.Study:
        if self._study is None:
            self._study = self._create_study() if create else self._load_study()
        return self._study

    def _create_study(self) -> optuna.Study:
        study = optuna.create_study(
            storage=_storage(self.file) if self.file else None,
            study_name=self.model,
            direction="maximize",
            pruner=_pruner(),
            load_if_exists=True,
        )
        mine, found = self._description(), study.user_attrs.get("of")
        if found is None:
            study.set_user_attr("of", mine)
        elif found != mine:
            names = [name for name in mine if found.get(name) != mine[name]]
            raise ValueError(
                f"{self.file} has trials with other {', '.join(names)}: use the same to go on, or "
                f"give another storage file."
            )
        return study

    def _load_study(self) -> optuna.Study:
        return optuna.load_study(
            storage=_storage(self.file), study_name=self.model, pruner=_pruner()
        )

    def _description(self) -> dict[str, Any]:
        """What two studies must share to be the same; the number of trials may grow."""
        log = hashlib.sha256()
        for column in (self.log.user, self.log.app, self.log.time):
            log.update(np.ascontiguousarray(column).tobytes())
        start = training_values(getattr(self.experiment, self.model))
        return {
            "launches": log.hexdigest(),
            "split": self.experiment.split,
            "preset": self.experiment.preset,
            "seed": str(self.experiment.seed),
            "grid": self.tuning.grid,
            "settings": json.dumps(start, sort_keys=True),
            **({"window": repr(self.experiment.window)} if self.experiment.window else {}),
        }

    def play(self, slot: int) -> None:
        """Sample the settings of a slot, train, prune if poor, and record the result."""
        study = self.study()
        seed = int(KeyedBits(self.experiment.seed, slot, purpose="tuning").words(1)[0] >> 32)
        study.sampler = optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            group=True,
            n_startup_trials=STARTUP,
            constant_liar=self.tuning.jobs > 1,
        )
        start: Training = getattr(self.experiment, self.model)
        if self.tuning.grid == "paper":
            study.sampler = _fixed_value(self._grid_point(slot), study.sampler)
        elif slot == 0 and start == getattr(Experiment(self.experiment.data), self.model):
            study.sampler = _fixed_value(_as_parameters(start), study.sampler)  # the defaults first
        trial = study.ask()
        trial.set_user_attr("slot", slot)
        values = SPACES[self.tuning.grid](trial, self.model)
        training = training_from(values, self.model, start)
        if self.model == "mf":
            training = without_sequence(training)
        trial.set_user_attr("training", training_values(training))
        try:
            with np.errstate(all="ignore"):
                value = self._hit_rate(training, trial)
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except (FloatingPointError, WireError, np.linalg.LinAlgError):
            study.tell(trial, 0.0)
        else:
            study.tell(trial, value)

    def _grid_point(self, slot: int) -> dict[str, Any]:
        """The slot's point of the paper's grid, which is shuffled with the seed."""
        shuffled = KeyedBits(self.experiment.seed, purpose="grid").generator()
        number = shuffled.permutation(GRID_SIZE)[slot]
        points = itertools.product(*PAPER_GRID.values())
        point = next(itertools.islice(points, int(number), None))
        return dict(zip(PAPER_GRID, point, strict=True))

    def _hit_rate(self, training: Training, trial: optuna.Trial) -> float:
        if self._exam is None:
            self._exam = tuning_exam(self.log, self.experiment)
        known = launches_in_window(self._exam.history, self.experiment.window)
        rounds = Rounds(known, training, self.experiment.seed)
        predictor = LabSeqMF(training, self.experiment.seed, self.model)
        for done in range(1, training.rounds + 1):
            rounds.play()
            if done in LOOKS and done < training.rounds:
                trial.report(self._mark(predictor, rounds), done)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return self._mark(predictor, rounds)

    def _mark(self, predictor: LabSeqMF, rounds: Rounds) -> float:
        if self._exam is None:
            raise RuntimeError("no exam has been made yet.")
        predictor.take(rounds)
        by_user, _ = mark(self._exam, predictor)
        return float(by_user[:, _OBJECTIVE].mean())


def _as_parameters(training: Training) -> dict[str, Any]:
    """These settings as parameters of `wide`."""
    values = training_values(training)
    values[f"rate of {training.optimiser}"] = values.pop("rate")
    return values


def _fixed_value(values: dict[str, Any], otherwise: Any) -> Any:
    return optuna.samplers.PartialFixedSampler(values, otherwise)


def _pruner() -> optuna.pruners.BasePruner:
    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_min_trials=STARTUP)


def _storage(file: str) -> optuna.storages.BaseStorage:
    """Trials in an SQLite file; its write-ahead log survives the death of any process."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(file, timeout=_PATIENCE)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    return optuna.storages.RDBStorage("sqlite:///", engine_kwargs={"creator": connect})


def _slots(study: optuna.Study) -> dict[int, FrozenTrial]:
    """The finished trial of every slot that has one."""
    return {
        trial.user_attrs["slot"]: trial
        for trial in study.get_trials(deepcopy=False, states=_DONE)
        if "slot" in trial.user_attrs
    }


def _complete(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE


def _give_up_what_was_running(study: optuna.Study) -> None:
    """Mark the running trials of a killed process as failed, so that their slots run again."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)


def _in_turn(job: _Job, missing: list[int]) -> Iterator[None]:
    for slot in missing:
        job.play(slot)
        yield


def _work(connection: Connection, file: str, parent: int) -> None:
    """What a process does: play the slots it is handed, until there is none left."""
    end_with(parent)
    job: _Job = pickle.loads(Path(file).read_bytes())
    with _quiet():
        for slot in received(connection):
            try:
                job.play(slot)
            except Exception:  # whatever it is, the command must say it
                connection.send(traceback.format_exc())
            else:
                connection.send(None)


def _hear_of_slot(connection: Connection) -> None:
    try:
        failed = connection.recv()
    except EOFError:
        failed = "the process was killed; the same command goes on from there"
    if failed is not None:
        raise RuntimeError(f"a trial failed: {failed}")


def _side_by_side(job: _Job, missing: list[int]) -> Iterator[None]:
    """Slots handed out one by one to processes, so that no more are played than asked for.

    The log goes to the processes by a file: they start at once, and can be ended at once.
    """
    context = multiprocessing.get_context("spawn")
    todo = list(missing)
    busy: list[Connection] = []
    processes: list[BaseProcess] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job"
        file.write_bytes(pickle.dumps(job))
        try:
            for _ in range(min(job.tuning.jobs, len(todo))):
                here, there = context.Pipe()
                with deaf_to_ctrl_c():
                    process = context.Process(target=_work, args=(there, str(file), os.getpid()))
                    process.start()
                    processes.append(process)
                there.close()
                here.send(todo.pop(0))
                busy.append(here)
            while busy:
                answered = wait(busy)
                for ready in [here for here in busy if here in answered]:
                    _hear_of_slot(ready)
                    yield
                    if todo:
                        ready.send(todo.pop(0))
                    else:
                        busy.remove(ready)
        finally:
            for started in processes:
                started.terminate()
                started.join()


def _best_trial(study: optuna.Study, model: str) -> Chosen:
    done = [trial for _, trial in sorted(_slots(study).items())]
    rows = [
        {
            "slot": trial.user_attrs["slot"],
            "HR@5": trial.value if _complete(trial) else None,
            "given_up_after": None if _complete(trial) else max(trial.intermediate_values),
            **trial.user_attrs["training"],
        }
        for trial in done
    ]
    rows.sort(key=lambda row: (-(row["HR@5"] if row["HR@5"] is not None else -1.0), row["slot"]))
    return _best_of(rows, model)


def _best_of(rows: list[dict[str, Any]], model: str) -> Chosen:
    """The first of these rows, which are sorted from best to worst."""
    best = rows[0]
    values = {key: best[key] for key in training_values(Training())}
    training = training_from(values, model, Training())
    return Chosen(training, float(best["HR@5"]), rows)


@contextmanager
def _quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def choose_settings(
    log: LaunchLog,
    experiment: Experiment,
    progress: Progress = silent,
    *,
    tuning: Tuning | None = None,
    storage: Path | None = None,
    models: tuple[str, ...] = TUNED,
) -> tuple[Experiment, dict[str, Chosen]]:
    """The experiment with the settings chosen for each of the models, and the tunings."""
    found = {
        model: tune(log, experiment, model, progress, tuning=tuning, storage=storage)
        for model in models
    }
    settings: dict[str, Any] = {model: chosen.training for model, chosen in found.items()}
    return replace(experiment, **settings), found
