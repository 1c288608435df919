"""Verdicts on hand-made numbers: what each rule must say, worked out by hand."""

from __future__ import annotations

import pytest

from nextapp.evaluation import METRICS
from nextapp.studies.reproduce import report
from nextapp.studies.reproduce.claims import (
    CANNOT_TELL,
    CLAIMS,
    CONFIRMED,
    DEPENDS,
    NO_GAIN,
    NOT_CONFIRMED,
    QUICK,
    RULES,
    Finding,
    Gap,
    all_of,
    beats,
    digits_to_judge,
    is_better,
    is_equivalent,
    is_not_worse,
    judge,
    over_tunings,
    spent,
    verdict_words,
)

BY_NAME = {claim.name: claim for claim in CLAIMS}


def gap(low, high, n_users=30):
    return Gap("a − b", (low + high) / 2, low, high, n_users)


@pytest.mark.parametrize(
    ("rule", "gaps", "verdict"),
    [
        (beats, [gap(0.01, 0.05)], CONFIRMED),
        (beats, [gap(0.001, 0.05), gap(0.001, 0.006)], CONFIRMED),
        (beats, [gap(0.01, 0.05), gap(0.001, 0.002)], NOT_CONFIRMED),  # sure, and worth nothing
        (beats, [gap(-0.01, 0.05)], CANNOT_TELL),
        (beats, [gap(0.01, 0.05), gap(-0.01, 0.05)], CANNOT_TELL),
        (beats, [gap(-0.05, -0.01)], NOT_CONFIRMED),
        (beats, [gap(-0.001, 0.002)], NOT_CONFIRMED),  # no room for a gain worth the name
        (beats, [gap(0.01, 0.05), gap(-0.05, -0.01)], NOT_CONFIRMED),
        (beats, [gap(0.01, 0.05, n_users=9)], CANNOT_TELL),
        (beats, [gap(float("nan"), float("nan"))], CANNOT_TELL),
        (beats, [], CANNOT_TELL),
        (is_not_worse, [gap(-0.009, 0.0)], CONFIRMED),
        (is_not_worse, [gap(-0.02, 0.0)], CANNOT_TELL),
        (is_not_worse, [gap(-0.03, -0.011)], NOT_CONFIRMED),
        (is_equivalent, [gap(-0.009, 0.009)], CONFIRMED),
        (is_equivalent, [gap(-0.009, 0.02)], CANNOT_TELL),
        (is_equivalent, [gap(0.011, 0.02)], NOT_CONFIRMED),
        (is_equivalent, [gap(-0.02, -0.011)], NOT_CONFIRMED),
        (is_better, [gap(0.011, 0.02)], CONFIRMED),
        (is_better, [gap(0.001, 0.02)], CANNOT_TELL),
        (is_better, [gap(0.001, 0.009)], NOT_CONFIRMED),
    ],
)
def test_rules(rule, gaps, verdict):
    assert rule(gaps).verdict == verdict


def test_the_figure_that_decides_is_the_weakest_or_the_one_that_refutes():
    weak, strong, lost = gap(0.01, 0.02), gap(0.1, 0.2), gap(-0.2, -0.1)
    assert beats([strong, weak]).decides == str(weak)
    assert beats([strong, lost, weak]).decides == str(lost)
    assert beats([gap(-0.01, 0.05), strong]).decides == str(gap(-0.01, 0.05))
    assert beats([strong, gap(0.01, 0.02, n_users=12)]).n_users == 12
    joint = all_of([beats([strong]), beats([lost])])
    assert (joint.verdict, joint.decides) == (NOT_CONFIRMED, str(lost))


def test_a_joint_claim_falls_with_any_of_its_parts():
    yes, no, open_ = beats([gap(0.1, 0.2)]), beats([gap(-0.2, -0.1)]), beats([gap(-0.1, 0.1)])
    assert all_of([yes, yes]).verdict == CONFIRMED
    assert all_of([yes, open_]).verdict == CANNOT_TELL
    assert all_of([yes, open_, no]).verdict == NOT_CONFIRMED


def table(gaps, n_users=30, best="sr-od"):
    """A static result in which seqmf − rival is (low, high) in every metric."""

    def ends(low, high):
        return {metric: {"mean": (low + high) / 2, "low": low, "high": high} for metric in METRICS}

    models = {name: {"HR@5": 0.9 if name == best else 0.5} for name in (*gaps, "seqmf")}
    differences = {
        "seqmf": {name: ends(low, high) for name, (low, high) in gaps.items()},
        **{name: {"seqmf": ends(-high, -low)} for name, (low, high) in gaps.items()},
    }
    found = {"models": models, "differences": differences, "n_users": n_users}
    return {"presets": {"authors": found, "honest": found}}


