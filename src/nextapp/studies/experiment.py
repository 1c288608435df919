"""The static experiment: its settings, from TOML or options, and its run.

Settings are checked when they are made, and stored with every result.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import Evaluation, evaluate, exam, find_preset
from nextapp.evaluation.static import build_model
from nextapp.predictors import CEILING, MODELS, ONLINE, Predictor, known_and_own
from nextapp.predictors.training import MF, SEQMF, Training, without_sequence
from nextapp.progress import Progress, silent
from nextapp.settings import as_toml, check_keys, check_type, setting, settings_from, unknown
from nextapp.wire import ModelSettings

T = TypeVar("T")

_MODEL_KEYS = tuple(field.name for field in fields(ModelSettings))
_TRAINING_KEYS = tuple(field.name for field in fields(Training) if field.name != "model")

DEFAULT_SPLITS = {"synthetic:lsapp": "days:222,7,14", "synthetic:app-usage": "days:6,1,1"}
PRESET_SPLITS = {"neural": "fraction:0.7,0.1,0.2"}  # for any data


@dataclass(frozen=True)
class Experiment:
    """What to measure. If ``tune`` > 0, MF and SeqMF are first tuned with this many trials each."""

    HEADING: ClassVar[str] = "Experiment"

    data: str
    split: str = setting(
        "",
        "Train, validation and test part, as days:222,7,14 or fraction:0.8,0,0.2. Default: "
        "days:222,7,14 for synthetic:lsapp, fraction:0.8,0,0.2 for logs.",
    )
    preset: str = setting(
        "honest",
        "How to count: honest (as a phone would see it), paper (as its text says), authors (as "
        "its tables), neural (as papers on neural networks).",
    )
    models: tuple[str, ...] = setting(
        MODELS,
        f"Models, separated by commas. Default: {', '.join(MODELS)}. Others: {', '.join(ONLINE)} "
        f"(learn through the test part), ceiling (synthetic data), or a class of "
        f"your own as FILE.py:CLASS.",
        metavar="NAMES",
    )
    seed: int = setting(0, "Random seed.")
    tune: int = setting(
        0,
        "First choose the settings of mf and seqmf by N trials each, without the test part. "
        "Default: no trials.",
        least=1,
    )
    seqmf: Training = SEQMF
    mf: Training = MF

    def __post_init__(self) -> None:
        if not self.split:
            default = DEFAULT_SPLITS.get(self.data.split(",")[0], "fraction:0.8,0,0.2")
            object.__setattr__(self, "split", PRESET_SPLITS.get(self.preset, default))
        Split.parse(self.split)
        find_preset(self.preset)
        if not self.models:
            raise ValueError(f"models must name at least one of {', '.join(MODELS)}.")
        check_names("model", self.models, known_and_own(self.models))
        check_ceiling(self.models, self.data)
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be a whole number from 0 to 2^64 - 1, got {self.seed!r}.")
        if self.tune < 0:
            raise ValueError(f"tune must be a number of trials >= 0, got {self.tune!r}.")
        if self.mf is not MF:
            object.__setattr__(self, "mf", without_sequence(self.mf))

    def predictors(self, progress: Progress = silent) -> list[Predictor]:
        """New predictors for all models of the experiment, not fitted yet."""
        return [
            build_model(name, self.seed, self.data, progress, seqmf=self.seqmf, mf=self.mf)
            for name in self.models
        ]


def check_names(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Every name must be known, and named once."""
    for name in names:
        if name not in known:
            raise ValueError(unknown(kind, name, known))
    if len(set(names)) < len(names):
        raise ValueError(f"every {kind} may be named once, got {', '.join(names)}.")


def check_ceiling(models: tuple[str, ...], data: str) -> None:
    """Refuse the ceiling on real logs: it needs the probabilities behind synthetic data."""
    if CEILING in models and not data.startswith("synthetic:"):
        raise ValueError(
            f"the model ceiling needs synthetic data, such as synthetic:lsapp, got {data!r}."
        )


