"""Certificates and private keys: made for one run, or read from files and Java's key stores. Text is PEM.

A certificate made here signs itself. Who trusts it trusts nobody else, and its key never touches a disk, so it may be
valid for long: it ends with its run. Threads: any.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_VALID_FOR = 3650 * _DAY
_PEM = serialization.Encoding.PEM
_PKCS8 = serialization.PrivateFormat.PKCS8
_JKS_MAGIC = b"\xfe\xed\xfe\xed"


@dataclass(frozen=True)
class KeyPair:
    """``name``: one that the certificate is for. ``chain``: the certificate, then those of its authorities."""

    name: str
    chain: str
    key: str = field(repr=False)


class KeyStoreError(Exception):
    """A key store cannot be used; the text says why."""


def new_key_pair(name: str) -> KeyPair:
    """A key, and a certificate for ``name`` that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,  # it is its own authority
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)  # clocks of machines differ
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(name, certificate.public_bytes(_PEM).decode(), _pem(key))


def read_key_store(path: str, password: str) -> KeyPair:
    """The key pair of a PKCS #12 store, which is what Java's ``keytool`` makes."""
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(_content(path), password.encode())
    except ValueError as error:
        raise _no_store(path) from error
    if key is None or certificate is None:
        raise KeyStoreError(f"key store {path} holds no private key with a certificate")
    return KeyPair(_name(certificate, path), _chain([certificate, *more]), _pem(key))


def read_trust_store(path: str, password: str) -> str:
    """The certificates of a PKCS #12 store."""
    try:
        found = pkcs12.load_pkcs12(_content(path), password.encode())
    except ValueError as error:
        raise _no_store(path) from error
    certificates = [each.certificate for each in (found.cert, *found.additional_certs) if each is not None]
    if not certificates:
        raise KeyStoreError(f"trust store {path} holds no certificate")
    return _chain(certificates)


def read_pem(chain_path: str, key_path: str, password: str | None) -> KeyPair:
    """A key pair of two PEM files."""
    try:
        chain = x509.load_pem_x509_certificates(_content(chain_path))
        key = serialization.load_pem_private_key(_content(key_path), password.encode() if password else None)
    except (ValueError, TypeError) as error:
        raise KeyStoreError(f"{chain_path} and {key_path} are not a certificate and its key as PEM: {error}") from error
    return KeyPair(_name(chain[0], chain_path), _chain(chain), _pem(key))


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise KeyStoreError(f"{path} cannot be read: {error.strerror or error}") from error
    if content.startswith(_JKS_MAGIC):
        raise KeyStoreError(
            f"{path} has Java's old format JKS: convert it with `keytool -importkeystore -srckeystore {path} "
            f"-destkeystore new.p12 -deststoretype pkcs12`"
        )
    return content


def _no_store(path: str) -> KeyStoreError:
    return KeyStoreError(f"{path} is no PKCS #12 file, or its password is another one")


def _chain(certificates: Iterable[x509.Certificate]) -> str:
    return "".join(each.public_bytes(_PEM).decode() for each in certificates)


def _pem(key: PrivateKeyTypes) -> str:
    return key.private_bytes(_PEM, _PKCS8, serialization.NoEncryption()).decode()


def _name(certificate: x509.Certificate, path: str) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        found = []
    if not found:
        raise KeyStoreError(
            f"the certificate in {path} names no host: make it with a subject alternative name, such as "
            f"`keytool -genkeypair ... -ext san=dns:workers.example`"
        )
    return found[0].replace("*", "tailrace", 1)
