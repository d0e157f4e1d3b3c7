# SPDX-License-Identifier: Apache-2.0
"""
Warm cells: zygotes and parked cells, through the C API.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from door import PATIENCE, Engine, children, command, engines  # noqa: E402

SYS_PIDFD_GETFD = 438
PROTO_CONTROL_FD, WIRE_CHANNEL_FD = 3, 1000


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_dead(pid):
    """Whether a process has ended, or is gone."""
    with contextlib.suppress(OSError):
        return "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    return True


def socket_of(pid, number):
    """A socket of another process, as if it were ours."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
    os.close(pidfd)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return socket.socket(fileno=fd)


def has_request(supervisor):
    """Whether a request waits to be read."""
    with socket_of(supervisor, PROTO_CONTROL_FD) as control:
        return bool(select.select([control], [], [], 0)[0])


def parked_pids(engine):
    """The interpreters that wait for a request: they have no output yet."""
    found = []
    for pid in children(engine.supervisor):
        with contextlib.suppress(OSError):
            if (b"python" in command(pid)[0]
                    and os.readlink(f"/proc/{pid}/fd/1").endswith("/dev/null")):
                found.append(int(pid))
    return found


def zygote_pid(engine):
    """Of the supervisor's interpreters the one that holds the supervisor's socket, not a cell's."""
    for pid in children(engine.supervisor):
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            if "python" in status and "CapEff:\t0000000000200000" in status:
                return int(pid)
    return None


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return os.environ.get("HUTCH_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture
def engine(cache_dir):
    """Makes engines; each has to end well."""
    with engines(Engine, cache_dir) as make:
        yield make


def test_one_run_starts_no_zygote(engine):
    one = engine()
    assert one.run("print(1)") == "1\n"
    assert one.cells() == {"starts": {"cold": 1, "forked": 0, "parked": 0}, "warm": []}


def test_requests_meet_parked_cells(engine):
    one = engine("--parked", "3")
    one.warm_up(3)
    before = one.cells()["starts"]
    for _ in range(3):
        assert one.run("print(6 * 7)") == "42\n"
    after = one.cells()["starts"]
    assert after["parked"] - before["parked"] == 3, (before, after)
    assert after["cold"] == before["cold"]


def test_a_burst_past_the_pool_is_forked(engine):
    one = engine("--parked", "2", threads=20)
    one.warm_up(2)
    before = one.cells()["starts"]
    for number in range(20):
        one.send({"code": f"print({number})"})
    printed = sorted(one.answer()["result"]["stdout"] for _ in range(20))
    assert printed == sorted(f"{number}\n" for number in range(20))
    after = one.cells()["starts"]
    assert after["forked"] > before["forked"], (before, after)
    assert sum(after.values()) - sum(before.values()) == 20


def test_forked_and_cold_when_told_so(engine):
    forked, cold = engine("--warmth", "1"), engine("--warmth", "2")
    end = time.monotonic() + PATIENCE
    while forked.cells()["starts"]["forked"] < 3:
        assert time.monotonic() < end
        assert forked.run("print(1)") == "1\n"
    assert forked.cells()["starts"]["parked"] == 0
    for _ in range(4):
        assert cold.run("print(1)") == "1\n"
    assert cold.cells() == {"starts": {"cold": 4, "forked": 0, "parked": 0}, "warm": []}


FRESH = """
import json, multiprocessing.process, os, random, secrets, ssl, tempfile, uuid
import numpy
print(json.dumps([bytes(multiprocessing.process.current_process().authkey).hex(),
                  next(tempfile._get_candidate_names()), random.random(), secrets.token_hex(), str(uuid.uuid4()), os.urandom(8).hex(),
                  numpy.random.rand(), numpy.random.default_rng().random(),
                  ssl.RAND_bytes(8).hex()]))
"""


MODULES = "numpy,numpy.random,ssl,random,uuid,secrets,tempfile,multiprocessing.process"


@pytest.mark.parametrize("preload", ["", MODULES])
def test_random_state_is_fresh_in_each_cell(engine, preload):
    one = engine("--preload", preload, "--parked", "4")
    one.warm_up(4)
    draws = [json.loads(one.run(FRESH)) for _ in range(20)]
    for source in zip(*draws):
        assert len(set(source)) == 20, source


def test_preloaded_modules_are_there(engine):
    one = engine("--preload", "json,decimal", "--parked", "1")
    one.warm_up(1)
    assert one.run("import sys; print('decimal' in sys.modules, 'csv' in sys.modules)") == "True False\n"


def test_a_preload_that_fails_is_reported_and_left_out(engine):
    one = engine("--preload", "nosuchmodule,decimal", "--parked", "1")
    one.warm_up(1)
    assert one.run("import sys; print('decimal' in sys.modules)") == "True\n"
    assert "ModuleNotFoundError: No module named 'nosuchmodule'" in one.warm()["log"]


@pytest.fixture
def python_with():
    """
    Makes interpreters that find a module which is not the distribution's. Not in /tmp,
    of which cells have one of their own.
    """
    with tempfile.TemporaryDirectory(prefix="hutch-test-", dir="/opt") as folder:

        def make(name, text):
            subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True)
            [packages] = pathlib.Path(folder).glob("lib/python3*/site-packages")
            (packages / f"{name}.py").write_text(text)
            return f"{folder}/bin/python"

        yield make


