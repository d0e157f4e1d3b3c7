# SPDX-License-Identifier: Apache-2.0
"""
Many sessions of one engine, through the C API: what idle ones cost, that they let others
run, and that nothing is left of them.

HUTCH_MANY=all opens as many as a host of 24 GiB has to hold, if this one does.
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import door  # noqa: E402
from door import BUILD, PATIENCE, children  # noqa: E402

NETS_KEPT = 32  # net.h: used network namespaces that wait for a cell of their owner
FIRST, EACH = 250, 25  # sessions until the memory of all threads is as it stays; at once
CYCLES = 1000
MANY = 500 if os.environ.get("HUTCH_MANY") == "all" else 120


class Engine(door.Engine):
    """One with sessions by their numbers."""

    def open(self, number, language="python"):
        like = json.dumps({"code": " ", "language": language})
        return self.send(f"session {number} open 0 0 1 {like}")

    def exec(self, number, code, **fields):
        return self.send(f"session {number} exec " + json.dumps({"code": code, "language": self.language, **fields}))

    def close(self, number):
        return self.send(f"session {number} close")

    def good(self, line):
        """The result of a line, which is no error."""
        answer = self.answer(line)
        self.answers.pop(line)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, line):
        answer = self.answer(line)
        self.answers.pop(line)
        assert "error" in answer, answer
        return answer["error"]

    def scheduler(self):
        return self.ask("doctor")["scheduler"]


@pytest.fixture(name="engine")
def _engine():
    cache = os.environ.get("HUTCH_CACHE_DIR") or str(BUILD / "tests/cache")
    with door.engines(Engine, cache) as made:
        yield made


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def files_of(pid, name):
    return os.listdir(f"/proc/{pid}/{name}")


def groups(supervisor):
    """The cgroups of a supervisor's cells, in all hierarchies."""
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup")
            if f"/hutch-{supervisor}-" in folder and "/cell-" in folder]


def private_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Private_Dirty:\s+(\d+)", text, re.MULTILINE)[1])


def kernel_networks():
    """Network namespaces of the whole host, whoever holds them."""
    text = pathlib.Path("/proc/slabinfo").read_text()
    return int(re.search(r"^net_namespace\s+(\d+)", text, re.MULTILINE)[1])


def held(engine):
    """What an engine and its supervisor hold, but for networks; and these."""
    supervisor = engine.supervisor
    links = []
    for fd in files_of(supervisor, "fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{supervisor}/fd/{fd}"))
    nets = [name for name in links if name.startswith("net:") or name.endswith("/net/sockstat")]
    return {
        "descriptors": len(links) - len(nets),
        "descriptors of the engine": len(files_of(engine.process.pid, "fd")),
        "processes": len(children(supervisor)),
        "threads": len(files_of(engine.process.pid, "task")),
        "mounts": len(pathlib.Path(f"/proc/{supervisor}/mountinfo").read_text().splitlines()),
        "groups": len(groups(supervisor)),
    }, len(nets)


def cycles(engine, count):
    """Opens, uses and closes sessions, some at a time; one in five dies before it is closed."""
    for first in range(0, count, EACH):
        numbers = range(first, first + EACH)
        for line in [engine.open(n % EACH) for n in numbers]:
            engine.good(line)
        for n, line in [(n, engine.exec(n % EACH, f"x = {n}; print(x)")) for n in numbers]:
            assert engine.good(line)["stdout"] == f"{n}\n"
        for n, line in [(n, engine.exec(n % EACH, "import os; os._exit(3)")) for n in numbers if n % 5 == 0]:
            assert engine.good(line)["exit_code"] == 3, n
        for line in [engine.close(n % EACH) for n in numbers]:
            engine.good(line)


def test_a_thousand_sessions_leave_nothing_behind(engine):
    one = engine("--parked", "2", threads=4)
    cycles(one, FIRST)
    one.warm_up(2)
    processes = (one.process.pid, one.supervisor)
    before, _ = held(one)
    memory = [private_kib(pid) for pid in processes]
    networks = kernel_networks()

    cycles(one, CYCLES)

    one.warm_up(2)
    end = time.monotonic() + 60
    while held(one)[0] != before:
        assert time.monotonic() < end, (before, held(one)[0])
        time.sleep(0.02)
    assert held(one)[1] <= 2 * (NETS_KEPT + 3)
    for pid, kib in zip(processes, memory):
        assert private_kib(pid) <= kib + 512
    # Other programs may have some too, and the kernel takes its time.
    until(lambda: kernel_networks() <= networks + 300, 60)
    terms = one.scheduler()
    assert (terms["active"], terms["idle_sessions"], terms["waiting"]) == (0, 0, 0)


def test_idle_sessions_do_not_hold_up_others(engine):
    one = engine("--max-cells", "4", "--queue-timeout", "1", threads=3)
    for line in [one.open(n) for n in range(3)]:
        one.good(line)
    terms = one.scheduler()
    assert (terms["active"], terms["idle_sessions"], terms["held_back_by"]) == (0, 3, None)
    assert one.run("print(1)") == "1\n"
    one.good(one.open(3))
    assert one.scheduler()["held_back_by"] == "cells"

    # No place for another cell, and the error says of what there are how many.
    message = "waited 1 s for a cell: 0 are active, 4 are idle sessions, max_cells is 4"
    for line in (one.open(4), one.send({"code": "print(1)"})):
        error = one.error(line)
        assert (error["code"], error["message"], error["retry_safe"]) == ("too_many_runs", message, True)
    late = one.send({"code": "print(2)"})
    until(lambda: one.scheduler()["waiting"] == 1 or late in one.answers)
    assert one.good(one.exec(0, "print(3)"))["stdout"] == "3\n"
    assert one.error(late)["message"] == message
    one.good(one.close(2))
    assert one.run("print(1)") == "1\n"


def test_an_exec_counts_as_a_run_and_says_how_long_it_waited(engine):
    one = engine(threads=4)
    one.good(one.open(0))
    assert one.good(one.exec(0, "x = 41"))["queue_ms"] < 1000
    slow = one.exec(0, "import time; time.sleep(0.8)")
    until(lambda: one.scheduler()["active"] == 1)
    assert one.scheduler()["idle_sessions"] == 0
    result = one.good(one.exec(0, "print(x + 1)"))
    assert result["stdout"] == "42\n" and result["queue_ms"] > 1
    one.good(slow)


def test_many_idle_sessions(engine):
    """With the default limits; a run beside them, and each still knows its own."""
    one = engine(threads=4)
    places = one.scheduler()["max_cells"]
    count = min(MANY, places - 8)
    for line in [one.open(n) for n in range(count)]:
        one.good(line)
    for n, line in [(n, one.exec(n, f"me = {n}")) for n in range(count)]:
        assert one.good(line)["error"] is None, n
    terms = one.scheduler()
    assert (terms["active"], terms["idle_sessions"], terms["held_back_by"]) == (0, count, None)
    assert one.run("print(1)") == "1\n"
    for n, line in [(n, one.exec(n, "print(me)")) for n in range(count)]:
        assert one.good(line)["stdout"] == f"{n}\n"
    for line in [one.close(n) for n in range(count)]:
        one.good(line)
    assert one.scheduler()["idle_sessions"] == 0
