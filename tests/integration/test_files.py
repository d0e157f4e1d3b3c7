# SPDX-License-Identifier: Apache-2.0
"""
Files of cells: hutch-init by itself, as the engine sees it, with a home directory that the
test fills with what hostile programs make; requests and results through the C API; the
options of hutch run. Needs root for the first.
"""

import array
import base64
import contextlib
import fcntl
import hashlib
import io
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import door  # noqa: E402
from door import BUILD, PATIENCE  # noqa: E402

PUT, GET, LIST, DELETE, MARK, CHANGES = range(64, 70)
DATA, ENTRIES, ANSWER = range(80, 83)
PIECE = 64 << 10
ENOENT, EWOULDBLOCK, ENXIO, EISDIR, EINVAL, EFBIG, ELOOP, EMLINK = 2, 11, 6, 21, 22, 27, 40, 31
CACHE = os.environ.get("HUTCH_CACHE_DIR") or str(BUILD / "tests/cache")


class Init:
    """hutch-init with a root directory of its own, and nobody beside it."""

    def __init__(self, root):
        self.home = root / "home/user"
        self.home.mkdir(parents=True)
        (root / "init").write_bytes((BUILD / "libexec/hutch/hutch-init").read_bytes())
        (root / "init").chmod(0o755)
        self.attendant, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            ["/usr/sbin/chroot", root, "/init"], stdin=theirs, stdout=subprocess.DEVNULL)
        theirs.close()
        self.calls = 0
        self.connect()

    def connect(self, link=0):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(10)
        self.attendant.sendmsg([struct.pack("=III", 1, link, 0)], [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
        theirs.close()

    def send(self, kind, payload=b"", flags=0):
        self.socket.sendall(struct.pack("=IHHI", len(payload), kind, flags, self.calls) + payload)

    def receive_exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data), socket.MSG_WAITALL)
            if not piece:
                raise EOFError
            data += piece
        return data

    def answer(self):
        """errno, flags, size; and what came before it."""
        data = []
        while True:
            length, kind, _, call = struct.unpack("=IHHI", self.receive_exactly(12))
            payload = self.receive_exactly(length)
            assert call == self.calls and length <= PIECE
            if kind == ANSWER:
                return *struct.unpack("=iIQ", payload), b"".join(data)
            data.append(payload)

    def call(self, kind, payload=b""):
        self.calls += 1
        self.send(kind, payload)
        return self.answer()

    def put(self, path, data, size=None, flags=0):
        self.calls += 1
        self.send(PUT, struct.pack("=Q", len(data) if size is None else size) + path, flags)
        for at in range(0, len(data), PIECE):
            self.send(DATA, data[at:at + PIECE])
        return self.answer()[0]

    def get(self, path, limit=1 << 40):
        error, _, size, data = self.call(GET, struct.pack("=Q", limit) + path)
        return data if error == 0 else (error, size)

    def names(self, kind=LIST, path=b""):
        error, cut, _, data = self.call(kind, path)
        assert (error, cut) == (0, 0)
        return self.entries(data)

    @staticmethod
    def entries(data):
        found, at = {}, 0
        while at < len(data):
            size, length, flags, _ = struct.unpack_from("=QHHI", data, at)
            at += 16 + length
            found[data[at - length:at]] = (bool(flags & 1), size)
        return found


@pytest.fixture
def init(tmp_path):
    made = Init(tmp_path)
    yield made
    made.attendant.close()
    assert made.process.wait(timeout=10) == 0 or made.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 30 << 20])
def test_whole(init, size):
    data = os.urandom(size)
    assert init.put(b"a/b", data) == 0
    assert hashlib.sha256(init.get(b"a/b")).digest() == hashlib.sha256(data).digest()
    assert os.listdir(init.home / "a") == ["b"]
    status = (init.home / "a/b").stat()
    assert stat.S_IMODE(status.st_mode) == 0o644


