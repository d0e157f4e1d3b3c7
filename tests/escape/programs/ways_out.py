# SPDX-License-Identifier: Apache-2.0
# Roads out of the root folder.
def same(path):
    """Whether a folder is the root folder."""
    one, two = os.stat(path), os.stat("/")
    return "same" if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino) else "other"


def report_same(name, path):
    outcome, answer = outcome_of(same, path)
    report(name, answer or outcome)


handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
mount_id = ctypes.create_string_buffer(8)
attempt("name-to-handle", sc, "name_to_handle_at", -100, b"/", handle, mount_id, 0)
made = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2), 136)
attempt("open-by-handle", sc, "open_by_handle_at", os.open("/", os.O_RDONLY), made, 0)
attempt("chroot", os.chroot, ".")
attempt("pivot-root", sc, "pivot_root", b".", b".")
report_same("dots-from-root", "/../../../..")
root = os.open("/", os.O_PATH)
fd = os.open("../../..", os.O_PATH, dir_fd=root)
report_same("dots-from-descriptor", f"/proc/self/fd/{fd}")
report_same("own-root", "/proc/self/root")
report_same("dots-from-own-root", "/proc/self/root/../..")
report_same("first-root", "/proc/1/root")
report_same("first-root-dots", "/proc/1/root/../..")
report_same("thread-root", f"/proc/self/task/{os.getpid()}/root/..")
os.makedirs("a/b/c")
os.chdir("a/b/c")
os.rename("../../b", "../../../b")
os.chdir("../" * 40)
report_same("dots-after-a-move", ".")
os.chdir("/home/user")
known = {
    "bin",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "opt",
    "mnt",
    "media",
    "boot",
}
report("unknown-in-root", ",".join(sorted(set(os.listdir("/")) - known)) or "none")
for folder in ("/root", "/home", "/tmp", "/mnt", "/media", "/opt", "/srv", "/boot", "/run", "/var"):
    outcome, names = outcome_of(os.listdir, folder)
    names = sorted(names or [])
    dump("listing", f"{folder}: {names}")
    report(f"list-{folder}", outcome if outcome != "done" else ",".join(names) or "empty")
for path in ("/proc/self/cwd", "/proc/self/root", "/proc/self/exe"):
    dump("link", os.readlink(path))
report("links-read", "done")
