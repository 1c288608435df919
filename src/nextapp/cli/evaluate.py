"""`nextapp evaluate`: measure models on a launch log."""

from __future__ import annotations

from typing import Annotated

import typer

from nextapp.cli import options, screen, tables
from nextapp.cli.errors import clear_errors
from nextapp.experiments import static
from nextapp.experiments.settings import MODELS


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
    with clear_errors():
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
        tables.show_result(result)
        screen.write_json(json, result)