ABOVE, BELOW, BESIDE = (0.02, 0.04), (-0.06, -0.04), (-0.02, 0.02)
ALL = ("mru", "mfu", "sr", "sr-od", "mf", "seqmf-frozen")


def test_static_claims_follow_the_table():
    result = table(dict.fromkeys(ALL, ABOVE) | {"sr-od": BELOW})
    verdicts = {
        name: judge(BY_NAME[name], result).verdict
        for name in ("table1-mf", "table1-rival", "table1-comparable")
    }
    assert verdicts == {
        "table1-mf": CONFIRMED,
        "table1-rival": CONFIRMED,  # sr-od − seqmf lies from .04 to .06
        "table1-comparable": NOT_CONFIRMED,  # .04 and more below the best
    }
    other = table(dict.fromkeys(ALL, ABOVE))
    assert judge(BY_NAME["table1-rival"], other).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["table1-frozen"], table(dict.fromkeys(ALL, BESIDE))).verdict == (
        CANNOT_TELL
    )
    assert judge(BY_NAME["table1-mf"], table(dict.fromkeys(ALL, ABOVE), 4)).verdict == CANNOT_TELL


def test_comparable_quality_is_that_of_a_trained_model():
    """An untrained Q as good as the trained one: comparable with SR-od, and by no merit of it."""
    beside = dict.fromkeys(ALL, (-0.005, 0.005))
    assert judge(BY_NAME["table1-comparable"], table(beside)).verdict == NO_GAIN
    trained = table(beside | {"seqmf-frozen": ABOVE})
    assert judge(BY_NAME["table1-comparable"], trained).verdict == CONFIRMED


def test_one_metric_short_of_the_claim_is_enough_to_lose_it():
    result = table(dict.fromkeys(ALL, ABOVE))
    result["presets"]["authors"]["differences"]["seqmf"]["mf"]["MRR@3"] = {
        "mean": -0.05, "low": -0.06, "high": -0.04,
    }  # fmt: skip
    finding = judge(BY_NAME["table1-mf"], result)
    assert finding.verdict == NOT_CONFIRMED
    assert "MRR@3 -0.050 (-0.060 to -0.040)" in finding.decides


def stream(values, **others):
    """A dynamic result in which each series lies ±.004 around its value, in every hit rate."""
    return {
        "n_users": 50,
        "differences": {
            first: {
                second: {
                    metric: {"mean": a - b, "low": a - b - 0.004, "high": a - b + 0.004}
                    for metric in ("HR@1", "HR@3", "HR@5")
                }
                for second, b in values.items()
                if second != first
            }
            for first, a in values.items()
        },
        **others,
    }


def test_dynamic_claims_follow_the_curves():
    as_printed = stream({"full": 0.9, "rare": 0.88, "global": 0.86, "sr-od": 0.84})
    for name in ("fig3-sr-od", "fig3-global", "fig3-rare", "fig3-regular", "fig4-regular"):
        assert judge(BY_NAME[name], as_printed).verdict == CONFIRMED
    assert judge(BY_NAME["fig4-sr-od"], as_printed).verdict == NOT_CONFIRMED  # global beats it too
    assert judge(BY_NAME["fig4-alike"], as_printed).verdict == NOT_CONFIRMED
    other = stream({"full": 0.9, "rare": 0.9, "global": 0.80, "sr-od": 0.84})
    assert judge(BY_NAME["fig3-sr-od"], other).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["fig4-sr-od"], other).verdict == CONFIRMED
    assert judge(BY_NAME["fig4-alike"], other).verdict == CONFIRMED


def test_privacy_claims_follow_the_curves():
    values = {"none": 0.9, "frozen": 0.9, "zero": 0.9, "laplace": 0.7, "harmony": 0.8,
              "kashin": 0.9, "qharmony-printed": 0.92,
              "harmony-noise": 0.8}  # fmt: skip
    result = stream(values)
    for name in ("fig5-higher", "fig5-best", "fig5-controls"):
        assert judge(BY_NAME[name], result).verdict == CONFIRMED
    for name in ("fig5-repaired", "fig5-plain"):
        assert judge(BY_NAME[name], result).verdict == NOT_CONFIRMED
    for name in ("fig5-level", "fig5-poor"):  # none is no better than frozen: nothing to lose
        assert judge(BY_NAME[name], result).verdict == NO_GAIN
    gained = stream({**values, "frozen": 0.85, "zero": 0.85})
    for name in ("fig5-level", "fig5-poor"):
        assert judge(BY_NAME[name], gained).verdict == CONFIRMED
    assert judge(BY_NAME["fig5-poor"], stream({**values, "kashin": 0.5})).verdict == NOT_CONFIRMED
    noise_alone_does_it = stream({**values, "harmony-noise": 0.92})
    assert judge(BY_NAME["fig5-controls"], noise_alone_does_it).verdict == NOT_CONFIRMED


