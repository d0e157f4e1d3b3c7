# SPDX-License-Identifier: Apache-2.0
"""
Files of sessions: on the command line, where lines about files are answered while an exec
runs; and through the C API, whose callbacks stand still, break off and kill in the middle of
a transfer.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import signal
import threading
import time

import pytest
from session_lines import Lines, children, until

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
PIECE = 64 << 10
MIB = 1 << 20
INVALID, BUSY, CANCELLED, EXPIRED = -1, -9, -10, -11

WAITS = "import time\nwhile True: time.sleep(0.02)"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """One cache for all tests, the caller's if there is one."""
    mine = "HUTCH_CACHE_DIR" not in os.environ
    if mine:
        os.environ["HUTCH_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "cache")
    yield os.environ["HUTCH_CACHE_DIR"]
    if mine:
        del os.environ["HUTCH_CACHE_DIR"]


def is_alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    return False


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(
            hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()


# ---- the command line ----


class Session(Lines):
    """A session whose answers are told apart."""

    def __init__(self, *options):
        super().__init__(*options)
        self.execs, self.files, self.number = [], {}, 0

    def take(self):
        """One more answer, to where it belongs."""
        answer = super().take()
        if "op" in answer:
            assert answer["id"] not in self.files
            self.files[answer["id"]] = answer
        else:
            self.execs.append(answer)

    def answer(self):
        """The next answer of an exec."""
        while not self.execs:
            self.take()
        return self.execs.pop(0)

    def exec(self, code, **fields):
        self.send({"code": code, **fields})
        answer = self.answer()
        assert "stdout" in answer, answer
        return answer

    def ok(self, code, **fields):
        result = self.exec(code, **fields)
        assert result["error"] is None, result
        return result

    def call(self, op, **fields):
        """A line about files, and its answer."""
        self.number += 1
        number = fields.setdefault("id", self.number)
        self.send({"op": op, **fields})
        while number not in self.files:
            self.take()
        answer = self.files.pop(number)
        assert answer["op"] == op
        return answer

    def refused(self, op, **fields):
        return self.call(op, **fields)["error"]["message"]

    def put(self, path, data):
        answer = self.call("put", path=path, data=base64.b64encode(data).decode())
        assert answer.get("size") == len(data), answer

    def get(self, path):
        answer = self.call("get", path=path)
        assert "data" in answer, answer
        return base64.b64decode(answer["data"])

    def list(self, path=""):
        answer = self.call("list", path=path)
        assert answer["truncated"] is False
        return {entry["name"]: (entry["is_dir"], entry["size"]) for entry in answer["entries"]}

    def begin_to_wait(self):
        """An exec that runs until it is interrupted."""
        self.send({"code": "open('begun', 'w').close()\n" + WAITS})
        assert until(lambda: "begun" in self.list())

    def end_of_wait(self):
        self.send({"op": "interrupt"})
        assert self.answer()["error"]["type"] == "KeyboardInterrupt"


@pytest.fixture
def session():
    with Session() as made:
        yield made


def paths(result):
    return [file["path"] for file in result["files"]]


def test_large_files_go_in_and_out_while_an_exec_runs(session, tmp_path):
    block = os.urandom(MIB)
    (tmp_path / "in").write_bytes(b"".join(block[number:] + block[:number] for number in range(100)))
    session.begin_to_wait()
    assert session.call("put", path="a/big", **{"from": str(tmp_path / "in")})["size"] == 100 * MIB
    assert session.call("get", path="a/big", to=str(tmp_path / "out"))["size"] == 100 * MIB
    assert digest(tmp_path / "in") == digest(tmp_path / "out")
    assert not session.execs and sorted(os.listdir(tmp_path)) == ["in", "out"]
    session.end_of_wait()


def test_memory_of_the_engine_stays(session, tmp_path):
    def peak():
        status = pathlib.Path(f"/proc/{session.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])

    session.put("small", b"x" * PIECE)
    session.get("small")
    before = peak()
    with open(tmp_path / "in", "wb") as file:
        file.truncate(200 * MIB)
    assert session.call("put", path="big", **{"from": str(tmp_path / "in")})["size"] == 200 * MIB
    assert session.call("get", path="big", to="/dev/null")["size"] == 200 * MIB
    assert peak() - before < 2048


def test_calls_are_answered_at_once_while_an_exec_runs(session):
    session.put("a", b"data")
    session.begin_to_wait()
    for call in (lambda: session.put("b", b"more"), lambda: session.get("a"), session.list,
                 lambda: session.call("delete", path="b")):
        begin = time.monotonic()
        call()
        assert time.monotonic() - begin < 1 and not session.execs
    session.end_of_wait()


def test_a_busy_cell_lists_its_files():
    with Session("--memory", "128") as session:
        session.put("a", b"data")
        session.send({"code": "import threading\nhold = bytearray(80 << 20)\ndef burn():\n"
                              "  while not gone.is_set(): pass\ngone = threading.Event()\n"
                              "for _ in range(4): threading.Thread(target=burn, daemon=True).start()\n"
                              "print('busy', flush=True)"})
        assert session.answer()["stdout"] == "busy\n"
        begin = time.monotonic()
        assert "a" in session.list() and time.monotonic() - begin < 1
        assert session.ok("gone.set()")["exit_code"] == 0


def test_sizes_around_a_piece(session):
    for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, 4 * MIB):
        data = os.urandom(size)
        session.put("f", data)
        assert session.get("f") == data and session.list() == {"f": (False, size)}
    message = session.refused("put", path="g", data=base64.b64encode(bytes(4 * MIB + 3)).decode())
    assert "allowed are 4194304" in message and "from" in message
    session.ok("open('large', 'wb').write(bytes(4 * 1024 * 1024 + 1))")
    message = session.refused("get", path="large")
    assert "has 4194305 bytes; allowed are 4194304" in message and "without to" in message


def test_names(session):
    deep = "/".join(["d"] * 21)
    names = ["n" * 255, deep, ("n" * 99 + "/") * 40 + "n" * 95, "-rf", "a\nb", 'a"b', "..%2fx",
             "a\\b", "....", "%252e%252e", "é"]
    for number, name in enumerate(names):
        session.put(name, b"%d" % number)
        assert session.get(name) == b"%d" % number
    assert session.get("/home/user/./-rf") == session.get("-rf")
    assert {name for name in names if "/" not in name} < set(session.list())
    assert session.list(deep[:-2]) == {"d": (False, 1)}
    session.ok("open(b'bad\\xff', 'w').close()")
    assert "bad\ufffd" in session.list()


def test_paths_outside_and_too_long(session):
    before = session.list()
    for path in ("../x", "/etc/passwd", "a/../../x", "..", "/", "/home/user/../x", "n" * 256,
                 "n" * 300 + "/x", "n/" * 2048 + "n", "", "a/", "a\0b"):
        for op, fields in (("put", {"data": ""}), ("get", {}), ("list", {}), ("delete", {})):
            if op == "list" and path in ("", "a/"):
                continue  # the home directory; a directory
            message = session.refused(op, path=path, **fields)
            assert message.startswith(("put: ", "get: ", "list: ", "delete: ", "path: ")), message
    assert session.list() == before == {}


def test_what_is_put_replaces_and_runs(session):
    session.put("f", b"long" * 1000)
    session.put("f", b"short")
    assert session.get("f") == b"short"
    session.call("put", path="bin/hello", executable=True,
                 data=base64.b64encode(b"#!/bin/sh\necho hello").decode())
    assert session.ok("import subprocess\nprint(subprocess.run(['bin/hello'], text=True,"
                      " stdout=-1).stdout)")["stdout"] == "hello\n\n"
    assert "Is a directory" in session.refused("put", path="bin", data="")
    assert "Not a directory" in session.refused("list", path="f")
    assert "No such file" in session.refused("get", path="none")
    assert "Directory not empty" in session.refused("delete", path="bin")
    session.call("delete", path="bin/hello")
    session.call("delete", path="bin")
    assert session.list() == {"f": (False, 5)}


def test_a_long_listing_is_whole_and_sorted(session):
    session.ok("import os\nos.mkdir('d')\nfor i in range(10000): os.close(os.open(f'd/{i}', os.O_CREAT))")
    answer = session.call("list", path="d")
    names = [entry["name"] for entry in answer["entries"]]
    assert names == sorted(map(str, range(10000))) and answer["truncated"] is False


def test_sparse_files(session, tmp_path):
    session.ok("open('sparse', 'w').truncate(100 << 30)")
    assert session.list() == {"sparse": (False, 100 << 30)}
    message = session.refused("get", path="sparse", to=str(tmp_path / "out"))
    assert f"has {100 << 30} bytes; allowed are {256 * MIB}" in message
    assert os.listdir(tmp_path) == []


def test_only_regular_files_are_read(session):
    session.ok("import os, socket\n"
               "open('f', 'w').write('x'); os.link('f', 'hard'); os.mkfifo('fifo')\n"
               "s = socket.socket(socket.AF_UNIX); s.bind('socket')\n"
               "os.symlink('/etc/passwd', 'one'); os.symlink('one', 'two'); os.symlink('two', 'three')\n"
               "os.symlink('/etc', 'folder'); os.symlink('/dev/zero', 'device')")
    begin = time.monotonic()
    for path in ("hard", "fifo", "socket", "one", "three", "folder/passwd", "device"):
        assert "error" in session.call("get", path=path), path
    assert "error" in session.call("list", path="folder")
    assert set(session.list()) == {"f", "hard", "fifo", "socket", "one", "two", "three", "folder",
                                   "device"}
    assert "error" in session.call("put", path="folder/x", data="")
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("code", [
    "import os; os.chmod(os.path.expanduser('~'), 0)",
    "import os, shutil; os.chdir('/'); shutil.rmtree('/home/user', ignore_errors=True)",
])
def test_a_home_that_is_closed_or_gone(session, code):
    session.put("f", b"x")
    session.ok(code)
    assert "error" in session.call("get", path="f")
    assert session.call("list").get("entries", []) == []
    session.call("put", path="g", data="")  # maybe not: it is answered
    session.call("delete", path="f")
    assert session.ok("print('on')")["stdout"] == "on\n"


def test_over_the_limit(session, tmp_path):
    with open(tmp_path / "in", "wb") as file:
        file.truncate(256 * MIB + 1)
    message = session.refused("put", path="big", **{"from": str(tmp_path / "in")})
    assert f"has {256 * MIB + 1} bytes; allowed are {256 * MIB}, the lesser of disk_mb" in message
    session.ok("open('half', 'wb').write(bytes(200 << 20)); 0")
    os.truncate(tmp_path / "in", 100 * MIB)
    message = session.refused("put", path="big", **{"from": str(tmp_path / "in")})
    assert "no space left in the cell: see disk_mb" in message
    assert set(session.list()) == {"half"}
    session.put("small", b"x")


def test_lines_that_are_wrong(session, tmp_path):
    for line, expected in [
        ({"op": "put", "path": "f"}, "put: has neither data nor from; allowed is one of"),
        ({"op": "put", "path": "f", "data": "", "from": "x"}, "put: has data and from"),
        ({"op": "put", "path": "f", "data": "***"}, "data: is not Base64"),
        ({"op": "put", "path": "f", "data": 1}, "data: is a whole number; allowed is a string"),
        ({"op": "put", "path": "f", "from": str(tmp_path / "none")}, "from: file "),
        ({"op": "put", "path": "f", "from": str(tmp_path)}, "is a directory"),
        ({"op": "put", "data": ""}, "path: is missing; put needs it"),
        ({"op": "get"}, "path: is missing; get needs it"),
        ({"op": "get", "path": "f", "data": ""}, "'data': is no field of get; allowed are"),
        ({"op": "list", "file": "f"}, "'file': is no field of list; allowed are"),
        ({"op": "list", "timeout_seconds": 0.01}, "timeout_seconds: 0.01; allowed is 0.1 to 3600"),
        ({"op": "list", "timeout_seconds": "1"}, "timeout_seconds: is a string; allowed is a number"),
        ({"op": "put", "path": "f", "data": "", "executable": 1}, "executable: is a whole number; allowed is true or false"),
    ]:
        answer = session.call(line.pop("op"), **line)
        assert answer["error"]["code"] == "invalid_request" and expected in answer["error"]["message"]
        assert answer["error"]["retry_safe"]
    session.put("f", b"x")
    message = session.refused("get", path="f", to=str(tmp_path / "none/out"))
    assert message.startswith("to: file ") and "No such file" in message
    session.send({"op": "list", "id": [1]})
    assert "id: is an array; allowed is a string or a whole number" in (
        json.loads(session.process.stdout.readline())["error"]["message"])
    session.send({"op": "move"})
    assert "op: 'move'; allowed are info, interrupt, put, get, list and delete" in (
        session.answer()["error"]["message"])
    assert session.call("list", id="mine")["id"] == "mine"


def test_an_idle_session_says_why_its_files_are_gone():
    with Session("--idle-timeout", "1") as session:
        session.put("f", b"x")
        supervisor = children(session.process.pid)[0]
        assert until(lambda: not children(supervisor))
        for op in ("get", "put"):
            fields = {"data": ""} if op == "put" else {}
            error = session.call(op, path="f", **fields)["error"]
            assert error["code"] == "session_expired" and "idle for 1 s" in error["message"]
            assert error["retry_safe"]


# ---- files of execs ----


def test_an_exec_says_what_it_changed_and_nothing_else(session):
    session.put("before", b"x")
    assert paths(session.ok("pass")) == []
    for number in range(10):
        session.put("put", b"x")
        assert paths(session.ok(f"open('f{number}', 'w').close()")) == [f"f{number}"]
        assert paths(session.ok("1")) == []
    assert paths(session.ok("open('before', 'r+').write('y'); import os; os.makedirs('d/e')\n"
                            "open('d/e/f', 'w').close(); os.remove('f1')")) == ["before", "d/e/f"]
    assert paths(session.exec("open('dead', 'w').close(); os._exit(3)")) == ["dead"]
    assert paths(session.exec("open('late', 'w').close()\nwhile True: pass",
                              timeout_seconds=0.3)) == ["late"]
    assert paths(session.ok("1")) == []


def test_files_of_the_request_are_there_and_are_not_listed(session):
    given = [{"path": "in/a", "data": base64.b64encode(b"\0data").decode()}]
    result = session.ok("open('out', 'wb').write(open('in/a', 'rb').read())", files=given,
                        return_files=["*"])
    assert paths(result) == ["out"] and base64.b64decode(result["files"][0]["data"]) == b"\0data"
    session.send({"code": "1", "files": [{"path": "no/" + "n" * 256, "data": ""}]})
    assert "has a name of 256 bytes; allowed are 255" in session.answer()["error"]["message"]
    session.send({"code": "1", "files": [{"path": "in", "data": ""}]})  # a directory
    error = session.answer()["error"]
    assert "Is a directory" in error["message"] and error["retry_safe"]
    assert session.get("in/a") == b"\0data"


def test_a_workbook_comes_back(session):
    result = session.ok(
        "import zipfile\nwith zipfile.ZipFile('report.xlsx', 'w') as book:\n"
        "    book.writestr('[Content_Types].xml', '<Types/>')", return_files=["*.xlsx"])
    [file] = result["files"]
    assert file["path"] == "report.xlsx"
    assert file["mime"] == "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    data = session.get(file["path"])
    assert data[:2] == b"PK" and data == base64.b64decode(file["data"])


def test_a_shell_has_files_as_well():
    with Session("-l", "shell") as session:
        session.put("in", b"x\n")
        assert paths(session.ok("cat in > out")) == ["out"]
        assert session.get("out") == b"x\n"


# ---- the C API ----


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("sys_errno", ctypes.c_int32),
                ("maybe_ran", ctypes.c_int32), ("message", ctypes.c_char * 244)]


class FileOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("cancel", ctypes.c_void_p),
                ("timeout_seconds", ctypes.c_double), ("max_bytes", ctypes.c_uint64),
                ("executable", ctypes.c_bool)]


