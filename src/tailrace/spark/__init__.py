"""What knows Spark: the only importer of PySpark, which a platform may bring itself."""

from __future__ import annotations

SPARK_MAJOR_LEAST = 4
_ADVICE = (
    "pip install 'tailrace[spark]', or let Python find your platform's own: the folders `python` and "
    "`python/lib/py4j-*-src.zip` of SPARK_HOME on PYTHONPATH"
)

try:
    import pyspark
except ImportError as error:
    raise ImportError(f"Tailrace works inside PySpark, which is not installed here: {_ADVICE}") from error

if int(pyspark.__version__.partition(".")[0]) < SPARK_MAJOR_LEAST:
    raise ImportError(
        f"Tailrace needs PySpark {SPARK_MAJOR_LEAST}.0 or newer; here is {pyspark.__version__}, in "
        f"{pyspark.__path__[0]}: {_ADVICE}"
    )
