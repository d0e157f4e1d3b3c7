# SPDX-License-Identifier: Apache-2.0
"""Runs under the filter of cells: processes, threads, descriptors, sockets and
databases as Python programs use them."""

import asyncio
import concurrent.futures
import ctypes
import fcntl
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import pty
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading


def square(number):
    return number * number


def put(queue, lock, number):
    with lock:
        queue.put(square(number))


def multiprocessing_by(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    queue, lock = context.Queue(), context.Lock()
    children = [context.Process(target=put, args=(queue, lock, n)) for n in range(3)]
    for child in children:
        child.start()
    assert sorted(queue.get() for _ in children) == [0, 1, 4]
    for child in children:
        child.join()
        assert child.exitcode == 0
    semaphores = [context.Semaphore() for _ in range(100)]
    assert all(semaphore.acquire(block=False) for semaphore in semaphores)
    assert len(context.Array("d", 1 << 17)) == 1 << 17


def shared_memory():
    block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    block.buf[0] = 7
    same = multiprocessing.shared_memory.SharedMemory(block.name)
    assert same.buf[0] == 7
    same.close()
    block.close()
    block.unlink()


def subprocesses():
    assert subprocess.run(["cat"], input=b"x", capture_output=True, check=True).stdout == b"x"
    assert subprocess.run("exit 3", shell=True, start_new_session=True).returncode == 3
    assert subprocess.run(["true"], preexec_fn=lambda: os.nice(1)).returncode == 0
    child = os.posix_spawn("/bin/true", ["true"], {}, setpgroup=0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    child = os.fork()
    if child == 0:
        os._exit(5)
    with open(os.pidfd_open(child), closefd=True):
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    child = subprocess.Popen(["sleep", "60"])
    signal.pidfd_send_signal(os.pidfd_open(child.pid), signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


def threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(square, range(100))) == 328350
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    thread.join()
    assert done.is_set()


def ctypes_callbacks():
    libc = ctypes.CDLL(None)
    assert libc.getpid() == os.getpid()
    compare_type = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)
    )
    numbers = (ctypes.c_int * 4)(3, 1, 4, 1)
    libc.qsort(numbers, 4, 4, compare_type(lambda a, b: a[0] - b[0]))
    assert list(numbers) == [1, 1, 3, 4]


async def asyncio_everything():
    async def echo(reader, writer):
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    server.close()

    child = await asyncio.create_subprocess_exec("echo", "x", stdout=asyncio.subprocess.PIPE)
    assert (await child.communicate())[0] == b"x\n"

    loop = asyncio.get_running_loop()
    received = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, received.set_result, True)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert await received
    assert await loop.run_in_executor(None, square, 3) == 9
    assert await loop.getaddrinfo("localhost", 80)


def sockets():
    names = [name for _, name in socket.if_nameindex()]
    assert "lo" in names
    assert socket.getaddrinfo("127.0.0.1", 80, proto=socket.IPPROTO_TCP)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as tcp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000)
        tcp.settimeout(5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        udp.sendto(b"ping", udp.getsockname())
        assert udp.recv(10) == b"ping"
    left, right = socket.socketpair()
    socket.send_fds(left, [b"fd"], [0])
    assert len(socket.recv_fds(right, 10, 1)[1]) == 1


def databases(folder):
    path = os.path.join(folder, "test.db")
    first = sqlite3.connect(path)
    first.execute("PRAGMA journal_mode=WAL")
    first.execute("CREATE TABLE numbers (n)")
    with first:
        first.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(10)])
    second = sqlite3.connect(path)
    assert second.execute("SELECT sum(n) FROM numbers").fetchone() == (45,)


def files(folder):
    path = os.path.join(folder, "file")
    with open(path, "wb+") as file:
        file.write(b"0123456789")
        file.flush()
        os.fsync(file.fileno())
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.posix_fallocate(file.fileno(), 0, 8192)
        with mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0:1] = b"x"
            mapped.flush()
    os.chmod(path, 0o640)
    os.utime(path, (1, 1))
    shutil.copy2(path, path + ".copy")
    with open(path + ".copy", "rb") as copy:
        assert copy.read(2) == b"x1"
    os.mkfifo(os.path.join(folder, "fifo"))
    assert stat.S_ISFIFO(os.stat(os.path.join(folder, "fifo")).st_mode)
    with tarfile.open(os.path.join(folder, "a.tar"), "w") as archive:
        archive.add(path, "file")
    with tarfile.open(os.path.join(folder, "a.tar")) as archive:
        archive.extract("file", os.path.join(folder, "out"))
    shutil.copytree(folder, folder + ".tree", ignore=shutil.ignore_patterns("fifo"))
    shutil.rmtree(folder + ".tree")
    os.sync()
    with open(os.memfd_create("memory"), "wb+") as memory:
        memory.write(b"x")


def limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(soft, 256)
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    assert resource.getrlimit(resource.RLIMIT_CORE) == before
    assert os.sched_getaffinity(0)


def terminal():
    master, slave = pty.openpty()
    assert os.isatty(slave) and not os.isatty(0)
    assert os.get_terminal_size(slave).columns >= 0
    os.close(master)
    os.close(slave)


def main():
    for method in ("fork", "spawn", "forkserver"):
        multiprocessing_by(method)
    shared_memory()
    subprocesses()
    threads()
    ctypes_callbacks()
    asyncio.run(asyncio_everything())
    sockets()
    with tempfile.TemporaryDirectory() as folder:
        databases(folder)
        files(folder)
    limits()
    if os.path.exists("/dev/ptmx"):
        terminal()
    print("all of it works", file=sys.stderr)


if __name__ == "__main__":
    main()
