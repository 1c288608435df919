"""The report: one self-contained HTML page, with the same results as CSV, JSON and figures."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nextapp import __version__, plots
from nextapp.evaluation import METRICS
from nextapp.evaluation.static import NOT_RANKED
from nextapp.plots import label
from nextapp.storage import write_public
from nextapp.studies.mechanisms import FORMS
from nextapp.studies.reproduce import claims
from nextapp.studies.reproduce.claims import (
    CANNOT_TELL,
    CLAIMS,
    CONFIRMED,
    DEPENDS,
    NO_GAIN,
    NOT_CONFIRMED,
    QUICK,
    Claim,
    digits_to_judge,
)
from nextapp.studies.reproduce.plan import HONEST, PARTS
from nextapp.studies.reproduce.rows import TITLE, Row, is_long, rows_of
from nextapp.table import FEWEST, Column, Mark, Measured, Table, as_measured, csv_text, number

Record = Mapping[str, Any]
Records = Mapping[str, Record]
Verdict = Mapping[str, Any]

MARK = {CONFIRMED: "✓", NOT_CONFIRMED: "✗", CANNOT_TELL: "?", NO_GAIN: "∅", QUICK: "·"}
_CLASS = {CONFIRMED: "yes", NOT_CONFIRMED: "no"}
_KINDS = {
    "data": "the paper's data",
    "twin": "a synthetic twin, not the paper's data",
    "log": "a log given by --log, not the paper's data",
    "made": "synthetic phones, not data of people",
}


KINDS = ("people with clocks", "twin", "synthetic phones", "people without clocks")
UNBOUNDED = "that of QHarmony, which bounds nothing, is what the paper promises"
FEW_USERS = (
    f"Intervals are over users; with fewer than {FEWEST} over their days or cycles, and of new "
    f"phones over these."
)


def verdicts(records: Records) -> list[dict[str, Any]]:
    """One row for every claim and every part that was run for it; people with clocks first."""
    logs = sorted(_with_clocks(records), key=lambda record: KINDS.index(_people(record)))
    return [
        _verdict(claim, record)
        for claim in CLAIMS
        for record in logs
        if record["base"] == claim.part and claim.is_put(record["result"])
    ]


def _with_clocks(records: Records) -> list[Record]:
    """The records; a part that does not look at times has the clock of its log from the others."""
    sources = [record["result"]["data"] for record in records.values()]
    clocks = {data["name"]: data["clock"] for data in sources if "clock" in data}
    return [
        {**record, "result": {**record["result"], "data": {"clock": clocks.get(data["name"], True),
                                                           **data}}}
        for record, data in zip(records.values(), sources, strict=True)
    ]  # fmt: skip


def _verdict(claim: Claim, record: Record) -> dict[str, Any]:
    finding = claims.judge(claim, record["result"], quick=record["quick"])
    data = record["result"]["data"]
    return {
        "claim": claim.name,
        "of_paper": claim.of_paper,
        "words": claim.words,
        "where": claim.where,
        "part": record["part"],
        "rule": claim.rule,
        "verdict": finding.verdict,
        "opposed": finding.opposed,
        "decides": finding.decides,
        "settings": {name: list(found) for name, found in finding.settings.items()},
        "n_users": finding.n_users,
        "of_users": data.get("n_users") if record["kind"] in ("dynamic", "windows") else None,
        "spent": claims.spent(claim, record["result"]),
        "data": data["name"],
        "kind_of_data": data["kind"],
        "people": _people(record),
        "quick": record["quick"],
    }


def _people(record: Record) -> str:
    """Whose launches they are."""
    data = record["result"]["data"]
    if data["kind"] in ("data", "log"):
        return "people with clocks" if data.get("clock", True) else "people without clocks"
    return "twin" if data["kind"] == "twin" else "synthetic phones"


def write(folder: Path, records: Records) -> Path:
    """Write report.html, results.json, verdicts.csv, csv/ and figures/ of these parts."""
    order = list(PARTS)
    ordered = dict(sorted(records.items(), key=lambda item: order.index(item[1]["base"])))
    judged = verdicts(ordered)
    (folder / "csv").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    drawings: dict[str, str] = {}
    for name, record in ordered.items():
        rows = [("part", *Row._fields), *((name, *row) for row in rows_of(record))]
        write_public(folder / "csv" / f"{name}.csv", csv_text(rows).encode())
        figure = figure_of(record)
        if figure is not None:
            plots.footnote(figure, _small_print(record))
            plots.save(figure, folder / "figures" / name)
            drawings[name] = plots.svg(figure)
    columns = [name for name in judged[0] if name != "settings"] if judged else ["claim"]
    table = [columns, *([row[column] for column in columns] for row in judged)]
    write_public(folder / "verdicts.csv", csv_text(table).encode())
    everything = {"nextapp": __version__, "verdicts": judged, "parts": ordered}
    text = json.dumps(everything, indent=1, allow_nan=False) + "\n"
    write_public(folder / "results.json", text.encode())
    path = folder / "report.html"
    write_public(path, page(ordered, judged, drawings).encode())
    return path


def figure_of(record: Record) -> Figure | None:
    """The figure of a part, if it has one."""
    draw, result = _FIGURES.get(record["kind"]), record["result"]
    return None if draw is None or "problem" in result else draw(result)


_FIGURES: Mapping[str, Callable[[Mapping[str, Any]], Figure]] = {
    "activity": lambda result: plots.activity(
        {"day": result["by_day"], "cycle": result["by_cycle"]}
    ),
    "dynamic": plots.in_cycles,
    "phones": plots.phones_needed,
    "new-phones": lambda result: plots.new_phones({**result, "data": result["about"]}),
}


# --- tables -----------------------------------------------------------------------------------


class _Difference(Column):
    """A column of differences, each with as many digits as its interval needs to be judged."""

    def html(self, value: Any, mark: Mark) -> str:
        return self._for(value).html(value, mark)

    def text(self, value: Any) -> str:
        return self._for(value).text(value)

    def _for(self, value: Any) -> Column:
        found = as_measured(value)
        digits = 3
        if found.low is not None and found.high is not None:
            digits = digits_to_judge(found.low, found.high)
        return Column(self.heading, "interval", digits, "signed")


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """The tables of a part: a row per series, a column per figure."""
    titles = dict.fromkeys(row.table for row in rows if not is_long(row.table))
    return [_pivot(title, [row for row in rows if row.table == title]) for title in titles]


def _pivot(title: str, rows: Sequence[Row]) -> Table:
    n_users = max((row.n_users or 0 for row in rows), default=0)
    cells = {(row.series, row.figure, row.at): _cell(row) for row in rows}
    columns = dict.fromkeys((row.figure, row.at) for row in rows)
    is_ranked = len({row.figure for row in rows} & set(METRICS)) == len(METRICS)
    return Table(
        [
            Column("", "name"),
            *(column_of(figure, at, is_ranked=is_ranked) for figure, at in columns),
        ],
        [
            [label(series), *(cells.get((series, *column)) for column in columns)]
            for series in dict.fromkeys(row.series for row in rows)
        ],
        title=f"{title} ({n_users:,} users)" if n_users else title,
        unranked=[label(name) for name in NOT_RANKED],
    )


def _cell(row: Row) -> Any:
    if row.mean is None or isinstance(row.mean, str):
        return row.mean
    printed = "" if row.paper is None else number(row.paper)
    return Measured(row.mean, row.low, row.high, printed)


_COUNTS = ("launches", "users", "sessions", "predictions", "days")


def column_of(figure: str, at: str | int = "", *, is_ranked: bool = False) -> Column:
    """The column of a figure, whose name says what it is: a difference, a budget, a count …"""
    heading = f"{at:,}" if isinstance(at, int) else figure
    if " − " in figure or figure.startswith("gain"):
        return _Difference(heading)
    if figure.startswith("share"):
        return Column(heading, "interval", digits=0, form="percent")
    if figure.endswith("bytes") or figure in _COUNTS:
        return Column(heading, form="count")
    if "ε" in figure:
        return Column(heading, form="general")
    if figure in ("promise", "protected", "sent in the clear"):
        return Column(heading, "text")
    return Column(heading, "interval", between="–", ranked=is_ranked)


# --- the page ---------------------------------------------------------------------------------


def page(records: Records, judged: Sequence[Verdict], drawings: Mapping[str, str]) -> str:
    """The report as HTML."""
    parts = "".join(_part(record, drawings.get(name, "")) for name, record in records.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper, reproduced and questioned</title>
<style>{(Path(__file__).parent / "report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
<header>
<h1>The paper, reproduced and questioned</h1>
<p class=lead><cite>{escape(TITLE)}</cite>: its tables and figures reproduced with nextapp
{escape(__version__)}, and a verdict on each of its claims.</p>
{_quick(records)}
{_data(records)}
</header>
<nav><ul><li><a href="#verdicts">Verdicts</a></li>{_contents(records)}
<li><a href="#how">How this was made</a></li></ul></nav>
<section id="verdicts">
<h2>Verdicts</h2>
{_in_short(judged)}
{_verdict_table(judged)}
{_rules()}
</section>
{parts}
{_how(records)}
</main>
</body>
</html>
"""


