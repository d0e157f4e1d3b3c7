# SPDX-License-Identifier: Apache-2.0
# Looks into, and for, processes that are not the program's own.
import signal

ATTACH, SEIZE, TRACEME = 16, 0x4206, 0
attempt("ptrace-attach", sc, "ptrace", ATTACH, 1, 0, 0)
attempt("ptrace-seize", sc, "ptrace", SEIZE, 1, 0, 0)
report("ptrace-traceme", in_child(lambda: sc("ptrace", TRACEME, 0, 0, 0)))

child = os.fork()
if child == 0:
    signal.pause()
attempt("ptrace-own-child", sc, "ptrace", SEIZE, child, 0, 0)
buffer = ctypes.create_string_buffer(b"x" * 64)
vector = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(buffer), 64))
for name, pid in (("first", 1), ("child", child)):
    attempt(f"read-memory-{name}", sc, "process_vm_readv", pid, vector, 1, vector, 1, 0)
    attempt(f"write-memory-{name}", sc, "process_vm_writev", pid, vector, 1, vector, 1, 0)
    attempt(f"compare-{name}", sc, "kcmp", os.getpid(), pid, 0, 0, 0)
opened, pidfd = outcome_of(sc, "pidfd_open", 1, 0)
attempt("take-descriptor", sc, "pidfd_getfd", -1 if pidfd is None else pidfd, 0, 0)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)

attempt("open-mem", os.open, "/proc/1/mem", os.O_RDONLY)
attempt("open-mem-to-write", os.open, "/proc/1/mem", os.O_RDWR)
for name in ("maps", "environ", "auxv", "stack", "syscall", "io"):
    outcome, data = outcome_of(read_file, f"/proc/1/{name}")
    dump(f"first-{name}", data or b"")
    report(f"first-{name}", outcome if outcome != "done" else "content" if data else "empty")
for name in ("exe", "cwd", "root"):
    outcome, target = outcome_of(os.readlink, f"/proc/1/{name}")
    dump(f"first-{name}", target or "")
    report(f"first-{name}", outcome)
outcome, names = outcome_of(os.listdir, "/proc/1/fd")
for name in names or []:
    dump("first-descriptor", outcome_of(os.readlink, f"/proc/1/fd/{name}")[1] or "")
report("first-descriptors", outcome)

pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
names = {outcome_of(read_file, f"/proc/{pid}/comm")[1] for pid in pids} - {None}  # gone by now
report("processes", ",".join(sorted(name.decode().strip() for name in names)))
for pid in pids:
    dump("command-line", outcome_of(read_file, f"/proc/{pid}/cmdline")[1] or b"")
others = 0
for pid in range(2, 70_000):
    if pid not in pids and outcome_of(os.kill, pid, 0)[0] != "ESRCH":
        others += 1
report("other-processes", others)
