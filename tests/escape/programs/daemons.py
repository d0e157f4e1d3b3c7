# SPDX-License-Identifier: Apache-2.0
# Leaves processes behind that hide from whoever looks for them.
import signal

READY_READ, READY_WRITE = os.pipe()


def daemon(number):
    """A deaf process in a session of its own, with no open descriptor and another name."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for deaf in range(1, 65):
        outcome_of(signal.signal, deaf, signal.SIG_IGN)
    outcome_of(sc, "prctl", 15, b"hidden", 0, 0, 0)
    os.write(READY_WRITE, b"x")
    os.closerange(0, 4096)
    while True:
        if number % 2:
            signal.pause()
        elif os.fork() == 0:  # half of them run away from their own pid
            continue
        else:
            os._exit(0)


for count in range(6):
    daemon(count)
report("started", sum(len(os.read(READY_READ, 1)) for _ in range(6)))
stopped = os.fork()
if stopped == 0:
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(stopped, os.WUNTRACED)
report("stopped", "done")
