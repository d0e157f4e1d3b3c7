# SPDX-License-Identifier: Apache-2.0
# Prints on both streams at once, without end.
import threading

report("starting", "done")


def flood(fd):
    block = bytes([97 + fd]) * 65536
    while True:
        os.write(fd, block)


for fd in (1, 2):
    threading.Thread(target=flood, args=(fd,)).start()
