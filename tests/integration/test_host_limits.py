# SPDX-License-Identifier: Apache-2.0
"""
A host that is short of something: descriptors, processes, disk, memory. The run
is not started, one line names what is missing, nothing is left behind, and with
enough of it the next run is like any other. Needs root.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import pwd
import re
import resource
import secrets
import shlex
import shutil
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "escape"))
import host  # noqa: E402

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
HUTCH = BUILD / "hutch"
DOOR = BUILD / "tests" / "conformance" / "door"
PATIENCE = 180
GOOD = "print(2+2)"


@pytest.fixture(scope="module")
def cache(tmp_path_factory, machine):
    """A cache in which the trees are ready."""
    path = tmp_path_factory.mktemp("cache")
    for language, code in (("python", "1"), ("shell", ":"), ("javascript", "1")):
        assert run(path, "-l", language, code=code).returncode == 0
    return path


def limit(which, value):
    """Lowers a limit of the command, soft and hard."""
    return lambda: resource.setrlimit(which, (value, value))


def mounted(*commands):
    """A command's start in a mount namespace of its own, with something done to it."""
    script = " && ".join(commands) + ' && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def run(cache, *options, code=GOOD, prefix=(), preexec=None, hutch=HUTCH, environment=None):
    environment = {**os.environ, **(environment or {}), "HUTCH_CACHE_DIR": str(cache)}
    return subprocess.run([*prefix, hutch, "run", *options, "-c", code], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          preexec_fn=preexec, timeout=PATIENCE, check=False)


def refused(cache, says, **how):
    """hutch run is not started, and says what is missing, in text and as JSON."""
    answer = run(cache, **how)
    assert (answer.returncode, answer.stdout) == (125, ""), answer
    assert re.fullmatch(rf"hutch: [^\n]*(?:{says})[^\n]*\n", answer.stderr), answer.stderr
    error = json.loads(run(cache, "--json", **how).stdout)["error"]
    assert error["retry_safe"] is True, error
    assert re.search(says, error["message"]), error
    return error


def works(cache, **how):
    answer = run(cache, **how)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "4\n", ""), answer


@pytest.fixture(scope="module", autouse=True)
def machine():
    """The host, with this process in cgroups of its own; in the end nothing is in them."""
    machine = host.Host()
    yield machine
    assert machine.close() == []


@pytest.fixture(autouse=True)
def _nothing_left(machine):
    """No process and no cgroup of hutch outlives a test for long."""
    before = machine.snapshot()
    yield
    kinds = ("processes", "cgroups")
    assert host.until(lambda: all(machine.snapshot()[k] <= before[k] for k in kinds), 10)


# ---- descriptors ----


def test_few_descriptors(cache):
    for count in range(4, 20):
        error = refused(cache, "Too many open files|open files are limited",
                        preexec=limit(resource.RLIMIT_NOFILE, count))
        assert error["code"] in ("system_error", "helper_failed"), error
    works(cache)


@pytest.mark.parametrize("count", [24, 64, 1000, 1023])
def test_too_few_for_the_supervisor(cache, count):
    refused(cache, f"open files are limited to {count}, .* needs 1024.*ulimit -Hn",
            preexec=limit(resource.RLIMIT_NOFILE, count))


def test_just_enough_descriptors(cache):
    works(cache, preexec=limit(resource.RLIMIT_NOFILE, 1024))