class Upload(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("fd", ctypes.c_int), ("executable", ctypes.c_bool)]


class Download(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("fd", ctypes.c_int), ("max_bytes", ctypes.c_uint64),
                ("error", ctypes.POINTER(Error))]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("on_output", ctypes.c_void_p), ("user", ctypes.c_void_p),
                ("cancel", ctypes.c_void_p), ("uploads", ctypes.POINTER(Upload)),
                ("upload_count", ctypes.c_size_t), ("downloads", ctypes.POINTER(Download)),
                ("download_count", ctypes.c_size_t)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("idle_timeout_seconds", ctypes.c_double),
                ("lifetime_seconds", ctypes.c_double), ("checkpoints", ctypes.c_bool),
                ("cancel", ctypes.c_void_p)]


PIECES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Failed(Exception):
    def __init__(self, err):
        super().__init__(err.message.decode())
        self.code, self.maybe_ran, self.sys_errno = err.code, bool(err.maybe_ran), err.sys_errno


class Api:
    """An engine of the C API with one session."""

    def __init__(self, cache_dir, idle=0.0):
        self.lib = ctypes.CDLL(str(BUILD / "src/sandbox/libhutch.so"))
        self.keep = [str(BUILD / "libexec/hutch").encode(), cache_dir.encode()]
        options, self.engine = ctypes.create_string_buffer(4096), ctypes.c_void_p()
        self.lib.hutch_engine_options_init(options)
        ctypes.memmove(ctypes.addressof(options) + 8, (ctypes.c_char_p * 2)(*self.keep), 16)
        self.check(lambda err: self.lib.hutch_engine_new(options, ctypes.byref(self.engine), err))
        self.session = ctypes.c_void_p()
        how = SessionOptions()
        self.lib.hutch_session_options_init(ctypes.byref(how))
        how.idle_timeout_seconds = idle
        self.check(lambda err: self.lib.hutch_session_open(
            self.engine, self.request(b"pass"), ctypes.byref(how), ctypes.byref(self.session), err))

    def close(self):
        self.lib.hutch_session_close(self.session)
        self.lib.hutch_engine_free(self.engine)

    @staticmethod
    def check(call):
        err = Error()
        if call(ctypes.byref(err)) < 0:
            raise Failed(err)

    def request(self, code):
        request = ctypes.create_string_buffer(4096)
        self.lib.hutch_request_init(request)
        self.keep.append(ctypes.create_string_buffer(code))
        address = ctypes.addressof(self.keep[-1])
        ctypes.memmove(ctypes.addressof(request) + 8, (ctypes.c_uint64 * 2)(address, len(code)), 16)
        return request

    def exec(self, code, options=None):
        result, text = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(lambda err: self.lib.hutch_session_exec(
            self.session, self.request(code.encode()), options and ctypes.byref(options),
            ctypes.byref(result), err))
        self.check(lambda err: self.lib.hutch_result_to_json(result, ctypes.byref(text), err))
        answer = json.loads(ctypes.string_at(text.value))
        self.lib.hutch_free(text)
        self.lib.hutch_result_free(result)
        return answer

    @contextlib.contextmanager
    def token(self):
        cancel = ctypes.c_void_p()
        self.check(lambda err: self.lib.hutch_cancel_new(ctypes.byref(cancel), err))
        yield cancel
        self.lib.hutch_cancel_free(cancel)

    def options(self, seconds, cancel):
        options = FileOptions()
        self.lib.hutch_file_options_init(ctypes.byref(options))
        options.timeout_seconds, options.cancel = seconds, cancel
        return ctypes.byref(options)

    def put(self, path, data, at=lambda _: 0, seconds=60.0, cancel=None):
        """at(n) is called before the piece that begins at byte n, and may end it."""
        done = 0

        @PIECES
        def read(_, memory, length):
            nonlocal done
            if at(done):
                return -1
            ctypes.memmove(memory, data[done:done + length], length)
            done += length
            return 0

        self.check(lambda err: self.lib.hutch_session_put(
            self.session, path, ctypes.c_uint64(len(data)), read, None,
            self.options(seconds, cancel), err))

    def get(self, path, at=lambda _: 0, seconds=60.0, cancel=None):
        data = bytearray()

        @PIECES
        def write(_, memory, length):
            if at(len(data)):
                return -1
            data.extend(ctypes.string_at(memory, length))
            return 0

        self.check(lambda err: self.lib.hutch_session_get(
            self.session, path, write, None, self.options(seconds, cancel), err))
        return bytes(data)

    def list(self, path=b"", seconds=60.0, cancel=None):
        listing = ctypes.c_void_p()
        self.check(lambda err: self.lib.hutch_session_list(
            self.session, path, self.options(seconds, cancel), ctypes.byref(listing), err))
        entries, count = (ctypes.c_uint64 * 3).from_address(listing.value)[1:]
        names = [ctypes.string_at(ctypes.c_uint64.from_address(entries + 24 * number).value)
                 for number in range(count)]
        self.lib.hutch_listing_free(listing)
        return names

    def delete(self, path):
        self.check(lambda err: self.lib.hutch_session_delete(self.session, path, None, err))

    def processes(self):
        """The supervisor, hutch-init and the interpreter of the session."""
        [supervisor] = [pid for pid in children(os.getpid())
                        if b"hutch-supervisor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        init, interpreter = sorted(children(supervisor))
        return {"supervisor": supervisor, "init": init, "interpreter": interpreter}


@pytest.fixture
def api(cache):
    made = Api(cache)
    yield made
    made.close()


def failure(call):
    with pytest.raises(Failed) as caught:
        call()
    return caught.value


def in_thread(call):
    """Starts a thread; a function that waits for what the call returns, or raises."""
    outcome = []

    def run():
        try:
            outcome.append((call(), None))
        except Failed as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join(timeout=60)
        value, error = outcome[0]
        if error:
            raise error
        return value
    return join


class Stand:
    """For a callback that stands still at a byte until it is let go."""

    def __init__(self, byte):
        self.byte, self.reached, self.go = byte, threading.Event(), threading.Event()

    def __call__(self, done):
        if done >= self.byte:
            self.reached.set()
            assert self.go.wait(60)
        return 0


def test_bad_bytes_in_names(api):
    for name in (b"bad\xff", b"lone\xed\xa0\x80"):
        api.put(name, b"x")
        assert name in api.list() and api.get(name) == b"x"
        api.delete(name)
    assert api.list() == []


def test_a_put_that_is_broken_off_leaves_nothing(api):
    api.put(b"f", b"old")
    data = bytes(4 * MIB)
    error = failure(lambda: api.put(b"f", data, at=lambda done: done >= 2 * MIB))
    assert (error.code, error.maybe_ran) == (CANCELLED, False) and "put: 'f': " in str(error)
    assert api.list() == [b"f"] and api.get(b"f") == b"old"
    with api.token() as cancel:
        trigger = lambda done: done == MIB and api.lib.hutch_cancel_trigger(cancel) and 0
        error = failure(lambda: api.put(b"new/g", data, at=trigger, cancel=cancel))
        assert (error.code, error.maybe_ran) == (CANCELLED, False)
        assert failure(lambda: api.list(cancel=cancel)).code == CANCELLED
    assert api.list(b"new") == []
    error = failure(lambda: api.get(b"f", at=lambda _: True))
    assert error.code == CANCELLED
    error = failure(lambda: api.put(b"g", data, seconds=0.3, at=lambda _: time.sleep(0.02)))
    assert error.code == CANCELLED and "0.3 s of its timeout_seconds" in str(error)
    assert api.list() == [b"f", b"new"] and paths(api.exec("1")) == []


def test_a_deaf_exec_that_is_cancelled_is_killed_soon(api):
    """Well within a second; the session goes on from its checkpoint."""
    deaf = ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "open('up', 'w').close()\nwhile True: pass")
    api.exec("x = 1")
    with api.token() as cancel:
        options = RunOptions(size=ctypes.sizeof(RunOptions), cancel=cancel)
        join = in_thread(lambda: api.exec(deaf, options))
        assert until(lambda: b"up" in api.list())
        begin = time.monotonic()
        api.lib.hutch_cancel_trigger(cancel)
        error = failure(join)
    assert time.monotonic() - begin < 0.9
    assert (error.code, error.maybe_ran) == (CANCELLED, True)
    assert api.exec("print(x)")["stdout"] == "1\n"


