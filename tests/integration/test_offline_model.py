# SPDX-License-Identifier: Apache-2.0
"""
The offline model by itself: its programs run and print what is right, its answers are made
of what it is told and of nothing else, it refuses what a strict server would, and each quirk
puts on the wire what it says.
"""

import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from offline import PATIENCE, PROGRAM, Model, model, server  # noqa: F401 (fixtures)

EXECUTOR = {"type": "function", "function": {
    "name": "python_executor", "description": "runs",
    "parameters": {"type": "object", "properties": {"code": {"type": "string"}},
                   "required": ["code"]}}}
ADDRESSES = '{"users": [{"mail": "ann@example.org"}, {"note": "or bob.b+x@mail.example.com"}]}'
TWO = "Compute 17*23 and 2^64."


def body_of(question, *more, quirks="", **members):
    return {"model": f"offline:{quirks}" if quirks else "offline", "stream": False,
            "messages": [{"role": "user", "content": question}, *more], "tools": [EXECUTOR],
            **members}


def ask(model, *arguments, **members):
    """The message, the finish_reason, and all of the answer."""
    answer = model.ask("/v1/chat/completions", body_of(*arguments, **members))
    choice = answer["choices"][0]
    return choice["message"], choice["finish_reason"], answer


def programs(message):
    return [json.loads(call["function"]["arguments"])["code"] for call in message["tool_calls"]]


def result_of(program):
    """What the tool says of a program, which runs here."""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                         timeout=PATIENCE)
    return {"stdout": run.stdout, "stderr": run.stderr, "exit_code": run.returncode,
            "timed_out": False, "error_type": "error" if run.returncode else None}


def turn(message, *contents):
    """The message with calls as a client sends it back, and what the tools said."""
    calls = message["tool_calls"]
    texts = [content if isinstance(content, str) else json.dumps(content) for content in contents]
    return [{"role": "assistant", "tool_calls": calls}] + [
        {"role": "tool", "tool_call_id": call["id"], "content": text}
        for call, text in zip(calls, texts)]


def answer_of(model, question, run=result_of):
    """The final text, and how many times programs were run for it."""
    history = []
    for turns in range(10):
        message, finish, _ = ask(model, question, *history)
        if "tool_calls" not in message:
            assert finish == "stop"
            return message["content"], turns
        assert finish == "tool_calls"
        history += turn(message, *map(run, programs(message)))
    raise AssertionError("no end")


# ---- questions ----

def test_fibonacci(model):
    a, b = 0, 1
    for _ in range(77):
        a, b = b, a + b
    text, turns = answer_of(model, "What is the 77th Fibonacci number?")
    assert (text, turns) == (f"Fibonacci number 77 is {a}.", 1)


@pytest.mark.parametrize("numbers", [(12, 15, 14, 10, 18, 20, 22, 17), (1, 2.5, -4, 100)])
def test_deviation(model, numbers):
    text, turns = answer_of(model, f"Standard deviation of {' '.join(map(str, numbers))}?")
    assert turns == 1
    assert f"sample standard deviation: {statistics.stdev(numbers):.4f}" in text
    assert f"population standard deviation: {statistics.pstdev(numbers):.4f}" in text


def test_quicksort(model):
    text, _ = answer_of(model, "Implement quicksort and test it on 50 random integers")
    numbers = json.loads(text[text.index("["):])
    assert len(numbers) == 50 and numbers == sorted(numbers)


def test_addresses(model):
    text, _ = answer_of(model, f"Which e-mail addresses are in {ADDRESSES}?")
    assert text.splitlines()[1:] == ["ann@example.org", "bob.b+x@mail.example.com"]


def test_arithmetic_is_a_call_each(model):
    assert answer_of(model, TWO) == (f"17*23 = {17 * 23}\n2^64 = {2 ** 64}", 1)


def test_block_is_run(model):
    question = "Please run this code:\n```python\nprint('a' * 3)\n```\n"
    assert answer_of(model, question) == ("It printed:\naaa", 1)
    assert answer_of(model, "Run `print('a' * 4)`") == ("It printed:\naaaa", 1)


