#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# licence.sh ROOT: each source file names its licence in its first three lines.
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

project_files '*.[ch]' '*.def' '*.map' '*.py' '*.sh' '*.mjs' '*.js' '*.cpp' '*.go' '*.rs' \
    meson.build 'meson*options*' Makefile run
failed=0
for file in "${files[@]}"; do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' || {
        echo "$file: no SPDX line"
        failed=1
    }
done
exit $failed
