"""`read_log` against rows written by hand, and against Python's own csv and datetime modules."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextapp.data import loading
from nextapp.data.importers.content import BadRow, UnreadableLog
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog

REAL_LOGS = Path(__file__).parents[3] / "shared" / "data"

LSAPP = """\
user_id\tsession_id\ttimestamp\tapp_name\tevent_type
0\t1\t2018-01-16 06:01:05\tMinesweeper Classic (Mines)\tOpened
0\t1\t2018-01-16 06:01:05\tMinesweeper Classic (Mines)\tClosed
0\t1\t2018-01-16 06:02:00\tMaps\tOpened
7\t2\t2018-01-17 23:59:59\tMaps\tOpened
7\t2\t2018-01-18 00:00:00\tMaps\tUser Interaction
"""
LSAPP_LAUNCHES = [
    ("0", datetime(2018, 1, 16, 6, 1, 5, tzinfo=UTC), "Minesweeper Classic (Mines)"),
    ("0", datetime(2018, 1, 16, 6, 2, tzinfo=UTC), "Maps"),
    ("7", datetime(2018, 1, 17, 23, 59, 59, tzinfo=UTC), "Maps"),
]

TRACE = "1 20160420000501 35 9 1024\n1 20160420000502123 35 12 7\n2 201604200005025 36 9 0\n"
TRACE_LAUNCHES = [
    ("1", datetime(2016, 4, 20, 0, 5, 1, tzinfo=UTC), "9"),
    ("1", datetime(2016, 4, 20, 0, 5, 2, 123_000, tzinfo=UTC), "12"),
    ("2", datetime(2016, 4, 20, 0, 5, 2, 500_000, tzinfo=UTC), "9"),
]

TABLE = "user_id,timestamp,app_name\n"
ONE_LAUNCH = [("a", datetime(2018, 1, 16, 6, 1, 5, tzinfo=UTC), "Mail")]


def launches(log: LaunchLog) -> list[tuple[str, datetime, str]]:
    return [
        (log.users[user], datetime.fromtimestamp(ms / 1000, UTC), log.apps[app])
        for user, ms, app in zip(
            log.user.tolist(), log.time.tolist(), log.app.tolist(), strict=True
        )
    ]


def written(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    return path


def tar_gz(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    return path


# --- LSApp


def test_lsapp_keeps_opened_rows_only(tmp_path: Path) -> None:  # PAPER.md, R13
    log = read_log(written(tmp_path / "lsapp.tsv", LSAPP))
    assert launches(log) == LSAPP_LAUNCHES
    assert log.notes == (
        "rows read from lsapp.tsv as LSApp: 5",
        "rows of other events than openings, left out: 2",
        "times (UTC): 2018-01-16T06:01:05 to 2018-01-17T23:59:59",
    )


def test_the_published_lsapp_archive_is_a_tar_in_spite_of_its_name(tmp_path: Path) -> None:
    path = tar_gz(
        tmp_path / "lsapp.tsv.gz", {"._lsapp.tsv": "Mac OS X", "lsapp.tsv": LSAPP, "README": "?"}
    )
    assert launches(read_log(path)) == LSAPP_LAUNCHES


def test_a_plain_gzip_of_lsapp_loads_too(tmp_path: Path) -> None:
    path = written(tmp_path / "lsapp.tsv.gz", gzip.compress(LSAPP.encode()))
    assert launches(read_log(path)) == LSAPP_LAUNCHES


@pytest.mark.parametrize(
    ("members", "n"), [({"a.tsv": LSAPP, "b/c.tsv": LSAPP}, 2), ({"README": "nothing here"}, 0)]
)
def test_an_archive_must_hold_one_tsv(tmp_path: Path, members: dict[str, str], n: int) -> None:
    with pytest.raises(UnreadableLog, match=rf"one \.tsv file, got {n} among .*Unpack it"):
        read_log(tar_gz(tmp_path / "logs.tar.gz", members))


def test_a_damaged_archive_is_refused_even_where_its_rows_can_be_read(tmp_path: Path) -> None:
    """tarfile stops before the checksum of the gzip around it; `read_log` must not."""
    path = tar_gz(tmp_path / "lsapp.tsv.gz", {"lsapp.tsv": LSAPP})
    data = bytearray(path.read_bytes())
    data[-8] ^= 1  # the last eight bytes are CRC-32 and length
    with pytest.raises(UnreadableLog, match="damaged or cut short"):
        read_log(written(path, bytes(data)))


def test_a_row_that_is_no_launch_may_have_a_bad_time(tmp_path: Path) -> None:
    path = written(tmp_path / "lsapp.tsv", LSAPP + "7\t2\tnever\tMaps\tBroken\n")
    assert launches(read_log(path)) == LSAPP_LAUNCHES


def test_an_lsapp_table_without_launches_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "lsapp.tsv", LSAPP.replace("Opened", "Closed"))
    with pytest.raises(UnreadableLog, match=r"none of the 5 rows is a launch.*event_type"):
        read_log(path)


# --- App Usage


@pytest.mark.parametrize("separator", [" ", "\t"])
@pytest.mark.parametrize("name", ["App_usage_trace.txt", "renamed.dat"])
def test_the_app_usage_trace_has_no_header(tmp_path: Path, separator: str, name: str) -> None:
    log = read_log(written(tmp_path / name, TRACE.replace(" ", separator)))
    assert launches(log) == TRACE_LAUNCHES
    assert log.notes[0] == f"rows read from {name} as App Usage: 3"


def test_a_bad_first_line_of_the_app_usage_trace_can_be_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "App_usage_trace.txt", "1 20160420 35\n" + TRACE)
    with pytest.raises(BadRow, match=r"line 1, whole line: expected 5 fields .* got 3 in"):
        read_log(path)
    assert launches(read_log(path, skip_bad_rows=True)) == TRACE_LAUNCHES


def test_a_quote_in_the_app_usage_trace_is_a_character_like_any_other(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "t.txt", TRACE + '3 20160420000501 35 "x 1\n'))
    assert log.apps == ('"x', "12", "9")


# --- Tables


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("app_column", ["app_name", "item_id"])
def test_separator_line_end_and_compression_are_recognised(
    tmp_path: Path,
    separator: str,
    line_end: str,
    compress: Callable[[bytes], bytes],
    bom: str,
    app_column: str,
) -> None:
    rows = [["", app_column, "timestamp", "user_id"], ["0", "Mail", "2018-01-16 06:01:05", "a"]]
    text = bom + "".join(separator.join(row) + line_end for row in rows)
    assert launches(read_log(written(tmp_path / "log", compress(text.encode())))) == ONE_LAUNCH


@pytest.mark.parametrize(
    "time",
    [
        "2018-01-16 06:01:05",
        "2018-01-16T06:01:05",
        "2018-01-16T06:01:05Z",
        "2018-01-16 06:01:05.1239Z",
        "2018-01-16T06:01:05.5",
        "2018-01-16T06:01:05+02:00",
        "2018-01-16T06:01:05.123456-0930",
        "2018-01-16T06:01:05+14",
        "1970-01-01 00:00:00",
        "2100-01-01 00:00:00",
        "2016-02-29T23:59:59.999",
    ],
)
def test_iso_times_are_read_as_python_reads_them(tmp_path: Path, time: str) -> None:
    moment = datetime.fromisoformat(time)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    whole_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    log = read_log(written(tmp_path / "log.csv", f"{TABLE}a,{time},Mail\n"))
    assert log.time.tolist() == [whole_ms]


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        ("0", 0),
        ("1516082465", 1_516_082_465_000),
        (" 1516082465 ", 1_516_082_465_000),
        ("1516082465.001", 1_516_082_465_001),
        ("1516082465.9999", 1_516_082_465_999),
        ("1.516082465e+09", 1_516_082_465_000),
        ("1516082465001", 1_516_082_465_001),
        ("1516082465001.9", 1_516_082_465_001),
        ("20180116060105", 1_516_082_465_000),
    ],
)
def test_numbers_are_seconds_or_milliseconds_since_1970(tmp_path: Path, time: str, ms: int) -> None:
    log = read_log(written(tmp_path / "log.csv", f"{TABLE}a,{time},Mail\n"))
    assert log.time.tolist() == [ms]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", "who;when;what;user_id\na;2018-01-16 06:01:05;Mail;b\n")
    assert (
        launches(read_log(path, user_column="who", time_column="when", app_column="what"))
        == ONE_LAUNCH
    )


def test_rows_are_sorted_by_user_and_time_and_ties_keep_their_order(tmp_path: Path) -> None:
    rows = [
        ("2", 60, "Web"),
        ("10", 30, "Mail"),
        ("2", 50, "Tea"),
        ("2", 60, "Chat"),
        ("10", 30, "Cat"),
    ]
    body = "".join(f"{user},{time},{app}\n" for user, time, app in rows)
    log = read_log(written(tmp_path / "log.csv", TABLE + body))
    assert log.users == ("10", "2")  # names are strings, and so is their order
    assert log.apps == ("Cat", "Chat", "Mail", "Tea", "Web")
    assert [(user, moment.timestamp(), app) for user, moment, app in launches(log)] == [
        ("10", 30, "Mail"),
        ("10", 30, "Cat"),
        ("2", 50, "Tea"),
        ("2", 60, "Web"),
        ("2", 60, "Chat"),
    ]
    assert "users whose rows had to be sorted by time: 1" in log.notes


def test_interleaved_users_in_order_of_time_are_nothing_to_note(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", TABLE + "b,1,x\na,2,x\nb,3,x\na,4,x\n"))
    assert not any("sorted" in note for note in log.notes)


def test_exact_repeats_are_kept_and_counted(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", TABLE + "a,1,x\na,1,x\na,1,y\na,1,x\nb,1,x\n"))
    assert len(log) == 5
    assert "exact repeats of an earlier row, kept: 2" in log.notes


def test_a_file_cut_within_its_last_line_end_loads(tmp_path: Path) -> None:
    assert read_log(written(tmp_path / "log.csv", TABLE + "a,1,x\r\na,2,x\r")).apps == ("x",)


def test_empty_lines_are_passed_over_and_still_counted_as_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", "\n\n" + TABLE + "\na,1,x\n\r\n\nb,1,\n\n")
    with pytest.raises(BadRow, match="line 8, column app_name"):
        read_log(path)
    assert read_log(path, skip_bad_rows=True).notes[0] == "rows read from log.csv as CSV: 2"


def test_what_a_log_writes_loads_back_as_it_was(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log.csv", TABLE + 'a,1.007,"x,"""\nb,2,é\n'))
    for name in ("copy.csv", "copy.parquet"):
        log.write(tmp_path / name)
        assert launches(read_log(tmp_path / name)) == launches(log)


