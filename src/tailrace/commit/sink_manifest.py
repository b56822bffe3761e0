"""Which files a file sink publishes of an epoch: decided once, by a put that only the first one wins.

A try of an epoch writes its files under a folder of its own that no reader looks into, then puts their list here. From
then on the epoch has these files and no others, whoever runs it again: a run that finds a manifest drops what it has
written itself. The files get the names that readers see after that, and whoever finds them not yet moved moves them
(``spark.sinks.files``, where the argument is given).

The manifests lie in the state location and not beside the files: there put-if-absent was tried out when the run
started, while a sink may be on any file system that Spark can write to.

Format: an entry of kind ``sink``, docs/reference/log-format.md. One sink's manifests are put by one thread; reading and
deleting are safe from any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry
from tailrace.log.typed_json import MalformedError, item

_KIND = "sink"


@dataclass(frozen=True)
class SinkManifest:
    """``folder``: where the epoch's files were written. ``files``: their names below it."""

    epoch: int
    folder: str
    files: tuple[str, ...]


class SinkManifests:
    """Those of one of a query's sinks. ``sink``: its name among them."""

    def __init__(self, store: ObjectStore, sink: str) -> None:
        self._store = store
        self._sink = sink

    def read(self, epoch: int) -> SinkManifest | None:
        """What was decided for the epoch, or None. A damaged one is refused: what readers see cannot be known then."""
        name = filenames.sink_manifest_name(self._sink, epoch)
        where = locate(self._store, name)
        try:
            kind, body = decode_entry(self._store.get(name), where)
        except FileNotFoundError:
            return None
        if kind != _KIND or body.get("epoch") != epoch:
            raise CorruptionError(damaged(where, f"it is not the list of a sink's files of epoch {epoch}"))
        try:
            manifest = SinkManifest(epoch, item(body, "folder", str), item(body, "files", tuple[str, ...]))
        except MalformedError as error:
            raise CorruptionError(damaged(where, str(error))) from None
        if not all(map(_leads_inside, (manifest.folder, *manifest.files))):
            raise CorruptionError(damaged(where, "it names files outside of the sink's folder"))
        return manifest

    def decided(self, epoch: int) -> SinkManifest | None:
        """As ``read``, and what was found lasts: a driver may now go by it.

        Who has put it may have been killed between giving a file its name and syncing that. Rows that others see by
        then would have no manifest after a loss of power, and the epoch would be decided a second time.
        """
        found = self.read(epoch)
        return None if found is None else self.put(found)

    def put(self, manifest: SinkManifest) -> SinkManifest:
        """Decide the epoch, unless that was done before. Gives the manifest that counts."""
        body = {"epoch": manifest.epoch, "folder": manifest.folder, "files": list(manifest.files)}
        name = filenames.sink_manifest_name(self._sink, manifest.epoch)
        if self._store.put_if_absent(name, encode_entry(_KIND, body)):
            return manifest
        # One that is gone again was deleted by a newer run: this one learns so when it looks for a newer fence.
        return self.read(manifest.epoch) or manifest

    def forget(self, epochs: Iterable[int]) -> None:
        """Delete the manifests of epochs that no run will run again."""
        self._store.delete([filenames.sink_manifest_name(self._sink, epoch) for epoch in epochs])

    def epochs(self) -> list[int]:
        """Those that have a manifest. Lists: for a start, not for every epoch."""
        names = (each.name for each in self._store.list(filenames.sink_prefix(self._sink)))
        return [epoch for name in names if (epoch := filenames.sink_manifest_epoch(name)) is not None]


def _leads_inside(name: str) -> bool:
    """Whether a name stays below the folder that it is relative to: files are moved by it."""
    return all(part not in ("", ".", "..") for part in name.split("/"))
