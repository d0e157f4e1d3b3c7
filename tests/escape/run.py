#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs hostile programs in cells and checks that nothing came of it.

    run.py --hutch build/hutch
    run.py --hutch build/hutch --user nobody

Each case has to show two things: every attempt of the program was denied (its
verdicts, see escape_cases.py), and the host is as it was before (host.py). Needs
root: the host has to be looked at as a whole. With --user, hutch alone is started
as that user. Cases that need a layer which hutch does not find in force are left
out, and said to be. Ends with the line "N passed, N failed, N skipped"; exit
status 0 when all of it passed.
"""

import argparse
import fnmatch
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time
import traceback

import escape_cases
import host

import account as accounts  # of ../conformance, whose path escape_cases has added
import doors
import expect
import report


NOBODY = 65534

# enum hutch_warmth: interpreters by a zygote, or each by itself.
FORKED, COLD = "1", "2"


class Suite:
    """What cases share: the doors, the host, and the host's secrets."""

    def __init__(self, options, account, cache):
        self.options = options
        self.account = account
        self.cache = cache
        self.marker = "marker-" + secrets.token_hex(8)
        self.door = None
        self.files = []
        self.host = host.Host(account, options.shared_host)
        self.cli = self.open_command()
        self.secrets = [
            text.encode()
            for text in (
                self.marker,
                self.host.token,
                str(options.hutch.parent),
                str(self.cache),
                os.getcwd() + "/",
                self.host.name,
            )
            if len(text) >= 6
        ]

    def open_command(self, prefix=()):
        """A command line; prefix: a command that starts another one."""
        marker = {"ESCAPE_MARKER": self.marker}
        return doors.CliDoor(self.options.hutch, None, self.cache, prefix, marker, self.account)

    def open_door(self, threads, warmth=COLD):
        """An engine of its own."""
        return doors.CDoor(
            self.options.door_program,
            None,
            self.cache,
            threads,
            self.options.helper_dir,
            self.account,
            ("--warmth", warmth),
        )

    def warm_up(self):
        """
        Until the cells of the door c come from its zygote, which is to be there before
        and after each case.
        """

        def is_warm():
            self.door.run({"code": "print(1)"})
            return self.door.send("doctor").result["cells"]["starts"]["forked"] > 0

        if not host.until(is_warm, 60):
            raise doors.DoorFailure("the door c has no zygote")
        self.keep_warm()

    def keep_warm(self):
        """A zygote that nobody asks for a minute goes; so it is asked before each case."""
        self.door.run({"code": "print(1)"})
        self.host.standing = frozenset()  # else they would not be found
        supervisors = [p.pid for p in self.host.processes() if p.parent == self.door.pid]

        def find_standing():
            found = [p.pid for p in self.host.processes() if p.parent in supervisors]
            return found if len(found) == 3 else []  # the zygote, PID 1 of its cell, its maker

        host.until(find_standing, 10)
        self.host.standing = frozenset(find_standing())

    def prepare(self):
        """Lays out the host's secrets, opens the doors, and makes the runs that may
        leave something: the cache, the supervisor of the door c."""
        os.environ["ESCAPE_MARKER"] = self.marker
        for place in ("/root", "/tmp", "/home", "/dev/shm", "/run"):
            self.files.append(pathlib.Path(place) / f"escape-{self.host.token}")
            self.files[-1].write_text(self.marker)
        self.door = self.open_door(16, COLD if self.options.cold else FORKED)
        for door in (self.cli, self.door):
            for language, code in (("python", "print(1)"), ("shell", "echo 1")):
                outcome = door.run({"code": code, "language": language})
                if outcome.result is None or outcome.result["stdout"] != "1\n":
                    raise doors.DoorFailure(
                        f"no cell can be started through {door.name}: "
                        f"{outcome.error or outcome.result}"
                    )
        if not self.options.cold:
            self.warm_up()

    def door_for(self, request):
        """The command line where it can say all of the request, else the C API."""
        return self.door if set(request) & doors.C_ONLY else self.cli

    def find_secrets(self, outcome, verdicts):
        """What of the host's secrets a program got to see."""
        result = outcome.result
        texts = {
            "stdout": result["stdout"].encode(),
            "stderr": result["stderr"].encode(),
            "value": (result["value"] or "").encode(),
            "error": repr(result["error"]).encode(),
            **{f"dump of {name}": data for name, data in verdicts.dumps.items()},
        }
        return [
            f"{name} shows {secret.decode()} of the host"
            for name, text in texts.items()
            for secret in self.secrets
            if secret in text
        ]

    def run_program(
        self, program, attempts, request=None, expectation=None, door=None, unfinished=False
    ):
        """Runs one hostile program; returns its outcome and what does not hold."""
        request, token = escape_cases.compose(program, request)
        outcome = (door or self.door_for(request)).run(request)
        if outcome.result is None:
            return outcome, [f"no result but an error: {outcome.error}"]
        expectation = {"is": "OK", **(expectation or {})}
        fields = {"stdout": {"match": ""}, **expectation}
        problems = expect.check(fields, outcome)
        problems += expect.check_form(outcome, request.get("language", "python"))
        verdicts = escape_cases.parse_verdicts(outcome.result["stdout"], token)
        problems += escape_cases.check_verdicts(verdicts, attempts, unfinished)
        problems += self.find_secrets(outcome, verdicts)
        return outcome, problems

    def close(self):
        """Ends the doors and takes the traces of the suite away."""
        problems = self.door.close() if self.door else []
        for file in self.files:
            file.unlink(missing_ok=True)
        return problems + self.host.close()


