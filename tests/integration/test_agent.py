# SPDX-License-Identifier: Apache-2.0
"""
Agents by their public API (include/hutch-agent.h), by the program agent_door, against a server
(model_server.py) that says what a test wants the model to say. Tools are those of the door, which
are written against that API; cells are real.

HUTCH_BUILD is the build folder.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import select
import subprocess
import threading

import pytest

from model_server import DONE, Server, completion, event, finish, hang, plain, stream

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
DOOR = BUILD / "tests/integration/agent_door"
PATIENCE = 60
OWN = ["many", "echo", "fail", "final", "meet", "hang", "cell"]


# ---- the model ----

def call(name, arguments=None, id=None, index=0):
    """A tool call; arguments that are a string are sent as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    entry = {"index": index, "type": "function", "function": {"name": name, "arguments": text}}
    return {**entry, "id": id} if id else entry


def calls(*entries, text=None, finish="tool_calls", usage=None):
    """A reply with calls, whose ids are a, b, c ... unless they have one."""
    named = [{"id": id, **entry, "index": i}
             for i, (id, entry) in enumerate(zip("abcdefgh", entries))]
    reply = completion(text=text, finish=finish, tool_calls=named)
    return plain({**reply, "usage": usage or {"total_tokens": 3}})


def says(text="Done.", finish="stop", **message):
    return plain(completion(text, finish, **message))


def refuses(status=400, message="no"):
    return plain({"error": {"message": message}}, status)


# ---- the agent ----

class Run:
    def __init__(self, events, answer):
        self.events, self.answer = events, answer

    @property
    def result(self):
        assert "result" in self.answer, self.answer
        return self.answer["result"]

    def kinds(self):
        return [e["kind"] for e in self.events]

    def of(self, kind):
        return [e for e in self.events if e["kind"] == kind]

    @property
    def tool_messages(self):
        return [m["content"] for m in self.result["messages"] if m["role"] == "tool"]


