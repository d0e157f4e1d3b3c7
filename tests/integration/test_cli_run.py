# SPDX-License-Identifier: Apache-2.0
"""
`hutch run` as a process among others: signals, readers that stop or go away,
descriptors in unusual states, and what it leaves on stderr. And what
`hutch doctor` prints, as text and as JSON.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

HUTCH = os.environ.get("HUTCH") or os.path.join(os.environ["HUTCH_BUILD"], "hutch")
PATIENCE = 180  # the first run of all makes the tree of files
FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536)"
# Prints a line and then waits for ever.
READY = "import time; print('ready', flush=True); time.sleep(200)"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """One cache for all tests, the caller's if there is one."""
    if "HUTCH_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("HUTCH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def hutch(*arguments, **keywords):
    keywords.setdefault("stdin", subprocess.DEVNULL)
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([HUTCH, *arguments], stderr=subprocess.PIPE, timeout=PATIENCE,
                          check=False, **keywords)


def start(*arguments, **keywords):
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen([HUTCH, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            **keywords)


def end(process):
    """The exit status, and what stands on stderr."""
    status = process.wait(timeout=PATIENCE)
    message = process.stderr.read()
    process.stderr.close()
    if process.stdout:
        process.stdout.close()
    return status, message


def children(pid):
    """The processes below a process: of hutch, the supervisor and its cells."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += [int(child), *children(child)]
    return found


def fd_ready(fd, deadline):
    """Whether a descriptor gets readable in time; of a process: whether it ends."""
    return select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]


# ---- signals ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_its_cell(number):
    process = start("run", "-c", READY)
    assert process.stdout.readline() == b"ready\n"
    below = children(process.pid)
    assert len(below) >= 2
    watches = [os.pidfd_open(pid) for pid in below]
    process.send_signal(number)
    assert end(process) == (128 + number, b"")
    deadline = time.monotonic() + PATIENCE
    for watch in watches:
        assert fd_ready(watch, deadline), "a process of the run is left"
        os.close(watch)


def test_a_signal_ends_a_run_with_json():
    process = start("run", "--json", "-c", "import time; time.sleep(200)")
    while len(children(process.pid)) < 2:
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b""
    assert end(process) == (143, b"")


def test_a_signal_that_was_ignored_at_the_start_stays_ignored():
    process = start("run", "-t", "60", "-c",
                    "import sys; print('ready', flush=True); print(sys.stdin.read())",
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    assert process.stdout.read() == b"ready\n\n"
    assert end(process) == (0, b"")


def test_a_signal_ends_a_run_whose_reader_is_stalled():
    reader, writer = os.pipe()
    process = start("run", "-c", FLOOD, stdout=writer)
    os.close(writer)
    capacity = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    held = 0
    while held < capacity:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
        held = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0]
    process.send_signal(signal.SIGINT)
    assert end(process) == (130, b"")
    os.close(reader)


# ---- readers ----


def test_a_reader_that_goes_away_ends_the_run_quietly():
    process = start("run", "-c", FLOOD)
    assert process.stdout.read(100) == b"x" * 100
    process.stdout.close()
    process.stdout = None
    assert end(process) == (141, b"")


def test_a_reader_that_went_away_before_the_result_as_json():
    reader, writer = os.pipe()
    os.close(reader)
    process = start("run", "--json", "-c", "print(1)", stdout=writer)
    os.close(writer)
    assert end(process) == (141, b"")


def test_a_full_disk_is_an_error_of_hutch():
    with open("/dev/full", "wb") as full:
        for arguments in (["-c", "print(1)"], ["--json", "-c", "print(1)"]):
            answer = hutch("run", *arguments, stdout=full)
            assert answer.returncode == 125
            assert answer.stderr == b"hutch: write the output: No space left on device\n"


def test_a_non_blocking_stdout_loses_nothing():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = start("run", "-l", "shell", "-c", "seq 1 300000", stdout=writer)
    os.close(writer)
    with open(reader, encoding="ascii") as file:
        assert file.read() == "".join(f"{i}\n" for i in range(1, 300001))
    assert end(process) == (0, b"")


def test_a_closed_stdout_cannot_be_written_to():
    process = start("run", "-c", "import sys; print(1); sys.exit(3)", stdout=None,
                    preexec_fn=lambda: os.close(1))
    status, message = end(process)
    assert status == 125 and b"Bad file descriptor" in message


def test_a_closed_stdout_that_nobody_needs_does_no_harm():
    process = start("run", "-c", "import sys; sys.exit(3)", stdout=None,
                    preexec_fn=lambda: os.close(1))
    assert end(process) == (3, b"")


def test_a_closed_stderr_swallows_what_goes_there():
    process = start("run", "-c", "import sys; sys.exit('no')", preexec_fn=lambda: os.close(2))
    assert end(process) == (1, b"")


def test_output_arrives_while_the_program_runs():
    process = start("run", "-c", READY)
    assert process.stdout.readline() == b"ready\n"
    assert process.poll() is None
    process.terminate()
    assert end(process)[0] == 143


def test_output_that_passes_is_bounded_by_the_hard_limit_only():
    answer = hutch("run", "-c", "import os\nfor i in range(48): os.write(1, b'x' * (1 << 20))")
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert len(answer.stdout) == 48 << 20


# ---- stdin ----


def test_the_program_does_not_see_hutchs_own_stdin():
    answer = hutch("run", "-c", "import sys; print(repr(sys.stdin.read()))", input=b"secret",
                   stdin=None)
    assert answer.stdout == b"''\n"


def test_dash_is_hutchs_own_stdin():
    answer = hutch("run", "--stdin", "-", "-c", "import sys; print(sys.stdin.read())",
                   input=b"given", stdin=None)
    assert answer.stdout == b"given\n"
    assert hutch("run", "-", input=b"print(5)", stdin=None).stdout == b"5\n"


def test_a_non_blocking_stdin_is_read_to_its_end():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    process = subprocess.Popen([HUTCH, "run", "-"], stdin=reader, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    os.close(reader)

    def feed():
        with open(writer, "wb") as file:
            for piece in (b"print(", b"2", b"+3)\n"):
                file.write(piece)
                file.flush()

    thread = threading.Thread(target=feed)
    thread.start()
    assert process.stdout.read() == b"5\n"
    thread.join()
    assert end(process) == (0, b"")


# ---- messages ----


@pytest.mark.parametrize("ending, language", [
    ("py", "python"), ("js", "javascript"), ("mjs", "javascript"), ("ts", "javascript"),
    ("sh", "shell"), ("txt", "python")])
def test_the_ending_of_a_file_tells_the_language(ending, language, tmp_path):
    program = tmp_path / f"program.{ending}"
    program.write_text("//" if language == "javascript" else "#")
    done = hutch("run", "--json", str(program))
    assert json.loads(done.stdout)["language"] == language
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_last_of_several_values_counts():
    assert hutch("run", "-c", "print(1)", "-c", "print(2)").stdout == b"2\n"


def test_a_limit_is_said_on_a_line_of_its_own():
    code = "import sys, time; print('half', end='', file=sys.stderr, flush=True); time.sleep(60)"
    answer = hutch("run", "-t", "0.5", "-c", code)
    assert answer.returncode == 124
    assert re.fullmatch(rb"half\nhutch: time limit of 0\.5 s [^\n]+\n", answer.stderr)
    quiet = hutch("run", "-q", "-t", "0.5", "-c", code)
    assert (quiet.returncode, quiet.stderr) == (124, b"half")


def test_a_failing_program_gets_no_word_of_hutch():
    answer = hutch("run", "-c", "import sys; sys.exit('reason')")
    assert (answer.returncode, answer.stderr) == (1, b"reason\n")


def test_the_text_of_a_limit_cannot_forge_lines():
    code = "raise MemoryError('a\\nhutch: forged \\x1b[2J')"
    answer = hutch("run", "-c", code)
    assert answer.returncode == 1
    lines = answer.stderr.decode().split("\n")
    assert lines[-2].startswith("hutch: the program was refused memory that it asked for ")
    assert lines[-2].isprintable() and lines[-1] == ""


# ---- doctor ----


def test_doctor_prints_what_its_json_holds():
    plain, answer = hutch("doctor"), hutch("doctor", "--json")
    report = json.loads(answer.stdout)
    assert answer.stdout.count(b"\n") == 1
    assert report["can_run"] is True
    missing = [row["name"] for row in report["layers"] if not row["in_force"]]
    assert plain.returncode == answer.returncode == (1 if missing else 0)
    text = plain.stdout.decode()
    for row in report["layers"]:
        state = "in force" if row["in_force"] else "missing"
        assert re.search(rf"^  {row['name']} +{state}", text, flags=re.MULTILINE)
        assert (row["reason"] is None) == row["in_force"]
    for row in report["runtimes"]:
        assert re.search(rf"^  {row['language']} +available +{row['interpreter']}$", text,
                         flags=re.MULTILINE)
    assert re.search(rf"^  layout +{report['cgroup']['layout']}$", text, flags=re.MULTILINE)
    terms = report["scheduler"]
    assert (terms["active"], terms["waiting"], terms["held_back_by"]) == (0, 0, None)
    assert terms["memory_available_bytes"] > terms["memory_reserve_bytes"] > 0
    assert terms["expected_bytes"] == 64 << 20 and terms["memory_claimed_bytes"] == 0
    assert terms["runnable"] >= 1 and terms["runnable_limit"] == 8 * os.cpu_count()
    cells = f"0 of {terms['max_cells']} active, 0 idle sessions, 0 of {terms['queue_size']} waiting"
    assert f"  cells            {cells}\n" in text
    assert re.search(r"^  memory +\d+ MiB available; reserve \d+, claimed 0, expected of a run 64$",
                     text, flags=re.MULTILINE)
    verdict = "every layer in force" if not missing else f"{len(missing)} layer"
    assert verdict in text.splitlines()[-1]


# -- what an attack on the engine found --------------------------------------------


LINGER = """
import array, os, socket, struct, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(1)
near = socket.socket()
near.connect(listener.getsockname())
far, _ = listener.accept()
near.setblocking(False)
try:
    while True:
        near.send(b"x" * 65536)
except BlockingIOError:
    pass
near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000000))
print("linger", struct.unpack("ii", near.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))
channel = socket.socket(fileno=os.dup(1000))
for sent in (near, far):
    descriptors = array.array("i", [sent.fileno()])
    try:
        channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    except OSError as error:
        print(type(error).__name__)
"""


def test_descriptors_sent_to_the_engine_do_not_hold_it_up():
    start = time.monotonic()
    answer = hutch("run", "-t", "5", "-c", LINGER)
    assert time.monotonic() - start < 20
    lines = answer.stdout.decode().splitlines()
    assert lines[0] == "linger (0, 0)"
    assert answer.returncode == 0


def test_tables_of_the_whole_host_are_hidden():
    files = "/proc/locks /proc/swaps /proc/partitions /proc/kallsyms"
    boot_id = "/proc/sys/kernel/random/boot_id"
    answer = hutch("run", "-l", "shell", "-c",
                   f"cat {files} {boot_id}; ls -A /proc/pressure /proc/fs; echo end")
    assert answer.stdout == b"/proc/fs:\n\n/proc/pressure:\nend\n"


def test_a_cell_cannot_take_memory_through_socket_buffers():
    code = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
before = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before)
"""
    assert hutch("run", "-c", code).stdout == b"True\n"
