# SPDX-License-Identifier: Apache-2.0
"""
The runner of shell sessions by itself, in a session of its own, so that SIGINT reaches
all of it, as in a cell.

HUTCH_TEST_BASH names the interpreter, /bin/bash by default.
"""

import base64
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import channel  # noqa: E402
from channel import DEADLINE_SECONDS  # noqa: E402

RUNNER = Path(__file__).resolve().parents[2] / "src/guest/runner.sh"
BASH = os.environ.get("HUTCH_TEST_BASH", "/bin/bash")
CHANNEL_FD = 1000
DONE = 19

Done = namedtuple("Done", "exit_code interrupted stdout stderr", defaults=["", ""])


class Session:
    """The engine's end of a session; as a context manager it ends the process."""

    def __init__(self, folder, first=b"session\0"):
        self.home = folder / "home"
        self.home.mkdir()
        self.file = folder / "main.sh"
        self.number = 0
        names = [folder / name for name in ("stdout", "stderr")]
        streams = [name.open("wb") for name in names]
        self.output = [name.open("rb") for name in names]
        self.channel, other = socket.socketpair()
        self.channel.settimeout(DEADLINE_SECONDS)
        self.process = channel.start_process(
            [BASH, "--norc", "--noprofile", RUNNER, self.file],
            CHANNEL_FD,
            other,
            self.home,
            {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=streams[0],
            stderr=streams[1],
            start_new_session=True,
        )
        for stream in streams:
            stream.close()
        self.channel.sendall(first)

    def close(self):
        self.channel.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for file in self.output:
            file.close()

    def send(self, code, stdin=b"", env=None):
        self.number += 1
        entries = [f"{name}={value}".encode() for name, value in (env or {}).items()]
        fields = [b"%d" % self.number, b"%d" % len(entries), *entries]
        fields += [base64.b64encode(stdin), code if isinstance(code, bytes) else code.encode()]
        self.channel.sendall(b"".join(field + b"\0" for field in fields))

    def done(self):
        """The end of the exec, with what it printed; None where the process has ended."""
        frame = b""
        while len(frame) < 20:
            piece = self.channel.recv(20 - len(frame))
            if not piece:
                assert not frame
                return None
            frame += piece
        *head, code, interrupted = struct.unpack("=IHHIiI", frame)
        assert head == [8, DONE, 0, self.number]
        return Done(code, interrupted, *map(self.printed, self.output))

    def printed(self, file):
        return file.read().decode().replace(str(self.file), "FILE")

    def run(self, code, stdin=b"", env=None):
        self.send(code, stdin, env)
        return self.done()

    def wait_for_output(self, text):
        """Until the exec has printed this; it does so through a fifo of the test."""
        with (self.home / "fifo").open("rb") as fifo:
            assert select.select([fifo], [], [], DEADLINE_SECONDS)[0]
            assert fifo.read().decode() == text

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def run_interrupted(self, code):
        """An exec that is interrupted once it has said that it is under way."""
        os.mkfifo(self.home / "fifo")
        self.send(f"echo ready >{self.home}/fifo; " + code)
        self.wait_for_output("ready\n")
        (self.home / "fifo").unlink()
        for _ in range(DEADLINE_SECONDS):
            self.interrupt()
            if select.select([self.channel], [], [], 1)[0]:
                break
        return self.done()


@pytest.fixture
def session(tmp_path):
    session = Session(tmp_path)
    yield session
    session.close()


def test_constants_are_those_of_the_header():
    header = channel.header_constants()
    ours = channel.constants(RUNNER.read_text(), r"^__hutch_(WIRE_(?!SHELL)\w+)=(\d+)$")
    assert len(ours) == 3
    assert {name: header[name] for name in ours} == ours
    assert '#define WIRE_SHELL_FILE "/run/main.sh"' in channel.WIRE_H.read_text()
    assert "\n__hutch_WIRE_SHELL_FILE=/run/main.sh\n" in RUNNER.read_text()
    for name in ("STDOUT", "STDERR"):
        assert f'\n__hutch_WIRE_{name}_PIPE={header[f"WIRE_{name}_PIPE"]}\n' in RUNNER.read_text()


# -- one exec after the other ------------------------------------------------------------

# Execs of one session, each with what it prints and its exit code.
KEPT = {
    "variable": [("x=5", "", 0), ("echo $x", "5\n", 0)],
    "declared": [("declare x=5; declare -i n=1+1", "", 0), ("echo $x $n", "5 2\n", 0)],
    "array": [("a=(1 '2 3'); declare -A m=([k]=v)", "", 0), ("echo ${a[1]} ${m[k]}", "2 3 v\n", 0)],
    "function": [("f() { echo f $1; }", "", 0), ("f 1", "f 1\n", 0)],
    "folder": [("mkdir sub; cd sub", "", 0), ("echo ${PWD##*/}", "sub\n", 0)],
    "option": [("set -f", "", 0), ("echo *", "*\n", 0)],
    "shopt": [("shopt -s extglob", "", 0), ("[[ ab == @(ab|c) ]] && echo y", "y\n", 0)],
    "alias": [("alias say='echo said'", "", 0), ("say it", "said it\n", 0)],
    "arguments": [("set -- a b", "", 0), ("echo $# $2", "2 b\n", 0)],
    "umask": [("umask 027", "", 0), ("umask", "0027\n", 0)],
    "file": [("exec 3>out; echo a >&3", "", 0), ("echo b >&3; cat out", "a\nb\n", 0)],
    "exported": [("export x=5", "", 0), ("bash -c 'echo $x'", "5\n", 0)],
    "trap": [("trap 'echo got' USR1", "", 0), ("kill -USR1 $$", "got\n", 0)],
    "failure": [("x=5; false", "", 1), ("echo $x", "5\n", 0)],
    "return": [("return 3; echo no", "", 3), ("echo on", "on\n", 0)],
    "nothing": [(" ", "", 0), ("# nothing", "", 0)],
}


@pytest.mark.parametrize("between", [None, "exit 9", "f2() { exit 9; }; f2"])
@pytest.mark.parametrize("name", KEPT)
def test_state_is_kept(session, name, between):
    first, second = KEPT[name]
    assert session.run(first[0]) == Done(first[2], 0, first[1])
    if between:
        assert session.run(between) == Done(9, 0)
    assert session.run(second[0]) == Done(second[2], 0, second[1])


ENDS = {
    "exit": ("exit 3; echo no", 3, ""),
    "exit without a number": ("false; exit", 1, ""),
    "exit in a function": ("f() { exit 4; }; g() { f; echo no; }; g; echo no", 4, ""),
    "exit in a loop": ("for i in 1 2; do exit 5; done", 5, ""),
    "exit in eval": ("eval 'exit 6'; echo no", 6, ""),
    "exit in a sourced file": ("echo 'exit 7' >f; . ./f; echo no", 7, ""),
    "exit in a trap": ("trap 'exit 8' USR1; kill -USR1 $$; echo no", 8, ""),
    "set -e": ("set -e; false; echo no", 1, ""),
    "set -e in a function": ("set -e; f() { false; }; f; echo no", 1, ""),
    "set -u": ("set -u; echo $none; echo no", 1, "FILE: line 1: none: unbound variable\n"),
    "expansion": ("echo\n${none:?gone}\necho no", 1, "FILE: line 2: none: gone\n"),
    "exec of nothing": ("exec nosuch; echo no", 127, "FILE: line 1: exec: nosuch: not found\n"),
    "posix": ("set -o posix; . /no/such", 1, "FILE: line 1: /no/such: No such file or directory\n"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_shell_ends_the_exec(session, name):
    code, status, stderr = ENDS[name]
    pid = session.process.pid
    session.run("x='a\n\"b'; f0() { echo $1; }")
    done = session.run(code)
    assert done._replace(stdout="") == Done(status, 0, "", stderr)
    assert "no" not in done.stdout
    assert session.run('set +eu; echo "$x"; f0 c; echo $$') == Done(0, 0, f'a\n"b\nc\n{pid}\n')


def test_local_variables_end_with_the_exec(session):
    session.run("x=1; f() { local x=2 only=3; declare -r fixed=4; exit 5; }; f")
    assert session.run("echo $x ${only-none}") == Done(0, 0, "1 none\n")


def test_subshells_really_exit(session):
    code = "(exit 3); echo $?; echo $(exit 4)$?; (trap 'echo sub' EXIT; exit 5); echo $?"
    assert session.run(code) == Done(0, 0, "3\n4\nsub\n5\n")
    assert session.run("echo a | while read x; do exit 6; done; echo $?") == Done(0, 0, "6\n")


def test_syntax_errors(session):
    done = session.run("echo 1\n\n)\n")
    assert (done.exit_code, done.stdout) == (2, "1\n")
    assert done.stderr.startswith("FILE: line 3: syntax error near unexpected token")
    assert session.run("if").exit_code == 2
    assert session.run("echo on") == Done(0, 0, "on\n")


def test_messages_name_file_and_line(session):
    assert session.run("echo $0\nnosuch") == Done(
        127, 0, "FILE\n", "FILE: line 2: nosuch: command not found\n"
    )


@pytest.mark.parametrize(
    "code",
    [
        "set -e", "set -u", "set -x", "set -v", "set -f", "set -C", "set -a", "set -k",
        "set -T", "set -E", "set -o posix", "set -o pipefail", "set -t", "set +B", "set +h",
        "IFS=0123456789x", "IFS=", "readonly IFS=x", "LC_ALL=C", "readonly LC_ALL=C",
        "readonly x y code REPLY", "shopt -s nocasematch", "shopt -s failglob nullglob",
        "shopt -s extdebug", "shopt -s localvar_unset", "shopt -s lastpipe", "umask 777",
        "exec >&-", "exec 2>&-", "exec </dev/zero", "exec 1>/dev/full",
        "read() { :; }; printf() { :; }; echo() { :; }; export() { :; }",
        "alias read=: printf=: exec=: local=: case=:", "PATH=/nowhere", "unset PATH HOME",
        "trap 'true' DEBUG", "trap 'false' ERR", "trap ':' RETURN", "trap '' INT TERM",
        "BASH_ARGV0=me", "PS4='$(exit 3)'", "POSIXLY_CORRECT=1",
        "FUNCNEST=5", "cd /; rm -rf /no/such", "exec 1000>/dev/null 1001>/dev/null",
    ],
)  # fmt: skip
def test_nothing_of_the_user_breaks_the_loop(session, code):
    session.run("keep='a x 1'")
    session.run(code)
    for _ in range(2):
        assert session.run("command printf '%s\\n' \"$keep\"").exit_code == 0
        assert session.run("builtin exit 3").exit_code == 3
    done = session.run("/bin/echo \"<$keep>\"; /bin/cat", stdin=b"in", env={"Q": "1"})
    assert "<a x 1>\nin" in done.stdout


def test_trace_is_that_of_the_code_alone(session):
    assert session.run("set -x; echo 1").stderr == "++ echo 1\n"
    assert session.run("echo 2").stderr == "++ echo 2\n"
    assert session.run("exit 3").stderr == "++ exit 3\n"
    assert session.run("set +x").stderr == "++ set +x\n"


# -- variables, input, descriptors ----------------------------------------------------------


def test_variables_of_one_exec(session):
    session.run("old=1; export exported=2; list=(a b)")
    env = {"old": "x y", "exported": "$z", "list": "l", "new": "a=b\n'"}
    code = 'echo "$old,$exported,$list,$new"; bash -c \'echo "$old,$new"\''
    assert session.run(code, env=env).stdout == "x y,$z,l,a=b\n'\nx y,a=b\n'\n"
    code = 'echo "$old,$exported,${list[*]},${new-none}"; bash -c \'echo "$old,$exported"\''
    assert session.run(code).stdout == "1,2,a b,none\n,2\n"
    assert session.run("new=2; exit 1", env={"new": "1"}).exit_code == 1
    assert session.run("echo ${new-none}").stdout == "none\n"


def test_input(session):
    data = bytes(range(256)) * 1000
    assert session.run("cat >got; cat", stdin=data) == Done(0, 0)
    assert (session.home / "got").read_bytes() == data
    assert session.run("cat; read x; echo $?").stdout == "1\n"
    assert session.run("read x; echo $x", stdin=b"one\ntwo\n").stdout == "one\n"
    assert session.run("echo unread", stdin=data).stdout == "unread\n"
    assert session.run("cat") == Done(0, 0)


def test_no_command_inherits_the_channel(session):
    code = "/bin/ls /proc/self/fd | tr '\\n' ' '"
    for between in ("exit 1", "echo", "exit 2"):
        assert session.run(code).stdout == "0 1 2 3 "
        assert session.run(code, stdin=b"x").stdout == "0 1 2 3 "
        session.run(between)


def test_redirections_of_one_exec(session):
    assert session.run("exec >out 2>&1; echo away") == Done(0, 0)
    assert session.run("cat out; echo err >&2") == Done(0, 0, "away\n", "err\n")
    assert session.run("exec >&- 2>&-; exit 3") == Done(3, 0)
    assert session.run("echo here") == Done(0, 0, "here\n")


def test_first_lines(session):
    assert session.run("#!/usr/bin/env python3\nprint(6 * 7)") == Done(0, 0, "42\n")
    assert session.run("#!/bin/bash -e\nx=5") == Done(0, 0)
    assert session.run("echo $x").stdout == "5\n"


def test_without_room_for_the_code(session):
    session.file.mkdir()
    assert session.run("echo in memory; x=1").stdout == "in memory\n"
    assert session.run("echo $x").stdout == "1\n"


def test_large_code(session):
    code = "x=1 # " + "y" * ((1 << 20) - 7) + "\n"
    assert session.run(code) == Done(0, 0)
    assert session.run("echo $x").stdout == "1\n"


def test_bytes_that_are_no_utf8(session):
    assert session.run(b"x='\xff\xfe'; printf %s \"$x\" | od -An -tx1") == Done(0, 0, " ff fe\n")
    session.run("exit 1")
    assert session.run('printf %s "$x" | od -An -tx1').stdout == " ff fe\n"


# -- traps ------------------------------------------------------------------------------------


def test_trap_on_exit_runs_at_the_end_of_its_exec(session):
    assert session.run("trap 'echo bye $x' EXIT; x=1") == Done(0, 0, "bye 1\n")
    assert session.run("echo no more") == Done(0, 0, "no more\n")
    assert session.run("trap 'echo bye' 0; exit 3") == Done(3, 0, "bye\n")
    assert session.run("trap 'exit 4' EXIT; exit 3") == Done(4, 0)
    assert session.run("trap 'false' EXIT; (exit 2)") == Done(2, 0)
    assert session.run("trap 'echo no' EXIT; trap - EXIT") == Done(0, 0)


def test_traps_are_shown_as_set(session):
    assert session.run("trap; trap -p").stdout == ""
    code = "trap 'echo \"a\"' EXIT INT TERM; trap -p; trap -p EXIT; trap - EXIT INT TERM; trap"
    lines = [f"trap -- 'echo \"a\"' {name}\n" for name in ("EXIT", "SIGINT", "SIGTERM", "EXIT")]
    assert session.run(code).stdout == "".join(lines)
    assert session.run("exit 3") == Done(3, 0)


def test_traps_on_debug_and_errors(session):
    assert session.run("trap 'echo E$?' ERR; (exit 3)").stdout == "E3\n"
    assert session.run("(exit 4); trap - ERR; false").stdout == "E4\n"
    assert "D" in session.run("set -T; trap 'echo D' DEBUG; :").stdout
    assert session.run(":").stdout == "D\n"
    session.run("trap - DEBUG")
    assert session.run(":").stdout == ""


def test_trap_of_the_user_on_interrupts(session):
    done = session.run_interrupted("trap 'echo got; trap - INT' INT; sleep 1000; echo on")
    assert done == Done(0, 0, "got\non\n")
    assert session.run_interrupted("sleep 1000; echo no") == Done(130, 1)


# -- interrupts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "sleep 1000",
        "while :; do :; done",
        "f() { while :; do (sleep 1000); done; }; f",
        "sleep 1000 | cat",
        "x=$(sleep 1000)",
        "sleep 1000 & wait",
        "read x < <(sleep 1000)",
        "set -e; trap 'echo bye >&2' EXIT; sleep 1000",
    ],
)
def test_interrupt(session, code):
    session.run("x=1; f0() { echo f; }")
    done = session.run_interrupted(code + "; echo no")
    assert done._replace(stderr="") == Done(130, 1)
    assert session.run("set +e; f0; sleep 0") == Done(0, 0, "f\n")


def test_interrupt_between_execs(session):
    session.run("x=1")
    for _ in range(3):
        session.interrupt()
        assert session.run("echo $x") == Done(0, 0, "1\n")
    session.run("exit 1")
    session.interrupt()
    assert session.run("echo $x") == Done(0, 0, "1\n")


# -- the process --------------------------------------------------------------------------------


def test_end_of_the_channel_ends_the_session(session):
    session.run("x=1")
    session.channel.shutdown(socket.SHUT_WR)
    assert session.process.wait(timeout=DEADLINE_SECONDS) == 0


def test_code_that_takes_the_process(session):
    session.send("exec echo gone")
    assert session.done() is None
    assert session.process.wait(timeout=DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("first", [b"", b"no session\0", b"session\0" b"1\0"])
def test_no_session(tmp_path, first):
    session = Session(tmp_path, first)
    try:
        session.channel.shutdown(socket.SHUT_WR)
        assert session.process.wait(timeout=DEADLINE_SECONDS) == 125
        assert session.printed(session.output[1]) == "hutch: the shell runner got no request\n"
    finally:
        session.close()


def test_a_thousand_execs(session):
    session.run("x=0")

    def resident():
        return int(Path(f"/proc/{session.process.pid}/statm").read_text().split()[1])

    for _ in range(100):
        session.run("x=$((x + 1))", stdin=b"")
    before = resident()
    for _ in range(900):
        session.run("x=$((x + 1))")
    assert session.run("echo $x").stdout == "1000\n"
    assert resident() < before + 512
    descriptors = os.listdir(f"/proc/{session.process.pid}/fd")
    assert len(descriptors) < 20
