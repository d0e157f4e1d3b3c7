# SPDX-License-Identifier: Apache-2.0
# What the program was born with.
import fcntl
import stat
import subprocess

listing = os.open("/proc/self/fd", os.O_RDONLY)
open_now = sorted(int(name) for name in os.listdir(listing))
extra = []
for fd in open_now:
    if fd == listing:
        continue
    outcome, target = outcome_of(os.readlink, f"/proc/self/fd/{fd}")
    if outcome != "done":  # closed with the listing itself
        continue
    dump("descriptor", f"{fd} {target}")
    if fd > 2:
        kind = "socket" if stat.S_ISSOCK(os.fstat(fd).st_mode) else target
        closes = (
            "close-on-exec" if fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC else "inherited"
        )
        extra.append(f"{kind}-{closes}")
os.close(listing)
report("standard", ",".join(str(fd) for fd in open_now if fd <= 2))
report("extra", ",".join(extra) or "none")
for fd in (0, 1, 2):
    mode = os.fstat(fd).st_mode
    kind = (
        "pipe"
        if stat.S_ISFIFO(mode)
        else "file"
        if stat.S_ISREG(mode)
        else "character-device"
        if stat.S_ISCHR(mode)
        else "other"
    )
    report(f"kind-{fd}", kind)
    report(f"terminal-{fd}", os.isatty(fd))
listed = subprocess.run(
    ["/bin/sh", "-c", "ls /proc/$$/fd"], capture_output=True, text=True, stdin=0, close_fds=False
).stdout.split()
report("child", ",".join(name for name in listed if int(name) < 3 or int(name) >= 20) or "none")

attempt("write-stdin", os.write, 0, b"x")
outcome, fd = outcome_of(os.open, "/proc/self/fd/0", os.O_RDWR)
report("reopen-stdin", outcome)
attempt("write-reopened-stdin", os.write, -1 if fd is None else fd, b"x")
attempt("truncate-stdin", os.ftruncate, -1 if fd is None else fd, 1 << 30)
report(
    "stdin-after", os.pread(0, 100, 0).decode() if stat.S_ISREG(os.fstat(0).st_mode) else "no-file"
)