def _contents(records: Records) -> str:
    links = (
        f"<a href='#{name}'>{name}</a>"
        for name, row in records.items()
        if row["result"]["data"]["kind"] != "log"
    )
    return "".join(f"<li>{link}</li>" for link in links)


def _quick(records: Records) -> str:
    """A warning, if some or all of the parts were quick."""
    quick = [record["result"]["data"]["kind"] for record in records.values() if record["quick"]]
    if not quick:
        return ""
    only_logs = len(quick) < len(records) and set(quick) == {"log"}
    what = "The parts on other logs are from a quick run" if only_logs else "A quick run"
    return f"<p class=warning>{what}: few trials and seeds, not figures to quote.</p>"


def _data(records: Records) -> str:
    """What every part was measured on; a warning where twins stand in for data."""
    found = [record["result"]["data"] for record in _with_clocks(records)]
    sources = {data["name"]: data for data in sorted(found, key=len)}  # that with most counts
    lines = []
    for name, data in sources.items():
        warning = "" if data["real"] else " class=twin"
        counts = [key for key in ("n_users", "n_apps", "n_launches") if key in data]
        size = ", ".join(f"{data[key]:,} {key[2:]}" for key in counts)
        words = f"{data['said']} {size}." if size else data["said"]
        if not data.get("clock", True):
            words += (
                " Its times are made up: only the order of launches, and perhaps the day, is real. "
                "All that rests on sessions of 15 minutes, S_u and the means over sessions, rests "
                "on us."
            )
        lines.append(f"<li{warning}><b>{escape(name)}</b>: {escape(words)}</li>")
    is_twin = any(data["kind"] == "twin" for data in sources.values())
    note = (
        "<p class=warning>A synthetic twin was fitted so that the simple rivals score as printed "
        "in Tables 1 and 2, that of LSApp also so that its people's changes from app to app have "
        "their shares and symmetry: that they do is no evidence. For the authors' "
        "files: <code>--lsapp</code>, <code>--app-usage</code>.</p>"
    )
    return f"<ul class=data>{''.join(lines)}</ul>{note if is_twin else ''}"


