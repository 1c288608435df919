"""docs/results-schema.md says what results hold: small ones are made and compared with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nextapp.data import read
from nextapp.evaluation import METRICS
from nextapp.studies import coldstart, dynamic, simulation, static
from nextapp.studies.reproduce import writing
from nextapp.studies.settings import Experiment

PAGE = Path(__file__).parents[2] / "docs" / "results-schema.md"
SOURCE = "synthetic:phones=20,apps=15,days=10,sessions=4"
NAMED = {
    "models": "MODEL", "seqmf_minus": "MODEL", "nextapp_minus": "MODEL", "ceiling_minus": "MODEL",
    "rates.series": "SERIES",
    "series": "SERIES", "differences": "SERIES", "differences.SERIES": "SERIES",
    "priors": "PRIOR", "guarantees": "PRIOR",
}  # fmt: skip
VALUES = ("settings", "versions", "data.parameters", "plans", "rounds[].outcomes")
INTERVAL = ["mean", "low", "high"]


def kind(value) -> str:
    if isinstance(value, dict):
        return "curve" if isinstance(value["mean"], list) else "interval"
    if isinstance(value, list):
        numbers = len(value) == 2 and all(isinstance(one, int | float) for one in value)
        return "pair" if numbers else "list"
    if isinstance(value, bool):
        return "yes/no"
    return {str: "text", type(None): "null"}.get(type(value), "number")


def found_in(value, at=""):
    """(key, type) of everything in a result, written as on the page."""
    if at in VALUES:
        yield at, "values"
    elif isinstance(value, dict) and list(value) != INTERVAL:
        for key, inner in value.items():
            name = NAMED.get(at, key)
            name = "METRIC" if key in METRICS else "GAIN" if key.startswith("gain@") else name
            yield from found_in(inner, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from found_in(inner, f"{at}[]")
    else:
        yield at, kind(value)


def documented(heading: str) -> dict[str, set[str]]:
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    mine = next(text for text in section if text.startswith(heading))
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", mine, flags=re.MULTILINE)
    return {key: set(types.strip().split(" or ")) for key, types in rows}


def evaluate_result():
    models = ("mru", "seqmf", "nextapp", "ceiling")
    yield static.run(Experiment(SOURCE, models=models), read(SOURCE, seed=0)).as_json()


def dynamic_result():
    for rates in ([], [0.001, 0.1]):
        experiment = dynamic.experiment_from(
            {"data": SOURCE, "cycles": "cycles:4", "q_every": 2, "models": ["mru"],
             "regimes": ["full"], "mechanisms": ["harmony", "qharmony-paper"], "rates": rates}
        )  # fmt: skip
        yield dynamic.run(experiment, read(SOURCE, seed=0)).as_json()


def coldstart_result():
    yield coldstart.run(coldstart.ColdStart(SOURCE, epsilons=(4.5,), launches=40, at_most=5))
    log = read(SOURCE, seed=0)
    yield coldstart.run(coldstart.ColdStart("log", draws=1, epsilons=(4.5,), launches=40), log)


def simulate_result():
    small = simulation.Settings(20, 15, 2, 1, "harmony", 0, epsilon=4.5, sample=10)
    yield simulation.run(small)


@pytest.mark.parametrize(
    ("heading", "results"),
    [
        ("evaluate", evaluate_result),
        ("dynamic", dynamic_result),
        ("coldstart", coldstart_result),
        ("simulate", simulate_result),
    ],
)
def test_the_page_names_every_key_and_its_type(heading, results):
    said = documented(heading)
    found: dict[str, set[str]] = {}
    for result in results():
        for key, type_ in found_in(json.loads(json.dumps(result, allow_nan=False))):
            found.setdefault(key, set()).add(type_)
    assert sorted(found) == sorted(said)
    for key, types in found.items():
        allowed = said[key] | ({"pair"} if "list" in said[key] else set())
        assert types <= allowed, key


def test_a_verdict_has_the_keys_of_the_page():
    record = {
        "part": "fig2@mine", "base": "fig2", "kind": "activity", "quick": True,
        "result": {
            "data": {"name": "mine", "kind": "log"},
            "by_day": {"n_users": [1, 2]},
            "by_cycle": {"n_users": [2] * 12},
        },
    }  # fmt: skip
    rows = writing.verdicts({"fig2@mine": record})
    assert [row["verdict"] for row in rows] == ["confirmed"]
    found = dict(found_in({"verdicts": rows}))
    assert {key: {type_} for key, type_ in found.items()} == documented("reproduce")
