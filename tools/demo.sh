#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh HUTCH: untrusted Python and shell programs in the sandbox, and an agent
# that answers questions by such programs. Each step shows the program, what came
# out of it, and what is expected; the exit status is 1 when any of it did not
# behave.
set -uo pipefail

hutch=$(realpath "$1")
private=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$private"' EXIT

if [ -t 1 ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
    bold='' green='' red='' plain=''
fi
steps=0 failures=0

# quote WORD...: as one would type it
quote() {
    local word
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
        printf ' %s' "$word"
    done
}

# show TITLE STATUS PATTERN COMMAND...: runs it; its exit status has to match
# the first pattern (of bash), its output the second (of grep -E)
show() {
    local title=$1 wanted=$2 pattern=$3 status=0 output start
    shift 3
    steps=$((steps + 1))
    printf '%s%d. %s%s\n' "$bold" $steps "$title" "$plain"
    printf '   $ %s%s\n' "$(basename "$1")" "$(quote "${@:2}" | sed '2,$s/^/     /')"
    start=${EPOCHREALTIME/./}
    output=$("$@" 2>&1 </dev/null) || status=$?
    start=$(((${EPOCHREALTIME/./} - start) / 1000))
    [ -z "$output" ] || tail -n 40 <<<"$output" | sed 's/^/   | /'
    # shellcheck disable=SC2053 # a pattern
    if [[ $status == $wanted ]] && grep -qE -- "$pattern" <<<"$output"; then
        printf '   %sas it should be%s' "$green" "$plain"
    else
        failures=$((failures + 1))
        printf '   %sWRONG: expected exit %s and /%s/%s' "$red" "$wanted" "$pattern" "$plain"
    fi
    printf ' (exit %d, %d ms)\n\n' "$status" "$start"
}

# A server on this host's loopback, as the target of what must not get out.
exec {greeter}< <(exec /usr/bin/python3 -c '
import socketserver
class Greeter(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(b"hello from the host\n")
with socketserver.TCPServer(("127.0.0.1", 0), Greeter) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()')
server=$!
read -r port <&"$greeter"
connect="import socket
print(socket.create_connection((\"127.0.0.1\", $port), 2).recv(99))"
echo "secret of the host" >"$private/secret"

printf '%sUntrusted programs, each in a cell of its own%s\n\n' "$bold" "$plain"

show 'Python computes' 0 '^4$' \
    "$hutch" run -c 'print(2+2)'
show 'Shell commands work' 0 '^uid=1000\(user\).*' \
    "$hutch" run -l shell -c 'id; seq 3 | tac'
show 'A failing program is a normal result: its status and its own traceback' 3 'line 2.*' \
    "$hutch" run -c 'def f():
    raise ValueError("mine")
try: f()
except ValueError:
    import sys, traceback; traceback.print_exc(); sys.exit(3)'
show 'The passwords of the host are not there' '[1-9]*' 'No such file|Permission denied' \
    "$hutch" run -l shell -c 'cat /etc/shadow'
show 'Nor are its home folders' '[1-9]*' "cannot (access|open directory) '/root'" \
    "$hutch" run -l shell -c 'ls /home /root'
show 'Nor is any other file of the host' 1 "No such file.*$private/secret" \
    "$hutch" run -c "print(open(\"$private/secret\").read())"
show 'Its processes cannot be seen' 0 '^[1-9]$' \
    "$hutch" run -c 'import os; print(sum(name.isdigit() for name in os.listdir("/proc")))'
show 'The system cannot be written to' 1 'Read-only file system|Permission denied' \
    "$hutch" run -c 'open("/usr/bin/python3", "w")'
show 'A loop without end meets the time limit' 124 '' \
    "$hutch" run -t 1 -c 'while True: pass'
show 'A memory bomb meets the memory limit' '[1-9]*' 'memory limit of 64 MB' \
    "$hutch" run -m 64 -c 'x="a"*(1<<30)'
show 'A fork bomb meets the process limit' 1 'process limit of 128 reached' \
    "$hutch" run -t 5 -e NAME=hutch-demo-bomb -c 'import os, signal
while True:
    if os.fork() == 0: signal.pause()'
show 'And nothing of it is left' '[12]' '^$' \
    bash -c 'grep -ls NAME=hutch-demo-bomb /proc/[0-9]*/environ'
show 'This server answers on the host' 0 'hello from the host' \
    /usr/bin/python3 -c "$connect"
show 'The same program in a cell does not reach it' 1 'Connection refused|unreachable' \
    "$hutch" run -c "$connect"
show 'What encloses a cell here' '[01]' 'seccomp +in force' \
    "$hutch" doctor

/usr/bin/python3 "$(dirname "$0")/demo_agent.py" "$hutch" $((steps + 1))
failures=$((failures + $?)) steps=$((steps + 4))

if [ $failures -gt 0 ]; then
    echo "${red}$failures of $steps steps went wrong$plain"
    exit 1
fi
echo "${green}All $steps steps went as they should, in $SECONDS s.$plain"
