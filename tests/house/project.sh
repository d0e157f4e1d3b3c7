# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced by the checks: goes to the folder ROOT, their first argument.
set -euo pipefail

house=$(realpath "$(dirname "$0")")
cd "$1"

# project_files PATTERN...: sets the array files; none at all is a failure
project_files() {
    mapfile -d '' files < <("$house/../../tools/files.sh" . "$@")
    [ ${#files[@]} -gt 0 ] || {
        echo "no file found to check"
        exit 1
    }
}

# no_match GREP-ARGUMENT...: fails with what grep finds, and when grep fails
no_match() {
    local status=0
    grep -nI "$@" -- "${files[@]}" || status=$?
    [ $status -eq 1 ]
}
