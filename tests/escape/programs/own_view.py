# SPDX-License-Identifier: Apache-2.0
# The program reads about itself: it works, and shows paths of the cell only.
dump("exe", os.readlink("/proc/self/exe"))
report("exe", os.readlink("/proc/self/exe"))
maps = read_file("/proc/self/maps").decode()
dump("maps", maps)
paths = {line.split(None, 5)[5] for line in maps.splitlines() if len(line.split(None, 5)) == 6}
good = (
    "/usr/",
    "/lib/",
    "/lib64/",
    "[",
    "/memfd:",
    "/dev/zero",
    "anon_inode:",
    "/SYSV",
    "/home/user/",
)
report("mapped-paths", sum(path.startswith("/usr/") or path.startswith("/lib") for path in paths))
report("other-mapped-paths", ",".join(sorted(p for p in paths if not p.startswith(good))) or "none")
for name in (
    "auxv",
    "cmdline",
    "environ",
    "stat",
    "status",
    "limits",
    "mountinfo",
    "comm",
    "smaps_rollup",
):
    outcome, data = outcome_of(read_file, f"/proc/self/{name}")
    dump(name, data or b"")
    report(f"read-{name}", outcome if not data else "content")
names = [
    item.split(b"=")[0].decode() for item in read_file("/proc/self/environ").split(b"\0") if item
]
dump("environment-names", " ".join(names))
report("home-there", "HOME" in names)
