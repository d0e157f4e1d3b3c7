# SPDX-License-Identifier: Apache-2.0
"""
`hutch session` as a reader of lines: readers of its answers that go away, interrupts that
overtake, lines that are too long or too many, fields that do not belong, ids.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import os
import socket

import pytest
from session_lines import PATIENCE, Lines

LINES_MAX = 1024  # that wait
LINE_BYTES = 8 << 20

# Says by a file that it runs, and then does so until it is interrupted.
ENDLESS = "open('runs', 'w').close()\nimport time\nwhile True: time.sleep(0.02)"
# The same until a file is there.
UNTIL_GO = "open('runs', 'w').close()\nimport os, time\n" \
           "while not os.path.exists('go'): time.sleep(0.02)"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """One cache for all tests, the caller's if there is one."""
    if "HUTCH_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("HUTCH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


class Session(Lines):
    def ask(self, line):
        self.send(line)
        return self.take()

    def refused(self, line):
        answer = self.ask(line)
        assert answer["error"]["code"] == "invalid_request" and answer["error"]["retry_safe"]
        assert answer.get("id") == line.get("id")
        return answer["error"]["message"]

    def await_run(self):
        """Until the exec runs, which makes the file; execs' answers must not come."""
        while True:
            answer = self.ask({"op": "list"})
            assert answer["op"] == "list", answer
            if any(entry["name"] == "runs" for entry in answer["entries"]):
                return


def status_at_the_end(session):
    """Of a session that ends by itself, whether its standard input has ended or not."""
    session.status = session.process.wait(timeout=PATIENCE)
    return session.status


# ---- a reader that goes away ----


@pytest.mark.parametrize("queued", [0, 3])
@pytest.mark.parametrize("input_ends", [False, True])
def test_reader_gone_ends_a_running_exec(queued, input_ends):
    with Session() as session:
        session.send({"code": ENDLESS, "timeout_seconds": 300})
        session.await_run()
        session.send(*[{"code": "1"}] * queued)
        if input_ends:
            session.process.stdin.close()
        session.process.stdout.close()
        assert status_at_the_end(session) == 141


def test_reader_gone_ends_an_idle_session():
    with Session() as session:
        assert session.ask({"code": "6*7"})["value"] == "42"
        session.process.stdout.close()
        assert status_at_the_end(session) == 141


def test_reader_gone_from_a_socket():
    ours, theirs = socket.socketpair()
    with theirs, Session(stdout=theirs) as session:
        theirs.close()
        session.send({"op": "info"})
        assert ours.recv(1) == b"{"
        ours.close()
        assert status_at_the_end(session) == 141


def test_answer_that_cannot_be_written_ends_the_session():
    with open("/dev/full", "wb") as full, Session(stdout=full) as session:
        session.send({"op": "info"})
        assert status_at_the_end(session) == 125


# ---- interrupts, and lines that wait ----


def test_interrupt_overtakes_lines_that_wait():
    with Session() as session:
        session.send({"code": ENDLESS, "timeout_seconds": 300, "id": "first"})
        session.await_run()
        session.send(*[{"op": "info", "id": i} for i in range(100)], {"op": "interrupt"})
        first = session.take()
        assert first["id"] == "first" and first["error"]["type"] == "KeyboardInterrupt"
        assert [session.take()["id"] for _ in range(100)] == list(range(100))


def test_execs_that_wait_hold_up_no_files():
    with Session() as session:
        session.send({"code": UNTIL_GO, "timeout_seconds": 300})
        session.await_run()
        session.send(*[{"code": str(i), "id": i} for i in range(100)])
        put = session.ask({"op": "put", "path": "go", "data": "", "id": "go"})
        assert (put["op"], put["id"], put["size"]) == ("put", "go", 0)
        assert session.take()["error"] is None
        assert [session.take()["value"] for _ in range(100)] == [str(i) for i in range(100)]


def test_too_many_lines_are_answered_by_busy():
    with Session() as session:
        session.send({"code": ENDLESS, "timeout_seconds": 300, "id": "first"})
        session.await_run()
        session.send(*[{"op": "info", "id": i} for i in range(LINES_MAX + 2)])
        for number in (LINES_MAX, LINES_MAX + 1):
            busy = session.take()
            assert busy["id"] == number
            assert busy["error"]["code"] == "too_many_runs" and busy["error"]["retry_safe"]
            assert "1024" in busy["error"]["message"] and "128 MiB" in busy["error"]["message"]
        session.send({"op": "interrupt"})
        assert session.take()["id"] == "first"
        assert [session.take()["id"] for _ in range(LINES_MAX)] == list(range(LINES_MAX))
        assert session.ask({"code": "6*7"})["value"] == "42"


