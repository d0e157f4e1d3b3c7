# SPDX-License-Identifier: Apache-2.0
"""
Sessions, through `hutch session`: what an exec leaves to the next one, and what is
left, and said, when an exec or a process of the session dies.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD. HUTCH_USER
names the user who starts it, with programs and a cache of the user's own.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from session_lines import HUTCH, PATIENCE, children, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import account  # noqa: E402

DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


@pytest.fixture(scope="module", autouse=True)
def _user():
    """How Session starts the program."""
    name = os.environ.get("HUTCH_USER")
    if not name:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="hutch-session-", dir="/var/tmp") as folder:
        who = account.choose(name, folder)
        Session.program = [*who.command, str(who.install(pathlib.Path(HUTCH)))]
        cache = account.cache_for(who, None, folder)
        Session.environment = {**os.environ, **who.environment, "HUTCH_CACHE_DIR": str(cache)}
        yield
        Session.program, Session.environment = [HUTCH], None


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """One cache for all tests, the caller's if there is one."""
    if "HUTCH_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("HUTCH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


class Session:
    """A session on the command line."""

    program = [HUTCH]
    environment = None

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [*self.program, "session", *options], env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        self.process.stdin.close()
        status = self.process.wait(timeout=PATIENCE)
        errors = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        assert kind or (status, errors) == (0, b"")

    def send(self, line):
        """A request, or bytes as they are."""
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def answer(self):
        """The next answer."""
        line = self.process.stdout.readline()
        assert line, "hutch has ended"
        return json.loads(line)

    def exec(self, code, **fields):
        """Runs code; its result."""
        self.send({"code": code, **fields})
        answer = self.answer()
        assert "stdout" in answer, answer
        return answer

    def refused(self, code="pass", **fields):
        """Runs code, which cannot be done; the error."""
        self.send({"code": code, **fields})
        return self.answer()["error"]

    def supervisor(self):
        """Its process."""
        return children(self.process.pid)[0]

    def cell(self):
        """PID 1 of the cell, and its interpreter: what is not a copy of it."""
        init, *others = sorted(children(self.supervisor()))
        assert len(others) <= 1
        return init, others[0] if others else None


def kept(result):
    """Whether a result says that the state is as it was."""
    return (result["restored"], result["state_lost"]) == (False, False)


# ---- state ----


def test_what_an_exec_makes_is_there_in_the_next():
    with Session() as session:
        session.exec("x = 41\nimport math\ndef f(): return x + 1\nclass C: y = 7")
        result = session.exec("print(f(), C.y, math.floor(2.5)); x")
        assert (result["stdout"], result["value"]) == ("42 7 2\n", "41")
        session.exec("import os; os.mkdir('d'); os.chdir('d')")
        assert session.exec("os.getcwd()")["value"] == "'/home/user/d'"


@pytest.mark.parametrize("code, error_type, exit_code", [
    ("1 / 0", "runtime_error", 1),
    ("x +", "syntax_error", 1),
    ("import nothing_of_that_name", "import_error", 1),
    ("import sys; sys.exit(4)", "runtime_error", 4),
    ("raise SystemExit", None, 0),
    ("raise KeyboardInterrupt", "runtime_error", 130),
    ("class E(BaseException): pass\nraise E('x')", "runtime_error", 1),
])
def test_a_failure_keeps_the_state(code, error_type, exit_code):
    with Session() as session:
        session.exec("kept = 1")
        result = session.exec(code)
        assert (result["error_type"], result["exit_code"]) == (error_type, exit_code)
        assert kept(result)
        result = session.exec("kept")
        assert result["value"] == "1" and kept(result)


def test_functions_of_an_exec_serve_the_workers_of_the_next():
    with Session() as session:
        session.exec("def sq(x): return x * x")
        result = session.exec("from multiprocessing import Pool\n"
                              "with Pool(2) as pool: print(pool.map(sq, [1, 2, 3]))")
        assert result["stdout"] == "[1, 4, 9]\n"
        assert kept(session.exec("pass"))


def test_errors_show_the_lines_of_their_own_exec():
    with Session() as session:
        session.exec("def f():\n    return 1 / 0  # first")
        result = session.exec("# second\n# second\nf()")
        assert "return 1 / 0  # first" in result["stderr"]
        assert result["error"]["line"] == 3
        assert "runner" not in result["stderr"]