NAMES_OF_MECHANISMS = ("laplace", "laplace-l1", "harmony", "kashin", "qharmony-printed",
                       "qharmony-printed-k1", "qharmony-printed-mean", "qharmony")  # fmt: skip
FREE = ("fig5-level", "fig5-readings", "fig5-laplace-l1", "fig6-level")


def with_mechanism(like, trained):
    """All mechanisms score as `like`; training without privacy brings .85 up to `trained`."""
    values = {"none": trained, "frozen": 0.85, "zero": 0.85}
    values |= {"harmony-noise": 0.85}
    values |= dict.fromkeys(NAMES_OF_MECHANISMS, {**values, "destroyed": 0.3}[like])
    result = stream(values)
    for first, a in values.items():  # what is the same has no width
        for second, b in values.items():
            if first != second and a == b:
                same = {"mean": 0.0, "low": 0.0, "high": 0.0}
                result["differences"][first][second]["HR@5"] = same
    return result


@pytest.mark.parametrize(
    ("like", "trained", "verdict"),
    [
        ("none", 0.9, CONFIRMED),
        ("frozen", 0.9, NOT_CONFIRMED),  # a mechanism that does nothing: the whole gain is lost
        ("frozen", 0.855, NOT_CONFIRMED),  # even where that is less than the margin
        ("frozen", 0.85, NO_GAIN),  # nobody could tell it from one that works
        ("none", 0.852, NO_GAIN),  # an interval around 0 is no gain
        ("destroyed", 0.9, NOT_CONFIRMED),
        ("destroyed", 0.85, NOT_CONFIRMED),  # harm shows without a gain too
    ],
)
def test_a_mechanism_that_does_nothing_and_one_that_destroys_are_noticed(like, trained, verdict):
    result = with_mechanism(like, trained)
    for name in FREE:
        assert judge(BY_NAME[name], result).verdict == verdict, name
    works = verdict == CONFIRMED
    assert (judge(BY_NAME["fig5-controls"], result).verdict == CONFIRMED) == works


def test_steps_along_a_sum_of_zero_are_no_mechanism_that_works():
    """They shrink Q, which may itself help: as good as they is not good enough."""
    values = {"none": 0.9, "frozen": 0.85, "zero": 0.894, "laplace": 0.8, "harmony": 0.8,
              "kashin": 0.8, "qharmony-printed": 0.894}  # fmt: skip
    result = stream(values)
    assert judge(BY_NAME["fig5-level"], result).verdict == CANNOT_TELL
    result["differences"]["qharmony-printed"]["zero"] = {
        "HR@5": {"mean": 0.0, "low": 0.0, "high": 0.0}
    }
    assert judge(BY_NAME["fig5-level"], result).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["fig5-best"], result).verdict == NO_GAIN
    assert judge(BY_NAME["fig5-best"], stream({**values, "qharmony-printed": 0.9})).verdict == (
        CONFIRMED
    )
    assert judge(BY_NAME["fig5-level"], stream({**values, "zero": 0.9})).verdict == NO_GAIN
    shrunk = stream({**values, "none": 0.87})  # shrinking Q is better than training it
    shrunk["differences"]["qharmony-printed"]["zero"] = {
        "HR@5": {"mean": 0.0, "low": 0.0, "high": 0.0}
    }
    assert judge(BY_NAME["fig5-higher"], shrunk).verdict == NO_GAIN
    signal = stream({**values, "none": 0.87, "qharmony-printed": 0.92})
    assert judge(BY_NAME["fig5-higher"], signal).verdict == CONFIRMED


def test_a_gain_that_is_sure_and_worth_nothing_is_none():
    """Else 'costs nothing' would be confirmed beside 'training gains nothing'."""
    result = with_mechanism("none", 0.9)
    small = {"mean": 0.003, "low": 0.002, "high": 0.004}
    result["differences"]["none"]["frozen"]["HR@5"] = small
    assert judge(BY_NAME["fig5-level"], result).verdict == NO_GAIN
    assert judge(BY_NAME["fig5-plain"], result).verdict == NOT_CONFIRMED


def test_full_and_rare_are_alike_only_where_updates_change_something():
    alike = stream({"full": 0.9, "rare": 0.9, "global": 0.9, "sr-od": 0.84})
    assert judge(BY_NAME["fig4-alike"], alike).verdict == NO_GAIN


