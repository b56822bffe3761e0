#!/usr/bin/env bash
# Prints the path of a Chromium for the tests that open pages, fetching one where there is none; else says how to get one
# and exits with 1.
#
# Looks at CHROMIUM, then on the path, then in the folder given as the first argument, which it fills where it must: with
# Debian's packages, unpacked without installing them (no root), or with playwright's download by the Python given as the
# second argument. Nothing is written outside that folder. The second call finds what the first one fetched.
set -euo pipefail
mkdir -p "${1:-.venv/chromium}"
home=$(cd "${1:-.venv/chromium}" && pwd)
python=${2:-.venv/bin/python}
fetched=$home/chromium
log=$home/log.txt
. "$(dirname "$0")/debian_packages.sh"

runs() { "$1" --version >>"$log" 2>&1; }
print_if_runs() { if [ -x "$1" ] && runs "$1"; then echo "$1"; exit 0; fi; }

# Run with its libraries and fonts from where they were unpacked.
from_debian() {
    unpack "$home" chromium || return 1
    cat >"$home/fonts.conf" <<FONTS
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>$home/root/usr/share/fonts</dir><cachedir>$home/fonts</cachedir></fontconfig>
FONTS
    cat >"$fetched.partial" <<PROGRAM
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$(library_folders "$home/root")" FONTCONFIG_FILE="$home/fonts.conf"
exec "$home/root/usr/lib/chromium/chromium" "\$@"
PROGRAM
    chmod +x "$fetched.partial"
    runs "$fetched.partial" || return 1
    mv "$fetched.partial" "$fetched"
}

from_playwright() {
    PLAYWRIGHT_BROWSERS_PATH=$home/browsers "$python" -m playwright install chromium --only-shell >>"$log" 2>&1 || return 1
    local program
    program=$(find "$home/browsers" -type f -name 'chrome-headless-shell*' -perm -u+x | head -n 1)
    [ -n "$program" ] && runs "$program" || return 1
    ln -sf "$program" "$fetched"
}

: >"$log"
if [ -n "${CHROMIUM:-}" ]; then
    print_if_runs "$CHROMIUM"
    echo "CHROMIUM is $CHROMIUM, which does not run: looking further" >&2
fi
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if program=$(command -v "$name"); then print_if_runs "$program"; fi
done
print_if_runs "$fetched"
lock "$home"
print_if_runs "$fetched"
echo "fetching a Chromium for the tests (once) ..." >&2
if from_debian || from_playwright; then print_if_runs "$fetched"; fi
tail -n 5 "$log" >&2
cat >&2 <<'HELP'
Some tests open a page in a browser, and no Chromium was found or could be fetched. Any of these gives one:
  Debian, Ubuntu:   sudo apt install chromium
  elsewhere:        .venv/bin/playwright install --with-deps chromium-headless-shell
  already there:    export CHROMIUM=/path/to/chromium
HELP
exit 1
