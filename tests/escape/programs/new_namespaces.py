# SPDX-License-Identifier: Apache-2.0
# Namespaces of the program's own, and entering others.
import signal
import threading

FLAGS = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


def clone(flags):
    """Raw clone; a child that came to be ends at once."""
    pid = sc("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        LIBC._exit(0)
    os.waitpid(pid, 0)


def clone3(flags):
    pid = sc("clone3", struct.pack("11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88)
    if pid == 0:
        LIBC._exit(0)
    os.waitpid(pid, 0)


attempt("clone3-plain", clone3, 0)
attempt("clone3-user", clone3, FLAGS["user"])
attempt("clone3-all", clone3, sum(FLAGS.values()))
attempt("clone3-nothing", sc, "clone3", None, 0)
for name, flag in FLAGS.items():
    attempt(f"clone-{name}", clone, flag)
    attempt(f"clone-{name}-and-user", clone, flag | FLAGS["user"])
    attempt(f"unshare-{name}", sc, "unshare", flag)
attempt("clone-all", clone, sum(FLAGS.values()))
attempt("unshare-all", sc, "unshare", sum(FLAGS.values()))
attempt("unshare-time", sc, "unshare", 0x80)
for name in sorted(os.listdir("/proc/self/ns")):
    outcome, fd = outcome_of(os.open, f"/proc/self/ns/{name}", os.O_RDONLY)
    attempt(f"enter-own-{name}", sc, "setns", -1 if fd is None else fd, 0)
outcome, fd = outcome_of(os.open, "/proc/1/ns/mnt", os.O_RDONLY)
report("open-namespace-of-first", outcome)
outcome, pidfd = outcome_of(sc, "pidfd_open", 1, 0)
attempt("enter-first", sc, "setns", -1 if pidfd is None else pidfd, FLAGS["mount"])
report("plain-fork", in_child(lambda: 0))
thread = threading.Thread(target=os.getpid)
thread.start()
thread.join()
report("plain-thread", "done")
report(
    "first-namespaces",
    len({outcome_of(os.readlink, f"/proc/self/ns/{n}")[1] for n in FLAGS if n != "mount"}),
)