# --- Parquet


@pytest.mark.parametrize(
    "times",
    [
        pl.Series([datetime(2018, 1, 16, 6, 1, 5)], dtype=pl.Datetime("ns")),
        pl.Series([datetime(2018, 1, 16, 6, 1, 5)], dtype=pl.Datetime("us")),
        pl.Series([datetime(2018, 1, 16, 6, 1, 5)], dtype=pl.Datetime("ms")),
        pl.Series([datetime(2018, 1, 16, 8, 1, 5, tzinfo=timezone(timedelta(hours=2)))]),
        pl.Series([datetime(2018, 1, 16, 6, 1, 5)]).dt.replace_time_zone("Asia/Tokyo")
        + timedelta(hours=9),
        pl.Series([1_516_082_465]),
        pl.Series([1_516_082_465], dtype=pl.UInt32),
        pl.Series([1_516_082_465.0]),
        pl.Series(["2018-01-16T06:01:05Z"]),
        pl.Series(["1516082465"], dtype=pl.Categorical),
    ],
    ids=lambda times: str(times.dtype),
)
def test_parquet_may_hold_the_time_in_many_types(tmp_path: Path, times: pl.Series) -> None:
    frame = pl.DataFrame({"user_id": ["a"], "timestamp": times, "item_id": ["Mail"], "x": [0]})
    frame.write_parquet(tmp_path / "log")
    assert launches(read_log(tmp_path / "log")) == ONE_LAUNCH


