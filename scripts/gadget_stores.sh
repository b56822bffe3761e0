#!/usr/bin/env bash
# Builds the two stores of `tailrace gadget` that PyPI has as source only, BerkeleyDB and WiredTiger, for the Python given as
# the first argument (default: .venv/bin/python), and installs them there. Nothing is written outside that Python's
# environment and a temporary folder. Takes a C and a C++ compiler and some minutes; no root: Debian's files of BerkeleyDB
# are taken apart, not installed, where they are not there already.
set -euo pipefail
python=${1:-.venv/bin/python}
[ -x "$python" ] || { echo "there is no Python at $python: run 'make setup' first, or name one" >&2; exit 1; }
command -v cc >/dev/null && command -v c++ >/dev/null || {
    echo "BerkeleyDB and WiredTiger are built from source and need a compiler. Debian, Ubuntu: sudo apt install g++" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
has() { "$python" -c "import $1" 2>/dev/null; }
failed=()

berkeleydb() {
    if [ ! -e /usr/include/db.h ]; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
            echo "BerkeleyDB's header db.h is missing: install the development files of Berkeley DB 5.3" >&2
            return 1
        }
        mkdir "$work/packages" "$work/root"
        (cd "$work/packages" && apt-get -o APT::Sandbox::User="$(id -un)" download libdb5.3-dev libdb5.3) || return 1
        local package
        for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/root" || return 1; done
        export BERKELEYDB_INCDIR=$work/root/usr/include
        BERKELEYDB_LIBDIR=$(dirname "$(find "$work/root" -name 'libdb-5.3.so' | head -n 1)")
        export BERKELEYDB_LIBDIR
        # The library itself is on nearly every Debian; where it is not, it stays beside the package.
        if ! ldconfig -p | grep -q 'libdb-5\.3\.so'; then
            local kept
            kept=$("$python" -c 'import sys; print(sys.prefix)')/lib
            cp "$BERKELEYDB_LIBDIR/libdb-5.3.so" "$kept/"
            export LDFLAGS="-Wl,-rpath,$kept"
        fi
    fi
    "$python" -m pip install --quiet --disable-pip-version-check 'berkeleydb>=18.1,<19'
}

wiredtiger() {
    "$python" -m venv "$work/tools" || return 1
    # Of its build tools, newer versions of SWIG leave out what its wrapper still calls.
    "$work/tools/bin/pip" install --quiet --disable-pip-version-check 'swig<4.3' 'cmake<4' ninja setuptools wheel || return 1
    PATH=$work/tools/bin:$PATH "$work/tools/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --wheel-dir "$work/wheels" 'wiredtiger>=11.3,<12' || return 1
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/wheels/wiredtiger-*.whl
}

for store in berkeleydb wiredtiger; do
    if has "$store"; then
        echo "$store: there"
    elif "$store" >"$work/$store.log" 2>&1 && has "$store"; then
        echo "$store: built"
    else
        echo "$store: not built; the last it said:" >&2
        tail -n 5 "$work/$store.log" >&2
        failed+=("$store")
    fi
done
[ ${#failed[@]} -eq 0 ]
