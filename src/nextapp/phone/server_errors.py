"""What may go wrong with a server; apart from the client, whose imports are slow."""

from __future__ import annotations

_MOST_SHOWN = 1000


class ServerError(RuntimeError):
    """The server was not reached or did not do what was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Unreachable(ServerError):
    """No answer: no network, no server, a connection that broke off, a time limit."""


class Untrusted(ServerError):
    """The server's TLS certificate is not trusted, so nothing was sent."""


class Overloaded(ServerError):
    """The server asks to be left alone for a while: ``pause`` seconds, or None for no word."""

    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


class BadAnswer(ServerError):
    """An answer that is not of the protocol, or larger than any should be."""


class Refused(ServerError):
    """The server says no, and will say so again: its ``status``, ``code`` and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"the server refuses ({code}): {message}")
        self.status = status
        self.code = code


class NotAsPublished(ServerError):
    """The bytes of a broadcast are not those whose digest the server publishes."""


def printable(text: str) -> str:
    """Words with a server's in them, without what a screen or a database could stumble over."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_SHOWN])
