# SPDX-License-Identifier: Apache-2.0
"""
An engine of the C API for tests: the program tests/conformance/door, which runs the
requests that it reads, all of them in one engine. HUTCH_BUILD is the build folder.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import time

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
PATIENCE = 180  # seconds; the first run of all makes the tree of files


class Engine:
    """An engine, and what it was asked."""

    language = "python"
    nothing = "pass"  # a program that does nothing

    def __init__(self, cache_dir, *options, threads=1):
        self.process = subprocess.Popen(
            [BUILD / "tests/conformance/door", "--threads", str(threads), "--cache-dir", cache_dir,
             *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        self.lines = 0
        self.answers = {}  # by their lines, of those that came while another was waited for

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """It has to end well, unless a test has failed already."""
        if kind:
            self.process.kill()
        self.process.stdin.close()
        assert self.process.wait(timeout=PATIENCE) == 0 or kind
        self.process.stdout.close()

    def send(self, request):
        """Sends a request, or a line as it is; returns the number of the line."""
        if isinstance(request, dict):
            request = json.dumps({"language": self.language, **request})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        self.lines += 1
        return self.lines

    def answer(self, number=None):
        """The next answer, or that to the line of a number."""
        if number is None and self.answers:
            return self.answers.pop(next(iter(self.answers)))
        while number not in self.answers:
            line = self.process.stdout.readline()
            assert line, "the engine is gone"
            answer = json.loads(line)
            if number is None:
                return answer
            self.answers[answer["line"]] = answer
        return self.answers[number]

    def ask(self, request):
        number = self.send(request)
        self.answer(number)
        answer = self.answers.pop(number)
        assert "result" in answer, answer
        return answer["result"]

    def run(self, code, **fields):
        result = self.ask({"code": code, **fields})
        assert (result["error"], result["stderr"]) == (None, ""), result
        return result["stdout"]

    def cells(self):
        return self.ask("doctor")["cells"]

    def warm(self):
        """What the language has ready."""
        found = [entry for entry in self.cells()["warm"] if entry["language"] == self.language]
        return found[0] if found else {"pools": 0, "zygotes": 0, "parked": 0, "log": ""}

    def warm_up(self, parked):
        """Until that many cells wait: two requests say that it is worth it."""
        for _ in range(2):
            self.run(self.nothing)
        end = time.monotonic() + PATIENCE
        while self.warm()["parked"] < parked:
            assert time.monotonic() < end, self.cells()
            time.sleep(0.02)

    @property
    def supervisor(self):
        return int(children(self.process.pid)[0])


@contextlib.contextmanager
def engines(kind, cache_dir):
    """Makes engines, each of which has to end well."""
    with contextlib.ExitStack() as made:
        yield lambda *options, **keywords: made.enter_context(kind(cache_dir, *options, **keywords))


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return found.stdout.split()


def command(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []
