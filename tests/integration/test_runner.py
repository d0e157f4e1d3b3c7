# SPDX-License-Identifier: Apache-2.0
"""
The python runner by itself. Where the promise is "as the plain interpreter", the
same program is run by it and compared.

HUTCH_TEST_PYTHON names the interpreter, /usr/bin/python3 by default.
"""

import ast
import contextlib
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import channel  # noqa: E402
from channel import (  # noqa: E402
    COMPILE,
    DEADLINE_SECONDS,
    ENV,
    GATE,
    MAX_ERROR,
    MAX_VALUE,
    RUN,
    VERDICT,
    Result,
    assert_ok,
    decode_error,
    entries,
    frame,
    header,
)

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "src/guest/runner.py"
PYTHON = os.environ.get("HUTCH_TEST_PYTHON", "/usr/bin/python3")
OPTIONS = ["-I", "-B", "-X", "utf8"]
VERSION = tuple(
    json.loads(
        subprocess.check_output(
            [PYTHON, "-I", "-c", "import json, sys; print(json.dumps(sys.version_info[:2]))"]
        )
    )
)

# The name of the runner in its own code object, which no program may ever see.
RUNNER_NAME = "<hutch>"

CHANNEL_FD = 1000
TIDY = 1
ALLOWED_ONLY = 1
REFUSED = 126


# -- the harness -------------------------------------------------------------------


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    target = tmp_path_factory.mktemp("runner") / "runner.pyc"
    build = (
        "import py_compile, sys;"
        "py_compile.compile(sys.argv[1], cfile=sys.argv[2], dfile=sys.argv[3], doraise=True)"
    )
    subprocess.run([PYTHON, "-I", "-c", build, RUNNER, target, RUNNER_NAME], check=True)
    return target


class Engine(channel.Engine):
    def __init__(self, runner, folder, stdin):
        home, tmp = folder / "home", folder / "tmp"
        home.mkdir(parents=True)
        (tmp / "run").mkdir(parents=True)
        self.program = str(tmp / "run/main.py")
        command = [PYTHON, *OPTIONS, runner, self.program]
        super().__init__(command, CHANNEL_FD, home, environment(home, tmp), stdin)


def environment(home, tmp):
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
    }


@pytest.fixture
def start(runner, tmp_path):
    numbers = itertools.count()
    with contextlib.ExitStack() as engines:

        def start(stdin=subprocess.DEVNULL):
            folder = tmp_path / str(next(numbers))
            return engines.enter_context(Engine(runner, folder, stdin))

        yield start


