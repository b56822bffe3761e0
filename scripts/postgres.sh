#!/usr/bin/env bash
# Prints the path of a postgres program (initdb stands beside it) for the lab and its tests, fetching one where there is
# none; else says how to get one and exits with 1.
#
# Looks at POSTGRES, then on the path and in the folders of Debian, then in the folder given as the first argument, which
# it fills where it must with Debian's packages, unpacked without installing them (no root). Nothing is written outside
# that folder, and nothing is started. The second call finds what the first one fetched.
set -euo pipefail
mkdir -p "${1:-.venv/postgres}"
home=$(cd "${1:-.venv/postgres}" && pwd)
fetched=$home/postgres
log=$home/log.txt
. "$(dirname "$0")/debian_packages.sh"

runs() { "$1" --version >>"$log" 2>&1 && "$(dirname "$1")/initdb" --version >>"$log" 2>&1; }
print_if_runs() { if [ -x "$1" ] && runs "$1"; then echo "$1"; exit 0; fi; }

from_debian() {
    unpack "$home" postgresql || return 1
    local programs name
    programs=$(dirname "$(find "$home/root/usr/lib/postgresql" -name initdb | sort -V | tail -n 1)")
    for name in initdb postgres; do
        cat >"$home/$name.partial" <<PROGRAM
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$(library_folders "$home/root")"
exec "$programs/$name" "\$@"
PROGRAM
        chmod +x "$home/$name.partial"
        mv "$home/$name.partial" "$home/$name"
    done
    runs "$fetched"
}

: >>"$log"
if [ -n "${POSTGRES:-}" ]; then
    print_if_runs "$POSTGRES"
    echo "POSTGRES is $POSTGRES, which does not run, or has no initdb beside it: looking further" >&2
fi
for program in "$(command -v postgres || true)" $(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -rV); do
    print_if_runs "$program"
done
print_if_runs "$fetched"
lock "$home"
print_if_runs "$fetched"
echo "fetching PostgreSQL for the lab (once) ..." >&2
if from_debian; then print_if_runs "$fetched"; fi
tail -n 5 "$log" >&2
cat >&2 <<'HELP'
No postgres was found or could be fetched. Any of these gives one:
  Debian, Ubuntu:   sudo apt install postgresql
  already there:    export POSTGRES=/path/to/bin/postgres
HELP
exit 1
