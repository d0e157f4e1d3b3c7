# SPDX-License-Identifier: Apache-2.0
"""
Rich outputs of python programs, from the program to the result: in cold, forked and parked
cells, with the distribution's matplotlib and pandas; of hostile programs; and as files of
hutch run on a terminal.
"""

import base64
import json
import os
import pty
import struct
import subprocess
import zlib

import pytest

import channel
import door

HUTCH = door.BUILD / "hutch"
WAYS = {"cold": ["--warmth", "2"], "forked": ["--warmth", "1"], "parked": []}
MAX_EACH, MAX_TOGETHER, MAX_COUNT, MAX_EMPTY = 4 << 20, 8 << 20, 64, 1000
HTML_HEAD = len("text/html\0")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", params=WAYS)
def engine(request, cache_dir):
    """One that starts cells in one way; the first two runs warm it up."""
    with door.Engine(cache_dir, *WAYS[request.param]) as made:
        if request.param == "parked":
            made.warm_up(1)
        else:
            made.run("pass")
            made.run("pass")
        yield made


@pytest.fixture(scope="module")
def cold(cache_dir):
    with door.Engine(cache_dir, *WAYS["cold"]) as made:
        yield made


def ask(engine, code, **fields):
    return engine.ask({"code": code, "memory_mb": 512, **fields})


def mimes(result):
    return [entry["mime"] for entry in result["results"]]


def size_of_png(text):
    """Width and height of an image in base64 whose checksums hold."""
    data = base64.b64decode(text, validate=True)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds, pixels = 8, [], b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunk = data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert zlib.crc32(kind + chunk) == checksum
        kinds.append(kind)
        pixels += chunk if kind == b"IDAT" else b""
        at += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    width, height, _, color = struct.unpack(">IIBB", data[16:26])
    assert color == 6 and len(zlib.decompress(pixels)) == height * (1 + 4 * width)
    return width, height


def widths(result):
    assert set(mimes(result)) <= {"image/png"}
    return [size_of_png(entry["data"])[0] for entry in result["results"]]


def figure(width):
    return f"plt.figure(figsize=({width}, 2)); plt.plot([1, 2, 3])\n"


PLT = "import matplotlib.pyplot as plt\n"


# -- figures -------------------------------------------------------------------


def test_a_plot_is_one_image(engine):
    result = ask(engine, PLT + "plt.plot([1, 2, 3])")
    assert (result["error"], result["stdout"], result["stderr"]) == (None, "", "")
    assert len(widths(result)) == 1 and result["results_dropped"] == 0
    assert result["value"].startswith("[<matplotlib.lines.Line2D")


def test_figures_come_in_order_and_once(engine):
    code = PLT + figure(2) + figure(4) + "plt.show()\n" + figure(6) + "plt.show()\n" + figure(8)
    result = ask(engine, code + "plt.savefig('a.png')\nlen(plt.get_fignums())")
    small, *rest = widths(result)
    assert len(rest) == 3 and sorted([small, *rest]) == [small, *rest]
    assert (result["value"], result["stderr"]) == ("1", "")


