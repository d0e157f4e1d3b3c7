# SPDX-License-Identifier: Apache-2.0
"""Cases of several execs in one session; README.md has the format."""

import time

import doors
import expect

OPTIONS = {
    "language",
    "memory_mb",
    "idle_timeout_seconds",
    "lifetime_seconds",
    "checkpoints",
}
# What a step does; exactly one of them.
KINDS = {"request", "together", "pause", "op"}
KEYS = {"expect", "meanwhile", *KINDS}
# What an exec is expected to say of its session where the case does not.
UNTOUCHED = {"restored": False, "state_lost": False, "late_output": ""}
AGAIN_SECONDS = 0.3


def validate(session):
    """Refuses what no door understands."""
    if set(session) - {"options", "steps"} or set(session.get("options", {})) - OPTIONS:
        raise ValueError(f"a session has 'steps', and 'options' of {sorted(OPTIONS)}")
    for step in session["steps"]:
        if set(step) - KEYS or len(KINDS & set(step)) != 1:
            raise ValueError(f"a step has exactly one of {sorted(KINDS)}")
        if step.get("meanwhile", "interrupt") not in ("interrupt", "cancel"):
            raise ValueError("'meanwhile' is interrupt or cancel")
        if step.get("op", "info") not in ("info", "interrupt"):
            raise ValueError("'op' is info or interrupt")


def possible_doors(session):
    """Those that have all that the steps need."""
    cancels = any(step.get("meanwhile") == "cancel" for step in session["steps"])
    return {"c"} if cancels else {"cli", "c"}


def expectations(session):
    """Those of results, as they are written."""
    for step in session["steps"]:
        if "request" in step:
            yield step["expect"]
        for each in step.get("together", []):
            yield each["expect"]


def run(session, door):
    """All steps, until one fails; what does not hold."""
    options = session.get("options", {})
    opened = door.open_session(options)
    problems = []
    for number, step in enumerate(session["steps"], 1):
        found = _run_step(step, opened, options.get("language", "python"))
        problems += [f"step {number}: {problem}" for problem in found]
        if problems:
            break
    return problems + opened.close()


def _run_step(step, opened, language):
    if "pause" in step:
        time.sleep(step["pause"])
        return []
    if step.get("op") == "interrupt":
        opened.interrupt()
        return []
    if step.get("op") == "info":
        return check_info(step["expect"], opened.info())
    execs = step.get("together", [step])
    waits = [opened.start(each["request"]) for each in execs]
    if "meanwhile" in step:
        outcomes = [_meddle(step["meanwhile"], opened, waits[0])]
    else:
        outcomes = [wait() for wait in waits]
    problems = []
    for each, outcome in zip(execs, outcomes):
        if outcome is None:
            raise doors.DoorFailure("no answer to an exec")
        problems += check(each["expect"], outcome, language)
    return problems


def _meddle(what, opened, wait):
    """Interrupts an exec, again while it has not begun; or cancels it."""
    outcome = wait(AGAIN_SECONDS)
    for _ in range(100):
        if outcome or what == "cancel":
            break
        opened.interrupt()
        outcome = wait(AGAIN_SECONDS)
    if not outcome and what == "cancel":
        opened.cancel()
    return outcome or wait()


def check(expectation, outcome, language):
    """As of a run, with what a session says beside."""
    if not any("failure." in name for name in expect.expand(_without_choices(expectation))):
        expectation = {**UNTOUCHED, **expectation}
    problems = expect.check(expectation, outcome) + expect.check_form(outcome, language)
    missing = set(UNTOUCHED) - set(outcome.result or UNTOUCHED)
    return problems + [f"form: no field '{name}'" for name in sorted(missing)]


def _without_choices(expectation):
    return {name: value for name, value in expectation.items() if name != "any_of"}


def check_info(expectation, info):
    """Compares what a session says of itself."""
    return [
        f"{name}: expected {value}, got {info.get(name)!r}"
        for name, value in expectation.items()
        if not expect.matches(value, info.get(name))
    ]
