"""A verdict on every claim of the paper, computed from the results by the rules in `RULES`.

Every rule looks at paired differences with 95 % confidence intervals over users. The report prints
the rules from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from nextapp.evaluation import METRICS
from nextapp.evaluation.static import FEWEST_PREDICTIONS
from nextapp.predictors import CEILING
from nextapp.settings import count
from nextapp.studies.mechanisms import FORMS, NOISE, NONE, PRINTED
from nextapp.studies.reproduce.studies import ALL, FULL_SCORE
from nextapp.table import FEWEST, number

CONFIRMED = "confirmed"
NOT_CONFIRMED = "not confirmed"
CANNOT_TELL = "cannot tell at this size"
NO_GAIN = "cannot tell: training gains nothing here"
QUICK = "no verdict: quick run"
DEPENDS = "depends on tuning"
ANSWERS = {CONFIRMED: "yes", NOT_CONFIRMED: "no"}
"""The verdicts on our own questions that are worded otherwise."""

WORTH = 0.005  # smallest gain that counts as an improvement
LEVEL = 0.01  # margin of "not worse" and of "equivalent"
COMPARABLE = 0.03  # margin of the paper's "comparable quality"
BALANCED = 0.1  # largest coefficient of variation of "almost the same"
PAPERS_PHONES = 292
PAPERS_EPSILON = 4.5
KEPT = 0.7  # share of the non-private gain
ABOUT = 2.0  # factor within which a number is about another
MUCH_COSTLIER = 2.0  # ratio of "much more computationally costly"
PROHIBITIVE = 1.0  # milliseconds of a phone for one prediction
FLEET_CONTROLS = ("frozen", "zero", "noise")
RIVALS = "mru mfu sr sr-od mf"
REPAIRED = "harmony"  # QHarmony with a public clip and nothing in the clear
ENDS = ("mean", "low", "high")


def digits_to_judge(low: float, high: float) -> int:
    """Number of decimals, 3 to 5, that lets a reader check the verdict.

    More than three for a narrow interval, and where rounding would move an end across 0 or a margin
    of the rules.

    >>> digits_to_judge(-0.02, 0.04), digits_to_judge(0.0001, 0.0012), digits_to_judge(0.1, 0.1)
    (3, 4, 3)
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return 3
    width = high - low
    limits = (0.0, WORTH, -WORTH, LEVEL, -LEVEL)
    digits = 4 if 0 < width < 0.01 else 3
    while digits < 5 and any(
        np.sign(round(end, digits) - limit) != np.sign(end - limit)
        for end in (low, high)
        for limit in limits
    ):
        digits += 1
    return digits


class Gap(NamedTuple):
    """A difference with its 95 % confidence interval, measured on ``n_users`` users."""

    name: str
    mean: float
    low: float
    high: float
    n_users: int

    def __str__(self) -> str:
        digits = digits_to_judge(self.low, self.high)
        mean, low, high = (number(end, digits, "signed") for end in self[1:4])
        return f"{self.name} {mean} ({low} to {high})"

    @property
    def tells(self) -> bool:
        """Whether there are enough users and finite values for a verdict."""
        return self.n_users >= FEWEST and all(
            math.isfinite(value) for value in (self.mean, self.low, self.high)
        )


class Finding(NamedTuple):
    """``decides`` is the figure that decides, measured on ``n_users``.

    ``opposed``: which other settings give the opposite verdict; empty if none do. ``settings`` has
    the verdict and the figure that decides with each of the settings, by their name, the main ones
    first.
    """

    verdict: str
    decides: str
    n_users: int | None = None
    opposed: str = ""
    settings: Mapping[str, tuple[str, str]] = {}


def verdict_words(row: Mapping[str, Any]) -> str:
    """The verdict of a row of `report.verdicts` in words, with its dependence on tuning.

    >>> verdict_words({"verdict": CONFIRMED, "of_paper": False, "opposed": "5 trials"})
    'yes; depends on tuning'
    """
    word = row["verdict"] if row["of_paper"] else ANSWERS.get(row["verdict"], row["verdict"])
    return f"{word}; {DEPENDS}" if row["opposed"] else str(word)


@dataclass(frozen=True)
class Rule:
    """What confirms a claim and what refutes it; otherwise the result is undecided.

    A claim is confirmed when ``shown`` holds for every gap, and not confirmed when ``refuted``
    holds for at least one; both take a gap and the margin. ``confirms`` and ``refutes`` are their
    descriptions for the report, with a place for the {margin}.
    """

    name: str
    margin: float
    confirms: str
    shown: Callable[[Gap, float], bool]
    refutes: str
    refuted: Callable[[Gap, float], bool]

    def __call__(self, gaps: Sequence[Gap]) -> Finding:
        if not gaps:
            return Finding(CANNOT_TELL, "not measured")
        closest = str(min(gaps, key=lambda gap: gap.low))
        found = Finding(CANNOT_TELL, closest, min(gap.n_users for gap in gaps))
        if not all(gap.tells for gap in gaps):
            return found
        if all(self.shown(gap, self.margin) for gap in gaps):
            return found._replace(verdict=CONFIRMED)
        if against := [gap for gap in gaps if self.refuted(gap, self.margin)]:
            decides = str(min(against, key=lambda gap: gap.high))
            return found._replace(verdict=NOT_CONFIRMED, decides=decides)
        return found

    @property
    def words(self) -> str:
        """The rule as a sentence for the report."""
        both = f"{CONFIRMED} when {self.confirms}; {NOT_CONFIRMED} when {self.refutes}."
        return both.format(margin=self.margin)