def test_a_quick_run_has_figures_and_no_verdict():
    values = {"full": 0.9, "rare": 0.88, "global": 0.86, "sr-od": 0.84}
    whole, quick = (judge(BY_NAME["fig3-sr-od"], stream(values), quick=is_quick)
                    for is_quick in (False, True))  # fmt: skip
    assert (whole.verdict, quick.verdict) == (CONFIRMED, QUICK)
    assert quick.decides == whole.decides


@pytest.mark.parametrize(("n", "verdict"), [(50, CONFIRMED), (49, CANNOT_TELL)])
def test_below_fifty_predictions_the_figures_are_chance(n, verdict):
    static, readings = table({"mf": ABOVE}), stream({"mf": 0.9, "mf-hu": 0.8})
    static["presets"]["authors"]["n_predictions"] = readings["n_predictions"] = n
    for name, result in (("table1-mf", static), ("readings-weights", readings)):
        found = judge(BY_NAME[name], result)
        assert found.verdict == verdict
        assert ("only 49 predictions: chance" in found.decides) == (n == 49)


def test_a_rate_at_the_edge_is_named():
    values = {"none": 0.9, "frozen": 0.85, "zero": 0.85, "qharmony-printed": 0.9}
    rates = {"series": {"none": {"at_edge": False}, "qharmony-printed": {"at_edge": True}}}
    finding = judge(BY_NAME["fig5-level"], stream(values, rates=rates))
    assert finding.decides.endswith("rate at the edge: qharmony-printed")


def test_the_conclusions_claim_is_about_the_dynamic_environment():
    values = {"full": 0.9, "mru": 0.8, "mfu": 0.8, "sr": 0.8, "sr-od": 0.8, "mf": 0.8}
    assert judge(BY_NAME["fig3-all"], stream(values)).verdict == CONFIRMED
    for rival in values.keys() - {"full"}:
        assert judge(BY_NAME["fig3-all"], stream({**values, rival: 0.95})).verdict == (
            NOT_CONFIRMED
        )
    assert "table1-all" not in BY_NAME


def test_a_verdict_on_reports_names_their_budget_in_all():
    """4.5 a report, three reports: 13.5; a question about no reports spends nothing."""
    row = {"privacy": {"epsilon": 4.5, "worst": 13.5, "n_rounds": 3}}
    unsafe = {"privacy": {"epsilon": None, "worst": None, "n_rounds": 3}}
    result = stream({"none": 0.9, "frozen": 0.8}) | {
        "settings": {"epsilon": 4.5, "mechanisms": ["harmony", "qharmony-printed"]},
        "series": {"harmony": row, "qharmony-printed": unsafe},
    }
    assert spent(BY_NAME["fig5-level"], result) == "4.5×3 = 13.5"
    assert spent(BY_NAME["fig5-plain"], result) == ""
    assert spent(BY_NAME["fig3-sr-od"], stream({"full": 0.9})) == ""
    fleet = {"answer": {}, "settings": {"epsilon": 4.5, "rounds": 10}}
    assert spent(BY_NAME["phones-any"], fleet) == "4.5×10 = 45"


def test_every_setting_stands_beside_the_others():
    main = stream({"full": 0.9, "rare": 0.88, "global": 0.86, "sr-od": 0.84})
    other = stream({"full": 0.8, "rare": 0.88, "global": 0.86, "sr-od": 0.84})
    result = {**main, "hyper_parameters": "tuned", "variants": {"default": other}}
    found = judge(BY_NAME["fig3-sr-od"], result)
    assert found.settings == {
        "tuned": (CONFIRMED, "global − sr-od, HR@5 +0.0200 (+0.0160 to +0.0240)"),
        "default": (NOT_CONFIRMED, "full − sr-od, HR@5 -0.0400 (-0.0440 to -0.0360)"),
    }
    assert found.opposed == "not confirmed with default"


def test_users_and_entries_of_the_gradient_are_counted():
    """292 phones, 87 apps of 64 entries: 5,568."""

    def result(users):
        return {"data": {"n_users": users, "n_apps": 87}, "settings": {"seqmf": {"dim": 64}}}

    found = judge(BY_NAME["fig5-elements"], result(292))
    assert (found.verdict, found.decides) == (
        NOT_CONFIRMED, "292 users, 87 apps × 64 = 5,568 entries",
    )  # fmt: skip
    assert judge(BY_NAME["fig5-elements"], result(5000)).verdict == CONFIRMED


