from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from nextapp.privacy import requested_mechanism
from nextapp.wire import (
    Broadcast,
    Buckets,
    Crowd,
    ModelSettings,
    Report,
    ReportRequest,
    TokenKey,
    WireError,
    pack,
    unpack,
)


@pytest.fixture
def broadcast(rng) -> Broadcast:
    settings = ModelSettings(lam=0.5, alpha=0.1, gamma=0.3, reading="authors", inference="window:4")
    return Broadcast(7, rng.normal(size=(5, 3)), settings, ("Clock", "Mail", "Maps", "Fotos ü", ""))


def keys_of(*regions: str) -> tuple[TokenKey, ...]:
    return tuple(TokenKey(each, f"{(1 << 2047) + 2 * i + 1:x}") for i, each in enumerate(regions))


@pytest.mark.parametrize("regions", [("eu",) * 3, [f"r{i}" for i in range(65)]])
def test_a_server_cannot_give_every_phone_a_key_or_a_region_of_its_own(broadcast, regions):
    """A report tells which key its token is of, and all phones may see the same list of keys."""
    two_each = keys_of(*[f"r{i // 2}" for i in range(64)])
    read = Broadcast.from_bytes(replace(broadcast, keys=two_each).to_bytes())
    assert read.keys == two_each
    with pytest.raises(ValueError, match="at most"):
        replace(broadcast, keys=keys_of(*regions))


def test_a_broadcast_survives_its_bytes(broadcast):
    back = Broadcast.from_bytes(broadcast.to_bytes())
    assert (back.round, back.settings, back.apps) == (7, broadcast.settings, broadcast.apps)
    assert np.array_equal(back.app_vectors, broadcast.app_vectors)
    assert np.array_equal(back.gram, broadcast.app_vectors.T @ broadcast.app_vectors)


@pytest.fixture
def crowd() -> Crowd:
    return Crowd(
        popularity=np.array([0.5, 0.2, 0.1, 0.1, 0.1]),
        starts=np.array([0, 2, 2, 3, 3, 3]),
        following=np.array([1, 3, 0]),
        share=np.array([0.6, 0.3, 1.0]),
    )


def test_request_and_crowd_travel_along(broadcast, crowd):
    request = ReportRequest("harmony", 4.5, 1.0, {"k": 2})
    told = replace(broadcast, request=request, crowd=crowd)
    back = Broadcast.from_bytes(told.to_bytes())
    assert back.request == request
    for name in ("popularity", "starts", "following", "share"):
        assert np.array_equal(getattr(back.crowd, name), getattr(crowd.rounded(), name))
    asked = requested_mechanism(back)
    assert (asked.name, asked.epsilon, asked.clip, asked.k) == ("harmony", 4.5, 1.0, 2)
    assert (asked.n_apps, asked.d) == (5, 3)


def test_a_broadcast_that_asks_for_nonsense_is_refused(broadcast):
    with pytest.raises(WireError, match="asks for no reports"):
        requested_mechanism(broadcast)
    with pytest.raises(WireError, match="is not possible: unknown mechanism 'harmoni'"):
        requested_mechanism(replace(broadcast, request=ReportRequest("harmoni", 1.0)))
    with pytest.raises(ValueError, match="epsilon must be"):
        ReportRequest("harmony", 0.0)
    with pytest.raises(ValueError, match="crowd of 5 apps does not fit 2 rows"):
        Broadcast(0, np.zeros((2, 3)), ModelSettings(), crowd=_even(5))


def _even(n):
    return Crowd(np.full(n, 1 / n), np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros(0))


def test_a_question_needs_what_it_is_about(broadcast):
    def asking(question, **more):
        request = ReportRequest("walsh", 1.0, 0.5, question=question)
        return requested_mechanism(replace(broadcast, request=request, **more))

    assert (asking("transitions").n_apps, asking("transitions").d) == (5, 6)
    with pytest.raises(WireError, match="has no buckets"):
        asking("launches")
    with pytest.raises(WireError, match="no app vectors"):
        asking("gradient", app_vectors=np.zeros((5, 0)))
    with pytest.raises(ValueError, match="question must be one of"):
        ReportRequest("walsh", 1.0, 0.5, question="names")
    buckets = Buckets(64, "", np.array([3, 9]))
    hashed = {"apps": (), "app_vectors": np.zeros((2, 0)), "buckets": buckets}
    assert (asking("launches", **hashed).n_apps, asking("launches", **hashed).d) == (64, 1)
    assert asking("transitions", **hashed).D == 6
    empty = {**hashed, "app_vectors": np.zeros((0, 0)), "buckets": Buckets(64, "", _longs())}
    with pytest.raises(WireError, match="catalogue is empty"):
        asking("transitions", **empty)


