# SPDX-License-Identifier: Apache-2.0
"""
The python runner: takes one program from the engine and runs it as the plain
interpreter would.

Theory of operation
-------------------
This file is compiled to runner.pyc when a cell tree is built, and a cell starts
``python3 -I -B -X utf8 runner.pyc PROGRAM`` in its home directory. Descriptor
WIRE_CHANNEL_FD is a socket to the engine (frames: see src/sandbox/wire.h).

1. Prepare whatever does not depend on the request, then wait for it.
2. Write the program to the file PROGRAM, and compile it under that file's name. The file
   is what makes tracebacks true: before 3.13 the interpreter prints them in C
   and reads source lines from disk, for threads and forked children too, and
   multiprocessing's spawn and forkserver run it again in their children. If the
   request wants it, turn IPython's lines into Python before, and look through the
   gate at what was parsed.
3. Put a fresh ``__main__`` in the place of this one, and run the code there.
4. Tell the engine the value or the error and what a notebook would show beside them, and
   leave as the plain interpreter
   leaves: an exception goes on upwards into the interpreter's own handling,
   which turns SystemExit into a status, KeyboardInterrupt into a signal, waits
   for threads, runs atexit handlers and flushes. Only the frames of this file
   are taken out of the traceback before it is shown.

What we tell the engine is a claim, and losing it must never change how the
program ends: the wait status is the truth, and the engine reads it itself. The
channel is no secret of ours. A program that finds it can lie about its own
value, results and error, nothing else. The gate's verdict is no claim, because it
is the first frame: it leaves before anything of the program runs.

After step 3 the program may have changed everything: builtins, sys.modules,
sys.path. So this file takes what it needs beforehand, keeps a copy of the
builtins, and imports nothing afterwards, but json for a value that wants to be
shown as JSON. It must run on CPython 3.9 and later.
"""

import _imp
import _io
import atexit
import builtins
import gc
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader
from _signal import SIG_BLOCK, SIG_IGN, SIG_SETMASK, SIGINT, SIGPIPE
from _signal import default_int_handler, pthread_sigmask, signal, valid_signals
from _thread import RLock
from _thread import _local as LocalNames
from _weakref import ref
from os import close, fstat, getpid, makedev, read, write
from time import sleep

# _ast creates the types of the syntax tree, which the first compile() would do,
# and is the dearest part of the start: do it before the request. What is frozen,
# the garbage collector passes over: the interpreter's own objects, which would
# otherwise be gone through now and several times more at the end. This wins
# back what the types cost.
gc.freeze()
import _ast  # noqa: E402

gc.freeze()

# The program may replace builtins; the functions below find their own here.
globals().update(item for item in vars(builtins).items() if not item[0].startswith("_"))

# -- src/sandbox/wire.h; a test compares the two -------------------------------

WIRE_CHANNEL_FD = 1000
WIRE_ENV = 1
WIRE_RUN = 2
WIRE_GATE = 3
WIRE_ZYGOTE = 4
WIRE_SESSION = 5
WIRE_STDIN = 6
WIRE_VALUE = 16
WIRE_ERROR = 17
WIRE_VERDICT = 18
WIRE_DONE = 19
WIRE_READY = 20
WIRE_RICH = 21
WIRE_SESSION_CHECKPOINTS = 1
WIRE_RUN_TIDY = 1
WIRE_ZYGOTE_LOAD_IN_CELLS = 1
WIRE_GATE_ALLOWED_ONLY = 1
WIRE_GATE_MODULE = "m"
WIRE_GATE_CALL = "c"
WIRE_GATE_ATTRIBUTE = "a"
WIRE_GATE_ALLOWED = "i"
WIRE_EXIT_REFUSED = 126
WIRE_EXIT_FAILED = 125
WIRE_ERROR_COMPILE = 1
WIRE_MAX_RUN = 1 << 20
WIRE_MAX_ENV = 100 * (255 + 1 + 32768 + 1)
WIRE_MAX_GATE = 4 * 1000 * (1 + 255 + 1)
WIRE_MAX_ZYGOTE = 8192
WIRE_MAX_SESSION = 256
WIRE_MAX_STDIN = 16 << 20
WIRE_MAX_VALUE = 1 << 20
WIRE_MAX_ERROR = 64 << 10
WIRE_MAX_RICH = 4 << 20
WIRE_MAX_RICH_COUNT = 64
WIRE_MAX_RICH_BYTES = 8 << 20
WIRE_MAX_RICH_EMPTY = 1000
WIRE_STDOUT_PIPE = "/run/.stdout."
WIRE_STDERR_PIPE = "/run/.stderr."

# -- our own -------------------------------------------------------------------

# Where the program is kept: outside of the home directory, which belongs to the
# program, and in a folder that imports do not look into.
PROGRAM = sys.argv[1]

# The name that the last expression's value is put under; no program can use it.
VALUE_NAME = "<value>"

MAX_PAYLOADS = {
    WIRE_ENV: WIRE_MAX_ENV,
    WIRE_GATE: WIRE_MAX_GATE,
    WIRE_RUN: WIRE_MAX_RUN,
    WIRE_ZYGOTE: WIRE_MAX_ZYGOTE,
    WIRE_SESSION: WIRE_MAX_SESSION,
    WIRE_STDIN: WIRE_MAX_STDIN,
}

CUT_MARK = b" ... [cut]"
MAX_TYPE_NAME = 1024
MAX_REFUSAL = 8 << 10
MAX_SHOWN = 10  # constructs of a refusal, hints, outputs that were left out
MAX_MEANINGS = 100  # of a name

# Memory that is given back when the program fails, so that one which ran out of
# it still gets its report: more than an arena of the allocator, and as it is
# never touched, it takes nothing.
RESERVE_BYTES = 2 << 20
reserve = []

# The interpreter lets go of this file's code when it has run, before it ends: to take
# apart all that hangs on it would cost more than the rest of the end, of which
# nothing is seen.
own_code = sys._getframe().f_code

# Numbers of the compiler's interface, see Include/cpython/compile.h and code.h.
ONLY_AST = 0x400
ALLOW_TOP_LEVEL_AWAIT = 0x2000
CO_COROUTINE = 0x80

# What the program may replace, as it was.
show_exception = sys.__excepthook__
current_frames = sys._current_frames
stop_tracing = sys.settrace
stop_profiling = sys.setprofile
streams = (sys.stdout, sys.stderr)
byte_order = sys.byteorder
type_name = type.__dict__["__name__"].__get__

# All but the one that a send may cause, which is ignored for that time.
OTHER_SIGNALS = valid_signals() - {SIGPIPE}

REHEARSALS = 20  # more than the interpreter needs to adapt code

BUFFERED = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom)

# Sessions: the file of an exec's program, and how many of them stay; how readily the
# kernel takes a cell's processes (enter.c); of waitpid(), for children without a signal.
SESSION_PROGRAM = "/run/main-%d.py"
KEPT_PROGRAMS = 1000
OOM_SCORE = 500
WCLONE = -0x80000000

# Of a zygote's child: how its process ends, by its pid, and the modules that it
# has from the zygote.
ending = {}
preloaded = {}
quit_process = [os._exit]
find_changed = []

# What ends a program that the gate refused.
after_refusal = [os._exit]


# -- the channel ---------------------------------------------------------------


