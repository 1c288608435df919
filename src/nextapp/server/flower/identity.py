"""The key by which a node proves itself to its SuperLink: ECDSA on P-384, in OpenSSH format."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


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