def test_memory_stays(init):
    memory = Path(f"/proc/{init.process.pid}/statm")
    assert init.put(b"a", b"x" * PIECE) == 0
    before = int(memory.read_text().split()[1])
    assert init.put(b"a", bytes(64 << 20)) == 0
    assert len(init.get(b"a")) == 64 << 20
    for number in range(2000):
        (init.home / f"file{number}").touch()
    init.names(CHANGES)
    assert int(memory.read_text().split()[1]) <= before + 64


def test_replaced(init):
    assert init.put(b"a", b"long" * 1000) == 0
    assert init.put(b"a", b"short", flags=1) == 0
    assert init.get(b"a") == b"short"
    assert (init.home / "a").stat().st_mode & 0o777 == 0o755
    (init.home / "target").write_text("kept")
    (init.home / "link").symlink_to("target")
    assert init.put(b"link", b"new") == 0
    assert (init.home / "target").read_text() == "kept"
    (init.home / "folder").mkdir()
    assert init.put(b"folder", b"x") == EISDIR
    assert sorted(os.listdir(init.home)) == ["a", "folder", "link", "target"]


@pytest.mark.parametrize("path", [
    b"", b"/etc/passwd", b"/home/user/x", b"..", b"../x", b"a/../../x", b"a//b", b"a/", b".",
    b"a/./b", b"a\0b", b"n" * 256, b"a/" + b"n" * 256, b"n/" * 2048, b"n" * 5000])
def test_bad_paths(init, path):
    (init.home.parent / "x").write_text("outside")
    assert init.put(path, b"new", size=3) == EINVAL
    assert init.get(path) == (EINVAL, 0)
    assert init.call(DELETE, path)[0] == EINVAL
    assert path == b"" or init.call(LIST, path)[0] == EINVAL
    assert (init.home.parent / "x").read_text() == "outside"
    assert os.listdir(init.home) == []


@pytest.mark.parametrize("path", [
    b"n" * 255, b"/".join([b"d"] * 21), (b"n" * 99 + b"/") * 40 + b"n" * 95, b"-rf", b"a\nb",
    b"a\xff", b"a\xed\xa0\x80", b'a"b', b"..%2fx", b"....", b"a\\b", b" "])
def test_odd_paths(init, path):
    assert init.put(path, b"data") == 0
    assert init.get(path) == b"data"
    if b"/" not in path:
        assert init.names() == {path: (False, 4)}
    assert init.names(CHANGES) == {path: (False, 4)}
    assert init.call(DELETE, path)[0] == 0
    assert init.get(path) == (ENOENT, 0)


def test_no_regular_files(init):
    outside = init.home.parent / "secret"
    outside.write_text("secret")
    os.mkfifo(init.home / "fifo")
    os.mknod(init.home / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(init.home / "socket"))
    (init.home / "one").symlink_to("/home/secret")
    (init.home / "two").symlink_to("one")
    (init.home / "three").symlink_to("two")
    (init.home / "up").symlink_to("..")
    os.link(outside, init.home / "hard")
    start = time.monotonic()
    for name, errors in {b"fifo": [ENXIO], b"device": [ENXIO], b"socket": [ENXIO],
                         b"one": [ELOOP], b"two": [ELOOP], b"three": [ELOOP],
                         b"up/secret": [20, ELOOP], b"hard": [EMLINK]}.items():
        assert init.get(name)[0] in errors, name
    assert init.call(LIST, b"up")[0] in (20, ELOOP)
    assert init.call(LIST, b"fifo")[0] in (20,)
    assert init.put(b"up/new", b"x") in (20, ELOOP)
    assert set(init.names()) == {b"fifo", b"device", b"socket", b"one", b"two", b"three", b"up",
                                 b"hard"}
    assert time.monotonic() - start < 5
    assert init.put(b"fifo", b"now a file") == 0
    assert init.get(b"fifo") == b"now a file"
    assert init.call(DELETE, b"up")[0] == 0
    assert outside.read_text() == "secret" and not (init.home.parent / "new").exists()


