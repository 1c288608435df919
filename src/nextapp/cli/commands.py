"""The commands: demo, evaluate, dynamic, train, predict, data."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from nextapp import __version__
from nextapp.cli import coldstart as cold
from nextapp.cli import data, federation, options, phone, phones, privacy, screen
from nextapp.cli import dynamic as streaming
from nextapp.cli import explain as explaining
from nextapp.cli import fleet as playing
from nextapp.cli import reproduce as reproducing
from nextapp.cli import serve as serving
from nextapp.cli import simulate as simulating
from nextapp.cli import tune as tuning
from nextapp.experiments import demo as demonstration
from nextapp.experiments import modelfile, static
from nextapp.experiments.settings import MODELS

app = typer.Typer(
    name="nextapp",
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(privacy.app, name="privacy")
privacy.app.command(
    "phones-needed", epilog="Example: nextapp privacy phones-needed --epsilon 4.5 --phones 300,3000"
)(phones.phones_needed)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)(phone.phone)
app.add_typer(federation.app, name="federation")
app.command(
    epilog="Example: nextapp simulate --phones 100000 --mechanism codebook --epsilon 1 --rounds 5"
)(simulating.simulate)
app.command(epilog="Example: nextapp tune synthetic:lsapp --trials 60 --out tuned.toml")(
    tuning.tune
)
app.command(
    epilog="Example: nextapp dynamic synthetic:lsapp --models sr-od,mru --mechanisms all --seeds 5"
)(streaming.dynamic)
app.command(epilog="Example: nextapp reproduce all --quick --out reproduction")(
    reproducing.reproduce
)
app.command(
    epilog="Example: nextapp serve --data federation --apps 500 --mechanism codebook --epsilon 4 "
    "--clip 1 --goal 200 --deadline 600"
)(serving.serve)
app.command(epilog="Example: nextapp enrol-code federation --uses 10")(serving.enrol_code)
app.command(
    epilog="Example: nextapp fleet --server http://127.0.0.1:8443 --data federation --phones 200"
)(playing.fleet)
app.command(epilog="Example: nextapp coldstart synthetic:fleet,phones=100000 --epsilon 1,4.5")(
    cold.coldstart
)

app.command(epilog="Example: nextapp explain synthetic:lsapp --user phone-0000007 -n 3")(
    explaining.explain
)


def _print_version(wanted: bool) -> None:
    if wanted:
        screen.out.print(f"nextapp {__version__}")
        raise typer.Exit


@app.callback()
def nextapp(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="And leave.")
    ] = False,
) -> None:
    """Predict the next app a person will launch."""


@app.command(
    epilog="Example: nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,seqmf"
)
def evaluate(
    source: options.Source,
    split: options.SplitText = None,
    preset: options.PresetName = None,
    models: Annotated[
        str | None,
        typer.Option(
            help=f"Default: {', '.join(MODELS)}. On synthetic data also oracle, which knows the "
            "odds they are drawn by: what anyone could reach.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            help="Choose the settings of mf and seqmf by this many trials each, on launches before "
            "the test part.",
            show_default=False,
        ),
    ] = None,
    settings: options.SettingsFile = None,
    seed: options.OverridingSeed = None,
    json: options.JsonFile = None,
    user_column: options.UserColumn = None,
    time_column: options.TimeColumn = None,
    app_column: options.AppColumn = None,
    time_unit: options.TimeUnit = "s",
    skip_bad_rows: options.SkipBadRows = False,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5 by iterative revealing."""
    with screen.clear_errors():
        experiment = options.experiment(
            settings,
            data=source,
            split=split,
            preset=preset,
            models=[name.strip() for name in models.split(",")] if models is not None else None,
            tune=tune,
            seed=seed,
        )
        with screen.progress() as report:
            report("reading", 0, 0)
            log = options.read_log(
                source, experiment.seed, user_column, time_column, app_column, time_unit,
                skip_bad_rows,
            )  # fmt: skip
            result = static.run(experiment, log, report).as_json()
        screen.show_result(result)
        screen.write_json(json, result)


@app.command(epilog="Example: nextapp demo --out demo")
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the table, the plots and the settings.")
    ] = Path("demo"),
    seed: options.Seed = 0,
    json: options.JsonFile = None,
) -> None:
    """Train SeqMF on synthetic phones by federated rounds and measure all models.

    Writes a folder with the table, the plots and the settings.
    """
    with screen.clear_errors():
        start = time.perf_counter()
        with screen.progress() as report:
            result = demonstration.run(out, seed, report)
        screen.show_result(result)
        screen.out.print(
            f"\nTable, plots and settings are in [bold]{out}[/] "
            f"({time.perf_counter() - start:.0f} s)."
        )
        screen.write_json(json, result)


@app.command(epilog="Example: nextapp train synthetic:lsapp --out lsapp.safetensors")
def train(
    source: options.Source,
    out: Annotated[Path, typer.Option(help="The model file, safetensors.", show_default=False)],
    settings: options.SettingsFile = None,
    seed: options.Seed = 0,
    json: options.JsonFile = None,
    user_column: options.UserColumn = None,
    time_column: options.TimeColumn = None,
    app_column: options.AppColumn = None,
    time_unit: options.TimeUnit = "s",
    skip_bad_rows: options.SkipBadRows = False,
) -> None:
    """Train SeqMF by federated rounds over all phones of a log and write the app vectors.

    The file holds the app vectors, the catalogue and the settings, and nothing of any one user.
    """
    with screen.clear_errors():
        experiment = options.experiment(settings, data=source, seed=seed)
        with screen.progress() as report:
            report("reading", 0, 0)
            log = options.read_log(
                source, seed, user_column, time_column, app_column, time_unit, skip_bad_rows
            )
            result = modelfile.train(log, experiment, out, report)
        screen.out.print(
            f"{result['n_apps']} app vectors of {result['dim']} numbers, trained by "
            f"{result['rounds']} rounds of {result['n_phones']} phones: [bold]{out}[/] "
            f"({result['n_bytes']:,} bytes)"
        )
        screen.write_json(json, result)


@app.command(epilog="Example: echo app-0003 | nextapp predict lsapp.safetensors --history -")
def predict(
    model: Annotated[Path, typer.Argument(help="A file written by train.", show_default=False)],
    history: Annotated[
        str,
        typer.Option(
            help="Launches of one phone, oldest first: a CSV file with a header naming timestamp "
            "and app_name, or plain app names, one a line; - reads standard input.",
            show_default=False,
        ),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many apps to name.")] = 5,
    json: options.JsonFile = None,
) -> None:
    """Name the apps a phone with this history will most likely launch next, by SeqMF."""
    with screen.clear_errors():
        file = Path(history)
        text = sys.stdin.read() if history == "-" else file.read_text(encoding="utf-8")
        result = modelfile.predict(model.read_bytes(), text, n)
        for place, name in enumerate(result["predictions"], 1):
            screen.out.print(f"{place}. {name}", highlight=False, markup=False)
        for note in result["notes"]:
            screen.err.print(note, highlight=False, markup=False)
        screen.write_json(json, result)