@pytest.mark.parametrize(
    ("lead", "different", "verdict"),
    [
        ((0.05, 0.09), (-0.02, 0.001), CONFIRMED),
        ((0.05, 0.09), (0.02, 0.04), NOT_CONFIRMED),
        ((0.05, 0.09), (-0.02, 0.04), CANNOT_TELL),
        ((-0.01, 0.09), (-0.02, 0.001), CANNOT_TELL),  # no lead to explain
    ],
)
def test_whether_sr_wins_by_repeats(lead, different, verdict):
    def ends(low, high):
        return {"mean": -(low + high) / 2, "low": -high, "high": -low}

    result = stream({"seqmf": 0.5, "sr": 0.5}) | {"different": ends(*different)}
    low, high = lead
    gap = {"mean": (low + high) / 2, "low": low, "high": high}
    result["differences"]["sr"]["seqmf"]["HR@5"] = gap
    assert judge(BY_NAME["readings-repeats"], result).verdict == verdict
    nothing = result | {"different": dict.fromkeys(gap)}  # every target repeats the app before
    assert judge(BY_NAME["readings-repeats"], nothing).verdict == CANNOT_TELL


@pytest.mark.parametrize(
    ("lead", "halves", "verdict"),
    [
        ((0.05, 0.09), (-0.004, 0.006), CONFIRMED),
        ((0.05, 0.09), (0.02, 0.04), NOT_CONFIRMED),
        ((0.05, 0.09), (-0.02, 0.04), CANNOT_TELL),
        ((-0.01, 0.09), (-0.004, 0.006), CANNOT_TELL),  # no lead to explain
    ],
)
def test_whether_sr_wins_by_what_stays_the_same(lead, halves, verdict):
    def ends(low, high):
        return {"HR@5": {"mean": (low + high) / 2, "low": low, "high": high}}

    result = stream({"seqmf": 0.5, "sr": 0.5})
    result["differences"] = {
        "sr": {"seqmf": ends(*lead)}, "sr-newer": {"sr-older": ends(*halves)},
    }  # fmt: skip
    found = judge(BY_NAME["readings-stationary"], result)
    assert found.verdict == verdict
    decides = "sr-newer − sr-older" if lead[0] > 0 else "sr − seqmf"
    assert found.decides.startswith(decides)


def test_a_budget_is_what_a_phone_spends_in_all():
    def played(total, n_rounds=3):
        privacy = {"promise": "in the clear f_max", "n_rounds": n_rounds}
        row = {"epsilon_spent": total, "privacy": privacy}
        return {"settings": {"epsilon": 4.5}, "series": {"harmony": row, "qharmony-printed": row}}

    assert judge(BY_NAME["fig5-budget-repaired"], played(4.5)).verdict == CONFIRMED
    assert judge(BY_NAME["fig5-budget-repaired"], played(13.5)).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["fig5-budget-repaired"], played(0.0, 0)).verdict == CANNOT_TELL
    finding = judge(BY_NAME["fig5-budget"], played(None))
    assert finding.verdict == NOT_CONFIRMED
    assert "in the clear f_max" in finding.decides


CLEAR, NONE_LEFT, WIDE = (0.01, 0.03), (-0.03, 0.004), (-0.01, 0.03)


def fleets(phones=(100, 300, 900), **gains):
    """A result in which each mechanism gains (low, high) over a control in every fleet.

    ``gains`` are those over frozen, zero and noise.
    """
    return {
        "mechanisms": {
            name.replace("_", "-"): {
                "phones": list(phones),
                **{
                    f"gain_over_{control}": {
                        "mean": [(low + high) / 2] * len(phones),
                        "low": [low] * len(phones),
                        "high": [high] * len(phones),
                    }
                    for control, (low, high) in zip(("frozen", "zero", "noise"), three, strict=True)
                },
            }
            for name, three in {"none": (CLEAR,) * 3, **gains}.items()
        },
        "settings": {"phones": list(phones), "seeds": 5, "sample": 100},
    }


@pytest.mark.parametrize(
    ("three", "verdict"),
    [
        ((CLEAR, CLEAR, CLEAR), CONFIRMED),
        ((WIDE, CLEAR, CLEAR), CANNOT_TELL),  # not sure of a gain is not sure of none
        ((CLEAR, CLEAR, WIDE), CANNOT_TELL),
        ((CLEAR, CLEAR, NONE_LEFT), NOT_CONFIRMED),
        ((WIDE, NONE_LEFT, CLEAR), NOT_CONFIRMED),
        ((CLEAR, CLEAR, (0.001, 0.002)), NOT_CONFIRMED),  # sure, and worth nothing
    ],
)
def test_the_number_of_phones_is_enough_or_not_or_open(three, verdict):
    assert judge(BY_NAME["phones-qharmony"], fleets(qharmony_printed=three)).verdict == verdict
    assert judge(BY_NAME["phones-any"], fleets(walsh=three)).verdict == verdict