class Agent:
    def __init__(self, base_url, door=DOOR, **options):
        options = {"base_url": base_url, "builtin_tools": "", "own": OWN, **options}
        environment = {name: value for name, value in os.environ.items()
                       if not name.lower().endswith("_proxy")}
        self.process = subprocess.Popen([door, json.dumps(options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment)
        self.ids = itertools.count(1)
        self.events, self.answers = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """It has to end well, and nothing comes after an answer."""
        if kind:
            self.process.kill()
        out, err = self.process.communicate(timeout=PATIENCE)
        assert kind or (self.process.returncode, out, err) == (0, b"", b"")

    def send(self, **line):
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, question="Well?", **fields):
        id = next(self.ids)
        self.send(ask=question, id=id, **fields)
        return id

    def read(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        line = json.loads(line)
        if "event" in line:
            assert line["id"] not in self.answers, "an event after the answer"
            self.events.setdefault(line["id"], []).append(line["event"])
        elif "id" in line:
            self.answers[line["id"]] = line
        return line

    def await_event(self, id, kind):
        while not any(e["kind"] == kind for e in self.events.get(id, [])):
            self.read()

    def end(self, id):
        while id not in self.answers:
            self.read()
        self.send(wait=id)
        return Run(self.events.get(id, []), self.answers[id])

    def ask(self, question="Well?", **fields):
        return self.end(self.begin(question, **fields))

    def load(self, messages):
        self.send(load=messages if isinstance(messages, str) else json.dumps(messages))
        return self.read()["loaded"]


def ask(*answers, question="Well?", fields=None, **options):
    """A run against a server that gives these answers, all of which have to be used."""
    with Server(*answers) as server, Agent(server.url, **options) as agent:
        run = agent.ask(question, **(fields or {}))
        assert not server.answers
        return run, server


def assert_valid(messages):
    """What every server takes: each call answered right behind, each answer to a call."""
    expected = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == expected.pop(0)
        else:
            assert expected == []
            expected = [entry["id"] for entry in message.get("tool_calls", [])]
    assert expected == []


def ending(run):
    return run.result["exit_reason"], run.result["answer"]


# ---- the loop ----

def test_text():
    run, server = ask(says("4"), own=["echo"])
    assert ending(run) == ("text", "4")
    result = run.result
    assert (result["step_count"], result["tool_calls"], result["code_executed"]) == (1, 0, False)
    assert (result["tool_call_counts"], result["cells"], result["error"]) == ({"echo": 0}, [], None)
    assert result["token_usage"] == {"total_tokens": 3}
    assert result["latency_ms"] > 0 and result["execution_time_ms"] == 0
    assert result["messages"] == [{"role": "user", "content": "Well?"},
                                  {"role": "assistant", "content": "4",
                                   "origin": result["messages"][1]["origin"]}]
    body = server.requests[0].body
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0.1, 4096, False)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["echo"]
    assert "tool_choice" not in body and "response_format" not in body
    assert run.kinds() == ["step", "model_text"]


def test_calls_and_their_answers():
    run, server = ask(calls(call("echo", {"text": "one"}), call("echo", {"text": "two"}),
                            text="Let me see.",
                            usage={"total_tokens": 10, "details": {"cached": 1}, "x": "y"}),
                      plain({**completion("Both."),
                             "usage": {"total_tokens": 5, "details": {"cached": 2}}}))
    assert ending(run) == ("text", "Both.")
    assert run.result["token_usage"] == {"total_tokens": 15, "details": {"cached": 3}}
    assert (run.result["step_count"], run.result["tool_calls"]) == (2, 2)
    assert run.result["tool_call_counts"] == {**dict.fromkeys(OWN, 0), "echo": 2}
    sent = server.requests[1].body["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[2]["content"] == "Let me see."
    assert [(m["tool_call_id"], m["content"]) for m in sent[3:]] == [("a", "one"), ("b", "two")]
    assert run.kinds() == ["step", "model_text", "tool_call", "tool_call",
                           "tool_result", "tool_result", "step", "model_text"]
    assert [e["step"] for e in run.events] == [1] * 6 + [2] * 2
    told = run.of("tool_call")
    assert [(e["call"], e["name"], json.loads(e["text"])["text"]) for e in told] == [
        ("a", "echo", "one"), ("b", "echo", "two")]
    assert {(e["call"], e["text"], e["failed"]) for e in run.of("tool_result")} == {
        ("a", "one", False), ("b", "two", False)}


def test_stream():
    run, server = ask(stream(event(reasoning="Hm."), event(content="Good"), event(content=" day"),
                             finish(), DONE), stream=True)
    assert ending(run) == ("text", "Good day")
    assert [e["text"] for e in run.of("model_text")] == ["Good", " day"]
    assert [e["text"] for e in run.of("reasoning")] == ["Hm."]
    assert server.requests[0].body["stream"] is True


def test_whole_text_is_one_event():
    run, _ = ask(stream(event(content="Good"), event(content=" day"), finish(), DONE))
    assert [e["text"] for e in run.of("model_text")] == ["Good day"]


def test_without_a_listener():
    run, _ = ask(calls(call("echo", {"text": "x"})), says(), fields={"quiet": True}, stream=True)
    assert ending(run) == ("text", "Done.") and run.events == []


def test_tool_that_ends_the_run():
    """AG08; and one that fails does not, and what else was called has run."""
    run, server = ask(calls(call("final", {"text": "bad"}), call("echo", {"text": "x"})),
                      calls(call("echo", {"text": "x"}), call("final", {"text": "42"}),
                            call("final", {"text": "43"})))
    assert ending(run) == ("final", "42")
    assert run.tool_messages == ["Error: that is bad", "x", "x", "42", "43"]
    assert len(server.requests) == 2
    assert_valid(run.result["messages"])


def test_calls_run_at_once():
    """AG09: the first four wait for each other, then the last two do."""
    first = [call("meet", {"place": 0, "wanted": 4}) for _ in range(4)]
    last = [call("meet", {"place": 1, "wanted": 2}) for _ in range(2)]
    run, _ = ask(calls(*first, *last), says())
    places = [text.partition(",")[0] for text in run.tool_messages]
    assert places == ["met at 0"] * 4 + ["met at 1"] * 2
    assert {text.partition(", ")[2] for text in run.tool_messages} == {"most 4"}


def test_one_call_at_a_time():
    run, _ = ask(calls(*[call("meet", {"place": i, "wanted": 1}) for i in range(3)]), says(),
                 tool_concurrency=1)
    assert run.tool_messages == [f"met at {i}, most 1" for i in range(3)]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_text_that_the_server_ended(reason):
    """AG10"""
    run, _ = ask(says("Half of", finish=reason))
    assert ending(run) == (reason, "Half of")


def test_empty_at_the_limit():
    run, _ = ask(says("", finish="length"))
    assert ending(run) == ("length", "")
    assert run.result["messages"][-1]["role"] == "assistant"


def test_refusal():
    run, _ = ask(says(None, refusal="I will not."))
    assert ending(run) == ("refusal", "I will not.")


# ---- calls that are not good ----

def test_unknown_tool():
    run, _ = ask(calls(call("nope"), call("echo", {"text": "x"})), says())
    assert run.tool_messages[0] == ("Error: there is no tool 'nope'. Available tools: "
                                    + ", ".join(OWN) + ".")
    assert run.tool_messages[1] == "x"
    assert run.result["tool_call_counts"]["nope"] == 1 and run.result["tool_calls"] == 2
    assert ending(run) == ("text", "Done.")


def test_malformed_arguments():
    run, server = ask(calls(call("echo", "[1]"), call("echo", {"text": "x"}), text="Let me."),
                      says())
    assert run.tool_messages[0].startswith("Error:") and run.tool_messages[1] == "x"
    sent = server.requests[1].body["messages"]
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert ending(run) == ("text", "Done.")
    assert [(e["call"], e["failed"]) for e in run.of("tool_result")] == [("a", True), ("b", False)]


@pytest.mark.parametrize("arguments", [{}, {"text": 1}, {"text": None}])
def test_arguments_that_the_schema_refuses(arguments):
    run, _ = ask(calls(call("echo", arguments)), says())
    assert run.tool_messages[0].startswith("Error: arguments: text")
    assert run.result["tool_call_counts"]["echo"] == 1


def test_truncated_arguments():
    """Once the model is told; twice in a row ends the run. What is whole runs."""
    cut = calls(call("echo", {"text": "x"}), call("echo", '{"text": "y'), text="Let me.",
                finish="length")
    run, _ = ask(cut, says())
    assert ending(run) == ("text", "Done.")
    assert run.tool_messages[0] == "x" and "cut off" in run.tool_messages[1]
    run, _ = ask(cut, calls(call("echo", {"text": "z"})), cut, cut)
    assert ending(run) == ("length", "Let me.")
    assert [t for t in run.tool_messages if "cut off" not in t] == ["x", "z", "x", "x"]
    assert_valid(run.result["messages"])


def test_calls_of_index_0_without_ids():
    chunks = [event(tool_calls=[call("echo", {"text": "1"})]),
              event(tool_calls=[call("echo", {"text": "2"})])]
    run, server = ask(stream(*chunks, finish("tool_calls"), DONE), says(), stream=True)
    assert run.tool_messages == ["1", "2"]
    assert_valid(server.requests[1].body["messages"])


def test_empty_reply():
    run, _ = ask(says(""), says("Now."), retries=1)
    assert ending(run) == ("text", "Now.")
    run, _ = ask(says(""))
    assert run.result["exit_reason"] == "model_error"
    assert run.result["error"]["code"] == "empty_reply"


def test_tool_that_fails():
    run, _ = ask(calls(call("fail")), says("Sorry."))
    assert run.tool_messages == ["Error: the machine is off\nhalf of it"]
    assert ending(run) == ("text", "Sorry.")
    assert [e["failed"] for e in run.of("tool_result")] == [True]


# ---- limits ----

def test_step_limit():
    step = calls(call("echo", {"text": "x"}))
    run, server = ask(step, step, calls(call("echo", {"text": "x"}), text="So far."), max_steps=2)
    assert ending(run) == ("max_agent_steps", "So far.")
    assert (run.result["step_count"], run.result["tool_calls"]) == (3, 2)
    assert "tool_choice" not in server.requests[1].body
    assert server.requests[2].body["tool_choice"] == "none" and server.requests[2].body["tools"]
    assert_valid(run.result["messages"])


def test_last_call_where_tool_choice_is_refused():
    run, server = ask(calls(call("echo", {"text": "x"})), refuses(), says("x"), max_steps=1)
    assert ending(run) == ("max_agent_steps", "x")
    assert "tools" not in server.requests[2].body and "tool_choice" not in server.requests[2].body


def test_last_call_where_tool_choice_is_ignored():
    step = calls(call("echo", {"text": "x"}))
    run, server = ask(step, step, says("x"), max_steps=1)
    assert ending(run) == ("max_agent_steps", "x")
    assert "tools" not in server.requests[2].body
    assert run.result["tool_calls"] == 1


def test_token_budget():
    run, server = ask(calls(call("echo", {"text": "x"}), usage={"total_tokens": 60}),
                      calls(call("echo", {"text": "x"}), usage={"prompt_tokens": 30,
                                                                "completion_tokens": 10}),
                      says("x"), max_total_tokens=100)
    assert ending(run) == ("token_budget", "x")
    assert server.requests[2].body["tool_choice"] == "none"


def test_timeout_of_the_model():
    run, _ = ask(stream(event(content="Good"), hang), stream=True, timeout_seconds=0.3)
    assert ending(run) == ("timeout", "Good")
    assert run.result["messages"][-1]["content"] == "Good"


def test_timeout_of_a_tool():
    """The token that a tool has ends with the time of the run; who has not begun does not."""
    with Server(calls(call("hang"), call("echo", {"text": "x"})), says("Hi.")) as server:
        with Agent(server.url, timeout_seconds=0.4, tool_concurrency=1) as agent:
            run = agent.ask(kept=True)
            assert ending(run) == ("timeout", "")
            assert run.tool_messages == ["Error: the token is triggered, no time is left",
                                         "Error: not executed: the time of the run is over."]
            again = agent.ask("Again?", kept=True)
    assert ending(again) == ("text", "Hi.")
    sent = server.requests[1].body["messages"]
    assert_valid(sent)
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "tool",
                                         "assistant", "user"]


# ---- cancelling ----

def test_cancel_while_the_model_is_silent():
    with Server(hang) as server, Agent(server.url) as agent:
        id = agent.begin()
        assert server.asked.wait(PATIENCE)
        agent.send(cancel=id)
        run = agent.end(id)
        assert server.gone.wait(PATIENCE)
    assert ending(run) == ("cancelled", "")


def test_cancel_in_the_midst_of_a_text():
    with Server(stream(event(content="Good"), hang)) as server:
        with Agent(server.url, stream=True) as agent:
            run = agent.ask(cancel_at="model_text")
        assert server.gone.wait(PATIENCE)
    assert ending(run) == ("cancelled", "Good")


def test_cancel_while_tools_run():
    with Server(calls(*[call("hang")] * 3, call("echo", {"text": "x"})), says("Hi.")) as server:
        with Agent(server.url, tool_concurrency=3) as agent:
            run = agent.ask(cancel_at="tool_output", kept=True)
            again = agent.ask("Again?", kept=True)
    assert run.result["exit_reason"] == "cancelled"
    assert set(run.tool_messages[:3]) <= {
        "Error: the token is triggered, time is left",
        "Error: not executed: the run was cancelled."}
    assert run.tool_messages[3] == "Error: not executed: the run was cancelled."
    assert ending(again) == ("text", "Hi.")
    assert_valid(server.requests[1].body["messages"])


# ---- a model that gives no reply ----

@pytest.mark.parametrize(("status", "code"), [
    (400, "refused"), (401, "key_refused"), (404, "not_found"), (429, "rate_limit"),
    (503, "server_error")])
def test_model_error(status, code):
    run, _ = ask(refuses(status, "as the server says"))
    error = run.result["error"]
    assert run.result["exit_reason"] == "model_error"
    assert (error["code"], error["http_status"]) == (code, status)
    assert "as the server says" in error["message"]
    assert error["retry_safe"] is (status in (429, 503))
    assert run.result["messages"][-1] == {"role": "assistant",
                                          "content": "(no answer: model_error)"}


def test_model_error_after_a_step():
    with Server(calls(call("echo", {"text": "x"})), refuses(), says("Hi.")) as server:
        with Agent(server.url) as agent:
            run = agent.ask(kept=True)
            again = agent.ask("Again?", kept=True)
    assert run.result["exit_reason"] == "model_error" and run.result["tool_calls"] == 1
    assert ending(again) == ("text", "Hi.")
    assert_valid(server.requests[2].body["messages"])


def test_stream_that_breaks():
    run, _ = ask(stream(event(content="Good")), stream=True)
    assert ending(run) == ("model_error", "Good")
    assert run.result["error"]["code"] == "truncated"


def test_no_server():
    with Agent("http://127.0.0.1:1/v1") as agent:
        run = agent.ask()
    assert run.result["error"]["code"] == "connection_failed"
    assert (run.result["step_count"], run.result["error"]["http_status"]) == (0, 0)


# ---- answers that follow a schema ----

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}},
                     "required": ["n"]})
