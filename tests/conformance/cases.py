# SPDX-License-Identifier: Apache-2.0
"""Loading of the YAML cases, and running one of them. README.md has the format."""

import dataclasses
import pathlib
import re

import doors
import expect
import steps
import yaml

FOLDER = pathlib.Path(__file__).resolve().parent
KINDS = {
    "request": {"cli", "c"},
    "raw": {"c"},
    "argv": {"cli"},
    "plain": {"cli"},
    "session": {"cli", "c"},
}
KEYS = {"id", "row", "promise", "doors", "alone", "attempts", "needs", "without", "via", "files", "expect", *KINDS}
COMMAND_KEYS = {"exit", "stdout", "stderr", "json"}


class Loader(yaml.SafeLoader):
    """YAML with one tag more: !py, the value of a Python expression."""


def construct_python(loader, node):
    """The value of the expression that a !py tag holds."""
    return eval(loader.construct_scalar(node))


Loader.add_constructor("!py", construct_python)


@dataclasses.dataclass
class Case:
    """One case: a promise of hutch, and how it is checked."""

    id: str
    row: str
    promise: str
    doors: frozenset
    alone: bool
    body: object  # the YAML mapping, or a function of special.py
    attempts: int = 1
    needs: tuple = ()  # names of layers

    def within(self, layers):
        """The case as it stands for a host that has these layers only."""
        without = {} if callable(self.body) else self.body.get("without", {})
        expectation = dict(self.body["expect"]) if without else None
        for layer, changes in without.items():
            if layer not in layers:
                expectation.update(changes)
        if not without:
            return self
        return dataclasses.replace(self, body={**self.body, "expect": expectation})

    def run(self, door, context):
        """Runs the case through a door; returns what does not hold."""
        for _ in range(self.attempts):
            problems = self.run_once(door, context)
            if not problems:
                break
        return problems

    def run_once(self, door, context):
        """One attempt."""
        if callable(self.body):
            return self.body(door, context)
        if "request" in self.body:
            return run_request(self.body, door)
        if "session" in self.body:
            return steps.run(self.body["session"], door)
        if "raw" in self.body:
            return expect.check(self.body["expect"], door.send(self.body["raw"]))
        return run_command(self.body, door)


def run_request(body, door):
    """The same request through whatever door, and its result as JSON."""
    request = body["request"]
    problems = []
    for via in body.get("via", [None]):
        outcome = door.run(request, via)
        found = expect.check(body["expect"], outcome)
        found += expect.check_form(outcome, request.get("language", "python"))
        problems += [f"via {via}: {problem}" if via else problem for problem in found]
    return problems


def run_command(body, door):
    """A command line as it is; what it prints and how it exits."""
    if "plain" in body:
        outcome = door.plain(body["plain"])
    else:
        with doors.open_folder() as folder:
            for name, content in body.get("files", {}).items():
                doors.CliDoor._write(folder, name, content)
            outcome = door.execute([str(a) for a in body["argv"]], cwd=folder)
    return check_command(body["expect"], outcome)


def check_command(expectation, outcome):
    """Compares exit status and streams of a command."""
    expected = {"stdout": "", "stderr": "", **expectation}
    problems = []
    if not expect.matches(expected["exit"], outcome.exit_status):
        problems.append(f"exit status: expected {expected['exit']}, got {outcome.exit_status}")
    if "json" in expected:
        expected.pop("stdout")
        problems += expect.check(expected["json"], doors.CliDoor.parse(outcome))
    for stream in ("stdout", "stderr"):
        if stream in expected:
            value = expected[stream]
            raw = getattr(outcome, stream)
            actual = raw if isinstance(value, bytes) else raw.decode(errors="replace")
            if not expect.matches(value, actual):
                problems.append(f"{stream}: expected {value!r:.300}, got {actual!r:.400}")
    return problems


# ---- loading ---------------------------------------------------------------