def test_one_private_mechanism_is_enough_and_all_must_be_ruled_out():
    clear, wide, out = (CLEAR,) * 3, (WIDE,) * 3, (NONE_LEFT,) * 3
    for mechanisms, verdict in (
        ({"qharmony_printed": clear, "laplace": out, "walsh": out}, NOT_CONFIRMED),
        ({"qharmony_printed": out, "laplace": out, "walsh": wide}, CANNOT_TELL),
        ({"qharmony_printed": out, "laplace": out, "walsh": clear}, CONFIRMED),
    ):
        assert judge(BY_NAME["phones-any"], fleets(**mechanisms)).verdict == verdict
    better = (CLEAR[0] + 0.01, CLEAR[1] + 0.01)
    found = judge(BY_NAME["phones-any"], fleets(laplace=clear, walsh=(better,) * 3, harmony=out))
    assert found.decides.startswith("walsh")  # the one furthest ahead
    for name in ("phones-any", "phones-qharmony"):
        assert judge(BY_NAME[name], fleets())[:2] == (CANNOT_TELL, "not run")


def test_phones_are_counted_where_the_paper_stands():
    """292 phones: the fleet of 300 is asked, neither that of 100 nor that of 900."""
    result = fleets(qharmony_printed=(WIDE, CLEAR, CLEAR))
    frozen = result["mechanisms"]["qharmony-printed"]["gain_over_frozen"]
    frozen["low"], frozen["high"] = [-0.03, 0.01, -0.03], [-0.01, 0.03, -0.01]
    assert judge(BY_NAME["phones-qharmony"], result).verdict == CONFIRMED
    small = fleets(phones=(50, 100), qharmony_printed=(WIDE, CLEAR, CLEAR))
    assert judge(BY_NAME["phones-qharmony"], small)[:2] == (
        CANNOT_TELL,
        "qharmony-printed − frozen at 100 phones +0.010 (-0.010 to +0.030)",
    )


def test_what_the_crowd_gives_and_what_privacy_leaves_of_it():
    def result(gain, kept):
        headline = {"gain@5": dict(zip(("low", "mean", "high"), gain, strict=True)), "n_phones": 40}
        share = None if kept is None else dict(zip(("low", "mean", "high"), kept, strict=True))
        return {
            "settings": {"epsilons": [1.0, 4.5]},
            "priors": {
                "non-private": {"headline": headline},
                "ε = 4.5": {"headline": headline, "kept": {"HR@5": share}},
            },
        }

    gained = result((0.02, 0.03, 0.04), (0.75, 0.8, 0.9))
    assert judge(BY_NAME["new-phones-gain"], gained).verdict == CONFIRMED
    kept = judge(BY_NAME["new-phones-kept"], gained)
    assert kept.verdict == CONFIRMED
    assert kept.decides == "share of the gain kept at ε = 4.5 0.80 (0.75 to 0.90)"
    lost = result((-0.04, -0.03, -0.02), (0.5, 0.6, 0.69))
    assert judge(BY_NAME["new-phones-gain"], lost).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["new-phones-kept"], lost).verdict == CANNOT_TELL  # a share of nothing
    less = result((0.02, 0.03, 0.04), (0.5, 0.6, 0.69))
    assert judge(BY_NAME["new-phones-kept"], less).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["new-phones-kept"], result((0, 0, 0), None)).verdict == CANNOT_TELL
    assert judge(BY_NAME["new-phones-kept"], result((0, 0, 0), (0.6, 0.7, 0.8))).verdict == (
        CANNOT_TELL
    )


def test_nextapp_is_asked_about_where_it_was_played():
    claim = BY_NAME["table1-nextapp"]
    assert not claim.is_put(table(dict.fromkeys(ALL, ABOVE)))
    result = table(dict.fromkeys(ALL, ABOVE))
    for found in result["presets"].values():
        found["models"]["nextapp"] = {"HR@5": 0.95}
        found["differences"]["nextapp"] = found["differences"]["seqmf"] | {
            "seqmf": found["differences"]["seqmf"]["mf"]
        }
    assert claim.is_put(result)
    assert judge(claim, result).verdict == CONFIRMED
    values = {"full": 0.9, "sr-od": 0.84, "nextapp": 0.93}
    stream_ = stream(values, series=dict.fromkeys(values))
    assert BY_NAME["fig3-honest-nextapp"].is_put(stream_)
    assert judge(BY_NAME["fig3-honest-nextapp"], stream_).verdict == CONFIRMED
    lost = stream(values, series=dict.fromkeys(values))
    lost["differences"]["nextapp"]["sr-od"]["HR@1"] = {"mean": -0.05, "low": -0.06, "high": -0.04}
    finding = judge(BY_NAME["fig3-honest-nextapp"], lost)
    assert finding.verdict == NOT_CONFIRMED
    assert "nextapp − sr-od, HR@1 -0.050 (-0.060 to -0.040)" in finding.decides
    del stream_["differences"]["nextapp"]["full"]["HR@3"]  # settings that do not measure it
    assert judge(BY_NAME["fig3-honest-nextapp"], stream_).verdict == CANNOT_TELL
    assert not BY_NAME["fig3-honest-nextapp"].is_put(stream({"full": 0.9}, series={"full": None}))
    assert BY_NAME["fig3-global"].is_put({"problem": "too few days"})


