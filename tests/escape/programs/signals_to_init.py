# SPDX-License-Identifier: Apache-2.0
# Every signal, by every way of sending one, to the first process of the cell.
import signal

for number in range(1, 32):
    attempt(f"kill-{number}", os.kill, 1, number)
    attempt(f"tgkill-{number}", sc, "tgkill", 1, 1, number)
for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
    info = ctypes.create_string_buffer(
        struct.pack("iiiiii", number, 0, -1, 0, os.getpid(), 1000), 128
    )
    attempt(f"sigqueue-{number}", sc, "rt_sigqueueinfo", 1, number, info)
    attempt(f"thread-sigqueue-{number}", sc, "rt_tgsigqueueinfo", 1, 1, number, info)
opened, pidfd = outcome_of(sc, "pidfd_open", 1, 0)
report("pidfd-open", opened)
for number in (signal.SIGKILL, signal.SIGTERM):
    attempt(
        f"pidfd-{number}", sc, "pidfd_send_signal", -1 if pidfd is None else pidfd, number, None, 0
    )
report("first-process", read_file("/proc/1/comm").decode().strip())