def test_parquet_names_may_be_numbers_or_categories(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user_id": [10, 9], "timestamp": [1, 2], "app_name": ["x", "y"]})
    frame.cast({"app_name": pl.Categorical}).write_parquet(tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet")
    assert (log.users, log.apps) == (("10", "9"), ("x", "y"))


def test_lsapp_in_parquet_keeps_opened_rows_only(tmp_path: Path) -> None:
    pl.read_csv(LSAPP.encode(), separator="\t").write_parquet(tmp_path / "log.parquet")
    assert launches(read_log(tmp_path / "log.parquet")) == LSAPP_LAUNCHES


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("user_id", None, "row 2, column user_id: expected the name of a user, got None"),
        ("app_name", " ", "row 2, column app_name: expected the name of an app, got ' '"),
        ("timestamp", None, "row 2, column timestamp: expected a time such as .* got None"),
        ("timestamp", 2**62, "row 2, column timestamp: expected a time from 1970"),
    ],
)
def test_a_bad_parquet_row_is_named(
    tmp_path: Path, column: str, value: object, message: str
) -> None:
    frame = pl.DataFrame({"user_id": ["a", "b"], "timestamp": [1, 2], "app_name": ["x", "y"]})
    values = pl.Series([frame[column][0], value], dtype=frame.schema[column])
    frame.with_columns(values.alias(column)).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(BadRow, match=message):
        read_log(tmp_path / "log.parquet")
    assert len(read_log(tmp_path / "log.parquet", skip_bad_rows=True)) == 1