def test_environment_and_stdin_are_of_one_exec():
    look = "import os, sys; print(os.environ.get('A'), os.environ.get('B'), sys.stdin.read())"
    with Session() as session:
        result = session.exec(look, env={"A": "1", "B": "2"}, stdin="hello")
        assert result["stdout"] == "1 2 hello\n"
        assert session.exec(look)["stdout"] == "None None \n"


def test_a_forked_child_does_not_go_on_in_the_session():
    with Session() as session:
        result = session.exec("import os\nif os.fork() == 0: print('child')\nelse: os.wait()")
        assert result["stdout"] == "child\n"
        assert session.exec("1")["value"] == "1"


def test_a_program_finds_no_child_that_it_did_not_make():
    with Session() as session:
        session.exec("import os, signal\nseen = []\n"
                     "signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))")
        for _ in range(3):
            result = session.exec("try:\n    print(os.wait())\nexcept ChildProcessError: print('none')\n"
                                  "print(seen)")
            assert result["stdout"] == "none\n[]\n"


def test_what_comes_in_between_is_late():
    with Session() as session:
        session.exec("import subprocess; p = subprocess.Popen("
                     "['bash', '-c', 'read x; echo late; echo done >&2'], stdin=-1)")
        session.exec("p.stdin.close(); p.wait(); 0")
        session.exec("import threading, time\n"
                     "t = threading.Thread(target=lambda: (time.sleep(0.2), print('thread')))\nt.start()")
        assert until(lambda: session.exec("t.is_alive()")["value"] == "False")
        assert kept(session.exec("pass"))


# ---- time ----


def test_an_interrupt_keeps_the_state():
    with Session() as session:
        session.exec("x = 1")
        result = session.exec("while True: pass", timeout_seconds=0.3)
        assert (result["timed_out"], result["exit_code"], result["error_type"]) == (True, -1, "timeout")
        assert "0.3 s" in result["error"]["message"] and kept(result)
        assert session.exec("x")["value"] == "1"


def test_who_ignores_the_interrupt_is_killed_and_the_session_restored():
    with Session() as session:
        session.exec("x = 1")
        result = session.exec("x = 2\n" + DEAF, timeout_seconds=0.3)
        assert (result["timed_out"], result["restored"], result["state_lost"]) == (True, True, False)
        assert 1300 <= result["duration_ms"] < 20000
        result = session.exec("x")
        assert result["value"] == "1" and kept(result)


def test_an_interrupt_by_hand():
    with Session() as session:
        session.exec("x = 1")
        session.send({"code": "print('begun', flush=True)\nwhile True: pass"})
        _, interpreter = session.cell()
        until(lambda: "R" in pathlib.Path(f"/proc/{interpreter}/stat").read_text().split(") ")[1][:1])
        while True:  # one that comes before the exec does nothing
            session.send({"op": "interrupt"})
            if until(lambda: select_ready(session.process.stdout), 0.2):
                break
        result = session.answer()
        assert (result["exit_code"], result["timed_out"], result["error"]["type"]) == (
            130, False, "KeyboardInterrupt")
        assert session.exec("x")["value"] == "1"


STUBBORN = "import time\nfor _ in range(2):\n    try: time.sleep(60)\n    except KeyboardInterrupt: print('no')"


def test_an_interrupt_is_sent_again():
    """Each of the two that this program needs."""
    with Session() as session:
        session.exec("x = 1")
        result = session.exec(STUBBORN, timeout_seconds=0.5)
        assert (result["timed_out"], result["stdout"]) == (True, "no\nno\n") and kept(result)
        session.send({"code": STUBBORN})
        until(lambda: session.send({"op": "interrupt"}) or select_ready(session.process.stdout))
        result = session.answer()
        assert (result["timed_out"], result["stdout"]) == (False, "no\nno\n") and kept(result)
        assert session.exec("x")["value"] == "1"


@pytest.mark.parametrize("language, first, second", [
    ("python", "import time\ntime.sleep({})", "import time\ntime.sleep(0.005)\n1"),
    ("javascript", "for (const e = Date.now() + {} * 1000; Date.now() < e;);",
     "for (const e = Date.now() + 5; Date.now() < e;); 1"),
    ("shell", "sleep {}", "sleep 0.005"),
])
def test_an_interrupt_never_hits_the_next_exec(language, first, second):
    """That of an exec which ends as its time does, with another one right behind it."""
    with Session("-l", language) as session:
        for number in range(40):
            session.send({"code": first.format(0.1 - number * 0.0002), "timeout_seconds": 0.1})
            session.send({"code": second})
            session.answer()
            result = session.answer()
            assert (result["exit_code"], result["timed_out"], result["error"]) == (0, False, None)


