"""A round with a server, and everything that may go wrong in it."""

from __future__ import annotations

import json
import socket
from dataclasses import replace

import numpy as np
import pytest

from nextapp.phone import Client, Limits, Phone, Store
from nextapp.phone.commands import status_lines
from nextapp.phone.core import PhoneCore
from nextapp.phone.ledger import LEAP_DAYS
from nextapp.privacy import requested_mechanism
from nextapp.privacy.tokens import Token
from nextapp.randomness import KeyedBits
from nextapp.wire import Crowd, Report, ReportRequest, pack, unpack
from phone.small_server import FIRST, KEY, SECOND, SECRET, listed, serving

NOON = 1_790_000_000.0
DAY = 86_400.0
ASK = ReportRequest("harmony", 1.0, clip=0.5)


@pytest.fixture
def store(tmp_path):
    """The store of a phone that answers gradients."""
    with Store.create(
        tmp_path / "phone.db", lifetime=10.0, per_day=2.0, hours=0.0, predictor="seqmf"
    ) as store:
        yield store


@pytest.fixture(autouse=True)
def tokens_may_be_spent_at_once(monkeypatch):
    monkeypatch.setattr("nextapp.phone.phone.TOKEN_WAIT", (0.0, 0.0))


@pytest.fixture
def server(make_broadcast):
    with serving(make_broadcast(3)) as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server.url, attempts=2, timeout=60.0, sleep=lambda seconds: None) as client:
        yield client


@pytest.fixture
def phone(store, client):
    phone = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
    for number, app in enumerate(["chat", "mail", "chat", "diary", "maps"] * 5):
        phone.observe(app, NOON - 5000 + 60 * number, zone=0)
    phone.join(client, "welcome")
    return phone


def spent(phone: Phone, when: float = NOON) -> float:
    return phone.store.ledger.spent(when).lifetime


def test_a_round_fetches_learns_charges_and_sends(server, client, phone):
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report, synced.round) == ("new", "accepted", 3)
    assert spent(phone) == 1.0
    (report,) = phone.store.reports()
    assert (report.state, report.round, report.epsilon) == ("accepted", 3, 1.0)
    assert server.arrived == [server.taken[3]]
    again = phone.sync(client)
    assert (again.broadcast, again.report) == ("same", "done")
    assert spent(phone) == 1.0
    assert len(server.arrived) == 1


def test_the_report_is_the_one_a_core_draws_with_the_same_bits_and_coins(server, client, phone):
    phone.sync(client, bits=KeyedBits(seed=1, phone=2, round=3))
    core, made = (
        phone._core,
        requested_mechanism(server.broadcast),
    )  # its gradient: tests/phone/test_core.py
    coins = Token.from_text(dict(server.requests[-1][2])["Authorization"][6:]).coins
    bits = KeyedBits(seed=1, phone=2, round=3)
    expected = made.encode(core.gradient().dense(), bits, 3, coins)
    assert server.taken[3] == expected.to_bytes()


def test_no_app_name_and_no_launch_leaves_the_phone(server, client, phone):
    phone.sync(client)
    sent = json.dumps(server.requests).encode() + b"".join(server.arrived)
    for word in (b"diary", b"chat", b"mail", b"maps"):
        assert word not in sent
    assert len(server.arrived[0]) < 40


def test_an_app_the_server_does_not_know_changes_no_report(server, client, tmp_path, monkeypatch):
    """The same bits, with and without launches of a strange app at the end: the same bytes."""
    drawn = []
    monkeypatch.setattr("nextapp.phone.core.TokenCoins", lambda signature: KeyedBits(seed=6))
    for strange in ([], ["diary"] * 9):
        path = tmp_path / f"{len(strange)}.db"
        with Store.create(path, lifetime=9.0, per_day=9.0, predictor="seqmf") as store:
            phone = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
            for number, app in enumerate(["chat", "mail", "chat", *strange]):
                phone.observe(app, NOON + number, zone=0)
            phone.join(client, "welcome")
            server.taken.clear()
            server.asked.clear()
            phone.sync(client, bits=KeyedBits(seed=5))
            drawn.append(server.taken[3])
    assert drawn[0] == drawn[1]


