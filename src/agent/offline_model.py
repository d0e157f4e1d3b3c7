#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
The offline model: a server that plays a language model's side of chat completions by
rules, for the demo and for tests.

offline-model [--port N] [--until-eof] listens on 127.0.0.1, prints its base URL as one line,
and ends on SIGTERM and SIGINT; with --until-eof also at the end of its standard input, so that
it does not outlive who started it.

It knows no answers. A rule turns a question into programs, which it asks the client to run
by whatever tool takes code; its answer is made of what the tool said. A program that fails
is written anew, where the rule has another way; else the answer says that it failed.

Models are "offline" and "offline:QUIRK,QUIRK=VALUE..."; quirks may also be in the header
X-Quirks or in the member "quirks" of the request. Each is something that real servers do
wrong (QUIRKS below). One that spoils a reply does so once: the same request again, or the
request after it, is answered well; with the quirk "always" each time. A request that no
strict server would take is answered by 400 (faults_of).

GET  /v1/models       the models, that is all quirks
GET  /requests?count=N the requests so far as JSON, as soon as there are N
POST /continue        lets go on what the quirk "gate" holds
POST /reset           forgets requests and what was spoiled

A thread serves a connection. State is the log of requests (State, under its lock) and the
pipe that /continue writes a byte to for each gate that it opens.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import select
import signal
import socket
import socketserver
import sys
import threading
import time
import urllib.parse

QUIRKS = {
    # how tool calls are sent
    "index0": "all calls have index 0",
    "index1": "indexes begin at 1",
    "noindex": "no call has an index",
    "noids": "no call has an id",
    "sameids": "all calls have the same id",
    "nullids": "later pieces of a call have null for id and name",
    "emptyids": "later pieces of a call have an empty id and name",
    "samename": "each piece has the whole name, and the id within the function",
    "splitname": "the name comes in two pieces",
    "interleaved": "the pieces of all calls take turns",
    "objects": "arguments are an object",
    "double": "arguments are encoded twice",
    "braces": "arguments begin with {}, then come the real ones",
    "rawlines": "line ends in arguments are not escaped",
    "legacy": "function_call in place of tool_calls",
    "both": "each call as function_call and in tool_calls",
    "calls": "=N: each call N times",
    # calls that are spoiled until a tool has said something
    "truncated": "the last call is cut off, finish_reason length",
    "noargs": "arguments are empty",
    "list": "arguments are a list",
    "broken": "arguments are no JSON",
    "unknown": "a tool that there is not",
    "talk": "text in front of calls",
    "badschema": "an answer that does not follow the schema, until that is complained of",
    "loop": "calls a tool for ever, unless tool_choice is none",
    "callsatend": "calls a tool even where tool_choice is none",
    # how a stream is sent
    "comments": "comments, empty events, retry, pings between chunks",
    "glued": "two events on a line, one over two lines, the last without a blank line",
    "crlf": "lines end in CRLF",
    "bytes": "byte by byte",
    "nodone": "no [DONE]",
    "finish": "=REASON, of all replies; =null: none",
    "usage": "usage in each chunk, growing",
    "nousage": "no usage",
    "unicode": "text with a bad byte, half a surrogate pair, NUL and an emoji",
    "reasoning": "reasoning_content, which has to come back with the calls",
    "signature": "extra_content of a call, which has to come back",
    "choices": "a second choice beside the first",
    "whole": "a stream was asked for, one JSON comes",
    "stream": "one JSON was asked for, a stream comes",
    "gate": "after the first piece waits for POST /continue; =each: before each piece",
    "pace": "=MS between pieces",
    # replies that are spoiled once
    "empty": "neither text nor calls",
    "cut": "the connection ends after the first piece",
    "cutfirst": "the connection ends before any piece",
    "errorchunk": "=CODE: the first piece, then an error",
    "errorfirst": "=CODE: an error in place of a reply, under status 200",
    "status": "=CODE: this HTTP status",
    "words": "=array, object, detail, string, html: how an error is said",
    "retryafter": "=SECONDS: header of an error",
    "nojson": "a body that is no JSON",
    # servers that want something else
    "plainschemas": "400 on parameters with other keywords than any server knows",
    "jinja": "500: start the server with --jinja, where there are tools",
    "nostreamoptions": "400 on stream_options",
    "completiontokens": "400 on max_tokens: use max_completion_tokens",
    "content": "500 on a message without content, as of a strict template",
    "onlystreams": "400 on what is no stream",
    "notoolsatend": "400 on tool_choice none",
    "key": "=KEY: 401 without it",
    "redirect": "in circles; =URL: to there",
    # replies that never end well
    "big": "=MB of text",
    "drip": "=MS: a byte of the reply every so often",
    "hang": "no answer at all",
    "reset": "the connection is reset",
    "refusal": "the model refuses",
    "always": "what is spoiled once is spoiled each time",
}
ONCE = {"empty", "cut", "cutfirst", "errorchunk", "errorfirst", "status", "nojson"}
STATUS_WORDS = {
    400: "Invalid value for 'messages'", 401: "Incorrect API key provided",
    402: "Insufficient credits", 403: "Your input was flagged by moderation",
    404: "The model does not exist or you do not have access to it",
    429: "Rate limit reached, please slow down", 500: "The server had an error",
    502: "Provider returned error", 503: "The engine is overloaded",
}
PATIENCE = 600  # seconds that a reply may be held

