"""The figures of a finished part as tidy rows: CSV files, tables and docs are made from these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nextapp.evaluation import METRICS
from nextapp.studies.reproduce.claims import reports_of

Result = Mapping[str, Any]

# --- the values printed in the paper ----------------------------------------------------------

TITLE = "Federated Privacy-preserving Collaborative Filtering for On-Device Next App Prediction"

# fmt: off
PRINTED_TABLES: Mapping[str, Mapping[str, tuple[float, ...]]] = {  # in the order of METRICS
    "table1": {
        "random": (.089, .239, .365, .089, .153, .181, .089, .175, .227),
        "mru":    (.618, .823, .849, .618, .716, .722, .618, .744, .754),
        "mfu":    (.403, .669, .777, .403, .516, .541, .403, .555, .600),
        "sr":     (.610, .801, .863, .610, .695, .709, .610, .723, .748),
        "sr-od":  (.612, .824, .893, .612, .707, .722, .612, .737, .765),
        "mf":     (.379, .649, .784, .379, .497, .527, .379, .536, .591),
        "seqmf":  (.522, .797, .871, .522, .643, .660, .522, .683, .713),
    },
    "table2": {
        "random": (.029, .093, .152, .029, .056, .069, .029, .065, .090),
        "mru":    (.393, .660, .707, .393, .516, .527, .393, .553, .572),
        "mfu":    (.229, .436, .546, .229, .319, .344, .229, .349, .394),
        "sr":     (.477, .664, .746, .477, .559, .578, .477, .586, .620),
        "sr-od":  (.414, .591, .659, .414, .493, .508, .414, .518, .546),
        "mf":     (.227, .426, .520, .227, .314, .336, .227, .343, .382),
        "seqmf":  (.402, .615, .686, .402, .497, .513, .402, .527, .557),
    },
}
# fmt: on


def row_of_paper(table: str, model: str) -> dict[str, float] | None:
    """The paper's row of a model by metric, or None if the paper has no such row."""
    row = PRINTED_TABLES.get(table, {}).get(model)
    return None if row is None else dict(zip(METRICS, row, strict=True))