def test_a_report_that_met_no_answer_is_sent_again_with_the_same_bytes(server, client, phone):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report) == ("new", "later")
    (kept,) = phone.store.reports(state="drawn")
    assert spent(phone) == 1.0
    with Store(phone.store.path) as store:  # the phone was switched off meanwhile
        server.mishap = lambda handler: False
        again = Phone(store, clock=lambda: NOON + DAY)
        assert again.sync(client, now=True).report == "accepted"
        assert spent(phone) == 1.0
    assert set(server.arrived) == {kept.data}


def test_a_lost_acknowledgement_does_not_count_twice(server, client, phone):
    def take_and_hang_up(handler):
        if handler.path == "/v1/report":
            handler.server.taken[3] = handler.body
            handler.connection.shutdown(socket.SHUT_RDWR)
            return True
        return False

    server.mishap = take_and_hang_up
    assert phone.sync(client).report == "later"
    server.mishap = lambda handler: False
    assert phone.sync(client).report == "accepted"
    assert len(set(server.arrived)) == 1
    assert spent(phone) == 1.0


def test_a_round_that_closed_meanwhile_is_over(server, client, phone, make_broadcast):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    phone.sync(client)
    server.mishap = lambda handler: False
    server.publish(make_broadcast(4))
    synced = phone.sync(client)
    assert (synced.round, synced.report) == (4, "accepted")
    assert [(r.round, r.state, r.data) for r in phone.store.reports()] == [
        (3, "closed", None),
        (4, "accepted", None),
    ]
    assert spent(phone) == 2.0
    assert list(server.taken) == [4]


def test_a_round_that_closes_under_the_report(server, client, phone):
    server.round = 4  # the broadcast of round 3 is still in some cache
    assert phone.sync(client).report == "closed"
    assert phone.store.reports(state="drawn") == []
    assert spent(phone) == 1.0


def test_a_round_that_ends_takes_the_report_that_was_drawn_for_it_and_asks_for_no_other(
    server, client, phone
):
    """The server hands out no broadcast then; a phone with a report sent it too late for its
    round, when the next one was open, and had spent its ε in vain."""
    taking = False

    def ends(handler):
        if handler.path == "/v1/report" and taking:
            return False
        return handler.answer(503, {"error": "no_round", "message": "later"}, Retry_After="100")

    server.mishap = lambda handler: handler.path == "/v1/report" and ends(handler)
    assert phone.sync(client, now=True).report == "later"
    server.mishap = ends
    found = phone.sync(client, now=True)
    assert (found.broadcast, found.report) == ("unreachable", "later")
    taking = True
    found = phone.sync(client, now=True)
    assert (found.broadcast, found.report) == ("unreachable", "accepted")
    assert len(set(server.arrived)) == 1
    spent = phone.store.ledger.entries()
    assert phone.sync(client, now=True).report == "untried"
    assert phone.store.ledger.entries() == spent


