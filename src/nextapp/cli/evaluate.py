"""`nextapp evaluate`: measure models on a launch log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.predictors.registry import MODELS, ONLINE
from nextapp.studies import static
from nextapp.studies.settings import Experiment


@expand_options
def evaluate(
    source: options.Source,
    *,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"Models, separated by commas. Default: {', '.join(MODELS)}. Others: "
            f"{', '.join(ONLINE)} (learn through the test part), ceiling (upper bound for "
            "synthetic data), or a class of your own as FILE.py:CLASS.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="First choose the settings of mf and seqmf by N trials each, without the test "
            "part.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="mf and seqmf learn from the last DAYS of a phone only. Default: from all.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot calibration and prewarming, as FILE.svg and FILE.png.",
            show_default=False,
            callback=options.check_output,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    experiment_options: options.ExperimentOptions,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.

    Models that give probabilities are also measured by calibration and by prewarming: how many
    launches are hit by starting the apps above a threshold.
    """
    with clear_errors():
        experiment = experiment_options.experiment(
            data=source,
            models=[name.strip() for name in models.split(",")] if models is not None else None,
            tune=tune,
            window=window,
        )
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            screen.say_how_long(_seconds(experiment, len(log)))
            result = static.run(experiment, log, report).as_json()
        tables.show_result(result)
        if plot is not None:
            from nextapp.studies import plots

            plot.parent.mkdir(parents=True, exist_ok=True)
            plots.save(plots.calibration(result), plot)
            screen.err.print(f"Wrote {plot.with_suffix('.svg')} and .png", highlight=False)
        screen.write_json(json, result)
        screen.say_next(f"nextapp explain {source}", f"nextapp new-phones {source}")


def _seconds(experiment: Experiment, n_launches: int) -> float:
    """About how long it takes on two idle cores, as measured on the twin of LSApp."""
    trained = [name for name in experiment.models if name.partition("-")[0] in ("mf", "seqmf")]
    others = len(experiment.models) - len(trained)
    size = n_launches / 370_000
    seconds = 3 + size * (1 + 2 * others + len(trained))
    return seconds + size * 0.6 * len(trained) * experiment.tune