def test_five_transfers_at_once(api):
    data = [os.urandom(3 * MIB + number) for number in range(3)]
    joins = [in_thread(lambda n=n: api.put(b"f%d" % n, data[n])) for n in range(3)]
    joins += [in_thread(lambda: api.put(b"../x", b"x")), in_thread(lambda: api.get(b"none"))]
    for join in joins[:3]:
        join()
    assert [failure(join).code for join in joins[3:]] == [INVALID, INVALID]
    joins = [in_thread(lambda n=n: api.get(b"f%d" % n)) for n in range(3)]
    assert [join() for join in joins] == data


def test_turns_are_bounded_and_in_order(api):
    stand = Stand(PIECE)
    first = in_thread(lambda: api.put(b"f", bytes(MIB), at=stand))
    assert stand.reached.wait(60)
    begin = time.monotonic()
    error = failure(lambda: api.list(seconds=0.2))
    assert error.code == BUSY and "took the 0.2 s" in str(error)
    with api.token() as cancel:
        second = in_thread(lambda: api.list(cancel=cancel))
        api.lib.hutch_cancel_trigger(cancel)
        assert failure(second).code == CANCELLED
    assert time.monotonic() - begin < 5
    third = in_thread(lambda: api.list())
    stand.go.set()
    first()
    assert third() == [b"f"]