def test_foreign_modules_are_loaded_in_cells(engine, python_with):
    """And so without the power that the zygote has."""
    python = python_with("foreign", """
powers = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
""")
    one = engine("--python", python, "--preload", "foreign,nosuchmodule", "--parked", "1")
    one.warm_up(1)
    code = "import sys; print(*sys.modules['foreign'].powers)"
    assert one.run(code) == "CapEff:\t0000000000000000\n\n"
    assert "No module named 'nosuchmodule'" in one.warm()["log"]


THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""
EXIT = "import os; os._exit(3)"
NONSENSE = "import os; os.write(1000, b'nonsense')"  # to whoever made the cell
LOUD = """
import os, sys
for fd in 1, 2:
    os.set_blocking(fd, False)
    try: os.write(fd, b"x" * (1 << 20))
    except OSError: pass
print("x" * (5 << 20))
"""


@pytest.mark.parametrize("text", [THREAD, EXIT, NONSENSE, LOUD],
                         ids=["thread", "exit", "nonsense", "loud"])
def test_a_module_that_goes_wrong_in_cells(engine, python_with, text, request):
    """Requests do without parked cells; where a cell can load it, it is there."""
    one = engine("--python", python_with("odd", text), "--preload", "odd", "--parked", "1")
    for number in range(10):
        assert one.run(f"print({number})") == f"{number}\n"
    if "thread" in request.node.name:
        one.warm_up(1)
        assert one.run("import sys; print('odd' in sys.modules)") == "True\n"


def test_the_time_that_modules_took_is_not_the_programs(engine, python_with):
    busy = "import time\nwhile time.process_time() < 4: pass\n"
    one = engine("--python", python_with("busy", busy), "--preload", "busy", "--parked", "1")
    one.warm_up(1)
    assert one.run("for _ in range(10**6): pass\nprint(1)", timeout_seconds=1) == "1\n"


def test_a_zygote_that_ends_while_it_loads_leaves_that_to_the_cells(engine):
    one = engine("--preload", "numpy", "--parked", "1")
    one.run("pass")
    one.run("pass")
    wait_for(lambda: zygote_pid(one))
    os.kill(zygote_pid(one), signal.SIGKILL)
    one.warm_up(1)
    assert one.warm()["zygote_deaths"] == 1
    assert one.run("import sys; print('numpy' in sys.modules)") == "True\n"


def test_owners_have_zygotes_of_their_own_when_asked(engine):
    one = engine("--zygote-per-owner", "yes", "--parked", "1")
    end = time.monotonic() + PATIENCE
    while one.warm()["zygotes"] < 2 or one.warm()["parked"] < 2:
        assert time.monotonic() < end, one.cells()
        for owner in "ab":
            one.run("pass", owner=owner)
        time.sleep(0.2)
    seen = {owner: one.run("import os; print(id(os))", owner=owner) for owner in "ab"}
    assert seen["a"] != seen["b"]
    assert one.warm()["pools"] == 2


def test_doctor_tells_what_parked_cells_hold(engine):
    one = engine("--parked", "6")
    one.warm_up(6)
    memory = one.warm()["parked_memory"]
    assert memory["cells"] == 4  # are looked at
    assert 64 << 10 < memory["private_dirty_bytes"] <= memory["pss_bytes"] < 64 << 20
    assert one.warm()["zygote_memory"]["cells"] == 1


