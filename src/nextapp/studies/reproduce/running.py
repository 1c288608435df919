"""Parts played one after the other or side by side; a finished part is never played again.

Each result is a file of its own, written whole or not at all, with the fingerprint of what decided
it. A run that was killed therefore goes on part by part.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from nextapp.storage import write_atomically
from nextapp.studies.processes import end_with
from nextapp.studies.reproduce.plan import ORDER, Part
from nextapp.studies.reproduce.players import played
from nextapp.studies.settings import versions

Heard = Callable[[str, str, int, int], None]


def result_file(folder: Path, name: str) -> Path:
    return folder / "parts" / f"{name}.json"


def finished(folder: Path, part: Part) -> dict[str, Any] | None:
    """The record of a part that was played with just these settings, data and code."""
    try:
        record = json.loads(result_file(folder, part.name).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return record if record.get("fingerprint") == part.fingerprint else None


def play_missing(
    parts: Sequence[Part],
    folder: Path,
    jobs: int,
    heard: Heard = lambda part, what, done, total: None,
) -> dict[str, dict[str, Any]]:
    """Play the parts that are not finished; the records of all."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    ordered = sorted(parts, key=lambda part: ORDER.index(part.name))
    todo = []
    for part in ordered:
        if finished(folder, part) is None:
            todo.append(part)
        else:
            heard(part.name, "finished before", 1, 1)
    if todo:
        _play(todo, folder, min(jobs, len(todo)), heard)
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    records = {part.name: finished(folder, part) for part in parts}
    return {name: record for name, record in records.items() if record is not None}


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    part: Part | None = None


def _play(todo: list[Part], folder: Path, jobs: int, heard: Heard) -> None:
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, str(folder), os.getpid()))
            process.start()
            there.close()
            workers.append(_Worker(process, here))
            _hand_out(workers[-1], todo, heard)
        while busy := [worker for worker in workers if worker.part is not None]:
            for ready in wait([worker.connection for worker in busy]):
                worker = next(one for one in busy if one.connection is ready)
                _listen(worker, todo, heard)
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()


def _hand_out(worker: _Worker, todo: list[Part], heard: Heard) -> None:
    worker.part = todo.pop(0) if todo else None
    worker.connection.send(worker.part)
    if worker.part is not None:
        heard(worker.part.name, "starting", 0, 0)


def _listen(worker: _Worker, todo: list[Part], heard: Heard) -> None:
    name = worker.part.name if worker.part else ""
    try:
        kind, *said = worker.connection.recv()
    except EOFError:
        worker.process.join()
        raise RuntimeError(
            f"the process that played {name} ended with code {worker.process.exitcode}; what was "
            f"finished is kept, so the same command goes on from there."
        ) from None
    if kind == "heard":
        heard(name, *said)
    elif kind == "done":
        heard(name, "done", 1, 1)
        _hand_out(worker, todo, heard)
    elif kind == "refused":
        raise ValueError(f"{name}: {said[0]}")
    else:
        raise RuntimeError(f"{name} failed:\n{said[0]}")


def _work(connection: Connection, folder: str, parent: int) -> None:
    """What a worker does: play what it is handed, until there is nothing left."""
    end_with(parent)
    while (part := connection.recv()) is not None:
        try:
            _record(part, Path(folder), connection)
        except (ValueError, OSError) as error:
            connection.send(("refused", str(error)))
        except Exception:  # whatever it is, the command must say it
            connection.send(("failed", traceback.format_exc()))
        else:
            connection.send(("done",))


def _record(part: Part, folder: Path, connection: Connection) -> None:
    last = [0.0]

    def report(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] > 0.1 or done == 0:
            last[0] = now
            connection.send(("heard", what, done, total))

    scratch = folder / "scratch" / part.fingerprint[:16]
    scratch.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    result = played(part, scratch, report)
    record = record_of(part, result, time.perf_counter() - start)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_atomically(result_file(folder, part.name), text.encode())
    shutil.rmtree(scratch)


def record_of(part: Part, result: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "part": part.name,
        "kind": part.kind,
        "title": part.title,
        "fingerprint": part.fingerprint,
        "quick": part.quick,
        "seed": part.seed,
        "settings": dict(part.settings),
        "seconds": round(seconds, 1),
        "versions": versions(),
        "result": finite(result),
    }


def finite(value: Any) -> Any:
    """Plain values as JSON can hold them: what is not a finite number is None."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
