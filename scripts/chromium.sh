#!/usr/bin/env bash
# Prints the path of a Chromium for the tests of the lab's report, fetching one where there is none; else says how to get
# one and exits with 1.
#
# Looks at CHROMIUM, then on the path, then in the folder given as the first argument, which it fills where it must: with
# Debian's packages, taken apart without installing them (no root), or with playwright's download by the Python given as
# the second argument. Nothing is written outside that folder. The second call finds what the first one fetched.
set -euo pipefail
mkdir -p "${1:-.venv/chromium}"
home=$(cd "${1:-.venv/chromium}" && pwd)
python=${2:-.venv/bin/python}
own=$home/chromium
said=$home/log.txt

works() { "$1" --version >>"$said" 2>&1; }
found() { echo "$1"; exit 0; }

packages() { # what the apt given would install for chromium
    LC_ALL=C "$@" install -s --no-install-recommends chromium 2>>"$said" | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
}

# Debian's packages: what apt would install, unpacked here and run with its libraries and fonts from here.
from_debian() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    # As the user who runs this: apt would drop root's rights, and then could not write here.
    local names apt=(apt-get -o APT::Sandbox::User="$(id -un)")
    names=$(packages "${apt[@]}")
    if [ -z "$names" ]; then # a fresh system has no lists of packages: get some, here
        mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial"
        apt+=(-o Dir::State::Lists="$home/apt/lists" -o Dir::Cache="$home/apt/cache")
        "${apt[@]}" update >>"$said" 2>&1 || return 1
        names=$(packages "${apt[@]}")
    fi
    [ -n "$names" ] || return 1
    rm -rf "$home/packages" "$home/root" && mkdir -p "$home/packages" "$home/root"
    # shellcheck disable=SC2086 # one word a package
    (cd "$home/packages" && "${apt[@]}" download $names) >>"$said" 2>&1 || return 1
    local package
    for package in "$home"/packages/*.deb; do dpkg-deb -x "$package" "$home/root" || return 1; done
    rm -rf "$home/packages" "$home/apt"
    cat >"$home/fonts.conf" <<FONTS
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>$home/root/usr/share/fonts</dir><cachedir>$home/fonts</cachedir></fontconfig>
FONTS
    local libraries
    libraries=$(find "$home/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    cat >"$own.making" <<PROGRAM
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$libraries" FONTCONFIG_FILE="$home/fonts.conf"
exec "$home/root/usr/lib/chromium/chromium" "\$@"
PROGRAM
    chmod +x "$own.making"
    works "$own.making" || return 1
    mv "$own.making" "$own"
}

from_playwright() {
    PLAYWRIGHT_BROWSERS_PATH=$home/browsers "$python" -m playwright install chromium --only-shell >>"$said" 2>&1 || return 1
    local program
    program=$(find "$home/browsers" -type f -name 'chrome-headless-shell*' -perm -u+x | head -n 1)
    [ -n "$program" ] && works "$program" || return 1
    ln -sf "$program" "$own"
}

: >"$said"
if [ -n "${CHROMIUM:-}" ]; then
    if works "$CHROMIUM"; then found "$CHROMIUM"; fi
    echo "CHROMIUM is $CHROMIUM, which does not run: looking further" >&2
fi
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if program=$(command -v "$name") && works "$program"; then found "$program"; fi
done
if [ -x "$own" ] && works "$own"; then found "$own"; fi
exec 9>"$home/lock" # two runs of the tests at once fetch one browser
if command -v flock >/dev/null; then flock 9; fi
if [ -x "$own" ] && works "$own"; then found "$own"; fi
echo "fetching a Chromium for the tests of the report (once) ..." >&2
if from_debian || from_playwright; then found "$own"; fi
tail -n 5 "$said" >&2
cat >&2 <<'HELP'
The report's tests open it in a browser, and no Chromium was found or could be fetched. Any of these gives one:
  Debian, Ubuntu:   sudo apt install chromium
  elsewhere:        .venv/bin/playwright install --with-deps chromium-headless-shell
  already there:    export CHROMIUM=/path/to/chromium
HELP
exit 1
