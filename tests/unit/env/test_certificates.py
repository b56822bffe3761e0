"""Key pairs: a handshake by the standard library's TLS judges them, and openssl makes the stores that are read."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tailrace.env.certificates import (
    KeyPair,
    KeyStoreError,
    new_key_pair,
    read_key_store,
    read_pem,
    read_trust_store,
)


def handshake(shown: KeyPair, roots: str, name: str, folder: Path) -> None:
    """Raise what the client of a server with that key pair raises."""
    (folder / "shown.pem").write_text(shown.chain + shown.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "shown.pem")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=roots)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not ends


def test_a_new_key_pair_is_trusted_by_its_own_certificate_alone(tmp_path: Path) -> None:
    first, second = new_key_pair("a.invalid"), new_key_pair("a.invalid")
    handshake(first, first.chain, "a.invalid", tmp_path)
    for roots, name in ((second.chain, "a.invalid"), (first.chain, "b.invalid")):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(first, roots, name, tmp_path)
    assert first.key not in repr(first)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A certificate for ``workers.invalid``, its key with and without a password, and stores of both."""
    assert shutil.which("openssl"), "this test makes key stores: install openssl"
    for command in (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=w "
        "-addext subjectAltName=DNS:workers.invalid -keyout key.pem -out cert.pem",
        "req -x509 -new -key key.pem -days 2 -subj /CN=w -out nameless.pem",
        "pkcs8 -topk8 -in key.pem -passout pass:secret -out locked.pem",
        "pkcs12 -export -in cert.pem -inkey key.pem -passout pass:secret -out store.p12",
        "pkcs12 -export -in nameless.pem -inkey key.pem -passout pass:secret -out nameless.p12",
        "pkcs12 -export -nokeys -in cert.pem -passout pass:secret -out trust.p12",
    ):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_key_pairs_of_stores_and_of_pem_files(files: Path, tmp_path: Path) -> None:
    trusted = read_trust_store(str(files / "trust.p12"), "secret")
    for pair in (
        read_key_store(str(files / "store.p12"), "secret"),
        read_pem(str(files / "cert.pem"), str(files / "key.pem"), None),
        read_pem(str(files / "cert.pem"), str(files / "locked.pem"), "secret"),
    ):
        assert pair.name == "workers.invalid"
        handshake(pair, trusted, pair.name, tmp_path)


def test_what_cannot_be_read_is_named(files: Path) -> None:
    store, missing, java = str(files / "store.p12"), str(files / "missing.p12"), files / "old.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    for call, words in (
        (lambda: read_key_store(store, "wrong"), "its password is another one"),
        (lambda: read_key_store(missing, "secret"), "missing.p12 cannot be read"),
        (lambda: read_key_store(str(java), "secret"), "keytool -importkeystore"),
        (lambda: read_key_store(str(files / "trust.p12"), "secret"), "no private key"),
        (lambda: read_key_store(str(files / "nameless.p12"), "secret"), "names no host"),
        (lambda: read_trust_store(store, "wrong"), "its password is another one"),
        (lambda: read_pem(str(files / "cert.pem"), str(files / "locked.pem"), None), "not a certificate and its key"),
        (lambda: read_pem(str(files / "key.pem"), str(files / "key.pem"), None), "not a certificate and its key"),
    ):
        with pytest.raises(KeyStoreError, match=words) as caught:
            call()
        assert "secret" not in str(caught.value)
