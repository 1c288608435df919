"""How each kind of part is played: settings and a log in, plain values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nextapp.data import LaunchLog, Split, collapsed
from nextapp.data.cycles import Cycling
from nextapp.data.describing import description
from nextapp.evaluation import evaluate, exam, preset_named
from nextapp.names import unknown
from nextapp.predictors import Training
from nextapp.progress import Progress
from nextapp.studies import coldstart as crowd_study
from nextapp.studies import dynamic, phones_needed
from nextapp.studies.coldstart import ColdStart
from nextapp.studies.phones_needed import PhonesNeeded
from nextapp.studies.reproduce.plan import Part
from nextapp.studies.rounds import LabSeqMF
from nextapp.studies.settings import (
    CEILING,
    experiment_from,
    training_from,
    training_values,
)
from nextapp.studies.static import StaticResult
from nextapp.studies.tuning import TUNED, chosen_settings

AT_THE_AUTHORS_SETTINGS = "seqmf-authors"
_OURS = ("seqmf", "nextapp")


def played(part: Part, scratch: Path, report: Progress) -> dict[str, Any]:
    """The result of a part; data too small for it give a ``problem`` in words instead.

    A tuning keeps its trials under `scratch`, so that a part killed in the middle goes on.
    """
    if part.kind in ON_FLEETS:
        try:
            found = ON_FLEETS[part.kind](part, report)
        except ValueError as error:
            found = {"problem": str(error)}
        return {**found, "data": part.source.as_values()}
    report("reading", 0, 0)
    log = part.source.log(part.seed)
    about = {
        **part.source.as_values(),
        "n_users": log.n_users,
        "n_apps": log.n_apps,
        "n_launches": len(log),
        "notes": list(log.notes),
    }
    try:
        result = ON_LOGS[part.kind](part, log, scratch, report)
    except ValueError as error:
        return {"problem": str(error), "data": about}
    return {**result, "data": about}


def static(part: Part, log: LaunchLog, scratch: Path, report: Progress) -> dict[str, Any]:
    """A table: for each preset, tune on the validation part, then measure every model."""
    _check(part, {"split", "presets", "models", "tune", "authors"})
    presets = {
        preset: _static(part, preset, log, scratch, report) for preset in part.settings["presets"]
    }
    return {"presets": presets}


def _static(
    part: Part, preset: str, log: LaunchLog, scratch: Path, report: Progress
) -> dict[str, Any]:
    settings = part.settings
    experiment = experiment_from(
        {
            "data": part.source.where,
            "split": settings["split"],
            "preset": preset,
            "models": _models(part),
            "seed": part.seed,
            "tune": settings["tune"],
        }
    )
    ready = exam(log, Split.parse(experiment.split), preset_named(preset))

    def heard(what: str, done: int, total: int) -> None:
        report(f"{preset}: {what}", done, total)

    storage = scratch / f"{part.name}-{preset}.db"
    experiment, chosen = chosen_settings(log, experiment, heard, storage=storage)
    authors = training_from(settings["authors"], "authors", Training())
    predictors = [
        *experiment.predictors(),
        LabSeqMF(authors, part.seed, AT_THE_AUTHORS_SETTINGS),
    ]
    evaluation = evaluate(
        ready, predictors, part.seed, lambda name: heard(f"measuring {name}", 0, 0)
    )
    result = StaticResult(experiment, log, evaluation).as_json()
    names = list(result["models"])
    for figures in result["models"].values():  # how long it took differs from run to run
        del figures["fit_seconds"], figures["predict_seconds"]
    del result["data"], result["versions"], result["seqmf_minus"]
    result["settings"]["data"] = part.source.as_values()["where"]
    return {
        **result,
        "differences": {
            first: {
                second: evaluation.difference(first, second) for second in names if second != first
            }
            for first in _OURS
            if first in names
        },
        "tuning": {
            model: {"HR@5": chosen[model].hit_rate, "trials": len(chosen[model].trials)}
            for model in TUNED
        },
        "authors": training_values(authors),
    }


def activity(part: Part, log: LaunchLog, scratch: Path, report: Progress) -> dict[str, Any]:
    """Who is active when: by day, and by cycle of almost equal activity."""
    del scratch
    _check(part, {"cycles"})
    report("counting", 0, 0)
    found = description(log)
    cycles = Cycling.parse(part.settings["cycles"]).cut(collapsed(log))
    return {
        "by_day": {"n_users": found["users_by_day"], "n_launches": found["launches_by_day"]},
        "by_cycle": {
            "n_users": [cycle.n_users for cycle in cycles.parts],
            "n_launches": [cycle.n_launches for cycle in cycles.parts],
            "n_sessions": [cycle.n_sessions for cycle in cycles.parts],
        },
        "cycles": cycles.how,
        "description": {
            key: found[key]
            for key in ("from", "to", "n_days", "n_sessions", "sessions_per_user", "repeat_share")
        },
    }


def in_cycles(part: Part, log: LaunchLog, scratch: Path, report: Progress) -> dict[str, Any]:
    """A figure of the dynamic environment: regimes, or privacy mechanisms."""
    del scratch
    values = {**part.settings, "data": part.source.where, "seed": part.seed}
    if "models" in values:
        values["models"] = _models(part)
    result = dynamic.run(dynamic.experiment_from(values), log, report).as_json()
    result["settings"]["data"] = part.source.as_values()["where"]
    del result["versions"]
    return result


def _models(part: Part) -> list[str]:
    """Those of the settings, and on a twin what anyone could reach."""
    models: list[str] = list(part.settings["models"])
    return [*models, CEILING] if models and not part.source.real else models


def phones(part: Part, report: Progress) -> dict[str, Any]:
    """Fleets of synthetic phones: from which number on does a mechanism beat its controls?"""
    values = _values(part, {each.name for each in fields(PhonesNeeded)} - {"seed"})
    if "training" in values:
        usual = PhonesNeeded(values["epsilon"]).training
        values["training"] = training_from(values["training"], "training", usual)
    result = phones_needed.run(PhonesNeeded(**values, seed=part.seed), report).as_json()
    del result["versions"]
    return result


def coldstart(part: Part, report: Progress) -> dict[str, Any]:
    """New phones from their first launch on: held out of the log, or after a synthetic fleet."""
    values = _values(part, {each.name for each in fields(ColdStart)} - {"data", "seed"})
    settings = ColdStart(part.source.where, **values, seed=part.seed)
    log = part.source.log(part.seed) if part.source.real else None
    result = crowd_study.run(settings, log, report)
    where = part.source.as_values()["where"]
    about = {**result.pop("data"), "source": where}
    del result["versions"]
    return {**result, "settings": {**result["settings"], "data": where}, "about": about}


def _values(part: Part, known: set[str]) -> dict[str, Any]:
    _check(part, known)
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in part.settings.items()
    }


def _check(part: Part, known: set[str]) -> None:
    for key in part.settings:
        if key not in known:
            raise KeyError(f"{part.name}.toml: {unknown('setting', key, sorted(known))}")


ON_LOGS: Mapping[str, Callable[[Part, LaunchLog, Path, Progress], dict[str, Any]]] = {
    "static": static,
    "activity": activity,
    "dynamic": in_cycles,
}
ON_FLEETS: Mapping[str, Callable[[Part, Progress], dict[str, Any]]] = {
    "phones": phones,
    "coldstart": coldstart,
}
