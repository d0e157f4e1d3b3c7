#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""symbols.py ROOT BUILD: what leaves a library is what its header declares.

The symbols that libhutch.so defines, those of src/sandbox/libhutch.map and the
functions declared HUTCH_PUBLIC in include/hutch.h are the same, and all of them
begin with hutch_. The same goes for an archive libhutch.a, if one is installed,
and for libhutch-agent.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

from project import end


def defined(table, library):
    """The global symbols of a library; table is the option of nm that chooses which."""
    out = subprocess.run(["nm", table, "--defined-only", library], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    rows = [line.split() for line in out.splitlines()]
    return {row[2].partition("@")[0] for row in rows if len(row) == 3 and row[1] != "A"}


def archives(build, name):
    installed = json.loads((build / "meson-info/intro-installed.json").read_text())
    return [path for path in installed if path.endswith(f"/{name}.a")]


def mapped(path):
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", path.read_text(), flags=re.S)
    names = re.search(r"global:(.*?)(local:|\})", text, re.S)[1]
    return {name.strip() for name in names.split(";") if name.strip()}


def declared(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return set(re.findall(r"HUTCH_PUBLIC\b(?! __attr)[^;(]*?(\w+)\s*\(", text))


# The libraries: where the map of each is, and its header.
LIBRARIES = {
    "libhutch": ("src/sandbox/libhutch.map", "include/hutch.h"),
    "libhutch-agent": ("src/agent/libhutch-agent.map", "include/hutch-agent.h"),
}


def check(root, build, name):
    """The public symbols of a library, and what is wrong with them."""
    where, header = LIBRARIES[name]
    libraries = [path for path in build.rglob(f"{name}.so*")
                 if path.is_file() and not path.is_symlink() and path.suffix != ".symbols"]
    if len(libraries) != 1:
        print(f"one {name}.so expected in {build}, found {len(libraries)}")
        sys.exit(1)
    public = declared(root / header)
    sets = {
        f"{name}.so": defined("-D", libraries[0]),
        Path(where).name: mapped(root / where),
    }
    for path in archives(build, name):
        sets[f"{name}.a"] = defined("-g", path)
    problems = [f"{symbol} does not begin with hutch_" for symbol in sorted(public)
                if not symbol.startswith("hutch_")]
    for place, symbols in sets.items():
        problems += [f"{place} lacks {symbol}" for symbol in sorted(public - symbols)]
        problems += [f"{place} has {symbol}, which {Path(header).name} does not declare"
                     for symbol in sorted(symbols - public)]
    return public, problems


def main(root, build):
    checked = [check(Path(root), Path(build), name) for name in LIBRARIES]
    end([problem for _, problems in checked for problem in problems],
        sum(len(public) for public, _ in checked), "symbol")


main(*sys.argv[1:])