def test_an_exec_does_not_wait_for_a_transfer(api):
    """Nor does it list what is on its way."""
    stand = Stand(PIECE)
    join = in_thread(lambda: api.put(b"f", bytes(MIB), at=stand))
    assert stand.reached.wait(60)
    begin = time.monotonic()
    assert paths(api.exec("open('g', 'w').close()")) == ["g"]
    assert time.monotonic() - begin < 5
    stand.go.set()
    join()
    assert api.list() == [b"f", b"g"]


def test_a_long_transfer_is_no_idleness(cache):
    api = Api(cache, idle=1)
    try:
        api.put(b"f", bytes(25 * PIECE), at=lambda _: time.sleep(0.1))
        assert api.exec("print(len(open('f').read()))")["stdout"] == f"{25 * PIECE}\n"
    finally:
        api.close()


def test_the_death_of_the_interpreter_does_not_stop_a_transfer(api):
    data = os.urandom(4 * MIB)
    api.exec("x = 1")
    interpreter = api.processes()["interpreter"]
    api.put(b"f", data, at=lambda done: done == 2 * MIB and os.kill(interpreter, signal.SIGKILL))
    assert api.get(b"f") == data
    result = api.exec("open('f', 'rb').read()[:4] == %r" % data[:4])
    assert result["value"] == "True" and result["restored"]


