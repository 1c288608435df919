"""A server of the crowd: started without any setting, and what stays when it goes on elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from servers import SETTINGS

from nextapp.cli.serve import what_phones_are_asked
from nextapp.crowd import entry_variance
from nextapp.learners import CrowdLearner
from nextapp.phone.core import PhoneCore
from nextapp.phone.limits import Limits, read_broadcast
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.server import administration
from nextapp.server.coordinator import Closed
from nextapp.server.settings import FederationSettings, settings_of
from nextapp.server.single_process import open_federation, settings_for
from nextapp.server.vault import Outcome, Submission
from nextapp.wire import Broadcast

SMALL = {"slots": 8, "goal": 4, "minimum": 2, "deadline": 60.0}
NAMES = [f"org.example.app{i}" for i in range(6)]


def handed_out(federation) -> Broadcast:
    return read_broadcast(federation.vault.published().broadcast)


def answer(broadcast: Broadcast, device: int) -> bytes:
    """The payload of a phone that goes through the apps from its own number on."""
    core = PhoneCore()
    for step in range(12):
        core.observe((device + step) % len(NAMES), 60.0 * step)
    slots = {} if broadcast.buckets is None else {
        bucket: row for row, bucket in enumerate(broadcast.buckets.slots.tolist())
    }  # fmt: skip
    buckets = broadcast.buckets
    core.take(
        broadcast,
        (lambda app: slots.get(buckets.bucket(NAMES[app]), -1)) if buckets else None,
        buckets=(lambda app: buckets.bucket(NAMES[app])) if buckets else None,
    )
    made = requested_mechanism(broadcast)
    bits = KeyedBits(3, device, broadcast.round, "report")
    return made.encode(core.answer(made), bits, broadcast.round).payload


def reported(federation, devices, start=0):
    broadcast = handed_out(federation)
    some = [
        Submission((start + d).to_bytes(32, "big"), broadcast.round, answer(broadcast, d))
        for d in range(devices)
    ]
    assert set(federation.vault.admit(some)) == {Outcome.ACCEPTED}


def test_a_folder_is_all_that_a_server_needs(tmp_path):
    federation, made = open_federation(tmp_path / "f", {}, None, now=0.0)
    broadcast = handed_out(federation)
    assert (made.learn, made.epsilon) == ("crowd", 1.0)
    assert (broadcast.n_apps, broadcast.dim, broadcast.apps) == (0, 0, ())
    assert broadcast.request.question == "launches"
    assert broadcast.buckets.n_buckets == 1 << 16
    Limits().mechanism_for(broadcast)  # what a phone as it ships allows
    federation.vault.close()
    again, _ = open_federation(tmp_path / "f", {}, None, now=0.0)
    assert handed_out(again).to_bytes() == broadcast.to_bytes()
    again.vault.close()


def test_fewer_apps_are_asked_about_where_a_list_does_not_name_them_all(tmp_path):
    """Unless the operator says how many; a server that goes on keeps what it had."""
    names = tuple(f"app{number}" for number in range(1024))
    for folder, given, apps, slots in (
        ("none", {}, None, 400),
        ("long", {}, names, 400),
        ("short", {}, names[:1023], 1023),
        ("said", {"slots": 700}, None, 700),
    ):
        assert settings_for(tmp_path / folder, given, apps, None).slots == slots
    federation, made = open_federation(tmp_path / "old", {"slots": 700}, None, now=0.0)
    federation.vault.close()
    assert settings_for(tmp_path / "new", {}, None, tmp_path / "old").slots == made.slots == 700
    assert settings_for(tmp_path / "old", {}, None, None).slots == 700


def test_it_says_what_a_phone_pays_for_life():
    said = what_phones_are_asked(settings_of({}), Limits())
    assert "at most 10 reports, one in 20 hours, ε = 10 in all" in said
    said = what_phones_are_asked(settings_of({"epsilon": 0.3}), Limits())
    assert "at most 33 reports" in said
    said = what_phones_are_asked(settings_of({"epsilon": 4.0}), Limits())
    assert "phones as they ship refuse that: their limit is ε = 1 a report" in said
    paper = settings_of({"learn": "seqmf", "mechanism": "harmony", "epsilon": 1.0, "clip": 1.0})
    assert "asked for a gradient" in what_phones_are_asked(paper, Limits())


def test_the_papers_training_has_no_defaults_for_what_phones_give_away():
    for missing in ("mechanism", "epsilon"):
        given = {key: value for key, value in SETTINGS.items() if key != missing}
        with pytest.raises(ValueError, match=f"no {missing}"):
            settings_of(given)
    with pytest.raises(ValueError, match="for --learn crowd"):
        settings_of({**SETTINGS, "mechanism": "subset", "clip": None})
    with pytest.raises(ValueError, match="needs no clip"):
        settings_of({"mechanism": "subset", "clip": 1.0})
    with pytest.raises(ValueError, match="seqmf"):
        settings_of({"learn": "seqmv"})


def test_settings_of_before_there_was_a_choice_are_read_as_what_they_were(tmp_path):
    for name, learnt in (("subset", "crowd"), ("harmony", "seqmf")):
        old = {"mechanism": name, "epsilon": 1.0, "clip": None if learnt == "crowd" else 1.0}
        (tmp_path / "s.json").write_text(json.dumps(old))
        assert FederationSettings.read(tmp_path / "s.json").learn == learnt


@pytest.mark.parametrize("learn", ["crowd", "seqmf"])
@pytest.mark.parametrize("change", [{"epsilon": 0.5}, {"mechanism": "simhash"}])
def test_what_was_acknowledged_in_the_open_round_is_not_lost_by_a_new_start(
    tmp_path, learn, change
):
    """--start once dropped the reports of the open round, and their ε from the accounts."""
    given = {**SMALL, "learn": learn, "mechanism": "codebook", "epsilon": 1.0}
    given |= {"clip": 1.0, "dim": 3, "goal": 100} if learn == "seqmf" else {"goal": 100}
    old, _ = open_federation(tmp_path / "old", given, tuple(NAMES), now=0.0)
    token = old.vault.enrol(old.vault.issue_code(uses=1, expires=1e12), 0.0)
    reported(old, 5)
    seen = old.vault.published().broadcast
    before = old.coordinator.learner.state()
    old.vault.close()
    new, made = open_federation(
        tmp_path / "new", {**given, **change}, None, now=0.0, start=tmp_path / "old"
    )
    told = handed_out(new)
    accounts = new.coordinator.accounting
    assert (accounts.reports, accounts.rounds_stepped) == (5, 1)
    assert accounts.epsilon_worst_case == 1.0  # that of the old request
    assert told.round == 1
    assert told.history.digests[-1] == (0, new.vault.digests(9)[0][1])
    assert told.history.continues(0, new.vault.digests(9)[0][1], read_broadcast(seen).history.chain)
    assert (told.request.mechanism, told.request.epsilon) == (made.mechanism, made.epsilon)
    assert new.vault.knows(token)
    if learn == "crowd":
        assert new.coordinator.learner.n_transitions > 0
        assert told.crowd is not None
    else:
        assert not np.array_equal(told.app_vectors, before.tensors["app_vectors"])
    new.vault.close()
    # cut off after the old round was closed, the start is done again
    third, _ = open_federation(
        tmp_path / "third", {**given, **change}, None, now=0.0, start=tmp_path / "old"
    )
    assert third.coordinator.accounting == accounts
    assert handed_out(third).round == 1
    third.vault.close()


def test_a_start_that_is_refused_leaves_the_old_round_open(tmp_path):
    given = {**SMALL, "goal": 100}
    old, _ = open_federation(tmp_path / "old", given, tuple(NAMES), now=0.0)
    reported(old, 3)
    old.vault.close()
    with pytest.raises(ValueError, match="in their order"):
        open_federation(tmp_path / "new", given, ("another",), now=0.0, start=tmp_path / "old")
    again, _ = open_federation(tmp_path / "old", given, None, now=0.0)
    assert again.vault.round().n_reports == 3
    assert not again.vault.round().closed
    again.vault.close()


def test_a_list_that_grows_at_its_end_is_taken_up_while_the_server_runs(tmp_path):
    path = tmp_path / "apps.txt"
    path.write_text("\n".join(NAMES[:4]))

    def read() -> tuple[str, ...]:
        return tuple(path.read_text().split())

    federation, _ = open_federation(tmp_path / "f", SMALL, read(), now=0.0, catalogue=read)
    reported(federation, 4)
    path.write_text("\n".join(NAMES))
    assert isinstance(federation.tick(0.0), Closed)
    assert handed_out(federation).apps == tuple(NAMES)
    reported(federation, 4)
    path.write_text("one\nother")  # no longer the same list: it is left alone
    assert isinstance(federation.tick(0.0), Closed)
    assert handed_out(federation).apps == tuple(NAMES)
    assert federation.coordinator.learner.n_since.tolist() == [8.0] * 4 + [4.0] * 2
    federation.vault.close()
    again, _ = open_federation(tmp_path / "f", SMALL, (*NAMES, "later"), now=0.0)
    reported(again, 4)
    again.tick(0.0)
    assert handed_out(again).apps == (*NAMES, "later")
    again.vault.close()


def test_categories_are_taken_at_any_start_and_kept(tmp_path):
    """The bytes that phones have seen stay; the next round's crowd knows the categories."""
    by_name = {name: f"group {number % 2}" for number, name in enumerate(NAMES)}
    federation, _ = open_federation(tmp_path / "f", SMALL, tuple(NAMES), now=0.0)
    reported(federation, 4)
    assert isinstance(federation.tick(0.0), Closed)
    seen = federation.vault.published().broadcast
    federation.vault.close()
    again, _ = open_federation(tmp_path / "f", SMALL, None, now=0.0, categories=by_name)
    assert again.vault.published().broadcast == seen
    again.vault.close()
    third, _ = open_federation(tmp_path / "f", SMALL, None, now=0.0)  # not given this time
    assert third.vault.published().broadcast == seen
    reported(third, 4, start=100)
    assert isinstance(third.tick(0.0), Closed)
    assert third.coordinator.learner.categories == by_name
    third.vault.close()
    with pytest.raises(ValueError, match="for --learn crowd"):
        open_federation(tmp_path / "q", SETTINGS, tuple(NAMES), now=0.0, categories=by_name)
    assert not (tmp_path / "q").exists()


