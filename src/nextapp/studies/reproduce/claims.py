"""A verdict on every claim of the paper, computed from the results by the rules in `RULES`.

Every rule looks at paired differences with 95 % confidence intervals over users. The report prints
the rules from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nextapp.evaluation import METRICS
from nextapp.studies.mechanisms import FORMS, PRINTED
from nextapp.studies.settings import CEILING
from nextapp.studies.windows import ALL
from nextapp.table import number

CONFIRMED = "confirmed"
NOT_CONFIRMED = "not confirmed"
CANNOT_TELL = "cannot tell at this size"
DEPENDS = "depends on tuning"
ANSWERS = {CONFIRMED: "yes", NOT_CONFIRMED: "no", CANNOT_TELL: CANNOT_TELL}

WORTH = 0.005  # smallest gain that counts as an improvement
LEVEL = 0.01  # margin of "not worse" and of "equivalent"
COMPARABLE = 0.03  # margin of the paper's "comparable quality"
FEWEST = 10  # users (or cycles) that a verdict needs
BALANCED = 0.1  # largest coefficient of variation of "almost the same"
PAPERS_PHONES = 292
PAPERS_EPSILON = 4.5
KEPT = 0.7  # share of the non-private gain
MUCH_COSTLIER = 2.0  # ratio of "much more computationally costly"
FITTED = ("static", "round")
"""Kinds of parts that a twin can stand in for: it was fitted to hit rates of Tables 1 and 2."""
CONTROLS = ("frozen", "zero", "noise")
RIVALS = ("mru", "mfu", "sr", "sr-od", "mf")
BESIDE_SEQMF = ("mf", "mru", "sr", "sr-od", "seqmf-frozen", "seqmf-authors")
"""What tables compare SeqMF with, in this order."""


def digits_to_judge(low: float, high: float) -> int:
    """Number of decimals, 3 to 6, that lets a reader check the verdict.

    The interval's width keeps two significant digits, and rounding moves neither end across 0 or
    across a margin of the rules.

    >>> digits_to_judge(-0.02, 0.04), digits_to_judge(0.0001, 0.0012), digits_to_judge(0.1, 0.1)
    (3, 4, 3)
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return 3
    width = high - low
    digits = 3 if width == 0 else min(max(1 - math.floor(math.log10(width)), 3), 6)
    limits = (0.0, WORTH, -WORTH, LEVEL, -LEVEL)
    while digits < 6 and any(
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
    """``evidence`` has the most important figures; ``every`` has all of them if there are more.

    ``opposed``: which other settings give the opposite verdict; empty if none do.
    """

    verdict: str
    evidence: str
    every: tuple[str, ...] = ()
    opposed: str = ""


def verdict_words(row: Mapping[str, Any]) -> str:
    """The verdict of a row of `writing.verdicts` in words, with its dependence on tuning.

    >>> verdict_words({"verdict": CONFIRMED, "of_paper": False, "opposed": "5 trials"})
    'yes; depends on tuning'
    """
    word = row["verdict"] if row["of_paper"] else ANSWERS[row["verdict"]]
    return f"{word}; {DEPENDS}" if row["opposed"] else str(word)


@dataclass(frozen=True)
class Rule:
    """What confirms a claim and what refutes it; otherwise the result is undecided.

    A claim is confirmed when ``shown`` holds for every gap, and not confirmed when ``refuted``
    holds for at least one; both take a gap and the margin. ``confirms`` and ``refutes`` are their
    descriptions for the report, where {margin} is replaced by the default margin.
    """

    name: str
    margin: float
    confirms: str
    shown: Callable[[Gap, float], bool]
    refutes: str
    refuted: Callable[[Gap, float], bool]

    def __call__(self, gaps: Sequence[Gap], margin: float | None = None) -> Finding:
        if margin is None:
            margin = self.margin
        telling = _telling(gaps)
        evidence = "; ".join(str(gap) for gap in telling)
        every = tuple(map(str, gaps)) if len(telling) < len(gaps) else ()
        if not gaps or not all(gap.tells for gap in gaps):
            users = min((gap.n_users for gap in gaps), default=0)
            return Finding(CANNOT_TELL, f"{evidence} [{users} users]".strip(), every)
        if all(self.shown(gap, margin) for gap in gaps):
            return Finding(CONFIRMED, evidence, every)
        refuted = any(self.refuted(gap, margin) for gap in gaps)
        return Finding(NOT_CONFIRMED if refuted else CANNOT_TELL, evidence, every)

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
holds_level = Rule(
    "is not worse than",
    LEVEL,
    "every interval lies above −{margin} (or the margin stated with the claim)",
    lambda gap, margin: gap.low > -margin,
    "any interval lies wholly below it",
    lambda gap, margin: gap.high < -margin,
)
is_alike = Rule(
    "is equivalent to",
    LEVEL,
    "every interval lies within ±{margin}",
    lambda gap, margin: -margin < gap.low and gap.high < margin,
    "any interval lies wholly outside",
    lambda gap, margin: gap.low > margin or gap.high < -margin,
)
is_ahead = Rule(
    "is better by a margin than",
    LEVEL,
    "every interval lies above {margin}",
    lambda gap, margin: gap.low > margin,
    "any interval lies wholly below it",
    lambda gap, margin: gap.high < margin,
)
RULES = (beats, holds_level, is_alike, is_ahead)
ABOUT_RULES = (
    "All rules look at differences between two series on the same users, with 95 % confidence "
    "intervals from a bootstrap over users (and over seeds, where there are several).",
    f"In all other cases, and with fewer than {FEWEST} users, the verdict is '{CANNOT_TELL}'. A "
    "claim about several metrics or rivals is confirmed only if it holds for all of them, and not "
    "confirmed if it fails for any one; the intervals are not corrected for multiple comparisons.",
    f"'{DEPENDS}' is added to a verdict where the same rule gives the opposite one with other "
    "settings; the result column names them. The verdict itself is that of the settings named "
    "there: in the static environment, all trials and all tunings together; for the regimes, "
    "hyper-parameters tuned on the first cycle. The other settings are: fewer trials and each "
    "tuning alone; our default hyper-parameters and the authors'.",
    "Each privacy mechanism has the learning rate chosen for it on other users, with the same "
    "effort for all. What would be found with one rate for all mechanisms, at those rates at which "
    "training without privacy does no harm, is noted beside the result and changes no verdict.",
)


def _telling(gaps: Sequence[Gap]) -> list[Gap]:
    """All gaps if there are at most four; else those in HR@5 and the two lowest."""
    if len(gaps) <= 4:
        return list(gaps)
    lowest = sorted(gaps, key=lambda gap: gap.low)[:2]
    return [gap for gap in gaps if gap in lowest or gap.name.endswith("HR@5")]


def all_of(findings: Sequence[Finding]) -> Finding:
    """Confirmed if all findings are; not confirmed if any is not confirmed."""
    verdicts = [finding.verdict for finding in findings]
    verdict = (
        NOT_CONFIRMED
        if NOT_CONFIRMED in verdicts
        else CANNOT_TELL
        if CANNOT_TELL in verdicts
        else CONFIRMED
    )
    every = tuple(figure for finding in findings for figure in finding.every)
    return Finding(verdict, "; ".join(finding.evidence for finding in findings), every)


def over_tunings(main: Finding, others: Mapping[str, Finding], settings: str = "") -> Finding:
    """The main verdict, and which other settings give the opposite one.

    `settings` describes those of the main verdict. If the main verdict is `CANNOT_TELL`, others are
    opposed if they contradict each other.
    """
    if not others:
        return main
    details = (f"{name}: {other.verdict}; {other.evidence}" for name, other in others.items())
    evidence = f"{main.evidence} [{settings}]" if settings else main.evidence
    found = Finding(main.verdict, evidence, (*main.every, *details))
    by_verdict = _by_verdict(others)
    if {CONFIRMED, NOT_CONFIRMED} <= {main.verdict, *by_verdict}:
        turned = (
            f"{verdict} with {', '.join(names)}"
            for verdict, names in by_verdict.items()
            if verdict not in (main.verdict, CANNOT_TELL)
        )
        return found._replace(opposed="; ".join(turned))
    same = len(by_verdict.get(main.verdict, ()))
    return found._replace(evidence=f"{evidence} (the same with {same} of {len(others)} others)")


def over_rates(main: Finding, others: Mapping[str, Finding]) -> Finding:
    """The main verdict, with what one learning rate for all mechanisms would give as a note."""
    if not others:
        return main
    details = (f"{name}: {other.verdict}; {other.evidence}" for name, other in others.items())
    rates = "; ".join(
        f"{verdict} with {', '.join(names)}" for verdict, names in _by_verdict(others).items()
    )
    return Finding(
        main.verdict, f"{main.evidence} (for comparison: {rates})", (*main.every, *details)
    )


def _by_verdict(findings: Mapping[str, Finding]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, finding in findings.items():
        found.setdefault(finding.verdict, []).append(name)
    return found


Result = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A claim quoted from the paper, or a question of ours that the paper leaves open.

    ``part`` is the part of the report with the numbers; ``judge`` gets that part's result.
    ``needs`` names a model that may not have been run; without it the question is skipped.
    ``tuned``: the answer may depend on the settings, so the part's variants are judged too.
    """

    name: str
    words: str
    where: str
    part: str
    rule: str
    judge: Callable[[Result], Finding]
    of_paper: bool = True
    needs: str = ""
    tuned: bool = True

    def is_put(self, result: Result) -> bool:
        """Whether the part was run with the model that the question is about."""
        tables = result.get("presets", {"": {"models": result.get("series", {})}})
        return not self.needs or all(self.needs in table["models"] for table in tables.values())


def judge(claim: Claim, result: Result | None) -> Finding:
    """The verdict on a claim; `CANNOT_TELL` if there is no result."""
    if result is None:
        return Finding(CANNOT_TELL, f"{claim.part} has not been run")
    if "problem" in result:
        return Finding(CANNOT_TELL, result["problem"])
    main = claim.judge(result)
    if not claim.tuned:
        return main
    variants: Mapping[str, Result] = result.get("variants") or {}
    others = {
        name: claim.judge(variant) for name, variant in variants.items() if claim.is_put(variant)
    }
    if result.get("rates"):  # the variants of a study of mechanisms
        return over_rates(main, others)
    return over_tunings(main, others, main_settings(result))


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


# --- differences from results -----------------------------------------------------------------


def static_gaps(
    result: Result, first: str, second: str, metrics: Sequence[str], preset: str = "authors"
) -> list[Gap]:
    """first − second in the static environment."""
    table = result["presets"][preset]
    sign, pair = 1.0, (first, second)
    if first not in table["differences"]:
        sign, pair = -1.0, (second, first)
    gaps = []
    for metric in metrics:
        values = table["differences"][pair[0]][pair[1]][metric]
        mean, low, high = (sign * _number(values[key]) for key in ("difference", "low", "high"))
        name = f"{first} − {second}, {metric}"
        gaps.append(Gap(name, mean, min(low, high), max(low, high), table["n_users"]))
    return gaps


def cycle_gap(result: Result, first: str, second: str, metric: str = "HR@5") -> Gap:
    """first − second, mean over the cycles of the dynamic environment."""
    values = result["differences"][first][second].get(metric, {})
    n_users = max((cycle["n_users_asked"] for cycle in result["cycles"]), default=0)
    mean, low, high = (_number(values.get(key)) for key in ("mean", "low", "high"))
    return Gap(f"{first} − {second}, {metric}", mean, low, high, n_users)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _beats_in_cycles(*pairs: tuple[str, str]) -> Callable[[Result], Finding]:
    return lambda result: beats([cycle_gap(result, *pair) for pair in pairs])


def _comparable(result: Result) -> Finding:
    models = result["presets"]["authors"]["models"]
    best = max(RIVALS, key=lambda name: float(models[name]["HR@5"]))
    return holds_level(static_gaps(result, "seqmf", best, ["HR@5"]), COMPARABLE)


def _above_all_rivals(result: Result) -> Finding:
    return beats([gap for name in RIVALS for gap in static_gaps(result, "seqmf", name, ["HR@5"])])


def _only_if_updated(result: Result) -> Finding:
    updated = beats([cycle_gap(result, regime, "sr-od") for regime in ("full", "rare")])
    fixed = beats([cycle_gap(result, "global", "sr-od")])
    negated = {CONFIRMED: NOT_CONFIRMED, NOT_CONFIRMED: CONFIRMED}
    return all_of([updated, Finding(negated.get(fixed.verdict, fixed.verdict), fixed.evidence)])


def _budget(name: str) -> Callable[[Result], Finding]:
    def judge(result: Result) -> Finding:
        epsilon = float(result["settings"]["epsilon"])
        spent, privacy = (result["series"][name][key] for key in ("epsilon_spent", "privacy"))
        if privacy["n_rounds"] == 0:
            return Finding(CANNOT_TELL, "too few cycles for a round of training: no phone reported")
        if spent is None:
            return Finding(NOT_CONFIRMED, f"{name} has no finite ε: {privacy['promise']}")
        verdict = CONFIRMED if spent <= epsilon + 1e-9 else NOT_CONFIRMED
        return Finding(
            verdict,
            f"{name}: ε = {epsilon:g} per report; the phone with the most reports spends "
            f"ε = {spent:g} over the run",
        )

    return judge


def _all_but_kashin_are_poor(result: Result) -> Finding:
    poor = is_ahead([cycle_gap(result, "none", name) for name in ("laplace", "harmony")])
    return all_of([poor, holds_level([cycle_gap(result, "kashin", "none")])])


def _gaps_of_pairs(result: Result, pairs: Sequence[tuple[str, str]]) -> list[Gap]:
    """The gaps of those pairs of which both were run."""
    known = result["differences"]
    return [cycle_gap(result, *pair) for pair in pairs if set(pair) <= set(known)]


def _controls(name: str) -> Callable[[Result], Finding]:
    return _beats_in_cycles((name, "frozen"), (name, "zero"))


def _regimes_in_balance(result: Result) -> Finding:
    users = {key: np.asarray(result[key]["n_users"], float) for key in ("by_day", "by_cycle")}
    if len(users["by_cycle"]) < FEWEST:
        return Finding(CANNOT_TELL, f"only {len(users['by_cycle'])} cycles")
    days, cycles = (float(counts.std() / counts.mean()) for counts in users.values())
    return Finding(
        CONFIRMED if cycles <= BALANCED else NOT_CONFIRMED,
        f"the standard deviation of active users is {cycles:.0%} of their mean over cycles, and "
        f"{days:.0%} over days",
    )


def _static_claims(part: str, data: str, rival: str) -> list[Claim]:
    table = {"table1": "Table 1", "table2": "Table 2"}[part]
    nine = "in all nine metrics, preset authors"
    return [
        Claim(
            f"{part}-mf",
            "SeqMF significantly outperforms its non-sequential predecessor MF on both datasets",
            f"Results, {table} ({data})",
            part,
            f"seqmf beats mf {nine}",
            lambda result: beats(static_gaps(result, "seqmf", "mf", METRICS)),
        ),
        Claim(
            f"{part}-rival",
            "it underperforms the simple SR-od model on LSApp dataset and SR model on App Usage "
            "data in all the metrics",
            f"Results, {table} ({data})",
            part,
            f"{rival} beats seqmf {nine}",
            lambda result: beats(static_gaps(result, rival, "seqmf", METRICS)),
        ),
        Claim(
            f"{part}-comparable",
            "the proposed model provides comparable quality with other methods in the static "
            "environment",
            f"Abstract ({data})",
            part,
            f"seqmf is not worse than the best rival in HR@5, margin {COMPARABLE}",
            _comparable,
        ),
        Claim(
            f"{part}-all",
            "the SeqMF model outperforms the standard matrix factorization model and other "
            "competitors based on the collected statistics",
            f"Conclusion ({data})",
            part,
            "seqmf beats mf, mru, mfu, sr and sr-od in HR@5, preset authors",
            _above_all_rivals,
        ),
        Claim(
            f"{part}-frozen",
            "Is a trained Q better than a Q left at its random initial value?",
            f"our question ({data})",
            part,
            "seqmf beats seqmf-frozen in HR@5, preset honest",
            lambda result: beats(
                static_gaps(result, "seqmf", "seqmf-frozen", ["HR@5"], preset="honest")
            ),
            of_paper=False,
        ),
    ]


def _nextapp_claims() -> list[Claim]:
    rivals = (*RIVALS, "seqmf")
    metrics = ("HR@1", "HR@3", "HR@5")

    def in_table(result: Result) -> Finding:
        return beats(
            [
                gap
                for name in rivals
                for gap in static_gaps(result, "nextapp", name, metrics, preset="honest")
            ]
        )

    def in_stream(result: Result) -> Finding:
        others = [name for name in result["series"] if name not in ("nextapp", CEILING)]
        return beats(
            [cycle_gap(result, "nextapp", name, metric) for name in others for metric in metrics]
        )

    words = "Does nextapp, which only counts launches on the phone, beat every rival?"
    static = [
        Claim(
            f"{part}-nextapp",
            words,
            f"our question ({data}, static)",
            part,
            "nextapp beats mru, mfu, sr, sr-od, mf and seqmf in HR@1, HR@3 and HR@5, preset honest",
            in_table,
            of_paper=False,
            needs="nextapp",
        )
        for part, data in (("table1", "LSApp"), ("table2", "App Usage"))
    ]
    dynamic = [
        Claim(
            f"{part}-nextapp",
            words,
            f"our question ({data}, dynamic)",
            f"{part}-honest",
            "nextapp beats every other series except the ceiling in HR@1, HR@3 and HR@5, mean over "
            "cycles",
            in_stream,
            of_paper=False,
            needs="nextapp",
        )
        for part, data in (("fig3", "LSApp"), ("fig4", "App Usage"))
    ]
    return static + dynamic


def _dynamic_claims() -> list[Claim]:
    mean = "in HR@5, mean over cycles"
    return [
        Claim(
            "fig2-balanced",
            "the number of active users is almost the same in every cycle",
            "Dynamic environment, Figure 2 (LSApp)",
            "fig2",
            f"the standard deviation of active users over cycles is at most {BALANCED:.0%} of "
            f"their mean",
            _regimes_in_balance,
        ),
        Claim(
            "fig3-sr-od",
            "The SeqMF model in the considered training regimes outperforms SR-od model in "
            "dynamical environment",
            "Figure 3 (LSApp)",
            "fig3",
            f"full, rare and global each beat sr-od {mean}",
            _beats_in_cycles(("full", "sr-od"), ("rare", "sr-od"), ("global", "sr-od")),
        ),
        Claim(
            "fig3-global",
            "if we do not update users' embeddings on the device at all (Global regime), then the "
            "overall performance of the SeqMF model decreases",
            "Results, Figure 3 (LSApp)",
            "fig3",
            f"full beats global {mean}",
            _beats_in_cycles(("full", "global")),
        ),
        Claim(
            "fig3-rare",
            "if we add just rare updates of users' embeddings (Rare regime), we can see that the "
            "performance increases compared to the SeqMF model in the Global regime",
            "Results, Figure 3 (LSApp)",
            "fig3",
            f"rare beats global {mean}",
            _beats_in_cycles(("rare", "global")),
        ),
        Claim(
            "fig3-regular",
            "regular updates of user embeddings improve performance",
            "Figure 3 (LSApp)",
            "fig3",
            f"full beats rare {mean}",
            _beats_in_cycles(("full", "rare")),
        ),
        Claim(
            "fig4-sr-od",
            "outperforms SR-od model in dynamical environment only if user embeddings are updated "
            "(Full and Rare regimes)",
            "Figure 4 (App Usage)",
            "fig4",
            f"full and rare beat sr-od {mean}, and global does not",
            _only_if_updated,
        ),
        Claim(
            "fig4-alike",
            "the performance of the SeqMF model in Full and Rare regimes is very similar",
            "Results, Figure 4 (App Usage)",
            "fig4",
            f"full is equivalent to rare {mean}, margin {LEVEL}",
            lambda result: is_alike([cycle_gap(result, "full", "rare")]),
        ),
        Claim(
            "fig4-regular",
            "regular updates of user embeddings improve performance",
            "Figure 4 (App Usage)",
            "fig4",
            f"full and rare beat global {mean}",
            _beats_in_cycles(("full", "global"), ("rare", "global")),
        ),
    ]


def _honest_claims() -> list[Claim]:
    return [
        Claim(
            f"{part}-honest-sr-od",
            "Do Full and Rare also outperform SR-od when counted as a phone would see it?",
            f"our question ({data}, preset honest)",
            f"{part}-honest",
            "full and rare each beat sr-od in HR@5, mean over cycles",
            _beats_in_cycles(("full", "sr-od"), ("rare", "sr-od")),
            of_paper=False,
        )
        for part, data in (("fig3", "LSApp"), ("fig4", "App Usage"))
    ]


def _authors_rival_claims() -> list[Claim]:
    return [
        Claim(
            f"{part}-sr-od-su",
            "Do Full and Rare also outperform SR-od scored with S_u, as the authors ran it (R22)?",
            f"our question ({data}, preset authors)",
            part,
            "full and rare each beat sr-od-su in HR@5, mean over cycles",
            _beats_in_cycles(("full", "sr-od-su"), ("rare", "sr-od-su")),
            of_paper=False,
            needs="sr-od-su",
        )
        for part, data in (("fig3", "LSApp"), ("fig4", "App Usage"))
    ]


def _privacy_claims(part: str, figure: str, data: str, epsilon: str) -> list[Claim]:
    ours = PRINTED
    readings = ("qharmony-printed-k1", "qharmony-printed-mean", "qharmony-paper")
    mean = "in HR@5, mean over cycles, each at the rate chosen on the other half of the users"
    exactly = f"{ours} ({FORMS[ours].words})"
    claims = [
        Claim(
            f"{part}-level",
            "the QHarmony mechanism does not lead to performance decreasing compared to the "
            "non-private SeqMF model",
            f"{figure} ({data}, {epsilon})",
            part,
            f"{exactly} is not worse than no privacy {mean}, margin {LEVEL}",
            lambda result: holds_level([cycle_gap(result, ours, "none")]),
        ),
        Claim(
            f"{part}-readings",
            "Do other readings of QHarmony also cost no performance: k = 1, F̄ read as a mean, "
            "clipped with the best k?",
            f"our question ({data}, {epsilon})",
            part,
            f"{', '.join(readings)} are each not worse than no privacy {mean}, margin {LEVEL}",
            lambda result: holds_level(
                _gaps_of_pairs(result, [(name, "none") for name in readings])
            ),
            of_paper=False,
            needs=readings[0],
        ),
        Claim(
            f"{part}-best",
            "baseline privacy mechanisms have a worse privacy-utility trade-off compared to the "
            "proposed QHarmony mechanism",
            f"Results, {figure} ({data}, {epsilon})",
            part,
            f"{ours} beats laplace, harmony and kashin {mean}",
            _beats_in_cycles(*((ours, name) for name in ("laplace", "harmony", "kashin"))),
        ),
        Claim(
            f"{part}-controls",
            "Does training through QHarmony as printed beat a Q that is not trained, and a Q "
            "trained on zero gradients?",
            f"our question ({data}, {epsilon})",
            part,
            f"{ours} beats frozen and zero {mean}",
            _controls(ours),
            of_paper=False,
            tuned=False,  # a rate that is too small learns nothing: only the best rate counts
        ),
        Claim(
            f"{part}-repaired",
            "Does training through the repaired QHarmony, which sends nothing in the clear, beat "
            "both?",
            f"our question ({data}, {epsilon})",
            part,
            f"qharmony (repaired) beats frozen and zero {mean}",
            _controls("qharmony"),
            of_paper=False,
            tuned=False,
        ),
        Claim(
            f"{part}-plain",
            "Does further training without any privacy beat the pre-trained Q?",
            f"our question ({data})",
            part,
            f"none beats frozen {mean}",
            _beats_in_cycles(("none", "frozen")),
            of_paper=False,
            tuned=False,
        ),
        Claim(
            f"{part}-budget",
            f"QHarmony … budget {epsilon}",
            f"{figure} ({data})",
            part,
            "the phone with the most reports spends no more than ε in total over the run, and "
            "nothing is sent in the clear",
            _budget(ours),
            tuned=False,
        ),
        Claim(
            f"{part}-budget-repaired",
            f"With the repaired mechanism, does a phone spend no more than {epsilon} in total?",
            f"our question ({data})",
            part,
            "the phone with the most reports spends no more than ε in total over the run",
            _budget("qharmony"),
            of_paper=False,
            tuned=False,
        ),
        Claim(
            f"{part}-laplace-l1",
            "Does Laplace noise cost no performance at the same ε, if gradients are clipped in the "
            "ℓ1 ball instead of the ℓ∞ ball?",
            f"our question ({data}, {epsilon})",
            part,
            f"laplace-l1 is not worse than no privacy {mean}, margin {LEVEL}",
            lambda result: holds_level(_gaps_of_pairs(result, [("laplace-l1", "none")])),
            of_paper=False,
            needs="laplace-l1",
        ),
    ]
    if part == "fig5":
        claims[1:1] = [
            Claim(
                "fig5-higher",
                "has an even higher utility on the LSApp dataset compared to the SeqMF model "
                "without any privacy mechanism",
                f"Results, {figure} ({data}, {epsilon})",
                part,
                f"{ours} beats none {mean}",
                _beats_in_cycles((ours, "none")),
            ),
            Claim(
                "fig5-poor",
                "poor performance of the baseline privacy mechanisms except for the Kashin "
                "mechanism",
                f"Results, {figure} ({data}, {epsilon})",
                part,
                f"none is better than laplace and harmony by more than {LEVEL}, and kashin is not "
                f"worse than none, {mean}",
                _all_but_kashin_are_poor,
            ),
        ]
    return claims


def _gains(result: Result, name: str) -> list[Gap]:
    """The gains of a mechanism over its controls in one fleet.

    The fleet is the smallest of at least `PAPERS_PHONES` phones, or else the largest that was run.
    """
    row = result["mechanisms"][name]
    at = next((i for i, n in enumerate(row["phones"]) if n >= PAPERS_PHONES), -1)
    n_outside = result["settings"]["sample"] * result["settings"]["seeds"]
    gaps = []
    for control in CONTROLS:
        gain = row[f"gain_over_{control}"]
        mean, low, high = (_number(gain[key][at]) for key in ("mean", "low", "high"))
        name_at = f"{name} − {control} at {row['phones'][at]:,} phones"
        gaps.append(Gap(name_at, mean, low, high, n_outside))
    return gaps


def _enough(result: Result, names: Sequence[str]) -> Finding:
    """Whether the fleet of `_gains` is large enough for at least one of these mechanisms."""
    verdicts, evidence = [], []
    for name in names:
        gaps = _gains(result, name) if result["mechanisms"].get(name, {}).get("phones") else []
        verdict = beats(gaps).verdict
        verdicts.append(verdict)
        if gaps:
            refuted = verdict == NOT_CONFIRMED
            closest = min(gaps, key=lambda gap: gap.high if refuted else gap.low)
            answer = f": {ANSWERS[verdict]}" if len(names) > 1 else ""
            evidence.append(f"{closest}{answer}")
    return Finding(_any_of(verdicts), "; ".join(evidence) or "not run")


def _any_of(verdicts: Sequence[str]) -> str:
    """Confirmed if any verdict is; not confirmed if there are some and all are not confirmed."""
    if CONFIRMED in verdicts:
        return CONFIRMED
    return NOT_CONFIRMED if set(verdicts) == {NOT_CONFIRMED} else CANNOT_TELL


def _private(result: Result) -> list[str]:
    return [name for name in result["mechanisms"] if name != "none" and not FORMS[name].unsafe]


def _phones_claims() -> list[Claim]:
    where = "our question (synthetic phones, ε = 4.5 per report)"
    rule = (
        f"in the smallest simulated fleet of at least {PAPERS_PHONES} phones (else the largest), "
        f"the HR@5 of phones outside the fleet beats the HR@5 with frozen Q, with zero gradients "
        f"and with the mechanism's noise alone; intervals are over independent simulated worlds; "
        f"larger fleets do not count"
    )
    return [
        Claim(
            "phones-qharmony",
            f"Are the paper's {PAPERS_PHONES} phones enough for QHarmony as printed?",
            where,
            "phones",
            rule,
            lambda result: _enough(result, [PRINTED]),
            of_paper=False,
        ),
        Claim(
            "phones-any",
            f"Are {PAPERS_PHONES} phones enough for any mechanism that is ε-LDP?",
            where,
            "phones",
            f"{rule}; yes if this holds for one mechanism, no if it is ruled out for every one",
            lambda result: _enough(result, _private(result)),
            of_paper=False,
        ),
    ]


def _headline(result: Result, name: str) -> Gap:
    """The gain in HR@5 of new phones by a crowd prior, over the headline launches."""
    row = result["priors"][name]["headline"]
    gain = row["gain@5"] or dict.fromkeys(("mean", "low", "high"))
    return _gain_gap(f"crowd ({name}) − without", gain, row["n_phones"])


def _share_kept(result: Result) -> Finding:
    """The share of the non-private gain kept at the paper's ε, or at the nearest ε that was run."""
    epsilons = result["settings"]["epsilons"]
    name = f"ε = {min(epsilons, key=lambda epsilon: abs(epsilon - PAPERS_EPSILON)):g}"
    row = result["priors"][name]
    share = row["kept"]["HR@5"]
    if share is None:
        return Finding(CANNOT_TELL, "the non-private prior gives no gain to compare with")
    gap = Gap(
        f"share of the gain kept at {name}, minus {KEPT}",
        share["mean"] - KEPT,
        share["low"] - KEPT,
        share["high"] - KEPT,
        row["headline"]["n_phones"],
    )
    return beats([gap], margin=0.0)


def _crowd_claims() -> list[Claim]:
    where = "our question (new phones; a prior learnt from one private report per phone)"
    return [
        Claim(
            "coldstart-gain",
            "Does a prior learnt from the crowd without privacy help a new phone?",
            where,
            "coldstart",
            "the predictor with a non-private crowd prior beats the same predictor without a "
            "prior in HR@5",
            lambda result: beats([_headline(result, "non-private")]),
            of_paper=False,
        ),
        Claim(
            "coldstart-kept",
            f"Does a private prior keep {KEPT:.0%} of that gain, at a total ε of "
            f"{PAPERS_EPSILON:g} per phone?",
            where,
            "coldstart",
            f"yes if the interval of the share kept lies above {KEPT}, no if below",
            _share_kept,
            of_paper=False,
        ),
    ]


def _stays_on_the_phone(result: Result) -> Finding:
    leaking = [
        name
        for name, row in result["up"].items()
        if row["holds_user_vector"] or row["holds_history"]
    ]
    sizes = "; ".join(
        f"{name}: {row['payload_bytes']} bytes, sent in the clear: "
        f"{', '.join(row['sent_in_clear']) or 'nothing'}"
        for name, row in result["up"].items()
    )
    phone = result["phone"]
    return Finding(
        NOT_CONFIRMED if leaking else CONFIRMED,
        f"{sizes}; the user vector alone has {phone['user_vector_bytes']} bytes, the gradient "
        f"{phone['gradient_bytes']:,} bytes",
    )


def _kashin_is_costlier(result: Result) -> Finding:
    gaps = []
    for n_apps, rows in result["sizes"].items():
        ratio = rows["kashin"]["times"]
        name = f"processor time of kashin / that of {result['reference']}, {int(n_apps):,} apps:"
        gaps.append(Gap(name, ratio["mean"], ratio["low"], ratio["high"], result["n_phones"]))
    evidence = "; ".join(
        f"{gap.name} {gap.mean:,.1f} ({gap.low:,.1f} to {gap.high:,.1f})" for gap in gaps
    )
    over = [gap._replace(mean=gap.mean - MUCH_COSTLIER, low=gap.low - MUCH_COSTLIER,
                         high=gap.high - MUCH_COSTLIER) for gap in gaps]  # fmt: skip
    return Finding(beats(over, margin=0.0).verdict, evidence)


def _window_helps(result: Result) -> Finding:
    """Whether at least one of the windows beats learning from all history."""
    n_users = max((cycle["n_users_asked"] for cycle in result["cycles"]), default=0)
    gaps = [
        _gain_gap(f"{name} − {ALL}, HR@5", row["gain"], n_users)
        for name, row in result["windows"].items()
        if row["gain"] is not None
    ]
    findings = [beats([gap]) for gap in gaps]
    verdict = _any_of([finding.verdict for finding in findings])
    return Finding(verdict, "; ".join(finding.evidence for finding in findings))


def _gain_gap(name: str, gain: Mapping[str, float | None], n_users: int) -> Gap:
    mean, low, high = (_number(gain[key]) for key in ("mean", "low", "high"))
    return Gap(name, mean, low, high, n_users)


def _further_claims() -> list[Claim]:
    return [
        Claim(
            "fig1-stays",
            "user embeddings and the history of users' actions are stored only on the device",
            "Local Differential Privacy, Figure 1",
            "fig1",
            "in a real round no report contains the bytes of the user vector or of the history",
            _stays_on_the_phone,
        ),
        Claim(
            "cost-kashin",
            "Kashin mechanism … is much more computationally costly than the proposed QHarmony "
            "mechanism",
            "Results, Figure 5",
            "cost",
            f"a phone's processor time for a report through kashin is more than "
            f"{MUCH_COSTLIER:g} times that of {PRINTED}, for both catalogue sizes of the paper; "
            f"intervals over phones",
            _kashin_is_costlier,
        ),
        Claim(
            "window-restrict",
            "To improve capturing the global dynamics in app usage frequencies, one has to "
            "restrict a period duration",
            "SeqMF, the superscript (t) (LSApp)",
            "window",
            f"Full with at least one window beats Full with {ALL} in HR@5, mean over cycles; not "
            f"confirmed if this is ruled out for every window",
            _window_helps,
        ),
    ]


CLAIMS: tuple[Claim, ...] = (
    *_static_claims("table1", "LSApp", "sr-od"),
    *_static_claims("table2", "App Usage", "sr"),
    *_dynamic_claims(),
    *_honest_claims(),
    *_authors_rival_claims(),
    *_privacy_claims("fig5", "Figure 5", "LSApp", "ε = 4.5"),
    *_privacy_claims("fig6", "Figure 6", "App Usage", "ε = 1.1"),
    *_phones_claims(),
    *_further_claims(),
    *_crowd_claims(),
    *_nextapp_claims(),
)
