"""One file: what it keeps, whatever happens to the process, the disk or the power."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nextapp.phone import Limits
from nextapp.phone.ledger import (
    Amounts,
    BudgetSpent,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
)
from nextapp.phone.store import (
    VERSION,
    AlreadyDrawn,
    OtherVersion,
    Store,
    StoredBroadcast,
    TooSoon,
)
from nextapp.wire import Report

NOON = 1_790_000_000.0


def fill(store: Store, n: int, start: int = 0) -> None:
    for number in range(start, start + n):
        store.add(f"app {number % 7}", NOON + number)


def clocks(store: Store) -> list[float]:
    return [launch.clock for launch in store.launches()]


def copy_of(store: Store, folder: Path) -> Path:
    """The file and its WAL as they are, as after a kill."""
    for name in (store.path.name, f"{store.path.name}-wal"):
        shutil.copy(store.path.with_name(name), folder / name)
    return folder / store.path.name


def test_launches_come_back_in_the_order_they_came_whatever_the_clock_said(store):
    given = [("chat", NOON), ("mail", NOON + 5), ("chat", NOON - 9e6), ("карта 🗺", NOON)]
    for name, clock in given:
        store.add(name, clock, zone=3600)
    store.close()
    with Store(store.path) as again:
        assert [(name, clock, zone) for _, _, clock, zone, name in again.launches()] == [
            (name, clock, 3600) for name, clock in given
        ]


@pytest.mark.parametrize(
    ("name", "clock", "zone"),
    [
        ("", NOON, 0),
        ("x" * 256, NOON, 0),
        ("new\nline", NOON, 0),
        ("nul\0", NOON, 0),
        ("\ud800", NOON, 0),
        ("ok", float("nan"), 0),
        ("ok", -1.0, 0),
        ("ok", 1e300, 0),
        ("ok", NOON, 90_000),
    ],
)
def test_what_is_no_launch_is_refused_and_leaves_nothing(store, name, clock, zone):
    with pytest.raises(ValueError, match="must"):
        store.add(name, clock, zone)
    assert store.launches() == []
    assert store.names == {}


def test_the_file_is_its_owners_alone(store):
    fill(store, 1)
    for file in store.path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0


def test_a_store_is_never_made_over_another_nor_out_of_nothing(store, tmp_path):
    fill(store, 3)
    with pytest.raises(StoreError, match="there already"):
        Store.create(store.path, lifetime=99.0, per_day=99.0)
    assert len(store.launches()) == 3
    with pytest.raises(StoreError, match="missing or empty"):
        Store(tmp_path / "other.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="missing or empty"):
        Store(tmp_path / "empty.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_other_files_are_refused_and_left_as_they_are(tmp_path):
    text = tmp_path / "text.db"
    text.write_bytes(b"my diary, page 1\n" * 500)
    with pytest.raises(StoreDamaged):
        Store(text)
    assert text.read_bytes() == b"my diary, page 1\n" * 500
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE settings (name, value)")
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match="something else"):
        Store(foreign)
    assert foreign.read_bytes() == before


def test_a_file_from_before_the_first_release_is_refused_in_words_and_left_as_it_is(store):
    """Its limits name mechanisms that mean something else today."""
    fill(store, 3)
    store._connection.execute(f"PRAGMA user_version = {VERSION - 1}")
    store.close()
    before = store.path.read_bytes()
    with pytest.raises(OtherVersion, match=r"reads version.*export --format csv"):
        Store(store.path)
    assert store.path.read_bytes() == before


def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(store):
    fill(store, 3)
    store._connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    store.close()
    before = store.path.read_bytes()
    with pytest.raises(OtherVersion, match=f"version {VERSION + 1}, but this program reads"):
        Store(store.path)
    assert store.path.read_bytes() == before


@contextmanager
def forked(work):
    """A process that does `work(acknowledge)` until it is killed; gives its pid and its words."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda number: os.write(writing, b"%d\n" % number))
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading) as words:
        yield child, words
        words.read()
    os.waitpid(child, 0)