def _doors_of(body):
    """The doors that can take a case at all."""
    kinds = [kind for kind in KINDS if kind in body]
    if len(kinds) != 1:
        raise ValueError(f"needs exactly one of {sorted(KINDS)}")
    possible = set(KINDS[kinds[0]])
    if "session" in body:
        possible &= steps.possible_doors(body["session"])
    request = body.get("request")
    if request is not None:
        known = {
            "code",
            "language",
            "stdin",
            "env",
            "timeout_seconds",
            "memory_mb",
            "cpus",
            "backend",
            "require",
            "gate",
            "tidy",
            "files",
        }
        if not isinstance(request, dict) or not set(request) <= known:
            possible.discard("cli")
        if not isinstance(request.get("gate", True), bool):  # lists of its own
            possible.discard("cli")
        if "code" in request and isinstance(request.get("stdin"), bytes):
            possible.discard("c")
    wanted = set(body.get("doors", possible))
    if not wanted <= possible:
        raise ValueError(f"cannot be run through {sorted(wanted - possible)}")
    return frozenset(wanted)


def _leave_time_to_print(body):
    """Refuses an expectation of output that a busy machine may not print in time."""
    request = body.get("request") or body.get("plain") or {}
    seconds = request.get("timeout_seconds", 30) if isinstance(request, dict) else 30
    expected = body["expect"]
    times_out = "TIMEOUT" in str(expected.get("is")) or expected.get("exit") == 124
    if times_out and seconds < 2.5 and expected.get("stdout"):
        raise ValueError("output is expected within less than 2.5 s")


def _validate(body):
    unknown = set(body) - KEYS
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", body["id"]):
        raise ValueError("an id has lower-case words and hyphens only")
    if body.get("attempts", 1) > 1 and not body.get("alone"):
        raise ValueError("'attempts' is for cases that run alone")
    if not {*body.get("needs", ()), *body.get("without", ())} <= set(expect.LAYERS):
        raise ValueError("'needs' and 'without' have names of layers")
    if "session" in body:
        if {"expect", "without", "via", "files"} & set(body):
            raise ValueError("each step of a session has its own 'expect', and nothing beside")
        steps.validate(body["session"])
        for expectation in steps.expectations(body["session"]):
            _check_choices(expectation)
        return
    _leave_time_to_print(body)
    expectation = body["expect"]
    if "argv" in body or "plain" in body:
        if not set(expectation) <= COMMAND_KEYS or "exit" not in expectation:
            raise ValueError("a command expects 'exit', and 'stdout', 'stderr' or 'json'")
        return
    _check_choices(expectation)


def _check_choices(expectation):
    choices = expectation.get("any_of", [expectation])
    for choice in choices:
        merged = expect.expand(
            {k: v for k, v in {**expectation, **choice}.items() if k != "any_of"}
        )
        if "exit_code" not in merged and "failure.code" not in merged:
            raise ValueError("an expectation says which exit_code or which error")


def load_file(path):
    """The cases of one YAML file."""
    cases = []
    for body in yaml.load(path.read_text(), Loader):
        try:
            _validate(body)
            cases.append(
                Case(
                    body["id"],
                    body["row"],
                    body["promise"],
                    _doors_of(body),
                    body.get("alone", False),
                    body,
                    body.get("attempts", 1),
                    tuple(body.get("needs", ())),
                )
            )
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"{path.name}: case {body.get('id')}: {problem!r}") from None
    return cases


def load_all():
    """Every case of this folder by file name; ids are unique across all of them."""
    import special  # needs the classes above

    files = {path.name: load_file(path) for path in sorted(FOLDER.glob("*.yaml"))}
    files["special.py"] = [Case(**fields) for fields in special.REGISTERED]
    seen = {}
    for name, cases in files.items():
        for case in cases:
            if case.id in seen:
                raise ValueError(f"{name}: case {case.id} is also in {seen[case.id]}")
            seen[case.id] = name
    return files
