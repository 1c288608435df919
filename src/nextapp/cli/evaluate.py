"""`nextapp evaluate`: measure models on a launch log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nextapp.cli import options, screen, tables
from nextapp.cli.forms import command, option
from nextapp.cli.options import settings_of
from nextapp.studies import static
from nextapp.studies.settings import Experiment, experiment_from


@command(
    "nextapp evaluate synthetic:lsapp --preset authors --models mru,sr-od,nextapp\n"
    "nextapp evaluate launches.csv --json result.json"
)
@options.source
@settings_of(Experiment, "given", "models", "split", "preset", "tune", "window", "seed")
@option(
    "--plot",
    type=options.OUTPUT_FOLDER,
    help="Plot calibration and prewarming, as FILE.svg and FILE.png.",
    heading=options.OUTPUT,
)
@options.json_file
@options.log_options
def evaluate(
    source: str,
    given: dict[str, Any],
    plot: Path | None,
    json: Path | None,
    log_options: options.LogOptions,
) -> None:
    """Measure models on a launch log: HR, MRR and NDCG @1, 3, 5.

    Models that give probabilities are also measured by calibration and by prewarming: how many
    launches are hit by starting the apps above a threshold.
    """
    experiment = experiment_from({**given, "data": source})
    with screen.progress() as report:
        report("reading", 0, 0)
        log = log_options.read(source, experiment.seed)
        result = static.run(experiment, log, report).as_json()
    tables.show_result(result)
    if plot is not None:
        from nextapp.studies import plots

        plot.parent.mkdir(parents=True, exist_ok=True)
        plots.save(plots.calibration(result), plot)
        screen.err.print(f"Wrote {plot.with_suffix('.svg')} and .png", highlight=False)
    screen.write_json(json, result)
    screen.say_next(f"nextapp explain {source}", f"nextapp new-phones {source}")
