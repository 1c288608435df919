"""The report: one self-contained HTML page, with the same results as CSV, JSON and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from nextapp import __version__
from nextapp.settings import as_toml
from nextapp.storage import write_public
from nextapp.studies import plots
from nextapp.studies.reproduce import claims
from nextapp.studies.reproduce.claims import (
    CANNOT_TELL,
    CLAIMS,
    CONFIRMED,
    DEPENDS,
    NOT_CONFIRMED,
    Claim,
)
from nextapp.studies.reproduce.paper import TITLE
from nextapp.studies.reproduce.plan import PARTS
from nextapp.studies.reproduce.showing import SHOWN
from nextapp.table import csv_text

Records = Mapping[str, Mapping[str, Any]]

_MARK = {CONFIRMED: "✓", NOT_CONFIRMED: "✗", CANNOT_TELL: "?"}
_CLASS = {CONFIRMED: "yes", NOT_CONFIRMED: "no", CANNOT_TELL: "open"}
ON_THE_TWIN = "on the twin"
NOT_FITTED = "on the twin, which was not fitted to this"
ON_PHONES = "on synthetic phones"


def verdicts(records: Records) -> list[dict[str, Any]]:
    """One row for every claim and every part that was run for it."""
    return [
        _verdict(claim, record)
        for claim in CLAIMS
        for record in records.values()
        if record["base"] == claim.part and claim.is_put(record["result"])
    ]


def _verdict(claim: Claim, record: Mapping[str, Any]) -> dict[str, Any]:
    finding = claims.judge(claim, record["result"])
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
        "on": _on(data, record["kind"]),
        "evidence": finding.evidence,
        "every": list(finding.every),
        "data": data["name"],
        "kind_of_data": data["kind"],
        "quick": record["quick"],
    }


def _on(data: Mapping[str, Any], kind: str) -> str:
    """The data that the verdict holds for, as shown on its badge."""
    if data["kind"] == "data":
        return f"on {data['name']}"
    if data["kind"] == "log":
        return f"on the log {data['name']}"
    if data["kind"] == "made":
        return ON_PHONES
    return ON_THE_TWIN if kind in claims.FITTED else NOT_FITTED


def write(folder: Path, records: Records) -> Path:
    """Write report.html, results.json, verdicts.csv, csv/ and figures/ of these parts."""
    order = list(PARTS)
    ordered = dict(sorted(records.items(), key=lambda item: order.index(item[1]["base"])))
    judged = verdicts(ordered)
    (folder / "csv").mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    inline: dict[str, list[str]] = {}
    for name, record in ordered.items():
        inline[name] = []
        if "problem" in record["result"]:
            continue
        shown = SHOWN[record["kind"]]
        write_public(folder / "csv" / f"{name}.csv", csv_text(shown.rows(record)).encode())
        for drawn, figure in shown.figures(record).items():
            plots.footnote(figure, _small_print(record))
            plots.save(figure, folder / "figures" / drawn)
            inline[name].append(plots.svg(figure))
    columns = [name for name in judged[0] if name != "every"] if judged else ["claim"]
    rows = [columns, *([row[column] for column in columns] for row in judged)]
    write_public(folder / "verdicts.csv", csv_text(rows).encode())
    everything = {"nextapp": __version__, "verdicts": judged, "parts": ordered}
    write_public(
        folder / "results.json", (json.dumps(everything, indent=1, allow_nan=False) + "\n").encode()
    )
    path = folder / "report.html"
    write_public(path, page(ordered, judged, inline).encode())
    return path


def page(
    records: Records, judged: Sequence[Mapping[str, Any]], inline: Mapping[str, Sequence[str]]
) -> str:
    """The report as HTML."""
    contents = _contents(records)
    logs = _on_logs(judged)
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
<p class=lead><cite>{escape(TITLE)}</cite>: its tables and figures reproduced with nextapp
{escape(__version__)}, and a verdict on each of its claims.</p>
{_quick(records)}
{_data(records)}
</header>
<nav><ul><li><a href="#verdicts">Verdicts</a></li>{contents}
<li><a href="#how">How this was made</a></li></ul></nav>
<section id="verdicts">
<h2>Verdicts</h2>
{_in_short(judged)}
{_verdict_table(judged)}
{logs}
{_rules()}
</section>
{parts}
{_how(records)}
</main>
</body>
</html>
"""


def _contents(records: Records) -> str:
    """A line for every part, with links to the same part on other logs."""
    by_base: dict[str, list[str]] = {}
    for name, record in records.items():
        is_log = record["result"]["data"]["kind"] == "log" and record["base"] in by_base
        words = record["result"]["data"]["name"] if is_log else record["title"]
        by_base.setdefault(record["base"], []).append(f"<a href='#{name}'>{escape(words)}</a>")
    lines = []
    for first, *others in by_base.values():
        beside = f" ({', '.join(others)})" if others else ""
        lines.append(f"<li>{first}{beside}</li>")
    return "".join(lines)