class Channel:
    """
    The socket to the engine, until it is closed, by us in a forked child or by
    the program anywhere. The program may then open a file under the same
    number, so the socket is known by its identity.
    """

    def __init__(self, fd):
        self.fd = fd
        self.exec_id = 0
        self.lock = RLock()  # a frame is sent as a whole
        self.sending = False
        self.attach()

    def attach(self):
        """To the socket that is there now, and for this process."""
        self.owner = getpid()
        self.socket = self._identify()
        os.set_inheritable(self.fd, False)

    def _identify(self):
        status = fstat(self.fd)
        return status.st_dev, status.st_ino

    def _is_there(self):
        try:
            return self._identify() == self.socket
        except OSError:
            return False

    def is_open(self):
        """Whether this process may still send."""
        return getpid() == self.owner and self._is_there()

    def close_in_child(self):
        """A forked child is not what the engine runs: it has nothing to say."""
        if self._is_there():
            close(self.fd)

    def _receive_exactly(self, count):
        data = bytearray()
        while len(data) < count:
            piece = read(self.fd, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def receive(self):
        """The next frame, as its type, flags and payload."""
        header = self._receive_exactly(12)
        length = int.from_bytes(header[:4], byte_order)
        kind = int.from_bytes(header[4:6], byte_order)
        flags = int.from_bytes(header[6:8], byte_order)
        self.exec_id = int.from_bytes(header[8:], byte_order)
        if length > MAX_PAYLOADS.get(kind, 0):
            raise ValueError
        return kind, flags, self._receive_exactly(length)

    def send(self, kind, payload, flags=0):
        """
        Sends a frame, and gives up quietly when the engine is gone. Any thread may; of a
        signal handler that runs in the middle of it, the frame is lost.
        """
        frame = memoryview(
            uint(len(payload), 4) + uint(kind, 2) + uint(flags, 2) + uint(self.exec_id, 4) + payload
        )
        with self.lock:
            if self.sending:
                return
            self.sending = True
            mask = pthread_sigmask(SIG_BLOCK, OTHER_SIGNALS)  # or half a frame might be sent
            previous = ignore_broken_pipes()
            try:
                while frame:
                    frame = frame[write(self.fd, frame) :]
            except OSError:
                pass
            finally:
                restore_broken_pipes(previous)
                self.sending = False
                pthread_sigmask(SIG_SETMASK, mask)


def uint(number, size):
    return number.to_bytes(size, byte_order)


def ignore_broken_pipes():
    """A program may have asked to be killed by SIGPIPE; by ours it is not."""
    try:
        return signal(SIGPIPE, SIG_IGN)
    except ValueError:  # not the main thread
        return None


def restore_broken_pipes(previous):
    if previous is not None:
        signal(SIGPIPE, previous)


def bounded(text, limit):
    """UTF-8 of a text in at most limit bytes, with a mark where it was cut."""
    text = str.__str__(text)  # of a subclass the plain text, without its methods
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data
    kept = data[: limit - len(CUT_MARK)].decode("utf-8", "ignore")
    return kept.encode() + CUT_MARK


# -- before the program --------------------------------------------------------


def open_channel():
    try:
        return Channel(WIRE_CHANNEL_FD)
    except OSError:
        give_up()


def receive(channel):
    try:
        return channel.receive()
    except (EOFError, OSError, ValueError):
        give_up()


def receive_request(channel, frame):
    """
    Waits for the rest of a request that begins with the frame, applies its environment,
    gives code, tidy and gate.
    """
    gate = None
    kind, flags, payload = frame
    try:
        if kind == WIRE_ENV:
            set_environment(payload)
            kind, flags, payload = channel.receive()
        if kind == WIRE_GATE:
            gate = Gate(flags, payload)
            kind, flags, payload = channel.receive()
        if kind == WIRE_RUN:
            return payload, flags & WIRE_RUN_TIDY, gate
    except (EOFError, OSError, ValueError):
        pass
    give_up()


def give_up():
    write(2, b"hutch: the python runner got no request\n")
    os._exit(WIRE_EXIT_FAILED)


def set_environment(payload):
    for entry in payload.split(b"\0")[:-1]:
        name, _, value = entry.partition(b"=")
        os.environb[name] = value
    if b"TZ" in os.environb:
        from time import tzset

        tzset()


def watch_forks(channel):
    """
    Text that waits in a buffer is printed once, not once a child; and a child
    has no channel. The interpreter keeps the two functions to the end, and with
    them the names of this file, which it uses again after the program.
    """

    def before():
        for stream in streams:
            try:
                stream.flush()
            except Exception:  # closed, or no longer there: the program's affair
                pass

    os.register_at_fork(before=before, after_in_child=channel.close_in_child)


def buffer_by_line():
    """A program that is killed has then printed what it printed."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)


def store_program(source):
    """Without the file (a full disk) a traceback lacks the source lines, no more."""
    try:
        fd = os.open(PROGRAM, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        whole = write(fd, source) == len(source)
        close(fd)
        if not whole:
            os.unlink(PROGRAM)
    except OSError:
        pass


def parse_program(source):
    """
    The program's tree. Before 3.13 a tree may not nest as deeply as a program: of
    such a program, None.
    """
    try:
        return compile(source, PROGRAM, "exec", ALLOW_TOP_LEVEL_AWAIT | ONLY_AST, True)
    except RecursionError:
        return None


def compile_program(source, tree):
    """
    The program's code. Await is allowed at the top; the value of an expression
    in last place is kept under VALUE_NAME. A program without a tree runs all the
    same, without a value.
    """
    try:
        if tree is not None:
            if tree.body and isinstance(tree.body[-1], _ast.Expr):
                tree.body[-1] = keep_value(tree.body[-1])
            return compile(tree, PROGRAM, "exec", ALLOW_TOP_LEVEL_AWAIT, True)
    except RecursionError:
        pass
    return compile(source, PROGRAM, "exec", ALLOW_TOP_LEVEL_AWAIT, True)


def keep_value(statement):
    place = {
        "lineno": statement.lineno,
        "col_offset": statement.col_offset,
        "end_lineno": statement.end_lineno,
        "end_col_offset": statement.end_col_offset,
    }
    target = _ast.Name(id=VALUE_NAME, ctx=_ast.Store(), **place)
    return _ast.Assign(targets=[target], value=statement.value, **place)


def enter_main():
    """
    Makes the program's __main__ and gives its names: those that the
    interpreter's own would have for a file.
    """
    module = type(sys)("__main__")
    names = vars(module)
    names["__builtins__"] = builtins
    names["__file__"] = PROGRAM
    names["__loader__"] = SourceFileLoader("__main__", PROGRAM)
    if "__annotations__" in globals():  # up to 3.13
        names["__annotations__"] = {}
    sys.modules["__main__"] = module
    sys.argv[:] = ["main.py"]
    sys.path.insert(0, os.getcwd())
    return names


# -- IPython's lines -----------------------------------------------------------


class Program:
    """
    The program's text and, if tidying is wanted, what makes Python of it: lines of
    IPython, see hutch.h, and one line with escaped line ends. Only a text that does
    not parse is touched, and every line keeps its number.
    """

    def __init__(self, source, tidy):
        self.source = source
        self.commands = {}  # of the shell, by line
        self.hints = {}  # lines of magics that were left out, by name
        if tidy and not parses(source):
            self.mend(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))

    def mend(self, source):
        import re  # dear; few programs need it

        for candidate in (*with_line_ends(re, source), source):
            self.commands, self.hints = {}, {}
            self.source = self.translate(re, candidate)
            if parses(self.source):
                return
        self.give_hints()

    def translate(self, re, source):
        parts = []
        kept = 0
        line = 1
        for found in find_magics(re, source):
            line += source.count(b"\n", kept, found.start())
            parts += (source[kept : found.start()], found["indent"])
            if found["command"] is not None:
                parts.append(self.run_command(line, found["command"]))
            elif found["magic"]:
                parts.append(self.leave_out(line, found["magic"], found["indent"]))
            kept = found.end()
            # A line that went on in the next ones leaves them empty.
            parts.append(b"\n" * found[0].count(b"\n"))
            line += found[0].count(b"\n")
        return b"".join(parts) + source[kept:]

    def run_command(self, line, command):
        command = command.strip().decode()
        self.commands[line] = command
        # A compound statement has no value, and can only stand where IPython's line
        # may. It is plain Python because multiprocessing may run it without us.
        return (
            "if 1: print(end='', flush=True); "
            f"__import__('subprocess').run({ascii(command)}, shell=True)"
        ).encode()

    def leave_out(self, line, name, indent):
        if name.lstrip(b"%") not in (b"matplotlib", b"time", b"timeit"):
            self.hints.setdefault(name.decode(), line)
        return b"pass" if indent else b""  # a block may need a statement

    def give_hints(self):
        for name, line in list(self.hints.items())[:MAX_SHOWN]:
            write(2, f"hutch: line {line}: {name:.40} is IPython's and was left out\n".encode())


# A string of Python; one that lacks its end goes on to the end of its line, or of
# the text.
STRING = (
    rb"(?s:'''(?:\\.|[^\\])*?(?:'''|\Z)|\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z))"
    rb"|'(?:\\(?s:.)|[^'\\\n])*'?|\"(?:\\(?s:.)|[^\"\\\n])*\"?"
)


def find_magics(re, source):
    """
    Matches of IPython's lines: those that begin a statement with ! or %, which no
    statement of Python does. Strings, brackets and backslashes tell which lines
    begin one. Of %time the match ends before the statement that it runs.
    """
    lexeme = re.compile(STRING + rb"|#[^\n]*|[][(){}]|\\\n|\n")
    magic = re.compile(
        rb"(?P<indent>[ \t]*)(?:!+(?!=)(?P<command>(?:\\\n|.)*)"
        rb"|%%?time(?:it(?:[ \t]+-(?:[nrp][ \t]*\d+|[tcqvo]+\b))*)?[ \t]+(?=\S)"
        rb"|(?P<magic>%%?[A-Za-z_]\w*)(?:\\\n|.)*)"
    )
    at = depth = 0
    begins = True  # a statement
    while True:
        found = magic.match(source, at) if begins else None
        if found:
            yield found
            at = found.end()
            continue
        token = lexeme.search(source, at)
        if not token:
            return
        at = token.end()
        depth += (token[0] in (b"(", b"[", b"{")) - (token[0] in (b")", b"]", b"}"))
        begins = token[0] == b"\n" and depth <= 0


def parses(source):
    """Whether a program parses; a nesting that is too deep is no matter of its text."""
    stderr, sys.stderr = sys.stderr, None  # warnings come when it is parsed for good
    try:
        compile(source, PROGRAM, "exec", ALLOW_TOP_LEVEL_AWAIT | ONLY_AST, True)
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):
        pass
    finally:
        sys.stderr = stderr
    return True


def with_line_ends(re, source):
    """
    What one line may have been that holds \\n in place of line ends: escaped as a
    whole, strings too, or between its strings only.
    """
    if b"\n" in source.strip() or b"\\n" not in source:
        return
    escapes = {b"n": b"\n", b"t": b"\t", b"r": b"", b'"': b'"', b"'": b"'", b"\\": b"\\"}
    yield re.sub(rb"\\(.)", lambda found: escapes.get(found[1], found[0]), source)
    between = {b"\\n": b"\n", b"\\t": b"\t", b"\\r": b""}
    yield re.sub(STRING + rb"|\\[ntr]", lambda found: between.get(found[0], found[0]), source)


# -- the gate ------------------------------------------------------------------


class Gate:
    """The imports and calls that the request does not want, see struct hutch_gate."""

    def __init__(self, flags, payload):
        entries = [entry.decode() for entry in payload.split(b"\0")[:-1]]

        def names(kind):
            return {entry[1:]: None for entry in entries if entry[:1] == kind}  # in their order

        self.modules = names(WIRE_GATE_MODULE)
        self.calls = names(WIRE_GATE_CALL)
        self.attributes = names(WIRE_GATE_ATTRIBUTE)
        self.allowed = names(WIRE_GATE_ALLOWED) if flags & WIRE_GATE_ALLOWED_ONLY else None

    def judge(self, channel, tree, commands):
        """Lets the program pass, or says why not and ends the process."""
        if tree is None:
            refuse(channel, 0, "the code is nested too deeply to be checked")
        found = self.find(tree, commands)
        if found:
            refuse(channel, found[0][0], self.explain(found))
        channel.send(WIRE_VERDICT, b"")

    def find(self, tree, commands):
        """What is refused, in the order of the program: line, column, construct."""
        found = set()
        if self.refused_import("subprocess", "subprocess"):
            found.update((n, 0, f"shell command {commands[n]!r}") for n in commands)
        meanings = find_meanings(tree)
        for node in walk(tree):
            if getattr(node, "lineno", None) in commands:
                continue  # what runs the command is ours
            if isinstance(node, (_ast.Import, _ast.ImportFrom)):
                refused = [self.refused_import(*names) for names in imported_names(node)]
                refused = [f"import of '{name}'" for name in refused if name]
            elif isinstance(node, _ast.Call):
                names = meanings_of(dotted_name(node.func), meanings)
                refused = [f"call of {name}()" for name in names if self.is_refused_call(name)]
            else:
                continue
            found.update((node.lineno, node.col_offset, construct) for construct in refused)
        return sorted(found)

    def refused_import(self, module, name):
        """Which of a module and a name in it may not be imported, or None."""
        if is_below(module, self.modules):
            return module
        if is_below(name, self.modules):
            return name
        if self.allowed is None or module == "__future__":
            return None
        return None if is_below(module, self.allowed) or is_below(name, self.allowed) else module

    def is_refused_call(self, name):
        head, _, rest = name.partition(".")
        if (rest if head in ("builtins", "__builtins__") else name) in self.calls:
            return True
        above = prefixes(name)[:-1]
        return name in self.attributes or any(part + ".*" in self.attributes for part in above)

    def explain(self, found):
        shown = [f"{construct:.100} (line {line})" for line, _, construct in found[:MAX_SHOWN]]
        if len(found) > MAX_SHOWN:
            shown.append(f"{len(found) - MAX_SHOWN} more")
        text = ", ".join(shown)
        if self.allowed is not None and not all(entry[2].startswith("call") for entry in found):
            allowed = ", ".join(list(self.allowed)[:MAX_SHOWN]) or "none"
            more = ", ..." if len(self.allowed) > MAX_SHOWN else ""
            text += f"; allowed imports: {allowed}{more}"
        return text


def refuse(channel, line, reason):
    """The engine believes it because nothing of the program has run; see wire.h."""
    text = bounded("Static analysis rejected code: " + reason, MAX_REFUSAL)
    write(2, text + b"\n")
    channel.send(WIRE_VERDICT, uint(line, 4) + uint(0, 8) + text)
    after_refusal[0](WIRE_EXIT_REFUSED)


def walk(tree):
    """Every node of a tree, without regard to how deeply it nests."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        yield node
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, _ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes.extend(item for item in value if isinstance(item, _ast.AST))


def prefixes(name):
    """Of "a.b.c": "a", "a.b" and itself."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def is_below(name, modules):
    return any(part in modules for part in prefixes(name))


def imported_names(node):
    """
    What an import statement imports: pairs of a module and of a name in it, which
    may be a module too. A relative import is of no module by that name.
    """
    if isinstance(node, _ast.Import):
        return [(alias.name, alias.name) for alias in node.names]
    module = "." * node.level + (node.module or "")
    dot = "." if node.module else ""
    return [
        (module, module if alias.name == "*" else module + dot + alias.name)
        for alias in node.names
    ]


def dotted_name(node):
    """Of an expression like os.path.join its text, of any other none."""
    parts = []
    while isinstance(node, _ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, _ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def find_meanings(tree):
    """
    What names stand for, by imports and plain assignments anywhere in the program:
    {"o": {"os"}, "run": {"o.system"}}. Where it happens does not count.
    """
    meanings = {}

    def bind(name, meaning):
        if meaning:
            meanings.setdefault(name, set()).add(meaning)

    for node in walk(tree):
        if isinstance(node, _ast.Import):
            for alias in node.names:
                top = prefixes(alias.name)[0]
                bind(alias.asname or top, alias.name if alias.asname else top)
        elif isinstance(node, _ast.ImportFrom):
            for alias, (_, name) in zip(node.names, imported_names(node)):
                bind(alias.asname or alias.name, name)
        elif isinstance(node, (_ast.Assign, _ast.AnnAssign, _ast.NamedExpr)):
            for target in getattr(node, "targets", None) or [node.target]:
                if isinstance(target, _ast.Name):
                    bind(target.id, dotted_name(node.value))
    return meanings


def meanings_of(name, meanings):
    """The names that a name may stand for in the end; itself when it is not bound."""
    ends, seen, open_names = set(), set(), [name] if name else []
    while open_names and len(seen) < MAX_MEANINGS:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        head, dot, rest = name.partition(".")
        for meaning in meanings.get(head, (head,)):
            if meaning == head:
                ends.add(name)
            else:
                open_names.append(meaning + dot + rest)
    return ends or seen


# -- await at the top ----------------------------------------------------------


def prepare_to_await():
    """
    A program that awaits at the top runs inside an event loop, where
    asyncio.run() refuses to work. As it is called outside of any coroutine
    there, let it work. (Such a program cannot use multiprocessing's spawn,
    whose children run its file by the plain rules.)
    """
    import asyncio
    from functools import wraps

    plain_run = asyncio.run

    @wraps(plain_run)
    def run(*args, **kwargs):
        task = program_task()
        if task is None:
            return plain_run(*args, **kwargs)
        loop = asyncio.get_running_loop()
        asyncio._leave_task(loop, task)
        asyncio._set_running_loop(None)
        try:
            return plain_run(*args, **kwargs)
        finally:
            asyncio._set_running_loop(loop)
            asyncio._enter_task(loop, task)

    def program_task():
        """The task that runs the program, if it is the one running now."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop runs
            return None
        return task if task is not None and task.get_coro() is coroutines[0] else None

    def await_program(coroutine):
        coroutines.append(coroutine)
        plain_run(coroutine)

    coroutines = []
    asyncio.run = run
    return await_program


# -- rich outputs --------------------------------------------------------------


class Rich:
    """
    What the program shows as in a notebook: objects by display(), the value in last place,
    and the figures of matplotlib.pyplot, which are shown and closed by plt.show() and at
    the end. The methods that give a rich form are the program's: what goes wrong in one
    costs that form and is said on stderr. An interrupt by the keyboard ends the program.
    """

    def __init__(self):
        self.channel = None
        self.figures_shown = []  # that are still open

    def begin(self, channel):
        self.channel = channel
        self.count = self.bytes = self.left_out = 0
        builtins.display = display
        for name in WATCHED.keys() & sys.modules.keys():
            watch.meet(name, sys.modules[name])
        if watch not in sys.meta_path:
            sys.meta_path.insert(0, watch)

    def end(self, value):
        if value is not None:
            self.show(value)
        self.show_figures()

    def end_of_failure(self):
        try:
            self.show_figures()
        except BaseException:  # there is another already
            pass

    def is_open(self):
        return self.channel is not None and self.channel.is_open()

    def show(self, value):
        """Every rich form that a value has."""
        if type(value) in PLAIN_TYPES or not self.is_open():
            return
        if is_figure(value):
            self.show_figure(value)
            self.figures_shown.append(value)
        for mime, method, encode in RICH_FORMS:
            try:
                data = rich_form(value, method, encode)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.leave_out(f"{method}() of {type_name(type(value)):.100}", error)
            else:
                if data is not None:
                    self.send(mime, data)

    def show_figures(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not self.is_open():
            return
        try:
            managers = sorted(sys.modules["matplotlib._pylab_helpers"].Gcf.figs.items())
            for _, manager in managers:
                figure = manager.canvas.figure
                if not any(figure is shown for shown in self.figures_shown):
                    self.show_figure(figure)
                pyplot.close(figure)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.leave_out("figures", error)
        self.figures_shown.clear()

    def show_figure(self, figure):
        """As IPython does, without the margin; one with nothing in it is not shown."""
        try:
            if len(figure.get_children()) == 1:  # the background
                return
            file = _io.BytesIO()
            figure.savefig(file, format="png", bbox_inches="tight")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.leave_out("a figure", error)
        else:
            self.send("image/png", file.getvalue())

    def take_show(self, pyplot):
        plain_show = pyplot.show

        def show(*args, **kwargs):
            self.show_figures()
            return plain_show(*args, **kwargs)

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(show, name, getattr(plain_show, name, None))
        pyplot.show = show

    def send(self, mime, data):
        payload = mime.encode() + b"\0" + data
        room = WIRE_MAX_RICH_BYTES - self.bytes
        if self.count == WIRE_MAX_RICH_COUNT:
            self.leave_out(mime, f"there are {WIRE_MAX_RICH_COUNT} rich outputs already")
        elif len(payload) > WIRE_MAX_RICH:
            self.leave_out(mime, f"larger than {WIRE_MAX_RICH >> 20} MiB")
        elif len(payload) > room:
            self.leave_out(mime, f"rich outputs are {WIRE_MAX_RICH_BYTES >> 20} MiB together")
        else:
            self.count += 1
            self.bytes += len(payload)
            self.channel.send(WIRE_RICH, payload)

    def leave_out(self, what, reason):
        """Tells the engine that there was one more, and whoever reads stderr, why."""
        self.left_out += 1
        if self.left_out <= WIRE_MAX_RICH_EMPTY:
            self.channel.send(WIRE_RICH, b"")
        if self.left_out > MAX_SHOWN:
            return
        if isinstance(reason, BaseException):
            reason = f"{type_name(type(reason)):.100}: {str.__str__(error_message(reason)):.200}"
        note = f"hutch: not shown: {what}: {reason}".replace("\n", " ") + "\n"
        try:
            write(2, note.encode("utf-8", "backslashreplace"))
        except OSError:
            pass


def rich_form(value, method, encode):
    """The bytes of a value's rich form, or None. A class has none, its instances may."""
    kind = type(value)
    if issubclass(kind, type) or getattr(kind, method, None) is None:
        return None
    data = getattr(value, method)()
    if type(data) is tuple and len(data) == 2:
        data = data[0]  # the rest is metadata
    return None if data is None else encode(data)


def png_bytes(data):
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"bytes expected, not {type_name(type(data)):.100}")
    data = b"".join([data])  # of a subclass the plain bytes
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG image")
    return data


def text_bytes(text):
    if not isinstance(text, str):
        raise TypeError(f"str expected, not {type_name(type(text)):.100}")
    text = str.__str__(text)
    return text[: WIRE_MAX_RICH + 1].encode("utf-8", "backslashreplace")


def json_bytes(data):
    if not isinstance(data, (dict, list)):
        raise TypeError(f"dict or list expected, not {type_name(type(data)):.100}")
    from json import dumps  # dear; few programs need it

    return text_bytes(dumps(data, ensure_ascii=False, allow_nan=False))


RICH_FORMS = (
    ("image/png", "_repr_png_", png_bytes),
    ("image/svg+xml", "_repr_svg_", text_bytes),
    ("text/html", "_repr_html_", text_bytes),
    ("application/json", "_repr_json_", json_bytes),
)

# Most values are of these, and have no rich form.
PLAIN_TYPES = frozenset((str, int, float, bool, bytes, list, tuple, dict, set, type(None)))


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    try:
        return module is not None and isinstance(value, module.Figure)
    except Exception:  # another module of that name
        return False


def display(*values, **options):
    """
    Shows values as a notebook does: as text on stdout, and in their rich forms (a data
    frame's table, a figure, an image) among the results of the run.
    """
    for value in values:
        print(repr(value))
        rich.show(value)


def take_matplotlib(matplotlib):
    """
    Of those of cjk_font.h matplotlib is told the ones that are there: for characters that
    its other fonts lack, as of 3.6. A choice of the program's own stays. And it finds its
    list of fonts made already, which would take it a fifth of a second.
    """
    families = [family for path, family in CJK_FAMILIES if os.path.exists(path)]
    for settings in (matplotlib.rcParamsDefault, matplotlib.rcParams):
        if settings["font.family"] == ["sans-serif"]:
            settings["font.family"] = ["sans-serif", *families]
    folder = matplotlib.get_cachedir()
    for name in set(os.listdir(FONT_LISTS)) - set(os.listdir(folder)):
        os.symlink(FONT_LISTS + name, os.path.join(folder, name))


FONT_LISTS = "/usr/lib/hutch/matplotlib/"
CJK_FAMILIES = (
    ("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc", "Noto Sans CJK JP"),
    ("/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf", "Droid Sans Fallback"),
    ("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc", "WenQuanYi Micro Hei"),
    ("/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc", "WenQuanYi Zen Hei"),
)


class Watch:
    """Finds no module itself; acts once when one of WATCHED has been imported."""

    def __init__(self):
        self.met = {}

    def meet(self, name, module):
        if self.met.get(name) is module:
            return
        self.met[name] = module
        try:
            WATCHED[name](module)
        except Exception:  # another module of that name
            pass

    def find_spec(self, name, path=None, target=None):
        if name not in WATCHED:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self.watch(spec.loader, name)
                return spec
        return None

    def watch(self, loader, name):
        plain_exec = loader.exec_module

        def exec_module(module):
            plain_exec(module)
            self.meet(name, module)

        loader.exec_module = exec_module  # of this loader alone


rich = Rich()
watch = Watch()
WATCHED = {"matplotlib": take_matplotlib, "matplotlib.pyplot": rich.take_show}


# -- after the program ---------------------------------------------------------


def send_value(channel, value):
    """Tells the value; an error in its repr is the program's error."""
    if value is None or not channel.is_open():
        return
    if type(value) in (str, bytes) and len(value) > WIRE_MAX_VALUE:
        value = value[:WIRE_MAX_VALUE]  # the quotes make it too long, so it gets its mark
    channel.send(WIRE_VALUE, bounded(repr(value), WIRE_MAX_VALUE))


def report(channel, error, compiled):
    """Tells the exception that ends the program, come what may."""
    try:
        explain_missing_stdin(error)
        if channel.is_open() and not is_success(error):
            send_error(channel, error, compiled)
    except BaseException:  # an exception class with ideas of its own
        pass


def send_error(channel, error, compiled):
    name = bounded(type_name(type(error)), MAX_TYPE_NAME)
    message = bounded(error_message(error), WIRE_MAX_ERROR - 12 - len(name))
    head = uint(error_line(error, compiled), 4) + uint(len(name), 4) + uint(error_number(error), 4)
    flags = WIRE_ERROR_COMPILE if not compiled and isinstance(error, SyntaxError) else 0
    channel.send(WIRE_ERROR, head + name + message, flags)


def is_success(error):
    """Whether an exception ends the program with status 0."""
    if not isinstance(error, SystemExit):
        return False
    code = error.code
    return code is None or (isinstance(code, int) and code & 0xFF == 0)


def error_message(error):
    try:
        if isinstance(error, SyntaxError) and isinstance(error.msg, str):
            return error.msg  # without "(main.py, line 3)"
        return str(error)
    except BaseException:
        return "<exception str() failed>"


def error_line(error, compiled):
    if not compiled and isinstance(error, SyntaxError):
        line = error.lineno
        return line if isinstance(line, int) and 0 < line < 1 << 32 else 0
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM:
            line = trace.tb_lineno or 0
        trace = trace.tb_next
    return line


def error_number(error):
    number = error.errno if isinstance(error, OSError) else 0
    return number if isinstance(number, int) and 0 < number < 1 << 31 else 0


def explain_missing_stdin(error):
    """Says to the one who reads the traceback what input() cannot know."""
    if type(error) is EOFError and error.args == ("EOF when reading a line",) and stdin_is_null():
        error.args = (
            "EOF when reading a line: no stdin was given; "
            "give it in the request's stdin field, or with hutch run --stdin FILE",
        )


def stdin_is_null():
    try:
        return fstat(0).st_rdev == makedev(1, 3)
    except OSError:
        return False


def hide_runner(hook):
    """
    Makes the interpreter, which is about to print the program's last exception,
    print it as if the program had been run without us.
    """

    def excepthook(kind, error, trace):
        sys.excepthook = hook
        sys.last_traceback = error.__traceback__ = without_runner(trace)
        try:
            hook(kind, error, error.__traceback__)
        except SystemExit:
            ending.clear()
            raise
        except BaseException as failure:
            # The interpreter would say the same, with a frame of ours.
            sys.stderr.write("Error in sys.excepthook:\n")
            failure.__traceback__ = without_runner(failure.__traceback__)
            show_exception(type(failure), failure, failure.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            show_exception(kind, error, error.__traceback__)

    sys.excepthook = excepthook


def without_runner(trace):
    """A traceback without our frames and those of the event loop that we run."""
    while trace is not None and (is_ours(trace) or is_event_loop(trace)):
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        while entry.tb_next is not None and is_ours(entry.tb_next):
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    return trace


def is_ours(entry):
    return entry.tb_frame.f_globals is globals()


def is_event_loop(entry):
    return str(entry.tb_frame.f_globals.get("__name__")).startswith("asyncio.")


# -- the zygote ----------------------------------------------------------------


def become_zygote(channel, flags, payload):
    """
    Makes of this process one that forks the interpreters of cells, see zygote.h.
    Returns in each of these, in a cell of its own, when that has got its request. What
    does not depend on the request is done before the wait for it.
    """
    module_path, _, names = payload.decode().partition("\0")
    names = [name for name in names.split(",") if name]
    in_cells = flags & WIRE_ZYGOTE_LOAD_IN_CELLS or has_foreign_packages()
    atexit.register(leave)  # the first one runs last
    zygote = load_module(module_path)
    quit_process[0] = zygote.quit
    find_changed.append(zygote.changed)
    if not in_cells:
        preload(names)
    preloaded.update(sys.modules)
    for _ in range(REHEARSALS):
        rehearse()
    share_page_tables()
    gc.collect()
    gc.freeze()
    collapse_memory(zygote)
    has_request = zygote.serve(WIRE_CHANNEL_FD)
    reseed()
    log = None if has_request else prepare(names if in_cells else ())
    make_ready(channel)
    if zygote.park(log):
        replace_stdin()
    channel.attach()


def load_module(path):
    """Of C code, without a trace in the names that a program sees."""
    loader = ExtensionFileLoader("hutch_zygote", path)
    module = _imp.create_dynamic(ModuleSpec("hutch_zygote", loader, origin=path))
    sys.modules.pop("hutch_zygote", None)
    return module


def collapse_memory(zygote):
    """Of what the interpreter has written; each fork copies it."""
    for start, end, mode, device in mappings():
        if mode == "rw-p" and device == "00:00":
            zygote.collapse(start, end)


def share_page_tables():
    """
    A fork leaves out the page table entries of files that are mapped and not written to,
    and each child meets them by faults, one after the other. It copies those of a
    mapping in which a page was written: so a byte is, in the way of a debugger.
    """
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for start, _, mode, device in mappings():
                if mode in ("r--p", "r-xp") and device != "00:00":
                    memory.seek(start)
                    byte = memory.read(1)
                    memory.seek(start)
                    memory.write(byte)
    except OSError:  # a kernel that does not allow it
        pass


def mappings():
    """The memory of this process: start, end, mode, device."""
    with open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        addresses, mode, _, device, *_ = line.split()
        start, end = (int(address, 16) for address in addresses.split("-"))
        yield start, end, mode, device


def has_foreign_packages():
    """
    Whether an import may find what is not the distribution's. A zygote loads nothing of
    that kind: it would run with the zygote's power to enter cells.
    """
    if sys.prefix != sys.base_prefix or sys.base_prefix != "/usr":
        return True
    for folder in sys.path:
        if not folder.startswith("/usr/lib/python3"):
            try:
                # A .pth file has run before anything of ours, as in every interpreter.
                if any(not name.endswith(".pth") for name in os.listdir(folder)):
                    return True
            except OSError:
                pass
    return False


def load(name):
    """Imports a module; one that cannot be imported is gone without, and stderr says why."""
    try:
        __import__(name)
    except BaseException as error:
        show_exception(type(error), error, error.__traceback__)


def preload(names):
    """Imports what is to be there in each cell. Who forks cannot have more than one thread."""
    for name in names:
        load(name)
        if len(os.listdir("/proc/self/task")) > 1:
            write(2, f"hutch: {name} starts threads: it is loaded in each cell\n".encode())
            os._exit(WIRE_EXIT_FAILED)


def prepare(names):
    """
    In a cell that has no request yet: loads what the zygote did not, and touches what a
    program will touch, so that the copies are there. Returns what there is to tell.
    """
    streams_before = sys.stdout, sys.stderr
    log = sys.stdout = sys.stderr = _io.StringIO()
    for name in names:
        load(name)
    sys.stdout, sys.stderr = streams_before
    preloaded.update((name, sys.modules[name]) for name in changed_modules())
    rehearse()
    return log.getvalue()[-1000:].encode("utf-8", "replace")[-1000:]


def reseed():
    """What fork does not make fresh by itself. The module random does it at the fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(32), 0.0)
    # These know a fork by another pid, but zygote and cell may have the same.
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile._name_sequence = None
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def rehearse():
    """
    A run of a program that does nothing: in the zygote, so that the interpreter has
    adapted its own code, and in each of its children, so that they have copies of what
    they will write to. Nothing is left of it.
    """
    source = b"import sys\nfor x in ('', 0, ''):\n    print(x or '', end='')\nsys.path\n"
    module, argv, path = sys.modules["__main__"], sys.argv[:], sys.path[:]
    reading, writing = os.pipe()
    channel = Channel(writing)
    channel.send(WIRE_RUN, source)
    channel.fd = reading
    frame = receive(channel)
    channel.fd = writing
    main(channel, frame)
    try:
        raise SystemExit
    except BaseException as error:
        report(channel, error, True)
        exit_status(error)
    # What ends is the last of the modules, so that __main__ stays in its place.
    sys.modules[VALUE_NAME] = sys.modules["__main__"]
    sys.modules["__main__"], sys.argv[:], sys.path[:] = module, argv, path
    end_program()
    sys.modules.pop(VALUE_NAME, None)  # it is still there if a module has started threads
    ending.clear()
    os.unlink(PROGRAM)
    for fd in (reading, writing):
        close(fd)


def leave():
    """
    Ends the process, after all other handlers. Where it is not plain what is to be
    done, it does nothing, and the interpreter goes on in its own way.
    """
    status = end_program()
    if status is not None:
        quit_process[0](status)


def end_program():
    """
    What the interpreter does at its end, but only to what is the program's: to take
    the zygote's own objects apart as well would cost more than most programs. Gives
    the status to end with, or None.
    """
    status = ending.get(getpid())
    # Threads that still run are the interpreter's to stop before it takes away what
    # they use.
    if status is None or len(current_frames()) > 1 or not flush_streams():
        return None
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    flush_files()
    left = changed_modules()
    alive = [ref(module) for module in map(sys.modules.pop, left) if type(module) is type(sys)]
    gc.collect()
    for module in reversed([module() for module in alive]):
        if module is not None:
            empty(vars(module))
    module = None
    gc.collect()
    return status if flush_streams() else None


def changed_modules():
    """
    The names of modules that are not the zygote's. A look at each of a thousand from Python
    would write to it, to count references, and copy its page.
    """
    return find_changed[0](sys.modules, preloaded)


def empty(names):
    """As the interpreter empties a module: names with an underscore first."""
    for first in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") == first:
                names[name] = None


def flush_files():
    """
    Of a file that the program left open the collector may close the lowest layer
    first; what is in the upper ones is then lost, in the plain interpreter too.
    """
    for thing in gc.get_objects():  # without the zygote's
        if type(thing) in BUFFERED:
            try:
                thing.flush()
            except Exception:  # closed, or a full disk: nobody is left to be told
                pass


def flush_streams():
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:
        return False
    return True


def exit_status(error):
    """What the interpreter makes of the exception that ends a program; None: more than that."""
    if isinstance(error, KeyboardInterrupt):
        return None
    if not isinstance(error, SystemExit):
        return 1
    try:
        code = error.code
    except BaseException:  # a property of the program's
        return None
    if code is None:
        return 0
    return code & 0xFF if type(code) is int and abs(code) < 1 << 31 else None


def replace_stdin():
    """The one that was opened at the start was /dev/null, and may remember it."""
    stdin = open(0, encoding="utf-8", errors=sys.stdin.errors, newline="\n", closefd=False)
    stdin.buffer.raw.name = "<stdin>"
    sys.stdin = sys.__stdin__ = stdin


# -- sessions ------------------------------------------------------------------


class EndOfExec(BaseException):
    """Ends an exec of which nothing is to be told any more."""


def end_exec(status):
    raise EndOfExec(status)


class Output(_io.TextIOWrapper):
    """
    sys.stdout or sys.stderr of a session: prints to descriptor 1 or 2, which are those of
    the exec that runs; but what a thread of an earlier exec prints goes where that exec
    printed to.
    """

    def __init__(self, outputs, number, name, errors):
        buffer = open(number, "wb", closefd=False)
        buffer.raw.name = name
        super().__init__(buffer, "utf-8", errors, "\n", line_buffering=True)
        self.mode = "w"
        self._outputs = outputs
        self._number = number

    @property
    def buffer(self):
        older = self._outputs.older(self._number)
        return buffer_of(self) if older is None else older.buffer

    def write(self, text):
        older = self._outputs.older(self._number)
        return write_text(self, text) if older is None else older.write(text)

    def flush(self):
        older = self._outputs.older(self._number)
        return flush_text(self) if older is None else older.flush()


buffer_of = _io.TextIOWrapper.buffer.__get__
write_text = _io.TextIOWrapper.write
flush_text = _io.TextIOWrapper.flush


class Outputs:
    """
    Where execs print to. Each has pipes of its own, which have names (see wire.h). They are
    opened before the exec is there, while nobody waits.

    A thread belongs to the exec of the one that started it. The main thread, and threads
    that were made without threading.Thread, belong to the exec that runs.
    """

    def __init__(self):
        self.exec_id = 0
        self.next = None  # the number of an exec, and its pipes
        self.old = {}  # streams of earlier execs, while they have threads
        self.local = LocalNames()
        self.streams = [None, None]
        self.make_streams()
        self.watch_threads()

    def make_streams(self):
        global streams
        for index, name in enumerate(("stdout", "stderr")):
            errors = ("surrogateescape", "backslashreplace")[index]
            stream = self.streams[index]
            if stream is None or getattr(sys, name) is not stream or is_closed(stream):
                self.streams[index] = Output(self, index + 1, f"<{name}>", errors)
                setattr(sys, name, self.streams[index])
                setattr(sys, f"__{name}__", self.streams[index])
        streams = tuple(self.streams)

    def watch_threads(self):
        from threading import Thread, enumerate

        start, bootstrap = Thread.start, Thread._bootstrap

        def start_thread(thread):
            thread._exec_id = self.of_thread()
            start(thread)

        def bootstrap_thread(thread):
            self.local.exec_id = thread._exec_id
            bootstrap(thread)

        for function, name in ((start_thread, "start"), (bootstrap_thread, "_bootstrap")):
            function.__name__, function.__qualname__ = name, f"Thread.{name}"
            setattr(Thread, name, function)
        self.threads = enumerate

    def of_thread(self):
        return getattr(self.local, "exec_id", self.exec_id)

    def older(self, number):
        """The stream of the thread that calls, if it belongs to an earlier exec."""
        if not self.old:
            return None
        streams = self.old.get(self.of_thread())
        return streams[number - 1] if streams else None

    def begin(self, exec_id):
        """Turns descriptors 1 and 2 to the pipes of an exec."""
        if self.next and self.next[0] != exec_id:
            self.close_next()
        if not self.next:
            self.prepare(exec_id)
        if self.next:
            if self.exec_id and len(current_frames()) > 1:
                self.old[self.exec_id] = [reopened(1), reopened(2)]
                self.await_threads()
            self.flush()
            for number, fd in zip((1, 2), self.next[1]):
                os.dup2(fd, number)
            self.close_next()
        self.exec_id = exec_id
        self.make_streams()

    def await_threads(self):
        """Those that are about to print where they have printed so far."""
        functions = (Output.write, Output.flush, Output.buffer.fget, Outputs.older)
        codes = {function.__code__ for function in (*functions, Outputs.of_thread)}
        for _ in range(100):
            if all(frame.f_code not in codes for frame in current_frames().values()):
                return
            sleep(0.001)

    def prepare(self, exec_id):
        """Opens the pipes of an exec; where they are not there, all stays as it is."""
        pipes = []
        if self.next:
            self.close_next()
        try:
            for stem in (WIRE_STDOUT_PIPE, WIRE_STDERR_PIPE):
                pipes.append(open_pipe(f"{stem}{exec_id}"))
        except OSError:
            for fd in pipes:
                close(fd)
        else:
            self.next = exec_id, pipes

    def close_next(self):
        for fd in self.next[1]:
            close(fd)
        self.next = None

    def flush(self):
        for stream in self.streams:
            try:
                flush_text(stream)
            except Exception:  # closed, or the pipe is gone
                pass

    def forget_threads(self):
        """Lets go of the streams of execs that have no thread any more."""
        if self.old:
            alive = {getattr(thread, "_exec_id", None) for thread in self.threads()}
            self.old = {exec_id: pair for exec_id, pair in self.old.items() if exec_id in alive}


def is_closed(stream):
    try:
        return stream.closed
    except ValueError:  # its buffer was taken away
        return True


def open_pipe(path):
    # It does not wait for a reader, which is there.
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    if fstat(fd).st_mode & 0o170000 != 0o010000:
        close(fd)
        raise OSError
    os.set_blocking(fd, True)
    low = []
    while fd <= 2:  # a standard stream that a program has closed
        low.append(fd)
        fd = os.dup(fd)
    for number in low:
        close(number)
    return fd


def reopened(number):
    """A stream of its own to where a descriptor leads now."""
    try:
        fd = os.dup(number)
    except OSError:  # it was closed
        fd = os.open("/dev/null", os.O_WRONLY)
    return open(fd, "w", 1, "utf-8", "backslashreplace", "\n")


class Session:
    """
    One exec after the other, in one __main__.

    The signal of an interrupt means something only while an exec runs: in between a
    handler of ours takes it. After each exec a copy of this process is forked, which
    waits, as the supervisor's session.h has it. It is a child that no wait() of the
    program's finds, and in which no hook of the program's runs: nothing happens in it
    before it takes over.
    """

    def __init__(self, channel, flags, payload):
        path, _, memory = payload.decode().partition("\0")
        self.channel = channel
        self.pid = getpid()
        self.copies = None
        self.old_copies = []
        self.memory_pages = int(memory) // os.sysconf("SC_PAGESIZE")
        self.take_interrupts = default_int_handler
        self.is_deaf = True  # to interrupts
        signal(SIGINT, ignore_interrupt)
        after_refusal[0] = end_exec
        self.outputs = Outputs()
        if flags & WIRE_SESSION_CHECKPOINTS:
            self.open_copies(path)
        self.names = enter_main()
        self.prefer_for_oom()
        gc.freeze()
        self.checkpoint()

    def open_copies(self, path):
        import _socket

        self.socket = _socket
        channel = _socket.socket(fileno=os.dup(self.channel.fd))
        _, rights, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
        channel.close()
        fd = int.from_bytes(rights[0][2][:4], byte_order)
        os.set_inheritable(fd, False)
        self.copies = _socket.socket(fileno=fd)
        try:
            self.module = load_module(path)
        except ImportError:  # it was not built
            self.copies = None

    def serve(self):
        while True:
            try:
                frame = self.channel.receive()
            except (EOFError, OSError, ValueError):
                os._exit(WIRE_EXIT_FAILED)
            self.run(frame)
            self.outputs.forget_threads()
            self.checkpoint()
            self.outputs.prepare(self.channel.exec_id + 1)

    # -- an exec --

    def run(self, frame):
        """One exec, from its first frame to DONE."""
        before = {}
        has_stdin = False
        gate = None
        kind, flags, payload = frame
        while kind != WIRE_RUN:
            if kind == WIRE_ENV:
                names = [entry.partition(b"=")[0] for entry in payload.split(b"\0")[:-1]]
                before = {name: os.environb.get(name) for name in names}
                set_environment(payload)
            elif kind == WIRE_GATE:
                gate = Gate(flags, payload)
            elif kind == WIRE_STDIN:
                has_stdin = give_stdin(payload)
            kind, flags, payload = receive(self.channel)
        self.outputs.begin(self.channel.exec_id)
        name_program(self.channel.exec_id)
        status, interrupted = self.execute(payload, flags & WIRE_RUN_TIDY, gate)
        if getpid() != self.pid:  # a child that the program forked and did not end
            flush_streams()
            self.outputs.flush()
            os._exit(status & 0xFF)
        flush_streams()
        self.outputs.flush()
        restore_environment(before)
        if has_stdin:
            take_stdin()
        self.channel.send(WIRE_DONE, uint(status & 0xFFFFFFFF, 4) + uint(interrupted, 4))

    def execute(self, source, tidy, gate):
        """Gives the status of the exec, and whether it was interrupted."""
        try:
            self.run_program(source, tidy, gate)
        except EndOfExec as end:
            return end.args[0], 0
        except KeyboardInterrupt:
            return 130, 1
        except BaseException as error:
            return self.fail(error)
        return 0, 0

    def run_program(self, source, tidy, gate):
        """
        An interrupt may come anywhere in it, also on the way out; but when it is left, no
        handler of the program's is in force.
        """
        errors = []
        begun = False
        while not (begun and self.is_deaf):
            try:
                if not begun:
                    begun = True
                    self.is_deaf = False
                    signal(SIGINT, self.take_interrupts)
                    self.evaluate(source, tidy, gate)
                self.grow_deaf()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors.pop()

    def grow_deaf(self):
        """Raises what has come before; after it nothing comes."""
        if not self.is_deaf:
            self.take_interrupts = signal(SIGINT, ignore_interrupt)
            self.is_deaf = True

    def evaluate(self, source, tidy, gate):
        compiled = False
        try:
            code = prepare_program(self.channel, source, tidy, gate)
            compiled = True
            await_program = prepare_to_await() if code.co_flags & CO_COROUTINE else None
            rich.begin(self.channel)
            coroutine = eval(code, self.names)
            if await_program:
                await_program(coroutine)
            stop_tracing(None)
            stop_profiling(None)
            value = self.names.pop(VALUE_NAME, None)
            send_value(self.channel, value)
            rich.end(value)
        except EndOfExec:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self.grow_deaf()  # else the next one would end the report of this one
            stop_tracing(None)
            stop_profiling(None)
            self.names.pop(VALUE_NAME, None)
            report(self.channel, error, compiled)
            rich.end_of_failure()
            if not isinstance(error, SystemExit):
                self.show(error)
            raise

    def show(self, error):
        """As the interpreter shows the exception that ends a program."""
        trace = without_runner(error.__traceback__)
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        try:
            getattr(sys, "excepthook", show_exception)(type(error), error, trace)
        except SystemExit:
            pass
        except BaseException as failure:
            show_exception(type(failure), failure, failure.__traceback__)

    def fail(self, error):
        status = exit_status(error)
        if status is None and isinstance(error, SystemExit):
            try:
                print(error.code, file=sys.stderr)
            except BaseException:
                pass
        return (1 if status is None else status), 0

    # -- copies --

    def checkpoint(self):
        """Forks the copy that goes on if this process dies, if one can be afforded."""
        if self.copies is None:
            return
        self.reap()
        try:
            if not self.can_copy():
                self.copies.send(uint(self.channel.exec_id, 4))  # there is none
                return
            told = os.pipe()
            pid = self.module.copy()
        except OSError:
            return
        if pid == 0:
            close(told[0])
            self.wait_as_copy(told[1])
            return
        self.old_copies.append(pid)
        close(told[1])
        # Else an exec that kills this process would be lost with those before it.
        read(told[0], 1)
        close(told[0])

    def can_copy(self):
        if len(os.listdir("/proc/self/task")) > 1:
            return False
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[1]) * 3 <= self.memory_pages

    def reap(self):
        for pid in self.old_copies[:]:
            try:
                gone = os.waitpid(pid, os.WNOHANG | WCLONE)[0] != 0
            except ChildProcessError:
                gone = True
            if gone:
                self.old_copies.remove(pid)

    def wait_as_copy(self, told):
        """In the copy: waits, until it is to take over, or ends."""
        try:
            close(WIRE_CHANNEL_FD)
            write_oom_score(OOM_SCORE)
            lib = self.socket
            mine, given = lib.socketpair(lib.AF_UNIX, lib.SOCK_SEQPACKET)
            rights = uint(given.fileno(), 4)
            message = uint(self.channel.exec_id, 4)
            self.copies.sendmsg([message], [(lib.SOL_SOCKET, lib.SCM_RIGHTS, rights)])
            given.close()
            close(told)  # the supervisor knows
            word, rights, _, _ = mine.recvmsg(1, lib.CMSG_SPACE(4))
            if not word or not rights:
                os._exit(0)
            fd = int.from_bytes(rights[0][2][:4], byte_order)
            os.dup2(fd, WIRE_CHANNEL_FD, False)
            close(fd)
            mine.close()
        except BaseException:
            os._exit(WIRE_EXIT_FAILED)
        self.pid = getpid()
        self.old_copies.clear()
        self.channel.attach()
        self.prefer_for_oom()
        self.channel.send(WIRE_READY, b"")
        self.checkpoint()

    def prefer_for_oom(self):
        """The copy shall not be what goes when the cell is out of memory."""
        write_oom_score(OOM_SCORE + 200)


def ignore_interrupt(number, frame):
    pass


def write_oom_score(score):
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        write(fd, b"%d" % score)
        close(fd)
    except OSError:
        pass


def name_program(exec_id):
    """Each exec has a file of its own, so that tracebacks of older code stay true."""
    global PROGRAM
    if exec_id > KEPT_PROGRAMS:
        try:
            os.unlink(SESSION_PROGRAM % (exec_id - KEPT_PROGRAMS))
        except OSError:
            pass
    PROGRAM = SESSION_PROGRAM % exec_id
    try:
        os.unlink(PROGRAM)  # of an exec that was killed
    except OSError:
        pass


def give_stdin(data):
    fd = os.memfd_create("stdin")
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, 0)
    close(fd)
    replace_stdin()
    return True


def take_stdin():
    fd = os.open("/dev/null", os.O_RDONLY)
    os.dup2(fd, 0)
    close(fd)
    replace_stdin()


def restore_environment(before):
    for name, value in before.items():
        if value is None:
            os.environb.pop(name, None)
        else:
            os.environb[name] = value
    if b"TZ" in before:
        from time import tzset

        tzset()


# -- all of it -----------------------------------------------------------------


def wait_for_request():
    """Returns the channel and the first frame of the request."""
    channel = open_channel()
    buffer_by_line()
    frame = receive(channel)
    if frame[0] == WIRE_ZYGOTE:
        become_zygote(channel, *frame[1:])
        frame = receive(channel)
    else:
        make_ready(channel)
    if frame[0] == WIRE_SESSION:
        Session(channel, *frame[1:]).serve()
    return channel, frame


def make_ready(channel):
    """For a program; a zygote's child is then ready too, but for the socket."""
    watch_forks(channel)
    reserve.append(bytes(RESERVE_BYTES))


def prepare_program(channel, source, tidy, gate):
    """The code of a program that may run."""
    program = Program(source, tidy)
    store_program(program.source)
    tree = parse_program(program.source)
    if gate:
        gate.judge(channel, tree, program.commands)
    program.give_hints()
    return compile_program(program.source, tree)


def main(channel, frame):
    source, tidy, gate = receive_request(channel, frame)
    compiled = False
    try:
        code = prepare_program(channel, source, tidy, gate)
        compiled = True
        await_program = prepare_to_await() if code.co_flags & CO_COROUTINE else None
        names = enter_main()
        rich.begin(channel)
        coroutine = eval(code, names)
        if await_program:
            await_program(coroutine)
        stop_tracing(None)
        stop_profiling(None)
        value = names.pop(VALUE_NAME, None)
        send_value(channel, value)
        rich.end(value)
        del value
        ending[getpid()] = 0
    except BaseException as error:
        reserve.clear()
        stop_tracing(None)
        stop_profiling(None)
        report(channel, error, compiled)
        rich.end_of_failure()
        if not isinstance(error, SystemExit):
            hide_runner(getattr(sys, "excepthook", show_exception))
        ending[getpid()] = exit_status(error)
        raise


main(*wait_for_request())
