"""What a state server does without, since each of them would start later and be larger with it."""

from __future__ import annotations

import subprocess
import sys


def printed(code: str) -> str:
    """By a Python of its own: this one has imported everything."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_server_is_ready_without_spark_and_pandas_and_clients_that_few_need() -> None:
    code = """
import sys
from tailrace.server.epoch import assembly
from tailrace.server.process import main as process
process.hide_pandas()
assembly.warm_up()
unwanted = {"pandas", "pyspark", "py4j", "tailrace.api.stream", "pyarrow.fs", "pyarrow.parquet", "obstore"}
print(sorted(unwanted & sys.modules.keys()))
"""
    assert printed(code) == "[]"


def test_a_users_function_finds_pandas_where_pyarrow_did_not() -> None:
    """Else a NaN of a Series would be a number, and not null as it is wherever pyarrow knows pandas."""
    code = """
import base64, pickle
import pyarrow as pa
from tailrace.env.pandas_import import hide_pandas
from tailrace.operators.user_code.code import loaded
hide_pandas()
function = loaded(base64.b64encode(pickle.dumps(pa.array)).decode(), "operator", "function")
import pandas as pd
print(function(pd.Series([1.0, float("nan")])).null_count)
"""
    assert printed(code) == "1"