def test_session_that_is_over_answers_until_the_end_of_input():
    with Session("-l", "shell", "--lifetime", "1") as session:
        while "error_type" in (answer := session.ask({"code": "true", "id": 1})):
            pass  # it lives
        for line in ({"code": "true", "id": 2}, {"op": "list", "id": 3}):
            answer = session.ask(line)
            assert answer["id"] == line["id"]
            assert answer["error"]["code"] == "session_expired", answer
            assert "lasted for 1 s" in answer["error"]["message"]
        assert session.ask({"op": "info"})["expires_in_seconds"] == 0


# ---- the length of a line ----


def of_length(count):
    """An info whose line has so many bytes."""
    return b'{"op": "info"' + b" " * (count - 14) + b"}\n"


def test_line_of_the_limit_is_taken_and_one_beyond_is_not():
    with Session() as session:
        session.send_text(of_length(LINE_BYTES))
        assert "session_id" in session.take()
        for count in (LINE_BYTES + 1, LINE_BYTES + 20000, 3 * LINE_BYTES):
            session.send_text(of_length(count))
            error = session.take()["error"]
            assert (error["code"], error["retry_safe"]) == ("invalid_request", True)
            assert "8 MiB" in error["message"]
        assert session.ask({"code": "6*7"})["value"] == "42"


def test_long_line_at_the_end():
    with Session() as session:
        session.send_text(of_length(LINE_BYTES + 1)[:-1])
        session.process.stdin.close()
        assert "8 MiB" in session.take()["error"]["message"]
        assert session.process.stdout.read() == b""


def test_empty_line_gets_no_answer():
    with Session() as session:
        session.send_text(b"\n\n")
        assert session.ask({"op": "info", "id": 1})["id"] == 1


# ---- fields ----


def test_fields_that_do_not_belong():
    with Session() as session:
        for op in ("info", "interrupt"):
            for number in (None, 5):
                line = {"op": op, "foo": 1} | ({"id": number} if number else {})
                assert session.refused(line) == f"'foo': is no field of {op}; allowed are op, id"
        assert session.refused({"op": 7, "id": 1}) == "op: is a whole number; allowed is a string"
        assert session.refused({"op": None}) == "op: is null; allowed is a string"
        assert session.refused({"op": "foo"}).startswith("op: 'foo'; allowed are info, ")
        assert session.refused({}) == "code or op is missing"
        assert session.refused({"id": 3}) == "code or op is missing"
        session.send_text(b"[1]\n")
        assert session.take()["error"]["message"] == "request: is an array; allowed is an object"
        message = session.refused({"cod": "1"})
        assert message.startswith("'cod': is no field of an exec; allowed are code, language, ")
        assert message.endswith(", return_files, id")


@pytest.mark.parametrize("field, value, hint", [
    ("memory_mb", 512, "start hutch session with --memory"),
    ("cpus", 1, "start hutch session with --cpus"),
    ("backend", "auto", "start hutch session with --backend"),
    ("require", [], "start hutch session with --require"),
    ("max_processes", 64, "hutch session has no option for it"),
    ("disk_mb", 256, "hutch session has no option for it"),
    ("owner", "me", "hutch session has no option for it"),
])
def test_fields_of_the_session(field, value, hint):
    with Session("-l", "shell") as session:
        message = session.refused({"code": "true", field: value, "id": 1})
        assert message == f"{field}: belongs to the whole session; {hint}"


def test_language_is_the_session_s():
    with Session("-l", "shell") as session:
        assert session.ask({"code": "echo $BASH", "language": "shell"})["stdout"] == "/bin/bash\n"
        assert session.refused({"code": "1", "language": "python"}) == \
            "language: 'python'; allowed is the session's, 'shell'"


# ---- ids ----


def test_ids():
    with Session() as session:
        code = "print('\\u00fc\\0')\nfloat('1.5')"
        for number in (0, -7, 2**63 - 1, "", "a\"b\\\u00fc\0", "x" * 128):
            result = session.ask({"id": number, "code": code, "timeout_seconds": 2.5})
            assert (result["id"], result["stdout"]) == (number, "\u00fc\0\n")
            assert result["value"] == "1.5"
            assert session.ask({"op": "info", "id": number})["id"] == number
        assert session.refused({"code": "", "id": 4}).startswith("code: empty")
        assert "id" not in session.ask({"code": "1"})
        assert "id" not in session.ask({"op": "info"})


@pytest.mark.parametrize("line", [{"code": "1"}, {"op": "info"}, {"op": "interrupt"}])
def test_ids_that_are_none(line):
    with Session("-l", "shell") as session:
        for bad, kind in ((1.5, "a real number"), (None, "null"), ([], "an array")):
            error = session.ask(line | {"id": bad})
            assert set(error) == {"error"}
            assert error["error"]["message"] == \
                f"id: is {kind}; allowed is a string or a whole number"
        message = session.ask(line | {"id": "x" * 129})["error"]["message"]
        assert message == "id: has 129 bytes; allowed are 128"
