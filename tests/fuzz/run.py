#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run.py PROGRAM NAME BUILD: runs the fuzz target NAME, with a report in TAP.

First its seeds (seeds.py), then inputs that libFuzzer makes of them: always the
same for two seconds at most, or, with HUTCH_FUZZ_SECONDS, others each time for so
long. In BUILD/fuzz/NAME are kept: corpus/, the inputs that led to new code, which
the next run begins with, and crashes/, the inputs that failed.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from seeds import seeds, words

SHORT = ["-seed=1", "-runs=100000", "-max_total_time=2"]
LIMITS = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=4096"]


def run(program, *args):
    """The exit status and what was said. A sanitizer's finding ends the program."""
    environment = {"ASAN_OPTIONS": "abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    result = subprocess.run([program, *args], env={**os.environ, **environment}, text=True,
                            errors="replace", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode, result.stdout


def tell(number, what, good, said):
    print(f"{'ok' if good else 'not ok'} {number} - {what}")
    if not good:
        for line in said.splitlines()[-60:]:
            print(f"# {line}")


def write_inputs(name, folder):
    """The seeds as files; and the option that tells libFuzzer the target's words."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, seed in enumerate(seeds(name)):
        (folder / f"{number:03}").write_bytes(seed)
    if not words(name):
        return []
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in words(name))
    dictionary = folder.parent / "words"
    dictionary.write_text("".join(f'"{word}"\n' for word in quoted))
    return [f"-dict={dictionary}"]


def main(program, name, build):
    work = Path(build) / "fuzz" / name
    dictionary = write_inputs(name, work / "seeds")
    for folder in ("corpus", "crashes"):
        (work / folder).mkdir(exist_ok=True)
    seconds = os.environ.get("HUTCH_FUZZ_SECONDS")
    length = [f"-max_total_time={seconds}"] if seconds else SHORT
    common = [*LIMITS, f"-artifact_prefix={work}/crashes/"]

    print("1..2")
    files = sorted((work / "seeds").iterdir())
    status, said = run(program, *common, *files)
    seeds_good = status == 0 and bool(files)
    tell(1, f"{len(files)} seeds", seeds_good, said)
    status, said = run(program, *common, *length, *dictionary, "-print_final_stats=1",
                       work / "corpus", work / "seeds")
    count = re.search(r"stat::number_of_executed_units:\s+(\d+)", said)
    runs = int(count[1]) if count else 0
    tell(2, f"{runs} runs", status == 0 and runs > len(files), said)
    return 0 if seeds_good and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