def select_ready(stream):
    """Whether there is something to read."""
    import select

    return bool(select.select([stream], [], [], 0)[0])


def test_an_interrupt_between_execs_does_nothing():
    with Session() as session:
        session.exec("x = 1")
        for _ in range(20):
            session.send({"op": "interrupt"})
        result = session.exec("x")
        assert result["value"] == "1" and kept(result)


def test_an_idle_session_expires_and_says_why():
    with Session("--idle-timeout", "1") as session:
        session.exec("import time; time.sleep(1.5)")  # not killed in mid-run
        assert session.exec("1")["value"] == "1"
        supervisor = session.supervisor()
        assert until(lambda: not children(supervisor))
        error = session.refused()
        assert error["code"] == "session_expired" and error["retry_safe"]
        assert "idle for 1 s" in error["message"]
        assert session.refused() == error or "idle for 1 s" in session.refused()["message"]


def test_a_session_has_a_lifetime():
    with Session("--lifetime", "1") as session:
        session.exec("1")
        supervisor = session.supervisor()
        assert until(lambda: not children(supervisor))
        error = session.refused()
        assert error["code"] == "session_expired" and "lasted for 1 s" in error["message"]


def processor_ticks(pids):
    """What processes have used, in ticks."""
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields)


def in_cell(pid):
    """The living processes of the cell that a process is in."""
    namespace = os.readlink(f"/proc/{pid}/ns/pid")
    found = []
    for other in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (os.readlink(other / "ns/pid") == namespace
                    and "State:\tZ" not in (other / "status").read_text()):
                found.append(int(other.name))
        except OSError:
            pass
    return found


def test_an_idle_session_uses_no_processor():
    """And one whose interpreter dies while it is idle waits for its next exec."""
    with Session() as session, Session() as hurt:
        session.exec("x = 1")
        hurt.exec("x = 2")
        victim = hurt.cell()[1]
        assert until(lambda: len(in_cell(victim)) == 3)
        os.kill(victim, signal.SIGKILL)
        init, interpreter = session.cell()
        # The copy is made after the reply, and then the one before it ends.
        assert until(lambda: len(in_cell(interpreter)) == 3)
        assert {init, interpreter} < set(in_cell(interpreter))
        until(lambda: False, 0.5)
        pids = [session.process.pid, session.supervisor(), *in_cell(interpreter)]
        before = processor_ticks(pids)
        time.sleep(20)
        # Without a memory cgroup the supervisor goes on looking at the memory, 50 times a second.
        assert processor_ticks(pids) - before <= (60 if os.environ.get("HUTCH_USER") else 1)
        assert session.exec("x")["value"] == "1"
        result = hurt.exec("x")
        assert (result["value"], result["restored"], result["state_lost"]) == ("2", True, False)


# ---- death ----


@pytest.mark.parametrize("code, exit_code, error_type", [
    ("import os; os._exit(3)", 3, "runtime_error"),
    ("import os; os._exit(0)", 0, None),
    ("import os; os.kill(os.getpid(), 9)", 137, "runtime_error"),
    ("import os; os.kill(os.getpid(), 11)", 139, "runtime_error"),
    ("b = []\nwhile True: b.append(bytearray(1 << 22))", 137, "resource_limit"),
])
def test_a_death_is_survived_twice(code, exit_code, error_type):
    """The second one is of an interpreter that was a copy."""
    with Session() as session:
        session.exec("x = 41")
        for _ in range(2):
            result = session.exec(code)
            if error_type == "resource_limit" and "cgroup_memory" not in result["layers"]:
                # An ordinary user's: the address space ends, and the program with it. What it
                # holds is at the limit then, and the supervisor, which looks at the memory of the
                # cell from time to time, may end the interpreter as well.
                assert result["error_type"] == error_type and result["exit_code"] in (1, 137)
                after = session.exec("x")
                assert after["value"] == "41" or after["state_lost"] or result["state_lost"]
                assert session.exec("x = 41; x")["value"] == "41"
                continue
            assert (result["exit_code"], result["error_type"]) == (exit_code, error_type)
            assert (result["restored"], result["state_lost"]) == (True, False)
            result = session.exec("x")
            assert result["value"] == "41" and kept(result)