beats = Rule(
    "beats",
    WORTH,
    "every interval lies above 0 and reaches a gain of at least {margin}",
    lambda gap, margin: gap.low > 0 and gap.high >= margin,
    "any interval lies wholly below {margin}, even if it is above 0",
    lambda gap, margin: gap.high < margin,
)
is_not_worse = Rule(
    "is not worse than",
    LEVEL,
    "every interval lies above −{margin} (or the margin stated with the claim)",
    lambda gap, margin: gap.low > -margin,
    "any interval lies wholly below it",
    lambda gap, margin: gap.high < -margin,
)
is_equivalent = Rule(
    "is equivalent to",
    LEVEL,
    "every interval lies within ±{margin}",
    lambda gap, margin: -margin < gap.low and gap.high < margin,
    "any interval lies wholly outside",
    lambda gap, margin: gap.low > margin or gap.high < -margin,
)
is_better = Rule(
    "is better by a margin than",
    LEVEL,
    "every interval lies above {margin}",
    lambda gap, margin: gap.low > margin,
    "any interval lies wholly below it",
    lambda gap, margin: gap.high < margin,
)
gains_over = Rule(
    "gains over",
    0.0,
    "every interval lies above {margin}",
    lambda gap, margin: gap.low > margin,
    "any interval lies wholly at or below it",
    lambda gap, margin: gap.high <= margin,
)
RULES = (beats, is_not_worse, is_equivalent, is_better, gains_over)
is_comparable = replace(is_not_worse, margin=COMPARABLE)
ABOUT_RULES = (
    "Rules look at differences between two series on the same users, with 95 % intervals from a "
    "bootstrap over users (and seeds, where there are several).",
    f"In all other cases, and with fewer than {FEWEST} users, the verdict is '{CANNOT_TELL}'. A "
    "claim about several metrics or rivals needs all of them; the intervals are not corrected for "
    "multiple comparisons.",
    f"'{DEPENDS}' is added where the rule gives the opposite verdict with other settings. The "
    "verdict is that of all trials and tunings together or, for the regimes, of settings tuned on "
    "the other half of the users in the dynamic environment itself, which replace the defaults "
    "only where they are better beyond doubt. The others are fewer trials, each tuning alone, our "
    "defaults and the authors' settings.",
    "Each privacy mechanism has the learning rate chosen for it on other users, with the same "
    "effort for all; a best rate at the edge of those tried is named.",
    f"'Not worse' and 'equivalent' mean nothing where there is nothing to lose. A mechanism that "
    f"costs nothing must itself gain over a frozen Q and over steps along a sum of zero; where "
    f"training without privacy does not beat these, the verdict is '{NO_GAIN}', unless the "
    f"mechanism does harm. The same control applies to SeqMF's comparable quality and to "
    f"regimes that are alike; for higher utility and the best trade-off QHarmony must beat both.",
    f"Below {FEWEST_PREDICTIONS} predictions the figures are chance.",
)


def all_of(findings: Sequence[Finding]) -> Finding:
    """Confirmed if all findings are; not confirmed if any is not confirmed."""
    verdicts = [finding.verdict for finding in findings]
    order = (NOT_CONFIRMED, NO_GAIN, CANNOT_TELL, CONFIRMED)
    verdict = next(verdict for verdict in order if verdict in verdicts)
    decides = next(finding.decides for finding in findings if finding.verdict == verdict)
    users = min((each.n_users for each in findings if each.n_users is not None), default=None)
    return Finding(verdict, decides, users)


def over_tunings(main: Finding, others: Mapping[str, Finding], settings: str = "") -> Finding:
    """The main verdict, and which other settings give the opposite one.

    `settings` describes those of the main verdict. If the main verdict is `CANNOT_TELL`, others are
    opposed if they contradict each other.
    """
    if not (others or settings):
        return main
    each = {settings: main, **others}
    turned = []
    if ANSWERS.keys() <= {finding.verdict for finding in each.values()}:
        for verdict in ANSWERS.keys() - {main.verdict}:
            names = [name for name, finding in others.items() if finding.verdict == verdict]
            turned.append(f"{verdict} with {', '.join(names)}")
    found = {name: (finding.verdict, finding.decides) for name, finding in each.items()}
    return main._replace(opposed="; ".join(sorted(turned)), settings=found)


