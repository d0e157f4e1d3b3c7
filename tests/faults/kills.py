#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kills.py: kill -9 at random moments.

The engine, the supervisor, hutch-init or the interpreter is killed at a moment
that is drawn from the time that a run takes, of the command line and of engine.c,
which then goes on with the same engine. Never is a success claimed that was none;
an error says whether the program may have run; nothing stays on the host, and the
next run works. The same for the processes of warm cells, under load (warm.py). The
seed of the moments is printed.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from ground import Broken, Ground, add_options, kill_until, problems_of_result, wants_all

import host  # of ../escape, whose path ground has added
import report
import warm

LIMIT_SECONDS = 60  # for the end of a run, whatever was killed
CODE = "print('begin', flush=True); sum(range(2000000)); print('end'); 6 * 7"  # as in engine.c
RIGHT = {"stdout": "begin\nend\n", "exit_code": 0, "error_type": None, "value": "42"}


def children(pid):
    """The children of a process."""
    return [int(child) for child in host.read(f"/proc/{pid}/task/{pid}/children").split()]


def find(engine, target):
    """The process of that name below an engine; None while there is none."""
    if target == "engine":
        return engine
    for supervisor in children(engine):
        status = host.read(f"/proc/{supervisor}/status")
        if not re.search(r"^Name:\thutch-superv", status, re.MULTILINE):
            continue
        if target == "supervisor":
            return supervisor
        for child in children(supervisor):
            pids = re.search(r"^NSpid:(.*)$", host.read(f"/proc/{child}/status"), re.MULTILINE)
            in_cell = pids[1].split()[1:] if pids else []
            if in_cell and (in_cell[-1] == "1") == (target == "hutch-init"):
                return child
    return None


