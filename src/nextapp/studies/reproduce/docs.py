"""Tables of the docs, generated from the results of a reproduction.

A generated table lies between two comment lines of a page::

    <!-- results: regimes -->
    ...
    <!-- end of results -->

`nextapp reproduce --docs FOLDER` writes the figures to FOLDER/docs/results/reproduction.json and
regenerates every such table. A test generates the tables from that file and compares them with the
pages, so the pages always agree with the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nextapp.names import unknown
from nextapp.storage import write_public
from nextapp.studies.plots import label
from nextapp.studies.reproduce.claims import (
    BESIDE_SEQMF,
    digits_to_judge,
    verdict_words,
)
from nextapp.table import number

RESULTS = Path("docs") / "results" / "reproduction.json"
PAGES = ("README.md", "PAPER.md", "docs/*.md")
CUTOFFS = ("HR@1", "HR@3", "HR@5")
_BLOCK = re.compile(
    r"(<!-- results: (?P<name>[\w-]+) -->\n).*?(<!-- end of results -->)", flags=re.DOTALL
)

Records = Mapping[str, Mapping[str, Any]]
Summary = Mapping[str, Any]


def summary(records: Records, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The part of a reproduction's results that the pages show."""
    kinds = {"static": _static, "dynamic": _dynamic, "cost": _cost, "windows": _windows}
    return {
        "quick": [name for name, record in records.items() if record["quick"]],
        "seconds": {
            name: [record["seconds"], record["processor_seconds"]]
            for name, record in records.items()
        },
        "verdicts": [
            {key: row[key] for key in ("claim", "of_paper", "words", "data", "on", "verdict",
                                       "opposed", "evidence", "kind_of_data")}
            for row in verdicts
        ],
        "parts": {
            name: {
                "base": record["base"],
                "data": record["result"]["data"]["name"],
                "kind_of_data": record["result"]["data"]["kind"],
                **kinds[record["kind"]](record["result"]),
            }
            for name, record in records.items()
            if record["kind"] in kinds and "problem" not in record["result"]
        },
    }  # fmt: skip


def _static(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "presets": {
            preset: {
                "n_users": found["n_users"],
                "models": {
                    name: {metric: row[metric] for metric in CUTOFFS}
                    for name, row in found["models"].items()
                },
                "over_rivals": {
                    first: {second: _three(found["differences"][first][second]["HR@5"])
                            for second in found["differences"][first]}
                    for first in found["differences"]
                },
            }
            for preset, found in result["presets"].items()
        },
        "trials": {
            "trials": next(iter(result["presets"].values()))["tuning"]["seqmf"]["trials"],
            "tunings": len(next(iter(result["presets"].values()))["tuning"]["seqmf"]["tunings"]),
        },
    }  # fmt: skip


def _three(values: Mapping[str, float]) -> dict[str, float]:
    return {"mean": values["difference"], "low": values["low"], "high": values["high"]}


def _dynamic(result: Mapping[str, Any]) -> dict[str, Any]:
    series = result["series"]
    return {
        "preset": result["settings"]["preset"],
        "cycles": result["settings"]["cycles"],
        "epsilon": result["settings"]["epsilon"],
        "hyper_parameters": result["hyper_parameters"],
        "series": {
            name: {
                **row["over_cycles"],
                "delta": {key: row["delta"][key][-1] for key in ("mean", "low", "high")},
                "reference": row["delta"]["reference"],
                "spent": (row["privacy"] or {}).get("worst"),
            }
            for name, row in series.items()
        },
        "over_sr_od": {
            name: result["differences"][name]["sr-od"]["HR@5"]
            for name in series
            if "sr-od" in series and name != "sr-od"
        },
        "over_frozen": {
            name: result["differences"][name]["frozen"]["HR@5"]
            for name in series
            if "frozen" in series and name != "frozen"
        },
        "rates": result["rates"],
    }


def _cost(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"sizes": result["sizes"], "reference": result["reference"], "dim": result["dim"]}


def _windows(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"windows": {
        name: {key: row[key] for key in ("HR@5", "gain", "n_launches")}
        for name, row in result["windows"].items()
    }}  # fmt: skip


# --- tables -----------------------------------------------------------------------------------


