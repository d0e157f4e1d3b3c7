# SPDX-License-Identifier: Apache-2.0
# Uses up descriptors, processes, threads, pipes, sockets and kernel objects.
import resource
import signal
import socket
import threading


def until_it_fails(make, most):
    """Makes things until it cannot, or has the most; the outcome and the things."""
    things = []
    for _ in range(most):
        outcome, thing = outcome_of(make)
        if outcome != "done":
            return outcome, things
        things.append(thing)
    return "all", things


outcome, fds = until_it_fails(lambda: os.open("/dev/null", os.O_RDONLY), 1_100_000)
report("descriptors", outcome)
for fd in fds:
    os.close(fd)
outcome, pairs = until_it_fails(socket.socketpair, 300_000)
report("socket-pairs", outcome)
del pairs


def big_pipe():
    pair = os.pipe()
    outcome_of(__import__("fcntl").fcntl, pair[1], 1031, 1 << 20)
    os.set_blocking(pair[1], False)
    outcome_of(os.write, pair[1], b"x" * (1 << 20))
    return pair


outcome, pipes = until_it_fails(big_pipe, 100)
report("pipes", outcome)
for pair in pipes:
    os.close(pair[0])
    os.close(pair[1])


def child():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


outcome, pids = until_it_fails(child, 5000)
report("processes", outcome)
report("process-count", len(pids))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
for pid in pids:
    os.waitpid(pid, 0)

event = threading.Event()


def thread():
    made = threading.Thread(target=event.wait)
    made.start()
    return made


outcome, threads = until_it_fails(thread, 5000)
report("threads", outcome)
event.set()
for made in threads:
    made.join()
outcome, _ = until_it_fails(lambda: sc("shmget", 0, 1 << 20, 0o1600), 10_000)
report("shared-segments", outcome)
outcome, _ = until_it_fails(lambda: sc("semget", 0, 10, 0o1600), 40_000)
report("semaphores", outcome)
outcome, _ = until_it_fails(lambda: sc("msgget", 0, 0o1600), 40_000)
report("message-queues", outcome)
outcome, _ = until_it_fails(lambda: sc("timer_create", 1, None, bytes(8)), 40_000)
report("timers", outcome)
report("after", in_child(lambda: 0))
