# SPDX-License-Identifier: Apache-2.0
"""
What execs of a session print is told apart by where it comes from: threads, timers and
processes that an earlier exec left print to the late output, whenever they do so. And
what runs in the background.
"""

import os

import pytest
from session_lines import until
from test_session import Session, _cache  # noqa: F401 # pylint: disable=unused-import

# A process that prints on both streams once there is the file `go`, and then makes `done`.
CHILD = "until test -e go; do sleep 0.02; done; echo child; echo wrong >&2; touch done"

START = {
    "python": f"import os, subprocess\np = subprocess.Popen({CHILD!r}, shell=True)\nprint('one')",
    "shell": f"({CHILD}) & echo one",
    "javascript": f"const fs = require('fs')\nrequire('child_process').spawn('sh', ['-c', {CHILD!r}],"
                  " {stdio: 'inherit'}).unref()\nconsole.log('one')",
}
MEET = {
    "python": "print('two')\nopen('go', 'w').close()\nwhile not os.path.exists('done'): pass",
    "shell": "echo two; touch go; until test -e done; do sleep 0.02; done",
    "javascript": "console.log('two'); fs.writeFileSync('go', ''); while (!fs.existsSync('done'));",
}
SAY = {"python": "print('{}')", "shell": "echo {}", "javascript": "console.log('{}')"}
LANGUAGES = list(START)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_child_of_an_earlier_exec_is_late(language):
    with Session("--language", language) as session:
        first = session.exec(START[language])
        assert (first["stdout"], first["late_output"]) == ("one\n", "")
        assert len(first["background"]) >= 1
        if language != "shell":  # one that is about to be another program has no command line
            assert until(lambda: any(CHILD in process["command"]
                                     for process in session.exec(SAY[language].format("x"))["background"]))
        second = session.exec(MEET[language])
        assert (second["stdout"], second["stderr"]) == ("two\n", "")
        assert sorted(second["late_output"].split()) == ["child", "wrong"]
        last = until(lambda: (r := session.exec(SAY[language].format("x")))["background"] == [] and r)
        assert (last["stdout"], last["late_output"]) == ("x\n", "")


def test_a_thread_of_an_earlier_exec_is_late_but_a_log_is_not():
    with Session() as session:
        session.exec("import logging, threading\nlogging.basicConfig(format='%(message)s')\n"
                     "go, done = threading.Event(), threading.Event()\n"
                     "def inner():\n  print('inner'); done.set()\n"
                     "def outer():\n  go.wait(); print('outer', flush=True)\n"
                     "  threading.Thread(target=inner).start()\n"
                     "threading.Thread(target=outer).start()")
        result = session.exec("print('main'); go.set(); done.wait(); logging.warning('log')")
        assert (result["stdout"], result["stderr"]) == ("main\n", "log\n")
        assert result["late_output"] == "outer\ninner\n"
        result = session.exec("t = threading.Thread(target=print, args=['own'])\nt.start(); t.join()")
        assert (result["stdout"], result["late_output"]) == ("own\n", "")


def test_a_timer_of_an_earlier_exec_is_late():
    with Session("--language", "javascript") as session:
        session.exec("let n = 0; const i = setInterval(() => { n++; console.log('tick') }, 5); i.unref()")
        result = session.exec("console.log('own'); while (n < 3) await new Promise((r) => setTimeout(r, 5)); 1")
        assert (result["stdout"], result["value"]) == ("own\n", "1")
        assert result["late_output"].count("tick\n") >= 3 and "own" not in result["late_output"]


@pytest.mark.parametrize("code", [
    "import os, sys\nsys.stdout.close(); os.close(1)",
    "import os\nos.close(1); os.close(2); os.closerange(3, 256)",
    "import io, sys\nsys.stdout = io.StringIO(); sys.stderr = None",
    "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)",
    "import sys\nsys.stdout.detach()",
    "import os\nos.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
])
def test_a_stream_that_is_closed_or_replaced_is_there_in_the_next_exec(code):
    with Session() as session:
        session.exec(code)
        result = session.exec("import sys\nprint('x'); print('y', file=sys.stderr)")
        assert (result["stdout"], result["stderr"]) == ("x\n", "y\n")


