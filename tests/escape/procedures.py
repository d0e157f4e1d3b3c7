# SPDX-License-Identifier: Apache-2.0
"""Cases that need more than one program: neighbours, kills from outside, a
terminal, listeners on the host, hosts that lack a layer."""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import termios
import threading
import time

import escape_cases
import host

import account as accounts  # of ../conformance, whose path escape_cases has added
import doors
import expect

REGISTERED = []
FIRST_PROCESS = ["init", "hutch-init"]  # hutch-init, as the kernel names it


def procedure(case_id, row, promise, needs=()):
    """Registers a function of the suite as a case; needs: names of layers."""

    def register(function):
        REGISTERED.append(
            {"id": case_id, "row": row, "promise": promise, "body": function, "needs": needs}
        )
        return function

    return register


# ---- neighbours ---------------------------------------------------------------


@procedure(
    "neighbour-of-a-killer",
    "IS02",
    "a program that kills everything does not reach the cell beside it",
)
def neighbour_of_a_killer(suite):
    code = "import time\nfor n in range(10):\n    print(n, flush=True)\n    time.sleep(0.1)"
    attempts = {
        "kill-all": ["done", "ESRCH", "EPERM"],
        "own-child": ["killed-9", "lives"],
        "first-process": FIRST_PROCESS,
    }
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        neighbour = pool.submit(suite.door.run, {"code": code})
        problems = []
        for _ in range(3):
            problems += suite.run_program("kill_everything.py", attempts, door=suite.door)[1]
        found = expect.check(
            {"is": "OK", "stdout": "".join(f"{n}\n" for n in range(10))}, neighbour.result()
        )
    return problems + [f"neighbour: {problem}" for problem in found]


LOOK_AROUND = """
import os, time
end = time.monotonic() + 1
while time.monotonic() < end:
    time.sleep(0.05)
for name in ("cgroup", "mountinfo", "mounts"):
    print(open(f"/proc/self/{name}").read())
print(sorted(n for n in os.listdir("/proc") if n.isdigit()))
print(open("/proc/net/unix").read())
"""


@procedure(
    "cells-do-not-see-each-other", "IS17", "no table in a cell has a word about another cell"
)
def cells_do_not_see_each_other(suite):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(suite.door.run, [{"code": LOOK_AROUND}] * 3))
    problems = []
    for outcome in outcomes:
        problems += expect.check({"is": "OK", "stdout": {"match": "/proc"}}, outcome)
    if problems:
        return problems
    for one in outcomes:
        for other in outcomes:
            if one is not other and other.result["run_id"] in one.result["stdout"]:
                problems.append("a cell sees the name of another one")
        pids = re.search(r"^\[(.*)\]$", one.result["stdout"], re.MULTILINE)[1]
        if len(pids.split(",")) > 3:
            problems.append(f"a cell sees the processes {pids}")
        if any(secret in one.result["stdout"].encode() for secret in suite.secrets):
            problems.append("a cell sees a secret of the host")
    return problems


@procedure("nothing-stays", "IS05", "the next cell finds nothing that an earlier one wrote")
def nothing_stays(suite):
    request, token = escape_cases.compose("write_system.py")
    outcome = suite.cli.run(request)
    if outcome.result is None:
        return [f"no result but an error: {outcome.error}"]
    code = (
        "import os, socket\n"
        f"for folder in ('/tmp', '/dev/shm', os.getcwd()):\n"
        f"    open(folder + '/file-{token}', 'w').write('x')\n"
        "import ctypes\n"
        "_ = ctypes.CDLL(None).shmget(1234, 4096, 0o1666)\n"
    )
    problems = expect.check({"is": "OK"}, suite.cli.run({"code": code}))
    safe = {
        "found": ["0"],
        "home": ["0"],
        "tmp": ["0"],
        "shm": ["0"],
        "queues": ["0"],
        "segments": ["0"],
    }
    for door in (suite.cli, suite.door):
        problems += suite.run_program(
            "next_cell.sh", safe, {"env": {"VERDICT_SEARCH": token}}, door=door
        )[1]
    return problems


# ---- processes that do not want to end -------------------------------------------


DAEMONS = {"started": ["6"], "stopped": ["done"]}


