# SPDX-License-Identifier: Apache-2.0
"""Cases that need a procedure: several runs, timing, a server outside, the
plain interpreter beside them. Each is a function of a door and the context;
it returns the list of what does not hold."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import threading
import time

import doors
import expect
import report

REGISTERED = []
PYTHON = "/usr/bin/python3"


def special(case_id, row, promise, only=("cli", "c"), alone=False, attempts=1, needs=()):
    """Registers a function as a case."""

    def register(function):
        REGISTERED.append(
            {
                "id": case_id,
                "row": row,
                "promise": promise,
                "doors": frozenset(only),
                "alone": alone,
                "body": function,
                "attempts": attempts,
                "needs": needs,
            }
        )
        return function

    return register


def run(door, request, expectation, problems, label=""):
    """Runs a request and adds what does not hold; returns the outcome."""
    outcome = door.run(request)
    found = expect.check(expectation, outcome)
    found += expect.check_form(outcome, request.get("language", "python"))
    problems += [f"{label}{': ' if label else ''}{problem}" for problem in found]
    return outcome


def together(door, requests):
    """Runs requests at the same time; their outcomes in the order of the requests."""
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(door.run, requests))


# ---- processes --------------------------------------------------------------


@special(
    "children-beyond-the-end",
    "PY21",
    "children that outlive the program do not hold it up and are gone in the next run",
    alone=True,
)
def children_beyond_the_end(door, _context):
    problems = []
    code = (
        "import os, subprocess, time\n"
        "subprocess.Popen(['sleep', '2'])\n"
        "subprocess.Popen(['sleep', '2'], start_new_session=True, stdout=-3, stderr=-3)\n"
        "if os.fork() == 0:\n"
        "    time.sleep(2)\n"
        "    print('too late')\n"
        "else:\n"
        "    print('done')\n"
    )
    run(
        door,
        {"code": code},
        {"is": "OK", "stdout": "done\n", "duration_ms": {"between": [0, 1500]}},
        problems,
        "first run",
    )
    count = "for p in /proc/[0-9]*; do cat $p/comm; done | sort | uniq"
    run(
        door,
        {"code": count, "language": "shell"},
        {"is": "OK", "stdout": {"contains": "bash\n", "absent": ["sleep", "python"]}},
        problems,
        "second run",
    )
    return problems


@special(
    "deep-recursion",
    "PY27",
    "recursion without a limit ends the program, is explained, and harms no later run",
)
def deep_recursion(door, _context):
    programs = {
        "python frames": "def f():\n    return f()\nf()",
        "C stack": "class A:\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(self, name)\n"
        "A().x",
        "nested repr": "x = []\nfor _ in range(500_000):\n    x = [x]\nrepr(x)",
    }
    problems = []
    for name, code in programs.items():
        outcome = door.run({"code": "import sys\nsys.setrecursionlimit(10**6)\n" + code})
        problems += expect.check_form(outcome)
        if outcome.result is None:
            problems.append(f"{name}: {outcome.error}")
            continue
        error = outcome.result["error"] or {"type": None, "message": ""}
        raised = outcome.result["exit_code"] == 1 and error["type"] in (
            "RecursionError",
            "MemoryError",
        )
        crashed = outcome.result["exit_code"] == 139 and "stack overflow" in error["message"]
        out_of_memory = outcome.result["error_type"] == "resource_limit"
        if not (raised or crashed or out_of_memory):
            problems.append(f"{name}: exit_code {outcome.result['exit_code']}, error {error}")
    run(door, {"code": "print('fine')"}, {"is": "OK", "stdout": "fine\n"}, problems, "next run")
    return problems


@special(
    "fork-storm",
    "LI07",
    "a fork bomb is contained, ends in time, and leaves others alone",
    alone=True,
)
def fork_storm(door, _context):
    bomb = {"code": ":(){ :|:& };:", "language": "shell", "timeout_seconds": 2}
    stubborn = {
        "code": "bomb() { bomb | bomb; }; while :; do bomb; done",
        "language": "shell",
        "timeout_seconds": 2,
    }
    quiet = {"code": "import time\nfor n in range(8):\n    print(n)\n    time.sleep(0.1)"}
    problems = []
    for name, request in (("classic", bomb), ("in the foreground", stubborn)):
        hostile, neighbour = together(door, [request, quiet])
        problems += expect.check({"is": "OK", "stdout": "0\n1\n2\n3\n4\n5\n6\n7\n"}, neighbour)
        if hostile.result is None:
            problems.append(f"{name}: {hostile.error}")
            continue
        problems += expect.check_form(hostile, "shell")
        if hostile.seconds > 20:
            problems.append(f"{name}: took {hostile.seconds:.1f} s with a limit of 2 s")
    if hostile.result and hostile.result["error_type"] not in ("timeout", "resource_limit"):
        problems.append(f"in the foreground: error_type {hostile.result['error_type']}")
    run(
        door,
        {"code": "echo ok", "language": "shell"},
        {"is": "OK", "stdout": "ok\n"},
        problems,
        "next run",
    )
    return problems


# ---- the same inside and outside ---------------------------------------------


SURROUNDINGS = """
import json, locale, mimetypes, ssl, sys, zoneinfo
context = ssl.create_default_context()
print(json.dumps({
    "version": sys.version,
    "openssl": ssl.OPENSSL_VERSION,
    "certificates": sorted(c["serialNumber"] for c in context.get_ca_certs()),
    "zones": len(zoneinfo.available_timezones()) > 300,
    "locale": [locale.getpreferredencoding().lower(), locale.setlocale(locale.LC_ALL, "")],
    "types": {n: mimetypes.guess_type("x" + n)[0] for n in
              (".html", ".csv", ".json", ".png", ".svg", ".docx", ".xlsx", ".mp4", ".epub")},
}))
"""


@special(
    "same-as-outside",
    "PY39",
    "version, certificates, zones, locale and file types are those of the host's interpreter",
)
def same_as_outside(door, _context):
    problems = []
    inside = run(door, {"code": SURROUNDINGS}, {"is": "OK", "stdout": {"match": "^{"}}, problems)
    if problems:
        return problems
    outside = subprocess.run(
        [PYTHON, "-I", "-c", SURROUNDINGS],
        capture_output=True,
        check=True,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    inside, outside = (json.loads(t) for t in (inside.result["stdout"], outside.stdout))
    outside["types"] = {n: t for n, t in outside["types"].items() if t}
    for name, known in outside["types"].items():
        if inside["types"][name] != known:
            problems.append(f"type of {name}: {inside['types'][name]} inside, {known} outside")
    del inside["types"], outside["types"]
    for name, value in outside.items():
        if inside[name] != value:
            problems.append(f"{name}: {inside[name]!r:.200} inside, {value!r:.200} outside")
    return problems


@special("randomness", "JS16", "nothing random repeats from one run to the next")
def randomness(door, _context):
    code = (
        "import os, random, secrets, uuid\n"
        "print(os.urandom(8).hex(), random.random(), secrets.token_hex(8), uuid.uuid4())\n"
        "print(open('/proc/sys/kernel/random/uuid').read().strip())"
    )
    problems, seen, run_ids = [], [], []
    for _ in range(6):
        outcome = run(door, {"code": code}, {"is": "OK", "stdout": {"match": "."}}, problems)
        if outcome.result:
            seen += outcome.result["stdout"].split()
            run_ids.append(outcome.result["run_id"])
    if len(seen) != 30 or len(set(seen)) != 30:
        problems.append(f"something repeats: {sorted(seen)}")
    if len(set(run_ids)) != 6:
        problems.append(f"a run_id repeats: {run_ids}")
    return problems


@special(
    "randomness-javascript", "JS16", "nothing random repeats from one javascript run to the next"
)
def randomness_javascript(door, _context):
    code = (
        "const crypto = require('crypto')\n"
        "console.log(Math.random(), crypto.randomBytes(8).toString('hex'), crypto.randomUUID())"
    )
    problems, seen = [], []
    for outcome in together(door, [{"code": code, "language": "javascript"}] * 20):
        problems += expect.check({"is": "OK", "stdout": {"match": "."}}, outcome)
        if outcome.result:
            seen += outcome.result["stdout"].split()
    if len(seen) != 60 or len(set(seen)) != 60:
        problems.append(f"something repeats: {sorted(seen)}")
    return problems


# ---- output -------------------------------------------------------------------


def common_length(one, other):
    """How many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def check_cut(whole, shown, counted, limit):
    """Head and tail of whole are in shown, and its marker counts the bytes between."""
    if counted != len(whole):
        return [f"{counted} bytes counted, {len(whole)} printed"]
    head = common_length(whole, shown)
    tail = common_length(whole[::-1], shown[head:][::-1])
    marker = shown[head : len(shown) - tail]
    numbers = [int(n) for n in re.findall(rb"\d+", marker)]
    missing = len(whole) - head - tail
    problems = []
    # Bytes at the border of the marker may by chance be those of the text.
    slack = 4
    if not any(missing <= n <= missing + slack for n in numbers):
        problems.append(f"marker {marker!r:.200} does not say that {missing} bytes are missing")
    if len(marker) > 200:
        problems.append(f"marker of {len(marker)} bytes")
    if head + tail > limit + slack or head < limit // 4 or tail < limit // 4:
        problems.append(f"{head} bytes of head and {tail} of tail kept with a limit of {limit}")
    return problems


