"""Every source that an asynchronous commit allows, with both of Spark's checkpoint file managers, killed and restarted.

The three cases in which a start must not simply go on: an epoch that Spark has committed and we have not made durable,
with and without the next one planned, and one that is durable and not committed. Each time the epoch is replayed with
the same offsets, and in the end the sink holds, epoch by epoch, what the rows say.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.crash.source_queries import ROWS, SOURCES, answers, epochs_taken, offset_line
from support.processes import TESTS, Sandbox, kill, wait_until
from support.queries.file_sink import PAUSED, written
from tailrace.cli.checkpoint import go_back
from tailrace.commit.inspect import inspect
from tailrace.commit.log import CommitLog
from tailrace.commit.spark_logs.log_files import BACKUP, spark_epochs
from tailrace.env.stores.location import open_store
from tailrace.lab.servers.kafka import KafkaBroker, connector_jars
from tailrace.lab.servers.s3 import REGION, S3Server
from tailrace.lab.servers.s3a import s3a_confs

CHILD = TESTS / "crash" / "child_source.py"
DEFAULT, OTHER = "FileContextBasedCheckpointFileManager", "FileSystemBasedCheckpointFileManager"
SEEN_S = 180.0


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    connector_jars()  # fetched here, where a failure says why, and not in a child
    with KafkaBroker() as kafka:
        yield kafka


class KilledQuery:
    """One query over one source, its files, and its processes, one after the other. ``s3``: where its checkpoint is."""

    def __init__(
        self,
        sandbox: Sandbox,
        source: str,
        manager: str,
        epochs: int,
        broker: KafkaBroker | None,
        s3: S3Server | None,
        apart: bool,
    ) -> None:
        self.case = SOURCES[source]
        self.epochs = epochs
        self._sandbox = sandbox
        self.root = sandbox.root / "q"
        self.root.mkdir()
        self.case.feed_files(self.root, epochs)
        location = str(self.root / "check") if s3 is None else s3.uri(f"{sandbox.mark}/check", "s3a")
        options = {} if s3 is None else s3.options()
        self._environment = {} if s3 is None else s3.environment()
        self.spark = open_store(location, options)
        state = str(self.root / "state") if apart else f"{location}/tailrace"
        self.state = open_store(state, options)
        self._planned = Path(self.root / "planned")  # offsets of checkpoints that were lost
        self._config = {
            "root": str(self.root),
            "location": location,
            "source": source,
            "manager": manager,
            "confs": {} if s3 is None else s3a_confs(s3.endpoint, REGION, sandbox.root),
            "topic": f"t-{sandbox.mark}",
            "bootstrap": "" if broker is None else broker.bootstrap,
            "rows": epochs * ROWS,
            "options": {"commit": "async", "stateLocation": f"shaped:latency_ms=20:{state}"},
        }
        if self.case.endless:
            self._config["until"] = epochs - 1
        self._fed = False

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        options = {**self._config["options"], **more.pop("options", {})}
        config = {**self._config, "feed": not self._fed, "options": options, **more}
        self._fed = True
        return self._sandbox.start(CHILD, config, self._environment)

    def killed(self, seen: Any, what: str, **more: Any) -> None:
        """Start it, and kill it when ``seen``."""
        child = self.start(**more)

        def there() -> bool:
            assert child.poll() is None, f"it ended before {what}:\n{self._sandbox.log_tail()}"
            return bool(seen())

        wait_until(what, there, SEEN_S, 0.01)
        kill(child.pid)
        child.wait()
        assert self._sandbox.gone_within(20.0) == []
        (self.root / "out" / PAUSED).unlink(missing_ok=True)

    def ends(self, **more: Any) -> None:
        child = self.start(**more)
        assert child.wait(SEEN_S) == 0, self._sandbox.log_tail()
        assert self._sandbox.gone_within(10.0) == []

    def fails(self, **more: Any) -> str:
        """What it says as it ends. Its sink gets nothing."""
        before = self.calls()
        child = self.start(**more)
        assert child.wait(SEEN_S) != 0, "it should have been refused"
        assert self.calls() == before
        return self.message()

    def message(self) -> str:
        return self._sandbox.log_tail(300)

    def loses_machine(self) -> None:
        """The disk with Spark's checkpoint is lost, and the query is started on another one, below another path."""
        old, new = Path(self._config["location"]), self.root / "elsewhere"
        shutil.copytree(old / "offsets", self._planned / "offsets")
        shutil.rmtree(old)
        self._config["location"] = str(new)
        self.spark = open_store(str(new))

    def goes_back(self, epoch: int) -> None:
        go_back(self._config["location"], epoch, str(self.root / "state"))

    def has(self, log: str, epoch: int) -> bool:
        return epoch in spark_epochs(self.spark, log)

    def backup(self) -> list[str]:
        return [each.name.removeprefix(f"{BACKUP}/") for each in self.spark.list(f"{BACKUP}/")]

    def durable(self) -> int:
        newest = CommitLog(self.state).read().newest
        return -1 if newest is None else newest.epoch

    def stands(self) -> tuple[int, int, int]:
        """Spark's newest commit and offset, and our newest durable epoch."""
        commits, offsets = spark_epochs(self.spark, "commits"), spark_epochs(self.spark, "offsets")
        return max(commits, default=-1), max(offsets, default=-1), self.durable()

    def verdict(self) -> str:
        return inspect(self.state, spark_epochs(self.spark, "commits"), spark_epochs(self.spark, "offsets")).verdict()

    def calls(self) -> list[int]:
        """The epochs of all calls of the sink, in all processes."""
        return [int(line) for line in (self.root / "calls").read_text().split()]

    def check(self) -> None:
        """The sink holds, epoch by epoch, what the rows say, and every row was taken."""
        planned = self.spark
        if self._planned.exists():
            shutil.copytree(self.root / "elsewhere" / "offsets", self._planned / "offsets", dirs_exist_ok=True)
            planned = open_store(str(self._planned))
        taken = epochs_taken(self.case, planned)
        if not self.case.endless:
            assert len(set(self.stands())) == 1
            assert sorted(n for epoch in taken for n in epoch) == list(range(self.epochs * ROWS))
        got = len(list((self.root / "out").glob("*.parquet")))
        assert got >= (self.epochs if self.case.endless else len(taken))
        for epoch, want in enumerate(answers(taken)[:got]):
            table = written(self.root / "out", epoch)
            assert table is not None, f"the sink has nothing of epoch {epoch}"
            assert {(each["k"], each["total"], each["n"]) for each in table.to_pylist()} == want, f"epoch {epoch}"
            assert table.num_rows == len(want)

    # Kills -----------------------------------------------------------------------------------------------------------

    def behind_spark(self, epoch: int, *, planned: bool) -> None:
        """Kill it when Spark has committed ``epoch``, which is not durable; with the next one ``planned``, or not."""
        log, number = ("offsets", epoch + 1) if planned else ("commits", epoch)
        more = {} if planned else {"once": True, "until": epoch}
        self.killed(lambda: self.has(log, number), f"{log}/{number}", hold=epoch, **more)
        assert self.stands() == (epoch, epoch + planned, epoch - 1)
        assert not (self.root / "out" / f"{epoch + 1:06d}.parquet").exists(), "the gate was open"
        moved = f"offsets/{epoch + 1} and then commits/{epoch}" if planned else f"commits/{epoch}"
        assert f"rewind Spark by moving {moved} to a backup" in self.verdict()

    def ahead_of_spark(self, epoch: int, **more: Any) -> None:
        """Kill it in the sink of ``epoch``, which is durable by then."""
        paused = self.root / "out" / PAUSED
        self.killed(lambda: paused.exists() and self.durable() == epoch, "the sink", pause=epoch, **more)
        assert self.stands() == (epoch - 1, epoch, epoch)
        assert "durable here and not committed by Spark" in self.verdict()

    @contextmanager
    def replays(self, epoch: int) -> Iterator[None]:
        """What is started inside replays ``epoch``, with the same offsets, and no other."""
        offsets, before = offset_line(self.spark, epoch), len(self.calls())
        yield
        after = self.calls()[before:]
        assert after[0] == epoch
        assert after == list(range(epoch, epoch + len(after)))
        assert offset_line(self.spark, epoch) == offsets