@pytest.fixture
def run(start):
    """Runs a program; stdin is bytes, env a dict, gate a list of entries."""

    def run(code, stdin=None, env=None, gate=None, allowed_only=False, tidy=False):
        engine = start(subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        if env:
            engine.send(ENV, entries(f"{k}={v}" for k, v in env.items()))
        if gate is not None:
            engine.send(GATE, entries(gate), flags=ALLOWED_ONLY if allowed_only else 0)
        code = code if isinstance(code, bytes) else code.encode()
        engine.send(RUN, code, flags=TIDY if tidy else 0)
        result = engine.finish(stdin)
        # One name for the program's file, so that results can be compared.
        name = engine.program.encode()
        return result._replace(
            stdout=result.stdout.replace(name, b"main.py").decode(errors="replace"),
            stderr=result.stderr.replace(name, b"main.py").decode(errors="replace"),
        )

    return run


@pytest.fixture
def plain(tmp_path):
    """Runs a program by the plain interpreter."""

    def plain(code, stdin=None):
        home, tmp = tmp_path / "plain/home", tmp_path / "plain/tmp"
        home.mkdir(parents=True)
        tmp.mkdir()
        file = tmp / "main.py"
        file.write_bytes(code if isinstance(code, bytes) else code.encode())
        done = subprocess.run(
            [PYTHON, *OPTIONS, file],
            cwd=home,
            env=environment(home, tmp),
            input=b"" if stdin is None else stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
        )
        name = str(file).encode()
        return Result(
            done.returncode,
            done.stdout.replace(name, b"main.py").decode(errors="replace"),
            done.stderr.replace(name, b"main.py").decode(errors="replace"),
        )

    return plain


# -- the wire ----------------------------------------------------------------------


def runner_constants():
    names = {}
    for node in ast.parse(RUNNER.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id.startswith("WIRE_"):
            names[node.targets[0].id] = eval(compile(ast.Expression(node.value), "x", "eval"))
    return names


def test_constants_are_those_of_the_header():
    header, ours = channel.header_constants(), runner_constants()
    assert len(ours) == 38
    assert {name: header[name] for name in ours} == ours
    assert (header["WIRE_RUN_TIDY"], header["WIRE_GATE_ALLOWED_ONLY"]) == (TIDY, ALLOWED_ONLY)
    assert header["WIRE_EXIT_REFUSED"] == REFUSED


def test_layouts_are_those_of_the_header():
    fields = dict(re.findall(r"struct (\w+) \{(.*?)\n\};", channel.WIRE_H.read_text(), re.S))
    for name, expected in {
        "wire_header": ["uint32_t length", "uint16_t type", "uint16_t flags", "uint32_t exec_id"],
        "wire_error": ["uint32_t line", "uint32_t type_length", "int32_t sys_errno"],
    }.items():
        assert re.findall(r"^\s+(\w+ \w+);", fields[name], re.M) == expected


def test_request_in_single_bytes(start):
    code = b"import os; print(os.environ['A'], os.environ['B'])\n7"
    channel.assert_takes_single_bytes(start(), code)


@pytest.mark.parametrize(
    "data",
    [
        *channel.NO_REQUESTS,
        frame(GATE, b"mos\0") * 2,
        frame(GATE, b"mos\0") + header(4, ENV),
        header(1028001, GATE),
        frame(GATE, b"m\xff\0"),
    ],
)
def test_no_request(start, data):
    channel.assert_refuses(start(), "python", data)


def test_no_channel(runner, tmp_path):
    done = subprocess.run(
        [PYTHON, *OPTIONS, runner, tmp_path / "main.py"],
        env=environment(tmp_path, tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == b"hutch: the python runner got no request\n"


# -- as the plain interpreter: status, stdout, stderr --------------------------------

PLAIN = {
    "hello": "print('hello')",
    "three lines": "for i in range(3): print(i)",
    "both streams": "import sys\nprint('out')\nprint('err', file=sys.stderr)",
    "only comments": "# nothing\n\n   \n# here",
    "nul escape": 'print(repr("a\\x00b"))',
    "unicode": "print('é漢🐍')",
    "bom": b"\xef\xbb\xbfprint('bom')",
    "cookie": "# -*- coding: latin-1 -*-\nprint('é')",
    "crlf": "x = '''a\r\nb'''\r\nprint(repr(x))\r\n1/0\r\n",
    "surrogate": "print('\\ud800')",
    "surrogate escape": "print('\\udcff')",
    "bytes": "import sys; sys.stdout.buffer.write(bytes(range(256))); print('marker')",
    "exit 42": "import sys\nprint('a')\nsys.exit(42)\nprint('b')",
    "exit": "import sys; sys.exit()",
    "exit None": "import sys; sys.exit(None)",
    "exit 0": "raise SystemExit(0)",
    "exit text": "import sys; sys.exit('reason')",
    "exit True": "import sys; sys.exit(True)",
    "exit 256": "import sys; sys.exit(256)",
    "exit 2.5": "import sys; sys.exit(2.5)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit huge": "import sys; sys.exit(1 << 70)",
    "exit tuple": "import sys; sys.exit((1, 2))",
    "exit builtin": "exit(7)",
    "exit subclass": "class Stop(SystemExit): pass\nraise Stop(9)",
    "exit with code that raises": (
        "class Stop(SystemExit):\n @property\n def code(self): 1/0\nraise Stop(9)"
    ),
    "exit in thread": "import threading, sys\nthreading.Thread(target=sys.exit, args=(3,)).start()",
    "_exit": "import os\nos._exit(3)",
    "exec": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo x; exit 5'])",
    "interrupt": "def f():\n    raise KeyboardInterrupt\nf()",
    "interrupt subclass": "class K(KeyboardInterrupt): pass\nraise K",
    "interrupt by signal": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('no')",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "SIGABRT": "import os; os.abort()",
    "SIGSEGV": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "error on line 3": "x = 1\n\n1/0\nprint('no')",
    "error three calls deep": "def a(d):\n    return d['k']\ndef b(d):\n    return a(d)\n\nb({})",
    "unknown name": "print(foo)",
    "misspelt name": "counter = 1\nprint(countr)",
    "missing file": "open('no/such')",
    "missing module": "import no_such_module",
    "chained": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise ValueError('v') from e",
    "in handling": "try:\n    1/0\nexcept ZeroDivisionError:\n    {}['x']",
    "string": "exec('def f():\\n  1/0\\nf()')",
    "string that does not parse": "x = 1\nexec('a b')",
    "int limit": "int('9' * 100000)",
    "recursion": "def f(): f()\nf()",
    "assert": "assert 1 == 2, 'no'",
    "base exception": "class B(BaseException): pass\nraise B('b')",
    "str that raises": "class E(Exception):\n def __str__(self): 1/0\nraise E",
    "str that recurses": "class E(Exception):\n def __str__(self): return str(self)\nraise E",
    "not an exception": "raise 3",
    "traceback limit": "import sys\nsys.tracebacklimit = 1\ndef f(): 1/0\nf()",
    "thread": "import threading\ndef f():\n    1/0\nthreading.Thread(target=f).start()",
    "threads joined at the end": (
        "import threading\ndef f():\n    threading.main_thread().join()\n    print('late')\n"
        "threading.Thread(target=f).start()\nprint('main done')"
    ),
    "thread outlives an error": (
        "import threading, sys\ndef f():\n    threading.main_thread().join()\n    print('late')\n"
        "threading.Thread(target=f).start()\nraise ValueError"
    ),
    "atexit": "import atexit\natexit.register(print, 'bye')\nprint('hi')",
    "atexit after error": "import atexit\natexit.register(print, 'bye')\n1/0",
    "atexit that raises": "import atexit\natexit.register(lambda: 1/0)",
    "atexit that exits": "import atexit, sys\natexit.register(sys.exit, 4)",
    "unraisable": "class A:\n    def __del__(self):\n        1/0\nA()",
    "finalizer at exit": (
        "class A:\n    def __del__(self): print('gone', __name__)\na = A()\nb = [a]"
    ),
    "finalizer after error": "class A:\n    def __del__(self): print('gone')\na = A()\n1/0",
    "finalizer after exit": "class A:\n    def __del__(self): print('gone')\na = A()\nexit(3)",
    "hook": (
        "import sys\ndef hook(kind, value, trace):\n"
        "    print('hook', kind.__name__, value, trace.tb_lineno, trace.tb_next)\n"
        "    print(sys.excepthook is hook, sys.last_traceback is trace)\n"
        "sys.excepthook = hook\n1/0"
    ),
    "hook that raises": "import sys\ndef hook(*args):\n    {}[1]\nsys.excepthook = hook\n1/0",
    "hook that exits": "import sys\ndef hook(*args):\n    sys.exit(6)\nsys.excepthook = hook\n1/0",
    "hook that is none": "import sys\nsys.excepthook = None\n1/0",
    "hook for an interrupt": (
        "import sys\nsys.excepthook = lambda *args: print(args[0])\nraise KeyboardInterrupt"
    ),
    "thread hook": (
        "import threading\nthreading.excepthook = lambda args: print(args.exc_type)\n"
        "threading.Thread(target=lambda: 1/0).start()"
    ),
    "stderr is none": "import sys\nsys.stderr = None\n1/0",
    "unclosed parenthesis": "print('never')\nprint(1",
    "bad indentation": "if 1:\nprint(1)",
    "bad dedent": "if 1:\n        a\n    b",
    "bad token": "x = 1\ny = $",
    "unterminated string": "x = 'abc\ny",
    "return outside": "x = 1\nreturn x",
    "break outside": "break",
    "await in a plain function": "def f():\n    await x\nf()",
    "future in the wrong place": "x = 1\nfrom __future__ import annotations",
    "bad format string": "f'{a b}'",
    "assign to literal": "1 = x",
    "future": (
        "from __future__ import annotations\n"
        "def f(x: undefined): pass\nprint(f.__annotations__)"
    ),
    "future and eval": (
        "from __future__ import annotations\nexec('def f(x: undefined): pass')\n1/0"
    ),
    "no future of ours": "exec('def f(x: int): pass\\nprint(f.__annotations__)')",
    "warning": "import warnings\nwarnings.warn('w')",
    "logging": "import logging\nlogging.warning('w')",
    "syntax warning": "x = 1\nif x is 1: print('\\d')",
    "deep sum": "a = 1\nprint(" + " + ".join(["a"] * 2000) + ")",
    "deep elif": "a = 5\nif a == 1: pass\n" + "elif a == 2: pass\n" * 1500 + "else: print('else')",
    "too deep": "x = " + "(" * 300 + ")" * 300,
    "unclosed file": "f = open('x', 'w')\nf.write('data')\n",
    "stdout replaced": "import io, sys\nprint('a')\nsys.stdout = io.StringIO()\nprint('b')",
    "stdout none": "import sys\nprint('a')\nsys.stdout = None\nprint('b')",
    "stdout closed": "import sys\nprint('a')\nsys.stdout.close()",
    "stdout to null": (
        "import os, sys\nprint('a', flush=True)\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\nprint('b')"
    ),
    "flush fails at exit": "import os, sys\nsys.stdout.write('x')\nos.close(1)",
    "stdin": "import sys\nprint(sys.stdin.isatty(), sys.stdin.fileno(), repr(sys.stdin.read()))",
    "readline": "import sys\nprint(repr(sys.stdin.readline()), list(sys.stdin))",
    "json from stdin": "import json, sys\njson.load(sys.stdin)",
    "input caught": "try:\n    input('Name? ')\nexcept EOFError as e:\n    print(e)",
    "json lines": 'print(\'{"exit_code": 0}\')\nprint(">>> ")',
    "main block": "if __name__ == '__main__':\n    print('main')",
    "one namespace": (
        "a = 2\ndef f(): return a\nclass C:\n    b = a\n    def g(self): return a\n"
        "print(f(), C.b, C().g(), [a * x for x in range(a)], eval('a'), locals() is globals())"
    ),
    "globals": "print(sorted(n for n in globals() if n not in ('__file__', '__cached__')))",
    "module": (
        "import sys, types\nm = sys.modules['__main__']\n"
        "print(vars(m) is globals(), isinstance(m, types.ModuleType), type(m), m)\n"
        "print(__name__, __doc__, __package__, __spec__, type(__loader__), __builtins__)"
    ),
    "pickle": (
        "import pickle\nclass A: x = 1\ndef f(): return 5\n"
        "print(pickle.loads(pickle.dumps(A())).x, pickle.loads(pickle.dumps(f))())"
    ),
    "source": (
        "import inspect\ndef f():\n    return 1  # one\nclass A:\n    b = 2\n"
        "print(inspect.getsource(f), inspect.getsource(A))"
    ),
    "flags": "import sys; print(sys.flags, sys.dont_write_bytecode)",
    "dataclass": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass A:\n    x: int = 1\nprint(A())"
    ),
    "subprocess": (
        "import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)\n"
        "print('first')\nimport sys; sys.stdout.flush()\nsubprocess.run(['echo', 'second'])"
    ),
    "pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, range(100))))"
    ),
    "asyncio": "import asyncio\nasync def f(): return 4\nprint(asyncio.run(f()))",
    "error in asyncio": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1/0\nasyncio.run(f())"
    ),
    "fork and exit": (
        "import os, sys\npid = os.fork()\nif not pid:\n    sys.exit(3)\n"
        "print(os.waitpid(pid, 0)[1])"
    ),
    "fork and raise": (
        "import os\npid = os.fork()\nif not pid:\n    1/0\nprint(os.waitpid(pid, 0)[1])"
    ),
    "fork and raise in a function": (
        "import os\ndef child():\n    raise ValueError('child')\n"
        "pid = os.fork()\nif not pid:\n    child()\nprint(os.waitpid(pid, 0)[1])"
    ),
    "fork with a closed stdout": (
        "import os, sys\nsys.stdout.close()\npid = os.fork()\n"
        "if not pid:\n    os._exit(0)\nos.waitpid(pid, 0)"
    ),
    "modules taken away": (
        "import sys\nfor name in ('traceback', 'linecache', 'os', 'builtins', 'io', 'posix'):\n"
        "    sys.modules.pop(name, None)\nsys.path.clear()\n1/0"
    ),
    "builtins taken away": (
        "import builtins\n"
        "for name in ('isinstance', 'len', 'type', 'str', 'repr', 'getattr', 'memoryview'):\n"
        "    delattr(builtins, name)\nraise ValueError('v')"
    ),
    "low recursion limit": (
        "import sys\ndef f(n):\n    return f(n + 1)\nsys.setrecursionlimit(60)\nf(0)"
    ),
}
if VERSION < (3, 10):  # which places this error differently in a file and in a text
    del PLAIN["unclosed parenthesis"]
if VERSION >= (3, 11):
    PLAIN["group"] = "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])"
    PLAIN["note"] = "e = ValueError('v')\ne.add_note('a note')\nraise e"


@pytest.mark.parametrize("code", PLAIN.values(), ids=PLAIN.keys())
def test_as_plain(run, plain, code):
    ours, theirs = run(code), plain(code)
    # The runner stands on the stack too: endless recursion ends a little earlier.
    differing = re.compile(r"(?<=Previous line repeated )\d+|(?<= at )0x[0-9a-f]+")
    assert ours.stdout == theirs.stdout
    assert differing.sub("N", ours.stderr) == differing.sub("N", theirs.stderr)
    assert ours.status == theirs.status
    assert RUNNER_NAME not in ours.stderr


def test_as_plain_with_stdin(run, plain):
    code = "import sys\nprint(input('Name? '))\nprint(sys.stdin.isatty(), sys.stdin.readlines())"
    text = "Zoë\n2\n3".encode()
    ours, theirs = run(code, stdin=text), plain(code, stdin=text)
    assert ours[:3] == theirs[:3]
    assert ours.stdout == "Name? Zoë\nFalse ['2\\n', '3']\n"


# -- errors ------------------------------------------------------------------------

ERRORS = {
    "1/0 on line 3": ("x = 1\n\n1/0", ("ZeroDivisionError", "division by zero", 3, 0, 0)),
    "innermost frame of the program": (
        "import json\ndef f(t):\n    return json.loads(t)\n\nf('{')",
        (
            "JSONDecodeError",
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            3,
            0,
            0,
        ),
    ),
    "caught elsewhere": (
        "try:\n    1/0\nexcept ZeroDivisionError:\n    raise KeyError('k')",
        ("KeyError", "'k'", 4, 0, 0),
    ),
    "import": (
        "\nimport no_such_module",
        ("ModuleNotFoundError", "No module named 'no_such_module'", 2, 0, 0),
    ),
    "errno": (
        "open('no/such')",
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'no/such'", 1, 2, 0),
    ),
    "odd errno": ("e = OSError()\ne.errno = 'x'\nraise e", ("OSError", "", 3, 0, 0)),
    "negative errno": ("e = OSError()\ne.errno = -5\nraise e", ("OSError", "", 3, 0, 0)),
    "exit": ("import sys\nsys.exit(42)", ("SystemExit", "42", 2, 0, 0)),
    "exit with text": ("import sys\nsys.exit('reason')", ("SystemExit", "reason", 2, 0, 0)),
    "exit 0": ("import sys\nsys.exit(0)", None),
    "exit 256": ("import sys\nsys.exit(256)", None),
    "exit None": ("import sys\nsys.exit()", None),
    "_exit": ("import os\nos._exit(3)", None),
    "in a thread only": ("import threading\nthreading.Thread(target=lambda: 1/0).start()", None),
    "in a child only": (
        "import os\npid = os.fork()\nif not pid: 1/0\npid = os.waitpid(pid, 0)",
        None,
    ),
    "syntax of a string": ("x = 1\nexec('\\n\\n\\na b')", ("SyntaxError", None, 2, 0, 0)),
    "message that raises": (
        "class E(Exception):\n def __str__(self): 1/0\nraise E",
        ("E", "<exception str() failed>", 3, 0, 0),
    ),
    "message that recurses": (
        "class E(Exception):\n def __str__(self): return str(self)\nraise E",
        ("E", "<exception str() failed>", 3, 0, 0),
    ),
    "message that exits": (
        "class E(Exception):\n def __str__(self): raise SystemExit(9)\nraise E",
        ("E", "<exception str() failed>", 3, 0, 0),
    ),
    "message of a subclass of str": (
        "class S(str):\n"
        " def __getitem__(self, key): 1/0\n"
        " def encode(self, *args): 1/0\n"
        " def __str__(self): return self\n"
        "class E(Exception):\n def __str__(self): return S('s')\nraise E",
        ("E", "s", 7, 0, 0),
    ),
    "class whose name is no text": (
        "class M(type):\n __name__ = 3\nclass E(Exception, metaclass=M): pass\nraise E('e')",
        ("E", "e", 4, 0, 0),
    ),
    "class whose name is not ascii": (
        "class Fehlerß(Exception): pass\nraise Fehlerß('\\udfff é')",
        ("Fehlerß", "\\udfff é", 2, 0, 0),
    ),
    "base exception": (
        "class B(BaseException): pass\nraise B('b')",
        ("B", "b", 2, 0, 0),
    ),
    "interrupt": ("raise KeyboardInterrupt", ("KeyboardInterrupt", "", 1, 0, 0)),
    "awaited": (
        "import asyncio\nasync def f():\n    1/0\nawait f()",
        ("ZeroDivisionError", "division by zero", 3, 0, 0),
    ),
    "program does not parse": ("x = 1\ny = (", ("SyntaxError", None, 2, 0, COMPILE)),
    "bad indentation": ("if 1:\nx", ("IndentationError", None, 2, 0, COMPILE)),
    "does not compile": (
        "x = 1\nreturn",
        ("SyntaxError", "'return' outside function", 2, 0, COMPILE),
    ),
}


@pytest.mark.parametrize("code, expected", ERRORS.values(), ids=ERRORS.keys())
def test_error(run, code, expected):
    error = run(code).error
    if expected and expected[1] is None:  # the text depends on the version
        assert error.message
        error = error._replace(message=None)
    assert error == expected


def test_nothing_runs_when_the_program_does_not_parse(run):
    result = run("print('ran')\n)")
    assert (result.status, result.stdout) == (1, "")
    assert result.error.flags == COMPILE


def test_long_message_and_name_are_cut(run):
    result = run("raise type('N' * 10**6, (Exception,), {})('é' * 10**6)")
    assert result.status == 1
    assert result.error.type.startswith("NNN") and result.error.type.endswith(" ... [cut]")
    assert result.error.message.startswith("ééé") and result.error.message.endswith(" ... [cut]")
    assert len(result.frames[0][3]) > MAX_ERROR - 8


def test_no_stdin_is_explained(run):
    result = run("\ninput('Name? ')")
    assert result.status == 1
    assert (result.error.type, result.error.line) == ("EOFError", 2)
    for text in (result.error.message, result.stderr):
        assert "no stdin was given" in text
        assert "the request's stdin field" in text and "hutch run --stdin FILE" in text


@pytest.mark.parametrize("stdin, code", [(b"", "input()"), (b"one\n", "input(); input()")])
def test_stdin_at_its_end_is_not_explained(run, stdin, code):
    result = run(code, stdin=stdin)
    assert result.error.message == "EOF when reading a line"
    assert "no stdin" not in result.stderr


def test_memory_error_is_told(run):
    result = run(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))\n"
        "kept = []\n"
        "while True:\n"
        "    kept.append([None])\n"
    )
    assert result.status == 1
    assert result.error.type == "MemoryError"
    assert result.error.line in (0, 5)  # 0: no memory was left for a traceback either
    assert "MemoryError" in result.stderr


