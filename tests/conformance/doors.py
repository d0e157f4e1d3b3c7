# SPDX-License-Identifier: Apache-2.0
"""The front doors of hutch, behind one call: run(request) -> Outcome.

A request is a dictionary with the fields of a JSON request. CliDoor turns it
into the options of `hutch run --json` and starts the command; CDoor sends it
as a line of JSON to the program door.c, which lives as long as the suite and
runs requests through the C API, several at a time.
"""

import base64
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import time

import account as accounts

# Fields of a request that the command line has no option for.
C_ONLY = {"max_processes", "disk_mb", "max_output_bytes", "output_encoding", "owner"}
SUFFIX = {"python": ".py", "javascript": ".js", "shell": ".sh", "raw": ".sh"}
# The kernel takes at most 128 KiB for one argument of a command.
LARGEST_ARGUMENT = 100_000
# How much longer than the run's own limit a door may take before it hangs.
GRACE_SECONDS = 60


def end_input(process):
    """Ends a process by the end of its input; its status, or None where it had to be killed."""
    process.stdin.close()
    try:
        return process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


class DoorFailure(Exception):
    """A front door broke its own rules: no answer, no JSON, a hang."""


@dataclasses.dataclass
class Outcome:
    """What came out of a door: a result, or an error of hutch itself."""

    result: dict | None = None
    error: dict | None = None
    exit_status: int | None = None  # of the command; None through the C API
    stdout: bytes = b""  # of the command
    stderr: bytes = b""
    seconds: float = 0.0  # as seen from outside
    encoding: str = "text"  # of stdout and stderr in the result

    def raw(self, stream):
        """A stream of the program's output as bytes, whatever the encoding."""
        text = self.result[stream]
        return base64.b64decode(text, validate=True) if self.encoding == "base64" else text.encode()


@contextlib.contextmanager
def open_folder(prefix="conformance-"):
    """A temporary folder that every user can read."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        os.chmod(folder, 0o755)
        yield folder


class CliDoor:
    """`hutch run`, one process a run."""

    name = "cli"

    def __init__(
        self, hutch, backend, cache_dir, command_prefix=(), environment=None, account=None
    ):
        account = account or accounts.Account()
        self.command = [*command_prefix, *account.command, str(hutch)]
        self.backend = backend
        self.environment = {
            **os.environ,
            **account.environment,
            "HUTCH_CACHE_DIR": str(cache_dir),
            **(environment or {}),
        }

    def arguments(self, request, folder, via=None):
        """The options of `hutch run` that say the same as the request."""
        request = dict(request)
        code = request.pop("code")
        language = request.get("language", "python")
        arguments = []
        if "language" in request:
            arguments += ["-l", request.pop("language")]
        for field, option in (("timeout_seconds", "-t"), ("memory_mb", "-m"), ("cpus", "--cpus")):
            if field in request:
                arguments += [option, str(request.pop(field))]
        for name, value in request.pop("env", {}).items():
            arguments += ["-e", f"{name}={value}"]
        backend = request.pop("backend", self.backend)
        if backend:
            arguments += ["--backend", backend]
        for flag in ("gate", "tidy"):
            if request.pop(flag, False):
                arguments.append("--" + flag)
        for layer in request.pop("require", []):
            arguments += ["--require", layer]
        if "stdin" in request:
            arguments += ["--stdin", str(self._write(folder, "stdin", request.pop("stdin")))]
        for entry in request.pop("files", []):
            content = base64.b64decode(entry["data"])
            name = f"upload{len(arguments)}"
            arguments += ["--upload", f"{self._write(folder, name, content)}:{entry['path']}"]
        if request:
            raise ValueError(f"no option of the command line for {sorted(request)}")
        via = via or ("file" if len(code) > LARGEST_ARGUMENT else "option")
        if via == "option":
            return arguments + ["-c", code]
        return arguments + [str(self._write(folder, "program" + SUFFIX[language], code))]

    def run(self, request, via=None):
        """Runs a request with --json."""
        with open_folder() as folder:
            arguments = self.arguments(request, folder, via)
            seconds = request.get("timeout_seconds", 30)
            return self.parse(self.execute(["run", "--json", *arguments], limit=seconds))

    def plain(self, request, options=(), via=None):
        """Runs a request without --json: output and exit status pass through."""
        with open_folder() as folder:
            arguments = self.arguments(request, folder, via)
            return self.execute(
                ["run", *options, *arguments], limit=request.get("timeout_seconds", 30)
            )

    def execute(self, arguments, limit=30.0, cwd=None, stdin=subprocess.DEVNULL):
        """Starts the command with these arguments and waits for its end."""
        start = time.monotonic()
        with subprocess.Popen(
            self.command + arguments,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=self.environment,
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=float(limit) + GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise DoorFailure(f"hutch {arguments[0]} did not end") from None
        return Outcome(
            exit_status=process.returncode,
            stdout=stdout,
            stderr=stderr,
            seconds=time.monotonic() - start,
        )

    def start(self, arguments, **options):
        """Starts the command and returns the process, for tests that watch or kill it."""
        return subprocess.Popen(
            self.command + arguments,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def layers(self):
        """The names of the layers that hutch finds in force here."""
        outcome = self.execute(["doctor", "--json"])
        return {l["name"] for l in json.loads(outcome.stdout)["layers"] if l["in_force"]}

    @staticmethod
    def parse(outcome):
        """Reads what --json printed into the outcome's result or error."""
        if not outcome.stdout and outcome.exit_status in (2, 125):
            outcome.error = {"message": outcome.stderr.decode(errors="replace").strip()}
            return outcome
        try:
            answer = json.loads(outcome.stdout.decode())
        except ValueError as problem:
            raise DoorFailure(
                f"--json printed no JSON ({problem}); exit status "
                f"{outcome.exit_status}, stdout {outcome.stdout[:200]!r}, "
                f"stderr {outcome.stderr[:400]!r}"
            ) from None
        if isinstance(answer, dict) and set(answer) == {"error"}:
            outcome.error = answer["error"]
        else:
            outcome.result = answer
        return outcome

    @staticmethod
    def _write(folder, name, content):
        path = pathlib.Path(folder) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def open_session(self, options):
        """A session of its own process; options are those of README.md."""
        return CliSession(self, options)

    def close(self):
        """Nothing is kept alive."""
        return []