def test_a_budget_that_is_spent_sends_nothing_until_the_next_day(
    server, client, phone, make_broadcast
):
    for round_ in (3, 4, 5):
        server.publish(make_broadcast(round_))
        synced = phone.sync(client)
    assert (synced.report, synced.again) == ("budget", (NOON // DAY + 1) * DAY)
    assert len(server.arrived) == 2
    assert phone.sync(client, when=NOON + DAY).report == "accepted"
    assert list(server.taken) == [3, 4, 5]


def test_the_budget_for_life_ends_reports_for_good(server, client, phone, make_broadcast):
    phone.store.limit(Limits(per_report=20.0, lifetime=10.0, hours=0.0), loosen=True)
    server.publish(make_broadcast(9, request=replace(ASK, epsilon=10.5)))
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report, synced.again) == ("new", "budget", None)
    assert phone.predict(3)  # the model is of use all the same
    assert server.arrived == []


@pytest.mark.parametrize(
    "request_",
    [
        ReportRequest("identity", 1.0),
        ReportRequest("laplace", 1.0, clip=0.5),
        ReportRequest("qharmony", 1.0),
        ReportRequest("qharmony", 1.0, clip=0.5),
        ReportRequest("nonsense", 1.0),
        ReportRequest("harmony", 1.0),  # without its clip
        ReportRequest("harmony", 1.0, clip=0.5, options={"k": "many"}),
        ReportRequest("harmony", 1.0, clip=0.5, options={"colour": 3}),
        ReportRequest("harmony", 1e-300, clip=0.5),
        ReportRequest("harmony", 1.0, clip=1e-300),
        ReportRequest("harmony", 1.0, clip=1e300),
        ReportRequest("walsh", 1.0, clip=0.5, options={"b": 12}),
        ReportRequest("walsh", 1.0, clip=0.5, options={"b": 9}),
        ReportRequest("walsh", 1.0, clip=0.5, options={"L": 1 << 30}),
        ReportRequest("walsh", 1.0),  # without its clip
    ],
    ids=str,
)
def test_a_request_that_is_unsafe_or_nonsense_gets_no_report_and_costs_nothing(
    server, client, phone, make_broadcast, request_
):
    server.publish(make_broadcast(4, request=request_))
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report) == ("new", "unsafe")
    assert server.arrived == []
    assert spent(phone) == 0.0


def test_a_broadcast_without_a_request_gets_no_report(server, client, phone, make_broadcast):
    server.publish(make_broadcast(4, request=None))
    assert phone.sync(client).report == "none"
    assert spent(phone) == 0.0


def test_a_broadcast_older_than_the_one_held_is_left_alone(server, client, phone, make_broadcast):
    phone.sync(client)
    server.publish(make_broadcast(2))
    before = phone.predict(5)
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report, synced.round) == ("forked", "untried", 3)
    assert phone.predict(5) == before
    assert spent(phone) == 1.0


def test_a_phone_that_enrols_again_follows_a_server_that_was_set_back(
    server, client, phone, make_broadcast
):
    phone.sync(client)
    server.publish(make_broadcast(2))
    phone.join(client, "welcome")
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report, synced.round) == ("new", "accepted", 2)
    server.history = server.broadcast.history.after(2, server.data())
    server.publish(make_broadcast(3))
    assert phone.sync(client).report == "done"  # round 3 had its report
    assert spent(phone) == 2.0


def test_the_same_round_with_other_vectors_is_a_fork_and_not_taken(
    server, client, phone, make_broadcast
):
    phone.sync(client)
    server.publish(make_broadcast(3, d=7))
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report) == ("forked", "untried")
    assert spent(phone) == 1.0


def damaged(broadcast, **tensors) -> bytes:
    """A broadcast that is whole by its checksum, with other numbers in it."""
    found, words = unpack(broadcast.to_bytes())
    return pack({**found, **tensors}, words)


def test_a_broadcast_that_cannot_be_used_leaves_the_one_in_hand(
    server, client, phone, make_broadcast
):
    phone.sync(client)
    before = phone.predict(5), phone.store.broadcast()
    good = make_broadcast(4)
    whole = good.to_bytes()
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    for data, outcome in [
        (b"", "corrupt"),
        (b"<html>the cafe's login page</html>", "corrupt"),
        (whole[:-1], "corrupt"),
        (bytes(flipped), "corrupt"),
        (make_broadcast(4, apps=("chat", "chat")).to_bytes(), "unusable"),
        (damaged(good, app_vectors=np.full((6, 4), np.inf)), "corrupt"),
        (damaged(good, app_vectors=np.full((6, 4), 1e200)), "unusable"),
    ]:
        server.publish(data)
        synced = phone.sync(client)
        assert (synced.broadcast, synced.report) == (outcome, "untried"), data[:40]
        assert (phone.predict(5), phone.store.broadcast()) == before
    server.publish(good)
    assert phone.sync(client).round == 4


