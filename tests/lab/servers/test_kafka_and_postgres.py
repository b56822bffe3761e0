"""The broker and the database of the lab: they keep what they were given over a crash, and go with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from tailrace.lab.servers.kafka import KafkaBroker
from tailrace.lab.servers.postgres import PostgresServer


def test_a_database_outlives_a_crash_and_goes_at_the_end() -> None:
    with PostgresServer() as postgres:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("create table t as select 1 as a")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres.url_without_password)
        pid = postgres.pid
        assert psutil.Process(pid).uids().effective != 0
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres.url)
        postgres.restart()
        with psycopg.connect(postgres.url) as connection:
            assert connection.execute("select a from t").fetchall() == [(1,)]
        pid, folder = postgres.pid, postgres.folder
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


@pytest.mark.long
def test_a_broker_keeps_its_topics_over_a_crash() -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    with KafkaBroker() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("kept", 3)])["kept"].result(30)
        kafka.kill()
        kafka.restart()
        assert len(admin.list_topics("kept", 30).topics["kept"].partitions) == 3


@pytest.mark.parametrize("server", ["postgres", pytest.param("kafka", marks=pytest.mark.long)])
def test_what_is_served_goes_with_an_owner_that_is_killed(server: str) -> None:
    tailrace = Path(sys.executable).with_name("tailrace")
    with subprocess.Popen([str(tailrace), "serve", server], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert "=" in owner.stdout.readline()
        started = psutil.Process(owner.pid).children(recursive=True)
        assert len(started) >= 2, "the guard and the server"
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)