class CliSession:
    """`hutch session`: one process, a line for each exec."""

    OPTIONS = {
        "language": "-l",
        "memory_mb": "-m",
        "idle_timeout_seconds": "--idle-timeout",
        "lifetime_seconds": "--lifetime",
    }

    def __init__(self, door, options):
        arguments = [] if options.get("checkpoints", True) else ["--no-checkpoints"]
        for field, option in self.OPTIONS.items():
            if field in options:
                arguments += [option, str(options[field])]
        if door.backend:
            arguments += ["--backend", door.backend]
        self.process = subprocess.Popen(
            [*door.command, "session", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=door.environment,
        )
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(b"")

    def start(self, request):
        """Sends an exec; a function that waits for its outcome."""
        return self._send(request, request.get("timeout_seconds", 30))

    def _send(self, line, limit=30.0):
        begin = time.monotonic()
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

        def outcome(patience=float(limit) + GRACE_SECONDS):
            try:
                answer = json.loads(self.answers.get(timeout=patience))
            except queue.Empty:
                return None
            except ValueError as problem:
                raise DoorFailure(f"hutch session: {problem}") from None
            failed = set(answer) == {"error"}
            return Outcome(
                result=None if failed else answer,
                error=answer["error"] if failed else None,
                seconds=time.monotonic() - begin,
                encoding=line.get("output_encoding", "text"),
            )

        return outcome

    def interrupt(self):
        """Interrupts the exec that runs; nothing is answered."""
        self.process.stdin.write(b'{"op": "interrupt"}\n')
        self.process.stdin.flush()

    def info(self):
        """What the session says of itself, once all before it is answered."""
        return self._send({"op": "info"})().result

    def close(self):
        """Ends it; what it leaves to complain about."""
        status = end_input(self.process)
        if status is None:
            return ["hutch session did not end within 20 s after the end of its input"]
        errors = self.process.stderr.read()
        self.process.stderr.close()
        return [] if (status, errors) == (0, b"") else [f"exit status {status}, stderr {errors!r}"]


class CDoor:
    """The C API, through door.c: one engine for the whole suite."""

    name = "c"

    def __init__(
        self, program, backend, cache_dir, threads, helper_dir=None, account=None, options=()
    ):
        account = account or accounts.Account()
        self.backend = backend
        command = [*account.command, str(program), *options]
        command += ["--threads", str(threads), "--cache-dir", str(cache_dir)]
        if helper_dir:
            command += ["--helper-dir", str(helper_dir)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **account.environment},
        )
        self.lock = threading.Lock()
        self.lines = 0
        self.sessions = 0
        self.waiting = {}
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        """The process that holds the engine."""
        return self.process.pid

    def run(self, request, via=None):
        """Runs a request; via is a matter of the command line only."""
        del via
        request = dict(request)
        if self.backend:
            request.setdefault("backend", self.backend)
        outcome = self.send(json.dumps(request), request.get("timeout_seconds", 30))
        outcome.encoding = request.get("output_encoding", "text")
        return outcome

    def send(self, line, limit=30.0):
        """Sends one line of text as it is."""
        outcome = self.start(line, limit)()
        if outcome is None:
            raise DoorFailure("door gave no answer")
        return outcome

    def start(self, line, limit=30.0):
        """Sends it; a function that waits for its outcome."""
        start = time.monotonic()
        future = concurrent.futures.Future()
        with self.lock:
            if self.process.poll() is not None:
                raise DoorFailure(f"door has ended with status {self.process.returncode}")
            self.lines += 1
            self.waiting[self.lines] = future
            try:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()
            except OSError as problem:
                raise DoorFailure(f"door: {problem}") from None
        seconds = limit if isinstance(limit, (int, float)) else 30.0

        def outcome(patience=min(seconds, 300) + GRACE_SECONDS):
            try:
                answer = future.result(timeout=patience)
            except concurrent.futures.TimeoutError:
                return None
            return Outcome(
                result=answer.get("result"),
                error=answer.get("error"),
                seconds=time.monotonic() - start,
            )

        return outcome

    def open_session(self, options):
        """A session of the door's engine; options are those of README.md."""
        return CSession(self, options)

    def _read(self):
        for line in self.process.stdout:
            try:
                answer = json.loads(line.decode())
                future = self.waiting.pop(answer["line"])
            except (ValueError, KeyError) as problem:
                self._fail_all(f"door answered {line[:200]!r}: {problem!r}")
                continue
            future.set_result(answer)
        self._fail_all("door has ended")

    def _fail_all(self, reason):
        for number in list(self.waiting):
            future = self.waiting.pop(number, None)
            if future:
                future.set_exception(DoorFailure(reason))

    def close(self):
        """Ends the door; what it leaves to complain about."""
        status = end_input(self.process)
        if status is None:
            return ["door did not end within 20 s after the end of its input"]
        return [] if status == 0 else [f"door ended with status {status}"]