def test_cycles_are_balanced_or_not():
    def result(by_cycle):
        return {"by_day": {"n_users": [1, 99] * 20}, "by_cycle": {"n_users": by_cycle}}

    assert judge(BY_NAME["fig2-balanced"], result([60, 62] * 10)).verdict == CONFIRMED
    assert judge(BY_NAME["fig2-balanced"], result([30, 90] * 10)).verdict == NOT_CONFIRMED
    assert judge(BY_NAME["fig2-balanced"], result([60, 60])).verdict == CANNOT_TELL


def test_what_could_not_be_measured_tells_nothing():
    for claim in CLAIMS:
        assert judge(claim, {"problem": "too few days"})[:2] == (CANNOT_TELL, "too few days")


def test_a_comparison_writes_its_own_rule():
    rules = {name: BY_NAME[name].rule for name in ("table1-comparable", "fig3-sr-od", "fig4-sr-od")}
    assert rules == {
        "table1-comparable": "seqmf is not worse than the best rival in HR@5, preset authors, "
        "margin 0.03; seqmf must beat seqmf-frozen",
        "fig3-sr-od": "full, rare, global each beats sr-od in HR@5, mean over cycles",
        "fig4-sr-od": "full, rare each beats sr-od in HR@5, mean over cycles, and it does not hold "
        "that global beats sr-od in HR@5, mean over cycles",
    }
    assert "in all nine metrics" in BY_NAME["table1-mf"].rule


def test_names_of_claims_are_their_own():
    assert len(BY_NAME) == len(CLAIMS)


def test_the_ceiling_is_no_rival_of_nextapp():
    """It knows the odds, so it lies above: counted as a rival, it would refute every time."""
    values = {"full": 0.9, "sr-od": 0.84, "nextapp": 0.93, "ceiling": 0.99}
    claim = BY_NAME["fig3-honest-nextapp"]
    finding = judge(claim, stream(values, series=dict.fromkeys(values)))
    assert finding.verdict == CONFIRMED
    assert "ceiling" not in finding.decides
    assert "except the ceiling" in claim.rule
    beaten = values | {"sr-od": 0.95}
    assert judge(claim, stream(beaten, series=dict.fromkeys(beaten))).verdict == NOT_CONFIRMED


def test_the_report_prints_the_rules_that_are_applied():
    page = report.page({}, [], {})
    for rule in RULES:
        assert f"<dt>{rule.name}</dt><dd>{rule.words}</dd>" in page
        assert str(rule.margin) in rule.words
        assert "{" not in rule.words


YES, NO, OPEN = (Finding(verdict, "x") for verdict in (CONFIRMED, NOT_CONFIRMED, CANNOT_TELL))


@pytest.mark.parametrize(
    ("main", "others", "opposed"),
    [
        (YES, [], ""),
        (YES, [YES, OPEN], ""),
        (YES, [YES, NO], "not confirmed with B"),
        (NO, [YES, OPEN, YES], "confirmed with A, C"),
        (OPEN, [YES, NO], "confirmed with A; not confirmed with B"),  # they contradict each other
        (OPEN, [YES, YES], ""),
        (NO, [NO, OPEN], ""),
    ],
)
def test_a_verdict_stands_and_names_the_settings_that_turn_it_round(main, others, opposed):
    found = over_tunings(main, dict(zip("ABC", others, strict=False)), "3 tunings of 100 trials")
    assert found.verdict == main.verdict
    assert found.opposed == opposed
    row = {"verdict": found.verdict, "opposed": found.opposed, "of_paper": True}
    assert (DEPENDS in verdict_words(row)) == bool(opposed)
    assert verdict_words(row).startswith(main.verdict)
    assert next(iter(found.settings)) == "3 tunings of 100 trials"


