# SPDX-License-Identifier: Apache-2.0
"""
Parked cells of javascript, through the C API: see test_zygote.py, and for the process in
them test_runner_js.py.
"""

import os
import pathlib
import select
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from door import PATIENCE, Engine, children, command, engines  # noqa: E402


class NodeEngine(Engine):
    language = "javascript"
    nothing = "0"

    def origin_of(self, code, **fields):
        """How the cell of a run was made, and what the run printed."""
        before = self.cells()["starts"]
        printed = self.run(code, **fields)
        after = self.cells()["starts"]
        (origin,) = [name for name in after if after[name] != before[name]]
        return origin, printed


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return os.environ.get("HUTCH_CACHE_DIR") or str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture
def engine(cache_dir):
    with engines(NodeEngine, cache_dir) as make:
        yield make


def parked_nodes(engine):
    return [int(pid) for pid in children(engine.supervisor) if b"node" in command(pid)[0]]


def test_requests_meet_parked_cells(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    for code in ("console.log(6 * 7)", "import 'fs'; console.log(await 42)"):
        assert one.origin_of(code) == ("parked", "42\n")
    one.warm_up(2)
    result = one.ask({"code": "process.stdin.pipe(process.stdout)\n5", "stdin": "Zoë"})
    assert (result["stdout"], result["value"]) == ("Zoë", "5")
    assert one.warm()["zygotes"] == 0


def test_nothing_is_parked_for_one_run(engine):
    one = engine("--parked", "2")
    assert one.origin_of("console.log(1)") == ("cold", "1\n")
    assert parked_nodes(one) == []


def test_a_parked_cell_is_as_the_request_wants_it(engine):
    """Another heap stands in the command line; of several processors the cell shows more."""
    one = engine("--parked", "1")
    heap = "console.log(/max-heap-size=(\\d+)/.exec(process.execArgv.join())[1])"
    one.warm_up(1)
    _, usual = one.origin_of(heap)
    one.warm_up(1)
    assert one.origin_of(heap, memory_mb=256) == ("cold", "208\n")
    assert usual != "208\n"
    cpus = "console.log(require('os').availableParallelism(), process.env.OMP_NUM_THREADS)"
    end = time.monotonic() + PATIENCE
    while one.origin_of(cpus, cpus=1) != ("parked", "1 1\n"):  # the next ones are like the last
        assert time.monotonic() < end, one.cells()
    if len(os.sched_getaffinity(0)) > 1:
        assert one.origin_of(cpus, cpus=2) == ("cold", "2 2\n")


def test_limits_are_those_of_the_request(engine):
    one = engine("--parked", "2")
    one.warm_up(2)
    spawn = (
        "const { spawn } = require('child_process')\nlet failed = 0\n"
        "for (let i = 0; i < 16; i++) spawn('sleep', ['60']).on('error', () => failed++)\n"
        "setTimeout(() => { console.log(failed); process.exit() }, 100)"
    )
    # Beside node itself three, or some more while it has not all of its threads.
    for origin, fields in (("parked", {}), ("cold", {"memory_mb": 300})):
        way, failed = one.origin_of(spawn, max_processes=4, **fields)
        assert way == origin and 0 < int(failed) <= 13
    assert one.run(spawn, max_processes=40) == "0\n"
    one.warm_up(2)
    result = one.ask({"code": "for (;;);", "timeout_seconds": 1})
    assert result["error_type"] == "timeout", result
    grow = "const all = []\nfor (;;) all.push(Buffer.alloc(1 << 20, 1))"
    assert one.ask({"code": grow, "memory_mb": 128})["error_type"] == "resource_limit"


def test_what_getting_ready_takes_is_not_the_programs(engine):
    one = engine("--parked", "1")
    parked, cold = [], []
    for _ in range(5):
        one.warm_up(1)
        parked.append(one.ask({"code": "0"})["cpu_ms"])
        cold.append(one.ask({"code": "0", "memory_mb": 300 + len(cold)})["cpu_ms"])
    assert min(parked) < min(cold) / 2, (parked, cold)


def test_parked_processes_that_are_killed(engine):
    one = engine("--parked", "2")
    for _ in range(3):
        one.warm_up(2)
        for pid in parked_nodes(one):
            process = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            assert select.select([process], [], [], PATIENCE)[0]  # with all its threads
            os.close(process)
        assert one.run("console.log(1)") == "1\n"


def test_a_parked_process_that_does_not_answer(engine):
    """Stopped, it holds its request until that is over, as a program that stops itself would."""
    one = engine("--parked", "1")
    one.warm_up(1)
    for pid in parked_nodes(one):
        os.kill(pid, signal.SIGSTOP)
    assert one.ask({"code": "console.log(1)", "timeout_seconds": 1})["error_type"] == "timeout"
    assert one.run("console.log(2)") == "2\n"
