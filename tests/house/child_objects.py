#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""child_objects.py ROOT BUILD LIST: plan in the parent, act in the child.

The objects of the sources in LIST run between clone and exec: they use nothing
that allocates, formats, locks or reads a data base.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

from project import end

NOT_THERE = re.compile(
    r"(__)?("
    r"malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|strn?dup|get_?line|getdelim|"
    r"v?[fsd]?n?printf|v?asprintf|v?dprintf|v?[fs]?scanf|f?puts|f?putc|putchar|perror|err_[a-z]+|"
    r"f(open|dopen|close|read|write|flush|gets|seek)|popen|system|open_memstream|"
    r"(open|read|close|scan|fdopen)dir|glob|n?ftw|realpath|get(pw|gr)\w+|getaddrinfo|gethost\w+|"
    r"pthread_\w+|exit|atexit|abort|setlocale|strerror\w*|syslog|getenv|setenv|localtime\w*|"
    r"buf_\w+|json_\w+|seccomp_(init|load|rule_\w+|release)"
    r")(_chk|64)?")


def objects_of(build, sources):
    """Each source's objects, as meson's compile commands name them."""
    found = {source: [] for source in sources}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (Path(entry["directory"]) / entry["file"]).resolve()
        if path in found:
            found[path].append(Path(entry["directory"]) / entry["output"])
    return found


def undefined(path):
    out = subprocess.run(["nm", "-u", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    return [line.split()[-1].partition("@")[0] for line in out.splitlines()]


def main(root, build, listing):
    lines = Path(listing).read_text().splitlines()
    sources = [(Path(root) / line).resolve() for line in lines if line and line[0] != "#"]
    problems, count = [], 0
    for source, objects in objects_of(Path(build), sources).items():
        if not objects:
            problems.append(f"{source}: no object of it in the build")
        for path in objects:
            count += 1
            problems += [f"{source.name}: uses {name}" for name in undefined(path)
                         if NOT_THERE.fullmatch(name)]
    end(problems, count, "object")


main(*sys.argv[1:])
