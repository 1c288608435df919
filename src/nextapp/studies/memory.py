"""Which apps to keep in memory: cold starts of several policies on the test part of a log.

K apps are resident, the one that is open included. The launch of another is a cold start: it is
loaded, and of the others the one of lowest value gives way. Policies differ in the value:

    lru, lfu, faded-lfu   when it was last used; how often, counts also faded
    counts-keep           log f + 30·P as below, P by a count mix of one app of context
    chance                P(next = i) of nextapp alone
    keep                  log f(i) + 30·P(next = i), as `nextapp.predictor.keep_scores`
    keep-prewarm-θ        keep; and right after a launch an app is loaded in the place of the one of
                          lowest value while it is more likely by more than θ
    top                   always the K − 1 most likely apps beside the open one
    min                   how soon it comes next, which nobody can know: the fewest cold starts

A load in advance is wasted if the app gives way before it is launched. Every policy starts with the
apps used last before the test part. P is of the next launch, as of the launch before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nextapp.compiled import loop
from nextapp.data.cutting import Split
from nextapp.data.log import Indices, LaunchLog
from nextapp.evaluation import Exam, Preset, exam
from nextapp.predictor import FREQUENCY_FADE, keep_scores
from nextapp.predictors import Predictor, build
from nextapp.predictors.rivals import CountMix
from nextapp.progress import Progress, silent
from nextapp.settings import setting
from nextapp.studies.experiment import about_log, versions
from nextapp.table import FEWEST, bootstrap_means, measured
from nextapp.wire import Floats

LRU, MIN = "lru", "min"
FADED = 0.99
_DAY_MS = 86_400_000
_COLD, _PREWARMED, _WASTED = range(3)
_WHOLE_TEST_PART = Preset("memory", "so-far", "expected", "user", False, "collapsed", "all")


@dataclass(frozen=True)
class MemoryStudy:
    """What to simulate. Costs are those of a Pixel 6a (DiPECS, 2026)."""

    HEADING: ClassVar[str] = "Study"

    data: str
    split: str = setting("fraction:0.8,0,0.2", "Train, validation and test part.")
    sizes: tuple[int, ...] = setting((3, 5, 8), "Numbers of resident apps.", metavar="NUMBERS")
    thetas: tuple[float, ...] = setting(
        (0.02, 0.05, 0.1, 0.2),
        "Load an app in advance if it is more likely by more than this.",
        metavar="NUMBERS",
    )
    cold: float = setting(0.711, "Seconds of a cold start.")
    warm: float = setting(0.202, "Seconds of the start of a resident app.")
    seed: int = setting(0, "Random seed.")

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 2:
            raise ValueError(
                f"sizes must be numbers of resident apps >= 2, the open one included, got "
                f"{self.sizes!r}."
            )
        if not all(0 <= theta < 1 for theta in self.thetas):
            raise ValueError(f"thetas must be differences from 0 to 1, got {self.thetas!r}.")
        if not 0 <= self.warm <= self.cold:
            raise ValueError(
                f"a cold start must take as long as a warm one or longer, got {self.cold!r} and "
                f"{self.warm!r} seconds."
            )


@dataclass(frozen=True, eq=False)
class Policy:
    """``values`` (n, k) of k apps right after each launch, and what is loaded in advance by θ."""

    values: Floats
    chances: Floats
    theta: float = np.inf


@dataclass(frozen=True, eq=False)
class Resident:
    """The launches of a test part, those before it, and P before each launch of the test part by
    nextapp and by a count mix; apps are numbers below k."""

    launches: Indices
    before: Indices
    chances: Floats
    counted: Floats

    def policies(self, thetas: tuple[float, ...]) -> dict[str, Policy]:
        """By name, in the order in which they are shown."""
        chances, counted = _after(self.chances), _after(self.counted)
        frequency = self.used(FREQUENCY_FADE)
        keep = keep_scores(frequency, chances)
        found = {
            LRU: Policy(self.last_use, chances),
            "lfu": Policy(self.used(1.0), chances),
            "faded-lfu": Policy(self.used(FADED), chances),
            "counts-keep": Policy(keep_scores(frequency, counted), counted),
            "chance": Policy(chances, chances),
            "keep": Policy(keep, chances),
        }
        for theta in thetas:
            found[f"keep-prewarm-{theta:g}"] = Policy(keep, chances, theta)
        found["top"] = Policy(chances, chances, 0.0)
        found[MIN] = Policy(-self.next_use, chances)
        return found

    def used(self, fade: float) -> Floats:
        """(n, k): how often each app was used up to each launch, faded."""
        counts, rows = np.zeros(self.chances.shape[1]), np.empty_like(self.chances)
        for row, app in enumerate([*self.before, *self.launches], -len(self.before)):
            counts *= fade
            counts[app] += 1.0
            if row >= 0:
                rows[row] = counts
        return rows

    @property
    def last_use(self) -> Floats:
        """(n, k): when each app was used last, up to each launch; -∞ for never."""
        used, rows = np.full(self.chances.shape[1], -np.inf), np.empty_like(self.chances)
        used[self.before] = np.arange(len(self.before)) - len(self.before)
        for row, app in enumerate(self.launches):
            used[app] = row
            rows[row] = used
        return rows

    @property
    def next_use(self) -> Floats:
        """(n, k): the row in which each app comes next, after each launch; n where it does not."""
        n, k = self.chances.shape
        rows, coming = np.empty((n, k)), np.full(k, float(n))
        for row in range(n - 1, -1, -1):
            rows[row] = coming
            coming[self.launches[row]] = row
        return rows

    def start(self, size: int) -> npt.NDArray[np.bool_]:
        """(k,): the apps used last before the test part."""
        resident = np.zeros(self.chances.shape[1], bool)
        latest = dict.fromkeys(self.before[::-1].tolist())
        resident[list(latest)[:size]] = True
        return resident


def _after(chances: Floats) -> Floats:
    """P right after each launch is P before the next one; after the last nothing is asked."""
    return np.concatenate([chances[1:], chances[-1:]])


def play(phone: Resident, policy: Policy, size: int) -> tuple[int, int, int]:
    """Cold starts, loads in advance and those of them that were wasted."""
    start = phone.start(size)
    return _play(phone.launches, policy.values, policy.chances, start, size, policy.theta)


@loop(seconds=lambda launches, *_: 5e-5 * len(launches))
def _play(
    launches: Indices,
    values: Floats,
    chances: Floats,
    resident: npt.NDArray[np.bool_],
    size: int,
    theta: float,
) -> tuple[int, int, int]:
    unused = np.zeros(len(resident), np.bool_)  # loaded in advance and not launched yet
    n_cold, n_prewarmed, n_wasted = 0, 0, 0
    for row in range(len(launches)):
        app, value, chance = launches[row], values[row], chances[row]
        unused[app] = False
        if not resident[app]:
            n_cold += 1
            if resident.sum() >= size:
                out = np.argmin(np.where(resident, value, np.inf))
                resident[out] = False
                n_wasted += unused[out]
                unused[out] = False
            resident[app] = True
        while theta < 1.0:
            others = resident.copy()
            others[app] = False
            best = np.argmax(np.where(resident, -1.0, chance))
            if resident[best] or chance[best] <= 0.0:
                break
            if resident.sum() >= size:
                out = np.argmin(np.where(others, value, np.inf))
                if not chance[best] - chance[out] > theta:
                    break
                resident[out] = False
                n_wasted += unused[out]
                unused[out] = False
            elif not chance[best] > theta:
                break
            resident[best] = unused[best] = True
            n_prewarmed += 1
    return n_cold, n_prewarmed, n_wasted + unused.sum()


def phones_of(test: Exam, model: Predictor, counts: Predictor) -> list[Resident]:
    """The phones of an exam whose predictors are fitted; apps never launched have no chance."""
    phones = []
    for chunk in test.chunks:
        questions, competes = chunk.questions, chunk.competes(chunk.predictions)
        both = [np.exp(each.score(questions)) for each in (model, counts)]
        for v, user in enumerate(questions.users.tolist()):
            own = questions.candidates[slice(*questions.candidate_starts[v : v + 2])]
            launches = questions.launches[slice(*questions.session_starts[v : v + 2])]
            cells = slice(*questions.cell_starts[v : v + 2])
            mine = slice(*test.history.starts[user : user + 2])
            known = competes[cells].reshape(-1, len(own))
            phones.append(
                Resident(
                    launches,
                    np.searchsorted(own, test.history.app[mine]),
                    *(found[cells].reshape(-1, len(own)) * known for found in both),
                )
            )
    return phones


def run(study: MemoryStudy, log: LaunchLog, report: Progress = silent) -> dict[str, Any]:
    """Every policy on every phone; figures by number of resident apps and policy."""
    test = exam(log, Split.parse(study.split), _WHOLE_TEST_PART)
    model, counts = build("nextapp", study.seed), CountMix(longest=1)
    for predictor in (model, counts):
        report(predictor.name, 0, 0)
        predictor.fit(test.history)
    phones = phones_of(test, model, counts)
    launched = np.array([len(phone.launches) for phone in phones])
    ends = np.cumsum(launched)
    time = test.whole.time[test.rows]
    days = np.maximum((time[ends - 1] - time[ends - launched]) / _DAY_MS, 1.0)
    names = list(phones[0].policies(study.thetas))
    counted = np.zeros((len(study.sizes), len(names), len(phones), 3))
    for number, phone in enumerate(phones):
        report("phones", number, len(phones))
        for place, policy in enumerate(phone.policies(study.thetas).values()):
            for which, size in enumerate(study.sizes):
                counted[which, place, number] = play(phone, policy, size)
    return {
        "data": about_log(study.data, test.whole, log),
        "n_users": len(phones),
        "n_predictions": int(launched.sum()),
        "preset": "all launches of the test part",
        "sizes": {
            str(size): {
                name: _figures(found, of_size[names.index(LRU)], launched, days, study)
                for name, found in zip(names, of_size, strict=True)
            }
            for size, of_size in zip(study.sizes, counted, strict=True)
        },
        "settings": asdict(study),
        "versions": versions(),
    }


def _figures(
    found: Floats, lru: Floats, launched: Indices, days: Floats, study: MemoryStudy
) -> Mapping[str, Any]:
    """Means over users with intervals over users, from ten users on; ratios are of means."""
    per_100 = 100.0 * found / launched[:, None]
    fewer = 100.0 * (lru - found)[:, _COLD] / launched
    seconds = (lru - found)[:, _COLD] * (study.cold - study.warm) / days
    of_lru = 100.0 * lru[:, _COLD] / launched
    columns = np.column_stack([per_100, fewer, seconds, of_lru])
    means, drawn = columns.mean(axis=0), bootstrap_means(columns, study.seed)

    def of_users(mean: float, each: Floats) -> Mapping[str, float | None]:
        few = len(found) < FEWEST
        return {"mean": float(mean), "low": None, "high": None} if few else measured(mean, each)

    figures: dict[str, Any] = {
        name: of_users(means[column], drawn[:, column])
        for name, column in (("cold", 0), ("prewarmed", 1), ("wasted", 2), ("seconds_per_day", 4))
    }
    figures["avoided"] = None
    if means[5] > 0.0:
        with np.errstate(divide="ignore", invalid="ignore"):
            figures["avoided"] = of_users(means[3] / means[5], drawn[:, 3] / drawn[:, 5])
    figures["wasted_per_avoided"] = float(means[2] / means[3]) if means[3] > 0.0 else None
    return figures
