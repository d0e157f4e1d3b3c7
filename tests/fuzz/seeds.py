# SPDX-License-Identifier: Apache-2.0
"""What fuzzing begins with: for each target some inputs that it takes as valid, and
words of its language. The head of each target says how its input is made up."""
import json
import struct

WIRE_ENV, WIRE_RUN, WIRE_VALUE, WIRE_ERROR, WIRE_VERDICT = 1, 2, 16, 17, 18
WIRE_DONE, WIRE_READY, WIRE_RICH = 19, 20, 21
WIRE_FILE_DATA, WIRE_FILE_ENTRIES, WIRE_FILE_ANSWER = 80, 81, 82
PROTO_VERSION = 7

TEXTS = [
    b"",
    b"plain text\n",
    "Grüße, 世界, \U0001f600\n".encode(),
    b"a\x00b",
    b"cut \xe4\xb8",
    b"\x80\xbf\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xff",
    "\u2028\u2029\u0085\x1b[31m".encode(),
    b"x" * 300,
    "\u00e9".encode() * 200,
]


def frame(kind, payload=b"", flags=0, exec_id=1):
    return struct.pack("=IHHI", len(payload), kind, flags, exec_id) + payload


def claim(name=b"ValueError", message=b"bad value", line=3, errno=0):
    return struct.pack("=IIi", line, len(name), errno) + name + message


def capture():
    for text in TEXTS:
        yield b"\x00\x00\x06" + text
        yield b"\x01\x10\x20" + text


def cgroup():
    texts = [
        b"0::/user.slice/session-1.scope\n",
        b"12:memory:/a/b\n4:cpu,cpuacct:/hutch-1/cell-1\n1:name=systemd:/x:y\n0::/z\n",
        b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        b"31 30 0:27 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        b"32 30 0:28 / /mnt/a\\040b rw - cgroup cgroup rw,cpuset,memory,pids\n",
        b"low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n",
        b"cpuset cpu io memory hugetlb pids rdma misc\n",
        b"         0          0 4294967295\n",
        b"0 100000 1000\n1000 65536 4294901760\n",
        b"root:x:0:0:root:/root:/bin/bash\nuser:x:65536:1000::/home/user:/bin/sh\n",
        b"user:100000:65536\nother:165536:65536\n",
        b"18446744073709551615\n",
        b"max\n",
        b"4242-0123456789abcdef",
        b"/sys/fs/cgroup/hutch-1/cell-1\n/sys/fs/cgroup\n",
        b"a/b/../c",
        *(b"1 1 0:1 /%s /p rw - cgroup2 c rw\n1 1 0:1 / /%s rw - cgroup c memory\n" % (long, long)
          for long in (b"x" * 1022, b"x" * 1023)),
    ]
    for text in texts:
        yield b"\x00\x01\x10\x00" + text