def door(cache, requests, **how):
    """The answers of one engine of the C API to requests that it gets at once."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    answer = subprocess.run([DOOR, "--threads", str(len(requests)), "--cache-dir", cache],
                            input=lines, capture_output=True, text=True, timeout=PATIENCE,
                            check=False, **how)
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    answers = sorted(map(json.loads, answer.stdout.splitlines()), key=lambda a: a["line"])
    assert [a["line"] for a in answers] == list(range(1, len(requests) + 1))
    return answers


def test_more_cells_than_descriptors(cache):
    """The last ones wait until others have ended."""
    requests = [{"code": "read x; echo $x; sleep 1", "stdin": "y\n", "language": "shell"}] * 80
    answers = door(cache, requests,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)))
    assert {answer["result"]["stdout"] for answer in answers} == {"y\n"}
    waits = [answer["result"]["queue_ms"] for answer in answers]
    assert max(waits) > 1000, "eighty cells fit"


def test_an_engine_that_ran_out_of_descriptors_goes_on(cache):
    """It starts as many runs as it has descriptors for, and a later run finds some again."""
    requests = [{"code": "sleep 1", "language": "shell"}] * 40
    with subprocess.Popen(
            [DOOR, "--threads", "40", "--cache-dir", cache], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 4096))) as process:
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in requests]
        errors = [answer["error"] for answer in answers if "error" in answer]
        assert errors and len(errors) < len(requests)
        for error in errors:
            assert error["retry_safe"] is True, error
            assert re.search("queue is full|Too many open files", error["message"]), error
        process.stdin.write(json.dumps({"code": GOOD}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["stdout"] == "4\n"
        process.stdin.close()
        assert process.wait(timeout=PATIENCE) == 0


# ---- processes ----


@pytest.fixture(scope="module")
def user(tmp_path_factory, machine):
    """An ordinary user who has no other process: how to be it, where its hutch and cache are."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    uid = next(u for u in range(54000, 64000) if u not in taken)
    folder = tmp_path_factory.mktemp("user")
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    (folder / "bin").mkdir()
    shutil.copy(HUTCH, folder / "bin")
    shutil.copytree(BUILD / "libexec", folder / "libexec",
                    ignore=shutil.ignore_patterns("*.p"))
    cache = folder / "cache"
    cache.mkdir()
    os.chown(cache, uid, uid)
    drop = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--"]
    how = {"prefix": drop, "hutch": folder / "bin" / "hutch", "environment": {"HOME": str(cache)}}
    works(cache, **how)
    yield cache, how
    shutil.rmtree(f"/tmp/hutch-{uid}", ignore_errors=True)


def test_few_processes(user):
    cache, how = user
    enough = None
    for count in range(1, 16):
        answer = run(cache, preexec=limit(resource.RLIMIT_NPROC, count), **how)
        if answer.returncode == 0:
            enough = count
            break
        refused(cache, "no more processes are allowed|Resource temporarily unavailable",
                preexec=limit(resource.RLIMIT_NPROC, count), **how)
    assert enough and enough > 2
    works(cache, **how)


# ---- disk ----


