"""The command's manners: help with examples, wrong options, errors in one block, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tailrace.cli import app


def tailrace(*arguments: str, tmp: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, from the same sources, with its temporary files in ``tmp``."""
    sources = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "tailrace.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp), "TMPDIR": str(tmp), "COLUMNS": "120", **sources, **environment},
    )


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield (*path, name), one


def test_every_command_has_help_and_examples_that_are_commands() -> None:
    every = dict(commands(typer.main.get_command(app)))
    assert len(every) > 20
    for path, command in every.items():
        assert command.help, path
        begin, _, examples = (command.epilog or "").partition(":  ")
        assert begin in ("Example", "Examples"), path
        for example in examples.split("  ·  "):
            words = example.split()
            assert words[0] == "tailrace", example
            assert any(tuple(words[1 : n + 1]) in every for n in range(1, len(words))), example


def test_help_is_shown_without_spark(tmp_path: Path) -> None:
    done = tailrace("bench", "rmw", "--help", tmp=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    assert "--engines" in done.stdout and "Examples" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "rmw", "--engines", "sparc"), "there is no 'sparc'"),
        (("bench", "rmw", "--engines", "tailrace,tailrace"), "each once"),
        (("bench", "rmw", "--rows", "0"), "--rows"),
        (("bench", "overhead", "--conf", "x"), "is not of the form"),
        (("demo", "--rows", "many"), "--rows"),
        (("unheard-of",), "unheard-of"),
        (("checkpoint", "inspect", "no-such-folder"), "there is no folder no-such-folder"),
        (("checkpoint", "go-back", "no-such-folder", "3"), "there is no folder no-such-folder"),
    ],
)
def test_wrong_options_exit_with_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = tailrace(*arguments, tmp=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_java_is_said_in_one_block_and_leaves_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = tailrace("demo", "--rows", "100", tmp=scratch, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 1
    assert "Java 17" in done.stderr and "Traceback" not in done.stderr
    assert [entry.name for entry in scratch.iterdir() if entry.name.startswith("tailrace-lab-")] == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = tailrace("demo", "--work", str(tmp_path), tmp=tmp_path)
    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"


def test_version_names_what_it_runs_on(tmp_path: Path) -> None:
    done = tailrace("version", tmp=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pyspark" in done.stdout and "tailrace" in done.stdout
