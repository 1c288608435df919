"""What a coordinator asks of gateways far away, and what a gateway's vault answers.

A letter opens a round, asks for its count, or closes it. Each can be sent again, also after a crash
on either side, and gets the same answer.

Also what a gateway is known by: to the coordinator, to its SuperLink (a key and a number), and to a
proxy in front of it (the letter that its tokens begin with).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nextapp.privacy import requested_mechanism
from nextapp.server.devices import new_token
from nextapp.server.federation import check_vault
from nextapp.server.vault import GATEWAY_ID, TOKEN_LETTER, Reduced, Round, RoundRules, Vault
from nextapp.wire import Broadcast

_NUMBER = "node-number"


@dataclass(frozen=True)
class Letter:
    """What a coordinator asks about a round.

    open: hand this broadcast to phones and take their reports, by these rules.
    count: how many reports are there? The round's deadline may have moved.
    close: take no more reports for this round, and give their sum.
    """

    kind: Literal["open", "count", "close"]
    round: Round
    rules: RoundRules | None = None
    broadcast: bytes = b""

    def words(self) -> dict[str, Any]:
        """Plain values of one level, as Flower carries them."""
        found: dict[str, Any] = {
            "round": self.round.number,
            "opened": self.round.opened,
            "deadline": self.round.deadline,
            "extensions": self.round.extensions,
        }
        if self.rules is not None:
            found |= asdict(self.rules) | {"broadcast": self.broadcast}
        return found

    @classmethod
    def of(cls, kind: Any, words: Mapping[str, Any]) -> Letter:
        """The letter with these `words`."""
        round = Round(
            words["round"], words["opened"], words["deadline"], extensions=words["extensions"]
        )
        if kind != "open":
            return cls(kind, round)
        rules = RoundRules(words["goal"], words["minimum"], words["seconds"])
        return cls(kind, round, rules, words["broadcast"])


@dataclass(frozen=True)
class Answer:
    """Of one gateway, known by `gateway`; with the sum of the round if that was asked for."""

    gateway: str
    n_reports: int
    closed: bool
    reduced: Reduced | None = None


class Refused(RuntimeError):
    """A gateway that cannot do what a letter asks, and why."""


def answer(letter: Letter, vault: Vault, gateway: str) -> Answer:
    """Do what a letter asks of a gateway's vault. `Refused` where the round is not the vault's."""
    number = letter.round.number
    if letter.rules is not None:
        _open(letter, letter.rules, vault)
    round = vault.round()
    if round is None or round.number != number:
        at = "has had no round yet" if round is None else f"is at round {round.number}"
        raise Refused(f"gateway {gateway} {at}, and was asked about round {number}.")
    if letter.kind == "count" and letter.round.deadline != round.deadline:
        vault.extend(letter.round)
    if letter.kind == "close":
        reduced = _reduce_round(number, vault)
        return Answer(gateway, reduced.n_reports, True, reduced)
    return Answer(gateway, round.n_reports, round.closed)


def _open(letter: Letter, rules: RoundRules, vault: Vault) -> None:
    number, latest = letter.round.number, vault.round()
    if latest is not None and latest.number < number:
        # Its coordinator went on without these reports, so they are in no step.
        _reduce_round(latest.number, vault)
    if latest is not None and latest.number > number:
        raise Refused(
            f"the vault {vault.path} has seen round {latest.number}, so round {number} cannot "
            f"open: phones refuse broadcasts older than the one they hold. Restore the newest "
            f"checkpoint, or let the coordinator skip to round {latest.number + 1}."
        )
    vault.publish(letter.round, letter.broadcast, rules)
    vault.amend(rules, letter.round.opened)
    if vault.broadcast() != letter.broadcast:
        raise Refused(
            f"the vault {vault.path} has handed out another broadcast for round {number}: this "
            f"coordinator is not the one that opened it. Let it skip to round {number + 1}."
        )


def _reduce_round(number: int, vault: Vault) -> Reduced:
    data = vault.broadcast()
    broadcast = None if data is None else Broadcast.from_bytes(data)
    if broadcast is None or broadcast.round != number:
        raise Refused(f"round {number} is not the round of the vault {vault.path}.")
    vault.close_round(number)
    return vault.reduce(number, requested_mechanism(broadcast))


def gateway_identity(data: Path) -> str:
    """What a gateway is known by: random, made once, kept in its folder.

    So a gateway that comes back under another address or node number is not counted twice.
    """
    path = data / GATEWAY_ID
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(identity := secrets.token_hex(8))
    return identity


def node_key(path: Path) -> tuple[Path, Path]:
    """(private, public) key files of a node, made if they are not there: ECDSA on P-384, OpenSSH.

    The private one stays on the node, readable by its owner only; the public one is registered at
    the SuperLink.
    """
    public = path.with_name(f"{path.name}.pub")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        open_half = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        public.write_bytes(open_half + b"\n")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
    return path, public


def note_node_number(data: Path, number: int) -> None:
    """Keep the number by which Flower knows the node of a gateway, in the gateway's folder."""
    if node_number(data) != number:
        (data / _NUMBER).write_text(f"{number}\n", encoding="ascii")


def node_number(data: Path) -> int | None:
    """What was noted last; None where the node has had no message yet."""
    try:
        return int((data / _NUMBER).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def keep_letter(data: Path, given: str) -> str:
    """The first letter of all tokens of a gateway, for good: its folder keeps it.

    Phones that have a token are found by it, so another one is refused; "" asks for what is kept.
    """
    new_token(given)  # refuses what is no letter
    path = data / TOKEN_LETTER
    kept = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if given and not kept:
        path.write_text(f"{given}\n", encoding="ascii")
    elif given not in ("", kept):
        raise ValueError(
            f"the tokens of {data} begin with {kept!r}, got --token-letter {given!r}: a proxy "
            f"finds the phones that are enrolled by that letter. Leave the option out."
        )
    return kept or given


def open_gateway_vault(
    data: Path, letter: str, *, new_vault: bool = False, leave_damaged: bool = False
) -> Vault:
    """The vault of a gateway, checked; `new_vault` and `leave_damaged` as in `open_federation`."""
    path = data / "vault.sqlite"
    if (data / GATEWAY_ID).exists():
        check_vault(path, leave_damaged=leave_damaged, new=new_vault)
    vault = Vault(path, token_letter=letter)
    gateway_identity(data)  # from now on one without the other is a loss
    return vault
