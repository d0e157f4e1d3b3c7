# SPDX-License-Identifier: Apache-2.0
# Put in front of every hostile Python program. Each attempt prints one line,
#
#     TOKEN attempt outcome
#
# and the driver, which knows the names of all attempts and the outcomes that
# are safe, wants every one of them once. The outcome is the name of the errno
# when the attempt failed, "done" when it did not, or a word of the program.
import ctypes
import errno
import os
import struct  # noqa: F401  programs use it
import sys  # noqa: F401  programs use it

TOKEN = os.environ["VERDICT_TOKEN"]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
COUNT = 0


def report(name, outcome):
    """One verdict."""
    global COUNT
    COUNT += 1
    os.write(1, f"{TOKEN} {name} {outcome}\n".encode())


def dump(name, data):
    """Bytes that the driver searches for secrets of the host."""
    data = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    for at in range(0, len(data), 20_000):
        os.write(1, f"{TOKEN} dump:{name} {data[at : at + 20_000].hex()}\n".encode())


def outcome_of(call, *arguments, **options):
    """How a call ends, as a word, and what it returns."""
    try:
        return "done", call(*arguments, **options)
    except OSError as error:
        return errno.errorcode.get(error.errno, f"errno-{error.errno}"), None
    except Exception as error:
        return type(error).__name__, None


def attempt(name, call, *arguments, **options):
    """Tries something and reports how it ended; returns its value."""
    outcome, value = outcome_of(call, *arguments, **options)
    report(name, outcome)
    return value


def sc(name, *arguments):
    """A raw system call by its name; the driver has put the numbers into NR."""
    if name not in NR:
        raise OSError(errno.ENOSYS, "not on this machine")
    return syscall(NR[name], *arguments)


def syscall(number, *arguments):
    """A raw system call by its number."""
    arguments = [
        a
        if isinstance(a, (ctypes.Array, ctypes.c_char_p, bytes)) or a is None
        else ctypes.c_long(a)
        for a in arguments
    ]
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def in_child(call, *arguments):
    """Runs a call in a forked child; "exited-N" or "killed-N"."""
    pid = os.fork()
    if pid == 0:
        try:
            code = call(*arguments) or 0
        except OSError as error:
            code = error.errno
        except BaseException:
            code = 255
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return f"killed-{os.WTERMSIG(status)}"
    return f"exited-{os.WEXITSTATUS(status)}"


def read_file(path, size=1 << 20):
    """The beginning of a file; files of the kernel come in many pieces."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    data = b""
    try:
        while len(data) < size:
            piece = os.read(fd, size - len(data))
            if not piece:
                break
            data += piece
    except BlockingIOError:
        pass
    finally:
        os.close(fd)
    return data


def end():
    """The driver calls this after the program: all of it has run."""
    os.write(1, f"{TOKEN} end {COUNT}\n".encode())
