"""The models by name. The module of a model is imported when the model is built."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import cast

from nextapp import predictors
from nextapp.names import unknown
from nextapp.predictor import ABLATIONS, without
from nextapp.predictors.questions import Predictor

RIVALS = {
    "random": "Random",
    "mru": "MRU",
    "mfu": "MFU",
    "sr": "SR",
    "sr-od": "SROnDevice",
    "sr-od-su": "SROnDeviceByS",
    "recents": "Recents",
    "kiss": "Kiss",
    "chromeos": "ChromeOS",
    "count-mix": "CountMix",
    "mfu-online": "OnlineMFU",
    "sr-online": "OnlineSR",
    "sr-od-online": "OnlineSROnDevice",
    "ppm": "PPM",
}
FEDERATED = ("mf", "seqmf", "seqmf-frozen")  # built by the studies, which simulate the phones
NEXTAPP = (
    "nextapp",
    "nextapp-alone",
    "nextapp-no-pairs",
    *(f"nextapp-no-{ingredient}" for ingredient in ABLATIONS),
)
CEILING = "ceiling"  # the best possible predictor of synthetic data
LAUNCHERS = ("recents", "kiss", "chromeos", "count-mix")
MODELS = ("random", "mru", "mfu", "sr", "sr-od", *FEDERATED, *LAUNCHERS, "nextapp")
"""Measured by default; the others if they are named."""
ONLINE = ("mfu-online", "sr-online", "sr-od-online", "ppm")
KNOWN = tuple(dict.fromkeys((*MODELS, *RIVALS, *NEXTAPP, CEILING)))


def known_and_own(names: Sequence[str]) -> tuple[str, ...]:
    """The models known, and those of these names that have the form FILE.py:CLASS."""
    return (*KNOWN, *filter(is_own, names))


def is_own(name: str) -> bool:
    """Whether the name is that of a user's own class, FILE.py:CLASS."""
    return ".py:" in name


def build(name: str, seed: int = 0, source: str = "") -> Predictor:
    """The model with this name, not fitted yet; `source` is the synthetic data of the ceiling."""
    if is_own(name):
        return _build_own(name, seed)
    if name in RIVALS:
        return cast(Predictor, getattr(predictors, RIVALS[name])())
    if name == CEILING:
        from nextapp.data import synthetic
        from nextapp.predictors.ceiling import Ceiling

        return Ceiling(synthetic.parse(source), seed)
    if name in NEXTAPP:
        return _build_nextapp(name)
    raise ValueError(unknown("model", name, KNOWN))


def _build_nextapp(name: str) -> Predictor:
    from nextapp.predictors.nextapp import NextApp
    from nextapp.predictors.pooled import pool_phones, pool_phones_without_pairs

    if name == "nextapp-alone":
        return NextApp(name=name)
    if name == "nextapp-no-pairs":
        return NextApp(name=name, crowd=pool_phones_without_pairs)
    if name == "nextapp":
        return NextApp(crowd=pool_phones)
    return NextApp(without(name.removeprefix("nextapp-no-")), name, crowd=pool_phones)


def _build_own(name: str, seed: int) -> Predictor:
    """An instance of a class in a file; it gets the seed if it has a parameter with that name."""
    file, _, kind_name = name.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"the model {name!r}: there is no file {file}.")
    spec = spec_from_file_location(f"nextapp_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"the model {name!r}: {file} cannot be imported.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kind = getattr(module, kind_name, None)
    if not inspect.isclass(kind):
        classes = [each for each, value in vars(module).items() if inspect.isclass(value)]
        raise ValueError(f"{file}: {unknown('class', kind_name, classes)}")
    takes_seed = "seed" in inspect.signature(kind).parameters
    return cast(Predictor, kind(**({"seed": seed} if takes_seed else {})))