FORMAT = {"type": "json_schema",
          "json_schema": {"name": "answer", "schema": json.loads(SCHEMA)}}


@pytest.mark.parametrize("text", [
    '{"n": 354224848179261915075}', 'Here it is:\n```json\n{"n": 354224848179261915075}\n```\n',
    '\n {"n": 354224848179261915075}\n'])
def test_schema(text):
    """Without tools the server is asked for it; a number keeps its digits."""
    run, server = ask(says(text), schema=SCHEMA, own=[])
    assert ending(run) == ("text", '{"n": 354224848179261915075}')
    assert server.requests[0].body["response_format"] == FORMAT


def test_schema_with_tools():
    """A format would keep some servers from calling tools: it comes with the repair."""
    run, server = ask(calls(call("echo", {"text": "4"})), says("It is 4."), says('{"n": 4}'),
                      schema=SCHEMA)
    assert ending(run) == ("text", '{"n": 4}')
    bodies = [request.body for request in server.requests]
    assert ["response_format" in body for body in bodies] == [False, False, True]
    assert bodies[2]["tool_choice"] == "none"
    told = bodies[2]["messages"][-1]
    assert told["role"] == "user" and "it is not JSON" in told["content"]
    assert '"required":["n"]' in told["content"]


def test_schema_repaired_once():
    run, _ = ask(says('{"n": "x"}'), says('{"m": 1}'), schema=SCHEMA)
    assert ending(run) == ("schema", '{"m": 1}')
    assert run.result["error"]["code"] == "schema" and "n" in run.result["error"]["message"]


