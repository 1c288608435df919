"""Starts, restarts and restores of an embedded server, without its HTTP side."""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from servers import DIM, MECHANISM, N_APPS, SETTINGS, payload, report_of, unsigned_token

from nextapp.learners import SeqMFLearner, sgd
from nextapp.server import certificates
from nextapp.server.database import VaultDamaged
from nextapp.server.federation import Closed, Coordinator, checkpoints
from nextapp.server.folders import open_federation
from nextapp.server.gateway import Gateway, Refusal
from nextapp.server.listening import Allowance, ServerLimits
from nextapp.server.settings import settings_of
from nextapp.server.vault import Due, Reduced, Submission
from nextapp.wire import Broadcast, ModelSettings, pack, unpack

APPS = tuple(f"app-{number:04d}" for number in range(N_APPS))
GIVEN = {**SETTINGS, "goal": 4, "minimum": 2, "deadline": 60.0}


def opened(folder: Path, now: float = 0.0, **more):
    new = not (folder / "settings.json").exists()
    folder.mkdir(exist_ok=True)
    return open_federation(folder, GIVEN, APPS if new else None, now=now, **more)[0]


def played(federation, rounds: int, first: int = 0):
    """So many full rounds by four devices."""
    for number in range(first, first + rounds):
        some = [
            Submission(
                unsigned_token(f"{device} {number}"), number, payload(report_of(device, number))
            )
            for device in range(4)
        ]
        federation.vault.admit(some)
        assert isinstance(federation.tick(float(number)), Closed)


def vectors(federation) -> np.ndarray:
    return federation.coordinator.learner.broadcast.app_vectors


def test_a_federation_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole = opened(tmp_path / "whole")
    played(whole, 6)
    parts = opened(tmp_path / "parts")
    played(parts, 3)
    parts.vault.close()
    parts = opened(tmp_path / "parts")
    assert parts.coordinator.round == 3
    assert parts.coordinator.accounting.epsilon_worst_case == 3 * 2.0
    played(parts, 3, first=3)
    assert np.array_equal(vectors(parts), vectors(whole))
    assert parts.coordinator.accounting == whole.coordinator.accounting


def test_where_the_clock_was_set_back_no_phone_is_sent_away_for_a_day(tmp_path):
    """A round that ends is further away than its grace: by the same rule it closes now."""
    vault = opened(tmp_path).vault
    vault.amend(replace(vault.round().rules, grace=300.0), 0.0)
    vault.set_round(replace(vault.round(), ends=86_400.0))
    for now, least, most in [(0.0, 10, 10), (86_300.0, 110, 410)]:
        gateway = Gateway(vault, clock=lambda now=now: now)
        gateway.refresh()
        with pytest.raises(Refusal) as refused:
            gateway._open_round()
        assert least <= int(refused.value.headers["retry-after"]) <= most
    vault.close()


def test_a_checkpoint_holds_all_that_a_restart_needs(tmp_path):
    federation = opened(tmp_path)
    played(federation, 12)
    kept = checkpoints(tmp_path / "checkpoints")
    assert len(kept) == 10
    tensors, words = unpack(kept[0].read_bytes())
    assert tensors["app_vectors"].shape == (N_APPS, DIM)
    assert words["round"] == "12"
    assert json.loads(words["request"])["epsilon"] == 2.0
    assert json.loads(words["apps"]) == list(APPS)
    assert json.loads(words["accounting"]) == {
        "rounds_stepped": 12, "rounds_passed_over": 0, "reports": 48, "epsilon_worst_case": 24.0,
    }  # fmt: skip
    assert not list((tmp_path / "checkpoints").glob("*.part"))


def test_steps_that_the_checkpoints_lack_are_taken_again_from_the_sums(tmp_path):
    federation = opened(tmp_path)
    played(federation, 6)
    expected = vectors(federation)
    federation.vault.close()
    newest, *older = checkpoints(tmp_path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:-9])  # damaged
    older[0].unlink()  # lost
    again = opened(tmp_path)
    assert again.coordinator.round == 6
    assert np.array_equal(vectors(again), expected)


def test_a_vault_older_than_its_checkpoints_does_not_count_twice(tmp_path):
    federation = opened(tmp_path / "a")
    played(federation, 2)
    half = [Submission(unsigned_token(9), 2, payload(report_of(9, 2)))]
    federation.vault.admit(half)
    federation.vault.database.truncate_log()
    files = [tmp_path / "a" / name for name in ("vault.sqlite", "vault.count")]
    backup = [path.read_bytes() for path in files]
    played(federation, 1, first=2)
    federation.vault.close()
    expected = vectors(federation)
    files[0].write_bytes(backup[0])
    with pytest.raises(VaultDamaged, match=r"commits to .* are lost"):
        opened(tmp_path / "a")
    for path, data in zip(files, backup, strict=True):
        path.write_bytes(data)
    again = opened(tmp_path / "a")
    assert again.coordinator.round == again.vault.round().number == 3
    assert again.vault.round().n_reports == 0
    assert np.array_equal(vectors(again), expected)


