#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
demo_agent.py HUTCH NUMBER: questions that a language model answers by running code in cells,
shown as the steps of demo.sh from that number on. The model is a real one where there is a
key in OPENAI_API_KEY or OPENROUTER_API_KEY, else the offline model that comes with hutch. The
exit status is the number of questions that went wrong.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap
import time

KEYS = ("OPENAI_API_KEY", "OPENROUTER_API_KEY")
OFFLINE = ("libexec/hutch/offline-model", "../libexec/hutch/offline-model")
SECONDS_MAX = 300
STEPS_MAX = 10
BOLD, GREEN, RED, PLAIN = (
    ("\033[1m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 4)
PEOPLE = ('{"team": [{"name": "Alice", "email": "alice@example.com"}, '
          '{"name": "Bob", "contact": {"mail": "bob.miller@example.org", "phone": null}}]}')


# ---- what is expected of an answer ----

def has_fibonacci(answer):
    """However the digits are grouped."""
    return "354224848179261915075" in re.sub(r"(?<=\d)[ ,_](?=\d)", "", answer)


def has_deviation(answer):
    return ("4.0356" in answer and "sample" in answer.lower()
            or "3.7749" in answer and "population" in answer.lower())


def has_sorted_list(answer):
    lists = [[int(number) for number in re.findall(r"-?\d+", text)]
             for text in re.findall(r"\[([^\[\]]*)\]", answer)]
    return any(len(numbers) == 50 and numbers == sorted(numbers) for numbers in lists)


def has_addresses(answer):
    return "alice@example.com" in answer and "bob.miller@example.org" in answer


# Title, question, what is expected in words, and the check of it.
QUESTIONS = (
    ("A number that no model knows by heart", "What is the 100th Fibonacci number?",
     "354224848179261915075", has_fibonacci),
    ("Statistics, to four decimals",
     "What is the standard deviation of 12 15 14 10 18 20 22 17? "
     "Give four decimals and say whether it is that of a sample or a population.",
     "4.0356 (sample) or 3.7749 (population)", has_deviation),
    ("An algorithm at work",
     "Implement quicksort in Python, run it on 50 random integers and show the sorted list.",
     "50 numbers in order", has_sorted_list),
    ("Text to look through", f"Extract all e-mail addresses from this JSON: {PEOPLE}",
     "alice@example.com and bob.miller@example.org", has_addresses),
)


# ---- the model ----

@contextlib.contextmanager
def model(hutch):
    """The options of hutch that name the model, and what to call it."""
    key = next((key for key in KEYS if os.environ.get(key)), None)
    if key:
        yield [], f"the real model that {key} opens"
        return
    program = next(filter(os.path.exists, (hutch.parent / path for path in OFFLINE)))
    with subprocess.Popen([program, "--until-eof"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip()
        yield (["--base-url", url, "--model", "offline"],
               "the offline model, which plays its part by rules; the code runs for real.\n"
               f"With a key in {' or '.join(KEYS)} a real model answers")
        server.stdin.close()


# ---- a question ----

def ask(hutch, options, question):
    """The result of hutch agent, {} for none; and what it complained of."""
    environment = {**os.environ, "no_proxy": os.environ.get("no_proxy", "") + ",127.0.0.1"}
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
        run = subprocess.run([hutch, "agent", "--json", *options, question], env=environment,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=SECONDS_MAX)
        return (json.loads(run.stdout) if run.stdout else {}), run.stderr.strip()
    return {}, f"no answer in {SECONDS_MAX} s"


def problems(result, has_answer, expected):
    """What is wrong with a result, as texts."""
    if not has_answer(result.get("answer") or ""):
        yield f"expected {expected}"
    if result.get("exit_reason") != "text" or not result.get("code_executed"):
        yield f"ended by {result.get('exit_reason')}, code executed: {result.get('code_executed')}"
    if not 1 <= result.get("step_count", 0) <= STEPS_MAX:
        yield f"{result.get('step_count')} steps"
    if any(cell["exit_code"] == -1 for cell in result.get("cells", ())):
        yield "exit code -1"


def show(number, hutch, options, title, question, expected, has_answer):
    """Asks a question and shows what came of it; whether that is as it should be."""
    print(f"{BOLD}{number}. {title}{PLAIN}")
    print(f"   $ {shlex.join(['hutch', 'agent', '--json', *options, question])}")
    start = time.monotonic()
    result, complaints = ask(hutch, options, question)
    milliseconds = (time.monotonic() - start) * 1000
    for line in f"{result.get('answer', '')}\n{complaints}".strip().splitlines():
        print(textwrap.fill(line, 100, initial_indent="   | ", subsequent_indent="   | "))
    cells = result.get("cells", [])
    codes = ", ".join(str(cell["exit_code"]) for cell in cells)
    peak = max((cell["peak_memory_bytes"] for cell in cells), default=0) / (1 << 20)
    print(f"   steps: {result.get('step_count')}; exit codes: {codes}; "
          f"peak memory: {f'{peak:.1f} MiB' if peak else 'not known'}")
    wrong = "; ".join(problems(result, has_answer, expected))
    print(f"   {RED}WRONG: {wrong}{PLAIN}" if wrong else f"   {GREEN}as it should be{PLAIN}",
          f"({milliseconds:.0f} ms)\n", flush=True)
    return not wrong


def main():
    hutch, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    with model(hutch) as (options, name):
        print(f"{BOLD}Questions, answered by code in cells{PLAIN}\n\nThe model is {name}.\n",
              flush=True)
        right = [show(number + i, hutch, options, *question)
                 for i, question in enumerate(QUESTIONS)]
    sys.exit(right.count(False))


if __name__ == "__main__":
    main()