def test_apps_appear_by_themselves_and_no_name_is_anywhere(tmp_path):
    """At an ε that leaves no noise: launches first, then transitions between what is in use."""
    given = {**SMALL, "epsilon": 40.0, "goal": 30, "launches_every": 3, "buckets": 1 << 10}
    federation, _ = open_federation(tmp_path / "f", given, None, now=0.0)
    asked = []
    for _ in range(5):
        asked.append(handed_out(federation).request.question)
        reported(federation, 30, start=100)
        assert isinstance(federation.tick(0.0), Closed)
    assert asked == ["launches", "transitions", "transitions", "launches", "transitions"]
    told = handed_out(federation)
    slots = told.buckets.slots.tolist()
    own = [told.buckets.bucket(name) for name in NAMES]
    assert set(own) <= set(slots)
    row = told.crowd.after(slots.index(own[0]))  # these phones go through the apps in order
    assert int(np.argmax(row)) == slots.index(own[1])
    federation.vault.close()
    for path in Path(tmp_path / "f").rglob("*"):
        if path.is_file():
            assert b"org.example" not in path.read_bytes(), path


def played(folder: Path, damage: bool) -> tuple[list[float], CrowdLearner, bytes]:
    """Four rounds; ε goes from 1 to 1/2 in the second. The ε asked, the learner, the broadcast.

    ``damage``: the checkpoint that was the first to ask for the new ε is lost, with others.
    """
    asked = []
    federation, _ = open_federation(folder, SMALL, tuple(NAMES), now=0.0)
    for number in range(4):
        asked.append(handed_out(federation).request.epsilon)
        reported(federation, 2)
        if number == 1:
            administration.change(folder, {"epsilon": 0.5}, 10.0 * number)
            assert handed_out(federation).request.epsilon == 1.0  # of the round at hand
            assert administration.status(folder, 0.0).next_epsilon == 0.5
        reported(federation, 2, start=100)
        assert isinstance(federation.tick(10.0 * number + 1), Closed)
        if number == 2 and damage:
            federation.vault.close()
            for path in sorted((folder / "checkpoints").iterdir())[-2:]:
                path.unlink()
            federation, made = open_federation(folder, {}, None, now=10.0 * number + 2)
            assert made.epsilon == 0.5
    found = federation.coordinator
    assert found.accounting.epsilon_worst_case == 1.0 + 1.0 + 0.5 + 0.5
    published = federation.vault.published().broadcast
    federation.vault.close()
    return asked, found.learner, published


