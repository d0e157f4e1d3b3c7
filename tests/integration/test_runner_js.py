# SPDX-License-Identifier: Apache-2.0
"""
The javascript runner by itself, started for a request and parked before there was
one. Where the promise is "as plain node", the same program is run by it and compared,
byte for byte.

HUTCH_BUILD is the build folder; HUTCH_TEST_NODE names the interpreter, /usr/bin/node
by default.
"""

import contextlib
import itertools
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import channel  # noqa: E402
from channel import (  # noqa: E402
    COMPILE,
    DEADLINE_SECONDS,
    ENV,
    IMPORT,
    MAX_VALUE,
    RUN,
    Result,
    assert_ok,
    entries,
)

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "src/guest/runner.cjs"
NODE = os.environ.get("HUTCH_TEST_NODE", "/usr/bin/node")
FLAG = "--experimental-vm-modules"  # as cells have it
ADDON = Path(os.environ["HUTCH_BUILD"]) / "libexec/hutch/hutch_park.node"
ACORN = Path("/usr/share/nodejs/acorn/dist/acorn.js")
FACTS = json.loads(
    subprocess.check_output(
        [
            NODE,
            "-p",
            "JSON.stringify([process.versions.node,"
            " Boolean(require('module').stripTypeScriptTypes)])",
        ]
    )
)
VERSION = tuple(map(int, FACTS[0].split(".")))
STRIPS_TYPES = FACTS[1]

CHANNEL_FD = 15


