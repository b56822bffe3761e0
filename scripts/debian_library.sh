#!/usr/bin/env bash
# Prints the path of a shared library of a Debian package, fetching the package where it has not been fetched yet; else says
# how to get it and exits with 1.
#
#   scripts/debian_library.sh FOLDER SONAME PACKAGE [PACKAGE ...]
#
# PACKAGE: what the package is called in the releases of Debian and Ubuntu; the first that there is counts. It is unpacked
# into FOLDER without installing it (no root). Nothing is written outside FOLDER.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
home=$(cd "$1" && pwd)
soname=$2
. "$(dirname "$0")/debian_packages.sh"

print_if_found() {
    local path
    path=$(find "$home" -path "$home/root/*" -name "$soname" | head -n 1)
    if [ -n "$path" ]; then echo "$path"; exit 0; fi
}

print_if_found
lock "$home"
print_if_found
: >"$home/log.txt"
echo "fetching $soname for the lab (once) ..." >&2
for package in "${@:3}"; do
    if unpack "$home" "$package"; then print_if_found; fi
done
tail -n 5 "$home/log.txt" >&2
echo "There is no $soname, and it could not be fetched. Debian, Ubuntu: sudo apt install ${*: -1}" >&2
exit 1