@pytest.mark.parametrize("year", [1969, 2101, 200_000])
def test_a_parquet_datetime_out_of_range_is_a_bad_row(tmp_path: Path, year: int) -> None:
    times = pl.Series([(year - 1970) * 31_556_952_000]).cast(pl.Datetime("ms"))
    frame = pl.DataFrame({"user_id": ["a"], "timestamp": times, "app_name": ["x"]})
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(BadRow, match="row 1, column timestamp: expected a time from 1970"):
        read_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("timestamp", [True], "datetimes, numbers or strings, got Boolean"),
        ("user_id", [["a"]], r"strings or integers, got List\(String\)"),
        ("app_name", [1.5], "strings or integers, got Float64"),
    ],
)
def test_parquet_columns_of_other_types_are_refused(
    tmp_path: Path, column: str, values: list[object], message: str
) -> None:
    frame = pl.DataFrame({"user_id": ["a"], "timestamp": [1], "app_name": ["x"]})
    frame.with_columns(pl.Series(column, values)).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(UnreadableLog, match=f"column {column} must have {message}"):
        read_log(tmp_path / "log.parquet")


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match="the table is damaged"):
        read_log(written(tmp_path / "log.parquet", b"PAR1 and then nothing PAR1"))


def test_a_wide_table_loads(tmp_path: Path) -> None:
    more = "".join(f",c{i}" for i in range(997))
    text = f'{TABLE.strip()}{more}\na,2018-01-16 06:01:05,"Mail"{more}\n'
    assert launches(read_log(written(tmp_path / "log.csv", text))) == ONE_LAUNCH


# --- Bad rows

