"""`nextapp train` and `nextapp predict`: a model file, written and used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import options, screen
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.studies import model_file


@expand_options
def train(
    source: options.Source,
    *,
    out: Annotated[Path, typer.Option(help="The model file, safetensors.", show_default=False)],
    settings: options.SettingsFile = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Train SeqMF by federated rounds over all phones of a log and write the app vectors.

    The file holds the app vectors, the catalogue and the settings, and nothing of any one user.
    """
    with clear_errors():
        experiment = options.experiment(settings, data=source, seed=seed)
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, seed)
            result = model_file.train(log, experiment, out, report)
        screen.out.print(
            f"{result['n_apps']} app vectors of {result['dim']} numbers, trained by "
            f"{result['rounds']} rounds of {result['n_phones']} phones: [bold]{out}[/] "
            f"({result['n_bytes']:,} bytes)"
        )
        screen.write_json(json, result)


def predict(
    model: Annotated[Path, typer.Argument(help="A file written by train.", show_default=False)],
    history: Annotated[
        str,
        typer.Option(
            help="Launches of one phone, oldest first: a CSV file with a header naming timestamp "
            "and app_name, or plain app names, one per line; - reads standard input.",
            show_default=False,
        ),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many apps to name.")] = 5,
    json: options.JsonFile = None,
) -> None:
    """Name the apps a phone with this history will most likely launch next, by SeqMF."""
    with clear_errors():
        file = Path(history)
        text = sys.stdin.read() if history == "-" else file.read_text(encoding="utf-8")
        result = model_file.predict(model.read_bytes(), text, n)
        for place, name in enumerate(result["predictions"], 1):
            screen.out.print(f"{place}. {name}", highlight=False, markup=False)
        for note in result["notes"]:
            screen.err.print(note, highlight=False, markup=False)
        screen.write_json(json, result)
