"""Spark's logs of a query, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class FakeSparkLogs:
    """Where Tailrace cannot write: nothing of them is recorded with the state."""

    files = None
    commits: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def epochs(self, log: str) -> list[int]:
        return list({"commits": self.commits, "offsets": self.offsets}[log])

    def move_to_backup(self, path: str) -> None:
        log, _, epoch = path.partition("/")
        kept = {"commits": self.commits, "offsets": self.offsets}[log]
        if int(epoch) in kept:
            kept.remove(int(epoch))


def spark_logs(commits: Iterable[int] = (), offsets: Iterable[int] = ()) -> FakeSparkLogs:
    return FakeSparkLogs(list(commits), list(offsets))
