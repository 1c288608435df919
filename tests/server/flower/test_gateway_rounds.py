"""Rounds over gateways far away, on real vaults; letters go by hand instead of by Flower."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from servers import unsigned_token

from all_reports import apply_reports
from nextapp.learners import CrowdLearner, CrowdRequests, SeqMFLearner, adam, starting_vectors
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.server.federation import Coordinator
from nextapp.server.flower.gateway_rounds import Answer, CannotAnswer, Driver, Letter, Pace, answer
from nextapp.server.folders import gateway_identity
from nextapp.server.gateway import Gateway
from nextapp.server.vault import Outcome, RoundRules, Submission, Vault
from nextapp.wire import Broadcast, Buckets, History, ModelSettings, ReportRequest

N_APPS, DIM = 9, 3
REQUEST = ReportRequest("harmony", 2.0, 1.0)


def new_server(seed=0):
    vectors = starting_vectors(N_APPS, DIM, 0.1, seed)
    private = mechanism("harmony", epsilon=2.0, clip=1.0, n_apps=N_APPS, d=DIM)
    return SeqMFLearner(vectors, ModelSettings(), adam(0.05), private, request=REQUEST)


def restore(state):
    private = mechanism("harmony", epsilon=2.0, clip=1.0, n_apps=N_APPS, d=DIM)
    return SeqMFLearner.restore(state, adam(0.05), private)


def reports_of(broadcast_bytes, numbers):
    """What phones with these numbers send: each its own launches, bits keyed by phone and round."""
    broadcast = Broadcast.from_bytes(broadcast_bytes)
    private = requested_mechanism(broadcast)
    for number in numbers:
        phone = PhoneCore()
        for when, app in enumerate(np.random.default_rng(number).integers(0, N_APPS, 20)):
            phone.observe(int(app), float(when))
        phone.take(broadcast)
        bits = KeyedBits(5, number, broadcast.round)
        yield private.encode(phone.answer(), bits, broadcast.round)


@dataclass
class Region:
    """A gateway's vault, and the phones that report to it when they see a new broadcast."""

    data: Path
    phones: range
    reached: bool = True

    def __post_init__(self):
        self.data.mkdir()
        gateway_identity(self.data)
        self.vault = Vault(self.data / "vault.sqlite")

    def phones_report(self):
        reports = reports_of(self.vault.broadcast(), self.phones)
        return self.vault.admit(
            [
                Submission(unsigned_token(f"{number} {report.round}"), report.round, report.payload)
                for number, report in zip(self.phones, reports, strict=True)
            ]
        )


class ByHand:
    """Letters arrive at once at the regions that can be reached, and nowhere else."""

    def __init__(self, *regions):
        self.regions = regions
        self.clock = Clock()
        self.box = []
        self.letters = []

    def addresses(self):
        return range(len(self.regions))

    def send(self, address, letter):
        region = self.regions[address]
        self.letters.append((address, letter))
        if region.reached:
            try:
                letter = Letter.of(letter.words())
                got = answer(letter, region.vault, self.clock())
            except CannotAnswer as refusal:
                got = str(refusal)
            if letter.kind == "open" and isinstance(got, Answer) and not got.round.closed:
                region.phones_report()
            self.box.append((address, got))

    def answers(self):
        box, self.box = self.box, []
        return box


class Clock:
    now = 1e9

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def driver(coordinator, post, *, goal, minimum=1, seconds=600.0, grace=0.0, **pace):
    clock, said = Clock(), []
    drives = Driver(
        coordinator,
        RoundRules(goal, minimum, seconds, grace),
        post,
        Pace(**{"poll": 1.0, "patience": 20.0, **pace}),
        say=said.append,
        clock=clock,
        sleep=clock.sleep,
    )
    return drives, said, clock


def alone(n_phones, rounds):
    """One server that collects every report itself."""
    server = new_server()
    for _ in range(rounds):
        apply_reports(server, list(reports_of(server.broadcast.to_bytes(), range(n_phones))))
    return server.broadcast.app_vectors