def test_sr_beats_seqmf_with_few_trials_only_and_the_verdict_says_so():
    """The case that made the rule: −.017 with 5 trials, +.031 with 100."""
    few = table(dict.fromkeys(ALL, ABOVE) | {"sr": (-0.027, -0.007)})
    many = table(dict.fromkeys(ALL, ABOVE) | {"sr": (0.023, 0.038)})
    many["presets"]["authors"]["tuning"] = {"seqmf": {"trials": 100, "tunings": [{}, {}, {}]}}
    claim = BY_NAME["table2-rival"]
    assert judge(claim, few).verdict == CONFIRMED
    assert judge(claim, many).verdict == NOT_CONFIRMED
    found = judge(claim, many | {"variants": {"5 trials": few}})
    assert found.verdict == NOT_CONFIRMED
    assert found.opposed == "confirmed with 5 trials"
    assert list(found.settings) == ["3 tunings of 100 trials", "5 trials"]


def test_a_badge_has_the_verdict_and_that_it_depends_on_tuning():
    row = {"verdict": CONFIRMED, "opposed": "not confirmed with 5 trials", "of_paper": False}
    badge = report._badge(row)
    assert badge == "<span class='badge yes depends' title='yes; depends on tuning'>✓±</span>"
    assert "depends" not in report._badge({**row, "opposed": ""})


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.0002, 0.0008, "+0.0003 (-0.0002 to +0.0008)"),
        (0.00004, 0.0399, "+0.01997 (+0.00004 to +0.03990)"),  # above 0, and seen to be
        (0.0049, 0.0301, "+0.0175 (+0.0049 to +0.0301)"),
        (-0.06, -0.04, "-0.050 (-0.060 to -0.040)"),
    ],
)
def test_figures_have_digits_enough_to_check_the_verdict(low, high, text):
    assert str(gap(low, high)) == f"a − b {text}"


def test_digits_stop_somewhere():
    assert digits_to_judge(1e-12, 1e-9) == 5


def cost(found, name="kashin", figure="times"):
    row = dict(zip(("low", "mean", "high"), found, strict=True))
    return {"sizes": {"87": {name: {figure: row}}}, "n_phones": 40}


def test_kashin_is_much_costlier_or_not_or_open():
    claim = BY_NAME["cost-kashin"]
    assert judge(claim, cost((5, 6, 7))).verdict == CONFIRMED
    assert judge(claim, cost((1.1, 1.2, 1.3))).verdict == NOT_CONFIRMED  # costlier, not much
    assert judge(claim, cost((1.5, 2.2, 3))).verdict == CANNOT_TELL


def test_the_full_score_is_prohibitive_above_a_millisecond():
    claim = BY_NAME["cost-full-score"]
    assert judge(claim, cost((1.2, 1.3, 1.4), "full score (4)", "ms")).verdict == CONFIRMED
    found = judge(claim, cost((0.013, 0.0148, 0.017), "full score (4)", "ms"))
    assert found.verdict == NOT_CONFIRMED
    assert found.decides.endswith("87 apps: 0.0148 (0.013 to 0.017)")


def test_a_window_that_helps_is_enough_and_each_must_be_ruled_out():
    def result(*gains):
        rows = {
            f"{number} days": {"gain": dict(zip(("low", "mean", "high"), gain, strict=True))}
            for number, gain in enumerate(gains, 1)
        }
        return {"windows": {"all history": {"gain": None}, **rows}, "n_users": 40}

    up, down, wide = (0.01, 0.02, 0.03), (-0.03, -0.02, -0.01), (-0.01, 0.0, 0.02)
    claim = BY_NAME["window-restrict"]
    assert judge(claim, result(up, down)).verdict == CONFIRMED
    assert judge(claim, result(down, down)).verdict == NOT_CONFIRMED
    open_still = judge(claim, result(down, wide))
    assert open_still.verdict == CANNOT_TELL
    assert open_still.decides.startswith("2 days")  # that which is open, not one ruled out
    assert judge(claim, result(wide, up, up)).decides.startswith("2 days")


def test_what_a_round_sends_is_looked_at():
    row = {"holds_user_vector": False, "holds_history": False, "payload_bytes": 4,
           "sent_in_clear": []}  # fmt: skip
    phone = {"user_vector_bytes": 512, "gradient_bytes": 44_544}
    claim = BY_NAME["fig1-stays"]
    assert judge(claim, {"up": {"a": row}, "phone": phone}).verdict == CONFIRMED
    leaky = {"up": {"a": row, "b": row | {"holds_history": True}}, "phone": phone}
    assert judge(claim, leaky).verdict == NOT_CONFIRMED


@pytest.mark.parametrize(
    ("kind", "people"),
    [
        ("data", "people with clocks"),
        ("twin", "twin"),
        ("log", "people with clocks"),
        ("made", "synthetic phones"),
    ],
)
def test_a_verdict_says_whose_launches_it_is_true_of(kind, people):
    assert report._people({"result": {"data": {"name": "LSApp", "kind": kind}}}) == people
