"""The sender: its schedule by plain arithmetic, and its messages as a real broker keeps them; who reads results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli.app import app
from tailrace.errors import TailraceError
from tailrace.lab.espbench import config
from tailrace.lab.espbench.broker import Broker
from tailrace.lab.espbench.envelope import taken_apart
from tailrace.lab.espbench.run.reader import ResultReader
from tailrace.lab.espbench.sender.rows import rows_of
from tailrace.lab.espbench.sender.schedule import Lateness, Schedule
from tailrace.lab.servers.kafka import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as kafka:
        yield kafka


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for machine in (1, 2):
        rows = [f"time\t{number}\tpower\t{machine}" for number in range(70)]
        (tmp_path / f"machine_{machine}.csv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "production_times.csv").write_text("".join(f"{n}\t1\t1\t1\n" for n in range(30)))
    return tmp_path


@given(st.integers(1, 50), st.integers(0, 300), st.integers(1, 4), st.integers(-100, 20_000))
def test_all_instances_together_send_every_message_when_it_is_due(
    interval: int, messages: int, instances: int, now: int
) -> None:
    schedules = [Schedule(1_000, interval, messages, instance, instances) for instance in range(instances)]
    due = [number for number in range(messages) if 1_000 + number * interval <= now]
    assert sorted(each.number(n) for each in schedules for n in range(each.due(now))) == due
    assert sum(each.mine for each in schedules) == messages
    for each in schedules:
        assert [each.due_ns(n) for n in range(each.due(now))] == [
            1_000 + each.number(n) * interval for n in range(each.due(now))
        ]


def test_lateness_counts_from_when_a_message_was_due() -> None:
    schedule = Schedule(0, 1_000_000, 6, instance=1, instances=2)  # messages 1, 3, 5: due after 1, 3, 5 ms
    lateness = Lateness(schedule)
    lateness.add(1, 1_000_000)
    lateness.add(2, 9_000_000)
    assert lateness.ms(0, 50, 100) == [0, 4, 6]


@pytest.mark.parametrize("in_memory", [True, False])
def test_rows_are_looped_or_end_and_instances_take_turns(tmp_path: Path, in_memory: bool) -> None:
    path = tmp_path / "rows"
    path.write_text("a\nb\nc\n")
    looped = rows_of(path, True, in_memory)
    assert [next(looped) for _ in range(7)] == [b"a", b"b", b"c", b"a", b"b", b"c", b"a"]
    second = rows_of(path, True, in_memory, 1, 2)
    assert [next(second) for _ in range(4)] == [b"b", b"a", b"c", b"b"]
    assert list(rows_of(path, False, in_memory, 1)) == [b"b", b"c"]
    path.write_text("")
    with pytest.raises(TailraceError, match="has no rows"):
        next(rows_of(path, True, in_memory))


def send(broker: KafkaBroker, data: Path, *options: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["espbench", "send", "--broker", broker.bootstrap, "--data", str(data), *options])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_messages_are_on_the_broker_in_order_with_its_own_times(broker: KafkaBroker, data: Path) -> None:
    file = data / "espbench.toml"
    file.write_text('topic-prefix = "T"\n[common]\nbenchmark-run = 4\n[sender]\ninstances = 2\n')
    before_ms = time.time() * 1000
    found = send(broker, data, "q4", "--config", str(file), "--rate", "500", "--duration", "2s")
    assert (found["sent"], found["valid"], found["expectedRecordNumber"]) == ({"1": 1000, "2": 1000}, True, 2000)
    for machine in (1, 2):
        table = Broker(broker.bootstrap).read(f"T-4-{machine}")
        parts = taken_apart(table["value"].combine_chunks(), "T").to_pydict()
        assert sorted(parts["id"]) == list(range(1000))  # two senders: the broker decides between neighbours
        rows = dict(zip(parts["id"], parts["row"], strict=True))
        assert rows == {number: f"time\t{number % 70}\tpower\t{machine}" for number in range(1000)}
        times = table["time_ms"].to_pylist()
        assert times == sorted(times) and before_ms < times[0]
        assert all(sent <= at + 50 for sent, at in zip(parts["sent_ms"], times, strict=True))  # one machine, one clock
    assert Broker(broker.bootstrap).size("T-4-MachinePower") == 0


def test_a_file_that_is_not_looped_ends_the_run(broker: KafkaBroker, data: Path) -> None:
    found = send(broker, data, "q5", "--run", "5", "--rate", "100", "--duration", "1m")
    assert (found["sent"], found["valid"]) == ({"3": 30}, True)
    values = Broker(broker.bootstrap).read("ESB-5-3")["value"].to_pylist()
    assert [value.split(b";")[2] for value in values] == [b"%d\t1\t1\t1" % n for n in range(30)]


def test_a_run_does_not_mix_with_an_older_one(broker: KafkaBroker, data: Path) -> None:
    send(broker, data, "q3", "--run", "6", "--rate", "100", "--duration", "1s")
    with pytest.raises(TailraceError, match="ESB-6-1 exists: give another benchmark-run"):
        CliRunner().invoke(
            app,
            ["espbench", "send", "q3", "--broker", broker.bootstrap, "--data", str(data), "--run", "6"],
            catch_exceptions=False,
        )


def test_a_sender_that_falls_behind_makes_the_run_invalid(broker: KafkaBroker, data: Path) -> None:
    file = data / "espbench.toml"
    file.write_text("[sender]\nlateness-bound-ms = -1\n")  # nobody is that early
    arguments = ["send", "q3", "--config", str(file), "--rate", "100", "--duration", "1s", "--run", "7"]
    result = CliRunner().invoke(app, ["espbench", *arguments, "--broker", broker.bootstrap, "--data", str(data)])
    assert result.exit_code == 1
    found = json.loads(result.stdout.splitlines()[-1])
    assert not found["valid"] and "behind its schedule" in found["faults"][0]


def test_ctrl_c_ends_the_senders_too(broker: KafkaBroker, data: Path) -> None:
    arguments = ["send", "q4", "--broker", broker.bootstrap, "--data", str(data), "--run", "8", "--rate", "100"]
    command = [sys.executable, "-m", "tailrace.cli", "espbench", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    kafka = Broker(broker.bootstrap)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if kafka.size("ESB-8-2") > 5:
                break
        except TailraceError:
            pass
        time.sleep(0.2)
    senders = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
    assert len(senders) == 2
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130, output
    assert not any(os.path.exists(f"/proc/{pid}") for pid in senders)


def test_a_configuration_is_read_with_the_originals_keys(tmp_path: Path) -> None:
    path = tmp_path / "espbench.toml"
    path.write_text(
        """
        [common]
        topic-prefix = "X"
        sending-interval = 10
        sending-interval-time-unit = "microseconds"
        zookeeper-servers = "old:2181"
        [common.sender.kafka-producer-config]
        acks = "all"
        """
    )
    found = config.read(path)
    assert (found.topic_prefix, found.interval_ns, found.duration_ns) == ("X", 10_000, 300_000_000_000)
    assert found.sender.kafka_producer_config.acks == "all"
    for text, message in (
        ("duraton = 5", "there is no key 'duraton'; did you mean duration"),
        ("duration = 0", "duration is 0; it must be above 0"),
        ('duration-time-unit = "weeks"', "duration-time-unit is 'weeks'; choose from"),
        ('duration = "5"', "duration = '5' should look like 5"),
        ('[sender.kafka-producer-config]\nacks = "2"', "acks is '2'"),
        ("duration = ", str(path)),
    ):
        path.write_text(text)
        with pytest.raises(TailraceError, match=message):
            config.read(path)


def test_a_message_that_is_none_names_its_place() -> None:
    with pytest.raises(TailraceError, match="T, message 1: b'1;2' is not"):
        taken_apart(pa.array([b"1;2;3;4", b"1;2"]), "T")


def test_a_rate_that_one_process_cannot_send_is_shared() -> None:
    found = config.Config().at_rate(100_000)
    assert (found.interval_ns, found.sender.instances) == (10_000, 3)
    assert config.Config().at_rate(1_000).sender.instances == 1
    assert config.Config(sender=config.Sender(instances=4)).at_rate(1_000).sender.instances == 4


def test_a_reader_has_results_when_their_transaction_ends(broker: KafkaBroker) -> None:
    there = Broker(broker.bootstrap)
    there.create(["results"])
    with ResultReader(there, "results") as results:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "results"})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(100):
            producer.produce("results", b"%d;row" % number)
        producer.flush()
        time.sleep(0.5)
        assert (results.count, results.last) == (0, None)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.produce("results", b"never")
        producer.abort_transaction()
        deadline = time.monotonic() + 30
        while results.count < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (results.count, results.last) == (100, b"99;row")
    found = results.noted(there.read("results"))
    late = found["seen_ms"].to_numpy() - found["time_ms"].to_numpy()
    assert found.num_rows == 100 and late.min() >= 490
