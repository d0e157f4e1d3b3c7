#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# spelling.sh ROOT: codespell has nothing to say about any text. Words that it
# takes for mistakes and that are none stand in .codespellrc.
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

project_files '*'
codespell -- "${files[@]}"
