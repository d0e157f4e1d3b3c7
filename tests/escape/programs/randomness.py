# SPDX-License-Identifier: Apache-2.0
# The kernel's random pool can be drawn from, not steered.
import fcntl

report("entropy", read_file("/proc/sys/kernel/random/entropy_avail").decode().strip())
outcome, fd = outcome_of(os.open, "/dev/urandom", os.O_RDWR)
report("open-to-write", outcome)
attempt("write", os.write, -1 if fd is None else fd, b"known bytes")
fd = os.open("/dev/urandom", os.O_RDONLY)
for name, number, argument in (
    ("add-entropy", 0x40085203, struct.pack("ii8s", 64, 8, b"known by")),
    ("add-to-count", 0x40045201, struct.pack("i", 64)),
    ("zero-count", 0x5204, 0),
    ("clear-pool", 0x5206, 0),
    ("reseed", 0x5207, 0),
):
    attempt(name, fcntl.ioctl, fd, number, argument)
drawn = [os.urandom(16), os.read(fd, 16), os.getrandom(16), read_file("/dev/random", 16)]
report("different", len(set(drawn)))
