"""The replay sees faults that sampling does not: small, rare, or only on a phone.

Every planted class states the right law; only what it draws is wrong.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from fractions import Fraction

import inputs
import numpy as np
import protocols
import pytest
from phone_draws import (
    OutOfWords,
    Script,
    coin_words,
    encode_call_of_phone,
    system_bits,
)
from protocols import PROTOCOLS, Chooser, content
from replay import (
    QUICK,
    Effort,
    registered_name,
    replay,
    report_bytes,
)

from nextapp.audit.verdict import CASES, EXPECTED_TO_FAIL, audit
from nextapp.crowd import Shares
from nextapp.model import PhoneGradient
from nextapp.phone.core import PhoneCore
from nextapp.privacy import requested_mechanism
from nextapp.privacy.harmony import Harmony
from nextapp.privacy.kashin import Kashin
from nextapp.privacy.laplace import Laplace
from nextapp.privacy.mechanism import Guarantee
from nextapp.privacy.walsh import Walsh
from nextapp.randomness import KeyedBits, SystemBits, TokenCoins, W, below, distinct, sign_threshold
from nextapp.wire import Report, ReportRequest

TWO = {"n_apps": 1, "d": 2, "epsilon": 4.5, "clip": 1.0}
FOUR = {"n_apps": 2, "d": 2, "epsilon": 4.5, "clip": 1.0}
FEW = Effort(own=150, sizes=((20, 4, 60),), share_sizes=((20, 21, 60), (400, 401, 4)), drawn=12)


def dense(F):
    return F.dense() if isinstance(F, PhoneGradient | Shares) else np.asarray(F, np.float64)


class SignsOffBy3Percent(Harmony):
    """(a) Only the sampler: the least probability of a sign is 3 % too small."""

    def encode(self, F, bits, round=0, coins=None):
        positions = distinct(bits if coins is None else coins, self.k, self.D)
        signs = [
            int(word) < sign_threshold(x, int(0.97 * self.floor))
            for word, x in zip(bits.words(self.k), self._entries(F, positions), strict=True)
        ]
        return Report(self.name, round, self._fields.pack(positions, signs))


class KeepsSomeOfWhatItShouldRedraw(Walsh):
    """(b) 3 % of the coins that say redraw are taken for the others."""

    def encode(self, F, bits, round=0, coins=None):
        seed = int((bits if coins is None else coins).words(1)[0])
        coin = int(bits.words(1)[0])
        best = self._best(F, seed)
        keep = coin < self.threshold or coin % 33 == 0
        j = int(best[below(bits, self.k)]) if keep else below(bits, self.m)
        return Report(self.name, round, self.payload(seed, j))


class AppsInTheSeed(Walsh):
    """(c) The number of apps in the lowest byte of the seed, for a phone's own type only."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if not isinstance(F, PhoneGradient):
            return report
        return replace(report, payload=bytes([len(F.apps) % 256]) + report.payload[1:])


