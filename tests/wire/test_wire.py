from __future__ import annotations

import contextlib

import numpy as np
import pytest

from nextapp.wire import Broadcast, ModelSettings, Report, WireError, pack, unpack


@pytest.fixture
def broadcast(rng) -> Broadcast:
    settings = ModelSettings(lam=0.5, alpha=0.1, gamma=0.3, reading="authors", inference="window:4")
    return Broadcast(7, rng.normal(size=(5, 3)), settings, ("Clock", "Mail", "Maps", "Fotos ü", ""))


def test_a_broadcast_survives_its_bytes(broadcast):
    back = Broadcast.from_bytes(broadcast.to_bytes())
    assert (back.round, back.settings, back.apps) == (7, broadcast.settings, broadcast.apps)
    assert np.array_equal(back.app_vectors, broadcast.app_vectors)
    assert np.array_equal(back.gram, broadcast.app_vectors.T @ broadcast.app_vectors)


def test_other_tools_read_a_broadcast(broadcast):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load(broadcast.to_bytes())
    assert np.array_equal(tensors["app_vectors"], broadcast.app_vectors)


def test_no_damaged_broadcast_is_accepted(broadcast):
    data = broadcast.to_bytes()
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        try:
            back = Broadcast.from_bytes(damaged)
        except WireError:
            continue
        # white space in the header is the one thing that may change and mean the same
        assert back.to_bytes() == data


@pytest.mark.parametrize("n_bytes", [0, 1, 7, 8, 9, 100, -1])
def test_a_broadcast_cut_short_is_refused(broadcast, n_bytes):
    with pytest.raises(WireError):
        Broadcast.from_bytes(broadcast.to_bytes()[:n_bytes])


def test_a_header_that_announces_too_much_allocates_nothing():
    with pytest.raises(WireError, match="announces"):
        unpack((2**63).to_bytes(8, "little") + b"{}")


def test_another_kind_of_file_is_refused():
    with pytest.raises(WireError, match="expected a nextapp broadcast"):
        Broadcast.from_bytes(pack({"x": np.zeros(2)}, {"kind": "a photograph"}))


def test_a_broadcast_must_be_finite(broadcast):
    vectors = broadcast.app_vectors.copy()
    vectors[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        Broadcast(0, vectors, ModelSettings())


def test_a_catalogue_must_fit(broadcast):
    with pytest.raises(ValueError, match="2 names does not fit 5 rows"):
        Broadcast(0, broadcast.app_vectors, ModelSettings(), ("a", "b"))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"lam": 0.0}, "lam must be"),
        ({"lam": float("nan")}, "lam must be"),
        ({"alpha": 1.5}, "alpha must lie"),
        ({"gamma": -0.1}, "gamma must lie"),
        ({"reading": "printed"}, "reading must be"),
        ({"inference": "window:0"}, "inference must be"),
    ],
)
def test_bad_settings_say_what_must_hold(bad, says):
    with pytest.raises(ValueError, match=says):
        ModelSettings(**bad)


def test_a_report_survives_its_bytes():
    report = Report("harmony", 2**40, b"\x00\x01\xff")
    assert Report.from_bytes(report.to_bytes()) == report


def test_no_damaged_report_is_accepted():
    data = Report("identity", 3, bytes(range(20))).to_bytes()
    for place in range(len(data)):
        for bit in range(8):
            damaged = data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
            with pytest.raises(WireError):
                Report.from_bytes(damaged)


def test_any_bytes_give_a_report_or_a_clear_error():
    hypothesis = pytest.importorskip("hypothesis")

    @hypothesis.settings(max_examples=300, deadline=None)
    @hypothesis.given(hypothesis.strategies.binary(max_size=200))
    def holds(data):
        for reader in (Report.from_bytes, Broadcast.from_bytes, unpack):
            for head in (b"", b"nR\x01", b"\x02\0\0\0\0\0\0\0{}"):
                with contextlib.suppress(WireError):
                    reader(head + data)

    holds()


def test_a_report_needs_a_plain_name():
    with pytest.raises(ValueError, match="plain characters"):
        Report("", 0, b"")
    with pytest.raises(ValueError, match="plain characters"):
        Report("\n", 0, b"")
