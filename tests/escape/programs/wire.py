# SPDX-License-Identifier: Apache-2.0
# Speaks on the channel between the engine and the runner. Everything sent is a
# lie; MODE, set by the driver in the environment, says which.
import array
import socket

CHANNEL, VALUE, ERROR = 1000, 16, 17
COMPILE = 1
mode = os.environ["MODE"]


def frame(kind, payload, length=None, flags=0, exec_id=1):
    return (
        struct.pack("=IHHI", len(payload) if length is None else length, kind, flags, exec_id)
        + payload
    )


def error_frame(name, message, line=1, code=0, flags=0, name_length=None):
    name, message = name.encode(), message.encode()
    return frame(
        ERROR,
        struct.pack("=IIi", line, len(name) if name_length is None else name_length, code)
        + name
        + message,
        flags=flags,
    )


def send(data):
    """Sends all of it, or as much as is taken within a second; how that ended."""
    view = memoryview(data)
    try:
        with socket.socket(fileno=os.dup(CHANNEL)) as channel:
            channel.settimeout(1)
            while view:
                view = view[channel.send(view[: 1 << 20], socket.MSG_NOSIGNAL) :]
    except OSError as error:
        return (
            "timeout"
            if isinstance(error, TimeoutError)
            else errno.errorcode.get(error.errno, "error")
        )
    return "sent"


def send_descriptors():
    fds = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 200)
    with socket.socket(fileno=os.dup(CHANNEL)) as channel:
        channel.settimeout(1)
        for _ in range(20):
            channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    return "sent"


def read_channel():
    with socket.socket(fileno=os.dup(CHANNEL)) as channel:
        data = channel.recv(65536, socket.MSG_DONTWAIT)
    dump("channel", data)
    return "nothing" if not data else "data"


def close_channel():
    os.close(CHANNEL)
    os.dup2(os.open("/dev/null", os.O_WRONLY), CHANNEL)
    return "closed"


noise = b"".join(__import__("hashlib").sha256(b"%d" % n).digest() for n in range(32768))
ACTIONS = {
    "value": lambda: send(frame(VALUE, b"first lie") + frame(VALUE, "second lie é".encode())),
    "value-not-text": lambda: send(frame(VALUE, b"\xff\xfe\0\xed\xa0\x80 end")),
    "value-empty": lambda: send(frame(VALUE, b"")),
    "value-largest": lambda: send(frame(VALUE, b"v" * (1 << 20))),
    "value-too-long": lambda: send(frame(VALUE, b"v" * ((1 << 20) + 1))),
    "value-of-another-exec": lambda: send(frame(VALUE, b"lie", exec_id=2)),
    "error": lambda: send(error_frame("TimeoutError", "the host is on fire")),
    "error-compile": lambda: send(error_frame("SyntaxError", "nothing ran", flags=COMPILE)),
    "error-disk": lambda: send(error_frame("OSError", "No space left on device", code=28)),
    "error-memory": lambda: send(error_frame("MemoryError", "")),
    "error-bad-lengths": lambda: send(
        error_frame("X", "y", line=0xFFFFFFFF, name_length=0xFFFFFFFF)
    ),
    "error-short": lambda: send(frame(ERROR, b"abc")),
    "error-not-text": lambda: send(
        frame(ERROR, struct.pack("=IIi", 1, 4, 0) + b"\xff\0\n\x1b\xff\xff")
    ),
    "error-too-long": lambda: send(frame(ERROR, struct.pack("=IIi", 1, 1, 0) + b"E" * (1 << 17))),
    "huge-length": lambda: send(frame(VALUE, b"x", length=0xFFFFFFFF)),
    "half-header": lambda: send(b"\x10\0\0"),
    "half-frame": lambda: send(frame(VALUE, b"x" * 10, length=1000)),
    "unknown-kind": lambda: send(
        frame(4711, b"x") + frame(1, b"A=1\0") + frame(2, b"print('again')")
    ),
    "garbage": lambda: send(noise),
    "flood": lambda: send(frame(VALUE, b"v" * (1 << 20)) * 200),
    "flood-of-empty": lambda: send(frame(VALUE, b"") * 1_000_000),
    "descriptors": send_descriptors,
    "read": read_channel,
    "close": close_channel,
    "shut-down": lambda: (
        socket.socket(fileno=os.dup(CHANNEL)).shutdown(socket.SHUT_RDWR) or "closed"
    ),
}
outcome, answer = outcome_of(ACTIONS[mode])
report(mode, answer or outcome)
end()
os._exit(int(os.environ["STATUS"]))
