# SPDX-License-Identifier: Apache-2.0
"""
`hutch agent` against a scripted model server: its options, its errors, its exit statuses, what
it shows, on a terminal too, and the file of --session.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import threading
import time

import pytest
from model_server import DONE, Server, completion, event, finish, hang, plain, send, stream
from terminal import Terminal, descendants, in_cells

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
HUTCH = os.environ.get("HUTCH") or str(BUILD / "hutch")
PATIENCE = 60
KEY = "sk-very-secret-0123456789"
FOREIGN = re.compile(r"_proxy$|^(OPENAI|OPENROUTER)_|^HUTCH_MODEL$|^NO_COLOR$", re.IGNORECASE)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
ENVIRONMENT.setdefault("HUTCH_CACHE_DIR", str(BUILD / "tests/cache"))
ENVIRONMENT["TERM"] = "xterm"


def command(server, *arguments):
    url = server.url if isinstance(server, Server) else server
    return [HUTCH, "agent", "--base-url", url, "--model", "m", *arguments]


def agent(server, *arguments, environment=None, **keywords):
    keywords.setdefault("stdin", subprocess.DEVNULL if "input" not in keywords else None)
    if keywords["stdin"] is None:
        del keywords["stdin"]
    return subprocess.run(command(server, *arguments), capture_output=True, text=True,
                          timeout=PATIENCE, check=False, env={**ENVIRONMENT, **(environment or {})},
                          **keywords)


def ask(answer, *arguments, **keywords):
    """One question to a server that has one answer; both are looked at."""
    with Server(answer) as server:
        done = agent(server, *arguments, **keywords)
    return done, [request.body for request in server.requests]


def call(code, name="python_executor", number=1, text=None, **arguments):
    """A reply that calls a tool."""
    function = {"name": name, "arguments": json.dumps({"code": code, **arguments})}
    return plain(completion(text, "tool_calls", tool_calls=[
        {"id": f"call_{number}", "type": "function", "function": function}]))


def streamed_call(code, name="python_executor", text=None):
    function = {"name": name, "arguments": json.dumps({"code": code})}
    chunk = event(tool_calls=[{"index": 0, "id": "call_1", "type": "function",
                               "function": function}])
    return stream(*([event(content=text)] if text else []), chunk, finish("tool_calls"), DONE)


def streamed(*words):
    return stream(*(event(content=word) for word in words), finish(), DONE)


def one_line(text):
    assert text.startswith("hutch") and text.count("\n") == 1 and text.endswith("\n"), text
    return text


# ---- questions and answers ----

@pytest.mark.parametrize("arguments, given", [
    (["one and one?"], {}), (["-"], {"input": "one and one?"}),
    ([], {"input": "one and one?\n"}), (["--", "one and one?"], {})])
def test_ways_to_ask(arguments, given):
    done, bodies = ask(plain(completion("two")), *arguments, **given)
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\n", "")
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user"]
    assert bodies[0]["messages"][1]["content"] == "one and one?"


def test_defaults_of_a_request():
    _, (body,) = ask(plain(completion()), "hi")
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.1, 4096)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["python_executor"]
    assert not body.get("stream")


def test_options_of_a_request(tmp_path):
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "system").write_text("Be brief.")
    with Server(plain(completion())) as server:
        done = agent(server, "--key-file", tmp_path / "key", "--header", "X-One: 1", "--header",
                     "X-Two: 2", "--temperature", "1.5", "--max-tokens", "0", "--extra",
                     '{"top_p": 0.5}', "--tools", "shell,read_file", "--system",
                     tmp_path / "system", "hi")
    assert done.returncode == 0
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.headers["x-one"], request.headers["x-two"]) == ("1", "2")
    body = request.body
    assert (body["temperature"], body["top_p"]) == (1.5, 0.5) and "max_tokens" not in body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["shell", "read_file"]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_further_members_of_a_request(tmp_path):
    extra = {"response_format": {"type": "json_object"}, "max_completion_tokens": 9,
             "tool_choice": "auto", "parallel_tool_calls": False}
    _, (body,) = ask(plain(completion()), "--extra", json.dumps(extra), "hi")
    assert extra.items() <= body.items() and "max_tokens" not in body
    (tmp_path / "schema").write_text('{"type": "object"}')
    done = agent("http://127.0.0.1:9/v1", "--extra", json.dumps(extra), "--schema",
                 tmp_path / "schema", "hi")
    assert done.returncode == 2
    assert "option '--extra': response_format: the schema sets it" in one_line(done.stderr)


def test_nothing_is_sent_that_is_switched_off(tmp_path):
    (tmp_path / "system").write_text("")
    _, (body,) = ask(plain(completion()), "--temperature", "-1", "--tools", "", "--system",
                     tmp_path / "system", "hi")
    assert "temperature" not in body and "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_model_and_key_of_the_environment():
    with Server(plain(completion())) as server:
        done = subprocess.run([HUTCH, "agent", "hi"], capture_output=True, timeout=PATIENCE,
                              env={**ENVIRONMENT, "HUTCH_MODEL": "of-mine", "OPENAI_API_KEY": KEY,
                                   "OPENAI_BASE_URL": server.url}, check=False)
    assert (done.returncode, done.stdout) == (0, b"Hi\n")
    assert server.requests[0].body["model"] == "of-mine"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_limits_of_cells():
    with Server(call("x = bytearray(300 << 20)"), call("while True: pass", number=2),
                plain(completion("done"))) as server:
        done = agent(server, "-m", "128", "-t", "0.5", "--cpus", "0.5", "--json", "hi")
    result = json.loads(done.stdout)
    assert [cell["error_type"] for cell in result["cells"]] == ["resource_limit", "timeout"]


# ---- bad command lines ----

@pytest.mark.parametrize("arguments, words", [
    (["--temperature", "3", "hi"], "'--temperature': value '3'"),
    (["--max-steps", "0", "hi"], "'--max-steps'"),
    (["--max-tokens", "x", "hi"], "'--max-tokens'"),
    (["--retries", "101", "hi"], "'--retries'"),
    (["--timeout-total", "0", "hi"], "'--timeout-total'"),
    (["-t", "301", "hi"], "'-t'"),
    (["--tools", "python_executor,magic", "hi"], "magic"),
    (["--require", "moat", "hi"], "moat"),
    (["--header", "no colon", "hi"], "header"),
    (["--extra", "[1]", "hi"], "extra"),
    (["--schema", "/dev/null", "hi"], "schema"),
    (["--system", "/nonexistent", "hi"], "system: file '/nonexistent'"),
    (["--base-url", "ftp://x", "hi"], "ftp"),
    (["--wat", "hi"], "'--wat'"),
    (["hi", "there"], "'there'"),
    ([""], "argument QUESTION: is empty"),
    ([" \t\n"], "argument QUESTION: is empty"),
    ([], "standard input: is empty"),
    (["--base-url", "http://127.0.0.1:99999/v1", "hi"], "99999"),
    (["--base-url", "http://host:abc/v1", "hi"], "host:abc"),
    (["--base-url", "http://[::1", "hi"], "[::1"),
    (["--base-url", b"http://h\xff/v1", "hi"], "base URL"),
    (["--tools", "nope", "hi"], "option '--tools': 'nope'"),
    (["--header", "no colon", "hi"], "option '--header': not 'Name: value'"),
    (["--extra", '{"model": "m"}', "hi"], "option '--extra': model"),
    (["-m", "32", "hi"], "option '-m': 32"),
    (["--session", "/nonexistent/s.json", "hi"], "/nonexistent"),
    (["--session", "/etc", "hi"], "directory"),
    (["--key-file", "/nonexistent", "hi"], "/nonexistent"),
    (["--system", "-", "-"], "'-'"),
])
def test_bad_command_line(arguments, words):
    done = subprocess.run([HUTCH, "agent", "--model", "m", "--base-url", "http://127.0.0.1:9/v1",
                           *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in one_line(done.stderr)
    assert done.stderr.startswith("hutch agent: ")


def test_bad_schema_is_named(tmp_path):
    (tmp_path / "schema").write_text('{"type": "object", "unevaluatedItems": false}')
    done = agent("http://127.0.0.1:9/v1", "--schema", tmp_path / "schema", "--json", "hi")
    assert done.returncode == 2 and "unevaluatedItems" in one_line(done.stderr)
    assert json.loads(done.stdout)["error"]["code"] == "invalid_request"


# ---- the program hutch-agent ----

def copy_of_hutch(tmp_path):
    shutil.copy(HUTCH, tmp_path / "hutch")
    helpers = tmp_path / "libexec/hutch"
    helpers.mkdir(parents=True)
    shutil.copy(BUILD / "libexec/hutch/hutch-supervisor", helpers)
    return str(tmp_path / "hutch"), helpers


@pytest.mark.parametrize("arguments", [["agent", "hi"], ["bench", "--agent"]])
def test_hutch_agent_is_missing(tmp_path, arguments):
    program, helpers = copy_of_hutch(tmp_path)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                          check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (125, "")
    assert str(helpers / "hutch-agent")[:60] in one_line(done.stderr)


def test_hutch_agent_of_another_version():
    done = subprocess.run([BUILD / "libexec/hutch/hutch-agent", "9.8.7", "agent", "--json", "hi"],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 125
    assert "'9.8.7'" in one_line(done.stderr)
    assert json.loads(done.stdout)["error"]["code"] == "helper_failed"


def test_hutch_itself_has_no_libcurl():
    needed = [subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
              for program in (HUTCH, BUILD / "libexec/hutch/hutch-agent")]
    assert ["libcurl" in text for text in needed] == [False, True]


# ---- how it ends ----

REFUSAL = {"choices": [{"index": 0, "finish_reason": "stop",
                        "message": {"role": "assistant", "content": None, "refusal": "I won't."}}]}


@pytest.mark.parametrize("answer, status, shown, words", [
    (plain(completion("half", "length")), 0, "half\n", "--max-tokens 4096"),
    (plain(completion("half", "content_filter")), 1, "half\n", "filter"),
    (plain(REFUSAL), 1, "I won't.\n", "refused"),
])
def test_exit_statuses(answer, status, shown, words):
    done, _ = ask(answer, "hi")
    assert (done.returncode, done.stdout) == (status, shown)
    assert words in one_line(done.stderr)


def test_step_limit():
    with Server(call("print(1)"), plain(completion("one"))) as server:
        done = agent(server, "--max-steps", "1", "hi")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "1 steps (--max-steps)" in one_line(done.stderr)


def test_token_budget():
    with Server(call("print(1)"), plain(completion("one"))) as server:
        done = agent(server, "--max-total-tokens", "1", "hi")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "--max-total-tokens" in one_line(done.stderr)


def test_schema(tmp_path):
    (tmp_path / "schema").write_text('{"type": "object", "required": ["n"], "properties": '
                                     '{"n": {"type": "integer"}}}')
    with Server(plain(completion('{"n": "x"}')), plain(completion('{"n": 2}'))) as server:
        done = agent(server, "--tools", "", "--schema", tmp_path / "schema", "hi")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"n": 2}, "")
    with Server(plain(completion('{"n": "x"}')), plain(completion('{"n": "y"}'))) as server:
        done = agent(server, "--tools", "", "--schema", tmp_path / "schema", "hi")
    assert done.returncode == 1 and len(server.requests) == 2
    assert "does not follow the schema: n: " in one_line(done.stderr)


def test_time_limit():
    begun = time.monotonic()
    done, _ = ask(hang, "--timeout-total", "1", "hi")
    assert (done.returncode, done.stdout) == (124, "") and time.monotonic() - begun < 5
    assert "1 s exceeded (--timeout-total)" in one_line(done.stderr)


def test_no_key():
    done = agent("https://api.openai.com/v1", "hi")
    assert (done.returncode, done.stdout) == (125, "")
    assert "OPENAI_API_KEY" in one_line(done.stderr)


def test_key_file_that_is_a_pipe():
    """It can be read once."""
    with Server(plain(completion())) as server:
        ours, theirs = os.pipe()
        os.write(theirs, KEY.encode() + b"\n")
        os.close(theirs)
        done = subprocess.run([HUTCH, "agent", "--base-url", server.url, "--model", "m",
                               "--key-file", f"/dev/fd/{ours}", "hi"], capture_output=True,
                              timeout=PATIENCE, env=ENVIRONMENT, pass_fds=(ours,), check=False)
        os.close(ours)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hi\n", b"")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_key_file_that_is_missing():
    done = agent("http://127.0.0.1:9/v1", "--key-file", "/nonexistent", "hi")
    assert (done.returncode, done.stdout) == (2, "") and "/nonexistent" in one_line(done.stderr)


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "https://openrouter.ai/api/v1"])
def test_no_key_names_the_variable_of_the_server(url):
    line = one_line(agent(url, "--retries", "0", "hi").stderr)
    assert ("OPENAI_API_KEY" in line) == ("openai" in url)
    assert "OPENROUTER_API_KEY" in line and "--key-file" in line


def test_key_that_is_not_for_this_server():
    done, _ = ask(plain("no", 401), "hi", environment={"OPENROUTER_API_KEY": KEY})
    assert "no API key was sent: set OPENAI_API_KEY" in one_line(done.stderr)
    assert "OPENROUTER" not in done.stderr and "--key-file" in done.stderr


def test_key_file_with_a_byte_order_mark(tmp_path):
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbf" + KEY.encode() + b"\r\n")
    with Server(plain(completion())) as server:
        assert agent(server, "--key-file", tmp_path / "key", "hi").returncode == 0
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_tools_with_blanks():
    _, (body,) = ask(plain(completion()), "--tools", "shell, read_file", "hi")
    assert [tool["function"]["name"] for tool in body["tools"]] == ["shell", "read_file"]


@pytest.mark.parametrize("status, path, words", [
    (403, "/v1", "check the key's rights"), (404, "/v1", "check the model's name and the base URL"),
    (404, "", "is the /v1 missing"), (404, "/v1/chat/completions", "must not have /chat/completions"),
    (429, "/v1", "try again later"), (500, "/v1", "try again later"),
])
def test_statuses_say_what_to_do(status, path, words):
    with Server(plain("<html><body>No.</body></html>", status)) as server:
        done = agent(server.url.removesuffix("/v1") + path, "--retries", "0", "hi")
    assert done.returncode == 125 and words in one_line(done.stderr)
    assert f"HTTP {status}: a page of HTML" in done.stderr and "<" not in done.stderr


def test_https_to_a_server_of_http():
    with Server(plain(completion())) as server:
        done = agent(server.url.replace("http:", "https:"), "--retries", "0", "hi")
    assert done.returncode == 125 and "; is it a server of http:// instead?" in one_line(done.stderr)
    assert " ;" not in done.stderr


def test_answer_that_nobody_can_get():
    with Server(plain(completion("two"))) as server:
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command(server, "hi")],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=PATIENCE, check=False, env=ENVIRONMENT)
    assert done.returncode == 125 and "write the output" in one_line(done.stderr)


def test_nobody_listens():
    done = agent("http://127.0.0.1:1/v1", "--retries", "0", "hi")
    assert (done.returncode, done.stdout) == (125, "") and "127.0.0.1:1" in one_line(done.stderr)


def test_key_is_in_no_message():
    words = {"error": {"message": f"Incorrect API key provided: {KEY}\n\x1b[2J"}}
    for options in ([], ["--json"], ["--stream", "--json"]):
        done, _ = ask(plain(words, 401), *options, "hi", environment={"OPENAI_API_KEY": KEY})
        assert done.returncode == 125 and "Incorrect API key" in one_line(done.stderr)
        assert KEY not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr


def test_result_of_an_error():
    done, _ = ask(plain({"error": {"message": "no such thing"}}, 404), "--json", "hi")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_reason"]) == (125, "model_error")
    assert "no such thing" in result["error"]["message"]


def test_reader_that_goes_away():
    with Server(streamed(*["word "] * 100, "\n")) as server:
        process = subprocess.Popen(command(server, "--stream", "hi"), stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 141


# ---- JSON ----

def test_result_as_json():
    with Server(call("print(6 * 7)"), plain(completion("42"))) as server:
        done = agent(server, "--json", "hi")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    result = json.loads(done.stdout)
    assert (result["answer"], result["exit_reason"]) == ("42", "text")
    assert (result["code_executed"], result["tool_calls"], result["step_count"]) == (True, 1, 2)
    assert [cell["exit_code"] for cell in result["cells"]] == [0]
    assert [message["role"] for message in result["messages"]][-3:] == ["assistant", "tool",
                                                                       "assistant"]


def test_events_as_json():
    code = "import sys\nprint('é', flush=True)\nprint('no', file=sys.stderr)"
    with Server(streamed_call(code, text="Let me see."), streamed("It ", "is.")) as server:
        done = agent(server, "--stream", "--json", "hi")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in events if line["event"] != "tool_output"] == [
        "step", "message", "tool_call", "tool_result", "step", "message", "message", "result"]
    assert [line["step"] for line in events[:-1]][0::len(events) - 2] == [1, 2]
    (tool_call,) = [line for line in events if line["event"] == "tool_call"]
    assert tool_call["name"] == "python_executor" and tool_call["arguments"] == {"code": code}
    output = {(line["stream"], line["text"]) for line in events if line["event"] == "tool_output"}
    assert output == {("stdout", "é\n"), ("stderr", "no\n")}
    (result,) = [line for line in events if line["event"] == "tool_result"]
    assert not result["failed"] and result["cell"]["exit_code"] == 0
    assert events[-1]["answer"] == "It is." and events[-1]["exit_reason"] == "text"


def test_character_in_two_pieces():
    code = ("import sys, time\nfor piece in (b'\\xc3', b'\\xa9', b'\\xe2\\x82'):\n"
            "    sys.stdout.buffer.write(piece)\n    sys.stdout.flush()\n    time.sleep(0.1)")
    with Server(streamed_call(code), streamed("ok")) as server:
        done = agent(server, "--stream", "--json", "hi")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(line["text"] for line in events if line["event"] == "tool_output") == "é\ufffd"


def test_error_as_the_last_event(tmp_path):
    (tmp_path / "session").write_text("{}")
    done = agent("http://127.0.0.1:9/v1", "--stream", "--json", "--session", tmp_path / "session",
                 "hi")
    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, line["event"]) == (2, "error")
    assert "session" in line["error"]["message"]


# ---- text as it comes ----

TRANSCRIPT = """\
Let me compute it.