def test_caught_memory_error_is_none(run):
    result = run(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))\n"
        "try:\n    bytearray(500 << 20)\nexcept MemoryError:\n    print('caught')\n"
    )
    assert_ok(result, "caught\n")


def test_error_is_told_before_threads_end(start):
    engine = start(subprocess.PIPE)
    engine.send(
        RUN,
        b"import sys, threading\n"
        b"threading.Thread(target=lambda: print(sys.stdin.read())).start()\n"
        b"raise ValueError('v')",
    )
    assert decode_error(engine.receive())[:3] == ("ValueError", "v", 3)
    assert engine.process.poll() is None
    result = engine.finish(b"late")
    assert (result.status, result.stdout) == (1, b"late\n")


# -- the value ---------------------------------------------------------------------

VALUES = {
    "number": ("print(1)\nprint(2)\n3", "1\n2\n", "3"),
    "text": ("'a\\n'", "", "'a\\n'"),
    "expression": ("x = [1, 2]\nx", "", "[1, 2]"),
    "assignment": ("x = 1", "", None),
    "None": ("None", "", None),
    "call without result": ("print('x')", "x\n", None),
    "not in last place": ("5\nx = 1", "", None),
    "in a block": ("if True:\n    5", "", None),
    "evaluated once": ("n = []\ndef f():\n    n.append(1)\n    return n\nf()", "", "[1]"),
    "two on a line": ("1; 2", "", "2"),
    "over lines": ("(1 +\n  2)\n\n# end\n", "", "3"),
    "walrus": ("(y := 5)", "", "5"),
    "tuple with star": ("*[1, 2], 3", "", "(1, 2, 3)"),
    "surrogate": ("type('A', (), {'__repr__': lambda s: '\\ud800'})()", "", "\\ud800"),
    "name is not left behind": ("sorted(n for n in globals() if n[0] != '_')", "", "[]"),
    "subclass of str": (
        "class S(str):\n def __getitem__(self, k): 1/0\n"
        "type('A', (), {'__repr__': lambda s: S('s')})()",
        "",
        "s",
    ),
    "awaited": ("import asyncio\nawait asyncio.sleep(0, 41) + 1", "", "42"),
}