# ---- the model's programs ----------------------------------------------

NUMBER = r"-?\d+(?:\.\d+)?"
EXPRESSION = r"\(*-?\d+(?:[._]\d+)*(?:\s*(?:\*\*|//|[-+*/%^])\s*\(*-?\d+(?:[._]\d+)*\)*)+"
FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")

FIBONACCI = """\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

print(fibonacci({0}))
"""
DEVIATION = """\
import statistics

numbers = [{0}]
print("sample standard deviation:", round(statistics.stdev(numbers), 4))
print("population standard deviation:", round(statistics.pstdev(numbers), 4))
"""
QUICKSORT = """\
import random

def quicksort(items):
    if len(items) < 2:
        return items
    pivot = items[len(items) // 2]
    return (quicksort([x for x in items if x < pivot])
            + [x for x in items if x == pivot]
            + quicksort([x for x in items if x > pivot]))

print(quicksort([random.randint(0, 999) for _ in range({0})]))
"""
ADDRESSES = """\
import json
import re

def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)

for text in strings(json.loads({0!r})):
    for address in re.findall(r"[\\w.+-]+@[\\w-]+(?:[.][\\w-]+)+", text):
        print(address)
"""
# The first way of many a programmer; date() takes numbers.
DAYS_BY_CALL = """\
from datetime import date

print(abs(date("{1}") - date("{0}")).days)
"""
DAYS = """\
from datetime import date

print(abs(date.fromisoformat("{1}") - date.fromisoformat("{0}")).days)
"""


class Plan:
    """What to do about a question: ways, of which the next is taken when one has failed. A
    way is a list of calls that are made at once; a call is a program, or (tool, arguments).
    say makes the answer of the outputs."""

    def __init__(self, say, *ways, patience=2):
        self.say = say
        self.ways = ways
        self.patience = patience  # times that calls are made again which were not run


def joined(text, outputs):
    return text + "\n".join(outputs)


def plan_calls(question):
    """Call TOOL with {...}, any number of them."""
    calls = []
    for match in re.finditer(r"\bcall (\w+) with (?=\{)", question, re.IGNORECASE):
        with contextlib.suppress(ValueError):
            arguments, _ = json.JSONDecoder().raw_decode(question[match.end():])
            calls.append((match[1], arguments))
    return Plan(lambda outputs: joined("", outputs), calls, patience=0) if calls else None


def plan_block(question):
    block = FENCE.search(question) or INLINE.search(question)
    if not block or not re.search(r"\b(run|execute)\b", question, re.IGNORECASE):
        return None
    return Plan(lambda outputs: joined("It printed:\n", outputs), [block[1]])


def plan_fibonacci(question):
    number = re.search(r"\d+", question)
    if "fibonacci" not in question.lower() or not number:
        return None
    return Plan(lambda outputs: f"Fibonacci number {number[0]} is {outputs[0]}.",
                [FIBONACCI.format(number[0])])


def plan_deviation(question):
    numbers = re.findall(NUMBER, question)
    if "deviation" not in question.lower() or len(numbers) < 2:
        return None
    return Plan(lambda outputs: joined(f"Of these {len(numbers)} numbers:\n", outputs),
                [DEVIATION.format(", ".join(numbers))])


def plan_quicksort(question):
    number = re.search(r"\d+", question)
    if "quicksort" not in question.lower() or not number:
        return None
    return Plan(lambda outputs: joined("Sorted by quicksort: ", outputs),
                [QUICKSORT.format(number[0])])


def json_within(text):
    """The first JSON object or list that stands in a text."""
    for start in re.finditer(r"[{\[]", text):
        with contextlib.suppress(ValueError):
            _, length = json.JSONDecoder().raw_decode(text[start.start():])
            return text[start.start():start.start() + length]
    return None


def plan_addresses(question):
    text = json_within(question)
    if not re.search(r"e-?mail", question, re.IGNORECASE) or not text:
        return None
    return Plan(lambda outputs: joined("The e-mail addresses are:\n", outputs),
                [ADDRESSES.format(text)])


def plan_days(question):
    dates = re.findall(r"\d{4}-\d\d-\d\d", question)
    if "days" not in question.lower() or len(dates) != 2:
        return None
    return Plan(lambda outputs: f"There are {outputs[0]} days between {dates[0]} and {dates[1]}.",
                [DAYS_BY_CALL.format(*dates)], [DAYS.format(*dates)])


def plan_arithmetic(question):
    found = re.findall(EXPRESSION, question)
    if not found or any(text.count("(") != text.count(")") for text in found):
        return None
    return Plan(lambda outputs: "\n".join(f"{a} = {b}" for a, b in zip(found, outputs)),
                [f"print({text.replace('^', '**')})\n" for text in found])


PLANS = (plan_calls, plan_block, plan_fibonacci, plan_deviation, plan_quicksort, plan_addresses,
         plan_days, plan_arithmetic)


def plan_of(question):
    return next(filter(None, (plan(question) for plan in PLANS)), None)


# ---- the model's reading -----------------------------------------------

def text_of(message):
    content = message.get("content", "")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return content


