#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the suite itself, without hutch.

Every operator and macro of the expectation language passes and fails where it
should; the YAML files load; rows.txt names every row of the conformance list
and only cases that exist, and layers.txt every case that needs a layer. Prints TAP.
"""

import pathlib
import re
import sys

import cases
import doors
import expect
import report
import steps

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "escape"))
import escape_cases  # noqa: E402

INTEGRATION = pathlib.Path(__file__).resolve().parent.parent / "integration"
ROWS_FILE = pathlib.Path(__file__).resolve().parent / "rows.txt"
LAYERS_FILE = ROWS_FILE.with_name("layers.txt")
# How many rows each part of the conformance list has.
ROWS = {
    "PY": 50,
    "JS": 21,
    "SH": 15,
    "SE": 28,
    "FI": 19,
    "LI": 20,
    "NE": 12,
    "IS": 22,
    "CO": 11,
    "AG": 12,
    "MC": 11,
    "OU": 23,
}
LATER = {
    "http",
    "microvm",
    "network",
    "mcp",
}

GOOD = {
    "stdout": "hello\n",
    "stderr": "",
    "exit_code": 0,
    "signal": None,
    "timed_out": False,
    "error_type": None,
    "error": None,
    "value": None,
    "results": [],
    "results_dropped": 0,
    "files": [],
    "truncated": False,
    "stdout_bytes": 6,
    "stderr_bytes": 0,
    "duration_ms": 12.5,
    "queue_ms": 0,
    "cpu_ms": 9,
    "peak_memory_bytes": 1 << 20,
    "backend": "namespace",
    "language": "python",
    "layers": ["user_ns", "seccomp"],
    "run_id": "0123456789abcdef0123456789abcdef",
}
TIMED_OUT = {
    **GOOD,
    "exit_code": -1,
    "timed_out": True,
    "error_type": "timeout",
    "duration_ms": 1100,
    "error": {"type": "Timeout", "message": "timeout_seconds 1 is over", "line": None},
}
MEMORY = {
    **GOOD,
    "exit_code": 137,
    "signal": "SIGKILL",
    "error_type": "resource_limit",
    "error": {"type": "MemoryLimit", "message": "memory_mb 64 is used up", "line": None},
}
RAISED = {
    **GOOD,
    "exit_code": 1,
    "error_type": "runtime_error",
    "error": {"type": "KeyError", "message": "'k'", "line": 3},
    "stderr": "Traceback (most recent call last):\n  x\nKeyError: 'k'\n",
    "stderr_bytes": 53,
}

GATED = {
    **GOOD,
    "exit_code": -2,
    "error_type": "validation_error",
    "error": {"type": None, "message": "Static analysis rejected code: x", "line": 1},
    "stdout": "",
    "stdout_bytes": 0,
    "stderr": "Static analysis rejected code: x\n",
    "stderr_bytes": 33,
}


def outcome(result=None, **changes):
    """An outcome with a result, as a door would give it."""
    if result is None:
        return doors.Outcome(seconds=2.0, **changes)
    return doors.Outcome(result={**result, **changes}, seconds=2.0)


def check_matchers():
    """(expected, actual that matches, actual that does not), one a row."""
    table = [
        ("x", "x", "y"),
        (1, 1, 2),
        (1, 1.0, True),
        (True, True, 1),
        (None, None, 0),
        ({"match": "^a.c$"}, "abc", "abd"),
        ({"full": "a+"}, "aaa", "aab"),
        ({"match": "a"}, "a", None),
        ({"contains": ["a", "b"]}, "xaxb", "xa"),
        ({"contains": "seccomp"}, ["seccomp"], ["landlock"]),
        ({"contains": "a"}, "a", None),
        ({"absent": ["a", "b"]}, "xyz", "xyb"),
        ({"absent": "a"}, None, "a"),
        ({"between": [1, 3]}, 2.5, 3.5),
        ({"between": [1, 3]}, 1, None),
        ({"one_of": ["a", {"match": "b"}]}, "xbx", "c"),
        ({"not": "a"}, "b", "a"),
        ({"length": {"between": [1, 2]}}, "ab", "abc"),
        ({"length": 0}, "", None),
        ({"lines": ["a", {"match": "b"}]}, "a\nxb\n", "a\nxb\nc\n"),
        ({"lines": ["a"]}, "a\n", "a"),
        ({"match": "a", "absent": "b"}, "a", "ab"),
    ]
    for expected, good, bad in table:
        if not expect.matches(expected, good):
            yield f"{expected} does not match {good!r}"
        if expect.matches(expected, bad):
            yield f"{expected} matches {bad!r}"


def check_macros():
    """(expectation, outcome that fulfils it, outcomes that do not), one a row."""
    ok = {"is": "OK", "stdout": "hello\n"}
    refused = doors.Outcome(
        error={
            "code": "invalid_request",
            "message": "memory_mb: 63 is not 64 or more",
            "retry_safe": True,
        }
    )
    missing = doors.Outcome(
        error={"code": "layer_missing", "message": "m", "retry_safe": True},
        exit_status=125,
        stderr=b"hutch: m\n",
    )
    usage = doors.Outcome(
        error={"message": "hutch: -m 63"}, exit_status=2, stderr=b"hutch: -m 63\n"
    )
    table = [
        (
            ok,
            outcome(GOOD),
            [
                outcome(GOOD, stdout="hello"),
                outcome(GOOD, stderr="noise"),
                outcome(GOOD, value="1"),
                outcome(GOOD, exit_code=1),
                outcome(GOOD, truncated=True),
                outcome(GOOD, signal="SIGHUP"),
                outcome(GOOD, error_type="runtime_error"),
                outcome(TIMED_OUT),
                refused,
            ],
        ),
        (
            {"is": "TIMEOUT(1)", "stdout": "hello\n"},
            outcome(TIMED_OUT),
            [
                outcome(GOOD),
                outcome(TIMED_OUT, duration_ms=900),
                outcome(TIMED_OUT, duration_ms=6500),
                outcome(TIMED_OUT, error=None),
                outcome(TIMED_OUT, error={**TIMED_OUT["error"], "message": "11 seconds, 1.5"}),
                outcome(TIMED_OUT, error={**TIMED_OUT["error"], "line": 1}),
            ],
        ),
        (
            {"is": "LIMIT(memory, 64)", "stdout": "hello\n"},
            outcome(MEMORY),
            [
                outcome(GOOD),
                outcome(TIMED_OUT),
                outcome(MEMORY, error=None),
                outcome(MEMORY, error={**MEMORY["error"], "message": "memory_mb 640 is used up"}),
                outcome(MEMORY, error={**MEMORY["error"], "message": "disk_mb 64 is used up"}),
            ],
        ),
        (
            {"is": "ERR(KeyError)", "stdout": "hello\n"},
            outcome(RAISED),
            [
                outcome(GOOD),
                outcome(RAISED, stderr=""),
                outcome(RAISED, error=None),
                outcome(RAISED, stderr=RAISED["stderr"] + "in /usr/lib/hutch/runner.pyc"),
            ],
        ),
        (
            {"is": "EXIT(3)"},
            outcome(GOOD, stdout="", exit_code=3, error_type="runtime_error"),
            [outcome(GOOD, stdout=""), outcome(RAISED, stdout="", stderr="", exit_code=3)],
        ),
        (
            {"is": "SIGNAL(SIGTERM)", "stdout": "hello\n"},
            outcome(GOOD, exit_code=143, signal="SIGTERM", error_type="runtime_error"),
            [outcome(GOOD, exit_code=143, error_type="runtime_error"), outcome(MEMORY)],
        ),
        (
            {"is": "REJECTED"},
            outcome(GATED),
            [
                outcome(GOOD),
                outcome(RAISED),
                outcome(GATED, stdout="x"),
                outcome(GATED, stderr=""),
                outcome(GATED, exit_code=126),
                outcome(GATED, error_type="runtime_error"),
                outcome(GATED, error=None),
            ],
        ),
        (
            {"is": "SYNTAX(SyntaxError)", "stdout": "hello\n"},
            outcome(
                RAISED,
                error_type="syntax_error",
                error={**RAISED["error"], "type": "SyntaxError"},
                stderr="SyntaxError: x\n",
            ),
            [outcome(RAISED), outcome(GOOD)],
        ),
        (
            {"is": "IMPORT(ImportError)", "stdout": "hello\n"},
            outcome(
                RAISED,
                error_type="import_error",
                error={**RAISED["error"], "type": "ImportError"},
                stderr="Traceback (most recent call last):\nImportError: x\n",
            ),
            [outcome(RAISED), outcome(GOOD)],
        ),
        ({"is": "REFUSED(memory_mb)"}, refused, [outcome(GOOD), missing]),
        (
            {"is": "REFUSED(memory_mb)"},
            usage,
            [
                doors.Outcome(error={"message": "x"}, exit_status=2, stderr=b"hutch: x\n"),
                doors.Outcome(error=usage.error, exit_status=125, stderr=usage.stderr),
                doors.Outcome(
                    error=usage.error, exit_status=2, stderr=b"hutch: -m 63\nusage: ...\n"
                ),
            ],
        ),
        (
            {"is": "ERROR(layer_missing)"},
            missing,
            [
                outcome(GOOD),
                refused,
                usage,
                doors.Outcome(error=missing.error, exit_status=0, stderr=missing.stderr),
            ],
        ),
        ({"any_of": [{"is": "EXIT(9)"}, ok]}, outcome(GOOD), [outcome(RAISED)]),
    ]
    for expectation, good, bad in table:
        for problem in expect.check(expectation, good):
            yield f"{expectation}: {problem}"
        for number, wrong in enumerate(bad):
            if not expect.check(expectation, wrong):
                yield f"{expectation} accepts wrong outcome {number}"


def check_forms():
    """Every rule about the form of a result notices its breach."""
    for good in (GOOD, TIMED_OUT, MEMORY, RAISED, GATED):
        yield from expect.check_form(outcome(good))
    bad = [
        {"stdout": None},
        {"exit_code": True},
        {"exit_code": 300},
        {"exit_code": 0, "error_type": "timeout"},
        {"exit_code": -2, "error_type": "runtime_error"},
        {"exit_code": 1, "error_type": "validation_error"},
        {"timed_out": True},
        {"signal": "SIGTERM"},
        {"signal": "SIGNONE", "exit_code": 129},
        {"error_type": "strange", "exit_code": 1},
        {"exit_code": 1},
        {"run_id": "x"},
        {"duration_ms": -1},
        {"duration_ms": 5000},
        {"layers": ["moat"]},
        {"layers": ["seccomp"] * 2},
        {"stdout_bytes": 7},
        {"language": "shell"},
        {"error": {"type": "X", "message": "m", "line": 1}},
        {"exit_code": 1, "error_type": "runtime_error", "error": {"type": "X", "message": "m"}},
        {
            "exit_code": 1,
            "error_type": "runtime_error",
            "error": {"type": "X", "message": "m", "line": 0},
        },
    ]
    for changes in bad:
        if not expect.check_form(outcome(GOOD, **changes)):
            yield f"the form accepts {changes}"
    missing = dict(GOOD)
    del missing["cpu_ms"]
    if not expect.check_form(doors.Outcome(result=missing, seconds=2.0)):
        yield "the form accepts a missing field"
    if not expect.check_form(doors.Outcome(result=GOOD, seconds=2.0, exit_status=1)):
        yield "the form accepts a wrong exit status"


def read_rows():
    """rows.txt as a dictionary: row -> (list of FILE:ID, list of later works)."""
    rows = {}
    for number, line in enumerate(ROWS_FILE.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row, *parts = line.split("|")[0].split()
        later = [work.strip() for work in line.partition("| later:")[2].split(",") if work.strip()]
        not_offered = line.endswith("| not offered")
        if row in rows or not (parts or later or not_offered):
            raise ValueError(f"rows.txt:{number}: '{line}'")
        rows[row] = (parts, later)
    return rows


def check_rows():
    """rows.txt and the cases agree, and no row is forgotten."""
    rows = read_rows()
    every = [f"{part}{n:02d}" for part, count in ROWS.items() for n in range(1, count + 1)]
    if list(rows) != every:
        yield f"rows.txt differs from the list: {sorted(set(rows) ^ set(every)) or 'order'}"
    known = {
        f"{name}:{case.id}": case.row for name, group in cases.load_all().items() for case in group
    }
    known |= escape_cases.all_rows()
    listed = set()
    for row, (parts, later) in rows.items():
        for part in parts:
            listed.add(part)
            if part.startswith("test_"):
                name, _, test = part.partition(":")
                if f"def {test}(" not in (INTEGRATION / name).read_text():
                    yield f"{row}: no test {part}"
            elif part not in known:
                yield f"{row}: no case {part}"
            elif known[part] != row:
                yield f"{row}: case {part} is of row {known[part]}"
        if not set(later) <= LATER:
            yield f"{row}: unknown later work {sorted(set(later) - LATER)}"
    for part, row in known.items():
        if row != "own" and part not in listed:
            yield f"case {part} of row {row} is not in rows.txt"


def read_layers():
    """layers.txt as a dictionary: FILE:ID -> the layers that it needs."""
    needs = {}
    for number, line in enumerate(LAYERS_FILE.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words, _, reason = line.partition(";")
        case, *layers = words.split()
        if case in needs or len(reason.split()) < 3:
            raise ValueError(f"layers.txt:{number}: '{line}'")
        needs[case] = set(layers)
    return needs


def check_layers():
    """layers.txt has every case that needs a layer, with what it needs."""
    needs = {
        f"{name}:{case.id}": set(case.needs)
        for name, group in cases.load_all().items()
        for case in group
        if case.needs
    }
    needs |= escape_cases.all_needs()
    listed = read_layers()
    for case in sorted({*needs, *listed}):
        if needs.get(case) != listed.get(case):
            yield f"{case} needs {needs.get(case)}, listed are {listed.get(case)}"


def check_within():
    """Expectations follow the layers that are there."""
    body = {"expect": {"is": "OK", "stdout": "a"}, "without": {"cgroup_cpu": {"stdout": "b"}}}
    case = cases.Case("x", "own", "x", frozenset(), False, body)
    for layers, stdout in (({"cgroup_cpu"}, "a"), (set(), "b")):
        expectation = case.within(layers).body["expect"]
        if expectation != {"is": "OK", "stdout": stdout}:
            yield f"with {layers}: {expectation}"


class Answers:
    """A session that gives these outcomes, one to each exec, and is its own door."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.interrupts = 0

    def open_session(self, _options):
        return self

    def start(self, _request):
        given = self.outcomes.pop(0)
        return lambda _patience=0: None if self.interrupts < given[1] else given[0]

    def interrupt(self):
        self.interrupts += 1

    def info(self):
        return {"language": "python"}

    def close(self):
        return []


