"""The command `nextapp` and the table of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from nextapp import __version__
from nextapp.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
    "demo": LazyCommand(
        "nextapp.cli.demo",
        "demo",
        "Train SeqMF on synthetic phones by federated rounds and measure all models.",
        "nextapp demo --out demo",
    ),
    "evaluate": LazyCommand(
        "nextapp.cli.evaluate",
        "evaluate",
        "Measure models on a launch log: HR, MRR and NDCG @1, 3, 5 by iterative revealing.",
        "nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,seqmf",
    ),
    "train": LazyCommand(
        "nextapp.cli.train",
        "train",
        "Train SeqMF by federated rounds over all phones of a log and write the app vectors.",
        "nextapp train synthetic:lsapp --out lsapp.safetensors",
    ),
    "predict": LazyCommand(
        "nextapp.cli.train",
        "predict",
        "Name the apps a phone with this history will most likely launch next, by SeqMF.",
        "echo app-0003 | nextapp predict lsapp.safetensors --history -",
    ),
    "explain": LazyCommand(
        "nextapp.cli.explain",
        "explain",
        "Tell for one prediction which statistic of the phone spoke for which app.",
        "nextapp explain synthetic:lsapp --user phone-0000007 -n 3",
    ),
    "dynamic": LazyCommand(
        "nextapp.cli.dynamic",
        "dynamic",
        "Cut a log in cycles; predict each one, then update from it: regimes, models, mechanisms.",
        "nextapp dynamic synthetic:lsapp --models sr-od,mru --mechanisms all --seeds 5",
    ),
    "coldstart": LazyCommand(
        "nextapp.cli.coldstart",
        "coldstart",
        "Measure new phones from their first launch on, with and without what the crowd knows.",
        "nextapp coldstart synthetic:fleet,phones=100000 --epsilon 1,4.5",
    ),
    "tune": LazyCommand(
        "nextapp.cli.tune",
        "tune",
        "Choose dimension, rates, λ, α, γ, optimiser and inference by HR@5 before the test part.",
        "nextapp tune synthetic:lsapp --trials 60 --out tuned.toml",
    ),
    "simulate": LazyCommand(
        "nextapp.cli.simulate",
        "simulate",
        "Train a common Q on a fleet of synthetic phones and see what a mechanism leaves of it.",
        "nextapp simulate --phones 100000 --mechanism codebook --epsilon 1 --rounds 5",
    ),
    "reproduce": LazyCommand(
        "nextapp.cli.reproduce",
        "reproduce",
        "Play the tables and figures of the paper anew, judge its claims, write one HTML report.",
        "nextapp reproduce all --quick --out reproduction",
    ),
    "data": LazyCommand(
        "nextapp.cli.data", "app", "Look at a launch log, or make a synthetic one."
    ),
    "privacy": LazyCommand(
        "nextapp.cli.privacy",
        "app",
        "Mechanisms by which a phone protects its report: compare, audit, account, attack.",
    ),
    "phone": LazyCommand(
        "nextapp.cli.phone",
        "phone",
        "A phone to try by hand: log launches, predict, take part in training.",
        has_own_parser=True,
    ),
    "serve": LazyCommand(
        "nextapp.cli.serve",
        "serve",
        "Take reports from phones over HTTP and train the common model, all in one process.",
        "nextapp serve --data federation --apps 500 --mechanism codebook --epsilon 4 --clip 1 "
        "--goal 200 --deadline 600",
    ),
    "enrol-code": LazyCommand(
        "nextapp.cli.serve",
        "enrol_code",
        "Issue an enrolment code; the server keeps only its hash. Works while the server runs.",
        "nextapp enrol-code federation --uses 10",
    ),
    "play-phones": LazyCommand(
        "nextapp.cli.play_phones",
        "play_phones",
        "Play phones with synthetic launches against a server: enrol, fetch, learn, report.",
        "nextapp play-phones --server http://127.0.0.1:8443 --data federation --phones 200",
    ),
    "flower": LazyCommand(
        "nextapp.cli.flower",
        "app",
        "Gateways in several regions, joined by Flower; docs/federation-flower.md.",
    ),
}


class Commands(LazyGroup):
    """The commands of `nextapp`, in the order in which its help lists them."""

    lazy_commands = COMMANDS


app = typer.Typer(
    name="nextapp",
    cls=Commands,
    help="Predict the next app a person will launch, learnt across phones without any phone giving "
    "its history away.",
    no_args_is_help=True,
    rich_markup_mode="rich",
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