class Outcome:
    """What a tool said of one call."""

    def __init__(self, content):
        self.ran = not content.startswith("Error")
        self.output, self.failure = content.strip(), None if self.ran else content
        result = None
        with contextlib.suppress(ValueError):
            result = json.loads(content)
        if not isinstance(result, dict) or "exit_code" not in result:
            return
        self.output = result.get("stdout", "").rstrip("\n") or str(result.get("value") or "")
        if result["exit_code"] != 0 or result.get("error_type") or result.get("timed_out"):
            self.failure = failure_of(result)


def failure_of(result):
    error = result.get("error")
    if isinstance(error, dict):
        error = ": ".join(str(error[part]) for part in ("class", "message") if error.get(part))
    lines = result.get("stderr", "").strip().splitlines()
    return str(error or (lines and lines[-1]) or result.get("error_type")
               or f"exit code {result['exit_code']}")


def outcomes_since(messages, start):
    """For each assistant message with calls after a place, what the tools said."""
    turns = []
    for message in messages[start + 1:]:
        if message["role"] == "assistant" and message.get("tool_calls"):
            turns.append([])
        elif message["role"] == "tool" and turns:
            turns[-1].append(Outcome(text_of(message)))
    return turns


def question_of(messages):
    """The question, its place, and the plan for it. A follow-up ("And the 101st?") is the
    question before with other numbers; "run it" means the code that was shown; what is no
    question at all, as a complaint about a format, leaves the one before as it is."""
    asked = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not asked:
        return "", len(messages), None
    last = asked[-1]
    question = text_of(messages[last])
    shown = "".join(text_of(m) for m in messages[:last] if m["role"] == "assistant")
    if re.search(r"\brun it\b", question) and FENCE.search(shown):
        blocks = FENCE.findall(shown)
        return question, last, plan_of(f"run\n```\n{blocks[-1]}```\n")
    if len(asked) > 1 and re.match(r"and\b", question, re.IGNORECASE):
        before = re.sub(NUMBER, "", text_of(messages[asked[-2]]))
        return question, last, plan_of(f"{before} {question}")
    if len(asked) > 1 and re.search(r"\b(schema|JSON)\b", question) and not plan_of(question):
        last = asked[-2]
        question = text_of(messages[last])
    return question, last, plan_of(question)


# ---- the model's answers -----------------------------------------------

class Reply:
    def __init__(self, text="", calls=(), finish=None):
        self.text = text
        self.calls = list(calls)  # (tool, arguments as text)
        self.finish = finish or ("tool_calls" if self.calls else "stop")
        self.reasoning = self.refusal = None


def way_to_run(program, tools):
    """The call that runs a Python program, by the first tool that takes one."""
    if isinstance(program, tuple):
        return program
    for tool in tools:
        schema = tool["function"].get("parameters", {})
        taken = schema.get("properties", {})
        if "code" in taken:
            arguments = {"code": program}
            if "language" in schema.get("required", ()):
                arguments["language"] = "python"
            return tool["function"]["name"], arguments
    for tool in tools:
        if "command" in tool["function"].get("parameters", {}).get("properties", {}):
            return tool["function"]["name"], {"command": f"python3 - <<'END'\n{program}END\n"}
    return None


def think(body):
    """The reply to a request, by the rules."""
    messages = body["messages"]
    question, start, plan = question_of(messages)
    turns = outcomes_since(messages, start)
    tools = body.get("tools", ()) if body.get("tool_choice") != "none" else ()
    if not plan:
        return Reply(small_talk(question))
    if re.search(r"\b(write|show)\b.*\bcode\b", question) and not FENCE.search(question):
        return Reply(f"```python\n{plan.ways[0][0]}```\nShall I run it?")
    ran = [turn for turn in turns if turn and all(outcome.ran for outcome in turn)]
    failed = sum(any(outcome.failure for outcome in turn) for turn in ran)
    over = ran and not any(outcome.failure for outcome in ran[-1])
    tried = len(turns) - len(ran) > plan.patience
    way = plan.ways[failed] if failed < len(plan.ways) else []
    calls = [way_to_run(call, tools) for call in way]
    if calls and all(calls) and not over and not tried:
        return Reply(calls=[(name, json.dumps(arguments)) for name, arguments in calls])
    return Reply(conclusion(plan, turns))


def conclusion(plan, turns):
    if not turns:
        return "I cannot run code here, so I cannot say."
    failures = [outcome.failure for outcome in turns[-1] if outcome.failure]
    if failures:
        return "It failed: " + "; ".join(failures)
    return plan.say([outcome.output for outcome in turns[-1]])


def small_talk(question):
    return f"I answer what a program can compute, and see none in \"{question[:200]}\"."