Result = Mapping[str, Any]


# --- judging by differences -------------------------------------------------------------------

BEST_RIVAL = "the best rival"
EVERY_OTHER = "every other series except the ceiling"
HIT_RATES = ("HR@1", "HR@3", "HR@5")


@dataclass(frozen=True)
class Compare:
    """Judges by a rule on first − second in every metric, for all firsts and all seconds.

    With a ``control``, as "none frozen zero", there must be something to lose: none must beat
    frozen and zero, and all firsts must gain over them. ``firsts`` and ``seconds`` are names,
    separated by spaces, or one of `BEST_RIVAL` and `EVERY_OTHER`. With a ``preset`` they are models
    of the static environment; without one series of the dynamic environment, compared by their
    means over cycles.
    """

    rule: Rule
    firsts: str
    seconds: str
    metrics: Sequence[str] = ("HR@5",)
    preset: str = ""
    control: str = ""

    def __call__(self, result: Result) -> Finding:
        found = self.rule(list(self._gaps(result)))
        if self.control and found.verdict != NOT_CONFIRMED:
            found = self._with_control(found, result)
        edge = [name for name in f"{self.firsts} {self.seconds}".split() if _at_edge(result, name)]
        note = f"; rate at the edge: {', '.join(edge)}" if edge else ""
        return found._replace(decides=found.decides + note)

    def _with_control(self, found: Finding, result: Result) -> Finding:
        table = result["presets"][self.preset] if self.preset else result
        trained, *untrained = self.control.split()
        control = beats([gap_between(table, trained, name) for name in untrained])
        if control.verdict != CONFIRMED:
            tells = control.verdict == NOT_CONFIRMED or found.verdict == CONFIRMED
            verdict = NO_GAIN if tells else CANNOT_TELL
            return found._replace(verdict=verdict, decides=control.decides)
        pairs = product(self.firsts.split(), untrained)
        return all_of([found, gains_over([gap_between(table, *pair) for pair in pairs])])

    @property
    def words(self) -> str:
        """The sentence of the report, such as: seqmf beats mru, sr in HR@5, preset authors."""
        firsts, seconds = (
            names if names in (BEST_RIVAL, EVERY_OTHER) else ", ".join(names.split())
            for names in (self.firsts, self.seconds)
        )
        each = "each " if " " in self.firsts else ""
        metrics = "all nine metrics" if self.metrics == METRICS else ", ".join(self.metrics)
        where = f"preset {self.preset}" if self.preset else "mean over cycles"
        words = f"{firsts} {each}{self.rule.name} {seconds} in {metrics}, {where}"
        if self.rule is not beats:
            words += f", margin {self.rule.margin}"
        if self.control:
            trained, *untrained = self.control.split()
            words += f"; {trained} must beat {', '.join(untrained)}"
            if trained not in self.firsts.split():
                words += f", and {firsts} gain over these"
        return words

    def _gaps(self, result: Result) -> Iterator[Gap]:
        table = result["presets"][self.preset] if self.preset else result
        for first in self.firsts.split():
            for second in _names(self.seconds, first, table):
                yield from (gap_between(table, first, second, metric) for metric in self.metrics)


def _at_edge(result: Result, name: str) -> bool:
    series = (result.get("rates") or {}).get("series", {})
    return bool(series.get(name, {}).get("at_edge"))


def _names(names: str, first: str, table: Result) -> list[str]:
    if names == BEST_RIVAL:
        return [max(RIVALS.split(), key=lambda name: float(table["models"][name]["HR@5"]))]
    if names == EVERY_OTHER:
        return [name for name in table["series"] if name not in (first, CEILING)]
    return names.split()


def gap_between(table: Result, first: str, second: str, metric: str = "HR@5") -> Gap:
    """first − second; nan if not measured."""
    values = table["differences"].get(first, {}).get(second, {}).get(metric)
    return _gap(f"{first} − {second}, {metric}", values, table["n_users"])


def _gap(name: str, found: Mapping[str, Any] | None, n_users: int, less: float = 0.0) -> Gap:
    """A `Gap` from {mean, low, high}, each less the value that it is compared with."""
    mean, low, high = (_number((found or {}).get(key)) - less for key in ("mean", "low", "high"))
    return Gap(name, mean, low, high, n_users)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True)
class Both:
    """Judges by two comparisons, which both must hold; with ``but_not`` the second must not."""

    first: Compare
    second: Compare
    but_not: bool = False

    def __call__(self, result: Result) -> Finding:
        second = self.second(result)
        if self.but_not:
            opposite = {CONFIRMED: NOT_CONFIRMED, NOT_CONFIRMED: CONFIRMED}
            second = second._replace(verdict=opposite.get(second.verdict, second.verdict))
        return all_of([self.first(result), second])

    @property
    def words(self) -> str:
        joined = "and it does not hold that" if self.but_not else "and"
        return f"{self.first.words}, {joined} {self.second.words}"


