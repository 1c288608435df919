"""Reports as integers of shape that add up, whatever the parts and the order."""

from __future__ import annotations

import numpy as np
import pytest
from catalogue import FINITE, REAL, gradients, made
from hypothesis import given, settings
from hypothesis import strategies as st

from nextapp.privacy import MECHANISMS, FiniteMechanism, find_class, requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, ModelSettings, Report, ReportRequest, WireError

WITH_TALLY = [*((name, {}) for name in FINITE), ("walsh", {"b": 9})]
IDS = [name + "".join(map(str, options.values())) for name, options in WITH_TALLY]


def drawn(m, seed, n):
    some = list(gradients(np.random.default_rng(seed)).values())
    return [m.encode(some[i % len(some)], KeyedBits(seed, i, 0, "report")) for i in range(n)]


def test_every_mechanism_that_phones_may_send_is_tried_here():
    kinds = {name for name in MECHANISMS if issubclass(find_class(name), FiniteMechanism)}
    assert kinds <= {name for name, _ in WITH_TALLY}


@pytest.mark.parametrize(("name", "options"), WITH_TALLY, ids=IDS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_tallies_of_any_parts_in_any_order_add_up_to_the_tally_of_all(name, options, data):
    m = made(name, options)
    reports = drawn(m, data.draw(st.integers(0, 2**32)), data.draw(st.integers(1, 12)))
    whole = m.tally(reports)
    assert whole.dtype == np.int64
    shuffled = data.draw(st.permutations(reports))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reports)), max_size=4)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(reports)], strict=True)]
    assert np.array_equal(sum(m.tally(part) for part in parts), whole)
    assert np.array_equal(m.estimate(whole, len(reports)), m.decode(shuffled))


@pytest.mark.parametrize(("name", "options"), WITH_TALLY, ids=IDS)
def test_a_mean_of_tallies_is_the_mean_of_the_reports_estimates(name, options, seed):
    m = made(name, options)
    reports = drawn(m, seed, 30)
    each = np.mean([m.decode([report]) for report in reports], axis=0)
    np.testing.assert_allclose(m.estimate(m.tally(reports), 30), each, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), WITH_TALLY, ids=IDS)
def test_an_estimate_refuses_no_reports_and_tallies_of_another_shape(name, options):
    m = made(name, options)
    nothing = m.tally([])
    assert not nothing.any()
    with pytest.raises(ValueError, match="at least one report"):
        m.estimate(nothing, 0)
    with pytest.raises(ValueError, match="shape"):
        m.estimate(np.zeros(3, np.int64), 1)
    with pytest.raises(ValueError, match="integers of shape"):
        m.estimate(nothing.astype(float), 1)


@pytest.mark.parametrize(("name", "options"), WITH_TALLY, ids=IDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_check_at_the_door_takes_what_the_tally_takes_and_nothing_else(name, options, data):
    m = made(name, options)
    (report,) = drawn(m, 1, 1)
    payload = bytearray(report.payload)
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    payload = bytes(payload) + data.draw(st.sampled_from([b"", b"", b"", b"\0"]))
    sent = Report(data.draw(st.sampled_from([m.name, m.name, "other"])), 0, payload)

    def refused(take):
        try:
            take()
        except WireError:
            return True
        return False

    assert refused(lambda: m.check(sent)) == refused(lambda: m.tally([sent]))


@pytest.mark.parametrize(("name", "options"), REAL)
def test_mechanisms_of_real_numbers_are_asked_of_nobody(name, options):
    m = made(name, options)
    request = ReportRequest(name, 1.0, 1.0, options)
    broadcast = Broadcast(0, np.ones((2, 2)), ModelSettings(), ("a", "b"), request)
    with pytest.raises(WireError, match="real numbers"):
        requested_mechanism(broadcast)
    (report,) = drawn(m, 0, 1)
    m.check(report)
    with pytest.raises(WireError):
        m.check(Report(name, 0, report.payload + b"\0"))