def _in_short(judged: Sequence[Verdict]) -> str:
    """How many claims of the paper have each verdict, on each kind of data."""
    lines = []
    for people in dict.fromkeys(row["people"] for row in judged if row["of_paper"]):
        mine = [row for row in judged if row["of_paper"] and row["people"] == people]
        cells = ""
        for verdict, mark in MARK.items():
            if count := sum(row["verdict"] == verdict for row in mine):
                style = _CLASS.get(verdict, "open")
                cells += f"<span class='badge {style}'>{mark} {count} {verdict}</span> "
        if turned := sum(bool(row["opposed"]) for row in mine):
            cells += f"<span class='badge depends'>± {turned} of them: {DEPENDS}</span>"
        lines.append(f"<p>{len(mine)} verdicts on claims of the paper, {people}: {cells}</p>")
    legend = "; ".join(f"{mark} {verdict}" for verdict, mark in MARK.items())
    legend += f"; ± {DEPENDS}. Differences are in HR@5 unless another metric is named. "
    legend += "12/17: 12 of 17 users, in the fullest cycle. "
    legend += f"ε per report × reports = total of a phone; {UNBOUNDED}. {FEW_USERS}"
    return f"{''.join(lines)}<p class=note>{legend}</p>"


def _verdict_table(judged: Sequence[Verdict]) -> str:
    """A row per claim or question, with its verdict on every data set."""
    by_words: dict[str, list[Verdict]] = {}
    for row in judged:
        by_words.setdefault(row["words"], []).append(row)
    body, heading = "", ""
    for mine in by_words.values():
        first = mine[0]
        where = "; ".join(dict.fromkeys(row["where"] for row in mine))
        usual = statistics.mode(map(_compared, mine))
        rules = "; ".join(dict.fromkeys(row["rule"] for row in mine))
        before, heading = heading, "Claims of the paper" if first["of_paper"] else "Our questions"
        if heading != before:
            body += f"<tr class=heading><th colspan=2>{heading}</th></tr>"
        body += (
            f"<tr id='{first['claim']}'><td title='Rule: {escape(rules)}'>"
            f"{_question(first)}<small>{escape(where)}</small><small>{escape(usual)}</small></td>"
            f"<td>{''.join(_evidence(row, usual) for row in mine)}</td></tr>"
        )
    return (
        "<table class=verdicts><thead><tr><th>claim</th><th>verdict, data, and the difference "
        f"that decides</th></tr></thead><tbody>{body}</tbody></table>"
    )


