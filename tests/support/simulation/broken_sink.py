"""Each rule of publishing files, taken away: see ``broken``."""

from __future__ import annotations

from typing import Any

import pytest

from support.simulation.file_sink import SimSink
from tailrace.commit.sink_manifest import SinkManifest, SinkManifests
from tailrace.log import filenames
from tailrace.log.format import encode_entry
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.files.places import LocalPlace
from tailrace.spark.sinks.files.publication import EPOCH_COLUMN, HIDDEN, Publication


def sink_that_overwrites(patch: pytest.MonkeyPatch) -> None:
    """An epoch's folder is emptied and written anew, as ``mode("overwrite")`` does, without a look at the fence."""

    def write(self: SimSink, output: Any, at: SinkEpoch) -> None:
        target = f"{EPOCH_COLUMN}={at.epoch}"
        self._files.place.remove(target)
        self._files.write(target, output)

    patch.setattr(SimSink, "begin", lambda *_: True)
    patch.setattr(SimSink, "write", write)
    patch.setattr(SimSink, "publish", lambda *_: None)


def sink_folder_shared(patch: pytest.MonkeyPatch) -> None:
    """All tries of an epoch write to one folder."""
    patch.setattr(Publication, "_folder", lambda self, at: f"{HIDDEN}/{at.epoch:020d}-{'0' * 16}-0000")


def sink_decided_twice(patch: pytest.MonkeyPatch) -> None:
    """A manifest is put whether or not there is one. Also without a look at the fence, which would mostly stop it."""
    _without_fence(patch, 2)

    def put(self: SinkManifests, manifest: SinkManifest) -> SinkManifest:
        body = {"epoch": manifest.epoch, "folder": manifest.folder, "files": list(manifest.files)}
        name = filenames.sink_manifest_name(self._sink, manifest.epoch)
        self._store.put(name, [encode_entry("sink", body)])
        return manifest

    patch.setattr(SinkManifests, "put", put)


def sink_never_decided(patch: pytest.MonkeyPatch) -> None:
    """Each run shows what it has written itself."""
    patch.setattr(SinkManifests, "put", lambda self, manifest: manifest)


def manifest_believed(patch: pytest.MonkeyPatch) -> None:
    """A run goes by a manifest that a killed one has put, and may not have synced."""
    patch.setattr(SinkManifests, "decided", SinkManifests.read)


def sink_without_fence(patch: pytest.MonkeyPatch) -> None:
    """A run that has slept through the end of its epoch, and of the epoch's manifest, shows its files.

    Manifests are kept just as long as they must be, so that it need not sleep long.
    """
    _without_fence(patch, 1)


def _without_fence(patch: pytest.MonkeyPatch, retain: int) -> None:
    opened = SimSink.open

    def careless(self: SimSink, run: SinkRun) -> None:
        opened(self, SinkRun(run.run, retain, run.store, lambda _: None))

    patch.setattr(SimSink, "open", careless)


def undecided_files_swept(patch: pytest.MonkeyPatch) -> None:
    """A start deletes what other runs have written, though one of them may still put its manifest."""
    opened = SimSink.open

    def sweeping(self: SimSink, run: SinkRun) -> None:
        opened(self, run)
        place = self._files.place
        for name in place.folders(HIDDEN):
            place.remove(f"{HIDDEN}/{name}")

    patch.setattr(SimSink, "open", sweeping)


def sink_files_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The manifest lasts, and the files that it lists may not."""

    def seal(self: LocalPlace, folder: str) -> list[str]:
        top = self._root / folder
        return sorted(path.relative_to(top).as_posix() for path, _ in self._disk.files(top))

    patch.setattr(LocalPlace, "seal", seal)
