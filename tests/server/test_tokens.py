"""Issuing: who gets tokens, of which key, how often; and how keys come and go."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from servers import SETTINGS, Client, Device, ServerProcess, payload, report_of

from nextapp.privacy.tokens import MESSAGE, BadSignature, Token, from_base64, public_key
from nextapp.server import folders
from nextapp.server.folders import VaultOptions, open_federation
from nextapp.server.issuing import KeyRules, NotIssued
from nextapp.server.vault import Outcome, RoundRules, Submission, Vault
from nextapp.wire import Broadcast, TokenKey

DAY = 86_400.0
APPS = tuple(f"app-{number:04d}" for number in range(12))


@pytest.fixture
def vault(tmp_path):
    with closing(Vault(tmp_path / "vault.sqlite")) as vault:
        vault.keys.set_rules(KeyRules(30.0, 2))
        vault.keys.for_next_round(0.0)
        yield vault


def enrolled(vault: Vault) -> str:
    return vault.devices.enrol(vault.devices.issue_code(expires=1e12), 1.0)


def blinded(vault: Vault, n: int = 1) -> list[bytes]:
    public = public_key(vault.keys.listed()[-1])
    return [public.blind(public.new_blinding(MESSAGE)) for _ in range(n)]


def new_token(vault: Vault, secret: str) -> Token:
    key = vault.keys.listed()[-1]
    blinding = public_key(key).new_blinding(MESSAGE)
    sent = [public_key(key).blind(blinding)]
    return Token.of(key, blinding, vault.devices.issue(secret, key.id, sent, 1.0)[0])


def refusal(vault: Vault, secret: str, key: TokenKey, sent: list[bytes]) -> str:
    with pytest.raises(NotIssued) as refused:
        vault.devices.issue(secret, key.id, sent, 1.0)
    return refused.value.code


def test_a_device_gets_its_tokens_of_a_key_once(vault):
    key, secret, sent = vault.keys.listed()[-1], enrolled(vault), blinded(vault, 2)
    signed = vault.devices.issue(secret, key.id, sent, 1.0)
    assert vault.devices.issue(secret, key.id, sent, 1.0) == signed
    for other in (sent[:1], sent[::-1], blinded(vault, 2), [*sent, sent[0]]):
        assert refusal(vault, secret, key, other) == "already_issued"
    assert refusal(vault, enrolled(vault), key, blinded(vault, 3)) == "too_many"


def test_what_was_issued_is_known_after_a_kill(vault, tmp_path):
    key, secret, sent = vault.keys.listed()[-1], enrolled(vault), blinded(vault)
    signed = vault.devices.issue(secret, key.id, sent, 1.0)
    with closing(Vault(vault.path)) as again:  # another process, with no memory of this one
        assert again.devices.issue(secret, key.id, sent, 1.0) == signed
        assert refusal(again, secret, key, blinded(vault)) == "already_issued"


def test_who_was_not_enrolled_or_is_expelled_or_too_late_gets_none(vault):
    key, secret, sent = vault.keys.listed()[-1], enrolled(vault), blinded(vault)
    code = vault.devices.issue_code(expires=1e12, name="late")
    late = vault.devices.enrol(code, 1.0, seconds=100.0)
    for who, now in (("main." + "A" * 43, 1.0), (late, 101.0), ("", 1.0)):
        with pytest.raises(NotIssued, match="has not enrolled here"):
            vault.devices.issue(who, key.id, sent, now)
    vault.devices.expel(code="late")
    with pytest.raises(NotIssued, match="has not enrolled here"):
        vault.devices.issue(late, key.id, sent, 1.0)
    assert vault.devices.issue(secret, key.id, sent, 1.0)


def test_numbers_that_are_none_of_the_key_leave_nothing_behind(vault):
    key, secret = vault.keys.listed()[-1], enrolled(vault)
    for number in (b"", bytes(255), bytes(257), int(key.modulus, 16).to_bytes(256)):
        with pytest.raises(BadSignature):
            vault.devices.issue(secret, key.id, [number], 1.0)
    assert len(vault.devices.issue(secret, key.id, blinded(vault), 1.0)) == 1


def test_a_new_key_comes_when_it_is_due_and_the_two_latest_are_listed(vault):
    (first,) = vault.keys.listed()
    assert vault.keys.for_next_round(30 * DAY - 1) == (first,)
    assert vault.keys.for_next_round(30 * DAY)[0] == first
    second = vault.keys.listed()[1]
    assert first.id != second.id
    vault.keys.rotate()
    vault.keys.rotate()  # asked twice before a round it is one
    kept, third = vault.keys.for_next_round(31 * DAY)
    assert kept == second
    assert vault.keys.for_next_round(32 * DAY) == (second, third)
    vault.keys.set_rules(KeyRules(30.0, 5))
    assert vault.keys.for_next_round(33 * DAY)[-1].tokens == 5


def test_only_the_newest_key_issues_and_the_one_before_answers_what_it_has_answered(vault):
    (first,), secret, other = vault.keys.listed(), enrolled(vault), enrolled(vault)
    sent = blinded(vault)
    signed = vault.devices.issue(secret, first.id, sent, 1.0)
    vault.keys.rotate()
    _, second = vault.keys.for_next_round(1.0)
    assert vault.devices.issue(secret, first.id, sent, 1.0) == signed  # a lost answer
    assert refusal(vault, other, first, sent) == "unknown_key"
    assert len(vault.devices.issue(secret, second.id, blinded(vault, 2), 1.0)) == 2


def test_what_was_spent_and_issued_goes_with_its_key(vault):
    def counts() -> tuple[int, int]:
        with closing(sqlite3.connect(vault.path)) as read:
            return tuple(
                read.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
                for name in ("issued", "spent")
            )

    rules = RoundRules(9, 1, 60.0)
    vault.publish(rules.open_round(0, 0.0), b"")
    secret = enrolled(vault)
    for expected in ((1, 1), (2, 2), (2, 2), (2, 2)):  # those of the two latest keys
        vault.admit([Submission(new_token(vault, secret), 0, payload(report_of(1)))])
        assert counts() == expected
        vault.keys.rotate()
        vault.keys.for_next_round(1.0)


def federation(folder: Path, **more):
    given = {**SETTINGS, "goal": 1}
    listed = APPS if not (folder / "settings.json").exists() else None
    vault = VaultOptions(30.0, 2, **more)
    return open_federation(folder, given, listed, now=1.0, options=vault)[0]


def listed_by(found) -> tuple[TokenKey, ...]:
    return Broadcast.from_bytes(found.coordinator.published()).keys


def full_round(found, number: int, name: int) -> None:
    secret = enrolled(found.vault)
    one = Submission(new_token(found.vault, secret), number, payload(report_of(name, number)))
    assert found.vault.admit([one]) == [Outcome.ACCEPTED]
    found.tick(2.0)


def test_the_keys_are_part_of_the_broadcast_and_the_chain(tmp_path):
    found = federation(tmp_path)
    assert listed_by(found) == found.vault.keys.listed() != ()
    first = found.coordinator.published()
    full_round(found, 0, 1)
    found.vault.keys.rotate()
    full_round(found, 1, 2)
    old, new = listed_by(found)
    assert (old,) == Broadcast.from_bytes(first).keys
    assert new == found.vault.keys.listed()[-1]
    history = Broadcast.from_bytes(found.coordinator.published()).history
    assert history.continues(0, found.vault.digests(0, 9)[0][1], "00" * 32)
    found.vault.close()
    again = federation(tmp_path)
    assert listed_by(again) == (old, new)
    again.vault.close()


def test_a_report_drawn_before_a_rotation_is_taken_after_it(tmp_path):
    found = federation(tmp_path)
    secret = enrolled(found.vault)
    kept = new_token(found.vault, secret)
    found.vault.keys.rotate()
    full_round(found, 0, 1)
    assert kept.key in {key.id for key in listed_by(found)}
    late = Submission(kept, 1, payload(report_of(7, 1)))
    assert found.vault.admit([late, late]) == [Outcome.ACCEPTED, Outcome.REPEATED]
    found.vault.close()


def test_a_token_counts_once_over_rounds_and_restarts(tmp_path):
    found = federation(tmp_path)
    token = new_token(found.vault, enrolled(found.vault))
    first = Submission(token, 0, payload(report_of(1)))
    assert found.vault.admit([first]) == [Outcome.ACCEPTED]
    found.tick(2.0)
    found.vault.close()
    again = federation(tmp_path)
    other = Submission(token, 1, payload(report_of(2, 1)))
    assert again.vault.admit([other, first]) == [Outcome.ALREADY_SPENT, Outcome.REPEATED]
    assert again.vault.round().n_reports == 0
    again.vault.close()


def test_after_a_restore_no_key_of_before_is_listed_any_more(tmp_path):
    """From the next round on: tokens may have been spent since the backup was made."""
    found = federation(tmp_path / "f")
    full_round(found, 0, 1)
    before = listed_by(found)
    folders.back_up(tmp_path / "f", tmp_path / "copy")
    found.vault.close()
    folders.restore(tmp_path / "copy", tmp_path / "g")
    again = federation(tmp_path / "g")
    assert listed_by(again) == before
    full_round(again, 1, 2)  # the open round goes on
    assert len(listed_by(again)) == 1
    assert not set(before) & set(listed_by(again))
    again.vault.close()


def test_a_round_whose_keys_are_lost_with_the_vault_is_skipped(tmp_path):
    """No phone could report in it, so it would stay open for ever."""
    found = federation(tmp_path)
    full_round(found, 0, 1)
    found.vault.close()
    for file in tmp_path.glob("vault.sqlite*"):
        file.unlink()
    again = federation(tmp_path, new_vault=True)
    assert again.coordinator.round == 2
    assert listed_by(again) == again.vault.keys.listed()
    full_round(again, 2, 2)
    assert again.coordinator.round == 3
    again.vault.close()


def test_steps_that_are_repeated_publish_the_same_keys_again(tmp_path):
    """The vault is newer than the checkpoints, with a rotation in between."""
    found = federation(tmp_path)
    full_round(found, 0, 1)
    saved = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    found.vault.keys.rotate()
    full_round(found, 1, 2)
    full_round(found, 2, 3)
    published = found.coordinator.published()
    found.vault.close()
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    for name, data in saved.items():
        (tmp_path / "checkpoints" / name).write_bytes(data)
    again = federation(tmp_path)
    assert again.coordinator.published() == published
    again.vault.close()


@pytest.mark.parametrize("rules", [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0), (1.0, 101)])
def test_rules_for_keys_that_make_no_sense_are_refused(rules):
    with pytest.raises(ValueError, match="must be"):
        KeyRules(*rules)


def test_issuing_can_be_a_process_of_its_own(tmp_path):
    """Beside the one that takes reports, on the same folder; it takes none itself."""
    with ServerProcess(tmp_path) as server:
        command = ["issue", "--data", str(tmp_path), "--port", "0", "--operator", "off"]
        with subprocess.Popen(
            [sys.executable, "-m", "nextapp", *command],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        ) as issuing:  # fmt: skip
            try:
                port = int(issuing.stdout.readline().split()[0].rpartition(":")[2])
                with closing(Client(port, 60.0)) as issuer, closing(server.client()) as collector:
                    secret = issuer.json("POST", "/v1/enrol", {"code": server.code()})[1]["secret"]
                    body = collector.request("GET", "/v1/broadcast")[2]
                    (key,) = Broadcast.from_bytes(body).keys
                    blinding = public_key(key).new_blinding(MESSAGE)
                    status, words = issuer.ask(secret, key.id, [public_key(key).blind(blinding)])
                    assert status == 200
                    answer = from_base64(words["signatures"][0])
                    device = Device(secret, [Token.of(key, blinding, answer)])
                    report = report_of(1, by=device)
                    assert issuer.request("POST", "/v1/report", report)[0] == 404
                    assert issuer.request("GET", "/v1/broadcast")[0] == 404
                    assert collector.report(device, report) == (201, "accepted")
            finally:
                issuing.terminate()
