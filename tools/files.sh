#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# files.sh ROOT PATTERN...
# Prints the project's own files whose name matches a pattern, each ended by
# NUL, relative to ROOT: what git knows or would add; where there is no git
# repository, everything outside the build folders.
set -euo pipefail

cd "$1"
shift

all_files() {
    if [ -e .git ]; then
        git -c safe.directory='*' ls-files -z --cached --others --exclude-standard
    else
        find . \( -path './build*' -o -path ./.cache -o -name __pycache__ \) -type d -prune \
            -o -type f -printf '%P\0'
    fi
}

all_files | while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue
    for pattern in "$@"; do
        # shellcheck disable=SC2053 # the pattern is meant as one
        if [[ ${file##*/} == $pattern ]]; then
            printf '%s\0' "$file"
            break
        fi
    done
done
