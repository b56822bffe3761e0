"""Runs the core of the Spark tests on every supported PySpark and Python, and writes the support matrix from that.

Run as ``make test-versions``. Of each PySpark minor version that pyproject.toml allows, the newest patch is taken from
the package index. Each combination gets a virtual environment of its own below ``.venv-versions/``, which is kept for
the next run. By default every PySpark runs on the oldest Python, and every Python with the oldest and the newest
PySpark; ``--all`` runs each with each. ``--only 3.12:4.3`` runs one combination.

Results are kept in ``.venv-versions/results.json``, by combination; ``--write`` makes
docs/reference/support-matrix.md of them.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-versions"
RESULTS = FOLDER / "results.json"
MATRIX = ROOT / "docs" / "reference" / "support-matrix.md"

CORE = (
    "private",
    "receipts",
    "hints",
    "late_rows",
    "names_and_types",
    "pipelined_sink",
    "process",
    "replayable_sources",
    "restart",
)
"""Tests of tests/spark/ that touch every interface of Spark that Tailrace uses."""

Combination = tuple[str, str]
"""Minor versions of Python and of PySpark."""


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def python_minors() -> list[str]:
    """Those that the classifiers name."""
    names = [str(each) for each in project()["classifiers"]]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", name) for name in names]
    return sorted((match[1] for match in found if match), key=_key)


def pyspark_range() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first supported version, and the first one that is not."""
    (requirement,) = (each for each in _requirements() if re.match(r"pyspark\b", each))
    low, high = re.search(r">=([\d.]+)", requirement), re.search(r"<([\d.]+)", requirement)
    if low is None or high is None:
        raise SystemExit(f"pyproject.toml gives no range of PySpark: {requirement}")
    return _key(low[1]), _key(high[1])


def _requirements() -> list[str]:
    declared = project()
    optional = declared.get("optional-dependencies", {})
    return [*declared["dependencies"], *(each for extra in optional.values() for each in extra)]


def newest_patches() -> dict[str, str]:
    """By minor version of PySpark that is supported, its newest patch on the package index."""
    command = [sys.executable, "-m", "pip", "index", "versions", "pyspark", "--disable-pip-version-check"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", said)
    if listed is None:
        raise SystemExit(f"the package index lists no versions of PySpark: {said}")
    low, high = pyspark_range()
    newest: dict[str, str] = {}
    for version in listed[1].split(", "):  # the newest comes first
        if re.fullmatch(r"\d+\.\d+\.\d+", version) and low <= _key(version) < high:
            newest.setdefault(version.rpartition(".")[0], version)
    return newest


def interpreter(minor: str) -> Path | None:
    """A Python of this minor version: on the path, or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{minor}")
    for path in (*([Path(on_path)] if on_path else []), *sorted(versions.glob(f"{minor}.*/bin/python"), reverse=True)):
        asked = subprocess.run([str(path), "-c", "import venv, ensurepip"], capture_output=True)
        if asked.returncode == 0:
            return path
    return None


def combinations(pythons: Sequence[str], minors: Sequence[str], every: bool) -> list[Combination]:
    pairs = [*itertools.product(pythons, minors)]
    if every:
        return pairs
    return [(python, minor) for python, minor in pairs if python == pythons[0] or minor in (minors[0], minors[-1])]


def environment(python: Path, minor: str, version: str) -> Path:
    """The Python of an environment with this PySpark."""
    folder = FOLDER / f"python-{minor}-pyspark-{version}"
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", f"{ROOT}[dev]", f"pyspark=={version}"], check=True)
    return inside


def run_core(inside: Path) -> tuple[int, str]:
    """pytest's exit code and its last line."""
    tests = [str(path) for name in CORE for path in (ROOT / "tests" / "spark").rglob(f"test_{name}.py")]
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests]
    settings = {**os.environ, "PYSPARK_PYTHON": str(inside), "PYSPARK_DRIVER_PYTHON": str(inside)}
    process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return process.wait(), last


def write_matrix(results: dict[str, Any], wanted: Sequence[Combination], patches: dict[str, str]) -> None:
    run = {combination: results.get(":".join(combination)) for combination in {*wanted, *_combinations_of(results)}}
    lines = [
        "# Supported versions",
        "",
        "| | supported |",
        "|---|---|",
        "| Python, PySpark | as below; PySpark classic, not Connect |",
        "| Java | 17 and newer |",
        "| system | Linux with glibc |",
        "",
        "Which versions of Python and PySpark work is tested, not claimed. `make test-versions` runs the core of the",
        f"Spark tests ({', '.join(CORE)}) in an environment of its own for each combination, with the newest patch of",
        "each PySpark minor version, and writes this page. `pyproject.toml` excludes other minor versions.",
        "",
        "| PySpark | Python | Java | result | tests | day |",
        "|---|---|---|---|---|---|",
    ]
    for python, minor in sorted(run, key=lambda each: (_key(each[1]), _key(each[0]))):
        found = run[python, minor]
        if found is None:
            lines.append(f"| {patches[minor]} | {python} | | not run yet | | |")
        else:
            result = "works" if found["works"] else "**fails**"
            versions = f"{found['pyspark']} | {found['python']} | {found['java']}"
            lines.append(f"| {versions} | {result} | {found['tests']} | {found['day']} |")
    lines += [
        "",
        "Prefetch hints from points of Spark's plan need `pyspark.sql.functions.arrow_udf`, which PySpark 4.0 lacks:",
        "with it, hints come from ingest tasks and from staging only.",
        "",
    ]
    MATRIX.write_text("\n".join(lines), encoding="utf-8")


def _combinations_of(results: dict[str, Any]) -> list[Combination]:
    return [(python, minor) for python, _, minor in (name.partition(":") for name in results)]


def java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    return found[1] if found else "unknown"


def full_version(python: Path) -> str:
    command = [str(python), "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="each PySpark on each Python")
    parser.add_argument("--only", metavar="PYTHON:PYSPARK", help="one combination of minor versions, as 3.12:4.3")
    parser.add_argument("--write", action="store_true", help="write docs/reference/support-matrix.md from all results")
    parser.add_argument("--only-write", action="store_true", help="the same, and run nothing")
    given = parser.parse_args(arguments)
    patches = newest_patches()
    minors = sorted(patches, key=_key)
    supported = combinations(python_minors(), minors, given.all)
    wanted = supported
    if given.only:
        python, _, pyspark = given.only.partition(":")
        wanted = [(python, pyspark)]
    if given.only_write:
        wanted = []
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = []
    for python, minor in wanted:
        found = interpreter(python)
        if found is None:
            print(f"Python {python} was not found: install it, for example with pyenv. Not tested.")
            failed.append((python, minor))
            continue
        inside = environment(found, python, patches[minor])
        print(f"== Python {python}, PySpark {patches[minor]}", flush=True)
        code, last = run_core(inside)
        results[f"{python}:{minor}"] = {
            "python": full_version(inside),
            "pyspark": patches[minor],
            "java": java_version(),
            "works": code == 0,
            "tests": re.sub(r"[=]+|in [\d.]+s.*", "", last).strip(),
            "day": datetime.date.today().isoformat(),
        }
        RESULTS.write_text(json.dumps(results, indent=1))
        failed += [(python, minor)] if code else []
    if given.write or given.only_write:
        write_matrix(results, supported, patches)
    for python, minor in failed:
        print(f"FAILED: Python {python}, PySpark {minor}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