def test_schema_behind_the_last_step():
    run, _ = ask(calls(call("echo", {"text": "4"})), says("4"), says('{"n": 4}'), schema=SCHEMA,
                 max_steps=1)
    assert ending(run) == ("max_agent_steps", '{"n": 4}')


def test_schema_of_a_tool_that_ends_the_run():
    run, _ = ask(calls(call("final", {"text": '{"n": 1}'})), schema=SCHEMA)
    assert ending(run) == ("final", '{"n": 1}')
    run, _ = ask(calls(call("final", {"text": "1"})), schema=SCHEMA)
    assert ending(run) == ("schema", "1")


def test_schema_refused_by_the_server():
    """Once more without, and remembered."""
    with Server(refuses(), says('{"n": 1}'), says('{"n": 2}')) as server:
        with Agent(server.url, schema=SCHEMA, own=[]) as agent:
            assert ending(agent.ask()) == ("text", '{"n": 1}')
            assert ending(agent.ask()) == ("text", '{"n": 2}')
    formats = ["response_format" in request.body for request in server.requests]
    assert formats == [True, False, False]


def test_schema_strict():
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "string"},
                                                          "n": {"type": "integer"}}})
    run, server = ask(says('{"a": null, "n": 1}'), schema=schema, strict=True, own=[])
    assert ending(run) == ("text", '{"n":1}')
    assert server.requests[0].body["response_format"]["json_schema"]["strict"] is True