def check_sessions():
    """Every step of a session is looked at, and what it says of its session too."""
    good = {**GOOD, "restored": False, "state_lost": False, "late_output": ""}
    ok = {"request": {}, "expect": {"is": "OK", "stdout": "hello\n"}}
    unnamed = {name: value for name, value in good.items() if name != "state_lost"}
    table = [
        ([ok, ok], [good, good], True),
        ([ok, ok], [good, {**good, "stdout": "other"}], False),
        ([ok], [{**good, "restored": True}], False),
        ([ok], [{**good, "late_output": "x"}], False),
        ([ok], [unnamed], False),
        ([{**ok, "expect": {**ok["expect"], "restored": True}}], [{**good, "restored": True}], True),
        ([{**ok, "expect": {**ok["expect"], "restored": True}}], [good], False),
        ([{"together": [ok, ok]}], [good, good], True),
        ([{"together": [ok, ok]}], [good, {**good, "value": "1"}], False),
        ([{"op": "info", "expect": {"language": "python"}}], [], True),
        ([{"op": "info", "expect": {"language": "shell"}}], [], False),
        ([{"op": "interrupt"}, {"pause": 0}, ok], [good], True),
        ([{**ok, "meanwhile": "interrupt"}], [good], True),
    ]
    for list_of_steps, results, holds in table:
        meddled = sum("meanwhile" in step for step in list_of_steps) * 2
        door = Answers(*((outcome(result), meddled) for result in results))
        session = {"steps": list_of_steps}
        steps.validate(session)
        if bool(steps.run(session, door)) == holds or door.outcomes or door.interrupts < meddled:
            yield f"{list_of_steps} with {results}: expected to {'hold' if holds else 'fail'}"
    for bad in ({"request": {}, "pause": 1}, {"op": "x"}, {"meanwhile": "x", "op": "info"}, {"x": 1}):
        try:
            steps.validate({"steps": [bad]})
            yield f"{bad} is taken for a step"
        except ValueError:
            pass


