#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check-fresh.sh [--no-cache]
# What a new user sees: `make demo`, then `make check` (without the suites that say the same
# on every machine: see check.sh), then an installation, on
# a minimal Debian 12 that has only git and make added (fresh-root.sh). What is
# tested is the last commit. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/fresh-root.sh

clone='/root/a clone/hutch' # a path with a space has to do

passed=0 failed=0
# step NAME SCRIPT: runs a shell script in the clone inside the new system
step() {
    local start=$SECONDS
    if contained tools/enter-root.sh "$root" bash -c "cd '$clone' && $2"; then
        passed=$((passed + 1))
        echo "ok - $1 on a fresh system ($((SECONDS - start)) s)"
    else
        failed=$((failed + 1))
        echo "FAILED: $1 on a fresh system ($((SECONDS - start)) s)"
    fi
}

[ "${1:-}" != --no-cache ] || use_cache=no
fresh_root check-fresh
copy_commit "$clone"
step 'make demo' 'make demo'
step 'make check' 'HUTCH_FRESH=1 make check'
step 'make install' 'touch /before && make install && (cd / && hutch run -c "print(2+2)" | grep -qx 4) &&
    make uninstall && ! find /usr/local -newer /before -not -type d | grep .'
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