# ---- conversations ----

def test_conversation():
    with Server(calls(call("echo", {"text": "x"})), says("One."), says("Two.")) as server:
        with Agent(server.url, system_prompt="Be brief.") as agent:
            first = agent.ask("First?", kept=True)
            second = agent.ask("Second?", kept=True)
    assert ending(second) == ("text", "Two.")
    sent = server.requests[2].body["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "assistant",
                                         "user"]
    assert [m.get("content") for m in sent] == ["Be brief.", "First?", None, "x", "One.",
                                                "Second?"]
    before = first.result["messages"]
    assert second.result["messages"][:len(before)] == before
    assert second.result["step_count"] == 1 and second.result["tool_calls"] == 0


def test_conversation_of_json():
    """The prompt comes once, and calls that were never answered are."""
    asked = {"role": "assistant", "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "echo", "arguments": "{}"}}
        for id in "pq"]}
    messages = [{"role": "system", "content": "You are old."}, {"role": "user", "content": "Hi"},
                asked, {"role": "tool", "tool_call_id": "p", "content": "x"}]
    with Server(calls(call("echo", {"text": "y"}, id="p")), says()) as server:
        with Agent(server.url, system_prompt="Be brief.") as agent:
            assert agent.load(messages) is True
            run = agent.ask(kept=True)
            assert agent.load(run.result["messages"]) is True
    sent = server.requests[1].body["messages"]
    assert sent[0] == {"role": "system", "content": "Be brief.\n\nYou are old."}
    assert [m["role"] for m in sent[1:]] == ["user", "assistant", "tool", "tool", "user",
                                             "assistant", "tool"]
    assert sent[4]["content"].startswith("Error: there is no result")
    assert_valid(sent)
    ids = [entry["id"] for m in sent for entry in m.get("tool_calls", [])]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("text", "message"), [
    ("", "messages: "), ("{}", "messages: an array expected"), ('[{"role": "x"}]', "messages[0]"),
    ('[{"role": "tool", "tool_call_id": "a", "content": ""}]', "messages[0].tool_call_id")])
def test_conversation_of_bad_json(text, message):
    with Agent("http://127.0.0.1:1/v1") as agent:
        if text:
            assert message in agent.load(text)


def test_conversation_in_use():
    with Server(hang, says()) as server, Agent(server.url) as agent:
        first = agent.begin(kept=True)
        assert server.asked.wait(PATIENCE)
        assert agent.ask(kept=True).answer["error"] == "conversation: another run has it"
        agent.send(cancel=first)
        agent.end(first)
        assert ending(agent.ask(kept=True)) == ("text", "Done.")


