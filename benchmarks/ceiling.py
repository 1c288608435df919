"""What anyone could reach on synthetic phones, beside simple rivals (docs/synthetic.md).

    python benchmarks/ceiling.py synthetic:lsapp --seeds 1,2,3,4,5
    python benchmarks/ceiling.py synthetic:lsapp --seeds 1,2,3,4,5 --dynamic
    python benchmarks/ceiling.py synthetic:app-usage --models mru,sr,nextapp
    python benchmarks/ceiling.py synthetic:lsapp --seeds 1,2,3,4,5 --expected

HR@1, 3 and 5 of the oracle and of each model, over the users of all seeds together, and how far
the oracle is above, with paired 95 % intervals over users. Dynamic: mean over cycles; every model
is fitted anew before each of them. Expected: in the preset paper, not whether the app launched was
among the first n but the chance that it would be, by the oracle's odds: without the luck of the
draw, so that a small distance can be seen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from nextapp.data.cutting import Cycling, Split
from nextapp.data.loading import read_log
from nextapp.evaluation import Exam, evaluate, exam, find_preset
from nextapp.evaluation.dynamic_environment import Courses, CycleStream, Refitted, run_cycles
from nextapp.evaluation.static import user_means
from nextapp.predictors import Predictor
from nextapp.studies.dynamic import DynamicExperiment
from nextapp.studies.experiment import CEILING, Experiment
from nextapp.table import bootstrap_means, interval

METRICS = ("HR@1", "HR@3", "HR@5")
Figures = tuple[float, float, float]  # mean, low, high


def static(
    experiment: Experiment, seeds: list[int], *, by_chance: bool = False
) -> tuple[int, Callable[..., Figures]]:
    pooled: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        log = read_log(experiment.data, seed=seed)
        ready = exam(log, Split.parse(experiment.split), find_preset(experiment.preset))
        predictors = Experiment(experiment.data, models=experiment.models, seed=seed).predictors()
        if by_chance:
            for name, means in expected(ready, predictors).items():
                pooled.setdefault(name, []).append(means)
        else:
            for mark in evaluate(ready, predictors, seed).marks:
                pooled.setdefault(mark.name, []).append(mark.tables["all"][:, :3])
    by_user = {name: np.concatenate(parts) for name, parts in pooled.items()}

    def figures(metric: str, name: str, less: str | None = None) -> Figures:
        values = by_user[name] - (by_user[less] if less else 0.0)
        low, high = interval(bootstrap_means(values, 0))[:, METRICS.index(metric)]
        return float(values[:, METRICS.index(metric)].mean()), float(low), float(high)

    return len(by_user[CEILING]), figures


def expected(ready: Exam, predictors: Sequence[Predictor]) -> dict[str, np.ndarray]:
    """(n_users, 3) each: the chance, by the odds of the first, that the next app is among n.

    All candidates compete, as in the preset paper; equal scores stand for all their orders.
    """
    for predictor in predictors:
        predictor.fit(ready.history)
    values: dict[str, list[np.ndarray]] = {predictor.name: [] for predictor in predictors}
    for chunk in ready.chunks:
        odds, place = predictors[0].score(chunk.questions), 0
        answers = {each.name: each.score(chunk.questions) for each in predictors}
        for question in chunk.questions:
            cells = slice(place, place + len(question.candidates))
            place = cells.stop
            for name, scores in answers.items():
                own = scores[cells]
                above = (own > own[:, None]).sum(axis=1)
                level = (own == own[:, None]).sum(axis=1)
                among = [np.clip((n - above) / level, 0, 1) for n in (1, 3, 5)]
                values[name].append(np.array(among) @ odds[cells])
    return {name: user_means(ready, np.array(rows), ready.within) for name, rows in values.items()}


def dynamic(experiment: Experiment, seeds: list[int]) -> tuple[int, Callable[..., Figures]]:
    pooled = []
    for seed in seeds:
        preset = find_preset(experiment.preset)
        whole = preset.collapse_repeats(read_log(experiment.data, seed=seed))
        cycles = Cycling.parse(DynamicExperiment(experiment.data).cycles).cut(whole)
        predictors = Experiment(experiment.data, models=experiment.models, seed=seed).predictors()
        models = [Refitted(predictor) for predictor in predictors]
        pooled.append(run_cycles(CycleStream(cycles, preset), models, METRICS))
    values = np.concatenate(pooled, axis=2)  # users of all seeds, cycle by cycle
    courses = Courses(dict(zip(experiment.models, values[:, None], strict=True)), METRICS, 0)

    def figures(metric: str, name: str, less: str | None = None) -> Figures:
        curve = courses.overall(name, metric, less)
        return float(curve.mean[0]), float(curve.low[0]), float(curve.high[0])

    return values.shape[2], figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--models", default="mru,sr,sr-od")
    parser.add_argument("--presets", default="paper,honest,authors")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--expected", action="store_true")
    given = parser.parse_args()
    models = given.models.split(",")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    environment = dynamic if given.dynamic else partial(static, by_chance=given.expected)
    presets = "paper" if given.expected else given.presets
    gaps = " | ".join(f"oracle − {name}" for name in models)
    print(f"| preset | | oracle | {' | '.join(models)} | {gaps} |")
    print(f"|---|---|{'--:|' * (1 + 2 * len(models))}")
    users = []
    for preset in presets.split(","):
        experiment = Experiment(given.data, preset=preset, models=(CEILING, *models))
        n_users, figures = environment(experiment, seeds)
        users.append(f"{n_users:,} users ({preset})")
        for metric in METRICS:
            cells = [f"{figures(metric, name)[0]:.4f}".lstrip("0") for name in (CEILING, *models)]
            for name in models:
                mean, low, high = figures(metric, CEILING, name)
                cells.append(f"{mean:+.4f} ({low:+.4f} to {high:+.4f})")
            print(f"| {preset} | {metric} | {' | '.join(cells)} |", flush=True)
    print(f"\n{given.data}, seeds {given.seeds}: {', '.join(users)}.")


if __name__ == "__main__":
    main()