# --- judging by other figures -----------------------------------------------------------------


@dataclass(frozen=True)
class By:
    """Judges by a function that is written for one claim."""

    words: str
    function: Callable[[Result], Finding]

    def __call__(self, result: Result) -> Finding:
        return self.function(result)


def _activity_balanced(result: Result) -> Finding:
    users = np.asarray(result["by_cycle"]["n_users"], float)
    if len(users) < FEWEST:
        return Finding(CANNOT_TELL, f"only {len(users)} cycles")
    spread = float(users.std() / users.mean())
    verdict = CONFIRMED if spread <= BALANCED else NOT_CONFIRMED
    return Finding(verdict, f"{spread:.0%} of the mean over cycles")


def _within_budget(name: str, result: Result) -> Finding:
    epsilon = float(result["settings"]["epsilon"])
    spent, privacy = (result["series"][name][key] for key in ("epsilon_spent", "privacy"))
    if privacy["n_rounds"] == 0:
        return Finding(CANNOT_TELL, "too few cycles for a round of training: no phone reported")
    if spent is None:
        return Finding(NOT_CONFIRMED, f"no finite ε: {privacy['promise']}")
    verdict = CONFIRMED if spent <= epsilon + 1e-9 else NOT_CONFIRMED
    return Finding(verdict, f"ε = {spent:g} spent, {epsilon:g} promised")


def _gains(result: Result, name: str) -> list[Gap]:
    """The gains of a mechanism over its controls in one fleet.

    The fleet is the smallest of at least `PAPERS_PHONES` phones, or else the largest that was run.
    """
    row = result["mechanisms"].get(name, {})
    if not row.get("phones"):
        return []
    at = next((i for i, n in enumerate(row["phones"]) if n >= PAPERS_PHONES), -1)
    n_outside = result["settings"]["sample"] * result["settings"]["seeds"]
    phones = f"{row['phones'][at]:,} phones"
    gains = {control: row[f"gain_over_{control}"] for control in FLEET_CONTROLS}
    return [
        _gap(f"{name} − {control} at {phones}", {end: gain[end][at] for end in ENDS}, n_outside)
        for control, gain in gains.items()
    ]


def _enough_phones(names: Sequence[str] | None, result: Result) -> Finding:
    """Whether the fleet of `_gains` is large enough for at least one of these mechanisms.

    Without names: for at least one that is ε-LDP.
    """
    if names is None:
        names = [name for name in result["mechanisms"] if name != NONE and not FORMS[name].unsafe]
    gains = [_gains(result, name) for name in names]
    return _one_of([gaps for gaps in gains if gaps])


def _one_of(candidates: Sequence[Sequence[Gap]]) -> Finding:
    """Confirmed if one candidate beats all it is compared with, not confirmed if none can.

    Of those with that verdict, the one that is furthest ahead decides.
    """
    best_first = sorted(candidates, key=lambda gaps: -min(gap.low for gap in gaps))
    findings = [beats(gaps) for gaps in best_first]
    order = (CONFIRMED, CANNOT_TELL, NOT_CONFIRMED)
    not_run = Finding(CANNOT_TELL, "not run")
    return min(findings, key=lambda each: order.index(each.verdict), default=not_run)


def _crowd_helps(result: Result) -> Finding:
    """The gain in HR@5 of new phones by a crowd prior, over the headline launches."""
    row = result["priors"]["non-private"]["headline"]
    return beats([_gap("crowd (non-private) − without", row["gain@5"], row["n_phones"])])


def _share_kept(result: Result) -> Finding:
    """The share of the non-private gain kept at the paper's ε, or at the nearest ε that was run."""
    epsilons = result["settings"]["epsilons"]
    name = f"ε = {min(epsilons, key=lambda epsilon: abs(epsilon - PAPERS_EPSILON)):g}"
    row = result["priors"][name]
    share = row["kept"]["HR@5"]
    if share is None or _crowd_helps(result).verdict != CONFIRMED:
        return Finding(CANNOT_TELL, "no gain of the non-private prior to keep")
    mean, low, high = (f"{share[end]:.2f}" for end in ENDS)
    words = f"share of the gain kept at {name} {mean} ({low} to {high})"
    found = gains_over([_gap(words, share, row["headline"]["n_phones"], less=KEPT)])
    return found._replace(decides=words)


def _by_repeats(result: Result) -> Finding:
    """Whether the lead of SR over SeqMF is gone where the last app is left out of the ranking."""
    leads, n_users = gains_over([gap_between(result, "sr", "seqmf")]), result["n_users"]
    mean, low, high = (-_number(result["different"][end]) for end in ("mean", "high", "low"))
    different = Gap("sr − seqmf on the next different app, HR@5", mean, low, high, n_users)
    stays = gains_over([different])
    if leads.verdict != CONFIRMED:  # without a lead there is nothing to explain
        return leads._replace(verdict=CANNOT_TELL)
    if different.tells and different.high <= WORTH:
        return stays._replace(verdict=CONFIRMED)
    return stays._replace(verdict=NOT_CONFIRMED if stays.verdict == CONFIRMED else CANNOT_TELL)