@contextmanager
def query(
    source: str,
    manager: str,
    epochs: int,
    broker: KafkaBroker | None = None,
    s3: S3Server | None = None,
    apart: bool = False,
) -> Iterator[KilledQuery]:
    with Sandbox() as sandbox:
        try:
            yield KilledQuery(sandbox, source, manager, epochs, broker, s3, apart)
        except BaseException:
            print(f"the child's log ends:\n{sandbox.log_tail(60)}")
            raise


def test_kafka_is_read_again_from_the_epoch_that_was_lost(broker: KafkaBroker) -> None:
    with query("kafka", DEFAULT, 4, broker) as killed:
        killed.behind_spark(1, planned=True)
        with killed.replays(1):
            killed.ends()
        assert {"commits/1", "offsets/2"} <= set(killed.backup())
        assert killed.stands() == (3, 3, 3)
        killed.check()


@pytest.mark.parametrize("source", ["kafka", pytest.param("file", marks=pytest.mark.long)])
def test_another_machine_continues_from_the_state_alone(request: pytest.FixtureRequest, source: str) -> None:
    """Killed where Spark has committed what is not durable. Nothing of Spark's checkpoint is left, nor its path."""
    broker = request.getfixturevalue("broker") if source == "kafka" else None
    with query(source, DEFAULT, 5, broker, apart=True) as killed:
        killed.behind_spark(2, planned=True)
        with killed.replays(2):
            killed.loses_machine()
            killed.ends()
        assert killed.stands() == (4, 4, 4)
        killed.check()


