"""How each kind of part is presented: figures, HTML section and CSV rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from nextapp.evaluation import METRICS
from nextapp.evaluation.tables import figures_table
from nextapp.studies import plots
from nextapp.studies.mechanisms import FORMS
from nextapp.studies.plots import label
from nextapp.studies.reproduce.claims import BESIDE_SEQMF, digits_to_judge
from nextapp.studies.reproduce.paper import row_of_paper
from nextapp.studies.settings import CEILING
from nextapp.table import Column, Mark, Measured, Table, as_measured, measured_from, number

Record = Mapping[str, Any]
Rows = Iterator[tuple[Any, ...]]

COUNTED = {
    "authors": "counted as the paper's authors did (preset authors), to compare with its table",
    "honest": "counted as a phone would see it (preset honest): candidates are the apps launched "
    "so far, anything else is a miss",
    "paper": "counted as the paper's text says (preset paper)",
}

_CEILING = (
    " ceiling is no rival: it knows the probabilities from which the synthetic phones draw "
    "their launches, so any model above it is there by chance."
)


class Shown(NamedTuple):
    """Functions of a record: figures by name, an HTML section, and CSV rows with a header."""

    figures: Callable[[Record], dict[str, Figure]]
    page: Callable[[Record], str]
    rows: Callable[[Record], Rows]


class _Difference(Column):
    """A column of differences, each with as many digits as its interval needs to be judged."""

    def html(self, value: Any, mark: Mark) -> str:
        found = as_measured(value)
        digits = 3
        if found.low is not None and found.high is not None:
            digits = digits_to_judge(found.low, found.high)
        return Column(self.heading, "interval", digits, "signed").html(value, mark)


def _wide(table: Table, css: str = "") -> str:
    """A table that scrolls sideways on a narrow screen."""
    return f"<div class=wide>{table.html(css)}</div>"


# --- static environment -----------------------------------------------------------------------


def _table(record: Record) -> str:
    pieces = []
    for preset, found in record["result"]["presets"].items():
        variants = {
            name: other["presets"][preset]
            for name, other in record["result"]["variants"].items()
            if preset in other["presets"]
        }
        pieces.append(
            f"<h3>{escape(COUNTED[preset])}</h3><p>{found['n_predictions']:,} predictions in "
            f"{found['n_sessions']:,} sessions of <b>{found['n_users']:,} test users</b>; split "
            f"{escape(found['split'])}; {found['repeat_share']:.0%} of the targets are the same "
            f"app as the launch before. {_few(found['n_users'])}</p>"
        )
        pieces.append(_metrics_table(record["part"], preset, found))
        pieces.append(_by_tuning(found, variants))
        pieces.append(_chosen_values(found))
    return "".join(pieces)


def _few(n_users: int) -> str:
    if n_users >= 100:
        return ""
    return "With so few users, differences of a few hundredths may be noise."


def _metrics_table(part: str, preset: str, found: Mapping[str, Any]) -> str:
    models = found["models"]
    legend = "Best in bold, second best underlined; below each value its 95 % interval over users"
    notes = {}
    if preset == "authors":
        legend += "; in italics, the value printed in the paper"
        notes = {name: _printed_row(part, name) for name in models}
    repeated = max(row["n_tunings"] for row in models.values())
    if repeated > 1:
        legend += f"; for mf and seqmf over users and {repeated} tunings"
    table = figures_table(models, intervals=True, notes=notes)
    return (
        f"{_wide(table, 'figures')}<p class=note>{legend}. The controls and the ceiling, in "
        f"italics, are not ranked. seqmf-frozen is seqmf with Q left at its random initial value; "
        f"seqmf-authors uses the settings that the paper's authors chose for "
        f"LSApp.{_CEILING if CEILING in models else ''}</p>"
    )


def _printed_row(part: str, model: str) -> dict[str, str]:
    """The paper's printed values of a model, by metric."""
    row = row_of_paper(part, model) or dict.fromkeys(METRICS)
    return {metric: number(value) for metric, value in row.items()}


