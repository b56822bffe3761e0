"""Compiled code is found wherever the package lies, and an archive of it spares a new machine the compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tailrace

USE = """
import sys
import numpy as np
import tailrace
from tailrace.operators.ingest.shard_kernels import scatter_numbers
assert tailrace.__file__.startswith(sys.argv[1]), tailrace.__file__
out = np.zeros(4, np.int64)
scatter_numbers(np.array([1, 0, 1, 0]), np.array([0, 2]), out)
print(out.tolist())
print(sum(scatter_numbers.stats.cache_hits.values()))
"""
RIGHT = "[1, 3, 0, 2]"


def used(package: Path, text: str, **environment: str) -> list[str]:
    """What a process prints that uses the package in that folder."""
    done = subprocess.run(
        [sys.executable, "-c", text, str(package)],
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def code(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.nbc"))


def test_code_that_was_compiled_elsewhere_is_used(tmp_path: Path) -> None:
    own = Path(tailrace.__file__).parents[1]
    moved = tmp_path / "other" / "place"
    shutil.copytree(own / "tailrace", moved / "tailrace", ignore=shutil.ignore_patterns("__pycache__"))
    archive, cache, nothing = (str(tmp_path / name) for name in ("archive", "cache", "nothing"))
    compiled = used(own, USE, TAILRACE_KERNEL_CACHE=archive, TAILRACE_KERNEL_ARCHIVE=nothing)
    assert compiled == [RIGHT, "0"] and code(Path(archive))
    os.chmod(archive, 0o555)
    for path in Path(archive).rglob("*"):
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        unpacked = used(moved, USE, TAILRACE_KERNEL_CACHE=cache, TAILRACE_KERNEL_ARCHIVE=archive)
        assert unpacked == [RIGHT, "1"] and code(Path(cache)) == []
        source = moved / "tailrace" / "operators" / "ingest" / "shard_kernels.py"
        source.write_text(source.read_text().replace("out[place] = i", "out[place] = i + 1"))
        changed = used(moved, USE, TAILRACE_KERNEL_CACHE=cache, TAILRACE_KERNEL_ARCHIVE=archive)
        assert changed == ["[2, 4, 1, 3]", "0"] and code(Path(cache)), "code of other sources is not taken"
        assert used(moved, USE, TAILRACE_KERNEL_CACHE=cache, TAILRACE_KERNEL_ARCHIVE=archive)[1] == "1"
    finally:
        for path in [Path(archive), *Path(archive).rglob("*")]:
            os.chmod(path, 0o755)
