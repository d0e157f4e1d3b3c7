# SPDX-License-Identifier: Apache-2.0
"""
hutch session for tests: its process, lines of JSON to it and from it; and looks at what has
to come about. HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import threading
import time

HUTCH = os.environ.get("HUTCH") or os.path.join(os.environ["HUTCH_BUILD"], "hutch")
PATIENCE = 180  # the first session of all makes the tree of files


class Lines:
    """A session on the command line, which is killed after PATIENCE."""

    status = 0  # that it has to end with

    def __init__(self, *options, stdout=subprocess.PIPE):
        self.process = subprocess.Popen([HUTCH, "session", *options], stdin=subprocess.PIPE,
                                        stdout=stdout)
        self.patience = threading.Timer(PATIENCE, self.process.kill)
        self.patience.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        if not self.process.stdin.closed:
            self.process.stdin.close()
        status = self.process.wait()
        self.patience.cancel()
        if self.process.stdout:
            self.process.stdout.close()
        assert kind or status == self.status

    def send_text(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def send(self, *lines):
        self.send_text(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def take(self):
        """The next answer."""
        line = self.process.stdout.readline()
        assert line, "hutch has ended"
        return json.loads(line)


def children(pid):
    """The children of a process, whichever of its threads made them."""
    files = pathlib.Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def processes_with(word):
    """Descriptors of the processes that have a word in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in path.read_bytes():
                found.append(os.pidfd_open(int(path.parent.name)))
    return found


def assert_gone(processes, seconds=5):
    """They end when their cell has been killed, at once."""
    for process in processes:
        assert select.select([process], [], [], seconds)[0]
        os.close(process)


def until(condition, seconds=20):
    """Looks until the condition holds, but for so long at most."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found