def test_the_whole_story():
    with Session() as session:
        session.exec("x = 41")
        assert session.exec(DEAF, timeout_seconds=1)["timed_out"]
        assert session.exec("import os; os._exit(3)")["exit_code"] == 3
        assert session.exec("b = bytearray(2 << 30)")["error_type"] == "resource_limit"
        assert session.exec("print(x + 1)")["stdout"] == "42\n"


def test_without_checkpoints_the_state_is_lost_and_files_stay():
    with Session("--no-checkpoints") as session:
        session.exec("x = 1; open('f', 'w').write('kept')")
        for _ in range(2):
            result = session.exec("import os; os._exit(3)")
            assert (result["restored"], result["state_lost"]) == (False, True)
            result = session.exec("print(open('f').read(), 'x' in globals())")
            assert result["stdout"] == "kept False\n" and kept(result)


def test_no_checkpoint_while_there_are_threads():
    with Session() as session:
        session.exec("x = 1\nimport threading\nstop = threading.Event()\n"
                     "t = threading.Thread(target=stop.wait)\nt.start()")
        result = session.exec("import os; os._exit(3)")
        assert (result["restored"], result["state_lost"]) == (False, True)
        session.exec("x = 2")
        result = session.exec("import os; os._exit(3)")
        assert result["restored"] and session.exec("x")["value"] == "2"


def test_no_checkpoint_of_a_large_heap():
    with Session("-m", "128") as session:
        session.exec("x = b'1' * (60 << 20)")
        result = session.exec("import os; os._exit(3)")
        assert (result["restored"], result["state_lost"]) == (False, True)


def test_children_die_with_the_interpreter_that_is_killed():
    with Session() as session:
        session.exec("import subprocess, os\n"
                     "p = subprocess.Popen(['setsid', 'sleep', '1000'], start_new_session=True)")
        result = session.exec("os._exit(3)")
        assert result["restored"]
        look = ("import os\nprint([open(f'/proc/{p}/comm').read().strip() for p in os.listdir('/proc')"
                " if p.isdigit()].count('sleep'))")
        assert session.exec(look)["stdout"] == "0\n"


def test_an_interpreter_that_dies_in_between():
    with Session() as session:
        session.exec("x = 1")
        session.exec("import threading, os\n"
                     "threading.Timer(0.3, lambda: os._exit(5)).start()")
        _, interpreter = session.cell()
        assert until(lambda: not pathlib.Path(f"/proc/{interpreter}").exists())
        result = session.exec("'x' in globals()")
        assert result["state_lost"] and result["value"] == "False"


def has_died(pid):
    try:
        return "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def interpreter_of(session):
    """The process of the cell that has the channel, as a copy has not."""
    pids = in_cell(session.cell()[0])
    return next((pid for pid in pids if os.path.lexists(f"/proc/{pid}/fd/1000")), None)


def test_a_death_just_before_an_exec_is_not_the_execs():
    """However late it becomes known: the exec runs all the same, and so does the one behind."""
    with Session() as session:
        session.exec("x = 1")
        for _ in range(20):
            victim = interpreter_of(session)
            os.kill(victim, signal.SIGKILL)
            assert until(lambda: has_died(victim))
            for _ in range(2):
                result = session.exec("1 + 1", timeout_seconds=10)
                assert (result["value"], result["exit_code"], result["error"]) == ("2", 0, None), result


def test_kill_minus_nine_of_each_process_says_what_became_of_it():
    for target, expected in (("interpreter", "restored"), ("init", "error"), ("supervisor", "error")):
        with Session() as session:
            session.exec("x = 1")
            init, interpreter = session.cell()
            supervisor = session.supervisor()
            session.send({"code": "x = 2\nimport time\ntime.sleep(100)"})
            state = pathlib.Path(f"/proc/{interpreter}/wchan")
            until(lambda: "sleep" in state.read_text(), 2)
            pid = {"interpreter": interpreter, "init": init, "supervisor": supervisor}[target]
            os.kill(pid, signal.SIGKILL)
            answer = session.answer()
            if expected == "restored":
                assert (answer["exit_code"], answer["restored"]) == (137, True)
                assert session.exec("x")["value"] == "1"
            else:
                assert answer["error"]["code"] == "helper_failed"
                assert answer["error"]["retry_safe"] is False
                error = session.refused()
                assert error["code"] == "session_expired" and error["retry_safe"]