def test_lease(init):
    """Who opens such a file for writing waits for its holder, else."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel asks for it back
    (init.home / "leased").write_text("x")
    with open(init.home / "leased", "r+b") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert init.get(b"leased") == (EWOULDBLOCK, 0)
        assert init.names() == {b"leased": (False, 1)}
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert init.get(b"leased") == b"x"
    signal.signal(signal.SIGIO, before)


def test_limits(init):
    with open(init.home / "sparse", "wb") as file:
        file.truncate(100 << 30)
    assert init.names() == {b"sparse": (False, 100 << 30)}
    assert init.get(b"sparse", limit=4 << 20) == (EFBIG, 100 << 30)
    assert init.put(b"a", b"12345") == 0
    assert init.get(b"a", limit=5) == b"12345"
    assert init.get(b"a", limit=4) == (EFBIG, 5)


def test_lists(init):
    (init.home / "many").mkdir()
    for number in range(10000):
        (init.home / f"many/{number:05}-{'n' * 200}").touch()
    assert len(init.names(LIST, b"many")) == 10000
    assert init.names() == {b"many": (True, (init.home / "many").stat().st_size)}
    assert len(init.names(CHANGES)) == 10000
    assert init.call(LIST, b"many/none")[0] == ENOENT
    assert init.call(LIST, b"many/00000-" + b"n" * 200)[0] == 20
    for number in range(10000, 21000):
        (init.home / f"many/{number:05}").touch()
    error, cut, _, data = init.call(CHANGES)
    assert (error, cut) == (0, 1) and 10000 < len(init.entries(data)) <= 20000


def test_deep(init):
    folder = init.home
    for depth in range(100):
        (folder / "file").touch()
        folder = folder / "d"
        folder.mkdir()
    error, cut, _, data = init.call(CHANGES)
    assert (error, cut) == (0, 1) and len(init.entries(data)) == 64
    (init.home / "link").symlink_to(".")
    assert len(init.entries(init.call(CHANGES)[3])) == 64


def test_changes_since_the_mark(init):
    for round in range(20):
        assert init.put(b"old", b"x") == 0
        assert init.call(MARK)[0] == 0
        assert init.names(CHANGES) == {}
        (init.home / "new").write_text("x")
        assert init.names(CHANGES) == {b"new": (False, 1)}
        with open(init.home / "old", "r+") as file:
            file.write("y")
        assert set(init.names(CHANGES)) == {b"old", b"new"}
        (init.home / "new").unlink()


def test_delete(init):
    assert init.put(b"d/a", b"x") == 0
    assert init.call(DELETE, b"d")[0] == 39
    assert init.call(DELETE, b"d/a")[0] == 0
    assert init.call(DELETE, b"d")[0] == 0
    assert init.call(DELETE, b"d")[0] == ENOENT


def test_links_do_not_wait_for_each_other(init):
    """A call on one goes on while the other one stands in the middle of a file."""
    init.calls += 1
    init.send(PUT, struct.pack("=Q", 2 * PIECE) + b"a")
    init.send(DATA, b"1" * PIECE)
    half, calls = init.socket, init.calls
    init.connect(1)
    for number in range(1000):
        (init.home / f"file{number}").touch()
    assert len(init.names()) == len(init.names(CHANGES)) == 1000  # without that which is put
    assert init.put(b"b", b"2") == 0 and init.get(b"b") == b"2"
    init.socket.close()
    init.socket, init.calls = half, calls
    init.send(DATA, b"3" * PIECE)
    assert init.answer()[0] == 0
    assert init.get(b"a") == b"1" * PIECE + b"3" * PIECE


def test_changes_after_a_time(init):
    assert init.put(b"before", b"x") == 0
    before = (init.home / "before").stat().st_ctime_ns
    while time.clock_gettime_ns(time.CLOCK_REALTIME) - before < 50_000_000:
        time.sleep(0.01)  # ticks of the coarse clock
    assert init.put(b"later", b"x") == 0
    for after, expected in [(before - 1, {b"before", b"later"}), (before, {b"later"}),
                            (time.time_ns(), set())]:
        error, _, _, data = init.call(CHANGES, struct.pack("=q", after))
        assert error == 0 and set(init.entries(data)) == expected


def test_broken_off(init):
    """By the end of the connection, by another call, by too much."""
    init.put(b"kept", b"old")
    init.calls += 1
    init.send(PUT, struct.pack("=Q", 3 * PIECE) + b"kept")
    init.send(DATA, bytes(PIECE))
    assert init.get(b"kept") == b"old"
    init.calls += 1
    init.send(PUT, struct.pack("=Q", 3 * PIECE) + b"kept")
    init.send(DATA, bytes(PIECE))
    init.socket.close()
    init.connect()
    assert init.put(b"more", b"12345", size=4) == EINVAL
    assert init.names() == {b"kept": (False, 3)}
    assert init.get(b"kept") == b"old"


def test_five_at_once(init):
    """One after the other, on the connection; each refusal concerns itself alone."""
    for number in range(5):
        name = b"file%d" % number if number % 2 else b"../file%d" % number
        assert init.put(name, bytes([number]) * 200000) == (0 if number % 2 else EINVAL)
    assert init.get(b"file3") == b"\3" * 200000


@pytest.mark.parametrize("frame", [
    struct.pack("=IHHI", PIECE + 1, PUT, 0, 9), struct.pack("=IHHI", 3, PUT, 0, 9) + b"abc"])
def test_broken_frames(init, frame):
    init.socket.sendall(frame)
    with contextlib.suppress(ConnectionResetError):
        assert init.socket.recv(1) == b""
    init.connect()
    assert init.put(b"a", b"x") == 0


def test_killed(init):
    init.calls += 1
    init.send(PUT, struct.pack("=Q", 3 * PIECE) + b"a")
    init.process.kill()
    with pytest.raises((EOFError, ConnectionError)):
        init.answer()
    assert not (init.home / "a").exists()


# ---- through the C API -------------------------------------------------------


@pytest.fixture(scope="module", params=["cold", "forked", "parked"])
def engine(request):
    warmth = {"parked": "0", "forked": "1", "cold": "2"}[request.param]
    with door.Engine(CACHE, "--warmth", warmth) as made:
        if request.param == "parked":
            made.warm_up(2)
        elif request.param == "forked":
            made.run("1")
            made.run("1")
            while made.warm()["zygotes"] == 0:
                time.sleep(0.02)
        yield made


def encoded(data):
    return base64.b64encode(data).decode()


def paths(result):
    return [entry["path"] for entry in result["files"]]


def test_in_and_out(engine):
    binary = bytes(range(256)) * 100
    result = engine.ask({
        "code": "import shutil\nshutil.copy('in/data.bin', 'out.bin')\nopen('t.csv', 'w').write('a')",
        "files": [{"path": "in/data.bin", "data": encoded(binary)},
                  {"path": "/home/user/empty", "data": ""}],
        "return_files": ["*.bin"]})
    assert result["files"] == [
        {"path": "out.bin", "size": len(binary), "mime": "application/octet-stream",
         "data": encoded(binary)},
        {"path": "t.csv", "size": 1, "mime": "text/csv"}]


def test_only_what_was_changed(engine):
    result = engine.ask({
        "code": "import os\nopen('b', 'r+').write('x')\nos.remove('c')\nopen('/tmp/t', 'w')",
        "files": [{"path": name, "data": encoded(b"old")} for name in "abc"],
        "return_files": ["**"]})
    assert [(f["path"], f["data"]) for f in result["files"]] == [("b", encoded(b"xld"))]


def test_nothing(engine):
    assert engine.ask({"code": "print(1)"})["files"] == []
    assert engine.ask({"code": "print(1)", "return_files": ["*"]})["files"] == []


def test_a_workbook(engine):
    """Of plain zipfile, where openpyxl is missing."""
    code = ("try:\n import pandas\n pandas.DataFrame({'a': [1]}).to_excel('report.xlsx')\n"
            "except ImportError:\n import zipfile\n"
            " zipfile.ZipFile('report.xlsx', 'w').writestr('x', 'y')")
    result = engine.ask({"code": code, "memory_mb": 1024, "return_files": ["*.xlsx"]})
    [entry] = result["files"]
    assert entry["mime"].endswith("spreadsheetml.sheet")
    assert zipfile.is_zipfile(io.BytesIO(base64.b64decode(entry["data"])))


def test_odd_names(engine):
    names = ["-rf", "a\nb", 'a"b', "a\udcff", "n" * 255, "/".join(["d"] * 20) + "/f"]
    code = ("import os\nfor n in " + ascii(names) + ":\n"
            "    b = os.fsencode(n)\n    os.makedirs(os.path.dirname(b) or b'.', exist_ok=True)\n"
            "    open(b, 'w').write('x')")
    result = engine.ask({"code": code, "return_files": ["**"]})
    assert sorted(paths(result)) == sorted(n.replace("\udcff", "\ufffd") for n in names)
    assert all(entry["data"] == encoded(b"x") for entry in result["files"])


def test_what_hostile_programs_leave(engine):
    code = ("import os, socket\nos.mkfifo('fifo')\ns = socket.socket(socket.AF_UNIX)\n"
            "s.bind('socket')\nos.symlink('/etc/passwd', 'one')\nos.symlink('one', 'two')\n"
            "os.symlink('/', 'root')\nopen('f', 'w').write('x')\nos.link('f', 'hard')\n"
            "open('sparse', 'w').truncate(100 << 30)\nopen('ok', 'w').write('fine')")
    start = time.monotonic()
    result = engine.ask({"code": code, "return_files": ["**"]})
    assert [(f["path"], f["size"], f.get("data")) for f in result["files"]] == [
        ("f", 1, None), ("hard", 1, None), ("ok", 4, encoded(b"fine")),
        ("sparse", 100 << 30, None)]
    assert result["files_truncated"] is True
    assert time.monotonic() - start < 10


def test_who_goes_on_writing(engine):
    """All processes are dead before the files are read."""
    code = ("import os\nif os.fork() == 0:\n os.setsid()\n n = 0\n"
            " while True:\n  n += 1\n  open('f', 'w').write(str(n))\n"
            "import time\ntime.sleep(0.2)\nopen('done', 'w')")
    for _ in range(3):
        result = engine.ask({"code": code, "return_files": ["f"]})
        [done, entry] = result["files"]
        assert (done["path"], entry["path"]) == ("done", "f")
        assert len(base64.b64decode(entry["data"])) == entry["size"]


@pytest.mark.parametrize("code", ["os.chmod('.', 0)", "os.rmdir('/home/user')",
                                  "os.chmod('d', 0)", "os.kill(1, 9)"])
def test_a_home_that_is_closed(engine, code):
    code = ("import os, contextlib\nos.mkdir('d')\nopen('d/f', 'w')\nopen('/tmp/x', 'w')\n"
            "with contextlib.suppress(OSError):\n " + code + "\nprint('ran')")
    result = engine.ask({"code": code})
    assert (result["stdout"], result["exit_code"]) == ("ran\n", 0)
    assert result.get("files_truncated", False) == ("chmod" in code)


def test_time_limit(engine):
    result = engine.ask({"code": "open('f', 'w').write('x')\nwhile True: pass",
                         "timeout_seconds": 1, "return_files": ["f"]})
    assert result["timed_out"] and result["files"][0]["data"] == encoded(b"x")


def test_memory_limit(engine):
    result = engine.ask({"code": "open('f', 'w').write('x')\nx = bytearray(1 << 30)\n"
                                 "import subprocess", "memory_mb": 64})
    assert result["error_type"] == "resource_limit"


def test_too_much_to_return(engine):
    code = "for n in 'abc': open(n, 'wb').write(bytes(3 << 20))"
    result = engine.ask({"code": code, "return_files": ["?"]})
    assert [("data" in entry) for entry in result["files"]] == [True, False, False]
    assert result["files_truncated"] is True


def error_of(engine, **request):
    number = engine.send({"code": "print(1)", **request})
    answer = engine.answer(number)
    engine.answers.pop(number)
    assert "error" in answer, answer
    return answer["error"]


def files(*entries):
    return [{"path": path, "data": encoded(data)} for path, data in entries]


def test_refused(engine):
    big = bytes((4 << 20) + 1)
    for request, text in (
            ({"files": files(("a", big))}, "4194304 bytes together"),
            ({"files": files(("a", big[:2 << 20]), ("b", big[:3 << 20]))}, "4194304"),
            ({"files": [{"path": "a", "data": "????"}]}, "no Base64"),
            ({"files": files(("../a", b""))}, "holds '..'"),
            ({"files": files(("n" * 256, b""))}, "256 bytes; allowed are 255"),
            ({"files": files(("n/" * 2048, b""))}, "allowed are 4095"),
            ({"files": files(("a", b"x"), ("a/b", b"x"))}, "'a/b'"),
            ({"files": files(("d/b", b"x"), ("d", b"x"))}, "'d'"),
            ({"files": files(("a", big[:2 << 20])), "disk_mb": 1}, "disk_mb"),
            ({"return_files": ["/etc/*"]}, "return_files")):
        error = error_of(engine, **request)
        assert text in error["message"], error
        assert error["code"] == "invalid_request" and error["retry_safe"] is True
    assert engine.ask({"code": "import os\nprint(os.listdir())"})["stdout"] == "[]\n"


def test_a_time_limit_while_files_are_placed(engine):
    """The cell ends when its time does; nothing of the program has run."""
    request = {"files": files(*((f"d{n}/f", b"x" * 1000) for n in range(900))),
               "code": "print('ran')", "timeout_seconds": 30}
    assert engine.ask(request)["stdout"] == "ran\n"


@pytest.mark.parametrize("language, code, expected", [
    ("javascript", "require('fs').writeFileSync('a.json', '{}')", ["a.json"]),
    ("javascript", "import fs from 'fs'; fs.mkdirSync('d'); fs.writeFileSync('d/a', '')", ["d/a"]),
    ("javascript", "console.log(1)", []),
    ("shell", "echo x > a; mkdir d; cp a d/b", ["a", "d/b"]),
    ("shell", "echo x", [])])
def test_other_languages(engine, language, code, expected):
    for given in ([], files(("in", b"x"))):
        result = engine.ask({"language": language, "code": code, "files": given})
        assert (paths(result), result["exit_code"]) == (expected, 0)


# ---- hutch-init is killed ----------------------------------------------------


def stop_init(supervisor):
    """Waits until there is a hutch-init, and stops it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for pid in door.children(supervisor):
            if door.command(pid) == [b"hutch-init", b""]:
                os.kill(int(pid), signal.SIGSTOP)
                return int(pid)
    raise AssertionError("there was no hutch-init")


