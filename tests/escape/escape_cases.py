# SPDX-License-Identifier: Apache-2.0
"""The hostile programs and what is safe for each of their attempts.

cases.yaml lists for each program the names of its attempts and the outcomes
that are safe. A program proves that it ran by printing every one of these
names once, with a token that only this run knows; whatever is missing, unknown
or repeated fails the case. What a program dumps is searched for secrets of the
host.
"""

import ctypes
import ctypes.util
import dataclasses
import itertools
import pathlib
import re
import secrets
import sys

import yaml

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "conformance"))
import expect  # noqa: E402

KEYS = {
    "id",
    "row",
    "promise",
    "program",
    "request",
    "attempts",
    "expect",
    "twin",
    "disk",
    "unfinished",
    "needs",
}


@dataclasses.dataclass
class Case:
    """One hostile program, or a procedure of procedures.py."""

    id: str
    row: str
    promise: str
    body: object  # the mapping of cases.yaml, or a function of the suite
    needs: tuple = ()  # names of layers


# ---- attempts and outcomes ---------------------------------------------------


def expand_name(name):
    """kill-{1..3} and open-{a,b} stand for several names."""
    parts = []
    for piece in re.split(r"(\{[^{}]*\})", name):
        span = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", piece)
        if span:
            parts.append([str(n) for n in range(int(span[1]), int(span[2]) + 1)])
        elif piece.startswith("{"):
            parts.append(piece[1:-1].split(","))
        else:
            parts.append([piece])
    return ["".join(choice) for choice in itertools.product(*parts)]


def expand_outcomes(outcomes, sets):
    """The safe outcomes of an attempt; names of sets are replaced by their members."""
    outcomes = outcomes if isinstance(outcomes, list) else [outcomes]
    found = []
    for outcome in map(str, outcomes):
        found += expand_outcomes(sets[outcome], sets) if outcome in sets else [outcome]
    return found


def is_safe(outcome, safe):
    """Whether an outcome is one of the safe ones; ~RE matches as a whole."""
    return any(re.fullmatch(s[1:], outcome) if s.startswith("~") else s == outcome for s in safe)


def expand_attempts(attempts, sets):
    """All names with their safe outcomes."""
    return {
        single: expand_outcomes(outcomes, sets)
        for name, outcomes in attempts.items()
        for single in expand_name(name)
    }


# ---- the verdicts of a run ----------------------------------------------------


@dataclasses.dataclass
class Verdicts:
    """What a program printed, taken apart."""

    reported: list  # (name, outcome)
    dumps: dict  # name -> bytes
    ends: list  # the number of verdicts that the program claims, once
    foreign: list  # lines without the token


def parse_verdicts(stdout, token):
    """Takes a program's standard output apart."""
    verdicts = Verdicts([], {}, [], [])
    for line in stdout.split("\n")[:-1] if stdout.endswith("\n") else stdout.split("\n"):
        words = line.split(" ", 2)
        if words[0] != token or len(words) < 2:
            verdicts.foreign.append(line)
        elif words[1].startswith("dump:"):
            data = bytes.fromhex(words[2]) if len(words) > 2 else b""
            name = words[1][5:]
            verdicts.dumps[name] = verdicts.dumps.get(name, b"") + data
        elif words[1] == "end":
            verdicts.ends.append(int(words[2]))
        else:
            verdicts.reported.append((words[1], words[2] if len(words) > 2 else ""))
    return verdicts