def write_on_and_on(path, acknowledge) -> None:
    store = Store(path, flush_after=0.01)
    held = store.launches()
    number = int(held[-1].clock) + 1 if held else 1
    while True:
        store.add(f"app {number % 50}", float(number))
        acknowledge(number)
        number += 1


def test_a_kill_at_any_moment_loses_no_launch_that_was_acknowledged(store, seed):
    """12 kills by SIGKILL, the store used on and on."""
    store.close()
    chance = random.Random(seed)
    for _ in range(12):
        with forked(lambda acknowledge: write_on_and_on(store.path, acknowledge)) as (child, words):
            lines = [words.readline() for _ in range(chance.randrange(1, 600))]
            os.kill(child, signal.SIGKILL)
            lines += words.read().splitlines()
        acknowledged = int(lines[-1])
        with Store(store.path) as after:
            held = clocks(after)
        assert held == list(range(1, len(held) + 1))  # every one once, in order
        assert acknowledged <= len(held) <= acknowledged + 1  # one may have been on its way
    assert acknowledged > 1000


def test_a_wal_cut_by_a_power_failure_holds_a_prefix_with_all_that_was_flushed(
    tmp_path, seed, monkeypatch
):
    """The disk has what was synced, and any part of what was not, whole or as garbage."""
    store = Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0, flush_after=None)
    synced = [0]
    true_fsync = os.fsync

    def fsync(handle):
        synced[0] = os.fstat(handle).st_size
        true_fsync(handle)

    fill(store, 40)
    monkeypatch.setattr(os, "fsync", fsync)
    store.flush()
    monkeypatch.undo()
    fill(store, 60, start=40)
    whole = Path(f"{store.path}-wal").read_bytes()
    assert 32 < synced[0] < len(whole)
    chance = random.Random(seed)
    cuts = [synced[0], len(whole), *(chance.randrange(32, len(whole)) for _ in range(60))]
    lengths = set()
    for cut in cuts:
        folder = tmp_path / f"cut {cut}"
        folder.mkdir()
        path = copy_of(store, folder)
        garbage = chance.randbytes(chance.choice([0, 100, 5000]))
        Path(f"{path}-wal").write_bytes(whole[:cut] + garbage)
        with Store(path) as after:
            held = clocks(after)
            assert held == [NOON + number for number in range(len(held))]
            if cut >= synced[0]:
                assert len(held) >= 40
            after.add("app 0", NOON + 1e6)  # and it goes on
            assert len(after.launches()) == len(held) + 1
        lengths.add(len(held))
    assert {40, 100} <= lengths
    assert len(lengths) > 10
    store.close()


def test_a_power_failure_while_the_wal_is_written_anew_keeps_all_that_was_flushed(tmp_path, seed):
    """After a checkpoint the WAL is overwritten from its start; the disk may hold old and new."""
    store = Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0, flush_after=None)
    wal = Path(f"{store.path}-wal")
    fill(store, 200)
    busy, frames, copied = store._connection.execute("PRAGMA wal_checkpoint").fetchone()
    assert (busy, frames) == (0, copied)
    old = wal.read_bytes()
    fill(store, 30, start=200)
    store.flush()
    flushed = wal.read_bytes()
    synced = 1 + max(at for at in range(len(old)) if old[at] != flushed[at])
    fill(store, 40, start=230)
    new = wal.read_bytes()
    assert synced < len(new) == len(old)  # it was written anew, not longer
    chance = random.Random(seed)
    lengths = set()
    for cut in (synced, *(chance.randrange(synced, len(new)) for _ in range(25))):
        folder = tmp_path / f"cut {cut}"
        folder.mkdir(exist_ok=True)
        path = copy_of(store, folder)
        Path(f"{path}-wal").write_bytes(new[:cut] + old[cut:])
        with Store(path) as after:
            held = clocks(after)
        assert held == [NOON + number for number in range(len(held))]
        assert len(held) >= 230
        lengths.add(len(held))
    assert len(lengths) > 5
    store.close()


