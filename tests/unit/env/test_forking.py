"""What a forked process takes over from who asked for it, and which callers may share a forkserver."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.env.forking import context


def test_changed_sources_are_another_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "tailrace" / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("one = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = context()
    assert context() == before
    module.write_text("one = 11")
    assert context() != before


def test_other_limits_are_another_context() -> None:
    here = context()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert context() != here
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert context() == here


_TWINS = """
import os, random, sys
import numpy as np
from tailrace.env.forking import Handover, take_on
random.seed(7), np.random.seed(7)
variables = {"PATH": "/bin", "TZ": "Asia/Tokyo", "OWN": "1"}
given = Handover(variables, sys.argv[1], ["/somewhere"], os.getpgid(0), 0o077, [0])
for number in range(2):
    if os.fork() == 0:
        log = os.open(sys.argv[1] + f"/log{number}", os.O_WRONLY | os.O_CREAT)
        take_on(given, log, ["server", "words"])
        import time
        print(random.random(), np.random.random())
        print(dict(os.environ), time.tzname[0], os.getcwd() == sys.argv[1], sys.path[0], oct(os.umask(0)))
        words = open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))
        print(words, sorted(os.sched_getaffinity(0)), flush=True)
        os._exit(0)
    os.wait()
"""


def test_twins_share_nothing_but_what_they_were_given(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _TWINS, str(tmp_path)], check=True, timeout=60)
    (chance, *said), (other_chance, *other_said) = (
        (tmp_path / f"log{each}").read_text().splitlines() for each in (0, 1)
    )
    assert chance.split()[0] != other_chance.split()[0]
    assert chance.split()[1] != other_chance.split()[1]
    assert said == other_said
    assert said[0] == "{'PATH': '/bin', 'TZ': 'Asia/Tokyo', 'OWN': '1'} JST True /somewhere 0o77"
    assert said[1] == "['server', 'words'] [0]"
