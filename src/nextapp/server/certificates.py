"""Certificates: one of an authority of its own, and the one that a server shows."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 365
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
    root_key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root_name, own_name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        for name in ("nextapp development authority", names[0])
    )

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        )

    root = (
        builder(root_name, root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(_usage(signs_certificates=True), True)
        .sign(root_key, hashes.SHA256())
    )
    own = (
        builder(own_name, own_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage(signs_certificates=False), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]),
            False,
        )
        .sign(root_key, hashes.SHA256())
    )
    secret = own_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secret)
    certificate.write_bytes(own.public_bytes(serialization.Encoding.PEM))
    authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    return authority, certificate, key


class ServedCertificate:
    """The certificate that a server shows, and from its files again once these have changed.

    ``context`` is for connections that begin now, ``expires`` is when what it shows is over.
    Raises `OSError` (`ssl.SSLError` is one) or `ValueError` where the files cannot be used.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self.chain, self.key = chain, key
        self._read = self._state()
        self.context, self.expires = self._loaded()

    def renew(self) -> bool:
        """Take the files again if they have changed; whether they had.

        Where they cannot be used, such as a certificate whose key is not there yet, the one at
        hand stays, and the next call tries again.
        """
        state = self._state()
        if state == self._read:
            return False
        self.context, self.expires = self._loaded()
        self._read = state
        return True

    def _state(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in (self.chain, self.key)]
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]

    def _loaded(self) -> tuple[ssl.SSLContext, datetime.datetime]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        own = x509.load_pem_x509_certificate(self.chain.read_bytes())
        return context, own.not_valid_after_utc


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
