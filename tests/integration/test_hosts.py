# SPDX-License-Identifier: Apache-2.0
"""
hutch on hosts of other kinds, which are imitated by namespaces of this one:
cgroups in both versions, read-only or not there; a container as it comes, one
with its filter off, one without user namespaces; a distribution that keeps
ordinary users from them. Where cells run, limits hold and doctor names what is
missing; where they cannot, doctor names the blocker and one line of mend, and
`hutch run` ends with one line and 125. Needs root.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

BUILD = Path(os.environ["HUTCH_BUILD"])
HUTCH = os.environ.get("HUTCH") or str(BUILD / "hutch")
WITHOUT_LAYER = str(BUILD / "tests/escape/without_layer")
CONFORMANCE = Path(__file__).parent.parent / "conformance" / "run.py"
PATIENCE = 240  # the first run of all makes the tree of files
# The flags of clone that make namespaces.
FLAGS = (1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
NAMESPACES = [f"{call}&{flag:#x}" for flag in FLAGS for call in ("clone", "unshare")]
# What a container runtime leaves to root, and what it hangs over /proc.
CONTAINER_CAPABILITIES = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,"
    "+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)
NOBODY = "/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups".split()
MASKED_PROC = """
for file in /proc/kcore /proc/keys /proc/timer_list; do
    [ ! -e $file ] || mount --bind /dev/null $file
done
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
"""
READ_ONLY_CGROUPS = """
while read -r _ _ _ _ point _; do
    case $point in /sys/fs/cgroup*) mount -o remount,bind,ro "$point" ;; esac
done </proc/self/mountinfo
"""
CONTAINER_FILES = """
mount -t tmpfs tmpfs /run
touch /run/.containerenv
"""


@pytest.fixture(scope="module", name="cache")
def _cache():
    """Root's trees: those of the other suites."""
    return BUILD / "tests/cache"


@pytest.fixture(scope="module", name="users")
def _users():
    """A folder that an ordinary user reaches, which need not be so of the build folder,
    nor of pytest's, with hutch installed and a cache of the user's own."""
    with tempfile.TemporaryDirectory(prefix="hutch-test-hosts-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cache").mkdir()
        os.chown(folder / "cache", 65534, 65534)
        (folder / "bin").mkdir()
        shutil.copy2(HUTCH, folder / "bin/hutch")
        ignored = shutil.ignore_patterns("*.p")
        shutil.copytree(BUILD / "libexec/hutch", folder / "libexec/hutch", ignore=ignored)
        yield folder


