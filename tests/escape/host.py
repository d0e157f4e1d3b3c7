# SPDX-License-Identifier: Apache-2.0
"""The state of the host, before and after a hostile program.

Where the host has cgroup v1 hierarchies the suite moves itself into a cgroup of
its own in each of them, so that everything hutch makes on its behalf is below
and can be told from the rest of the machine. snapshot() is a dictionary of
sets; differences() says what has come, gone or changed.
"""

import dataclasses
import hashlib
import os
import pathlib
import re
import secrets
import socket
import time

# First uid that cells get, and how many there may be.
UID_BASE, UID_COUNT = 1879048192, 65536
WATCHED_HIERARCHIES = ("memory", "pids", "cpu", "cpuacct", "freezer")
SYSCTLS = """kernel/core_pattern kernel/hostname kernel/domainname kernel/modprobe kernel/panic
kernel/printk kernel/pid_max kernel/randomize_va_space kernel/sysrq kernel/threads-max
kernel/yama/ptrace_scope kernel/unprivileged_userns_clone
kernel/apparmor_restrict_unprivileged_userns fs/file-max fs/suid_dumpable
net/ipv4/ip_forward net/ipv4/ping_group_range net/ipv4/ip_unprivileged_port_start
user/max_user_namespaces vm/overcommit_memory vm/swappiness vm/max_map_count""".split()
HASHED = [
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/hostname",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/bin/sh",
    "/usr/bin/python3",
]
LISTED = [
    "/",
    "/etc",
    "/root",
    "/home",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/boot",
    "/opt",
    "/var",
    "/dev",
]
# Folders where others work too: only names of hutch or of this suite count.
SHARED = ["/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue"]


@dataclasses.dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    name: str
    uid: int
    in_cell: bool  # in a pid namespace below ours


def read(path):
    """A small file as text; empty when it is not there."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def process(pid):
    """What /proc says about a process; None when it is gone or already dead."""
    status = read(f"/proc/{pid}/status")
    fields = dict(re.findall(r"^(Name|State|PPid|Uid|NSpid):\s+(\S.*)", status, re.MULTILINE))
    if len(fields) < 5 or fields["State"][0] in "ZX":
        return None
    return Process(
        int(pid),
        int(fields["PPid"]),
        fields["Name"],
        int(fields["Uid"].split()[0]),
        len(fields["NSpid"].split()) > 1,
    )


def all_processes():
    """Every live process of the host."""
    found = (process(name) for name in os.listdir("/proc") if name.isdigit())
    return [p for p in found if p]


def until(condition, seconds):
    """Waits until the condition holds; whether it does in the end."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return bool(condition())
        time.sleep(0.01)
    return True