@pytest.mark.long
@pytest.mark.parametrize("source", ["kafka", "file"])
def test_another_machine_goes_back_from_the_state_alone(request: pytest.FixtureRequest, source: str) -> None:
    """Nothing of Spark's checkpoint is left; epochs behind the one gone back to have the offsets that they had."""
    broker = request.getfixturevalue("broker") if source == "kafka" else None
    with query(source, DEFAULT, 6, broker, apart=True) as killed:
        killed.ends(options={"retain": "5"})
        killed.loses_machine()
        killed.goes_back(2)
        with killed.replays(3):
            killed.ends(options={"retain": "5"})
        assert killed.calls() == [0, 1, 2, 3, 4, 5, 3, 4, 5]
        assert killed.stands() == (5, 5, 5)
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
        killed.check()


@pytest.mark.long
def test_a_checkpoint_in_s3_is_rewound() -> None:
    with S3Server() as s3, query("file", DEFAULT, 6, s3=s3) as killed:
        killed.behind_spark(0, planned=False)
        with killed.replays(0):
            killed.behind_spark(2, planned=True)
        with killed.replays(2):
            killed.ahead_of_spark(4)
        with killed.replays(4):
            killed.ends()
        assert sorted(killed.backup()) == ["commits/0", "commits/2", "offsets/3"]
        killed.check()


@pytest.mark.long
def test_records_that_kafka_has_deleted_end_the_replay(broker: KafkaBroker) -> None:
    """Row n is in partition n mod 2, and an epoch takes 40: epoch 2 begins at offset 40 of each."""
    with query("kafka", DEFAULT, 5, broker) as killed:
        killed.behind_spark(2, planned=True)
        error = killed.fails(forget={"0": 50})
        assert "lost" in error, "Kafka's connector says so itself"
        assert killed.stands() == (1, 2, 1), "rewound, and still to be run"
        assert "lost" in killed.fails()


@pytest.mark.long
def test_a_smaller_replay_is_refused_where_kafka_hides_it(broker: KafkaBroker) -> None:
    hides = {"reader": {"failOnDataLoss": "false"}}
    with query("kafka", OTHER, 5, broker) as killed:
        killed.ahead_of_spark(2, **hides)
        error = killed.fails(forget={"0": 50}, **hides)
        assert "epoch 2 is replayed after a crash and has 30 rows now, but had 40 rows" in error
        assert killed.stands() == (1, 2, 2), "as it was"


@pytest.mark.long
def test_kafka_that_hides_what_is_gone_commits_before_the_sink(broker: KafkaBroker) -> None:
    with query("kafka", DEFAULT, 2, broker) as killed:
        killed.ends(reader={"failOnDataLoss": "false"})
        assert "commit sync, since Kafka leaves out records that are gone (failOnDataLoss false)" in killed.message()
        killed.check()