# -- the harness -------------------------------------------------------------------


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The folder that holds in a cell what hutch brings there."""
    folder = tmp_path_factory.mktemp("lib")
    shutil.copy(RUNNER, folder / "runner.cjs")
    shutil.copy(ACORN, folder / "acorn.js")
    shutil.copy(ADDON, folder / "hutch_park.node")
    return folder


def environment(home):
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}


def prepare(library, folder):
    """What the interpreter of a cell is started with: command, channel, home, environment."""
    home = folder / "home"
    home.mkdir(parents=True)
    command = [NODE, FLAG, "-r", library / "runner.cjs", folder / "main"]
    return command, CHANNEL_FD, home, environment(home)


WAYS = {"cold": channel.Engine, "parked": channel.ParkedEngine}
WAY = os.environ.get("HUTCH_RUNNER_WAY", "cold")


@pytest.fixture
def start(library, tmp_path):
    numbers = itertools.count()
    with contextlib.ExitStack() as engines:

        def start(stdin=subprocess.DEVNULL):
            cell = prepare(library, tmp_path / str(next(numbers)))
            return engines.enter_context(WAYS[WAY](*cell, stdin))

        yield start


@pytest.fixture
def run(start):
    """Runs a program; stdin is bytes, env and files are dicts."""

    def run(code, stdin=None, env=None, files=None):
        engine = start(subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        for name, text in (files or {}).items():
            path = engine.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if env:
            engine.send(ENV, entries(f"{k}={v}" for k, v in env.items()))
        engine.send(RUN, code if isinstance(code, bytes) else code.encode())
        result = engine.finish(stdin)
        assert result.verdict is None  # only the python runner judges
        return readable(result, engine.home)

    return run


def readable(result, home):
    """With one name for the home directory, so that results can be compared."""
    name = str(home).encode()
    error = result.error
    if error:
        error = error._replace(message=error.message.replace(str(home), "HOME"))
    return result._replace(
        stdout=result.stdout.replace(name, b"HOME").decode(errors="replace"),
        stderr=without_numbers(result.stderr.replace(name, b"HOME").decode(errors="replace")),
        error=error,
    )


def without_numbers(text):
    """Of stderr without process ids, and without the place where node calls listeners:
    it is another for one of them than for several."""
    return re.sub(r"\(node:\d+\)|(?<=node:events):\d+:\d+", "N", text)


@pytest.fixture
def plain(tmp_path):
    """Runs a program by plain node, in a file of the same name."""

    def plain(code, ending, stdin=None):
        home = tmp_path / "plain/home"
        home.mkdir(parents=True)
        file = home / f".main{ending}"
        file.write_bytes(code if isinstance(code, bytes) else code.encode())
        done = subprocess.run(
            [NODE, FLAG, file],
            cwd=home,
            env=environment(home),
            input=b"" if stdin is None else stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
        )
        return readable(Result(done.returncode, done.stdout, done.stderr), home)

    return plain


# -- the wire ----------------------------------------------------------------------


def test_constants_are_those_of_the_header():
    header = channel.header_constants()
    ours = channel.constants(RUNNER.read_text(), r"^const (WIRE_\w+) = (.+);$")
    assert len(ours) == 18
    assert {name: header[name] for name in ours} == ours
    assert header["WIRE_CHANNEL_FD_NODE"] == CHANNEL_FD


def test_request_in_single_bytes(start):
    code = b"console.log(process.env.A, process.env.B)\n7"
    channel.assert_takes_single_bytes(start(), code)


@pytest.mark.parametrize("data", channel.NO_REQUESTS)
def test_no_request(start, data):
    channel.assert_refuses(start(), "javascript", data)


def test_no_channel(library, tmp_path):
    done = subprocess.run(
        [NODE, FLAG, "-r", library / "runner.cjs", tmp_path / "main"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == b"hutch: the javascript runner got no request\n"


# -- as plain node: status, stdout, stderr -------------------------------------------

# Programs that are CommonJS.
PLAIN = {
    "hello": "console.log('hello')",
    "both streams": "console.log('out', 1 + 1)\nconsole.error('err')",
    "nothing": "",
    "only comments": "// nothing\n\n/* here */\n",
    "unicode": "console.log('é漢🐍')",
    "bom": b"\xef\xbb\xbfconsole.log('bom')",
    "hashbang": "#!/usr/bin/env node\nconsole.log('hashbang')\nnull.x",
    "crlf": "const x = `a\r\nb`\r\nconsole.log(JSON.stringify(x))\r\nnull.x\r\n",
    "exit": "process.exit(3)\nconsole.log('no')",
    "exit without a code": "process.exitCode = 4\nprocess.exit()",
    "exit code": "process.exitCode = 5\nsetTimeout(() => console.log('late'), 1)",
    "exit in a listener": (
        "process.on('exit', (code) => { console.log(code); process.exitCode = 6 })\n1"
    ),
    "exit listener after an error": (
        "process.on('exit', (code) => console.log('exit', code))\nnull.x\n"
    ),
    "exit code changed after an error": (
        "process.on('exit', () => { process.exitCode = 7 })\nconst f = () => { null.x }; f()"
    ),
    "signal": "process.kill(process.pid, 'SIGTERM')\nsetTimeout(() => {}, 10000)",
    "abort": "process.on('SIGINT', () => console.log('x'))\nprocess.kill(process.pid, 'SIGKILL')",
    "timers are waited for": "setTimeout(() => console.log('b'), 5)\nconsole.log('a')",
    "order of callbacks": (
        "setImmediate(() => console.log('immediate'))\n"
        "process.nextTick(() => console.log('tick'))\n"
        "Promise.resolve().then(() => console.log('micro'))\n"
        "console.log('main')"
    ),
    "beforeExit": (
        "let n = 0\nprocess.on('beforeExit', () => n++ < 2 && setTimeout(() => console.log(n)))\nn"
    ),
    "error in a single expression": "null.x",
    "error in the last of two on a line": "const o = null; o.x",
    "error in the first of two on a line": "null.x; 5",
    "error in the first of two": "null.x\n5",
    "error behind comments": "// one\n/* two\n three */ null.x // four",
    "error between tabs": "if (1) {\n\t\tnull.x\n\t}\n",
    "error in the middle of a last expression": "[1,\n 2,\n null.x,\n 4]",
    "error in a list": "1, null.x",
    "error in an argument": "console.log('a', undefinedThing)",
    "error in a function": "function f() {\n  throw new TypeError('t')\n}\nf()",
    "error in a function of one line": "const f = () => { throw new Error('e') }; f()",
    "error three calls deep": (
        "const a = (o) => o.k.l\n"
        "function b(o) {\n"
        "  return a(o)\n"
        "}\n"
        "class C { m() { return b({}) } }\n"
        "new C().m()"
    ),
    "error in a timer": "setTimeout(() => {\n  null.x\n}, 1)\n1",
    "error in a listener": "process.on('exit', () => null.x)\n1",
    "error in the library": "JSON.parse('{bad')",
    "error in the file system": "require('fs').readFileSync('no/such')",
    "error with a cause": "throw new Error('outer', { cause: new Error('inner') })",
    "error of a class": (
        "class Mine extends Error { code = 5 }\n"
        "new Promise(() => { throw 1 }).catch(() => {})\n"
        "throw new Mine('m')"
    ),
    "several errors": "throw new AggregateError([new Error('a'), new Error('b')], 'many')",
    "error that was made elsewhere": "const e = new Error('early')\n\nthrow e",
    "error without a stack": "const e = new Error('e')\ndelete e.stack\nthrow e",
    "error whose stack throws": (
        "const e = new Error('e')\nObject.defineProperty(e, 'stack', { get() { throw 1 } })\n"
        "process.on('exit', (code) => console.log(code))\nPromise.reject(e)"
    ),
    "frozen error": "const e = Object.freeze(new Error('e')); throw e",
    "assertion": "require('assert').strictEqual(1, 2)\n5\n6",
    "text thrown": "throw 'text'",
    "null thrown": "throw null",
    "undefined thrown": "throw undefined",
    "object thrown": "throw { a: 1 }",
    "rejection": "Promise.reject(new Error('why'))",
    "rejection with text": "Promise.reject('why')",
    "rejection in a function": (
        "async function main() {\n  await null\n  throw new RangeError('r')\n}\nmain()"
    ),
    "rejection that is handled later": (
        "const p = Promise.reject(new Error('e'))\n"
        "setImmediate(() => p.catch(() => console.log('late')))\n"
        "p"
    ),
    "rejection that is handled": (
        "const p = Promise.reject(1); p.catch(() => console.log('caught')); p"
    ),
    "handler of errors": (
        "process.on('uncaughtException', (e, origin) => console.log(e.message, origin))\n"
        "setTimeout(() => console.log('after'), 5)\nnull.x"
    ),
    "handler of rejections": (
        "process.on('unhandledRejection', (e) => console.log(e.message))\n"
        "Promise.reject(new Error('e'))"
    ),
    "capturing errors": (
        "process.setUncaughtExceptionCaptureCallback((e) => console.log(e.message))\nnull.x"
    ),
    "recursion": "function f() { return f() }\nf()",
    "recursion caught": (
        "function f() { return f() }\ntry { f() } catch (e) { console.log(e.name) }"
    ),
    "missing module": "require('no-such-module')",
    "missing module imported": "import('no-such-module')",
    "does not parse": "let x = 5\n\nlet y = ;\n",
    "does not parse at its end": "console.log('never')\nif (1) {",
    "redeclared": "let x = 1\nlet x = 2",
    "bad regular expression": "const r = /[/",
    "json": '{"a": 1, "b": {"c": 2}}',
    "python": "def f(x):\n    return x\n",
    "this": "console.log(this === module.exports, typeof exports, arguments.length)",
    "names": (
        "console.log(__filename, __dirname, require.main === module, module.id, module.paths[0])"
    ),
    "arguments": "console.log(process.argv.slice(1), process.execArgv, process.title)",
    "resolving": "console.log(require.resolve('fs'), module.children, Object.keys(require.cache))",
    "globals": (
        "const names = Object.getOwnPropertyNames(globalThis)\n"
        "console.log(names.filter((name) => name !== 'valueOfLastExpression').sort().join())"
    ),
    "not strict": (
        "undeclared = 5; console.log(undeclared, 010, delete globalThis.undeclared)\n"
        "with ({ a: 1 }) console.log(a)\n(function () { console.log(this === globalThis) })()"
    ),
    "strict": "'use strict'\nundeclared = 5",
    "only a directive": "'use strict'",
    "return at the top": "console.log(1)\nreturn\nconsole.log(2)",
    "functions behind": "f()\nfunction f() { console.log('hoisted') }",
    "labels": "a: for (;;) { for (;;) break a }\nconsole.log('out')",
    "names of ours taken": "var module = { a: 1 }, require = 5\nconsole.log(module, require)",
    "no semicolons": "const a = 1\nconst b = [a]\n;[2].map((x) => console.log(x))\nb",
    "async": "(async () => { await null; console.log('async') })()",
    "import in a function": (
        "const f = async () => (await import('node:path')).basename('/a/b')\nf().then(console.log)"
    ),
    "generator": "function* g() { yield 1; yield 2 }\nconsole.log([...g()])",
    "warning": (
        "process.emitWarning('w')\n"
        "new (require('events'))().setMaxListeners(1).on('a', () => {}).on('a', () => {})"
    ),
    "child": "console.log(require('child_process').execFileSync('echo', ['x']).toString())",
    "child node": (
        "const { fork } = require('child_process')\n"
        "if (process.argv[2]) process.send(process.argv.length)\n"
        "else fork(__filename, ['child']).on('message', (m) => console.log(m))"
    ),
    "worker": (
        "const { Worker, isMainThread, parentPort } = require('worker_threads')\n"
        "if (isMainThread) new Worker(__filename).on('message', (m) => console.log(m))\n"
        "else parentPort.postMessage([__filename, typeof module])"
    ),
    "error in a worker": (
        "const { Worker } = require('worker_threads')\n"
        "new Worker('\\nthrow new Error(\"w\")', { eval: true })"
    ),
    "stdin": (
        "let n = 0\nprocess.stdin.on('data', () => n++).on('end', () => console.log('end', n))"
    ),
    "prototypes taken away": (
        "const { log } = console\n"
        "for (const name of ['slice', 'split', 'replace', 'match', 'replaceAll'])"
        " delete String.prototype[name]\ndelete Array.prototype.map\nlog('x')\nnull.x"
    ),
}

# Programs that only an ES module can be.
PLAIN_MODULES = {
    "module": "import fs from 'node:fs'\nconsole.log(typeof fs.readFileSync, this)",
    "await": "const r = await Promise.resolve(7)\nconsole.log(r)",
    "await of a bracket": "const r = await (async () => 7)()\nconsole.log(r)",
    "await of a list": "console.log(await [1, 2])",
    "for await": "for await (const x of [1, Promise.resolve(2)]) console.log(x)",
    "meta": "console.log(import.meta.url, typeof import.meta.resolve)",
    "export": "export const a = 1\nexport default a\nconsole.log(a)",
    "strict module": "import 'fs'\nundeclared = 5",
    "hoisted import": "console.log(basename('/a/b'))\nimport { basename } from 'path'",
    "error in a module": "import 'fs'\nconst f = () => null.x\nf()",
    "error in the last of two in a module": "import 'fs'; null.x",
    "error after await": "await null\nconst f = () => { throw new Error('e') }; f()",
    "rejection awaited": "await Promise.reject(new Error('why'))",
    "text thrown in a module": "await 1\nthrow 'text'",
    "never settled": "await new Promise(() => {})\n0\n1",
    "module that does not parse": "import fs from 'fs'\nlet y = ;",
    "await that does not parse": "const x = await 1\nlet y = ;",
    "missing package": "import 'fs'\nimport x from 'no-such-package'\nx",
    "missing file": "import x from './no-such.mjs'; x",
    "missing export": "import { nope } from 'fs'; nope()",
    "missing scheme": "import x from 'https://127.0.0.1/x.js'\nx",
    "exit in a module": "await 1\nprocess.exit(3)",
    "worker of a module": (
        "import { Worker, isMainThread, parentPort } from 'worker_threads'\n"
        "if (isMainThread) new Worker(new URL(import.meta.url)).on('message', "
        "(m) => console.log(m))\n"
        "else parentPort.postMessage(import.meta.url)"
    ),
    "lines of stdin": (
        "import readline from 'node:readline'\n"
        "for await (const line of readline.createInterface({ input: "
        "process.stdin })) console.log(line)\n"
        "console.log('end')"
    ),
}


@pytest.mark.parametrize("code", PLAIN.values(), ids=PLAIN.keys())
def test_as_plain(run, plain, code):
    ours, theirs = run(code), plain(code, ".cjs")
    assert ours[:3] == theirs[:3]


@pytest.mark.parametrize("code", PLAIN_MODULES.values(), ids=PLAIN_MODULES.keys())
def test_module_as_plain(run, plain, code):
    ours, theirs = run(code), plain(code, ".mjs")
    assert ours[:3] == theirs[:3]


def test_as_plain_with_stdin(run, plain):
    code, text = PLAIN_MODULES["lines of stdin"], "Zoë\n2\n3".encode()
    ours, theirs = run(code, stdin=text), plain(code, ".mjs", stdin=text)
    assert ours[:3] == theirs[:3]
    assert ours.stdout == "Zoë\n2\n3\nend\n"


# -- one program of both kinds -----------------------------------------------------


def test_import_require_and_await(run):
    result = run(
        "const fs = require('fs'); import path from 'node:path'; await Promise.resolve(41) + 1"
    )
    assert_ok(result)
    assert result.value == "42"


def test_what_a_module_finds_as_globals(run):
    result = run(
        "import { fileURLToPath } from 'node:url'\n"
        "console.log(__filename === fileURLToPath(import.meta.url), __dirname === process.cwd())\n"
        "console.log(require.main === module, exports === module.exports, "
        "module.filename === __filename)\n"
        "console.log(require('./data.json').a, Object.keys(globalThis).includes('require'))",
        files={"data.json": '{"a": 7}'},
    )
    assert_ok(result, "true true\ntrue true true\n7 false\n")


def test_a_module_may_have_those_names_itself(run):
    code = (
        "import { createRequire } from 'node:module'\nimport { dirname } from 'node:path'\n"
        "const require = createRequire(import.meta.url)\nconst __dirname = dirname('/a/b')\n"
        "const module = 5\nconsole.log(typeof require('fs').readFileSync, __dirname, module)"
    )
    assert_ok(run(code), "function /a 5\n")


def test_require_in_the_worker_of_a_module(run):
    code = (
        "import { Worker, isMainThread, parentPort } from 'worker_threads'\n"
        "if (isMainThread) new Worker(__filename).on('message', (m) => console.log(m))\n"
        "else parentPort.postMessage(typeof require('fs').readFileSync)"
    )
    assert_ok(run(code), "function\n")


def test_what_lies_in_the_home_directory_is_found(run):
    files = {
        "one.js": "module.exports = 1",
        "two.mjs": "export default 2",
        "node_modules/three/package.json": '{"main": "x.js"}',
        "node_modules/three/x.js": "exports.three = 3",
        "text.txt": "four",
    }
    code = (
        "const one = require('./one')\n"
        "const text = "
        "require('fs').readFileSync(require('path').join(__dirname, 'text.txt'), 'utf8')\n"
        "import('./two.mjs').then((two) => console.log(one, two.default, "
        "require('three').three, text))"
    )
    assert_ok(run(code, files=files), "1 2 3 four\n")
    code = (
        "import one from './one.js'\nimport two from './two.mjs'\nimport { three } from 'three'\n"
        "import { readFileSync } from 'fs'\n"
        "console.log(one, two, three, readFileSync(new URL('text.txt', import.meta.url), 'utf8'))"
    )
    assert_ok(run(code, files=files), "1 2 3 four\n")


def test_package_of_the_home_directory_does_not_steer_the_program(run):
    files = {"package.json": '{"type": "module"}'}
    assert_ok(run("console.log(typeof require, 010)", files=files), "function 8\n")


def test_home_holds_one_file_of_ours(start):
    engine = start()
    engine.send(RUN, b"require('fs').writeFileSync('mine', '')")
    assert engine.finish().status == 0
    assert sorted(path.name for path in engine.home.iterdir()) == [".main.cjs", "mine"]


# -- the value -----------------------------------------------------------------------

VALUES = {
    "number": ("1 + 1", "2"),
    "text as it is": ("'a\\n\"b\"'", 'a\n"b"'),
    "empty text": ("''", ""),
    "directive": ("'use strict'", "use strict"),
    "object": ("({ a: 1, b: [1, 2, { c: { d: {} } }] })", "{ a: 1, b: [ 1, 2, { c: [Object] } ] }"),
    "array": ("[1, 'x', null, undefined]", "[ 1, 'x', null, undefined ]"),
    "null": ("null", "null"),
    "undefined": ("undefined", None),
    "bigint": ("2n ** 70n", "1180591620717411303424n"),
    "negative zero": ("-0", "-0"),
    "map": ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
    "error": ("const e = new Error('x'); e.stack = 'Error: x'; e", "[Error: x]"),
    "arrow function": ("() => 5", "[Function (anonymous)]"),
    "class": ("(class {})", "[class (anonymous)]"),
    "list": ("1, 2, 3", "3"),
    "list in brackets": ("(1, 2)", "2"),
    "assignment": ("let x; x = 5", "5"),
    "call": ("const f = (x) => x * 2\nf(21)", "42"),
    "call that gives nothing": ("console.log()", None),
    "await": ("await Promise.resolve(41) + 1", "42"),
    "await of text": ("await 'text'", "text"),
    "semicolons": ("5;;\n;", "5"),
    "semicolon before": ("const a = 1;;;\na", "1"),
    "comment behind": ("5 // five\n/* or so */", "5"),
    "comment between": ("const a = 1 // one\n/* two\n*/ a", "1"),
    "no semicolon before": ("const a = 1\na", "1"),
    "behind a function": ("function f() { return 1 }\nf()", "1"),
    "behind an import": ("import fs from 'fs'\ntypeof fs", "object"),
    "behind a block": ("if (1) {\n}\n5", "5"),
    "two on a line": ("const a = 1; a", "1"),
    "declaration": ("const a = 1", None),
    "block": ("if (1) { 5 }", None),
    "function behind": ("5\nfunction f() {}", None),
    "promise": ("Promise.resolve(7)", "7"),
    "promise of text": ("Promise.resolve('seven')", "seven"),
    "promise of nothing": ("(async () => {})()", None),
    "promise that takes its time": (
        "new Promise((resolve) => setTimeout(resolve, 5, { a: 1 }))",
        "{ a: 1 }",
    ),
    "promise that is never settled": ("new Promise(() => {})", None),
    "promise of a main function": (
        "async function main() {\n  await null\n  return 'done'\n}\nmain()",
        "done",
    ),
    "as it was": ("const a = []\nsetTimeout(() => a.push(1))\na", "[]"),
    "of an object that shows itself": (
        "({ [require('util').inspect.custom]: () => 'shown' })",
        "shown",
    ),
    "of an object that will not be shown": (
        "({ [require('util').inspect.custom]() { throw 1 } })",
        "{\n  [Symbol(nodejs.util.inspect.custom)]: [Function: [nodejs.util.inspect.custom]]\n}",
    ),
    "proxy": ("new Proxy({}, { get() { throw 1 } })", "{}"),
    "after exit": ("process.exit()\n5", None),
    "before an exit with success": ("setTimeout(() => process.exit(0))\n5", "5"),
    "hashbang": ("#!/usr/bin/env node\n5", "5"),
    "new syntax": ("const a = 5; a ??= 6, a?.b?.(), 1_000", "1000"),
}


@pytest.mark.parametrize("code, expected", VALUES.values(), ids=VALUES.keys())
def test_value(run, code, expected):
    result = run(code)
    assert (result.status, result.stderr) == (0, "")
    assert (result.value, result.error) == (expected, None)


def test_no_value_of_a_program_that_fails(run):
    for code in ("setTimeout(() => null.x)\n5", "process.exitCode = 1\n5", "process.exit(3)\n5"):
        assert run(code).value is None


def test_large_value(run):
    result = run("'é'.repeat(1e6)")
    assert len(result.value.encode()) in (MAX_VALUE - 1, MAX_VALUE)
    assert re.fullmatch(r"é+ \.\.\. \[cut\]", result.value)
    assert run("'x'.repeat(1 << 20)").value == "x" * (1 << 20)


def test_lone_surrogate(run):
    assert run("'a\\ud800b'").value == "a\ufffdb"
    assert run("throw new Error('a\\ud800b')").error.message == "a\ufffdb"


# -- errors ------------------------------------------------------------------------

ERRORS = {
    "line 3": ("let x = 1\n\nnull.x", ("TypeError", None, 3, 0, 0)),
    "innermost line of the program": (
        "function f(t) {\n  return JSON.parse(t)\n}\n\nf('{')",
        ("SyntaxError", None, 2, 0, 0),
    ),
    "in a module": ("import 'fs'\n\nnull.x", ("TypeError", None, 3, 0, 0)),
    "own class": (
        "class Mine extends Error {}\nthrow new Mine('m')",
        ("Mine", "m", 2, 0, 0),
    ),
    "own name": (
        "throw Object.assign(new Error('m'), { name: 'Mine' })",
        ("Mine", "m", 1, 0, 0),
    ),
    "rejection": ("\nPromise.reject(new RangeError('r'))", ("RangeError", "r", 2, 0, 0)),
    "rejection with text": ("Promise.reject('why')", ("UnhandledPromiseRejection", None, 0, 0, 0)),
    "text": ("throw 'text'", ("String", "text", 0, 0, 0)),
    "null": ("throw null", ("", "null", 0, 0, 0)),
    "undefined": ("throw undefined", ("", "undefined", 0, 0, 0)),
    "object": ("throw { a: 1 }", ("Object", "{ a: 1 }", 0, 0, 0)),
    "object without a class": (
        "throw Object.create(null)",
        ("", "[Object: null prototype] {}", 0, 0, 0),
    ),
    "recursion": (
        "function f() {\n  return f()\n}\nf()",
        ("RangeError", "Maximum call stack size exceeded", 2, 0, 0),
    ),
    "errno": (
        "require('fs').readFileSync('no/such')",
        ("Error", "ENOENT: no such file or directory, open 'no/such'", 1, 2, 0),
    ),
    "odd errno": ("throw Object.assign(new Error('e'), { errno: 'x' })", ("Error", "e", 1, 0, 0)),
    "huge errno": (
        "throw Object.assign(new Error('e'), { errno: -1e99 })",
        ("Error", "e", 1, 0, 0),
    ),
    "no memory": (
        "new ArrayBuffer(2 ** 52)",
        ("RangeError", "Array buffer allocation failed", 1, 12, 0),
    ),
    "assertion": ("require('assert')(false, 'no')", ("AssertionError", "no", 1, 0, 0)),
    "missing module": (
        "\nrequire('no-such-module')",
        (
            "Error",
            "Cannot find module 'no-such-module'\nRequire stack:\n- HOME/.main.cjs",
            2,
            0,
            IMPORT,
        ),
    ),
    "missing package": (
        "\nimport x from 'no-such-package/sub'\nx",
        (
            "Error",
            "Cannot find package 'no-such-package' imported from HOME/.main.mjs",
            2,
            0,
            IMPORT,
        ),
    ),
    "missing file": (
        "\nimport x from './no.mjs'\nx",
        ("Error", "Cannot find module 'HOME/no.mjs' imported from HOME/.main.mjs", 2, 0, IMPORT),
    ),
    "missing export": (
        "import 'path'\nimport { nope } from 'fs'",
        (
            "SyntaxError",
            "The requested module 'fs' does not provide an export named 'nope'",
            2,
            0,
            IMPORT,
        ),
    ),
    "missing builtin": (
        "require('node:nope')",
        ("Error", "No such built-in module: node:nope", 1, 0, IMPORT),
    ),
    "does not parse": (
        "let x = 5\n\nlet y = ;\n",
        ("SyntaxError", "Unexpected token ';'", 3, 0, COMPILE),
    ),
    "module that does not parse": (
        "import 'fs'\n\nlet y = ;\n",
        ("SyntaxError", "Unexpected token ';'", 3, 0, COMPILE),
    ),
    "await that does not parse": (
        "await 1\n\n\nlet y = ;\n",
        ("SyntaxError", "Unexpected token ';'", 4, 0, COMPILE),
    ),
    "redeclared": (
        "let x = 1\nlet x = 2",
        ("SyntaxError", "Identifier 'x' has already been declared", 2, 0, COMPILE),
    ),
    "syntax of a text": ("\nnew Function('let = =')", ("SyntaxError", None, 2, 0, 0)),
    "message that is no text": (
        "throw Object.assign(new Error, { message: 5 })",
        ("Error", "5", 1, 0, 0),
    ),
    "handled": ("process.on('uncaughtException', () => {})\nnull.x", None),
    "handled, and failed": (
        "process.on('uncaughtException', () => process.exit(9))\nnull.x",
        None,
    ),
    "exit": ("process.exit(3)", None),
    "in a child only": (
        "require('child_process').spawnSync(process.execPath, ['-e', 'null.x'])\n1",
        None,
    ),
    "worker without memory": (
        "const { Worker } = require('worker_threads')\n"
        "new Worker('const a = []; for (;;) a.push(new Array(1000).fill(1.5))',\n"
        "  { eval: true, resourceLimits: { maxOldGenerationSizeMb: 8 } })",
        (
            "Error",
            "Worker terminated due to reaching memory limit: JS heap out of memory",
            0,
            12,
            0,
        ),
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
    for code in ("console.log('ran')\n)", "console.log('ran')\nawait 1\n)"):
        result = run(code)
        assert (result.status, result.stdout) == (1, "")
        assert result.error.flags == COMPILE


def test_large_error(run):
    result = run("throw new Error('é'.repeat(1e5))")
    assert result.status == 1
    assert result.error.message.endswith("é ... [cut]")


def test_runner_is_on_no_stack(run):
    for code in ("console.log(new Error().stack)", "await 1\nconsole.log(new Error().stack)"):
        stack = run(f"Error.stackTraceLimit = Infinity\n{code}").stdout
        assert ".main." in stack
        assert "runner" not in stack


# -- TypeScript ----------------------------------------------------------------------

TYPESCRIPT = {
    "annotation": ("let x: number = 5\nx", "5"),
    "interface": ("interface A { x: number }\nconst a: A = { x: 6 }\na.x", "6"),
    "generic arrow": ("const f = <T>(a: T): T => a\nf(7)", "7"),
    "as": ("const x = JSON.parse('8') as number\nx", "8"),
    "type alias": ("type A = string | null\nconst a: A = 'nine'\na", "nine"),
    "import of a type": ("import type { Stats } from 'fs'\nconst s: Stats | null = null\n10", "10"),
    "await": ("const x: number = await Promise.resolve(11)\nx", "11"),
    "private": (
        "class A { constructor() {} private x: number = 12; get() { return this.x } }\n"
        "new A().get()",
        "12",
    ),
    "enum": ("enum E { A, B = 13 }\nE.B", "13"),
    "parameter property": ("class A { constructor(readonly x: number) {} }\nnew A(14).x", "14"),
}

# What a glance may take for TypeScript.
NO_TYPESCRIPT = {
    "json": '{"a": {"b": 1}, "c": []}',
    "missing bracket": "console.log((1)",
    "keyword argument": "f(a: 1)",
    "python": "class A:\n    x = 1",
    "words": "this is no program",
    "markup": "const a = <div>x</div>",
    "missing comma": "const o = { a: 1 b: 2 }",
}


@pytest.mark.parametrize("code, value", TYPESCRIPT.values(), ids=TYPESCRIPT.keys())
def test_typescript(run, code, value):
    result = run(code)
    if STRIPS_TYPES:
        assert_ok(result)
        assert result.value == value
    else:
        assert result.status == 1
        assert result.error.flags == COMPILE
        assert re.search(r"TypeScript.* node v\d.* 22\.13", result.error.message)
        assert result.error.message in result.stderr
        assert len(result.stderr.splitlines()) == 4


@pytest.mark.parametrize("code", NO_TYPESCRIPT.values(), ids=NO_TYPESCRIPT.keys())
def test_no_typescript(run, code):
    error = run(code).error
    assert (error.type, error.flags) == ("SyntaxError", COMPILE)
    assert "TypeScript" not in error.message


def test_places_in_typescript(run):
    if not STRIPS_TYPES:
        assert run("let x = 1\n\nlet y: number = 2").error.line == 3
        return
    result = run("interface A {\n  x: number\n}\n\nconst a: A = null as any\na.x")
    assert result.error.line == 6
    assert "HOME/.main.cjs:6\na.x\n  ^\n" in result.stderr
    result = run(
        "enum E {\n  A,\n}\n\nfunction f(e: E): never {\n  throw new Error('e' + e)\n}\nf(E.A)"
    )
    assert result.error == ("Error", "e0", 6, 0, 0)
    assert "HOME/.main.ts:6\n  throw new Error('e' + e)\n" in result.stderr
    assert "HOME/.main.ts:8:1" in result.stderr


def test_broken_typescript(run):
    result = run("interface A { x: number }\nconst a: A = {;\n")
    assert result.status == 1
    assert result.error.flags == COMPILE
    if STRIPS_TYPES:
        assert result.error.line == 2
        assert re.match(
            r"HOME/.main.ts:2\n(.*\n)*const a: A = {;\n +\^+\n\nSyntaxError: ", result.stderr
        )
        assert "    at " not in result.stderr


# -- around the program ----------------------------------------------------------------


def test_environment(run):
    env = {"NAME": "Zoë\t=", "TZ": "Asia/Tokyo"}
    result = run(
        "console.log(process.env.NAME, new Date(0).getHours())\n"
        "console.log(require('child_process').execSync('echo \"$NAME\"').toString())",
        env=env,
    )
    assert_ok(result, "Zoë\t= 9\nZoë\t=\n\n")


def test_no_descriptor_for_children(run):
    code = (
        "const { existsSync } = require('fs')\nconsole.log(existsSync('/proc/self/fd/15'))\n"
        "require('child_process').execSync('ls /proc/self/fd').toString()"
    )
    result = run(code)
    assert_ok(result, "true\n")
    assert result.value == "0\n1\n2\n3\n"


def test_large_program(run):
    code = "".join(f"const value{i} = {i * 7}\n" for i in range(36000))
    assert len(code) > 890_000
    result = run(code + "value35999")
    assert_ok(result)
    assert result.value == str(35999 * 7)


def test_full_mebibyte(run):
    code = "console.log('x')\n"
    assert_ok(run(code + "/".ljust((1 << 20) - len(code), "/")), "x\n")


def test_deep_program(run):
    result = run("console.log(" + "(" * 20000 + "1" + ")" * 20000 + ")")
    assert (result.status, result.stdout) in ((0, "1\n"), (1, ""))
    assert result.status == 0 or result.error.type in ("RangeError", "SyntaxError")


def test_program_that_cannot_be_stored(start):
    engine = start()
    (engine.home / ".main.cjs").mkdir()
    engine.send(RUN, b"5")
    result = engine.finish()
    assert result.status == 1
    assert result.stderr.startswith(b"the program cannot be stored: EISDIR")
    assert (result.error.errno, result.error.line) == (21, 0)


def test_output_is_out_before_the_program_is_killed(start):
    engine = start(subprocess.PIPE)
    engine.send(
        RUN, b"console.log('one')\nconsole.log('two')\nrequire('fs').readSync(0, Buffer.alloc(1))"
    )
    engine.expect_stdout(b"one\ntwo\n")
    engine.process.send_signal(signal.SIGKILL)
    assert engine.finish().status == -signal.SIGKILL


def test_everything_in_the_pipe_arrives(run):
    result = run("process.stdout.write('x'.repeat(300000))\nprocess.exit(0)")
    assert result.stdout == "x" * 300000


# -- a channel in bad hands --------------------------------------------------------


@pytest.mark.parametrize("end", ["5", "null.x"])
def test_channel_closed_by_the_program(run, end):
    result = run(f"require('fs').closeSync(15)\n{end}")
    assert result.status == (0 if end == "5" else 1)
    assert result.frames == []


@pytest.mark.parametrize("end", ["5", "null.x"])
def test_other_file_under_the_channels_number(start, end):
    engine = start()
    code = (
        "const fs = require('fs')\nfs.closeSync(15)\nlet fd\n"
        f"while ((fd = fs.openSync('mine', 'w')) !== 15);\n{end}"
    )
    engine.send(RUN, code.encode())
    result = engine.finish()
    assert result.status == (1 if end == "null.x" else 0)
    assert result.frames == []
    assert (engine.home / "mine").read_bytes() == b""


@pytest.mark.parametrize(
    "end, status", [("'x'.repeat(300000)", 0), ("null.x", 1), ("process.exit(4)", 4)]
)
def test_engine_is_gone(start, end, status):
    engine = start(subprocess.PIPE)
    code = (
        "process.on('exit', () => console.log('bye'))\nconsole.log('ready')\n"
        f"require('fs').readSync(0, Buffer.alloc(1))\n{end}"
    )
    engine.send(RUN, code.encode())
    channel.assert_ends_without_engine(engine, status)


# -- a parked cell -------------------------------------------------------------------


def answers(library, folder, code, **keywords):
    """What a program gives as its value in a cold cell and in a parked one, both with stdin."""
    found = {}
    for way, engine in WAYS.items():
        shutil.rmtree(folder, ignore_errors=True)  # the same names in both
        arguments = keywords if way == "parked" else {}
        with engine(*prepare(library, folder), subprocess.PIPE, **arguments) as one:
            one.send(RUN, f"const answer = () => {{\n{code}\n}}\nJSON.stringify(answer())".encode())
            result = one.finish(b"")
            assert (result.status, result.stdout, result.stderr) == (0, b"", b""), result
            found[way] = json.loads(result.value)
    return found["cold"], found["parked"]


# What a program finds out about the process that it is in.
SAME = {
    "command line": (
        "const { readFileSync } = require('fs')\n"
        "return [process.argv, process.argv0, process.execArgv, process.execPath, process.title,\n"
        "  readFileSync('/proc/self/cmdline', 'utf8'), readFileSync('/proc/self/comm', 'utf8')]"
    ),
    "environment": (
        "return [process.env, require('fs').readFileSync('/proc/self/environ', 'utf8')]"
    ),
    "names": (
        "return [Object.getOwnPropertyNames(globalThis), Object.getOwnPropertyNames(process),\n"
        "  Object.keys(require.cache), Object.keys(require('module')._pathCache),\n"
        "  Object.keys(process.binding('natives')).length]"
    ),
    "listeners": (
        "return process.eventNames().map((name) => [String(name), process.listenerCount(name)])"
    ),
    "what is under way": (
        "return [process._getActiveHandles().length, process._getActiveRequests().length,\n"
        "  process.getActiveResourcesInfo?.()]"
    ),
    "files": (
        "const { readdirSync } = require('fs')\nreturn [readdirSync('.'), readdirSync('..')]"
    ),
    "descriptors": (
        "const { fstatSync, readdirSync, readFileSync, readlinkSync } = require('fs')\n"
        "return readdirSync('/proc/self/fd').map((fd) => {\n"
        "  try {\n"
        "    const link = readlinkSync(`/proc/self/fd/${fd}`).replace(/\\d+/g, 'N')\n"
        "    const [flags] = /^flags:.*$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`))\n"
        "    return [fd, link, flags]\n"
        "  } catch {\n"
        "    return [] // of the listing itself\n"
        "  }\n"
        "})"
    ),
    "streams": (
        "return [process.stdin, process.stdout, process.stderr].map((stream) =>\n"
        "  [stream.constructor.name, stream.fd, stream._type, stream.isTTY, stream.writableLength,\n"
        "    stream.bytesWritten, stream.readableFlowing, stream.listenerCount('error')])"
    ),
    "state": (
        "return [process.cwd(), process.umask(), process.exitCode ?? null, process.pid > 1,\n"
        "  process.hasUncaughtExceptionCaptureCallback(), Error.stackTraceLimit,\n"
        "  process.sourceMapsEnabled ?? null, process.getuid()]"
    ),
}


@pytest.mark.parametrize("code", SAME.values(), ids=SAME.keys())
def test_a_parked_process_is_as_one_that_was_started(library, tmp_path, code):
    cold, parked = answers(library, tmp_path / "cell", code)
    assert parked == cold


def test_stdin_of_a_parked_cell(library, tmp_path):
    cell = prepare(library, tmp_path / "none")
    code = b"const { readFileSync, readlinkSync } = require('fs')\n"
    code += b"console.log(readlinkSync('/proc/self/fd/0'))\nreadFileSync(0, 'utf8')"
    with channel.ParkedEngine(*cell, subprocess.DEVNULL) as engine:
        engine.send(RUN, code)
        result = engine.finish()
    assert (result.stdout, result.value) == (b"/dev/null\n", "")
    with channel.ParkedEngine(*prepare(library, tmp_path / "some"), subprocess.PIPE) as engine:
        engine.send(RUN, code)
        result = engine.finish("Zoë\n".encode())
    assert re.fullmatch(rb"pipe:\[\d+\]\n", result.stdout)
    assert result.value == "Zoë\n"


def test_chance_is_not_shared(library, tmp_path):
    code = (
        b"const c = require('crypto')\n"
        b"JSON.stringify([Math.random(), c.randomUUID(), c.randomBytes(8).toString('hex'),\n"
        b"  c.randomInt(2 ** 40), c.webcrypto.getRandomValues(new Uint32Array(2)).join(),\n"
        b"  c.generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' }).x])"
    )
    drawn = []
    for number in range(3):
        cell = prepare(library, tmp_path / str(number))
        with channel.ParkedEngine(*cell, subprocess.DEVNULL) as engine:
            engine.send(RUN, code)
            drawn.append(json.loads(engine.finish().value))
    for source in zip(*drawn):
        assert len(set(source)) == 3, source


LIMITS = """
const { readdirSync, readFileSync } = require('fs')
const cpus = (thread) => /Cpus_allowed_list:\\s*(\\S+)/.exec(
  readFileSync(`/proc/self/task/${thread}/status`, 'utf8'))[1]