# ---- javascript and shell ----


def test_javascript_keeps_what_an_exec_makes():
    with Session("-l", "javascript") as session:
        session.exec("let a = 1; const b = 2; var c = 3\nfunction f() { return a + b + c }\n"
                     "class C { m() { return 7 } }\nconst fs = require('fs')")
        result = session.exec("console.log(f(), new C().m(), typeof fs.readFileSync); a += 1")
        assert (result["stdout"], result["value"]) == ("6 7 function\n", "2") and kept(result)
        session.exec("fs.mkdirSync('d'); process.chdir('d')")
        assert session.exec("process.cwd()")["value"] == "/home/user/d"
        assert session.exec("await new Promise((r) => setTimeout(r, 10, a))")["value"] == "2"


@pytest.mark.parametrize("code, error_type, exit_code, fields", [
    ("null.x", "runtime_error", 1, {}),
    ("x +", "syntax_error", 1, {}),
    ("require('nothing-of-that-name')", "import_error", 1, {}),
    ("process.exit(4)", "runtime_error", 4, {}),
    ("setTimeout(() => process.exit(0), 1)", None, 0, {}),
    ("Promise.reject(new Error('e'))", "runtime_error", 1, {}),
    ("for (;;);", "timeout", -1, {"timeout_seconds": 0.5}),
    ("process.on('SIGINT', () => {}); setInterval(() => {}, 10)", "timeout", -1, {"timeout_seconds": 0.5}),
    ("await null; for (;;);", "timeout", -1, {"timeout_seconds": 0.5}),
])
def test_javascript_keeps_its_state(code, error_type, exit_code, fields):
    with Session("-l", "javascript") as session:
        session.exec("let kept = 1")
        result = session.exec(code, **fields)
        assert (result["error_type"], result["exit_code"]) == (error_type, exit_code)
        assert kept(result)
        result = session.exec("kept")
        assert result["value"] == "1" and kept(result)


@pytest.mark.parametrize("code, error_type, exit_code, fields", [
    ("process.abort()", "runtime_error", 134, {}),
    ("process.kill(process.pid, 'SIGKILL')", "runtime_error", 137, {}),
    ("const b = []; for (;;) b.push(Buffer.alloc(1 << 22, 1))", "resource_limit", 137, {}),
    ("setTimeout(() => { for (;;); }, 1)", "timeout", -1, {"timeout_seconds": 0.5}),
])
def test_node_is_replaced_twice(code, error_type, exit_code, fields):
    with Session("-l", "javascript", "-m", "128") as session:
        for number in range(2):
            session.exec("var x = 1; require('fs').appendFileSync('f', 'x')")
            result = session.exec(code, **fields)
            assert (result["error_type"], result["exit_code"]) == (error_type, exit_code)
            assert (result["restored"], result["state_lost"]) == (False, True)
            result = session.exec("typeof x + require('fs').readFileSync('f', 'utf8')")
            assert result["value"] == "undefined" + "x" * (number + 1) and kept(result)


def test_what_javascript_prints_in_between_is_late():
    with Session("-l", "javascript") as session:
        # A timer that keeps no exec; its last word is in a file.
        session.exec("setTimeout(() => { console.log('late'); console.error('done');"
                     "require('fs').writeFileSync('f', '') }, 100).unref()")
        _, interpreter = session.cell()
        assert until(pathlib.Path(f"/proc/{interpreter}/root/home/user/f").exists)
        result = session.exec("1")
        assert (result["stdout"], result["stderr"], result["value"]) == ("", "", "1")
        assert sorted(result["late_output"].splitlines()) == ["done", "late"]


def test_a_shell_that_starts_programs_all_the_time_is_interrupted():
    with Session("-l", "shell") as session:
        session.exec("x=1")
        for _ in range(3):
            result = session.exec("while :; do sleep 0; done", timeout_seconds=0.3)
            assert result["timed_out"] and kept(result)
        assert session.exec("echo $x")["stdout"] == "1\n"


