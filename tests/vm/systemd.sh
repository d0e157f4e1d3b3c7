#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# systemd.sh
# What hutch makes of pure cgroup v2 under systemd, as TAP: as root, and as an
# ordinary user in a session, who gets a cgroup from the own systemd (scope.h).
# HUTCH names the program.
set -uo pipefail

count=0
# check PROMISE COMMAND...: passes when the command does
check() {
    local verdict=ok output
    count=$((count + 1))
    output=$("${@:2}" 2>&1) || verdict='not ok'
    echo "$verdict $count - $1"
    [ "$verdict" = ok ] || printf '#   %s\n' "${output//$'\n'/$'\n#   '}"
}

# within SECONDS COMMAND...: whether it comes true in that time
within() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return
        sleep 0.2
    done
}

limits=(--require cgroup_memory --require cgroup_pids --require cgroup_cpu)

runs() {
    [ "$("$HUTCH" run -l shell "$@" -c 'expr 6 \* 7')" = 42 ]
}

# only_missing LAYERS: what doctor misses, with commas
only_missing() {
    { "$HUTCH" doctor --json || [ $? -eq 1 ]; } | python3 -c '
import json, sys
report = json.load(sys.stdin)
missing = [layer for layer in report["layers"] if not layer["in_force"]]
names = ",".join(layer["name"] for layer in missing)
print(names, report["cgroup"], [layer["reason"] for layer in missing])
every = {"memory": "v2", "pids": "v2", "cpu": "v2", "cpuacct": "v2"}
sys.exit(names != sys.argv[1] or report["cgroup"] != {"layout": "v2", "controllers": every})' "$1"
}

# groups PLACE: those of hutch there, of this user
groups() {
    if [ "$(id -u)" -eq 0 ]; then
        find /sys/fs/cgroup -path '*/user.slice' -prune -o -name 'hutch-*-*' -path "*$1*" -print
    else
        find "/sys/fs/cgroup/user.slice/user-$(id -u).slice" -name 'hutch-*-*' -path "*$1*"
    fi 2>/dev/null
}

nothing_left() {
    within 20 eval "[ -z \"\$(groups '')\" ]"
}

# While a program waits, its cell's group lies where it should; once its command
# is killed, with the signal, nothing of it stays.
killed_in() {
    local place=$1 signal=$2 output='' pid status=0
    coproc cell { exec "$HUTCH" run -l shell -c 'echo ready; exec sleep 100'; }
    pid=${cell_PID:?}
    read -rt 60 output <&"${cell[0]}"
    [ "$output" = ready ] || status=1
    [ -n "$(groups "$place/hutch-")" ] || { find /sys/fs/cgroup -name 'hutch-*'; status=1; }
    kill "-$signal" "$pid"
    wait "$pid" 2>/dev/null
    nothing_left || { groups ''; status=1; }
    return $status
}

memory_holds() {
    local status=0
    "$HUTCH" run -m 64 "${limits[@]}" -c 'x = "a" * (1 << 30)' || status=$?
    [ $status -eq 137 ] || [ $status -eq 1 ]
}

# A fifth of a processor, however slow that is.
processor_holds() {
    # shellcheck disable=SC2016 # for the shell in the cell
    "$HUTCH" run --json -l shell --cpus 0.2 "${limits[@]}" \
        -c 'end=$((SECONDS + 4)); while [ $SECONDS -lt $end ]; do :; done' | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(result["cpu_ms"], result["duration_ms"], result["error"])
sys.exit(result["exit_code"] != 0 or result["cpu_ms"] > result["duration_ms"] * 0.4)'
}

# The user's systemd-run replaced by a program that fails, or never ends.
without_scope() {
    local fake
    fake=$(mktemp)
    printf '#!/bin/sh\n%s\n' "$1" >"$fake"
    chmod 755 "$fake"
    # shellcheck disable=SC2016 # the inner shells expand it
    unshare --mount bash -c 'mount --bind "$0" /usr/bin/systemd-run && su -l tester -c "
        HUTCH_CACHE_DIR=/run/cache-tester/hutch \"$1\" run -l shell -c \"echo 4\" | grep -qx 4 &&
        HUTCH_CACHE_DIR=/run/cache-tester/hutch \"$1\" run -l shell --require cgroup_memory -c true
        [ \$? -eq 125 ]"' "$fake" "$HUTCH"
}

if [ "$(id -u)" -eq 0 ]; then
    echo 1..8
    check 'root: every layer is in force' only_missing ''
    check 'root: a cell with limits by cgroups runs' runs "${limits[@]}"
    check 'root: the memory limit holds' memory_holds
    check 'root: the processor limit holds' processor_holds
    check 'root: a terminated command leaves no group' killed_in /sys/fs/cgroup TERM
    check 'root: a killed command leaves no group' killed_in /sys/fs/cgroup KILL
    check 'user: without a scope there is the fallback' without_scope 'exit 1'
    check 'user: a systemd that does not answer is not waited for' without_scope 'exec sleep 60'
else
    scope="user@$(id -u).service/app.slice/run-*.scope"
    echo 1..7
    check 'user: only the uids are missing' only_missing distinct_uid
    check 'user: a cell with limits by cgroups runs' runs "${limits[@]}"
    check 'user: the memory limit holds' memory_holds
    check 'user: the processor limit holds' processor_holds
    check 'user: a terminated command leaves no scope' killed_in "$scope" TERM
    check 'user: a killed command leaves no scope' killed_in "$scope" KILL
    check 'user: nothing is left' nothing_left
fi
