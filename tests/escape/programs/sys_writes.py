# SPDX-License-Identifier: Apache-2.0
# Writes to /sys, and to the files of /proc that hold a process's standing.
opened = seen = 0
for folder, folders, files in os.walk("/sys"):
    for name in files:
        seen += 1
        opened += (
            outcome_of(os.open, os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)[0]
            == "done"
        )
    if seen > 20_000:
        break
report("sys-files", seen)
report("sys-opened", opened)


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


start = int(read_file("/proc/self/oom_score_adj"))
attempt("lower-oom-score", write, "/proc/self/oom_score_adj", str(start - 1))
attempt("lowest-oom-score", write, "/proc/self/oom_score_adj", "-1000")
attempt("oom-score-of-first", write, "/proc/1/oom_score_adj", "1000")
attempt("uid-map", write, "/proc/self/uid_map", "0 0 1")
attempt("gid-map", write, "/proc/self/gid_map", "0 0 1")
attempt("project-map", write, "/proc/self/projid_map", "0 0 1")
attempt("setgroups", write, "/proc/self/setgroups", "allow")
attempt("uid-map-of-first", write, "/proc/1/uid_map", "0 0 1")
attempt("time-offsets", write, "/proc/self/timens_offsets", "monotonic 86400 0")
attempt("login-uid", write, "/proc/self/loginuid", "0")
report("oom-score-not-negative", int(read_file("/proc/self/oom_score_adj")) >= 0)
