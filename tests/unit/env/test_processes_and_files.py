"""What servers need of the machine: facts about processes, locks, private folders, spilled batches, bounded logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.servers.state_servers import eventually
from tailrace.env import processes
from tailrace.env.files import scratch


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_pid_and_start(child: subprocess.Popen[bytes]) -> None:
    found = processes.facts(child.pid)
    assert found is not None and found.parent == os.getpid()
    assert processes.alive(child.pid, found.started)
    assert not processes.alive(child.pid, found.started + "1")
    assert next(processes.ancestors(child.pid)).pid == os.getpid()
    assert processes.facts(2**30) is None


def test_only_the_process_that_was_meant_is_killed(child: subprocess.Popen[bytes]) -> None:
    found = processes.facts(child.pid)
    assert found is not None
    assert not processes.kill(child.pid, found.started + "1")
    assert child.poll() is None
    assert processes.kill(child.pid, found.started)
    assert child.wait(10) == -signal.SIGKILL
    assert not processes.kill(child.pid, found.started)


def test_the_words_of_a_process(child: subprocess.Popen[bytes]) -> None:
    assert eventually(lambda: processes.command(child.pid)[1:] == ["-c", "import time; time.sleep(600)"])
    assert processes.command(2**30) == []


def test_both_ways_to_learn_about_a_process_agree(child: subprocess.Popen[bytes]) -> None:
    by_proc, by_ps = processes._facts_from_proc(child.pid), processes._facts_from_ps(child.pid)
    assert by_proc is not None and by_ps is not None
    assert (by_proc.parent, by_proc.name, by_proc.zombie) == (by_ps.parent, by_ps.name, by_ps.zombie)
    assert by_ps == processes._facts_from_ps(child.pid)
    assert processes._facts_from_ps(2**22 + 1) is None


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    found = processes.facts(child.pid)
    assert found is not None
    os.kill(child.pid, signal.SIGKILL)  # and not waited for
    assert eventually(lambda: not processes.alive(child.pid, found.started))
    left = processes.facts(child.pid)
    assert left is not None and left.zombie


def test_a_name_with_brackets_and_blanks_is_read(tmp_path: Path) -> None:
    odd = tmp_path / ") x (y"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "60"])
    try:
        assert eventually(lambda: (found := processes.facts(process.pid)) is not None and found.name == ") x (y")
        found = processes.facts(process.pid)
        assert found is not None and found.parent == os.getpid()
    finally:
        process.kill()
        process.wait()


def test_a_lock_is_held_once_and_goes_with_its_process(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = scratch.ProcessLock.take(path, 0.0)
    assert first is not None
    assert scratch.ProcessLock.take(path, 0.05) is None
    first.release()
    code = (
        "import sys, time; from tailrace.env.files import scratch; lock = scratch.ProcessLock.take(sys.argv[1], 0.0);"
        "print(lock is not None, flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    assert scratch.ProcessLock.take(path, 0.0) is None
    holder.kill()
    holder.wait()
    again = scratch.ProcessLock.take(path, 5.0)
    assert again is not None
    again.release()


def test_a_lock_on_a_removed_file_counts_for_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = scratch.ProcessLock.take(path, 0.0)
    assert first is not None
    os.unlink(path)
    second = scratch.ProcessLock.take(path, 0.0)
    assert second is not None
    assert scratch.ProcessLock.take(path, 0.0) is None
    first.release()
    second.release()


def test_a_link_or_an_open_folder_is_not_private(tmp_path: Path) -> None:
    real = tmp_path / "real"
    scratch.make_private(str(real))
    scratch.make_private(str(real))
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(PermissionError):
        scratch.make_private(str(tmp_path / "link"))
    real.chmod(0o711)
    with pytest.raises(PermissionError):
        scratch.make_private(str(real))


def test_a_base_too_long_for_a_socket_is_not_used(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    assert scratch.private_base(50, str(long)) == f"/tmp/tailrace-{os.getuid()}"


def test_spilled_batches_come_back_in_order_and_outlive_their_file(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pydict({"x": [number] * 1000}) for number in range(5)]
    spilled = scratch.SpilledBatches(str(tmp_path), batches[0].schema)
    for batch in batches:
        spilled.write(batch)
    assert os.listdir(tmp_path) == [], "it has no name"
    found = spilled.batches()
    spilled.close()
    assert list(found) == batches


def test_a_log_is_cut_to_its_last_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with scratch.open_log(path) as log:
        for number in range(1000):
            log.write(b"line %d\n" % number)
        scratch.trim_log(path, bytes_max=100_000, bytes_kept=100)
        assert len(Path(path).read_text().splitlines()) == 1000
        scratch.trim_log(path, bytes_max=1000, bytes_kept=100)
        log.write(b"after\n")
    lines = Path(path).read_text().splitlines()
    assert lines[-2:] == ["line 999", "after"]
    assert 5 < len(lines) < 15
    assert all(line.startswith("line ") for line in lines[:-1])
