#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""headers.py ROOT BUILD: every header compiles alone, with the project's flags.

The flags are those of the first C file in BUILD's compile_commands.json, without
banned.h, whose system headers would hide a missing include. The public headers
also compile as C99 and as C++11, pedantic, with both compilers' own flags.
"""
import json
import shlex
import subprocess
import sys
from pathlib import Path

from project import end, files

STANDARDS = [
    ["gcc", "-x", "c", "-std=c99"],
    ["clang-14", "-x", "c", "-std=c99"],
    ["clang-14", "-x", "c++", "-std=c++11"],
]


def project_flags(build):
    """The compile command of one file, without its input, outputs and banned.h."""
    entry = json.loads((build / "compile_commands.json").read_text())[0]
    words = shlex.split(entry["command"])
    flags, skip = [], 0
    for i, word in enumerate(words):
        if skip:
            skip -= 1
        elif word in ("-o", "-MF", "-MQ") or words[i:i + 1] == ["-include"]:
            skip = 1
        elif word not in ("-c", "-MD", entry["file"]):
            flags.append(word)
    return [*flags, "-x", "c"], entry["directory"]


def compile_alone(command, header, cwd):
    """What the compiler says about a file that only includes the header."""
    result = subprocess.run(
        [*command, "-Werror", "-fsyntax-only", "-"], cwd=cwd, text=True,
        input=f'#include "{header}"\n', stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.stdout if result.returncode else None


def main(root, build):
    root = Path(root).resolve()
    flags, cwd = project_flags(Path(build))
    public = sorted((root / "include").glob("*.h"))
    headers = [root / "src" / header for header in files(root / "src", "*.h")] + public
    problems = [compile_alone([*flags, f"-I{root}/src", f"-I{root}/include"], header, cwd)
                for header in headers]
    for command in STANDARDS:
        problems += [compile_alone([*command, "-Wall", "-Wextra", "-pedantic",
                                    f"-I{root}/include"], header, cwd) for header in public]
    end(list(filter(None, problems)), len(headers), "header")


main(*sys.argv[1:])