def _question(row: Verdict) -> str:
    return f"“{escape(row['words'])}”" if row["of_paper"] else escape(row["words"])


_FIGURE = re.compile(r" (?=[+-]?[\d.]+ \()")  # the blank before a figure with its interval


def _compared(row: Verdict) -> str:
    """What the figure that decides compares; empty if it compares nothing."""
    what, *figure = _FIGURE.split(row["decides"].replace(", HR@5", ""), maxsplit=1)
    return what if figure else ""


def _evidence(row: Verdict, usual: str) -> str:
    """One line: the verdict, the data, the number of users, the difference and the ε spent.

    What is compared stands there only if it is not the `usual`, which stands with the claim.
    """
    who = _WHO[row["people"]]
    if row["n_users"] and row["people"] != "twin":
        of_all = f"/{row['of_users']:,}" if row["of_users"] else ""
        who = f"{row['n_users']:,}{of_all} {who}"
    turned = f"; but {row['opposed']}" if row["opposed"] else ""
    spent = f"; ε {row['spent']}" if row["spent"] else ""
    decides = row["decides"].replace(", HR@5", "").removeprefix(f"{usual} ")
    where = f"<a href='#{row['part']}'>{escape(row['data'])}</a> ({who})"
    return f"<p>{_badge(row)} {where}: {escape(decides + spent + turned)}</p>"


_WHO = {
    "people with clocks": "people",
    "people without clocks": "people, times made up",
    "twin": "twin",
    "synthetic phones": "synthetic",
}


def _badge(row: Verdict) -> str:
    verdict, turned = row["verdict"], " depends" if row["opposed"] else ""
    mark = f"{MARK[verdict]}±" if turned else MARK[verdict]
    words = escape(claims.verdict_words(row))
    style = _CLASS.get(verdict, "open")
    return f"<span class='badge {style}{turned}' title='{words}'>{mark}</span>"


def _rules() -> str:
    """The rules of `claims`."""
    before, *after = map(escape, claims.ABOUT_RULES)
    rules = "".join(
        f"<dt>{escape(rule.name)}</dt><dd>{escape(rule.words)}</dd>" for rule in claims.RULES
    )
    return (
        f"<details><summary>The rules</summary><p>{before}</p><dl>{rules}</dl>"
        f"{''.join(f'<p>{paragraph}</p>' for paragraph in after)}</details>"
    )