def _style() -> str:
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def _quick(records: Records) -> str:
    """A warning, if some or all of the parts were quick."""
    quick = [record for record in records.values() if record["quick"]]
    if not quick:
        return ""
    what, option = "A quick run", "--quick"
    if len(quick) < len(records) and all(
        record["result"]["data"]["kind"] == "log" for record in quick
    ):
        what, option = "The parts on other logs are from a quick run", "--quick-logs"
    return (
        f"<p class=warning>{what}: few trials and seeds. For figures to quote, run without "
        f"<code>{option}</code>.</p>"
    )


def _data(records: Records) -> str:
    sources: dict[str, Any] = {}
    for record in records.values():
        data = record["result"]["data"]
        sources.setdefault(data["name"], data)
    lines = []
    for name, data in sources.items():
        warning = "" if data["real"] else " class=twin"
        size = ", ".join(
            f"{data[key]:,} {key[2:]}" for key in ("n_users", "n_apps", "n_launches") if key in data
        )
        lines.append(
            f"<li{warning}><b>{escape(name)}</b>: {escape(data['said'])} {size and size + '.'}</li>"
        )
    twins = any(data["kind"] == "twin" for data in sources.values())
    note = (
        "<p class=warning>A synthetic twin was fitted so that the simple rivals score as printed "
        "in the paper's tables. Agreement of MRU, MFU, SR and SR-od with Tables 1 and 2 is "
        "therefore no evidence. A twin can replace the data for static hit rates only: verdicts "
        "on the dynamic environment and on privacy are marked as not fitted. To use the authors' "
        "files, give <code>--lsapp</code> and <code>--app-usage</code>; for any other launch log, "
        "<code>--log</code>.</p>"
        if twins
        else ""
    )
    return f"<ul class=data>{''.join(lines)}</ul>{note}"


def _in_short(judged: Sequence[Mapping[str, Any]]) -> str:
    mine = [row for row in judged if row["of_paper"] and row["kind_of_data"] != "log"]
    counts = {verdict: sum(row["verdict"] == verdict for row in mine) for verdict in _MARK}
    total = len(mine)
    cells = "".join(
        f"<span class='badge {_CLASS[verdict]}'>{_MARK[verdict]} {count} {verdict}</span> "
        for verdict, count in counts.items()
        if count
    )
    turned = sum(bool(row["opposed"]) for row in mine)
    cells += f"<span class='badge depends'>± {turned} of them: {DEPENDS}</span>" if turned else ""
    kinds = {row["kind_of_data"] for row in mine}
    where = "" if "twin" not in kinds else " (on a synthetic twin where the data were not given)"
    return f"<p>Of {total} claims of the paper{where}: {cells}</p>"