def test_another_epsilon_holds_from_the_next_round_on(tmp_path):
    """And where checkpoints are lost, each round is counted by the ε that its phones were asked."""
    asked, learner, published = played(tmp_path / "a", damage=False)
    assert asked == [1.0, 1.0, 0.5, 0.5]
    # what came by ε 1 counts as more reports by ε 1/2, as it has less noise; by hand 8 w + 8
    then, now = (
        entry_variance(mechanism("walsh", n_apps=6, d=7, epsilon=epsilon, clip=1.0, b=4))
        for epsilon in (1.0, 0.5)
    )
    assert learner.n_transitions == pytest.approx(8 * now / then + 8)
    again, other, bytes_again = played(tmp_path / "b", damage=True)
    assert again == asked
    assert np.array_equal(other.total, learner.total)
    assert bytes_again == published


def test_an_epsilon_that_cannot_change_is_refused(tmp_path):
    federation, _ = open_federation(tmp_path / "crowd", SMALL, tuple(NAMES), now=0.0)
    federation.vault.close()
    with pytest.raises(ValueError, match="epsilon"):
        administration.change(tmp_path / "crowd", {"epsilon": -1.0}, 0.0)
    with pytest.raises(ValueError, match="mechanism cannot change"):
        administration.change(tmp_path / "crowd", {"mechanism": "subset"}, 0.0)
    with pytest.raises(ValueError, match="epsilon by nextapp admin set"):
        open_federation(tmp_path / "crowd", {"epsilon": 0.25}, None, now=0.0)
    federation, _ = open_federation(tmp_path / "paper", SETTINGS, tuple(NAMES), now=0.0)
    federation.vault.close()
    with pytest.raises(ValueError, match="--start"):
        administration.change(tmp_path / "paper", {"epsilon": 0.5}, 0.0)