def elf():
    """A library, a program, and the most program headers, and one more."""
    def build(loader, empty=0):
        strings = b"\0libc.so.6\0$ORIGIN/../lib:/opt/lib\0"
        phnum = (3 if loader else 2) + empty
        start = 64 + 56 * phnum
        interp = b"/lib64/ld-linux-x86-64.so.2\0" if loader else b""
        dynamic = struct.pack("<qQqQqQqQqQ", 1, 1, 29, 11, 5, start + len(interp) + 80,
                              10, len(strings), 0, 0)
        body = interp + dynamic + strings
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, phnum,
                                     0, 0, 0)

        def segment(kind, offset, size):
            return struct.pack("<IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8)
        segments = segment(1, 0, start + len(body))
        segments += segment(2, start + len(interp), len(dynamic))
        if loader:
            segments += segment(3, start, len(interp))
        return header + segments + segment(0, 0, 0) * empty + body
    yield build(False)
    yield build(True)
    yield build(False, 62)
    yield build(False, 63)
    yield b"#!/bin/sh\n"
    yield b"\x7fELF"


def json_texts():
    yield b'{"a":[1,-2,3.5e-3,true,false,null],"b":{"c":"\\u00e9\\ud83d\\ude00\\n"}}'
    yield b'["\\ud800","\\u0000",9223372036854775807,-0.0,1E+2]'
    yield b'["\\udc00\\udc00","\\ud800\\ud800\\udc00","\\ud800x"]'
    yield b"[" * 70 + b"]" * 70
    yield b'{"a":1,"a":2}'
    yield b'"\xff\xc3"'
    yield b' \t\r\n"x" '
    yield b"123456789012345678901234567890"
    yield b"1e999"


def names():
    for name in ("seccomp", "landlock", "private_root", "kvm", "python", "raw", "base64",
                 "namespace", "microvm", "no such", ""):
        yield struct.pack("<I", 1 << 10) + name.encode()
    yield b"\xff\xff\xff\xff"


def numbers():
    yield from (b"0", b"42", b"18446744073709551615", b"18446744073709551616", b"0.5", b".5",
                b"1e2", b"-1.25E-3", b"1e400", b"0007", b"1.", b"12x", b"  42 kB", b"99999999999999", b"")


def options():
    yield b"-q\n--text=a\n--choice\nshell\nfile"
    yield b"-fqn5\n-w\n128\n--list=a\n--list\nb\n--\n-x\ny"
    yield b"--number=0.5\n--whole=99999"
    yield b"--choice=microvm\n-h"
    yield b"--tex=a"
    yield b"a\nb\nc"


def load():
    texts = [
        b"MemTotal:       24683520 kB\nMemFree: 1 kB\nMemAvailable:   23924736 kB\n",
        b"8.50 4.69 2.88 2/124 7992\n",
        b"some avg10=12.34 avg60=0.00 avg300=0.00 total=20428670\nfull avg10=0.00\n",
        b"99999999999999999999",
    ]
    for numbers in ((1 << 30, 1 << 29, 1 << 20), (0, 1, 2), (2**64 - 1, 2**63, 2**64 - 1)):
        for text in texts:
            yield struct.pack("<QQQ", *numbers) + text


def proc():
    yield b"1a2b3c-7ffe [rollup]\nRss:   1234 kB\nPss:    567 kB\nPss_Dirty:  1 kB\n"
    yield b"1234 567 89 1 0 99 0\n"
    yield b"7 (a) b) (c) Z 1 7 7 0 -1 4194308 12 0 0 0 0\n"
    yield b"         0          0 4294967295\n"
    yield b"0 1000 1\n"
    yield b"99999999999999999999"


def proto():
    def error(code):
        return struct.pack("=iii244s", code, 0, 0, b"mount proc: Operation not permitted")
    for code in (0, -5):
        yield b"\x00\x00" + struct.pack("=I", PROTO_VERSION) + error(code) + b"/a".ljust(1024, b"\0")
    for fds, stdin, session in ((4, 0, 0), (5, 1, 0), (4, 0, 1)):
        yield bytes((1, fds)) + struct.pack("=IIIIIIIIQQQQQ64s", 0, 2, stdin, session, 0, 0, 128, 1000,
                                            30 * 10**9, 10**9, 10**9, 512 << 20, 256 << 20, b"me")
    for kind, code, status in ((0, 0, 0), (1, -4, 0), (2, 0, 256), (2, 0, 9), (3, -4, 0), (4, 0, 0)):
        yield b"\x02\x00" + struct.pack("@IIIQiIIIiQQQQQI", kind, 0x1ffff, 0, 1, 1, 1, 3, 0, status, 1,
                                        1, 1, 0, 0, 0) + error(code) + bytes(4)
    for kind, fds in enumerate((0, 1, 1, 0, 0, 0, 1, 3)):
        yield bytes((3, fds)) + struct.pack("=IIQ", kind, 3, 10**9)


def files():
    def entry(name, size=3, flags=0):
        return struct.pack("=QHHI", size, len(name), flags, 0) + name
    answer = frame(WIRE_FILE_ANSWER, struct.pack("=iIQ", 0, 0, 0))
    refusal = frame(WIRE_FILE_ANSWER, struct.pack("=iIQ", 27, 1, 1 << 40))
    entries = frame(WIRE_FILE_ENTRIES, entry(b"a") + entry(b"d", 0, 1))
    for call in range(6):
        head = bytes((call, 200))
        yield head + answer + frame(WIRE_FILE_ANSWER, struct.pack("=iIQ", 2, 0, 0), exec_id=2)
        yield head + refusal
        yield head + entries + entries + answer
        yield head + frame(WIRE_FILE_ENTRIES, entry(b"a/b") + entry(b"..", 1 << 63)) + answer
        yield head + frame(WIRE_FILE_DATA, b"x" * 150) + frame(WIRE_FILE_DATA, b"y" * 50) + answer
        yield head + frame(WIRE_FILE_DATA, b"x" * 201) + answer
        yield head + frame(WIRE_FILE_DATA) + frame(99) + struct.pack("=IHHI", 1 << 31, 81, 0, 1)
        yield head + entry(b"name") + entry(b"n\0e") + entry(b"")


def reply():
    def chunk(delta=None, **more):
        return json.dumps({"choices": [{"index": 0, "delta": delta or {}, **more}]}).encode()

    def call(arguments, **more):
        function = {"name": "run", "arguments": arguments}
        return chunk({"tool_calls": [{"index": 0, "function": function, **more}]})
    end = chunk(finish_reason="stop")
    usage = b'{"choices":[],"usage":{"total_tokens":3}}'
    streams = [
        [chunk({"content": "He"}), chunk({"content": "llo"}), end, usage, b"[DONE]"],
        [call('{"c', id="a"), call('":1}'), end],
        [call('{"c":1}'), call('{"c":2}'), b"[DONE]"],
        [call("{}", id="a"), call('{"c":1}', id="a"), call('{"c":1}', id="a"), end],
        [call('{"code":"pri', id="a"), chunk(finish_reason="length")],
        [call("[1]"), call("{]", id="b"), call('"{\\"c\\":1}"', id="c"), end],
        [call({"c": [1, 2.5, None]}, id="a", extra_content={"s": "x"}), end + b"data: " + usage],
        [chunk({"reasoning": "r", "content": [{"type": "text", "text": "\ud83d"}]}), end],
        [chunk({"function_call": {"name": "run_all", "arguments": "{}"}}), end],
        [b'{"error":{"code":429,"message":"slow"},"choices":[]}'],
        [b": PROCESSING", b"", chunk({"refusal": "no"}), end, b"[DONE]"],
        [b"<html>"],
    ]
    for stream in streams:
        for line_end in (b"\n", b"\r\n", b"\r"):
            yield b"\x03\x00" + b"".join(b"data: " + data + 2 * line_end for data in stream)
    yield b"\x00\x00\xef\xbb\xbfevent: error\ndata: no\n\n"
    whole = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": {"a": 1}}
    yield b"\x00\x01" + json.dumps(whole).encode()
    yield b"\x00\x01" + b'[{"error":{"message":"no","code":404}}]'


def report():
    value = frame(WIRE_VALUE, b"42")
    error = frame(WIRE_ERROR, claim(), flags=1)
    refusal = frame(WIRE_VERDICT, claim(b"", b"import of 'os' is refused", 1))
    passed = frame(WIRE_VERDICT)
    for head in (b"\x00\x03\x01", b"\x01\x0c\x7e"):
        yield head + value
        yield head + value + error
        yield head + refusal
        yield head + passed + value + error + refusal
        yield head + error + refusal
        yield head + frame(WIRE_ERROR, claim(b"", b"")[:8])
        yield head + frame(WIRE_VALUE, b"x", exec_id=2)
        yield head + value[:-1]
        yield head + struct.pack("=IHHI", 0xffffffff, WIRE_VALUE, 0, 1)
        rich = [b"text/html\0<b>1</b>", b"application/json\0{\"a\": [1, null]}", b"", b"text/html",
                b"image/png\0\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0sum!",
                b"image/svg+xml\0<svg>\xff"]
        yield head + b"".join(frame(WIRE_RICH, payload) for payload in rich) + value
        yield head + 70 * frame(WIRE_RICH, rich[0])
        done = frame(WIRE_DONE, struct.pack("=ii", 0, 1))
        yield head + frame(WIRE_READY) + value + done
        yield head + done + done + frame(WIRE_READY) + error + refusal + done
        yield head + frame(WIRE_DONE) + frame(WIRE_READY, b"x")
        yield head + frame(WIRE_DONE, bytes(9))
        for text in TEXTS:
            yield head + frame(WIRE_RICH, b"application/json\0" + text)
            yield head + frame(WIRE_VALUE, text) + frame(WIRE_ERROR, claim(text, text))


def request():
    gate = {"modules": ["os", "urllib.request"], "calls": ["eval"], "attributes": ["os.*"],
            "allowed_imports": ["math"]}
    full = {
        "code": "print(2+2)\n", "language": "python", "stdin": "a\0b", "env": {"A": "1", "B_2": ""},
        "timeout_seconds": 1.5, "memory_mb": 256, "cpus": 1, "max_processes": 16, "disk_mb": 64,
        "max_output_bytes": 4096, "output_encoding": "base64", "backend": "namespace",
        "require": ["seccomp", "landlock"], "owner": "me", "tidy": True, "gate": gate,
    }
    yield json.dumps(full).encode()
    for name, value in full.items():
        yield json.dumps({"code": "x", name: value}).encode()
    yield b'{"code":"x","gate":{"modules":[]},"language":"shell"}'
    yield b'{"code":"x","gate":true}'
    yield b'{"code":"x","owner":"a\\u0000b"}'
    yield b'{"code":"\\ud800","memory_mb":1e2}'
    yield b'{"code":"x","env":{"LD_PRELOAD":"y"},"require":["kvm"]}'


def result():
    outputs = [
        b"/run/main.sh: line 3: syntax error near unexpected token `fi'\n",
        b"cp: error writing 'x': No space left on device\n",
        b"fork: Resource temporarily unavailable\n",
        b"FATAL ERROR: JavaScript heap out of memory\n",
    ]
    claims = [claim(), claim(b"MemoryError", b""), claim(b"OSError", b"no space", 1, 28), b""]
    facts = [  # language, encoding, end, status, killed, processes, time, piece, flags
        (0, 0, 0, 1, 0, 0, 9, 3, 0), (1, 0, 0, 2, 0, 0, 9, 9, 0), (2, 1, 0, 0x106, 0, 0, 9, 1, 2),
        (0, 0, 1, 0x109, 0, 0, 9, 7, 0), (1, 0, 2, 0x109, 255, 0, 9, 7, 0),
        (2, 0, 3, 0x109, 0, 0, 9, 7, 0), (0, 0, 0, 126, 0, 0, 9, 7, 0x80),
        (0, 0, 0, 1, 0, 255, 9, 7, 1), (0, 1, 0, 0, 0, 0, 9, 7, 0),
        (2, 0, 0, 0x108, 255, 0, 9, 7, 0), (0, 0, 0, 0, 0, 0, 9, 7, 0),
        (0, 0, 0, 0x117, 0, 0, 9, 7, 0), (1, 0, 0, 0x118, 0, 0, 9, 7, 0),
    ]
    for number, fact in enumerate(facts):
        text = claims[number % len(claims)]
        yield struct.pack("<BBBHBBBBBH", *fact, len(text)) + text + 2 * outputs[number % 4]


def script():
    env = b"A=1\0LANG=de\0"
    yield frame(WIRE_RUN, b"echo hello\n")
    yield frame(WIRE_ENV, env) + frame(WIRE_RUN, b"#!/usr/bin/python3\nprint(1)\n")
    yield frame(WIRE_ENV, env[:-1]) + frame(WIRE_RUN, b"x")
    yield frame(WIRE_ENV, b"A\0") + frame(WIRE_RUN, b"x")
    yield frame(WIRE_ENV, b"".join(b"V%d=\0" % i for i in range(170))) + frame(WIRE_RUN, b"x")
    yield frame(WIRE_RUN)


def tidy():
    codes = [
        b"print(1)\n",
        b"Here it is:\n```python\nprint(1)\n```\nand\n~~~py\nprint(2)\n~~~\n",
        b"1. First\n   ```sh\n   echo hello\n   ```\n",
        b"\xef\xbb\xbf    a = 1\r\n    b = 2\r\n",
        b'text = """\n```\ninside\n```\n"""\nprint(text)\n',
        b"cat <<'END'\n```\nEND\necho done\n",
        b"cat <<-END\n\t```\n\tEND\n",
        b"```{.python .numberLines}\nx\n",
        b"````\n```\nx\n```\n````\n",
        b"```js\nconsole.log(1)\n```",
        b"!ls\n%matplotlib inline\n",
        b"\r\r\n\t \n",
    ]
    for code in codes:
        for language in range(3):
            yield bytes((language,)) + code


def utf8():
    for text in TEXTS:
        yield struct.pack("<H", len(text) // 2) + text


SEEDS = {
    "capture": capture, "cgroup": cgroup, "elf": elf, "files": files, "json": json_texts, "load": load,
    "names": names, "numbers": numbers, "options": options, "proc": proc, "proto": proto,
    "reply": reply, "report": report, "request": request, "result": result, "script": script,
    "tidy": tidy, "utf8": utf8,
}

JSON_WORDS = b'\\u \\ud83d\\ude00 \\ud800 \\u0000 true false null {} [] "" : , -0 e+ 1e999'.split()
WORDS = {
    "cgroup": b"cgroup cgroup2 memory pids cpu cpuacct cpuset oom_kill \\040 \\134 .. 0:: - rw,"
              b" /hutch-1/cell-1 name=systemd :x: 4294967295".split(),
    "json": JSON_WORDS,
    "names": b"user_ns cgroup_cpu vm tcg qemu_sandbox shell javascript text auto".split(),
    "options": b"--flag --quiet --text= --choice --number= --whole= --list --help -- -fq -n".split(),
    "reply": JSON_WORDS + [b'"%s"' % word for word in (
        b"choices delta message content tool_calls index id function name arguments finish_reason "
        b"usage error code reasoning refusal function_call length stop run run_all").split()] + [
        b"data: ", b"data: [DONE]", b"\n\n", b"\r\n", b"event: error", b": ", b"\xef\xbb\xbf",
        b'{\\"c\\":1}', b"{}"],
    "request": JSON_WORDS + [b'"%s"' % word for word in (
        b"code language stdin env timeout_seconds memory_mb cpus max_processes disk_mb "
        b"max_output_bytes output_encoding backend require owner tidy gate modules calls attributes "
        b"allowed_imports shell javascript os.* PATH").split()],
    "result": b"MemoryError RecursionError ImportError BlockingIOError".split() + [
        b"Cannot allocate memory", b"/run/main.sh: line ", b"can't start new thread",
        b"unexpected EOF while looking for matching"],
    "tidy": [b"```", b"~~~", b"```python\n", b"```sh\n", b"```js\n", b"\n```\n", b'"""', b"'''",
             b"<<E\n", b"<<-E\n", b"\nE\n", b"- ", b"1. ", b"    ", b"\t", b"\r\n", b"{.python}",
             b"\xef\xbb\xbf", b"#", b"\\"],
}


def seeds(name):
    return list(SEEDS[name]())


def words(name):
    return WORDS.get(name, [])