@pytest.mark.parametrize("code", ["trap '' INT; sleep 1000", "exec sleep 1000"])
def test_a_shell_that_cannot_be_interrupted_is_replaced(code):
    with Session("-l", "shell") as session:
        session.exec("x=1; echo kept > f")
        result = session.exec(code, timeout_seconds=0.3)
        assert (result["timed_out"], result["restored"], result["state_lost"]) == (True, False, True)
        assert session.exec("echo $x; cat f")["stdout"] == "\nkept\n"


# ---- hostile programs ----

FORGE = """
import os, struct
def frame(kind, payload, exec_id):
    return struct.pack("=IHHI", len(payload), kind, 0, exec_id) + payload
"""


def test_forged_frames_harm_only_the_own_session():
    with Session() as session, Session() as other:
        other.exec("x = 1")
        session.exec(FORGE)
        # An early end, with a value of its own.
        session.send({"code": "os.write(1000, frame(16, b'forged', 2) + frame(19, bytes(8), 2))\n"
                              "import time; time.sleep(0.3); print('late')"})
        assert session.answer()["value"] == "forged"
        # Frames of other execs, of no type, too long: the channel is given up.
        for junk in ("frame(19, bytes(8), 99)", "frame(99, b'', 4)", "frame(16, b'x' * 2000000, 5)",
                     "b'\\xff' * 100"):
            session.send({"code": f"os.write(1000, {junk})", "timeout_seconds": 1})
            assert session.answer()
        session.send({"code": "1"})
        assert session.answer()
        assert other.exec("x")["value"] == "1"


def test_a_program_may_pass_itself_off_as_a_copy():
    """It is one of the cell's own processes all the same."""
    take_over = """
import os, socket, array
copies = next(socket.socket(fileno=os.dup(int(fd))) for fd in os.listdir('/proc/self/fd')
              if os.path.exists(f'/proc/self/fd/{fd}') and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:')
              and int(fd) != 1000)
"""
    with Session() as session:
        session.exec(take_over)
        # Descriptors whose other ends are the engine's own: no process of the cell.
        result = session.exec(
            "for fd in (1, 2, 1000):\n"
            "    copies.sendmsg([b'\\0' * 4], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])\n"
            "copies.send(b'junk'); copies.send(b'x' * 5000)\n"
            "os._exit(1)")
        assert result["exit_code"] == 1
        assert session.exec("1")["value"] == "1"


COPIES = """
import os, socket, array, struct
copies = next(socket.socket(fileno=os.dup(int(fd))) for fd in os.listdir('/proc/self/fd')
              if os.path.exists(f'/proc/self/fd/{fd}') and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:')
              and int(fd) != 1000)
def offer(fd):
    copies.sendmsg([struct.pack('=I', 0x7fffffff)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
"""


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"])
def test_a_copy_that_takes_no_word_holds_up_nobody(kind):
    """The word for it would wait for room in a socket of the program's: for ever."""
    with Session() as session:
        session.exec(COPIES)
        result = session.exec(f"""
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    mine, other = socket.socketpair(socket.AF_UNIX, socket.{kind})
    mine.setblocking(False)
    for piece in (4096, 1):
        try:
            while True: mine.send(b'x' * piece)
        except BlockingIOError: pass
    mine.setblocking(True)
    offer(mine.fileno())
    os.write(tell, b'x')
    for fd in (0, 1, 2): os.close(fd)
    while True: socket.socketpair()[0].recv(1)
os.read(told, 1)
os.kill(os.getpid(), 9)""", timeout_seconds=30)
        assert (result["exit_code"], result["state_lost"]) == (137, True)
        assert session.exec("1")["value"] == "1"


def test_a_flood_of_copies_costs_the_supervisor_little():
    with Session("--cpus", "0.5") as session:
        session.exec(COPIES)
        session.exec("""
if os.fork() == 0:
    os.setsid()
    mine, other = socket.socketpair()
    while True: offer(mine.fileno())""")
        supervisor = session.supervisor()
        before = processor_ticks([supervisor])
        assert session.exec("import time; time.sleep(2)")["exit_code"] == 0
        assert processor_ticks([supervisor]) - before < 50


