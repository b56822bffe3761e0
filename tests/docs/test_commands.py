"""Commands that pages show exist: programs, sub-commands and options of ``tailrace``, and targets of make."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from support.docs.pages import ROOT, blocks, named, pages
from tailrace.api.option_values import declared
from tailrace.api.options import OPTIONS
from tailrace.api.table_options import TABLE_FORMATS
from tailrace.cli import app

SHELLS = ("bash", "console", "sh", "")
SINK_OPTIONS = {"compression", "path"}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def _lines(page: Path) -> list[str]:
    return [line for block in blocks(page, *SHELLS) for line in block.code.splitlines()]


def _problem(words: list[str]) -> str | None:
    """What is wrong with a call of ``tailrace``, or None."""
    command: Any = get_command(app)
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        return f"there is no command {words[0]!r}"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"there is no option {unknown[0]!r}" if unknown else None


@pytest.mark.parametrize("page", pages(), ids=named)
def test_commands_exist(page: Path) -> None:
    for line in _lines(page):
        words = (
            shlex.split(line.removeprefix("$ "), comments=True) if line.startswith(("tailrace ", "$ ", "make ")) else []
        )
        if words[:1] == ["tailrace"]:
            assert _problem(words[1:]) is None, f"{line}: {_problem(words[1:])}"
        elif words[:1] == ["make"]:
            wanted = [word for word in words[1:] if "=" not in word]
            assert set(wanted) <= TARGETS, line


def test_a_wrong_command_is_noticed() -> None:
    assert _problem(["bench", "rmv"]) == "there is no command 'rmv'"
    assert _problem(["bench", "rmw", "--row", "5"]) == "there is no option '--row'"
    assert _problem(["bench", "rmw", "--rows", "5"]) is None


@pytest.mark.parametrize("page", pages(), ids=named)
def test_options_exist(page: Path) -> None:
    known = {option.name for option in OPTIONS} | SINK_OPTIONS
    known |= {declaration.name for options in TABLE_FORMATS.values() for declaration, _ in declared(options)}
    code = "".join(block.code for block in blocks(page, "python"))
    used = set(re.findall(r"writeStream.*?\.start|writer = .*?\n\)", code, re.S))
    names = {name for query in used for name in re.findall(r'\.option\("(\w+)"', query)}
    assert names <= known
