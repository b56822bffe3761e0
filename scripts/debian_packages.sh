#!/usr/bin/env bash
# Debian's packages without root: `unpack FOLDER PACKAGE [PACKAGE ...]` downloads each package and what it needs that this
# machine lacks, and unpacks them below FOLDER/root. Sourced by the scripts that fetch a program or a library for the lab
# and its tests. Nothing is installed and nothing is written outside FOLDER. What apt says is added to FOLDER/log.txt.

missing_packages() { # of the packages named after "--" and what they need, those that the apt before it would install
    local apt=()
    while [ "$1" != -- ]; do apt+=("$1"); shift; done
    LC_ALL=C "${apt[@]}" install -s --no-install-recommends "${@:2}" | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
}

download() { # download FOLDER known|fresh PACKAGE ...; "fresh": with lists of packages of our own
    local home=$1 lists=$2 names package
    # apt as the user who runs this: it would drop root's rights, and then could not write here.
    local apt=(apt-get -o APT::Sandbox::User="$(id -un)")
    if [ "$lists" = fresh ]; then
        mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial"
        apt+=(-o Dir::State::Lists="$home/apt/lists" -o Dir::Cache="$home/apt/cache")
        "${apt[@]}" update || return 1
    fi
    names=$(missing_packages "${apt[@]}" -- "${@:3}")
    [ -n "$names" ] || return 1
    rm -rf "$home/packages" "$home/root" && mkdir -p "$home/packages" "$home/root"
    # shellcheck disable=SC2086 # one word a package
    (cd "$home/packages" && "${apt[@]}" download $names) || return 1
    for package in "$home"/packages/*.deb; do dpkg-deb -x "$package" "$home/root" || return 1; done
    rm -rf "$home/packages" "$home/apt"
}

unpack() {
    local home=$1
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    # The system's lists may be missing, or name packages that the archive has replaced.
    { download "$home" known "${@:2}" || download "$home" fresh "${@:2}"; } >>"$home/log.txt" 2>&1
}

library_folders() { # below the folder given, as LD_LIBRARY_PATH wants them
    find "$1" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:
}

lock() { # two runs of the tests at once fetch one; held until this script ends
    exec 9>"$1/lock"
    if command -v flock >/dev/null; then flock 9; fi
}
