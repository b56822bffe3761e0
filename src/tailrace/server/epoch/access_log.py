"""The file into which a state server records an operator's accesses: an Arrow IPC stream, a batch an epoch.

Its format is in docs/explanation/gadget-analysis.md, and ``lab/gadget/traces/recording.py`` reads it. ``FORMAT``
changes when it does.

Invariants
- Each batch carries its epoch in its metadata. It replaces what the file has of that epoch and of later ones: epochs
  are tried again, and undone (an empty batch).
- A batch is handed to the system when its epoch has advanced, and nothing is held back: whenever the server ends, the
  file is whole up to there. It is not synced: a recording is for looking at, and not part of the state.
- A disk that fails ends the recording, and says so in the server's log; the query goes on.

Threading: the engine's lock is held around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tailrace.env.files.disk import Disk
from tailrace.env.files.scratch import open_log

FORMAT = "1"
SUFFIX = ".accesses"
_log = logging.getLogger("tailrace.server")


class AccessLog:
    def __init__(self, folder: str, operator: str, server: str, metadata: Mapping[str, str]) -> None:
        self.path = Path(folder) / f"{operator}-{server}{SUFFIX}"
        self._metadata = {"tailrace.recording": FORMAT, "server": server, **metadata}
        self._file: BinaryIO | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._failed = False

    def write(self, epoch: int, accesses: pa.RecordBatch) -> None:
        if self._failed:
            return
        try:
            if self._writer is None:
                Disk().make_folder(self.path.parent)
                self._file = open_log(str(self.path))
                self._writer = pa.ipc.new_stream(self._file, accesses.schema.with_metadata(self._metadata))
            batch = accesses.replace_schema_metadata(self._metadata)
            self._writer.write_batch(batch, custom_metadata={"epoch": str(epoch)})
        except (OSError, pa.ArrowException):
            self._failed = True
            _log.exception("accesses are not recorded any more: %s cannot be written", self.path)
