#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# shell.sh ROOT: shellcheck has nothing to say about any shell script. A file
# without a shebang is a program for a cell, and no script of ours, unless it
# says `shellcheck shell=`.
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

project_files '*'
scripts=()
for file in "${files[@]}"; do
    start=$(head -c 200 "$file" | tr -d '\0')
    if [[ $start =~ ^#!.*/(ba|da)?sh || $start == *'# shellcheck shell='* ]]; then
        scripts+=("$file")
    fi
done
[ ${#scripts[@]} -gt 0 ]
shellcheck -x -- "${scripts[@]}"