def test_program_that_fails_is_written_anew(model):
    text, turns = answer_of(model, "How many days are between 2024-02-01 and 2024-03-01?")
    assert (text, turns) == ("There are 29 days between 2024-02-01 and 2024-03-01.", 2)


def test_failure_is_said(model):
    text, turns = answer_of(model, "Run this code:\n```\n1/0\n```")
    assert (text, turns) == ("It failed: ZeroDivisionError: division by zero", 1)


def test_calls_that_were_not_run_are_made_again(model):
    text, turns = answer_of(model, TWO, run=lambda program: "Error: the arguments are cut off")
    assert text.startswith("It failed: Error: the arguments are cut off") and turns == 3


def test_answer_is_what_the_tool_said(model):
    text, _ = answer_of(model, "The 100th Fibonacci number?",
                        run=lambda program: {**result_of("pass"), "stdout": "a lie\n"})
    assert text == "Fibonacci number 100 is a lie."


def test_named_tool_is_called(model):
    write = {"type": "function",
             "function": {"name": "write_file", "parameters": {"type": "object"}}}
    question = 'call write_file with {"path": "a"} and call write_file with {"path": "b"}'
    message, _, _ = ask(model, question, tools=[write])
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        {"path": "a"}, {"path": "b"}]
    message, _, _ = ask(model, question, *turn(message, "Error: no space", "done"), tools=[write])
    assert message["content"] == "It failed: Error: no space"


def test_follow_up_has_the_question_before(model):
    first = [{"role": "user", "content": "The 10th Fibonacci number?"},
             {"role": "assistant", "content": "It is known."}]
    body = body_of("And the 12th?")
    body["messages"] = first + body["messages"]
    message = model.ask("/v1/chat/completions", body)["choices"][0]["message"]
    assert "fibonacci(12)" in programs(message)[0]


def test_code_is_shown_and_then_run(model):
    question = "Please write code for 6*7"
    shown, _, _ = ask(model, question)
    assert "print(6*7)" in shown["content"] and "tool_calls" not in shown
    message, _, _ = ask(model, question, {"role": "assistant", "content": shown["content"]},
                        {"role": "user", "content": "Yes, run it."})
    assert programs(message) == ["print(6*7)\n"]


def test_no_tools_no_call(model):
    body = body_of("2*3?")
    del body["tools"]
    for asked in (body, body_of("2*3?", tool_choice="none")):
        message = model.ask("/v1/chat/completions", asked)["choices"][0]["message"]
        assert message["content"] == "I cannot run code here, so I cannot say."