def test_a_huge_broadcast_is_not_read(server, phone, make_broadcast, monkeypatch):
    monkeypatch.setattr("nextapp.phone.client.MOST_BYTES", 10_000)
    with Client(server.url) as client:
        assert phone.sync(client).broadcast == "new"
        server.publish(make_broadcast(4, d=500))
        synced = phone.sync(client)
        assert (synced.broadcast, synced.round) == ("unusable", 3)


def test_a_server_that_is_down_changes_nothing(server, client, phone):
    phone.sync(client)
    server.mishap = lambda handler: handler.answer(503, Retry_After="7200")
    synced = phone.sync(client)
    assert (synced.broadcast, synced.report, synced.again) == (
        "unreachable",
        "untried",
        NOON + 7200,
    )
    assert phone.predict(5)


def test_an_unknown_secret_draws_nothing_until_the_phone_is_enrolled_again(server, client, phone):
    phone.store.set(secret="main." + "lost" * 10)
    assert phone.sync(client).report == "unenrolled"
    assert phone.store.reports() == []
    assert spent(phone) == 0.0
    phone.store.set(secret=SECRET)
    assert phone.sync(client).report == "accepted"
    assert spent(phone) == 1.0


def test_a_report_that_waits_is_given_up_when_the_phone_enrols_again(server, client, phone):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    phone.sync(client)
    server.mishap = lambda handler: False
    phone.join(client, "welcome")
    assert [report.state for report in phone.store.reports()] == ["withdrawn"]
    assert phone.sync(client).report == "done"
    assert spent(phone) == 1.0


def test_a_report_the_server_will_never_take_is_not_sent_again(server, client, phone):
    server.taken[3] = b"what a copy of this phone sent"
    synced = phone.sync(client)
    assert synced.report == "refused"
    assert "already_spent" in synced.message
    assert phone.sync(client).report == "done"
    assert len(server.arrived) == 1


def test_a_phone_back_from_the_drawer_reports_when_two_clocks_agree(
    server, client, phone, make_broadcast
):
    """The ledger does not believe a leap of more than a month from one clock alone."""
    phone.sync(client)
    later = NOON + (LEAP_DAYS + 5) * DAY
    server.publish(make_broadcast(4))
    synced = phone.sync(client, when=later)  # the server's Date is that of this machine
    assert (synced.broadcast, synced.report) == ("new", "clock")
    assert spent(phone, later) == 1.0
    true_current = client.current

    def current(held):
        found = true_current(held)
        client.server_time = later + 60
        return found

    client.current = current
    assert phone.sync(client, when=later).report == "accepted"


def test_a_person_may_vouch_for_the_clock(server, client, phone, make_broadcast):
    phone.sync(client)
    later = NOON + 400 * DAY
    server.publish(make_broadcast(4))
    assert phone.sync(client, when=later).report == "clock"
    assert phone.sync(client, when=later, trust_clock=True).report == "accepted"


def test_a_spent_budget_is_known_before_anything_is_drawn(
    server, client, phone, make_broadcast, monkeypatch
):
    for round_ in (3, 4):
        server.publish(make_broadcast(round_))
        assert phone.sync(client).report == "accepted"  # 2 a day

    def draw(*_):
        raise AssertionError("a report was drawn that no budget allows")

    monkeypatch.setattr(PhoneCore, "_solve", draw)
    monkeypatch.setattr(PhoneCore, "draw_report", draw)
    server.publish(make_broadcast(5))
    assert phone.sync(client).report == "budget"
    phone.store.limit(replace(phone.store.limits, hours=20.0, per_day=9.0), loosen=True)
    assert phone.sync(client).report == "limits"  # nor before the hours are over
    assert phone.sync(client, when=NOON + 400 * DAY).report == "clock"