@pytest.mark.parametrize("code, stdout, value", VALUES.values(), ids=VALUES.keys())
def test_value(run, code, stdout, value):
    result = run(code)
    assert_ok(result, stdout)
    assert result.value == value


def test_claims_survive_a_program_that_replaces_everything(run):
    code = (
        "import builtins, os, sys\n"
        "def broken(*args): raise RuntimeError('broken')\n"
        "for name in ('getpid', 'fstat', 'write', 'close'): setattr(os, name, broken)\n"
        "for name in ('isinstance', 'len', 'type', 'str', 'repr', 'eval', 'memoryview'):\n"
        "    setattr(builtins, name, broken)\n"
        "sys.modules.clear()\n"
        "sys.path.clear()\n"
        "sys.byteorder = 'neither'\n"
        "sys.settrace = broken\n"
    )
    assert run(code + "5").value == "5"
    assert run(code + "1/0").error[:3] == ("ZeroDivisionError", "division by zero", 10)


@pytest.mark.parametrize("what", ["'é' * (5 << 20)", "b'x' * (5 << 20)", "list(range(10**6))"])
def test_large_value_is_cut(run, what):
    result = run(what)
    assert_ok(result)
    assert MAX_VALUE - 8 < len(result.value.encode()) <= MAX_VALUE
    assert result.value.endswith(" ... [cut]")


def test_error_in_repr_is_the_programs(run):
    result = run("class A:\n    def __repr__(self):\n        1/0\nA()")
    assert result.status == 1 and result.value is None
    assert result.error == ("ZeroDivisionError", "division by zero", 3, 0, 0)
    assert result.stderr.startswith(
        'Traceback (most recent call last):\n  File "main.py", line 3, in __repr__\n    1/0\n'
    )


def test_no_value_of_a_child(run):
    result = run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid and 5")
    assert_ok(result)
    assert result.value == "5"


def test_no_value_of_a_child_forked_in_c(run):
    result = run(
        "import ctypes, os\npid = ctypes.CDLL(None).fork()\n"
        "if pid: os.waitpid(pid, 0)\nbool(pid)"
    )
    assert_ok(result)
    assert result.value == "True"


def test_no_value_after_error(run):
    assert run("import sys\nsys.exit(0)\n5").value is None


# -- await at the top --------------------------------------------------------------


def test_run_and_await(run):
    result = run(
        "import asyncio\n"
        "from asyncio import run\n"
        "async def main(n):\n"
        "    await asyncio.sleep(0)\n"
        "    return n\n"
        "print(asyncio.run(main(1)))\n"
        "task = asyncio.create_task(main(2))\n"
        "print(await task)\n"
        "print(run(main(3)))\n"
        "print(await main(4))\n"
        "async with asyncio.Lock(): print('locked')\n"
        "async def count():\n"
        "    yield 1\n"
        "    yield 2\n"
        "async for i in count(): print(i)\n"
        "[i async for i in count()]\n"
    )
    assert_ok(result, "1\n2\n3\n4\nlocked\n1\n2\n")
    assert result.value == "[1, 2]"


def test_run_inside_a_coroutine_still_fails(run):
    result = run(
        "import asyncio\n"
        "async def inner(): pass\n"
        "async def main():\n"
        "    coroutine = inner()\n"
        "    try:\n"
        "        asyncio.run(coroutine)\n"
        "    except RuntimeError as error:\n"
        "        coroutine.close()\n"
        "        print(error)\n"
        "await asyncio.create_task(main())\n"
    )
    assert_ok(result, "asyncio.run() cannot be called from a running event loop\n")


