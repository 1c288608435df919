"""Certificates and keys of a federation, made on the spot: one CA, server certificates, node keys.

The SuperLink proves itself to its nodes with a certificate of the CA; a node proves itself with an
ECDSA key (P-384, OpenSSH format) whose public half was registered at the SuperLink.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
SERVER_DAYS = 397


class ServerFiles(NamedTuple):
    """What a TLS server is started with, and what its clients trust."""

    authority: Path
    certificate: Path
    key: Path


def server_files(folder: Path, names: Sequence[str]) -> ServerFiles:
    """The certificate of a server known by these names or addresses, from the folder's own CA.

    Whatever is in the folder already is kept: a second server gets its certificate of the same CA.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = folder / "ca.pem", folder / "ca.key"
    files = ServerFiles(authority, folder / "server.pem", folder / "server.key")
    if not authority.exists():
        _make_authority(authority, authority_key)
    if not files.certificate.exists():
        _make_server(files, authority_key, names)
    return files


def node_key(path: Path) -> Path:
    """The private key of a node, in OpenSSH format; the public half lies beside it as .pub."""
    public = path.with_suffix(".pub")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            + b"\n"
        )
        _write_secret(path, key, serialization.PrivateFormat.OpenSSH)
    return path


def _make_authority(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("nextapp federation CA")
    made = (
        _builder(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    _write_secret(key_file, key, serialization.PrivateFormat.PKCS8)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _make_server(files: ServerFiles, authority_key: Path, names: Sequence[str]) -> None:
    if not authority_key.exists():
        raise FileNotFoundError(
            f"{files.certificate} is missing, and {authority_key} that could sign it is not here: "
            f"make the certificate on the machine that holds the CA, and copy it."
        )
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{authority_key} must hold an elliptic-curve key.")
    key = ec.generate_private_key(ec.SECP384R1())
    made = (
        _builder(_name(names[0]), authority.subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([_san(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA384())
    )
    _write_secret(files.key, key, serialization.PrivateFormat.PKCS8)
    files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_secret(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    """A private key that only its owner can read, from the first byte on."""
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
