#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run.py: calls that fail, one after the other.

inject.c lets the nth fallible call of one process of hutch fail, for n = 1, 2, ...
up to the last. Each time the program engine.c does its tasks on one engine, and

  - each task ends in the right result or in an error with a message of one line,
    at most one of them in an error: the engine is good for the next;
  - an error that calls itself safe to retry is one of a program that printed nothing;
  - no process crashes or hangs, the engine has no more descriptors, memory and
    children than before, and the host is as it was.

A case is a scenario and a role. With --points N, at most N calls of a role fail,
spread evenly; how many there were is printed in the last line but one.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

from ground import HANG_SECONDS, SCENARIOS, Broken, Ground
from ground import add_options, content, problems_of_result, wants_all

import report  # of ../conformance, whose path ground has added

SANITIZED = ("engine", "supervisor")  # the roles with memory that a sanitizer looks at
LEAVING = ("setns", "unlinkat")  # calls without which something is left
SWEEP_SECONDS = 0.7  # before the next run is asked to sweep
# In these nothing of the program can have begun.
BEFORE_THE_PROGRAM = ("spawn", "worker", "ask", "setup", "launch")


def shape(report_):
    """What of a report of hutch doctor is the same whatever it found."""
    layers = [layer["name"] for layer in report_["layers"]]
    languages = [runtime["language"] for runtime in report_["runtimes"]]
    return sorted(report_), layers, languages, len(report_["backends"])


def steady(report_):
    """A report without the load of the host, of which no two readings are the same."""
    return {**report_, "scheduler": sorted(report_["scheduler"])}


