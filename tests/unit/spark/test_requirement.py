"""What a user reads where PySpark is missing, or too old."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def refusal(prelude: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{prelude}\nimport tailrace\ntailrace.AnalysisError\ntailrace.stream"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_without_pyspark() -> None:
    said = refusal("sys.modules['pyspark'] = None")
    assert "pip install 'tailrace[spark]'" in said and "PYTHONPATH" in said


def test_with_an_old_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.8"\n')
    said = refusal(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert "needs PySpark 4.0 or newer; here is 3.5.8, in " in said and str(tmp_path) in said