@special(
    "cut-in-the-middle", "OU03", "a cut output has head, tail and the exact number of bytes missing"
)
def cut_in_the_middle(door, _context):
    problems = []
    outcome = run(
        door,
        {"code": "seq 1 2000000", "language": "shell"},
        {"is": "OK", "truncated": True, "stdout": {"match": "^1\n2\n(?s:.*)\n2000000\n$"}},
        problems,
    )
    if outcome.result:
        whole = "".join(f"{n}\n" for n in range(1, 2000001)).encode()
        problems += check_cut(whole, outcome.raw("stdout"), outcome.result["stdout_bytes"], 1 << 20)
    return problems


@special(
    "cut-at-a-chosen-size",
    "OU04",
    "300 KB through a limit of 200 KB are cut in one place only",
    only=("c",),
)
def cut_at_a_chosen_size(door, _context):
    problems = []
    whole = b"".join(b"%06d." % n for n in range(300 * 1024 // 7))
    code = f"print(''.join('%06d.' % n for n in range({300 * 1024 // 7})), end='')"
    for encoding in ("text", "base64"):
        outcome = run(
            door,
            {"code": code, "max_output_bytes": 200 * 1024, "output_encoding": encoding},
            {"is": "OK", "truncated": True, "stdout": {"match": "."}},
            problems,
            encoding,
        )
        if outcome.result:
            problems += check_cut(
                whole, outcome.raw("stdout"), outcome.result["stdout_bytes"], 200 * 1024
            )
    return problems


@special("cut-between-characters", "OU23", "a cut never breaks a character", only=("c",))
def cut_between_characters(door, _context):
    problems = []
    for shift in range(4):
        whole = "x" * shift + "é漢🐍" * 1000
        outcome = run(
            door,
            {"code": f"print('x' * {shift} + 'é漢🐍' * 1000, end='')", "max_output_bytes": 1024},
            {"is": "OK", "truncated": True, "stdout": {"match": ".", "absent": "\ufffd"}},
            problems,
            f"shift {shift}",
        )
        if outcome.result:
            problems += check_cut(
                whole.encode(), outcome.raw("stdout"), outcome.result["stdout_bytes"], 1024
            )
    return problems


RANDOM_BYTES = """
import random, sys
sys.stdout.buffer.write(random.Random(7).randbytes({size}))
"""


@special("random-bytes", "OU08", "megabytes of noise make a valid result with the exact count")
def random_bytes(door, _context):
    problems = []
    small = random.Random(7).randbytes(200_000)
    outcome = run(
        door,
        {"code": RANDOM_BYTES.format(size=200_000) + "None"},
        {"is": "OK", "stdout": {"match": "\ufffd"}, "stdout_bytes": 200_000},
        problems,
    )
    if outcome.result:
        # How many U+FFFD stand for a bad sequence is not promised; what is good must be there.
        squeeze = re.compile("\ufffd+")
        expected = squeeze.sub("\ufffd", small.decode(errors="replace"))
        if squeeze.sub("\ufffd", outcome.result["stdout"]) != expected:
            problems.append("the good characters between the bad bytes are not those printed")
    run(
        door,
        {"code": RANDOM_BYTES.format(size=5_000_000) + "None"},
        {"is": "OK", "truncated": True, "stdout": {"match": "\ufffd"}, "stdout_bytes": 5_000_000},
        problems,
    )
    return problems


@special("random-bytes-base64", "OU08", "megabytes of noise are exact as base64", only=("c",))
def random_bytes_base64(door, _context):
    problems = []
    outcome = run(
        door,
        {
            "code": RANDOM_BYTES.format(size=5_000_000) + "None",
            "output_encoding": "base64",
            "max_output_bytes": 16 << 20,
        },
        {"is": "OK", "stdout": {"match": "^[A-Za-z0-9+/=]+$"}},
        problems,
    )
    if outcome.result and outcome.raw("stdout") != random.Random(7).randbytes(5_000_000):
        problems.append("the bytes are not those printed")
    return problems


def peak_kib(pid):
    """The most memory that a process has used so far; 0 when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) if found else 0


@contextlib.contextmanager
def watch_peak(pid, peaks):
    """Appends the peak of a process that may end at any time, as seen just before."""
    stop = threading.Event()

    def watch():
        while not stop.wait(0.005):
            peaks.append(peak_kib(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


ONE_HUGE_WRITE = """
import mmap, os
block = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
os.write(2, b"writing")
view = memoryview(block)
while view:
    view = view[os.write(1, view):]
"""


@special(
    "one-huge-write",
    "OU14",
    "a gigabyte in one write meets the hard limit, and the engine stays small",
    alone=True,
)
def one_huge_write(door, _context):
    problems = []
    request = {"code": ONE_HUGE_WRITE}
    expectation = {
        "is": "LIMIT(output, 64)",
        "truncated": True,
        "stdout": {"match": "^\0\0"},
        "stderr": "writing",
        "stdout_bytes": {"between": [64 << 20, 100_000_000]},
    }
    if door.name == "c":
        before = peak_kib(door.pid)
        run(door, request, expectation, problems)
        grown = peak_kib(door.pid) - before
    else:
        peaks = [0]
        process = door.start(["run", "--json", "-c", ONE_HUGE_WRITE])
        with process, watch_peak(process.pid, peaks):
            stdout, stderr = process.communicate(timeout=90)
        outcome = doors.Outcome(exit_status=process.returncode, stdout=stdout, stderr=stderr)
        problems += expect.check(expectation, door.parse(outcome))
        grown = max(peaks)
    if grown > 64 << 10:
        problems.append(f"the engine grew by {grown >> 10} MiB")
    return problems


@special(
    "flood-beside-a-neighbour",
    "OU06",
    "a program that prints without end does not slow another down",
    alone=True,
)
def flood_beside_a_neighbour(door, _context):
    def short_runs():
        times = []
        for _ in range(7):
            outcome = door.run({"code": "echo x", "language": "shell"})
            times.append(outcome.seconds)
            if outcome.result is None or outcome.result["stdout"] != "x\n":
                problems.append(f"short run: {outcome.error or outcome.result}")
        return statistics.median(times)

    problems = []
    alone = short_runs()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        flood = pool.submit(
            door.run,
            {"code": "while :; do echo flood; done", "language": "shell", "timeout_seconds": 3},
        )
        beside = short_runs()
        flood = flood.result()
    if flood.result is None or flood.result["error_type"] not in ("timeout", "resource_limit"):
        problems.append(f"flood: {flood.error or flood.result['error_type']}")
    if beside > 2 * alone + 0.05:
        problems.append(
            f"a short run took {beside * 1000:.0f} ms beside the flood, "
            f"{alone * 1000:.0f} ms without"
        )
    return problems


# ---- many at once -----------------------------------------------------------------


@special(
    "sixty-four-at-once",
    "LI16",
    "runs that arrive together all get their own answer and their whole time",
    only=("c",),
    alone=True,
)
def sixty_four_at_once(door, _context):
    requests = [
        {"code": f"import time; time.sleep(0.1); print({n})", "timeout_seconds": 20}
        for n in range(64)
    ]
    problems = []
    outcomes = together(door, requests)
    for n, outcome in enumerate(outcomes):
        problems += expect.check({"is": "OK", "stdout": f"{n}\n"}, outcome)
        problems += expect.check_form(outcome)
    run_ids = {o.result["run_id"] for o in outcomes if o.result}
    if len(run_ids) != 64:
        problems.append(f"{len(run_ids)} different run_ids of 64")
    return problems


@special(
    "memory-side-by-side",
    "LI20",
    "cells that each use most of their memory do not disturb one another",
    only=("c",),
    alone=True,
)
def memory_side_by_side(door, _context):
    request = {
        "code": "x = bytearray(b'a') * (40 << 20); print(len(x))",
        "memory_mb": 64,
        "timeout_seconds": 60,
    }
    problems = []
    for outcome in together(door, [request] * 24):
        problems += expect.check({"is": "OK", "stdout": "41943040\n"}, outcome)
    return problems


@special("mixed-crowd", "CO01", "different programs at the same time stay independent", alone=True)
def mixed_crowd(door, _context):
    crowd = [
        ({"code": "print('a')"}, {"is": "OK", "stdout": "a\n"}),
        ({"code": "echo b; exit 3", "language": "shell"}, {"is": "EXIT(3)", "stdout": "b\n"}),
        ({"code": "while True: pass", "timeout_seconds": 0.5}, {"is": "TIMEOUT(0.5)"}),
        ({"code": "import os; os.abort()"}, {"is": "SIGNAL(SIGABRT)"}),
        (
            {"code": "x = 'a' * (1 << 30)", "memory_mb": 64},
            {"is": "LIMIT(memory, 64)", "stderr": {"match": ""}},
        ),
        (
            {
                "code": "print(",
            },
            {"is": "SYNTAX(SyntaxError)"},
        ),
    ]
    problems = []
    for (request, expectation), outcome in zip(crowd, together(door, [r for r, _ in crowd])):
        problems += expect.check(expectation, outcome)
        problems += expect.check_form(outcome, request.get("language", "python"))
    return problems


# ---- network ------------------------------------------------------------------------


CONNECT = """
import errno, socket
try:
    with socket.create_connection(("{host}", {port}), timeout=5) as connection:
        print("reached", connection.recv(100).decode())
except OSError as error:
    print("blocked", errno.errorcode.get(error.errno, error))
"""


class Greeter:
    """A server on the host's loopback that says hello and counts."""

    def __init__(self, host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family)
        self.port = self.listener.getsockname()[1]
        self.served = 0
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.served += 1
            with connection:
                connection.sendall(b"hello")

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@special(
    "network-blocked",
    "own",
    "a server on the host's loopback answers outside and cannot be reached from inside",
)
def network_blocked(door, _context):
    problems = []
    for host in ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]:
        server = Greeter(host)
        code = CONNECT.format(host=host, port=server.port)
        outside = subprocess.run(
            [PYTHON, "-I", "-c", code], capture_output=True, text=True, check=True
        )
        if outside.stdout != "reached hello\n" or server.served != 1:
            problems.append(f"twin outside: {outside.stdout!r}, served {server.served}")
        run(
            door,
            {"code": code},
            {"is": "OK", "stdout": {"full": r"blocked (ECONNREFUSED|ENETUNREACH|EADDRNOTAVAIL)\n"}},
            problems,
            host,
        )
        if server.served != 1:
            problems.append(f"the server on {host} was reached from the cell")
        server.close()
    return problems


def has_ipv6():
    """Whether the host has an IPv6 loopback."""
    table = pathlib.Path("/proc/net/if_inet6")
    return table.exists() and "00000000000000000000000000000001" in table.read_text()


@special("loopback-ipv6", "NE01", "the cell's loopback speaks IPv6 where the host does")
def loopback_ipv6(door, _context):
    if not has_ipv6():
        raise report.Skip("the host has no IPv6 loopback")
    code = (
        "import socket\n"
        "server = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
        "client = socket.create_connection(server.getsockname()[:2])\n"
        "client.sendall(b'six')\n"
        "print(server.accept()[0].recv(10))\n"
    )
    problems = []
    run(door, {"code": code}, {"is": "OK", "stdout": "b'six'\n"}, problems)
    return problems


@special(
    "port-80-stays-inside",
    "NE03",
    "a listener of the program cannot be seen from outside",
    only=("cli",),
)
def port_80_stays_inside(door, _context):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    code = (
        "import errno, socket, sys, time\n"
        f"for port in (80, {free}):\n"
        "    try:\n"
        "        server = socket.create_server(('0.0.0.0', port))\n"
        "        print('listening', flush=True)\n"
        "    except OSError as error:\n"
        "        print(errno.errorcode[error.errno], flush=True)\n"
        "time.sleep(30)\n"
    )
    problems = []
    with door.start(["run", "-t", "20", "-c", code]) as process:
        answers = [process.stdout.readline().decode().strip() for _ in range(2)]
        if answers[0] not in ("listening", "EACCES", "EPERM") or answers[1] != "listening":
            problems.append(f"inside: {answers}")
        with socket.socket() as client:
            client.settimeout(5)
            status = client.connect_ex(("127.0.0.1", free))
        if status == 0:
            problems.append(f"port {free} of the cell was reached from outside")
        process.terminate()
        process.communicate(timeout=20)
    return problems


WAIT_TO_BE_MET = """
import socket, time
server = socket.socket(socket.AF_UNIX)
server.bind("\\0meeting-point")
server.listen()
other = socket.create_server(("127.0.0.1", 47011))
print(time.monotonic())
time.sleep(4)
server.setblocking(False)
try:
    print("met", server.accept())
except BlockingIOError:
    print("alone")
print(time.monotonic())
"""
TRY_TO_MEET = """
import errno, socket, time
end, answers = time.monotonic() + 1, set()
print(time.monotonic())
while time.monotonic() < end:
    for family, address in (
        (socket.AF_UNIX, "\\0meeting-point"), (socket.AF_INET, ("127.0.0.1", 47011))
    ):
        with socket.socket(family) as client:
            answers.add(errno.errorcode.get(client.connect_ex(address), "met"))
    time.sleep(0.05)
print(*sorted(answers))
print(time.monotonic())
"""


@special(
    "cells-cannot-meet",
    "NE09",
    "two cells meet neither by an abstract name nor on the loopback",
    alone=True,
)
def cells_cannot_meet(door, _context):
    waiting, trying = together(door, [{"code": WAIT_TO_BE_MET}, {"code": TRY_TO_MEET}])
    problems = expect.check(
        {"is": "OK", "stdout": {"match": r"^[\d.]+\nalone\n[\d.]+\n$"}}, waiting
    )
    problems += expect.check(
        {"is": "OK", "stdout": {"match": r"^[\d.]+\nECONNREFUSED\n[\d.]+\n$"}}, trying
    )
    if not problems:
        spans = [
            [float(t) for t in o.result["stdout"].split() if t[0].isdigit()]
            for o in (waiting, trying)
        ]
        overlap = min(s[1] for s in spans) - max(s[0] for s in spans)
        if overlap < 0.3:
            problems.append(f"the two cells lived together for {overlap:.2f} s only")
    return problems


IDENTITY = """
import json, os, pathlib, platform, socket, uuid
def read(name):
    try:
        return pathlib.Path(name).read_text()
    except OSError as error:
        return f"error {error.errno}"
print(json.dumps({
    "hostname": socket.gethostname(), "node": platform.node(),
    "machine-id": read("/etc/machine-id"), "dbus": read("/var/lib/dbus/machine-id"),
    "product": read("/sys/class/dmi/id/product_uuid"),
    "interfaces": sorted(n for _, n in socket.if_nameindex()),
    "links": sorted(l.split(":")[0].strip() for l in read("/proc/net/dev").splitlines()[2:]),
    "routes": read("/proc/net/route").splitlines()[1:],
    "arp": read("/proc/net/arp").splitlines()[1:],
    "mac": "%012x" % uuid.getnode(), "multicast": bool(uuid.getnode() >> 40 & 1),
}))
"""


@special(
    "identity", "NE11", "host name, machine id, network cards and routes of the host do not show"
)
def identity(door, _context):
    problems = []
    outcome = run(door, {"code": IDENTITY}, {"is": "OK", "stdout": {"match": "^{"}}, problems)
    if problems:
        return problems
    seen = json.loads(outcome.result["stdout"])
    host = socket.gethostname()
    if host in (seen["hostname"], seen["node"]) or not seen["hostname"]:
        problems.append(f"host name {seen['hostname']!r}")
    machine_id = pathlib.Path("/etc/machine-id")
    own = machine_id.read_text() if machine_id.exists() else None
    if own and own in (seen["machine-id"], seen["dbus"]):
        problems.append("the machine id is the host's")
    if not seen["product"].startswith("error"):
        problems.append("the hardware's id can be read")
    if seen["interfaces"] != ["lo"] or seen["links"] not in (["lo"], []):
        problems.append(f"network interfaces {seen['interfaces']}, {seen['links']}")
    if seen["routes"] or seen["arp"]:
        problems.append(f"routes {seen['routes']}, neighbours {seen['arp']}")
    if not seen["multicast"] and seen["mac"] != "000000000000":
        problems.append(f"a real hardware address: {seen['mac']}")
    return problems


# ---- the command line ----------------------------------------------------------------


@special(
    "output-as-it-comes",
    "OU11",
    "without --json output passes through while the program runs",
    only=("cli",),
)
def output_as_it_comes(door, _context):
    code = "import time\nprint('first', flush=True)\ntime.sleep(3)\nprint('second')"
    problems = []
    with door.start(["run", "-c", code]) as process:
        first = process.stdout.readline()
        at_first = time.monotonic()
        rest, stderr = process.communicate(timeout=60)
        waited = time.monotonic() - at_first
    if (first, rest, stderr) != (b"first\n", b"second\n", b"") or process.returncode != 0:
        problems.append(f"{first!r}, {rest!r}, {stderr!r}, status {process.returncode}")
    if waited < 0.5:
        problems.append("the first line came together with the second")
    return problems


@special("terminal-is-not-stdin", "PY16", "the program's stdin is not the command's", only=("cli",))
def terminal_is_not_stdin(door, _context):
    reading, writing = os.pipe()
    os.write(writing, b"for the command only\n")
    try:
        outcome = door.execute(
            ["run", "-c", "import sys; print(repr(sys.stdin.read()))"], stdin=reading
        )
    finally:
        os.close(reading)
        os.close(writing)
    if (outcome.exit_status, outcome.stdout) != (0, b"''\n"):
        return [
            f"status {outcome.exit_status}, stdout {outcome.stdout!r}, stderr {outcome.stderr!r}"
        ]
    return []


@special(
    "program-from-stdin", "own", "a dash reads the program from the command's stdin", only=("cli",)
)
def program_from_stdin(door, _context):
    problems = []
    for arguments, code, expected in (
        (["run", "-"], b"import sys\nprint(6 * 7, repr(sys.stdin.read()))\n", b"42 ''\n"),
        (["run", "-l", "shell", "-"], b"echo $((6 * 7)); cat\n", b"42\n"),
    ):
        reading, writing = os.pipe()
        os.write(writing, code)
        os.close(writing)
        outcome = door.execute(arguments, stdin=reading)
        os.close(reading)
        if (outcome.exit_status, outcome.stdout) != (0, expected):
            problems.append(
                f"{arguments}: status {outcome.exit_status}, {outcome.stdout!r}, {outcome.stderr!r}"
            )
    return problems


@special(
    "busy-loop-in-time",
    "LI01",
    "the manual's busy loop ends the command with 124 within 1.3 s",
    only=("cli",),
    alone=True,
    attempts=3,
)
def busy_loop_in_time(door, _context):
    door.execute(["run", "-c", "pass"])  # the first run of all prepares the cell's files
    outcome = door.execute(["run", "-t", "1", "-c", "while True: pass"])
    if outcome.exit_status != 124 or not 1.0 <= outcome.seconds <= 1.3:
        return [f"status {outcome.exit_status} after {outcome.seconds:.2f} s"]
    return []


@special(
    "slow-reader",
    "LI01",
    "a reader that does not read stops the program's output, never its clock",
    only=("cli",),
    alone=True,
)
def slow_reader(door, _context):
    start = time.monotonic()
    with door.start(["run", "-q", "-t", "1", "-l", "shell", "-c", "yes"]) as process:
        threading.Event().wait(2)  # two seconds without reading
        stdout, stderr = process.communicate(timeout=60)
    seconds = time.monotonic() - start
    if process.returncode != 124 or stderr or not stdout.startswith(b"y\ny\n"):
        return [
            f"status {process.returncode} after {seconds:.1f} s, {len(stdout)} bytes, {stderr!r}"
        ]
    return []


@special(
    "reader-gone", "OU05", "the command ends when nobody reads its output any more", only=("cli",)
)
def reader_gone(door, _context):
    process = door.start(["run", "-t", "30", "-l", "shell", "-c", "while :; do echo line; done"])
    start = time.monotonic()
    with process:
        process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            return ["the command went on for 20 s after its reader had gone"]
    return [] if time.monotonic() - start < 10 else ["the command took over 10 s to notice"]


CALLER_LEFTOVERS = """
import os, resource, signal
print(sorted(s.name for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print([signal.getsignal(s) == signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGCHLD)])
print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64)
print(os.getcwd(), os.fstat(0).st_mode != 0, "CALLER_MARK" in os.environ)
"""


def odd_caller():
    """What a careless caller may do before it starts hutch."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT, signal.SIGALRM])
    os.umask(0o777)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.chdir("/")
    os.close(0)
    os.environ["CALLER_MARK"] = "set"


@special(
    "odd-caller",
    "own",
    "signals, umask, descriptors and limits of the caller do not reach the program",
    only=("cli",),
)
def odd_caller_is_not_seen(door, _context):
    with door.start(["run", "-c", CALLER_LEFTOVERS], preexec_fn=odd_caller) as process:
        stdout, stderr = process.communicate(timeout=60)
    expected = b"[]\n[True, True]\n0o22 True\n/home/user True False\n"
    if (process.returncode, stdout, stderr) != (0, expected, b""):
        return [f"status {process.returncode}, {stdout!r}, {stderr!r}"]
    return []


@special(
    "json-beside-program-output",
    "PY31",
    "with --json nothing but the result is on stdout",
    only=("cli",),
)
def json_beside_program_output(door, _context):
    outcome = door.execute(
        ["run", "--json", "-l", "shell", "-c", "echo '{}'; echo '{}' >&2; exit 9"]
    )
    lines = outcome.stdout.splitlines()
    if outcome.exit_status != 9 or len(lines) != 1 or outcome.stderr:
        return [f"status {outcome.exit_status}, {outcome.stdout!r}, {outcome.stderr!r}"]
    result = json.loads(lines[0])
    if (result["stdout"], result["stderr"]) != ("{}\n", "{}\n"):
        return [f"stdout {result['stdout']!r}, stderr {result['stderr']!r}"]
    return []