def check_verdicts(verdicts, attempts, unfinished=False):
    """Compares what was reported with the attempts and their safe outcomes."""
    problems = [
        f"{name}: {outcome} (safe: {', '.join(attempts[name])})"
        for name, outcome in verdicts.reported
        if name in attempts and not is_safe(outcome, attempts[name])
    ]
    names = [name for name, _ in verdicts.reported]
    problems += [f"unknown attempt {name}" for name in names if name not in attempts]
    problems += [
        f"{name}: {names.count(name)} verdicts" for name in attempts if names.count(name) > 1
    ]
    silent = [name for name in attempts if name not in names]
    if silent:
        problems.append(
            f"{len(silent)} of {len(attempts)} attempts without a verdict: {', '.join(silent[:8])}"
        )
    if verdicts.ends != ([] if unfinished else [len(names)]):
        problems.append(f"the program's end: {verdicts.ends}, {len(names)} verdicts")
    if verdicts.foreign and not unfinished:
        problems.append(f"lines that are no verdicts: {verdicts.foreign[:3]!r:.300}")
    return problems


# ---- programs -------------------------------------------------------------------


def syscall_numbers(text):
    """The numbers of all system calls whose names occur as strings in a program."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    names = set(re.findall(r'"(_?[a-z][a-z0-9_]+)"', text))
    numbers = {name: library.seccomp_syscall_resolve_name(name.encode()) for name in sorted(names)}
    return {name: number for name, number in numbers.items() if number >= 0}


def compose(program, request=None):
    """A request that runs a hostile program; also returns its token."""
    text = (FOLDER / "programs" / program).read_text()
    request = dict(request or {})
    token = "v" + secrets.token_hex(8)
    request["env"] = {**request.get("env", {}), "VERDICT_TOKEN": token}
    if program.endswith(".sh"):
        request["language"] = "shell"
        request["code"] = (FOLDER / "verdict.sh").read_text() + text + "\nend\n"
    else:
        request["code"] = (
            f"{(FOLDER / 'verdict.py').read_text()}\nNR = {syscall_numbers(text)}\n{text}\nend()\n"
        )
    return request, token


# ---- loading -----------------------------------------------------------------------


def has_sys_resource():
    """Whether root of this host has CAP_SYS_RESOURCE, which containers often lack."""
    status = pathlib.Path("/proc/self/status").read_text()
    return bool(int(re.search(r"CapEff:\s+(\S+)", status)[1], 16) >> 24 & 1)


def load_file(user=None):
    """The cases of cases.yaml, their attempts written out; user: whom hutch is started by."""
    document = yaml.safe_load((FOLDER / "cases.yaml").read_text())
    document["sets"]["WITHOUT_SYS_RESOURCE"] = ["done"] if user or not has_sys_resource() else []
    found = []
    for body in document["cases"]:
        unknown = set(body) - KEYS
        if unknown or not (FOLDER / "programs" / body["program"]).is_file():
            raise ValueError(f"cases.yaml: case {body['id']}: {unknown or 'no such program'}")
        body["attempts"] = expand_attempts(body["attempts"], document["sets"])
        body["twin"] = expand_attempts(body.get("twin", {}), document["sets"])
        body.setdefault("expect", {"is": "OK"})
        expect.expand(body["expect"])
        needs = tuple(body.get("needs", ()))
        found.append(Case(body["id"], body["row"], body["promise"], body, needs))
    return found


def load_all(user=None):
    """Every case, the programs first; ids are unique."""
    import procedures

    every = load_file(user) + [Case(**fields) for fields in procedures.REGISTERED]
    ids = [case.id for case in every]
    twice = {i for i in ids if ids.count(i) > 1}
    if twice:
        raise ValueError(f"ids used twice: {sorted(twice)}")
    return every


def all_rows():
    """FILE:ID -> row of every case, for the check of rows.txt."""
    import procedures

    return {
        **{f"escape/cases.yaml:{case.id}": case.row for case in load_file()},
        **{f"escape/procedures.py:{c['id']}": c["row"] for c in procedures.REGISTERED},
    }


def all_needs():
    """FILE:ID -> layers of every case that needs some, for the check of layers.txt."""
    import procedures

    return {
        **{f"escape/cases.yaml:{case.id}": set(case.needs) for case in load_file() if case.needs},
        **{
            f"escape/procedures.py:{c['id']}": set(c["needs"])
            for c in procedures.REGISTERED
            if c.get("needs")
        },
    }