def test_a_phone_that_predicts_by_habits_solves_no_user_vector(
    server, client, tmp_path, make_broadcast, monkeypatch
):
    def solve(self):
        raise AssertionError("habits need no user vector")

    monkeypatch.setattr(PhoneCore, "_solve", solve)
    ask = ReportRequest("walsh", 0.5, clip=1.0, question="transitions")
    server.publish(make_broadcast(3, request=ask, d=4))
    with Store.create(tmp_path / "habits.db") as store:
        phone = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
        for number, app in enumerate(["chat", "mail", "chat", "maps"] * 5):
            phone.observe(app, NOON - 5000 + 60 * number, zone=0)
        phone.join(client, "welcome")
        assert phone.sync(client).report == "accepted"
        assert len(phone.predict(3, NOON)) == 3
        assert phone.export()["user_vector"] is None


def test_a_clock_set_back_gives_no_second_budget(server, client, phone, make_broadcast):
    for round_, when in ((3, NOON), (4, NOON - 3 * DAY), (5, NOON - 5 * DAY)):
        server.publish(make_broadcast(round_))
        synced = phone.sync(client, when=when, trust_clock=round_ > 3, now=True)
    assert synced.report == "budget"  # 2 a day, whatever the day is called


def test_a_clock_set_back_does_not_shorten_the_hours_between_reports(
    server, client, phone, make_broadcast
):
    phone.store.limit(replace(phone.store.limits, hours=20.0))
    assert phone.sync(client).report == "accepted"
    for number in range(1, 6):
        server.publish(make_broadcast(3 + number))
        synced = phone.sync(client, when=NOON - number, now=True)
        assert (synced.report, synced.again) == ("limits", NOON + 20 * 3600)
    assert phone.sync(client, when=NOON + 21 * 3600).report == "accepted"


def test_a_person_who_vouches_for_the_clock_lifts_no_limit(server, client, phone, make_broadcast):
    """Not even where the clock was a year ahead: then the hours are counted from now."""
    phone.store.limit(replace(phone.store.limits, hours=20.0))
    year = NOON + 365 * DAY
    assert phone.sync(client, when=year).report == "accepted"
    server.publish(make_broadcast(4))
    for later in (year + 60, NOON, NOON + 3600):
        synced = phone.sync(client, when=later, trust_clock=True, now=True)
        assert synced.report == "limits"
    assert synced.again == NOON + 20 * 3600
    assert phone.sync(client, when=NOON + 21 * 3600).report == "accepted"
    assert spent(phone) == 2.0


def test_two_processes_do_not_share_the_hours_between_two_reports(
    server, client, phone, make_broadcast
):
    """The server shows each of them another round, at the same moment."""
    phone.store.limit(replace(phone.store.limits, hours=20.0))
    with Store(phone.store.path) as store:
        other = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
        assert phone.sync(client).report == "accepted"
        server.publish(make_broadcast(4))
        assert other.sync(client).report == "limits"


def test_a_report_that_is_withdrawn_during_the_pause_is_not_sent(server, client, store):
    def sleep(seconds: float) -> None:
        with Store(store.path) as same:
            Phone(same, clock=lambda: NOON).forget()

    phone = Phone(store, clock=lambda: NOON, sleep=sleep)
    phone.observe("chat", NOON - 60, zone=0)
    phone.join(client, "welcome")
    assert phone.sync(client).report == "done"
    assert server.arrived == []
    assert [report.state for report in store.reports()] == ["withdrawn"]