FIGURES = {
    "shown": ("plt.plot([1]); plt.show()", 1),
    "bars": ("plt.figure(figsize=(8, 3)); plt.bar([1, 2], [3, 4], label='x'); plt.legend(); "
             "plt.tight_layout(); plt.show()", 1),
    "saved": ("plt.plot([1]); plt.savefig('a.png'); plt.savefig('b.svg')", 1),
    "closed": ("plt.plot([1]); plt.close()", 0),
    "empty": ("plt.figure(); plt.figure()", 0),
    "only text": ("plt.figtext(0.5, 0.5, 'x')", 1),
    "as the value": ("fig, ax = plt.subplots(); fig", 1),
    "displayed": ("fig, ax = plt.subplots(); display(fig)", 1),
    "not of pyplot": ("from matplotlib.figure import Figure; fig = Figure(); fig.subplots(); fig", 1),
    "another backend": ("plt.switch_backend('svg'); plt.plot([1]); plt.show(); plt.plot([2])", 2),
    "exit": ("plt.plot([1]); raise SystemExit", 1),
    "awaited": ("import asyncio; await asyncio.sleep(0); plt.plot([1])", 1),
    "in a thread": ("from threading import Thread; t = Thread(target=lambda: (plt.plot([1]), "
                    "plt.show())); t.start(); t.join()", 1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures(cold, name):
    code, count = FIGURES[name]
    result = ask(cold, PLT + code)
    assert (result["error"], result["exit_code"], result["results_dropped"]) == (None, 0, 0)
    assert len(widths(result)) == count, result["stderr"]


def test_a_backend_of_the_programs_choice(cold):
    for code in ("import matplotlib; matplotlib.use('Agg')\n", "import matplotlib; matplotlib.use('pdf')\n"):
        assert len(widths(ask(cold, code + PLT + "plt.plot([1]); plt.show(); plt.plot([1])"))) == 2
    assert len(widths(ask(cold, PLT + "plt.plot([1])", env={"MPLBACKEND": "svg"}))) == 1


def test_figures_of_a_program_that_fails(engine):
    result = ask(engine, PLT + "plt.plot([1])\n1/0")
    assert result["error"] == {"type": "ZeroDivisionError", "message": "division by zero", "line": 3}
    assert len(widths(result)) == 1


def test_what_was_shown_is_kept_at_a_timeout(cold):
    result = ask(cold, PLT + "plt.plot([1]); plt.show()\nwhile True: pass", timeout_seconds=6)
    assert (result["error_type"], len(widths(result))) == ("timeout", 1)


def test_a_child_shows_nothing(cold):
    code = PLT + "import os\nplt.plot([1])\nif os.fork() == 0:\n    display(5); plt.show(); os._exit(0)\n" \
        "os.wait()\nplt.get_fignums()"
    result = ask(cold, code)
    assert (result["stdout"], result["value"], len(widths(result))) == ("5\n", "[1]", 1)


def test_pyplot_that_is_loaded_ahead(cache_dir):
    with door.Engine(cache_dir, "--preload", "matplotlib.pyplot") as made:
        made.warm_up(1)
        for _ in range(3):
            result = ask(made, PLT + figure(2) + "plt.show()\n" + figure(4))
            first, second = widths(result)
            assert first < second


def test_cjk_text_has_its_characters(engine):
    result = ask(engine, PLT + "plt.title('测试 日本語 한국어'); plt.plot([1])")
    assert (result["error"], result["stderr"], len(widths(result))) == (None, "", 1)
    result = ask(engine, "from matplotlib.font_manager import FontProperties, findfont\n"
                 "fonts = FontProperties()\nfonts.get_family()[0], findfont(fonts).split('/')[-1]")
    assert result["value"] == "('sans-serif', 'DejaVuSans.ttf')"


def test_the_list_of_fonts_is_made_already(engine):
    """Else matplotlib says that it generated one, and the figure takes longer."""
    result = ask(engine, "import logging, os, matplotlib\n"
                 "logging.basicConfig(level='INFO', format='%(name)s %(message)s')\n" + PLT +
                 "plt.plot([1])\nfolder = matplotlib.get_cachedir() + '/'\n"
                 "[os.readlink(folder + name)[:25] for name in os.listdir(folder)]")
    assert (result["error"], result["stderr"], len(widths(result))) == (None, "", 1)
    assert result["value"] == "['/usr/lib/hutch/matplotlib']"


def test_a_folder_of_the_name_matplotlib(cold):
    code = "import os\nos.mkdir('matplotlib')\nfor n in ('__init__', 'pyplot'):\n" \
        "    open(f'matplotlib/{n}.py', 'w').write('x = 5')\nimport matplotlib.pyplot as p\np.x"
    result = ask(cold, code)
    assert (result["value"], result["error"], result["exit_code"]) == ("5", None, 0)


# -- rich values ---------------------------------------------------------------


def test_a_data_frame_is_a_table(engine):
    result = ask(engine, "import pandas as pd\npd.DataFrame({'a': range(1000), 'b': 'x'})")
    assert mimes(result) == ["text/html"]
    html = result["results"][0]["data"]
    assert "<table" in html and "1000 rows" in html and len(html) < 10000
    assert result["value"].endswith("[1000 rows x 2 columns]")
    assert result["stderr"] == ""


def test_display(engine):
    code = """
class A:
    def __repr__(self): return 'A()'
    def _repr_html_(self): return '<b>ä\\ud800</b>'
    def _repr_svg_(self): return '<svg/>', {'isolated': True}
    def _repr_json_(self): return {'a': [1, None, 'ä']}
    def _repr_png_(self): return None
display(A(), 5, A, [A()], raw=False)
A()"""
    result = ask(engine, code)
    assert result["stdout"] == "A()\n5\n<class '__main__.A'>\n[A()]\n"
    assert mimes(result) == 2 * ["image/svg+xml", "text/html", "application/json"]
    data = [entry["data"] for entry in result["results"][:3]]
    assert data[:2] == ["<svg/>", "<b>ä\\ud800</b>"]
    assert json.loads(data[2]) == {"a": [1, None, "ä"]}
    assert (result["value"], result["error"], result["results_dropped"]) == ("A()", None, 0)


def test_no_value_is_needed(engine):
    result = ask(engine, "x = 1")
    assert (result["value"], result["results"], result["results_dropped"]) == (None, [], 0)


# -- hostile programs ----------------------------------------------------------

HOSTILE = {
    "raises": "raise ValueError('no\\nway')",
    "raises BaseException": "raise type('Evil', (BaseException,), {})()",
    "exits": "raise SystemExit(3)",
    "recurses": "return self._repr_html_()",
    "error without a text": "raise type('E', (Exception,), {'__str__': lambda self: 1/0})()",
    "a number": "return 5",
    "bytes": "return b'<b>'",
    "a lie": "return type('L', (), {'__class__': property(lambda self: str)})()",
    "huge": "return 'x' * (5 << 20)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_method_costs_its_own_form(cold, name):
    code = f"class A:\n    def __repr__(self): return 'A'\n    def _repr_svg_(self): return '<svg/>'\n" \
        f"    def _repr_html_(self): {HOSTILE[name]}\n    def _repr_json_(self): return [1]\nA()"
    result = ask(cold, code)
    assert (result["error"], result["exit_code"], result["value"]) == (None, 0, "A")
    assert mimes(result) == ["image/svg+xml", "application/json"]
    assert result["results_dropped"] == 1
    assert result["stderr"].startswith("hutch: not shown: ") and result["stderr"].count("\n") == 1


@pytest.mark.parametrize("method, value", [
    ("png", "b'GIF89a'"), ("png", "'text'"), ("png", "b''"), ("json", "'text'"),
    ("json", "{'a': float('nan')}"), ("json", "{1: {2}}"), ("svg", "b''"),
])
def test_a_malformed_form_is_left_out(cold, method, value):
    result = ask(cold, f"class A:\n    def _repr_{method}_(self): return {value}\nA(); A()")
    assert (result["error"], result["results"], result["results_dropped"]) == (None, [], 1)


def test_a_subclass_has_no_say(cold):
    code = """
class S(str):
    def __len__(self): return 0
    def __getitem__(self, key): raise SystemExit
    def encode(self, *_): raise SystemExit
    def __str__(self): raise SystemExit
class A:
    def _repr_html_(self): return S('<b>')
A()"""
    assert ask(cold, code)["results"] == [{"mime": "text/html", "data": "<b>"}]


def test_an_endless_method_meets_the_time_limit(cold):
    code = "class A:\n    def _repr_html_(self):\n        while True: pass\nA()"
    result = ask(cold, code, timeout_seconds=1)
    assert (result["error_type"], result["results"]) == ("timeout", [])
    assert result["value"].startswith("<__main__.A")


def test_an_interrupt_is_the_programs_end(cold):
    result = ask(cold, "class A:\n    def _repr_html_(self): raise KeyboardInterrupt\nA()")
    assert (result["exit_code"], result["results"]) == (130, [])


SHOW = "class H:\n    def __init__(self, n): self.n = n\n    def __repr__(self): return ''\n" \
    "    def _repr_html_(self): return 'x' * self.n\n"


@pytest.mark.parametrize("count", [MAX_COUNT - 1, MAX_COUNT, MAX_COUNT + 1, MAX_COUNT + 20])
def test_the_number_is_bounded(engine, count):
    result = ask(engine, f"{SHOW}for i in range({count}): display(H(i))")
    kept = min(count, MAX_COUNT)
    assert [len(entry["data"]) for entry in result["results"]] == list(range(kept))
    assert result["results_dropped"] == count - kept
    assert result["stderr"].count("hutch: not shown: text/html: ") == min(count - kept, 10)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_size_of_each_is_bounded(cold, over):
    result = ask(cold, f"{SHOW}display(H({MAX_EACH - HTML_HEAD + over}))\ndisplay(H(1))")
    sizes = [len(entry["data"]) for entry in result["results"]]
    assert sizes == ([] if over > 0 else [MAX_EACH - HTML_HEAD + over]) + [1]
    assert result["results_dropped"] == (over > 0)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_size_of_all_is_bounded(cold, over):
    large = MAX_EACH - HTML_HEAD
    rest = MAX_TOGETHER - MAX_EACH - 1000 - HTML_HEAD
    code = f"{SHOW}for n in ({large}, {rest}, {1000 - HTML_HEAD + over}): display(H(n))"
    result = ask(cold, code)
    assert [len(entry["data"]) for entry in result["results"]] == [
        large, rest, *([1000 - HTML_HEAD + over] if over <= 0 else [])]
    assert result["results_dropped"] == (over > 0)


def test_what_is_left_out_is_counted_to_an_end(cold):
    result = ask(cold, f"{SHOW}for i in range({MAX_COUNT + MAX_EMPTY + 50}): display(H(1))\n'end'")
    assert (len(result["results"]), result["results_dropped"]) == (MAX_COUNT, MAX_EMPTY)
    assert (result["value"], result["stderr"].count("\n")) == ("'end'", 10)


FORGE = f"""
import os, struct
RICH = {channel.RICH}
def send(kind, payload, length=None):
    data = struct.pack('=IHHI', len(payload) if length is None else length, kind, 0, 1) + payload
    while data:
        data = data[os.write(1000, data):]
"""
FORGED = {
    "good ones": ("send(RICH, b'text/html\\0<b>\\xff')\nsend(RICH, b'application/json\\0[1]')", 2, 0, "7"),
    "malformed": ("for p in (b'', b'x', b'text/plain\\0x', b'image/png\\0x', b'application/json\\0{'):"
                  " send(RICH, p)", 0, 5, "7"),
    "more than the runner": ("for i in range(100): send(RICH, b'text/html\\0x')", 64, 36, "7"),
    "too long": ("send(RICH, b'', (4 << 20) + 1)", 0, 0, None),
    "half of one": ("send(RICH, b'text/html\\0x', 1000)", 0, 0, None),
    "without end": ("try:\n    while True: send(RICH, b'x')\nexcept OSError: pass", 0, None, None),
    "a flood": ("try:\n    while True: send(RICH, b'text/html\\0' + b'x' * (1 << 20))\n"
                "except OSError: pass", 7, None, None),
    "deep": ("send(RICH, b'application/json\\0' + b'[' * (4 << 18) + b']' * (4 << 18))", 0, 1, "7"),
    "wide": ("send(RICH, b'application/json\\0[' + b'{},' * (1 << 20) + b'{}]')", 1, 0, "7"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_frames(cold, name):
    code, kept, dropped, value = FORGED[name]
    result = ask(cold, f"{FORGE}{code}\n7", timeout_seconds=20)
    assert (result["error"], result["exit_code"], result["value"]) == (None, 0, value)
    assert len(result["results"]) == kept
    assert dropped is None or result["results_dropped"] == dropped
    assert all("\udcff" not in entry["data"] for entry in result["results"])


def test_threads_and_signal_handlers_send_whole_frames(cold):
    code = SHOW + """
import signal, threading
def handle(*_):
    try:
        display(H(10))
    except RuntimeError:  # a print() in the middle of another
        pass
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
threads = [threading.Thread(target=lambda: [display(H(100000)) for _ in range(7)]) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
signal.setitimer(signal.ITIMER_REAL, 0)
'end'"""
    result = ask(cold, code, cpus=1)
    assert result["value"] == "'end'"
    assert {len(entry["data"]) for entry in result["results"]} <= {10, 100000}
    assert len(result["results"]) >= 28


# -- files of hutch run --------------------------------------------------------

SVG = "class S:\n    def _repr_svg_(self): return '<svg/>'\n    def _repr_html_(self): return ''\n" \
    "class P:\n    def _repr_png_(self):\n        return bytes.fromhex(" \
    "'89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de')\n"


def run_on_a_terminal(folder, cache_dir, *arguments):
    """The status and stderr of hutch run whose stdout is a terminal."""
    leader, terminal = pty.openpty()
    try:
        done = subprocess.run([HUTCH, "run", *arguments], cwd=folder, stdout=terminal,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                              env={"HUTCH_CACHE_DIR": str(cache_dir), "PATH": os.environ["PATH"]})
    finally:
        os.close(terminal)
        os.close(leader)
    return done.returncode, done.stderr


def test_figures_become_files_on_a_terminal(tmp_path, cache_dir):
    (tmp_path / "hutch-figure-2.png").write_text("mine")
    (tmp_path / "hutch-figure-3.svg").symlink_to("nowhere")
    code = SVG + "S()\ndisplay(P(), P(), S())\nimport sys; print('half', end='', file=sys.stderr); 1/0"
    status, stderr = run_on_a_terminal(tmp_path, cache_dir, "-c", code)
    lines = [line for line in stderr.splitlines() if line.startswith("hutch: ")]
    assert (status, lines) == (1, [f"hutch: hutch-figure-{name}" for name in ("1.png", "3.png", "4.svg")])
    assert (tmp_path / "hutch-figure-1.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "hutch-figure-2.png").read_text() == "mine"
    assert (tmp_path / "hutch-figure-4.svg").read_text() == "<svg/>"
    assert not (tmp_path / "nowhere").exists()
    assert run_on_a_terminal(tmp_path, cache_dir, "-q", "-c", SVG + "display(P())") == (0, "")
    assert (tmp_path / "hutch-figure-4.png").exists()


def test_no_files_elsewhere(tmp_path, cache_dir):
    code = SVG + "P()"
    assert run_on_a_terminal(tmp_path, cache_dir, "--json", "-c", code) == (0, "")
    done = subprocess.run([HUTCH, "run", "-c", code], cwd=tmp_path, capture_output=True,
                          env={"HUTCH_CACHE_DIR": str(cache_dir)})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_said(cache_dir):
    status, stderr = run_on_a_terminal("/proc", cache_dir, "-c", SVG + "P()")
    assert status == 0
    assert stderr.startswith("hutch: hutch-figure-1.png could not be written: ")
