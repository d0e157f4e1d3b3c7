# SPDX-License-Identifier: Apache-2.0
"""Engines with a zygote and parked cells, under load, of which processes are killed.

Each program prints a mark at once, by which one that ran is known, and then what is
known beforehand. An engine that nothing is done to runs beside the one that is hurt.
"""

import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time

from ground import kill_until

import host  # of ../escape, whose path ground has added

THREADS = 4
OWNERS = (None, "a")  # each has a pool
PARKED = 2  # of each
IN_POOLS = PARKED * len(OWNERS)
BURST = 24  # requests around a kill
KILL_SECONDS = 0.15  # about what they take
LIMIT_SECONDS = 60  # for an answer, whatever was killed
SETTLE_SECONDS = 30

SHORT = "import os; os.write(1, b'{n} '); print({n} * 3)"
LONG = "import os; os.write(1, b'{n} '); x = sum(range(1000000)); print({n} * 3)"
BESIDE_EACH = 8  # one request to the engine beside for so many

# How many requests a kill may harm. Of a zygote none: where it is of no help, an
# interpreter of its own is. Its PID 1 takes along the cells that run, and those that
# are handed over before their death is noticed.
MAY_HARM = {
    "zygote": 0,
    "zygote-init": THREADS + IN_POOLS,
    "maker": 0,
    "parked": 1,
    "parked-init": 1,
    "running": 1,
    "running-init": 1,
    "supervisor": THREADS,
    "engine": 0,  # of those that it answered
}
# Where the program's own process is the one that is killed, the result says so. With
# a zygote's PID 1 the kernel kills all at once.
KILLED_RESULTS = ("parked", "running", "zygote-init")


class Gone(Exception):
    """The engine has ended."""


