#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance cases against a backend through one front door.

    run.py --hutch build/hutch --door cli
    run.py --hutch build/hutch --door c --only py-hello,sh-hello
    run.py --hutch build/hutch --door cli --user nobody

The door `cli` starts `hutch run`; the door `c` talks to the program door.c,
which is found in the build folder next to hutch or named by --door-program.
With --user, hutch is started as that user by root. Cases that need a layer which
hutch does not find in force are left out, and said to be. Ends with the line
"N passed, N failed, N skipped"; exit status 0 when all of it passed. README.md describes the cases.
"""

import argparse
import concurrent.futures
import fnmatch
import pathlib
import sys
import time
import traceback

import account as accounts
import cases
import doors
import report

# The engine of the door `c` is shared by this many threads at most.
DOOR_THREADS = 64


class Context:
    """What special cases may use besides the door."""

    def __init__(self, options):
        self.hutch = options.hutch
        self.backend = options.backend
        self.run_ids = set()


def parse_options(arguments):
    """The command line of this program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hutch", type=pathlib.Path, required=True, help="the program hutch")
    parser.add_argument("--door", choices=["cli", "c"], required=True)
    parser.add_argument("--door-program", type=pathlib.Path, help="the built door.c")
    parser.add_argument(
        "--helper-dir", type=pathlib.Path, help="folder of hutch-supervisor, for the door c"
    )
    parser.add_argument("--user", help="name or number of an ordinary user to start hutch as")
    parser.add_argument("--cache-dir", type=pathlib.Path, help="default: a temporary one")
    parser.add_argument("--backend", help="default: what hutch chooses")
    parser.add_argument("--only", help="ids of cases, with commas")
    parser.add_argument("--rows", help="beginnings of rows, such as LI,IS, with commas")
    parser.add_argument("--without", default="", help="ids that are left out; * stands for more")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tap", action="store_true", help="print TAP instead of a summary")
    options = parser.parse_args(arguments)
    options.hutch = options.hutch.resolve()
    if options.door_program is None:
        options.door_program = options.hutch.parent / "tests" / "conformance" / "door"
    return options


def choose(options):
    """The cases to run, in the order of the files."""
    only, door, without = options.only, options.door, options.without.split(",")
    every = [case for group in cases.load_all().values() for case in group]
    if options.rows:
        beginnings = tuple(options.rows.split(","))
        every = [case for case in every if case.row.startswith(beginnings)]
    every = [case for case in every if not any(fnmatch.fnmatch(case.id, name) for name in without)]
    if only:
        wanted = only.split(",")
        unknown = set(wanted) - {case.id for case in every}
        if unknown:
            sys.exit(f"no such case: {', '.join(sorted(unknown))}")
        every = [case for case in every if case.id in wanted]
    return [case for case in every if door in case.doors]


def run_case(case, door, context, outcomes):
    """Runs one case and reports it; nothing that it raises ends the suite."""
    start = time.monotonic()
    try:
        problems = case.run(door, context)
    except report.Skip as skip:
        outcomes.skip(case.id, case.promise, str(skip))
        return
    except doors.DoorFailure as failure:
        problems = [str(failure)]
    except Exception:
        problems = [traceback.format_exc()]
    outcomes.done(case.id, case.promise, problems, time.monotonic() - start)


def run_all(chosen, door, context, outcomes, jobs):
    """First what may run side by side, then what measures time, one by one."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [
            pool.submit(run_case, case, door, context, outcomes)
            for case in chosen
            if not case.alone
        ]
        for future in running:
            future.result()
    for case in chosen:
        if case.alone:
            run_case(case, door, context, outcomes)


def open_door(options, account, cache_dir):
    """The front door that was asked for."""
    if options.door == "cli":
        return doors.CliDoor(options.hutch, options.backend, cache_dir, account=account)
    return doors.CDoor(
        account.install(options.door_program),
        options.backend,
        cache_dir,
        DOOR_THREADS,
        options.helper_dir,
        account,
    )


def run_suite(options, account, cache_dir):
    """Runs what was chosen; returns the exit status."""
    options.hutch = account.install(options.hutch)
    layers = doors.CliDoor(options.hutch, None, cache_dir, account=account).layers()
    every = choose(options)
    chosen = [case.within(layers) for case in every if layers.issuperset(case.needs)]
    outcomes = report.Report("conformance", len(chosen) + 1, options.tap)
    for case in every:
        if not layers.issuperset(case.needs):
            outcomes.left_out(case.id, set(case.needs) - layers)
    door = open_door(options, account, cache_dir)
    run_all(chosen, door, Context(options), outcomes, options.jobs)
    outcomes.done("door-closes", "the front door ends cleanly after all cases", door.close(), 0)
    return outcomes.finish()


def main():
    """Runs the suite; returns its exit status."""
    options = parse_options(sys.argv[1:])
    for program in [options.hutch] + ([options.door_program] if options.door == "c" else []):
        if not program.is_file():
            print(f"Bail out! no program {program}")
            return 1
    with doors.open_folder("conformance-suite-") as folder, doors.open_folder() as programs:
        account = accounts.choose(options.user, programs)
        return run_suite(options, account, accounts.cache_for(account, options.cache_dir, folder))


if __name__ == "__main__":
    sys.exit(main())
