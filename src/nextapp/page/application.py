"""The page's web application: its static files, its API, and the server that shows it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import webbrowser
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from nextapp import __version__
from nextapp.page import crowd_room, log_room
from nextapp.page.crowd_room import CrowdRoom
from nextapp.page.log_room import PersonLog
from nextapp.page.phone_room import EPSILON, PERSON, PhoneSession, person_of_log, synthetic_person
from nextapp.page.security import Guard, forward_to, patient_protocol

Handler = Callable[[Request], Awaitable[Response]]
Work = Callable[[dict[str, Any]], Any]

OnPhone = Callable[[PhoneSession, dict[str, Any]], str | None]
ON_PHONE: tuple[tuple[str, OnPhone], ...] = (
    ("tap", lambda phone, given: phone.tap(str(given["app"]))),
    ("wait", lambda phone, given: phone.wait(float(given["hours"]))),
    ("leave-out", lambda phone, given: phone.leave_out(str(given["app"]), given.get("hours"))),
    ("play", lambda phone, given: phone.play(int(given["n"]))),
    ("report", lambda phone, given: phone.report()),
)
"""What can be done on a phone, with a sentence on what came of it, if there is one."""

HOST = "127.0.0.1"
MOST_BODY = 64 << 10  # largest body of a request, in bytes, except uploads
MOST_PHONES = 6  # largest number of open phones; the least recently used one is closed
_EXAMPLE = 4  # the synthetic person whose log is the example
_STATIC = Path(__file__).with_name("static")


class Page:
    """The state of the page, and the threads that compute for it: one for the phones, one for the
    crowd, one for logs, so that a large file does not hold up a phone."""

    def __init__(
        self,
        log: PersonLog | None = None,
        crowd: CrowdRoom | None = None,
    ) -> None:
        self._phones: OrderedDict[str, PhoneSession] = OrderedDict()
        self._left_out: dict[int | str, dict[int, float]] = {}  # of a synthetic person or a log's
        self._log = log
        self._portrait: dict[str, Any] | None = None
        self._crowd = crowd or CrowdRoom()
        self._quick = ThreadPoolExecutor(1, "page-phone")
        self._slow = ThreadPoolExecutor(1, "page-crowd")
        self._reader = ThreadPoolExecutor(1, "page-log")

    def application(self) -> Starlette:
        posts: dict[str, tuple[Executor, Work]] = {
            "/api/phone/new": (self._quick, self._new_phone),
            **{f"/api/phone/{name}": (self._quick, self._on_phone(do)) for name, do in ON_PHONE},
            "/api/crowd": (self._slow, self._answer_crowd),
            "/api/log/example": (self._reader, self._take_example),
            "/api/log/user": (self._reader, self._choose_user),
            "/api/log/forget": (self._reader, self._forget_log),
        }

        @asynccontextmanager
        async def lifespan(_: Starlette) -> Any:
            yield
            await self._in(self._quick, self._close)
            self._quick.shutdown(cancel_futures=True)
            self._slow.shutdown(wait=False, cancel_futures=True)
            self._reader.shutdown(wait=False, cancel_futures=True)

        return Starlette(
            routes=[
                Route("/", _file("index.html")),
                Route("/favicon.ico", _file("favicon.svg")),  # pages without an icon ask so
                Mount("/static", StaticFiles(directory=_STATIC)),
                Route("/api/about", self._about),
                Route(
                    "/api/log", self._answering(self._reader, self._current_log), methods=["GET"]
                ),
                Route("/api/log", self._upload, methods=["POST"]),
                *(
                    Route(path, self._answering(executor, work), methods=["POST"])
                    for path, (executor, work) in posts.items()
                ),
            ],
            lifespan=lifespan,
        )

    # --- answers

    def _answering(self, executor: Executor, work: Work) -> Handler:
        """A handler that gives the request's JSON object to `work`, in a thread of `executor`."""

        async def answer(request: Request) -> Response:
            try:
                given = await _read_json(request) if request.method == "POST" else {}
                return JSONResponse(await self._in(executor, work, given))
            except (ValueError, TypeError, KeyError) as error:
                return _refusal(error)

        return answer

    async def _in(self, executor: Executor, work: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(executor, work, *given)

    async def _about(self, _: Request) -> Response:
        return JSONResponse(
            {
                "version": __version__,
                "has_log": self._log is not None,
                "people": PERSON.phones,
                "phones": list(crowd_room.PHONES),
                "epsilons": list(crowd_room.EPSILONS),
                "epsilon": EPSILON,
                "most_bytes": log_room.MOST_BYTES,
            }
        )

    # --- phone

    def _new_phone(self, given: dict[str, Any]) -> dict[str, Any]:
        who = given.get("number", 0)
        if given.get("source") == "log":
            if self._log is None:
                raise ValueError("there is no log yet: drop one under Your log.")
            log = self._log
            who = log.user
            name = log.name if len(log.users) == 1 else f"{log.user} in {log.name}"
            person = person_of_log(name, log.launches, log.is_synthetic)
        elif isinstance(who, int) and 0 <= who < PERSON.phones:
            person = synthetic_person(who)
        else:
            raise ValueError(f"number must be from 0 to {PERSON.phones - 1}, got {who!r:.40}.")
        session = PhoneSession(person, self._left_out.setdefault(who, {}))
        self._phones[session.id] = session
        while len(self._phones) > MOST_PHONES:
            self._phones.popitem(last=False)[1].close()
        return session.state()

    def _on_phone(self, do: OnPhone) -> Work:
        """What does this on the open phone that a request names; its state afterwards."""

        def work(given: dict[str, Any]) -> dict[str, Any]:
            session = self._phones.get(str(given.get("id")))
            if session is None:
                raise ValueError("this phone was closed: reload the page.")
            self._phones.move_to_end(session.id)
            return session.state(do(session, given) or "")

        return work

    # --- crowd

    def _answer_crowd(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._crowd.answer(int(given["phones"]), float(given["epsilon"]))

    # --- log

    async def _upload(self, request: Request) -> Response:
        """Upload a file into memory, up to a size limit."""
        words = "a file may have up to {} here; `nextapp data convert` reads up to 256 MiB."
        try:
            data = await _read_body(request, log_room.MOST_BYTES, words)
            return JSONResponse(
                await self._in(self._reader, self._take_log, data, dict(request.query_params))
            )
        except ClientDisconnect:
            return Response(status_code=400)
        except ValueError as error:
            return _refusal(error)

    def _take_log(self, data: bytes, given: dict[str, str]) -> Any:
        dates = log_room.DATES.get(given.get("first", ""))
        content = log_room.upload(data, given.get("name", "")[:200], dates)
        return self._show_log(log_room.read_log(content, given.get("zone")))

    def _choose_user(self, given: dict[str, Any]) -> Any:
        if self._log is None or self._log.found is None:
            raise ValueError("there is no log with several people: drop one here.")
        return self._show_log(log_room.from_import(self._log.found, self._log.name, given["user"]))

    def _take_example(self, _: dict[str, Any]) -> Any:
        """The log of a synthetic person, for those who have no export."""
        person = synthetic_person(_EXAMPLE)
        return self._show_log(log_room.of_person(person.name, person.launches))

    def _show_log(self, log: PersonLog) -> Any:
        self._portrait = log_room.portrait(log)
        if self._log is not None and log.found is not self._log.found:
            self._quick.submit(self._forget_what_was_left_out).result()
        self._log = log
        return self._portrait

    def _current_log(self, _: dict[str, Any]) -> Any:
        """The current log's portrait, or None; that of the log the page began with is made here."""
        if self._log is not None and self._portrait is None:
            self._show_log(self._log)
        return self._portrait

    def _forget_log(self, _: dict[str, Any]) -> dict[str, Any]:
        self._log = self._portrait = None
        self._quick.submit(self._close_phones_of_logs).result()
        return {}

    def _forget_what_was_left_out(self) -> None:
        """By the persons of a log."""
        self._left_out = {who: apps for who, apps in self._left_out.items() if type(who) is int}

    def _close_phones_of_logs(self) -> None:
        self._forget_what_was_left_out()
        for key in [key for key, each in self._phones.items() if each.person.from_log]:
            self._phones.pop(key).close()

    def _close(self) -> None:
        for session in self._phones.values():
            session.close()
        self._phones.clear()


def _file(name: str) -> Handler:
    async def answer(_: Request) -> Response:
        return FileResponse(_STATIC / name)

    return answer


async def _read_body(request: Request, most: int, words: str) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise ValueError(
                words.format(f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes")
            )
    return bytes(data)


async def _read_json(request: Request) -> dict[str, Any]:
    data = await _read_body(request, MOST_BODY, "a request may have up to {}.")
    try:
        given = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("a request must be JSON.") from None
    if not isinstance(given, dict):
        raise ValueError("a request must be a JSON object.")
    return given


def _refusal(error: Exception) -> Response:
    """An error message for the user; it is not an HTTP error."""
    words = f"a request must have {error}." if isinstance(error, KeyError) else str(error)
    return JSONResponse({"error": words})


# --- served on loopback


class ServedPage:
    def __init__(self, listening: socket.socket, page: Page, folder: Path) -> None:
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        self.guard = Guard(page.application(), self.port)
        origin = f"http://{HOST}:{self.port}"
        self.address = f"{origin}/?ticket={self.guard.ticket}"
        self.file = folder / "nextapp.html"
        self.file.touch(0o600)
        self.file.write_text(forward_to(f"{origin}/?token={self.guard.token}"), "utf-8")
        config = uvicorn.Config(
            self.guard,
            http=patient_protocol(),
            log_level="error",  # what strangers do wrong is not logged
            ws="none",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)

    def show(self) -> None:
        """Open the browser, if there is a screen; its command line names only the file."""
        has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if has_screen or sys.platform in ("darwin", "win32"):
            webbrowser.open(self.file.as_uri())

    def run(self) -> None:
        self.server.run(sockets=[self._listening])


@contextmanager
def open_page(port: int = 0, page: Page | None = None) -> Iterator[ServedPage]:
    """The page on a port of loopback; 0 means any free port."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise ValueError(
                f"port {port} of {HOST} cannot be used ({error.strerror}): choose another by "
                f"--port; 0 takes a free one."
            ) from None
        listening.listen(64)  # a browser that connects before the server is ready waits
        with TemporaryDirectory(prefix="nextapp-open-") as folder:
            yield ServedPage(listening, page or Page(), Path(folder))
    finally:
        listening.close()