@procedure(
    "daemons-die", "own", "deaf, hidden and stopped processes are gone when the result is there"
)
def daemons_die(suite):
    problems = []
    for door in (suite.cli, suite.door):
        before = suite.host.snapshot()["processes"]
        outcome, found = suite.run_program("daemons.py", DAEMONS, door=door)
        problems += found
        if not host.until(lambda: suite.host.snapshot()["processes"] == before, 5):
            problems.append(
                f"{door.name}: processes left {suite.host.snapshot()['processes'] - before}"
            )
        if outcome.result and outcome.result["duration_ms"] > 15000:
            problems.append(f"the run took {outcome.result['duration_ms']:.0f} ms")
    return problems


@procedure("fork-bomb", "LI07", "a fork bomb returns in time and leaves no process")
def fork_bomb(suite):
    problems = []
    for code in (
        ":(){ :|:& };:",
        "bomb() { bomb | bomb & bomb; }; bomb",
        ":(){ :|:& };:; wait; sleep 9",
    ):
        outcome = suite.cli.execute(["run", "-q", "-l", "shell", "-c", code, "-t", "2"])
        if outcome.seconds > 20:
            problems.append(f"{code}: took {outcome.seconds:.1f} s")
        if not host.until(
            lambda: not {p for p in suite.host.processes() if p.in_cell}, 5
        ):
            problems.append(f"{code}: processes left {suite.host.processes()}")
    return problems


def cell_processes(suite, names):
    """Live processes of this suite with one of the names, newest first."""
    return sorted((p for p in suite.host.processes() if p.name in names), key=lambda p: -p.pid)