class Host:
    """The machine that the suite runs on."""

    def __init__(self, account=None, shared=False):
        """account: who starts hutch; root when there is none. shared: another suite
        runs on the machine at the same time, whose programs outside of cells may make
        the kernel load modules."""
        self.shared = shared
        self.uid = getattr(account, "uid", 0)
        self.token = secrets.token_hex(8)
        self.name = socket.gethostname()
        self.cgroup = f"escape-suite-{self.token}"
        self.standing = frozenset()  # pids that stay from case to case
        self.homes = {}  # hierarchy -> the cgroup where the suite was before
        self.groups = []
        try:
            self._enter_cgroups()
        except OSError:
            self.close()
            raise

    # ---- the suite's own cgroup ----

    def _enter_cgroups(self):
        mounts = dict(self._hierarchies())
        for line in read("/proc/self/cgroup").splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(","):
                if name in WATCHED_HIERARCHIES and name in mounts:
                    root = pathlib.Path(mounts[name])
                    group = root / path.lstrip("/") / self.cgroup
                    if group in self.groups or not group.parent.is_dir():
                        continue
                    group.mkdir()
                    self.groups.append(group)
                    self.homes[group] = group.parent
                    (group / "cgroup.procs").write_text(str(os.getpid()))

    @staticmethod
    def _hierarchies():
        for line in read("/proc/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind == "cgroup":
                for name in options.split(","):
                    yield name, before.split()[4]

    def close(self):
        """Leaves the suite's cgroups and removes them; what is left in them."""
        problems = []
        for group, home in self.homes.items():
            (home / "cgroup.procs").write_text(str(os.getpid()))
            left = [str(d) for d, _, _ in os.walk(group) if pathlib.Path(d) != group]
            if left:
                problems.append(f"cgroups left: {left}")
                continue
            if not until(lambda group=group: self._removed(group), 10):
                problems.append(f"cgroup {group} is not empty")
        self.homes = {}
        return problems

    @staticmethod
    def _removed(group):
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    # ---- what is there ----

    def processes(self):
        """Live processes of hutch that this suite is the cause of."""
        pids = set()
        for group in self.groups:
            for folder, _, _ in os.walk(group):
                pids |= {int(pid) for pid in read(f"{folder}/cgroup.procs").split()}
        found = {p for p in map(process, pids) if p} if self.groups else self._family()
        strangers = {
            p
            for p in all_processes()
            if self.uid == 0  # the cells of an ordinary user have that user's uid
            and UID_BASE <= p.uid < UID_BASE + UID_COUNT
            and (not self.groups or self.cgroup in read(f"/proc/{p.pid}/cgroup"))
        }
        return {p for p in found | strangers if p.pid not in {os.getpid(), *self.standing}}

    @staticmethod
    def _family():
        """Descendants of this process, where no cgroup tells them from others."""
        every, family = all_processes(), {os.getpid()}
        while True:
            more = {p.pid for p in every if p.parent in family} - family
            if not more:
                return {p for p in every if p.pid in family}
            family |= more

    def settle(self):
        """Waits until no process of an earlier cell is left."""
        until(lambda: not any(p.in_cell for p in self.processes()), 10)

    def snapshot(self):
        """Everything that a program in a cell must not change."""
        return {kind: self.snapshot_of(kind) for kind in self._looks()}

    def snapshot_of(self, kind):
        """One kind of it."""
        return self._looks()[kind]()

    def _looks(self):
        """How to look at each kind."""
        return {
            "processes": lambda: {(p.pid, p.name) for p in self.processes()},
            "cgroups": self._cgroups,
            "mounts": lambda: {
                self._mount(line) for line in read("/proc/self/mountinfo").splitlines()
            },
            "files": lambda: {(name, self._digest(name)) for name in HASHED},
            "folders": lambda: {
                (name, entry)
                for name in LISTED
                for entry in self._entries(name)
                if not self._is_anothers(entry)
            },
            "leftovers": lambda: {
                f"{name}/{entry}"
                for name in SHARED
                for entry in self._entries(name)
                if self._is_ours(entry)
            },
            "sysctls": lambda: {(name, read(f"/proc/sys/{name}")) for name in SYSCTLS},
            "names": lambda: {
                socket.gethostname(),
                os.uname().nodename,
                os.uname().domainname if hasattr(os.uname(), "domainname") else "",
            },
            "network": lambda: {
                line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines()
            }
            | set(read("/proc/net/route").splitlines())
            | set(read("/proc/net/if_inet6").splitlines()),
            "abstract sockets": lambda: {
                line.split()[-1]
                for line in read("/proc/net/unix").splitlines()
                if self.token in line
            },
            "ipc": lambda: {
                (kind, line.split()[0], line.split()[1])
                for kind in ("shm", "sem", "msg")
                for line in read(f"/proc/sysvipc/{kind}").splitlines()[1:]
            },
            "modules": lambda: {
                line.split()[0] for line in read("/proc/modules").splitlines() if not self.shared
            },
            "swaps": lambda: set(read("/proc/swaps").splitlines()),
            "block devices": lambda: set(self._entries("/sys/block")),
            "uid range": lambda: {
                p.pid for p in self.processes() if UID_BASE <= p.uid < UID_BASE + UID_COUNT
            },
        }

    def _cgroups(self):
        if self.groups:
            return {folder for group in self.groups for folder, _, _ in os.walk(group)}
        # Under systemd the part of the tree that is a user's is that user's affair.
        users = "/sys/fs/cgroup/user.slice"
        if self.uid != 0 and os.path.isdir(users):
            return {folder for folder, _, _ in os.walk(f"{users}/user-{self.uid}.slice")}
        return {
            folder
            for folder, _, _ in os.walk("/sys/fs/cgroup")
            if not folder.startswith(users + "/")
        }

    @staticmethod
    def _mount(line):
        before, _, after = line.partition(" - ")
        return before.split()[4], after

    def _is_ours(self, entry):
        """Whether a name in a shared folder is of the kind that hutch makes, or of this suite.
        hutch-UID is a user's run directory, which is meant to stay."""
        if re.fullmatch(r"hutch-\d+", entry):
            return False
        return self.token in entry or re.fullmatch(r"hutch(-(cache-)?\d+.*)?", entry) is not None

    def _is_anothers(self, entry):
        """Whether a name belongs to another run of this suite, beside this one."""
        return entry.startswith("escape-") and self.token not in entry

    @staticmethod
    def _digest(name):
        try:
            return hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest()
        except OSError as error:
            return error.errno

    @staticmethod
    def _entries(folder):
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def differences(self, before, seconds=15.0):
        """What differs from an earlier snapshot, once the dust has settled."""
        changes = []

        def unchanged():
            after = self.snapshot()
            changes[:] = [
                f"host: {kind}: {what} {sorted(map(str, items))}"
                for kind in before
                for what, items in (
                    ("new", after[kind] - before[kind]),
                    ("gone", before[kind] - after[kind]),
                )
                if items
            ]
            return not changes

        until(unchanged, seconds)
        return changes


def clock_offset():
    """How far the wall clock is from the monotonic one; changes when it is set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def used_disk_mb():
    """Megabytes in use on the host's root file system."""
    state = os.statvfs("/")
    return (state.f_blocks - state.f_bfree) * state.f_frsize >> 20