def check_verdicts():
    """A hostile program that did not run, or not all of it, fails."""
    attempts = {"one": ["EPERM", "~EACCES|EROFS"], "two": ["0"]}
    table = [
        ("t one EPERM\nt two 0\nt dump:x 6869\nt end 2\n", True),
        ("t one EROFS\nt two 0\nt end 2\n", True),
        ("", False),
        ("t end 0\n", False),
        ("t one EPERM\nt end 1\n", False),
        ("t one EPERM\nt two 0\n", False),
        ("t one done\nt two 0\nt end 2\n", False),
        ("t one EPERM\nt one EPERM\nt two 0\nt end 3\n", False),
        ("t one EPERM\nt two 0\nt three 0\nt end 3\n", False),
        ("t one EPERM\nt two 0\nt end 5\n", False),
        ("x one EPERM\nt one EPERM\nt two 0\nt end 2\n", False),
        ("t one EACCESS\nt two 0\nt end 2\n", False),
    ]
    for text, good in table:
        verdicts = escape_cases.parse_verdicts(text, "t")
        problems = escape_cases.check_verdicts(verdicts, attempts)
        if good == bool(problems):
            yield f"{text!r}: {problems}"
    if escape_cases.parse_verdicts("t dump:x 6869\nt dump:x 6a\n", "t").dumps != {"x": b"hij"}:
        yield "dumps are not put together"
    if escape_cases.expand_name("a-{1..2}-{x,y}") != ["a-1-x", "a-1-y", "a-2-x", "a-2-y"]:
        yield "names are not expanded"


def check_promises():
    """Every case says what it promises in a line of its own."""
    seen = {}
    groups = {**cases.load_all(), "escape": escape_cases.load_all()}
    for name, group in groups.items():
        for case in group:
            if not re.fullmatch(r"[^\n]{10,120}", case.promise):
                yield f"{name}:{case.id}: promise {case.promise!r}"
            if case.promise in seen:
                yield f"{name}:{case.id}: same promise as {seen[case.promise]}"
            seen[case.promise] = case.id


def main():
    """Runs the checks; returns the exit status."""
    checks = [
        check_matchers,
        check_macros,
        check_forms,
        check_verdicts,
        check_promises,
        check_rows,
        check_layers,
        check_within,
        check_sessions,
    ]
    outcomes = report.Report("selftest", len(checks), tap=True)
    for check in checks:
        outcomes.done(
            check.__name__.replace("_", "-"), check.__doc__.splitlines()[0], list(check()), 0
        )
    return outcomes.finish()


if __name__ == "__main__":
    sys.exit(main())
