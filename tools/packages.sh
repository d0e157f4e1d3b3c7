#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# packages.sh SECTION...
# Installs what is missing of the named sections of packages.txt. Nothing is
# asked of apt when nothing is missing. An ordinary user gets the one line to
# ask an administrator for.
set -euo pipefail

list=$(dirname "$0")/packages.txt

wanted() {
    awk -v sections=" $* " '
        /^\[/ { section = substr($1, 2, length($1) - 2) }
        /^[a-z0-9]/ && index(sections, " " section " ") { print $1 }' "$list"
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# quiet COMMAND...: shows the output only of a command that fails
quiet() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [ $status -eq 0 ] || cat "$log"
    rm -f "$log"
    return $status
}

install() {
    export DEBIAN_FRONTEND=noninteractive
    echo "installing through apt: $*"
    # A third-party source that does not answer must not stop the rest.
    quiet apt-get -q update || echo "apt-get update failed; trying with the lists at hand"
    quiet apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}

if ! command -v dpkg-query >/dev/null; then
    echo "packages.sh: no dpkg here; going on without installing: $(wanted "$@" | xargs)" >&2
    exit 0
fi

missing=()
for package in $(wanted "$@"); do
    is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "ask an administrator for: apt-get install --no-install-recommends ${missing[*]}"
    exit 1
fi
install "${missing[@]}"
