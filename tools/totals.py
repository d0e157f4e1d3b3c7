#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""totals.py SKIPS STEPS BUILD...

Adds up what ran: the TAP file STEPS, and the last `meson test` of each build
folder; in place of a build folder a file SUITE.NAME.tap is what one program
printed. A test program counts by its cases: the TAP it printed, or the JUnit
file junit/NAME.xml that it left in the build folder, else as one. A program
that failed in another way than by a failed case (crash, time limit, no plan,
fewer cases than planned) is a failure of its own, and so is a build folder
without a log.

A skipped case has to be in SKIPS, as SUITE/ID, where ID is its name up to a
colon, or the program's; else it counts as failed. What failed or was skipped is
listed, after the notes of test programs (`# note: TEXT`); the last line is
`N passed, N failed, N skipped`, and the exit status 1 if anything failed or nothing
ran.
"""
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

CASE = re.compile(r"(not )?ok\b\s*(\d*)\s*(?:- )?([^#]*)(?:#\s*((?i:skip)\S*)\s*(.*))?")
NOTE = re.compile(r"^# note: (.*)$", re.MULTILINE)
PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*(?i:skip)\S*\s*(.*))?$")


class Totals:
    def __init__(self, allowed_skips):
        self.allowed_skips = allowed_skips
        self.passed = 0
        self.failures = []
        self.skips = []
        self.notes = []
        self.where = ""

    def add(self, verdict, suite, program, case="", reason=""):
        name = self.where + ": ".join(filter(None, (f"{suite}/{program}", case, reason)))
        if verdict == "pass":
            self.passed += 1
        elif verdict == "fail":
            self.failures.append(name)
        elif f"{suite}/{(case or program).partition(':')[0]}" in self.allowed_skips:
            self.skips.append(name)
        else:
            self.failures.append(f"{name} (skipped, and not in the list of skips)")

    def note(self, text):
        self.notes += [self.where + line for line in NOTE.findall(text)]

    def print(self):
        for line in self.notes:
            print(line)
        for line in self.skips:
            print(f"skipped: {line}")
        for line in self.failures:
            print(f"FAILED: {line}")
        print(f"{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped")


def read_skips(path):
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0] for words in lines if words and not words[0].startswith("#")}


def tap_cases(text):
    """The cases of a TAP text as (verdict, name, reason)."""
    for line in text.splitlines():
        match = CASE.match(line)
        if match:
            bad, number, name, skip, reason = match.groups()
            verdict = "skip" if skip and not bad else "fail" if bad else "pass"
            yield verdict, name.strip() or number, (reason or "").strip()


def junit_cases(path):
    """The same of a JUnit file."""
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name')}".lstrip(".")
        for tag, verdict in (("failure", "fail"), ("error", "fail"), ("skipped", "skip")):
            found = case.find(tag)
            if found is not None:
                yield verdict, name, (found.get("message") or "").split("\n")[0]
                break
        else:
            yield "pass", name, ""


def verdict_of(test, is_tap, cases):
    """What a program's own end adds to its cases: (verdict, reason) or None."""
    failed = any(verdict == "fail" for verdict, _, _ in cases)
    if test["result"] not in ("OK", "SKIP"):
        return None if failed else ("fail", f"{test['result']}, status {test['returncode']}")
    if not is_tap:
        if test["result"] == "SKIP":
            return "skip", (test["stdout"] or "").strip().rpartition("\n")[2]
        return None if cases else ("pass", "")
    plans = [plan for plan in map(PLAN.match, (test["stdout"] or "").splitlines()) if plan]
    if not plans or int(plans[0][1]) != len(cases):
        return "fail", f"{len(cases)} cases, plan {plans[0][1] if plans else 'missing'}"
    return None if cases else ("skip", plans[0][2] or "")


def add_test(totals, test, known, build):
    name = known["name"]
    suite = known["suite"][0].rpartition(":")[2]
    is_tap = known["protocol"] == "tap"
    junit = build / "junit" / f"{name}.xml"
    cases = []
    try:
        if junit.exists():
            cases = list(junit_cases(junit))
        elif is_tap:
            cases = list(tap_cases(test["stdout"] or ""))
            totals.note(test["stdout"] or "")
    except ET.ParseError as error:
        totals.add("fail", suite, name, "", f"{junit}: {error}")
    for verdict, case, reason in cases:
        totals.add(verdict, suite, name, case, reason)
    end = verdict_of(test, is_tap, cases)
    if end:
        totals.add(end[0], suite, name, "", end[1])


def add_build(totals, build):
    log = build / "meson-logs" / "testlog.json"
    tests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = json.loads((build / "meson-info" / "intro-tests.json").read_text())
    # Meson logs "suite / name" where there are several suites.
    by_command = {(test["name"], *test["cmd"]): test for test in known}
    totals.where = f"{build.name}: "
    if not tests:
        totals.add("fail", "meson", "test", "", "no test ran")
    for test in tests:
        name = test["name"].rpartition(" / ")[2]
        add_test(totals, test, by_command[(name, *test["command"])], build)


def add_tap(totals, path):
    suite, _, name = path.stem.partition(".")
    text = path.read_text()
    totals.where = ""
    cases = list(tap_cases(text))
    for verdict, case, reason in cases:
        totals.add(verdict, suite, name, case, reason)
    end = verdict_of({"result": "OK", "stdout": text}, True, cases)
    if end:
        totals.add(end[0], suite, name, "", end[1])


def main(skips, steps, *builds):
    totals = Totals(read_skips(Path(skips)))
    for verdict, name, reason in tap_cases(Path(steps).read_text()):
        totals.add(verdict, "build", name, "", reason)
    for build in map(Path, builds):
        if build.suffix == ".tap":
            add_tap(totals, build)
        else:
            add_build(totals, build)
    totals.print()
    return 1 if totals.failures or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
