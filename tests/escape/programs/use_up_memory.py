# SPDX-License-Identifier: Apache-2.0
# Takes memory by every door until it is stopped.
import mmap
import signal

report("starting", "done")
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        blocks = []
        while True:
            block = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, len(block), 4096):
                block[at] = 1
            blocks.append(block)
    children.append(pid)
shared = os.memfd_create("memory")
for number in range(4096):
    os.write(shared, b"x" * (1 << 20))
for pid in children:
    os.waitpid(pid, 0)
