"""`nextapp train`, `predict` and `explain`: a model file; predictions and their reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nextapp.cli import commands, screen
from nextapp.cli.commands import FILE, OUTPUT_FILE, command, option, options_and_file, output
from nextapp.data.cutting import collapse_repeats
from nextapp.data.importers.content import check_no_address
from nextapp.phone.commands import reason_lines
from nextapp.settings import count
from nextapp.studies import model_file, reasons
from nextapp.studies.experiment import Experiment, settings_on_data
from nextapp.table import Marked, Table
from nextapp.wire import WireError

_LEAST = 0.05  # of a score: less is not worth a row


@command("nextapp train synthetic:lsapp --out lsapp.safetensors")
@commands.source
@output("--out", OUTPUT_FILE, "Model file to write, safetensors.", required=True)
@option(
    "--model",
    default="nextapp",
    metavar="NAME",
    help="nextapp (habits that start from what all phones know) or seqmf (the paper's app "
    "vectors, by federated rounds).",
)
@options_and_file(Experiment, "given", "seed")
@commands.json_file
@commands.log_options
def train(
    source: str,
    out: Path,
    model: str,
    given: dict[str, Any],
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Train a model on all phones of a log and write it to a file.

    The file of the model nextapp holds counts of all phones without privacy: what few phones did
    can be read from it. To learn from private reports instead, run nextapp serve.
    """
    experiment = settings_on_data(Experiment, {**given, "data": source})
    with screen.progress() as report:
        log = log_options.read(source, experiment.seed)
        result = model_file.train(log, experiment, out, report, model)
    what = (
        f"{count(result['n_transitions'], 'transition')} between {count(result['n_apps'], 'app')} "
        f"and {result['n_after_two']:,} after two, counted on {count(result['n_phones'], 'phone')}"
        if model == "nextapp"
        else f"{count(result['n_apps'], 'app vector')} of {result['dim']} numbers, trained by "
        f"{count(result['rounds'], 'round')} of {count(result['n_phones'], 'phone')}"
    )
    screen.out.print(f"{what}: [bold]{out}[/] ({result['n_bytes']:,} bytes)", soft_wrap=True)
    screen.write_json(json, result)
    history = "LAUNCHES.csv"
    if Path(source).is_file():
        history = source if log.n_users == 1 else f"{source} --user {log.users[0]}"
    screen.say_next(f"nextapp predict {out} --history {history} --why")


@command("nextapp predict lsapp.safetensors --history launches.csv --why")
@click.argument(
    "model",
    type=FILE,
    metavar="MODEL",
    help="A file written by train, or the broadcast of a server (GET /v1/broadcast).",
)
@option(
    "--history",
    required=True,
    type=FILE,
    help="Launches of one phone: a log, an export, or one app name per line; - reads standard "
    "input.",
)
@option("-n", type=click.IntRange(min=1), default=5, help="Number of apps to name.")
@option("--user", metavar="NAME", help="User of the history, if it has several.")
@option("--why", is_flag=True, help="Show the reasons for each app.")
@commands.json_file
@commands.log_options
def predict(
    model: Path,
    history: Path,
    n: int,
    user: str | None,
    why: bool,
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Predict the next apps of one phone with a model file.

    The model nextapp gives probabilities; seqmf gives the light scores of eq. (8).
    """
    check_no_address(model)
    if model.is_dir():
        raise ValueError(f"{model} is a folder: give the model file in it.")
    data = model.read_bytes()
    launches = model_file.read_history(history, user, log_options.read).launches
    try:
        ranked, result = model_file.predict(data, launches, n)
    except WireError as error:
        raise ValueError(f"{model}: {error}") from error
    for line in reason_lines(ranked, why=why) if ranked else ():
        screen.out.print(line, markup=False, soft_wrap=True)
    for note in result["notes"]:
        screen.err.print(note, markup=False, soft_wrap=True)
    screen.write_json(json, result)


@command("nextapp explain synthetic:lsapp --user phone-0007 -n 3")
@click.argument(
    "source",
    required=False,
    metavar="DATA",
    help="A log file or a synthetic log, as for evaluate; or give --history.",
)
@option("--history", type=FILE, help="Launches of one phone instead of a log, as for predict.")
@option("--user", metavar="NAME", help="User of the log or history. Default: of a log, the first.")
@option(
    "--launch",
    type=int,
    help="Explain the prediction of launch number N, and show what was launched. "
    "Default: the one after the last.",
)
@option("--alone", is_flag=True, help="Without the crowd of the other phones (nextapp-alone).")
@option("-n", type=click.IntRange(min=1), default=5, help="Number of apps to explain.")
@commands.seed
@commands.json_file
@commands.log_options
def explain(
    source: str | None,
    history: Path | None,
    user: str | None,
    launch: int | None,
    alone: bool,
    n: int,
    seed: int,
    json: Path | None,
    log_options: commands.LogOptions,
) -> None:
    """Explain one prediction: the reasons for each app.

    The model is nextapp. On a log its crowd is what the other phones launched before.
    """
    if (source is None) == (history is None):
        raise ValueError("give either a log (DATA) or --history FILE.")
    if history is not None:
        asked = model_file.read_history(history, user, log_options.read)
    else:
        log = collapse_repeats(log_options.read(str(source), seed))
        asked = model_file.history_of(log, user or log.users[int(log.user[0])])
        asked = asked._replace(log=None) if alone else asked
    result = reasons.explain(asked, launch, n)
    _show(asked.name, result)
    screen.write_json(json, result)


def _show(name: str, result: dict[str, Any]) -> None:
    screen.out.print(
        f"{name}: {count(result['n_launches'], 'launch', 'launches')}, the last of them "
        f"{result['last']}"
        + (
            f" at {result['when']}"
            if result["when"]
            else "; without times, they count as one session"
        ),
        markup=False,
    )
    shown = [
        statistic
        for statistic in result["apps"][0]["speaks"]
        if any(abs(app["speaks"][statistic]) >= _LEAST for app in result["apps"])
    ]
    rows = []
    for statistic in shown:
        parts = [app["speaks"][statistic] for app in result["apps"]]
        cells = [Marked(f"{part:+.2f}", "best" if part == max(parts) else "") for part in parts]
        rows.append([statistic, *cells])
    headings = [f"{app['app']}\n{100 * app['share']:.0f} %" for app in result["apps"]]
    screen.out.print(Table.of_text(["statistic", *headings], rows).terminal())
    screen.out.print("Each number is a part of the score, relative to the average app.\n")
    for place, app in enumerate(result["apps"], 1):
        screen.out.print(
            f"{place}. {app['app']} ({100 * app['share']:.0f} %): {app['words']}",
            markup=False,
            soft_wrap=True,
        )
    if result["launched"] is not None:
        place = result["place"]
        rank = f"suggestion number {place}" if place else "an app new to this phone"
        screen.out.print(f"\nLaunched: {result['launched']}, {rank}.", markup=False)
    if result["moment"]:
        screen.out.print(
            f"Predicted for {result['moment']}, by the phone's clock or this machine's, as by\n  "
            f"nextapp phone predict --with-open --when {result['moment']}",
            soft_wrap=True,
        )
