# SPDX-License-Identifier: Apache-2.0
"""The expectation language of the cases; README.md describes it.

check(expectation, outcome) compares an outcome of a door with an expectation
and returns what does not hold, one sentence each. check_form() holds for every
result whatever the program was: the fields, their types, and what they imply
about one another.
"""

import re
import signal

# Fields of every result, with the types that each may have.
FORM = {
    "stdout": (str,),
    "stderr": (str,),
    "exit_code": (int,),
    "signal": (str, type(None)),
    "timed_out": (bool,),
    "error_type": (str, type(None)),
    "error": (dict, type(None)),
    "value": (str, type(None)),
    "results": (list,),
    "results_dropped": (int,),
    "files": (list,),
    "truncated": (bool,),
    "stdout_bytes": (int,),
    "stderr_bytes": (int,),
    "duration_ms": (int, float),
    "queue_ms": (int, float),
    "cpu_ms": (int, float),
    "peak_memory_bytes": (int,),
    "backend": (str,),
    "language": (str,),
    "layers": (list,),
    "run_id": (str,),
}
ERROR_TYPES = {
    None,
    "validation_error",
    "syntax_error",
    "import_error",
    "timeout",
    "resource_limit",
    "runtime_error",
}
LAYERS = [
    "user_ns",
    "pid_ns",
    "mount_ns",
    "net_ns",
    "ipc_ns",
    "uts_ns",
    "cgroup_ns",
    "distinct_uid",
    "no_caps",
    "no_new_privs",
    "seccomp",
    "landlock",
    "cgroup_memory",
    "cgroup_pids",
    "cgroup_cpu",
    "rlimits",
    "private_root",
]
# What an error is called on the command line: its exit status.
USAGE_ERRORS = {"invalid_request"}
# How the command line may name a field of the request.
OPTION_OF = {
    "timeout_seconds": "-t",
    "memory_mb": "-m",
    "cpus": "--cpus",
    "env": "-e",
    "language": "-l",
    "code": "-c",
    "stdin": "--stdin",
    "backend": "--backend",
    "require": "--require",
    "gate": "--gate",
    "tidy": "--tidy",
}


# ---- matchers -------------------------------------------------------------


