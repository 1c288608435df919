"""Runs the parts, one by one or in parallel; a finished part is not run again.

Each result is written atomically to its own file, with the fingerprint of its inputs. A killed run
can therefore be resumed with the parts that are missing.
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
from nextapp.studies.processes import deaf_to_ctrl_c, end_with, received
from nextapp.studies.reproduce.plan import Part
from nextapp.studies.reproduce.players import play_part
from nextapp.studies.settings import versions

Heard = Callable[[str, str, int, int], None]


def result_file(folder: Path, name: str) -> Path:
    return folder / "parts" / f"{name}.json"


def finished_record(folder: Path, part: Part) -> dict[str, Any] | None:
    """The record of a part that was run with exactly these settings, data and code, or None."""
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
    """Run the parts that are not finished; return the records of all."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    ordered = sorted(parts, key=lambda part: -part.seconds)  # longest first balances the workers
    todo = []
    for part in ordered:
        if finished_record(folder, part) is None:
            todo.append(part)
        else:
            heard(part.name, "finished before", 1, 1)
    if todo:
        _play(todo, folder, min(jobs, len(todo)), heard)
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    records = {part.name: finished_record(folder, part) for part in parts}
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
            with deaf_to_ctrl_c():
                process = context.Process(target=_work, args=(there, str(folder), os.getpid()))
                process.start()
                workers.append(_Worker(process, here))
            there.close()
            _hand_out(workers[-1], todo, heard)
        while busy := [worker for worker in workers if worker.part is not None]:
            for ready in wait([worker.connection for worker in busy]):
                worker = next(worker for worker in busy if worker.connection is ready)
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
            f"the process that ran {name} ended with exit code {worker.process.exitcode}. "
            f"Finished parts are kept: run the same command again to go on."
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
    """The loop of a worker process: run the parts it receives until it receives None."""
    end_with(parent)
    for part in received(connection):
        try:
            _record(part, Path(folder), connection)
        except (ValueError, OSError) as error:
            connection.send(("refused", str(error)))
        except Exception:  # the command shows any error to the user
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
    start, worked = time.perf_counter(), time.process_time()
    result = play_part(part, scratch, report)
    record = record_of(part, result, time.perf_counter() - start, time.process_time() - worked)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_atomically(result_file(folder, part.name), text.encode())
    shutil.rmtree(scratch)


def record_of(
    part: Part, result: Mapping[str, Any], seconds: float, processor_seconds: float = 0.0
) -> dict[str, Any]:
    return {
        "part": part.name,
        "base": part.base,
        "kind": part.kind,
        "title": part.title,
        "fingerprint": part.fingerprint,
        "quick": part.quick,
        "seed": part.seed,
        "settings": dict(part.settings),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "versions": versions(),
        "result": finite(result),
    }


def finite(value: Any) -> Any:
    """The value for JSON: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
