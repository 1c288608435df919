"""How each kind of part is run, and worker processes that run them.

Each result is written atomically to its own file, with the fingerprint of its inputs. A killed run
can therefore be resumed with the parts that are missing.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nextapp.data.cutting import Cycling, collapse_repeats, description
from nextapp.data.log import LaunchLog
from nextapp.evaluation.dynamic_environment import Courses
from nextapp.predictors import CEILING
from nextapp.predictors.training import Training
from nextapp.progress import Progress, named
from nextapp.settings import check_keys, settings_from
from nextapp.storage import write_atomically
from nextapp.studies import dynamic, new_phones, phones_needed
from nextapp.studies.dynamic import DynamicExperiment, DynamicResult
from nextapp.studies.experiment import (
    Experiment,
    settings_on_data,
    training_from,
    training_values,
    versions,
)
from nextapp.studies.new_phones import NewPhoneStudy
from nextapp.studies.phones_needed import PhonesNeeded
from nextapp.studies.readings import Readings, run_readings
from nextapp.studies.reproduce.plan import Part
from nextapp.studies.reproduce.sources import has_clock
from nextapp.studies.reproduce.studies import (
    Cost,
    OneRound,
    run_cost,
    run_one_round,
    run_windows,
)
from nextapp.studies.tuning import RepeatedTuning, random_settings

Settings = TypeVar("Settings")

AT_THE_AUTHORS_SETTINGS = "seqmf-authors"
TUNED = "tuned on the other half of the users"
USUAL = "our default settings"
AUTHORS = "the authors' settings"
_OF_RUN = ("start", "pretraining", "update_rate")  # in a table of the authors
FEWEST_TO_TUNE = 5  # users by whose hit rates settings are chosen


def run_part(part: Part, scratch: Path, report: Progress) -> dict[str, Any]:
    """Run a part. If the data are too small for it, the result is a message under ``problem``.

    A tuning stores its trials in the folder `scratch`, so that a killed part can be resumed.
    """
    about = part.source.as_values()
    try:
        if part.kind in ON_FLEETS:
            return {**ON_FLEETS[part.kind](part, report), "data": about}
        report("reading", 0, 0)
        log = part.source.log(part.seed)
        about |= {"n_users": log.n_users, "n_apps": log.n_apps, "n_launches": len(log)}
        about |= {"notes": list(log.notes), "clock": has_clock(log)}
        if part.kind == "static":
            return {**static(part, log, scratch, report), "data": about}
        return {**ON_LOGS[part.kind](part, log, report), "data": about}
    except ValueError as error:
        return {"problem": str(error), "data": about}


def _models(part: Part) -> list[str]:
    """The models of the settings and, on synthetic data, the ceiling."""
    models: list[str] = list(part.settings["models"])
    return [*models, CEILING] if models and not part.source.real else models


# --- parts on logs ----------------------------------------------------------------------------


def static(part: Part, log: LaunchLog, scratch: Path, report: Progress) -> dict[str, Any]:
    """A table: for each preset, tune on the validation part, then measure every model.

    ``variants`` has the same for other numbers of trials and for each tuning alone.
    """
    settings = part.settings
    known = ["split", "presets", "models", "tune", "tunings", "budgets", "authors"]
    check_keys(settings, known, f"{part.name}.toml: ")
    n_tunings, budgets = settings.get("tunings", 1), settings.get("budgets", ())
    authors = training_from(settings["authors"], "authors", Training())
    presets: dict[str, Any] = {}
    variants: dict[str, Any] = {}
    for preset in settings["presets"]:
        values = {key: settings[key] for key in ("split", "tune")}
        values |= {"data": part.source.where, "preset": preset, "models": _models(part)}
        experiment = settings_on_data(Experiment, {**values, "seed": part.seed})
        show = named(preset, report)
        repeated = RepeatedTuning(log, experiment, n_tunings, budgets, show, scratch)
        found = repeated.run([(AT_THE_AUTHORS_SETTINGS, authors)])
        found["settings"]["data"] = part.source.as_values()["where"]
        for name, other in found.pop("variants").items():
            variants.setdefault(name, {"presets": {}})["presets"][preset] = other
        presets[preset] = {**found, "authors": training_values(authors)}
    return {"presets": presets, "variants": variants}


def activity(part: Part, log: LaunchLog, report: Progress) -> dict[str, Any]:
    """Active users and launches by day, and by cycle of almost equal activity."""
    check_keys(part.settings, ["cycles"], f"{part.name}.toml: ")
    report("counting", 0, 0)
    found = description(log)
    cycles = Cycling.parse(part.settings["cycles"]).cut(collapse_repeats(log))
    described = ("from", "to", "n_days", "n_sessions", "repeat_share")
    return {
        "by_day": {"n_users": found["users_by_day"], "n_launches": found["launches_by_day"]},
        "by_cycle": {
            "n_users": [cycle.n_users for cycle in cycles.parts],
            "n_launches": [cycle.n_launches for cycle in cycles.parts],
            "n_sessions": [cycle.n_sessions for cycle in cycles.parts],
        },
        "cycles": cycles.how,
        "description": {key: found[key] for key in described},
    }


def in_cycles(part: Part, log: LaunchLog, report: Progress) -> dict[str, Any]:
    """A figure of the dynamic environment: regimes, or privacy mechanisms.

    ``tune`` is the number of settings of SeqMF that are tried, see `_tune_by_halves`. The table
    ``authors`` has the hyper-parameters, initial values and optimiser of the paper's authors.
    ``variants`` has the differences with other hyper-parameters, and the same rivals.
    """
    values = {**part.settings, "data": part.source.where, "seed": part.seed}
    trials, authors = values.pop("tune", 0), dict(values.pop("authors", {}))
    if "models" in values:
        values["models"] = _models(part)
    usual = settings_on_data(DynamicExperiment, values)
    found = {USUAL: dynamic.run(usual, log, report)}
    settings: dict[str, Any] = {USUAL: training_values(usual.seqmf)}
    alone = replace(usual, models=())
    if trials:
        report_tuning = named(TUNED, report)
        found[TUNED], settings[TUNED] = _tune_by_halves(alone, log, trials, report_tuning)
    if authors:
        # Their hyper-parameters, start and learning rate (PAPER.md, R16, R20, R21).
        of_run = {key: authors.pop(key) for key in _OF_RUN if key in authors}
        seqmf = training_from(authors, "authors", Training())
        as_authors = replace(alone, seqmf=seqmf, **of_run)
        found[AUTHORS] = dynamic.run(as_authors, log, named(AUTHORS, report))
        settings[AUTHORS] = training_values(as_authors.seqmf)
    rivals = {name: found[USUAL].courses.by_user[name] for name in usual.models}
    main = TUNED if trials else USUAL
    courses = {
        name: replace(each.courses, by_user={**each.courses.by_user, **rivals})
        for name, each in found.items()
    }
    result = replace(found[USUAL], courses=courses[main]).as_json()
    result["settings"]["data"] = part.source.as_values()["where"]
    variants = {
        name: _variant(courses[name], result["n_users"]) for name in settings if name != main
    }
    return {**result, "hyper_parameters": main, "seqmf": settings, "variants": variants}


def _tune_by_halves(
    experiment: DynamicExperiment, log: LaunchLog, trials: int, report: Progress
) -> tuple[DynamicResult, dict[str, Any]]:
    """The experiment with each half of the users at the settings chosen on the other half.

    The default settings and random ones are run in the regime Full, cycle by cycle as the figure
    is. The best one replaces the default only if its lead over it, on the users it is chosen
    with, has a 95 % interval above 0.
    """
    alone = replace(experiment, regimes=("full",), seeds=1)
    tried = [alone.seqmf, *random_settings(trials, alone.seed, alone.seqmf)]
    full = {}
    for number, training in enumerate(tried):
        report("settings tried", number, len(tried))
        full[str(number)] = dynamic.run(replace(alone, seqmf=training), log).courses.by_user["full"]
    second = dynamic.second_half(log.n_users, experiment.seed)
    results: list[DynamicResult] = []
    chosen: dict[str, Any] = {}
    for name, judged in (("first half", ~second), ("second half", second)):
        others = {number: values[:, :, ~judged] for number, values in full.items()}
        best, gain = best_of(Courses(others, experiment.metrics, experiment.seed))
        training = tried[int(best)]
        chosen[name] = {**training_values(training), "less default when chosen": gain}
        if results and results[0].experiment.seqmf == training:
            results.append(results[0])
        else:
            results.append(dynamic.run(replace(experiment, seqmf=training), log, report))
    by_user = {
        name: np.where(second[:, None], results[1].courses.by_user[name], values)
        for name, values in results[0].courses.by_user.items()
    }
    joined = replace(results[0].courses, by_user=by_user)
    return replace(results[0], courses=joined), chosen


def best_of(courses: Courses) -> tuple[str, float]:
    """The series with the highest HR@5 and its lead over the first.

    It is the first itself if no other is better beyond doubt, or if there are too few users.
    """
    first, *others = courses.by_user
    if courses.by_user[first].shape[2] < FEWEST_TO_TUNE:
        return first, 0.0
    leads = {name: courses.overall(name, "HR@5", first).point() for name in others}
    best = max(leads, key=lambda name: leads[name]["mean"])
    return (best, leads[best]["mean"]) if leads[best]["low"] > 0 else (first, 0.0)


def _variant(courses: Courses, n_users: int) -> dict[str, Any]:
    """What claims and tables read of a run with other hyper-parameters."""
    return {
        "differences": courses.differences(),
        "series": {
            name: {"over_cycles": {"HR@5": courses.overall(name, "HR@5").point()}}
            for name in courses.by_user
        },
        "n_users": n_users,
    }


def windows(part: Part, log: LaunchLog, report: Progress) -> dict[str, Any]:
    """The regime Full with all history and with each history window."""
    values = {**part.settings, "data": part.source.where, "seed": part.seed}
    days = tuple(values.pop("windows"))
    return run_windows(settings_on_data(DynamicExperiment, values), days, log, report)


# --- parts on synthetic phones ----------------------------------------------------------------


def _settings(kind: type[Settings], part: Part, **more: Any) -> Settings:
    return settings_from(kind, {**part.settings, "seed": part.seed, **more})


def crowd(part: Part, report: Progress) -> dict[str, Any]:
    """New phones from their first launch: users held out of a log, or further synthetic phones."""
    settings = _settings(NewPhoneStudy, part, data=part.source.where)
    log = part.source.log(part.seed) if part.source.real else None
    result = new_phones.run(settings, log, report)
    where = part.source.as_values()["where"]
    about = {**result.pop("data"), "source": where}
    return {**result, "settings": {**result["settings"], "data": where}, "about": about}


ON_LOGS: Mapping[str, Callable[[Part, LaunchLog, Progress], dict[str, Any]]] = {
    "activity": activity,
    "dynamic": in_cycles,
    "windows": windows,
    "readings": lambda part, log, report: run_readings(_settings(Readings, part), log, report),
}
ON_FLEETS: Mapping[str, Callable[[Part, Progress], dict[str, Any]]] = {
    "phones": lambda part, report: phones_needed.run(
        _settings(PhonesNeeded, part), report
    ).as_json(),
    "new-phones": crowd,
    "cost": lambda part, report: run_cost(_settings(Cost, part), report),
    "round": lambda part, _: run_one_round(_settings(OneRound, part)),
}


# --- worker processes -------------------------------------------------------------------------

PartProgress = Callable[[str, str, int, int], None]
"""Called with a part, what it is doing, and how much of that is done, of how much."""
_POLL_SECONDS = 0.5
_messages: SimpleQueue[tuple[str, str, int, int]]  # of a worker process, to the main process


def result_file(folder: Path, name: str) -> Path:
    return folder / "parts" / f"{name}.json"


def finished_record(folder: Path, part: Part) -> dict[str, Any] | None:
    """The record of a part that was run with exactly these settings, data and code, or None."""
    try:
        record = json.loads(result_file(folder, part.name).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return record if record.get("fingerprint") == part.fingerprint else None


def run_missing(
    parts: Sequence[Part],
    folder: Path,
    jobs: int,
    report: PartProgress = lambda part, what, done, total: None,
) -> dict[str, dict[str, Any]]:
    """Run the parts that are not finished; return the records of all."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    missing = [part for part in parts if finished_record(folder, part) is None]
    for part in parts:
        if part not in missing:
            report(part.name, "finished before", 1, 1)
    if missing:
        missing.sort(key=lambda part: -part.seconds)  # longest first balances the workers
        _run(missing, folder, min(jobs, len(missing)), report)
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    records = {part.name: finished_record(folder, part) for part in parts}
    return {name: record for name, record in records.items() if record is not None}