const limit = (name) => new RegExp(`^${name} +(\\\\w+) +(\\\\w+)`, 'm').exec(
  readFileSync('/proc/self/limits', 'utf8')).slice(1)
return [readdirSync('/proc/self/task').map(cpus),
  limit('Max cpu time'), limit('Max processes'), limit('Max data size')]
"""


def test_limits_are_those_of_the_request(library, tmp_path):
    cpu = max(os.sched_getaffinity(0))
    limits = {
        resource.RLIMIT_CPU: (111, 112),
        resource.RLIMIT_NPROC: (1234, 1234),
        resource.RLIMIT_DATA: (1 << 40, 1 << 40),
    }
    packet = channel.park_go([cpu], limits)
    _, (cpus, *others) = answers(library, tmp_path / "cell", LIMITS, packet=packet)
    assert len(cpus) > 4  # node's own threads
    assert set(cpus) == {str(cpu)}
    assert others == [["111", "112"], ["1234"] * 2, [str(1 << 40)] * 2]


def test_all_threads_stay_on_one_of_the_offered_processors(library, tmp_path):
    _, (cpus, *_) = answers(library, tmp_path / "cell", LIMITS)
    assert len(set(cpus)) == 1
    assert int(cpus[0]) in os.sched_getaffinity(0)


def test_nothing_runs_without_its_limits(library, tmp_path):
    cell = prepare(library, tmp_path / "cell")
    with channel.ParkedEngine(*cell, subprocess.DEVNULL, channel.park_go([])) as engine:
        engine.send(RUN, b"console.log('ran')")
        result = engine.finish()
    assert (result.status, result.stdout) == (125, b"")
    assert result.stderr == b"hutch: the limits of the cell could not be set\n"


def test_a_parked_process_ends_with_its_supervisor(library, tmp_path):
    with channel.Parked(*prepare(library, tmp_path / "cell")) as parked:
        parked.socket.close()
        assert parked.status() == 0
    assert [path.name for path in (tmp_path / "cell").rglob("*")] == ["home"]


NO_GO = {
    "short": (b"x", 3),
    "a byte less": (channel.park_go()[:-1], 3),
    "a byte more": (channel.park_go() + b"x", 3),
    "no descriptor": (channel.park_go(), 0),
    "no channel": (channel.park_go(), 2),
}


@pytest.mark.parametrize("packet, descriptors", NO_GO.values(), ids=NO_GO.keys())
def test_a_packet_that_is_no_request(library, tmp_path, packet, descriptors):
    with channel.Parked(*prepare(library, tmp_path / "cell")) as parked:
        reading, writing = os.pipe()
        parked.hand_over(packet, *[writing] * descriptors)
        os.close(writing)
        assert parked.status() == 125
        assert os.read(reading, 1) == b""
        os.close(reading)


def test_a_parked_process_without_the_addon(library, tmp_path):
    poor = shutil.copytree(library, tmp_path / "poor")
    (poor / "hutch_park.node").unlink()
    command, *cell = prepare(poor, tmp_path / "cell")
    with channel.Engine(command, *cell, subprocess.DEVNULL, subprocess.DEVNULL) as engine:
        assert engine.process.wait(timeout=DEADLINE_SECONDS) == 125


def test_a_cell_with_a_request_may_have_any_stdout(library, tmp_path):
    cell = prepare(library, tmp_path / "cell")
    with channel.Engine(*cell, subprocess.DEVNULL, subprocess.DEVNULL) as engine:
        engine.send(RUN, b"console.log(1)\n6 * 7")
        result = engine.finish()
    assert (result.status, result.stderr, result.value) == (0, b"", "42")


# -- sessions ------------------------------------------------------------------------

SESSION, STDIN, VALUE, ERROR, DONE = 5, 6, 16, 17, 19

Done = namedtuple("Done", "exit_code interrupted value error stdout stderr")


class Session:
    """The engine's end of a session."""

    def __init__(self, engine):
        self.engine = engine
        self.number = 0
        engine.send(SESSION, b"", exec_id=0)

    def send(self, code, stdin=None, env=None):
        self.number += 1
        if env:
            self.engine.send(ENV, entries(f"{k}={v}" for k, v in env.items()), self.number)
        if stdin is not None:
            self.engine.send(STDIN, stdin, self.number)
        self.engine.send(RUN, code.encode(), self.number)

    def done(self):
        """The end of the exec; None when the process has ended."""
        value = error = None
        while frame := self.engine.receive():
            kind, _, exec_id, payload = frame
            assert exec_id == self.number
            if kind == VALUE:
                value = payload.decode()
            elif kind == ERROR:
                error = channel.decode_error(frame)
            else:
                assert kind == DONE
                output = map(self.printed, (self.engine.process.stdout, self.engine.process.stderr))
                return Done(*struct.unpack("=iI", payload), value, error, *output)
        return None

    def printed(self, stream):
        data = b""
        while select.select([stream], [], [], 0)[0] and (piece := os.read(stream.fileno(), 65536)):
            data += piece
        return data.decode().replace(str(self.engine.home), "HOME")

    def run(self, code, stdin=None, env=None):
        self.send(code, stdin, env)
        return self.done()

    def value(self, code, **request):
        """Of an exec that does nothing else."""
        done = self.run(code, **request)
        assert done[:2] == (0, 0) and done[3:] == (None, "", "")
        return done.value

    def run_interrupted(self, code):
        """An exec that is interrupted when it has said that it is under way: before a loop
        that has no end, or behind its script."""
        ready = "require('fs').writeSync(1, 'ready\\n')\n"
        self.send((ready if "for (;;);" in code else f"setImmediate(() => {ready})\n") + code)
        self.engine.expect_stdout(b"ready\n")
        for _ in range(DEADLINE_SECONDS):
            self.engine.process.send_signal(signal.SIGINT)
            if select.select([self.engine.channel], [], [], 1)[0]:
                break
        return self.done()


