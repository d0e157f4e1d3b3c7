# SPDX-License-Identifier: Apache-2.0
"""
Interpreters that are none, or are broken: the run is not started, and one line
says which file it was and what it has to be. Through the C API, whose options
name the interpreters (tests/conformance/door.c).
"""

import concurrent.futures
import json
import os
import pathlib
import re
import struct
import subprocess

import pytest

DOOR = pathlib.Path(os.environ["HUTCH_BUILD"]) / "tests" / "conformance" / "door"
PATIENCE = 180
LANGUAGES = {
    "python": ("--python", "CPython 3.9 or later", "/bin/bash"),
    "shell": ("--bash", "bash 4 or later", "/usr/bin/python3"),
    "javascript": ("--node", "node 18 or later", "/bin/bash"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def answer(cache, language, interpreter):
    """What a run in that language says when its interpreter is that file."""
    option = LANGUAGES[language][0]
    request = json.dumps({"code": "1", "language": language})
    run = subprocess.run([DOOR, "--cache-dir", cache, option, interpreter], input=request + "\n",
                         capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert run.stderr == ""
    return json.loads(run.stdout)


def check(cache, language, interpreter):
    """The error of such a run is the right one; returns what it says of the file."""
    error = answer(cache, language, interpreter)["error"]
    assert error["code"] == "runtime_missing"
    assert error["retry_safe"] is True
    message = re.fullmatch(f"{language} interpreter '{re.escape(str(interpreter))}':? ([^\n]+)",
                           error["message"])
    assert message, error
    assert not list(cache.glob("trees/.new")), "a half-made tree is left"
    return message[1]


def program(folder, content, mode=0o755):
    """A file that shall be an interpreter."""
    path = folder / "interpreter"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def other_machine():
    """A program for a processor that this one is not."""
    content = bytearray(pathlib.Path("/bin/true").read_bytes())
    machine = struct.unpack_from("<H", content, 18)[0]
    struct.pack_into("<H", content, 18, 183 if machine != 183 else 62)  # aarch64, x86-64
    return bytes(content)


BROKEN = {
    "exits at once": ("#!/bin/sh\nexit 3\n", "not {}: exit status 3"),
    "exits with a reason": ("#!/bin/sh\necho 'no licence' >&2\nexit 3\n",
                            "not {}: exit status 3: 'no licence'"),
    "says nothing": ("#!/bin/sh\n", "not {}"),
    "prints garbage": ("#!/bin/sh\necho garbage\necho junk >&2\n", "not {}"),
    "prints without end": ("#!/bin/sh\nexec yes\n", "not {}: exit status 153.*|ended by signal 25.*"),
    "is killed": ("#!/bin/sh\nkill -9 $$\n", "ended by signal 9, so not {}"),
    "is no program": ("just text\n", "cannot be executed, so not {}"),
    "is empty": ("", "cannot be executed, so not {}"),
    "is a broken program": (b"\x7fELF" + bytes(100), "cannot be executed, so not {}"),
    "is for another machine": (other_machine(), "cannot be executed, so not {}"),
    "names what is not there": ("#!/no/such/file\n", "cannot be executed, so not {}"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_broken_one(language, what, cache, tmp_path):
    content, says = BROKEN[what]
    wanted = re.escape(LANGUAGES[language][1])
    said = check(cache, language, program(tmp_path, content))
    assert re.fullmatch(says.format(wanted), said), said


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_that_may_not_be_executed(language, cache, tmp_path):
    said = check(cache, language, program(tmp_path, "#!/bin/sh\n", 0o644))
    assert said == f"cannot be executed, so not {LANGUAGES[language][1]}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_folder(language, cache, tmp_path):
    said = check(cache, language, tmp_path)
    assert said == f"cannot be executed, so not {LANGUAGES[language][1]}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_that_is_not_there(language, cache, tmp_path):
    said = check(cache, language, tmp_path / "none")
    assert re.fullmatch("not found: install the package (python3|bash|nodejs)", said)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_of_another_language(language, cache):
    _, wanted, other = LANGUAGES[language]
    assert check(cache, language, other).startswith(f"not {wanted}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_path_that_is_not_absolute(language, cache):
    option = LANGUAGES[language][0]
    run = subprocess.run([DOOR, "--cache-dir", cache, option, "bin/python3"], input="",
                         capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 1
    assert "'bin/python3' is not an absolute path" in run.stderr


def test_ones_that_hang(cache, tmp_path):
    """All three at once: each is given half a minute."""
    path = program(tmp_path, "#!/bin/sh\nsleep 600\n")
    caches = [tmp_path / language for language in LANGUAGES]
    with concurrent.futures.ThreadPoolExecutor(len(LANGUAGES)) as pool:
        said = list(pool.map(check, caches, LANGUAGES, [path] * len(LANGUAGES)))
    assert said == [f"does not end, so not {wanted}" for _, wanted, _ in LANGUAGES.values()]
    assert not subprocess.run(["pgrep", "-f", str(path)], capture_output=True, check=False).stdout


def test_the_next_run_is_not_harmed(cache):
    assert answer(cache, "shell", "/bin/bash")["result"]["exit_code"] == 127