def test_two_processes_that_sync_at_once_draw_one_report(server, client, phone, monkeypatch):
    """The other one draws between this one's look and its charge."""
    with Store(phone.store.path) as other_store, Client(server.url) as other_client:
        other = Phone(other_store, clock=lambda: NOON, sleep=lambda seconds: None)
        true_charge = phone.store.charge_report

        def charge(*arguments, **options):
            monkeypatch.undo()
            monkeypatch.setattr("nextapp.phone.phone.TOKEN_WAIT", (0.0, 0.0))
            assert other.sync(other_client).report == "accepted"
            return true_charge(*arguments, **options)

        monkeypatch.setattr(phone.store, "charge_report", charge)
        assert phone.sync(client).report == "done"
    assert len(server.arrived) == 1
    assert spent(phone) == 1.0


def test_going_over_to_another_server_withdraws_what_the_first_did_not_get(
    server, client, phone, make_broadcast
):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    phone.sync(client)
    with serving(make_broadcast(1)) as second, Client(second.url) as other:
        with pytest.raises(ValueError, match="not joined"):
            phone.sync(other)
        phone.join(other, "welcome")
        synced = phone.sync(other)
        assert (synced.broadcast, synced.report, synced.round) == ("new", "accepted", 1)
    assert [report.state for report in phone.store.reports()] == ["withdrawn", "accepted"]


def test_forgetting_withdraws_a_report_that_is_waiting(server, client, phone):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    phone.sync(client)
    phone.forget()
    server.mishap = lambda handler: False
    server.arrived.clear()
    assert phone.sync(client).report == "done"
    assert server.arrived == []
    assert spent(phone) == 1.0  # it may have been seen


def test_a_full_disk_during_a_sync_raises_and_the_old_model_stays(
    server, client, phone, make_broadcast
):
    phone.sync(client)
    before = phone.predict(5)
    pages = phone.store._connection.execute("PRAGMA page_count").fetchone()[0]
    phone.store._connection.execute(f"PRAGMA max_page_count = {pages}")
    server.publish(make_broadcast(4, apps=[f"app {number}" for number in range(3000)]))
    with pytest.raises(RuntimeError, match="make room"):
        phone.sync(client)
    assert phone.round == 3
    assert phone.predict(5) == before


def test_status_tells_what_left_and_what_it_cost(server, client, phone):
    phone.sync(client)
    said = "\n".join(status_lines(phone, NOON))
    for words in ("25 launches of 4 apps", "which knows 3 of the 4 apps", "9 is left"):
        assert words in said
    assert "the server has it" in said
    (report,) = phone.store.reports()
    assert (report.round, report.mechanism, report.epsilon) == (3, "harmony", 1.0)
    assert (report.state, report.n_bytes) == ("accepted", len(server.arrived[0]))


def test_a_crowd_comes_with_the_broadcast(server, client, phone, make_broadcast):
    crowd = Crowd(np.full(6, 1 / 6), np.zeros(7, np.int64), np.zeros(0, np.int64), np.zeros(0))
    server.publish(make_broadcast(4, crowd=crowd))
    assert phone.sync(client).broadcast == "new"
    assert len(phone.predict(4)) == 4


def test_reports_are_of_the_round_and_mechanism_asked_for(server, client, phone):
    phone.sync(client)
    report = Report.from_bytes(server.taken[3])
    assert (report.round, report.mechanism) == (3, "harmony")


# --- tokens --------------------------------------------------------------------------------------


def paths(server) -> list[str]:
    return [path for _, path, _ in server.requests if path != "/v1/digest"]


def tokens_sent(server) -> set[str]:
    """Of all reports that arrived."""
    return {
        headers["Authorization"] for _, path, headers in server.requests if path == "/v1/report"
    }


