# SPDX-License-Identifier: Apache-2.0
# Writes to what is not the program's own, by every road that leads there.
import fcntl
import mmap
import re
import shutil

MARK = "written-" + TOKEN
library = re.search(r"(/\S*libc[.-]\S*)", read_file("/proc/self/maps").decode())[1]
targets = {
    "passwd": "/etc/passwd",
    "hosts": "/etc/hosts",
    "preload": "/etc/ld.so.preload",
    "linker-cache": "/etc/ld.so.cache",
    "python": sys.executable,
    "shell": "/bin/sh",
    "module": os.__file__,
    "library": library,
    "runner": "/usr/lib/hutch/runner.pyc",
}
for name, path in targets.items():
    attempt(f"open-{name}", os.open, path, os.O_WRONLY)
    attempt(f"append-{name}", os.open, path, os.O_RDWR | os.O_APPEND)
    attempt(f"truncate-{name}", os.truncate, path, 0)
    attempt(f"unlink-{name}", os.unlink, path)
    attempt(f"chmod-{name}", os.chmod, path, 0o777)
    attempt(f"rename-{name}", os.rename, path, path + ".old")
    attempt(f"replace-{name}", os.rename, __import__("tempfile").mkstemp(dir="/tmp")[1], path)
for folder in (
    "/",
    "/etc",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/bin",
    "/lib",
    "/sbin",
    "/var",
    "/var/tmp",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/mnt",
    "/boot",
    "/proc",
    "/sys",
):
    attempt(f"create-in-{folder}", os.open, f"{folder}/{MARK}", os.O_CREAT | os.O_WRONLY)
    attempt(f"mkdir-in-{folder}", os.mkdir, f"{folder}/{MARK}-d")
    attempt(f"symlink-in-{folder}", os.symlink, "/tmp", f"{folder}/{MARK}-l")
    attempt(f"hidden-in-{folder}", os.open, folder, os.O_TMPFILE | os.O_WRONLY)

os.symlink("/etc/passwd", "link")
attempt("through-symlink", os.open, "link", os.O_WRONLY)
attempt("raw-open", sc, "openat", -100, b"/etc/passwd", os.O_WRONLY, 0)
attempt(
    "raw-openat2", sc, "openat2", -100, b"/etc/passwd", struct.pack("QQQ", os.O_WRONLY, 0, 0), 24
)
attempt("hard-link", os.link, "/etc/passwd", "hard")
attempt("hard-link-from-descriptor", os.link, "/proc/self/exe", "hard-exe", follow_symlinks=True)
fd = os.open("/etc/passwd", os.O_RDONLY)
attempt("reopen-descriptor", os.open, f"/proc/self/fd/{fd}", os.O_WRONLY)
attempt(
    "reopen-path-descriptor",
    os.open,
    f"/proc/self/fd/{os.open('/etc/passwd', os.O_PATH)}",
    os.O_WRONLY,
)
attempt("reopen-program", os.open, "/proc/self/exe", os.O_WRONLY)
attempt("through-own-root", os.open, "/proc/self/root/etc/passwd", os.O_WRONLY)
attempt("through-first-root", os.open, "/proc/1/root/etc/passwd", os.O_WRONLY)
attempt("map-shared", mmap.mmap, fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)
attempt("descriptor-chmod", os.fchmod, fd, 0o666)
attempt("descriptor-chown", os.fchown, fd, 1000, 1000)
attempt("descriptor-truncate", os.ftruncate, fd, 0)
attempt("descriptor-times", os.utime, fd)
attempt("extended-attribute", os.setxattr, "/etc/passwd", "user.mark", b"x")
attempt("file-flags", fcntl.ioctl, fd, 0x40086602, struct.pack("l", 0x10))
attempt("chown-etc", os.chown, "/etc", 1000, 1000)
attempt("times-of-etc", os.utime, "/etc")
attempt("remove-tree", shutil.rmtree, "/usr/lib")
report("still-there", len(read_file("/etc/passwd")) > 0 and os.path.exists(os.__file__))