def _run(parts: Sequence[Part], folder: Path, jobs: int, report: PartProgress) -> None:
    context = multiprocessing.get_context("spawn")
    messages: SimpleQueue[tuple[str, str, int, int]] = context.SimpleQueue()
    pool = ProcessPoolExecutor(jobs, context, _begin_worker, (messages, os.getpid()))
    try:
        with deaf_to_ctrl_c():  # starts the processes
            running = {pool.submit(_run_and_record, part, folder): part.name for part in parts}
        while running:
            finished, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            while not messages.empty():
                report(*messages.get())
            for future in finished:
                _raise_with_name(running[future], future)
                report(running.pop(future), "done", 1, 1)
    finally:
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown()


def _raise_with_name(name: str, future: Future[None]) -> None:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        raise ChildProcessError(
            "a process that ran a part was killed. Finished parts are kept: run the same command "
            "again to run the others."
        )
    if isinstance(error, ValueError | OSError):
        raise ValueError(f"{name}: {error}")
    if error is not None:
        raise RuntimeError(f"{name} failed:\n{error.__cause__ or error}")


# --- in a worker process ----------------------------------------------------------------------


def _begin_worker(messages: SimpleQueue[tuple[str, str, int, int]], parent: int) -> None:
    """Keep the queue of messages, and end this process soon after its parent has ended."""
    global _messages  # noqa: PLW0603 - a pool hands queues to its processes only when they begin
    _messages = messages

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_and_record(part: Part, folder: Path) -> None:
    last = [0.0]

    def report(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] > 0.1 or done == 0:
            last[0] = now
            _messages.put((part.name, what, done, total))

    report("starting", 0, 0)
    scratch = folder / "scratch" / part.fingerprint[:16]
    scratch.mkdir(parents=True, exist_ok=True)
    start, worked = time.perf_counter(), time.process_time()
    result = run_part(part, scratch, report)
    record = record_of(part, result, time.perf_counter() - start, time.process_time() - worked)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_atomically(result_file(folder, part.name), text.encode())
    shutil.rmtree(scratch)


def record_of(
    part: Part, result: Mapping[str, Any], seconds: float, processor_seconds: float = 0.0
) -> dict[str, Any]:
    own = ("base", "kind", "title", "about", "fingerprint", "quick", "seed", "settings")
    return {
        "part": part.name,
        **{name: getattr(part, name) for name in own},
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "versions": versions(),
        "result": finite(result),
    }


def finite(value: Any) -> Any:
    """The value for JSON: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- Ctrl-C -----------------------------------------------------------------------------------


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started here do not get Ctrl-C, which a terminal sends to all of them.

    The process that starts them gets it at the end of the block: a start that was interrupted
    would leave a child that finds half of what it was sent.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "pthread_sigmask") or not on_main_thread:  # Windows has no masks
        yield
        return
    pressed = threading.Event()
    # Children inherit the mask. It does not keep another thread from taking the signal, upon which
    # Python would interrupt this one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if pressed.is_set():
        raise KeyboardInterrupt
