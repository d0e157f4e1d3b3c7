# SPDX-License-Identifier: Apache-2.0
"""
A runner without a cell: its interpreter is started the way a cell starts it,
with the test at the other end of the channel. What both runners' tests share.
"""

import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
from collections import namedtuple
from pathlib import Path

WIRE_H = Path(__file__).resolve().parents[2] / "src/sandbox/wire.h"
ENV, RUN, GATE, VALUE, ERROR, VERDICT, RICH = 1, 2, 3, 16, 17, 18, 21
COMPILE, IMPORT = 1, 2
MAX_VALUE, MAX_ERROR = 1 << 20, 64 << 10
DEADLINE_SECONDS = 30

Error = namedtuple("Error", "type message line errno flags")
RESULT_FIELDS = "status stdout stderr value error frames verdict rich"
Result = namedtuple("Result", RESULT_FIELDS, defaults=[None] * 5)


def header(length, kind, exec_id=1, flags=0):
    return struct.pack("=IHHI", length, kind, flags, exec_id)


def frame(kind, payload, exec_id=1, flags=0):
    return header(len(payload), kind, exec_id, flags) + payload


def entries(items):
    """The payload of an ENV or a GATE."""
    return b"".join(item.encode() + b"\0" for item in items)


# What a channel may bring that is no request, to either runner.
NO_REQUESTS = [
    b"",
    header(10, RUN) + b"short",
    frame(99, b"12345"),
    header((1 << 20) + 1, RUN),
    frame(ENV, b"A=1\0") * 2,
]


def take_signals():
    """A shell that starts the tests in the background ignores these; a cell has none ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start_process(command, channel_fd, end, home, env, **streams):
    """A process with one end of a socket, which is closed here, at channel_fd."""
    os.dup2(end.fileno(), channel_fd)
    end.close()
    try:
        return subprocess.Popen(command, cwd=home, env=env, pass_fds=[channel_fd],
                                preexec_fn=take_signals, **streams)
    finally:
        os.close(channel_fd)


class Engine:
    """The engine's end of one run; as a context manager it ends the process."""

    def __init__(self, command, channel_fd, home, env, stdin, stdout=subprocess.PIPE):
        self.home = home
        self.channel, other = socket.socketpair()
        self.channel.settimeout(DEADLINE_SECONDS)
        self.process = start_process(
            command, channel_fd, other, home, env, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def send(self, kind, payload, exec_id=1, flags=0):
        self.channel.sendall(frame(kind, payload, exec_id, flags))

    def receive(self):
        """The next frame, or None at the end of the channel."""
        header = self._receive_exactly(12)
        if header is None:
            return None
        length, kind, flags, exec_id = struct.unpack("=IHHI", header)
        return kind, flags, exec_id, self._receive_exactly(length)

    def _receive_exactly(self, count):
        data = b""
        while len(data) < count:
            try:
                piece = self.channel.recv(count - len(data))
            except ConnectionResetError:  # frames of ours that it never read
                piece = b""
            if not piece:
                assert not data, "a frame was cut"
                return None
            data += piece
        return data

    def expect_stdout(self, text):
        """Waits until the program has printed this and no more."""
        data = b""
        fd = self.process.stdout.fileno()
        while data != text:
            assert select.select([fd], [], [], DEADLINE_SECONDS)[0], f"only {data} was printed"
            piece = os.read(fd, len(text))
            data += piece
            assert piece and text.startswith(data)

    def finish(self, input=None):
        """Reads everything to its end."""
        frames = []
        reader = threading.Thread(target=lambda: frames.extend(iter(self.receive, None)))
        reader.start()
        stdout, stderr = self.process.communicate(input, timeout=DEADLINE_SECONDS)
        reader.join()
        self.channel.close()
        values = [frame[3].decode() for frame in frames if frame[0] == VALUE]
        errors = [decode_error(frame) for frame in frames if frame[0] == ERROR]
        verdicts = [frame[3] for frame in frames if frame[0] == VERDICT]
        assert len(values) <= 1 and len(errors) <= 1 and len(verdicts) <= 1
        rich = [frame[3] for frame in frames if frame[0] == RICH]
        assert len(frames) == len(values) + len(errors) + len(verdicts) + len(rich)
        assert not verdicts or frames[0][0] == VERDICT
        return Result(
            self.process.returncode,
            stdout,
            stderr,
            values[0] if values else None,
            errors[0] if errors else None,
            frames,
            verdicts[0] if verdicts else None,
            rich,
        )


# src/sandbox/namespace/plan.h: struct park_ready, with no text; what limits struct park_go has.
PARK_READY_BYTES = 1024
PARK_RLIMITS = (resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_DATA)


def park_go(cpus=None, limits=None):
    """The packet of a request, by default with the limits that there are already."""
    allowed = os.sched_getaffinity(0) if cpus is None else cpus
    packet = sum(1 << cpu for cpu in allowed).to_bytes(128, "little")
    for number in PARK_RLIMITS:
        limit = (limits or {}).get(number, resource.getrlimit(number))
        packet += struct.pack("=i4xqq", number, *limit)
    return packet


class Parked:
    """The supervisor's end of a cell without a request: the process has started, and waits."""

    def __init__(self, command, channel_fd, home, env):
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE_SECONDS)
        null = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.DEVNULL)
        self.process = start_process(command, channel_fd, other, home, env, **null)
        assert self.socket.recv(2048) == bytes(PARK_READY_BYTES)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def hand_over(self, packet, *fds):
        socket.send_fds(self.socket, [packet], fds)
        self.socket.close()

    def status(self):
        return self.process.wait(timeout=DEADLINE_SECONDS)