def test_a_gap_too_long_is_said_and_can_be_skipped(tmp_path):
    federation = opened(tmp_path / "a")
    federation.vault.close()
    shutil.copytree(tmp_path / "a" / "checkpoints", tmp_path / "old")
    federation = opened(tmp_path / "a")
    start = vectors(federation)
    played(federation, 12)
    federation.vault.close()
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    shutil.copytree(tmp_path / "old", tmp_path / "a" / "checkpoints")
    with pytest.raises(ValueError, match="--skip-to 13"):
        opened(tmp_path / "a")
    again = opened(tmp_path / "a", skip_to=13)
    assert again.coordinator.round == again.vault.round().number == 13
    assert np.array_equal(vectors(again), start)
    assert again.coordinator.accounting.rounds_passed_over == 13
    assert again.coordinator.accounting.epsilon_worst_case == 26.0


def handed_out(federation) -> bytes:
    return federation.vault.broadcast()


def written_otherwise(data: bytes) -> bytes:
    """The same broadcast with eight blanks more behind its header."""
    n = int.from_bytes(data[:8], "little")
    return (n + 8).to_bytes(8, "little") + data[8 : 8 + n] + b" " * 8 + data[8 + n :]


def test_the_bytes_at_hand_outlive_the_program_that_wrote_them(tmp_path, monkeypatch):
    """Whoever goes on, and however it would write a broadcast: phones have seen these bytes."""
    federation = opened(tmp_path / "a")
    played(federation, 2)
    seen = handed_out(federation)
    assert federation.coordinator.published() == seen
    federation.vault.close()
    whole = Broadcast.to_bytes
    monkeypatch.setattr(Broadcast, "to_bytes", lambda self: written_otherwise(whole(self)))
    again = opened(tmp_path / "a")
    assert handed_out(again) == again.coordinator.published() == seen
    played(again, 1, first=2)
    later = Broadcast.from_bytes(handed_out(again))
    assert later.history.digests[-1] == (2, hashlib.sha256(seen).hexdigest())
    assert handed_out(again) == written_otherwise(whole(later))


def test_steps_taken_again_lead_to_the_same_bytes(tmp_path):
    federation = opened(tmp_path)
    played(federation, 4)
    seen = handed_out(federation)
    federation.vault.close()
    for lost in checkpoints(tmp_path / "checkpoints")[:2]:
        lost.unlink()
    again = opened(tmp_path)
    assert again.coordinator.published() == handed_out(again) == seen


def test_rounds_that_are_skipped_leave_the_chain_whole(tmp_path):
    federation = opened(tmp_path)
    played(federation, 1)
    seen = handed_out(federation)
    before = Broadcast.from_bytes(seen)
    federation.vault.close()
    again = opened(tmp_path, skip_to=5)
    after = Broadcast.from_bytes(handed_out(again))
    assert after.round == 5
    digest = hashlib.sha256(seen).hexdigest()
    assert after.history.continues(before.round, digest, before.history.chain)


def test_a_checkpoint_of_an_earlier_version_is_refused_in_words(tmp_path):
    opened(tmp_path).vault.close()
    (path,) = checkpoints(tmp_path / "checkpoints")
    tensors, words = unpack(path.read_bytes())
    del words["version"]
    path.write_bytes(pack(dict(tensors), words))
    with pytest.raises(ValueError, match="written by an earlier one"):
        opened(tmp_path)


def test_without_any_checkpoint_there_is_no_start(tmp_path):
    opened(tmp_path).vault.close()
    for path in checkpoints(tmp_path / "checkpoints"):
        path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="restore it from a backup"):
        opened(tmp_path)


@pytest.mark.parametrize("refusing", ["save", "publish", "reduce", "set_round"])
def test_a_disk_that_refuses_in_the_middle_of_a_close_costs_nothing(tmp_path, refusing):
    expected = opened(tmp_path / "well")
    played(expected, 1)
    federation = opened(tmp_path / "full")
    owner = federation.coordinator if refusing == "save" else federation.vault

    def full(*_):
        raise OSError("No space left on device")

    setattr(owner, refusing, full)
    with pytest.raises(OSError, match="No space"):
        played(federation, 1)
    with pytest.raises(OSError, match="No space"):
        federation.tick(0.0)
    delattr(owner, refusing)
    closed = federation.tick(0.0)
    assert (closed.round, closed.n_reports, closed.stepped) == (0, 4, True)
    assert federation.vault.round().number == federation.coordinator.round == 1
    assert np.array_equal(vectors(federation), vectors(expected))
    assert federation.coordinator.accounting == expected.coordinator.accounting


