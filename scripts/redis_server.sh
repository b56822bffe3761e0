#!/usr/bin/env bash
# Prints the path of a redis-server for the lab and its tests, fetching one where there is none; else says how to get one
# and exits with 1.
#
# Looks at REDIS_SERVER, then on the path, then in the folder given as the first argument, which it fills where it must:
# with Debian's packages, taken apart without installing them (no root). Nothing is written outside that folder, and
# nothing is started. The second call finds what the first one fetched.
set -euo pipefail
mkdir -p "${1:-.venv/redis}"
home=$(cd "${1:-.venv/redis}" && pwd)
own=$home/redis-server
said=$home/log.txt

works() { "$1" --version >>"$said" 2>&1; }
found() { echo "$1"; exit 0; }

packages() { # what the apt given would install for redis-server
    LC_ALL=C "$@" install -s --no-install-recommends redis-server 2>>"$said" | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
}

# As the user who runs this: apt would drop root's rights, and then could not write here.
fetch() { # what apt would install, unpacked here; "fresh": with lists of packages of our own
    local names apt=(apt-get -o APT::Sandbox::User="$(id -un)")
    if [ "$1" = fresh ]; then
        mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial"
        apt+=(-o Dir::State::Lists="$home/apt/lists" -o Dir::Cache="$home/apt/cache")
        "${apt[@]}" update >>"$said" 2>&1 || return 1
    fi
    names=$(packages "${apt[@]}")
    [ -n "$names" ] || return 1
    rm -rf "$home/packages" "$home/root" && mkdir -p "$home/packages" "$home/root"
    # shellcheck disable=SC2086 # one word a package
    (cd "$home/packages" && "${apt[@]}" download $names) >>"$said" 2>&1 || return 1
    local package
    for package in "$home"/packages/*.deb; do dpkg-deb -x "$package" "$home/root" || return 1; done
    rm -rf "$home/packages" "$home/apt"
}

from_debian() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    # The system's lists may be missing, or name packages that the archive has replaced.
    fetch known || fetch fresh || return 1
    local libraries
    libraries=$(find "$home/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    cat >"$own.making" <<PROGRAM
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$libraries"
exec "$home/root/usr/bin/redis-server" "\$@"
PROGRAM
    chmod +x "$own.making"
    works "$own.making" || return 1
    mv "$own.making" "$own"
}

: >"$said"
if [ -n "${REDIS_SERVER:-}" ]; then
    if works "$REDIS_SERVER"; then found "$REDIS_SERVER"; fi
    echo "REDIS_SERVER is $REDIS_SERVER, which does not run: looking further" >&2
fi
for name in redis-server valkey-server; do
    if program=$(command -v "$name") && works "$program"; then found "$program"; fi
done
if [ -x "$own" ] && works "$own"; then found "$own"; fi
exec 9>"$home/lock" # two runs of the tests at once fetch one
if command -v flock >/dev/null; then flock 9; fi
if [ -x "$own" ] && works "$own"; then found "$own"; fi
echo "fetching a redis-server for the lab (once) ..." >&2
if from_debian; then found "$own"; fi
tail -n 5 "$said" >&2
cat >&2 <<'HELP'
No redis-server was found or could be fetched. Any of these gives one:
  Debian, Ubuntu:   sudo apt install redis-server
  already there:    export REDIS_SERVER=/path/to/redis-server
HELP
exit 1