# --- rows -------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One figure of one series, with its 95 % interval where it has one.

    A table has one row per series and one column per figure; with ``at``, such as the number of a
    cycle, one column per value of it. ``paper`` is the value that the paper prints.
    """

    table: str
    series: str
    figure: str
    mean: float | str | None = None
    low: float | None = None
    high: float | None = None
    n_users: int | None = None
    paper: float | None = None
    at: str | int = ""


def rows_of(record: Mapping[str, Any]) -> list[Row]:
    """All figures of the record of a part; none if it could not be measured."""
    result = record["result"]
    return [] if "problem" in result else list(_BY_KIND[record["kind"]](record["base"], result))


def is_long(table: str) -> bool:
    """Whether a table has too many columns to be shown; its rows are in the CSV file."""
    return table.startswith("by ")


def _interval(found: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
    found = found or {}
    return found.get("mean"), found.get("low"), found.get("high")


def _at_each(
    table: str, series: str, figure: str, at: Sequence[str | int], curve: Mapping[str, Any]
) -> Iterator[Row]:
    """The points of a curve {mean, low, high} of lists."""
    for place, mean, low, high in zip(at, curve["mean"], curve["low"], curve["high"], strict=True):
        yield Row(table, series, figure, mean, low, high, at=place)


def _static(base: str, result: Result) -> Iterator[Row]:
    for preset, found in result["presets"].items():
        for key in ("n_users", "n_sessions", "n_predictions", "repeat_share"):
            yield Row("test part", f"preset {preset}", _FACTS[key], found[key])
    for preset, found in result["presets"].items():
        table, n_users = f"preset {preset}", found["n_users"]
        for name, row in found["models"].items():
            printed = row_of_paper(base, name) if preset == "authors" else None
            for metric in METRICS:
                (low, high), paper = row["ci95"][metric], (printed or {}).get(metric)
                yield Row(table, name, metric, row[metric], low, high, n_users, paper)
        for first in ("seqmf", "nextapp"):
            for second, gaps in found["differences"].get(first, {}).items():
                ends = _interval(gaps["HR@5"])
                yield Row(
                    f"differences, preset {preset}", first, f"HR@5 − {second}", *ends, n_users
                )
        for model, tuning in found["tuning"].items():
            for each in tuning["tunings"]:
                table = f"settings chosen, preset {preset}"
                yield from _settings(table, f"{model}, seed {each['seed']}", each["settings"])


_FACTS = {
    "n_users": "users",
    "n_sessions": "sessions",
    "n_predictions": "predictions",
    "repeat_share": "share of repeats",
    "n_days": "days",
}


def _settings(table: str, series: str, values: Mapping[str, Any]) -> Iterator[Row]:
    for key, value in values.items():
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        yield Row(table, series, key, shown)


def _activity(base: str, result: Result) -> Iterator[Row]:
    found = result["description"]
    for key in ("from", "to", "n_days", "n_sessions", "repeat_share"):
        yield Row("the log", "all users", _FACTS.get(key, key), found[key])
    yield Row("the log", "all users", "cut into", f"{result['cycles']}")
    for key, at in (("by_day", "day"), ("by_cycle", "cycle")):
        for figure in ("n_users", "n_launches"):
            for number, count in enumerate(result[key][figure], 1):
                yield Row(f"by {at}", "all users", figure, count, at=number)


def _dynamic(base: str, result: Result) -> Iterator[Row]:
    table, series, n_users = "mean over cycles", result["series"], result["n_users"]
    for name, row in series.items():
        reference = row["delta"]["reference"]
        for metric, found in row["over_cycles"].items():
            yield Row(table, name, metric, *_interval(found), n_users)
        for other in ("sr-od", "none", "frozen"):
            if other in series and name != other:
                gap = result["differences"][name][other]["HR@5"]
                yield Row(table, name, f"HR@5 − {other}", *_interval(gap), n_users)
        last = {end: row["delta"][end][-1] for end in ("mean", "low", "high") if row["delta"][end]}
        yield Row(table, name, f"cumulative δHR@5 − {reference}", *_interval(last), n_users)
        if row["privacy"]:
            yield from _spent(table, name, row["privacy"])
        for figure, curve in row.items():
            if figure in METRICS:
                yield from _at_each("by cycle", name, figure, result["evaluated"], curve)
        shown = f"cumulative δHR@5 − {reference}"
        yield from _at_each("by cycle", name, shown, result["evaluated"], row["delta"])
    if result["rates"]:
        yield from _rates(result)
    yield from _hyper_parameters(result)


def _spent(table: str, name: str, privacy: Mapping[str, Any]) -> Iterator[Row]:
    """ε per report, the reports of the phone with most of them, and its total ε."""
    no_bound = privacy["epsilon"] is None
    yield Row(table, name, "ε per report", "no bound" if no_bound else privacy["epsilon"])
    yield Row(table, name, "most reports of a phone", f"{reports_of(privacy)}")
    total = "no bound" if no_bound else privacy["worst"]
    yield Row(table, name, "largest total ε of a phone", total)


def _rates(result: Result) -> Iterator[Row]:
    """The gain over a frozen Q at every learning rate, and the rates chosen on each half."""
    table, rates = "HR@5 − frozen by learning rate", result["rates"]
    for name, row in rates["series"].items():
        if name == "frozen":
            continue
        chosen = " and ".join(f"{rate:g}" for rate in row["chosen"])
        yield Row(table, name, "chosen", f"{chosen}, at the edge" if row["at_edge"] else chosen)
        yield from _spent(table, name, result["series"][name]["privacy"])
        for rate, gain in zip(rates["tried"], row["over_frozen"], strict=True):
            yield Row(table, name, f"gain at {rate:g}", *_interval(gain))


def _hyper_parameters(result: Result) -> Iterator[Row]:
    """The regimes with each of the settings of SeqMF, where there are several, and the settings."""
    variants = result["variants"]
    for name, other in {result["hyper_parameters"]: result, **variants}.items() if variants else ():
        for regime in ("full", "rare", "global"):
            if regime in other["series"]:
                found = other["series"][regime]["over_cycles"]["HR@5"]
                gap = other["differences"][regime].get("sr-od", {}).get("HR@5")
                table = "regimes by settings of SeqMF"
                yield Row(table, name, f"HR@5 {regime}", *_interval(found))
                yield Row(table, name, f"HR@5 {regime} − sr-od", *_interval(gap))
    for name, values in result["seqmf"].items():
        halves = values if "first half" in values else {"": values}
        for half, settings in halves.items():
            series = f"{name}: {half}" if half else name
            yield from _settings("settings of SeqMF", series, settings)


def _phones(base: str, result: Result) -> Iterator[Row]:
    settings = result["settings"]
    n_users = settings["sample"] * settings["seeds"]
    for name, row in result["mechanisms"].items():
        answer, largest = result["answer"][name], result["largest_tried"][name]
        words = f"{answer:,}" if answer else f"not reached with {largest:,}"
        yield Row("answers", name, "phones needed to beat all controls", words)
        total = row["epsilon_spent"]
        privacy = {"epsilon": settings["epsilon"] if total else None, "worst": total,
                   "n_rounds": settings["rounds"]}  # fmt: skip
        yield from _spent("answers", name, privacy)
        for key, figure in {
            "HR@5": "HR@5",
            "gain_over_frozen": "HR@5 − frozen",
            "gain_over_zero": "HR@5 − zero",
            "gain_over_noise": "HR@5 − its noise alone",
        }.items():
            for found in _at_each("", name, figure, row["phones"], row[key]):
                yield found._replace(table=f"{figure}, by number of phones", n_users=n_users)
            yield from _spent(f"{figure}, by number of phones", name, privacy)
    for name, row in result["controls"].items():
        yield Row("controls", name, "HR@5", *_interval(row["HR@5"]), n_users)


def _new_phones(base: str, result: Result) -> Iterator[Row]:
    first, last = result["headline"]
    table = f"launches {first} to {last}"
    gains = result["priors"]["non-private"]["headline"]["gain@5"]["low"] > 0
    for name, row in result["priors"].items():
        for part in row["bins"]:
            at = f"{part['from']} to {part['to']}"
            for figure, found in part.items():
                if isinstance(found, Mapping):
                    ends = _interval(found)
                    n_phones = part["n_phones"]
                    yield Row("by launches seen", name, figure, *ends, n_phones, at=at)
        headline, kept = row["headline"], (row.get("kept") or {}).get("HR@5")
        for figure in ("HR@1", "HR@3", "HR@5", "gain@5"):
            ends = _interval(headline[figure])
            yield Row(table, name, figure, *ends, headline["n_phones"])
        ends = _interval(kept if gains else None)  # there is no share of no gain
        yield Row(table, name, "share of the gain@5 kept", *ends, headline["n_phones"])
        if name in result["guarantees"]:
            epsilon = result["guarantees"][name]["epsilon"]
            yield from _spent(table, name, {"epsilon": epsilon, "worst": epsilon, "n_rounds": 1})


def _windows(base: str, result: Result) -> Iterator[Row]:
    table, n_users = "windows of the history", result["n_users"]
    for name, row in result["windows"].items():
        yield Row(table, name, "HR@5", *_interval(row["HR@5"]), n_users)
        yield Row(table, name, "HR@5 − all history", *_interval(row["gain"]), n_users)
        yield Row(table, name, "launches", row["n_launches"])


def _readings(base: str, result: Result) -> Iterator[Row]:
    n_users = result["n_users"]
    for name, row in result["models"].items():
        for metric in ("HR@1", "HR@3", "HR@5"):
            low, high = row["ci95"][metric]
            yield Row("models", name, metric, row[metric], low, high, n_users)
    for first, found in result["differences"].items():
        for second, gaps in found.items():
            for metric in ("HR@1", "HR@5"):
                ends = _interval(gaps[metric])
                yield Row("differences", f"{first} − {second}", f"gain, {metric}", *ends, n_users)
    ends = _interval(result["different"])
    yield Row("differences", "seqmf − sr, next different app", "gain, HR@5", *ends, n_users)


def _cost(base: str, result: Result) -> Iterator[Row]:
    for n_apps, found in result["sizes"].items():
        table = f"{int(n_apps):,} apps"
        for name, row in found.items():
            yield Row(table, name, "ms of a phone", *_interval(row["ms"]))
            yield Row(table, name, f"times {row['than']}", *_interval(row["times"]))
            if "decode_ms" in row:
                yield Row(table, name, "decode, ms per report", row["decode_ms"])
                yield Row(table, name, "bytes", row["bytes"])


def _one_round(base: str, result: Result) -> Iterator[Row]:
    for name, row in result["up"].items():
        found = {
            "message, bytes": row["bytes"],
            "payload, bytes": row["payload_bytes"],
            "protected": ", ".join(row["covers"]) or "nothing",
            "sent in the clear": ", ".join(row["sent_in_clear"]) or "nothing",
            "holds the user vector": "yes" if row["holds_user_vector"] else "no",
            "holds the history": "yes" if row["holds_history"] else "no",
        }
        for figure, value in found.items():
            yield Row("messages", name, figure, value)
        epsilon = row["epsilon"]
        yield from _spent("messages", name, {"epsilon": epsilon, "worst": epsilon, "n_rounds": 1})
    yield Row("messages", "broadcast of Q", "message, bytes", result["down"]["bytes"])
    kept = {"user vector": "user_vector_bytes", "gradient": "gradient_bytes"}
    for name, key in kept.items():
        yield Row("kept on the phone", name, "bytes", result["phone"][key])


_BY_KIND: Mapping[str, Callable[[str, Result], Iterator[Row]]] = {
    "static": _static,
    "activity": _activity,
    "dynamic": _dynamic,
    "phones": _phones,
    "new-phones": _new_phones,
    "windows": _windows,
    "readings": _readings,
    "cost": _cost,
    "round": _one_round,
}
