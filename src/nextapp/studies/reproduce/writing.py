"""The report: one HTML page that needs nothing outside itself, beside CSV, JSON and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

from nextapp import __version__
from nextapp.settings import as_toml
from nextapp.storage import write_atomically
from nextapp.studies import drawing
from nextapp.studies.reproduce import claims
from nextapp.studies.reproduce.claims import CANNOT_TELL, CLAIMS, CONFIRMED, NOT_CONFIRMED
from nextapp.studies.reproduce.paper import TITLE
from nextapp.studies.reproduce.plan import PARTS
from nextapp.studies.reproduce.showing import SHOWN
from nextapp.table import csv_text

Records = Mapping[str, Mapping[str, Any]]

_MARK = {CONFIRMED: "✓", NOT_CONFIRMED: "✗", CANNOT_TELL: "?"}
_CLASS = {CONFIRMED: "yes", NOT_CONFIRMED: "no", CANNOT_TELL: "open"}


def verdicts(records: Records) -> list[dict[str, Any]]:
    """A row for every claim whose part was played."""
    rows = []
    for claim in CLAIMS:
        record = records.get(claim.part)
        if record is None or not claim.is_put(record["result"]):
            continue
        finding = claims.judged(claim, record["result"])
        rows.append(
            {
                "claim": claim.name,
                "of_paper": claim.of_paper,
                "words": claim.words,
                "where": claim.where,
                "part": claim.part,
                "rule": claim.rule,
                "verdict": finding.verdict,
                "evidence": finding.evidence,
                "data": "real" if record["result"]["data"]["real"] else "synthetic",
            }
        )
    return rows


def write(folder: Path, records: Records) -> Path:
    """Everything of these parts: report.html, results.json, verdicts.csv, csv/ and figures/."""
    ordered = {name: records[name] for name in PARTS if name in records}
    judged = verdicts(ordered)
    (folder / "csv").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    inline: dict[str, list[str]] = {}
    for name, record in ordered.items():
        inline[name] = []
        if "problem" in record["result"]:
            continue
        shown = SHOWN[record["kind"]]
        _keep(folder / "csv" / f"{name}.csv", csv_text(shown.rows(record)).encode())
        for drawn, figure in shown.figures(record).items():
            with mpl.rc_context(drawing.DRAWN):
                drawing.save(figure, folder / "figures" / drawn)
            inline[name].append(drawing.svg(figure))
    columns = list(judged[0]) if judged else ["claim"]
    rows = [columns, *([row[column] for column in columns] for row in judged)]
    _keep(folder / "verdicts.csv", csv_text(rows).encode())
    everything = {"nextapp": __version__, "verdicts": judged, "parts": ordered}
    _keep(
        folder / "results.json", (json.dumps(everything, indent=1, allow_nan=False) + "\n").encode()
    )
    path = folder / "report.html"
    _keep(path, page(ordered, judged, inline).encode())
    return path


def _keep(path: Path, data: bytes) -> None:
    """Written whole or not at all, and readable by all like other files."""
    write_atomically(path, data)
    path.chmod(0o644)


def page(
    records: Records, judged: Sequence[Mapping[str, Any]], inline: Mapping[str, Sequence[str]]
) -> str:
    """The report as HTML."""
    quick = any(record["quick"] for record in records.values())
    contents = "".join(
        f"<li><a href='#{name}'>{escape(record['title'])}</a></li>"
        for name, record in records.items()
    )
    parts = "".join(_part(record, judged, inline[name]) for name, record in records.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper, reproduced and questioned</title>
<style>{_style()}</style>
</head>
<body>
<main>
<header>
<h1>The paper, reproduced and questioned</h1>
<p class=lead><cite>{escape(TITLE)}</cite>: its tables and figures made anew by nextapp
{escape(__version__)}, its claims judged by the numbers.</p>
{_quick(quick)}
{_data(records)}
</header>
<nav><ol><li><a href="#verdicts">Verdicts</a></li>{contents}
<li><a href="#how">How this was made</a></li></ol></nav>
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


def _style() -> str:
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def _quick(quick: bool) -> str:
    if not quick:
        return ""
    return (
        "<p class=warning>A quick run: few trials and seeds. For figures to quote, run without "
        "<code>--quick</code>.</p>"
    )


def _data(records: Records) -> str:
    said: dict[str, Any] = {}
    for record in records.values():
        data = record["result"]["data"]
        said.setdefault(data["name"], data)
    lines = []
    for name, data in said.items():
        warning = "" if data["real"] else " class=twin"
        size = ", ".join(
            f"{data[key]:,} {key[2:]}" for key in ("n_users", "n_apps", "n_launches") if key in data
        )
        lines.append(
            f"<li{warning}><b>{escape(name)}</b>: {escape(data['said'])} {size and size + '.'}</li>"
        )
    twins = any(not data["real"] for data in said.values())
    note = (
        "<p class=warning>A synthetic twin was fitted so that the simple rivals score as the "
        "paper's tables print them. Agreement of MRU, MFU, SR and SR-od with Tables 1 and 2 "
        "therefore proves little, and what holds for a twin need not hold for the data. Give the "
        "authors' files by <code>--lsapp</code> and <code>--app-usage</code>.</p>"
        if twins
        else ""
    )
    return f"<ul class=data>{''.join(lines)}</ul>{note}"


def _in_short(judged: Sequence[Mapping[str, Any]]) -> str:
    counts = {
        verdict: sum(row["verdict"] == verdict and row["of_paper"] for row in judged)
        for verdict in _MARK
    }
    total = sum(counts.values())
    cells = "".join(
        f"<span class='badge {_CLASS[verdict]}'>{_MARK[verdict]} {count} {verdict}</span> "
        for verdict, count in counts.items()
    )
    return f"<p>Of {total} claims of the paper: {cells}</p>"


def _verdict_table(judged: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for kind, heading in ((True, "Claims of the paper"), (False, "What the paper does not ask")):
        mine = [row for row in judged if row["of_paper"] == kind]
        if mine:
            rows.append(f"<tr class=heading><th colspan=3>{heading}</th></tr>")
        for row in mine:
            words = f"“{escape(row['words'])}”" if kind else escape(row["words"])
            rows.append(
                f"<tr><td>{words}<small>{escape(row['where'])}</small></td>"
                f"<td>{escape(row['evidence'])}<small>rule: {escape(row['rule'])}; "
                f"<a href='#{row['part']}'>{row['part']}</a>, {row['data']}</small></td>"
                f"<td>{_badge(row['verdict'], kind)}</td></tr>"
            )
    return (
        "<table class=verdicts><thead><tr><th>claim</th><th>what the numbers say</th>"
        f"<th>verdict</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _badge(verdict: str, of_paper: bool) -> str:
    word = verdict if of_paper else claims.ANSWERS[verdict]
    return f"<span class='badge {_CLASS[verdict]}'>{_MARK[verdict]} {word}</span>"


def _rules() -> str:
    """The rules, as `claims` states them."""
    before, after = map(escape, claims.ABOUT_RULES)
    rules = "".join(
        f"<dt>{escape(rule.name)}</dt><dd>{escape(rule.words)}</dd>" for rule in claims.RULES
    )
    return (
        f"<details><summary>The rules</summary><p>{before}</p><dl>{rules}</dl><p>{after}</p>"
        f"</details>"
    )


def _part(
    record: Mapping[str, Any], judged: Sequence[Mapping[str, Any]], drawn: Sequence[str]
) -> str:
    name, result = record["part"], record["result"]
    head = f"<section id='{name}'><h2>{escape(record['title'])}</h2>"
    data = result["data"]
    kind = "the data" if data["real"] else "synthetic, not the data"
    head += f"<p class=note>{escape(data['name'])}: {kind}.</p>"
    if "problem" in result:
        why = escape(result["problem"])
        return f"{head}<p class=warning>This could not be measured: {why}</p></section>"
    captioned = ""
    for number, image in enumerate(drawn):
        caption = _caption(name, judged) if number == len(drawn) - 1 else ""
        captioned += f"<figure>{image}{caption}</figure>"
    return f"{head}{captioned}{SHOWN[record['kind']].page(record)}</section>"


def _caption(part: str, judged: Sequence[Mapping[str, Any]]) -> str:
    """The paper's finding and ours."""
    mine = [row for row in judged if row["part"] == part]
    lines = "".join(
        f"<li>{_asked(row)} Here: {escape(row['evidence'])}: "
        f"<b>{row['verdict'] if row['of_paper'] else claims.ANSWERS[row['verdict']]}</b>.</li>"
        for row in mine
    )
    bands = "Bands, where there are any, are 95 % intervals."
    return f"<figcaption>{bands}<ul>{lines}</ul></figcaption>" if lines else ""


def _asked(row: Mapping[str, Any]) -> str:
    words = escape(row["words"])
    return f"The paper: “{words}”." if row["of_paper"] else f"Not asked: {words}"


def _how(records: Records) -> str:
    rows = [
        f"<details><summary>{escape(record['title'])}: seed {record['seed']}, "
        f"{record['seconds']:,.0f} s</summary><pre>{escape(as_toml(record['settings']))}</pre>"
        f"<p class=note>fingerprint {record['fingerprint'][:16]} of settings, data, seed, code "
        f"and libraries</p></details>"
        for record in records.values()
    ]
    versions: dict[str, str] = {}
    for record in records.values():
        versions |= record["versions"]
    libraries = ", ".join(f"{escape(name)} {escape(text)}" for name, text in versions.items())
    total = sum(record["seconds"] for record in records.values())
    return (
        f"<section id=how><h2>How this was made</h2><p><code>nextapp reproduce</code>; "
        f"{libraries}. The parts took {total / 60:.1f} minutes of work together. The same "
        f"numbers stand in <code>results.json</code>, <code>csv/</code> and "
        f"<code>figures/</code> beside this page.</p>{''.join(rows)}</section>"
    )