def _by_stationarity(result: Result) -> Finding:
    """Whether older transitions are worth as much to SR as newer ones."""
    leads = gains_over([gap_between(result, "sr", "seqmf")])
    found = is_equivalent([gap_between(result, "sr-newer", "sr-older")])
    return found if leads.verdict == CONFIRMED else leads._replace(verdict=CANNOT_TELL)


def _as_many_users_as_entries(result: Result) -> Finding:
    data, dim = result["data"], result["settings"]["seqmf"]["dim"]
    users, entries = data["n_users"], data["n_apps"] * dim
    return Finding(
        CONFIRMED if entries / ABOUT <= users <= entries * ABOUT else NOT_CONFIRMED,
        f"{users:,} users, {data['n_apps']:,} apps × {dim} = {entries:,} entries",
        users,
    )


def _stays_on_the_phone(result: Result) -> Finding:
    ups, phone = result["up"], result["phone"]
    leaks = any(row["holds_user_vector"] or row["holds_history"] for row in ups.values())
    sizes = "; ".join(
        f"{name}: {row['payload_bytes']} bytes, sent in the clear: "
        f"{', '.join(row['sent_in_clear']) or 'nothing'}"
        for name, row in ups.items()
    )
    return Finding(
        NOT_CONFIRMED if leaks else CONFIRMED,
        f"{sizes}; the user vector alone has {phone['user_vector_bytes']} bytes, the gradient "
        f"{phone['gradient_bytes']:,} bytes",
    )


def _costs_more(words: str, name: str, figure: str, limit: float, result: Result) -> Finding:
    """Whether a figure of the part cost lies above the limit at every size of the catalogue."""
    gaps, shown = [], []
    for n_apps, rows in result["sizes"].items():
        found = rows[name][figure]
        mean, low, high = (f"{found[end]:,.3g}" for end in ENDS)
        shown.append(f"{words}, {int(n_apps):,} apps: {mean} ({low} to {high})")
        gaps.append(_gap(words, found, result["n_phones"], less=limit))
    weakest = min(range(len(gaps)), key=lambda place: gaps[place].low)
    return gains_over(gaps)._replace(decides=shown[weakest])


def _window_helps(result: Result) -> Finding:
    """Whether at least one of the windows beats learning from all history."""
    return _one_of(
        [
            [_gap(f"{name} − {ALL}, HR@5", row["gain"], result["n_users"])]
            for name, row in result["windows"].items()
            if row["gain"] is not None
        ]
    )


# --- the claims -------------------------------------------------------------------------------

Judge = Compare | Both | By


@dataclass(frozen=True)
class Claim:
    """A claim quoted from the paper, or a question of ours that the paper leaves open.

    ``part`` is the part of the report with the numbers; ``judged_by`` gets that part's result.
    ``needs`` names a model that may not have been run; without it the question is skipped.
    ``tuned``: the answer may depend on the settings, so the part's variants are judged too.
    ``private``: whether it is about reports that spend ε, if the part has any.

    The tables below have one row per claim, whose ``part`` may name several; ``words`` and
    ``where`` may then contain the {figure} and the {budget} of each.
    """

    part: str
    name: str
    judged_by: Judge
    words: str
    where: str = "our question"
    needs: str = ""
    tuned: bool = True
    private: bool = True
    of_paper: bool = False

    @property
    def rule(self) -> str:
        return self.judged_by.words

    def is_put(self, result: Result) -> bool:
        """Whether the part was run with the model that the question is about."""
        tables = result.get("presets", {"": {"models": result.get("series", {})}})
        return not self.needs or all(self.needs in table["models"] for table in tables.values())

    def on(self, part: str) -> Claim:
        """The claim about one of its parts."""
        names = {"figure": _FIGURES.get(part, ""), "budget": _BUDGETS.get(part, "")}
        return replace(
            self,
            part=part,
            name=f"{part}-{self.name}",
            words=self.words.format(**names),
            where=self.where.format(**names),
        )


_FIGURES = {
    "table1": "Table 1", "table2": "Table 2", "fig2": "Figure 2", "fig3": "Figure 3",
    "fig4": "Figure 4", "fig5": "Figure 5", "fig6": "Figure 6",
}  # fmt: skip
_BUDGETS = {"fig5": "ε = 4.5", "fig6": "ε = 1.1"}
_UNTRAINED = "none frozen zero"
_READINGS = "qharmony-printed-k1 qharmony-printed-mean qharmony"
_IN_FLEET = (
    f"in the smallest simulated fleet of at least {PAPERS_PHONES} phones (else the largest), the "
    f"HR@5 of phones outside the fleet beats the HR@5 with frozen Q, with zero gradients and with "
    f"the mechanism's noise alone; intervals are over independent simulated worlds; larger fleets "
    f"do not count"
)

