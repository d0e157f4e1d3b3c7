#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""symbols.py ROOT BUILD: what leaves the library is what the header declares.

The symbols that libhutch.so defines, those of src/sandbox/libhutch.map and the
functions declared HUTCH_PUBLIC in include/hutch.h are the same, and all of them
begin with hutch_. The same goes for an archive libhutch.a, if one is installed.
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


def archives(build):
    installed = json.loads((build / "meson-info/intro-installed.json").read_text())
    return [path for path in installed if path.endswith("/libhutch.a")]


def mapped(path):
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", path.read_text(), flags=re.S)
    names = re.search(r"global:(.*?)(local:|\})", text, re.S)[1]
    return {name.strip() for name in names.split(";") if name.strip()}


def declared(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return set(re.findall(r"HUTCH_PUBLIC\b(?! __attr)[^;(]*?(\w+)\s*\(", text))


def main(root, build):
    libraries = [path for path in Path(build).rglob("libhutch.so*")
                 if path.is_file() and not path.is_symlink() and path.suffix != ".symbols"]
    if len(libraries) != 1:
        print(f"one libhutch.so expected in {build}, found {len(libraries)}")
        sys.exit(1)
    root = Path(root)
    public = declared(root / "include/hutch.h")
    sets = {
        "libhutch.so": defined("-D", libraries[0]),
        "libhutch.map": mapped(root / "src/sandbox/libhutch.map"),
    }
    for path in archives(Path(build)):
        sets["libhutch.a"] = defined("-g", path)
    problems = [f"{name} does not begin with hutch_" for name in sorted(public)
                if not name.startswith("hutch_")]
    for where, names in sets.items():
        problems += [f"{where} lacks {name}" for name in sorted(public - names)]
        problems += [f"{where} has {name}, which hutch.h does not declare"
                     for name in sorted(names - public)]
    end(problems, len(public), "symbol")


main(*sys.argv[1:])