class Kills:
    """Kills, and what became of the runs."""

    def __init__(self, ground, hutch, seed):
        self.ground = ground
        self.random = random.Random(seed)
        self.commands = {
            "hutch": [hutch, "run", "--json", "-c", CODE],
            "libhutch": ground.command("kills", ground.caches[0]),
        }
        self.environment = dict(os.environ, HUTCH_CACHE_DIR=str(ground.options.cache_dir))
        self.length = {}
        self.counts = {}
        for door, command in self.commands.items():
            subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE)
            start = time.monotonic()
            subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE)
            self.length[door] = time.monotonic() - start

    def start(self, door):
        """A run that has just begun."""
        return subprocess.Popen(
            self.commands[door],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def kill(self, process, target, moment):
        """Kills at the moment, or as soon as the target is there; whether it was."""
        end = time.monotonic() + moment
        while process.poll() is None:
            pid = find(process.pid, target)
            left = end - time.monotonic()
            if pid is None or left > 0:
                try:
                    process.wait(timeout=min(max(left, 0.0005), 0.002))
                except subprocess.TimeoutExpired:
                    continue
            elif self.shoot(pid):
                return True
        return False

    @staticmethod
    def shoot(pid):
        """SIGKILL; whether there was still somebody to get it."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    # ---- what came of it ----

    def count(self, verdict):
        """Adds one to the outcomes of a kind."""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1

    def judge(self, door, target, process, stdout, stderr):
        """What is wrong with what a run of which one process was killed said."""
        if target == "engine" and process.returncode == -signal.SIGKILL:
            self.count("engine gone")
            return self.judge_torn(door, stdout)
        if door == "hutch":
            return self.judge_hutch(target, process.returncode, stdout, stderr)
        if process.returncode != 0:
            return [f"exit status {process.returncode}: {stderr.decode()}"]
        *outcomes, left = [json.loads(line) for line in stdout.splitlines()]
        problems = [f"left in the engine: {left['left']}"] if any(left["left"].values()) else []
        right = self.ground.unharmed["kills"]["results"]
        harmed = 0
        for outcome in outcomes:
            if "error" in outcome:
                found = self.judge_error(target, outcome["error"], outcome["printed"])
                harmed += 1
            elif problems_of_result(outcome["result"], right[outcome["run"]]):
                found = self.judge_killed(target, outcome["result"])
                harmed += 1
            else:
                self.count("right")
                continue
            problems += found
        if len(outcomes) != 2 or harmed > 1:
            problems.append(f"one kill has harmed {harmed} of {len(outcomes)} runs: {outcomes}")
        return problems

    def judge_torn(self, door, stdout):
        """An engine that was killed has said nothing, or the truth."""
        if door != "hutch" or not stdout.endswith(b"\n"):
            return []
        return problems_of_result(json.loads(stdout), RIGHT)

    def judge_hutch(self, target, status, stdout, stderr):
        """The same for the command line, with its exit status."""
        answer = json.loads(stdout)
        if "error" in answer and set(answer) == {"error"}:
            problems = self.judge_error(target, answer["error"], False)
            if status != 125 or not re.fullmatch(rb"hutch: [^\n]+\n", stderr):
                problems.append(f"exit status {status}, stderr {stderr!r}")
            return problems
        if not problems_of_result(answer, RIGHT):
            self.count("right")
            return [] if status == 0 else [f"exit status {status} of a success"]
        problems = self.judge_killed(target, answer)
        return problems if status == 137 else [*problems, f"exit status {status}"]

    def judge_error(self, target, error, printed):
        """An error of hutch."""
        self.count("not started" if error["retry_safe"] else "outcome unknown")
        problems = []
        if error["code"] not in ("helper_failed", "isolation_unavailable"):
            problems.append(f"error of another kind: {error}")
        if error["code"] == "isolation_unavailable" and target == "supervisor":
            problems.append(f"error of another kind: {error}")
        if error["retry_safe"] and printed:
            problems.append(f"it has run, and is called safe to retry: {error}")
        return problems

    def judge_killed(self, target, result):
        """A program that was killed, in its own right."""
        self.count("killed")
        killed = {"exit_code": 137, "signal": "SIGKILL", "error_type": "runtime_error"}
        if target != "interpreter" or {name: result[name] for name in killed} != killed:
            return [f"neither right nor killed: {result}"]
        return []

    def one(self, door, target, before):
        """One kill; None when the run was over before it."""
        moment = self.random.uniform(0, 1.1 * self.length[door])
        process = self.start(door)
        try:
            landed = self.kill(process, target, moment)
            stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return [f"no end within {LIMIT_SECONDS} s"]
        if not landed:
            return None
        problems = self.judge(door, target, process, stdout, stderr)
        after = subprocess.run(
            self.commands["hutch"], env=self.environment, check=False, stdout=subprocess.PIPE
        )
        if after.returncode != 0 or problems_of_result(json.loads(after.stdout), RIGHT):
            problems.append(f"the next run does not work: {after}")
        problems += self.ground.left(before)
        return [f"after {moment * 1000:.1f} ms: {problem}" for problem in problems]

    def case(self, door, target, wanted):
        """Kills of one process until so many have met a living one."""
        before = self.ground.snapshot()
        return kill_until(lambda: self.one(door, target, before), wanted)


def kill_cold(kills, outcomes, cases, wanted):
    """Kills of runs that have an interpreter of their own."""
    for door, target in cases:
        start = time.monotonic()
        outcomes.done(
            f"{door}-{target}",
            f"kill -9 of {target} under {door}",
            kills.case(door, target, wanted),
            time.monotonic() - start,
        )


def kill_warm(kills, outcomes, wanted):
    """Kills of zygotes, parked cells and what is around them."""
    try:
        for target in warm.MAY_HARM:
            start = time.monotonic()
            outcomes.done(
                f"warm-{target}",
                f"kill -9 of {target} under load",
                kills.case(target, wanted),
                time.monotonic() - start,
            )
    finally:
        problems = kills.close()
    outcomes.done("warm-end", "the engines of the warm cells end well", problems, 0)


def note(name, kills, count, seed):
    """One line for the log."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(kills.counts.items()))
    print(f"# note: {name}: {count}, seed {seed}; {counts}", flush=True)


def main():
    """Runs the cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--hutch", type=pathlib.Path, required=True, help="the program hutch")
    parser.add_argument("--cache-dir", type=pathlib.Path, required=True, help="of the program")
    parser.add_argument("--door", type=pathlib.Path, required=True, help="the program door")
    parser.add_argument(
        "--kills",
        type=int,
        default=200 if wants_all() else 20,
        help="how many of cold cells, and how many of warm ones",
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    cases = [
        (door, target)
        for door in ("hutch", "libhutch")
        for target in ("engine", "supervisor", "hutch-init", "interpreter")
    ]
    outcomes = report.Report("faults", len(cases) + len(warm.MAY_HARM) + 2, options.tap)
    print(f"# seed {options.seed}", flush=True)
    cold_each = -(-options.kills // len(cases))
    warm_each = -(-options.kills // len(warm.MAY_HARM))
    with tempfile.TemporaryDirectory(prefix="hutch-kills-", dir="/var/tmp") as folder:
        ground = Ground(options, pathlib.Path(folder))
        try:
            ground.prepare("kills")
            kills = Kills(ground, options.hutch.resolve(), options.seed)
            kill_cold(kills, outcomes, cases, cold_each)
            note("kills", kills, cold_each * len(cases), options.seed)
            kills = warm.WarmKills(ground, options.door.resolve(), random.Random(options.seed))
            kill_warm(kills, outcomes, warm_each)
            note("warm kills", kills, warm_each * len(warm.MAY_HARM), options.seed)
        finally:
            problems = ground.close()
        outcomes.done("nothing-left", "after the kills nothing is left", problems, 0)
    return outcomes.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as broken:
        sys.exit(f"kills: {broken}")