def plain_values(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain values, as in a TOML file."""

    def plain(value: Any) -> Any:
        if isinstance(value, Training):
            return training_values(value)
        return list(value) if isinstance(value, tuple) else value

    return {each.name: plain(getattr(settings, each.name)) for each in fields(settings)}


def training_values(training: Training) -> dict[str, Any]:
    values = asdict(training)
    return {**values.pop("model"), **values}


def training_from(values: Mapping[str, Any], where: str, base: Training) -> Training:
    """`base` with these values; keys of the model and of its training are in one flat table."""
    check_keys(values, [*_MODEL_KEYS, *_TRAINING_KEYS], f"[{where}]: ")
    types = {key: type(default) for key, default in training_values(base).items()}
    given = {key: check_type(value, types[key], f"{where}.{key}") for key, value in values.items()}
    model = replace(base.model, **{key: given[key] for key in _MODEL_KEYS if key in given})
    return replace(base, model=model, **{key: given[key] for key in _TRAINING_KEYS if key in given})


def settings_on_data(kind: type[T], values: Mapping[str, Any]) -> T:
    """Settings of a study on data, with the training of MF and SeqMF."""
    trained = {
        key: partial(training_from, where=key, base=base)
        for key, base in (("seqmf", SEQMF), ("mf", MF))
    }
    return settings_from(kind, values, trained)


def versions() -> dict[str, str]:
    """The versions of Python, nextapp and its libraries."""
    packages = ("nextapp", "numpy", "polars", "numba", "scipy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


DEMO = "synthetic:lsapp"  # the data of the demonstration


def run(
    experiment: Experiment, log: LaunchLog, report: Progress = silent
) -> tuple[Evaluation, dict[str, Any]]:
    """Tune if that is wanted, measure the experiment's models on the log; also as plain values."""
    ready = exam(log, Split.parse(experiment.split), find_preset(experiment.preset))
    if experiment.tune:
        from nextapp.studies.tuning import TUNED, choose_settings

        models = tuple(
            model for model in TUNED if any(name.startswith(model) for name in experiment.models)
        )
        experiment, _ = choose_settings(log, experiment, report, models=models)
    predictors = experiment.predictors(report)
    measured = evaluate(ready, predictors, experiment.seed, progress=report)
    result = measured.summary()
    names = [mark.name for mark in measured.marks]
    for model in ("seqmf", "nextapp", CEILING):
        if model in names:
            result[f"{model}_minus"] = {
                name: measured.difference(model, name) for name in names if name != model
            }
    if "nextapp" in names:
        result["leads"] = measured.leads("nextapp")
    return measured, {
        **result,
        "data": about_log(experiment.data, ready.whole, log),
        "seed": experiment.seed,
        "settings": plain_values(experiment),
        "versions": versions(),
    }


def about_log(source: str, whole: LaunchLog, log: LaunchLog) -> dict[str, Any]:
    """What a result says of its log, and of what was done to it before it was measured."""
    return {
        "source": source,
        "n_users": log.n_users,
        "n_apps": log.n_apps,
        "n_launches": len(log),
        "notes": list(whole.notes),
    }


def demo(folder: Path, seed: int, report: Progress) -> dict[str, Any]:
    """The demonstration: all models on `DEMO`; table, plot, settings and JSON in the folder."""
    from nextapp import plots
    from nextapp.predictors.predictor_loop import compile_ahead

    folder.mkdir(parents=True, exist_ok=True)
    compile_ahead()  # the largest loop, of the last model
    report("making synthetic phones", 0, 0)
    log = read_log(DEMO, seed=seed)
    measured, result = run(Experiment(DEMO, preset="authors", seed=seed), log, report)
    report("drawing", 0, 0)
    plots.save(plots.hit_rates(result), folder / "hit-rates")
    measured.to_polars().write_csv(folder / "table.csv", float_precision=6)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "settings.toml").write_text(as_toml(result["settings"]), encoding="utf-8")
    return result