def _small_print(record: Record) -> str:
    """A note for every figure, which stays with it outside the report."""
    data, model = record["result"]["data"], record["settings"].get("seqmf", {})
    smaller = "".join(f" with {key} = {value}" for key, value in model.items())
    quick = f"; quick run{smaller}, do not quote" if record["quick"] else ""
    return f"{data['name']}: {_KINDS[data['kind']]}{quick}"


_MAIN_TABLES = {"static": "preset authors", "dynamic": "mean over cycles", "phones": "answers",
                "readings": "models"}  # fmt: skip


def _part(record: Record, drawn: str) -> str:
    """A section with the part's figure and main tables; of another log only the figure."""
    name, result = record["part"], record["result"]
    figure = f"<figure>{drawn}</figure>" if drawn else ""
    small_print, is_log = "", result["data"]["kind"] == "log"
    title = f"<h3>{escape(result['data']['name'])}</h3>" if is_log else ""
    title = title or f"<h2>{escape(record['title'])}</h2>"
    if record["quick"] or not is_log:
        style = "quick" if record["quick"] else "note"
        small_print = f"<p class={style}>{escape(_small_print(record))}.</p>"
    if "problem" in result:
        why = escape(result["problem"])
        figure = f"<p class=warning>This could not be measured: {why}</p>"
    elif not is_log:
        notes = (record["about"], *result.get("notes", ()))
        figure = "".join(f"<p>{escape(words)}</p>" for words in notes if words) + figure
        tables = "".join(
            f"<h3>{escape(table.title)}</h3><div class=wide>{table.html('figures')}</div>"
            for table in tables_of(rows_of(record))
            if table.title.startswith(_MAIN_TABLES.get(record["kind"], ""))
            and not name.endswith(HONEST)
        )
        if tables:
            reading = f"<p class=note>{escape(_reading(record))}</p>"
            figure += f"<details><summary>Tables</summary>{tables}{reading}</details>"
    return f"<section id='{name}'>{title}{small_print}{figure}</section>"


def _reading(record: Record) -> str:
    """How the tables are to be read."""
    result = record["result"]
    if record["kind"] == "static":
        intervals = next(iter(result["presets"].values()))["intervals"]
        return (
            "Best in bold, second best underlined; below each value its interval "
            f"({intervals}; for MF and SeqMF over tunings too), and in italics the paper's. The "
            "controls and the ceiling, in italics, are not ranked: 'Q frozen' is SeqMF with Q at "
            "its random start; the ceiling knows the odds behind synthetic phones."
        )
    mean = "Mean over cycles. " if record["kind"] == "dynamic" else ""
    return f"{mean}Intervals: {result['intervals']}." if "intervals" in result else ""


def _names(records: Records) -> str:
    """What the names of mechanisms mean."""
    used = dict.fromkeys(
        name for record in records.values() for name in record["result"].get("series", ())
    )
    lines = [f"<dt>{escape(label(name))}</dt><dd>{escape(FORMS[name].words)}</dd>"
             for name in used if name in FORMS and FORMS[name].words]  # fmt: skip
    return f"<details><summary>Names</summary><dl>{''.join(lines)}</dl></details>" if lines else ""


def _how(records: Records) -> str:
    versions: dict[str, str] = {}
    for record in records.values():
        versions |= record["versions"]
    libraries = ", ".join(f"{escape(name)} {escape(text)}" for name, text in versions.items())
    total = sum(record["processor_seconds"] for record in records.values())
    return (
        f"<section id=how><h2>How this was made</h2><p><code>nextapp reproduce</code>; "
        f"{libraries}. All parts together took {total / 60:.1f} minutes of processor time. "
        f"All figures, settings and seeds are in <code>results.json</code>, <code>csv/</code> and "
        f"<code>figures/</code> next to this page.</p>{_names(records)}</section>"
    )