def test_killed_when_files_are_read():
    """The program has ended: the outcome is unknown."""
    with door.Engine(CACHE, "--warmth", "2") as engine:
        engine.run("1")
        while len(door.children(engine.supervisor)) > 0:
            pass
        number = engine.send({"code": "open('f', 'w')\nimport time\ntime.sleep(1)"})
        pid = stop_init(engine.supervisor)
        end = time.monotonic() + PATIENCE
        while len(door.children(engine.supervisor)) > 1:  # until the program is dead
            assert time.monotonic() < end
        os.kill(pid, signal.SIGKILL)
        error = engine.answer(number)["error"]
        assert error["code"] == "helper_failed" and error["retry_safe"] is False, error
        assert "hutch-init" in error["message"]
        engine.answers.pop(number)
        assert engine.run("print(2)") == "2\n"


def test_killed_while_files_are_placed(tmp_path):
    """Nothing has run."""
    with open(tmp_path / "big", "wb") as file:
        file.truncate(200 << 20)
    with subprocess.Popen(
            [BUILD / "hutch", "run", "--json", "-c", "print(1)", "--upload", "big:big"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "HUTCH_CACHE_DIR": CACHE}) as process:
        end = time.monotonic() + PATIENCE
        while not (supervisor := door.children(process.pid)):
            assert time.monotonic() < end
        os.kill(stop_init(supervisor[0]), signal.SIGKILL)
        error = json.loads(process.stdout.read())["error"]
        assert error["retry_safe"] is True and "hutch-init" in error["message"], error
        assert process.wait(timeout=PATIENCE) == 125


