#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""session_kills.py: kill -9 in sessions at random moments.

An engine has two sessions. In one an exec runs, and the interpreter, its copy, hutch-init,
the supervisor or the engine is killed at a moment that is drawn from a little more than the
time that the exec takes. Each exec says which state it found. So what results claim, that
the state was kept, restored or lost, is compared with what is there; an error says whether
the exec may have run, and that the session is over; the other session knows nothing of it;
and afterwards nothing is left on the host. The seed of the moments is printed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import queue
import random
import re
import signal
import sys
import tempfile
import time

from ground import Broken, Ground, add_options, kill_until, wants_all

import host  # of ../escape, whose path ground has added
import report
import warm

TARGETS = ("interpreter", "copy", "hutch-init", "supervisor", "engine")
VICTIM, BESIDE = 0, 1
STATE = 1  # that the exec makes of 0
WORK = {"short": 1000, "long": 1000000}
CODE = """import os
os.write(1, b'begin ')
found = globals().get('state')
state = {state}
x = sum(range({work}))
print(found, state)"""
LOOK = "print(globals().get('state'))"
CHANNEL_FD = 1000  # wire.h: the interpreter has it, a copy has not
OVER = ("session_expired", "helper_failed")


def processes_of(namespace):
    """The processes of a cell by what they are."""
    found = {"interpreter": None, "copy": None, "hutch-init": None}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if warm.link(f"/proc/{pid}/ns/pid") != namespace:
            continue
        status = host.read(f"/proc/{pid}/status")
        pids = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
        if not pids or "State:\tZ" in status:
            continue
        if pids[1].split()[-1] == "1":
            found["hutch-init"] = pid
        elif warm.link(f"/proc/{pid}/fd/{CHANNEL_FD}"):
            found["interpreter"] = pid
        else:
            found["copy"] = pid
    return found


class Hurt:
    """An engine with two sessions, to one of which something will be done."""

    def __init__(self, command):
        self.engine = warm.Engine(command)
        self.state = 0  # of the victim's session; None: it was lost
        for number in (VICTIM, BESIDE):
            self.ask(f"session {number} open 0 0 1 {json.dumps({'code': ' '})}")
        self.ask(self.line(BESIDE, "state = 'beside'"))
        self.ask(self.line(VICTIM, "import os; state = 0"))
        looked = self.ask(self.line(VICTIM, "print(os.readlink('/proc/self/ns/pid'))"))
        self.namespace = looked["result"]["stdout"].strip()
        family = warm.Family(self.engine.process.pid)
        self.pids = {"engine": self.engine.process.pid, "supervisor": family.supervisor[0]}
        self.pids.update(processes_of(self.namespace))

    @staticmethod
    def line(number, code):
        """A line for the program door."""
        return f"session {number} exec {json.dumps({'code': code})}"

    def ask(self, line):
        """A line's answer."""
        self.engine.send(line, None)
        return self.engine.answer()[0]

    def length(self, work):
        """What an exec takes."""
        start = time.monotonic()
        self.ask(self.line(VICTIM, CODE.format(state=0, work=WORK[work])))
        return time.monotonic() - start

    def shoot(self, target, moment):
        """Kills, after a moment: nothing is waited for. Whether there was somebody."""
        time.sleep(moment)
        pid = processes_of(self.namespace)["copy"] if target == "copy" else self.pids[target]
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, TypeError):
            return False
        return True

    # ---- what is claimed, and what is there ----

    def claim(self, result):
        """Takes what a result says of the state that its exec found, or left behind."""
        if result["state_lost"]:
            self.state = None

    def judge_result(self, target, result):
        """A result of the exec that was to make a state; what is wrong with it."""
        if result["exit_code"] == 0:
            problems = []
            self.claim(result)  # of what came before it
            if (result["stdout"], result["error"]) != (f"begin {self.state} {STATE}\n", None):
                problems.append(f"a success that was none, of state {self.state}: {result}")
            self.state = STATE
            return problems
        return self.judge_killed(target, result)

    def judge_killed(self, target, result):
        """A result of an exec whose interpreter was killed."""
        killed = (result["exit_code"], result["signal"], result["error_type"])
        if target != "interpreter" or killed != (137, "SIGKILL", "runtime_error"):
            return [f"neither right nor killed: {result}"]
        problems = []
        if not f"begin {self.state} {STATE}\n".startswith(result["stdout"]):
            problems.append(f"killed, and printed something else: {result}")
        if not result["restored"] and not result["state_lost"]:
            problems.append(f"killed, and its state was kept: {result}")
        self.claim(result)
        return problems

    def judge_error(self, target, answer):
        """An error instead of the result."""
        error = answer["error"]
        problems = []
        if target not in ("hutch-init", "supervisor") or error["code"] not in OVER:
            problems.append(f"error of another kind: {error}")
        if error["retry_safe"] and answer["printed"]:
            problems.append(f"it has run, and is called safe to retry: {error}")
        self.engine.send(self.line(VICTIM, LOOK), None)
        after = self.engine.answer()[0]
        if after.get("error", {}).get("code") not in OVER or not after["error"]["retry_safe"]:
            problems.append(f"the session is not over: {after}")
        return problems

    def look(self, target):
        """One more exec; what is wrong with what it says and finds."""
        answer = self.ask(self.line(VICTIM, LOOK))
        if "error" in answer:
            return self.judge_error(target, answer)
        result = answer["result"]
        if result["exit_code"] != 0:  # the interpreter died as it came
            return self.judge_killed(target, result) + self.look(target)
        self.claim(result)
        if result["stdout"] != f"{self.state}\n":
            return [f"the state is not {self.state}: {result}"]
        return []

    def look_beside(self, target):
        """What is wrong with the other session."""
        answer = self.ask(self.line(BESIDE, LOOK))
        if target == "supervisor" and answer.get("error", {}).get("code") in OVER:
            return []
        result = answer.get("result") or {}
        if (result.get("stdout"), result.get("restored"), result.get("state_lost")) != (
            "beside\n",
            False,
            False,
        ):
            return [f"the session beside: {answer}"]
        return []

    def close(self):
        """Ends what is left; the engine's exit status."""
        with contextlib.suppress(BrokenPipeError):
            self.engine.process.stdin.close()
        return self.engine.process.wait(timeout=warm.LIMIT_SECONDS)


