# SPDX-License-Identifier: Apache-2.0
"""
`hutch agent` and the offline model: questions, each of which is answered by code that runs in
cells; everything that servers get wrong, which ends in an answer out of what the cells said or
in a line that says what to do; streams; interrupts. Behind each of them nothing is left. What
breaks while a session is up has a scripted server (model_server.py).

HUTCH_BUILD is the build folder.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import signal
import socket
import statistics
import subprocess
import termios
import time

import pytest
from model_server import Server, certificate, completion, event, plain, reset, send, stream
from offline import PATIENCE, model, server  # noqa: F401 (fixtures)
from session_lines import HUTCH, assert_gone, children, processes_with

HERE = pathlib.Path(__file__).parent
KEY = "sk-very-secret-0123456789"
TWO = "Compute 17*23 and 2^64."
TWO_ANSWER = f"17*23 = {17 * 23}\n2^64 = {2 ** 64}"
ENDLESS = "Run this code:\n```python\nprint('it runs', flush=True)\nwhile True: pass\n```"
PROMPT = b"hutch> "
INTERRUPT_SECONDS = 2  # with others at work on the machine
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    """One cache for all tests, the caller's if there is one; with Python's tree of files, which
    may take longer than a question may."""
    with pytest.MonkeyPatch.context() as patch:
        if "HUTCH_CACHE_DIR" not in os.environ:
            patch.setenv("HUTCH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
        subprocess.run([HUTCH, "run", "-c", "pass"], check=True, timeout=3 * PATIENCE)
        yield


@pytest.fixture(autouse=True, scope="module")
def _interrupts():
    """What is started by a shell's background job would ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    """Orphans become children of this process; when a test is over there are none."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    end = time.monotonic() + PATIENCE
    with contextlib.suppress(ChildProcessError):
        while left := [pid for pid in children(os.getpid()) if pid != server.process.pid]:
            assert time.monotonic() < end, left
            for pid in left:
                os.waitpid(pid, os.WNOHANG)


# ---- hutch agent ----

def environment(**more):
    variables = {name: value for name, value in os.environ.items()
                 if not name.lower().endswith("_proxy")
                 and not re.match("OPENAI_|OPENROUTER_|HUTCH_MODEL", name)}
    return {**variables, **more}


def command(model, quirks, *arguments):
    name = f"offline:{quirks}" if quirks else "offline"
    return [HUTCH, "agent", "--base-url", model.url, "--model", name, *arguments]


def run(model, quirks, *arguments, env=()):
    done = subprocess.run(command(model, quirks, *arguments), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE,
                          env=environment(**dict(env)))
    assert KEY not in done.stdout + done.stderr
    return done


def ask(model, question, *options, quirks=""):
    """The result of a question that is answered."""
    done = run(model, quirks, "--json", *options, question)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def exit_codes(result):
    return [cell["exit_code"] for cell in result["cells"]]


# ---- questions ----

def test_fibonacci(model):
    result = ask(model, "What is the 100th Fibonacci number?")
    assert result["answer"] == "Fibonacci number 100 is 354224848179261915075."
    assert (result["exit_reason"], result["step_count"], exit_codes(result)) == ("text", 2, [0])
    assert result["code_executed"] and result["tool_calls"] == 1
    assert result["tool_call_counts"] == {"python_executor": 1}
    assert result["cells"][0]["duration_ms"] == result["execution_time_ms"] > 0
    assert result["latency_ms"] > result["execution_time_ms"]
    assert result["token_usage"]["total_tokens"] > 0 and result["error"] is None


@pytest.mark.parametrize("numbers", [(12, 15, 14, 10, 18, 20, 22, 17),
                                     (3, 15, 14, 1, 18, 2, 99, 7)])
def test_deviation(model, numbers):
    answer = ask(model, f"Standard deviation of {' '.join(map(str, numbers))}?")["answer"]
    assert f"sample standard deviation: {round(statistics.stdev(numbers), 4)}\n" in answer
    assert answer.endswith(f"population standard deviation: {round(statistics.pstdev(numbers), 4)}")