def run_twin(case):
    """Runs the same program outside, as nobody, to show that its attempts can succeed."""
    if "Seccomp:\t0" not in host.read("/proc/self/status"):
        return []  # a filter of the host's own would answer in the cell's place
    request, token = escape_cases.compose(case.body["program"], case.body.get("request"))
    with tempfile.TemporaryDirectory(prefix="escape-suite-twin-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        run = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", request["code"]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin", **request["env"]},
        )
    outcomes = dict(escape_cases.parse_verdicts(run.stdout, token).reported)
    return [
        f"twin outside: {name}: {outcomes.get(name)} (expected {', '.join(expected)}) {run.stderr}"
        for name, expected in case.body["twin"].items()
        if not escape_cases.is_safe(outcomes.get(name, "no verdict"), expected)
    ]


def run_body(suite, case):
    """The program or the procedure of a case."""
    if callable(case.body):
        return case.body(suite)
    body = case.body
    _, problems = suite.run_program(
        body["program"],
        body["attempts"],
        body.get("request"),
        body["expect"],
        unfinished=body.get("unfinished", False),
    )
    return problems


def attempt(function, *arguments):
    """What does not hold; nothing that the function raises ends the suite, but a skip."""
    try:
        return function(*arguments)
    except report.Skip:
        raise
    except doors.DoorFailure as failure:
        return [str(failure)]
    except Exception:
        return [traceback.format_exc()]


def run_case(suite, case, outcomes):
    """Runs one case between two looks at the host."""
    start = time.monotonic()
    if not suite.options.cold:
        suite.keep_warm()
    suite.host.settle()
    before, offset, disk = suite.host.snapshot(), host.clock_offset(), host.used_disk_mb()
    try:
        problems = attempt(run_body, suite, case)
    except report.Skip as skip:
        outcomes.skip(case.id, case.promise, str(skip))
        return
    problems += suite.host.differences(before)
    if abs(host.clock_offset() - offset) > 1:
        problems.append("host: the clock was set")
    if not callable(case.body) and case.body.get("disk") and host.used_disk_mb() - disk > 400:
        problems.append(f"host: {host.used_disk_mb() - disk} MB of the disk are gone")
    if not callable(case.body) and case.body["twin"]:
        problems += attempt(run_twin, case)  # last: modules that it loads are no cell's work
    outcomes.done(case.id, case.promise, problems, time.monotonic() - start)


def parse_options(arguments):
    """The command line of this program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hutch", type=pathlib.Path, required=True, help="the program hutch")
    parser.add_argument("--door-program", type=pathlib.Path, help="the built conformance/door.c")
    parser.add_argument("--without-layer", type=pathlib.Path, help="the built without_layer.c")
    parser.add_argument("--helper-dir", type=pathlib.Path, help="folder of hutch-supervisor")
    parser.add_argument("--user", help="name or number of an ordinary user to start hutch as")
    parser.add_argument("--cache-dir", type=pathlib.Path, help="default: a temporary one")
    parser.add_argument(
        "--sanitized", action="store_true", help="the build has sanitizers: allow more memory"
    )
    parser.add_argument("--only", help="ids of cases, with commas")
    parser.add_argument("--without", default="", help="ids that are left out; * stands for more")
    parser.add_argument("--tap", action="store_true", help="print TAP instead of a summary")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="no zygote for the door c: on a slow machine one is idle for too long between cases",
    )
    parser.add_argument(
        "--shared-host", action="store_true", help="another suite runs here at the same time"
    )
    options = parser.parse_args(arguments)
    options.hutch = options.hutch.resolve()
    tests = options.hutch.parent / "tests"
    options.door_program = options.door_program or tests / "conformance" / "door"
    options.without_layer = options.without_layer or tests / "escape" / "without_layer"
    return options


def choose(only, without, user):
    """The cases to run."""
    names = without.split(",")
    every = [
        case
        for case in escape_cases.load_all(user)
        if not any(fnmatch.fnmatch(case.id, name) for name in names)
    ]
    if not only:
        return every
    wanted = only.split(",")
    unknown = set(wanted) - {case.id for case in every}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    return [case for case in every if case.id in wanted]


def missing(options):
    """Why the suite cannot run at all; None when it can."""
    if os.geteuid() != 0:
        return "the escape suite looks at the whole host and needs root"
    for program in (options.hutch, options.door_program, options.without_layer):
        if not program.is_file():
            return f"no program {program}"
    return None


def run_suite(options, account, cache):
    """Runs what was chosen; returns the exit status."""
    options.hutch = account.install(options.hutch)
    options.door_program = account.install(options.door_program)
    suite = Suite(options, account, cache)
    try:
        layers = suite.cli.layers()
        every = choose(options.only, options.without, options.user)
        chosen = [case for case in every if layers.issuperset(case.needs)]
        outcomes = report.Report("escape", len(chosen) + 1, options.tap)
        for case in every:
            if not layers.issuperset(case.needs):
                outcomes.left_out(case.id, set(case.needs) - layers)
        suite.prepare()
        for case in chosen:
            run_case(suite, case, outcomes)
    except doors.DoorFailure as failure:
        print(f"Bail out! {failure}")
        return 1
    finally:
        problems = suite.close()
    outcomes.done("nothing-left", "after the suite nothing is left of it", problems, 0)
    return outcomes.finish()


def main():
    """Runs the suite; returns its exit status."""
    options = parse_options(sys.argv[1:])
    reason = missing(options)
    if reason:
        print(f"Bail out! {reason}")
        return 1
    with doors.open_folder("escape-suite-") as folder, doors.open_folder() as programs:
        account = accounts.choose(options.user, programs)
        return run_suite(options, account, accounts.cache_for(account, options.cache_dir, folder))


if __name__ == "__main__":
    sys.exit(main())
