"""The audit must see faults that were put there on purpose, and let right mechanisms pass."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from replay import Effort, replay

from nextapp.audit.layers import black_box, draws, exact, worst_pair
from nextapp.audit.verdict import CASES, EXPECTED_TO_FAIL, FALSE_ALARM, audit, find_case
from nextapp.privacy import mechanism
from nextapp.privacy.harmony import Harmony
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import below, keep_threshold, response_floor
from nextapp.wire import Report

REPLAY = Effort(own=50, sizes=((20, 4, 20),), share_sizes=((20, 21, 20), (400, 401, 4)), drawn=12)
TWO = {"n_apps": 1, "d": 2}
FOUR = {"n_apps": 2, "d": 2}


class WholeEpsilonForEverySign(Harmony):
    """ε used instead of ε/k."""

    def __init__(self, **options):
        super().__init__(**options)
        self.floor = response_floor(self.epsilon)


class HalfTheSensitivity(Laplace):
    """Two gradients in the cube are 2D apart in ℓ1, not D."""

    def __init__(self, **options):
        super().__init__(**options)
        self.scale = self.D / self.epsilon


class HalfTheNoiseOnlyWhenDrawn(Laplace):
    """The stated law is right, the sampler is not."""

    def encode(self, F, bits, round=0, coins=None):
        wrong = Laplace(
            n_apps=self.n_apps, d=self.d, epsilon=2 * self.epsilon, clip=self.clip, ball=self.ball
        )
        return replace(wrong.encode(F, bits, round), mechanism=self.name)


class ClearMaximum(Harmony):
    """f_max rides along, and the stated law does not know it."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return replace(report, payload=report.payload + struct.pack("<d", float(np.max(F))))


def heavier(name, **options):
    """Weight e^{ε+.5}: made with more than it claims."""
    planted = mechanism(name, epsilon=5.0, clip=1.0, **TWO, **options)
    planted.epsilon = 4.5
    return planted


class CodewordInTheClear(Walsh):
    """Drawn without noise once in ten times, and the stated law does not know it."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if below(bits, 10):
            return report
        seed = int.from_bytes(report.payload[:8], "little")
        best = int(np.argmax(self._alignments(F, seed)))
        return Report(self.name, round, self.payload(seed, best))


class KeptTooOften(Walsh):
    """The threshold of a larger ε, in the law too."""

    def __init__(self, **options):
        super().__init__(**options)
        self.threshold = keep_threshold(self.epsilon + 0.5, self.k, self.m)


class WhoKnowsNothingIsSilent(Walsh):
    """A phone without launches says so: always the same codeword of a seed."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return report if np.any(F) else replace(report, payload=report.payload[:8] + b"\0")

    def probability(self, report, F):
        if np.any(F):
            return super().probability(report, F)
        return Fraction(int(report.payload[8] == 0))


PLANTED = {
    "a codeword in the clear": lambda: CodewordInTheClear(epsilon=1.5, clip=1.0, **TWO),
    "kept too often, e^{ε+.5}": lambda: KeptTooOften(epsilon=4.5, clip=1.0, **TWO),
    "silence tells": lambda: WhoKnowsNothingIsSilent(epsilon=4.5, clip=1.0, **TWO),
    "ε instead of ε/k": lambda: WholeEpsilonForEverySign(epsilon=4.5, clip=1.0, k=2, **FOUR),
    "sensitivity D": lambda: HalfTheSensitivity(epsilon=4.5, clip=1.0, **TWO),
    "noise halved in the sampler": lambda: HalfTheNoiseOnlyWhenDrawn(epsilon=1.5, clip=1.0, **TWO),
    "walsh e^{ε+.5}": lambda: heavier("walsh"),
    "f_max in the clear": lambda: ClearMaximum(epsilon=4.5, clip=1.0, **FOUR),
    "qharmony": lambda: CASES["qharmony"].mechanism(4.5),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug, seed):
    n_reports = 1000 if "e^{ε+.5}" in bug else 3000
    found = audit(PLANTED[bug](), n_reports, seed)
    assert found.verdict == "fails"
    assert found.caught_by


@pytest.mark.parametrize("epsilon", [1.1, 4.5])
@pytest.mark.parametrize("name", [name for name in CASES if name not in EXPECTED_TO_FAIL])
def test_a_right_mechanism_passes(name, epsilon, seed):
    """False-alarm rate 1e-3 each: one of these 10 fails by chance for one seed in 100."""
    n_reports = 1000 if name == "walsh" else 2000
    made = CASES[name].mechanism(epsilon)
    found = audit(made, n_reports, seed)
    assert found.caught_by == ()
    assert replay(made, seed, REPLAY, epsilon).holds
    assert found.exact.worst == pytest.approx(epsilon, rel=1e-4)  # nothing is wasted


def test_one_part_in_10_to_the_18_above_e_to_the_epsilon_is_seen():
    planted = Harmony(epsilon=4.5, clip=1.0, k=1, **FOUR)
    assert exact(planted, seed=0).holds
    planted.floor -= 1
    assert not exact(planted, seed=0).holds


@pytest.mark.parametrize("name", ["harmony", "walsh"])
def test_the_black_box_comes_close_to_epsilon(name, seed):
    right = CASES[name].mechanism(4.5)
    found = black_box(4.5, draws(right, worst_pair(right), 4000, seed), FALSE_ALARM)
    assert 0.8 * 4.5 <= found.epsilon_low <= 4.5


def test_kashin_as_shipped_wastes_some_of_its_epsilon_and_never_exceeds_it():
    law = exact(mechanism("kashin", epsilon=4.5, clip=1.0, **TWO), seed=0)
    assert law.complete
    assert law.holds
    assert not law.tight


def test_what_promises_nothing_cannot_be_audited():
    with pytest.raises(ValueError, match="has no privacy guarantee"):
        find_case("identity")
    with pytest.raises(ValueError, match="did you mean 'walsh'"):
        find_case("wolsh")


def test_a_verdict_reads_as_json(seed):
    found = audit(CASES["qharmony"].mechanism(4.5), 2000, seed).as_json()
    assert found["verdict"] == "fails"
    assert found["exact"]["worst"] is None  # infinite
    assert "black box" in found["caught_by"]


def test_too_few_reports_are_refused():
    with pytest.raises(ValueError, match="at least 1,000"):
        audit(CASES["harmony"].mechanism(4.5), 10, 0)