# What becomes of the names of pipes; the harm is done to the own session, and ends.
HOSTILE = {
    "removed": "rm -f /run/.std*",
    "files": "for n in {1..9}; do rm -f /run/.std{out,err}.$n; echo > /run/.stdout.$n; done",
    "pipes": "for n in {1..9}; do rm -f /run/.stdout.$n; mkfifo /run/.stdout.$n; done",
    "folders": "rm -f /run/.std*; for n in {1..9}; do mkdir -p /run/.stdout.$n; done",
    "a reader": "for n in {1..9}; do test -p /run/.stdout.$n && (exec 3<>/run/.stdout.$n; sleep 60) & done",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("language", ["python", "shell"])
def test_hostile_names(language, name):
    shell = f"import subprocess\nsubprocess.run(['bash', '-c', {HOSTILE[name]!r}])"
    with Session("--language", language) as session, Session("--language", language) as other:
        session.exec(shell if language == "python" else HOSTILE[name])
        for i in range(6):
            result = session.exec(SAY[language].format(i), timeout_seconds=2)
            assert result["stdout"] in ("", f"{i}\n")
            assert other.exec(SAY[language].format(f"other {i}"))["stdout"] == f"other {i}\n"


def test_a_flood_of_late_output_is_cut_and_holds_nobody_up():
    with Session("--language", "shell") as session:
        session.exec("yes late & yes wrong >&2 &")
        for i in range(5):
            result = session.exec(f"echo {i}", timeout_seconds=20)
            assert (result["stdout"], result["exit_code"]) == (f"{i}\n", 0)
            assert len(result["late_output"]) < 70000
        assert "bytes missing" in result["late_output"]
        assert {"yes late", "yes wrong"} <= {process["command"] for process in result["background"]}


def test_many_children_that_print_take_few_descriptors():
    with Session("--language", "shell") as session:
        session.exec("echo")
        def descriptors():
            return len(os.listdir(f"/proc/{session.process.pid}/fd"))
        before = descriptors()
        for i in range(20):
            result = session.exec(f"(trap '' PIPE; until test -e go; do sleep 0.1; done; echo {i}) & echo x")
            assert result["stdout"] == "x\n"
        assert descriptors() <= before + 2 * 8
        result = session.exec("touch go; wait; until ! pgrep -x sleep > /dev/null; do :; done; echo y")
        assert result["stdout"] == "y\n"
        late = result["late_output"].split() + session.exec("echo")["late_output"].split()
        assert set(late) <= {str(i) for i in range(20)} and "19" in late
        assert until(lambda: session.exec("echo")["background"] == [])
        assert until(lambda: session.exec("echo")["stdout"] == "\n" and descriptors() <= before + 4)


def test_memory_hogs_in_the_background_are_listed():
    hog = "import time; data = b'x' * (30 << 20); open('ready', 'a').write('x'); time.sleep(60)"
    with Session() as session:
        session.exec("import os, subprocess, sys\nhogs = [subprocess.Popen([sys.executable, '-c', "
                     f"{hog!r}]) for _ in range(3)]\n"
                     "while not os.path.exists('ready') or os.path.getsize('ready') < 3: pass")
        result = session.exec("[hog.pid for hog in hogs]")
        listed = {process["pid"]: process for process in result["background"]}
        assert sorted(listed) == sorted(eval(result["value"]))
        assert all(process["memory_bytes"] >= 30 << 20 and "data = b" in process["command"]
                   for process in listed.values())
        result = session.exec("os.kill(os.getpid(), 9)")
        assert result["restored"] and result["background"] == []
        assert "threads" in result["not_restored"] and "files are not rolled back" in result["not_restored"]
        assert session.exec("1")["not_restored"] == []


def test_an_orphan_is_listed():
    with Session("--language", "shell") as session:
        session.exec("(setsid bash -c 'exec -a \"$(printf \"\\xff\")name\" sleep 60' &) ; "
                     "until pgrep -x sleep > /dev/null; do :; done")
        background = session.exec("echo")["background"]
        assert [process["command"] for process in background] == ["\ufffdname 60"]