def test_a_visit_asks_for_tokens_or_sends_a_report_hours_later(
    server, client, phone, make_broadcast, monkeypatch
):
    monkeypatch.setattr("nextapp.phone.phone.TOKEN_WAIT", (4 * 3600.0, 28 * 3600.0))
    server.publish(make_broadcast(4, keys=(listed(tokens=2),)))
    server.requests.clear()
    synced = phone.sync(client)
    assert synced.report == "waiting"
    assert NOON + 4 * 3600 <= synced.again <= NOON + 28 * 3600
    assert paths(server) == ["/v1/broadcast", "/v1/tokens"]
    assert phone.sync(client, when=synced.again - 1).report == "waiting"
    assert spent(phone) == 0.0
    assert phone.sync(client, when=synced.again).report == "accepted"
    assert paths(server)[2:] == ["/v1/report"]
    server.publish(make_broadcast(5, keys=(KEY,)))  # there is a token left: no asking
    assert phone.sync(client, when=synced.again + DAY).report == "accepted"
    assert "/v1/tokens" not in paths(server)[2:]
    assert len(tokens_sent(server)) == 2


def test_the_time_between_token_and_report_is_drawn_anew(server, client, tmp_path, monkeypatch):
    monkeypatch.setattr("nextapp.phone.phone.TOKEN_WAIT", (4 * 3600.0, 28 * 3600.0))
    waits = set()
    for number in range(4):
        with Store.create(tmp_path / f"{number}.db", predictor="seqmf") as store:
            other = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
            other.join(client, "welcome")
            server.asked.clear()
            waits.add(other.sync(client).again)
    assert len(waits) == 4
    assert max(waits) - min(waits) > 60.0


def test_who_asks_and_what_is_sent_share_nothing(server, client, phone, make_broadcast):
    """No string of the request for tokens is in that of the report, nor the other way round."""
    phone.sync(client)
    (asked,) = server.asked
    (sent,) = tokens_sent(server)
    data = Token.from_text(sent[6:])
    for blinded in asked:
        assert blinded not in sent
    assert SECRET not in sent
    secrets_ = [headers for _, path, headers in server.requests if path == "/v1/tokens"]
    assert data.text not in str(secrets_)


def test_a_lost_answer_gives_the_same_tokens_and_no_second_ones(server, client, phone):
    def lose(handler):
        if handler.path != "/v1/tokens":
            return False
        handler.server.asked.append(json.loads(handler.body)["blinded"])
        handler.connection.shutdown(socket.SHUT_RDWR)
        return True

    server.mishap = lose
    assert phone.sync(client).report == "later"
    with Store(phone.store.path) as store:  # the phone was switched off meanwhile
        server.mishap = lambda handler: False
        again = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
        assert again.sync(client).report == "accepted"
    assert len(server.asked) == 3
    assert server.asked[0] == server.asked[1] == server.asked[2]


def test_tokens_that_are_spent_are_not_asked_for_again_before_the_next_key(
    server, client, phone, make_broadcast
):
    server.publish(make_broadcast(4, keys=(listed(tokens=1),)))
    assert phone.sync(client).report == "accepted"
    server.publish(make_broadcast(5, keys=(listed(tokens=1),)))
    synced = phone.sync(client)
    assert synced.report == "tokens"
    assert len(server.asked) == 1
    assert spent(phone) == 1.0
    server.asked.clear()
    server.key = SECOND
    newer = listed(SECOND, tokens=1)
    server.publish(make_broadcast(6, keys=(listed(tokens=1), newer)))
    phone.sync(client)
    assert [token.key for token, _ in phone.store.unspent([newer.id])] == []  # it went out
    assert phone.store.reports()[-1].round == 6


def test_only_keys_of_the_phones_own_region_count(server, client, phone, make_broadcast):
    server.publish(make_broadcast(4, keys=(listed(SECOND, region="other"),)))
    assert phone.sync(client).report == "tokens"
    server.publish(make_broadcast(5, keys=()))
    assert phone.sync(client).report == "tokens"
    assert server.asked == []
    assert spent(phone) == 0.0


def test_a_server_that_signs_by_a_key_made_for_one_phone_is_found_out(
    server, client, phone, make_broadcast
):
    server.key = SECOND
    synced = phone.sync(client)
    assert synced.report == "later"
    assert "signs by another key" in synced.message
    assert phone.store.unspent([KEY.id]) == []
    assert spent(phone) == 0.0
    server.key = FIRST
    assert phone.sync(client).report == "accepted"


