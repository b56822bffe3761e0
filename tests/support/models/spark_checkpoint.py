"""Spark's checkpoint of a query over files, on a disk, as Spark writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

COMPACT_EVERY = 4


@dataclass
class SparkCheckpoint:
    """``seen``: the files that the source has given, in order."""

    root: Path
    query: str = "6f1c1f5e-0000-4000-8000-000000000001"
    seen: list[str] = field(default_factory=list)

    def start(self) -> None:
        if not (self.root / "metadata").exists():
            self._write("metadata", json.dumps({"id": self.query}))

    def plan(self, epoch: int, *files: str) -> None:
        """The source logs the files, then the epoch is planned."""
        logged = (int(path.name.split(".")[0]) for path in (self.root / "sources/0").glob("[0-9]*"))
        number = max(logged, default=-1) + 1
        lines = [json.dumps({"path": file, "timestamp": 1, "batchId": number}) for file in files]
        self.seen += files
        compact = (number + 1) % self._compact_interval() == 0
        if compact:
            lines = [*self._source_lines(), *lines]
        self._write(f"sources/0/{number}{'.compact' if compact else ''}", "\n".join(["v1", *lines]))
        self._write(f"offsets/{epoch}", f'v1\n{{"batchTimestampMs":{epoch}}}\n{{"logOffset":{number}}}')

    def commit(self, epoch: int) -> None:
        self._write(f"commits/{epoch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def resumes(self) -> tuple[int, list[str] | None]:
        """The epoch that Spark goes on with, and its files; None where it plans it afresh. Raises on half files."""
        assert json.loads((self.root / "metadata").read_text())["id"] == self.query
        offsets, commits = self._epochs("offsets"), self._epochs("commits")
        if not offsets:
            return 0, None
        newest = max(offsets)
        last = self._offset(newest)
        first = -1 if newest == 0 else self._offset(newest - 1)
        given = [line for line in map(json.loads, self._source_lines()) if first < line["batchId"] <= last]
        if commits:
            json.loads((self.root / "commits" / str(max(commits))).read_text().splitlines()[1])
        if commits and max(commits) == newest:
            return newest + 1, None
        return newest, [line["path"] for line in given]

    def files(self) -> dict[str, bytes]:
        found = {path.relative_to(self.root).as_posix(): path for path in self.root.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if not name.startswith("tailrace-backup")}

    def _offset(self, epoch: int) -> int:
        version, _, offset = (self.root / "offsets" / str(epoch)).read_text().splitlines()
        assert version == "v1"
        return int(json.loads(offset)["logOffset"])

    def _epochs(self, log: str) -> list[int]:
        return [int(path.name) for path in (self.root / log).glob("[0-9]*")]

    def _source_lines(self) -> list[str]:
        paths = {int(path.name.split(".")[0]): path for path in (self.root / "sources/0").glob("[0-9]*")}
        newest, interval = max(paths, default=-1), self._compact_interval()
        first = max(0, (newest + 1) // interval * interval - 1)
        lines: list[str] = []
        for number in range(first, newest + 1):
            assert bool(paths[number].suffix) == ((number + 1) % interval == 0), f"{paths[number].name}: {interval=}"
            version, *more = paths[number].read_text().split("\n")
            assert version == "v1"
            lines += more
        return lines

    def _compact_interval(self) -> int:
        """Spark takes it from the compact lists that are there."""
        *_, before, newest = [-1, -1, *sorted(int(path.stem) for path in (self.root / "sources/0").glob("*.compact"))]
        if before >= 0:
            return newest - before
        if newest < 0:
            return COMPACT_EVERY
        whole = newest + 1
        if whole <= COMPACT_EVERY or whole // 2 <= COMPACT_EVERY:
            return whole
        return next(each for each in range(COMPACT_EVERY, whole // 2 + 1) if whole % each == 0)

    def _write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert not target.exists(), f"multiple streaming jobs: {path}"
        target.write_text(text)
        target.with_name(f".{target.name}.crc").write_text("checksum")
