# SPDX-License-Identifier: Apache-2.0
# What the tables of mounts and cgroups tell.
lines = 0
for owner in ("self", "1"):
    for name in ("mounts", "mountinfo", "mountstats", "cgroup", "cpuset"):
        outcome, text = outcome_of(read_file, f"/proc/{owner}/{name}")
        dump(f"{owner}-{name}", text or b"")
        if owner == "self" and name == "mountinfo":
            lines = len(text.splitlines())
report("mount-lines", lines)
paths = {line.split(":", 2)[2] for line in read_file("/proc/self/cgroup").decode().splitlines()}
report("cgroup-paths", ",".join(sorted(paths)) or "none")
writable = set()
for line in read_file("/proc/self/mountinfo").decode().splitlines():
    before, after = line.split(" - ")
    if "rw" in before.split()[5].split(",") and "rw" in after.split()[2].split(","):
        writable.add(before.split()[4])
dump("writable", " ".join(writable))
tried, done = 0, []
for line in read_file("/proc/self/mountinfo").decode().splitlines():
    point = line.split()[4]
    tried += 1
    made = point + "/made-" + TOKEN if os.path.isdir(point) else point
    outcome, fd = outcome_of(os.open, made, os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK)
    if outcome == "done" and os.path.isdir(point):
        done.append(point)
report("mounts-tried", tried)
report("mounts-written", ",".join(sorted(done)) or "none")
dump("statfs", repr([outcome_of(os.statvfs, path)[1] for path in ("/", "/home/user", "/tmp")]))