def test_quicksort(model):
    answer = ask(model, "Implement quicksort and test it on 50 random integers")["answer"]
    numbers = json.loads(answer[answer.index("["):])
    assert len(numbers) == 50 and numbers == sorted(numbers)


def test_addresses(model):
    text = '{"users": [{"mail": "ann@example.org"}, {"note": "or bob.b+x@mail.example.com"}]}'
    answer = ask(model, f"Which e-mail addresses are in {text}?")["answer"]
    assert answer.splitlines()[1:] == ["ann@example.org", "bob.b+x@mail.example.com"]


def test_program_that_fails_is_written_anew(model):
    result = ask(model, "How many days are between 2024-02-01 and 2024-03-01?")
    assert result["answer"] == "There are 29 days between 2024-02-01 and 2024-03-01."
    assert (exit_codes(result), result["step_count"]) == ([1, 0], 3)
    said = [json.loads(m["content"]) for m in result["messages"] if m["role"] == "tool"]
    assert said[0]["error"]["class"] == "TypeError" and said[1]["stdout"] == "29\n"


def test_failure_is_said(model):
    result = ask(model, "Run this code:\n```python\nraise ValueError('mine')\n```")
    assert result["answer"] == "It failed: ValueError: mine" and exit_codes(result) == [1]


def test_plain_answer(model):
    done = run(model, "", TWO)
    assert (done.returncode, done.stdout, done.stderr) == (0, TWO_ANSWER + "\n", "")


def test_question_by_standard_input(model):
    done = subprocess.run(command(model, "", "-"), input=TWO, capture_output=True, text=True,
                          timeout=PATIENCE, env=environment())
    assert (done.returncode, done.stdout) == (0, TWO_ANSWER + "\n")


# ---- what servers get wrong, and an answer all the same ----

# Of both kinds of reply, where nothing else is said.
SURVIVED = ["index0,noids", "noids", "sameids", "objects", "double", "rawlines", "truncated",
            "truncated,finish=tool_calls", "noargs", "list", "broken", "unknown", "talk",
            "finish=stop", "finish=null", "nousage", "reasoning", "signature", "choices", "empty",
            "cutfirst", "status=503,retryafter=0.01", "status=429,retryafter=0.01",
            "completiontokens", "plainschemas", "both", "content"]
SURVIVED_STREAMS = ["index0", "index1", "noindex", "noindex,noids", "nullids", "emptyids",
                    "samename", "splitname", "interleaved", "braces", "comments", "glued",
                    "crlf", "bytes", "nodone", "finish=", "usage", "unicode", "whole",
                    "errorfirst=429", "nostreamoptions"]
SURVIVED_WHOLE = ["stream", "onlystreams"]


@pytest.mark.parametrize("quirks, options", [
    *((quirks, ()) for quirks in SURVIVED + SURVIVED_WHOLE),
    *((quirks, ("--stream",)) for quirks in SURVIVED + SURVIVED_STREAMS)])
def test_answer_out_of_what_cells_say(model, quirks, options):
    result = ask(model, TWO, *options, quirks=quirks)
    clean = re.sub("^<.*> ", "", result["answer"])
    assert (clean, result["exit_reason"]) == (TWO_ANSWER, "text"), result
    assert exit_codes(result) and set(exit_codes(result)) == {0}
    ids = [call["id"] for message in result["messages"] for call in message.get("tool_calls", ())]
    assert len(set(ids)) == len(ids) == result["tool_calls"] >= 2


def test_legacy_function_call(model):
    assert ask(model, "6*7?", quirks="legacy")["answer"] == "6*7 = 42"


def test_many_calls_at_once_keep_their_order(model):
    result = ask(model, "1+1, 2+2, 3+3, 4+4, 5+5 and 6+6?", "--stream")
    assert result["answer"].splitlines() == [f"{i}+{i} = {2 * i}" for i in range(1, 7)]
    said = [json.loads(m["content"])["stdout"] for m in result["messages"] if m["role"] == "tool"]
    assert said == [f"{2 * i}\n" for i in range(1, 7)]