class Engine:
    """The program door, with requests on their way."""

    def __init__(self, command, threads=THREADS):
        self.process = subprocess.Popen(
            [*command, "--threads", str(threads), "--parked", str(PARKED)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.answers = queue.Queue()
        self.waiting = {}  # line -> what was asked
        self.lines = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.answers.put(json.loads(line))
        self.answers.put(None)

    def send(self, request, what):
        """Sends a request; what: given back with its answer."""
        line = request if isinstance(request, str) else json.dumps(request)
        self.lines += 1
        self.waiting[self.lines] = what
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone from None

    def answer(self):
        """The next answer, and what it is the answer to."""
        answer = self.answers.get(timeout=LIMIT_SECONDS)
        if answer is None:
            raise Gone
        return answer, self.waiting.pop(answer["line"])  # a second answer is a KeyError

    def doctor(self):
        """The state of the cells, when nothing else is on its way."""
        self.send("doctor", None)
        return self.answer()[0]["result"]["cells"]

    def close(self):
        """Ends it; its exit status."""
        self.process.stdin.close()
        return self.process.wait(timeout=LIMIT_SECONDS)


def children(pid):
    """The children of a process, whichever of its threads made them."""
    files = pathlib.Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for file in files for child in host.read(file).split()]


def link(path):
    """Where a link leads to; empty when it is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


class Family:
    """The processes of an engine at one moment, by what they are."""

    def __init__(self, engine):
        self.engine = [engine]
        self.supervisor = []
        self.members = {}  # pid -> pid namespace
        self.dead = []  # nobody has waited for them yet
        found = {name: [] for name in MAY_HARM}
        for pid in children(engine):
            if re.search(r"^Name:\thutch-superv", host.read(f"/proc/{pid}/status"), re.MULTILINE):
                self.supervisor.append(pid)
        roles = {}  # pid namespace -> first process, interpreters
        depth = 1 + len(re.search(r"^NSpid:\t(.*)$", host.read("/proc/self/status"), re.MULTILINE)[1].split())
        for pid in (pid for parent in self.supervisor for pid in children(parent)):
            status = host.read(f"/proc/{pid}/status")
            pids = re.search(r"^NSpid:\t(.*)$", status, re.MULTILINE)
            namespace = link(f"/proc/{pid}/ns/pid")
            if "State:\tZ" in status:
                self.dead.append(pid)
            if not pids or not namespace or "State:\tZ" in status:
                continue
            self.members[pid] = namespace
            inits, interpreters = roles.setdefault(namespace, ([], []))
            if pids[1].split()[-1] == "1":
                inits.append(pid)
            elif status.startswith("Name:\thutch-superv"):
                found["maker"].append(pid)
            elif "CapEff:\t0000000000200000" in status and len(pids[1].split()) == depth:
                found["zygote"].append(pid)  # and not a child of it that is on its way
                found["zygote-init"] = inits
            else:
                interpreters.append(pid)
        # Of a zygote that is gone PID 1 stays as long as a cell lies in its namespaces.
        self.hosts = sum(1 for _, interpreters in roles.values() if not interpreters)
        self.hosts -= len(found["zygote"])
        for inits, interpreters in roles.values():
            for pid in interpreters:
                kind = "parked" if link(f"/proc/{pid}/fd/1").endswith("/null") else "running"
                found[kind].append(pid)
                found[f"{kind}-init"] += inits
        self.found = {**found, "engine": self.engine, "supervisor": self.supervisor}

    @property
    def pids(self):
        """All of them."""
        return {*self.engine, *self.supervisor, *self.members}

    def is_complete(self):
        """Whether there is what there is between requests, and nothing else."""
        counts = {name: len(pids) for name, pids in self.found.items()}
        return not self.dead and counts == {
            "engine": 1,
            "supervisor": 1,
            "zygote": 1,
            "zygote-init": 1,
            "maker": 1,
            "parked": IN_POOLS,
            "parked-init": IN_POOLS,
            "running": 0,
            "running-init": 0,
        }


def holdings(supervisor):
    """What a supervisor holds: descriptors but those of used network namespaces, these,
    mounts."""
    links = [link(f"/proc/{supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor}/fd")]
    nets = [name for name in links if name.startswith("net:") or name.endswith("/net/sockstat")]
    mounts = host.read(f"/proc/{supervisor}/mountinfo").count("\n")
    return {"descriptors": len(links) - len(nets), "mounts": mounts}, len(nets)


def right(number):
    """What a program prints."""
    return f"{number} {number * 3}\n"


class WarmKills:
    """Kills of warm cells, and what became of the requests."""

    def __init__(self, ground, door, random):
        self.ground = ground
        self.random = random
        self.command = [str(door), "--helper-dir", str(ground.helpers)]
        self.command += ["--cache-dir", str(ground.caches[0])]
        self.command += ["--python", str(ground.python / "bin" / "python3")]
        self.counts = {}
        self.asked = 0
        self.harmed = 0
        self.engine = None
        self.held = None
        self.beside = Engine(self.command, threads=1)
        self.start()

    def start(self):
        """A new engine, whose pool is full."""
        self.engine = Engine(self.command)
        problems = self.recover("start")
        if problems:
            raise RuntimeError(problems)
        self.held, _ = holdings(Family(self.engine.process.pid).supervisor[0])

    # ---- requests ----

    def ask(self):
        """Sends one of the programs."""
        self.asked += 1
        request = {"code": self.random.choice((SHORT, SHORT, LONG)).format(n=self.asked)}
        owner = OWNERS[self.asked % len(OWNERS)]
        if owner:
            request["owner"] = owner
        if self.random.random() < 0.05:
            request["disk_mb"] = 8  # which no parked cell has
        self.engine.send(request, self.asked)

    def ask_beside(self):
        """Asks the engine that nothing is done to."""
        self.asked += 1
        self.beside.send({"code": SHORT.format(n=self.asked), "owner": "other"}, self.asked)

    def take_beside(self):
        """Takes all of its answers; what is wrong with them."""
        answers = [self.beside.answer() for _ in list(self.beside.waiting)]
        return [
            f"the engine beside: {answer}"
            for answer, number in answers
            if answer.get("result", {}).get("stdout") != right(number)
        ]

    def take(self, target):
        """Takes an answer; what is wrong with it."""
        answer, number = self.engine.answer()
        result, error = answer.get("result"), answer.get("error")
        if error:
            self.harmed += 1
            return self.judge_error(target, number, error, answer["printed"])
        if (result["stdout"], result["exit_code"], result["error"]) == (right(number), 0, None):
            self.count("right")
            return []
        self.harmed += 1
        self.count("killed")
        killed = (result["exit_code"], result["signal"], result["error_type"])
        if (
            target not in KILLED_RESULTS
            or killed != (137, "SIGKILL", "runtime_error")
            or not right(number).startswith(result["stdout"])
        ):
            return [f"neither right nor killed: {result}"]
        return []

    def judge_error(self, target, number, error, printed):
        """An error of hutch."""
        self.count("not started" if error["retry_safe"] else "outcome unknown")
        problems = []
        if error["code"] != "helper_failed":
            problems.append(f"error of another kind: {error}")
        if error["retry_safe"] and printed:
            problems.append(f"{number} has run, and is called safe to retry: {error}")
        if not error["retry_safe"] and not target.endswith(("-init", "supervisor")):
            problems.append(f"the outcome is known: {error}")
        if target == "supervisor" and "gave" in error["message"]:
            problems.append(f"it is dead: {error}")
        return problems

    def count(self, verdict):
        """Adds one to the outcomes of a kind."""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1

    # ---- kills ----

    def kill(self, target, moment):
        """Kills at the moment, or as soon as the target is there; whether it was."""
        time.sleep(moment)  # a moment is a moment: nothing is waited for
        end = time.monotonic() + KILL_SECONDS
        while time.monotonic() < end:
            pids = Family(self.engine.process.pid).found[target]
            if pids:
                try:
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                    return True
                except ProcessLookupError:
                    pass
        return False

    def burst(self, target, moment):
        """Requests, and a kill amidst them; whether it met somebody, and what was wrong."""
        problems = []
        landed = []
        killer = threading.Thread(target=lambda: landed.append(self.kill(target, moment)))
        killer.start()
        try:
            for number in range(BURST):
                if number % BESIDE_EACH == 0:
                    self.ask_beside()
                self.ask()
                if number >= 2 * THREADS:
                    problems += self.take(target)
            while self.engine.waiting:
                problems += self.take(target)
        except Gone:
            if target != "engine":
                problems.append("the engine has ended")
        killer.join()
        return landed[0], problems

    def one(self, target):
        """One kill; None when there was nobody to be killed."""
        self.harmed = 0
        landed, problems = self.burst(target, self.random.uniform(0, KILL_SECONDS))
        if target == "engine" and landed:
            status = self.engine.process.wait(timeout=LIMIT_SECONDS)
            if status != -signal.SIGKILL:
                problems.append(f"the engine ended with {status}")
            problems += self.left(())
            self.start()
        else:
            problems += self.recover(target)
        if self.harmed > MAY_HARM[target]:
            problems.append(f"one kill has harmed {self.harmed} requests")
        problems += self.take_beside()
        return problems if landed or problems else None

    def case(self, target, wanted):
        """Kills of one kind until so many have met a living process."""
        return kill_until(lambda: self.one(target), wanted)

    # ---- afterwards ----

    def recover(self, target):
        """Until the pool is full again; what is wrong then."""
        problems = []

        def is_full():
            family = Family(self.engine.process.pid)
            return family.is_complete() and self.engine.doctor()["warm"][0]["parked"] == IN_POOLS

        for _ in range(2 * len(OWNERS)):  # from the second on it is worth it
            self.ask()
            problems += self.take(target)
        if not host.until(is_full, LIMIT_SECONDS):
            family = Family(self.engine.process.pid)
            state = f"{self.engine.doctor()}, {family.found}, dead: {family.dead}"
            return [*problems, f"the pool is not full again: {state}"]
        for _ in range(IN_POOLS):
            self.ask()
            problems += self.take("none")
        return problems + self.left((self.engine,))

    def left(self, engines):
        """What there is beside what living engines need."""
        found = []

        def is_clean():
            families = [Family(engine.process.pid) for engine in (self.beside, *engines)]
            known = set().union(*(family.pids for family in families))
            processes = [p for p in self.ground.host.processes() if p.pid not in known]
            groups = self.groups_left(families)
            found[:] = [f"left: {kind}: {things}" for kind, things in (
                ("processes", processes),
                ("cgroups", groups),
                ("records", self.ground.records()),
                ("mounts", self.ground.host.snapshot_of("mounts") - self.ground.state["mounts"]),
            ) if things]
            for family in families[1:]:
                found.extend(self.held_too_much(family))
            return not found

        host.until(is_clean, SETTLE_SECONDS)
        return found

    def groups_left(self, families):
        """Cgroups of no living supervisor; more cells than the hurt engine has."""
        alive = {str(family.supervisor[0]): family for family in families if family.supervisor}
        cells = {}
        left = []
        for path in map(pathlib.Path, self.ground.host.snapshot_of("cgroups")):
            own = re.search(r"/hutch-(\d+)-[0-9a-f]+(/cell-\d+)?$", str(path))
            if not own:
                continue
            if own[1] not in alive:
                left.append(str(path))
            elif own[2]:
                cells.setdefault((own[1], path.parent), []).append(path.name)
        most = {
            str(family.supervisor[0]): IN_POOLS + 1 + family.hosts
            for family in families[1:]
            if family.supervisor
        }
        return left + [
            f"{folder}: {names}"
            for (supervisor, folder), names in cells.items()
            if supervisor in most and len(names) > most[supervisor]
        ]

    def held_too_much(self, family):
        """What the hurt engine holds that it did not hold at first."""
        if not family.is_complete():
            return [f"not as between requests: {family.found}, dead: {family.dead}"]
        held, nets = holdings(family.supervisor[0])
        if self.held and not family.hosts and any(held[name] > self.held[name] for name in held):
            return [f"the supervisor holds {held}, at first {self.held}"]
        if nets > 2 * (IN_POOLS + 32):  # in use, and waiting to be used again (net.h)
            return [f"the supervisor holds {nets} descriptors of network namespaces"]
        return []

    def close(self):
        """Ends both engines; what is wrong."""
        statuses = [engine.close() for engine in (self.engine, self.beside)]
        return [f"an engine ended with {status}" for status in statuses if status]