@pytest.mark.parametrize(
    "last", ["await f()", "asyncio.run(f())", "await asyncio.gather(f())"], ids=lambda s: s[:12]
)
def test_traceback_of_await(run, last):
    result = run(f"import asyncio\nasync def f():\n    1/0\nawait asyncio.sleep(0)\n{last}")
    assert result.status == 1
    assert RUNNER_NAME not in result.stderr
    frames = re.findall(r'File "(.*)", line (\d+), in (\S+)', result.stderr)
    assert frames[0] == ("main.py", "5", "<module>")
    assert frames[-1] == ("main.py", "3", "f")
    assert "    1/0\n" in result.stderr


def test_exit_while_awaiting(run):
    result = run("import asyncio, sys\nawait asyncio.sleep(0)\nsys.exit(5)")
    assert (result.status, result.stderr) == (5, "")


def test_asyncio_is_loaded_on_demand_only(run):
    assert_ok(run("import sys; print('asyncio' in sys.modules)"), "False\n")


def test_asyncio_is_not_shadowed(start):
    engine = start()
    (engine.home / "asyncio.py").write_text("1/0")
    engine.send(RUN, b"import asyncio\nawait asyncio.sleep(0, 3)")
    result = engine.finish()
    assert (result.status, result.value) == (0, "3")


# -- the gate ----------------------------------------------------------------------

# The lists that the engine sends by default; test_gate.c knows them too.
MODULES = ["mos", "msubprocess", "msocket", "murllib", "mrequests", "mhttp"]
CALLS = ["ceval", "cexec", "ccompile", "c__import__"]
ATTRIBUTES = ["aos.*", "asubprocess.*", "asocket.*"]
DEFAULT = MODULES + CALLS + ATTRIBUTES


def refusal(result):
    """What the gate has to say, when it refused and nothing ran."""
    assert (result.status, result.stdout) == (REFUSED, "")
    assert result.value is None and result.error is None
    line, type_length, errno = struct.unpack("=IIi", result.verdict[:12])
    text = result.verdict[12:].decode()
    assert (type_length, errno) == (0, 0)
    assert result.stderr == text + "\n" and "\n" not in text
    prefix = "Static analysis rejected code: "
    assert text.startswith(prefix)
    return line, text[len(prefix) :]


def assert_passed(result, value=None):
    assert_ok(result, result.stdout)
    assert result.verdict == b""
    assert result.value == value


REFUSED_CODE = {
    "import": ("print('ran')\nimport os", 2, "import of 'os' (line 2)"),
    "from": ("from os import path", 1, "import of 'os' (line 1)"),
    "as": ("import subprocess as s", 1, "import of 'subprocess' (line 1)"),
    "below": ("import urllib.request", 1, "import of 'urllib.request' (line 1)"),
    "from below": ("from http.client import HTTPConnection", 1, "import of 'http.client' (line 1)"),
    "one of several": ("import json, socket, math", 1, "import of 'socket' (line 1)"),
    "star": ("from os import *", 1, "import of 'os' (line 1)"),
    "in a function": ("def f():\n    if 1:\n        import os\n", 3, "import of 'os' (line 3)"),
    "eval": ("x = 1\neval('1')", 2, "call of eval() (line 2)"),
    "exec": ("exec('1')", 1, "call of exec() (line 1)"),
    "compile": ("compile('1', 'x', 'eval')", 1, "call of compile() (line 1)"),
    "__import__": ("__import__('os').getcwd()", 1, "call of __import__() (line 1)"),
    "in an f-string": ("f'{eval(1)}'", 1, "call of eval() (line 1)"),
    "in a default": ("def f(a=eval('1')): pass", 1, "call of eval() (line 1)"),
    "in a decorator": ("@eval('1')\ndef f(): pass", 1, "call of eval() (line 1)"),
    "in a comprehension": ("[eval(x) for x in '1']", 1, "call of eval() (line 1)"),
    "attribute": ("os.system('x')", 1, "call of os.system() (line 1)"),
    "deep attribute": ("os.path.join('a')", 1, "call of os.path.join() (line 1)"),
    "another name": ("e = eval\ne('1')", 2, "call of eval() (line 2)"),
    "annotated": ("e: object = eval\ne('1')", 2, "call of eval() (line 2)"),
    "walrus": ("(e := eval)\ne('1')", 2, "call of eval() (line 2)"),
    "three names": ("a = b\nc = a\nb = exec\nc('1')", 4, "call of exec() (line 4)"),
    "names in a circle": ("x = os\nos = x\nos.system('y')", 3, "call of os.system() (line 3)"),
    "builtins": ("import builtins\nbuiltins.eval('1')", 2, "call of builtins.eval() (line 2)"),
    "from builtins": (
        "from builtins import eval as e\ne('1')", 2, "call of builtins.eval() (line 2)"
    ),
    "__builtins__": ("__builtins__.eval('1')", 1, "call of __builtins__.eval() (line 1)"),
    "several": (
        "import os as o\no.system('a')\no.system('b')\nimport json, http\n",
        1,
        "import of 'os' (line 1), call of os.system() (line 2), call of os.system() (line 3), "
        "import of 'http' (line 4)",
    ),
    "twice on a line": ("eval(eval('1'))", 1, "call of eval() (line 1), call of eval() (line 1)"),
    "does not compile, but parses": ("import os\nreturn", 1, "import of 'os' (line 1)"),
    "awaits": ("await os.f()", 1, "call of os.f() (line 1)"),
}


@pytest.mark.parametrize("code, line, text", REFUSED_CODE.values(), ids=REFUSED_CODE.keys())
def test_gate_refuses(run, code, line, text):
    assert refusal(run(code, gate=DEFAULT)) == (line, text)


PASSED_CODE = {
    "hello": ("print('hello')\n6 * 7", "42"),
    "in a string": ("x = 'os.system'\n'''\nimport os\neval(1)\n'''\nx", "'os.system'"),
    "in a comment": ("# import os\n1", "1"),
    "a method": ("class A:\n    def exec(self): return 3\nA().exec()", "3"),
    "re.compile": ("import re\nre.compile('a').pattern", "'a'"),
    "from re import compile": ("from re import compile\ncompile('a').pattern", "'a'"),
    "begins alike": (
        "import sys, types\n"
        "for name in ('ossaudiodev', 'sockets', 'httplib'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "import ossaudiodev, sockets\nfrom httplib import __name__ as name\nname",
        "'httplib'",
    ),
    "an attribute": ("class A: pass\na = A()\na.os = A()\na.os.path = 5\na.os.path", "5"),
    "not called": ("[eval, exec][0] is eval", "True"),
    "ends alike": ("def my_eval(x): return x\nmy_eval(2)", "2"),
    "a keyword": ("dict(os=1)", "{'os': 1}"),
    "await": ("import asyncio\nawait asyncio.sleep(0, 1)", "1"),
    "nothing": ("", None),
}


@pytest.mark.parametrize("code, value", PASSED_CODE.values(), ids=PASSED_CODE.keys())
def test_gate_lets_pass(run, code, value):
    assert_passed(run(code, gate=DEFAULT), value)


def test_gate_leaves_relative_imports_to_the_interpreter(run):
    result = run("from . import os", gate=DEFAULT)
    assert (result.status, result.error.type, result.verdict) == (1, "ImportError", b"")


def test_gate_leaves_errors_of_syntax_to_the_interpreter(run, plain):
    code = "import os\nx = = 1"
    ours, theirs = run(code, gate=DEFAULT), plain(code)
    assert ours[:3] == theirs[:3]
    assert ours.error.flags == COMPILE and ours.verdict is None


def test_gate_without_lists_refuses_nothing(run):
    assert_passed(run("import os\nos.getcwd()\neval('3')", gate=[]), "3")


