"""The key by which a node proves itself to its SuperLink: ECDSA on P-384, in OpenSSH format.

And the number by which the SuperLink knows it, the letter by which a proxy knows its phones, and
the vault of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nextapp.server.devices import new_token
from nextapp.server.flower.messages import gateway_identity
from nextapp.server.single_process import check_vault
from nextapp.server.vault import GATEWAY_ID, TOKEN_LETTER, Vault

_NUMBER = "node-number"


def node_key(path: Path) -> tuple[Path, Path]:
    """(private, public) key files of a node, made if they are not there.

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