def test_step_limit(model):
    done = run(model, "loop", "--json", "--max-steps", "3", "6*7?")
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1) and "--max-steps" in done.stderr
    assert (result["exit_reason"], result["answer"]) == ("max_agent_steps", "6*7 = 42")
    assert exit_codes(result) == [0, 0, 0]
    last = model.requests()[-1]["body"]
    assert last["tool_choice"] == "none" and last["tools"]


def test_calls_at_the_step_limit_are_not_run(model):
    done = run(model, "loop,callsatend", "--json", "--max-steps", "2", "6*7?")
    result = json.loads(done.stdout)
    assert result["exit_reason"] == "max_agent_steps" and exit_codes(result) == [0, 0]


def test_server_that_wants_no_tools_at_the_end(model):
    done = run(model, "loop,notoolsatend", "--json", "--max-steps", "2", "6*7?")
    assert json.loads(done.stdout)["answer"] == "I cannot run code here, so I cannot say." or \
        json.loads(done.stdout)["answer"] == "6*7 = 42"
    assert "tools" not in model.requests()[-1]["body"]


def test_calls_that_are_always_cut_off(model):
    done = run(model, "truncated,always", "--json", "6*7?")
    result = json.loads(done.stdout)
    assert (result["exit_reason"], result["cells"]) == ("length", [])
    assert done.returncode == 0 and "--max-tokens" in done.stderr


# ---- what cannot be survived ----

