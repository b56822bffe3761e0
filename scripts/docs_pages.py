"""Pages of the documentation that are made from the code: the options of a query and the commands of ``tailrace``.

mkdocs calls :func:`on_files` (a hook of ``mkdocs.yml``). What a page says is read from the declarations of the options
and from the command-line parser, so that neither can describe an option that does not exist.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # the documentation of this tree, not of an installed one

import tailrace
from tailrace.api.option_values import declared
from tailrace.api.options import OPTIONS
from tailrace.api.table_options import TABLE_FORMATS
from tailrace.cli import app

OPTIONS_PAGE = """# Options

Set them with `writeStream.option(name, value)`. Names are compared without regard to case, as in Spark. An option that
Tailrace does not know is passed on to the format of the sink, unless it looks like a misspelling of one of these: then
the query is refused. This page is made from the declarations in `tailrace.api.options`.

| option | default | values | meaning |
|---|---|---|---|
{rows}

Options marked **fixed** belong to the checkpoint: a query that is started again with another value is refused. All
others may change at any restart.

## Of sinks that are tables

{tables}
"""

CLI_PAGE = """# Command line

Results go to standard output, everything else (progress, errors) to standard error. Exit codes: 0, 1 for an error, 2
for wrong options, 130 after Ctrl-C. This page is made from the command-line parser itself.

{commands}
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "reference/options.md", content=options_page()))
    files.append(File.generated(config, "reference/cli.md", content=cli_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name every public aggregate and kind of lookup table in the API reference, without a list of them by hand."""
    for marker, names in (("{{ aggregates }}", _aggregates), ("{{ tables }}", _tables)):
        if marker in markdown:
            markdown = markdown.replace(marker, "\n".join(f"::: {name}\n" for name in names()))
    return markdown


def _aggregates() -> list[str]:
    """Public functions that are neither windows nor the way into a stream."""
    functions = [getattr(tailrace, name) for name in _public_names() if name != "stream"]
    others = {"tailrace.api.windows"}
    return [_path(each) for each in functions if isfunction(each) and each.__module__ not in others]


def _public_names() -> list[str]:
    return list(getattr(tailrace, "__all__"))  # noqa: B009 - type checkers see the names, and no list of them


def _tables() -> list[str]:
    return [_path(each) for each in vars(tailrace.table).values() if isfunction(each) and _is_public_table(each)]


def _is_public_table(function: Any) -> bool:
    return not function.__name__.startswith("_") and function.__module__ == tailrace.table.__name__


def _path(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def options_page() -> str:
    rows = (_row(f"`{each.name}`", *_described(each)) for each in OPTIONS)
    return OPTIONS_PAGE.format(rows="\n".join(rows), tables="\n\n".join(_table_options()))


def _table_options() -> Iterator[str]:
    for name, default in TABLE_FORMATS.items():
        rows = (_row(f"`{each.name}`", *_described(each)) for each, _ in declared(default))
        yield "\n".join([f"### `{name}`", "", "| option | default | values | meaning |", "|---|---|---|---|", *rows])


def cli_page() -> str:
    return CLI_PAGE.format(commands="\n".join(_commands(get_command(app), ["tailrace"])))


def _described(option: Any) -> tuple[str, str, str]:
    default = f"`{option.default_text}`" if option.default_text else ""
    return default, option.values.limits, option.meaning + (" **Fixed.**" if option.fixed else "")


def _commands(command: Any, path: list[str]) -> Iterator[str]:
    nested = getattr(command, "commands", {})
    if len(path) > 1:
        yield f"{'#' * len(path)} `{' '.join(path)}`\n"
    if len(path) > 1 and command.help:
        yield _plain(command.help) + "\n"
    options = [each for each in command.params if "--help" not in each.opts]
    if options:
        yield "| argument or option | default | meaning |\n|---|---|---|"
        yield "\n".join(_parameter(each) for each in options) + "\n"
    for name, child in nested.items():
        yield from _commands(child, [*path, name])


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    shown = "" if default is None or callable(default) or default in ((), []) else f"`{default}`"
    return _row(f"`{name}`", shown, _plain(getattr(parameter, "help", "") or ""))


def _plain(text: str) -> str:
    """One paragraph, without the markup of terminals."""
    return re.sub(r"\[/?[a-z ]+\]", "", " ".join(text.split()))


def _row(*cells: str) -> str:
    return "| " + " | ".join(_cells(cells)) + " |"


def _cells(cells: Iterable[str]) -> Iterator[str]:
    for cell in cells:
        yield cell.replace("|", "\\|")


__all__ = ["cli_page", "on_files", "on_page_markdown", "options_page"]