def _markdown(head: Sequence[str], rows: Iterator[Sequence[str]] | list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _on(part: Mapping[str, Any]) -> str:
    return f"{part['data']} twin" if part["kind_of_data"] == "twin" else str(part["data"])


def _parts(found: Summary, *bases: str) -> list[Mapping[str, Any]]:
    """All parts with these bases: first on the paper's data, then on other logs."""
    return [part for base in bases for part in found["parts"].values() if part["base"] == base]


def _mean(values: Mapping[str, float | None] | None) -> str:
    if values is None or values["mean"] is None:
        return "–"
    if values["low"] is None:
        return number(values["mean"])
    return f"{number(values['mean'])} ({number(values['low'])}–{number(values['high'])})"


def _gap(values: Mapping[str, float] | None) -> str:
    if values is None or values["low"] is None:
        return "–"
    digits = digits_to_judge(values["low"], values["high"])
    mean, low, high = (number(values[key], digits, "signed") for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _grid(
    parts: Sequence[Mapping[str, Any]],
    cell: Callable[[Mapping[str, Any], str], str],
    names: Sequence[str],
    first: str = "",
) -> str:
    rows = [[label(name), *(cell(part, name) for part in parts)] for name in names]
    return _markdown([first, *(_on(part) for part in parts)], rows)


def _series_names(parts: Sequence[Mapping[str, Any]], key: str = "series") -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part[key]))


def _hit_rates(found: Summary) -> str:
    parts = _parts(found, "table1", "table2")
    names = list(
        dict.fromkeys(name for part in parts for name in part["presets"]["authors"]["models"])
    )

    def cell(part: Mapping[str, Any], name: str) -> str:
        row = part["presets"]["authors"]["models"].get(name)
        return " / ".join(number(row[metric]) for metric in CUTOFFS) if row else ""

    return _grid(parts, cell, names, "HR@1 / HR@3 / HR@5, preset authors")


def _seqmf(found: Summary) -> str:
    parts = _parts(found, "table1", "table2")

    def cell(part: Mapping[str, Any], name: str) -> str:
        return _gap(part["presets"]["authors"]["over_rivals"]["seqmf"].get(name))

    return _grid(parts, cell, BESIDE_SEQMF, "SeqMF less, HR@5, preset authors")


_UNTRAINED = {"seqmf-frozen": "frozen Q", "seqmf-authors": "the authors' settings"}


def _training_gain(found: Summary) -> str:
    """Against Q left as it started, and against settings at which Q hardly moves."""
    parts = _parts(found, "table1", "table2")
    rows = [
        [
            f"{words}, preset {preset}",
            *(_gap(part["presets"][preset]["over_rivals"]["seqmf"].get(name)) for part in parts),
        ]
        for name, words in _UNTRAINED.items()
        for preset in ("authors", "honest")
    ]
    return _markdown(["SeqMF less, HR@5", *(_on(part) for part in parts)], rows)


def _regimes(found: Summary) -> str:
    parts = _parts(found, "fig3-honest", "fig4-honest")

    def cell(part: Mapping[str, Any], name: str) -> str:
        return _mean(part["series"].get(name, {}).get("HR@5"))

    return _grid(parts, cell, _series_names(parts), "HR@5, preset honest")


_PREDICTORS = ("full", "rare", "global", "nextapp")


def _regimes_delta(found: Summary) -> str:
    parts = _parts(found, "fig3", "fig4", "fig3-honest", "fig4-honest")

    def cell(part: Mapping[str, Any], name: str) -> str:
        return _gap(part["over_sr_od"].get(name))

    rows = [[label(name), *(cell(part, name) for part in parts)] for name in _PREDICTORS]
    head = ["less SR-od, HR@5", *(f"{_on(part)}, {part['preset']}" for part in parts)]
    return _markdown(head, rows)


def _privacy(found: Summary) -> str:
    parts = _parts(found, "fig5", "fig6")

    def cell(part: Mapping[str, Any], name: str) -> str:
        row = part["series"].get(name)
        return _gap(row["delta"]) if row and name != "none" else ""

    rows = [
        [label(name), *(cell(part, name) for part in parts)]
        for name in _series_names(parts)
        if name != "none"
    ]
    head = ["cumulative δHR@5 over no privacy"]
    head += [f"{_on(part)}, ε = {part['epsilon']:g}" for part in parts]
    return _markdown(head, rows)


def _controls(found: Summary) -> str:
    parts = _parts(found, "fig5", "fig6")

    def cell(part: Mapping[str, Any], name: str) -> str:
        return _gap(part["over_frozen"].get(name))

    return _grid(parts, cell, _series_names(parts, "over_frozen"), "less frozen Q, HR@5")


def _rates(found: Summary) -> str:
    pieces = []
    for part in _parts(found, "fig5", "fig6"):
        rates = part["rates"]
        if rates is None:
            continue
        rows = [
            [
                label(name),
                " / ".join(f"{rate:g}" for rate in row["chosen"]),
                *(number(point["mean"], 4, "signed") for point in row["over_frozen"]),
            ]
            for name, row in rates["series"].items()
            if name != "frozen"
        ]
        head = [_on(part), "chosen", *(f"{rate:g}" for rate in rates["tried"])]
        pieces.append(_markdown(head, rows))
    return "\n".join(pieces)