@pytest.fixture
def session(start):
    return Session(start())


# Execs of one session and their values.
KEPT = {
    "var": [("var x = 1", None), ("x", "1")],
    "let": [("let x = 1", None), ("x += 1", "2"), ("let x = 5; x", "5")],
    "const": [("const x = 1", None), ("const x = 2", None), ("x", "2")],
    "several": [("let x = 1, { a, ...b } = { a: 2, c: 3 }, [d] = [4]", None), ("x + a + b.c + d", "10")],
    "function": [("function f() { return x }\nlet x = 1", None), ("f()", "1"), ("function f() { return 2 }; f()", "2")],
    "class": [("class A { m() { return 1 } }", None), ("class A { m() { return 2 } }", None), ("new A().m()", "2")],
    "undeclared": [("x = 1", "1"), ("x", "1")],
    "global": [("globalThis.x = 1", "1"), ("x", "1")],
    "name of node": [("const crypto = require('crypto')", None), ("typeof crypto.createHash", "function")],
    "module": [("const fs = require('fs')", None), ("typeof fs.readFileSync", "function")],
    "folder": [("require('fs').mkdirSync('sub'); process.chdir('sub')", None), ("require('path').basename(process.cwd())", "sub")],
    "await": [("const x = await Promise.resolve(1); let y = x + 1", None), ("x + y", "3")],
    "await in a loop": [("for (const x of [1, 2]) { var last = await x }", None), ("last", "2")],
    "for await": [("let sum = 0\nfor await (const x of [1, 2]) sum += x", None), ("sum", "3")],
    "function beside await": [("function f() { return 1 }\nawait f()", "1"), ("f()", "1")],
    "class beside await": [("class A { m() { return 1 } }\nawait 0", "0"), ("new A().m()", "1")],
    "no semicolons": [("let x = await 1\nlet y\n;[x].forEach((v) => { y = v })", None), ("y", "1")],
    "import": [("import fs, { join as j } from 'path'\nimport * as os from 'os'", None), ("j('a', fs.sep) + typeof os.tmpdir", "a/function")],
    "export": [("export const x = 1\nexport default class A {}\nawait 0", "0"), ("x + typeof A", "1function")],
    "return": [("if (1) { var x = 1; return }\nx = 2", None), ("x", "1")],
    "strict": [("'use strict'; let x = 1", None), ("x", "1")],
    "value": [("[1].map((v) => v + 1)", "[ 2 ]"), ("Promise.resolve(7)", "7"), ("await 8", "8"), ("'a', 'b'", "b")],
    "no value": [("if (1) { 5 }", None), ("let x = 1", None)],
    "names": [("typeof require + typeof module.exports + (require.main === module)", "functionobjecttrue")],
    "dynamic import": [("import('path').then((p) => p.sep)", "/")],
    "hashbang": [("#!/usr/bin/env node\n6", "6")],
    "blank": [(" ", None), ("// nothing", None)],
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_session_keeps_state(session, name):
    for code, value in KEPT[name]:
        assert session.value(code) == value


ENDS = {
    "throw": ("x = 1\nthrow new TypeError('t')", 1, "TypeError", 2),
    "error": ("null.x", 1, "TypeError", 1),
    "error behind an await": ("await null\nnull.x", 1, "TypeError", 2),
    "error in a timer": ("setTimeout(() => {\n  null.x\n}, 1)", 1, "TypeError", 2),
    "rejection": ("Promise.reject(new Error('e'))", 1, "Error", 1),
    "text": ("throw 'text'", 1, "String", 0),
    "syntax": ("x = 1\nlet y = ;", 1, "SyntaxError", 2),
    "module": ("require('no-such')", 1, "Error", 1),
    "exit": ("process.exit(3)", 3, None, None),
    "exit that is caught": ("try { process.exit(3) } catch { console.log('no') } finally { console.log('no') }", 3, None, None),
    "exit in a function": ("(function f() { process.exit(4) })(); console.log('no')", 4, None, None),
    "exit in a timer": ("setInterval(() => {}, 5); setTimeout(() => process.exit(5), 5)", 5, None, None),
    "exit behind an await": ("await null; process.exit(6); console.log('no')", 6, None, None),
    "exit code": ("process.exitCode = 7", 7, None, None),
    "never done": ("await new Promise(() => {})", 13, None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_session_goes_on_after(session, name):
    code, status, kind, line = ENDS[name]
    session.value("let kept = 1")
    done = session.run(code)
    assert (done.exit_code, done.interrupted, done.stdout) == (status, 0, "")
    assert (done.error and done.error.type, done.error and done.error.line) == (kind, line)
    assert bool(done.stderr) == (kind is not None or name == "never done")
    for _ in range(3):
        assert session.value("kept") == "1"


def test_session_prints_errors_as_node(session):
    done = session.run("1\n  null.x")
    assert done.stderr.splitlines()[:6] == [
        "HOME/.main.1.cjs:2",
        "  null.x",
        "       ^",
        "",
        "TypeError: Cannot read properties of null (reading 'x')",
        "    at HOME/.main.1.cjs:2:8",
    ]
    assert session.run("await 1\n  null.x").stderr.replace("main.2", "main.1") == done.stderr


def test_exec_ends_when_its_loop_is_empty(session):
    done = session.run("setTimeout(() => console.log('late'), 20); 'value'")
    assert (done.exit_code, done.value, done.stdout) == (0, "value", "late\n")
    code = "require('child_process').exec('echo child', (e, out) => console.log(out)); 1"
    assert session.run(code).stdout == "child\n\n"
    done = session.run("process.once('beforeExit', () => setTimeout(() => console.log('more'), 1))")
    assert done.stdout == "more\n"


def test_input_and_variables_of_one_exec(session):
    read = "require('fs').readFileSync(0, 'utf8') + process.env.A"
    assert session.value(read, stdin=b"in", env={"A": "x=y"}) == "inx=y"
    assert session.value(read) == "undefined"
    code = "let n = 0; process.stdin.on('data', (d) => { n += d.length }).on('end', () => console.log(n)); 1"
    assert session.run(code, stdin=b"x" * 3000000).stdout == "3000000\n"
    assert session.run(code).stdout == "0\n"
    code = "require('child_process').execFileSync('cat', { stdio: ['inherit', 'pipe'] }).toString()"
    assert session.value(code, stdin=b"child") == "child"
    assert os.listdir(session.engine.home) == []


def test_streams_that_an_exec_has_ended(session):
    session.run("process.stdout.end(); process.stderr.destroy()")
    done = session.run("console.log('out'); console.error('err')")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


LOOPS = {
    "loop": "for (;;);",
    "loop that catches": "for (;;) { try { for (;;); } catch {} finally {} }",
    "loop behind an await": "await null; for (;;);",
    "interval": "setInterval(() => {}, 10)",
    "promise": "await new Promise((r) => setTimeout(r, 1e6))",
    "promised timer": "await require('timers/promises').setTimeout(1e6)",
    "promisified timer": "await require('util').promisify(setTimeout)(1e6)",
    "server": "require('net').createServer().listen(0, '127.0.0.1')",
    "child": "require('child_process').spawn('sleep', ['30'], { detached: true })",
    "worker": "new (require('worker_threads').Worker)('for (; ; );', { eval: true })",
    "watcher": "require('fs').watch('.')",
    "listener taken away": "process.removeAllListeners('SIGINT'); setInterval(() => {}, 10)",
}


@pytest.mark.parametrize("name", LOOPS)
def test_interrupt(session, name):
    session.value("let kept = 1")
    done = session.run_interrupted(LOOPS[name])
    assert done[:3] == (130, 1, None) and done.error.type == "Interrupted"
    assert (done.stdout, done.stderr) == ("", "")
    assert session.value("kept") == "1"
    session.run("require('child_process').execSync('pkill -P ' + process.pid + ' sleep || true')")


def test_interrupt_between_execs(session):
    for _ in range(3):
        assert session.value("1") == "1"
        session.engine.process.send_signal(signal.SIGINT)
    assert session.value("await 2") == "2"


def test_late_callbacks_harm_nobody(session):
    session.run("process.exit(process.nextTick(() => { throw 1 }))")
    assert session.run("process.nextTick(() => { throw 1 })").error.message == "1"
    assert session.run("process.nextTick(() => process.exit(3))").exit_code == 3
    assert session.run_interrupted("process.nextTick(() => { for (;;); })").exit_code == 130
    session.run("setTimeout(() => { throw new Error('late') }, 1); setImmediate(() => null.x); null.x")
    assert session.value("await new Promise((r) => setTimeout(r, 20, 'on'))") == "on"


def test_listeners_of_errors_are_the_programs(session):
    code = "process.on('uncaughtException', (e) => console.log(e.message))\nnull.x"
    assert session.run(code).stdout == "Cannot read properties of null (reading 'x')\n"
    session.run("process.removeAllListeners('uncaughtException'); 1")
    assert session.run("setTimeout(() => null.x)").exit_code == 1
    assert session.value("1") == "1"


def test_what_a_program_forges_harms_itself_alone(session):
    forged = "const f = (type, id, data) => Buffer.concat([new Uint8Array(new Uint32Array([data.length]).buffer), new Uint8Array(new Uint16Array([type, 0]).buffer), new Uint8Array(new Uint32Array([id]).buffer), data])\n"
    code = "require('fs').writeSync(15, f(16, 1, Buffer.from('lie')))\nrequire('fs').writeSync(15, f(19, 1, Buffer.alloc(8)))\n'truth'"
    session.send(forged + code)
    assert session.done().value == "lie"
    assert session.done().value == "truth"  # its own end, which the engine does not wait for
    assert session.value("1") == "1"


def test_no_child_of_a_session_has_the_channel(session):
    code = "require('child_process').execSync('ls /proc/self/fd', { stdio: ['inherit', 'pipe'] }).toString()"
    assert session.value(code, stdin=b"x") == "0\n1\n2\n3\n"


def test_descriptor_that_comes_with_a_session_is_dropped(start):
    engine = start()
    reading, writing = os.pipe()
    socket.send_fds(engine.channel, [channel.frame(SESSION, b"/x\0", 0)], [writing])
    os.close(writing)
    session = Session.__new__(Session)
    session.engine, session.number = engine, 0
    assert session.value("1") == "1"
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    "data, status", [(b"", 125), (b"x", 125), (channel.frame(99, b"1"), 125)]
)
def test_end_of_a_session(session, data, status):
    session.value("1")
    session.engine.channel.sendall(data)
    session.engine.channel.shutdown(socket.SHUT_WR)
    assert session.engine.process.wait(timeout=DEADLINE_SECONDS) == status


def test_idle_session_takes_no_time(session):
    session.value("1")

    def used():
        fields = Path(f"/proc/{session.engine.process.pid}/stat").read_text().rsplit(")")[1].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    assert not select.select([session.engine.channel], [], [], 1)[0]
    assert used() - before <= 2


def test_a_thousand_execs(session):
    session.value("let x = 0")

    def resident():
        code = "for (let i = 0; i < 5; i++) await null; process.memoryUsage().rss"
        return int(session.value(code))

    for i in range(300):
        session.value(f"let v = {i}; x += 1")
    before = resident()
    for i in range(700):
        session.value(f"let v = {i}; x += await 1")
    assert session.value("x") == "1000"
    assert resident() < before + (24 << 20)
    assert len(os.listdir(f"/proc/{session.engine.process.pid}/fd")) < 40
