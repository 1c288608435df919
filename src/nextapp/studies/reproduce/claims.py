"""A verdict on every claim of the paper, worked out from the numbers by the rules in `RULES`.

Every rule looks at differences with paired 95 % intervals over users. The report prints the rules
from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nextapp.evaluation import METRICS
from nextapp.studies.settings import CEILING

CONFIRMED = "confirmed"
NOT_CONFIRMED = "not confirmed"
CANNOT_TELL = "cannot tell at this size"
ANSWERS = {CONFIRMED: "yes", NOT_CONFIRMED: "no", CANNOT_TELL: CANNOT_TELL}

WORTH = 0.005
LEVEL = 0.01
COMPARABLE = 0.03
FEWEST = 10
BALANCED = 0.1
PAPERS_PHONES = 292
PAPERS_EPSILON = 4.5
KEPT = 0.7
NOT_PRIVATE = ("qharmony-paper",)
CONTROLS = ("frozen", "zero", "noise")
RIVALS = ("mru", "mfu", "sr", "sr-od", "mf")


def signed(value: float) -> str:
    """With its sign, unless it rounds to nothing.

    >>> signed(0.0125), signed(-0.0001)
    ('+0.013', '0.000')
    """
    text = f"{value:+.3f}"
    return "0.000" if text in ("+0.000", "-0.000") else text


class Gap(NamedTuple):
    """A difference and its 95 % interval, over so many users."""

    name: str
    mean: float
    low: float
    high: float
    n_users: int

    def __str__(self) -> str:
        mean, low, high = (signed(value) for value in (self.mean, self.low, self.high))
        return f"{self.name} {mean} ({low} to {high})"

    @property
    def tells(self) -> bool:
        return self.n_users >= FEWEST and all(
            math.isfinite(value) for value in (self.mean, self.low, self.high)
        )


class Finding(NamedTuple):
    verdict: str
    evidence: str


@dataclass(frozen=True)
class Rule:
    """What confirms a claim and what refutes it; anything between does not tell.

    A claim is confirmed when ``shown`` holds for every gap, and not confirmed when ``refuted``
    holds for one; both get a gap and the margin. ``confirms`` and ``refutes`` say the same in
    words, with {margin} for the usual margin.
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
        evidence = "; ".join(str(gap) for gap in _telling(gaps))
        if not gaps or not all(gap.tells for gap in gaps):
            users = min((gap.n_users for gap in gaps), default=0)
            return Finding(CANNOT_TELL, f"{evidence} [{users} users]".strip())
        if all(self.shown(gap, margin) for gap in gaps):
            return Finding(CONFIRMED, evidence)
        refuted = any(self.refuted(gap, margin) for gap in gaps)
        return Finding(NOT_CONFIRMED if refuted else CANNOT_TELL, evidence)

    @property
    def words(self) -> str:
        """The whole rule as a sentence."""
        both = f"{CONFIRMED} when {self.confirms}; {NOT_CONFIRMED} when {self.refutes}."
        return both.format(margin=self.margin)


beats = Rule(
    "beats",
    WORTH,
    "every interval lies above 0 and leaves room for a gain of {margin}",
    lambda gap, margin: gap.low > 0 and gap.high >= margin,
    "one leaves no such room, even if it lies above 0",
    lambda gap, margin: gap.high < margin,
)
holds_level = Rule(
    "holds level",
    LEVEL,
    "every interval lies above −{margin} (or the margin named)",
    lambda gap, margin: gap.low > -margin,
    "one lies wholly below it",
    lambda gap, margin: gap.high < -margin,
)
is_alike = Rule(
    "is alike",
    LEVEL,
    "every interval lies within ±{margin}",
    lambda gap, margin: -margin < gap.low and gap.high < margin,
    "one lies wholly outside",
    lambda gap, margin: gap.low > margin or gap.high < -margin,
)
is_ahead = Rule(
    "is ahead",
    LEVEL,
    "every interval lies above {margin}",
    lambda gap, margin: gap.low > margin,
    "one lies wholly below it",
    lambda gap, margin: gap.high < margin,
)
RULES = (beats, holds_level, is_alike, is_ahead)
ABOUT_RULES = (
    "All rules look at differences between two series on the same users, with 95 % intervals from "
    "a bootstrap over users (and seeds, where there are several).",
    f"Everything else, and anything on fewer than {FEWEST} users, cannot be told at this size. A "
    "claim about several metrics or rivals needs all of them, and falls with any one; the "
    "intervals are not widened for their number.",
)


def _telling(gaps: Sequence[Gap]) -> list[Gap]:
    """All if they are few; else those in HR@5 and the two that lie lowest."""
    if len(gaps) <= 4:
        return list(gaps)
    lowest = sorted(gaps, key=lambda gap: gap.low)[:2]
    return [gap for gap in gaps if gap in lowest or gap.name.endswith("HR@5")]


