"""What each kind of part looks like: its figures, its piece of the page, its rows for a CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from nextapp.evaluation import METRICS
from nextapp.studies import plots
from nextapp.studies.reproduce import figures
from nextapp.studies.reproduce.paper import printed
from nextapp.studies.settings import CEILING

Record = Mapping[str, Any]
Rows = Iterator[tuple[Any, ...]]

COUNTED = {
    "authors": "counted as the paper's authors did (preset authors), to compare with its table",
    "honest": "counted as a phone would see it (preset honest): candidates are the apps launched "
    "so far, anything else is a miss",
    "paper": "counted as the paper's text says (preset paper)",
}

_CEILING = (
    " ceiling is no rival and not ranked: it knows the odds by which the synthetic phones draw, so "
    "nobody can be above it but by luck."
)


class Shown(NamedTuple):
    """``figures`` by name, drawn when asked; ``page`` is HTML; ``rows`` begin with a header."""

    figures: Callable[[Record], dict[str, Figure]]
    page: Callable[[Record], str]
    rows: Callable[[Record], Rows]


def number(value: float | None, digits: int = 3) -> str:
    """A share without its leading zero, as the paper prints it.

    >>> number(0.5), number(1.0), number(None)
    ('.500', '1.000', '–')
    """
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


# --- static environment -----------------------------------------------------------------------


def _table(record: Record) -> str:
    pieces = []
    for preset, found in record["result"]["presets"].items():
        pieces.append(
            f"<h3>{escape(COUNTED[preset])}</h3><p>{found['n_predictions']:,} predictions in "
            f"{found['n_sessions']:,} sessions of <b>{found['n_users']:,} test users</b>; split "
            f"{escape(found['split'])}; {found['repeat_share']:.0%} of the targets repeat the "
            f"launch before. {_few(found['n_users'])}</p>"
        )
        pieces.append(_metrics_table(record["part"], preset, found))
        pieces.append(_chosen(found))
    return "".join(pieces)


def _few(n_users: int) -> str:
    if n_users >= 100:
        return ""
    return "With so few users, differences of a few hundredths are within noise."


def _metrics_table(part: str, preset: str, found: Mapping[str, Any]) -> str:
    models = found["models"]
    head = "".join(f"<th>{metric}</th>" for metric in METRICS)
    rows = []
    for name, row in models.items():
        paper = printed(part, name) if preset == "authors" else None
        cells = []
        for metric in METRICS:
            above = {
                other[metric]
                for rival, other in models.items()
                if rival != CEILING and other[metric] > row[metric]
            }
            tag = {0: "b", 1: "u"}.get(len(above), "span") if name != CEILING else "i"
            low, high = row["ci95"][metric]
            cell = (
                f"<{tag}>{number(row[metric])}</{tag}><small>{number(low)}–{number(high)}</small>"
            )
            if preset == "authors":
                cell += f"<small class=paper>{number(paper[metric]) if paper else '–'}</small>"
            cells.append(f"<td>{cell}</td>")
        rows.append(f"<tr><th scope=row>{escape(name)}</th>{''.join(cells)}</tr>")
    legend = "Best bold, second underlined; below it the 95 % interval over users"
    if preset == "authors":
        legend += "; last, in italics, what the paper prints"
    return (
        f"<div class=wide><table class=figures><thead><tr><th>model</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div><p class=note>{legend}. seqmf-frozen is "
        f"seqmf with Q left at its random start; seqmf-authors has the settings that the paper's "
        f"authors chose for LSApp.{_CEILING if CEILING in models else ''}</p>"
    )


def _chosen(found: Mapping[str, Any]) -> str:
    lines = []
    for model in ("mf", "seqmf"):
        tuning = found["tuning"][model]
        settings = ", ".join(f"{key} = {_short(v)}" for key, v in found["settings"][model].items())
        lines.append(
            f"<li>{model}: {escape(settings)} (HR@5 {number(tuning['HR@5'])} on the validation "
            f"part, best of {tuning['trials']} trials)</li>"
        )
    summary = "<summary>Settings chosen on the validation part</summary>"
    return f"<details>{summary}<ul>{''.join(lines)}</ul></details>"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table_rows(record: Record) -> Rows:
    yield "part", "preset", "model", "metric", "value", "low", "high", "n_users", "paper"
    for preset, found in record["result"]["presets"].items():
        for name, row in found["models"].items():
            paper = printed(record["part"], name) or {}
            for metric in METRICS:
                yield (
                    record["part"], preset, name, metric, row[metric], *row["ci95"][metric],
                    found["n_users"], paper.get(metric, ""),
                )  # fmt: skip


# --- activity ---------------------------------------------------------------------------------


def _activity_page(record: Record) -> str:
    found = record["result"]["description"]
    return (
        f"<p>{escape(found['from'])} to {escape(found['to'])}: {found['n_days']:,} days, "
        f"{found['n_sessions']:,} sessions, {found['sessions_per_user']['mean']:.0f} a user on "
        f"average; {found['repeat_share']:.0%} of the launches within sessions repeat the one "
        f"before. Cut into {len(record['result']['by_cycle']['n_users'])} cycles "
        f"({escape(record['result']['cycles'])}); every user's order is kept.</p>"
    )


def _activity_rows(record: Record) -> Rows:
    yield "part", "by", "number", "n_users", "n_launches"
    for key in ("by_day", "by_cycle"):
        found = record["result"][key]
        counts = zip(found["n_users"], found["n_launches"], strict=True)
        for place, (n_users, n_launches) in enumerate(counts, 1):
            yield record["part"], key[3:], place, n_users, n_launches


# --- dynamic environment ----------------------------------------------------------------------


def _dynamic_figures(record: Record) -> dict[str, Figure]:
    result = record["result"]
    unit = "day" if result["settings"]["cycles"] == "days" else "cycle"
    drawn = {record["part"]: figures.in_cycles(result, unit=unit)}
    names = list(result["series"])
    references = [name for name in ("none", "frozen") if name in names] or [
        name for name in ("sr-od",) if name in names
    ]
    if references and len(names) > len(references):
        drawn[f"{record['part']}-means"] = figures.contrasts(result, references)
    return drawn


def _dynamic_page(record: Record) -> str:
    result = record["result"]
    settings = result["settings"]
    cycles = result["cycles"]
    asked = [cycle["n_users_asked"] for cycle in cycles[1:]]
    said = (
        f"<p>{len(cycles)} {'days' if settings['cycles'] == 'days' else 'cycles'}; Q is "
        f"pre-trained on the first, without privacy; the others are predicted and then learnt "
        f"from. Q moves after every {settings['q_every']} of them. "
        f"{min(asked, default=0):,} to {max(asked, default=0):,} users are asked in each; "
        f"seeds {escape(', '.join(map(str, _seeds(result))))}; "
        f"preset {escape(settings['preset'])}; "
        f"intervals: {escape(str(result['intervals']))}.</p>"
    )
    metrics = [metric for metric in METRICS if metric in settings["metrics"]]
    head = "<th>series</th>" + "".join(f"<th>{metric}</th>" for metric in metrics)
    private = any(row["privacy"] for row in result["series"].values())
    head += "<th>ε a report</th><th>most ε a phone spends</th><th>promise</th>" if private else ""
    rows = []
    for name, row in result["series"].items():
        cells = "".join(_mean_cell(row["over_cycles"][metric], shares=True) for metric in metrics)
        if private:
            cells += _spent(row["privacy"])
        rows.append(f"<tr><th scope=row>{escape(figures.label(name))}</th>{cells}</tr>")
    return (
        f"{said}<div class=wide><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div><p class=note>Mean over cycles, and below it "
        f"its 95 % interval.</p>"
    )


def _spent(privacy: Mapping[str, Any] | None) -> str:
    if privacy is None:
        return "<td>–</td><td>–</td><td></td>"
    epsilon, worst = (
        "–" if privacy[key] is None else f"{privacy[key]:g}" for key in ("epsilon", "worst")
    )
    return f"<td>{epsilon}</td><td>{worst}</td><td class=words>{escape(privacy['promise'])}</td>"


def _seeds(result: Mapping[str, Any]) -> list[int]:
    return sorted({seed for row in result["series"].values() for seed in row["seeds"]})


def _dynamic_rows(record: Record) -> Rows:
    yield "part", "series", "figure", "cycle", "mean", "low", "high"
    result = record["result"]
    for name, row in result["series"].items():
        for figure, curve in row.items():
            if figure == "delta" or figure in METRICS:
                shown = f"cumulative δHR@5 − {curve['reference']}" if figure == "delta" else figure
                values = zip(
                    result["evaluated"], curve["mean"], curve["low"], curve["high"], strict=True
                )
                for cycle, mean, low, high in values:
                    yield record["part"], name, shown, cycle, mean, low, high
        for metric, mean in row["over_cycles"].items():
            yield record["part"], name, metric, "all", mean["mean"], mean["low"], mean["high"]


# --- the number of phones ---------------------------------------------------------------------


def _phones_page(record: Record) -> str:
    result = record["result"]
    settings = result["settings"]
    sizes = settings["phones"]
    head = "".join(f"<th>{n:,} phones</th>" for n in sizes)
    rows = []
    for name, row in result["mechanisms"].items():
        answer = result["answer"][name]
        said = f"{answer:,}" if answer else f"not up to {result['largest_tried'][name]:,}"
        at = dict(zip(row["phones"], range(len(row["phones"])), strict=True))
        cells = "".join(
            f"<td>{number(row['HR@5']['mean'][at[n]])}<small>"
            f"{row['gain_over_frozen']['mean'][at[n]]:+.3f}</small></td>"
            if n in at
            else "<td>–</td>"
            for n in sizes
        )
        spent = row["epsilon_spent"]
        rows.append(
            f"<tr><th scope=row>{escape(figures.label(name))}</th><td><b>{said}</b></td>{cells}"
            f"<td>{'not private' if spent is None else f'{spent:g}'}</td></tr>"
        )
    frozen = result["controls"]["frozen"]["HR@5"]["mean"]
    return (
        f"<p>Fleets train a common Q from a random start by {settings['rounds']} rounds, "
        f"ε = {settings['epsilon']:g} a report; {settings['sample']:,} phones outside the fleet "
        f"in each of {settings['seeds']} worlds then solve their user vectors and predict. With Q "
        f"frozen at its start their HR@5 is {number(frozen)}. Intervals: "
        f"{escape(result['intervals'])}.</p><div class=wide><table><thead><tr><th>mechanism</th>"
        f"<th>beats all controls from</th>{head}<th>ε spent</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div><p class=note>HR@5, and below it the gain over "
        f"frozen Q.</p>"
    )


def _phones_rows(record: Record) -> Rows:
    yield "part", "mechanism", "figure", "phones", "mean", "low", "high"
    for name, row in record["result"]["mechanisms"].items():
        for figure, curve in row.items():
            if isinstance(curve, Mapping):
                values = zip(row["phones"], curve["mean"], curve["low"], curve["high"], strict=True)
                for n, mean, low, high in values:
                    yield record["part"], name, figure, n, mean, low, high


# --- new phones -------------------------------------------------------------------------------


def _coldstart_figures(record: Record) -> dict[str, Figure]:
    result = record["result"]
    return {record["part"]: plots.cold_start({**result, "data": result["about"]})}


def _coldstart_page(record: Record) -> str:
    result = record["result"]
    first, last = result["headline"]
    rows = []
    for name, row in result["priors"].items():
        cells = "".join(_mean_cell(row["headline"][f"HR@{n}"], shares=True) for n in (1, 3, 5))
        gained = _mean_cell(row["headline"]["gain@5"], shares=False)
        kept = (row.get("kept") or {}).get("HR@5")
        share = (
            f"{kept['mean']:.0%}<small>{kept['low']:.0%} to {kept['high']:.0%}</small>"
            if kept
            else "–"
        )
        rows.append(f"<tr><th scope=row>{escape(name)}</th>{cells}{gained}<td>{share}</td></tr>")
    return (
        f"<p>{result['n_new'][0]:,} new phones, a crowd of {result['n_crowd'][0]:,} "
        f"({escape(result['about']['kind'])}). Each phone of the crowd reports once in its life, "
        f"with its whole ε. What is measured are launches {first} to {last} of each new phone.</p>"
        f"<div class=wide><table><thead><tr><th>prior from the crowd</th><th>HR@1</th><th>HR@3</th>"
        f"<th>HR@5</th><th>HR@5 gained</th><th>of the gain kept</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>"
    )


def _mean_cell(figure: Mapping[str, float] | None, *, shares: bool) -> str:
    if figure is None:
        return "<td>–</td>"
    mean, low, high = (
        number(figure[key]) if shares else f"{figure[key]:+.3f}" for key in ("mean", "low", "high")
    )
    return f"<td>{mean}<small>{low} to {high}</small></td>"


def _coldstart_rows(record: Record) -> Rows:
    yield "part", "prior", "figure", "from", "to", "mean", "low", "high", "n_phones"
    for name, row in record["result"]["priors"].items():
        for part in (*row["bins"], row["headline"]):
            for figure, found in part.items():
                if isinstance(found, Mapping):
                    yield (
                        record["part"], name, figure, part["from"], part["to"], found["mean"],
                        found["low"], found["high"], part["n_phones"],
                    )  # fmt: skip


SHOWN: Mapping[str, Shown] = {
    "static": Shown(lambda record: {}, _table, _table_rows),
    "activity": Shown(
        lambda record: {record["part"]: figures.activity(record["result"])},
        _activity_page,
        _activity_rows,
    ),
    "dynamic": Shown(_dynamic_figures, _dynamic_page, _dynamic_rows),
    "phones": Shown(
        lambda record: {record["part"]: figures.phones(record["result"])},
        _phones_page,
        _phones_rows,
    ),
    "coldstart": Shown(_coldstart_figures, _coldstart_page, _coldstart_rows),
}
