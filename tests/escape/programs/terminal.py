# SPDX-License-Identifier: Apache-2.0
# Run by the driver from a terminal: that terminal must be out of reach.
import fcntl
import termios

attempt("open-tty", os.open, "/dev/tty", os.O_RDWR)
attempt("open-console", os.open, "/dev/console", os.O_RDWR)
for fd in (0, 1, 2):
    report(f"terminal-{fd}", os.isatty(fd))
    attempt(f"push-input-{fd}", fcntl.ioctl, fd, termios.TIOCSTI, b"#")
    attempt(f"take-terminal-{fd}", fcntl.ioctl, fd, termios.TIOCSCTTY, 1)
    attempt(f"paste-{fd}", fcntl.ioctl, fd, 0x541C, b"\3")
attempt("foreground", os.tcgetpgrp, 1)
report(
    "terminals",
    len([n for n in (os.listdir("/dev/pts") if os.path.isdir("/dev/pts") else []) if n.isdigit()]),
)