def test_what_an_exec_has_not_read_is_gone_with_it():
    """A program that ends the next exec in the midst of its frames gets no byte of the memory
    that they were in, nor of what comes after."""
    with Session() as session:
        session.send({"code": FORGE + """
def take():
    os.write(1000, frame(19, struct.pack('=iI', 0, 0), 1))
    number = struct.unpack('=IHHI', os.read(1000, 12))[3]
    os.write(1000, frame(19, struct.pack('=iI', 0, 0), number))
    got = b''
    while piece := os.read(1000, 1 << 20):
        got += piece
    open('/home/user/got', 'wb').write(got)
take()
"""})
        assert session.answer()["exit_code"] == 0
        assert session.exec("1", stdin="A" * 1000000)["exit_code"] == 0
        result = session.exec("open('got').read().strip('A')" " if __import__('os').path.exists('got') else ''")
        assert (result["value"], result["state_lost"]) == ("''", True)


def test_frames_of_a_thread_end_no_later_exec():
    """Of a large one a part has come when the next exec begins."""
    with Session() as session:
        session.exec("""
import threading
class Large:
    def _repr_html_(self): return 'x' * 1000000
def show():
    while True: display(Large())
x = 42
threading.Thread(target=show, daemon=True).start()""")
        for _ in range(30):
            result = session.exec("raise SystemExit(3)")
            assert (result["exit_code"], kept(result)) == (3, True)
        assert session.exec("x")["value"] == "42"


def test_a_program_that_could_not_be_sent_has_not_succeeded():
    with Session() as session:
        session.exec("import os\nfd = os.dup(1000)\nif os.fork() == 0:\n"
                     "  os.write(fd, b'\\xff' * 12)\n  os._exit(0)\nos.wait()")
        ran = until(lambda: (r := session.exec("open('ran', 'w'); raise SystemExit(7)")) and r)
        exists = session.exec("import os; os.path.exists('ran')")["value"]
        assert (ran["exit_code"], exists) in ((7, "True"), (125, "False"))


def test_fifty_sessions_never_mix():
    sessions = [Session("-m", "64") for _ in range(50)]
    try:
        for number, session in enumerate(sessions):
            session.send({"code": f"me = {number}"})
        for session in sessions:
            assert kept(session.answer())
        for _ in range(3):
            for session in sessions:
                session.send({"code": "print(me)"})
            for number, session in enumerate(sessions):
                assert session.answer()["stdout"] == f"{number}\n"
    finally:
        for session in sessions:
            session.__exit__(None)


# ---- lines ----


@pytest.mark.parametrize("line, code, text", [
    (b"nonsense", "invalid_request", "a value expected"),
    (b"[]", "invalid_request", "object"),
    (b'{"code": ""}', "invalid_request", "code"),
    (b'{"code": "a\\u0000b"}', "invalid_request", "NUL"),
    (b'{"code": "1", "nix": 1}', "invalid_request", "nix"),
    (b'{"op": "nix"}', "invalid_request", "allowed are"),
    (b'{"code": "1", "language": "shell"}', "invalid_request", "language"),
])
def test_a_bad_line_is_answered_and_the_session_lives(line, code, text):
    with Session() as session:
        session.exec("x = 1")
        session.send(line)
        error = session.answer()["error"]
        assert error["code"] == code and text in error["message"]
        assert session.exec("x")["value"] == "1"


def test_lines_are_answered_in_their_order():
    with Session() as session:
        for number in range(40):
            session.send({"code": f"print({number})"})
        assert [session.answer()["stdout"] for _ in range(40)] == [f"{n}\n" for n in range(40)]


def test_info():
    with Session("--idle-timeout", "100") as session:
        session.send({"op": "info"})
        info = session.answer()
        assert re.fullmatch("[0-9a-f]{32}", info["session_id"])
        assert info["language"] == "python" and 90 < info["expires_in_seconds"] <= 100


def test_a_layer_that_is_required_is_there_or_nothing_starts():
    with Session("--require", "seccomp") as session:
        assert "seccomp" in session.exec("1")["layers"]


def test_output_over_the_hard_limit():
    with Session() as session:
        session.exec("x = 1")
        result = session.exec("while True: print('x' * 100000)", timeout_seconds=60)
        assert result["error_type"] == "resource_limit" and result["truncated"]
        assert session.exec("x")["value"] == "1"


def test_a_gate_refuses_and_the_state_is_kept():
    with Session() as session:
        session.exec("x = 1")
        result = session.exec("import os", gate=True)
        assert (result["exit_code"], result["error_type"]) == (-2, "validation_error")
        assert session.exec("x")["value"] == "1"