class SessionKills:
    """Kills, and what became of the execs."""

    def __init__(self, ground, door, seed):
        self.ground = ground
        self.random = random.Random(seed)
        self.command = [str(door), "--helper-dir", str(ground.helpers)]
        self.command += ["--cache-dir", str(ground.caches[0])]
        self.command += ["--python", str(ground.python / "bin" / "python3")]
        self.counts = {}
        Hurt(self.command).close()  # the first one makes the tree of files

    def count(self, answer):
        """Adds one to the outcomes of a kind."""
        result = answer.get("result")
        if result is None:
            verdict = "not started" if answer["error"]["retry_safe"] else "outcome unknown"
        else:
            verdict = "right" if result["exit_code"] == 0 else "killed"
            verdict += ", restored" if result["restored"] else ""
            verdict += ", lost" if result["state_lost"] else ""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1

    def judge(self, hurt, target):
        """Takes the answer, and looks at what there is; what is wrong."""
        answer, _ = hurt.engine.answer()
        self.count(answer)
        if "error" in answer:
            problems = hurt.judge_error(target, answer)
        else:
            problems = hurt.judge_result(target, answer["result"])
            problems += hurt.look(target)
        return problems + hurt.look_beside(target)

    def hurt_one(self, hurt, target, work, moment):
        """A kill in an exec; None when there was nobody."""
        code = CODE.format(state=STATE, work=WORK[work])
        hurt.engine.send(hurt.line(VICTIM, code), None)
        landed = hurt.shoot(target, moment)
        try:
            problems = self.judge(hurt, target)
        except queue.Empty:
            return [f"no answer within {warm.LIMIT_SECONDS} s"]
        except warm.Gone:
            if target != "engine":
                return ["the engine has ended"]
            self.counts["engine gone"] = self.counts.get("engine gone", 0) + 1
            problems = []
        return problems if landed else None

    def one(self, target, before):
        """One kill, of an engine of its own."""
        work = self.random.choice(list(WORK))
        hurt = Hurt(self.command)
        moment = self.random.uniform(0, 1.5) * hurt.length(work)
        try:
            problems = self.hurt_one(hurt, target, work, moment)
        finally:
            status = hurt.close()
        if problems is None:
            return None
        if status != (-signal.SIGKILL if target == "engine" else 0):
            problems.append(f"exit status {status} of the engine")
        problems += self.ground.left(before)
        where = f"{target} after {moment * 1000:.2f} ms of a {work} exec"
        return [f"{where}: {problem}" for problem in problems]

    def case(self, target, wanted):
        """Kills of one process until so many have met a living one."""
        before = self.ground.snapshot()
        return kill_until(lambda: self.one(target, before), wanted)


def main():
    """Runs the cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--door", type=pathlib.Path, required=True, help="the program door")
    parser.add_argument("--kills", type=int, default=200 if wants_all() else 30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    outcomes = report.Report("session-kills", len(TARGETS) + 1, options.tap)
    print(f"# seed {options.seed}", flush=True)
    each = -(-options.kills // len(TARGETS))
    with tempfile.TemporaryDirectory(prefix="hutch-kills-", dir="/var/tmp") as folder:
        ground = Ground(options, pathlib.Path(folder))
        try:
            kills = SessionKills(ground, options.door.resolve(), options.seed)
            for target in TARGETS:
                start = time.monotonic()
                outcomes.done(
                    target,
                    f"kill -9 of {target} under an exec of a session",
                    kills.case(target, each),
                    time.monotonic() - start,
                )
            counts = "; ".join(f"{count} {what}" for what, count in sorted(kills.counts.items()))
            print(f"# note: {each * len(TARGETS)} kills, seed {options.seed}: {counts}", flush=True)
        finally:
            problems = ground.close()
        outcomes.done("nothing-left", "after the kills nothing is left", problems, 0)
    return outcomes.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as broken:
        sys.exit(f"session_kills: {broken}")