def joined(findings: Sequence[Finding]) -> Finding:
    """Confirmed if all are, not confirmed if one is not."""
    verdicts = [finding.verdict for finding in findings]
    verdict = (
        NOT_CONFIRMED
        if NOT_CONFIRMED in verdicts
        else CANNOT_TELL
        if CANNOT_TELL in verdicts
        else CONFIRMED
    )
    return Finding(verdict, "; ".join(finding.evidence for finding in findings))


Result = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A claim, in the paper's words, or a question that it leaves open.

    ``part`` is where the numbers come from; ``judge`` gets that part's result. ``needs`` names a
    model that may not have been played; without it the question is not put.
    """

    name: str
    words: str
    where: str
    part: str
    rule: str
    judge: Callable[[Result], Finding]
    of_paper: bool = True
    needs: str = ""

    def is_put(self, result: Result) -> bool:
        """Whether the part was played with what the question is about."""
        tables = result.get("presets", {"": {"models": result.get("series", {})}})
        return not self.needs or all(self.needs in found["models"] for found in tables.values())


def judged(claim: Claim, result: Result | None) -> Finding:
    """The verdict on a claim; without numbers there is none but 'cannot tell'."""
    if result is None:
        return Finding(CANNOT_TELL, f"{claim.part} has not been played")
    if "problem" in result:
        return Finding(CANNOT_TELL, result["problem"])
    return claim.judge(result)


# --- where the numbers come from --------------------------------------------------------------


def static_gaps(
    result: Result, first: str, second: str, metrics: Sequence[str], preset: str = "authors"
) -> list[Gap]:
    """first − second in a table."""
    found = result["presets"][preset]
    sign, pair = 1.0, (first, second)
    if first not in found["differences"]:
        sign, pair = -1.0, (second, first)
    gaps = []
    for metric in metrics:
        one = found["differences"][pair[0]][pair[1]][metric]
        mean, low, high = (sign * _known(one[key]) for key in ("difference", "low", "high"))
        name = f"{first} − {second}, {metric}"
        gaps.append(Gap(name, mean, min(low, high), max(low, high), found["n_users"]))
    return gaps


def cycle_gap(result: Result, first: str, second: str, metric: str = "HR@5") -> Gap:
    """first − second, mean over the cycles of a dynamic environment."""
    one = result["differences"][first][second].get(metric, {})
    n_users = max((cycle["n_users_asked"] for cycle in result["cycles"]), default=0)
    mean, low, high = (_known(one.get(key)) for key in ("mean", "low", "high"))
    return Gap(f"{first} − {second}, {metric}", mean, low, high, n_users)


def _known(value: float | None) -> float:
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
    first = beats([cycle_gap(result, regime, "sr-od") for regime in ("full", "rare")])
    gap = cycle_gap(result, "global", "sr-od")
    other = beats([gap])
    swapped = {CONFIRMED: NOT_CONFIRMED, NOT_CONFIRMED: CONFIRMED}
    return joined([first, Finding(swapped.get(other.verdict, other.verdict), other.evidence)])


def _budget(name: str) -> Callable[[Result], Finding]:
    def judge(result: Result) -> Finding:
        epsilon = float(result["settings"]["epsilon"])
        spent, privacy = (result["series"][name][key] for key in ("epsilon_spent", "privacy"))
        if privacy["n_rounds"] == 0:
            return Finding(CANNOT_TELL, "too few cycles for Q to move: no phone reported")
        if spent is None:
            return Finding(NOT_CONFIRMED, f"{name} has no finite ε: {privacy['promise']}")
        verdict = CONFIRMED if spent <= epsilon + 1e-9 else NOT_CONFIRMED
        return Finding(
            verdict,
            f"{name}: ε = {epsilon:g} a report; the phone that reports most spends {spent:g} "
            f"over the run",
        )

    return judge


def _all_but_kashin_are_poor(result: Result) -> Finding:
    poor = is_ahead([cycle_gap(result, "none", name) for name in ("laplace", "harmony")])
    return joined([poor, holds_level([cycle_gap(result, "kashin", "none")])])


def _controls(name: str) -> Callable[[Result], Finding]:
    return _beats_in_cycles((name, "frozen"), (name, "zero"))


def _balanced(result: Result) -> Finding:
    users = {key: np.asarray(result[key]["n_users"], float) for key in ("by_day", "by_cycle")}
    if len(users["by_cycle"]) < FEWEST:
        return Finding(CANNOT_TELL, f"only {len(users['by_cycle'])} cycles")
    days, cycles = (float(counts.std() / counts.mean()) for counts in users.values())
    return Finding(
        CONFIRMED if cycles <= BALANCED else NOT_CONFIRMED,
        f"active users deviate by {cycles:.0%} of their mean over the cycles, by {days:.0%} over "
        f"the days",
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
            f"seqmf holds level with the best rival in HR@5, within {COMPARABLE}",
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
            "Is a trained Q better than one left at its random start?",
            f"not asked ({data})",
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

    words = "Does nextapp, with the counts that a phone keeps, beat every rival?"
    static = [
        Claim(
            f"{part}-nextapp",
            words,
            f"not asked ({data}, static)",
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
            f"not asked ({data}, dynamic)",
            f"{part}-honest",
            "nextapp beats every other series but the ceiling in HR@1, HR@3 and HR@5, mean over "
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
            _balanced,
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
            f"full is alike rare {mean}, within {LEVEL}",
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
            "And counted as a phone would see it: do Full and Rare outperform SR-od?",
            f"not asked ({data}, preset honest)",
            f"{part}-honest",
            "full and rare each beat sr-od in HR@5, mean over cycles",
            _beats_in_cycles(("full", "sr-od"), ("rare", "sr-od")),
            of_paper=False,
        )
        for part, data in (("fig3", "LSApp"), ("fig4", "App Usage"))
    ]


def _privacy_claims(part: str, figure: str, data: str, epsilon: str) -> list[Claim]:
    ours = "qharmony-paper"
    mean = "in HR@5, mean over cycles"
    claims = [
        Claim(
            f"{part}-level",
            "the QHarmony mechanism does not lead to performance decreasing compared to the "
            "non-private SeqMF model",
            f"{figure} ({data}, {epsilon})",
            part,
            f"qharmony as printed holds level with no privacy {mean}, within {LEVEL}",
            lambda result: holds_level([cycle_gap(result, ours, "none")]),
        ),
        Claim(
            f"{part}-best",
            "baseline privacy mechanisms have a worse privacy-utility trade-off compared to the "
            "proposed QHarmony mechanism",
            f"Results, {figure} ({data}, {epsilon})",
            part,
            f"qharmony as printed beats laplace, harmony and kashin {mean}",
            _beats_in_cycles(*((ours, name) for name in ("laplace", "harmony", "kashin"))),
        ),
        Claim(
            f"{part}-controls",
            "Does QHarmony, as printed, teach Q anything that a Q left alone, or moved by reports "
            "of zero, has not?",
            f"not asked ({data}, {epsilon})",
            part,
            f"qharmony as printed beats frozen and zero {mean}",
            _controls(ours),
            of_paper=False,
        ),
        Claim(
            f"{part}-repaired",
            "Does QHarmony with nothing in the clear?",
            f"not asked ({data}, {epsilon})",
            part,
            f"qharmony repaired beats frozen and zero {mean}",
            _controls("qharmony"),
            of_paper=False,
        ),
        Claim(
            f"{part}-plain",
            "Does training on, without any privacy, beat a Q left as it was?",
            f"not asked ({data})",
            part,
            f"none beats frozen {mean}",
            _beats_in_cycles(("none", "frozen")),
            of_paper=False,
        ),
        Claim(
            f"{part}-budget",
            f"QHarmony … budget {epsilon}",
            f"{figure} ({data})",
            part,
            "a budget is what is spent: the phone that reports most spends no more than ε over the "
            "whole run, and nothing is sent in the clear",
            _budget(ours),
        ),
        Claim(
            f"{part}-budget-repaired",
            f"And with the repaired mechanism: does a phone spend no more than {epsilon}?",
            f"not asked ({data})",
            part,
            "the phone that reports most spends no more than ε over the whole run",
            _budget("qharmony"),
            of_paper=False,
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
                f"qharmony as printed beats none {mean}",
                _beats_in_cycles((ours, "none")),
            ),
            Claim(
                "fig5-poor",
                "poor performance of the baseline privacy mechanisms except for the Kashin "
                "mechanism",
                f"Results, {figure} ({data}, {epsilon})",
                part,
                f"none is ahead of laplace and of harmony by more than {LEVEL}, and kashin holds "
                f"level with none {mean}",
                _all_but_kashin_are_poor,
            ),
        ]
    return claims


def _gains(result: Result, name: str) -> list[Gap]:
    """What a mechanism gains over its controls in the fleet asked about.

    That is the smallest of at least `PAPERS_PHONES` phones, or the largest that was played.
    """
    row = result["mechanisms"][name]
    at = next((i for i, n in enumerate(row["phones"]) if n >= PAPERS_PHONES), -1)
    n_outside = result["settings"]["sample"] * result["settings"]["seeds"]
    gaps = []
    for control in CONTROLS:
        one = row[f"gain_over_{control}"]
        mean, low, high = (_known(one[key][at]) for key in ("mean", "low", "high"))
        name_at = f"{name} − {control} at {row['phones'][at]:,} phones"
        gaps.append(Gap(name_at, mean, low, high, n_outside))
    return gaps


def _enough(result: Result, names: Sequence[str]) -> Finding:
    """Whether such a fleet is enough for one of these mechanisms; no larger one is looked at."""
    findings, said = [], []
    for name in names:
        gaps = _gains(result, name) if result["mechanisms"].get(name, {}).get("phones") else []
        found = beats(gaps)
        findings.append(found.verdict)
        if gaps:
            refuted = found.verdict == NOT_CONFIRMED
            closest = min(gaps, key=lambda gap: gap.high if refuted else gap.low)
            answer = f": {ANSWERS[found.verdict]}" if len(names) > 1 else ""
            said.append(f"{closest}{answer}")
    if CONFIRMED in findings:
        verdict = CONFIRMED
    elif findings and all(found == NOT_CONFIRMED for found in findings):
        verdict = NOT_CONFIRMED
    else:
        verdict = CANNOT_TELL
    return Finding(verdict, "; ".join(said) or "not played")


def _private(result: Result) -> list[str]:
    return [name for name in result["mechanisms"] if name not in ("none", *NOT_PRIVATE)]


def _phones_claims() -> list[Claim]:
    where = "not asked (synthetic phones, ε = 4.5 a report)"
    rule = (
        f"in the smallest fleet tried of at least {PAPERS_PHONES} phones (else the largest), the "
        f"HR@5 of phones outside the fleet beats that with frozen Q, with zero gradients and with "
        f"the mechanism's noise alone; intervals are over worlds, and larger fleets are not asked"
    )
    return [
        Claim(
            "phones-qharmony",
            f"Are the paper's {PAPERS_PHONES} phones enough for QHarmony as printed?",
            where,
            "phones",
            rule,
            lambda result: _enough(result, ["qharmony-paper"]),
            of_paper=False,
        ),
        Claim(
            "phones-any",
            f"Are {PAPERS_PHONES} phones enough for any mechanism that is ε-LDP?",
            where,
            "phones",
            f"{rule}; yes, if so for one mechanism; no, if for each it is ruled out",
            lambda result: _enough(result, _private(result)),
            of_paper=False,
        ),
    ]


def _headline(result: Result, name: str) -> Gap:
    """What a prior from the crowd gives new phones in HR@5, over the launches looked at."""
    row = result["priors"][name]["headline"]
    one = row["gain@5"] or dict.fromkeys(("mean", "low", "high"))
    mean, low, high = (_known(one[key]) for key in ("mean", "low", "high"))
    return Gap(f"crowd ({name}) − without", mean, low, high, row["n_phones"])


def _kept(result: Result) -> Finding:
    """At the paper's ε, or the nearest that was tried."""
    tried = result["settings"]["epsilons"]
    name = f"ε = {min(tried, key=lambda epsilon: abs(epsilon - PAPERS_EPSILON)):g}"
    row = result["priors"][name]
    share = row["kept"]["HR@5"]
    if share is None:
        return Finding(CANNOT_TELL, "there is no gain to keep a part of")
    gap = Gap(
        f"share of the gain kept at {name}, less {KEPT}",
        share["mean"] - KEPT,
        share["low"] - KEPT,
        share["high"] - KEPT,
        row["headline"]["n_phones"],
    )
    return beats([gap], margin=0.0)


def _crowd_claims() -> list[Claim]:
    where = "not asked (a frequency oracle over transitions)"
    return [
        Claim(
            "coldstart-gain",
            "Does the crowd help a new phone, were there no privacy?",
            where,
            "coldstart",
            "the same predictor with a non-private prior beats itself without in HR@5",
            lambda result: beats([_headline(result, "non-private")]),
            of_paper=False,
        ),
        Claim(
            "coldstart-kept",
            f"Does a private prior keep {KEPT:.0%} of that, at a total ε of {PAPERS_EPSILON:g} a "
            f"phone?",
            where,
            "coldstart",
            f"the interval of the share that is kept lies above {KEPT}; no, if below",
            _kept,
            of_paper=False,
        ),
    ]


CLAIMS: tuple[Claim, ...] = (
    *_static_claims("table1", "LSApp", "sr-od"),
    *_static_claims("table2", "App Usage", "sr"),
    *_dynamic_claims(),
    *_honest_claims(),
    *_privacy_claims("fig5", "Figure 5", "LSApp", "ε = 4.5"),
    *_privacy_claims("fig6", "Figure 6", "App Usage", "ε = 1.1"),
    *_phones_claims(),
    *_crowd_claims(),
    *_nextapp_claims(),
)
