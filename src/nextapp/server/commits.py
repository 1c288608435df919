"""Group commit: one thread writes all reports that wait in one transaction, then answers all."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable

from nextapp.server.database import VaultError
from nextapp.server.vault import Outcome, Submission, Vault

_MOST_AT_ONCE = 1000

_Waiting = tuple[Submission, "asyncio.Future[Outcome]"]


class Full(RuntimeError):
    """More reports wait for the disk than may."""


class GroupCommit:
    """Reports on their way to a vault. While one transaction syncs, the next ones gather.

    Parameters
    ----------
    observe
        Called on the event loop with the number of reports and the seconds of each transaction.
    """

    def __init__(
        self, vault: Vault, most_waiting: int, observe: Callable[[int, float], None]
    ) -> None:
        self._vault = vault
        self._most_waiting = most_waiting
        self._observe = observe
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="group commit", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        return self._queue.qsize()

    def submit(self, submission: Submission) -> asyncio.Future[Outcome]:
        """What became of a report, known when it is on disk; or a `VaultError`."""
        if self._queue.qsize() >= self._most_waiting:
            raise Full("too many reports wait for the disk.")
        answer: asyncio.Future[Outcome] = self._loop.create_future()
        self._queue.put((submission, answer))
        return answer

    def stop(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            batch: list[_Waiting] = []
            first = self._queue.get()
            going = first is not None
            if first is not None:
                batch.append(first)
            while going and len(batch) < _MOST_AT_ONCE:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    going = False
                else:
                    batch.append(more)
            if batch:
                self._write(batch)

    def _write(self, batch: list[_Waiting]) -> None:
        start = time.perf_counter()
        result: list[Outcome] | Exception
        try:
            result = self._vault.admit([submission for submission, _ in batch])
        except Exception as error:  # of any kind: those who wait need an answer
            result = error if isinstance(error, VaultError) else VaultError(repr(error))
        seconds = time.perf_counter() - start
        self._loop.call_soon_threadsafe(self._answer, batch, result, seconds)

    def _answer(
        self, batch: list[_Waiting], result: list[Outcome] | Exception, seconds: float
    ) -> None:
        self._observe(len(batch), seconds)
        for place, (_, answer) in enumerate(batch):
            if answer.done():  # the client has gone
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result[place])