BAD_ROWS = {
    "too few fields": (
        b"b,2",
        "line 3, whole line: expected 3 fields separated by ',', got 2 in 'b,2'",
    ),
    "too many fields": (
        b'b,2,"x,y",z',
        "line 3, whole line: expected 3 fields separated by ',', got 4 in",
    ),
    "no time": (b"b,yesterday,x", "line 3, column timestamp: expected a time such as"),
    "empty time": (b"b,,x", "line 3, column timestamp: .* got ''"),
    "not a number": (b"b,nan,x", "line 3, column timestamp: .* got 'nan'"),
    "no such day": (b"b,2018-02-29 00:00:00,x", "line 3, column timestamp: .* got '2018-02-29"),
    "no such minute": (b"b,2018-02-28 00:60:00,x", "line 3, column timestamp: expected a time"),
    "no leap second": (b"b,2016-12-31 23:59:60,x", "line 3, column timestamp: expected a time"),
    "loose ISO": (b"b,2018-1-6 6:1:5,x", "line 3, column timestamp: expected a time such as"),
    "other digits": ("b,٢٠١٨,x".encode(), "line 3, column timestamp: expected a time such as"),
    "before 1970": (
        b"b,1969-12-31 23:59:59,x",
        "column timestamp: expected a time from 1970-01-01",
    ),
    "negative": (b"b,-1,x", "line 3, column timestamp: expected a time from 1970-01-01"),
    "after 2100": (b"b,2100-01-01 00:00:00.001,x", "expected a time from 1970-01-01 to 2100-01-01"),
    "huge": (b"b,1e300,x", "expected a time from 1970-01-01 to 2100-01-01, got '1e300'"),
    "far digits": (b"b,29991231000000,x", "expected a time from 1970-01-01 to 2100-01-01"),
    "empty user": (b",2,x", "line 3, column user_id: expected the name of a user, got ''"),
    "quoted empty user": (b'"",2,x', "line 3, column user_id: expected the name of a user, got ''"),
    "empty app": (b"b,2,", "line 3, column app_name: expected the name of an app, got ''"),
    "blank app": (b"b,2, ", "line 3, column app_name: expected the name of an app, got ' '"),
    "not UTF-8": (
        b"b,2,\xc3\xa9caf\xe9",
        r"line 3, column app_name: expected text in UTF-8, got b'\\xc3\\xa9caf\\xe9",
    ),
    "open quote": (b'b,2,"x', "line 3, column app_name: expected a quote closed .* got '\"x'"),
    "text after a quote": (b'"b"c,2,x', "line 3, column user_id: expected a quote closed"),
    "line break in quotes": (b'b,2,"x\ny"', "line 3, column app_name: expected a quote closed"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, row: bytes, message: str) -> None:
    path = written(tmp_path / "log.csv", TABLE.encode() + b"a,1,x\n" + row + b"\na,3,y\n")
    with pytest.raises(BadRow, match=message) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert "--skip-bad-rows (in Python: skip_bad_rows=True)" in str(caught.value)
    assert "milliseconds" not in str(caught.value)
    log = read_log(path, skip_bad_rows=True)
    assert [(user, app) for user, _, app in launches(log)] == [("a", "x"), ("a", "y")]


def test_the_first_bad_row_is_the_one_named(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", TABLE + "a,1,x\na,never,x\na,1\n")
    with pytest.raises(BadRow, match="line 3, column timestamp"):
        read_log(path)


def test_what_came_is_shortened(tmp_path: Path) -> None:
    with pytest.raises(BadRow) as caught:
        read_log(written(tmp_path / "log.csv", f"{TABLE}a,{'never ' * 1000},x\n"))
    assert len(str(caught.value)) < 500


def test_skipped_rows_are_counted_by_reason(tmp_path: Path) -> None:
    body = b'a,1,x\n,1,x\na,1\na,never,x\na,soon,x\na,1,\xc3\xa9\xff\na,9e12,x\na,1,\na,1,"x\n'
    log = read_log(written(tmp_path / "log.csv", TABLE.encode() + body), skip_bad_rows=True)
    assert (
        "bad rows skipped: 8 (empty user: 1, wrong number of fields: 1, unreadable time: 2, "
        "not UTF-8: 1, time out of range: 1, empty app: 1, unbalanced quote: 1)"
    ) in log.notes


def test_bytes_that_are_not_utf8_spoil_their_own_line_only(tmp_path: Path) -> None:
    body = b"a,1,\xc3\na,2,\xa9\na,3,\xc3\xa9\n"
    log = read_log(written(tmp_path / "log.csv", TABLE.encode() + body), skip_bad_rows=True)
    assert log.apps == ("é",)


# --- Files that cannot be read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty. Give a log"),
        (b"\n\r\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (TABLE.encode(), "column names but no rows"),
        (TABLE.strip().encode(), "column names but no rows"),
        (
            gzip.compress(TABLE.encode() * 99, mtime=0)[:-9],
            "damaged or cut short .* Fetch it again",
        ),
        (b"\x1f\x8b and no more of it", "damaged or cut short"),
        (TABLE.encode("utf-16"), "column names but no rows"),
        (b"PK\x03\x04\xff\xfe\n", "this is a ZIP archive: unpack it"),
        (TABLE.replace("\n", "\r").encode() + b"a,1,x\r", "lone carriage return. Save the file"),
        (b"[" + b"1 " * 99_999 + b"]", "starts like JSON but is not valid"),
        (b"user_id,timestamp,app_name,user_id\n", "'user_id' occurs 2 times"),
        (b"," * 1_000, "up to 1,000 columns, got 1,001. Keep those of user, time and app"),
    ],
)
def test_an_unreadable_file_says_why(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path / "log", content)
    with pytest.raises(UnreadableLog, match=message) as caught:
        read_log(path, skip_bad_rows=True)
    assert str(path) in str(caught.value)


def test_parquet_without_rows_is_refused(tmp_path: Path) -> None:
    schema = {"user_id": pl.String, "timestamp": pl.Int64, "app_name": pl.String}
    pl.DataFrame(schema=schema).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(UnreadableLog, match="column names but no rows"):
        read_log(tmp_path / "log.parquet")


def test_a_log_of_bad_rows_only_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", TABLE + "a,never,x\n,1,x\n")
    with pytest.raises(UnreadableLog, match=r"all 2 rows were bad: .*Without --skip-bad-rows"):
        read_log(path, skip_bad_rows=True)


def test_a_missing_file_is_looked_for_under_a_near_name(tmp_path: Path) -> None:
    written(tmp_path / "lsapp.tsv", LSAPP)
    with pytest.raises(FileNotFoundError, match=r"no such file\. Did you mean lsapp\.tsv\?"):
        read_log(tmp_path / "LSApp.tvs")
    with pytest.raises(FileNotFoundError, match="Check the spelling"):
        read_log(tmp_path / "nowhere" / "log.csv")


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match=r"is a folder. Give the path of the log file"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("header", "columns", "parts"),
    [
        (
            "uid,timestamp,app_name",
            {},
            [
                "None is 'user_id'",
                "nearest name is 'uid'",
                "--user-column uid",
                "in Python: user_column='uid'",
            ],
        ),
        (
            "user_id,Time Stomp,app_name",
            {},
            ["None is 'timestamp'", "nearest name is 'Time Stomp'", "--time-column 'Time Stomp'"],
        ),
        (
            "user_id,timestamp,zzz",
            {},
            [
                "'user_id', 'timestamp', 'zzz'",
                "None is 'app_name' or 'item_id'",
                "--app-column NAME",
            ],
        ),
        ("user_id,timestamp,app_name", {"user_column": "usr"}, ["None is 'usr'"]),
        ("a,1,x", {}, ["If it has no header line, add one", "--app-column"]),
        (",".join(f"c{i}" for i in range(99)), {}, ["and 87 more"]),
    ],
)
def test_a_missing_column_is_named_with_its_remedy(
    tmp_path: Path, header: str, columns: dict[str, str], parts: list[str]
) -> None:
    with pytest.raises(UnreadableLog) as caught:
        read_log(written(tmp_path / "log.csv", header + "\na,1,x\n"), **columns)
    assert [part for part in parts if part not in str(caught.value)] == []