def test_launches_reach_the_disk_by_themselves_soon_after(tmp_path, monkeypatch):
    reached = threading.Event()
    true_fsync = os.fsync
    with Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0, flush_after=0.05) as store:
        monkeypatch.setattr(os, "fsync", lambda handle: (true_fsync(handle), reached.set()))
        store.add("chat", NOON)
        assert reached.wait(60.0)
        monkeypatch.undo()


def test_a_disk_that_fails_to_sync_is_told_at_the_next_launch(tmp_path, monkeypatch):
    store = Store.create(tmp_path / "phone.db", lifetime=1.0, per_day=1.0, flush_after=0.01)
    failed = threading.Event()

    def fsync(handle):
        failed.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    store.add("chat", NOON)
    assert failed.wait(60.0)
    while store._failed is None:  # the thread is about to note it
        time.sleep(0.001)
    with pytest.raises(StoreFull, match="Input/output"):
        store.add("chat", NOON)
    monkeypatch.undo()
    store.flush()
    store.close()


def draw_on_and_on(path, acknowledge) -> None:
    store = Store(path)
    number = len(store.reports())
    while True:
        report = Report("harmony", number, bytes(8))
        store.charge_report("https://server", report, 0.001, NOON)
        number += 1
        acknowledge(number)


def test_a_kill_at_any_moment_leaves_every_drawn_report_charged_and_every_charge_with_its_bytes(
    tmp_path, seed
):
    path = tmp_path / "phone.db"
    Store.create(path, lifetime=1000.0, per_day=1000.0).close()
    chance = random.Random(seed)
    for _ in range(12):
        with forked(lambda acknowledge: draw_on_and_on(path, acknowledge)) as (child, words):
            words.readline()
            threading.Event().wait(chance.uniform(0, 0.06))
            os.kill(child, signal.SIGKILL)
            rest = words.read().splitlines()
        with Store(path) as store:
            reports, charges = store.reports(), store.ledger.entries()
            assert [report.round for report in reports] == [charge.round for charge in charges]
            assert all(report.data for report in reports)
            assert not rest or len(reports) >= int(rest[-1])
            assert store.ledger.spent(NOON).lifetime == pytest.approx(0.001 * len(reports))
    assert len(reports) >= 12


def test_a_round_is_drawn_and_charged_once(store):
    report = Report("harmony", 7, b"first")
    drawn = store.charge_report("https://a", report, 0.5, NOON)
    with pytest.raises(AlreadyDrawn):
        store.charge_report("https://a", Report("harmony", 7, b"second"), 0.5, NOON)
    assert store.reports() == [drawn]
    assert store.ledger.spent(NOON).lifetime == 0.5
    assert Report.from_bytes(drawn.data) == report


def test_a_budget_that_is_spent_leaves_no_report(store):
    store.charge_report("https://a", Report("harmony", 1, b""), 2.0, NOON)
    with pytest.raises(BudgetSpent):
        store.charge_report("https://a", Report("harmony", 2, b""), 0.1, NOON)
    assert [report.round for report in store.reports()] == [1]


def test_a_settled_report_keeps_its_line_and_loses_its_bytes(store):
    drawn = store.charge_report("https://a", Report("harmony", 7, b"secret bytes"), 0.5, NOON)
    store.begin_sending(drawn)
    store.settle(drawn, "accepted", "", NOON + 1)
    (settled,) = store.reports()
    assert settled == drawn._replace(data=None, attempts=1, state="accepted", settled=NOON + 1)
    assert store.reports(state="drawn") == []


