# SPDX-License-Identifier: Apache-2.0
# What the kernel tells and takes through files.
def content(path):
    """What reading a file or a folder gives, as a word."""
    if os.path.isdir(path):
        outcome, data = outcome_of(os.listdir, path)
    else:
        outcome, data = outcome_of(read_file, path, 65536)
    if outcome == "done":
        return "content" if data else "empty"
    return outcome


for path in (
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/vmallocinfo",
    "/proc/slabinfo",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/kpagecgroup",
    "/proc/mtrr",
    "/proc/latency_stats",
    "/proc/sysrq-trigger",
    "/proc/acpi",
    "/proc/scsi/scsi",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/firmware/acpi",
    "/sys/firmware/efi",
    "/sys/fs/cgroup",
    "/sys/fs/bpf",
    "/sys/fs/pstore",
    "/sys/power",
    "/sys/class/dmi/id",
    "/sys/class/net/eth0",
    "/sys/block",
    "/sys/module",
):
    report(f"read-{path}", content(path))

outcome, text = outcome_of(read_file, "/proc/kallsyms")
if outcome == "done":
    addresses = {line.split()[0].strip(b"0") for line in text.splitlines()}
    outcome = "empty" if not text else "zeros" if addresses == {b""} else "addresses"
report("symbols", outcome)
outcome, text = outcome_of(read_file, "/proc/iomem")
if outcome == "done":
    ranges = {line.split(b" : ")[0].strip() for line in text.splitlines()}
    outcome = (
        "empty" if not text else "zeros" if {r.strip(b"0-") for r in ranges} == {b""} else "ranges"
    )
report("physical-memory", outcome)
buffer = ctypes.create_string_buffer(65536)
for name, action in (("read-all", 3), ("size", 10), ("clear", 5), ("console-off", 6)):
    attempt(f"syslog-{name}", sc, "syslog", action, buffer, len(buffer))

for name in (
    "kernel/core_pattern",
    "kernel/hostname",
    "kernel/domainname",
    "kernel/modprobe",
    "kernel/printk",
    "kernel/panic",
    "kernel/sysrq",
    "kernel/shmmax",
    "kernel/msgmax",
    "kernel/pid_max",
    "kernel/randomize_va_space",
    "kernel/yama/ptrace_scope",
    "vm/overcommit_memory",
    "vm/drop_caches",
    "fs/file-max",
    "fs/mqueue/queues_max",
    "fs/suid_dumpable",
    "fs/binfmt_misc/register",
    "net/ipv4/ip_forward",
    "net/core/somaxconn",
    "net/ipv4/ping_group_range",
    "net/ipv4/ip_unprivileged_port_start",
    "user/max_user_namespaces",
):
    attempt(f"write-{name}", os.open, f"/proc/sys/{name}", os.O_WRONLY)


def set_next_pid():
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:  # anybody may open it
        file.write("1000")


attempt("set-next-pid", set_next_pid)
attempt("write-sysrq-trigger", os.open, "/proc/sysrq-trigger", os.O_WRONLY)
attempt("write-irq", os.open, "/proc/irq/default_smp_affinity", os.O_WRONLY)
for name in ("cmdline", "version", "modules", "keys", "swaps", "partitions", "diskstats", "locks"):
    dump(f"proc-{name}", outcome_of(read_file, f"/proc/{name}")[1] or b"")
report("kernel-texts-read", "done")