# --- Whatever Python's csv module writes and reads

names = st.text(
    st.one_of(
        st.sampled_from(",\t;\"' ab"), st.characters(codec="utf-8", exclude_characters="\r\n")
    ),
    min_size=1,
    max_size=8,
).filter(str.strip)
moments = st.datetimes(datetime(1970, 1, 1), datetime(2099, 12, 31))
rows_of_logs = st.lists(st.tuples(names, moments, names), min_size=1, max_size=12)


@settings(deadline=None, max_examples=200)
@given(
    rows=rows_of_logs,
    order=st.permutations(["user_id", "timestamp", "app_name", "extra"]),
    separator=st.sampled_from(",\t;"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    final_newline=st.booleans(),
    as_number=st.booleans(),
    block_bytes=st.sampled_from([7, 100, 1 << 23]),
)
def test_a_table_loads_as_python_reads_it(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, datetime, str]],
    order: list[str],
    separator: str,
    quoting: Literal[0, 1],
    line_end: str,
    final_newline: bool,
    as_number: bool,
    block_bytes: int,
) -> None:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(
        out, order, delimiter=separator, quoting=quoting, lineterminator=line_end
    )
    writer.writeheader()
    for user, moment, app in rows:
        time = repr(moment.replace(tzinfo=UTC).timestamp()) if as_number else moment.isoformat()
        writer.writerow({"user_id": user, "timestamp": time, "app_name": app, "extra": app})
    text = out.getvalue() if final_newline else out.getvalue().removesuffix(line_end)
    path = written(tmp_path_factory.getbasetemp() / "random.csv", text)

    def whole_ms(time: str) -> int:
        if as_number:
            return round(float(time) * 1e6) // 1000
        moment = datetime.fromisoformat(time)
        return (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)

    read = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    expected = [
        (row["user_id"].strip(" "), whole_ms(row["timestamp"]), row["app_name"].strip(" "))
        for row in read
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "BLOCK_BYTES", block_bytes)
        log = read_log(path)
    loaded = [
        (log.users[user], ms, log.apps[app])
        for user, ms, app in zip(log.user, log.time.tolist(), log.app, strict=True)
    ]
    assert loaded == sorted(expected, key=lambda row: row[:2])
    assert log.users == tuple(sorted({user for user, _, _ in expected}))
    assert log.apps == tuple(sorted({app for _, _, app in expected}))