class CSession:
    """A session through the C API: lines of door_sessions.h."""

    def __init__(self, door, options):
        self.door = door
        self.language = options.get("language", "python")
        with door.lock:
            self.number = door.sessions
            door.sessions += 1
        request = {"code": "1", "language": self.language}
        if "memory_mb" in options:
            request["memory_mb"] = options["memory_mb"]
        if door.backend:
            request["backend"] = door.backend
        times = [options.get(name, 0) for name in ("idle_timeout_seconds", "lifetime_seconds")]
        checkpoints = int(options.get("checkpoints", True))
        outcome = self._ask(f"open {times[0]} {times[1]} {checkpoints} {json.dumps(request)}")
        if outcome.error:
            raise DoorFailure(f"no session: {outcome.error}")

    def _ask(self, words):
        return self.door.send(f"session {self.number} {words}")

    def start(self, request):
        """Sends an exec; a function that waits for its outcome."""
        request = {"language": self.language, **request}
        seconds = request.get("timeout_seconds", 30)
        return self.door.start(f"session {self.number} exec {json.dumps(request)}", seconds)

    def interrupt(self):
        """Interrupts the exec that runs."""
        self._ask("interrupt")

    def cancel(self):
        """Cancels the exec that runs."""
        self._ask("cancel")

    def info(self):
        """What the session says of itself."""
        return self._ask("info").result

    def close(self):
        """Ends it; what it leaves to complain about."""
        outcome = self._ask("close")
        return [f"close: {outcome.error}"] if outcome.error else []