def test_answer_in_a_format(model):
    schema = {"type": "object", "properties": {"number": {"type": "integer"},
                                               "how": {"enum": ["known", "computed"]}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    message, _, _ = ask(model, "6*7?", response_format=wanted)
    history = turn(message, *map(result_of, programs(message)))
    for quirks in ("", "badschema"):
        message, _, _ = ask(model, "6*7?", *history, response_format=wanted, quirks=quirks)
        assert message["content"].startswith("{") == (quirks == "")
    history += [{"role": "assistant", "content": message["content"]},
                {"role": "user", "content": "It has to follow the schema."}]
    message, _, _ = ask(model, "6*7?", *history, response_format=wanted, quirks="badschema")
    assert json.loads(message["content"])["number"] == 42


def test_it_holds_no_answers():
    text = PROGRAM.read_text()
    assert not re.search(r"354224848179261915075|4[.]03|3[.]77|12, 15", text)


# ---- requests that are refused ----

def refusal(model, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        model.open("/v1/chat/completions", data, **headers)
    return caught.value.code, json.load(caught.value)["error"]["message"]


CALL = {"id": "a", "type": "function", "function": {"name": "python_executor", "arguments": "{}"}}
SAID = {"role": "tool", "tool_call_id": "a", "content": "x"}


@pytest.mark.parametrize("history, word", [
    ([{"role": "system", "content": "late"}, {"role": "user", "content": "x"}], "System message"),
    ([{"role": "assistant", "content": ""}, {"role": "user", "content": "x"}], "must not be empty"),
    ([{"role": "assistant"}, {"role": "user", "content": "x"}], "must not be empty"),
    ([{"role": "assistant", "content": "x", "tool_calls": []}, {"role": "user", "content": "x"}],
     "tool_calls: must not be empty"),
    ([{"role": "assistant", "content": None, "tool_calls": [CALL]}, SAID], "content: null"),
    ([{"role": "assistant", "tool_calls": [CALL]}], "nothing to answer"),
    ([{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "x"}], "come first"),
    ([{"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "b"}]},
      {**SAID, "tool_call_id": "b"}, SAID], "is not next"),
    ([{"role": "assistant", "tool_calls": [CALL, CALL]}, SAID, SAID], "used twice"),
    ([{"role": "assistant", "tool_calls": [{**CALL, "id": None}]}, SAID], "missing"),
    ([{"role": "assistant", "tool_calls": [
        {**CALL, "function": {"name": "x", "arguments": '{"co'}}]}, SAID], "no JSON object"),
    ([SAID], "is not next"),
    ([{"role": "developer", "content": "x"}], "role"),
])
def test_history_that_no_server_takes(model, history, word):
    status, words = refusal(model, body_of("6*7?", *history))
    assert status == 400 and word in words
    assert any(word in fault for fault in model.requests()[-1]["faults"])


@pytest.mark.parametrize("members, word", [
    ({"temperature": None}, "temperature: null"), ({"n": 1}, "Unknown name"),
    ({"stream": True}, "stream_options"), ({"tools": []}, "tools: empty"),
    ({"tools": [EXECUTOR, EXECUTOR]}, "a name twice"), ({"messages": []}, "have to be a list"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "no name"),
])
def test_members_that_no_server_takes(model, members, word):
    status, words = refusal(model, {**body_of("6*7?"), **members})
    assert status == 400 and word in words


def test_model_that_there_is_not(model):
    assert refusal(model, {**body_of("6*7?"), "model": "gpt-9"})[0] == 404
    assert refusal(model, body_of("6*7?", quirks="no-such-quirk"))[0] == 404
    assert refusal(model, b"{")[0] == 400


# ---- quirks ----

def stream_of(model, question, *history, quirks="", **members):
    """The bytes of a stream; what was cut is short."""
    body = body_of(question, *history, quirks=quirks, stream=True,
                   stream_options={"include_usage": True}, **members)
    with model.open("/v1/chat/completions", body) as response:
        assert response.headers["content-type"] == "text/event-stream"
        try:
            return response.read()
        except http.client.IncompleteRead as cut:
            return cut.partial


def chunks_of(data):
    lines = [line[6:] for line in data.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def entries_of(data):
    return [entry for chunk in chunks_of(data) for choice in chunk["choices"]
            for entry in choice["delta"].get("tool_calls", ())]


def test_stream(model):
    data = stream_of(model, TWO)
    entries = entries_of(data)
    assert [entry["id"] for entry in entries if "id" in entry] == ["call_0_o", "call_1_o"]
    texts = ["".join(entry["function"]["arguments"] for entry in entries if entry["index"] == i)
             for i in (0, 1)]
    assert [json.loads(text)["code"] for text in texts] == ["print(17*23)\n", "print(2**64)\n"]
    assert data.endswith(b"data: [DONE]\n\n")
    last, usage = chunks_of(data)[-2:]
    assert last["choices"][0]["finish_reason"] == "tool_calls" and not usage["choices"]


@pytest.mark.parametrize("quirks, holds", [
    ("index0", lambda entries: {entry["index"] for entry in entries} == {0}),
    ("index1", lambda entries: {entry["index"] for entry in entries} == {1, 2}),
    ("noindex", lambda entries: not any("index" in entry for entry in entries)),
    ("noids", lambda entries: not any("id" in entry for entry in entries)),
    ("index0,noids", lambda entries: not any(e.get("id") or e["index"] for e in entries)),
    ("sameids", lambda entries: [e["id"] for e in entries if "id" in e] == ["call_0_o"] * 2),
    ("nullids", lambda entries: [e for e in entries if e.get("id", 0) is None]),
    ("emptyids", lambda entries: [e for e in entries if e.get("id") == ""]),
    ("samename", lambda entries: all("id" in entry["function"] for entry in entries)),
    ("splitname", lambda entries: entries[0]["function"]["name"] == "pyth"),
    ("objects", lambda entries: all(isinstance(e["function"]["arguments"], dict) for e in entries)),
    ("braces", lambda entries: entries[0]["function"]["arguments"] == "{}"),
    ("interleaved", lambda entries: [e["index"] for e in entries[:4]] == [0, 1, 0, 1]),
    ("signature", lambda entries: "extra_content" in entries[-1]),
    ("unknown", lambda entries: entries[0]["function"]["name"] == "no_such_tool"),
    ("calls=3", lambda entries: max(entry["index"] for entry in entries) == 5),
])
def test_calls_on_the_wire(model, quirks, holds):
    entries = entries_of(stream_of(model, TWO, quirks=quirks))
    assert entries and holds(entries)
    assert not holds(entries_of(stream_of(model, TWO)))


@pytest.mark.parametrize("quirk, spoiled", [
    ("noargs", ""), ("list", "[1]"), ("broken", "{]"), ("truncated", '{"code": "prin'),
    ("double", json.dumps(json.dumps({"code": "print(6*7)\n"}))),
    ("rawlines", '{"code": "print(6*7)\n"}'),
])
def test_arguments_that_are_spoiled(model, quirk, spoiled):
    message, finish, _ = ask(model, "6*7?", quirks=quirk)
    assert message["tool_calls"][0]["function"]["arguments"] == spoiled
    assert finish == ("length" if quirk == "truncated" else "tool_calls")
    if quirk not in ("double", "rawlines"):
        message["tool_calls"][0]["function"]["arguments"] = "{}"
        message, _, _ = ask(model, "6*7?", *turn(message, "Error: cut off"), quirks=quirk)
        assert programs(message) == ["print(6*7)\n"]


@pytest.mark.parametrize("quirk, word", [
    ("comments", b": OPENROUTER PROCESSING\n\n"), ("glued", b"}data: {"), ("crlf", b"\r\n\r\n"),
    ("usage", b'"usage"'), ("finish=stop", b'"finish_reason": "stop"'), ("unicode", b"\xff"),
    ("reasoning", b"reasoning_content"), ("errorchunk=503", b'"code": 503'),
    ("errorfirst=429", b'"code": 429'), ("legacy", b"function_call"), ("refusal", b'"refusal"'),
    ("choices", b'"index": 1, "delta"'), ("both", b"function_call"),
])
def test_stream_with(model, quirk, word):
    question = "hello" if quirk in ("unicode", "refusal") else TWO
    plain = stream_of(model, question)
    assert stream_of(model, question, quirks=quirk).count(word) > plain.count(word)


@pytest.mark.parametrize("quirk, word", [
    ("nodone", b"[DONE]"), ("finish=null", b'"tool_calls"}'), ("nousage", b'"usage"'),
    ("cut", b"[DONE]"), ("empty", b'"tool_calls":')])
def test_stream_without(model, quirk, word):
    assert word in stream_of(model, TWO)
    assert word not in stream_of(model, TWO, quirks=quirk)


def test_what_was_spoiled_is_good_the_next_time(model):
    for _ in range(2):
        assert refusal(model, body_of("6*7?", quirks="status=503"))[0] == 503
        assert ask(model, "6*7?", quirks="status=503")[1] == "tool_calls"
    for _ in range(3):
        assert refusal(model, body_of("6*7?", quirks="status=503,always"))[0] == 503


def test_quirks_by_header_and_member(model):
    assert refusal(model, body_of("6*7?"), X_Quirks="status=401")[0] == 401
    model.reset()
    assert refusal(model, {**body_of("6*7?"), "quirks": "status=402"})[0] == 402


@pytest.mark.parametrize("quirks, members, status", [
    ("jinja", {}, 500), ("completiontokens", {"max_tokens": 9}, 400), ("onlystreams", {}, 400),
    ("content", {"messages": [{"role": "user", "content": "x"}, {
        "role": "assistant", "tool_calls": [CALL]}, SAID]}, 500),
    ("notoolsatend", {"tool_choice": "none"}, 400), ("key=abc", {}, 401),
    ("plainschemas", {"tools": [{"type": "function", "function": {
        "name": "x", "parameters": {"type": "object", "additionalProperties": False}}}]}, 400)])
def test_servers_with_wishes(model, quirks, members, status):
    assert refusal(model, {**body_of("6*7?", quirks=quirks), **members})[0] == status


def test_servers_that_are_content(model):
    body = {**body_of("6*7?", quirks="completiontokens,plainschemas,key=abc"),
            "max_completion_tokens": 9}
    with model.open("/v1/chat/completions", body, Authorization="Bearer abc") as response:
        assert response.status == 200


@pytest.mark.parametrize("words", ["array", "object", "detail", "string", "html"])
def test_words_of_an_error(model, words):
    with pytest.raises(urllib.error.HTTPError) as caught:
        model.open("/v1/chat/completions",
                   body_of("6*7?", quirks=f"status=429,retryafter=3,words={words}"))
    assert caught.value.headers["retry-after"] == "3"
    assert b"slow down" in caught.value.read()


@pytest.mark.parametrize("quirk", ["cutfirst", "reset"])
def test_connection_ends(model, quirk):
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError, urllib.error.URLError)):
        model.open("/v1/chat/completions", body_of("6*7?", quirks=quirk))


def test_what_comes_back_with_calls(model):
    for quirks, member in (("reasoning", "reasoning_content"), ("signature", None)):
        message, _, _ = ask(model, "6*7?", quirks=quirks)
        history = turn(message, *map(result_of, programs(message)))
        if member:
            assert refusal(model, body_of("6*7?", *history, quirks=quirks))[0] == 400
            history[0][member] = message[member]
        assert "42" in ask(model, "6*7?", *history, quirks=quirks)[0]["content"]
        history[0]["tool_calls"][0].pop("extra_content", None)
        history[0].pop(member, None)
        assert refusal(model, body_of("6*7?", *history, quirks=quirks))[0] == 400


def test_gate(model):
    body = body_of("hello there", quirks="gate=each", stream=True,
                   stream_options={"include_usage": True})
    with model.open("/v1/chat/completions", body) as response:
        first = response.readline() + response.readline() + response.readline()
        assert first.count(b'"content"') == 2
        seen = first
        while b"[DONE]" not in seen:
            model.go_on()
            seen += response.readline() + response.readline()
    assert b"hello" in seen


def test_big(model):
    assert len(ask(model, "hello", quirks="big=2")[0]["content"]) == 2 << 20


def test_models(model):
    names = {entry["id"] for entry in model.ask("/v1/models")["data"]}
    assert {"offline", "offline:index0"} <= names


# ---- the process ----

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_outlives_its_input(number):
    with subprocess.Popen([PROGRAM], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                f"{url}/models", timeout=PATIENCE) as response:
            assert response.status == 200
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == 0


def test_port_in_use_and_port_that_is_none():
    with Model() as model:
        port = model.url.split(":")[2].removesuffix("/v1")
        done = subprocess.run([PROGRAM, "--port", port], capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"127.0.0.1:{port}" in done.stderr
    done = subprocess.run([PROGRAM, "--port", "65536"], capture_output=True, text=True,
                          timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "65536 is not from 0 to 65535" in done.stderr


def test_ends_by_signal():
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert re.fullmatch(rb"http://127[.]0[.]0[.]1:\d+/v1\n", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0


def test_ends_while_it_is_asked():
    with Model() as model:
        connection = http.client.HTTPConnection(model.url.split("/")[2], timeout=PATIENCE)
        connection.request("POST", "/v1/chat/completions", json.dumps(body_of("x", quirks="hang")),
                           {"Content-Type": "application/json"})
        assert len(model.requests(count=1)) == 1
    connection.close()
