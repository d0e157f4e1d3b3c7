#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# enter-root.sh DIR COMMAND...
# Runs a command in the system that lies in DIR, as root, with its own /proc and
# the host's /sys (cgroups included) and /dev. It enters by pivot_root in mount
# and pid namespaces of its own, not by chroot, which would forbid the command to
# make user namespaces. Nothing stays mounted or running when it ends, however
# it ends.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    exec setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child \
        "$0" --inside "$@"
fi

root=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
pivot_root . mnt
cd /
umount -l mnt
# A child and not this process: PID 1 is deaf to signals and has to reap.
env -i --default-signal=INT,QUIT HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    "$@"