def _by_tuning(found: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> str:
    """HR@5 of SeqMF and its differences to rivals, by number of trials and by tuning."""
    if not variants:
        return ""
    rivals = [name for name in BESIDE_SEQMF if name in found["models"]]
    tuning = found["tuning"]["seqmf"]
    shown = {f"{tuning['trials']} trials, all {len(tuning['tunings'])} tunings": found, **variants}
    columns = [
        Column("tuning", "name"),
        Column("seqmf HR@5"),
        *(_Difference(f"seqmf − {name}") for name in rivals),
    ]
    rows = [
        [
            name,
            other["models"]["seqmf"]["HR@5"],
            *(_gap(other["differences"]["seqmf"][rival]["HR@5"]) for rival in rivals),
        ]
        for name, other in shown.items()
    ]
    return (
        f"<p>Sensitivity to the tuning, in HR@5:</p>{_wide(Table(columns, rows))}"
        f"<p class=note>A smaller number of trials means the first ones of the same tunings.</p>"
    )


def _gap(values: Mapping[str, float]) -> Measured:
    return Measured(values["difference"], values["low"], values["high"])


def _chosen_values(found: Mapping[str, Any]) -> str:
    lines = []
    for model in ("mf", "seqmf"):
        for tuning in found["tuning"][model]["tunings"]:
            settings = ", ".join(f"{key} = {_short(v)}" for key, v in tuning["settings"].items())
            lines.append(
                f"<li>{model}, seed {tuning['seed']}: {escape(settings)} (HR@5 "
                f"{number(tuning['HR@5'])} on the validation part, best of "
                f"{found['tuning'][model]['trials']} trials)</li>"
            )
    summary = "<summary>Settings chosen on the validation part</summary>"
    return f"<details>{summary}<ul>{''.join(lines)}</ul></details>"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table_rows(record: Record) -> Rows:
    yield "part", "preset", "model", "metric", "value", "low", "high", "n_users", "paper"
    for preset, found in record["result"]["presets"].items():
        for name, row in found["models"].items():
            paper = row_of_paper(record["part"], name) or {}
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
        f"{found['n_sessions']:,} sessions, {found['sessions_per_user']['mean']:.0f} per user on "
        f"average; {found['repeat_share']:.0%} of the launches within sessions are the same app "
        f"as the launch before. Cut into {len(record['result']['by_cycle']['n_users'])} cycles "
        f"({escape(record['result']['cycles'])}); the order of each user's launches is kept.</p>"
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
    drawn = {record["part"]: plots.in_cycles(result)}
    names = list(result["series"])
    references = [name for name in ("none", "frozen") if name in names] or [
        name for name in ("sr-od",) if name in names
    ]
    if references and len(names) > len(references):
        drawn[f"{record['part']}-means"] = plots.contrasts(result, references)
    if result["rates"]:
        drawn[f"{record['part']}-rates"] = plots.learning_rates(result)
    return drawn


def _dynamic_page(record: Record) -> str:
    result = record["result"]
    settings = result["settings"]
    cycles = result["cycles"]
    n_users = [cycle["n_users_asked"] for cycle in cycles[1:]]
    unit = "days" if settings["cycles"] == "days" else "cycles"
    intro = (
        f"<p>{len(cycles)} {unit}. Q is pre-trained on the first one, without privacy; each later "
        f"one is first predicted and then learnt from. Q is trained after every "
        f"{settings['q_every']} {unit}. Each has {min(n_users, default=0):,} to "
        f"{max(n_users, default=0):,} test users; "
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
            *(_epsilon_spent(row["privacy"]) if private else ()),
        ]
        for name, row in result["series"].items()
    ]
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in result["notes"])
    return (
        f"{intro}{notes}{_wide(Table(columns, rows))}<p class=note>Mean over cycles, and below it "
        f"its 95 % interval.</p>{_rates_table(result)}{_hyper_parameters(result)}{_forms(result)}"
    )


def _rates_table(result: Mapping[str, Any]) -> str:
    """The learning rates chosen for each series, and the gain of every rate over a frozen Q."""
    found = result["rates"]
    if not found:
        return ""
    columns = [
        Column("series", "name"),
        Column("chosen on the first half", form="general"),
        Column("on the second", form="general"),
        *(Column(f"rate {rate:g}", "interval", 4, "signed") for rate in found["tried"]),
    ]
    rows = [
        [label(name), *row["chosen"], *(measured_from(point) for point in row["over_frozen"])]
        for name, row in found["series"].items()
        if name != "frozen"
    ]
    return (
        "<h3>Sensitivity to the learning rate</h3><p>Gain in HR@5 over a frozen Q, mean over "
        "cycles, first seed. For each series the rate is chosen from the same list, on one half of "
        f"the users, and measured on the other half; the table above uses these choices.</p>"
        f"{_wide(Table(columns, rows))}"
    )


_REGIMES = ("full", "rare", "global")