class Faults:
    """Faults, and what they lead to."""

    def __init__(self, ground, options):
        self.ground = ground
        self.options = options
        self.points = {}
        self.swept = self.weaker = 0

    # ---- judging ----

    def judge(self, scenario, role, outcomes, failed):
        """What is wrong with the outcomes of a run in which a call failed."""
        *outcomes, left = outcomes
        problems = [f"left in the engine: {left['left']}"] if any(left["left"].values()) else []
        errors = [outcome for outcome in outcomes if "error" in outcome]
        if len(errors) > (1 if failed else 0):
            problems.append(f"errors: {[outcome['error'] for outcome in errors]}")
        if len(outcomes) < len(SCENARIOS[scenario].tasks) and not errors:
            problems.append("a task is missing")
        for outcome in errors:
            problems += self.judge_error(role, outcome)
        for outcome in outcomes:
            if "result" in outcome:
                right = self.ground.unharmed[scenario]["results"][outcome["run"]]
                found = self.judge_result(outcome["run"], outcome["result"], right, failed)
                problems += [f"{outcome['run']}: {problem}" for problem in found]
        return problems

    @staticmethod
    def judge_error(role, outcome):
        """What is wrong with an error."""
        error = outcome["error"]
        problems = []
        if error["code"] in ("unknown", "invalid_request") or not error["message"]:
            problems.append(f"error without sense: {error}")
        if error["retry_safe"] and outcome["printed"]:
            problems.append(f"it has run, and is called safe to retry: {error}")
        if not error["retry_safe"] and role in BEFORE_THE_PROGRAM:
            problems.append(f"it cannot have run, and is not called safe to retry: {error}")
        return problems

    def judge_result(self, task, result, right, failed):
        """What is wrong with a result. Without a layer it is right as long as it says so,
        but for the shell program, which requires them all."""
        if task == "doctor":
            if not failed:
                same = steady(result) == steady(right)
                return [] if same else [f"another report: {result}"]
            return [] if shape(result) == shape(right) else [f"a part is missing: {result}"]
        problems = problems_of_result(result, right)
        if result["layers"] != right["layers"]:
            self.weaker += 1
            if task == "shell" or len(result["layers"]) != len(right["layers"]) - 1:
                problems.append(f"without {set(right['layers']) - set(result['layers'])}")
        for field in ("duration_ms", "queue_ms"):
            if not 0 <= result[field] <= 1000 * HANG_SECONDS:
                problems.append(f"{field} is {result[field]}")
        return problems

    # ---- a case ----

    def point(self, scenario, role, nth, before):
        """One fault; returns what is wrong."""
        cache = self.ground.cache_of(scenario)
        start = time.monotonic()
        try:
            outcomes, (seen, call, error) = self.ground.run(scenario, cache, role, nth)
        except Broken as broken:
            return [f"{role} {nth}: {broken}"]
        problems = self.judge(scenario, role, outcomes, call != "-")
        if SCENARIOS[scenario].cold:
            problems += self.after_cold(scenario, cache)
        problems += self.look_at_host(before, role, call)
        if self.options.verbose:
            errors = [outcome["error"] for outcome in outcomes if "error" in outcome]
            print(
                f"# {scenario} {role} {nth}/{seen} {call} {error}, "
                f"{time.monotonic() - start:.2f} s: {errors or 'right'}",
                flush=True,
            )
        return [f"{role} {nth}, {call} with {error}: {problem}" for problem in problems]

    def look_at_host(self, before, role, call):
        """What is left on the host. Where a supervisor had to die, or could not remove what
        it had made, it is for the next one to sweep."""
        left = self.ground.left(before, SWEEP_SECONDS)
        if not left:
            return []
        problems = []
        if role in ("supervisor", "engine") and call in LEAVING:
            self.swept += 1
        else:
            problems += [f"before the next run: {problem}" for problem in left]
        self.ground.run("root", self.ground.caches[0])
        problems += self.ground.left(before)
        if problems:
            before.update(self.ground.snapshot())  # each is reported once
        return problems

    def after_cold(self, scenario, cache):
        """After a fault in a cold cache the next run works, and leaves what a first one does."""
        outcomes, _ = self.ground.run(scenario, cache)
        problems = [f"next run: {problem}" for problem in self.judge(scenario, "", outcomes, False)]
        found, right = content(cache), self.ground.unharmed[scenario]["cache"]
        if found != right:
            problems.append(f"the cache has {found - right}, has not {right - found}")
        return problems

    def choose(self, scenario, total):
        """Which calls are to fail: all, or so many, evenly."""
        if self.options.nth:
            return [int(nth) for nth in self.options.nth.split(",")]
        cold = SCENARIOS[scenario].cold
        points = self.options.cold_points if cold else self.options.points
        wanted = min(total, points) if points else total
        return sorted({1 + number * total // wanted for number in range(wanted)})

    def case(self, scenario, role):
        """All calls of a role, or as many as are to be tried; returns what is wrong."""
        ground = self.ground
        for needed in ("root", scenario):
            ground.prepare(needed)
        _, (total, _, _) = ground.run(scenario, ground.cache_of(scenario), role)
        before = ground.snapshot()
        chosen = self.choose(scenario, total)
        problems = [] if chosen else [f"no call of {role}"]
        for nth in chosen:
            problems += self.point(scenario, role, nth, before)
        tried, known = self.points.get(role, (0, 0))
        self.points[role] = (tried + len(chosen), known + total)
        outcomes, _ = ground.run(scenario, ground.cache_of(scenario))
        found = self.judge(scenario, "", outcomes, False)
        return problems + [f"a normal run after all: {problem}" for problem in found]


def parse_options(arguments):
    """The command line of this program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    every = wants_all()
    parser.add_argument(
        "--points", type=int, default=40 if every else 25, help="at most so many of a role; 0: all"
    )
    parser.add_argument(
        "--cold-points", type=int, default=15 if every else 2, help="the same with an empty cache"
    )
    parser.add_argument("--only", help="cases, as SCENARIO-ROLE with commas")
    parser.add_argument("--nth", help="these calls, with commas")
    parser.add_argument("--verbose", action="store_true", help="print every point")
    return parser.parse_args(arguments)


def choose_cases(options):
    """The cases to run, as scenarios and roles."""
    every = [(name, role) for name, scenario in SCENARIOS.items() for role in scenario.roles]
    if options.only:
        wanted = options.only.split(",")
        return [(name, role) for name, role in every if f"{name}-{role}" in wanted]
    if options.sanitized:
        return [(name, role) for name, role in every if name == "root" and role in SANITIZED]
    return [case for case in every if SCENARIOS[case[0]].part or wants_all()]


def main():
    """Runs the cases; returns the exit status."""
    options = parse_options(sys.argv[1:])
    chosen = choose_cases(options)
    outcomes = report.Report("faults", len(chosen) + 1, options.tap)
    if os.geteuid() != 0:
        outcomes.bail_out("fault injection looks at the whole host and needs root")
        return 1
    with tempfile.TemporaryDirectory(prefix="hutch-faults-", dir="/var/tmp") as folder:
        faults = Faults(Ground(options, pathlib.Path(folder)), options)
        try:
            for scenario, role in chosen:
                start = time.monotonic()
                try:
                    problems = faults.case(scenario, role)
                except Broken as broken:
                    problems = [str(broken)]
                outcomes.done(
                    f"{scenario}-{role}",
                    f"{SCENARIOS[scenario].what}, a call of {role} failing",
                    problems,
                    time.monotonic() - start,
                )
        finally:
            problems = faults.ground.close()
        outcomes.done("nothing-left", "after the faults the host is as before", problems, 0)
    tried = sum(count for count, _ in faults.points.values())
    roles = ", ".join(f"{role} {count} of {of}" for role, (count, of) in faults.points.items())
    print(
        f"# note: fault injection: {tried} points, {roles}; "
        f"{faults.swept} swept by the next run, {faults.weaker} with a layer less, as reported"
    )
    return outcomes.finish()


if __name__ == "__main__":
    sys.exit(main())