[1] python_executor
    import sys
    print(2**10)
    print('careful', file=sys.stderr)
1| 1024
1! careful
1= exit code 0, N ms, N MiB

2 to the power of 10
is 1024.
"""


def test_transcript():
    code = "import sys\nprint(2**10)\nprint('careful', file=sys.stderr)"
    with Server(streamed_call(code, text="Let me compute it."),
                streamed("2 to the power", " of 10\nis ", "1024.")) as server:
        done = agent(server, "--stream", "hi")
    text = re.sub(r"\d+ ms, [\d.]+ MiB", "N ms, N MiB", done.stdout)
    if "1! careful\n1| 1024\n" in text:  # each stream has its own order
        text = text.replace("1! careful\n1| 1024\n", "1| 1024\n1! careful\n")
    assert (done.returncode, done.stderr, text) == (0, "", TRANSCRIPT)


def test_calls_at_once_are_told_apart():
    functions = [{"name": "python_executor", "arguments": '{"code": "print(1)"}'},
                 {"name": "code_interpreter",
                  "arguments": '{"language": "shell", "code": "echo 2\\necho 3 >&2"}'},
                 {"name": "magic", "arguments": "{}"}]
    chunk = event(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function",
                               "function": function} for index, function in enumerate(functions)])
    with Server(stream(chunk, finish("tool_calls"), DONE), streamed("ok")) as server:
        done = agent(server, "--stream", "--tools", "python_executor,code_interpreter", "hi")
    head, end, rest = done.stdout.partition("[3] magic\n")
    assert end and head == ('[1] python_executor\n    print(1)\n'
                            '[2] code_interpreter {"language":"shell"}\n'
                            '    echo 2\n    echo 3 >&2\n')
    lines = re.sub(r"exit code 0, \d+ ms.*", "exit code 0", rest).splitlines()
    assert lines[-2:] == ["", "ok"]
    assert sorted(line for line in lines[:-2] if not line.startswith("3=")) == [
        "1= exit code 0", "1| 1", "2! 3", "2= exit code 0", "2| 2"]
    assert [line for line in lines if line.startswith("3= Error: ") and "magic" in line]


def test_text_is_there_before_the_reply_is_complete():
    seen = threading.Event()
    with Server(stream(event(content="early "), lambda _: seen.wait(PATIENCE), event(content="late"),
                       finish(), DONE)) as server:
        process = subprocess.Popen(command(server, "--stream", "hi"), stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        assert os.read(process.stdout.fileno(), 100) == b"early "
        seen.set()
        assert process.communicate(timeout=PATIENCE)[0] == b"late\n"


def test_output_of_a_cell_is_there_before_its_end():
    code = "import time\nprint('first', flush=True)\nwhile True: time.sleep(0.02)"
    with Server(streamed_call(code), streamed("over")) as server:
        process = subprocess.Popen(command(server, "--stream", "-t", "3", "hi"), text=True,
                                   stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env=ENVIRONMENT)
        for line in process.stdout:
            if line == "1| first\n":
                break
        assert len(server.requests) == 1  # the model has not been told
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0] == ""
        assert process.returncode == 130


def test_failures_are_shown():
    with Server(streamed_call("1 / 0"), streamed("no")) as server:
        done = agent(server, "--stream", "hi")
    assert re.search(r"^1! ZeroDivisionError|^1= runtime_error, exit code 1, ", done.stdout, re.M)
    with Server(streamed_call("import os"), streamed("no")) as server:
        done = agent(server, "--stream", "hi")
    assert "1= validation_error, refused by the gate" in done.stdout


def test_reasoning_is_marked():
    with Server(stream(event(reasoning_content="Hm.\nWell."), event(content="Yes."), finish(),
                       DONE)) as server:
        done = agent(server, "--stream", "hi")
    assert done.stdout == "~ Hm.\n~ Well.\n\nYes.\n"


# ---- escape sequences ----

NASTY = "\x1b]0;title\x07\x1b[2Jred\x9b31m\b\u202e\u2066\r\nend"
NICE = "\ufffd]0;title\ufffd\ufffd[2Jred\ufffd31m\ufffd\ufffd\ufffd\nend\n"


@pytest.mark.parametrize("options, answer", [
    ([], plain(completion(NASTY))), (["--stream"], streamed(NASTY))])
def test_no_control_characters_of_the_model(options, answer):
    done, _ = ask(answer, *options, "hi")
    assert done.stdout == NICE


def test_no_control_characters_of_a_cell_on_a_terminal():
    code = f"print({NASTY!r})"
    with Server(streamed_call(code), streamed(NASTY)) as server:
        with Terminal(command(server, "--stream", "hi"), ENVIRONMENT) as terminal:
            shown = terminal.wait()
    assert terminal.status == 0
    plain_text = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert shown != plain_text  # there were colours, and nothing else
    assert "\x1b" not in plain_text and "\x07" not in plain_text and "\x9b" not in plain_text
    assert "\b" not in plain_text and plain_text.count("\ufffd[2Jred") >= 2


def test_no_colours():
    with Server(streamed_call("print(1)"), streamed("one")) as server:
        with Terminal(command(server, "--stream", "hi"),
                      {**ENVIRONMENT, "NO_COLOR": "1"}) as terminal:
            assert "\x1b" not in terminal.wait()


def test_calls_on_a_terminal():
    with Server(call("print(1)"), plain(completion("one"))) as server:
        with Terminal(command(server, "hi"), ENVIRONMENT) as terminal:
            shown = terminal.wait()
    assert re.fullmatch(r"\[1\] python_executor: exit code 0, \d+ ms(, [\d.]+ MiB)?\r\none\r\n",
                        shown)


# ---- the prompt ----

SLEEPS = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.02)"


def test_prompt():
    with Server(plain(completion("one")), plain(completion("two"))) as server:
        with Terminal(command(server), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("first\n")
            assert "one\r\n" in terminal.await_text("hutch> ")
            terminal.type("\n")  # nothing is asked
            terminal.await_text("hutch> ")
            terminal.type("second\n")
            assert "two\r\n" in terminal.await_text("hutch> ")
            terminal.type("\x04")
            terminal.wait()
    assert terminal.status == 0
    contents = [message["content"] for message in server.requests[1].body["messages"][1:]]
    assert contents == ["first", "one", "second"]


def test_prompt_goes_on_after_an_error():
    with Server(plain({"error": {"message": "not this"}}, 400), plain(completion("two"))) as server:
        with Terminal(command(server), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("first\n")
            assert "not this" in terminal.await_text("hutch> ")
            terminal.type("second\n")
            assert "two\r\n" in terminal.await_text("hutch> ")
            terminal.type("\x04")
            terminal.wait()
    assert terminal.status == 0


def test_line_that_a_terminal_cuts():
    with Server(plain(completion("one"))) as server:
        with Terminal(command(server), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("x" * 5000 + "\n")
            assert "was not asked" in terminal.await_text("hutch> ")
            terminal.type("short\n")
            assert "one\r\n" in terminal.await_text("hutch> ")
            terminal.type("\x04")
            terminal.wait()
    assert [request.body["messages"][-1]["content"] for request in server.requests] == ["short"]


def test_interrupt_of_a_cell_leads_to_the_prompt():
    with Server(streamed_call(SLEEPS), streamed("again")) as server:
        with Terminal(command(server, "--stream"), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("first\n")
            terminal.await_text("up\r\n")
            assert in_cells(terminal.pid)
            pressed = time.monotonic()
            terminal.type("\x03")
            assert "interrupted" in terminal.await_text("hutch> ")
            while in_cells(terminal.pid):
                assert time.monotonic() - pressed < 1
            assert time.monotonic() - pressed < 1
            terminal.type("second\n")
            assert "again\r\n" in terminal.await_text("hutch> ")
            terminal.type("\x04")
            terminal.wait()
    assert terminal.status == 0


def test_interrupt_of_the_model_leads_to_the_prompt():
    with Server(hang, plain(completion("again"))) as server:
        with Terminal(command(server), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("first\n")
            assert server.asked.wait(PATIENCE)
            pressed = time.monotonic()
            terminal.type("\x03")
            assert "^C\r\nhutch: interrupted" in terminal.await_text("hutch> ")
            assert time.monotonic() - pressed < 1
            assert server.gone.wait(PATIENCE)
            terminal.type("second\n")
            assert "again\r\n" in terminal.await_text("hutch> ")
            terminal.type("\x04")
            terminal.wait()
    assert terminal.status == 0


def test_interrupt_at_the_prompt_forgets_the_line():
    with Server(plain(completion("one"))) as server:
        with Terminal(command(server), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("not this\x03")
            terminal.await_text("hutch> ")
            terminal.type("this\n")
            terminal.await_text("one\r\n")
            terminal.await_text("hutch> ")
            os.kill(terminal.pid, signal.SIGTERM)
            terminal.wait()
    assert terminal.status == 143
    assert server.requests[0].body["messages"][-1]["content"] == "this"


def test_interrupt_of_a_question_ends_hutch():
    with Server(streamed_call(SLEEPS)) as server:
        with Terminal(command(server, "--stream", "hi"), ENVIRONMENT) as terminal:
            terminal.await_text("up\r\n")
            left = descendants(terminal.pid)
            assert left
            terminal.type("\x03")
            terminal.wait()
    assert terminal.status == 130
    assert not [pid for pid in left if pathlib.Path("/proc", str(pid), "ns").exists()]


# ---- sessions ----

def test_session_goes_on(tmp_path):
    path = tmp_path / "session.json"
    for question, answer in (("first", "one"), ("second", "two")):
        done, (body,) = ask(plain(completion(answer)), "--session", path, question)
        assert (done.returncode, done.stdout, done.stderr) == (0, answer + "\n", "")
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant",
                                                                 "user"]
    content = json.loads(path.read_text())
    assert content["version"] == 1 and sorted(content) == ["messages", "version"]
    assert [message["content"] for message in content["messages"]] == ["first", "one", "second",
                                                                       "two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["session.json"]


def test_session_keeps_calls(tmp_path):
    path = tmp_path / "session.json"
    with Server(call("print(6 * 7)"), plain(completion("42"))) as server:
        assert agent(server, "--session", path, "first").returncode == 0
    _, (body,) = ask(plain(completion("yes")), "--session", path, "sure?")
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "42" in body["messages"][3]["content"]


def test_session_is_kept_after_a_failed_answer(tmp_path):
    path = tmp_path / "session.json"
    for answer in (plain({"error": {"message": "no"}}, 400), plain(completion("one"))):
        done, (body,) = ask(answer, "--session", path, "hi")
    assert done.returncode == 0
    content = [message["content"] for message in json.loads(path.read_text())["messages"]]
    assert content[0] == "hi" and content[-2:] == ["hi", "one"]


def test_session_of_the_prompt(tmp_path):
    path = tmp_path / "session.json"
    with Server(plain(completion("one"))) as server:
        with Terminal(command(server, "--session", str(path)), ENVIRONMENT) as terminal:
            terminal.await_text("hutch> ")
            terminal.type("first\n")
            terminal.await_text("hutch> ")
            saved = [message["content"] for message in json.loads(path.read_text())["messages"]]
            done = agent(server, "--session", path, "too")
            terminal.type("\x04")
            terminal.wait()
    assert saved == ["first", "one"]
    assert done.returncode == 125 and "is in use" in one_line(done.stderr)
    done, _ = ask(plain(completion("two")), "--session", path, "second")
    assert done.returncode == 0


@pytest.mark.parametrize("content, words", [
    ("hello", "is no session"), ("[]", "is no session"),
    ('{"version": 1}', "is no session"), ('{"version": 2, "messages": []}', "version 2"),
    ('{"version": 1, "messages": [{"role": "who"}]}', "messages[0]: role"),
])
def test_foreign_file_is_refused_and_left(tmp_path, content, words):
    path = tmp_path / "session.json"
    path.write_text(content)
    done = agent("http://127.0.0.1:9/v1", "--session", path, "hi")
    assert done.returncode == 2 and words in one_line(done.stderr)
    assert path.read_text() == content and os.listdir(tmp_path) == ["session.json"]


def test_session_of_an_empty_file_keeps_its_mode(tmp_path):
    path = tmp_path / "session.json"
    path.touch()
    path.chmod(0o640)
    done, _ = ask(plain(completion("one")), "--session", path, "first")
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert len(json.loads(path.read_text())["messages"]) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_session_that_is_no_file(tmp_path):
    (tmp_path / "real").write_text('{"version": 1, "messages": []}')
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("link", "symbolic link"), ("folder", "directory"), ("folder/", "directory"),
                        ("fifo", "not a regular file"), ("none/x", "folder")):
        done = agent("http://127.0.0.1:9/v1", "--session", str(tmp_path / name) + (
            "/" if name.endswith("/") else ""), "hi")
        assert done.returncode == 2 and words in one_line(done.stderr), name
    assert (tmp_path / "link").is_symlink()


def test_session_that_somebody_has(tmp_path):
    path = tmp_path / "session.json"
    path.write_text('{"version": 1, "messages": []}')
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = agent("http://127.0.0.1:9/v1", "--session", path, "--json", "hi")
    assert done.returncode == 125 and "is in use" in one_line(done.stderr)
    assert json.loads(done.stdout)["error"]["retry_safe"]


def test_session_after_an_interrupt(tmp_path):
    path = tmp_path / "session.json"
    with Server(streamed_call(SLEEPS), streamed("fine")) as server:
        with Terminal(command(server, "--stream", "--session", str(path), "hi"),
                      ENVIRONMENT) as terminal:
            terminal.await_text("up\r\n")
            terminal.type("\x03")
            terminal.wait()
        assert terminal.status == 130
        done = agent(server, "--stream", "--session", path, "and now?")
    assert (done.returncode, done.stdout) == (0, "fine\n")
    roles = [message["role"] for message in server.requests[1].body["messages"]]
    assert roles[:4] == ["system", "user", "assistant", "tool"]