def _hyper_parameters(result: Mapping[str, Any]) -> str:
    """The regimes with other hyper-parameters, where they were run."""
    variants = {name: other for name, other in result["variants"].items() if "seqmf" in other}
    if not variants:
        return ""
    main = {
        "series": result["series"],
        "differences": result["differences"],
        "seqmf": result["settings"]["seqmf"],
    }
    shown = {result["hyper_parameters"]: main, **variants}
    regimes = [name for name in _REGIMES if name in result["series"]]
    columns = [
        Column("hyper-parameters of SeqMF", "name"),
        *(Column(label(name), "interval") for name in regimes),
        *(_Difference(f"{label(name)} − SR-od") for name in regimes),
    ]
    rows = [
        [
            name,
            *(measured_from(other["series"][regime]["over_cycles"]["HR@5"]) for regime in regimes),
            *(
                measured_from(other["differences"][regime].get("sr-od", {}).get("HR@5"))
                for regime in regimes
            ),
        ]
        for name, other in shown.items()
    ]
    settings = "".join(
        f"<li>{escape(name)}: "
        + escape(", ".join(f"{key} = {_short(v)}" for key, v in other["seqmf"].items()))
        + "</li>"
        for name, other in shown.items()
    )
    return (
        "<h3>Sensitivity to the hyper-parameters</h3><p>HR@5, mean over cycles. The table and the "
        f"figures above use: {escape(result['hyper_parameters'])}. The authors' settings also "
        "start user vectors at 0 and pre-train Q on all data.</p>"
        f"{_wide(Table(columns, rows))}<details><summary>The hyper-parameters</summary>"
        f"<ul>{settings}</ul></details>"
    )


def _forms(result: Mapping[str, Any]) -> str:
    """A list that explains the names of the mechanisms."""
    named = [name for name in result["series"] if name in FORMS and FORMS[name].words]
    if not named:
        return ""
    lines = "".join(
        f"<li>{escape(label(name))} ({name}): {escape(FORMS[name].words)}</li>" for name in named
    )
    return f"<details><summary>What each name means</summary><ul>{lines}</ul></details>"


_BUDGETS = ("ε per report", "largest total ε of a phone")


