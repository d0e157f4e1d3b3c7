#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh ROOT: every C file is as clang-format writes it (make format).
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

project_files '*.[ch]'
clang-format-14 --dry-run -Werror "${files[@]}"