def test_a_catalogue_of_buckets_travels(broadcast):
    sent = replace(
        broadcast,
        apps=(),
        app_vectors=np.zeros((2, 0)),
        buckets=Buckets(1 << 16, "salt ü", np.array([65535, 7])),
    )
    back = Broadcast.from_bytes(sent.to_bytes())
    assert (back.n_apps, back.dim, back.apps) == (2, 0, ())
    assert (back.buckets.n_buckets, back.buckets.salt) == (1 << 16, "salt ü")
    assert back.buckets.slots.tolist() == [65535, 7]
    # SHA-256 by hand: 8 bytes, lowest first, mod 2^16 are the first two
    digest = hashlib.sha256("nextapp bucketsalt ü\0org.maps".encode()).digest()
    assert back.buckets.bucket("org.maps") == digest[0] + 256 * digest[1]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"n_buckets": 100}, "power of two"),
        ({"n_buckets": 1 << 21}, "power of two"),
        ({"n_buckets": 64.0}, "power of two"),
        ({"salt": "x" * 65}, "at most 64 characters"),
        ({"slots": np.array([3, 3])}, "no bucket twice"),
        ({"slots": np.array([64])}, "buckets from 0 to 63"),
        ({"slots": np.array([0.5])}, "one row of at most 64"),
    ],
)
def test_buckets_that_are_none_are_refused(bad, says):
    with pytest.raises(ValueError, match=says):
        Buckets(**{"n_buckets": 64, "salt": "", "slots": np.array([1]), **bad})


def test_names_and_buckets_are_not_both_a_catalogue(broadcast):
    with pytest.raises(ValueError, match="names or buckets, one per row"):
        replace(broadcast, buckets=Buckets(64, "", np.arange(5)))
    with pytest.raises(ValueError, match="names or buckets, one per row"):
        replace(broadcast, apps=(), buckets=Buckets(64, "", np.arange(4)))


def _longs():
    return np.zeros(0, np.int64)


def test_rounding_a_crowd_is_small_and_never_tells_more(rng):
    n, k = 300, 280
    share = rng.dirichlet(np.full(k, 0.1), n) * rng.uniform(0.2, 1.0, (n, 1))
    following = np.sort(np.array([rng.permutation(n)[:k] for _ in range(n)]), axis=1)
    exact = Crowd(
        rng.dirichlet(np.full(n, 0.3)), np.arange(n + 1) * k, following.ravel(), share.ravel()
    )
    rounded = exact.rounded()
    rows = np.repeat(np.arange(n), np.diff(rounded.starts))
    cells = (np.arange(n).repeat(k) * n + exact.following).tolist()
    true = dict(zip(cells, exact.share, strict=True))
    told = np.array([true[cell] for cell in (rows * n + rounded.following).tolist()])
    assert np.all(rounded.share <= told * (1 + 1e-6))
    assert np.all(rounded.share >= told * 2 ** (-1 / 24) * (1 - 1e-6))
    assert len(rounded.share) == np.sum(exact.share >= 2 ** (-255 / 24))
    likely = exact.popularity > 1e-6
    np.testing.assert_allclose(
        rounded.popularity[likely], exact.popularity[likely], rtol=2 ** (1 / 2048) - 1
    )
    again = rounded.rounded()
    for name in ("popularity", "starts", "following", "share"):
        assert np.array_equal(getattr(again, name), getattr(rounded, name))


def test_a_crowd_shows_itself_in_a_notebook(crowd):
    page = crowd._repr_html_()
    assert page.startswith("<p>5 apps, 3 transitions</p>")
    assert page.count("<tr>") == 6  # the heading and five apps
    assert "1 (0.600), 3 (0.300)" in page  # what follows app 0, the likeliest first


def test_a_row_of_the_crowd_by_hand(crowd):
    apps = np.arange(-1, 5)
    assert crowd.shares(apps, 0)[0] == pytest.approx([0, 0, 0.6, 0, 0.3, 0])
    for last in (1, None, 17):
        assert not crowd.shares(apps, last)[0].any()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"popularity": np.array([0.5, 0.2, 0.1, 0.1, 0.2])}, "must be a distribution"),
        ({"starts": np.array([0, 2, 1, 3, 3, 3])}, "starts must be"),
        ({"following": np.array([1, 5, 0])}, "apps from 0 to 4"),
        ({"share": np.array([0.6, 0.5, 1.0])}, "sum to 1 or less"),
        ({"share": np.array([0.6, -0.1, 1.0])}, "must be >= 0"),
    ],
)
def test_a_crowd_that_is_none_is_refused(crowd, bad, says):
    with pytest.raises(ValueError, match=says):
        replace(crowd, **bad)


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
