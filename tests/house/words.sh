#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# words.sh ROOT: no file holds a word that marks unfinished work.
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

project_files '*'
no_match -wE 'T[O]DO|FIX[M]E|X[X]X'