def _verdict_table(judged: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for kind, heading in ((True, "Claims of the paper"), (False, "Our own questions")):
        mine = [row for row in judged if row["of_paper"] == kind and row["kind_of_data"] != "log"]
        if mine:
            rows.append(f"<tr class=heading><th colspan=3>{heading}</th></tr>")
        for row in mine:
            words = f"“{escape(row['words'])}”" if kind else escape(row["words"])
            rows.append(
                f"<tr><td>{words}<small>{escape(row['where'])}</small></td>"
                f"<td>{_evidence(row)}</td><td>{_badge(row)}</td></tr>"
            )
    return (
        "<table class=verdicts><thead><tr><th>claim</th><th>result</th>"
        f"<th>verdict</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _evidence(row: Mapping[str, Any]) -> str:
    every = "".join(f"<li>{escape(figure)}</li>" for figure in row["every"])
    more = f"<details><summary>all figures</summary><ul>{every}</ul></details>" if every else ""
    quick = " from a quick run," if row["quick"] else ""
    turned = f"<p class=turned>But {escape(row['opposed'])}.</p>" if row["opposed"] else ""
    return (
        f"{escape(row['evidence'])}{turned}{more}<small>rule: {escape(row['rule'])};{quick} "
        f"<a href='#{row['part']}'>{escape(row['part'])}</a></small>"
    )


def _on_logs(judged: Sequence[Mapping[str, Any]]) -> str:
    """The same questions on the other logs: one row per question, one column per log."""
    mine = [row for row in judged if row["kind_of_data"] == "log"]
    if not mine:
        return ""
    logs = list(dict.fromkeys(row["data"] for row in mine))
    by_claim: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in mine:
        by_claim.setdefault(row["claim"], {})[row["data"]] = row
    body = []
    for found in by_claim.values():
        first = next(iter(found.values()))
        words = escape(first["words"])
        question = f"“{words}”" if first["of_paper"] else words
        cells = "".join(
            f"<td>{_badge(found[log], short=True)}<details><summary>figures</summary>"
            f"{_evidence(found[log])}</details></td>"
            if log in found
            else "<td></td>"
            for log in logs
        )
        body.append(f"<tr><td>{question}<small>{escape(first['claim'])}</small></td>{cells}</tr>")
    heads = "".join(f"<th>{escape(log)}</th>" for log in logs)
    return (
        "<h3>The same questions on other logs</h3><p class=note>These logs are not the paper's "
        "data: a verdict holds for that log only. The questions about App Usage are those about "
        "LSApp with another ε and another catalogue, so they are not repeated here.</p>"
        f"<div class=wide><table class='verdicts logs'><thead><tr><th>claim</th>{heads}</tr>"
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _badge(row: Mapping[str, Any], *, short: bool = False) -> str:
    verdict = row["verdict"]
    on = "" if short else f", {row['on']}"
    words = escape(f"{claims.verdict_words(row)}{on}")
    turned = " depends" if row["opposed"] else ""
    return f"<span class='badge {_CLASS[verdict]}{turned}'>{_MARK[verdict]} {words}</span>"


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


def _small_print(record: Mapping[str, Any]) -> str:
    """A note for every figure, which stays with it outside the report."""
    data = record["result"]["data"]
    quick = f"; quick run{_smaller(record)}, do not quote" if record["quick"] else ""
    return f"{data['name']}: {_KINDS[data['kind']]}{quick}"


def _smaller(record: Mapping[str, Any]) -> str:
    """What a quick part changes in the model itself."""
    changed = record["settings"].get("seqmf", {}) if record["quick"] else {}
    return "".join(f" with {key} = {value}" for key, value in changed.items())


def _part(
    record: Mapping[str, Any], judged: Sequence[Mapping[str, Any]], drawn: Sequence[str]
) -> str:
    name, result = record["part"], record["result"]
    head = f"<section id='{name}'><h2>{escape(record['title'])}</h2>"
    data = result["data"]
    head += f"<p class=note>{escape(data['name'])}: {_KINDS[data['kind']]}.</p>"
    if record["quick"]:
        head += f"<p class=quick>{_quick_words(record)}</p>"
    if "problem" in result:
        why = escape(result["problem"])
        return f"{head}<p class=warning>This could not be measured: {why}</p></section>"
    captioned = ""
    for number, image in enumerate(drawn):
        caption = _caption(record, judged) if number == len(drawn) - 1 else ""
        captioned += f"<figure>{image}{caption}</figure>"
    return f"{head}{captioned}{SHOWN[record['kind']].page(record)}</section>"


_KINDS = {
    "data": "the paper's data",
    "twin": "a synthetic twin, not the paper's data",
    "log": "a log given by --log, not the paper's data",
    "made": "synthetic phones, not data of people",
}


def _quick_words(record: Mapping[str, Any]) -> str:
    what = f"few trials and seeds{_smaller(record).replace(' with', ', and')}"
    return f"Quick run with {what}: do not quote these figures."


def _caption(record: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]) -> str:
    """The paper's claims about this part, our questions, and the verdicts."""
    mine = [row for row in judged if row["part"] == record["part"]]
    lines = "".join(
        f"<li>{_question_cell(row)} Here: {escape(row['evidence'])}: {_badge(row)}"
        f"{escape(row['opposed'] and ' But ' + row['opposed'] + '.')}</li>"
        for row in mine
    )
    quick = f"<b>{_quick_words(record)}</b> " if record["quick"] else ""
    bands = "Bars and bands, if any, are 95 % intervals."
    return f"<figcaption>{quick}{bands}<ul>{lines}</ul></figcaption>" if lines else ""


def _question_cell(row: Mapping[str, Any]) -> str:
    words = escape(row["words"])
    return f"The paper: “{words}”." if row["of_paper"] else f"Our question: {words}"


def _how(records: Records) -> str:
    rows = [
        f"<details><summary>{escape(record['title'])}: seed {record['seed']}, "
        f"{record['seconds']:,.0f} s, {record['processor_seconds']:,.0f} s of processor "
        f"time</summary><pre>{escape(as_toml(record['settings']))}</pre>"
        f"<p class=note>fingerprint of settings, data, seed, code and libraries: "
        f"{record['fingerprint'][:16]}</p></details>"
        for record in records.values()
    ]
    versions: dict[str, str] = {}
    for record in records.values():
        versions |= record["versions"]
    libraries = ", ".join(f"{escape(name)} {escape(text)}" for name, text in versions.items())
    total = sum(record["processor_seconds"] for record in records.values())
    return (
        f"<section id=how><h2>How this was made</h2><p><code>nextapp reproduce</code>; "
        f"{libraries}. All parts together took {total / 60:.1f} minutes of processor time. The "
        f"same numbers are in <code>results.json</code>, <code>csv/</code> and "
        f"<code>figures/</code> next to this page.</p>{''.join(rows)}</section>"
    )
