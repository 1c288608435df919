"""A server of the crowd: started without any setting, and what stays when it goes on elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from servers import SETTINGS, unsigned_token

from nextapp.cli.serve import what_phones_are_asked
from nextapp.phone.core import Limits, PhoneCore, read_broadcast
from nextapp.privacy import requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.server import folders
from nextapp.server.federation import Closed
from nextapp.server.folders import open_federation, settings_for
from nextapp.server.settings import settings_of
from nextapp.server.vault import Outcome, Submission
from nextapp.wire import Broadcast

SMALL = {"slots": 8, "goal": 4, "minimum": 2, "deadline": 60.0, "grace": 0.0}
NAMES = [f"org.example.app{i}" for i in range(6)]


def handed_out(federation) -> Broadcast:
    return read_broadcast(federation.vault.broadcast())


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
    return made.encode(core.answer(), bits, broadcast.round).payload


def reported(federation, devices, start=0):
    broadcast = handed_out(federation)
    some = [
        Submission(
            unsigned_token(f"{start + d} {broadcast.round}"), broadcast.round, answer(broadcast, d)
        )
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


def test_fewer_apps_are_asked_about_where_no_list_names_them(tmp_path):
    """Unless the operator says how many; a server that goes on keeps what it had."""
    names = tuple(f"app{number}" for number in range(1023))
    for folder, given, apps, slots in (
        ("none", {}, None, 400),
        ("list", {}, names, 1023),
        ("said", {"slots": 700}, None, 700),
    ):
        assert settings_for(tmp_path / folder, given, apps).slots == slots
    federation, made = open_federation(tmp_path / "old", {"slots": 700}, None, now=0.0)
    federation.vault.close()
    assert settings_for(tmp_path / "old", {}, None).slots == made.slots == 700


def test_it_says_what_a_phone_pays_for_life():
    said = what_phones_are_asked(settings_of({}), Limits())
    assert "at most 1 report, ε = 1 in all" in said
    said = what_phones_are_asked(settings_of({"epsilon": 0.3}), Limits())
    assert "at most 3 reports" in said
    said = what_phones_are_asked(settings_of({"epsilon": 4.0}), Limits())
    assert "phones as they ship refuse that: their limit is ε = 1 a report" in said
    paper = settings_of({"learn": "seqmf", "mechanism": "harmony", "epsilon": 1.0, "clip": 1.0})
    assert "asked for a gradient" in what_phones_are_asked(paper, Limits())


def test_the_papers_training_has_no_defaults_for_what_phones_give_away():
    for missing in ("mechanism", "epsilon"):
        given = {key: value for key, value in SETTINGS.items() if key != missing}
        with pytest.raises(ValueError, match=f"no {missing}"):
            settings_of(given)
    with pytest.raises(ValueError, match="needs no clip"):
        settings_of({"mechanism": "walsh", "clip": 1.0})
    with pytest.raises(ValueError, match="seqmf"):
        settings_of({"learn": "seqmv"})


def test_a_list_is_that_of_the_first_start(tmp_path):
    federation, _ = open_federation(tmp_path / "f", SMALL, tuple(NAMES[:4]), now=0.0)
    federation.vault.close()
    for same in (tuple(NAMES[:4]), None):
        again, _ = open_federation(tmp_path / "f", SMALL, same, now=0.0)
        assert handed_out(again).apps == tuple(NAMES[:4])
        again.vault.close()
    with pytest.raises(ValueError, match="is not the list given"):
        open_federation(tmp_path / "f", SMALL, tuple(NAMES), now=0.0)
    with pytest.raises(ValueError, match="5 apps does not fit 4 slots"):
        open_federation(tmp_path / "g", {**SMALL, "slots": 4}, tuple(NAMES[:5]), now=0.0)


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
    row, _ = told.crowd.shares(
        np.arange(len(slots)), slots.index(own[0])
    )  # phones go through the apps in order
    assert int(np.argmax(row)) == slots.index(own[1])
    federation.vault.close()
    for path in Path(tmp_path / "f").rglob("*"):
        if path.is_file():
            assert b"org.example" not in path.read_bytes(), path


def test_what_phones_rely_on_cannot_change(tmp_path):
    for folder, given in (("crowd", SMALL), ("paper", SETTINGS)):
        federation, _ = open_federation(tmp_path / folder, given, tuple(NAMES), now=0.0)
        federation.vault.close()
        with pytest.raises(ValueError, match="was started with epsilon"):
            folders.change(tmp_path / folder, {"epsilon": 0.25}, 0.0)
        with pytest.raises(ValueError, match="begin anew in another folder"):
            open_federation(tmp_path / folder, {"epsilon": 0.25}, None, now=0.0)
