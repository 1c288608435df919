"""Runs the parts in worker processes; a finished part is not run again.

Each result is written atomically to its own file, with the fingerprint of its inputs. A killed run
can therefore be resumed with the parts that are missing.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from nextapp.storage import write_atomically
from nextapp.studies.reproduce.plan import Part
from nextapp.studies.reproduce.running import run_part
from nextapp.studies.settings import versions

PartProgress = Callable[[str, str, int, int], None]
"""Called with a part, what it is doing, and how much of that is done, of how much."""
_POLL_SECONDS = 0.5
_messages: SimpleQueue[tuple[str, str, int, int]]  # of a worker process, to the main process


def result_file(folder: Path, name: str) -> Path:
    return folder / "parts" / f"{name}.json"


def finished_record(folder: Path, part: Part) -> dict[str, Any] | None:
    """The record of a part that was run with exactly these settings, data and code, or None."""
    try:
        record = json.loads(result_file(folder, part.name).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return record if record.get("fingerprint") == part.fingerprint else None


def run_missing(
    parts: Sequence[Part],
    folder: Path,
    jobs: int,
    report: PartProgress = lambda part, what, done, total: None,
) -> dict[str, dict[str, Any]]:
    """Run the parts that are not finished; return the records of all."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    missing = [part for part in parts if finished_record(folder, part) is None]
    for part in parts:
        if part not in missing:
            report(part.name, "finished before", 1, 1)
    if missing:
        missing.sort(key=lambda part: -part.seconds)  # longest first balances the workers
        _run(missing, folder, min(jobs, len(missing)), report)
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    records = {part.name: finished_record(folder, part) for part in parts}
    return {name: record for name, record in records.items() if record is not None}


def _run(parts: Sequence[Part], folder: Path, jobs: int, report: PartProgress) -> None:
    context = multiprocessing.get_context("spawn")
    messages: SimpleQueue[tuple[str, str, int, int]] = context.SimpleQueue()
    pool = ProcessPoolExecutor(jobs, context, _begin_worker, (messages, os.getpid()))
    try:
        with deaf_to_ctrl_c():  # starts the processes
            running = {pool.submit(_run_and_record, part, folder): part.name for part in parts}
        while running:
            finished, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            while not messages.empty():
                report(*messages.get())
            for future in finished:
                _raise_with_name(running[future], future)
                report(running.pop(future), "done", 1, 1)
    finally:
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown()


def _raise_with_name(name: str, future: Future[None]) -> None:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        raise ChildProcessError(
            "a process that ran a part was killed. Finished parts are kept: run the same command "
            "again to run the others."
        )
    if isinstance(error, ValueError | OSError):
        raise ValueError(f"{name}: {error}")
    if error is not None:
        raise RuntimeError(f"{name} failed:\n{error.__cause__ or error}")


# --- in a worker process ----------------------------------------------------------------------


def _begin_worker(messages: SimpleQueue[tuple[str, str, int, int]], parent: int) -> None:
    """Keep the queue of messages, and end this process soon after its parent has ended."""
    global _messages  # noqa: PLW0603 - a pool hands queues to its processes only when they begin
    _messages = messages

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_and_record(part: Part, folder: Path) -> None:
    last = [0.0]

    def report(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] > 0.1 or done == 0:
            last[0] = now
            _messages.put((part.name, what, done, total))

    report("starting", 0, 0)
    scratch = folder / "scratch" / part.fingerprint[:16]
    scratch.mkdir(parents=True, exist_ok=True)
    start, worked = time.perf_counter(), time.process_time()
    result = run_part(part, scratch, report)
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
        "about": part.about,
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


# --- Ctrl-C -----------------------------------------------------------------------------------


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started here do not get Ctrl-C, which a terminal sends to all of them.

    The process that starts them gets it at the end of the block: a start that was interrupted
    would leave a child that finds half of what it was sent.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "pthread_sigmask") or not on_main_thread:  # Windows has no masks
        yield
        return
    pressed = threading.Event()
    # Children inherit the mask. It does not keep another thread from taking the signal, upon which
    # Python would interrupt this one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if pressed.is_set():
        raise KeyboardInterrupt