# ---- the command line --------------------------------------------------------


def hutch(*arguments, cwd):
    return subprocess.run(
        [BUILD / "hutch", "run", *arguments], cwd=cwd, capture_output=True, text=True,
        timeout=PATIENCE, check=False, env={**os.environ, "HUTCH_CACHE_DIR": CACHE})


def test_large_ones_stream(tmp_path):
    data = os.urandom(30 << 20)
    (tmp_path / "in").write_bytes(data)
    run = hutch("-l", "shell", "-c", "cp data/in out", "--upload", "in:data/in",
                "--download", "out:back", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert (tmp_path / "back").read_bytes() == data


def test_executables_stay_so(tmp_path):
    script = tmp_path / "s.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    run = hutch("-l", "shell", "-c", "bin/s.sh", "--upload", "s.sh:bin/s.sh", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "ran\n")


def test_places(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "there").write_text("old")
    run = hutch("-c", "for n in 'abc': open(n, 'w').write(n)", "--download", "a", "--download",
                "b:d", "--download", "/home/user/c:there", cwd=tmp_path)
    assert run.returncode == 0, run
    assert [(tmp_path / p).read_text() for p in ("a", "d/b", "there")] == ["a", "b", "c"]
    assert sorted(os.listdir(tmp_path)) == ["a", "d", "there"]


def test_missing(tmp_path):
    run = hutch("-c", "open('a', 'w')", "--download", "b", "--download", "a", cwd=tmp_path)
    assert run.returncode == 125
    assert run.stderr == "hutch: download: 'b': in the cell: No such file or directory\n"
    assert os.listdir(tmp_path) == ["a"]
    run = hutch("-c", "import sys; sys.exit(3)", "--download", "b", cwd=tmp_path)
    assert run.returncode == 3 and "'b'" in run.stderr
    run = hutch("-c", "1", "--upload", "none:x", cwd=tmp_path)
    assert (run.returncode, "'none' cannot be read" in run.stderr) == (2, True)
    run = hutch("-c", "1", "--download", "a:none/x", cwd=tmp_path)
    assert (run.returncode, "cannot be written" in run.stderr) == (2, True)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("option, value", [
    ("--upload", "a"), ("--upload", ":a"), ("--upload", "a:"), ("--download", ""),
    ("--download", ":a"), ("--download", "a:")])
def test_forms(tmp_path, option, value):
    (tmp_path / "a").write_text("x")
    run = hutch("-c", "1", option, value, cwd=tmp_path)
    assert run.returncode == 2 and "is not of the form" in run.stderr


def test_devices_are_not_replaced(tmp_path):
    run = hutch("-c", "open('a', 'w').write('x')", "--download", "a:/dev/null", cwd=tmp_path)
    assert run.returncode == 0, run
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_larger_than_the_cell(tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(300 << 20)
    run = hutch("-c", "print(1)", "--upload", "big:big", cwd=tmp_path)
    assert run.returncode in (2, 125) and run.stdout == ""
    assert "upload: 'big'" in run.stderr and "disk_mb" in run.stderr