def test_two_gateways_give_the_app_vectors_of_one_server_to_the_last_bit(tmp_path):
    post = ByHand(Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20)))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, _ = driver(coordinator, post, goal=20, gateways=2)
    for number in range(3):
        closed = drives.run_round()
        assert (closed.round, closed.n_reports, closed.stepped) == (number, 20, True)
    assert np.array_equal(coordinator.learner.broadcast.app_vectors, alone(20, 3))


def new_crowd():
    """Apps by bucket, at an ε that leaves hardly any noise; launches, then transitions."""
    transitions, launches = (
        ReportRequest("walsh", 30.0, 1.0, question=question)
        for question in ("transitions", "launches")
    )
    requests = CrowdRequests(transitions, launches, launches_every=3, most_slots=16)
    return CrowdLearner(requests, Buckets(64, "", np.zeros(0, np.int64)))


def test_two_gateways_give_the_crowd_of_one_server_to_the_last_bit(tmp_path):
    post = ByHand(Region(tmp_path / "a", range(30)), Region(tmp_path / "b", range(30, 80)))
    coordinator = Coordinator.start(new_crowd(), tmp_path / "c")
    drives, _, _ = driver(coordinator, post, goal=80, gateways=2)
    server, asked = new_crowd(), []
    for _ in range(3):
        asked.append(server.broadcast.request.question)
        assert drives.run_round().n_reports == 80
        apply_reports(server, list(reports_of(server.broadcast.to_bytes(), range(80))))
        coordinator = Coordinator.resume(
            tmp_path / "c", lambda state: CrowdLearner.restore(state, new_crowd().requests)
        )
        drives.coordinator = coordinator
    assert asked == ["launches", "transitions", "transitions"]
    assert set(range(N_APPS)) <= set(server.broadcast.buckets.slots.tolist())
    assert server.broadcast.crowd is not None
    told = Broadcast.from_bytes(coordinator.published())
    assert {key.region for key in told.keys} == {
        region.vault.keys.region for region in post.regions
    }
    assert replace(told, history=History(), keys=()).to_bytes() == server.broadcast.to_bytes()


def test_all_gateways_hand_out_the_same_bytes_on_one_chain_whoever_coordinates(tmp_path):
    """Two rounds, then another process goes on from the checkpoint; the chain by hand."""
    regions = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    seen = []

    class Watched(ByHand):
        def send(self, address, letter):
            super().send(address, letter)
            if letter.kind == "open":
                seen.append((address, letter.round.number, regions[address].vault.broadcast()))

    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    for _ in range(2):
        drives, _, _ = driver(coordinator, Watched(*regions), goal=20, gateways=2)
        drives.run_round()
        drives.run_round()
        coordinator = Coordinator.resume(tmp_path / "c", restore)
    bodies = {}
    for address, number, body in seen:
        assert bodies.setdefault(number, body) == body, address
    assert {(address, number) for address, number, _ in seen} == {
        (address, number) for address in (0, 1) for number in range(4)
    }
    digests = [(number, hashlib.sha256(bodies[number]).hexdigest()) for number in range(4)]
    for region in regions:
        assert region.vault.digests(0, 10) == digests
    chain = bytes(32)
    for number in range(1, 4):
        chain = hashlib.sha256(chain + bytes.fromhex(digests[number - 1][1])).digest()
        history = Broadcast.from_bytes(bodies[number]).history
        assert history.digests == tuple(digests[:number])
        assert history.chain == chain.hex()


def test_a_gateway_lost_in_mid_round_costs_its_reports_of_that_round_only(tmp_path):
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    post = ByHand(near, far)
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, said, clock = driver(coordinator, post, goal=20, minimum=5, seconds=60.0)
    lose = far.phones_report

    def report_and_vanish():
        lose()
        far.reached = False

    far.phones_report = report_and_vanish
    began = clock()
    assert drives.run_round().n_reports == 7
    assert clock() - began < 60 + 20 + 2  # the deadline, then the patience with what is lost
    assert any(gateway_identity(far.data) in words and "lost" in words for words in said)
    far.reached, far.phones_report = True, lose
    assert drives.run_round().n_reports == 20  # what was left of round 0 is in no later round