CUSTOM = {
    "a module below": (["murllib.request"], "import urllib.parse", None),
    "and itself": (["murllib.request"], "import urllib.request", "import of 'urllib.request'"),
    "as a name": (["murllib.request"], "from urllib import request", "import of 'urllib.request'"),
    "and below": (["mxml.dom"], "from xml.dom.minidom import parse", "import of 'xml.dom.minidom'"),
    "one function": (
        ["aos.system"], "import os\nos.getcwd()\nos.system('x')", "call of os.system()"
    ),
    "one function, imported": (
        ["aos.system"], "from os import system as s\ns('x')", "call of os.system()"
    ),
    "one function, of a module by another name": (
        ["aos.path.join"], "import os.path as p\np.join('x')", "call of os.path.join()"
    ),
    "not what begins alike": (["aos.sys"], "import os\nos.system('true')", None),
    "not the module itself": (["aos.*"], "os = print\nos()", None),
    "a call": (["cprint"], "print(1)", "call of print()"),
    "beyond ASCII": (["cdrücke"], "def drücke(): pass\ndrücke()", "call of drücke()"),
}


@pytest.mark.parametrize("gate, code, text", CUSTOM.values(), ids=CUSTOM.keys())
def test_gate_with_other_lists(run, gate, code, text):
    result = run(code, gate=gate)
    if text is None:
        assert result.status == 0 and result.verdict == b""
    else:
        assert refusal(result)[1] == f"{text} (line {code.count(chr(10)) + 1})"


ALLOWED = {
    "listed": ("import math\nmath.floor(2.5)", None),
    "below": ("import xml.dom.minidom\nfrom xml import dom", None),
    "a name in a module": ("from os import path\n1", None),
    "the module itself": ("import os.path", None),
    "__future__": ("from __future__ import annotations", None),
    "its package": ("import os", "import of 'os'"),
    "another name in it": ("from os import system", "import of 'os'"),
    "one of several": ("import math, json", "import of 'json'"),
    "star": ("from os import *", "import of 'os'"),
    "relative": ("from . import math", "import of '.'"),
    "relative below": ("from .math import x", "import of '.math'"),
    "begins alike": ("import mathx", "import of 'mathx'"),
}


@pytest.mark.parametrize("code, text", ALLOWED.values(), ids=ALLOWED.keys())
def test_gate_with_allowed_imports(run, code, text):
    result = run(code, gate=["imath", "ixml", "ios.path"], allowed_only=True)
    if text is None:
        assert result.status == 0 and result.verdict == b""
    else:
        expected = f"{text} (line 1); allowed imports: math, xml, os.path"
        assert refusal(result) == (1, expected)


def test_gate_with_no_allowed_import(run):
    gate = ["ceval"]
    result = run("import math", gate=gate, allowed_only=True)
    assert refusal(result)[1] == "import of 'math' (line 1); allowed imports: none"
    result = run("eval('1')", gate=gate, allowed_only=True)
    assert refusal(result)[1] == "call of eval() (line 1)"


def test_gate_may_refuse_what_is_allowed(run):
    result = run("import os.path", gate=["mos.path", "ios"], allowed_only=True)
    assert refusal(result)[1] == "import of 'os.path' (line 1); allowed imports: os"


def test_refusals_stay_short(run):
    gate = ["c" + "f" * 250, *(f"ia{i}" for i in range(300))]
    code = f"{'f' * 250}()\n" * 50 + "import math"
    line, text = refusal(run(code, gate=gate, allowed_only=True))
    assert line == 1
    assert text.startswith("call of fff") and text.count("line ") == 10
    assert text.endswith("(line 10), 41 more; allowed imports: "
                         "a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, ...")
    assert len(text) < 2000


def test_gate_of_the_largest_size(run):
    gate = [f"{kind}x{i:03}.{'n' * 250}" for kind in "mcai" for i in range(1000)]
    result = run("import math", gate=gate, allowed_only=True)
    assert refusal(result)[1].startswith("import of 'math' (line 1); allowed imports: x000.nnn")


def test_gate_refuses_what_it_cannot_look_through(run):
    code = "a = 1\n" + " + ".join(["a"] * 3000)
    result = run(code, gate=DEFAULT)
    if VERSION in ((3, 11), (3, 12)):  # whose trees nest less deeply than others
        assert refusal(result) == (0, "the code is nested too deeply to be checked")
    else:
        assert result.verdict == b""


def test_gate_takes_attributes_of_any_depth(run):
    code = "os" + ".a" * 900 + "()"
    assert refusal(run(code, gate=DEFAULT))[1].startswith("call of os.a.a.a")


def test_gate_takes_many_imports(run):
    code = "".join(f"import a{i} as b{i}\nb{i} = b{i + 1}\n" for i in range(3000)) + "b0.x()\n"
    result = run(code, gate=["mos", *(f"mz{i}" for i in range(999))])
    assert (result.status, result.error.type, result.verdict) == (1, "ModuleNotFoundError", b"")


def test_a_verdict_comes_before_the_program(start):
    engine = start(subprocess.PIPE)
    engine.send(GATE, b"mos\0")
    engine.send(RUN, b"import sys\nsys.stdin.read()")
    assert engine.receive() == (VERDICT, 0, 1, b"")
    assert engine.process.poll() is None
    assert engine.finish(b"").status == 0


# -- IPython's lines ---------------------------------------------------------------

# Programs that must run as they are, whatever they hold.
UNTOUCHED = {
    "an operator": "y = 3\nx = (10\n%y)\nx",
    "a text": "x = '''\n!ls\n%time y\n'''\nx",
    "an escape": "'a\\\\nb' '\\n'",
    "CRLF in a text": "x = '''a\r\nb'''\r\nx",
    "a bad program": "x = = 3",
    "a bad program of one line": "print('a' 'b\\n' 3)",
    "a question": "x?",
    "not equal": "!= 3",
    "a number behind": "% 3",
    "in brackets": "f(1,\n!ls\n)",
    "behind a backslash": "x = \\\n!ls",
    "in an open text": "x = '''\n!ls\n",
}


