"""What leaves the phone: sizes, round trips, and bytes that nobody should have sent."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from catalogue import ALL, FINITE, gradients, made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextapp.privacy import mechanism
from nextapp.privacy.harmony import SignedPositions
from nextapp.randomness import KeyedBits
from nextapp.wire import Report, WireError

NAMES = [f"{name}-{'-'.join(map(str, options.values()))}".rstrip("-") for name, options in ALL]
MADE = {label: made(name, options) for label, (name, options) in zip(NAMES, ALL, strict=True)}


@pytest.mark.parametrize("label", NAMES)
def test_a_report_comes_back_from_its_bytes(label, rng, seed):
    m = MADE[label]
    for number, F in enumerate(gradients(rng).values()):
        report = m.encode(F, KeyedBits(seed, number), round=7)
        again = Report.from_bytes(report.to_bytes())
        assert again == report
        assert (again.round, again.mechanism) == (7, m.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # qharmony may find no positive sign
            assert m.decode([again]).shape == (5, 4)


def decoded_or_refused(m, payload):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # qharmony may find no positive sign
        try:
            mean = m.decode([Report(m.name, 0, payload)])
        except WireError:
            return None
    assert mean.shape == (m.n_apps, m.d)
    if not m.unsafe:
        assert np.isfinite(mean).all()
    return mean


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.binary(max_size=120))
@pytest.mark.parametrize("label", NAMES)
def test_any_bytes_are_read_or_refused(label, payload):
    decoded_or_refused(MADE[label], payload)


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("label", NAMES)
def test_bytes_of_the_right_length_are_read_or_refused(label, data):
    m = MADE[label]
    n = len(m.encode(np.eye(5, 4), KeyedBits(0)).payload)
    decoded_or_refused(m, data.draw(st.binary(min_size=n, max_size=n)))


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("label", NAMES)
def test_a_report_with_one_wrong_bit_is_read_or_refused(label, data):
    m = MADE[label]
    payload = bytearray(m.encode(np.eye(5, 4), KeyedBits(data.draw(st.integers(0, 99)))).payload)
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    payload[bit // 8] ^= 1 << bit % 8
    decoded_or_refused(m, bytes(payload))


@pytest.mark.parametrize("label", NAMES)
def test_a_report_of_another_mechanism_is_refused(label):
    with pytest.raises(WireError, match="expected a report of"):
        MADE[label].decode([Report("something-else", 0, b"")])


@pytest.mark.parametrize("label", NAMES)
def test_no_reports_have_no_mean(label):
    with pytest.raises(ValueError, match="at least one"):
        MADE[label].decode([])


@pytest.mark.parametrize(
    ("name", "options", "n_bytes"),
    [
        ("harmony", {"k": 2}, 3),
        ("qharmony", {"k": 2, "allow_unsafe": True}, 3 + 8),
        ("walsh", {}, 1 + 8),
        ("walsh", {"b": 9}, 2 + 8),
        ("kashin", {}, 7),
        ("laplace", {}, 4 * 1392),
    ],
)
def test_payloads_are_packed_to_the_bit(name, options, n_bytes):
    m = mechanism(name, epsilon=4.5, n_apps=87, d=16, clip=1.0, **options)
    assert len(m.encode(np.zeros((87, 16)), KeyedBits(0)).payload) == n_bytes


reports = st.integers(1, 5000).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.sets(st.integers(0, size - 1), min_size=1, max_size=min(size, 9)).map(sorted),
        st.lists(st.booleans(), min_size=9, max_size=9),
    )
)


@given(reports)
def test_packed_positions_and_signs_come_back(case):
    size, positions, positive = case
    form = SignedPositions(len(positions), size)
    payload = form.pack(positions, positive[: form.k])
    form.check(payload)
    found, signs = form.unpack(np.frombuffer(payload, np.uint8)[None, :])
    assert found[0].tolist() == form.positions(payload) == positions
    assert (signs[0] > 0).tolist() == positive[: form.k]


def test_bits_left_over_must_be_zero():
    form = SignedPositions(1, 4)  # two bits and one
    for read in (lambda: form.unpack(np.array([[0b1000]], np.uint8)), lambda: form.check(b"\x08")):
        with pytest.raises(WireError, match="after the last field"):
            read()


@pytest.mark.parametrize("positions", [[3, 3], [4, 3], [3, 5]])
def test_positions_must_ascend_and_exist(positions):
    form = SignedPositions(2, 5)
    data = np.frombuffer(form.pack(positions, [1, 0]), np.uint8)[None, :]
    with pytest.raises(WireError, match="positions must be ascending"):
        form.unpack(data)


def test_every_payload_is_listed_once():
    payloads = list(SignedPositions(2, 5).all())
    assert len(payloads) == len(set(payloads)) == 10 * 4


def test_reports_are_the_same_everywhere():
    """Golden: the bytes that a phone with these bits has always sent."""
    F = np.arange(-10, 10).reshape(5, 4) / 16
    sent = {
        name: mechanism(name, epsilon=4.5, n_apps=5, d=4, clip=1.0)
        .encode(F, KeyedBits(seed=3, phone=1, round=2))
        .payload.hex()
        for name in FINITE
    }
    assert sent == {"harmony": "0906", "kashin": "9175e705", "walsh": "5d94864f864d4d9272"}


@pytest.mark.parametrize("b", [1, 5, 9, 12])
def test_an_index_beyond_the_codewords_is_refused(b):
    m = made("walsh", {"b": b})
    payload = m.payload(7, m.m - 1)
    m.check(Report("walsh", 0, payload))
    beyond = payload[:8] + m.m.to_bytes(len(payload) - 8, "little")
    for take in (m.check, lambda report: m.tally([report])):
        with pytest.raises(WireError, match="must be below"):
            take(Report("walsh", 0, beyond))
