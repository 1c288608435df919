"""`nextapp train` and `nextapp predict`: a model file, written and used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from nextapp.cli import options, screen
from nextapp.cli.forms import command, option
from nextapp.cli.options import FILE, settings_of
from nextapp.data.importers import check_not_foreign
from nextapp.phone.commands import reason_lines
from nextapp.studies import model_file
from nextapp.studies.settings import Experiment, experiment_from
from nextapp.wire import WireError


@command("nextapp train synthetic:lsapp --out lsapp.safetensors")
@options.source
@option(
    "--out",
    type=options.OUTPUT_FILE,
    required=True,
    help="Model file to write, safetensors.",
    heading=options.OUTPUT,
)
@option(
    "--model",
    default="nextapp",
    metavar="NAME",
    help="nextapp (habits that start from what all phones know) or seqmf (the paper's app "
    "vectors, by federated rounds).",
)
@settings_of(Experiment, "given", "seed")
@options.json_file
@options.log_options
def train(
    source: str,
    out: Path,
    model: str,
    given: dict[str, Any],
    json: Path | None,
    log_options: options.LogOptions,
) -> None:
    """Train a model on all phones of a log and write it to a file.

    The file of the model nextapp holds counts of all phones without privacy: what few phones did
    can be read from it. To learn from private reports instead, run nextapp serve.
    """
    experiment = experiment_from({**given, "data": source})
    with screen.progress() as report:
        report("reading", 0, 0)
        log = log_options.read(source, experiment.seed)
        result = model_file.train(log, experiment, out, report, model)
    what = (
        f"{result['n_transitions']:,} transitions between {result['n_apps']:,} apps and "
        f"{result['n_after_two']:,} after two apps, counted on {result['n_phones']:,} phones"
        if model == "nextapp"
        else f"{result['n_apps']} app vectors of {result['dim']} numbers, trained by "
        f"{result['rounds']} rounds of {result['n_phones']} phones"
    )
    screen.out.print(f"{what}: [bold]{out}[/] ({result['n_bytes']:,} bytes)", soft_wrap=True)
    screen.write_json(json, result)
    screen.say_next(f"nextapp predict {out} --history LAUNCHES.csv --why")


def history_text(history: str) -> str:
    """The text of a history file, or of standard input for -."""
    if history == "-":
        return sys.stdin.read()
    path = Path(history)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the file with the launches.")
    data = path.read_bytes()
    check_not_foreign(data, str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}: not text in UTF-8. Give a CSV file, or app names, one per line."
        ) from None


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
    metavar="FILE",
    help="Launches of one phone, oldest first: CSV with the columns timestamp and "
    "app_name, or one app name per line; - reads standard input.",
)
@option("-n", type=click.IntRange(min=1), default=5, help="Number of apps to name.")
@option("--why", is_flag=True, help="Show the reasons for each app.")
@option("--threshold", type=float, help="Only apps with at least this probability.")
@options.json_file
def predict(
    model: Path, history: str, n: int, why: bool, threshold: float | None, json: Path | None
) -> None:
    """Predict the next apps of one phone with a model file.

    The model nextapp gives probabilities; seqmf gives the light scores of eq. (8).
    """
    text = history_text(history)
    if model.is_dir():
        raise ValueError(f"{model} is a folder: give the model file in it.")
    try:
        result = model_file.predict(model.read_bytes(), text, n, threshold)
    except WireError as error:
        raise ValueError(f"{model}: {error}") from error
    if not result.told and threshold is not None:
        screen.out.print(f"No app is likelier than {threshold:.0%} next.", highlight=False)
    for line in reason_lines(result.told, why=why) if result.told else ():
        screen.out.print(line, highlight=False, markup=False, soft_wrap=True)
    for note in result.notes:
        screen.err.print(note, highlight=False, markup=False, soft_wrap=True)
    screen.write_json(json, result.as_json())
