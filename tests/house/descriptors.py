#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""descriptors.py ROOT: a descriptor is born close-on-exec.

Every call in src/ that makes descriptors names its close-on-exec flag among its
arguments, or a constant of the same file that holds it, or says `without
O_CLOEXEC` (or whichever flag) and why in a comment on its line; the old calls
that cannot set it are not used.
"""
import re
import sys
from pathlib import Path

from project import end, files

NEEDS = {
    "O_CLOEXEC": ["open", "openat", "pipe2", "mkostemp", "dup3"],
    "SOCK_CLOEXEC": ["socket", "socketpair", "accept4"],
    "MSG_CMSG_CLOEXEC": ["recvmsg"],
    "MFD_CLOEXEC": ["memfd_create"],
    "EFD_CLOEXEC": ["eventfd"],
    "TFD_CLOEXEC": ["timerfd_create"],
    "SFD_CLOEXEC": ["signalfd"],
    "EPOLL_CLOEXEC": ["epoll_create1"],
    "IN_CLOEXEC": ["inotify_init1"],
}
NEVER = ["accept", "creat", "dup", "epoll_create", "inotify_init", "mkstemp", "pipe"]
FLAG_OF = {call: flag for flag, calls in NEEDS.items() for call in calls}
CALL = re.compile(r"(?<![\w.>])(" + "|".join([*FLAG_OF, *NEVER, "fopen"]) + r")\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def arguments(text, start):
    """The text between the parenthesis before start and its partner."""
    depth, i = 1, start
    while depth and i < len(text):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        i += 1
    return text[start:i - 1]


def holders(flag, text):
    """The flag, and the macros and variables of the file whose value holds it."""
    value = rf"#define\s+(\w+)\s[^\n]*\b{flag}\b|\b(\w+)\s*=\s*[^;(]*\b{flag}\b"
    return {flag, *(name for pair in re.findall(value, text) for name in pair if name)}


def problem_with(call, args, line, text):
    if call in NEVER:
        return f"{call} cannot set close-on-exec"
    if call == "fopen":
        return None if re.search(r'"[rwa][^"]*e[^"]*"', args) else "fopen without e"
    flag = FLAG_OF[call]
    if holders(flag, text) & set(re.findall(r"\w+", args)) or f"without {flag}" in line:
        return None
    return f"{call} without {flag}"


def main(root):
    root = Path(root)
    problems, count = [], 0
    for source in files(root / "src", "*.c", "*.h"):
        raw = (root / "src" / source).read_text()
        text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), raw)
        for match in CALL.finditer(text):
            count += 1
            number = text.count("\n", 0, match.start())
            line = raw.splitlines()[number]
            problem = problem_with(match[1], arguments(text, match.end()), line, text)
            if problem:
                problems.append(f"src/{source}:{number + 1}: {problem}")
    end(problems, count, "call")


main(sys.argv[1])