# ---- an agent as a tool ----

def test_agent_as_a_tool():
    """Its tokens count; it has a conversation of its own."""
    def rule(request):
        body = request.body
        last = body["messages"][-1]
        if any(tool["function"]["name"] == "helper" for tool in body["tools"]):
            return says("He said 4.") if last["role"] == "tool" else calls(
                call("helper", {"question": "2+2?"}))
        return says(last["content"]) if last["role"] == "tool" else calls(
            call("echo", {"text": "4"}))

    with Server(rule=rule) as server:
        helper = {"base_url": server.url, "builtin_tools": "", "own": ["echo"]}
        with Agent(server.url, own=[], helper=helper) as agent:
            run = agent.ask()
    assert ending(run) == ("text", "He said 4.") and run.tool_messages == ["4"]
    assert run.result["tool_calls"] == 1 and run.result["token_usage"] == {"total_tokens": 12}
    assert [len(request.body["messages"]) for request in server.requests] == [2, 2, 4, 4]


def test_tokens_of_an_agent_that_is_a_tool_use_up_the_budget():
    def rule(request):
        last = request.body["messages"][-1]
        if any(tool["function"]["name"] == "helper" for tool in request.body["tools"]):
            return says("He said 4.") if last["role"] == "tool" else calls(
                call("helper", {"question": "2+2?"}))
        return says(last["content"]) if last["role"] == "tool" else calls(
            call("echo", {"text": "4"}))

    with Server(rule=rule) as server:
        helper = {"base_url": server.url, "builtin_tools": "", "own": ["echo"]}
        with Agent(server.url, own=[], helper=helper, max_total_tokens=9) as agent:
            run = agent.ask()
    assert ending(run) == ("token_budget", "He said 4.")


def test_cells_that_are_not_listed_count():
    """Of a call, and of one that an agent made which is a tool."""
    def rule(request):
        if request.body["messages"][-1]["role"] == "tool":
            return says()
        tools = [tool["function"]["name"] for tool in request.body["tools"]]
        return calls(call("many", {"count": 1005}),
                     *[call("helper", {"question": "?"})] * ("helper" in tools))

    with Server(rule=rule) as server:
        helper = {"base_url": server.url, "builtin_tools": "", "own": ["many"]}
        with Agent(server.url, own=["many"], helper=helper) as agent:
            run = agent.ask()
    assert [cell["tool"] for cell in run.result["cells"]] == ["many"] * 1000 + ["helper"] * 1000
    assert run.result["execution_time_ms"] == 2010 and run.result["code_executed"]


def test_agent_as_a_tool_is_cancelled():
    def rule(request):
        tools = [tool["function"]["name"] for tool in request.body["tools"]]
        return calls(call("helper", {"question": "?"}) if "helper" in tools else call("hang"))

    with Server(rule=rule) as server:
        helper = {"base_url": server.url, "builtin_tools": "", "own": ["hang"]}
        with Agent(server.url, own=[], helper=helper) as agent:
            run = agent.ask(cancel_at="tool_output")
    assert run.result["exit_reason"] == "cancelled"
    assert run.tool_messages == ["Error: the agent gave no full answer: cancelled"]


# ---- threads and memory ----

