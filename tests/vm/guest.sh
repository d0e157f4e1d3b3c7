#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# guest.sh
# Runs as root in the machine of tools/check-vm.sh. What the suites print goes to
# the second serial line, each suite between "@begin NAME" and "@end NAME STATUS
# SECONDS". The suites of root and those of the user tester run side by side, one
# processor each; the escape suite for tester looks from root's side, but at what
# is that user's.
#
# Every instruction is emulated here: a Python program takes two seconds to start,
# node ten and more. So of the conformance suite only the rows run that this
# machine may answer in another way than the host: limits, isolation, network, shell, and
# sessions that lose their interpreter, through the C API; memory, processes and disk also through the command
# line. Left out by name are JavaScript and what has a short time for its work or
# measures it; and of the escape suite the lies on the channel, which reach the
# engine only. Its cells are cold: a case takes so long that a zygote would go in
# between. Those of the conformance suite are not.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

line=/dev/ttyS1
build=$PWD/build
slow_conformance='js-*,li-timeout-busy,li-timeout-fraction,li-timeout-ignores-signals,li-time-from-*'
slow_conformance+=',li-cpus-*,li-orphans,busy-loop-in-time,slow-reader,sh-statuses-while-reaping'
slow_conformance+=',se-*-javascript,se-fork-storm,fork-storm,sixty-four-at-once,cells-cannot-meet,li-time-*'
slow_escape='wire-*,set-id,daemons-die,fork-bomb,engine-stopped,engine-of-many-*,many-cells'
rows=LI,IS,NE,SH,SE01,SE03,SE25
# As an ordinary user: without the hosts of other kinds, and what only root's part does.
user_slow_escape="$slow_escape,inside-*,root-without-*,restricted-*,landlock-*,seccomp-missing"
user_slow_escape+=',network-namespace-missing,layers-as-doctor-says,engine-*,closed-calls,sockets'

# suite SUITE.NAME USER LIMIT COMMAND...: a command of this file for root, or for
# the user in a session as after a login. What it prints is sent when it ends:
# the lines of two suites at once must not mix.
suite() {
    local name=$1 user=$2 limit=$3 status=0 start=$SECONDS output
    local command=(bash tests/vm/guest.sh "${@:4}")
    [ "$user" = root ] || command=(su -l "$user" -c "cd '$PWD' && ${command[*]@Q}")
    output=$(mktemp)
    timeout -k 10 "$limit" "${command[@]}" >"$output" 2>&1 </dev/null || status=$?
    {
        flock 9
        echo "@begin $name"
        sed 's/^@/ @/' "$output"
        echo "@end $name $status $((SECONDS - start))"
    } 9>/run/line >$line
    rm -f "$output"
}

conformance() {
    python3 -u -B tests/conformance/run.py --tap --hutch "$build/hutch" --jobs 1 \
        --cache-dir "/run/cache-$(id -un)/hutch" --without "$slow_conformance" "$@"
}

escape() {
    python3 -u -B tests/escape/run.py --tap --hutch "$build/hutch" --shared-host --cold "$@"
}

systemd() {
    HUTCH=$build/hutch HUTCH_CACHE_DIR=/run/cache-$(id -un)/hutch bash tests/vm/systemd.sh
}

cgroup_host() {
    CMOCKA_MESSAGE_OUTPUT=TAP build/tests/integration/test_cgroup_host
}

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

# The kernel's modules for sockets, with the device files that some of them make: else
# the part that runs beside sees them come when a program outside of a cell asks for them.
load_sockets='
import socket
for family in range(1, 46):
    for kind in range(1, 6):
        try:
            socket.socket(family, kind).close()
        except OSError:
            pass
'

stty -F $line raw
python3 -I -c "$load_sockets"
loginctl enable-linger tester # the user's systemd runs without a session too
for user in root tester; do
    mkdir "/run/cache-$user"
    mount -t tmpfs -o "size=1G,mode=755,uid=$(id -u $user)" tmpfs "/run/cache-$user"
done
{
    suite integration.vm-root-systemd root 300 systemd
    suite integration.vm-root-cgroup_host root 200 cgroup_host
    suite escape.vm-root root 1200 escape --without "$slow_escape"
    suite conformance.vm-root-c root 900 conformance --door c --rows $rows
    suite conformance.vm-root-cli root 300 conformance --door cli --rows LI04,LI08,LI10
} &
{
    suite integration.vm-user-systemd tester 300 systemd
    suite conformance.vm-user-c tester 900 conformance --door c --rows $rows
    suite conformance.vm-user-cli tester 300 conformance --door cli --rows LI04,LI08,LI10
    suite escape.vm-user root 1200 escape --user tester --without "$user_slow_escape"
} &
wait
