"""What each kind of part looks like: its figures, its piece of the page, its rows for a CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from nextapp.evaluation import METRICS
from nextapp.evaluation.tables import figures_table
from nextapp.studies import plots
from nextapp.studies.drawing import label
from nextapp.studies.reproduce import figures
from nextapp.studies.reproduce.paper import printed
from nextapp.studies.settings import CEILING
from nextapp.table import Column, Measured, Table, measured_from, number

Record = Mapping[str, Any]
Rows = Iterator[tuple[Any, ...]]

COUNTED = {
    "authors": "counted as the paper's authors did (preset authors), to compare with its table",
    "honest": "counted as a phone would see it (preset honest): candidates are the apps launched "
    "so far, anything else is a miss",
    "paper": "counted as the paper's text says (preset paper)",
}

_CEILING = (
    " ceiling is no rival: it knows the odds by which the synthetic phones draw, so "
    "nobody can be above it but by luck."
)


class Shown(NamedTuple):
    """``figures`` by name, drawn when asked; ``page`` is HTML; ``rows`` begin with a header."""

    figures: Callable[[Record], dict[str, Figure]]
    page: Callable[[Record], str]
    rows: Callable[[Record], Rows]


def _wide(table: Table, css: str = "") -> str:
    """A table that scrolls by itself where a page is narrow."""
    return f"<div class=wide>{table.html(css)}</div>"


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
    legend = "Best bold, second underlined; below it the 95 % interval over users"
    notes = {}
    if preset == "authors":
        legend += "; last, in italics, what the paper prints"
        notes = {name: _printed(part, name) for name in models}
    table = figures_table(models, intervals=True, notes=notes)
    return (
        f"{_wide(table, 'figures')}<p class=note>{legend}. The controls and the ceiling, in "
        f"italics, are not ranked. seqmf-frozen is seqmf with Q left at its random start; "
        f"seqmf-authors has the settings that the paper's authors chose for "
        f"LSApp.{_CEILING if CEILING in models else ''}</p>"
    )


def _printed(part: str, model: str) -> dict[str, str]:
    """What the paper prints of a model, by metric."""
    row = printed(part, model) or dict.fromkeys(METRICS)
    return {metric: number(value) for metric, value in row.items()}


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


def _activity_figures(record: Record) -> dict[str, Figure]:
    result = record["result"]
    return {record["part"]: plots.activity({"day": result["by_day"], "cycle": result["by_cycle"]})}


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
    private = any(row["privacy"] for row in result["series"].values())
    columns = [
        Column("series", "name"),
        *(Column(metric, "interval") for metric in metrics),
        *(Column(words, form="general") for words in _BUDGETS if private),
        *(Column(words, "text") for words in ("promise",) if private),
    ]
    rows = [
        [
            label(name),
            *(measured_from(row["over_cycles"][metric]) for metric in metrics),
            *(_spent(row["privacy"]) if private else ()),
        ]
        for name, row in result["series"].items()
    ]
    return (
        f"{said}{_wide(Table(columns, rows))}<p class=note>Mean over cycles, and below it its "
        f"95 % interval.</p>"
    )


_BUDGETS = ("ε a report", "most ε a phone spends")


def _spent(privacy: Mapping[str, Any] | None) -> tuple[float | None, float | None, str]:
    if privacy is None:
        return None, None, ""
    return privacy["epsilon"], privacy["worst"], privacy["promise"]


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
    columns = [
        Column("mechanism", "name"),
        Column("beats all controls from"),
        *(Column(f"{n:,} phones") for n in sizes),
        Column("ε spent", form="general"),
    ]
    rows = []
    for name, row in result["mechanisms"].items():
        answer, spent = result["answer"][name], row["epsilon_spent"]
        found = zip(row["HR@5"]["mean"], row["gain_over_frozen"]["mean"], strict=True)
        cells = {
            n: Measured(mean, note=f"{gain:+.3f}")
            for n, (mean, gain) in zip(row["phones"], found, strict=True)
        }
        rows.append(
            [
                label(name),
                f"{answer:,}" if answer else f"not up to {result['largest_tried'][name]:,}",
                *(cells.get(n) for n in sizes),
                "not private" if spent is None else spent,
            ]
        )
    frozen = result["controls"]["frozen"]["HR@5"]["mean"]
    return (
        f"<p>Fleets train a common Q from a random start by {settings['rounds']} rounds, "
        f"ε = {settings['epsilon']:g} a report; {settings['sample']:,} phones outside the fleet "
        f"in each of {settings['seeds']} worlds then solve their user vectors and predict. With Q "
        f"frozen at its start their HR@5 is {number(frozen)}. Intervals: "
        f"{escape(result['intervals'])}.</p>{_wide(Table(columns, rows))}<p class=note>HR@5, and "
        f"below it the gain over frozen Q.</p>"
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
    cutoffs = ("HR@1", "HR@3", "HR@5")
    columns = [
        Column("prior from the crowd", "name"),
        *(Column(metric, "interval") for metric in cutoffs),
        Column("HR@5 gained", "interval", form="signed"),
        Column("of the gain kept", "interval", digits=0, form="percent"),
    ]
    rows = [
        [
            name,
            *(measured_from(row["headline"][metric]) for metric in cutoffs),
            measured_from(row["headline"]["gain@5"]),
            measured_from((row.get("kept") or {}).get("HR@5")),
        ]
        for name, row in result["priors"].items()
    ]
    return (
        f"<p>{result['n_new'][0]:,} new phones, a crowd of {result['n_crowd'][0]:,} "
        f"({escape(result['about']['kind'])}). Each phone of the crowd reports once in its life, "
        f"with its whole ε. What is measured are launches {first} to {last} of each new phone.</p>"
        f"{_wide(Table(columns, rows))}"
    )


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
        _activity_figures,
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
