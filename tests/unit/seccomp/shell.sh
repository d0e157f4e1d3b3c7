#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs under the filter of cells: the shell and the commands that scripts use.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

is() {
    if [ "$1" != "$2" ]; then
        echo "line ${BASH_LINENO[0]}: '$1' is not '$2'" >&2
        exit 1
    fi
}

is "$(echo hello | tr '[:lower:]' '[:upper:]')" HELLO
is "$(seq 100 | sort -n | tail -n 1)" 100
is "$(printf 'a\nb\na\n' | sort | uniq -c | awk '{n += $1} END {print n}')" 3
is "$(cat <<TEXT
here
TEXT
)" here
is "$(diff <(seq 3) <(seq 3) && echo same)" same
is "$(yes | head -n 1000 | wc -l)" 1000

# jobs, traps, statuses, limits
true & wait $!
(trap 'echo bye' EXIT; exit 0) >said
is "$(cat said)" bye
is "$(bash -c 'kill -TERM $$' 2>said; echo $?)" 143
is "$(set +o pipefail; false | true; echo "${PIPESTATUS[*]}")" "1 0"
ulimit -c 0
ulimit -n 200
is "$(ulimit -n)" 200
is "$(timeout 0.1 sleep 60; echo $?)" 124

# files
mkdir -p a/b && echo text >a/b/file && ln -s file a/b/link && ln a/b/file a/b/hard
mkfifo a/fifo && chmod 600 a/fifo
cp -a a copy && mv copy moved && is "$(cat moved/b/link)" text
is "$(find moved -type f -print0 | xargs -0 wc -c | tail -n 1 | awk '{print $1}')" 10
tar -czf a.tar.gz a && rm -r a && tar -xzf a.tar.gz && is "$(cat a/b/file)" text
(echo through >a/fifo) & is "$(cat a/fifo)" through
wait
sync
touch -d 2020-01-01 a/b/file && is "$(date -u -r a/b/file +%Y)" 2020
truncate -s 1M big && is "$(stat -c %s big)" 1048576
dd if=/dev/zero of=big bs=4k count=4 status=none && is "$(du -b big | cut -f 1)" 16384
echo x | tee one two >/dev/null && cmp one two
gzip -k one && is "$(zcat one.gz)" x
df . >/dev/null
is "$(grep -c te a/b/file)" 1
is "$(sed s/te/se/ a/b/file)" sext
[ "$(nproc)" -ge 1 ]
id -u >/dev/null
uname -a >/dev/null

# what other interpreters do
perl -MSocket -e '
    socketpair(my $left, my $right, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!;
    my $child = fork() // die $!;
    if (!$child) { syswrite($left, "x"); exit 0 }
    sysread($right, my $byte, 1) == 1 or die $!;
    waitpid($child, 0) == $child && $? == 0 or die $?;
    $> = $<;
    kill(0, $$) or die $!;
'
is "$(sh -c 'read x; echo $?' </dev/null)" 1

# closed in a cell, as an error that scripts can handle
refused() {
    if "$@" >/dev/null 2>&1; then
        echo "line ${BASH_LINENO[0]}: not refused: $*" >&2
        exit 1
    fi
}
refused unshare -U true
refused mknod null c 1 3
refused mount -t tmpfs none a
refused chroot / true
echo "all of it works" >&2