READY = """
import os, signal, sys
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        signal.pause()
print("ready", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def running(suite, seconds=60):
    """A command whose program has said that it is ready."""
    with suite.cli.start(["run", "-t", str(seconds), "-c", READY]) as process:
        try:
            if process.stdout.readline() != b"ready\n":
                raise doors.DoorFailure(
                    f"the program did not get ready: {process.communicate(timeout=20)}"
                )
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def helpers_of(suite, pid):
    """The supervisor of a command and what runs in its cell, by their parents."""
    every = suite.host.processes()
    supervisors = [p for p in every if p.parent == pid and p.name.startswith("hutch-superv")]
    inside = [p for p in every if supervisors and p.parent == supervisors[0].pid]
    return supervisors, inside


def gone(suite, before, seconds=20):
    """What is still there of a run after everything of it should be gone."""

    def clean():
        now = suite.host.snapshot()
        return all(
            now[kind] <= before[kind] for kind in ("processes", "cgroups", "mounts", "leftovers")
        )

    if host.until(clean, seconds):
        return []
    now = suite.host.snapshot()
    return [
        f"left: {kind}: {sorted(map(str, now[kind] - before[kind]))}"
        for kind in ("processes", "cgroups", "mounts", "leftovers")
        if now[kind] - before[kind]
    ]


def processes_gone(suite, before, seconds=20):
    """The processes that are still there."""
    if host.until(lambda: suite.host.snapshot()["processes"] <= before["processes"], seconds):
        return []
    return [f"left: processes {suite.host.snapshot()['processes'] - before['processes']}"]


@procedure("engine-killed", "own", "after kill -9 of the engine nothing of its cells is left")
def engine_killed(suite):
    before = suite.host.snapshot()
    with running(suite) as process:
        process.kill()
        process.communicate(timeout=20)
        return gone(suite, before)


@procedure(
    "engine-of-many-killed", "own", "after kill -9 of an engine with several runs nothing is left"
)
def engine_of_many_killed(suite):
    before = suite.host.snapshot()
    door = suite.open_door(8)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(door.run, {"code": READY, "timeout_seconds": 60}) for _ in range(6)]
        started = host.until(lambda: len(cell_processes(suite, {"python3"})) >= 18, 60)
        door.process.kill()
        door.process.wait()
        unanswered = sum(isinstance(run.exception(), doors.DoorFailure) for run in runs)
    problems = gone(suite, before)
    if not started or unanswered != 6:
        problems.append(f"all six had started: {started}; {unanswered} without an answer")
    return problems


@procedure(
    "engine-terminated", "own", "a command that gets SIGTERM or SIGINT ends soon and leaves nothing"
)
def engine_terminated(suite):
    problems = []
    for number in (signal.SIGTERM, signal.SIGINT):
        before = suite.host.snapshot()
        with running(suite) as process:
            start = time.monotonic()
            process.send_signal(number)
            process.communicate(timeout=30)
            if time.monotonic() - start > 10:
                problems.append(f"{number.name}: took {time.monotonic() - start:.1f} s")
            problems += [f"{number.name}: {problem}" for problem in gone(suite, before)]
    return problems


@procedure("engine-stopped", "LI01", "a stopped engine does not stop the clock of its cell")
def engine_stopped(suite):
    before = suite.host.snapshot()
    with running(suite, seconds=2.5) as process:
        supervisors, _ = helpers_of(suite, process.pid)
        process.send_signal(signal.SIGSTOP)
        mine = {(process.pid, p.name) for p in suite.host.processes() if p.pid == process.pid}
        mine |= {(p.pid, p.name) for p in supervisors}
        ended = host.until(
            lambda: suite.host.snapshot()["processes"] - before["processes"] <= mine, 15
        )
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
    problems = [] if ended else ["the cell outlived its time limit while the engine was stopped"]
    if process.returncode != 124 or not supervisors:
        problems.append(f"exit status {process.returncode}, supervisors {supervisors}")
    return problems + gone(suite, before)


@procedure(
    "supervisor-killed",
    "CO04",
    "after kill -9 of the supervisor the outcome is unknown and nothing is left",
)
def supervisor_killed(suite):
    before = suite.host.snapshot()
    request = {"code": READY, "timeout_seconds": 60}
    with running(suite) as process:
        supervisors, _ = helpers_of(suite, process.pid)
        if not supervisors:
            return ["no supervisor found"]
        os.kill(supervisors[0].pid, signal.SIGKILL)
        _, stderr = process.communicate(timeout=30)
        problems = processes_gone(suite, before)
        if process.returncode != 125 or not re.fullmatch(rb"[^\n]+\n", stderr):
            problems.append(f"exit status {process.returncode}, stderr {stderr!r}")
    problems += killed_supervisor_error(suite, request)
    problems += processes_gone(suite, before)
    # What a dead supervisor left behind is swept at the next start, at the latest.
    problems += expect.check({"is": "OK", "stdout": "1\n"}, suite.cli.run({"code": "print(1)"}))
    return problems + gone(suite, before)


def killed_supervisor_error(suite, request):
    """The error of an engine whose supervisor is killed in mid-run."""
    already = {p.pid for p in suite.host.processes()}
    door = suite.open_door(1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(door.run, request)
        ready = host.until(
            lambda: (
                len([p for p in cell_processes(suite, {"python3"}) if p.pid not in already]) >= 3
            ),
            20,
        )
        supervisors, _ = helpers_of(suite, door.pid)
        for supervisor in supervisors:
            os.kill(supervisor.pid, signal.SIGKILL)
        outcome = run.result()
    problems = [] if ready and supervisors else [f"ready: {ready}, supervisors {supervisors}"]
    problems += expect.check(
        {"failure.code": "helper_failed", "failure.retry_safe": False}, outcome
    )
    return problems + door.close()


@procedure(
    "engine-and-supervisor-killed",
    "own",
    "after kill -9 of both at once the next start sweeps what is left",
)
def engine_and_supervisor_killed(suite):
    before = suite.host.snapshot()
    with running(suite) as process:
        supervisors, _ = helpers_of(suite, process.pid)
        process.send_signal(signal.SIGSTOP)
        for supervisor in supervisors:
            os.kill(supervisor.pid, signal.SIGKILL)
        process.kill()
        process.communicate(timeout=20)
        problems = processes_gone(suite, before) if supervisors else ["no supervisor found"]
    problems += expect.check({"is": "OK", "stdout": "1\n"}, suite.cli.run({"code": "print(1)"}))
    return problems + gone(suite, before)


@procedure(
    "interpreter-killed", "CO04", "an interpreter killed from outside is a SIGKILL, not a limit"
)
def interpreter_killed(suite):
    before = suite.host.snapshot()
    process = suite.cli.start(["run", "--json", "-t", "60", "-c", READY])
    with process:
        host.until(lambda: len(cell_processes(suite, {"python3"})) >= 3, 60)
        _, inside = helpers_of(suite, process.pid)
        interpreters = [p for p in inside if p.name == "python3"]
        for interpreter in interpreters:
            os.kill(interpreter.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=60)
    outcome = doors.Outcome(
        exit_status=process.returncode, stdout=stdout, stderr=stderr, seconds=60
    )
    suite.cli.parse(outcome)
    problems = [] if len(interpreters) == 1 else [f"interpreters found: {interpreters}"]
    problems += expect.check({"is": "SIGNAL(SIGKILL)", "stdout": "ready\n"}, outcome)
    problems += expect.check_form(outcome)
    return problems + gone(suite, before)


@procedure(
    "first-process-killed",
    "CO04",
    "a cell whose first process is killed from outside has no invented success",
)
def first_process_killed(suite):
    before = suite.host.snapshot()
    process = suite.cli.start(["run", "--json", "-t", "60", "-c", READY])
    with process:
        host.until(lambda: len(cell_processes(suite, {"python3"})) >= 3, 60)
        _, inside = helpers_of(suite, process.pid)
        first = [p for p in inside if p.name in FIRST_PROCESS]
        for init in first:
            os.kill(init.pid, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=60)
    outcome = doors.Outcome(
        exit_status=process.returncode, stdout=stdout, stderr=stderr, seconds=60
    )
    suite.cli.parse(outcome)
    problems = [] if len(first) == 1 else [f"first processes found: {first}"]
    if outcome.error is not None:
        problems += expect.check(
            {"failure.code": "helper_failed", "failure.retry_safe": False}, outcome
        )
    else:
        problems += expect.check({"is": "SIGNAL(SIGKILL)", "stdout": "ready\n"}, outcome)
    return problems + gone(suite, before)


# ---- the channel --------------------------------------------------------------------


# EPERM: a kernel that lets the engine refuse descriptors.
SENT = ["sent", "EPIPE", "ECONNRESET", "timeout", "EBADF", "EPERM"]
WIRE_MODES = {
    **{
        mode: SENT
        for mode in (
            "value",
            "value-not-text",
            "value-empty",
            "value-largest",
            "value-too-long",
            "value-of-another-exec",
            "error",
            "error-compile",
            "error-disk",
            "error-memory",
            "error-bad-lengths",
            "error-short",
            "error-not-text",
            "error-too-long",
            "huge-length",
            "half-header",
            "half-frame",
            "unknown-kind",
            "garbage",
            "flood",
            "flood-of-empty",
            "descriptors",
        )
    },
    "read": ["EAGAIN", "nothing", "EBADF", "ENOTCONN"],
    "close": ["closed", "EBADF"],
    "shut-down": ["closed", "EBADF"],
}


def engine_state(suite):
    """Descriptors and peak memory of the engine, as far as a program may not change them."""
    pid = suite.door.pid
    peak = int(re.search(r"VmHWM:\s+(\d+)", host.read(f"/proc/{pid}/status"))[1]) >> 10
    return len(os.listdir(f"/proc/{pid}/fd")), peak


def wire_case(mode):
    """A case that sends one kind of lie over the channel."""

    def run(suite):
        problems = []
        descriptors, peak = engine_state(suite)
        for status in (0, 7):
            expectation = {
                "is": "OK" if status == 0 else "EXIT(7)",
                "value": {"one_of": [None, {"length": {"between": [0, 1 << 20]}}]},
            }
            if status:
                expectation["error"] = {"not": "anything"}
                expectation["error_type"] = {
                    "one_of": ["runtime_error", "resource_limit", "import_error", "syntax_error"]
                }
            request = {"env": {"MODE": mode, "STATUS": str(status)}, "timeout_seconds": 20}
            outcome, found = suite.run_program(
                "wire.py", {mode: WIRE_MODES[mode]}, request, expectation, suite.door
            )
            problems += [f"status {status}: {problem}" for problem in found]
            error = outcome.result and outcome.result["error"]
            if error and len(error["message"]) > 64 << 10:
                problems.append(f"an error of {len(error['message'])} characters")
        if not host.until(lambda: engine_state(suite)[0] <= descriptors, 15):
            problems.append(
                f"the engine had {descriptors} descriptors, now {engine_state(suite)[0]}"
            )
        grown = engine_state(suite)[1] - peak
        if grown > (512 if suite.options.sanitized else 64):
            problems.append(f"the engine grew by {grown} MiB")
        problems += expect.check(
            {"is": "OK", "value": "'true'"}, suite.door.run({"code": "'true'"})
        )
        return problems

    return run


for _mode in WIRE_MODES:
    REGISTERED.append(
        {
            "id": f"wire-{_mode}",
            "row": "own",
            "body": wire_case(_mode),
            "promise": f"a lie on the channel changes no fact of the run ({_mode})",
        }
    )


@procedure(
    "channel-closed-then-error", "own", "a program that closed the channel still fails as itself"
)
def channel_closed_then_error(suite):
    code = "import os\nos.closerange(3, 5000)\nprint('closed')\n1/0"
    return expect.check(
        {
            "exit_code": 1,
            "error_type": "runtime_error",
            "timed_out": False,
            "stdout": "closed\n",
            "stderr": {"contains": "ZeroDivisionError"},
        },
        suite.cli.run({"code": code}),
    )


@procedure(
    "descriptors-of-the-caller",
    "IS13",
    "what the caller of hutch has open does not reach the program",
)
def descriptors_of_the_caller(suite):
    attempts = next(
        case.body["attempts"] for case in escape_cases.load_file() if case.id == "descriptors"
    )
    request, token = escape_cases.compose("descriptors.py")
    secret = os.open(suite.files[0], os.O_RDWR)
    folder = os.open("/root", os.O_RDONLY)
    numbers = [990, 999, 1000, 1001, 1023]
    for number in numbers:
        os.dup2(secret if number % 2 else folder, number)
    try:
        process = suite.cli.start(
            ["run", "--json", "-e", f"VERDICT_TOKEN={token}", "-c", request["code"]],
            pass_fds=[secret, folder, *numbers],
        )
        with process:
            stdout, stderr = process.communicate(timeout=60)
    finally:
        for fd in (secret, folder, *numbers):
            os.close(fd)
    outcome = suite.cli.parse(
        doors.Outcome(exit_status=process.returncode, stdout=stdout, stderr=stderr, seconds=60)
    )
    if outcome.result is None:
        return [f"no result but an error: {outcome.error}"]
    verdicts = escape_cases.parse_verdicts(outcome.result["stdout"], token)
    problems = escape_cases.check_verdicts(verdicts, attempts)
    return problems + suite.find_secrets(outcome, verdicts)


# ---- the host's own sockets and terminal ------------------------------------------------


@contextlib.contextmanager
def listeners(suite):
    """Servers on the host that answer hello; gives their addresses as an environment."""
    path = f"/tmp/escape-{suite.host.token}.socket"
    abstract = f"listener-{suite.host.token}"
    tcp = socket.create_server(("127.0.0.1", 0))
    servers = [tcp]
    for name in (path, "\0" + abstract):
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()
        servers.append(server)
    os.chmod(path, 0o777)
    counts = [0]

    def serve(server):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                counts[0] += 1
                with connection:
                    connection.recv(10)
                    connection.send(b"hello")

    threads = [threading.Thread(target=serve, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield (
            {"HOST_PORT": str(tcp.getsockname()[1]), "HOST_ABSTRACT": abstract, "HOST_PATH": path},
            counts,
        )
    finally:
        for server in servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for thread in threads:
            thread.join()
        os.unlink(path)


@procedure(
    "host-listeners",
    "own",
    "listeners of the host answer outside and cannot be reached from a cell",
)
def host_listeners(suite):
    refused = ["ECONNREFUSED", "ENETUNREACH", "EPERM", "EACCES"]
    attempts = {
        "tcp": refused,
        "tcp-any": refused,
        "abstract": refused,
        "path": ["ENOENT", "ECONNREFUSED"],
        "abstract-names": ["0", "FileNotFoundError"],
    }
    with listeners(suite) as (environment, counts):
        request, token = escape_cases.compose("connect_host.py", {"env": environment})
        twin = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", request["code"]],
            user=65534,
            capture_output=True,
            text=True,
            env=request["env"],
            timeout=60,
            cwd="/",
            check=False,
        )
        outside = escape_cases.parse_verdicts(twin.stdout, token).reported
        expected = [("tcp", "done"), ("tcp-any", "done"), ("abstract", "done"), ("path", "done")]
        problems = (
            []
            if outside[:4] == expected and counts[0] == 4
            else [f"twin outside: {outside}, {counts[0]} connections {twin.stderr}"]
        )
        secrets, suite.secrets = suite.secrets, []  # the program is told the addresses
        try:
            problems += suite.run_program("connect_host.py", attempts, {"env": environment})[1]
        finally:
            suite.secrets = secrets
        if counts[0] != 4:
            problems.append(f"{counts[0] - 4} connections came from the cell")
    return problems


@procedure("terminal", "IS20", "the terminal of the command is out of the program's reach")
def terminal(suite):
    attempts = {
        "open-tty": ["ENXIO", "ENOENT", "EACCES", "EPERM", "EIO"],
        "open-console": ["ENXIO", "ENOENT", "EACCES", "EPERM", "EIO"],
        "foreground": ["ENOTTY", "EPERM", "ENOSYS"],
        "terminals": ["0"],
    }
    for fd in (0, 1, 2):
        attempts[f"terminal-{fd}"] = ["False"]
        for name in ("push-input", "take-terminal", "paste"):
            attempts[f"{name}-{fd}"] = ["ENOTTY", "EPERM", "ENOSYS", "EACCES", "EINVAL"]
    request, token = escape_cases.compose("terminal.py")
    main, child = pty.openpty()
    settings = termios.tcgetattr(child)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(child, termios.TCSANOW, settings)

    def take_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [*suite.cli.command, "run", "-e", f"VERDICT_TOKEN={token}", "-c", request["code"]]
    with subprocess.Popen(
        command,
        stdin=child,
        stdout=child,
        stderr=child,
        env=suite.cli.environment,
        preexec_fn=take_terminal,
    ) as process:
        os.close(child)
        output = read_terminal(main)
        status = process.wait(timeout=60)
    os.close(main)
    verdicts = escape_cases.parse_verdicts(output.decode(errors="replace"), token)
    problems = escape_cases.check_verdicts(verdicts, attempts)
    return problems + ([] if status == 0 else [f"exit status {status}"])


def read_terminal(fd):
    """All that comes from a terminal until its other side is closed."""
    data = b""
    with contextlib.suppress(OSError):
        while True:
            piece = os.read(fd, 65536)
            if not piece:
                break
            data += piece
    return data


# ---- layers -----------------------------------------------------------------------------


def doctor(suite, prefix=()):
    """The report of hutch doctor: layer -> its entry."""
    run = subprocess.run(
        [*prefix, *suite.cli.command, "doctor", "--json"],
        capture_output=True,
        text=True,
        env=suite.cli.environment,
        timeout=120,
        check=False,
    )
    return {layer["name"]: layer for layer in json.loads(run.stdout)["layers"]}


@procedure(
    "layers-as-doctor-says",
    "IS14",
    "the layers of a result are those that the doctor finds in force",
)
def layers_as_doctor_says(suite):
    entries = doctor(suite)
    in_force = {name for name, entry in entries.items() if entry["in_force"]}
    problems = [] if list(entries) == expect.LAYERS else [f"the doctor knows {list(entries)}"]
    for door in (suite.cli, suite.door):
        outcome = door.run({"code": "print(1)"})
        problems += expect.check({"is": "OK", "stdout": "1\n"}, outcome)
        if outcome.result and set(outcome.result["layers"]) != in_force:
            problems.append(
                f"{door.name}: result and doctor differ in "
                f"{set(outcome.result['layers']) ^ in_force}"
            )
    for name in sorted(in_force):
        problems += expect.check({"is": "OK"}, suite.door.run({"code": "pass", "require": [name]}))
    for name, entry in entries.items():
        if not entry["in_force"] and not (entry["reason"] and entry["mend"]):
            problems.append(f"the doctor does not say why {name} is missing, or what to do")
    return problems


def without(suite, options):
    """A front door whose host lacks something."""
    prefix = [str(suite.options.without_layer), *options, "--"]
    return suite.open_command(prefix), prefix


def check_missing(suite, options, layers, may_refuse):
    """Without a layer a run says so, and one that requires it does not start."""
    ordinary = set(suite.cli.run({"code": "print(1)"}).result["layers"])
    if not set(layers) <= ordinary:
        return [f"{set(layers) - ordinary} is missing on this host anyway"]
    door, prefix = without(suite, options)
    code = "import os\nos.write(1, b'started')"
    problems = []
    outcome = door.run({"code": code})
    if outcome.result is not None:
        if set(outcome.result["layers"]) & set(layers):
            problems.append(f"the result claims {set(outcome.result['layers']) & set(layers)}")
        problems += expect.check({"is": "OK", "stdout": "started", "value": "7"}, outcome)
    elif may_refuse:
        problems += expect.check(
            {
                "failure.code": {"match": "isolation_unavailable|layer_missing"},
                "failure.retry_safe": True,
            },
            outcome,
        )
    else:
        problems.append(f"no run at all: {outcome.error}")
    for layer in layers:
        refused = door.run({"code": code, "require": [layer]})
        problems += expect.check(
            {
                "failure.code": {"match": "isolation_unavailable|layer_missing"},
                "failure.retry_safe": True,
            },
            refused,
        )
        if b"started" in refused.stdout:
            problems.append(f"the program ran although {layer} is missing")
    entries = doctor(suite, prefix)
    for layer in layers:
        entry = entries.get(layer, {"in_force": "no entry"})
        if entry["in_force"] is not False or not entry["reason"] or not entry["mend"]:
            problems.append(f"doctor: {layer}: {entry}")
    return problems


@procedure(
    "landlock-missing",
    "IS14",
    "a kernel without Landlock is reported, and refused where it is required",
)
def landlock_missing(suite):
    calls = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    return check_missing(suite, ["--answer", "ENOSYS", *calls], ["landlock"], may_refuse=False)


@procedure(
    "landlock-forbidden",
    "IS14",
    "Landlock that is switched off is reported, and refused where it is required",
)
def landlock_forbidden(suite):
    calls = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    return check_missing(suite, ["--answer", "EOPNOTSUPP", *calls], ["landlock"], may_refuse=False)


@procedure(
    "seccomp-missing",
    "IS14",
    "a kernel without seccomp is reported, and refused where it is required",
)
def seccomp_missing(suite):
    return check_missing(
        suite, ["--answer", "EINVAL", "seccomp", "prctl=22"], ["seccomp"], may_refuse=True
    )


@procedure(
    "network-namespace-missing",
    "IS14",
    "a host without network namespaces never runs a program in silence",
)
def network_namespace_missing(suite):
    return check_missing(
        suite,
        [
            "--answer",
            "EPERM",
            "clone&0x40000000",
            "unshare&0x40000000",
            "--answer",
            "ENOSYS",
            "clone3",
        ],
        ["net_ns"],
        may_refuse=True,
    )


@procedure(
    "cgroups-hidden",
    "IS15",
    "a host without cgroups has the weaker fallback, named, and its limits hold",
    needs=("cgroup_memory", "cgroup_pids", "cgroup_cpu"),
)
def cgroups_hidden(suite):
    layers = ["cgroup_memory", "cgroup_pids", "cgroup_cpu"]
    problems = check_missing(suite, ["--hide-cgroups"], layers, may_refuse=False)
    door, _ = without(suite, ["--hide-cgroups"])
    problems += expect.check(
        {"is": "LIMIT(memory, 64)", "stderr": {"match": ""}},
        door.run({"code": "x = 'a' * (1 << 30)", "memory_mb": 64}),
    )
    storm = door.run(
        {"code": ":(){ :|:& };:; wait; sleep 9", "language": "shell", "timeout_seconds": 2}
    )
    if storm.result is None or storm.seconds > 20:
        problems.append(f"fork storm: {storm.error}, {storm.seconds:.1f} s")
    problems += expect.check(
        {"is": "TIMEOUT(0.5)"}, door.run({"code": "while True: pass", "timeout_seconds": 0.5})
    )
    return problems


@procedure(
    "inside-a-chroot",
    "IS16",
    "inside a chroot the doctor names it, and no run pretends to be isolated",
)
def inside_a_chroot(suite):
    door, prefix = without(suite, ["--in-chroot"])
    outcome = door.run({"code": "print(1)"})
    problems = []
    if outcome.result is not None:
        if "user_ns" in outcome.result["layers"]:
            problems.append("the result claims a user namespace inside a chroot")
    else:
        problems += expect.check(
            {
                "failure.code": {"match": "isolation_unavailable|layer_missing"},
                "failure.retry_safe": True,
            },
            outcome,
        )
    entry = doctor(suite, prefix)["user_ns"]
    if entry["in_force"] or "chroot" not in entry["reason"] or not entry["mend"]:
        problems.append(f"doctor: {entry}")
    return problems


# ---- containers ---------------------------------------------------------------------------


def check_blocked(door, reason, mend):
    """No run is started, and the doctor names the blocker and what to do."""
    outcome = door.run({"code": "import os\nos.write(1, b'started')"})
    expectation = {"failure.code": "isolation_unavailable", "failure.retry_safe": True}
    problems = expect.check(expectation, outcome)
    told = json.loads(door.execute(["doctor", "--json"]).stdout)
    if told["can_run"] or not expect.matches({"contains": reason}, told["layers"][0]["reason"]):
        problems.append(f"doctor: can run: {told['can_run']}, {told['layers'][0]}")
    for text in (told["mend"], told["layers"][0]["mend"]):
        if not expect.matches({"contains": mend, "absent": "\n"}, text):
            problems.append(f"doctor: to mend it: {text!r}")
    return problems


# What the default profile of container engines keeps from those without CAP_SYS_ADMIN.
CONTAINER_FILTER = ["--answer", "EPERM", "unshare", "setns", "mount", "umount2", "pivot_root"]
CONTAINER_FILTER += [f"clone&{flag:#x}" for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000)]
CONTAINER_FILTER += ["--answer", "ENOSYS", "clone3"]


@procedure(
    "inside-a-default-container",
    "IS16",
    "where a container's filter refuses namespaces the doctor names it, and nothing runs",
)
def inside_a_default_container(suite):
    door, _ = without(suite, CONTAINER_FILTER)
    return check_blocked(door, "seccomp filter", "seccomp=unconfined")


@procedure(
    "root-without-capabilities",
    "IS16",
    "root without capabilities makes no cell that runs as the host's root",
    needs=("distinct_uid",),
)
def root_without_capabilities(suite):
    drop = ["/usr/bin/setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--"]
    return check_blocked(
        suite.open_command(drop), "no capabilities", "run hutch as an ordinary user"
    )


@procedure(
    "restricted-by-apparmor",
    "IS16",
    "where AppArmor takes a user namespace's rights away the doctor names the switch",
)
def restricted_by_apparmor(suite):
    switch = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    script = f"mount -t tmpfs tmpfs /proc/sys/kernel && echo 1 >{switch}" + ' && exec "$@"'
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    prefix += [str(suite.options.without_layer), "--answer", "EPERM", "mount", "--"]
    with doors.open_folder() as folder, doors.open_folder() as programs:
        account = accounts.OrdinaryUser("nobody", programs)
        cache = accounts.cache_for(account, None, folder)
        hutch = account.install(suite.options.hutch)
        door = doors.CliDoor(hutch, None, cache, prefix, account=account)
        return check_blocked(door, "AppArmor", "sysctl -w kernel.apparmor_restrict")


# ---- many -----------------------------------------------------------------------------------


def growth(suite):
    """What may not grow with the number of cells."""
    family = {p.pid for p in suite.host.processes()}
    supervisors, _ = helpers_of(suite, suite.door.pid)
    pids = [suite.door.pid, *(p.pid for p in supervisors)]
    namespaces = {
        os.readlink(f"/proc/{pid}/ns/net")
        for pid in family
        if os.path.exists(f"/proc/{pid}/ns/net")
    }
    return {
        "descriptors": [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids],
        "threads": [len(os.listdir(f"/proc/{pid}/task")) for pid in pids],
        "mounts": [len(host.read(f"/proc/{pid}/mountinfo").splitlines()) for pid in pids],
        "processes": len(family),
        "network namespaces": len(namespaces),
        "cgroups": len(suite.host.snapshot()["cgroups"]),
    }


def resident_mb(pid):
    """Megabytes of memory that a process has now."""
    return int(re.search(r"VmRSS:\s+(\d+)", host.read(f"/proc/{pid}/status"))[1]) >> 10


@procedure(
    "many-cells", "CO06", "three hundred cells leave nothing behind in engine, supervisor or kernel"
)
def many_cells(suite):
    problems = []
    request = {"code": "echo x", "language": "shell"}
    for _ in range(20):
        suite.door.run(request)
    suite.host.settle()
    before, resident = growth(suite), resident_mb(suite.door.pid)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(suite.door.run, [request] * 300))
    wrong = [o for o in outcomes if o.result is None or o.result["stdout"] != "x\n"]
    if wrong:
        problems.append(f"{len(wrong)} of 300 runs failed: {wrong[0].error or wrong[0].result}")
    if not host.until(lambda: growth(suite) == before, 15):
        problems.append(f"before {before}, after {growth(suite)}")
    grown = resident_mb(suite.door.pid) - resident
    if grown > (64 if suite.options.sanitized else 8):
        problems.append(f"the engine grew by {grown} MiB")
    return problems


@procedure(
    "after-exhaustion", "own", "after programs that used up everything the next ones run as ever"
)
def after_exhaustion(suite):
    problems = []
    for code in (
        "while True:\n    __import__('os').fork()",
        "x = []\nwhile True:\n    x.append(bytearray(1 << 20))",
        "f = open('f', 'wb')\nwhile True:\n    f.write(b'x' * (1 << 20))",
    ):
        outcome = suite.door.run({"code": code, "timeout_seconds": 2, "memory_mb": 64})
        if outcome.result is None or outcome.result["error_type"] not in (
            "resource_limit",
            "timeout",
        ):
            problems.append(f"{code!r}: {outcome.error or outcome.result['error_type']}")
        problems += expect.check(
            {"is": "OK", "stdout": "fine\n"}, suite.door.run({"code": "print('fine')"})
        )
    return problems
