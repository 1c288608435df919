"""`nextapp evaluate`: measure models on a launch log."""

from __future__ import annotations

from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors
from nextapp.studies import static
from nextapp.studies.settings import MODELS


@expand_options
def evaluate(
    source: options.Source,
    *,
    models: Annotated[
        str | None,
        typer.Option(
            help=f"Models, separated by commas. Default: {', '.join(MODELS)}. On synthetic "
            "data also ceiling, which knows the probabilities of the generator: an upper bound.",
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
    experiment_options: options.ExperimentOptions,
    json: options.JsonFile = None,
    log_options: options.LogOptions,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5 by iterative revealing."""
    with clear_errors():
        experiment = experiment_options.experiment(
            data=source,
            models=[name.strip() for name in models.split(",")] if models is not None else None,
            tune=tune,
        )
        with screen.progress() as report:
            report("reading", 0, 0)
            log = log_options.read(source, experiment.seed)
            result = static.run(experiment, log, report).as_json()
        tables.show_result(result)
        screen.write_json(json, result)
