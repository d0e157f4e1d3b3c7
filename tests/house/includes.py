#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""includes.py ROOT [BUILD]: includes point left, see LAYERS.

The two backends do not include each other. The guest, which stands left of the
sandbox, uses libc and the wire header only; the wire header needs <stdint.h>
alone, include/hutch.h, which anybody may include, nothing of the project's, and
include/hutch-agent.h, which stands with src/agent, include/hutch.h alone.
"""
import re
import sys
from pathlib import Path

from project import end, files

LAYERS = ["base", "guest", "sandbox", "agent", "pipeline", "server", "cli"]
BACKENDS = {"namespace", "microvm"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
PUBLIC = Path("include/hutch.h")
PUBLIC_AGENT = Path("include/hutch-agent.h")
PUBLIC_AGENT = Path("include/hutch-agent.h")
WIRE = Path("src/sandbox/wire.h")
LIBC = re.compile(
    r"(sys|linux|asm|net|netinet|arpa|bits)/.+\.h|"
    r"(assert|ctype|dirent|elf|endian|errno|fcntl|fnmatch|ftw|glob|grp|inttypes|limits|link|locale|"
    r"math|poll|pthread|pwd|sched|semaphore|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|"
    r"stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syscall|termios|time|unistd|wchar)\.h"
)


def resolve(tops, source, name):
    """The project's file that a quoted or angled name means, or None. The build
    folder, where generated headers lie, is laid out like the source folder."""
    for top in tops:
        for folder in (source.parent, Path("src"), Path("include")):
            if (top / folder / name).is_file():
                return (top / folder / name).resolve().relative_to(top)
    return None


def layer(path):
    """('sandbox', 'namespace') of src/sandbox/namespace/x.c; (None, None) outside src, but
    for the public header of the agent layer."""
    parts = path.parts
    if path == PUBLIC_AGENT:
        return "agent", None
    if parts[0] != "src" or len(parts) < 3:
        return None, None
    return parts[1], parts[2] if len(parts) > 3 else None


def problem_with(source, kind, name, target):
    """Why source may not include this, or None."""
    here, part = layer(source)
    if source == PUBLIC:
        return "the public header includes something of ours" if target else None
    if source == PUBLIC_AGENT and target not in (None, PUBLIC):
        return "the public header of agents includes hutch.h alone of ours"
    if source == WIRE and name != "stdint.h":
        return "the wire header needs <stdint.h> alone"
    if here == "guest":
        if target and target != WIRE and layer(target)[0] != "guest":
            return "the guest uses libc and sandbox/wire.h only"
        return None if target or LIBC.fullmatch(name) else "not a header of libc"
    if kind == '"' and target is None:
        return "no such header in the project"
    if here is None or target is None or target == PUBLIC:
        return None
    there, other = layer(target)
    if there not in LAYERS or LAYERS.index(there) > LAYERS.index(here):
        return f"{here} includes {there or target}, which is not to its left"
    if {part, other} == BACKENDS:
        return "a backend includes the other"
    return None


def main(root, *build):
    root = Path(root).resolve()
    tops = [root, *(Path(folder).resolve() for folder in build)]
    problems, count = [], 0
    for source in files(root, "*.c", "*.h"):
        here, _ = layer(source)
        if here not in (*LAYERS, None):
            problems.append(f"{source}: '{here}' is not a layer")
            continue
        for number, line in enumerate((root / source).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            count += 1
            target = resolve(tops, source, match[2])
            problem = problem_with(source, match[1], match[2], target)
            if problem:
                problems.append(f"{source}:{number}: {line.strip()}: {problem}")
    end(problems, count, "include")


main(*sys.argv[1:])