def follow(schema, text, words, numbers):
    """A value by a schema out of a text; None where the text has nothing for it."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        members = {name: follow(inner, text, words, numbers)
                   for name, inner in schema.get("properties", {}).items()}
        return {name: value for name, value in members.items() if value is not None}
    if kind == "array":
        inner = schema.get("items", {})
        if inner.get("type") in ("number", "integer"):
            taken = list(numbers)
            numbers.clear()
            return taken
        return words
    if kind in ("number", "integer"):
        return numbers.popleft() if numbers else None
    if kind == "boolean":
        return "failed" not in text
    return next((choice for choice in schema.get("enum", ()) if str(choice) in text), text)


def in_format(reply, wanted, outputs):
    """The reply as JSON, where a response_format asks for that."""
    schema = wanted.get("json_schema", {}).get("schema")
    if not schema:
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    numbers = collections.deque(json.loads(number) for number in re.findall(NUMBER, outputs))
    reply.text = json.dumps(follow(schema, reply.text, outputs.split(), numbers))


# ---- what is wrong with a reply ----------------------------------------

class Quirks(dict):
    """Those of a request: name to value ("" for none)."""

    def __init__(self, *texts):
        pairs = (item.partition("=") for text in texts for item in text.split(",") if item)
        super().__init__((name.strip(), value.strip()) for name, _, value in pairs)

    @property
    def unknown(self):
        return sorted(set(self) - set(QUIRKS))

    def number(self, name, otherwise):
        return int(self[name] or otherwise)


def spoil(reply, quirks, spoken):
    """Changes the calls of a reply. spoken: a tool has said something about this question."""
    if "calls" in quirks:
        reply.calls = [call for call in reply.calls for _ in range(quirks.number("calls", 2))]
    if "rawlines" in quirks:
        reply.calls = [(name, re.sub(r"(?<!\\)\\n", "\n", text)) for name, text in reply.calls]
    if "double" in quirks:
        reply.calls = [(name, json.dumps(text)) for name, text in reply.calls]
    if reply.calls and "talk" in quirks:
        reply.text = "Let me run it."
    if reply.calls and (not spoken or "always" in quirks):
        spoil_arguments(reply, quirks)
    if "finish" in quirks:
        reply.finish = None if quirks["finish"] == "null" else quirks["finish"]
    if "reasoning" in quirks:
        reply.reasoning = "A program can say."
    if "refusal" in quirks:
        reply.text, reply.calls, reply.finish = "", [], "stop"
        reply.refusal = "I will not do that."


def spoil_arguments(reply, quirks):
    name, text = reply.calls[-1]
    if "unknown" in quirks:
        reply.calls = [("no_such_tool", text) for _, text in reply.calls]
    for quirk, spoiled in (("noargs", ""), ("list", "[1]"), ("broken", "{]")):
        if quirk in quirks:
            reply.calls[-1] = (name, spoiled)
    if "truncated" in quirks:
        reply.calls[-1] = (name, text[:14])
        reply.finish = "length"


# ---- replies as JSON ---------------------------------------------------

def call_id(messages, number, quirks):
    """Unique in the conversation, as those of well-behaved servers."""
    made = sum(len(message.get("tool_calls", ())) for message in messages)
    return f"call_{made if 'sameids' in quirks else made + number}_o"


def arguments_of(text, quirks):
    if "objects" in quirks:
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return text


def signature(messages):
    return {"google": {"thought_signature": f"sig/{len(messages)}=="}}


def whole(reply, body, quirks):
    """The reply as one JSON object."""
    message = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.refusal:
        message["refusal"] = reply.refusal
    calls = []
    for number, (name, text) in enumerate(reply.calls):
        call = {"id": call_id(body["messages"], number, quirks), "type": "function",
                "function": {"name": name, "arguments": arguments_of(text, quirks)}}
        if "noids" in quirks:
            del call["id"]
        if "signature" in quirks:
            call["extra_content"] = signature(body["messages"])
        calls.append(call)
    if calls and ("legacy" in quirks or "both" in quirks):
        message["function_call"] = calls[0]["function"]
    if calls and "legacy" not in quirks:
        message["tool_calls"] = calls
    choices = [{"index": 0, "message": message, "finish_reason": reply.finish}]
    if "choices" in quirks:
        choices.append({"index": 1, "message": {"role": "assistant", "content": "no"},
                        "finish_reason": "stop"})
    answer = {"id": "chatcmpl-o", "object": "chat.completion", "model": body["model"],
              "choices": choices}
    if "nousage" not in quirks:
        answer["usage"] = usage(body, len(reply.text) + sum(len(text) for _, text in reply.calls))
    return answer


def usage(body, length):
    """About four characters a token."""
    asked = sum(len(text_of(message)) for message in body["messages"]) // 4 + 1
    return {"prompt_tokens": asked, "completion_tokens": length // 4 + 1,
            "total_tokens": asked + length // 4 + 1}


def pieces_of(text, length=24):
    return [text[i:i + length] for i in range(0, len(text), length)]


# What later pieces of a call hold beside index and arguments: of the entry, of its function.
LATER = {
    "nullids": lambda name, identity: ({"id": None}, {"name": None}),
    "emptyids": lambda name, identity: ({"id": ""}, {"name": ""}),
    "samename": lambda name, identity: ({}, {"name": name, "id": identity}),
}


def call_deltas(number, name, text, identity, quirks):
    """The pieces of one call, each an entry of tool_calls."""
    index = {"index": 0 if "index0" in quirks else number + ("index1" in quirks)}
    if "noindex" in quirks:
        index = {}
    beside, within = next((LATER[quirk](name, identity) for quirk in LATER if quirk in quirks),
                          ({}, {}))
    first = {**index, "id": identity, "type": "function",
             "function": {"name": name, "arguments": ""}}
    if "samename" in quirks:
        first["function"]["id"] = identity
    if "noids" in quirks or "samename" in quirks:
        del first["id"]
    if "braces" in quirks:
        first["function"]["arguments"] = "{}"
    arguments = arguments_of(text, quirks)
    if not isinstance(arguments, str):
        first["function"]["arguments"] = arguments
        return [first]
    entries = [first]
    if "splitname" in quirks:
        first["function"]["name"] = name[:4]
        entries.append({**index, "function": {"name": name[4:]}})
    return entries + [{**index, **beside, "function": {**within, "arguments": piece}}
                      for piece in pieces_of(text)]


def deltas(reply, body, quirks):
    """The reply in pieces."""
    yield {"role": "assistant", "content": ""}
    for piece in pieces_of(reply.reasoning or "", 8):
        yield {"reasoning_content": piece}
    if reply.refusal:
        yield {"refusal": reply.refusal}
    for piece in re.findall(r"\s*\S+|\s+$", reply.text):
        yield {"content": piece}
    calls = [call_deltas(number, name, text, call_id(body["messages"], number, quirks), quirks)
             for number, (name, text) in enumerate(reply.calls)]
    if calls and "legacy" in quirks:
        calls = calls[:1]
    if "interleaved" in quirks:
        order = sorted((i, number) for number, call in enumerate(calls) for i in range(len(call)))
        entries = [calls[number][i] for i, number in order]
    else:
        entries = [entry for call in calls for entry in call]
    for entry in entries:
        delta = {} if "legacy" in quirks else {"tool_calls": [entry]}
        if "legacy" in quirks or "both" in quirks and entry.get("index", 0) == 0:
            delta["function_call"] = entry["function"]
        yield delta
    if calls and "signature" in quirks:
        last = {"index": len(calls) - 1} if "noindex" not in quirks else {}
        yield {"tool_calls": [{**last, "extra_content": signature(body["messages"])}]}


def chunks(reply, body, quirks):
    """The events of the stream."""
    length = 0
    head = {"id": "chatcmpl-o", "object": "chat.completion.chunk", "model": body["model"]}
    for delta in deltas(reply, body, quirks):
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        length += len(json.dumps(delta)) // 8
        if "choices" in quirks:
            chunk["choices"].append({"index": 1, "delta": {"content": "no"}})
        if "usage" in quirks:
            chunk["usage"] = usage(body, length)
        yield chunk
    if reply.finish is not None:
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]}
    if "nousage" not in quirks:
        yield {**head, "choices": [], "usage": usage(body, length)}


def error_chunk(code):
    return {"error": {"code": code, "message": STATUS_WORDS.get(code, "It went wrong")},
            "choices": []}


NOISE = (b": OPENROUTER PROCESSING\n\n", b"data: : OPENROUTER PROCESSING\n\n", b"retry: 3000\n\n",
         b"event: ping\ndata:\n\n", b"\n\n", b"data:\n\n")
# A bad byte, half a surrogate pair, NUL, and an emoji in two halves of a pair.
BAD_TEXT = b"<\xff\\ud83d\\u0000\\ud83d\\ude00> "
BAD_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % BAD_TEXT


def events(reply, body, quirks):
    """The stream as bytes, event by event."""
    encoded = [b"data: " + json.dumps(chunk).encode() for chunk in chunks(reply, body, quirks)]
    if "nodone" not in quirks:
        encoded.append(b"data: [DONE]")
    if "glued" in quirks:
        begin, separator, end = encoded[0].partition(b", ")
        encoded[0] = begin + b",\ndata: " + end if separator else begin
        encoded[1:3] = [encoded[1] + encoded[2]] if len(encoded) > 3 else encoded[1:3]
    parts = [event + b"\n\n" for event in encoded]
    if "glued" in quirks:
        parts[-1] = parts[-1].rstrip(b"\n")
    if "unicode" in quirks and reply.text:
        parts.insert(1, BAD_EVENT)
    if "comments" in quirks:
        parts = [part for i, event in enumerate(parts) for part in (NOISE[i % len(NOISE)], event)]
    if "crlf" in quirks:
        parts = [part.replace(b"\n", b"\r\n") for part in parts]
    if "bytes" in quirks:
        parts = [bytes([byte]) for part in parts for byte in part]
    return parts


# ---- what is wrong with a request --------------------------------------

def nulls(value, path):
    """Where a value holds null."""
    if value is None:
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not (name == "parameters" or name == "schema"):  # a schema may name null
                yield from nulls(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from nulls(inner, f"{path}[{i}]")


def is_object(text):
    with contextlib.suppress(ValueError):
        return isinstance(json.loads(text), dict)
    return False


def message_faults(messages, lax):
    """Roles, contents, calls and their results, in order. lax: an empty content may stand beside
    calls."""
    waiting, seen = [], set()
    for i, message in enumerate(messages):
        role, calls = message.get("role"), message.get("tool_calls", [])
        if role == "system" and i > 0:
            yield f"messages[{i}]: System message must be at the beginning"
        if waiting and role != "tool":
            yield f"messages[{i}]: results of {waiting} have to come first"
            waiting = []
        if role not in ("system", "user", "assistant", "tool"):
            yield f"messages[{i}].role: {role!r}"
        if not message.get("content") and (not calls or "content" in message and not lax):
            yield f"messages[{i}].content: must not be empty"
        if "tool_calls" in message and not calls:
            yield f"messages[{i}].tool_calls: must not be empty"
        for call in calls:
            if call.get("type") != "function" or not is_object(call["function"]["arguments"]):
                yield f"messages[{i}]: arguments are no JSON object: {call}"
            if not isinstance(call.get("id"), str) or not call["id"] or call["id"] in seen:
                yield f"messages[{i}]: id {call.get('id')!r} is missing or used twice"
            seen.add(call.get("id"))
            waiting.append(call.get("id"))
        if role == "tool":
            if message.get("tool_call_id") not in waiting[:1]:
                yield f"messages[{i}].tool_call_id: {message.get('tool_call_id')!r} is not next"
            waiting = waiting[1:]
    if waiting or messages[-1]["role"] not in ("user", "tool"):
        yield "messages: nothing to answer"


def tool_faults(tools):
    names = [tool.get("function", {}).get("name", "") for tool in tools]
    if not tools or len(set(names)) < len(names):
        yield f"tools: empty, or a name twice: {names}"
    for tool, name in zip(tools, names):
        if tool.get("type") != "function" or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            yield f"tools: {name!r} is no name of a function"
        if tool.get("function", {}).get("parameters", {}).get("type") != "object":
            yield f"tools: the parameters of {name!r} are no object"


def echo_faults(messages, quirks):
    """What was sent with calls has to come back with them."""
    for i, message in enumerate(messages):
        if not message.get("tool_calls") or any(m["role"] == "user" for m in messages[i:]):
            continue
        if "reasoning" in quirks and not message.get("reasoning_content"):
            yield "The reasoning_content in the thinking mode must be passed back"
        extra = message["tool_calls"][-1].get("extra_content")
        if "signature" in quirks and extra != signature(messages[:i]):
            yield "Function call is missing a thought_signature"


def faults_of(request, body, quirks, refused):
    """What a strict server would refuse a request for. refused: members that it took from no
    client, which may know that."""
    if request.headers.get("content-type") != "application/json" or "expect" in request.headers:
        yield "Content-Type has to be application/json, without Expect"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: have to be a list"
        return
    for path in nulls(body, "body"):
        yield f"{path}: null"
    known = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "temperature",
             "max_tokens", "max_completion_tokens", "response_format", "quirks", "top_p", "seed",
             "stop", "parallel_tool_calls"}
    for name in sorted(set(body) - known):
        yield f"Unknown name \"{name}\""
    streams = {"include_usage": True} if body.get("stream") else None
    if "stream_options" not in refused and body.get("stream_options") != streams:
        yield f"stream_options: {body.get('stream_options')}"
    if "tools" in body:
        yield from tool_faults(body["tools"])
    elif "tool_choice" in body:
        yield "tool_choice: without tools"
    yield from message_faults(body["messages"], "content" in quirks)
    yield from echo_faults(body["messages"], quirks)


PLAIN = {"type", "properties", "required", "description", "enum", "items"}


def keywords_of(schema):
    """All keywords of a schema."""
    if not isinstance(schema, dict):
        return set()
    inner = [*schema.get("properties", {}).values(), schema.get("items")]
    return set(schema).union(*map(keywords_of, inner))


def wishes_of(body, quirks):
    """Status and words of a server that wants the request otherwise; None: it takes it."""
    if "nostreamoptions" in quirks and "stream_options" in body:
        return 400, "Unknown name \"stream_options\": Cannot find field"
    if "completiontokens" in quirks and "max_tokens" in body:
        return 400, ("Unsupported parameter: 'max_tokens' is not supported with this model. "
                     "Use 'max_completion_tokens' instead.")
    if "content" in quirks and not all("content" in message for message in body["messages"]):
        return 500, "'dict object' has no attribute 'content'"
    if "onlystreams" in quirks and not body.get("stream"):
        return 400, "parameter.enable_thinking must be set to false for non-streaming calls"
    if "notoolsatend" in quirks and body.get("tool_choice") == "none":
        return 400, "tool_choice none is not supported"
    if "plainschemas" in quirks:
        used = [keywords_of(tool["function"].get("parameters")) for tool in body.get("tools", ())]
        unknown = sorted(set().union(*used) - PLAIN)
        if unknown:
            return 400, f"Unknown name \"{unknown[0]}\" at 'tools[0].function.parameters'"
    if "jinja" in quirks and "tools" in body:
        return 500, "tools param requires --jinja flag"
    return None


# ---- the server --------------------------------------------------------

class Gone(Exception):
    """The client is gone, or what it was to wait for takes too long."""


class Request:
    def __init__(self, stream):
        self.method, self.target, _ = stream.readline().decode("latin-1").split(" ", 2)
        self.headers = {}
        while (line := stream.readline().strip()):
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()
        self.data = stream.read(int(self.headers.get("content-length", 0)))
        self.time = time.monotonic()
        self.status = None
        self.faults = []

    def log_entry(self):
        body = self.data.decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            body = json.loads(body)
        return {"time": self.time, "method": self.method, "path": self.target,
                "headers": self.headers, "body": body, "status": self.status,
                "faults": self.faults}


class State:
    """What all connections share. The condition guards requests and spoiled."""

    def __init__(self):
        self.changed = threading.Condition()
        self.requests = []
        self.spoiled = set()  # requests that were answered badly, to be answered well next
        self.refused = set()  # members of requests that were refused
        self.gate_reader, self.gate = os.pipe()
        os.set_blocking(self.gate_reader, False)

    def add(self, request):
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()

    def await_count(self, count):
        with self.changed:
            self.changed.wait_for(lambda: len(self.requests) >= count, PATIENCE)
            return [request.log_entry() for request in self.requests]

    def spoils(self, body, quirks):
        """Whether what is spoiled once is to be spoiled now."""
        key = json.dumps([body["model"], body["messages"]])
        with self.changed:
            if key in self.spoiled and "always" not in quirks:
                self.spoiled.remove(key)
                return False
            self.spoiled.add(key)
            return True

    def reset(self):
        with self.changed:
            self.requests.clear()
            self.spoiled.clear()
            self.refused.clear()
        with contextlib.suppress(BlockingIOError):
            while os.read(self.gate_reader, 4096):
                pass


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    wbufsize = 0

    def handle(self):
        with contextlib.suppress(ConnectionError, Gone, ValueError):
            while self.rfile.peek(1):
                if self.answer(Request(self.rfile)) is False:
                    return

    def answer(self, request):
        """False: the connection is over."""
        target = urllib.parse.urlsplit(request.target)
        route = request.method, target.path.rstrip("/")
        if route == ("GET", "/requests"):
            count = urllib.parse.parse_qs(target.query).get("count", ["0"])[0]
            return self.send_json({"requests": self.server.state.await_count(int(count))})
        if route == ("POST", "/continue"):
            os.write(self.server.state.gate, b"+")
            return self.send_json({})
        if route == ("POST", "/reset"):
            self.server.state.reset()
            return self.send_json({})
        if route == ("GET", "/v1/models"):
            names = ["offline"] + [f"offline:{name}" for name in QUIRKS]
            return self.send_json({"object": "list", "quirks": QUIRKS, "data": [
                {"id": name, "object": "model", "owned_by": "hutch"} for name in names]})
        self.server.state.add(request)
        if route != ("POST", "/v1/chat/completions"):
            return self.send_error(request, 404, f"Invalid URL ({request.method} {request.target})")
        return self.complete(request)

    # -- chat completions --

    def complete(self, request):
        try:
            body = json.loads(request.data)
            model, _, named = body["model"].partition(":")
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            return self.send_error(request, 400, f"We could not parse the body: {problem!r}")
        quirks = Quirks(named, request.headers.get("x-quirks", ""), body.get("quirks", ""))
        if model != "offline" or quirks.unknown:
            request.faults = [f"The model '{body['model']}' does not exist"]
            return self.send_error(request, 404, request.faults[0])
        wish = wishes_of(body, quirks)
        if "nostreamoptions" in quirks:
            self.server.state.refused.add("stream_options")
        request.faults = list(faults_of(request, body, quirks, self.server.state.refused))
        if request.faults:
            return self.send_error(request, 400, "; ".join(request.faults))
        if wish:
            return self.send_error(request, *wish, quirks)
        if ONCE & set(quirks) and not self.server.state.spoils(body, quirks):
            quirks = Quirks(*(f"{k}={v}" for k, v in quirks.items() if k not in ONCE))
        return self.refuse(request, body, quirks)

    def refuse(self, request, body, quirks):
        """What comes in place of a reply; else the reply."""
        if "key" in quirks and request.headers.get("authorization") != f"Bearer {quirks['key']}":
            return self.send_error(request, 401, STATUS_WORDS[401], quirks)
        if "status" in quirks:
            status = quirks.number("status", 500)
            return self.send_error(request, status, STATUS_WORDS.get(status, "No"), quirks)
        if "redirect" in quirks:
            return self.send_redirect(request, quirks["redirect"])
        if "hang" in quirks:
            return self.pause(PATIENCE)
        if "reset" in quirks or "cutfirst" in quirks:
            linger = b"\1\0\0\0\0\0\0\0" if "reset" in quirks else b"\0\0\0\0\0\0\0\0"
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            return False
        if "nojson" in quirks:
            return self.send(request, b"<html><body>Bad gateway</body></html>",
                             Content_Type="text/html")
        return self.reply(request, body, quirks)

    def reply(self, request, body, quirks):
        last = body.get("tool_choice") == "none"
        question, start, _ = question_of(body["messages"])
        turns = outcomes_since(body["messages"], start)
        reply = think(body)
        if "loop" in quirks and not last or "callsatend" in quirks and last:
            reply = think({**body, "tool_choice": "auto", "messages": body["messages"][:start + 1]})
        complained = any(message["role"] == "user" for message in body["messages"][start + 1:])
        bad = "badschema" in quirks and (not complained or "always" in quirks)
        if body.get("response_format") and not reply.calls and not bad:
            said = " ".join(outcome.output for turn in turns[-1:] for outcome in turn)
            in_format(reply, body["response_format"], said)
        if "empty" in quirks:
            reply = Reply()
        if "big" in quirks:
            reply = Reply(("0" * 1023 + " ") * (quirks.number("big", 10) << 10))
        spoil(reply, quirks, spoken=bool(turns))
        if body.get("stream") and "whole" not in quirks or "stream" in quirks:
            return self.send_stream(request, reply, body, quirks)
        return self.send_whole(request, reply, body, quirks)

    def send_whole(self, request, reply, body, quirks):
        if "errorfirst" in quirks or "errorchunk" in quirks:
            code = quirks.number("errorfirst" if "errorfirst" in quirks else "errorchunk", 502)
            return self.send(request, json.dumps(error_chunk(code)).encode())
        data = json.dumps(whole(reply, body, quirks)).encode()
        if "unicode" in quirks and reply.text:
            data = data.replace(b'"content": "', b'"content": "' + BAD_TEXT, 1)
        if "gate" in quirks:
            self.wait_for_gate()
        head = self.head(request, 200, {"Content-Length": len(data)})
        if "cut" in quirks:
            self.connection.sendall(head + data[:len(data) // 2])
            return False
        if "drip" in quirks:
            self.connection.sendall(head)
            return self.drip(data, quirks)
        return self.connection.sendall(head + data)

    def send_stream(self, request, reply, body, quirks):
        self.connection.sendall(self.head(request, 200, {"Content-Type": "text/event-stream",
                                                         "Transfer-Encoding": "chunked"}))
        parts = events(reply, body, quirks)
        if "errorfirst" in quirks or "errorchunk" in quirks:
            code = quirks.number("errorfirst" if "errorfirst" in quirks else "errorchunk", 502)
            error = b"data: " + json.dumps(error_chunk(code)).encode() + b"\n\n"
            parts = parts[:0 if "errorfirst" in quirks else 2] + [error]
        if "cut" in quirks:
            parts = parts[:2]
        if "drip" in quirks:
            return self.drip(b"1\r\n:\r\n" * (1 << 16), quirks)
        for i, part in enumerate(parts):
            if "gate" in quirks and (i == 2 or i > 2 and quirks["gate"] == "each"):
                self.wait_for_gate()
            if "pace" in quirks:
                self.pause(quirks.number("pace", 50) / 1000)
            self.send_chunk(part)
        if "cut" in quirks:
            return False
        return self.send_chunk(b"")

    # -- waiting --

    def drip(self, data, quirks):
        for byte in data:
            self.pause(quirks.number("drip", 100) / 1000)
            self.connection.sendall(bytes([byte]))
        return False

    def pause(self, seconds, *descriptors):
        """Waits until a descriptor is readable; Gone when the client goes away."""
        poll = select.poll()
        for descriptor in (self.connection.fileno(), *descriptors):
            poll.register(descriptor, select.POLLIN | select.POLLRDHUP)
        ready = dict(poll.poll(seconds * 1000))
        if self.connection.fileno() in ready:
            raise Gone
        return ready

    def wait_for_gate(self):
        reader = self.server.state.gate_reader
        while self.pause(PATIENCE, reader):
            with contextlib.suppress(BlockingIOError):  # another took it
                if os.read(reader, 1):
                    return
        raise Gone

    # -- HTTP --

    @staticmethod
    def head(request, status, headers):
        request.status = status
        headers = {"Content-Type": "application/json", "x-request-id": "req-offline", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Offline\r\n{lines}\r\n".encode()

    def send(self, request, data, status=200, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        head = self.head(request, status, {"Content-Length": len(data), **headers})
        self.connection.sendall(head + data)

    def send_json(self, value):
        data = json.dumps(value).encode()
        self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                b"Content-Length: %d\r\n\r\n" % len(data) + data)

    def send_chunk(self, data):
        self.connection.sendall(b"%x\r\n" % len(data) + data + b"\r\n")

    def send_redirect(self, request, target):
        self.send(request, b"{}", status=307, Location=target or request.target)

    def send_error(self, request, status, words, quirks=()):
        error = {"message": words, "type": "invalid_request_error", "code": None}
        form = quirks["words"] if "words" in quirks else ""
        body = {"array": [{"error": {"code": status, "message": words}}],
                "object": {"object": "error", **error, "code": status},
                "detail": {"detail": words}, "string": {"error": words}}.get(form, {"error": error})
        headers = {"Retry-After": quirks["retryafter"]} if "retryafter" in quirks else {}
        data = json.dumps(body).encode()
        if form == "html":
            data = f"<html><h1>{words}</h1></html>".encode()
            headers["Content-Type"] = "text/html"
        self.send(request, data, status, **headers)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256
    block_on_close = False

    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.state = State()

    def handle_error(self, request, client_address):
        """What a client does to its connection is no news; what this program does wrong is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(
        prog="offline-model", description="A server on 127.0.0.1 that plays a language model by "
        "rules, for trying hutch agent without a key. It prints its base URL, and runs until "
        "SIGTERM or SIGINT (Ctrl-C).")
    parser.add_argument("--port", type=int, default=0, metavar="N",
                        help="where to listen; default 0, any port that is free")
    parser.add_argument("--until-eof", action="store_true",
                        help="end at the end of standard input, too")
    options = parser.parse_args()
    if not 0 <= options.port <= 65535:
        parser.error(f"argument --port: {options.port} is not from 0 to 65535")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    try:
        server = Server(options.port)
    except OSError as error:
        sys.exit(f"offline-model: cannot listen on 127.0.0.1:{options.port} (--port): "
                 f"{error.strerror}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    while not options.until_eof:
        signal.pause()
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
