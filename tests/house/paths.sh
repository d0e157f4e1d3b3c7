#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# paths.sh ROOT: no file names a path of the machine it was written on: a
# top-level folder outside the usual hierarchy, the folder of this checkout, or
# the user's home.
# shellcheck source=tests/house/project.sh
. "$(dirname "$0")/project.sh"

usual=" bin boot dev etc home init lib lib32 lib64 libx32 lost+found media mnt opt proc root run"
usual+=" sbin snap srv sys tmp usr var "

folders=(-e "$PWD/")
for folder in /*/; do
    [[ $usual == *" $(basename "$folder") "* ]] || folders+=(-e "$folder")
done
case ${HOME:-/} in
    / | /root | /home/user | /nonexistent) ;;
    *) folders+=(-e "$HOME/") ;;
esac

project_files '*'
no_match -F "${folders[@]}"