def on_host(cache, prepare, command, inside=(), options=("--mount",)):
    """Runs a command after a script, in namespaces of their own, behind the words of inside."""
    return subprocess.run(
        ["unshare", *options, "--", "bash", "-euc", f'{prepare}\nexec "$@"', "bash"]
        + [*inside, *command],
        env={**os.environ, "HUTCH_CACHE_DIR": str(cache)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def doctor(*where, hutch=HUTCH, **how):
    """The exit status and the report of hutch doctor there."""
    done = on_host(*where, [hutch, "doctor", "--json"], **how)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    report["missing"] = {layer["name"]: layer for layer in report["layers"] if not layer["in_force"]}
    return done.returncode, report


def limits_hold(*where, cases):
    """Runs cases of the conformance suite there."""
    command = [sys.executable, "-B", CONFORMANCE, "--hutch", HUTCH, "--door", "c"]
    command += ["--door-program", BUILD / "tests/conformance/door"]
    command += ["--cache-dir", where[0], "--only", cases]
    done = on_host(*where, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(cases.split(',')) + 1} passed, 0 failed, 0 skipped" in done.stdout


def refused(*where, hutch=HUTCH, **how):
    """hutch run there ends with one clear line and 125; the line."""
    done = on_host(*where, [hutch, "run", "-c", "print(1)"], **how)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hutch: ") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; 'hutch doctor' says why, and what to do\n")
    return done.stderr


def no_cell_runs(*where, mends, **how):
    """The doctor says so, why, and what to do in one line; the line of hutch run there."""
    status, report = doctor(*where, **how)
    assert status == 125
    assert not report["can_run"] and report["reason"]
    for mend in mends:
        assert mend in report["mend"], report
    assert "\n" not in report["mend"]
    return refused(*where, **how)


# ---- layouts of cgroups ----------------------------------------------------------

LIMITS = (
    "li-memory-tutorial,li-memory-children,li-processes-few,li-timeout-fraction,li-disk-uncaught"
)
# What only a cgroup counts: the peak of memory, and the refusals of a process.
COUNTED = "li-memory-enough,li-processes-uncaught"

HYBRID = """
mount -t tmpfs tmpfs /sys/fs/cgroup
for controller in memory pids cpu cpuacct; do
    mkdir /sys/fs/cgroup/$controller
    mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller
done
mkdir /sys/fs/cgroup/unified
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
"""


def has_v1():
    """Whether this host has its controllers in v1 hierarchies, so that they can be mounted."""
    return ":memory:" in Path("/proc/self/cgroup").read_text()


def test_hybrid(cache):
    """Where the controllers are in v2 they cannot be mounted as v1: that host as it is."""
    prepare, version = (HYBRID, "v1") if has_v1() else ("", "v2")
    status, report = doctor(cache, prepare)
    assert (status, list(report["missing"])) == (0, [])
    assert set(report["cgroup"]["controllers"].values()) == {version}
    limits_hold(cache, prepare, cases=f"{LIMITS},{COUNTED}")


@pytest.mark.parametrize(
    "prepare,reason",
    [
        ("umount --recursive --lazy /sys/fs/cgroup", "no cgroup file system is mounted"),
        (READ_ONLY_CGROUPS, "read-only"),
    ],
    ids=["none", "read-only"],
)
def test_no_cgroups(cache, prepare, reason):
    status, report = doctor(cache, prepare)
    assert (status, report["cgroup"]["layout"]) == (1, "none")
    assert set(report["missing"]) == {"cgroup_memory", "cgroup_pids", "cgroup_cpu"}
    for layer in report["missing"].values():
        assert reason in layer["reason"] and layer["mend"]
    limits_hold(cache, prepare, cases=LIMITS)


# ---- containers ------------------------------------------------------------------


def test_container_as_it_comes(cache):
    prepare = MASKED_PROC + READ_ONLY_CGROUPS + CONTAINER_FILES
    inside = [WITHOUT_LAYER, "--answer", "ENOSYS", "clone3"]
    inside += ["--answer", "EPERM", "mount", "pivot_root", "setns", *NAMESPACES, "--"]
    inside += ["/usr/bin/setpriv", "--bounding-set", CONTAINER_CAPABILITIES]
    mends = ["seccomp=unconfined", "systempaths=unconfined"]
    line = no_cell_runs(cache, prepare, mends=mends, inside=inside)
    assert "make a user namespace" in line


def test_container_without_its_filter(cache):
    """Its root has no uid that is not the host's root to give to a cell."""
    prepare = MASKED_PROC + READ_ONLY_CGROUPS + CONTAINER_FILES
    inside = ["/usr/bin/setpriv", "--bounding-set", CONTAINER_CAPABILITIES]
    mends = ["--cap-add SYS_ADMIN", "systempaths=unconfined"]
    line = no_cell_runs(cache, prepare, mends=mends, inside=inside)
    assert "run hutch as an ordinary user" in line


def test_user_in_a_container_without_its_filter(users):
    """For a user the masks over /proc are next."""
    prepare = MASKED_PROC + READ_ONLY_CGROUPS + CONTAINER_FILES
    how = {"hutch": str(users / "bin/hutch"), "inside": NOBODY}
    mends = ["--security-opt systempaths=unconfined"]
    line = no_cell_runs(users / "cache", prepare, mends=mends, **how)
    assert "mount proc" in line


def test_restricted_container(cache):
    """No user namespaces and no new privileges."""
    prepare = "echo 0 >/proc/sys/user/max_user_namespaces"
    how = {
        "inside": ["/usr/bin/setpriv", "--no-new-privs", "--bounding-set", CONTAINER_CAPABILITIES],
        "options": ["--user", "--map-root-user", "--mount"],
    }
    line = no_cell_runs(cache, prepare, mends=["user.max_user_namespaces"], **how)
    assert "make a user namespace" in line


def test_apparmor_rule(users):
    """A user namespace can be made there, and nothing can be done in it."""
    prepare = """
mount -t tmpfs tmpfs /proc/sys/kernel
echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns
"""
    inside = [WITHOUT_LAYER, "--answer", "EPERM", "mount", "--", *NOBODY]
    how = {"hutch": str(users / "bin/hutch"), "inside": inside}
    mends = ["kernel.apparmor_restrict_unprivileged_userns=0"]
    no_cell_runs(users / "cache", prepare, mends=mends, **how)