@pytest.mark.parametrize("since", ["the start", "round 1"])
def test_a_region_that_is_gone_for_good_delays_no_round_by_more_than_the_patience(tmp_path, since):
    """Rounds open with the gateways that are there; the other one joins when it is back."""
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")

    class Shrinking(ByHand):
        def addresses(self):
            return [number for number, region in enumerate(self.regions) if region.reached]

    post = Shrinking(near, far)
    drives, said, clock = driver(coordinator, post, goal=20, seconds=60.0, gateways=2)
    far.reached = since == "round 1"
    began = clock()
    if far.reached:
        assert drives.run_round().n_reports == 20
    else:
        assert drives.run_round().n_reports == 7
        assert any("1 of 2" in words for words in said)
        assert clock() - began < 20 + 60 + 2
    far.reached, began = False, clock()
    assert drives.run_round().n_reports == 7
    assert clock() - began < 60 + 2  # its deadline, since the goal is out of reach
    far.reached = True
    assert drives.run_round().n_reports == 20


def test_a_region_that_is_cut_off_asks_no_phone_for_a_report_that_may_not_count(tmp_path):
    """It did so for as long as it lasted, and said that it was ready; the round went on without."""
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    post, poll, patience = ByHand(near, far), 30.0, 120.0
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, clock = driver(
        coordinator, post, goal=100, seconds=3600.0, poll=poll, patience=patience
    )
    post.clock, cut = clock, clock() + 600.0
    gateways = [Gateway(each.vault, clock=clock, one_of_many=True) for each in (near, far)]
    seen = []

    def look(seconds):
        clock.sleep(seconds)
        far.reached = clock() < cut
        for gateway in gateways:
            gateway.refresh()
        seen.append((clock(), *(gateway.is_open for gateway in gateways)))

    drives._sleep = look
    assert drives.run_round().n_reports == 7
    asked = [(when, far) for when, near, far in seen if near]
    assert asked[-1][0] > 1e9 + 3590  # until the deadline
    last = max(when for when, far in asked if far)
    assert cut < last <= cut + poll + 2 * patience
    assert all(far for when, far in asked if when < cut)  # and not only in between
    gateways[0].refresh()
    assert "has closed" in gateways[0].why_not_ready()
    assert "coordinator" in gateways[1].why_not_ready()
    (report,) = reports_of(far.vault.broadcast(), [20])  # drawn before it was cut off
    late = [Submission(unsigned_token("late"), report.round, report.payload)]
    assert far.vault.admit(late) == [Outcome.ACCEPTED]
    drives._sleep = clock.sleep
    far.reached = True
    assert drives.run_round().n_reports == 20
    gateways[1].refresh()
    assert gateways[1]._published.round == 1


def test_a_coordinator_that_starts_again_keeps_the_deadline_of_the_open_round(tmp_path):
    """It was set anew with every start, so that a coordinator in trouble closed no round."""
    region = Region(tmp_path / "a", range(7))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")

    class Stop(Exception):
        pass

    began = Clock.now
    for restart in range(3):
        drives, _, clock = driver(coordinator, ByHand(region), goal=20, seconds=600.0)
        clock.now = began + 150.0 * restart

        def stop_later(seconds, clock=clock, end=began + 150.0 * (restart + 1)):
            clock.now += seconds
            if clock.now > end:
                raise Stop

        drives._sleep = stop_later
        with pytest.raises(Stop):
            drives.run_round()
        coordinator = Coordinator.resume(tmp_path / "c", restore)
    drives, _, clock = driver(coordinator, ByHand(region), goal=20, seconds=600.0)
    clock.now = began + 450.0
    assert drives.run_round().n_reports == 7
    assert began + 600 <= clock.now < began + 610


def test_reports_under_way_are_taken_for_the_grace_at_every_gateway(tmp_path):
    """Both gateways know at once that the round ends, also after a restart of the coordinator."""
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    late, said_at = unsigned_token("late"), []

    class Late(ByHand):
        def send(self, address, letter):
            super().send(address, letter)
            if letter.kind == "count" and letter.round.ends < np.inf and not said_at:
                said_at.append(clock())
                (report,) = reports_of(far.vault.broadcast(), [20])
                found = far.vault.admit([Submission(late, report.round, report.payload)])
                assert found == [Outcome.ACCEPTED]

    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, clock = driver(coordinator, Late(near, far), goal=20, grace=30.0, gateways=2)
    began = clock()
    assert drives.run_round().n_reports == 21
    assert said_at[0] - began < 2
    assert 30 <= clock() - began < 33


