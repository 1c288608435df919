"""Certificates: one of an authority of its own, and the one that a server shows. Keys of nodes."""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

_VALID = datetime.timedelta(days=365)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def development(folder: Path, names: Sequence[str] = LOOPBACK) -> tuple[Path, Path, Path]:
    """(authority, certificate, key) in `folder`, made if they are not there or have expired.

    Clients trust the authority's file; its own key is thrown away after signing.
    """
    authority, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    now = datetime.datetime.now(datetime.UTC)
    if certificate.exists() and key.exists() and authority.exists():
        held = x509.load_pem_x509_certificate(certificate.read_bytes())
        if held.not_valid_after_utc > now + datetime.timedelta(days=1):
            return authority, certificate, key
    folder.mkdir(parents=True, exist_ok=True)
    root = trustme.CA(path_length=0, organization_name="nextapp development authority")
    own = root.issue_cert(*names, common_name=names[0], not_after=now + _VALID)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(own.private_key_pem.bytes())
    own.cert_chain_pems[0].write_to_path(certificate)
    root.cert_pem.write_to_path(authority)
    return authority, certificate, key


class ServedCertificate:
    """The certificate that a server shows, read again once its files have changed.

    ``context`` is for connections that begin now, ``expires`` is when the certificate expires.
    Raises `OSError` (`ssl.SSLError` is one) or `ValueError` where the files cannot be used.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self.chain, self.key = chain, key
        self._read = b""
        self.renew()

    def renew(self) -> bool:
        """Take the files again if they have changed; whether they had.

        Where they cannot be used, such as a certificate whose key is not there yet, the one in use
        stays, and the next call tries again.
        """
        chain = self.chain.read_bytes()
        read = chain + self.key.read_bytes()
        if read == self._read:
            return False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        self.expires = x509.load_pem_x509_certificate(chain).not_valid_after_utc
        self.context, self._read = context, read
        return True


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
