"""Whose certificate the state servers of a run show to callers on other machines, and whom these trust."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.api.options import Encryption, TlsMode
from tailrace.env.certificates import KeyPair, KeyStoreError, new_key_pair, read_key_store, read_pem, read_trust_store
from tailrace.env.files import scratch
from tailrace.errors import AnalysisError
from tailrace.ids import RunId
from tailrace.server.transport.tls import Tls, Trust

_NAMESPACES = ("spark.ssl.rpc", "spark.ssl")
"""Where Spark looks for a setting of its RPC: the second holds what goes for all of Spark."""


def encryption(spark: SparkSession, options: Encryption, run: RunId) -> Tls | None:
    """What a run's calls by TCP are encrypted with. None: they are not, since the user says so."""
    if options.mode is TlsMode.OFF:
        return None
    if options.mode is TlsMode.SPARK:
        return _shipped(*_of_spark(spark))
    if options.certificate is not None:
        return Tls(Trust(_read(options.roots)), chain_path=options.certificate, key_path=options.key)
    return _shipped(new_key_pair(f"{run}.tailrace.invalid"))


def _shipped(pair: KeyPair, roots: str | None = None) -> Tls:
    """Every server of the run shows this pair."""
    return Tls(Trust(roots or pair.chain, pair.name), chain=pair.chain, key=pair.key)


def _of_spark(spark: SparkSession) -> tuple[KeyPair, str | None]:
    """The key pair of Spark's settings, and the authorities of its trust store where there is one."""
    conf = spark.sparkContext.getConf()

    def setting(name: str) -> str | None:
        found = (conf.get(f"{namespace}.{name}") for namespace in _NAMESPACES)
        return next((str(value) for value in found if value is not None), None)

    chain, key, store, trusted = map(setting, ("certChain", "privateKey", "keyStore", "trustStore"))
    try:
        roots = None if trusted is None else read_trust_store(trusted, setting("trustStorePassword") or "")
        if chain is not None and key is not None:
            return read_pem(chain, key, setting("privateKeyPassword")), roots
        if store is not None:
            return read_key_store(store, setting("keyStorePassword") or ""), roots
    except KeyStoreError as error:
        raise AnalysisError(f'option tls="spark": {error}') from error
    raise AnalysisError(
        'option tls="spark" needs Spark\'s own settings: spark.ssl.rpc.certChain and spark.ssl.rpc.privateKey, or '
        "spark.ssl.keyStore and spark.ssl.keyStorePassword. Set these, or remove the option: then a certificate is "
        "made for each run"
    )


def _read(roots: str | None) -> str | None:
    if roots is None:
        return None
    try:
        return scratch.read_binary(roots).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise AnalysisError(f"option 'tlsRoots': {roots} cannot be read as PEM: {error}") from error
