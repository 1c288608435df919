"""What the server takes from inside uvicorn. Its next version may have it no longer."""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
import tomllib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nextapp.page.security import patient_protocol
from nextapp.server.listening import ServerLimits, _Beside, _Server, limited_protocol
from nextapp.server.operator import Metrics

ROOT = Path(__file__).parents[2]
PROTOCOLS = [limited_protocol(ServerLimits(), Metrics()), patient_protocol()]


def test_versions_of_uvicorn_that_were_not_tried_are_not_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = (each for each in extras["optional-dependencies"]["serve"] if "uvicorn" in each)
    least, above = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", line).groups()
    newest = re.search(r"^uvicorn==0\.(\d+)\.", (ROOT / "constraints.txt").read_text(), re.M)[1]
    assert int(above) == int(newest) + 1  # the newest that all tests ran with
    assert int(least) <= int(version("uvicorn").split(".")[1]) < int(above)


@pytest.mark.parametrize("made", PROTOCOLS, ids=lambda made: made.__name__)
def test_the_protocols_methods_that_are_overridden_are_there(made):
    ours = {name: each for name, each in vars(made).items() if inspect.isfunction(each)}
    overridden = {name for name in ours if not name.startswith("_") or name == "__init__"}
    assert len(overridden) >= 4
    for name in overridden - {"__init__"}:
        theirs = inspect.signature(getattr(HttpToolsProtocol, name))
        assert list(inspect.signature(ours[name]).parameters) == list(theirs.parameters), name
    taken = inspect.signature(HttpToolsProtocol.__init__).parameters
    assert {"config", "server_state", "app_state"} <= set(taken)


def test_the_servers_methods_that_are_overridden_are_there():
    for made, names in ((_Server, ("startup", "shutdown")), (_Beside, ("serve",))):
        for name in names:
            method = getattr(uvicorn.Server, name)
            assert inspect.iscoroutinefunction(method)
            assert getattr(made, name)
            assert list(inspect.signature(method).parameters) == ["self", "sockets"]


def test_a_connection_has_what_is_read_of_it():
    """One request, driven by hand: attributes of a connection and of its request, and when."""
    seen: list[tuple[str, bool, bool, bool]] = []

    async def app(scope, receive, send):
        note("asked")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        note("started")
        await send({"type": "http.response.body", "body": b"x" * 10})

    def note(when):
        cycle = connection.cycle
        seen.append((when, cycle.more_body, cycle.response_started, cycle.response_complete))

    async def drive():
        nonlocal connection
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        config.load()
        assert callable(config.get_loop_factory)
        assert config.http_protocol_class is HttpToolsProtocol
        server = uvicorn.Server(config)
        assert (server.started, server.should_exit) == (False, False)
        server.lifespan = config.lifespan_class(config)
        made = PROTOCOLS[0]
        connection = made(
            config=config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
            free=lambda: seen.append(("freed", False, False, False)),
        )
        transport = Transport()
        connection.connection_made(transport)
        assert connection.transport is transport
        assert connection.loop is asyncio.get_running_loop()
        assert connection.cycle is None
        connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert isinstance(connection.cycle, RequestResponseCycle)
        while not connection.cycle.response_complete:
            await asyncio.sleep(0)
        note("answered")
        assert transport.written.startswith(b"HTTP/1.1 200")
        connection.data_received(b"no HTTP\r\n\r\n")  # reaches send_400_response
        assert transport.written.count(b"HTTP/1.1 400") == 1
        assert transport.closed
        cycle = connection.cycle
        assert cycle.disconnected is False
        connection.connection_lost(None)
        assert cycle.disconnected is True

    connection = None
    asyncio.run(drive())
    assert seen == [
        ("asked", False, False, False),
        ("started", False, True, False),
        ("answered", False, True, True),
        ("freed", False, False, False),
    ]


def test_an_error_raised_while_a_head_is_parsed_is_the_parsers_to_catch():
    """So a head that is too long is refused in the middle of it."""
    limits = ServerLimits(head_bytes=100)

    async def never(scope, receive, send):
        raise AssertionError

    async def drive():
        config = uvicorn.Config(never, ws="none", lifespan="off", log_config=None)
        config.load()
        state = uvicorn.Server(config).server_state
        connection = limited_protocol(limits, Metrics())(
            config=config, server_state=state, app_state={}, free=bool
        )
        transport = Transport()
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\nlong: " + b"x" * 200 + b"\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 431")
        assert transport.closed
        connection.connection_lost(None)

    asyncio.run(drive())


def test_a_signal_that_was_captured_is_not_raised_again():
    async def app(scope, receive, send): ...

    server = _Server(uvicorn.Config(app, lifespan="off", log_config=None))
    before = signal.getsignal(signal.SIGTERM)
    with suppress(KeyboardInterrupt), server.capture_signals():
        assert signal.getsignal(signal.SIGTERM) == server.handle_exit
        signal.raise_signal(signal.SIGTERM)
        assert server.should_exit
        assert server._captured_signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before  # and this process lives


class Transport:
    """What a protocol writes."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data):
        self.written += data

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close

    def get_extra_info(self, name):
        return None

    def pause_reading(self): ...

    def resume_reading(self): ...

    def set_protocol(self, protocol): ...