def test_a_round_that_falls_below_the_minimum_by_a_loss_changes_nothing(tmp_path):
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    before = coordinator.learner.broadcast.app_vectors

    class UntilClosed(ByHand):
        def send(self, address, letter):
            far.reached = letter.kind != "close"
            super().send(address, letter)

    drives, said, _ = driver(coordinator, UntilClosed(near, far), goal=20, minimum=10)
    closed = drives.run_round()
    assert not closed.stepped
    assert "below the minimum" in said[-1]
    assert np.array_equal(coordinator.learner.broadcast.app_vectors, before)


@pytest.mark.parametrize("sums_seen", [0, 1, 2])
def test_a_coordinator_killed_while_closing_asks_again_and_loses_nothing(tmp_path, sums_seen):
    """It dies after this many gateways have given their sum; the next one resumes the round."""
    regions = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))

    class Killed(Exception):
        pass

    class UntilKilled(ByHand):
        def send(self, address, letter):
            if (
                letter.kind == "close"
                and sum(sent.kind == "close" for _, sent in self.letters) == sums_seen
            ):
                raise Killed
            super().send(address, letter)

        def answers(self):
            got = super().answers()
            if sums_seen == 2 and any(isinstance(a, Answer) and a.reduced for _, a in got):
                raise Killed
            return got

    first = Coordinator.start(new_server(), tmp_path / "c")
    with pytest.raises(Killed):
        driver(first, UntilKilled(*regions), goal=20)[0].run_round()
    second = Coordinator.resume(tmp_path / "c", restore)
    drives, _, _ = driver(second, ByHand(*regions), goal=20)
    assert drives.run_round().n_reports == 20
    drives.run_round()
    assert np.array_equal(second.learner.broadcast.app_vectors, alone(20, 2))


def test_below_the_minimum_at_the_deadline_the_round_stays_open_and_says_so(tmp_path):
    region = Region(tmp_path / "a", range(4))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    post = ByHand(region)
    drives, said, clock = driver(coordinator, post, goal=20, minimum=6, seconds=50.0)
    late = Region(tmp_path / "late", range(4, 8))

    def arrive(seconds):
        clock.now += seconds
        if len(post.regions) == 1 and clock.now > 1e9 + 70:
            post.regions = (region, late)

    drives._sleep = arrive
    assert drives.run_round().n_reports == 8
    assert any("stays open" in words for words in said)
    assert 1e9 + 100 <= clock.now < 1e9 + 110  # at the second deadline
    deadlines = {letter.round.deadline for _, letter in post.letters if letter.kind == "count"}
    assert len(deadlines) == 2


def test_one_gateway_that_two_nodes_speak_for_is_counted_once(tmp_path):
    region = Region(tmp_path / "a", range(10))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, _ = driver(coordinator, ByHand(region, region), goal=10)
    assert drives.run_round().n_reports == 10
    assert np.array_equal(coordinator.learner.broadcast.app_vectors, alone(10, 1))


def test_gateways_that_are_ahead_of_the_coordinator_stop_it_with_a_remedy(tmp_path):
    region = Region(tmp_path / "a", range(3))
    ahead = Coordinator.start(new_server(), tmp_path / "c")
    post = ByHand(region)
    drives, _, _ = driver(ahead, post, goal=3)
    drives.run_round()
    drives.run_round()
    restored = Coordinator.start(new_server(), tmp_path / "old")
    drives, _, _ = driver(restored, post, goal=3)
    with pytest.raises(RuntimeError, match="skip to round 2"):
        drives.run_round()


