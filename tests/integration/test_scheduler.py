# SPDX-License-Identifier: Apache-2.0
"""
Many runs at once through the C API: memory that suffices for some of them at a time,
owners that flood, waits that are cancelled and that end. Needs root for a cgroup.
"""

import contextlib
import os
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import door  # noqa: E402
from door import BUILD, PATIENCE  # noqa: E402

LIMIT_MB = 1024


class Engine(door.Engine):
    """One whose tree of files is there, and whose answers go by their lines."""

    def __init__(self, *options, threads):
        cache = os.environ.get("HUTCH_CACHE_DIR") or str(BUILD / "tests/cache")
        super().__init__(cache, *options, threads=threads)

    def __enter__(self):
        self.run("1")
        return self

    def error(self, number):
        answer = self.answer(number)
        assert "error" in answer, answer
        return answer["error"]

    def together(self, requests):
        return [self.answer(number) for number in [self.send(r) for r in requests]]

    def wait_until(self, what, count):
        """Until so many runs are "active", or "waiting"."""
        end = time.monotonic() + PATIENCE
        while self.ask("doctor")["scheduler"][what] < count:
            assert time.monotonic() < end


def memory_groups():
    """Where memory cgroups are made, and the file for their limit."""
    top = Path("/sys/fs/cgroup")
    if ":memory:" in Path("/proc/self/cgroup").read_text():
        return top / "memory", "memory.limit_in_bytes"
    return top, "memory.max"


@contextlib.contextmanager
def group_of_1_gib():
    top, limit = memory_groups()
    group = top / f"hutch-test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / limit).write_text(str(LIMIT_MB << 20))
        yield group
    finally:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            os.sched_yield()
        assert not group.exists()


def test_a_group_is_shared_by_as_many_as_fit():
    """A hundred cells that use 50 MB each, in one of 1 GiB."""
    request = {
        "code": "import time; x = bytearray(b'a') * (40 << 20); time.sleep(0.05); print(len(x))",
        "memory_mb": 64,
    }
    with group_of_1_gib() as group, Engine("--cgroup", group.name, threads=100) as engine:
        terms = engine.ask("doctor")["scheduler"]
        assert terms["memory_available_bytes"] <= LIMIT_MB << 20
        assert terms["memory_reserve_bytes"] == LIMIT_MB << 17
        answers = engine.together([request] * 100)
    for answer in answers:
        result = answer.get("result", answer)
        assert result.get("stdout") == "41943040\n", result
        assert (result["error"], result["exit_code"], result["signal"]) == (None, 0, None), result
    assert max(answer["result"]["queue_ms"] for answer in answers) > 0


def test_more_than_the_processors_can_do():
    """All wait for their turn, and the time of none begins before."""
    with Engine("--max-cells", "4", threads=256) as engine:
        answers = engine.together([{"code": "print(1)", "timeout_seconds": 20}] * 256)
    for answer in answers:
        assert answer.get("result", answer).get("stdout") == "1\n", answer
    waits = [answer["result"]["queue_ms"] for answer in answers]
    assert min(waits) >= 0 and max(waits) > 100
    assert all(answer["result"]["duration_ms"] < 20000 for answer in answers)


def test_a_flood_does_not_starve_another_owner():
    flood = {"code": "import time; time.sleep(0.05)", "owner": "flood"}
    with Engine("--max-cells", "4", threads=256) as engine:
        numbers = [engine.send(flood) for _ in range(200)]
        engine.wait_until("waiting", 100)
        single = engine.send({"code": "print(1)", "owner": "single"})
        assert engine.answer(single)["result"]["stdout"] == "1\n"
        order = [number for number in numbers if number not in engine.answers]
        assert len(order) >= 80, f"{len(order)} of the flood came later"
        for number in numbers:
            assert engine.answer(number)["result"]["error"] is None


def test_a_wait_is_cancelled():
    with Engine("--max-cells", "1", "--cancels", "10", threads=4) as engine:
        running = engine.send({"code": "import time; time.sleep(200)", "timeout_seconds": 250})
        engine.wait_until("active", 1)
        waiting = engine.send({"code": "print(1)"})
        engine.wait_until("waiting", 1)
        engine.send(f"cancel {waiting}")
        error = engine.error(waiting)
        assert (error["code"], error["retry_safe"]) == ("cancelled", True), error
        engine.send(f"cancel {running}")
        error = engine.error(running)
        assert (error["code"], error["retry_safe"]) == ("cancelled", False), error
        assert engine.ask({"code": "print(2)"})["stdout"] == "2\n"


def test_a_wait_ends():
    with Engine("--max-cells", "1", "--queue-timeout", "1", "--cancels", "10",
                threads=4) as engine:
        running = engine.send({"code": "import time; time.sleep(200)", "timeout_seconds": 250})
        engine.wait_until("active", 1)
        number = engine.send({"code": "print(1)"})
        error = engine.error(number)
        assert (error["code"], error["retry_safe"]) == ("too_many_runs", True), error
        assert error["message"] == "waited 1 s for a cell: 1 are active, 0 are idle sessions, max_cells is 1"
        engine.send(f"cancel {running}")
        engine.error(running)