def test_a_limit_that_no_parked_cell_has_still_holds(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    for memory_mb in (64, 1024):
        result = one.ask({"code": "x = bytearray(200 << 20)", "memory_mb": memory_mb})
        assert (result["error_type"] == "resource_limit") == (memory_mb == 64), result
    disk = "import os\nopen('x', 'wb').write(b'x' * (4 << 20))"
    assert one.ask({"code": disk, "disk_mb": 1})["error_type"] == "resource_limit"
    assert one.ask({"code": disk, "disk_mb": 300})["error"] is None
    spawn = "import os\nfor _ in range(8):\n    if os.fork() == 0: os.pause() if hasattr(os, 'pause') else __import__('time').sleep(60)"
    result = one.ask({"code": spawn, "max_processes": 4})
    assert result["error_type"] == "resource_limit", result


def test_what_making_a_cell_takes_is_not_the_programs(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    used = [one.ask({"code": "pass"})["cpu_ms"] for _ in range(5)]
    spent = one.ask({"code": "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"})
    assert 150 < spent["cpu_ms"] and min(used) < spent["cpu_ms"] / 2


def test_the_end_of_a_program_is_as_in_a_plain_interpreter(engine):
    """Objects, handlers and files go in the order that they go in there."""
    program = """
import atexit, sys, threading, time, weakref
class Noisy:
    def __init__(self, name): self.name = name
    def __del__(self): print("gone", self.name)
one = Noisy("global")
_under = Noisy("underscore")
loop = Noisy("cycle"); loop.self = loop
weakref.finalize(one, print, "finalized")
atexit.register(print, "atexit 1")
atexit.register(print, "atexit 2")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
sys.stdout.write("no newline, ")
f = open("/dev/stderr", "w"); f.write("unflushed")
print("end")
"""
    plain = subprocess.run(["/usr/bin/python3", "-I", "-c", program], capture_output=True,
                           text=True, check=True)
    one = engine("--parked", "1")
    one.warm_up(1)
    result = one.ask({"code": program})
    assert result["stdout"] == plain.stdout
    assert result["stderr"] == "unflushed"  # which a plain interpreter may lose
    for code, status in (("raise SystemExit(7)", 7), ("1/0", 1), ("import os; os._exit(9)", 9),
                         ("import atexit, os; atexit.register(os._exit, 5)", 5),
                         ("raise SystemExit('text')", 1), ("raise SystemExit(-1)", 255)):
        assert one.ask({"code": code})["exit_code"] == status, code
    result = one.ask({"code": "raise KeyboardInterrupt"})
    assert (result["exit_code"], result["signal"]) == (130, "SIGINT")


ENDS = {
    "handlers": """
import atexit, weakref
class Thing: pass
thing = Thing()
atexit.register(print, "first", end="")
weakref.finalize(thing, print, "finalized")
atexit.register(lambda: atexit.register(print, "registered late"))
atexit.register(lambda: 1 / 0)
atexit.register(print, "last")
""",
    "exits in handlers": """
import atexit, sys
atexit.register(print, "first")
atexit.register(sys.exit, 3)
atexit.register(exec, "raise SystemExit('text')")
atexit.register(print, "last")
""",
    "a handler that ends the process": """
import atexit, os
atexit.register(print, "never")
atexit.register(os._exit, 5)
print("a line")
""",
    "a handler that forks": """
import atexit, os
def fork():
    pid = os.fork()
    if pid: os.waitpid(pid, 0)
    print("child" if pid == 0 else "parent")
atexit.register(print, "both")
atexit.register(fork)
""",
    "a handler that starts threads": """
import atexit, threading
def start():
    thread = threading.Thread(target=print, args=("thread",))
    thread.start(); thread.join()
atexit.register(start)
""",
    "a handler that looks around": """
import atexit, sys, traceback, warnings
def look():
    print(sys._getframe().f_back, sys.modules["__main__"].look is look, sys.argv[1:])
    traceback.print_stack()
    warnings.warn("of a handler", stacklevel=2)
atexit.register(look)
""",
    "a thread without threading": """
import _thread, time
_thread.start_new_thread(time.sleep, (5,))
print("end", end="")
""",
    "threads before handlers": """
import atexit, threading, time
atexit.register(print, "handler")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
""",
    "cycles": """
import gc
class Noisy:
    def __init__(self, name): self.name, self.me = name, self
    def __del__(self): print("gone", self.name)
def function(): return held
old, held = Noisy("old"), [Noisy("held")]
gc.collect()
young = Noisy("young")
""",
    # The plain interpreter goes once more through what is nobody's, so in another order.
    "many cycles, in any order": """
class Noisy:
    def __init__(self, name): self.name, self.me = name, self
    def __del__(self): print("gone", self.name)
for number in range(3000): Noisy(number)
kept = [Noisy(-number) for number in range(2000)]
""",
    "frozen and thawed": """
import gc
class Noisy:
    def __init__(self): self.me = self
    def __del__(self): print("gone")
Noisy()
gc.freeze(); gc.unfreeze()
""",
    "a traceback": """
def f(): g()
def g(): raise ValueError("deep")
f()
""",
    "a chain": """
import atexit
atexit.register(print, "handler")
try: 1 / 0
except ZeroDivisionError: [][0]
""",
    "recursion": """
import sys
def depth(n=1):
    try: return depth(n + 1)
    except RecursionError: return n
print(abs(depth() - sys.getrecursionlimit()) < 10)
""",
    "sys.exit": "import atexit, sys; atexit.register(print, 'handler'); sys.exit(4)",
    "an exit with text": "raise SystemExit('text')",
    "output without a line's end": "import sys; print(1, end=''); sys.stdout.buffer.write(b'2'); sys.stderr.write('3')",
    "a stream that is closed": "import sys; print(1); sys.stdout.close()",
    "a stream that is replaced": "import io, sys; print(1); sys.stdout = io.StringIO(); print(2)",
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_as_in_a_plain_interpreter(engines_of_ends, tmp_path, name):
    program = tmp_path / "main.py"
    program.write_text(ENDS[name])
    plain = subprocess.run(["/usr/bin/python3", "-I", program], capture_output=True, text=True)
    errors = plain.stderr.replace(str(program), "/run/main.py")
    address = re.compile(r" at 0x[0-9a-f]+")
    for one in engines_of_ends:
        result = one.ask({"code": ENDS[name]})
        printed, expected = result["stdout"], plain.stdout
        if "in any order" in name:
            printed, expected = sorted(printed.split("\n")), sorted(expected.split("\n"))
        assert (printed, result["exit_code"]) == (expected, plain.returncode)
        assert address.sub("", result["stderr"]) == address.sub("", errors)


@pytest.fixture(scope="module")
def engines_of_ends(cache_dir):
    """One whose programs meet parked interpreters, and one that forks for each."""
    with engines(Engine, cache_dir) as make:
        parked, forked = make("--parked", "2"), make("--warmth", "1")
        parked.warm_up(2)
        wait_for(lambda: forked.run("pass") == "" and forked.warm()["zygotes"] == 1)
        yield parked, forked


def test_nothing_is_left_of_rehearsals(engine):
    """Neither names nor files, nor the channel to a child of the program."""
    code = """
import os, sys
here = list(sys.modules).index("__main__") < list(sys.modules).index("io")
print(here, "<value>" in sys.modules, sys.argv, sys.path.count(os.getcwd()), os.listdir("/run"))
if os.fork() == 0:
    print(os.path.exists("/proc/self/fd/1000"), flush=True)
    os._exit(0)
os.wait()
print(os.get_inheritable(1000))
6 * 7
"""
    cold, forked, parked = engine("--warmth", "2"), engine("--warmth", "1"), engine("--parked", "1")
    wait_for(lambda: forked.run("pass") == "" and forked.warm()["zygotes"] == 1)
    parked.warm_up(1)
    results = [one.ask({"code": code}) for one in (cold, forked, parked)]
    assert len({result["stdout"] for result in results}) == 1, results
    assert {result["value"] for result in results} == {"42"}, results


def test_what_c_libraries_print_is_not_lost(engine):
    one = engine("--parked", "1")
    one.warm_up(1)
    code = "import ctypes; c = ctypes.CDLL(None); c.printf(b'from c\\n'); c.puts(b'more')"
    assert one.run(code) == "from c\nmore\n"


def test_threads_that_go_on_find_their_modules(engine):
    code = """
import threading, os, time, math
g = 1
def f():
    while 1: math.sqrt(os.getpid() + g)
for _ in range(3): threading.Thread(target=f, daemon=True).start()
time.sleep(.05)
big = [[i] for i in range(200000)]
"""
    one = engine("--parked", "2")
    one.warm_up(2)
    for _ in range(3):
        assert one.run(code) == ""


def test_a_program_may_look_at_itself(engine):
    code = "import os; print(len(os.listdir('/proc/self/ns')) > 5, 'HOME' in open('/proc/self/environ').read())"
    one = engine("--parked", "1")
    one.warm_up(1)
    assert one.run(code) == "True True\n"


def test_a_zygote_that_hangs_is_given_up(engine):
    """A request waits for it for seconds, then gets an interpreter of its own."""
    one = engine("--warmth", "1", threads=2)
    end = time.monotonic() + PATIENCE
    while one.cells()["starts"]["forked"] < 1:
        assert time.monotonic() < end
        one.run("pass")
    os.kill(zygote_pid(one), signal.SIGSTOP)
    start = time.monotonic()
    assert one.run("print(1)") == "1\n"
    assert time.monotonic() - start < 60
    assert one.run("print(2)") == "2\n"


def test_a_supervisor_has_no_dead_children(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    for _ in range(10):
        one.run("pass")
    one.warm_up(2)
    states = subprocess.run(["ps", "-o", "stat=", "--ppid", str(one.supervisor)],
                            capture_output=True, text=True, check=True).stdout.split()
    assert len([state for state in states if state.startswith("Z")]) <= 1, states


def test_a_zygote_that_is_killed_is_replaced(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    for _ in range(3):
        pid = zygote_pid(one)
        assert pid
        os.kill(pid, signal.SIGKILL)
        for _ in range(4):
            assert one.run("print(1)") == "1\n"
        one.warm_up(2)
        assert zygote_pid(one) not in (None, pid)


def test_the_inits_of_zygote_and_cells_are_killed(engine):
    """Only the cells under them are lost, and a run that was in one says so."""
    one = engine("--parked", "2")
    for _ in range(3):
        one.warm_up(2)
        for pid in children(one.supervisor):
            if command(pid)[:1] == [b"hutch-init"]:
                os.kill(int(pid), signal.SIGKILL)
        one.send({"code": "print(1)"})
        one.answer()  # may have been lost with them
        end = time.monotonic() + PATIENCE
        while "error" in one_more(one):  # of a cell whose death was not noticed yet
            assert time.monotonic() < end


def one_more(engine):
    engine.send({"code": "print(2)"})
    answer = engine.answer()
    if "error" in answer:
        assert answer["error"]["code"] == "helper_failed", answer
    else:
        assert answer["result"]["stdout"] == "2\n"
    return answer


def own_groups(supervisor):
    """The cgroups of a supervisor's cells, in all hierarchies."""
    return [
        folder
        for folder, _, _ in os.walk("/sys/fs/cgroup")
        if f"/hutch-{supervisor}-" in folder and "/cell-" in folder
    ]


def memory_kib(pid):
    """What a process has of memory, its share of what it shares included."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Private_Dirty:\s+(\d+)", text, re.MULTILINE)[1])


def kernel_networks():
    """Network namespaces of the whole host, whoever holds them."""
    text = pathlib.Path("/proc/slabinfo").read_text()
    return int(re.search(r"^net_namespace\s+(\d+)", text, re.MULTILINE)[1])


def count_things(engine):
    """What an engine and its supervisor hold, for themselves and of the kernel."""
    supervisor, zygote = engine.supervisor, zygote_pid(engine)
    held = [os.readlink(f"/proc/{supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor}/fd")]
    nets = [name for name in held if name.startswith("net:") or name.endswith("/net/sockstat")]
    return {
        "descriptors": len(held) - len(nets),
        "descriptors of the engine": len(os.listdir(f"/proc/{engine.process.pid}/fd")),
        "descriptors of the zygote": len(os.listdir(f"/proc/{zygote}/fd")),
        "processes": len(children(supervisor)),
        "threads of the engine": len(os.listdir(f"/proc/{engine.process.pid}/task")),
        "mounts": len(pathlib.Path(f"/proc/{supervisor}/mountinfo").read_text().splitlines()),
        "groups": len(own_groups(supervisor)),
    }, len(nets)


OWNERS = [None, "a", "b", "c", "d"]
NETS_KEPT = 32  # net.h: used network namespaces that wait for a cell of their owner


def mixed_requests(count):
    """Requests for parked, forked and cold cells, of several owners, each with its output."""
    for number in range(count):
        request = {"code": f"print({number})"}
        if number % 20 == 7:
            request["cpus"] = 2  # no zygote serves that
        if number % 40 == 9:
            request = {"code": f"echo {number}", "language": "shell"}
        if number % 10 == 3:
            request["disk_mb"] = 16  # nor does a parked cell
        owner = OWNERS[number // 5 % len(OWNERS)]
        yield {**request, "owner": owner} if owner else request, f"{number}\n"


def run_mixed(engine, count, at_once=4):
    waiting = []

    def take():
        answer = engine.answer()
        assert "result" in answer, answer
        waiting.remove(answer["result"]["stdout"])

    for request, printed in mixed_requests(count):
        engine.send(request)
        waiting.append(printed)
        if len(waiting) == at_once:
            take()
    while waiting:
        take()


def test_a_thousand_cells_leave_nothing_behind(engine):
    parked = 2 * len(OWNERS)
    one = engine("--parked", "2", threads=4)
    run_mixed(one, 100)
    one.warm_up(parked)
    wait_for(lambda: len(children(one.supervisor)) == 2 * (parked + 1) + 1)  # the zygote's too, and its maker
    processes = {"engine": one.process.pid, "supervisor": one.supervisor}
    before, _ = count_things(one)
    memory = {name: memory_kib(pid) for name, pid in processes.items()}
    networks, starts = kernel_networks(), one.cells()["starts"]

    run_mixed(one, 1000)

    after = one.cells()["starts"]
    made = {name: after[name] - starts[name] for name in starts}
    assert sum(made.values()) == 1000 and min(made.values()) >= 20, made
    one.warm_up(parked)
    end = time.monotonic() + 60
    while count_things(one)[0] != before:
        assert time.monotonic() < end, (before, count_things(one))
        time.sleep(0.02)
    assert count_things(one)[1] <= 2 * (NETS_KEPT + parked + 1)
    for name, pid in processes.items():
        assert memory_kib(pid) <= memory[name] + 512, (name, memory[name], memory_kib(pid))
    # Other programs may have some too, and the kernel takes its time.
    wait_for(lambda: kernel_networks() <= networks + 300)


def test_a_zygote_does_not_grow_with_its_forks(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    for _ in range(50):
        one.run("pass")
    one.warm_up(2)
    zygote = zygote_pid(one)
    before = memory_kib(zygote)
    for _ in range(300):
        one.run("pass")
    one.warm_up(2)
    assert zygote_pid(one) == zygote
    assert memory_kib(zygote) <= before + 512, (before, memory_kib(zygote))


SOCKET = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
other.close(); client.close()  # who closes first leaves TIME_WAIT behind
print(open("/proc/net/sockstat").read().split("tw ")[1].split()[0])
"""
LOOK = """
import os
print(os.stat("/proc/self/ns/net").st_ino, open("/proc/net/sockstat").read().split()[2])
"""


def test_a_network_namespace_is_never_handed_on_with_a_socket(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    dirty = set()
    for _ in range(4):
        dirty.add(one.run(LOOK + SOCKET).split()[0])
        for _ in range(6):
            inode, used = one.run(LOOK).split()
            assert used == "0"
            assert inode not in dirty


def test_owners_share_no_network_namespace(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    seen = {"a": set(), "b": set()}
    for _ in range(15):
        for owner in seen:
            seen[owner].add(one.run(LOOK, owner=owner).split()[0])
    assert not seen["a"] & seen["b"]


def test_threads_at_once(engine):
    one = engine("--parked", "4", threads=8)
    for number in range(200):
        one.send({"code": f"print({number})", "owner": f"o{number % 3}"})
    printed = {one.answer()["result"]["stdout"] for _ in range(200)}
    assert printed == {f"{number}\n" for number in range(200)}


def test_all_runs_of_a_killed_supervisor_say_that_it_died(engine):
    one = engine("--warmth", "2", threads=6)
    one.run("pass")
    supervisor = one.supervisor
    for _ in range(6):
        one.send({"code": "import time; time.sleep(300)", "timeout_seconds": 300})
    wait_for(lambda: len(children(supervisor)) >= 12)
    os.kill(supervisor, signal.SIGKILL)
    for _ in range(6):
        error = one.answer()["error"]
        assert (error["code"], error["retry_safe"]) == ("helper_failed", False)
        assert error["message"] == "hutch-supervisor died during the run"
    assert one.run("print(1)") == "1\n"


def test_a_request_that_meets_a_dead_parked_cell_gets_another_one(engine):
    """The supervisor is stopped meanwhile, so that it learns of the death too late."""
    one = engine("--parked", "1")
    one.warm_up(1)
    cold = one.cells()["starts"]["cold"]
    supervisor = one.supervisor
    (parked,) = parked_pids(one)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        one.send({"code": "print(3)"})
        wait_for(lambda: has_request(supervisor))
        os.kill(parked, signal.SIGKILL)
        wait_for(lambda: is_dead(parked))
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert one.answer()["result"]["stdout"] == "3\n"
    assert one.cells()["starts"]["cold"] == cold + 1


@pytest.mark.parametrize("said", [b"nonsense", bytes(4)], ids=["nonsense", "unasked"])
def test_a_zygote_that_says_what_was_not_agreed_is_replaced(engine, said):
    one = engine("--parked", "1")
    one.warm_up(1)
    zygote = zygote_pid(one)
    with socket_of(zygote, WIRE_CHANNEL_FD) as channel:
        channel.send(said)
    for number in range(4):
        assert one.run(f"print({number})") == f"{number}\n"
    wait_for(lambda: is_dead(zygote))
    one.warm_up(1)
    assert zygote_pid(one) not in (None, zygote)


DEATHS = [
    ("import os; os.kill(os.getpid(), 9)", 137),
    ("import os; os.kill(os.getpid(), 11)", 139),
    ("import os; os._exit(3)", 3),
    ("import os; os.close(1000); os._exit(4)", 4),
    ("import os\nfor fd in range(2000):\n    try: os.close(fd)\n    except OSError: pass\nos._exit(5)", 5),
    ("import os\nfor _ in range(99):\n    try: os.fork()\n    except OSError: os._exit(6)", 6),
]


def test_a_flood_of_programs_that_die_leaves_the_pool_as_it_was(engine):
    one = engine("--parked", "2", threads=8)
    one.warm_up(2)
    for code, _ in 20 * DEATHS:
        one.send({"code": code, "max_processes": 4})
    answers = sorted((one.answer() for _ in 20 * DEATHS), key=lambda answer: answer["line"])
    for (code, status), answer in zip(20 * DEATHS, answers):
        assert answer["result"]["exit_code"] == status, (code, answer)
    one.warm_up(2)
    assert one.warm()["zygote_deaths"] == 0
    assert one.run("print(1)") == "1\n"


LEAVE = r"""
import ctypes, mmap, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
segment = libc.shmget(4711, 4096, 0o1666)
queue = libc.msgget(4711, 0o1666)
for name in "/tmp/left", "/dev/shm/left", "/home/user/left":
    open(name, "w").write("left")
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0left")
listener.listen()
server = socket.create_server(("127.0.0.1", 4711))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(segment >= 0, queue >= 0)
signal.sigwait([signal.SIGUSR1])
print("alive")
"""
MEET = r"""
import ctypes, errno, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, function, *arguments):
    try:
        result = function(*arguments)
        if result == -1: raise OSError(ctypes.get_errno(), "")
        print(name, result)
    except OSError as error:
        print(name, errno.errorcode[error.errno])
attempt("segment", libc.shmget, 4711, 4096, 0o666)
attempt("queue", libc.msgget, 4711, 0o666)
for name in "/tmp/left", "/dev/shm/left", "/home/user/left":
    attempt(name, os.stat, name)
attempt("abstract", socket.socket(socket.AF_UNIX).connect, "\0left")
attempt("tcp", socket.create_connection, ("127.0.0.1", 4711))
attempt("parent", os.getppid)
attempt("processes", lambda: sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
for pid in range(3, 400):
    try: os.kill(pid, 0)
    except ProcessLookupError: continue
    print("found", pid)
for kind in "user", "pid", "mnt", "net":
    attempt(f"ns-{kind}", os.open, f"/proc/1/ns/{kind}", os.O_RDONLY)
    attempt(f"setns-{kind}", libc.setns, os.open(f"/proc/self/ns/{kind}", os.O_RDONLY), 0)
for name, number in ("keyctl", 250), ("add_key", 248), ("unshare", 272), ("clone3", 435), ("pidfd_getfd", 438):
    attempt(name, libc.syscall, number, 0, 0, 0, 0)
attempt("chroot", os.chroot, "/tmp")
attempt("mount", libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
attempt("ptrace", libc.ptrace, 16, 1, 0, 0)
attempt("ping-range", open, "/proc/sys/net/ipv4/ping_group_range", "w")
attempt("kill", os.kill, -1, signal.SIGTERM)
"""
MET = """
segment ENOENT
queue ENOENT
/tmp/left ENOENT
/dev/shm/left ENOENT
/home/user/left ENOENT
abstract ECONNREFUSED
tcp ECONNREFUSED
parent 0
processes [1, 2]
ns-user EACCES
setns-user ENOSYS
ns-pid EACCES
setns-pid ENOSYS
ns-mnt EACCES
setns-mnt ENOSYS
ns-net EACCES
setns-net ENOSYS
keyctl ENOSYS
add_key ENOSYS
unshare ENOSYS
clone3 ENOSYS
pidfd_getfd ENOSYS
chroot ENOSYS
mount ENOSYS
ptrace ENOSYS
ping-range EACCES
kill ESRCH
"""


@pytest.mark.parametrize("warmth", ["0", "1"], ids=["parked", "forked"])
def test_cells_of_one_zygote_do_not_meet(engine, warmth):
    """Neither while both are there, nor in a network namespace that serves again."""
    one = engine("--warmth", warmth, "--parked", "2", threads=2)
    wait_for(lambda: one.run("pass") == "" and one.warm()["zygotes"] == 1)
    one.send({"code": LEAVE, "timeout_seconds": 60})

    def is_there(pid):
        with contextlib.suppress(OSError):
            return "@left" in pathlib.Path(f"/proc/{pid}/net/unix").read_text()
        return False

    wait_for(lambda: any(is_there(pid) for pid in children(one.supervisor)))
    first = one.ask({"code": MEET})
    assert (first["stdout"], first["stderr"]) == (MET[1:], "")
    for pid in filter(is_there, children(one.supervisor)):  # the program, and its hutch-init, which does not care
        os.kill(int(pid), signal.SIGUSR1)
    assert one.answer()["result"]["stdout"] == "True True\nalive\n"
    for _ in range(4):
        assert one.ask({"code": MEET})["stdout"] == MET[1:]


LOOK_INSIDE = """
import sys
found = {"modules": sorted(sys.modules), "path": sys.path[:], "argv": sys.argv, "flags": str(sys.flags),
         "options": [sys.orig_argv, sys._xoptions, sys.warnoptions, sys.dont_write_bytecode]}
import gc
found["gc"] = [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0, gc.garbage]
import json, locale, os, re, resource, signal, threading
def read(name):
    with open("/proc/self/" + name) as file: return file.read()
status = dict(line.split(":\t", 1) for line in read("status").splitlines())
for name in "Umask Tgid Pid PPid TracerPid Uid Gid Groups NStgid NSpid NSsid Threads SigPnd ShdPnd SigBlk SigIgn " \
        "SigCgt CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Cpus_allowed CoreDumping".split():
    found["status " + name] = status.get(name)
found["status Cpus_allowed"] = bin(int(status["Cpus_allowed"].replace(",", ""), 16)).count("1")
for name in "cmdline comm environ limits cgroup oom_score_adj sessionid loginuid timerslack_ns setgroups".split():
    found[name] = read(name)
found["mounts"] = sorted(re.sub("[ug]id=\\d+", "", " ".join(line.split()[3:])) for line in read("mountinfo").splitlines())
found["namespaces"] = sorted(os.listdir("/proc/self/ns"))
found["files"] = [os.readlink("/proc/self/exe"), *sorted({line.split()[-1] for line in read("maps").splitlines() if "/" in line}
                  - {"/usr/lib/hutch/hutch_zygote.abi3.so"})]
found["ids"] = [os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.getresuid(), os.getresgid(), os.getgroups()]
found["descriptors"] = {fd: re.sub("\\d+", "N", os.readlink("/proc/self/fd/" + fd)) + " " +
                        re.search("flags:\\s+(\\d+)", read("fdinfo/" + fd))[1]
                        for fd in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + fd)}
found["environment"] = sorted(os.environ.items())
found["limits by call"] = [resource.getrlimit(n) for n in range(16)]
found["signals"] = [str(signal.getsignal(n)) for n in range(1, 65)] + [str(signal.pthread_sigmask(signal.SIG_BLOCK, []))]
found["timers"] = [signal.getitimer(n) for n in range(3)]
mask = os.umask(0); os.umask(mask)
found["process"] = [mask, os.getcwd(), os.nice(0), os.sched_getscheduler(0)]
found["threads"] = [(t.name, t.daemon) for t in threading.enumerate()]
found["locale"] = [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()]
found["interpreter"] = [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.executable, sys.prefix]
found["streams"] = [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.fileno(), s.buffer.raw.name, s.buffer.raw.closefd)
                    for s in (sys.stdin, sys.stdout, sys.stderr)]
found["folders"] = [sorted(os.listdir(name)) for name in (".", "/tmp", "/run", "/dev/shm")]
found["main"] = sorted(name for name in globals() if name.startswith("__"))
frame, found["frames"] = sys._getframe(), []
while frame:
    found["frames"].append(frame.f_code.co_name)
    frame = frame.f_back
print(json.dumps(found))
"""


@pytest.mark.parametrize("fields", [{}, {"stdin": "text"}, {"env": {"A": "b", "TZ": "Asia/Tokyo"}}],
                         ids=["plain", "stdin", "env"])
def test_a_warm_cell_looks_like_a_cold_one(engine, fields):
    request = {"code": LOOK_INSIDE, **fields}
    cold = json.loads(engine("--warmth", "2").ask(request)["stdout"])
    forked, parked = engine("--warmth", "1"), engine("--parked", "1")
    wait_for(lambda: forked.run("pass") == "" and forked.warm()["zygotes"] == 1)
    parked.warm_up(1)
    for one, name in ((forked, "forked"), (parked, "parked")):
        before = one.cells()["starts"][name]
        warm = json.loads(one.ask(request)["stdout"])
        assert one.cells()["starts"][name] == before + 1
        assert {key: (cold[key], warm[key]) for key in cold if cold[key] != warm[key]} == {}


def test_an_engine_that_ends_takes_its_zygote_along(cache_dir):
    one = Engine(cache_dir, "--parked", "2")
    one.warm_up(2)
    pids = [int(pid) for pid in children(one.supervisor)]
    assert len(pids) >= 6
    one.process.kill()
    one.process.wait()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)
    one.process.stdin.close()
    one.process.stdout.close()