def test_a_key_made_for_one_phone_is_a_fork(server, client, phone, make_broadcast):
    """It is part of the broadcast, so of its digest."""
    phone.sync(client)
    server.publish(make_broadcast(3, keys=(listed(SECOND),)))
    assert phone.sync(client).broadcast == "forked"


@pytest.mark.parametrize("answer", [503, 400, 401, 409, 410])
def test_a_token_leaves_with_one_body_only(server, client, phone, make_broadcast, answer):
    """Also after a refusal, no answer, a new round, and from a copy of the file."""
    server.mishap = lambda handler: (
        handler.path == "/v1/report" and handler.answer(answer, {"error": "x", "message": "no"})
    )
    for round_ in (3, 4, 5):
        server.publish(make_broadcast(round_))
        phone.sync(client, trust_clock=True)
        phone.sync(client, trust_clock=True)
    bodies: dict[str, set[bytes]] = {}
    sent = [headers for _, path, headers in server.requests if path == "/v1/report"]
    for headers, body in zip(sent, server.arrived, strict=True):
        bodies.setdefault(headers["Authorization"], set()).add(body)
    assert len(bodies) >= 2
    assert all(len(each) == 1 for each in bodies.values())


def test_an_old_copy_of_the_file_spends_none_of_its_tokens_again(
    server, client, phone, make_broadcast, tmp_path
):
    """Neither those it had, nor those it was about to ask for."""
    lost = lambda handler: handler.path == "/v1/tokens" and handler.answer(503)  # noqa: E731
    for name, mishap in (("with tokens", None), ("with blindings", lost)):
        server.taken.clear()
        path = tmp_path / f"{name}.db"
        with Store.create(path, lifetime=9.0, per_day=9.0, hours=0.0, predictor="seqmf") as store:
            other = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
            other.join(client, "welcome")
            server.publish(make_broadcast(10))
            server.mishap = mishap or (lambda handler: handler.path == "/v1/report")
            if mishap is None:
                server.mishap = lambda handler: False
                other._ask_tokens(client, SECRET, KEY, NOON)
            else:
                other.sync(client)
        old = path.read_bytes()
        server.mishap = lambda handler: False
        with Store(path) as store:
            later = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
            assert later.sync(client).report == "accepted"
        path.write_bytes(old)
        for log in tmp_path.glob(f"{name}.db-*"):
            log.unlink()
        server.publish(make_broadcast(11))
        n_before = len(server.arrived)
        with Store(path) as store:
            restored = Phone(store, clock=lambda: NOON, sleep=lambda seconds: None)
            assert restored.sync(client).report == "tokens"
        assert len(server.arrived) == n_before
        server.round, server.history = -1, type(server.history)()


def test_a_copy_whose_tokens_the_server_has_issued_to_another_is_told_once(server, client, phone):
    server.asked.append(["what a copy of this phone asked for"])
    assert phone.sync(client).report == "tokens"
    assert phone.sync(client).report == "tokens"
    assert len(server.asked) == 2  # it does not ask again
    assert spent(phone) == 0.0


def test_a_phone_whose_budget_is_spent_asks_for_no_tokens(server, client, phone, make_broadcast):
    phone.store.limit(replace(phone.store.limits, lifetime=0.5, per_day=0.5))
    assert phone.sync(client).report == "budget"
    assert server.asked == []


def test_neither_secret_nor_tokens_are_exported(server, client, phone):
    server.mishap = lambda handler: handler.path == "/v1/report" and handler.answer(503)
    phone.sync(client)
    text = json.dumps(phone.export())
    assert "t" * 43 not in text
    for token, _ in phone.store.unspent([KEY.id]):
        assert token.text not in text
    (drawn,) = phone.store.reports(state="drawn")
    assert drawn.token not in text