def test_new_rules_hold_for_the_round_at_hand(tmp_path):
    opened(tmp_path, now=100.0).vault.close()
    given = {**GIVEN, "goal": 9, "deadline": 10.0}
    federation, _ = open_federation(tmp_path, given, None, now=500.0)
    assert federation.vault.round().deadline == 510.0
    assert federation.vault.round().goal == 9
    assert federation.tick(509.0) is Due.WAIT
    assert federation.tick(510.0) is Due.EXTEND


def test_another_catalogue_is_refused(tmp_path):
    opened(tmp_path).vault.close()
    with pytest.raises(ValueError, match="catalogue"):
        open_federation(tmp_path, GIVEN, ("one", "two"), now=0.0)
    with pytest.raises(ValueError, match="need a catalogue"):
        open_federation(tmp_path / "new", GIVEN, None, now=0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "laplace"}, "finitely many"), ({"mechanism": "wolsh"}, "walsh"),
        ({"mechanism": "qharmony"}, "not ε-LDP"), ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": "2"}, "type float"), ({"gaol": 3}, "goal"), ({"clip": None}, "clip"),
        ({"goal": 3, "minimum": 4}, "minimum"), ({"optimiser": "adamant"}, "adam"),
        ({"model": {"lambda": 1}}, "lambda"), ({"options": {"l": 3}}, "option"),
        ({"goal": 2.5}, "type int"), ({"rate": 0.0}, "rate"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        settings_of({**GIVEN, **change})


@pytest.mark.parametrize("needed", ["mechanism", "epsilon"])
def test_what_a_phone_gives_away_has_no_default(needed):
    with pytest.raises(ValueError, match=f"no {needed}"):
        settings_of({key: value for key, value in GIVEN.items() if key != needed})


def coordinator(folder: Path) -> Coordinator:
    start = np.random.default_rng(0).normal(size=(N_APPS, DIM))
    server = SeqMFLearner(start, ModelSettings(), sgd(0.01), MECHANISM)
    return Coordinator.start(server, folder)


def test_gateways_tallies_below_the_minimum_change_nothing_and_it_says_so(tmp_path):
    one = coordinator(tmp_path)
    before = one.learner.broadcast.app_vectors
    tally = MECHANISM.tally([])
    closed = one.absorb([Reduced(0, 1, tally), Reduced(0, 1, tally)], 3, ())
    assert not closed.stepped
    assert "below the minimum of 3; nothing was changed" in closed.message
    assert one.round == 1
    assert np.array_equal(one.learner.broadcast.app_vectors, before)
    assert one.absorb([], 3, ()).message.startswith("round 1: 0 reports")
    with pytest.raises(ValueError, match="current round is 2"):
        one.absorb([Reduced(0, 5, tally)], 3, ())


def test_a_step_that_is_not_finite_changes_nothing_and_it_says_so(tmp_path):
    one = coordinator(tmp_path)
    one.learner.optimiser = sgd(1e308)
    before = one.learner.broadcast.app_vectors
    tally = MECHANISM.tally([])
    tally[0] = 10**6
    with np.errstate(over="ignore"):
        closed = one.absorb([Reduced(0, 5, tally)], 3, ())
    assert not closed.stepped
    assert "not finite" in closed.message
    assert np.array_equal(one.learner.broadcast.app_vectors, before)


def test_the_development_certificate_is_trusted_by_its_authority_alone(tmp_path):
    authority, certificate, key = certificates.development(tmp_path)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(certificate, key)
    client.load_verify_locations(authority)

    def shaken(context, name):
        ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            context.wrap_bio(ours, theirs, server_hostname=name),
            server.wrap_bio(theirs, ours, server_side=True),
        ]
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return ends[0].version()

    assert shaken(client, "127.0.0.1") == shaken(client, "localhost") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(client, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(ssl.create_default_context(), "localhost")
    assert certificates.development(tmp_path) == (authority, certificate, key)
    assert key.stat().st_mode & 0o077 == 0
    assert b"PRIVATE" not in authority.read_bytes() + certificate.read_bytes()


def test_an_allowance_is_a_burst_and_then_a_rate():
    allowance = Allowance(burst=2, seconds=10.0, most_keys=2)
    assert [allowance.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 10.0]
    assert allowance.take("b", 0.0) == 0.0
    assert allowance.take("a", 5.0) == pytest.approx(5.0)
    assert allowance.take("a", 10.0) == 0.0
    assert allowance.take("a", 1.0) == pytest.approx(10.0)  # a clock that was set back
    allowance.take("c", 10.0)  # "b", seen longest ago, is forgotten
    assert [allowance.take("b", 10.0) for _ in range(3)][-1] > 0
    with pytest.raises(ValueError, match="connections"):
        ServerLimits(connections=0)