def one_line(done):
    """What it says on stderr, which is one line and no more."""
    assert re.fullmatch(r"hutch: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


@pytest.mark.parametrize("quirks, status, word", [
    ("status=400,always", 125, "Invalid value for 'messages'"),
    ("status=400,words=array,always", 125, "Invalid value for 'messages'"),
    ("status=400,words=html,always", 125, "Invalid value for 'messages'"),
    ("status=400,words=object,always", 125, "Invalid value for 'messages'"),
    ("status=400,words=detail,always", 125, "Invalid value for 'messages'"),
    ("status=400,words=string,always", 125, "Invalid value for 'messages'"),
    ("status=401,always", 125, "OPENAI_API_KEY"),
    ("status=402,always", 125, "Insufficient credits"),
    ("status=403,always", 125, "moderation"),
    ("status=404,always", 125, "model"),
    ("status=429,always,retryafter=0.01", 125, "slow down"),
    ("status=500,always,retryafter=0.01", 125, "The server had an error"),
    ("jinja", 125, "--jinja"),
    ("redirect", 125, "in circles"),
    ("redirect=http://example.invalid/", 125, "example.invalid"),
    ("nojson,always", 125, "is not JSON"),
    ("errorfirst=400,always", 125, "Invalid value for 'messages'"),
    ("empty,always", 125, "neither text nor calls"),
    ("finish=content_filter", 1, "filter"),
    ("refusal", 1, "refused"),
])
@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_one_line_says_what_to_do(model, quirks, status, word, options):
    done = run(model, quirks, *options, "hello")
    assert done.returncode == status and word in one_line(done)


@pytest.mark.parametrize("quirks, options, status, word", [
    ("cut,always", ("--stream",), 125, "truncated"),
    ("errorchunk=502,always", ("--stream",), 125, "Provider returned error"),
    ("finish=length", ("--stream",), 0, "--max-tokens"),
    ("hang", ("--timeout-total", "1"), 124, "time limit of 1 s"),
    ("drip=20", ("--timeout-total", "1"), 124, "time limit of 1 s"),
    ("drip=20", ("--timeout-total", "1", "--stream"), 124, "time limit of 1 s"),
    ("pace=300", ("--timeout-total", "1", "--stream"), 124, "time limit of 1 s"),
])
def test_one_line_says_how_it_ended(model, quirks, options, status, word):
    done = run(model, quirks, *options, "hello there")
    assert done.returncode == status and word in one_line(done)


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_connection_that_is_always_reset(model, options):
    done = run(model, "reset", "--retries", "1", *options, "hello")
    assert done.returncode == 125 and "connection" in one_line(done)


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_reply_of_10_mb(model, options):
    done = run(model, "big=10", *options, "hello")
    assert done.returncode == 125 and "max_tokens" in one_line(done)
    assert len(done.stdout) < 10 << 20


def test_error_in_the_result(model):
    done = run(model, "status=401,always", "--json", "6*7?")
    result = json.loads(done.stdout)
    assert (result["exit_reason"], result["error"]["code"]) == ("model_error", "key_refused")
    assert result["error"]["http_status"] == 401 and not result["error"]["retry_safe"]


def test_model_that_there_is_not(model):
    done = subprocess.run([HUTCH, "agent", "--base-url", model.url, "--model", "gpt-9", "x"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE, env=environment())
    assert done.returncode == 125 and "gpt-9" in one_line(done) and "404" in done.stderr


def test_stream_that_is_cut_behind_a_cell(model):
    """What the cell said is kept, and what was shown of the answer."""
    done = run(model, "cut", "--json", "--stream", "6*7?")
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 125 and "truncated" in one_line(done)
    assert exit_codes(result) == [0] and result["error"]["code"] == "truncated"
    assert result["answer"] == "6*7"


def test_nobody_listens():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    done = subprocess.run([HUTCH, "agent", "--base-url", f"http://127.0.0.1:{port}/v1", "--model",
                           "offline", "--retries", "1", "x"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, env=environment())
    assert done.returncode == 125 and str(port) in one_line(done)


def test_no_tls_where_it_is_wanted(model):
    done = subprocess.run([HUTCH, "agent", "--base-url", model.url.replace("http", "https"),
                           "--model", "offline", "x"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, env=environment())
    assert done.returncode == 125 and "no trusted connection" in one_line(done)


def test_certificate_that_is_not_trusted(tmp_path):
    """Nothing is sent to who has it; trusted, it does."""
    with Server(plain(completion("Hello.")), context=certificate(tmp_path, "127.0.0.1")) as server:
        arguments = [HUTCH, "agent", "--base-url", server.url, "--model", "m", "hello"]
        trusted = {"CURL_CA_BUNDLE": str(tmp_path / "cert.pem")}
        for variables, status, answer in (({}, 125, ""), (trusted, 0, "Hello.\n")):
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=PATIENCE,
                                  env=environment(OPENAI_API_KEY=KEY, **variables))
            assert (done.returncode, done.stdout) == (status, answer)
            assert KEY not in done.stderr
            if status:
                assert "self-signed" in one_line(done) and not server.requests


def test_no_key_for_a_server_that_wants_one():
    done = subprocess.run([HUTCH, "agent", "x"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE, env=environment())
    assert done.returncode == 125 and "OPENAI_API_KEY" in one_line(done)


def test_key_goes_to_the_server_and_nowhere_else(model, tmp_path):
    session = tmp_path / "session"
    options = ("--header", f"X-Quirks: key={KEY}", "--json", "--session", session)
    done = run(model, "", *options, "6*7?", env={"OPENAI_API_KEY": KEY})
    assert json.loads(done.stdout)["exit_reason"] == "text"
    assert KEY not in session.read_text()
    done = run(model, "", *options, "6*7?", env={"OPENAI_API_KEY": KEY[:-1]})
    assert done.returncode == 125 and "401" in one_line(done) and KEY[:-1] not in done.stdout


# ---- what breaks while a session is up ----

# A program leaves a process behind in its session.
LEAVES = """\
import subprocess
child = subprocess.Popen(["sh", "-c", "read x; exit", "{0}"], stdin=subprocess.PIPE)
print("up")
"""


def in_circles(handler, request):
    plain("", 307, Location=request.path)(handler, request)


def drips(handler, request):
    """Blanks in front of a reply, for ever."""
    stream(kind="application/json")(handler, request)
    while not handler.server.over.wait(0.02):
        send(handler, " ")
    return False


@pytest.mark.parametrize("fault, options, status, code, word", [
    (plain({"error": {"message": "no more of this"}}, 400), (), 125, "refused", "no more of this"),
    (stream(event(content="Half of")), ("--stream",), 125, "truncated", "truncated"),
    (plain("<p>{"), (), 125, "malformed_reply", "is not JSON"),
    (plain(completion("x" * (10 << 20))), (), 125, "too_large", "max_tokens"),
    (in_circles, (), 125, "redirect_refused", "in circles"),
    (reset, ("--retries", "1"), 125, "connection_failed", "connection"),
    (drips, ("--timeout-total", "6"), 124, None, "time limit of 6 s"),
], ids=["400", "cut", "nojson", "10mb", "redirect", "reset", "drip"])
def test_session_is_gone(fault, options, status, code, word):
    """The line, what the cell said, and no process of it."""
    mark = str(random.getrandbits(60))
    arguments = json.dumps({"language": "python", "code": LEAVES.format(mark)})
    call = plain(completion(None, "tool_calls", tool_calls=[
        {"id": "a", "type": "function",
         "function": {"name": "code_interpreter", "arguments": arguments}}]))
    left = []

    def answer(handler, request):
        if request.body["messages"][-1]["role"] != "tool":
            return call(handler, request)
        left.extend(processes_with(mark.encode()))
        return fault(handler, request)

    with Server(rule=lambda request: answer) as server:
        done = subprocess.run([HUTCH, "agent", "--base-url", server.url, "--model", "m",
                               "--tools", "code_interpreter", "--json", *options, "hello"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, env=environment())
    assert done.returncode == status and word in one_line(done)
    assert left
    assert_gone(left)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["exit_reason"] == ("model_error" if code else "timeout")
    assert (result["error"] or {}).get("code") == code and exit_codes(result) == [0]
    assert [json.loads(m["content"])["stdout"] for m in result["messages"]
            if m["role"] == "tool"] == ["up\n"]


# ---- streams ----

def await_text(descriptor, word):
    """What comes out of a descriptor until it holds a word."""
    seen, end = b"", time.monotonic() + PATIENCE
    while word not in seen:
        assert select.select([descriptor], [], [], end - time.monotonic())[0], seen
        piece = os.read(descriptor, 65536)
        assert piece, seen
        seen += piece
    return seen


@contextlib.contextmanager
def started(model, quirks, *arguments, **keywords):
    with subprocess.Popen(command(model, quirks, *arguments), env=environment(), **{
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            **keywords}) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def at_a_terminal(model, *options):
    """hutch agent and the other side of its terminal, of which it is in the foreground."""
    ours, theirs = pty.openpty()
    with started(model, "", "--stream", *options, stdin=theirs, stdout=theirs, stderr=theirs,
                 start_new_session=True,
                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
        os.close(theirs)
        await_text(ours, PROMPT)
        yield process, ours
        os.write(ours, b"\x04")
        assert process.wait(timeout=PATIENCE) == 0
    os.close(ours)


def test_text_is_shown_before_the_reply_is_complete(model):
    with started(model, "gate", "--stream", "hello") as process:
        await_text(process.stdout.fileno(), b"I")
        model.go_on()
        assert process.communicate(timeout=PATIENCE)[0].endswith(b'in "hello".\n')
        assert process.returncode == 0


def test_each_piece_is_shown_as_it_comes(model):
    with started(model, "gate=each", "--stream", "--json", "hello") as process:
        pieces = []
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "message":
                pieces.append(event["text"])
                for _ in range(4 if event["text"].endswith('".') else 1):  # and what ends it
                    model.go_on()
        assert event["event"] == "result" and "".join(pieces) == event["answer"]
        assert len(pieces) > 10


def test_output_of_the_cell_is_shown_as_it_comes(model):
    with started(model, "", "--stream", ENDLESS) as process:
        assert b"[1] python_executor" in await_text(process.stdout.fileno(), b"1| it runs")


def test_events_of_a_stream(model):
    done = run(model, "", "--stream", "--json", TWO)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[:3] == ["step", "tool_call", "tool_call"] and kinds[-1] == "result"
    assert sorted(kinds[3:7]) == ["tool_output"] * 2 + ["tool_result"] * 2 and kinds[7] == "step"
    assert [e["arguments"]["code"] for e in events[1:3]] == ["print(17*23)\n", "print(2**64)\n"]
    said = {e["id"]: json.loads(e["text"])["stdout"] for e in events if e["event"] == "tool_result"}
    assert said == {e["id"]: e["text"] for e in events if e["event"] == "tool_output"}
    assert "".join(e["text"] for e in events if e["event"] == "message") == TWO_ANSWER


def test_stream_for_people_is_as_the_transcript_says(model):
    done = run(model, "talk", "--stream", "How many days are between 2024-02-01 and 2024-03-01?")
    shown = re.sub(r"\d+ ms, [\d.]+ MiB", "# ms, # MiB", done.stdout)
    shown = re.sub(r"1! +\^+\n", "", shown)  # of newer Pythons
    assert shown == (HERE / "agent_transcript.txt").read_text()


# ---- conversations, formats, tools ----

def test_conversation_goes_on(model, tmp_path):
    session = str(tmp_path / "session")
    assert "is 55." in ask(model, "The 10th Fibonacci number?", "--session", session)["answer"]
    assert "12 is 144." in ask(model, "And the 12th?", "--session", session)["answer"]
    roles = [message["role"] for message in model.requests()[-1]["body"]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant",
                     "user", "assistant", "tool"]


@pytest.mark.parametrize("quirks", ["", "badschema"])
def test_answer_by_a_schema(model, tmp_path, quirks):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object", "required": ["number"], "properties": {
        "number": {"type": "integer"}}}))
    result = ask(model, "6*7?", "--schema", str(schema), quirks=quirks)
    assert json.loads(result["answer"]) == {"number": 42}


def test_answer_that_never_follows_the_schema(model, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    done = run(model, "badschema,always", "--schema", str(schema), "6*7?")
    assert done.returncode == 1 and "schema" in one_line(done)


def test_schemas_of_all_tools_are_plain(model):
    """Of keywords that every server knows."""
    tools = ("python_executor", "code_interpreter", "shell", "read_file", "write_file",
             "list_files")
    assert ask(model, "6*7?", "--tools", ",".join(tools), quirks="plainschemas")["cells"]
    sent = [tool["function"]["name"] for tool in model.requests()[0]["body"]["tools"]]
    assert sent == list(tools)


def test_tools_of_a_conversation_share_files(model):
    result = ask(model, 'Please call write_file with {"path": "a.txt", "content": "6*7"} and then'
                 ' call list_files with {}', "--tools", "code_interpreter,write_file,list_files")
    assert result["tool_call_counts"]["write_file"] == 1 and not result["answer"].startswith("It f")


def test_state_is_kept_between_questions(model):
    with at_a_terminal(model, "--tools", "code_interpreter") as (_, terminal):
        os.write(terminal, b"Run `x = 6*7`\n")
        await_text(terminal, PROMPT)
        os.write(terminal, b"Run `print(x + 1)`\n")
        assert b"1| 43" in await_text(terminal, PROMPT)


# ---- interrupts ----

def interrupt(process):
    """Seconds until it has ended."""
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=PATIENCE)
    return time.monotonic() - start


def test_interrupt_while_a_cell_runs(model):
    with started(model, "", "--stream", ENDLESS) as process:
        await_text(process.stdout.fileno(), b"1| it runs")
        assert interrupt(process) < INTERRUPT_SECONDS and process.returncode == 130


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_interrupt_while_the_model_thinks(model, options):
    with started(model, "hang", *options, "hello") as process:
        model.requests(count=1)
        assert interrupt(process) < INTERRUPT_SECONDS and process.returncode == 130


def test_interrupt_at_a_terminal_leads_back_to_the_prompt(model):
    with at_a_terminal(model) as (process, terminal):
        for _ in range(2):
            os.write(terminal, b"Run `print('it runs', flush=True); any(iter(int, 1))`\n")
            await_text(terminal, b"1| it runs")
            start = time.monotonic()
            os.write(terminal, b"\x03")
            await_text(terminal, PROMPT)
            assert time.monotonic() - start < INTERRUPT_SECONDS
        os.write(terminal, b"What is 6*7?\n")
        assert b"6*7 = 42" in await_text(terminal, PROMPT)
