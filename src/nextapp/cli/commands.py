"""The command `nextapp` and the table of its commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nextapp import __version__
from nextapp.cli.lazy import LazyCommand, LazyGroup

_TRY, _PREDICT, _MEASURE, _SERVE = "To begin with", "Predict", "Measure", "Servers"

COMMANDS = {
    "demo": LazyCommand(
        "nextapp.cli.demo",
        "demo",
        "Measure all models on synthetic phones; write tables and plots.",
        "nextapp demo --out demo",
        _TRY,
    ),
    "open": LazyCommand(
        "nextapp.cli.open_page",
        "open_page",
        "Show a phone, a crowd and your own log in a browser.",
        "nextapp open --data usagestats.txt",
        _TRY,
    ),
    "data": LazyCommand(
        "nextapp.cli.data",
        "app",
        "Describe a launch log, convert one, or make a synthetic one.",
        group=_TRY,
    ),
    "train": LazyCommand(
        "nextapp.cli.train",
        "train",
        "Train a model on all phones of a log and write it to a file.",
        "nextapp train synthetic:lsapp --out lsapp.safetensors",
        _PREDICT,
    ),
    "predict": LazyCommand(
        "nextapp.cli.train",
        "predict",
        "Predict the next apps of one phone with a model file.",
        "nextapp predict lsapp.safetensors --history launches.csv --why",
        _PREDICT,
    ),
    "explain": LazyCommand(
        "nextapp.cli.explain",
        "explain",
        "Explain one prediction: the reasons for each app.",
        "nextapp explain synthetic:lsapp --user phone-0007 -n 3",
        _PREDICT,
    ),
    "phone": LazyCommand(
        "nextapp.cli.phone",
        "phone",
        "Try a phone by hand: log launches, predict, take part in training.",
        group=_PREDICT,
        has_own_parser=True,
        completing="commands_for_shell",
    ),
    "evaluate": LazyCommand(
        "nextapp.cli.evaluate",
        "evaluate",
        "Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.",
        "nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,nextapp\n"
        "nextapp evaluate launches.csv --json result.json",
        _MEASURE,
    ),
    "tune": LazyCommand(
        "nextapp.cli.tune",
        "tune",
        "Choose the settings of mf and seqmf on launches before the test.",
        "nextapp tune synthetic:lsapp --trials 60 --out tuned.toml",
        _MEASURE,
    ),
    "dynamic": LazyCommand(
        "nextapp.cli.dynamic",
        "dynamic",
        "Predict a log cycle by cycle, and learn after each cycle.",
        "nextapp dynamic synthetic:lsapp --models sr-od,mru --mechanisms harmony --seeds 2",
        _MEASURE,
    ),
    "new-phones": LazyCommand(
        "nextapp.cli.new_phones",
        "new_phones",
        "Measure new phones with and without what the crowd knows.",
        "nextapp new-phones synthetic:fleet,phones=100000 --epsilon 1,4.5",
        _MEASURE,
    ),
    "simulate": LazyCommand(
        "nextapp.cli.simulate",
        "simulate",
        "Train app vectors on many synthetic phones, with privacy.",
        "nextapp simulate --phones 100000 --mechanism codebook --epsilon 1 --rounds 5",
        _MEASURE,
    ),
    "privacy": LazyCommand(
        "nextapp.cli.privacy",
        "app",
        "Compare, audit, add up and attack privacy mechanisms.",
        group=_MEASURE,
    ),
    "reproduce": LazyCommand(
        "nextapp.cli.reproduce",
        "reproduce",
        "Reproduce the paper: tables, figures, a verdict on each claim.",
        "nextapp reproduce table2 --quick --out reproduction",
        _MEASURE,
    ),
    "serve": LazyCommand(
        "nextapp.cli.serve",
        "serve",
        "Run a server that learns from the reports of phones.",
        "nextapp serve --data federation --dev-tls",
        _SERVE,
    ),
    "enrol-code": LazyCommand(
        "nextapp.cli.serve",
        "enrol_code",
        "Issue an enrolment code for phones.",
        "nextapp enrol-code federation --uses 10",
        _SERVE,
    ),
    "admin": LazyCommand(
        "nextapp.cli.admin",
        "app",
        "Look after a server: status, rounds, devices, codes, backup.",
        group=_SERVE,
    ),
    "play-phones": LazyCommand(
        "nextapp.cli.play_phones",
        "play_phones",
        "Play synthetic phones against a server.",
        "nextapp play-phones --server https://127.0.0.1:8443 --ca federation/tls/ca.pem "
        "--data federation --phones 200",
        _SERVE,
    ),
    "flower": LazyCommand(
        "nextapp.cli.flower",
        "app",
        "Run gateways in several regions, joined by Flower.",
        group=_SERVE,
    ),
}


RENAMED = {"coldstart": "new-phones"}
"""Earlier names of commands; they are refused with the present name."""


class Commands(LazyGroup):
    """The commands of `nextapp`, in the order in which its help lists them."""

    lazy_commands = COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in RENAMED:
            ctx.fail(f"No such command {args[0]!r}; did you mean {RENAMED[args[0]]!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="nextapp",
    cls=Commands,
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    epilog="nextapp demo\nnextapp COMMAND --help",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nextapp {__version__}")
        raise typer.Exit


@app.callback()
def nextapp(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Predict the next app a person will launch."""