_BOTH_SIZES = "for both catalogue sizes of the paper; intervals over phones"

# fmt: off
_QUOTED = (
    Claim("fig1", "stays",
         By("in a real round no report contains the bytes of the user vector or of the history",
            _stays_on_the_phone),
         "user embeddings and the history of users' actions are stored only on the device",
         where="Local Differential Privacy, Figure 1"),
    Claim("table1 table2", "mf", Compare(beats, "seqmf", "mf", METRICS, "authors"),
         "SeqMF significantly outperforms its non-sequential predecessor MF on both datasets",
         where="Results, {figure}"),
    Claim("table1", "rival", Compare(beats, "sr-od", "seqmf", METRICS, "authors"),
         "it underperforms the simple SR-od model on LSApp dataset … in all the metrics",
         where="Results, {figure}"),
    Claim("table2", "rival", Compare(beats, "sr", "seqmf", METRICS, "authors"),
         "it underperforms … SR model on App Usage data in all the metrics",
         where="Results, {figure}"),
    Claim("table1 table2", "comparable",
         Compare(is_comparable, "seqmf", BEST_RIVAL, preset="authors",
                 control="seqmf seqmf-frozen"),
         "the proposed model provides comparable quality with other methods in the static "
         "environment", where="Abstract"),
    Claim("fig2", "balanced",
         By(f"the standard deviation of active users over cycles is at most {BALANCED:.0%} of "
            f"their mean", _activity_balanced),
         "the number of active users is almost the same in every cycle",
         where="Dynamic environment, {figure}"),
    Claim("fig3", "sr-od", Compare(beats, "full rare global", "sr-od"),
         "The SeqMF model in the considered training regimes outperforms SR-od model in dynamical "
         "environment", where="{figure}"),
    Claim("fig3", "global", Compare(beats, "full", "global"),
         "if we do not update users' embeddings on the device at all (Global regime), then the "
         "overall performance of the SeqMF model decreases", where="Results, {figure}"),
    Claim("fig3", "rare", Compare(beats, "rare", "global"),
         "if we add just rare updates of users' embeddings (Rare regime), we can see that the "
         "performance increases compared to the SeqMF model in the Global regime",
         where="Results, {figure}"),
    Claim("fig3", "regular", Compare(beats, "full", "rare"),
         "regular updates of user embeddings improve performance", where="{figure}"),
    Claim("fig4", "sr-od",
         Both(Compare(beats, "full rare", "sr-od"),
              Compare(beats, "global", "sr-od"), but_not=True),
         "outperforms SR-od model in dynamical environment only if user embeddings are updated "
         "(Full and Rare regimes)", where="{figure}"),
    Claim("fig4", "alike", Compare(is_equivalent, "full", "rare", control="full global"),
         "the performance of the SeqMF model in Full and Rare regimes is very similar",
         where="Results, {figure}"),
    Claim("fig4", "regular", Compare(beats, "full rare", "global"),
         "regular updates of user embeddings improve performance", where="{figure}"),
    Claim("fig3 fig4", "all", Compare(beats, "full", RIVALS),
         "the SeqMF model outperforms the standard matrix factorization model and other "
         "competitors based on the collected statistics", where="Conclusion, {figure}"),
    Claim("fig5 fig6", "level", Compare(is_not_worse, PRINTED, "none", control=_UNTRAINED),
         "the QHarmony mechanism does not lead to performance decreasing compared to the "
         "non-private SeqMF model", where="{figure}"),
    Claim("fig5", "higher", Compare(beats, PRINTED, "none", control=f"{PRINTED} frozen zero"),
         "has an even higher utility on the LSApp dataset compared to the SeqMF model without any "
         "privacy mechanism", where="Results, {figure}"),
    Claim("fig5", "poor",
         Both(Compare(is_better, "none", "laplace harmony"),
              Compare(is_not_worse, "kashin", "none", control=_UNTRAINED)),
         "poor performance of the baseline privacy mechanisms except for the Kashin mechanism",
         where="Results, {figure}"),
    Claim("fig5 fig6", "best",
         Compare(beats, PRINTED, "laplace harmony kashin", control=f"{PRINTED} frozen zero"),
         "baseline privacy mechanisms have a worse privacy-utility trade-off compared to the "
         "proposed QHarmony mechanism", where="Results, {figure}"),
    Claim("fig5 fig6", "budget",
         By("the phone with the most reports spends no more than ε in total over the run, and "
            "nothing is sent in the clear", partial(_within_budget, PRINTED)),
         "QHarmony … budget {budget}", tuned=False, where="{figure}"),
    Claim("fig5 fig6", "elements",
         By(f"the number of users lies within a factor of {ABOUT:g} of the number of entries of "
            f"the gradient of Q", _as_many_users_as_entries),
         "in our setup the number of users is approximately the same as the number of elements in "
         "the gradient matrix", tuned=False, private=False, where="QHarmony mechanism"),
    Claim("cost", "kashin",
         By(f"a phone's processor time for a report through kashin is more than "
            f"{MUCH_COSTLIER:g} times that of {PRINTED}, {_BOTH_SIZES}",
            partial(_costs_more, f"processor time of kashin / that of {PRINTED}", "kashin",
                    "times", MUCH_COSTLIER)),
         "Kashin mechanism … is much more computationally costly than the proposed QHarmony "
         "mechanism", where="Results, Figure 5"),
    Claim("cost", "full-score",
         By(f"scoring its own apps by (4) takes a phone more than {PROHIBITIVE:g} ms of processor "
            f"time, {_BOTH_SIZES}",
            partial(_costs_more, "ms for the full score (4)", FULL_SCORE, "ms", PROHIBITIVE)),
         "prediction rule (4) incurs high computational cost prohibitive in the inference step",
         where="Inference in SeqMF model"),
    Claim("window", "restrict",
         By(f"Full with at least one window beats Full with {ALL} in HR@5, mean over cycles; not "
            f"confirmed if this is ruled out for every window", _window_helps),
         "To improve capturing the global dynamics in app usage frequencies, one has to restrict "
         "a period duration", where="SeqMF, the superscript (t)"),
    Claim("readings", "light",
         By("SeqMF ranked by the light score (8) is equivalent to SeqMF ranked by the full score "
            "(4) in HR@1",
            lambda found: is_equivalent([gap_between(found, "seqmf", "seqmf-full-score", "HR@1")])),
         "the second item … is the approximation of the second item in (4)",
         where="Inference in SeqMF model"),
    Claim("readings", "weights",
         By("MF with the weights of eq. (9) beats MF with the weights 1 + 40 d in HR@5",
            lambda result: beats([gap_between(result, "mf", "mf-hu")])),
         "standard weighting schemes did not work in our setting",
         where="Confidence-based weighting coefficients"),
    Claim("readings", "repeats",
         By(f"where SR gains over SeqMF in HR@5, it does not on the next different app: the "
            f"interval ends at or below {WORTH}", _by_repeats),
         "there are a lot of repetitive events … they induce a strong bias towards duplicated "
         "events", where="Results, first reason for the lead of SR"),
    Claim("readings", "stationary",
         By(f"where SR gains over SeqMF in HR@5, SR that learns from the older half of each "
            f"person's launches is equivalent to SR that learns from the newer half, within "
            f"{LEVEL}", _by_stationarity),
         "the sequential patterns become close to stationary and easier to uncover",
         where="Results, second reason for the lead of SR"),
)
_ASKED = (
    Claim("table1 table2", "frozen", Compare(beats, "seqmf", "seqmf-frozen", preset="honest"),
         "Is a trained Q better than a Q left at its random initial value?"),
    Claim("table1 table2", "nextapp",
         Compare(beats, "nextapp", f"{RIVALS} seqmf", HIT_RATES, "honest"),
         "Does nextapp, with all other phones' launches pooled in the clear, beat every rival?",
         needs="nextapp"),
    Claim("fig3 fig4", "sr-od-su", Compare(beats, "full rare", "sr-od-su"),
         "Do Full and Rare also outperform SR-od scored with S_u, as the authors ran it (R22)?",
         needs="sr-od-su"),
    Claim("fig3-honest fig4-honest", "sr-od", Compare(beats, "full rare", "sr-od"),
         "Do Full and Rare also outperform SR-od when counted as a phone would see it?"),
    Claim("fig3-honest fig4-honest", "nextapp", Compare(beats, "nextapp", EVERY_OTHER, HIT_RATES),
         "Does nextapp, with all other phones' launches pooled in the clear, beat every rival?",
         needs="nextapp"),
    Claim("fig5 fig6", "readings", Compare(is_not_worse, _READINGS, "none", control=_UNTRAINED),
         "Do other readings of QHarmony also cost no performance: k = 1, F̄ read as a mean, "
         "clipped with the best k?", needs="qharmony-printed-k1"),
    # A rate that is too small learns nothing: against controls only the best rate counts.
    Claim("fig5 fig6", "controls", Compare(beats, PRINTED, f"frozen zero {REPAIRED}{NOISE}"),
         "Does training through QHarmony as printed beat a Q that is not trained, a Q trained on "
         "zero gradients, and one trained on Harmony's noise alone?", tuned=False),
    Claim("fig5 fig6", "repaired", Compare(beats, REPAIRED, f"frozen zero {REPAIRED}{NOISE}"),
         "Does training through the repaired QHarmony, which sends nothing in the clear, beat "
         "all three?", tuned=False),
    Claim("fig5 fig6", "plain", Compare(beats, "none", "frozen"),
         "Does further training without any privacy beat the pre-trained Q?", tuned=False,
         private=False),
    Claim("fig5 fig6", "budget-repaired",
         By("the phone with the most reports spends no more than ε in total over the run",
            partial(_within_budget, REPAIRED)),
         "With the repaired mechanism, does a phone spend no more than {budget} in total?",
         tuned=False),
    Claim("fig5 fig6", "laplace-l1",
         Compare(is_not_worse, "laplace-l1", "none", control=_UNTRAINED),
         "Does Laplace noise cost no performance at the same ε, if gradients are clipped in the "
         "ℓ1 ball instead of the ℓ∞ ball?", needs="laplace-l1"),
    Claim("readings", "relative",
         By("SeqMF with c from counts is equivalent to SeqMF with c from relative frequencies in "
            "HR@5", lambda result: is_equivalent([gap_between(result, "seqmf", "seqmf-relative")])),
         "Is it all the same whether eq. (9) is computed from counts or from relative frequencies "
         "(R25)?"),
    Claim("phones", "qharmony",
         By(_IN_FLEET, partial(_enough_phones, [PRINTED])),
         f"Are the paper's {PAPERS_PHONES} phones enough for QHarmony as printed?"),
    Claim("phones", "any",
         By(f"{_IN_FLEET}; yes if this holds for one mechanism, no if it is ruled out for every "
            f"one", partial(_enough_phones, None)),
         f"Are {PAPERS_PHONES} phones enough for any mechanism that is ε-LDP?"),
    Claim("new-phones", "gain",
         By("the predictor with a non-private crowd prior beats the same predictor without a "
            "prior in HR@5", _crowd_helps),
         "Does a prior learnt from the crowd without privacy help a new phone?", private=False),
    Claim("new-phones", "kept",
         By(f"yes if the interval of the share kept lies above {KEPT}, no if below", _share_kept),
         f"Does a private prior keep {KEPT:.0%} of that gain, at a total ε of {PAPERS_EPSILON:g} "
         f"per phone?"),
)
# fmt: on