def test_a_full_disk_is_an_error_and_nothing_is_half_written(store):
    """SQLite's limit on pages stands for the disk: SQLITE_FULL comes as from a full one."""
    fill(store, 20)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    store.keep_snapshot(20, b"s")
    with pytest.raises(StoreFull, match="make room"):
        store.keep_broadcast(StoredBroadcast(1, "", "", NOON, bytes(1 << 20)))
    assert store.broadcast() is None
    assert store.snapshot() == (20, b"s")
    with pytest.raises(StoreFull):
        fill(store, 10_000, start=20)
    held = clocks(store)
    assert held == [NOON + number for number in range(len(held))]
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.keep_broadcast(StoredBroadcast(1, "", "", NOON, bytes(1 << 20)))
    assert store.snapshot() == (20, b"s")
    fill(store, 5, start=len(held))
    assert len(store.launches()) == len(held) + 5


def test_a_write_that_the_system_refuses_is_an_error_and_what_was_kept_stays(store):
    """The system's own limit on the size of a file: write() fails in the middle of the WAL."""
    fill(store, 20)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = Path(f"{store.path}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30_000, before[1]))
    try:
        with pytest.raises(StoreFull, match="cannot be written"):
            fill(store, 1000, start=20)
        held = clocks(store)
        with pytest.raises(StoreFull):
            store.charge_report("https://a", Report("harmony", 7, bytes(100_000)), 0.5, NOON)
        assert clocks(store) == held == [NOON + number for number in range(len(held))]
        assert 20 < len(held) < 1000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.reports() == []
    assert store.ledger.entries() == []
    fill(store, 5, start=len(held))
    store.close()
    with Store(store.path) as again:
        assert clocks(again) == [NOON + number for number in range(len(held) + 5)]


def test_a_full_disk_charges_nothing_for_a_report_that_could_not_be_kept(store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store.ledger.spent(NOON)
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="cannot be written"):
        store.charge_report("https://a", Report("harmony", 7, bytes(100_000)), 0.5, NOON)
    assert store.reports() == []
    assert store.ledger.entries() == []


def test_a_store_locked_by_another_is_waited_for_and_then_told(tmp_path):
    path = tmp_path / "phone.db"
    with Store.create(path, lifetime=1.0, per_day=1.0, patience=0.05) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="another process"):
            store.add("chat", NOON)
        with pytest.raises(StoreBusy):
            store.merge([("chat", NOON, 0)])
        with pytest.raises(StoreBusy):
            store.charge_report("https://a", Report("harmony", 7, b""), 0.5, NOON)
        assert store.launches() == []
        assert store.reports() == []
        other.execute("COMMIT")
        other.close()
        store.add("chat", NOON)
        assert len(store.launches()) == 1


def test_two_processes_write_one_history(store):
    with Store(store.path) as other:
        for number in range(50):
            (store, other)[number % 2].add(f"app {number % 9}", NOON + number)
        before = store.foreign_changes
        other.add("app 0", NOON + 50)
        assert store.foreign_changes != before
        assert clocks(store) == clocks(other) == [NOON + number for number in range(51)]


def test_an_app_that_another_process_forgot_is_written_under_a_number_of_its_own(store):
    store.add("chat", NOON)
    with Store(store.path) as other:
        other.drop_app("chat")
    launch = store.add("chat", NOON + 1)
    assert store.names == {"chat": launch.app}
    assert launch.app != 1


def test_merging_sorts_by_clock_and_counts_a_launch_once(store):
    store.add("chat", NOON + 10)
    given = [("mail", NOON + 20, 0), ("maps", NOON, 60), ("chat", NOON + 10, 0)]
    assert store.merge(given) == 2
    assert store.merge(given) == 0
    assert [launch.name for launch in store.launches()] == ["maps", "chat", "mail"]
    numbers = [launch.number for launch in store.launches()]
    assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_a_clock_is_kept_as_a_written_time_keeps_it(store):
    clocks_given = [1790000000.1234567, 1790000000.9999999, 0.1 + 0.2, 253_402_214_400.0]
    for clock in clocks_given:
        held = store.add("chat", clock).clock
        written = datetime.fromtimestamp(held, UTC).isoformat()
        assert datetime.fromisoformat(written).timestamp() == held
        assert abs(held - clock) <= 5e-7


