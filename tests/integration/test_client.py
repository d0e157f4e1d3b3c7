# SPDX-License-Identifier: Apache-2.0
"""
The client of model servers (src/agent/client.h), by the program chat_door, against a
server (model_server.py) that does what a test wants of each request: everything that goes wrong
between a client and its server.

HUTCH_BUILD is the build folder.
"""

import contextlib
import email.utils
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

from model_server import (DONE, GOOD, Server, certificate, completion, event, finish, hang, plain,
                          reset, send, stream)

DOOR = pathlib.Path(os.environ["HUTCH_BUILD"]) / "tests/integration/chat_door"
PATIENCE = 30
KEY = "sk-very-secret-0123456789"
HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"name": "run", "description": "runs", "parameters": {"type": "object", "properties": {}}}


# ---- the client ----

class Client:
    def __init__(self, base_url, environment=None, pass_fds=(), **options):
        options = {"base_url": base_url, "retry_ms": 1, **options}
        variables = {name: value for name, value in os.environ.items()
                     if not name.lower().endswith("_proxy")}
        self.process = subprocess.Popen([DOOR, json.dumps(options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**variables, **(environment or {})},
                                        pass_fds=pass_fds)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        out, err = self.process.communicate(timeout=PATIENCE)
        assert kind or (self.process.returncode, out, err) == (0, b"", b"")

    def ask(self, **request):
        request = {"model": "m", "messages": HELLO, **request}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        assert KEY.encode() not in line
        return json.loads(line)


def ask(*answers, options=None, **request):
    """What comes of a request to a server that gives these answers, all of which have to be
    used; and the server."""
    with Server(*answers) as server, Client(server.url, **(options or {})) as client:
        answer = client.ask(**request)
        assert not server.answers
        return answer, server


def text_of(answer):
    assert "error" not in answer, answer
    return answer["reply"]["message"][0].get("content")


def error_of(answer):
    return answer["error"]["kind"], answer["error"]["message"]


# ---- what is sent ----

def test_plain_reply():
    answer, server = ask(plain(completion()), temperature=0.1, max_tokens=9, extra={"seed": 1},
                         tools=[TOOL], tool_choice="auto", options={"key": KEY})
    assert text_of(answer) == "Hi"
    assert answer["reply"]["usage"] == {"total_tokens": 3} and answer["reply"]["model"] == "m-1"
    assert answer["deltas"] == ["Hi"]
    request = server.requests[0]
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == request.headers["accept"] == "application/json"
    assert request.headers["user-agent"].startswith("hutch/")
    assert "expect" not in request.headers and "accept-encoding" not in request.headers
    assert request.body == {
        "model": "m", "messages": HELLO, "stream": False, "temperature": 0.1, "max_tokens": 9,
        "tools": [{"type": "function", "function": TOOL}], "tool_choice": "auto", "seed": 1}


def test_headers_of_the_caller():
    _, server = ask(plain(completion()), options={"headers": ["X-Title: a", "HTTP-Referer: b"]})
    assert server.requests[0].headers["x-title"] == "a"
    assert server.requests[0].headers["http-referer"] == "b"
    assert "authorization" not in server.requests[0].headers
    _, server = ask(plain(completion()),
                    options={"key": KEY, "headers": ["Authorization: Basic x"]})
    assert server.requests[0].headers["authorization"] == "Basic x"


@pytest.mark.parametrize(("options", "message"), [
    ({"base_url": "ftp://x"}, "base URL: 'ftp://x' is not an address like https://host/v1"),
    ({"key": "a b"}, "the API key holds a blank or a byte that is not visible ASCII"),
    ({"headers": ["X: a\r\nY: b"]}, "headers[0]: not 'Name: value' on one line"),
    ({"idle_ms": 0}, "idle_ms: 0 is not from 1 to 600000"),
    ({"retries": 101}, "retries: 101 is not from 0 to 100"),
])
def test_bad_options(options, message):
    done = subprocess.run([DOOR, json.dumps({"base_url": "http://x", **options})],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (2, f"chat_door: {message}\n")


def test_bad_request_is_not_sent():
    answer, server = ask(model="")
    assert error_of(answer) == ("invalid_request", "model: there is no name")
    assert answer["error"]["attempts"] == 0 and not server.requests


def test_known_server_wants_a_key():
    with Client("https://openrouter.ai/api/v1") as client:
        kind, message = error_of(client.ask())
    assert kind == "no_key" and "OPENROUTER_API_KEY" in message


# ---- streams ----

def test_stream():
    answer, server = ask(stream(*GOOD), stream=True)
    assert text_of(answer) == "Hello" and answer["deltas"] == ["He", "llo"]
    assert answer["reply"]["finish"] == "stop"
    request = server.requests[0]
    assert request.headers["accept"] == "text/event-stream"
    assert request.body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_byte_order_mark(cut):
    whole = b"\xef\xbb\xbf" + json.dumps(completion()).encode()
    parts = b"\xef\xbb\xbf" + "".join(GOOD).encode()
    for text, kind in ((whole, "application/json"), (parts, "text/event-stream")):
        answer, _ = ask(stream(text[:cut], text[cut:], kind=kind))
        assert text_of(answer) == ("Hi" if text is whole else "Hello")


def test_stream_byte_by_byte():
    answer, _ = ask(stream(*(bytes([byte]) for byte in "".join(GOOD).encode())), stream=True)
    assert text_of(answer) == "Hello"


def test_stream_answered_as_a_whole_and_the_other_way_round():
    answer, _ = ask(plain(completion()), stream=True)
    assert text_of(answer) == "Hi" and answer["deltas"] == ["Hi"]
    answer, _ = ask(stream(*GOOD))
    assert text_of(answer) == "Hello"
    answer, _ = ask(stream(*GOOD, kind="text/plain"), stream=True)
    assert text_of(answer) == "Hello"


@pytest.mark.parametrize("ending", [(finish(), DONE), (finish(),)], ids=["mark", "reason"])
def test_server_that_does_not_close(ending):
    """The reply is there when it is complete, not when the connection ends."""
    answer, _ = ask(stream(GOOD[0], *ending, hang), stream=True, options={"after_finish_ms": 50})
    assert text_of(answer) == "He"


def test_calls_and_what_is_sent_back():
    call = {"index": 0, "id": "a", "function": {"name": "run", "arguments": "{}"},
            "extra_content": {"google": {"thought_signature": "x+/=="}}}
    with Server(stream(event(reasoning_content="r", tool_calls=[call]), finish("tool_calls"), DONE),
                plain(completion()), plain(completion())) as server:
        with Client(server.url) as client:
            first = client.ask(stream=True, tools=[TOOL])
            assert first["reply"]["calls"] == 1 and first["reasoning"] == ["r"]
            messages = [*HELLO, *first["reply"]["message"],
                        {"role": "tool", "tool_call_id": "a", "content": "1"}]
            client.ask(messages=messages, tools=[TOOL])
            client.ask(messages=messages, tools=[TOOL], model="other")
    sent = server.requests[1].body["messages"]
    assert sent[1]["tool_calls"][0]["extra_content"] == call["extra_content"]
    assert sent[1]["reasoning_content"] == "r" and "content" not in sent[1]
    assert sent[2] == {"role": "tool", "tool_call_id": "a", "content": "1"}
    assert "extra_content" not in server.requests[2].text
    assert "reasoning" not in server.requests[2].text


def test_truncated_stream():
    """Is tried again, unless something was shown."""
    answer, _ = ask(stream(event(role="assistant")), stream(*GOOD), stream=True)
    assert text_of(answer) == "Hello"
    answer, _ = ask(stream(GOOD[0]), stream(*GOOD), stream=True, quiet=True)
    assert text_of(answer) == "Hello"
    answer, _ = ask(stream(GOOD[0]), stream=True)
    assert error_of(answer)[0] == "truncated" and "stream truncated" in error_of(answer)[1]
    assert answer["error"]["text_shown"] and not answer["error"]["retry_safe"]
    assert answer["reply"]["message"][0]["content"] == "He" and answer["deltas"] == ["He"]


def test_connection_reset_in_a_stream():
    answer, _ = ask(stream(GOOD[0], reset), stream=True)
    assert error_of(answer)[0] == "truncated" and answer["deltas"] == ["He"]
    answer, _ = ask(stream(GOOD[0], finish(), reset), stream=True)
    assert text_of(answer) == "He"


def test_errors_in_a_stream():
    def failure(code):
        return "data: " + json.dumps({"error": {"code": code, "message": "gone"}}) + "\n\n"
    answer, _ = ask(stream(failure(429)), stream(*GOOD), stream=True)
    assert text_of(answer) == "Hello"
    answer, _ = ask(stream(failure(400)), stream=True)
    assert error_of(answer) == ("refused", "the server gave an error instead of a reply: gone")
    answer, _ = ask(stream(GOOD[0], failure(502)), stream=True)
    assert error_of(answer)[0] == "server_error" and answer["error"]["text_shown"]
    assert answer["reply"]["message"][0]["content"] == "He"


def test_empty_reply_is_asked_for_once_more():
    answer, _ = ask(plain(completion("")), plain(completion()))
    assert text_of(answer) == "Hi" and answer["reply"]["usage"] == {"total_tokens": 6}
    answer, _ = ask(plain(completion("")), plain(completion("")))
    assert error_of(answer)[0] == "empty_reply" and answer["error"]["attempts"] == 2
    assert answer["reply"]["usage"] == {"total_tokens": 6}
    answer, _ = ask(plain(completion("", "length")))
    assert answer["reply"]["finish"] == "length"


# ---- statuses ----

@pytest.mark.parametrize(("status", "body", "kind", "words"), [
    (400, {"error": {"message": "bad thing"}}, "refused", "HTTP 400: bad thing"),
    (400, [{"error": {"message": "of Gemini"}}], "refused", "HTTP 400: of Gemini"),
    (400, {"object": "error", "message": "of vLLM", "code": 400}, "refused", "HTTP 400: of vLLM"),
    (401, {"error": {"message": f"wrong key {KEY}"}}, "key_refused",
     "HTTP 401: wrong key ***; the server does not accept the API key"),
    (402, {"error": "no money"}, "no_credit", "HTTP 402: no money; the account has no credit"),
    (403, {"detail": "no"}, "key_refused",
     "HTTP 403: no; the server does not allow this: check the key's rights, the model and the "
     "base URL"),
    (404, {"message": "no model"}, "not_found",
     "HTTP 404: no model; check the model's name and the base URL"),
    (413, "<html><h1 class='x'>413</h1>Too <b>large</b></html>", "refused",
     "HTTP 413: a page of HTML: 413 Too large; the conversation is too long for the server"),
    (422, {"detail": "no"}, "refused", "HTTP 422: no"),
    (500, {"error": "tools param requires --jinja flag"}, "server_error",
     "HTTP 500: tools param requires --jinja flag; the server has to be started with --jinja"),
])
def test_statuses_that_are_final(status, body, kind, words):
    answer, _ = ask(plain(body, status, X_Request_Id="r-1"), options={"key": KEY})
    assert error_of(answer) == (kind, words + " (request id r-1)")
    error = answer["error"]
    assert (error["status"], error["attempts"], error["request_id"]) == (status, 1, "r-1")
    assert not error["retry_safe"]


@pytest.mark.parametrize("form", [
    {}, {"headers": [f"Authorization: Bearer {KEY}"]}, {"headers": [f"X-Pass: user={KEY}"]}])
@pytest.mark.parametrize("wrap", [
    lambda text: plain({"error": {"message": text}}, 400), lambda text: plain(text, 400),
    lambda text: plain({"error": {"message": text}}), lambda text: plain("?" + text),
    lambda text: stream(f"event: error\ndata: {text}\n\n"),
    lambda text: plain("no", 400, X_Request_Id=text[-140:])])
def test_key_across_the_cut_of_an_error(form, wrap):
    """The first part of the key is where the text is cut; Client.ask looks for all of it."""
    for before in range(120 if "Request" in repr(wrap) else 470, 520, 7):
        answer, _ = ask(wrap("x" * before + KEY + " end"), options={"key": KEY, **form,
                                                                  "retries": 0})
        assert KEY[:5] not in json.dumps(answer["error"])


def test_no_key_is_said():
    answer, _ = ask(plain({"error": "who?"}, 401))
    assert "no API key was sent: set OPENAI_API_KEY" in error_of(answer)[1]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_statuses_that_are_tried_again(status):
    answer, _ = ask(plain("no", status), plain("no", status), plain(completion()))
    assert text_of(answer) == "Hi"


def test_tries_are_counted():
    answer, _ = ask(*3 * [plain("busy", 503)], options={"retries": 2})
    assert error_of(answer) == ("server_error", "HTTP 503: busy; the fault is the server's: try "
                                "again later, or see its log")
    assert answer["error"]["attempts"] == 3 and answer["error"]["retry_safe"]


def test_server_decides_of_retries():
    answer, _ = ask(plain("no", 400, x_should_retry="true"), plain(completion()))
    assert text_of(answer) == "Hi"
    answer, _ = ask(plain("no", 500, x_should_retry="false"))
    assert answer["error"]["attempts"] == 1


def test_retry_after():
    # A date has whole seconds: one that is two ahead may be little more than one away.
    date = email.utils.formatdate(time.time() + 2, usegmt=True)
    for value, least in (("0.3", 0.3), (date, 0.9)):
        _, server = ask(plain("no", 429, Retry_After=value), plain(completion()))
        assert server.times[1] - server.times[0] >= least


def test_wait_beyond_the_deadline_is_not_begun():
    start = time.monotonic()
    answer, _ = ask(plain("slow down", 429, Retry_After="50"), limit_ms=20000)
    assert error_of(answer) == (
        "rate_limit", "HTTP 429: slow down; too many requests: try again later")
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(("words", "request_", "before", "after"), [
    ("unknown field stream_options", {"stream": True}, "stream_options", None),
    ("use max_completion_tokens", {"max_tokens": 5}, "max_tokens", "max_completion_tokens"),
])
def test_forms_that_a_server_does_not_take(words, request_, before, after):
    """Another form is tried at once, and remembered."""
    with Server(plain({"error": words}, 400), plain(completion()),
                plain(completion())) as server, Client(server.url, retries=0) as client:
        for _ in range(2):
            assert text_of(client.ask(**request_)) == "Hi"
    bodies = [request.body for request in server.requests]
    assert before in bodies[0]
    for body in bodies[1:]:
        assert before not in body and (after is None or body[after] == 5)


def test_server_that_only_streams():
    refusal = plain({"error": "enable_thinking must be set to false"}, 400)
    answer, server = ask(refusal, stream(*GOOD))
    assert text_of(answer) == "Hello" and server.requests[1].body["stream"] is True


def test_server_whose_template_wants_a_content():
    call = {"id": "a", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    history = [*HELLO, {"role": "assistant", "tool_calls": [call]},
               {"role": "tool", "tool_call_id": "a", "content": "x"}]
    refusal = plain({"error": {"message": "'dict object' has no attribute 'content'"}}, 500)
    answer, server = ask(refusal, plain(completion()), messages=history, options={"retries": 0})
    assert text_of(answer) == "Hi"
    assert "content" not in server.requests[0].body["messages"][1]
    assert server.requests[1].body["messages"][1]["content"] == ""


# ---- redirects ----

def redirect(to, status=307):
    return plain("", status, Location=to)


def test_redirect_on_the_host():
    answer, server = ask(redirect("/v2/chat"), redirect("/v3/chat", 301), plain(completion()),
                         options={"key": KEY})
    assert text_of(answer) == "Hi"
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v2/chat",
                                                             "/v3/chat"]
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.requests)
    assert all(request.body == server.requests[0].body for request in server.requests)


def test_redirect_to_another_host():
    with Server() as other:
        answer, _ = ask(redirect(other.url.replace("127.0.0.1", "localhost")),
                        options={"key": KEY})
        assert error_of(answer)[0] == "redirect_refused" and not other.requests
        answer, _ = ask(redirect(other.url), options={"key": KEY})
        assert error_of(answer)[0] == "redirect_refused" and not other.requests
        assert "to http://127.0.0.1:" in error_of(answer)[1]


def test_redirect_in_circles():
    answer, _ = ask(*6 * [redirect("/v1/chat/completions")])
    assert error_of(answer)[0] == "redirect_refused" and "in circles" in error_of(answer)[1]


def test_redirect_to_nowhere():
    answer, _ = ask(plain("moved", 302))
    assert error_of(answer) == ("refused", "HTTP 302: moved")


# ---- connections ----

def test_nobody_listens():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Client(url, retries=1) as client:
            answer = client.ask()
    kind, message = error_of(answer)
    assert kind == "connection_failed" and message.startswith(f"cannot connect to {url}: ")
    assert answer["error"]["attempts"] == 2 and answer["error"]["retry_safe"]


def test_connection_that_breaks():
    answer, _ = ask(reset, plain(completion()))
    assert text_of(answer) == "Hi"


def test_connections_are_kept():
    with Server(plain(completion()), stream(*GOOD)) as server, Client(server.url) as client:
        ports = set()
        server.process_request_thread, real = (
            lambda request, address: (ports.add(address), real(request, address)),
            server.process_request_thread)
        client.ask()
        client.ask(stream=True)
    assert len(ports) == 1


def test_tls(tmp_path):
    assert shutil.which("openssl")
    trusted = {"ca_file": str(tmp_path / "cert.pem")}
    with Server(plain(completion()), context=certificate(tmp_path, "127.0.0.1")) as server:
        with Client(server.url, key=KEY) as client:
            answer = client.ask()
            assert error_of(answer)[0] == "tls_failed" and "self-signed" in error_of(answer)[1]
            assert answer["error"]["attempts"] == 1 and not server.requests
        with Client(server.url, key=KEY, **trusted) as client:
            assert text_of(client.ask()) == "Hi"
    with Server(context=certificate(tmp_path, "127.0.0.2")) as server:
        with Client(server.url, **trusted) as client:
            assert error_of(client.ask())[0] == "tls_failed"


def test_proxy_of_the_environment():
    with Server(plain(completion("of the proxy"))) as proxy:
        with Client("http://example.invalid/v1", {"http_proxy": proxy.url}) as client:
            assert text_of(client.ask()) == "of the proxy"
    assert proxy.requests[0].path == "http://example.invalid/v1/chat/completions"


# ---- answers that are none ----

@pytest.mark.parametrize(("answer", "words"), [
    (plain("oops"), "is not JSON"),
    (plain("<html>login</html>", kind="text/html"), "<html>login</html>"),
    (plain("{}"), "is the base URL that of an OpenAI-compatible API?"),
    (plain('{"choices": ['), "the end of the text"),
    (stream("data: oops\n\n"), "an event of the stream is not JSON"),
    (lambda handler, _: send(handler, "HTP/9 what\r\n\r\n") or False, "not good HTTP"),
])
def test_answers_that_are_none(answer, words):
    answer, _ = ask(answer)
    kind, message = error_of(answer)
    assert kind == "malformed_reply" and words in message and "\n" not in message


def test_too_large():
    answer, _ = ask(plain(completion("x" * 5000)), options={"max_reply_bytes": 4096})
    assert error_of(answer) == ("too_large", "the server's answer has more than 4096 bytes")
    answer, _ = ask(stream(*50 * [event(content="x" * 100)], hang), stream=True,
                    options={"max_reply_bytes": 4096})
    assert error_of(answer)[0] == "too_large" and answer["error"]["text_shown"]
    answer, _ = ask(plain("y" * 100000, 400))
    assert error_of(answer)[0] == "refused" and len(error_of(answer)[1]) < 600


# ---- time ----

def test_no_answer():
    answer, _ = ask(hang, hang, options={"first_byte_ms": 60, "retries": 1})
    assert error_of(answer) == ("timeout", "the server did not answer within 60 ms")
    assert answer["error"]["attempts"] == 2


def test_silence_in_a_stream():
    answer, _ = ask(stream(GOOD[0], hang), stream=True, options={"idle_ms": 2000})
    assert error_of(answer) == ("timeout", "the server went silent: no byte came within 2 s")
    assert answer["deltas"] == ["He"] and answer["error"]["attempts"] == 1


def drip(handler):
    """A comment every 20 ms, for ever."""
    while not handler.server.over.wait(0.02):
        send(handler, ": wait\n")


def test_slow_drip():
    """Comments keep the connection, up to the deadline."""
    answer, _ = ask(stream(drip), stream=True, limit_ms=400, options={"idle_ms": 300})
    assert error_of(answer) == ("timeout", "the time for the whole call is over")
    assert not answer["error"]["retry_safe"]


# ---- cancelling ----

def cancelled(*answers, hangs=False, **request):
    """What comes of a request when the descriptor becomes readable by trigger()."""
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        server = stack.enter_context(Server(*(answer(lambda *_: os.write(writer, b"x"))
                                              for answer in answers)))
        client = stack.enter_context(Client(server.url, pass_fds=[reader]))
        if not answers:
            os.write(writer, b"x")
        start = time.monotonic()
        answer = client.ask(cancel_fd=reader, **request)
        assert time.monotonic() - start < 10
        assert error_of(answer) == ("cancelled", "cancelled by the caller")
        assert not hangs or server.gone.wait(PATIENCE)  # the connection was closed
    return answer, server


def test_connections_are_closed_in_other_programs():
    with Server(hang) as server, Client(server.url) as client:
        client.process.stdin.write(json.dumps({"model": "m", "messages": HELLO,
                                               "limit_ms": 5000}).encode() + b"\n")
        client.process.stdin.flush()
        assert server.asked.wait(PATIENCE)
        process = pathlib.Path("/proc", str(client.process.pid))
        ours = {line.split()[9] for line in (process / "net/tcp").read_text().splitlines()[1:]}
        flags = [(process / "fdinfo" / link.name).read_text().split()[3]
                 for link in (process / "fd").iterdir()
                 if os.readlink(link).strip("socket:[]") in ours]
        assert len(flags) == 1 and int(flags[0], 8) & os.O_CLOEXEC
        client.process.stdout.readline()


def test_cancel_before():
    answer, server = cancelled()
    assert answer["error"]["attempts"] == 0 and not server.requests


def test_cancel_while_the_server_thinks():
    cancelled(lambda trigger: lambda *args: trigger() and hang(*args), hangs=True)


def test_cancel_in_a_stream():
    answer, _ = cancelled(lambda trigger: stream(GOOD[0], trigger, hang), hangs=True, stream=True)
    assert answer["error"]["attempts"] == 1 and not answer["error"]["retry_safe"]


def test_cancel_between_tries():
    def busy(trigger):
        def answer(handler, request):
            plain("busy", 503, Retry_After="50")(handler, request)
            trigger()
        return answer
    answer, _ = cancelled(busy)
    assert answer["error"]["attempts"] == 1
