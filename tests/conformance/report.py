# SPDX-License-Identifier: Apache-2.0
"""Counting and printing of test outcomes, as TAP or as a summary.

A skip is only a skip when tests/skips.txt lists it, one a line:

    SUITE/ID  reason

Any other skip counts as a failure: nothing is left out in silence.
"""

import pathlib
import threading

# Cases that take longer are worth a line.
SLOW_SECONDS = 5
SKIPS_FILE = pathlib.Path(__file__).resolve().parent.parent / "skips.txt"


class Skip(Exception):
    """Raised by a case that this host cannot run; the text is the reason."""


def allowed_skips(suite, path=SKIPS_FILE):
    """The ids of one suite that may be skipped."""
    ids = set()
    if path.exists():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, _, reason = line.partition(" ")
            if "/" not in name or not reason.strip():
                raise ValueError(f"{path}:{number}: expected 'SUITE/ID  reason'")
            if name.split("/", 1)[0] == suite:
                ids.add(name.split("/", 1)[1])
    return ids


class Report:
    """Collects the outcomes of one suite; may be used from several threads."""

    def __init__(self, suite, planned, tap):
        self.suite = suite
        self.tap = tap
        self.lock = threading.Lock()
        self.count = self.passed = self.failed = self.skipped = 0
        self.allowed = allowed_skips(suite)
        if tap:
            print("TAP version 13")
            print(f"1..{planned}", flush=True)

    def left_out(self, case_id, layers):
        """A case that is not planned, because it needs layers that are not in force."""
        print(f"# left out: {case_id} needs {', '.join(sorted(layers))}", flush=True)

    def done(self, case_id, promise, problems, seconds):
        """One case has ended; an empty list of problems means that it passed."""
        with self.lock:
            self.count += 1
            if problems:
                self.failed += 1
            else:
                self.passed += 1
            if self.tap or problems or seconds > SLOW_SECONDS:
                self._line("not ok" if problems else "ok", f"{case_id}: {promise}")
            for problem in problems:
                for line in str(problem).splitlines() or [""]:
                    print(f"#   {line}")
            if seconds > SLOW_SECONDS:
                print(f"#   took {seconds:.1f} s")
            self._flush()

    def skip(self, case_id, promise, reason):
        """One case could not be run here."""
        if case_id not in self.allowed:
            problem = f"skipped ({reason}) without an entry in {SKIPS_FILE.name}"
            self.done(case_id, promise, [problem], 0)
            return
        with self.lock:
            self.count += 1
            self.skipped += 1
            self._line("ok", f"{case_id}: {promise} # SKIP {reason}")
            self._flush()

    def finish(self):
        """Prints the totals; returns the exit status of the suite."""
        print(
            f"{'# ' if self.tap else ''}{self.passed} passed, {self.failed} failed, "
            f"{self.skipped} skipped",
            flush=True,
        )
        return 1 if self.failed or not self.passed else 0

    def _line(self, verdict, text):
        text = text.replace("\n", " ")
        print(f"{verdict} {self.count} - {text}" if self.tap else f"{verdict} - {text}")

    @staticmethod
    def _flush():
        print(end="", flush=True)