CLAIMS: tuple[Claim, ...] = tuple(
    claim.on(part)
    for claim in (*(replace(quoted, of_paper=True) for quoted in _QUOTED), *_ASKED)
    for part in claim.part.split()
)


def judge(claim: Claim, result: Result, *, quick: bool = False) -> Finding:
    """The verdict on a claim; `QUICK` of a quick run."""
    if "problem" in result:
        return Finding(CANNOT_TELL, result["problem"])
    main = claim.judged_by(result)
    if quick:
        return main._replace(verdict=QUICK)
    tables = result.get("presets", {"": result}).values()
    n_predictions = min(table.get("n_predictions", math.inf) for table in tables)
    if n_predictions < FEWEST_PREDICTIONS:
        chance = f"{main.decides} [only {count(n_predictions, 'prediction')}: chance]"
        return main._replace(verdict=CANNOT_TELL, decides=chance)
    if not claim.tuned:
        return main
    variants: Mapping[str, Result] = result.get("variants") or {}
    others = {
        name: claim.judged_by(variant)
        for name, variant in variants.items()
        if claim.is_put(variant)
    }
    return over_tunings(main, others, main_settings(result))


def spent(claim: Claim, result: Result) -> str:
    """ε per report, reports of a phone and its total ε, where the claim is about reports."""
    settings = result.get("settings", {})
    if not claim.private or "problem" in result:
        return ""
    if "guarantees" in result:
        return f"{PAPERS_EPSILON:g}×1 = {PAPERS_EPSILON:g}"
    if settings.get("mechanisms") and "series" in result:
        privacy = (result["series"][name]["privacy"] for name in settings["mechanisms"])
        reports = max(reports_of(row) for row in privacy)
    elif "answer" in result:
        reports = settings["rounds"]
    else:
        return ""
    return f"{settings['epsilon']:g}×{reports} = {settings['epsilon'] * reports:g}"


def reports_of(privacy: Mapping[str, Any]) -> int:
    """The reports of the phone with most of them; of a mechanism without a bound, the rounds."""
    if privacy["epsilon"] is None:
        return int(privacy["n_rounds"])
    return round(privacy["worst"] / privacy["epsilon"]) if privacy["epsilon"] else 0


def main_settings(result: Result) -> str:
    """The settings of a part's main result, in words: how SeqMF was tuned."""
    if "hyper_parameters" in result:
        return str(result["hyper_parameters"])
    for found in result.get("presets", {}).values():
        if "tuning" in found:
            tuning = found["tuning"]["seqmf"]
            n_tunings, trials = len(tuning["tunings"]), tuning["trials"]
            many = f"{n_tunings} tunings of " if n_tunings > 1 else ""
            return f"{many}{trials} trials"
    return ""
