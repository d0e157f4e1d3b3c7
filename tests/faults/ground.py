# SPDX-License-Identifier: Apache-2.0
"""What the tests of faults stand on: the programs and their folders, what a run
without a fault gives, and what of the host may not change."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "escape"), str(TESTS / "conformance")]

import host  # noqa: E402

NOBODY = 65534
HANG_SECONDS = 25  # less than any limit of hutch's own that a fault may run into
FIRST_SECONDS = 300  # for the first run of all
SETTLE_SECONDS = 3
RUN_DIR = pathlib.Path("/run/hutch")
USER_RUN_DIR = pathlib.Path(f"/tmp/hutch-{NOBODY}")
# Fields of a result that are the same in each run.
FIELDS = ("stdout", "stderr", "exit_code", "signal", "timed_out", "error_type", "error", "value")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What engine.c does."""

    what: str
    tasks: list
    roles: list  # of inject.c
    options: tuple = ()
    cold: bool = False  # the cache is empty
    part: bool = True  # it is of the part that is tried where there is no time for all


SCENARIOS = {
    "root": Scenario(
        "two runs",
        ["python", "shell"],
        ["engine", "spawn", "supervisor", "setup", "launch", "init"],
    ),
    "user": Scenario(
        "a run of an ordinary user",
        ["shell"],
        ["supervisor", "worker", "setup", "launch"],
        options=("--user", str(NOBODY)),
    ),
    "doctor": Scenario("hutch doctor", ["doctor"], ["engine", "launch"]),
    "build": Scenario("the first shell run of all", ["shell"], ["supervisor", "worker"], cold=True),
    "kills": Scenario("two runs, the first a long one", ["long", "shell"], []),
    "ask": Scenario("the first Python run of all", ["python"], ["ask"], cold=True, part=False),
}


class Broken(Exception):
    """What a fault must not lead to."""


def add_options(parser):
    """Options of every program of this folder."""
    for name in ("inject", "engine", "supervisor", "helper-dir"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--sanitized", action="store_true", help="the build has sanitizers")
    parser.add_argument("--tap", action="store_true", help="print TAP instead of a summary")


def content(cache):
    """The names of all that a cache holds."""
    return {str(path.relative_to(cache)) for path in cache.rglob("*")}


def wants_all():
    """Whether there is time for everything, not only a part."""
    return os.environ.get("HUTCH_FAULTS") == "all"


def problems_of_result(result, right):
    """In which fields a result is not what it should be."""
    return [
        f"{field} is {result[field]!r}, not {right[field]!r}"
        for field in FIELDS
        if field in right and result[field] != right[field]
    ]


def kill_until(one, wanted):
    """
    Kills, each by a call of one, until so many have met a living process; what is wrong.
    One that met none gives None.
    """
    problems = []
    done = 0
    for _ in range(50 * wanted):
        found = one()
        if found is None:
            continue
        problems += found
        done += 1
        if done == wanted:
            return problems
    return [*problems, f"only {done} of {wanted} kills met a living process"]


class Ground:
    """The programs, their folders, and the host."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.host = host.Host()
        self.unharmed = {}
        self.state = self.host.snapshot()
        self.helpers = folder / "helpers"
        shutil.copytree(options.helper_dir, self.helpers)
        shutil.copy(options.supervisor, self.helpers / "hutch-supervisor")
        folder.chmod(0o755)
        # Python without the packages of the distribution: a small tree.
        self.python = folder / "python"
        subprocess.run(
            ["/usr/bin/python3", "-m", "venv", "--without-pip", self.python], check=True
        )
        self.caches = {}
        for uid in (0, NOBODY):
            self.caches[uid] = folder / f"cache-{uid}"
            self.caches[uid].mkdir(mode=0o700)
            os.chown(self.caches[uid], uid, uid)

    def close(self):
        """What is not as it was when all began, but for the run directories."""
        if str(USER_RUN_DIR) not in self.state["leftovers"]:
            shutil.rmtree(USER_RUN_DIR, ignore_errors=True)
        # What goes meanwhile in the shared folders was somebody else's.
        changes = [
            change for change in self.host.differences(self.state) if "leftovers: gone" not in change
        ]
        return changes + self.host.close()

    # ---- running ----

    def command(self, scenario, cache):
        """engine.c for a scenario."""
        paths = ["--helper-dir", str(self.helpers), "--cache-dir", str(cache)]
        paths += ["--python", str(self.python / "bin" / "python3")]
        layers = []
        for name in self.unharmed.get(scenario, {}).get("layers", []):
            layers += ["--require", name]
        chosen = SCENARIOS[scenario]
        return [str(self.options.engine), *paths, *layers, *chosen.options, *chosen.tasks]

    def cache_of(self, scenario):
        """The cache of a scenario; an empty one where it is to be empty."""
        if not SCENARIOS[scenario].cold:
            return self.caches[NOBODY if SCENARIOS[scenario].options else 0]
        cold = self.folder / "cold"
        shutil.rmtree(cold, ignore_errors=True)
        return cold

    def run(self, scenario, cache, role="engine", nth=0, seconds=HANG_SECONDS):
        """Runs a scenario with one fault; returns its outcomes and which call it was."""
        note = self.folder / "note"
        # The leak sanitizer is a tracer too: where a fault ends the tracing it can look.
        environment = dict(os.environ)
        if not nth:
            environment["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
        process = subprocess.Popen(
            [str(self.options.inject), str(note), role, str(nth), *self.command(scenario, cache)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for found in self.host.processes():
                os.kill(found.pid, 9)
            process.communicate()
            raise Broken(f"no end within {seconds} s") from None
        if process.returncode != 0:
            raise Broken(f"exit status {process.returncode}: {stderr.decode()[-2000:]}")
        seen, call, error = note.read_text().split()
        try:
            outcomes = [json.loads(line) for line in stdout.splitlines()]
        except ValueError as problem:
            raise Broken(f"{call} with {error}: {problem}: {stdout.decode()}") from None
        return outcomes, (int(seen), call, error)

    def prepare(self, scenario):
        """Runs a scenario without a fault, to know what is right."""
        if scenario in self.unharmed:
            return
        cache = self.cache_of(scenario)
        outcomes, _ = self.run(scenario, cache, seconds=FIRST_SECONDS)
        results = {outcome["run"]: outcome.get("result") for outcome in outcomes[:-1]}
        if None in results.values():
            raise Broken(f"without a fault: {outcomes}")
        self.unharmed[scenario] = {
            "results": results,
            "layers": results.get("shell", {}).get("layers", []),
            "cache": content(cache),
        }

    # ---- the host ----

    def records(self):
        """Records of supervisors that are no more, of this suite or of nobody."""
        found = set()
        for path in RUN_DIR.glob("supervisor-*"):
            text = host.read(path)
            alive = pathlib.Path("/proc", path.name.split("-")[1]).exists()
            if not alive and (self.host.cgroup in text or not text):
                found.add(str(path))
        return found

    def snapshot(self):
        """What of the host a run may touch."""
        state = {
            kind: self.host.snapshot_of(kind)
            for kind in ("processes", "cgroups", "mounts", "leftovers")
        }
        state["records"] = self.records()
        state["cache"] = {str(path) for cache in self.caches.values() for path in cache.glob("*/*")}
        return state

    def left(self, before, seconds=SETTLE_SECONDS):
        """What is there that was not."""
        found = []

        def clean():
            now = self.snapshot()
            found[:] = [
                f"left on the host: {kind}: {sorted(map(str, now[kind] - before[kind]))}"
                for kind in before
                if now[kind] - before[kind]
            ]
            return not found

        host.until(clean, seconds)
        return found
