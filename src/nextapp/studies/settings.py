"""Settings of an experiment: from TOML or options, checked, written beside every result."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from nextapp.data import Split, synthetic
from nextapp.evaluation import preset_named
from nextapp.names import unknown
from nextapp.predictor import ABLATIONS, DEFAULT, without
from nextapp.predictors import (
    MFU,
    MRU,
    SR,
    Ceiling,
    NextApp,
    OnlineMFU,
    OnlineMRU,
    OnlineSR,
    OnlineSROnDevice,
    Predictor,
    Random,
    SROnDevice,
    Training,
    frozen,
    pooled,
    pooled_without_pairs,
    without_sequence,
)
from nextapp.progress import Progress, silent
from nextapp.settings import check_keys, settings_from, typed
from nextapp.studies import crowd_rounds
from nextapp.studies.rounds import LabSeqMF
from nextapp.wire import ModelSettings

T = TypeVar("T")

MODELS = ("random", "mru", "mfu", "sr", "sr-od", "mf", "seqmf", "seqmf-frozen", "nextapp")
# Forms of nextapp that are measured when named: without the crowd, with SeqMF's score, with a crowd
# learnt by gradients in place of counts, and with each ingredient switched off.
ONLINE = ("mru-online", "mfu-online", "sr-online", "sr-od-online")  # learn through the test part
VARIANTS = (
    *ONLINE,
    "nextapp-alone",
    "nextapp-taste",
    "nextapp-no-pairs",
    *(f"nextapp-{way}" for way in crowd_rounds.WAYS),
    *(f"nextapp-no-{ingredient}" for ingredient in ABLATIONS),
)
CEILING = "ceiling"  # measured when named: what anyone could reach on synthetic data
KNOWN = (*MODELS, *VARIANTS, CEILING)
TASTE = 0.3  # weight of SeqMF's score in nextapp-taste, in standard deviations
_MODEL_KEYS = tuple(field.name for field in fields(ModelSettings))
_TRAINING_KEYS = tuple(field.name for field in fields(Training) if field.name != "model")

DEFAULT_SPLITS = {"synthetic:lsapp": "days:222,7,14", "synthetic:app-usage": "days:6,1,1"}

# MF wants a stronger pull to zero than SeqMF: better on each of the four logs tried.
MF = without_sequence(Training(ModelSettings(lam=1.0)))


@dataclass(frozen=True)
class Experiment:
    """What to measure. ``tune`` trials choose the settings of MF and of SeqMF first, if > 0."""

    data: str
    split: str = ""
    preset: str = "honest"
    models: tuple[str, ...] = MODELS
    seed: int = 0
    tune: int = 0
    seqmf: Training = Training()
    mf: Training = MF

    def __post_init__(self) -> None:
        if not self.split:
            default = DEFAULT_SPLITS.get(self.data.split(",")[0], "fraction:0.8,0,0.2")
            object.__setattr__(self, "split", default)
        Split.parse(self.split)
        preset_named(self.preset)
        if not self.models:
            raise ValueError(f"models must name at least one of {', '.join(MODELS)}.")
        for name in self.models:
            if name not in KNOWN:
                raise ValueError(unknown("model", name, KNOWN))
        check_ceiling(self.models, self.data)
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"a model can stand in the table once, got {', '.join(self.models)}.")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be a whole number from 0 to 2^64 - 1, got {self.seed!r}.")
        if self.tune < 0:
            raise ValueError(f"tune must be a number of trials >= 0, got {self.tune!r}.")
        object.__setattr__(self, "mf", without_sequence(self.mf))

    def resolved(self) -> dict[str, Any]:
        """All settings as plain values, the form a TOML file takes."""
        return {
            "data": self.data,
            "split": self.split,
            "preset": self.preset,
            "models": list(self.models),
            "seed": self.seed,
            "tune": self.tune,
            "seqmf": training_values(self.seqmf),
            "mf": training_values(self.mf),
        }

    def predictors(self, progress: Progress = silent) -> list[Predictor]:
        """The predictors named, not fitted yet."""
        makers: dict[str, Callable[[], Predictor]] = {
            "random": Random,
            "mru": MRU,
            "mfu": MFU,
            "sr": SR,
            "sr-od": SROnDevice,
            "mru-online": OnlineMRU,
            "mfu-online": OnlineMFU,
            "sr-online": OnlineSR,
            "sr-od-online": OnlineSROnDevice,
            "mf": lambda: LabSeqMF(self.mf, self.seed, "mf", progress),
            "seqmf": lambda: LabSeqMF(self.seqmf, self.seed, "seqmf", progress),
            "seqmf-frozen": lambda: LabSeqMF(
                frozen(self.seqmf), self.seed, "seqmf-frozen", progress
            ),
            CEILING: lambda: Ceiling(synthetic.parse(self.data), self.seed),
            "nextapp": lambda: NextApp(crowd=pooled),
            "nextapp-alone": lambda: NextApp(name="nextapp-alone"),
            "nextapp-no-pairs": lambda: NextApp(
                name="nextapp-no-pairs", crowd=pooled_without_pairs
            ),
            "nextapp-taste": lambda: NextApp(
                replace(DEFAULT, taste=TASTE),
                "nextapp-taste",
                LabSeqMF(self.seqmf, self.seed, "seqmf", progress),
                pooled,
            ),
        }
        for way in crowd_rounds.WAYS:
            learnt = partial(crowd_rounds.crowd_of_log, way, self.seed)
            makers[f"nextapp-{way}"] = partial(NextApp, name=f"nextapp-{way}", crowd=learnt)
        for ingredient in ABLATIONS:
            name = f"nextapp-no-{ingredient}"
            makers[name] = partial(NextApp, without(ingredient), name, crowd=pooled)
        return [makers[name]() for name in self.models]


def check_ceiling(models: tuple[str, ...], data: str) -> None:
    """The ceiling knows by which odds synthetic phones draw, and nothing of any other log."""
    if CEILING in models and not data.startswith("synthetic:"):
        raise ValueError(
            f"ceiling knows only synthetic data, such as synthetic:lsapp, got {data!r}."
        )


def training_values(training: Training) -> dict[str, Any]:
    values = asdict(training)
    return {**values.pop("model"), **values}


def training_from(values: Mapping[str, Any], where: str, base: Training) -> Training:
    """`base` with these values; the keys of the model and of its training stand side by side."""
    check_keys(values, [*_MODEL_KEYS, *_TRAINING_KEYS], f"[{where}]: ")
    types = {key: type(default) for key, default in training_values(base).items()}
    given = {key: typed(value, types[key], f"{where}.{key}") for key, value in values.items()}
    model = replace(base.model, **{key: given[key] for key in _MODEL_KEYS if key in given})
    return replace(base, model=model, **{key: given[key] for key in _TRAINING_KEYS if key in given})


def experiment_from(values: Mapping[str, Any]) -> Experiment:
    """An experiment from plain values, as a TOML file gives them."""
    return settings_on_data(Experiment, values)


def settings_on_data(kind: type[T], values: Mapping[str, Any]) -> T:
    """Settings that name data, and how MF and SeqMF are trained."""
    check_keys(values, [each.name for each in fields(kind)])  # type: ignore[arg-type]
    if "data" not in values:
        raise ValueError("the settings name no data: a file, or 'synthetic:lsapp'.")
    trained = {
        key: partial(training_from, where=key, base=base)
        for key, base in (("seqmf", Training()), ("mf", MF))
    }
    return settings_from(kind, values, trained)


def versions() -> dict[str, str]:
    """What a result was made with."""
    packages = ("nextapp", "numpy", "polars", "numba", "scipy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
