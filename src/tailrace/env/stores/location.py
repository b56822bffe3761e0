"""Opening a state location by its address, and the start-up test that a store can do what the commit log needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tailrace.env.stores.hdfs_store import HdfsStore
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore, StoredObject, locate
from tailrace.env.stores.shaped_store import SCHEME, shaped
from tailrace.errors import CheckpointError

__all__ = ["LocalStore", "ObjectStore", "StoredObject", "is_remote", "locate", "open_store", "probe_put_if_absent"]

CLOUD_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
HDFS_SCHEMES = ("hdfs", "webhdfs")
PROBE_NAME = "probe"
"""Written once by the start-up probe, never deleted."""


def open_store(uri: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at ``uri``: a local path, ``file:``, ``s3://``, ``gs://``, ``az://`` or ``hdfs://``.

    In tests and benches also ``memory://`` and ``shaped:``, which stands for a slow store.

    ``options`` are obstore's own (``region``, ``endpoint``, ``access_key_id``, ...); a local path takes none.
    """
    scheme, separator, _ = uri.partition(":")
    scheme = scheme.lower()
    if not uri.strip():
        raise CheckpointError("The state location is empty: give a path or an address with the option stateLocation.")
    if uri.startswith(SCHEME):
        return shaped(uri, lambda inner: open_store(inner, options))
    if not separator or "/" in scheme:
        return LocalStore(Path(uri).absolute())
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise CheckpointError(f"{uri} names another machine ({parts.netloc}): write file:///path for a local path.")
        return LocalStore(Path(unquote(parts.path)).absolute())
    if scheme in HDFS_SCHEMES:
        return HdfsStore(uri, options or {})
    if scheme not in CLOUD_SCHEMES:
        raise CheckpointError(
            f"The state location {uri} has the scheme {scheme!r}, which Tailrace cannot use. "
            "Give a local path, file:, s3://, gs://, az:// or hdfs:// with the option stateLocation."
        )
    if scheme == "s3a":  # Hadoop's name for the same thing
        uri = "s3" + uri[3:]
    from tailrace.env.stores.cloud_store import CloudStore  # lazy: who has a disk does without clients of object stores

    return CloudStore(uri, options or {})


def is_remote(store: ObjectStore) -> bool:
    """Whether a copy of its objects on this machine's disk is read sooner than the objects."""
    return not isinstance(store, LocalStore) and not store.uri.startswith("memory:")


def probe_put_if_absent(store: ObjectStore) -> None:
    """Refuse a store where a second put-if-absent of one name could win: the commit log would not be safe there.

    The object stays: deleting it could disturb the probe of another start, and the next start has less to do.
    """
    # The first answer says nothing: an earlier start may have won, or the same request, retried by the store's client.
    store.put_if_absent(PROBE_NAME, b"first")
    again = store.put_if_absent(PROBE_NAME, b"second")
    try:
        kept = store.get(PROBE_NAME)
    except FileNotFoundError:
        kept = b""
    if again or kept != b"first":
        raise CheckpointError(
            f"The store at {store.uri} cannot put an object only if it is absent: the second put of {PROBE_NAME!r} "
            f"{'won' if again else 'lost'} and {kept!r} was kept. Two runs could both believe they own the state. "
            "Use another place with the option stateLocation (a local disk, or an object store with conditional puts)."
        )