def _same(expected, actual):
    """Equality that tells 1, 1.0 and True apart where the type matters."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return expected == actual


def _op_match(pattern, actual):
    return isinstance(actual, str) and re.search(pattern, actual) is not None


def _op_full(pattern, actual):
    return isinstance(actual, str) and re.fullmatch(pattern, actual) is not None


def _op_contains(parts, actual):
    parts = [parts] if isinstance(parts, str) else parts
    return actual is not None and all(part in actual for part in parts)


def _op_absent(parts, actual):
    parts = [parts] if isinstance(parts, str) else parts
    return actual is None or not any(part in actual for part in parts)


def _op_between(bounds, actual):
    low, high = bounds
    return isinstance(actual, (int, float)) and low <= actual <= high


def _op_one_of(values, actual):
    return any(matches(value, actual) for value in values)


def _op_not(expected, actual):
    return not matches(expected, actual)


def _op_length(expected, actual):
    return actual is not None and matches(expected, len(actual))


def _op_lines(expected, actual):
    return (
        isinstance(actual, str)
        and actual.endswith("\n")
        and len(actual.splitlines()) == len(expected)
        and all(matches(e, a) for e, a in zip(expected, actual.splitlines()))
    )


def _op_mimes(expected, actual):
    return isinstance(actual, list) and [entry["mime"] for entry in actual] == expected


OPERATORS = {
    "match": _op_match,
    "full": _op_full,
    "contains": _op_contains,
    "absent": _op_absent,
    "between": _op_between,
    "one_of": _op_one_of,
    "not": _op_not,
    "length": _op_length,
    "lines": _op_lines,
    "mimes": _op_mimes,
}


def matches(expected, actual):
    """Whether a value is as expected: equal, or every operator holds."""
    if isinstance(expected, dict) and expected and set(expected) <= set(OPERATORS):
        return all(OPERATORS[name](argument, actual) for name, argument in expected.items())
    return _same(expected, actual)


# ---- macros ---------------------------------------------------------------

# What a busy machine may add to a time limit; cases of their own, with `attempts`, measure it.
TIMEOUT_SLACK_MS = 5000
PLAIN = {"signal": None, "timed_out": False, "truncated": False}
NO_RUNNER = ["runner", "hutch"]


def _number(text):
    """A pattern for a number that is no part of another one."""
    return rf"(?<![\d.]){re.escape(re.sub(r'[.]0$', '', text))}(?!\d|\.\d)"


def _ok():
    return {**PLAIN, "exit_code": 0, "error_type": None, "error": None}


def _err(name):
    return {
        **PLAIN,
        "exit_code": 1,
        "error_type": "runtime_error",
        "error.type": name,
        "stderr": {"contains": ["Traceback (most recent call last):\n", name], "absent": NO_RUNNER},
    }


def _syntax(name):
    return {
        **PLAIN,
        "exit_code": 1,
        "error_type": "syntax_error",
        "error.type": name,
        "stderr": {"contains": name, "absent": NO_RUNNER},
    }


def _import(name):
    return {
        **PLAIN,
        "exit_code": 1,
        "error_type": "import_error",
        "error.type": name,
        "stderr": {"contains": ["Traceback (most recent call last):\n", name], "absent": NO_RUNNER},
    }


def _exit(code):
    return {
        **PLAIN,
        "exit_code": int(code),
        "error_type": "runtime_error",
        "error": "null or SystemExit",
    }


def _signal(name):
    number = signal.Signals[name].value
    return {**PLAIN, "exit_code": 128 + number, "signal": name, "error_type": "runtime_error"}


def _rejected():
    text = "Static analysis rejected code: "
    return {
        **PLAIN,
        "exit_code": -2,
        "error_type": "validation_error",
        "error.type": None,
        "error.message": {"match": "^" + text},
        "stderr": {"full": text + "[^\n]+\n"},
    }


def _timeout(seconds):
    limit_ms = float(seconds) * 1000
    return {
        "exit_code": -1,
        "timed_out": True,
        "error_type": "timeout",
        "truncated": False,
        "error.line": None,
        "error.message": {"match": _number(seconds)},
        "duration_ms": {"between": [limit_ms, limit_ms + TIMEOUT_SLACK_MS]},
    }


def _limit(word, number=None):
    return {
        "timed_out": False,
        "error_type": "resource_limit",
        "truncated": False,
        "exit_code": {"not": {"one_of": [0, -1, -2]}},
        "error": f"limit {word} {number or ''}",
    }


def _refused(field):
    names = [field, OPTION_OF[field]] if field in OPTION_OF else [field]
    pattern = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names)
    return {
        "failure.code": "invalid_request",
        "failure.retry_safe": True,
        "failure.message": {"match": pattern},
    }


def _error(code, retry_safe="true"):
    return {"failure.code": code, "failure.retry_safe": retry_safe == "true"}


MACROS = {
    "OK": _ok,
    "ERR": _err,
    "SYNTAX": _syntax,
    "IMPORT": _import,
    "EXIT": _exit,
    "SIGNAL": _signal,
    "REJECTED": _rejected,
    "TIMEOUT": _timeout,
    "LIMIT": _limit,
    "REFUSED": _refused,
    "ERROR": _error,
}


def expand(expectation):
    """The expectation with its macro and the defaults written out."""
    expectation = dict(expectation)
    fields = {}
    if "is" in expectation:
        macro = re.fullmatch(r"([A-Z]+)(?:\(([^()]*)\))?", expectation.pop("is"))
        if not macro or macro[1] not in MACROS:
            raise ValueError(f"unknown macro {macro and macro[0]}")
        fields = MACROS[macro[1]](*[a.strip() for a in (macro[2] or "").split(",") if a])
    if not any(name.startswith("failure.") for name in [*fields, *expectation]):
        fields = {"stdout": "", "stderr": "", "value": None, **fields}
    return {**fields, **expectation}


# ---- checking -------------------------------------------------------------

MISSING = object()


def _lookup(outcome, path):
    if path.startswith("failure."):
        return outcome.error.get(path.partition(".")[2], MISSING)
    value = outcome.result
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def _limit_holds(claim, error):
    """An error that names the limit and its value, or the exception that hit it."""
    _, word, number = claim.split(" ", 2)
    if not isinstance(error, dict):
        return False
    if error["type"] == "MemoryError":
        return True
    message = error["message"]
    return (
        re.search(word, message, re.IGNORECASE) is not None
        and re.search(_number(number) if number else r"\d", message) is not None
    )


def _holds(expected, actual):
    if expected == "null or SystemExit":
        return actual is None or (isinstance(actual, dict) and actual.get("type") == "SystemExit")
    if isinstance(expected, str) and expected.startswith("limit "):
        return _limit_holds(expected, actual)
    return matches(expected, actual)


def _shorten(value):
    text = "nothing" if value is MISSING else repr(value)
    return text if len(text) <= 600 else f"{text[:400]} … {text[-150:]} ({len(text)} characters)"


def _check_failure(fields, outcome):
    if outcome.error is None:
        return [f"expected an error, got a result: {_shorten(outcome.result)}"]
    problems = []
    for path, expected in fields.items():
        actual = _lookup(outcome, path)
        silent_usage_error = outcome.exit_status == 2 and actual is MISSING
        if not silent_usage_error and not matches(expected, actual):
            problems.append(f"{path}: expected {_shorten(expected)}, got {_shorten(actual)}")
    if outcome.exit_status is not None:
        problems += _check_error_status(fields["failure.code"], outcome)
    return problems


def _check_error_status(code, outcome):
    status = 2 if isinstance(code, str) and code in USAGE_ERRORS else 125
    problems = []
    if outcome.exit_status != status:
        problems.append(f"exit status {outcome.exit_status} of the command, expected {status}")
    if not re.fullmatch(rb"[^\n]+\n", outcome.stderr):
        problems.append(f"expected one line on stderr, got {outcome.stderr!r}")
    return problems


def _check_one(fields, outcome):
    if any(path.startswith("failure.") for path in fields):
        return _check_failure(fields, outcome)
    if outcome.result is None:
        return [
            f"expected a result, got an error: {_shorten(outcome.error)}, "
            f"exit status {outcome.exit_status}"
        ]
    return [
        f"{path}: expected {_shorten(expected)}, got {_shorten(actual)}"
        for path, expected in fields.items()
        for actual in [_lookup(outcome, path)]
        if not _holds(expected, actual)
    ]


def check(expectation, outcome):
    """What does not hold; an empty list when all of it does."""
    if "any_of" not in expectation:
        return _check_one(expand(expectation), outcome)
    common = {k: v for k, v in expectation.items() if k != "any_of"}
    tries = [_check_one(expand({**common, **choice}), outcome) for choice in expectation["any_of"]]
    if any(not problems for problems in tries):
        return []
    return [
        f"choice {number}: {problem}"
        for number, problems in enumerate(tries, 1)
        for problem in problems
    ]


# ---- the form of every result ---------------------------------------------


def _check_types(result):
    problems = []
    for name, types in FORM.items():
        if name not in result:
            problems.append(f"form: no field '{name}'")
        elif not isinstance(result[name], types) or (
            isinstance(result[name], bool) and bool not in types
        ):
            problems.append(f"form: '{name}' is {result[name]!r}")
    return problems


def _check_error_form(result):
    error = result["error"]
    if error is None:
        return []
    problems = []
    if set(error) != {"type", "message", "line"}:
        problems.append(f"form: error has the fields {sorted(error)}")
    elif (
        not isinstance(error["type"], (str, type(None)))
        or not isinstance(error["message"], str)
        or not (error["line"] is None or (type(error["line"]) is int and error["line"] >= 1))
    ):
        problems.append(f"form: error is {_shorten(error)}")
    if result["error_type"] is None:
        problems.append("form: an error without error_type")
    return problems


def _check_files_form(result):
    entries = result["files"]
    problems = [
        f"form: an entry of files is {_shorten(entry)}"
        for entry in entries
        if set(entry) - {"data"} != {"path", "size", "mime"}
        or not isinstance(entry["path"], str)
        or type(entry["size"]) is not int
        or "/" not in entry["mime"]
    ]
    if result.get("files_truncated", True) is not True:
        problems.append("form: files_truncated is there only when it is true")
    return problems


def _check_meaning(result):
    """What the fields imply about one another."""
    code, name = result["exit_code"], result["signal"]
    yield (code == -1) == result["timed_out"], "exit_code -1 and timed_out go together"
    yield (
        (result["error_type"] == "timeout") == result["timed_out"],
        "error_type timeout and timed_out go together",
    )
    yield (
        (code == -2) == (result["error_type"] == "validation_error"),
        "exit_code -2 and error_type validation_error go together",
    )
    yield (code == 0) == (result["error_type"] is None), "exit_code 0 means no error_type"
    yield -2 <= code <= 255, "exit_code is in its range"
    yield result["error_type"] in ERROR_TYPES, "error_type is a known one"
    yield (
        name is None
        or result["timed_out"]
        or (name in signal.Signals.__members__ and code == 128 + signal.Signals[name].value),
        "exit_code is 128 + signal",
    )
    yield re.fullmatch("[0-9a-f]{32}", result["run_id"]), "run_id is 32 hexadecimal digits"
    yield (
        all(
            result[n] >= 0
            for n in (
                "duration_ms",
                "queue_ms",
                "cpu_ms",
                "stdout_bytes",
                "stderr_bytes",
                "peak_memory_bytes",
            )
        ),
        "no negative number",
    )
    yield (
        len(set(result["layers"])) == len(result["layers"])
        and set(result["layers"]) <= set(LAYERS),
        "layers are known names, each once",
    )


def _check_counts(outcome):
    if outcome.result["truncated"]:
        return
    for stream in ("stdout", "stderr"):
        counted = outcome.result[f"{stream}_bytes"]
        raw = outcome.raw(stream)
        yield (
            counted == len(raw) or b"\xef\xbf\xbd" in raw,
            f"{stream}_bytes is {counted}, but {len(raw)} bytes are there",
        )


def check_form(outcome, language="python"):
    """What is wrong with the form of a result; nothing to say about an error."""
    result = outcome.result
    if result is None:
        return []
    problems = _check_types(result)
    if problems:
        return problems
    problems = _check_error_form(result) + _check_files_form(result)
    rules = [*_check_meaning(result), *_check_counts(outcome)]
    rules.append(
        (
            result["language"] == ("shell" if language == "raw" else language),
            f"language is {result['language']}",
        )
    )
    if outcome.exit_status is not None:
        expected = {-1: 124, -2: 126}.get(result["exit_code"], result["exit_code"])
        rules.append(
            (
                outcome.exit_status == expected,
                f"the command exits with {outcome.exit_status} for exit_code {result['exit_code']}",
            )
        )
    rules.append(
        (
            result["duration_ms"] <= outcome.seconds * 1000 + 50,
            f"duration_ms {result['duration_ms']} is longer than the call itself, "
            f"{outcome.seconds * 1000:.0f} ms",
        )
    )
    return problems + [f"form: not so: {text}" for holds, text in rules if not holds]