@pytest.mark.parametrize("code", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_tidy_leaves_alone(run, code):
    assert run(code, tidy=True)[:5] == run(code)[:5]


TIDY_CODE = {
    "a command": ("!echo a\nprint('b')", "a\nb\n", None),
    "the output before it comes first": ("print('a', end='')\n!echo b", "ab\n", None),
    "a command in last place has no value": ("1\n!true", "", None),
    "blanks around": ("!  echo a  \n5", "a\n", "5"),
    "two marks": ("!!echo a", "a\n", None),
    "quotes": ("!echo 'it''s' \"\\\"q\\\"\" $((1+1)) é", "its \"q\" 2 é\n", None),
    "odd quotes": (
        "!echo don\\'t\nprint(1)\n!echo \\'\\'\\'\nprint(2)", "don't\n1\n'''\n2\n", None
    ),
    "brackets": ("!echo '('\nprint(1)\n!echo ']'", "(\n1\n]\n", None),
    "over two lines": ("!echo a \\\n  b\nprint(2)", "a b\n2\n", None),
    "a failing one": ("!exit 3\n4", "", "4"),
    "in a block": ("for i in (1, 2):\n    !echo a\n    print(i)", "a\n1\na\n2\n", None),
    "alone in a block": ("if 1:\n  !echo a\nprint(2)", "a\n2\n", None),
    "nothing": ("!\n3", "", "3"),
    "in a function": ("def f():\n\t!echo a\n\nf()", "a\n", None),
    "behind brackets and texts": (
        "x = [1,\n  2]\ny = '''\n'''; z = \"'''\" # '''(\n!echo a\nx", "a\n", "[1, 2]"
    ),
    "behind operators": ("y = 3\nx = (10\n%y)\nz = 10 \\\n%y\n!echo a\nx + z", "a\n", "2"),
    "matplotlib": ("%matplotlib inline\nx = 3\nx", "", "3"),
    "matplotlib in a block": ("if 1:\n    %matplotlib inline\n5", "", "5"),
    "before __future__": ("%matplotlib inline\nfrom __future__ import annotations\n6", "", "6"),
    "time": ("%time 1+1", "", "2"),
    "time of a statement": ("%time x = 3\nx", "", "3"),
    "time over lines": ("%time x = [1,\n  2]\nx", "", "[1, 2]"),
    "time in a block": ("for i in (1, 2):\n    %time print(i)\n", "1\n2\n", None),
    "timeit": ("%timeit -n 10 -r3 -q print(1)", "1\n", None),
    "timeit of a negative": ("x = 1\n%timeit -x", "", "-1"),
    "time of a cell": ("%%time\nprint(1)\n2", "1\n", "2"),
    "time of a cell with a statement": ("%%timeit x = 1\nx + 1", "", "2"),
    "time of a command": ("%time !echo a", "a\n", None),
    "time of nothing": ("if 1:\n    %time\n3", "", "3"),
    "with CRLF": ("print(1)\r\n!echo a\r\nprint(2)\r\n", "1\na\n2\n", None),
    "awaited": ("!echo a\nimport asyncio\nawait asyncio.sleep(0, 4)", "a\n", "4"),
    "escaped line ends": ("import math\\nprint(math.floor(2.5))\\n", "2\n", None),
    "escaped as a whole": ("x = \\\"a\\\"\\nprint(x + 'b\\\\n' + \\'c\\')", "ab\nc\n", None),
    "escaped between texts": ("x = 1\\nprint('a\\nb', \"c\\n2\")", "a\nb c\n2\n", None),
    "escaped CRLF and tabs": ("if 1:\\r\\n\\tprint(1)\\r\\n", "1\n", None),
    "escaped with a command": ("!echo a\\nprint(2)\n", "a\n2\n", None),
    "escaped with a magic": ("%matplotlib inline\\nprint(2)", "2\n", None),
    "an escape of a command": ("!printf 'a\\nb'", "a\nb", None),
    "a cookie": ("# coding: latin-1\n!echo a\n'é'", "a\n", "'Ã©'"),
}


@pytest.mark.parametrize("code, stdout, value", TIDY_CODE.values(), ids=TIDY_CODE.keys())
def test_tidy(run, code, stdout, value):
    result = run(code, tidy=True)
    assert_ok(result, stdout)
    assert result.value == value


def test_without_tidy_nothing_is_touched(run):
    for code in ("!echo a", "%time 1", "print(1)\\nprint(2)"):
        result = run(code)
        assert result.error.type == "SyntaxError" and result.stdout == ""


HINTS = {
    "line": ("print(1)\n%cd /tmp\nprint(2)", "1\n2\n", ["line 2: %cd"]),
    "cell": ("%%capture out\nprint(1)", "1\n", ["line 1: %%capture"]),
    "each once": ("%env A=1\n%env B=2\n%pip install x", "", ["line 1: %env", "line 3: %pip"]),
    "in a block": ("if 1:\n    %load_ext x\nprint(1)", "1\n", ["line 2: %load_ext"]),
    "over lines": ("%config a \\\n  b\nprint(1)", "1\n", ["line 1: %config"]),
}


@pytest.mark.parametrize("code, stdout, hints", HINTS.values(), ids=HINTS.keys())
def test_other_magics_are_left_out_with_a_hint(run, code, stdout, hints):
    result = run(code, tidy=True)
    assert (result.status, result.stdout) == (0, stdout)
    said = [f"hutch: {hint} is IPython's and was left out\n" for hint in hints]
    assert result.stderr == "".join(said)


def test_hints_stay_few(run):
    result = run("".join(f"%m{i}\n" for i in range(100)), tidy=True)
    assert result.stderr.count("\n") == 10


def test_hint_beside_an_error_of_syntax(run):
    result = run("%%bash\nls -l /", tidy=True)
    assert result.stderr.startswith("hutch: line 1: %%bash is IPython's and was left out\n  File")
    assert (result.error.line, result.error.flags) == (2, COMPILE)


@pytest.mark.parametrize(
    "code",
    [
        "!true\n!true \\\n  x\n%matplotlib inline\n1/0",
        "!true\n%cd x\n\n# c\n%time 1/0",
        "!true\r\n!true\r\n\r\n\r\n1/0",
        "if 1:\n    !true\n    %matplotlib inline\n    %who\n    1/0",
        "!true\n\n\n\n1 +",
    ],
)
def test_lines_keep_their_numbers(run, code):
    result = run(code, tidy=True)
    assert result.status == 1
    assert result.error.line == 5


def test_error_of_a_mended_line(run):
    result = run("x = 1\\ny = 0\\nx/y", tidy=True)
    assert (result.error.type, result.error.line) == ("ZeroDivisionError", 3)
    assert "    x/y\n" in result.stderr


def test_many_commands(run):
    code = "x = 0\n" + "if x: pass\nif x:\n  !echo no\n%who\n" * 20000 + "print(x)"
    result = run(code, tidy=True)
    assert (result.status, result.stdout) == (0, "0\n")
    assert result.stderr == "hutch: line 5: %who is IPython's and was left out\n"


def test_a_warning_does_not_come_twice(run):
    result = run("!true\nx = '\\d'", tidy=True)
    assert result.status == 0
    assert result.stderr.count("invalid escape sequence") == (VERSION >= (3, 12))


def test_commands_in_a_process_that_is_spawned(run):
    result = run(
        "%matplotlib inline\n"
        "import multiprocessing as mp\n"
        "def square(x):\n"
        "    return x * x\n"
        "if __name__ == '__main__':\n"
        "    !echo once\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(square, [3]))\n",
        tidy=True,
    )
    assert_ok(result, "once\n[9]\n")


def test_gate_looks_at_what_will_run(run):
    assert refusal(run("x = 1\\nimport os", gate=DEFAULT, tidy=True)) == (
        2, "import of 'os' (line 2)")
    assert refusal(run("%time eval('1')", gate=DEFAULT, tidy=True)) == (
        1, "call of eval() (line 1)")


def test_gate_takes_a_command_for_an_import_of_subprocess(run):
    code = "print(1)\n!echo a\n%cd x"
    assert refusal(run(code, gate=DEFAULT, tidy=True)) == (2, "shell command 'echo a' (line 2)")
    result = run(code, gate=["imath"], allowed_only=True, tidy=True)
    assert refusal(result)[1] == "shell command 'echo a' (line 2); allowed imports: math"
    result = run(code, gate=["isubprocess"] + CALLS, allowed_only=True, tidy=True)
    assert (result.status, result.stdout, result.verdict) == (0, "1\na\n", b"")
    assert result.stderr == "hutch: line 3: %cd is IPython's and was left out\n"


# -- surroundings ------------------------------------------------------------------


def test_paths_and_arguments(start):
    engine = start()
    (engine.home / "mine.py").write_text("x = 7")
    code = b"import sys, mine\nprint(sys.argv, mine.x, __file__, sys.path)"
    engine.send(RUN, code)
    stdout = engine.finish().stdout.decode()
    code = "import sys; print(sys.path)"
    path = subprocess.check_output([PYTHON, *OPTIONS, "-c", code], text=True)
    path = [str(engine.home), *ast.literal_eval(path)]
    assert stdout == f"['main.py'] 7 {engine.program} {path}\n"


def test_home_is_left_empty(run):
    assert_ok(run("import os; print(os.listdir())"), "[]\n")


@pytest.mark.parametrize("name", ["traceback", "linecache", "_ast", "os", "signal", "functools"])
def test_files_in_home_do_not_reach_the_runner(start, name):
    engine = start()
    (engine.home / f"{name}.py").write_text("print('shadow')")
    engine.send(RUN, b"5")
    result = engine.finish()
    assert (result.status, result.stdout, result.value) == (0, b"", "5")


def test_no_descriptor_but_the_channel(run):
    result = run(
        "import os, subprocess, sys\n"
        "own = {n: os.path.exists(f'/proc/self/fd/{n}') for n in (*range(20), 1000, 1001)}\n"
        "print([n for n in own if own[n]], os.get_inheritable(1000))\n"
        "listing = 'import os; print(sorted(map(int, os.listdir(\"/proc/self/fd\")))[:-1])'\n"
        "subprocess.run([sys.executable, '-c', listing], close_fds=False)\n"
    )
    assert_ok(result, "[0, 1, 2, 1000] False\n[0, 1, 2]\n")


def test_forked_child_has_no_channel(run):
    result = run(
        "import os\npid = os.fork()\n"
        "if not pid:\n    print(os.path.exists('/proc/self/fd/1000'))\n    os._exit(0)\n"
        "pid = os.waitpid(pid, 0)"
    )
    assert_ok(result, "False\n")


def test_environment(run):
    env = {"NAME": "Zoë\t=", "TZ": "Europe/Berlin"}
    result = run(
        "import os, subprocess, time\n"
        "print(os.environ['NAME'], time.tzname[0])\n"
        "print(subprocess.run('echo \"$NAME\"', shell=True, capture_output=True).stdout.decode())",
        env=env,
    )
    assert_ok(result, "Zoë\t= CET\nZoë\t=\n\n")


def test_unknown_time_zone_is_utc(run):
    code = "import time; print(time.timezone, time.daylight)"
    assert_ok(run(code, env={"TZ": "No/Such"}), "0 0\n")


def test_future_import_with_environment(run):
    result = run("from __future__ import annotations\n1/0", env={"A": "1"})
    assert result.error.line == 2


def test_large_program(run):
    code = "".join(f"value_{i} = {i * 7}\n" for i in range(44000))
    assert len(code) > 890_000
    result = run(code + "value_43999")
    assert_ok(result)
    assert result.value == str(43999 * 7)


def test_full_mebibyte(run):
    code = "print('x')\n"
    assert_ok(run(code + "#" * ((1 << 20) - len(code))), "x\n")


def test_program_file_cannot_be_written(start):
    engine = start()
    Path(engine.program).mkdir()
    engine.send(RUN, b"def f(): 1/0\nf()")
    result = engine.finish()
    assert result.status == 1
    assert b"line 1, in f" in result.stderr
    assert result.error.line == 1


# -- output ------------------------------------------------------------------------


def test_lines_are_out_before_the_program_is_killed(start):
    engine = start(subprocess.PIPE)
    engine.send(RUN, b"import sys\nprint('one')\nprint('two')\nsys.stdin.read()")
    engine.expect_stdout(b"one\ntwo\n")
    engine.process.send_signal(signal.SIGKILL)
    assert engine.finish().status == -signal.SIGKILL


def test_child_falls_off_the_end(run):
    result = run(
        "import os\nprint('before')\npid = os.fork()\n"
        "if pid:\n    os.waitpid(pid, 0)\n    print('parent')\nelse:\n    print('child')"
    )
    assert_ok(result, "before\nchild\nparent\n")


def test_text_in_the_buffer_is_printed_once(run):
    result = run(
        "import os, sys\n"
        "sys.stdout.write('text')\n"
        "sys.stderr.write('note')\n"
        "for i in range(20):\n"
        "    pid = os.fork()\n"
        "    if not pid: sys.exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    assert (result.status, result.stdout, result.stderr) == (0, "text", "note")


def test_everything_in_the_pipe_arrives(run):
    result = run("import sys\nsys.stdout.write('x' * 60000)")
    assert result.stdout == "x" * 60000


# -- multiprocessing ---------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pool(run, method):
    result = run(
        "import multiprocessing as mp\n"
        "def square(x):\n"
        "    return x * x\n"
        "if __name__ == '__main__':\n"
        f"    with mp.get_context('{method}').Pool(2) as pool:\n"
        "        print(pool.map(square, range(5)))\n"
    )
    assert_ok(result, "[0, 1, 4, 9, 16]\n")


def test_process_that_raises(run):
    result = run(
        "import multiprocessing as mp\n"
        "def fail():\n"
        "    1/0\n"
        "if __name__ == '__main__':\n"
        "    process = mp.get_context('fork').Process(target=fail)\n"
        "    process.start()\n"
        "    process.join()\n"
        "    print(process.exitcode)\n"
    )
    assert (result.status, result.stdout) == (0, "1\n")
    assert 'File "main.py", line 3, in fail\n    1/0\n' in result.stderr
    assert RUNNER_NAME not in result.stderr
    assert result.error is None


# -- tracing -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["5", "1/0", "import sys; sys.exit(3)", "raise KeyboardInterrupt"])
def test_trace_left_on_sees_nothing_of_ours(run, end):
    result = run(
        "import os, sys, threading, atexit\n"
        "def trace(frame, event, arg):\n"
        "    os.write(2, f'{frame.f_code.co_filename} {event}\\n'.encode())\n"
        "    return trace\n"
        "def called(): pass\n"
        "atexit.register(called)\n"
        "threading.settrace(trace)\n"
        "sys.settrace(trace)\n"
        "called()\n"
        "thread = threading.Thread(target=called)\n"
        "thread.start()\n"
        "thread.join()\n"
        f"{end}\n"
    )
    assert result.status == {"5": 0, "1/0": 1, "raise KeyboardInterrupt": -2}.get(end, 3)
    assert "main.py call" in result.stderr
    assert RUNNER_NAME not in result.stderr


# -- a channel in bad hands --------------------------------------------------------


def test_channel_closed_by_the_program(run):
    result = run("import os\nos.closerange(3, 4096)\n5")
    assert_ok(result)
    assert result.value is None


@pytest.mark.parametrize("end", ["5", "1/0"])
def test_other_file_under_the_channels_number(start, end):
    engine = start()
    code = (
        "import os\nos.close(1000)\n"
        "os.dup2(os.open('mine', os.O_CREAT | os.O_WRONLY), 1000)\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(os.write(1000, b'child') - 5)\n"
        f"assert os.waitpid(pid, 0)[1] == 0\n{end}"
    )
    engine.send(RUN, code.encode())
    result = engine.finish()
    assert result.status == (1 if end == "1/0" else 0)
    assert result.frames == []
    assert (engine.home / "mine").read_bytes() == b"child"


@pytest.mark.parametrize("disposition", ["SIG_IGN", "SIG_DFL"])
@pytest.mark.parametrize("end, status", [("'x' * 300000", 0), ("1/0", 1), ("exit(4)", 4)])
def test_engine_is_gone(start, disposition, end, status):
    engine = start(subprocess.PIPE)
    code = (
        f"import atexit, signal, sys\nsignal.signal(signal.SIGPIPE, signal.{disposition})\n"
        f"atexit.register(print, 'bye')\nprint('ready')\nsys.stdin.read()\n{end}"
    )
    engine.send(RUN, code.encode())
    channel.assert_ends_without_engine(engine, status)


def test_signal_disposition_is_given_back(run):
    result = run(
        "import atexit, signal\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "atexit.register(lambda: print(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL))\n5"
    )
    assert_ok(result, "True\n")