def _costs(found: Summary) -> str:
    pieces = []
    for part in _parts(found, "cost"):
        sizes = part["sizes"]
        names = list(dict.fromkeys(name for rows in sizes.values() for name in rows))
        head = [
            "",
            *(f"{int(n):,} apps: ms, times {label(part['reference'])}, bytes" for n in sizes),
        ]
        rows = [
            [
                label(name),
                *(
                    f"{1e3 * found[name]['encode']['mean']:.3g}, "
                    f"{found[name]['times']['mean']:.3g}, {found[name]['bytes']:,}"
                    for found in sizes.values()
                ),
            ]
            for name in names
        ]
        pieces.append(_markdown(head, rows))
    return "\n".join(pieces)


def _windows_table(found: Summary) -> str:
    parts = _parts(found, "window")

    def cell(part: Mapping[str, Any], name: str) -> str:
        row = part["windows"].get(name)
        return "" if row is None else _gap(row["gain"]) if row["gain"] else _mean(row["HR@5"])

    return _grid(parts, cell, _series_names(parts, "windows"), "HR@5, or gain over all history")


def _claims(found: Summary) -> str:
    rows = [
        [
            f"“{row['words']}”" if row["of_paper"] else row["words"],
            row["data"],
            f"{verdict_words(row)}, {row['on']}",
        ]
        for row in found["verdicts"]
        if row["kind_of_data"] != "log"
    ]
    return _markdown(["claim, or question of ours", "data", "verdict"], rows)


def _claims_on_logs(found: Summary) -> str:
    mine = [row for row in found["verdicts"] if row["kind_of_data"] == "log"]
    logs = list(dict.fromkeys(row["data"] for row in mine))
    by_claim: dict[str, dict[str, str]] = {}
    words = {}
    for row in mine:
        by_claim.setdefault(row["claim"], {})[row["data"]] = verdict_words(row)
        words[row["claim"]] = f"“{row['words']}”" if row["of_paper"] else row["words"]
    if not mine:
        return "No other log was given (`nextapp reproduce --log FILE`).\n"
    rows = [
        [words[claim], *(found.get(log, "") for log in logs)] for claim, found in by_claim.items()
    ]
    return _markdown(["the same questions, asked of other logs", *logs], rows)


def _time(found: Summary) -> str:
    times = found["seconds"]
    totals = [sum(both[number] for both in times.values()) for number in (0, 1)]
    rows = [
        [name, *(f"{seconds:,.0f}" for seconds in both)]
        for name, both in {**times, "all, one after the other": totals}.items()
    ]
    return _markdown(["part", "seconds", "of a processor"], rows)


TABLES: Mapping[str, Callable[[Summary], str]] = {
    "claims": _claims,
    "claims-on-logs": _claims_on_logs,
    "hit-rates": _hit_rates,
    "seqmf": _seqmf,
    "trained": _training_gain,
    "regimes": _regimes,
    "regimes-over-sr-od": _regimes_delta,
    "privacy": _privacy,
    "controls": _controls,
    "rates": _rates,
    "cost": _costs,
    "windows": _windows_table,
    "time": _time,
}


def with_tables(text: str, found: Summary) -> str:
    """The text of a page with all its tables regenerated from these figures."""
    note = _quick_note(found)

    def table(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in TABLES:
            raise ValueError(unknown("table", name, TABLES))
        return f"{block[1]}{note}{TABLES[name](found)}{block[3]}"

    return _BLOCK.sub(table, text)


def _quick_note(found: Summary) -> str:
    """What a table says first if some of the parts were quick."""
    few = "a quick run, with few trials and seeds; not figures to quote.*\n\n"
    quick = [name.partition("@") for name in found["quick"]]
    if not quick:
        return ""
    if not all(log for _, _, log in quick):
        return f"*From {few}"
    logs = {name.partition("@")[2] for name in found["seconds"]} - {""}
    named = list(dict.fromkeys(log for _, _, log in quick))
    if set(named) == logs:
        return f"*Twins: the full run. Other logs: {few}"
    return f"*The full run, but for {', '.join(named)}: {few}"


def pages(folder: Path) -> list[Path]:
    """The pages of a checkout that may contain generated tables."""
    return [path for pattern in PAGES for path in sorted(folder.glob(pattern))]


def write(folder: Path, records: Records, verdicts: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write the figures and the tables of a checkout; return the pages that changed."""
    if not (folder / "docs").is_dir():
        raise ValueError(f"{folder} has no folder docs: give the root of a checkout.")
    found = summary(records, verdicts)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    (folder / RESULTS).parent.mkdir(exist_ok=True)
    write_public(folder / RESULTS, text.encode())
    changed = []
    for path in pages(folder):
        before = path.read_text(encoding="utf-8")
        after = with_tables(before, json.loads(text))
        if after != before:
            write_public(path, after.encode())
            changed.append(path)
    return changed
