"""A device gets another token: what stays, and what a crash at any moment leaves behind."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing

import pytest
from click.testing import CliRunner
from servers import ServerProcess, device_name, report_of, token_bytes

from nextapp.cli.commands import app
from nextapp.phone import Client, Phone, Store
from nextapp.phone.server_errors import Unreachable
from nextapp.server.devices import RenewedAlready, UnknownToken
from nextapp.server.gateway import token_text
from nextapp.server.vault import RoundRules, Vault

RULES = RoundRules(goal=5, minimum=1, seconds=60.0)
NOON = 1_790_000_000.0


def admin(*words: object) -> str:
    found = CliRunner().invoke(app, ["admin", *map(str, words)])
    assert found.exit_code == 0, found.output
    return found.output


def close_round(server: ServerProcess) -> int:
    """Close the round at hand; the number of the next."""
    number = server.round().number
    with closing(Vault(server.folder / "vault.sqlite", busy_seconds=10)) as vault:
        vault.expire_deadline(number, time.time())
    end = time.monotonic() + 120
    while server.client().json("GET", "/v1/digest")[1]["round"] == number:
        assert time.monotonic() < end
        time.sleep(0.05)
    return number + 1


def test_the_device_stays_and_the_old_token_goes(tmp_path):
    vault = Vault(tmp_path / "vault.sqlite")
    old = vault.devices.enrol(vault.devices.issue_code(expires=1e12, name="lab"), 86_400.0 * 7)
    vault.publish(RULES.open_round(4, 0.0), b"broadcast", RULES)
    new = vault.devices.offer_token(old)
    assert all(vault.devices.offer_token(old) == new for _ in range(20))  # none to choose from
    assert new != old
    assert vault.devices.knows(old)
    assert not vault.devices.knows(new)
    with pytest.raises(UnknownToken):
        vault.devices.take_token(bytes(32), 0.0)
    with pytest.raises(UnknownToken):
        vault.devices.offer_token(new)  # before it counts
    assert vault.devices.take_token(new, 1000.0, 50.0).first_round == 5
    assert (
        vault.devices.take_token(new, 2000.0, 50.0).expires == 1050.0
    )  # again, and nothing changes
    assert not vault.devices.knows(old)
    with pytest.raises(UnknownToken):
        vault.devices.offer_token(old)
    (device,) = vault.devices.listing()
    assert (device.name, device.day, device.code) == (device_name(old), 7, "lab")
    with pytest.raises(RenewedAlready, match="from round 5 on"):
        vault.devices.offer_token(new)
    with closing(sqlite3.connect(vault.path)) as read:  # nothing that leads from old to new
        assert read.execute("SELECT salt, next FROM devices").fetchall() == [(None, None)]
    vault.close_round(4)
    vault.publish(RULES.open_round(5, 0.0), b"broadcast 5", RULES)
    assert vault.devices.offer_token(new) not in (old, new)
    assert vault.devices.expel(device_name(old)) == 1
    vault.close()


def test_a_device_that_renews_in_mid_round_counts_once(tmp_path):
    with ServerProcess(tmp_path) as server:
        first, second = server.enrolled(2)
        client = server.client()

        def renewed(token: str) -> str:
            bearer = {"authorization": f"Bearer {token}"}
            status, words = client.json("POST", "/v1/token", **bearer)
            assert status == 201
            new = {"authorization": f"Bearer {words['token']}"}
            status, told = client.json("PUT", "/v1/token", **new)
            assert (status, told) == (200, {"status": "renewed", "first_round": 1})
            assert client.json("POST", "/v1/token", **new)[1]["error"] == "renewed_already"
            return words["token"]

        assert client.report(first, report_of(0, token=first)) == (201, "accepted")
        other = renewed(first)
        assert client.report(other, report_of(0, token=other)) == (409, "new_token")
        assert client.report(first, report_of(0, token=first)) == (401, "unknown_token")
        another = renewed(second)  # before it reported: it waits all the same
        assert client.report(another, report_of(1, token=another)) == (409, "new_token")
        assert server.round().n_reports == 1
        server.kill()
        server.start()
        client = server.client()
        assert client.report(other, report_of(0, token=other)) == (409, "new_token")
        assert close_round(server) == 1
        for device, token in enumerate((other, another)):
            assert client.report(token, report_of(device, 1, token=token)) == (201, "accepted")
        bad = {"authorization": f"Bearer {'A' * 43}"}
        assert client.json("POST", "/v1/token", **bad)[1]["error"] == "unknown_token"
        assert client.json("PUT", "/v1/token", **bad)[1]["error"] == "unknown_token"
        with closing(sqlite3.connect(server.folder / "vault.sqlite", isolation_level=None)) as held:
            held.execute("BEGIN IMMEDIATE")  # guesses wait for no lock, as they write nothing
            for method in ("POST", "PUT"):
                assert client.json(method, "/v1/token", **bad)[1]["error"] == "unknown_token"


class Killed(BaseException):
    """As if the process had ended here."""


class Cut(Client):
    """A client whose phone is killed before or after one of its calls."""

    def __init__(self, url: str, name: str, after: bool) -> None:
        super().__init__(url)
        self._name, self._after = name, after

    def _cut(self, name, call):
        if name == self._name and not self._after:
            raise Killed
        found = call()
        if name == self._name:
            raise Killed
        return found

    def renew(self):
        return self._cut("renew", super().renew)

    def confirm(self, token):
        return self._cut("confirm", lambda: super(Cut, self).confirm(token))


def joined(path, server: ServerProcess) -> None:
    limits = {"lifetime": 100.0, "per_day": 100.0, "per_report": 10.0, "hours": 0.0}
    with (
        Store.create(path, predictor="seqmf", **limits) as store,
        Client(f"http://127.0.0.1:{server.port}") as client,
    ):
        phone = Phone(store, clock=lambda: NOON)
        phone.learn((f"app-00{n % 7:02d}", NOON - 5000 + n, 0) for n in range(40))
        phone.join(client, server.code(1))


def visit(path, client: Client, when: float = NOON) -> str:
    """What became of the report, by a process that has just started."""
    with client, Store(path) as store:
        return Phone(store).sync(client, when=when, now=True).report


def token_of(path) -> str:
    with Store(path) as store:
        return store.setting("token")


@pytest.mark.parametrize("call", ["renew", "confirm"])
@pytest.mark.parametrize("after", [False, True])
def test_a_phone_killed_in_between_goes_on_and_reports_once_a_round(tmp_path, call, after):
    with ServerProcess(tmp_path / "data") as server:
        url, path = f"http://127.0.0.1:{server.port}", tmp_path / "phone.db"
        joined(path, server)
        old = token_of(path)
        name = device_name(token_bytes(old))
        assert "1 device" in admin("rotate", server.folder)
        with pytest.raises(Killed):
            visit(path, Cut(url, call, after))  # its report was accepted before
        server.kill()
        server.start()
        assert visit(path, Client(url), NOON + 60) == "done"
        new = token_of(path)
        assert new != old
        assert close_round(server) == 1
        assert visit(path, Client(url), NOON + 120) == "accepted"
        assert visit(path, Client(url), NOON + 180) == "done"
        with Store(path) as store:
            assert [report.state for report in store.reports()] == ["accepted"] * 2
            assert store.ledger.spent(NOON).lifetime == 4.0  # two reports of ε 2
            assert store.setting("next_token") is None
        with closing(Vault(server.folder / "vault.sqlite")) as vault:
            assert [each.name for each in vault.devices.listing()] == [name]
            assert vault.devices.knows(token_bytes(new))
            assert not vault.devices.knows(token_bytes(old))


def test_an_answer_that_is_lost_leaves_the_phone_waiting_and_costs_nothing(tmp_path):
    """Which token counts is not known then: nothing is drawn with either."""
    with ServerProcess(tmp_path / "data") as server:
        url, path = f"http://127.0.0.1:{server.port}", tmp_path / "phone.db"
        joined(path, server)
        admin("rotate", server.folder)
        with pytest.raises(Killed):
            visit(path, Cut(url, "confirm", after=True))
        close_round(server)

        class Silent(Client):
            def confirm(self, token):

                raise Unreachable("no answer")

        assert visit(path, Silent(url), NOON + 60) == "later"
        with Store(path) as store:
            assert len(store.reports()) == 1
        assert visit(path, Client(url), NOON + 60) == "accepted"


def test_a_token_that_expired_is_renewed_and_locks_nobody_out(tmp_path):
    with ServerProcess(tmp_path / "data") as server:
        url, path = f"http://127.0.0.1:{server.port}", tmp_path / "phone.db"
        joined(path, server)
        (other,) = server.enrolled(1)
        admin("rotate", server.folder, "--days", 0)
        client = server.client()
        assert client.report(other, report_of(9, token=other)) == (401, "expired_token")
        # the phone was not told: its report is refused, it renews, and reports in the next round
        assert visit(path, Client(url)) == "refused"
        assert visit(path, Client(url), NOON + 60) == "done"
        with closing(Vault(server.folder / "vault.sqlite", busy_seconds=10)) as vault:
            vault.amend(RoundRules(10**6, 1, 1.0), time.time())
            one = vault.devices.enrol(vault.devices.issue_code(expires=1e12), time.time())
            text = token_text(one)
        assert client.report(text, report_of(3, token=text)) == (201, "accepted")
        close_round(server)
        assert visit(path, Client(url), NOON + 120) == "accepted"


def test_a_phone_that_knows_its_token_has_expired_renews_before_it_draws(tmp_path):
    """No ε is spent on a report that would be refused."""
    limits = {"token_burst": 1e9, "address_burst": 1e9, "token_valid_seconds": 3600.0}
    with ServerProcess(tmp_path / "data", limits=limits) as server:
        url, path = f"http://127.0.0.1:{server.port}", tmp_path / "phone.db"
        joined(path, server)
        old = token_of(path)
        with Store(path) as store:
            expires = store.setting("token_expires")
            assert expires == pytest.approx(time.time() + 3600, abs=60)
        assert visit(path, Client(url), expires + 1) == "renewed"
        assert token_of(path) != old
        with Store(path) as store:
            assert store.reports() == []
            assert store.ledger.spent(NOON).lifetime == 0


def test_tokens_are_renewed_in_the_last_quarter_of_their_time(tmp_path):
    limits = {"token_burst": 1e9, "address_burst": 1e9, "token_valid_seconds": 4000.0}
    with ServerProcess(tmp_path, limits=limits) as server:
        early, late = server.enrolled(2)
        with closing(sqlite3.connect(server.folder / "vault.sqlite")) as other:
            name = bytes.fromhex(device_name(token_bytes(late)))
            soon = time.time() + 900  # of 1,000
            other.execute("UPDATE devices SET expires = ? WHERE name = ?", (soon, name))
            other.commit()
        client = server.client()
        for device, (token, expected) in enumerate(((early, None), (late, True))):
            body, bearer = report_of(device, token=token), f"Bearer {token}"
            status, _, data = client.request("POST", "/v1/report", body, authorization=bearer)
            words = json.loads(data)
            assert (status, words.get("renew")) == (201, expected)
