# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, for tests: what it shows, what is typed."""

import os
import pathlib
import pty
import select
import signal
import time

PATIENCE = 60


class Terminal:
    """The program, on a pseudo-terminal that is its controlling one."""

    def __init__(self, argv, environment):
        self.shown = ""  # so far, of it what was not awaited yet
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execve(argv[0], argv, environment)
            finally:
                os._exit(99)
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.status is None and kind:
            os.kill(self.pid, signal.SIGKILL)
        if self.status is None:
            self.wait()
        os.close(self.fd)

    def _more(self, deadline):
        ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more is shown after {self.shown!r}"
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # nobody has the other end
            data = b""
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    def await_text(self, text):
        """What is shown up to the text and with it, which is forgotten."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert self._more(deadline), f"the end, after {self.shown!r}"
        before, found, self.shown = self.shown.partition(text)
        return before + found

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        """What is shown up to the end of the program, whose exit status is then known."""
        deadline = time.monotonic() + PATIENCE
        while self._more(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        shown, self.shown = self.shown, ""
        return shown


def descendants(pid):
    """The processes that descend from one, by whichever of its threads."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return found
    for thread in threads:
        try:
            children = pathlib.Path("/proc", str(pid), "task", thread, "children").read_text()
        except OSError:  # the thread has ended
            continue
        for child in map(int, children.split()):
            found += [child, *descendants(child)]
    return found


def in_cells(pid):
    """Those of the descendants that are in a namespace of processes of their own."""
    own = os.readlink("/proc/self/ns/pid")
    found = []
    for child in descendants(pid):
        try:
            if os.readlink(f"/proc/{child}/ns/pid") != own:
                found.append(child)
        except OSError:  # it has ended
            pass
    return found