def test_merging_takes_all_or_nothing(store):
    with pytest.raises(ValueError, match="must"):
        store.merge([("mail", NOON, 0), ("", NOON, 0)])
    assert store.launches() == []


def test_the_file_stops_growing_when_as_much_is_dropped_as_is_added(store):
    sizes = []
    for block in range(40):
        fill(store, 500, start=500 * block)
        store.drop_before(store.launches()[-1].number - 999)
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes.append(store.path.stat().st_size)
    assert len(store.launches()) == 1000
    assert max(sizes[10:]) == max(sizes[3:10])
    grown = sizes[-1]
    store.drop_before(1 << 60)
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert store.path.stat().st_size < grown
    assert store._connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert store.names == {}


def traces(store: Store, needle: bytes) -> list[str]:
    return [file.name for file in store.path.parent.iterdir() if needle in file.read_bytes()]


def test_erasing_leaves_no_byte_of_the_history_in_any_file(store):
    for number in range(300):
        store.add(f"zweisamkeit-{number % 30}", NOON + number)
    store.keep_snapshot(300, b"gewohnheit" * 100)
    store.charge_report("https://a", Report("harmony", 3, b"ein Bericht"), 0.5, NOON)
    store.keep_broadcast(StoredBroadcast(3, "", "", NOON, b"rundfunk" * 1000))
    needles = (b"zweisamkeit", b"gewohnheit", b"ein Bericht", b"rundfunk")
    for needle in needles:
        assert traces(store, needle)
    store.erase(NOON)
    for needle in needles:
        assert traces(store, needle) == []
    assert store.ledger.spent(NOON).lifetime == 0.5
    (report,) = store.reports()
    assert (report.state, report.data) == ("withdrawn", None)
    assert store.window > 0


def test_an_app_that_is_gone_leaves_no_trace_and_no_launch(store):
    fill(store, 70)
    store.add("zweisamkeit", NOON)
    assert store.drop_app("zweisamkeit") == 1
    assert traces(store, b"zweisamkeit") == []
    assert len(store.launches()) == 70
    assert store.drop_app("zweisamkeit") == 0


def test_erasing_says_so_where_another_process_keeps_old_pages(store):
    fill(store, 10)
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM launches").fetchone()
    store._connection.execute("PRAGMA busy_timeout = 20")
    with pytest.raises(StoreBusy, match="again"):
        store.erase(NOON)
    reader.close()
    store.erase(NOON)
    assert traces(store, b"app 3") == []


def test_a_damaged_ledger_is_not_a_fresh_budget(store):
    store.charge_report("https://a", Report("harmony", 1, b""), 0.5, NOON)
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("DROP TRIGGER privacy_ledger_never_forgets")
        connection.execute("DELETE FROM privacy_ledger WHERE kind = 'charge'")
        connection.execute("DROP TRIGGER privacy_ledger_is_never_changed")
        connection.execute("UPDATE privacy_ledger SET lifetime = 99000000000")
    connection.close()
    with Store(store.path) as again, pytest.raises(StoreDamaged):
        again.charge_report("https://a", Report("harmony", 2, b""), 0.5, NOON)


def test_limits_are_lowered_at_once_and_raised_only_on_purpose(store):
    store.limit(Limits(lifetime=5.0))
    looser = (
        Limits(lifetime=6.0),
        Limits(lifetime=5.0, per_report=2.0),
        Limits(lifetime=5.0, hours=1.0),
        Limits(lifetime=5.0, mechanisms=("kashin",)),
    )
    for limits in looser:
        with pytest.raises(ValueError, match="would allow more"):
            store.limit(limits)
        assert store.limits == Limits(lifetime=5.0)
    store.limit(looser[0], loosen=True)
    assert store.limits == looser[0]
    assert store.ledger.left(NOON).lifetime == 6.0
    assert "raised 1 time" in store.ledger.statement(NOON)
    store.limit(Limits(lifetime=6.0, hours=48.0, mechanisms=("walsh",)))
    with Store(store.path) as again:
        assert again.limits == Limits(lifetime=6.0, hours=48.0, mechanisms=("walsh",))