def test_each_region_has_its_own_keys_and_a_new_one_is_listed_in_the_next_round(tmp_path):
    """A gateway that says nothing keeps those it had; one that comes later gets into the next."""
    near, far = Region(tmp_path / "a", range(7)), Region(tmp_path / "b", range(7, 20))
    post = ByHand(near, far)
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, _ = driver(coordinator, post, goal=20, gateways=2)

    def listed():
        return Broadcast.from_bytes(coordinator.published()).keys

    drives.run_round()
    first = listed()
    assert sorted(key.region for key in first) == sorted(
        gateway_identity(region.data) for region in (near, far)
    )
    near.vault.keys.rotate()
    drives.run_round()
    second = listed()
    assert set(first) < set(second)
    mine = [key for key in second if key.region == near.vault.keys.region]
    assert len(mine) == 2
    assert mine == list(near.vault.keys.listed())  # the newest last
    late = Region(tmp_path / "late", range(20, 23))
    post.regions = (near, far, late)
    drives.run_round()
    assert set(listed()) == {*second, *late.vault.keys.listed()}


def test_a_round_that_no_key_is_listed_for_ends_at_its_deadline(tmp_path):
    """The only gateway has lost its vault: no phone can report, and it would stay open for ever."""
    region = Region(tmp_path / "a", range(3))
    coordinator = Coordinator.start(new_server(), tmp_path / "c")
    drives, _, _ = driver(coordinator, ByHand(region), goal=3)
    drives.run_round()
    region.vault.close()
    for file in region.data.glob("vault.sqlite*"):
        file.unlink()
    region.vault, region.phones = Vault(region.data / "vault.sqlite"), range(0)
    region.vault.keys.for_next_round(1e9)
    assert drives.run_round().n_reports == 0
    newest = region.vault.keys.listed()[-1]
    assert Broadcast.from_bytes(coordinator.published()).keys[-1] == newest


class TestLetters:
    def opened(self, vault, number=0, seed=0):
        rules = RoundRules(5, 1, 60.0)
        server = new_server(seed)
        server.broadcast = Broadcast(
            number, server.broadcast.app_vectors, ModelSettings(), (), REQUEST
        )
        return Letter("open", rules.open_round(number, 1e9), server.broadcast.to_bytes())

    def test_each_letter_can_come_again(self, tmp_path):
        region = Region(tmp_path / "a", range(5))
        letter, name = self.opened(region.vault), gateway_identity(region.data)
        keys = answer(Letter("keys", letter.round), region.vault, 1e9).keys
        assert keys == answer(Letter("keys", letter.round), region.vault, 1e9).keys
        assert [key.region for key in keys] == [name]
        assert answer(letter, region.vault, 1e9) == Answer(name, letter.round, 0, keys=keys)
        region.phones_report()
        five = replace(letter.round, n_reports=5)
        assert answer(letter, region.vault, 1e9) == Answer(name, five, 0, keys=keys)
        counted = answer(Letter("count", letter.round), region.vault, 1e9)
        assert counted == Answer(name, five, 0, keys=keys)
        first = answer(Letter("close", letter.round), region.vault, 1e9)
        second = answer(Letter("close", letter.round), region.vault, 1e9)
        assert first.reduced.n_reports == second.reduced.n_reports == 5
        assert np.array_equal(first.reduced.tally, second.reduced.tally)
        assert first.keys == second.keys == keys
        again = answer(letter, region.vault, 1e9)
        assert again.round.closed
        assert Outcome.ACCEPTED not in region.phones_report()

    def test_another_broadcast_for_the_same_round_is_refused(self, tmp_path):
        region = Region(tmp_path / "a", range(2))
        answer(self.opened(region.vault), region.vault, 1e9)
        with pytest.raises(CannotAnswer, match="another broadcast"):
            answer(self.opened(region.vault, seed=1), region.vault, 1e9)

    def test_a_round_the_gateway_does_not_have_is_refused(self, tmp_path):
        region = Region(tmp_path / "a", range(2))
        with pytest.raises(CannotAnswer, match="no round yet"):
            answer(Letter("count", RoundRules(1, 1, 1.0).open_round(0, 0.0)), region.vault, 1e9)
        answer(self.opened(region.vault, 3), region.vault, 1e9)
        with pytest.raises(CannotAnswer, match="is at round 3"):
            answer(Letter("close", RoundRules(1, 1, 1.0).open_round(2, 0.0)), region.vault, 1e9)

    def test_a_gateway_keeps_its_identity(self, tmp_path):
        assert gateway_identity(tmp_path) == gateway_identity(tmp_path)
        (tmp_path / "b").mkdir()
        assert gateway_identity(tmp_path) != gateway_identity(tmp_path / "b")
