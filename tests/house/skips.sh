#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# skips.sh ROOT: each line of the list of skips has a test and a reason of at
# least three words, and stands there once.
set -euo pipefail

list=$1/tests/skips.txt
awk -v list="$list" '
    /^#/ || NF == 0 { next }
    $1 !~ /^[a-z]+\/[^\/]+$/ || NF < 4 { print list ":" NR ": expected SUITE/ID and a reason"; bad = 1 }
    seen[$1]++ { print list ":" NR ": " $1 " stands there twice"; bad = 1 }
    END { exit bad }' "$list"
