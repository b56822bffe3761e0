"""Which certificate a run's servers show, by its options and Spark's settings. The session is a stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.api.options import parse_options
from tailrace.errors import AnalysisError
from tailrace.ids import RunId
from tailrace.server.transport.tls import Tls
from tailrace.spark.servers.encryption import encryption

RUN = RunId("0123456789abcdef")


def session(**conf: str) -> Any:
    settings = {name.replace("_", "."): value for name, value in conf.items()}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: settings))


def found(spark: Any, **given: str) -> Tls | None:
    return encryption(spark, parse_options(given).encryption, RUN)


def test_each_run_has_a_certificate_of_its_own() -> None:
    first, second = found(session()), found(session())
    assert first is not None and second is not None
    assert first.trust.name == f"{RUN}.tailrace.invalid"
    assert first.trust.roots == first.chain != second.chain
    assert first.key is not None and first.key not in repr(first)
    assert Tls.from_json(first.to_json()) == first


def test_off() -> None:
    assert found(session(), tls="off") is None


def test_files_are_read_where_they_are(tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.write_text("authorities")
    given = {"tlsCertificate": "/etc/host.pem", "tlsKey": "/etc/host.key"}
    tls = found(session(), **given, tlsRoots=str(roots))
    assert tls is not None
    assert (tls.chain_path, tls.key_path, tls.trust.roots, tls.trust.name) == (*given.values(), "authorities", None)
    assert tls.certificates(lambda path: path.encode()) == [(b"/etc/host.pem", b"/etc/host.key")]
    with pytest.raises(AnalysisError, match=r"tlsRoots.*cannot be read"):
        found(session(), **given, tlsRoots=str(tmp_path / "none.pem"))


def test_sparks_own_settings(tmp_path: Path) -> None:
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=w -addext"
    names = ["subjectAltName=DNS:*.workers.invalid", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *made.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    chain, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    for namespace in ("spark_ssl_rpc", "spark_ssl"):
        conf = {f"{namespace}_certChain": chain, f"{namespace}_privateKey": key}
        tls = found(session(**conf), tls="spark")
        assert tls is not None
        assert tls.trust.name == "tailrace.workers.invalid"  # one that the pattern covers
        assert tls.chain == tls.trust.roots == Path(chain).read_text()
    with pytest.raises(AnalysisError, match=r"spark\.ssl\.keyStorePassword"):
        found(session(), tls="spark")
    with pytest.raises(AnalysisError, match=r"none\.p12 cannot be read"):
        found(session(spark_ssl_keyStore=str(tmp_path / "none.p12")), tls="spark")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tlsCertificate": "/a"}, "'tlsCertificate' goes with 'tlsKey'"),
        ({"tlsKey": "/a"}, "'tlsKey' goes with 'tlsCertificate'"),
        ({"tlsRoots": "/a"}, "give that too"),
        ({"tlsCertificate": "/a", "tlsKey": "/b", "tls": "off"}, "remove one of them"),
        ({"tlsCertificate": "a.pem", "tlsKey": "/b"}, "absolute path of a PEM file"),
        ({"tls": "yes"}, "one of 'auto', 'spark', 'off'"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        parse_options(given)