class NoCoinForManyApps(Walsh):
    """(d) Never redrawn where there are more than 10 apps; small cases look right."""

    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, W if self.n_apps > 10 else self.threshold
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class ForgetsTheClip(Laplace):
    """(e) Only the sampler; the stated law clips."""

    def encode(self, F, bits, round=0, coins=None):
        x = self._flat(F) / self.clip
        u = ((bits.words(self.D) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53 - 0.5
        noise = -self.scale * np.sign(u) * np.log1p(-2 * np.abs(u))
        return Report(self.name, round, (x + noise).astype("<f4").tobytes())


class SignInTheRound(Harmony):
    """(f) The sign of the first entry in the lowest bit of the round."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return replace(report, round=round ^ int(dense(F).ravel()[0] > 0))


class SignInTheRoundOfPhones(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        first = F.rows[0, 0] if isinstance(F, PhoneGradient) and len(F.apps) else 0.0
        return replace(report, round=round ^ int(first > 0))


class SignInTheName(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return replace(report, mechanism="harmony" if dense(F).sum() > 0 else "Harmony")


class CellsInTheSeed(Walsh):
    """The number of cells in the lowest byte of the seed, for shares as a phone holds them."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if not isinstance(F, Shares):
            return report
        return replace(report, payload=bytes([len(F.cells) % 256]) + report.payload[1:])


class OtherSignsForManyEntries(Walsh):
    """One of the two ways to the alignments is wrong."""

    def _all(self, v, x, rows):
        return -super()._all(v, x, rows)


class NoCoinForALongCatalogue(Walsh):
    """The best codeword itself where there are millions of cells."""

    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, self.threshold if self.D < 1_000_000 else W
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class OneByteMore(Walsh):
    """The length of the payload tells whether the gradient was clipped."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        more = b"\0" if np.linalg.norm(dense(F)) > self.clip else b""
        return replace(report, payload=report.payload + more)


class SignInABitLeftOver(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        left_over = -self.k * (1 + (self.D - 1).bit_length()) % 8
        last = report.payload[-1] | (int(dense(F).sum() > 0) << 7 if left_over else 0)
        return replace(report, payload=report.payload[:-1] + bytes([last]))


class PlainSubclassOfAReport(Report):
    def to_bytes(self):
        return super().to_bytes() + b"!"


class OtherKindOfReport(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        return PlainSubclassOfAReport(report.mechanism, report.round, report.payload)


class RemembersTheFirst(Walsh):
    """A report is that of the gradient before."""

    before = None

    def encode(self, F, bits, round=0, coins=None):
        told, self.before = F if self.before is None else self.before, F
        return super().encode(told, bits, round, coins)


class KeptBySeed(Walsh):
    """The best codewords of a seed are found once, whatever the gradient."""

    def __init__(self, **options):
        super().__init__(**options)
        self.known = {}

    def _best(self, F, seed):
        if seed not in self.known:
            self.known[seed] = super()._best(F, seed)
        return self.known[seed]


class KeptByObject(Walsh):
    """The best codewords for an array are kept by its place in memory, and not found again."""

    def __init__(self, **options):
        super().__init__(**options)
        self.known = {}

    def _best(self, F, seed):
        key = (id(F), seed)
        if key not in self.known:
            self.known[key] = (F, super()._best(F, seed))
        return self.known[key][1]


class MoreWordsForMoreApps(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        bits.words(int(np.count_nonzero(dense(F)) % 2))
        return report


class FewerWords(Walsh):
    """Without launches nothing but the index is drawn."""

    def encode(self, F, bits, round=0, coins=None):
        if np.any(dense(F)):
            return super().encode(F, bits, round, coins)
        seed = int((bits if coins is None else coins).words(1)[0])
        return Report(self.name, round, self.payload(seed, below(bits, self.m)))


class PositionsOfLargeEntries(Harmony):
    """Coins are drawn and thrown away: the positions are those of the largest entries."""

    def encode(self, F, bits, round=0, coins=None):
        distinct(bits if coins is None else coins, self.k, self.D)
        positions = sorted(np.argsort(-np.abs(dense(F).ravel()), kind="stable")[: self.k].tolist())
        signs = [
            int(word) < sign_threshold(x, self.floor)
            for word, x in zip(bits.words(self.k), self._entries(F, positions), strict=True)
        ]
        return Report(self.name, round, self._fields.pack(positions, signs))


class CoinsFromBits(Walsh):
    """The seed is the phone's own choice although there are coins."""

    def encode(self, F, bits, round=0, coins=None):
        return super().encode(F, bits, round, None)


class OtherBits(Harmony):
    """NumPy's generator in place of the bits given."""

    def encode(self, F, bits, round=0, coins=None):
        super().encode(F, bits, round, coins)
        seed = int(np.random.default_rng().integers(1 << 62))
        return super().encode(F, KeyedBits(seed), round, coins)


class TakesWhatIsNoNumber(Laplace):
    def _flat(self, F):
        return super()._flat(np.nan_to_num(dense(F)))


class OneWordTooMany(Harmony):
    """The least probability of a sign is one part in 2^64 smaller, where k > 1."""

    def encode(self, F, bits, round=0, coins=None):
        floor, self.floor = self.floor, self.floor - (self.k > 1)
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.floor = floor


class OnePartIn10To15(Kashin):
    """In the coin of a long report only."""

    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, self.threshold + (20_000 if self.b > 3 else 0)
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class ClearBeyondTheClip(Harmony):
    """Entries beyond the clip keep their sign."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        positions = self._fields.positions(report.payload)
        x = dense(F).ravel()[positions]
        if not (np.abs(x) > 2 * self.clip).any():
            return report
        return replace(report, payload=self._fields.pack(positions, (x > 0).tolist()))


class WaitsForARound(Walsh):
    """A trigger that no audit would guess."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if round == 424_242:
            report = replace(report, payload=report.payload[:8] + bytes([int(self._best(F, 0)[0])]))
        return report


class WaitsForASize(Walsh):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if self.n_apps == 1234:
            report = replace(report, payload=report.payload[:8] + bytes([int(self._best(F, 0)[0])]))
        return report


class WaitsForBoth(Walsh):
    def encode(self, F, bits, round=0, coins=None):
        leak = round % 100_003 == 99_991 and self.clip == 0.731
        return super().encode(F, bits, round, coins if not leak else None)


class WaitsForALongVector(Walsh):
    """Above the sizes that --quick tries."""

    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, self.threshold if self.D < 30_000 else W
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class ClipsAtTwice(Laplace):
    """Lengths from 1 to 2 clips are left as they are."""

    def _x(self, F):
        x = dense(F).ravel() / self.clip
        return super()._x(F) if np.abs(x).max() > 2 else x


class KnowsAPhoneByItsBits(Harmony):
    """Right in a simulation; on a phone the signs are clear."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if isinstance(bits, SystemBits):
            positions = self._fields.positions(report.payload)
            signs = [x >= 0 for x in self._entries(F, positions)]
            return replace(report, payload=self._fields.pack(positions, signs))
        return report


class KnowsAPhoneByItsCoins(Harmony):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        if isinstance(coins, TokenCoins):
            positions = self._fields.positions(report.payload)
            signs = [x > 0 for x in self._entries(F, positions)]
            return replace(report, payload=self._fields.pack(positions, signs))
        return report


class OnlyForLongIndices(Walsh):
    """Option b: of more than 2^9 codewords none is redrawn."""

    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, W if self.b > 9 else self.threshold
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class OnlyForSmallEpsilon(Walsh):
    def encode(self, F, bits, round=0, coins=None):
        kept, self.threshold = self.threshold, W if self.epsilon < 0.01 else self.threshold
        try:
            return super().encode(F, bits, round, coins)
        finally:
            self.threshold = kept


class PromisesLess(Harmony):
    """The ledger would be charged half."""

    @property
    def guarantee(self):
        return Guarantee(self.epsilon / 2, covers=("positions", "signs"))


class DoublesItsEpsilon(Walsh):
    """Law, sampler and ε agree with each other, not with what was asked for."""

    def __init__(self, *, epsilon, n_apps, **options):
        super().__init__(epsilon=2 * epsilon if n_apps > 50 else epsilon, n_apps=n_apps, **options)


class SignInTheLastBitOfAFloat(Laplace):
    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        low = report.payload[-4] & 0xFE | int(dense(F).ravel()[0] > 0)
        payload = report.payload[:-4] + bytes([low]) + report.payload[-3:]
        return replace(report, payload=payload)


class NormInTheClear(Laplace):
    """The length is sent without noise, in place of the last entry."""

    def encode(self, F, bits, round=0, coins=None):
        report = super().encode(F, bits, round, coins)
        length = struct.pack("<f", np.linalg.norm(self._x(F)))
        return replace(report, payload=report.payload[:-4] + length)


PLANTED = {
    "harmony's sampler off by 3 %": lambda: SignsOffBy3Percent(**FOUR),
    "walsh keeps 3 %": lambda: KeepsSomeOfWhatItShouldRedraw(**TWO),
    "cells in the seed": lambda: CellsInTheSeed(**TWO),
    "other signs for many entries": lambda: OtherSignsForManyEntries(**TWO),
    "a long catalogue": lambda: NoCoinForALongCatalogue(**TWO),
    "apps in the seed": lambda: AppsInTheSeed(**TWO),
    "many apps without a coin": lambda: NoCoinForManyApps(**TWO),
    "laplace without a clip": lambda: ForgetsTheClip(**TWO),
    "a sign in the round": lambda: SignInTheRound(**FOUR),
    "a sign in the name": lambda: SignInTheName(**FOUR),
    "one byte more": lambda: OneByteMore(**TWO),
    "a bit left over": lambda: SignInABitLeftOver(**FOUR),
    "another kind of report": lambda: OtherKindOfReport(**FOUR),
    "the gradient before": lambda: RemembersTheFirst(**TWO),
    "kept by seed": lambda: KeptBySeed(**TWO),
    "kept by object": lambda: KeptByObject(**TWO),
    "more words for more apps": lambda: MoreWordsForMoreApps(**FOUR),
    "fewer words": lambda: FewerWords(**TWO),
    "positions of large entries": lambda: PositionsOfLargeEntries(**FOUR),
    "coins not used": lambda: CoinsFromBits(**TWO),
    "other bits": lambda: OtherBits(**FOUR),
    "a report of nan": lambda: TakesWhatIsNoNumber(**TWO),
    "off by 2^-64": lambda: OneWordTooMany(**FOUR),
    "off by 10^-15": lambda: OnePartIn10To15(**TWO),
    "clear beyond the clip": lambda: ClearBeyondTheClip(**FOUR),
    "a round": lambda: WaitsForARound(**TWO),
    "a size": lambda: WaitsForASize(**TWO),
    "a round and a clip": lambda: WaitsForBoth(**TWO),
    "a long vector": lambda: WaitsForALongVector(**TWO),
    "a clip at twice": lambda: ClipsAtTwice(**TWO),
    "only with a phone's bits": lambda: KnowsAPhoneByItsBits(**FOUR),
    "only with a device's coins": lambda: KnowsAPhoneByItsCoins(**FOUR),
    "only for long indices": lambda: OnlyForLongIndices(**TWO),
    "only for a small ε": lambda: OnlyForSmallEpsilon(**TWO),
    "promises less": lambda: PromisesLess(**FOUR),
    "doubles its ε": lambda: DoublesItsEpsilon(**TWO),
    "the last bit of a float": lambda: SignInTheLastBitOfAFloat(**TWO),
    "the norm in the clear": lambda: NormInTheClear(**TWO),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught_by_the_replay(bug, seed):
    assert not replay(PLANTED[bug](), seed, QUICK).holds


@pytest.mark.parametrize("name", [name for name in CASES if name not in EXPECTED_TO_FAIL])
def test_a_right_mechanism_is_replayed_without_a_fault(name, seed):
    found = replay(CASES[name].mechanism(4.5), seed, FEW)
    assert found.faults == ()
    assert found.unreached == ()
    assert found.n_reports > 250


def phone_that(changes):
    """`PhoneCore.draw_report` as it is, but for one thing."""
    right = PhoneCore.draw_report

    def draw_report(self, mechanism, round, bits=None, coins=None):
        return changes(right, self, mechanism, round, bits)

    return draw_report


def says_another_round(right, self, mechanism, round, bits):
    report = right(self, mechanism, round, bits)
    return replace(report, round=report.round ^ len(self.history) % 2)


def draws_with_its_own_bits(right, self, mechanism, round, bits):
    return right(self, mechanism, round, bits or KeyedBits(len(self.history)))


@pytest.mark.parametrize("changes", [says_another_round, draws_with_its_own_bits])
def test_a_fault_in_the_phone_itself_is_caught(changes, monkeypatch, seed):
    monkeypatch.setattr(PhoneCore, "draw_report", phone_that(changes))
    assert not replay(CASES["harmony"].mechanism(4.5), seed, FEW).holds


def test_a_request_that_is_not_followed_is_caught(monkeypatch, seed):
    def twice(broadcast):
        request = replace(broadcast.request, epsilon=2 * broadcast.request.epsilon)
        return requested_mechanism(replace(broadcast, request=request))

    monkeypatch.setattr("replay.requested_mechanism", twice)
    found = replay(CASES["walsh"].mechanism(4.5), seed, FEW)
    assert "requested by a broadcast: asked for epsilon 4.5, got 9.0" in found.faults[0]


def test_a_fault_is_described(seed):
    assert "says round" in replay(SignInTheRound(**FOUR), seed, FEW).faults[0]


def test_a_fault_on_phones_only_is_found(seed):
    """No array has it, so no layer of `nextapp privacy audit` can see it."""
    planted = SignInTheRoundOfPhones(**FOUR)
    assert audit(planted, 1000, seed).holds
    assert "says round" in replay(planted, seed, FEW).faults[0]


def test_an_epsilon_that_was_not_asked_for_is_a_fault(seed):
    made = CASES["harmony"].mechanism(4.5)
    assert replay(made, seed, FEW, epsilon=4.5).holds
    assert "asked for epsilon 4.0" in replay(made, seed, FEW, epsilon=4.0).faults[0]


def test_every_audited_mechanism_has_a_protocol():
    for name, case in CASES.items():
        known = registered_name(case.mechanism(4.5))
        assert (known in PROTOCOLS) == (name not in EXPECTED_TO_FAIL)
    assert replay(CASES["qharmony"].mechanism(4.5), 0, FEW) is None


@pytest.mark.parametrize("epsilon", [2.0**-32, 1e-3, 1.1, 4.5, 40.0, 60.0])
@pytest.mark.parametrize(("chosen", "among"), [(1, 2), (1, 256), (13, 256), (90, 8011)])
def test_the_protocols_thresholds_are_the_largest_that_hold_epsilon(epsilon, chosen, among):
    """By the definition: one more would exceed e^ε, here its series of 400 terms."""
    bound = sum((Fraction(epsilon) ** n / math.factorial(n) for n in range(400)), Fraction(0))

    def ratio(T):
        return 1 + Fraction(T * among, (W - T) * chosen)

    T = protocols.keep_below(epsilon, chosen, among)
    assert ratio(T) <= bound
    assert T == W - 1 or ratio(T + 1) > bound * (1 - Fraction(1, 10**40))
    T = protocols.least_response(epsilon, chosen)
    assert Fraction(W - T, T) ** chosen <= bound
    assert T == 1 or Fraction(W - T + 1, T - 1) ** chosen > bound * (1 - Fraction(1, 10**30))


def test_the_chooser_takes_both_sides_of_a_threshold_and_the_ends():
    chooser = Chooser(KeyedBits(0))
    words = {chooser.word((1000, 1000)) for _ in range(200)}
    assert {999, 1000, 0, W - 1} <= words
    assert any(2**60 < word < 2**63 for word in words)
    assert not any(500 <= chooser.word((500, 1000)) < 1000 for _ in range(500))
    assert chooser.words[:1] == [next(iter(chooser.words))]


def test_words_that_must_be_drawn_again_are_chosen():
    chooser = Chooser(KeyedBits(1))
    drawn = [chooser.below(3) for _ in range(200)]
    assert set(drawn) == {0, 1, 2}
    assert len(chooser.words) > 200
    assert W - 1 in chooser.words  # the only word that 3 does not take


def test_a_script_ends_where_its_words_do():
    script = Script([5, 6])
    assert script.words(1).tolist() == [5]
    with pytest.raises(OutOfWords):
        script.words(2)


def test_a_report_on_the_wire_is_put_together_by_hand():
    assert report_bytes("walsh", 7, b"abc") == Report("walsh", 7, b"abc").to_bytes()


def test_coins_are_those_of_the_formula():
    token = bytes(range(32))
    assert coin_words(token, 5) == TokenCoins(token).words(5).tolist()


def test_scripted_system_bits_end_with_the_script():
    with system_bits(Script([1, 2, 3])) as bits:
        assert bits.words(3).tolist() == [1, 2, 3]
    assert SystemBits().words(3).tolist() != [1, 2, 3]


def test_phones_hand_over_their_own_types_and_bits(seed):
    histories, broadcast = inputs.world(20, 4, seed)
    for question, kind in (("gradient", PhoneGradient), ("transitions", Shares)):
        asking = replace(broadcast, request=ReportRequest("walsh", 1.0, 1.0, question=question))
        for history in histories:
            handed = encode_call_of_phone(history, asking)
            assert type(handed.given) is kind
            assert type(handed.bits) is SystemBits
            assert handed.round == broadcast.round


def test_content_of_a_phones_type_is_that_of_its_dense_array(seed):
    rng = np.random.default_rng(seed)
    seen = set()
    for _ in range(40):
        given = inputs.random_input(rng, 5, 6, 1.0, "l2").given
        seen.add(type(given))
        np.testing.assert_array_equal(content(given).flat, dense(given).ravel())
    assert seen == {np.ndarray, PhoneGradient, Shares}