def _epsilon_spent(privacy: Mapping[str, Any] | None) -> tuple[float | None, float | None, str]:
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
        Column("phones needed to beat all controls"),
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
                f"{answer:,}" if answer else f"not reached with {result['largest_tried'][name]:,}",
                *(cells.get(n) for n in sizes),
                "not private" if spent is None else spent,
            ]
        )
    frozen = result["controls"]["frozen"]["HR@5"]["mean"]
    return (
        f"<p>Each fleet trains a common Q from a random start in {settings['rounds']} rounds, "
        f"ε = {settings['epsilon']:g} per report. In each of {settings['seeds']} simulated worlds, "
        f"{settings['sample']:,} phones outside the fleet then solve their user vectors and "
        f"predict. With Q frozen at its start their HR@5 is {number(frozen)}. Intervals: "
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


def _new_phones_figures(record: Record) -> dict[str, Figure]:
    result = record["result"]
    return {record["part"]: plots.new_phones({**result, "data": result["about"]})}


def _new_phones_page(record: Record) -> str:
    result = record["result"]
    first, last = result["headline"]
    cutoffs = ("HR@1", "HR@3", "HR@5")
    columns = [
        Column("prior from the crowd", "name"),
        *(Column(metric, "interval") for metric in cutoffs),
        _Difference("gain in HR@5"),
        Column("share of the gain kept", "interval", digits=0, form="percent"),
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
        f"({escape(result['about']['kind'])}). Each phone of the crowd reports only once, with its "
        f"whole ε. Measured on launches {first} to {last} of each new phone.</p>"
        f"{_wide(Table(columns, rows))}"
    )


def _new_phones_rows(record: Record) -> Rows:
    yield "part", "prior", "figure", "from", "to", "mean", "low", "high", "n_phones"
    for name, row in record["result"]["priors"].items():
        for part in (*row["bins"], row["headline"]):
            for figure, found in part.items():
                if isinstance(found, Mapping):
                    yield (
                        record["part"], name, figure, part["from"], part["to"], found["mean"],
                        found["low"], found["high"], part["n_phones"],
                    )  # fmt: skip


# --- windows, cost, one round -----------------------------------------------------------------


def _windows_page(record: Record) -> str:
    columns = [
        Column("learns from", "name"),
        Column("HR@5", "interval"),
        _Difference("gain over all history"),
        Column("launches", form="count"),
        Column("processor seconds", digits=1),
    ]
    rows = [
        [
            name,
            measured_from(row["HR@5"]),
            measured_from(row["gain"]),
            row["n_launches"],
            row["seconds"],
        ]
        for name, row in record["result"]["windows"].items()
    ]
    return (
        "<p>SeqMF in the regime Full, where every phone learns only from launches within a time "
        "window before its last launch. Launches: those within the window at the end of the log. "
        f"Seconds: the whole run, with evaluation.</p>{_wide(Table(columns, rows))}"
    )


def _windows_rows(record: Record) -> Rows:
    yield "part", "window", "figure", "mean", "low", "high"
    for name, row in record["result"]["windows"].items():
        for figure in ("HR@5", "gain"):
            if row[figure] is not None:
                yield (record["part"], name, figure, *(row[figure][key] for key in _ENDS))
        yield record["part"], name, "n_launches", row["n_launches"], "", ""
        yield record["part"], name, "seconds", row["seconds"], "", ""


_ENDS = ("mean", "low", "high")


def _cost_page(record: Record) -> str:
    result = record["result"]
    pieces = [
        f"<p>{result['n_phones']} phones encode the same gradients through every mechanism, in "
        f"turn; ε = {result['epsilon']:g}, d = {result['dim']}. Times are processor times of the "
        f"code that runs on phones, the shortest of each phone's repeats; intervals over phones. "
        f"Times vary between machines and runs; their ratios hardly vary.</p>"
    ]
    for n_apps, found in result["sizes"].items():
        columns = [
            Column("mechanism", "name"),
            Column("encode, ms", "interval"),
            Column(f"ratio to {label(result['reference'])}", "interval", digits=2),
            Column("decode, ms per report"),
            Column("bytes", form="count"),
        ]
        rows = [
            [
                label(name),
                measured_from({key: 1e3 * value for key, value in row["encode"].items()}),
                measured_from(row["times"]),
                1e3 * row["decode"],
                row["bytes"],
            ]
            for name, row in found.items()
        ]
        pieces.append(f"<h3>{int(n_apps):,} apps</h3>{_wide(Table(columns, rows))}")
    return "".join(pieces)


def _cost_rows(record: Record) -> Rows:
    yield "part", "n_apps", "mechanism", "figure", "mean", "low", "high"
    for n_apps, found in record["result"]["sizes"].items():
        for name, row in found.items():
            for figure in ("encode", "times"):
                yield (record["part"], n_apps, name, figure, *(row[figure][key] for key in _ENDS))
            for figure in ("decode", "bytes"):
                yield record["part"], n_apps, name, figure, row[figure], "", ""


def _round_page(record: Record) -> str:
    columns = [
        Column("mechanism", "name"),
        Column("message, bytes", form="count"),
        Column("payload, bytes", form="count"),
        Column("protected", "text"),
        Column("sent in the clear", "text"),
        Column("ε", form="general"),
    ]
    rows = [
        [
            label(name),
            row["bytes"],
            row["payload_bytes"],
            ", ".join(row["covers"]) or "nothing",
            ", ".join(row["sent_in_clear"]) or "nothing",
            "none" if row["epsilon"] is None else row["epsilon"],
        ]
        for name, row in record["result"]["up"].items()
    ]
    return (
        "<p>One round between one phone and the server, with the real messages; all sizes are "
        f"measured on these messages.</p>{_wide(Table(columns, rows))}"
    )


def _round_rows(record: Record) -> Rows:
    yield "part", "mechanism", "figure", "value"
    for name, row in record["result"]["up"].items():
        for figure in ("bytes", "payload_bytes", "holds_user_vector", "holds_history"):
            yield record["part"], name, figure, row[figure]


SHOWN: Mapping[str, Shown] = {
    "static": Shown(lambda record: {}, _table, _table_rows),
    "activity": Shown(
        _activity_figures,
        _activity_page,
        _activity_rows,
    ),
    "dynamic": Shown(_dynamic_figures, _dynamic_page, _dynamic_rows),
    "phones": Shown(
        lambda record: {record["part"]: plots.phones_needed(record["result"])},
        _phones_page,
        _phones_rows,
    ),
    "new-phones": Shown(_new_phones_figures, _new_phones_page, _new_phones_rows),
    "windows": Shown(
        lambda record: {},
        _windows_page,
        _windows_rows,
    ),
    "cost": Shown(lambda record: {}, _cost_page, _cost_rows),
    "round": Shown(
        lambda record: {record["part"]: plots.one_round(record["result"])},
        _round_page,
        _round_rows,
    ),
}
