#!/usr/bin/env bash
# Prints the path of a redis-server for the lab and its tests, fetching one where there is none; else says how to get one
# and exits with 1.
#
# Looks at REDIS_SERVER, then on the path, then in the folder given as the first argument, which it fills where it must
# with Debian's packages, unpacked without installing them (no root). Nothing is written outside that folder, and nothing
# is started. The second call finds what the first one fetched.
set -euo pipefail
mkdir -p "${1:-.venv/redis}"
home=$(cd "${1:-.venv/redis}" && pwd)
fetched=$home/redis-server
log=$home/log.txt
. "$(dirname "$0")/debian_packages.sh"

runs() { "$1" --version >>"$log" 2>&1; }
print_if_runs() { if [ -x "$1" ] && runs "$1"; then echo "$1"; exit 0; fi; }

from_debian() {
    unpack "$home" redis-server || return 1
    cat >"$fetched.partial" <<PROGRAM
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$(library_folders "$home/root")"
exec "$home/root/usr/bin/redis-server" "\$@"
PROGRAM
    chmod +x "$fetched.partial"
    runs "$fetched.partial" || return 1
    mv "$fetched.partial" "$fetched"
}

: >"$log"
if [ -n "${REDIS_SERVER:-}" ]; then
    print_if_runs "$REDIS_SERVER"
    echo "REDIS_SERVER is $REDIS_SERVER, which does not run: looking further" >&2
fi
for name in redis-server valkey-server; do
    if program=$(command -v "$name"); then print_if_runs "$program"; fi
done
print_if_runs "$fetched"
lock "$home"
print_if_runs "$fetched"
echo "fetching a redis-server for the lab (once) ..." >&2
if from_debian; then print_if_runs "$fetched"; fi
tail -n 5 "$log" >&2
cat >&2 <<'HELP'
No redis-server was found or could be fetched. Any of these gives one:
  Debian, Ubuntu:   sudo apt install redis-server
  already there:    export REDIS_SERVER=/path/to/redis-server
HELP
exit 1