def test_a_full_disk_below_the_cache(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    for options in ("size=4k", "size=1m", "size=20m", "nr_inodes=40", "nr_inodes=300"):
        refused(place / "cache", f"cache folder '{place}/cache': .*No space left on device",
                prefix=mounted(f"mount -t tmpfs -o mode=0700,{options} tmpfs {place}"))


def test_what_a_full_disk_left_is_no_hindrance(tmp_path):
    """The same file system, first full, then with room."""
    place = tmp_path / "disk"
    place.mkdir()
    first = f'HUTCH_CACHE_DIR={place}/cache {shlex.quote(str(HUTCH))} run -c "{GOOD}"'
    prefix = mounted(
        f"mount -t tmpfs -o mode=0700,size=8m tmpfs {place}",
        f"! {first} 2>/dev/null",
        f'test -z "$(find {place}/cache/trees -mindepth 1 ! -name lock)"',
        f"mount -o remount,size=1g {place}")
    works(place / "cache", prefix=prefix)


def test_a_cache_that_cannot_be_written(cache, tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    refused(place / "cache", f"make cache folder '{place}/cache': Read-only file system",
            prefix=mounted(f"mount -t tmpfs -o mode=0700,ro tmpfs {place}"))
    read_only = mounted(f"mount --bind {cache} {place}", f"mount -o remount,bind,ro {place}")
    works(place, prefix=read_only)  # all that is needed is there


@pytest.mark.parametrize("cache, says", [
    ("/etc/passwd", "open cache folder '/etc/passwd': Not a directory"),
    ("/etc/passwd/below", "open cache folder '/etc/passwd/below': Not a directory"),
    ("/proc/cache", "make cache folder '/proc/cache': No such file or directory"),
])
def test_a_cache_that_is_no_folder(cache, says):
    refused(cache, says)


def test_a_full_run_directory(cache):
    for options, says in (
            ("nr_inodes=1", "run directory '/run/hutch': No space left on device"),
            ("nr_inodes=2", "run directory '/run/hutch': No space left on device"),
            ("nr_inodes=3", "run directory '/run/hutch': No space left on device"),
            ("ro", "make run directory '/run/hutch': Read-only file system")):
        refused(cache, says, prefix=mounted(f"mount -t tmpfs -o {options} tmpfs /run"))
    full = mounted("mount -t tmpfs -o size=8k tmpfs /run",
                   "{ cat /dev/zero >/run/filler 2>/dev/null || true; }")
    if "cgroup_memory" in json.loads(run(cache, "--json").stdout)["layers"]:
        refused(cache, "'/run/hutch/supervisor-.*' .*No space left on device", prefix=full)
    works(cache)


# ---- memory ----


@pytest.mark.parametrize("which, option", [(resource.RLIMIT_AS, "-Hv"),
                                           (resource.RLIMIT_DATA, "-Hd")])
def test_little_memory_for_hutch(cache, which, option):
    """From hardly enough to load it up to just below what the request allows."""
    for megabytes in (8, 12, 16, 32, 64, 256, 511):
        refused(cache, f"limited to {megabytes} MB of .*memory_mb.*ulimit {option}",
                preexec=limit(which, megabytes << 20))
    works(cache, preexec=limit(which, 1 << 30))


def test_too_little_memory_for_the_supervisor(cache):
    refused(cache, "hutch-supervisor was killed by signal .*memory|no memory",
            preexec=limit(resource.RLIMIT_DATA, 2 << 20))


def test_small_files_only(cache):
    refused(cache, "files are limited to 0 bytes.*ulimit -Hf",
            preexec=limit(resource.RLIMIT_FSIZE, 0))
    refused(cache, "limited to 200 MB of file size.*disk_mb.*ulimit -Hf",
            preexec=limit(resource.RLIMIT_FSIZE, 200 << 20))


def memory_hierarchy():
    """Where cgroup v1 counts memory, and the group of this process; None where it does not."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        folder = pathlib.Path("/sys/fs/cgroup/memory") / path.lstrip("/")
        if "memory" in names.split(",") and folder.is_dir():
            return folder
    return None


@contextlib.contextmanager
def small_group(megabytes):
    """A memory cgroup around the engine; gives what puts a process into it."""
    group = memory_hierarchy() / f"host-limits-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            os.sched_yield()
        assert [p for p in group.iterdir() if p.is_dir()] == [], "a cgroup of hutch is left"
        group.rmdir()


def test_a_group_around_hutch_without_memory(cache):
    """The kernel kills what it finds: an error that says so, or a whole result, never the
    claim that the program was over its own limit."""
    if memory_hierarchy() is None:
        return  # here the cells' groups are where hutch was told to put them
    hold = "x = bytearray(b'a') * (200 << 20)\nprint(len(x))"
    with small_group(64) as enter:
        answer = run(cache, "--json", code=hold, preexec=enter)
    outcome = json.loads(answer.stdout)
    if "error" in outcome and set(outcome) == {"error"}:
        assert answer.returncode == 125
        assert outcome["error"]["code"] == "out_of_memory", outcome
        assert outcome["error"]["retry_safe"] is False
        assert re.search("host, or a cgroup above.* has no memory left", outcome["error"]["message"])
    else:
        assert outcome["error_type"] != "resource_limit", outcome
    works(cache)


def test_many_runs_while_memory_is_short(cache):
    """Whatever is killed, every run gets an answer and the engine goes on."""
    if memory_hierarchy() is None:
        return
    request = {"code": "x = bytearray(b'a') * (40 << 20); print(len(x))"}
    with small_group(120) as enter:
        answers = door(cache, [request] * 8, preexec_fn=enter)
    for answer in answers:
        if "result" in answer:
            assert answer["result"]["error_type"] != "resource_limit", answer
            assert answer["result"]["stdout"] in ("41943040\n", ""), answer
        else:
            assert answer["error"]["code"] in ("out_of_memory", "helper_failed", "system_error",
                                               "isolation_unavailable"), answer
    works(cache)