class ParkedEngine(Engine):
    """The engine's end of a run in a cell that was parked."""

    def __init__(self, command, channel_fd, home, env, stdin, packet=None):
        self.home = home
        parked = Parked(command, channel_fd, home, env)
        self.process = parked.process
        self.channel, channel = socket.socketpair()
        self.channel.settimeout(DEADLINE_SECONDS)
        self.process.stdout, stdout = reading_pipe()
        self.process.stderr, stderr = reading_pipe()
        fds = [stdout, stderr, channel.detach()]
        if stdin == subprocess.PIPE:
            reading, writing = os.pipe()
            self.process.stdin = os.fdopen(writing, "wb")
            fds.append(reading)
        parked.hand_over(packet or park_go(), *fds)
        for fd in fds:
            os.close(fd)


def reading_pipe():
    """The end to read from, as a file, and the other, as a descriptor."""
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), writing


def decode_error(frame):
    _, flags, _, payload = frame
    assert len(payload) <= MAX_ERROR
    line, length, errno = struct.unpack("=IIi", payload[:12])
    rest = payload[12:]
    return Error(rest[:length].decode(), rest[length:].decode(), line, errno, flags)


def assert_ok(result, stdout=""):
    assert (result.status, result.stdout, result.stderr) == (0, stdout, "")
    assert result.error is None


def assert_takes_single_bytes(engine, code):
    """A request in single bytes; code prints the variables A and B, and its value is 7."""
    for byte in frame(ENV, b"A=1\0B=x=y\0", 9) + frame(RUN, code, 9):
        engine.channel.sendall(bytes([byte]))
    result = engine.finish()
    assert (result.status, result.stdout) == (0, b"1 x=y\n")
    assert result.frames == [(VALUE, 0, 9, b"7")]


def assert_refuses(engine, language, data):
    """The bytes are no request of the runner of that language."""
    engine.channel.sendall(data)
    engine.channel.shutdown(socket.SHUT_WR)
    result = engine.finish()
    assert result.status == 125
    assert result.stderr == f"hutch: the {language} runner got no request\n".encode()
    assert not result.frames


def assert_ends_without_engine(engine, status):
    """The program, which has printed "ready" and reads, ends as by itself, with "bye"."""
    engine.expect_stdout(b"ready\n")
    engine.channel.close()
    stdout, _ = engine.process.communicate(b"", timeout=DEADLINE_SECONDS)
    assert (engine.process.returncode, stdout) == (status, b"bye\n")


def constants(text, pattern):
    """Names and the values of their expressions: numbers, shifts, sums."""
    return {
        name: eval(re.sub(r"(\d)u\b", r"\1", value))
        for name, value in re.findall(pattern, text, re.M)
    }


def header_constants():
    """Those of wire.h; the ones above are among them."""
    text = WIRE_H.read_text()
    found = constants(text, r"#define (WIRE_\w+) (.+?)(?:\s*/\*.*)?$")
    found |= constants(text, r"^\s+(WIRE_\w+) = (\d+),")
    assert (found["WIRE_ENV"], found["WIRE_RUN"], found["WIRE_GATE"]) == (ENV, RUN, GATE)
    assert (found["WIRE_VALUE"], found["WIRE_ERROR"]) == (VALUE, ERROR)
    assert (found["WIRE_VERDICT"], found["WIRE_RICH"]) == (VERDICT, RICH)
    assert (found["WIRE_ERROR_COMPILE"], found["WIRE_ERROR_IMPORT"]) == (COMPILE, IMPORT)
    return found
