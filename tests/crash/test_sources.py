"""Every source that an asynchronous commit allows, with both of Spark's checkpoint file managers, killed and restarted.

The three cases in which a start must not simply go on: an epoch that Spark has committed and we have not made durable,
with and without the next one planned, and one that is durable and not committed. Each time the epoch is replayed with
the same offsets, and in the end the sink holds, epoch by epoch, what the rows say.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.file_sink import PAUSED, written
from support.kafka_broker import KafkaBroker, connector_jars
from support.processes import TESTS, Sandbox, kill, wait_until
from support.source_case import ROWS, SOURCES, answers, epochs_taken
from tailrace.commit.inspect import inspect
from tailrace.commit.log import CommitLog
from tailrace.commit.spark_folder import ASIDE, spark_epochs
from tailrace.env.local_store import LocalStore

CHILD = TESTS / "crash" / "child_source.py"
DEFAULT, OTHER = "FileContextBasedCheckpointFileManager", "FileSystemBasedCheckpointFileManager"
SEEN_S = 180.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    connector_jars()  # fetched here, where a failure says why, and not in a child
    with KafkaBroker() as kafka:
        yield kafka


class KilledQuery:
    """One query over one source, its files, and its processes, one after the other."""

    def __init__(self, sandbox: Sandbox, source: str, manager: str, epochs: int, broker: KafkaBroker | None) -> None:
        self.case = SOURCES[source]
        self.epochs = epochs
        self._sandbox = sandbox
        self.root = sandbox.root / "q"
        self.root.mkdir()
        self.checkpoint = self.root / "check"
        self.state = LocalStore(self.checkpoint / "tailrace")
        self.case.feed_files(self.root, epochs)
        self._config = {
            "root": str(self.root),
            "source": source,
            "manager": manager,
            "topic": f"t-{sandbox.mark}",
            "bootstrap": "" if broker is None else broker.bootstrap,
            "rows": epochs * ROWS,
            "options": {"commit": "async", "stateLocation": f"shaped:latency_ms=20:{self.state.uri}"},
            "until": epochs - 1,
        }
        self._fed = False

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        config = {**self._config, "feed": not self._fed, **more}
        self._fed = True
        return self._sandbox.start(CHILD, config)

    def killed(self, seen: Any, what: str, **more: Any) -> None:
        """Start it, and kill it when ``seen``."""
        child = self.start(**more)

        def there() -> bool:
            assert child.poll() is None, f"it ended before {what}:\n{self._sandbox.log_tail()}"
            return bool(seen())

        wait_until(what, there, SEEN_S)
        kill(child.pid)
        child.wait()
        assert self._sandbox.gone_within(20.0) == []
        (self.root / "out" / PAUSED).unlink(missing_ok=True)

    def ends(self, **more: Any) -> None:
        child = self.start(**more)
        assert child.wait(SEEN_S) == 0, self._sandbox.log_tail()
        assert self._sandbox.gone_within(10.0) == []

    def fails(self, **more: Any) -> str:
        """What it says as it ends."""
        child = self.start(**more)
        assert child.wait(SEEN_S) != 0, "it should have been refused"
        return self._sandbox.log_tail(200)

    def has(self, log: str, epoch: int) -> bool:
        return (self.checkpoint / log / str(epoch)).exists()

    def offsets(self, epoch: int) -> str:
        """Without Spark's metadata, which names the time."""
        return (self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()[2]

    def durable(self) -> int:
        newest = CommitLog(self.state).read().newest
        return -1 if newest is None else newest.epoch

    def stands(self) -> tuple[int, int, int]:
        """Spark's newest commit and offset, and our newest durable epoch."""
        spark = LocalStore(self.checkpoint)
        commits, offsets = spark_epochs(spark, "commits"), spark_epochs(spark, "offsets")
        return max(commits, default=-1), max(offsets, default=-1), self.durable()

    def verdict(self) -> str:
        spark = LocalStore(self.checkpoint)
        return inspect(self.state, spark_epochs(spark, "commits"), spark_epochs(spark, "offsets")).verdict()

    def calls(self) -> list[int]:
        """The epochs of all calls of the sink, in all processes."""
        return [int(line) for line in (self.root / "calls").read_text().split()]

    def check(self) -> None:
        """The sink holds, epoch by epoch, what the rows say, and every row was taken."""
        taken = epochs_taken(self.case, self.checkpoint)
        if not self.case.endless:
            assert sorted(n for epoch in taken for n in epoch) == list(range(self.epochs * ROWS))
        got = len(list((self.root / "out").glob("*.parquet")))
        assert got >= min(len(taken) - self.case.endless, self.epochs)
        for epoch, want in enumerate(answers(taken)[:got]):
            table = written(self.root / "out", epoch)
            assert table is not None, f"the sink has nothing of epoch {epoch}"
            assert {(each["k"], each["total"], each["n"]) for each in table.to_pylist()} == want, f"epoch {epoch}"
            assert table.num_rows == len(want)

    # Kills -----------------------------------------------------------------------------------------------------------

    def behind_spark(self, epoch: int, *, planned: bool) -> None:
        """Kill it when Spark has committed ``epoch``, which is not durable; with the next one ``planned``, or not."""
        log, number = ("offsets", epoch + 1) if planned else ("commits", epoch)
        self.killed(lambda: self.has(log, number), f"{log}/{number}", hold=epoch, once=not planned)
        assert self.stands() == (epoch, epoch + planned, epoch - 1)
        assert not (self.root / "out" / f"{epoch + 1:06d}.parquet").exists(), "the gate was open"
        moved = f"offsets/{epoch + 1} and then commits/{epoch}" if planned else f"commits/{epoch}"
        assert f"rewind Spark by moving {moved} aside" in self.verdict()

    def ahead_of_spark(self, epoch: int) -> None:
        """Kill it in the sink of ``epoch``, which is durable by then."""
        self.killed(lambda: (self.root / "out" / PAUSED).exists() and self.durable() == epoch, "the sink", pause=epoch)
        assert self.stands() == (epoch - 1, epoch, epoch)
        assert "durable here and not committed by Spark" in self.verdict()

    @contextmanager
    def replays(self, epoch: int) -> Iterator[None]:
        """What is started inside replays ``epoch``, with the same offsets, and no other."""
        offsets, before = self.offsets(epoch), len(self.calls())
        yield
        after = self.calls()[before:]
        assert after[0] == epoch
        assert after == list(range(epoch, epoch + len(after)))
        assert self.offsets(epoch) == offsets


@contextmanager
def query(source: str, manager: str, epochs: int, broker: KafkaBroker | None = None) -> Iterator[KilledQuery]:
    with Sandbox() as sandbox:
        try:
            yield KilledQuery(sandbox, source, manager, epochs, broker)
        except BaseException:
            print(f"the child's log ends:\n{sandbox.log_tail(60)}")
            raise


def test_kafka_is_read_again_from_the_epoch_that_was_lost(broker: KafkaBroker) -> None:
    with query("kafka", DEFAULT, 4, broker) as killed:
        killed.behind_spark(1, planned=True)
        with killed.replays(1):
            killed.ends()
        assert (killed.checkpoint / ASIDE / "commits" / "1").exists()
        assert (killed.checkpoint / ASIDE / "offsets" / "2").exists()
        assert killed.stands() == (3, 3, 3)
        killed.check()


@pytest.mark.long
@pytest.mark.parametrize("manager", [DEFAULT, OTHER])
@pytest.mark.parametrize("source", [*SOURCES])
def test_every_kill_of_every_source(request: pytest.FixtureRequest, source: str, manager: str) -> None:
    with query(source, manager, 10, request.getfixturevalue("broker") if source == "kafka" else None) as killed:
        killed.behind_spark(0, planned=False)  # nothing is durable yet
        with killed.replays(0):
            killed.behind_spark(3, planned=True)
        with killed.replays(3):
            killed.ahead_of_spark(5)
        with killed.replays(5):
            killed.ends(once=True, until=5)
        killed.behind_spark(6, planned=False)
        with killed.replays(6):
            killed.ends()
        if not killed.case.endless:
            assert killed.stands() == (9, 9, 9)
        killed.check()
