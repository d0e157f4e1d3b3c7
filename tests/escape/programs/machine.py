# SPDX-License-Identifier: Apache-2.0
# The machine's own switches.
attempt("no-randomization", sc, "personality", 0x0040000)
attempt("read-implies-exec", sc, "personality", 0x0400000)
attempt("other-persona", sc, "personality", 0x0008)
attempt("modify-ldt", sc, "modify_ldt", 1, struct.pack("IIII", 0, 0, 0xFFFFF, 0x51), 16)
attempt("iopl", sc, "iopl", 3)
attempt("ioperm", sc, "ioperm", 0x80, 1, 1)
attempt("hang-up", sc, "vhangup")
attempt("real-time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
attempt("nice", os.setpriority, os.PRIO_PROCESS, 0, -5)
attempt("io-priority", sc, "ioprio_set", 1, 0, (1 << 13) | 4)
attempt("memory-map-of-process", sc, "prctl", 35, 1, 4096, 0, 0)
attempt("move-pages", sc, "move_pages", 1, 0, None, None, None, 0)
attempt("migrate-pages", sc, "migrate_pages", 1, 8, struct.pack("Q", 1), struct.pack("Q", 1))
attempt("set-clock", sc, "clock_settime", 0, struct.pack("qq", 0, 0))
attempt("set-time-of-day", sc, "settimeofday", struct.pack("qq", 0, 0), None)
attempt("adjust-clock", sc, "clock_adjtime", 0, struct.pack("I4xq", 1, 500000) + bytes(200))
attempt("adjust-time", sc, "adjtimex", struct.pack("I4xq", 1, 500000) + bytes(200))
attempt("host-name", sc, "sethostname", b"owned", 5)
attempt("domain-name", sc, "setdomainname", b"owned", 5)
attempt(
    "raise-file-limit",
    __import__("resource").setrlimit,
    __import__("resource").RLIMIT_NOFILE,
    (1 << 20, 1 << 20),
)
attempt("limit-of-first", sc, "prlimit64", 1, 7, struct.pack("QQ", 1 << 20, 1 << 20), None)
report("name-after", os.uname().nodename != "owned")