@pytest.mark.parametrize("name", ["init", "supervisor"])
@pytest.mark.parametrize("way", ["put", "get", "idle exec"])
def test_the_death_of_the_cell_ends_a_transfer(api, name, way):
    if way == "idle exec":
        waiting = in_thread(lambda: api.exec(WAITS))
        pid = api.processes()[name]
    else:
        api.put(b"f", bytes(4 * MIB))
        pid = api.processes()[name]
    cell = [number for of, number in api.processes().items() if of != "supervisor"]
    kill = lambda done: done == 2 * MIB and os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    error = failure((lambda: api.get(b"f", at=kill)) if way == "get"
                    else (lambda: api.put(b"f", bytes(32 * MIB), at=kill)))
    assert error.code == EXPIRED and "the session is over: " in str(error) and not error.maybe_ran
    if way == "idle exec":
        assert failure(waiting).maybe_ran
    for call in (api.list, lambda: api.delete(b"f"), lambda: api.exec("1")):
        later = failure(call)
        assert later.code == EXPIRED and not later.maybe_ran
    assert time.monotonic() - begin < 15
    assert until(lambda: not any(is_alive(number) for number in cell))


def test_files_go_with_an_exec(api, tmp_path):
    """Uploads and downloads of its options, which may be of an older size."""
    (tmp_path / "in").write_bytes(b"in")
    options, error = RunOptions(), Error(code=1)
    for options.size in (32, ctypes.sizeof(RunOptions)):
        assert api.exec("1", options)["value"] == "1"
    for options.size in (0, 24):
        refusal = failure(lambda: api.exec("1", options))
        assert refusal.code == INVALID and f"size: {options.size} is no size of a run_options" in str(refusal)
    options.size = ctypes.sizeof(RunOptions)
    with open(tmp_path / "in", "rb") as given, open(tmp_path / "out", "wb") as got:
        options.uploads, options.upload_count = ctypes.pointer(Upload(b"d/in", given.fileno())), 1
        options.downloads, options.download_count = ctypes.pointer(
            Download(b"out", got.fileno(), 0, ctypes.pointer(error))), 1
        result = api.exec("open('out', 'w').write(open('d/in').read() + ' and out'); 0", options)
        assert paths(result) == ["out"] and error.code == 0
        options.downloads[0].path = b"none"
        api.exec("1", options)
        assert error.code == INVALID and b"No such file" in error.message
    assert (tmp_path / "out").read_bytes() == b"in and out"