def memory_of(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def crowd(count, size, door=DOOR):
    """Runs at once of one agent, each with calls at once, all of them meeting at the server; what
    came of them, and the memory that they took in MB."""
    meeting = threading.Barrier(count, timeout=PATIENCE)

    def rule(request):
        if request.body["messages"][-1]["role"] == "tool":
            meeting.wait()
            return says(request.body["messages"][-1]["content"])
        return calls(*[call("echo", {"text": letter * size}) for letter in "xyz"])

    with Server(rule=rule) as server, Agent(server.url, door=door) as agent:
        ids = [agent.begin(f"{i}?") for i in range(count)]
        runs = [agent.end(id) for id in ids]
        memory = memory_of(agent.process)
    return runs, memory


def test_runs_at_once_under_the_thread_sanitizer():
    runs, _ = crowd(4, 100, door=BUILD / "tests/integration/agent_door_threads")
    assert [ending(run) for run in runs] == [("text", "z" * 100)] * 4


def test_a_hundred_runs_at_once():
    runs, memory = crowd(100, 10000)
    assert {ending(run) for run in runs} == {("text", "z" * 10000)}
    assert memory < 200, f"{memory:.0f} MB"


# ---- options ----

@pytest.mark.parametrize(("options", "message"), [
    ({"max_steps": 0}, "max_steps: 0; allowed is 1 to 100"),
    ({"tool_concurrency": 17}, "tool_concurrency: 17; allowed is 1 to 16"),
    ({"timeout_seconds": 0}, "timeout_seconds: 0; allowed is 0.1 to 86400"),
    ({"temperature": 2.5}, "temperature: 2.5; allowed is 0 to 2, and negative to send none"),
    ({"retries": 101}, "retries: 101; allowed is 0 to 100"),
    ({"max_answer_bytes": 10}, "max_answer_bytes: 10; allowed is 1024 to 4194304"),
    ({"silence_seconds": 601}, "silence_seconds: 601; allowed is 0.1 to 600"),
    ({"base_url": "ftp://x"}, "base URL: 'ftp://x' is not an address like https://host/v1"),
    ({"key_file": "/nonexistent"}, "/nonexistent"),
    ({"extra": "[]"}, "extra: an object expected, not an array"),
    ({"extra": '{"n": 2}'}, "extra.n: only one choice is asked for"),
    ({"schema": '{"typ": "x"}'}, "schema: "),
    ({"schema": "{"}, "schema: line 1"),
    ({"builtin_tools": "shell"}, "engine: NULL; the built-in tools need one"),
])
def test_bad_options(options, message):
    options = {"base_url": "http://x/v1", "builtin_tools": "", **options}
    done = subprocess.run([DOOR, json.dumps(options)], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_bad_questions():
    with Agent("http://127.0.0.1:1/v1") as agent:
        error = agent.ask("").answer["error"]
        assert error == "question: 0 bytes; allowed are 1 to 4194304"
        assert "4194305 bytes" in agent.ask("x" * 4194305).answer["error"]


# ---- cells ----

@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


def processes_with(word):
    """Descriptors of the processes that have a word in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in path.read_bytes():
                found.append(os.pidfd_open(int(path.parent.name)))
    return found


def assert_gone(processes, seconds=1):
    """They end when their cell has been killed, at once."""
    for process in processes:
        assert select.select([process], [], [], seconds)[0]
        os.close(process)


def test_cell(cache_dir):
    run, _ = ask(calls(call("cell", {"code": "echo out; exit 3"})), says(), cache_dir=cache_dir)
    (cell,) = run.result["cells"]
    assert (cell["tool"], cell["step"], cell["exit_code"]) == ("cell", 1, 3)
    assert cell["error_type"] == "runtime_error" and cell["duration_ms"] > 0
    assert run.result["code_executed"] is True
    assert run.result["execution_time_ms"] == cell["duration_ms"]
    assert [e["text"] for e in run.of("tool_output")] == ["out\n"]
    assert [e["cell"] for e in run.of("tool_result")] == ["out\n"]
    assert run.tool_messages == ["out\n"]


def test_cell_of_an_agent_that_is_a_tool(cache_dir):
    def rule(request):
        if request.body["messages"][-1]["role"] == "tool":
            return says()
        tools = [tool["function"]["name"] for tool in request.body["tools"]]
        return calls(call("helper", {"question": "?"}) if "helper" in tools
                     else call("cell", {"code": "echo out"}))

    with Server(rule=rule) as server:
        helper = {"base_url": server.url, "builtin_tools": "", "own": ["cell"]}
        with Agent(server.url, own=[], helper=helper, cache_dir=cache_dir) as agent:
            run = agent.ask()
    assert [(cell["tool"], cell["exit_code"]) for cell in run.result["cells"]] == [("helper", 0)]
    assert [e["text"] for e in run.of("tool_output")] == ["out\n"]


@pytest.mark.parametrize("options", [{}, {"timeout_seconds": 2}], ids=["cancel", "timeout"])
def test_cells_are_killed(cache_dir, options):
    """Of calls at once; by the caller, and by the end of the run's time."""
    word = str(random.getrandbits(60)).encode()
    code = {"code": f"echo up; exec sleep {word.decode()}"}
    with Server(calls(call("cell", code), call("cell", code))) as server:
        with Agent(server.url, cache_dir=cache_dir, **options) as agent:
            id = agent.begin()
            while len([e for e in agent.events.get(id, []) if e["kind"] == "tool_output"]) < 2:
                agent.read()
            processes = processes_with(word)
            assert processes or options
            if not options:
                agent.send(cancel=id)
            run = agent.end(id)
            assert_gone(processes + processes_with(word))
    assert run.result["exit_reason"] == ("timeout" if options else "cancelled")
    assert all(text.startswith("Error: ") for text in run.tool_messages)


@pytest.mark.parametrize("tool, code", [
    ("python_executor", "print('up', flush=True)\nimport time\ntime.sleep(1000)"),
    ("code_interpreter", "print('up', flush=True)\nwhile True: pass"),
    ("shell", "echo up; sleep 1000"),
])
@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_cells_that_were_killed_count(cache_dir, tool, code, reason):
    """They have run, though there is no result of them."""
    argument = "command" if tool == "shell" else "code"
    with Server(calls(call(tool, {argument: code}))) as server:
        with Agent(server.url, own=[], builtin_tools=tool, cache_dir=cache_dir,
                   timeout_seconds=4 if reason == "timeout" else 600) as agent:
            run = agent.ask(**({} if reason == "timeout" else {"cancel_at": "tool_output"}))
    assert run.result["exit_reason"] == reason and run.of("tool_output")
    (cell,) = run.result["cells"]
    assert (cell["tool"], cell["exit_code"]) == (tool, -1)
    assert cell["error_type"] == (None if reason == "cancelled" else "timeout")
    assert run.result["code_executed"]
    assert 0 < run.result["execution_time_ms"] == cell["duration_ms"] <= run.result["latency_ms"]
    assert run.tool_messages[0].startswith(
        "Error: cancelled by the caller" if reason == "cancelled"
        else "Error: the time of the run is over")


def test_calls_of_a_session_run_in_order(cache_dir):
    """As they are in the reply; other calls run beside them."""
    def python(code):
        return call("code_interpreter", {"code": code})

    def rule(request):
        if request.body["messages"][-1]["role"] == "tool":
            return says()
        meet = call("meet", {"place": 0, "wanted": 2})
        return calls(python("x = 1"), meet, python("x += 1"), python("x *= 10"),
                     call("write_file", {"path": "f", "content": "no"}),
                     python("open('f', 'w').write(str(x))"), meet,
                     call("read_file", {"path": "f"}))

    with Server(rule=rule) as server:
        with Agent(server.url, own=["meet"], cache_dir=cache_dir, tool_concurrency=3,
                   builtin_tools="code_interpreter,write_file,read_file") as agent:
            runs = [agent.ask() for _ in range(4)]
    for run in runs:
        assert run.tool_messages[-1] == "20"
        assert {text.split(",")[0] for text in run.tool_messages[1:7:5]} == {"met at 0"}


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_waiting_for_a_session_ends_with_the_run(cache_dir, reason):
    """There is one place for cells, and the session of python has it."""
    with Server(calls(call("code_interpreter", {"code": "x = 1"})), says(),
                calls(call("code_interpreter", {"code": "true", "language": "shell"}),
                      call("hang"))) as server:
        with Agent(server.url, own=["hang"], cache_dir=cache_dir, max_cells=1,
                   builtin_tools="code_interpreter",
                   timeout_seconds=5 if reason == "timeout" else 600) as agent:
            agent.ask(kept=True)
            run = agent.ask(kept=True, **({} if reason == "timeout"
                                          else {"cancel_at": "tool_output"}))
    assert run.result["exit_reason"] == reason and run.result["latency_ms"] < 15000
    waited, hung = run.tool_messages[-2:]
    assert hung.startswith("Error: the token is triggered")
    assert waited.startswith("Error: the time of the run is over" if reason == "timeout" else (
        "Error: cancelled by the caller", "Error: not executed: the run was cancelled."))


def test_python_executor(cache_dir):
    run, server = ask(calls(call("python_executor", {"code": "print(2**100)"})),
                      says("1267650600228229401496703205376"), cache_dir=cache_dir, own=[],
                      builtin_tools="python_executor")
    assert json.loads(run.tool_messages[0])["stdout"] == "1267650600228229401496703205376\n"
    assert run.result["tool_call_counts"] == {"python_executor": 1}
    assert [cell["exit_code"] for cell in run.result["cells"]] == [0]
    system = server.requests[0].body["messages"][0]
    assert system["role"] == "system" and "python_executor" in system["content"]


def test_sessions_belong_to_the_conversation(cache_dir):
    """They last from one run to the next, and end with a conversation that a run had by itself."""
    def rule(request):
        last = request.body["messages"][-1]
        return says(last["content"]) if last["role"] == "tool" else calls(
            call("code_interpreter", {"language": "python", "code": last["content"]}))

    with Server(rule=rule) as server:
        with Agent(server.url, own=[], cache_dir=cache_dir,
                   builtin_tools="code_interpreter") as agent:
            agent.ask("x = 6", kept=True)
            kept = agent.ask("print(x * 7)", kept=True)
            fresh = agent.ask("print(x * 7)")
    assert json.loads(kept.result["answer"])["stdout"] == "42\n"
    assert "NameError" in fresh.result["answer"]