@settings(deadline=None)
@given(
    lines=st.lists(st.text(st.sampled_from('ab1,"'), max_size=9), max_size=9),
    block_bytes=st.sampled_from([5, 1 << 23]),
)
def test_what_python_refuses_is_skipped(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], block_bytes: int
) -> None:
    """Good lines as csv in strict mode reads them, one line at a time; a sure row comes first."""
    expected = [("a", 1_000, "x")]
    for line in lines:
        try:
            fields = next(csv.reader([line], strict=True), [])
        except csv.Error:
            continue
        if len(fields) == 3 and fields[0] and set(fields[1]) == {"1"} and fields[2]:
            expected.append((fields[0], int(fields[1]) * 1000, fields[2]))
    path = written(tmp_path_factory.getbasetemp() / "bad.csv", "\n".join([TABLE + "a,1,x", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "BLOCK_BYTES", block_bytes)
        log = read_log(path, skip_bad_rows=True)
    loaded = [
        (log.users[user], ms, log.apps[app])
        for user, ms, app in zip(log.user, log.time.tolist(), log.app, strict=True)
    ]
    assert loaded == sorted(expected, key=lambda row: row[:2])


# --- Polars and the reader of lines

odd_values = st.sampled_from([
    "", " ", "a", " Mail", "é", "0", "1516082465", "1516082465.0015", "1516082465001", "5e9",
    "1e9", "-1", "9e12", "nan",
    "20180116060105", "20180116060105123", "2018-01-16 06:01:05", "2018-01-16T06:01:05.5Z",
    "2018-01-16 06:01:05.1239", "2018-02-29 00:00:00", "2018-01-16T06:01:05+02:00", "1.5.2018",
    '"x"', '"x', "x\ty", "Opened", "\r", "\0",
])  # fmt: skip
odd_lines = st.lists(st.lists(odd_values, min_size=2, max_size=5), max_size=6)
usual_times = st.one_of(
    st.integers(0, 4_102_444_800).map(str),
    st.floats(0, 4.1e9).map(repr).filter(lambda text: "e-" not in text),
    moments.map(str),
    moments.map(lambda moment: moment.isoformat() + "Z"),
    moments.map(lambda moment: moment.strftime("%Y%m%d%H%M%S")),
)


def outcome(path: Path, *, skip: bool) -> object:
    try:
        log = read_log(path, skip_bad_rows=skip)
    except ValueError as error:
        return str(error)
    return launches(log), log.time.tolist(), log.users, log.apps, sorted(log.notes)


@settings(deadline=None, max_examples=300)
@given(
    usual=st.lists(st.tuples(names, usual_times, names), max_size=4),
    odd=odd_lines,
    header=st.sampled_from([TABLE, "user_id,timestamp,app_name,event_type\n"]),
    event=st.sampled_from(["Opened", "Closed"]),
    skip=st.booleans(),
    block_bytes=st.sampled_from([9, 60, 1 << 23]),
)
def test_polars_and_the_reader_of_lines_agree_on_any_table(
    tmp_path_factory, usual, odd, header, event, skip, block_bytes
) -> None:
    rows = [[user.replace(",", ";").replace('"', "'"), time, app.replace(",", ";")]
            for user, time, app in usual]  # fmt: skip
    rows = [row + [event] * ("event" in header) for row in rows] + odd
    text = header + "\n".join(",".join(row) for row in rows)
    path = written(tmp_path_factory.getbasetemp() / "both.csv", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "BLOCK_BYTES", block_bytes)
        found = outcome(path, skip=skip)
        patch.setattr(loading, "_cut_at_once", lambda *_: None)
        assert found == outcome(path, skip=skip)


@settings(deadline=None, max_examples=100)
@given(
    times=st.one_of(
        st.lists(st.floats(0, 5e9) | st.just(float("nan")), min_size=1, max_size=5),
        st.lists(st.integers(-5, 2**62), min_size=1, max_size=5),
        st.lists(usual_times | odd_values, min_size=1, max_size=5),
    ),
)
def test_both_read_the_same_times_from_parquet(tmp_path_factory, times) -> None:
    path = tmp_path_factory.getbasetemp() / "both.parquet"
    frame = pl.DataFrame({"user_id": ["a"] * len(times), "timestamp": times})
    frame.with_columns(app_name=pl.lit("x")).write_parquet(path)
    found = []
    for at_once in (loading._launches_at_once, lambda *_: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "_launches_at_once", at_once)
            try:
                found.append(read_log(path, skip_bad_rows=True).time.tolist())
            except UnreadableLog as error:
                found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("text", [LSAPP, TRACE, TABLE + "a,2018-01-16 06:01:05.5,x\r\n"])
def test_usual_tables_are_read_by_polars_alone(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setattr(loading.lines, "_row", None)
    assert len(read_log(written(tmp_path / "log", text))) > 0


# --- Real logs


@pytest.mark.parametrize(
    ("name", "n_users", "n_apps", "n_launches"),
    [("epm.csv.gz", 115, 80, 177_148), ("schonlau.csv.gz", 50, 635, 250_000)],
)
def test_real_logs_load_whole(name: str, n_users: int, n_apps: int, n_launches: int) -> None:
    if not (REAL_LOGS / name).exists():
        pytest.skip(f"{name} is not beside the repository")
    log = read_log(REAL_LOGS / name)
    assert (log.n_users, log.n_apps, len(log)) == (n_users, n_apps, n_launches)


ROWS = {
    "user_id": ["a", "b", "a"],
    "timestamp": [datetime(2026, 1, 1, 10, minute) for minute in (2, 1, 0)],
    "app_name": ["Mail", "Maps", "Chat"],
}


def by_hand(log: LaunchLog) -> list[tuple[str, int, str]]:
    return [
        (log.users[user], time, log.apps[app])
        for user, time, app in zip(log.user, log.time.tolist(), log.app, strict=True)
    ]


TEN = 1_767_261_600_000  # 2026-01-01 10:00 UTC


def test_a_frame_of_polars_is_a_log():
    found = by_hand(read_log(pl.DataFrame(ROWS)))
    assert found == [("a", TEN, "Chat"), ("a", TEN + 120_000, "Mail"), ("b", TEN + 60_000, "Maps")]
    assert by_hand(read_log(pl.DataFrame(ROWS).lazy())) == found
    numbered = pl.DataFrame(ROWS).with_columns(pl.col("timestamp").dt.epoch("s"))
    assert by_hand(read_log(numbered)) == found


def test_a_frame_of_pandas_is_a_log_without_pyarrow():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    log = read_log(frame)
    assert by_hand(log) == by_hand(read_log(pl.DataFrame(ROWS)))
    assert by_hand(read_log(frame.set_index("timestamp"))) == by_hand(log)
    aware = frame.assign(timestamp=frame["timestamp"].dt.tz_localize("Europe/Berlin"))
    assert read_log(aware).time.min() == TEN - 3_600_000  # Berlin is an hour ahead
    assert by_hand(read_log(log.to_pandas())) == by_hand(log)
    with pytest.raises(BadRow, match="row 2, column app_name: expected the name of an app"):
        read_log(frame.assign(app_name=["Mail", None, "Chat"]))


@pytest.mark.parametrize("source", [None, 3, ["Mail", "Maps"]])
def test_what_is_neither_path_nor_frame_is_refused_in_words(source):
    with pytest.raises(TypeError, match="read_log takes a path or a data frame of Polars"):
        read_log(source)


def test_a_frame_without_the_columns_says_which_are_missing():
    with pytest.raises(UnreadableLog, match="the data frame: the columns are 'when', 'app_name'"):
        read_log(pl.DataFrame({"when": [1], "app_name": ["Mail"]}))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"when": [1], "app_name": ["Mail"]}, "with time_column='when'"),
        ({"timestamp": ["noon"], "app_name": ["Mail"]}, "with skip_bad_rows=True"),
        ({"timestamp": ["3/4/2024 10:00"], "app_name": ["Mail"]}, "Say it: dates='day/month'"),
        ({"timestamp": [True], "app_name": ["Mail"]}, "with time_column="),
        ({"timestamp": [], "app_name": []}, "column names but no rows"),
        ({}, "there are no columns"),
    ],
)
def test_of_a_frame_no_option_of_a_command_is_advised(frame, words):
    with pytest.raises(UnreadableLog) as caught:
        read_log(pl.DataFrame(frame))
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_date_in_a_frame_is_its_midnight():
    days = pl.DataFrame({"timestamp": [date(2024, 3, 4)], "app_name": ["Mail"]})
    texts = pl.DataFrame({"timestamp": ["3/4/2024 0:00"], "app_name": ["Mail"]})
    assert by_hand(read_log(days)) == by_hand(read_log(texts, dates="month/day"))
