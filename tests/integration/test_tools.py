# SPDX-License-Identifier: Apache-2.0
"""
The built-in tools of agents (src/agent/cell_tools.h) against real cells, by the program
tool_door: what a model is told of what it ran.

HUTCH_BUILD is the build folder.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading

import pytest

from session_lines import children, until

DOOR = pathlib.Path(os.environ["HUTCH_BUILD"]) / "tests/integration/tool_door"
PATIENCE = 180  # the first run of all makes the tree of files
ALL = "python_executor,code_interpreter,shell,read_file,write_file,list_files"
KEYS = ["stdout", "stderr", "exit_code", "timed_out", "error_type"]


class Tools:
    """The door, which is killed after PATIENCE."""

    def __init__(self, cache, **options):
        options = {"cache_dir": str(cache), "tools": ALL, **options}
        self.process = subprocess.Popen([DOOR, json.dumps(options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.patience = threading.Timer(PATIENCE, self.process.kill)
        self.patience.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        status = self.process.wait()
        self.patience.cancel()
        self.process.stdout.close()
        assert kind or status == 0

    def send(self, line):
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def take(self):
        line = self.process.stdout.readline()
        assert line, "the door has ended"
        return json.loads(line)

    def call(self, tool, _stop_at=None, **arguments):
        """All that is known of a call."""
        self.send({"tool": tool, "arguments": arguments, "stop_at": _stop_at})
        return self.take()

    def tell(self, tool, **arguments):
        """What the model is told of a call that does not fail."""
        call = self.call(tool, **arguments)
        assert not call["failed"], call
        return call["answer"]

    def run(self, tool, **arguments):
        """The same as JSON."""
        return json.loads(self.tell(tool, **arguments))

    def python(self, code):
        return self.run("code_interpreter", code=code)

    def kill_cells(self):
        """As if the cells were lost: kills all of their processes, until none is left."""
        supervisor = children(self.process.pid)[0]

        def gone():
            for pid in children(supervisor):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not children(supervisor)
        assert until(gone)


@pytest.fixture(scope="module", name="cache")
def fixture_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(name="tools")
def fixture_tools(cache):
    with Tools(cache) as tools:
        yield tools


# ---- python_executor ----

def test_the_first_keys_are_those_that_the_model_knows(tools):
    answer = tools.run("python_executor", code="```python\nprint(6 * 7)\n```")
    assert list(answer) == KEYS
    assert answer == {"stdout": "42\n", "stderr": "", "exit_code": 0, "timed_out": False,
                      "error_type": None}


def test_output_is_passed_on_and_the_cell_noted(tools):
    call = tools.call("python_executor", code="import sys; print('a'); print('b', file=sys.stderr)")
    assert (call["stdout"], call["stderr"], call["cells"]) == ("a\n", "b\n", 1)


def test_each_call_has_a_cell_of_its_own(tools):
    made = tools.run("python_executor", code="x = 1\nopen('f', 'w').write('1')\nprint(x)")
    assert made["files"] == [{"path": "f", "size": 1}] and "gone" in made["hint"]
    answer = tools.run("python_executor", code="import pathlib\nprint(pathlib.Path('f').exists())\n"
                                               "print(x)")
    assert answer["stdout"] == "False\n" and answer["exit_code"] == 1
    assert answer["error_type"] == "runtime_error"
    assert answer["error"]["class"] == "NameError" and answer["error"]["line"] == 3
    assert "Traceback" in answer["stderr"]


def test_a_refusal_says_what_is_allowed_instead(tools):
    answer = tools.run("python_executor", code="import os\nprint(os.getcwd())")
    assert (answer["exit_code"], answer["error_type"]) == (-2, "validation_error")
    assert answer["stderr"].startswith("Static analysis rejected code")
    assert "Nothing of the code has run" in answer["hint"] and "pathlib" in answer["hint"]


def test_a_time_out_names_limit_time_and_what_was_printed(cache):
    with Tools(cache, limits={"timeout_seconds": 1}) as tools:
        answer = tools.run("python_executor", code="print('so far', flush=True)\nwhile True: pass")
        assert answer["stdout"] == "so far\n"
        assert (answer["exit_code"], answer["timed_out"]) == (-1, True)
        assert answer["error_type"] == "timeout"
        assert "time limit of 1 s" in answer["error"]["message"]
        assert "stopped after 1" in answer["error"]["message"]
        assert "cannot be raised" in answer["hint"]


def test_a_memory_limit_is_named(cache):
    with Tools(cache, limits={"memory_mb": 128}) as tools:
        answer = tools.run("python_executor", code="x = bytearray(1 << 30)")
        assert answer["error_type"] == "resource_limit"
        assert "128 MB" in answer["error"]["message"] and "128 MB" in answer["hint"]


def test_input_that_nobody_gives_is_explained(tools):
    answer = tools.run("python_executor", code="n = int(input('how many? '))")
    assert answer["error"]["class"] == "EOFError"
    assert "No standard input was given" in answer["hint"]


def test_a_module_that_is_missing_is_explained(tools):
    answer = tools.run("python_executor", code="import not_there")
    assert answer["error_type"] == "import_error" and "installed" in answer["hint"]


def test_distributions_of_modules_that_are_missing_are_named(tools):
    """AG03; not all of them are missing everywhere."""
    code = "import no_module\nimport sklearn.linear_model, PIL.Image as i, cv2\nfrom yaml import load\n"
    code += "from bs4 import BeautifulSoup"
    hint = tools.run("python_executor", code=code)["hint"]
    for module, distribution in {"sklearn": "scikit-learn", "PIL": "Pillow", "yaml": "PyYAML",
                                 "cv2": "opencv-python", "bs4": "beautifulsoup4"}.items():
        assert f"{module} of the distribution {distribution}" in hint


def test_code_that_says_nothing_is_told_to_print(tools):
    assert "print" in tools.run("python_executor", code="x = 1")["hint"]
    assert "print" in tools.run("python_executor", code="x = 1\nx = 2")["hint"]


def test_a_figure_alone_is_said(tools):
    code = ("class Figure:\n"
            "    def _repr_svg_(self):\n"
            "        return '<svg xmlns=\"http://www.w3.org/2000/svg\"/>'\n"
            "    def __repr__(self):\n"
            "        return ''\n"
            "Figure()")
    answer = tools.run("python_executor", code=code)
    assert answer["figures"] == "1 figure" and answer["exit_code"] == 0


def test_head_tail_and_error_of_much_output_stay(tools):
    code = ("import sys\n"
            "print('begin')\n"
            "for i in range(70000): print('x' * 70)\n"
            "print('end')\n"
            "for i in range(70000): print('y' * 70, file=sys.stderr)\n"
            "raise ValueError('the reason')")
    call = tools.call("python_executor", code=code)
    answer = json.loads(call["answer"])
    assert len(call["answer"].encode()) <= 32 << 10
    assert answer["stdout"].startswith("begin\n") and answer["stdout"].endswith("x\nend\n")
    assert " bytes left out ...]" in answer["stdout"]
    assert answer["stderr"].endswith("ValueError: the reason\n")
    assert answer["error"]["message"] == "the reason"
    assert len(call["stdout"]) > 4 << 20, "all of it is passed on as it comes"


def test_a_cancelled_call_fails_at_once(tools):
    call = tools.call("python_executor", _stop_at="ready",
                      code="print('ready', flush=True)\nimport time\ntime.sleep(1000)")
    assert call["failed"] and call["answer"].startswith("Error: ") and "cancelled" in call["answer"]
    assert tools.run("python_executor", code="print(1)")["stdout"] == "1\n"


def test_bad_arguments_are_named(tools):
    call = tools.call("python_executor", code=3)
    assert call["failed"] and call["cells"] == 0
    assert call["answer"] == "Error: arguments: code: 3 is a whole number; allowed is string"
    assert tools.call("python_executor")["answer"] == "Error: arguments: code: is missing"
    assert "allowed are 'code'" in tools.call("python_executor", code="1", extra=1)["answer"]
    assert "code: empty" in tools.call("python_executor", code="")["answer"]
    assert tools.call("python_executor", code="print(1)\0")["failed"]


# ---- sessions ----

def test_state_stays_from_call_to_call(tools):
    tools.python("x = 20")
    assert tools.python("print(x + 1)")["stdout"] == "21\n"
    tools.run("code_interpreter", code="globalThis.y = 3", language="javascript")
    answer = tools.run("code_interpreter", code="console.log(y)", language="javascript")
    assert answer["stdout"] == "3\n"
    tools.run("shell", command="z=5; cd /tmp")
    answer = tools.run("code_interpreter", code="echo $z $PWD", language="shell")
    assert answer["stdout"] == "5 /tmp\n"


def test_there_is_no_gate_in_a_session(tools):
    assert tools.python("import os\nprint(os.path.basename('/a/b'))")["stdout"] == "b\n"


def test_a_language_that_is_unknown_is_refused_with_those_that_are_known(tools):
    call = tools.call("code_interpreter", code="1", language="perl")
    assert call["failed"] and "allowed are 'python', 'javascript', 'shell'" in call["answer"]
    assert tools.call("code_interpreter", code="print(2)", language=None)["answer"].startswith(
        '{"stdout":"2\\n"')


def test_files_go_from_one_language_to_the_other(tools):
    answer = tools.python("import pathlib\npathlib.Path('d').mkdir()\n"
                          "pathlib.Path('d/data.txt').write_text('one')\nprint('made')")
    assert answer["files"] == [{"path": "d/data.txt", "size": 3}] and "stay" in answer["hint"]
    answer = tools.run("shell", command="cat d/data.txt; echo two >> d/data.txt; : > empty")
    assert answer["stdout"] == "one"
    answer = tools.python("print(open('d/data.txt').read(), pathlib.Path('empty').stat().st_size)")
    assert answer["stdout"] == "onetwo\n 0\n"
    code = "const fs = require('fs'); console.log(fs.readFileSync('d/data.txt', 'utf8'))"
    assert tools.run("code_interpreter", code=code, language="javascript")["stdout"] == "onetwo\n\n"


def test_a_file_that_is_deleted_before_it_is_brought_is_not_brought(tools):
    tools.python("open('gone', 'w').write('1')")
    tools.python("import os; os.unlink('gone')")
    answer = tools.run("shell", command="ls | wc -l")
    assert answer["stdout"].strip() == "0" and "hint" not in answer


def test_a_file_that_is_too_large_to_be_brought_is_named(tools):
    tools.python("open('big', 'wb').truncate(17 << 20)\nopen('small', 'w').write('1')")
    answer = tools.run("shell", command="ls")
    assert answer["stdout"] == "small\n"
    assert "'big' of the python session could not be brought here" in answer["hint"]


def test_a_time_out_in_a_session_keeps_its_state(cache):
    with Tools(cache, limits={"timeout_seconds": 1}) as tools:
        tools.python("x = 7")
        answer = tools.python("print('partial', flush=True)\nwhile True: pass")
        assert answer["timed_out"] and answer["stdout"] == "partial\n"
        assert tools.python("print(x)")["stdout"] == "7\n"


def test_a_shell_that_dies_says_that_its_state_is_lost(tools):
    tools.run("shell", command="z=5; echo 1 > f")
    call = tools.call("shell", command="kill -9 $$")
    answer = json.loads(call["answer"])
    assert answer["state_lost"] and call["state_lost"]
    assert "state was reset" in answer["hint"] and "files are still there" in answer["hint"]
    call = tools.call("shell", command="echo \"<$z>\"; cat f")
    assert json.loads(call["answer"])["stdout"] == "<>\n1\n" and not call["state_lost"]


def test_a_session_that_is_lost_is_opened_anew_and_says_so(tools):
    tools.python("x = 1\nopen('f', 'w').write('1')")
    tools.kill_cells()
    call = tools.call("code_interpreter", code="print('x' in globals())")
    answer = json.loads(call["answer"])
    assert answer["stdout"] == "False\n" and answer["state_lost"] and call["state_lost"]
    assert "files are gone" in answer["hint"]
    call = tools.call("code_interpreter", code="print(2)")
    assert "state_lost" not in json.loads(call["answer"]) and not call["state_lost"]


def test_files_that_another_session_has_outlive_a_lost_one(tools):
    tools.python("open('f', 'w').write('kept')")
    tools.run("shell", command="true")
    tools.kill_cells()
    assert tools.call("read_file", path="f")["failed"]
    tools.tell("write_file", path="f", content="again")
    assert tools.run("shell", command="cat f")["stdout"] == "again"


def test_without_a_conversation_the_session_tools_fail(cache):
    with Tools(cache, no_conversation=True) as tools:
        for tool, arguments in [("code_interpreter", {"code": "1"}), ("shell", {"command": "1"}),
                                ("read_file", {"path": "f"}), ("list_files", {}),
                                ("write_file", {"path": "f", "content": ""})]:
            call = tools.call(tool, **arguments)
            assert call["failed"] and "conversation" in call["answer"]
        assert tools.run("python_executor", code="print(1)")["stdout"] == "1\n"


# ---- files ----

def test_files_are_there_before_any_session(tools):
    assert tools.tell("list_files") == "[]"
    answer = tools.tell("write_file", path="./a//b.txt", content="bé\n")
    assert answer == "Wrote 4 bytes to 'a/b.txt'."
    assert json.loads(tools.tell("list_files")) == [{"name": "a", "directory": True}]
    assert json.loads(tools.tell("list_files", path="a")) == [{"name": "b.txt", "size": 4}]
    assert tools.tell("read_file", path="a/b.txt") == "bé\n"
    assert tools.run("shell", command="cat a/b.txt")["stdout"] == "bé\n"
    tools.run("shell", command="echo new > a/b.txt")
    assert tools.tell("read_file", path="a/b.txt") == "new\n"
    assert tools.python("print(open('a/b.txt').read())")["stdout"] == "new\n\n"


def test_what_cannot_be_read_is_said(tools):
    tools.python("open('bin', 'wb').write(b'a\\0b')\nopen('big', 'wb').truncate(5 << 20)\n"
                 "open('none', 'w')")
    assert "no text but 3 bytes" in tools.call("read_file", path="bin")["answer"]
    assert "more than 4 MiB" in tools.call("read_file", path="big")["answer"]
    assert tools.tell("read_file", path="none") == "(the file is empty)"
    for path in ["missing", "../etc/passwd", "/etc/passwd", "a\0b"]:
        call = tools.call("read_file", path=path)
        assert call["failed"] and call["answer"].startswith("Error: "), path


def test_a_long_file_is_shown_by_head_and_tail(tools):
    tools.python("open('long', 'w').write('first\\n' + 'é' * 100000 + '\\nlast')")
    answer = tools.tell("read_file", path="long")
    assert answer.startswith("first\n") and answer.endswith("\nlast")
    assert "bytes left out" in answer and len(answer.encode()) <= 32 << 10


# ---- at once ----

def test_a_run_holds_up_no_other_call(tools):
    """The first ends only when the second has put its file, while it runs."""
    tools.python("pass")
    code = ("import pathlib, time\n"
            "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
            "print('went')")
    tools.send({"calls": [{"tool": "code_interpreter", "arguments": {"code": code}},
                          {"tool": "write_file", "arguments": {"path": "go", "content": ""}},
                          {"tool": "python_executor", "arguments": {"code": "print(1)"}}]})
    answers = {call["number"]: call for call in (tools.take() for _ in range(3))}
    assert json.loads(answers[0]["answer"])["stdout"] == "went\n"
    assert json.loads(answers[2]["answer"])["stdout"] == "1\n"


def test_many_first_calls_at_once_share_one_session(tools):
    tools.send({"calls": [{"tool": "code_interpreter", "arguments": {"code": f"x{i} = {i}"}}
                          for i in range(4)]})
    assert sorted(tools.take()["number"] for _ in range(4)) == [0, 1, 2, 3]
    assert tools.python("print(x0 + x1 + x2 + x3)")["stdout"] == "6\n"


# ---- options ----

@pytest.mark.parametrize("options, problem", [
    ({"tools": "python_executor,perl"}, "'perl' is not known; allowed are python_executor"),
    ({"limits": {"timeout_seconds": 1000}}, "cells: timeout_seconds"),
    ({"limits": {"memory_mb": 1}}, "cells: memory_mb"),
])
def test_bad_options_are_named(cache, options, problem):
    options = {"cache_dir": str(cache), "tools": ALL, **options}
    end = subprocess.run([DOOR, json.dumps(options)], stdin=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    assert end.returncode == 2 and problem in end.stderr.decode()