def test_an_old_copy_that_is_put_back_is_seen_and_what_it_lacks_counts_as_spent(store):
    old = store.path.read_bytes()
    for round_ in (1, 2):
        store.charge_report("https://a", Report("harmony", round_, b""), 0.5, NOON)
    store.close()
    for rest in ("-wal", "-shm"):
        store.path.with_name(store.path.name + rest).unlink(missing_ok=True)
    store.path.write_bytes(old)
    with Store(store.path) as restored:
        assert restored.ledger.spent(NOON) == Amounts(1.0, 1.0)
        assert "restored from an older copy 1 time" in restored.ledger.statement(NOON)
        assert [(r.round, r.state) for r in restored.reports()] == [(2, "lost")]
        with pytest.raises(AlreadyDrawn):  # a second payload for the latest round
            restored.charge_report("https://a", Report("harmony", 2, b""), 0.5, NOON)
        with pytest.raises(TooSoon):
            restored.charge_report(
                "https://a", Report("harmony", 3, b""), 0.5, NOON + 60, hours=20.0
            )
        restored.charge_report("https://a", Report("harmony", 3, b""), 0.5, NOON)
        assert restored.ledger.spent(NOON).lifetime == 1.5
    with Store(store.path) as again:  # and it is not counted twice
        assert again.ledger.spent(NOON).lifetime == 1.5


def test_an_old_copy_gives_no_second_daily_budget(store):
    """Yesterday's file put back today: what was spent today is spent."""
    store.charge_report("https://a", Report("harmony", 1, b""), 0.5, NOON - 86_400)
    store.close()
    old = store.path.read_bytes()
    for round_ in (2, 3, 4):
        with Store(store.path) as today:
            today.charge_report("https://a", Report("harmony", round_, b""), 0.5, NOON)
        for rest in ("-wal", "-shm"):
            store.path.with_name(store.path.name + rest).unlink(missing_ok=True)
        store.path.write_bytes(old)
    with Store(store.path) as today:
        assert today.ledger.spent(NOON).today == 1.5
        assert today.ledger.spent(NOON).lifetime == 2.0


def test_the_witness_can_lie_elsewhere_and_belongs_to_one_store(tmp_path):
    outside = tmp_path / "no backup" / "witness"
    outside.parent.mkdir()
    with Store.create(tmp_path / "a.db", witness=outside) as store:
        store.charge_report("https://a", Report("harmony", 1, b""), 0.5, NOON)
    assert outside.exists()
    with Store.create(tmp_path / "b.db", witness=outside) as other:
        assert other.ledger.spent(NOON).lifetime == 0.0  # another phone's record
    identity = json.loads(outside.read_text())["store"]
    nonsense = ("NaN", "-1", '"x"', "[]", "1e999", '9, "drawn": 1e300', '9, "server": 7')
    written = [f'{{"store": "{identity}", "spent": {each}}}'.encode() for each in nonsense]
    for damaged in (b"", b"{", b"[1]", b'{"store": 3, "spent": "x"}', *written):
        outside.write_bytes(damaged)
        with Store(tmp_path / "a.db") as store:
            assert store.ledger.spent(NOON).lifetime == 0.5


def test_nothing_is_drawn_where_the_witness_cannot_be_written(tmp_path):
    with Store.create(tmp_path / "a.db", witness=tmp_path / "missing" / "witness") as store:
        with pytest.raises(StoreFull, match="Nothing was sent"):
            store.charge_report("https://a", Report("harmony", 1, b""), 0.5, NOON)
        assert store.ledger.spent(NOON).lifetime == 0.5  # counted all the same
