#!/usr/bin/env bash
# Prints the path of a Python that has PyFlink, for ESPBench; else says how to get one and exits with 1.
#
# Flink pins versions of pandas, pyarrow and others that PySpark does not run with, so it has a virtual environment of
# its own: the folder given as the first argument, made once with the Python given as the second. Nothing is written
# outside of that folder. The second call finds what the first one made.
set -euo pipefail
folder=${1:-.venv/flink}
python=${2:-python3}
# PyFlink 2.2, since Flink's Kafka connector is not published for a later one. The others are what queries use.
packages=('apache-flink>=2.2.1,<2.3' 'psycopg[binary]>=3.2,<4' 'numba>=0.60')

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/lock"
flock 9
if [ ! -e "$folder/.installed" ]; then
    echo "installing PyFlink for the lab (once, about a minute) ..." >&2
    if ! { "$python" -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"; } >"$folder/log.txt" 2>&1; then
        tail -n 5 "$folder/log.txt" >&2
        cat >&2 <<'HELP'
PyFlink could not be installed. It needs Python 3.9 to 3.12 and a package index. One that is there already:
  export FLINK_PYTHON=/path/to/bin/python      # with apache-flink 2.2, psycopg and numba
HELP
        exit 1
    fi
    touch "$folder/.installed"
fi
echo "$folder/bin/python"
