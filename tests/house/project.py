# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the project's files, and how a check ends."""
import subprocess
import sys
from pathlib import Path

FILES = Path(__file__).resolve().parents[2] / "tools" / "files.sh"


def files(root, *patterns):
    """The project's files below root whose name matches, as relative Paths."""
    out = subprocess.run([FILES, root, *patterns], check=True, stdout=subprocess.PIPE).stdout
    return sorted(Path(name.decode()) for name in out.split(b"\0") if name)


def end(problems, count, things):
    """Prints the problems and ends the check; one that looked at nothing fails."""
    for problem in problems:
        print(problem)
    if not count:
        print(f"no {things} found to check")
    sys.exit(1 if problems or not count else 0)
