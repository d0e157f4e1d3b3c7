# SPDX-License-Identifier: Apache-2.0
"""
The command line of hutch without a cell: its option tables, its help and its
manual pages say the same, and what is wrong with a command line or with a file
that it names is said in one line.

HUTCH names the program, else it is the one of the build folder HUTCH_BUILD.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HUTCH = os.environ.get("HUTCH") or os.path.join(os.environ["HUTCH_BUILD"], "hutch")
MIB = 1 << 20


def hutch(*arguments, **keywords):
    keywords.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([HUTCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60, check=False, **keywords)


DUMP = json.loads(hutch("help", "--json").stdout)
COMMANDS = {command["name"]: command for command in DUMP["commands"]}
PAGES = [name for name in COMMANDS if (SOURCE / f"docs/man/hutch-{name}.1.scd").exists()]


# ---- tables, help, manual pages ----


def sections(name):
    """The sections of a manual page's source by their titles."""
    text = (SOURCE / f"docs/man/{name}.1.scd").read_text(encoding="utf-8")
    parts = re.split(r"^# (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def entries(section):
    """What stands under each heading of a section: {"*-q*, *--quiet*": "..."}."""
    found = re.findall(r"^(\S.*)\n((?:\t.*\n|\n(?=\t))+)", section, flags=re.MULTILINE)
    return {heading: " ".join(text.split()) for heading, text in found}


def heading_of(option):
    """How a manual page introduces an option."""
    if option["type"] == "operand":
        return f"_{option['argument']}_"
    names = [f"*-{option['letter']}*"] if option["letter"] else []
    names.append(f"*--{option['name']}*")
    argument = f" _{option['argument']}_" if option["argument"] else ""
    return ", ".join(names) + argument


def label_of(option):
    """How the help introduces an option."""
    return re.sub("[*_]", "", heading_of(option))


def statuses(command):
    return {row["status"] for row in command["exit_statuses"]}


def test_every_command_of_work_has_a_page():
    assert set(PAGES) == set(COMMANDS) - {"help", "version"}
    assert {"run", "doctor", "bench"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_page_has_the_options_of_the_table(name):
    page = sections(f"hutch-{name}")
    headings = [heading_of(option) for option in COMMANDS[name]["options"]]
    assert list(entries(page["OPTIONS"])) == headings


@pytest.mark.parametrize("name, option", [(name, option) for name in PAGES
                                          for option in COMMANDS[name]["options"]],
                         ids=lambda value: value if isinstance(value, str) else heading_of(value))
def test_page_has_the_facts_of_the_table(name, option):
    text = entries(sections(f"hutch-{name}")["OPTIONS"])[heading_of(option)]
    for choice in option["choices"]:
        assert re.search(rf"\b{choice}\b", text)
    if option["minimum"] is not None:
        assert f"from {option['minimum']:.15g}" in text
        most = "what the host has" if option["maximum"] is None else f"{option['maximum']:.15g}"
        assert f"to {most}" in text
    assert (f"default {option['default']}." in text) == (option["default"] is not None)
    assert ("may be repeated" in text) == option["repeatable"]


@pytest.mark.parametrize("name", PAGES)
def test_page_has_the_exit_statuses_of_the_table(name):
    headings = entries(sections(f"hutch-{name}")["EXIT STATUS"])
    listed = {status for heading in headings for status in re.findall(r"\*([\d-]+)\*", heading)}
    assert listed == statuses(COMMANDS[name])


@pytest.mark.parametrize("name", PAGES)
def test_page_has_the_synopsis_of_the_table(name):
    synopsis = COMMANDS[name]["synopsis"]
    assert sections(f"hutch-{name}")["SYNOPSIS"].strip() == f"*hutch {name}* {synopsis}"
    assert f"*hutch* *{name}* {synopsis}" in sections("hutch")["SYNOPSIS"]


def test_main_page_lists_the_commands():
    page = sections("hutch")
    assert list(entries(page["COMMANDS"])) == [f"*{name}*" for name in COMMANDS]
    synopsis = re.findall(r"^\*hutch\* \*(\w+)\*", page["SYNOPSIS"], flags=re.MULTILINE)
    assert synopsis == list(COMMANDS)


def test_page_lists_the_layers():
    listed = re.findall(r"[a-z_]+", sections("hutch-run")["LAYERS"].strip().split("\n\n")[0])
    message = hutch("run", "--require", "moat", "-c", "1").stderr.decode()
    assert listed == re.findall(r"[a-z_]+", message.partition("allowed are ")[2])
    assert len(listed) == 17


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_made_from_the_table(name):
    help_ = hutch(name, "--help")
    assert (help_.returncode, help_.stderr) == (0, b"")
    assert hutch("help", name).stdout == help_.stdout
    assert hutch(name, "-h").stdout == help_.stdout
    text = help_.stdout.decode()
    assert all(len(line) <= 80 for line in text.splitlines())
    labels = re.findall(r"^  (?:    )?(-.*?|[A-Z]+)(?:  .*)?$", text, flags=re.MULTILINE)
    assert labels == [label_of(option) for option in COMMANDS[name]["options"]]
    listed = re.findall(r"^  ([\d-]+)  ", text.partition("exit status:")[2], flags=re.MULTILINE)
    assert set(listed) == statuses(COMMANDS[name])


def test_help_lists_the_commands():
    overview = hutch("--help")
    assert (overview.returncode, overview.stderr) == (0, b"")
    assert hutch("help").stdout == hutch("-h").stdout == overview.stdout
    assert re.findall(r"^  (\w+) ", overview.stdout.decode(), flags=re.MULTILINE) == list(COMMANDS)


def test_tables_are_sound():
    for command in COMMANDS.values():
        names = [option["name"] for option in command["options"] if option["name"]]
        letters = [option["letter"] for option in command["options"] if option["letter"]]
        assert len(set(names)) == len(names)
        assert len(set(letters)) == len(letters)
        assert "help" in names and "h" in letters
        assert {"2", "125"} <= statuses(command)


def test_version():
    answer = hutch("version")
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert answer.stdout.decode() == f"hutch {DUMP['version']}\n"
    assert hutch("--version").stdout == answer.stdout


def test_hutch_alone_is_a_usage_error():
    answer = hutch()
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert answer.stderr.startswith(b"usage: hutch ")


# ---- what is refused ----


def refusal(*arguments, **keywords):
    """The one line on stderr of a command line that is a usage error."""
    answer = hutch(*arguments, **keywords)
    assert (answer.returncode, answer.stdout) == (2, b"")
    line = answer.stderr.decode()
    assert line.count("\n") == 1 and line.endswith("\n")
    return line[:-1]


REFUSALS = [
    (["frob"], "hutch: command 'frob' is not one of run, session, agent, doctor, bench, version, help"),
    (["help", "frob"], "hutch: command 'frob' is not one of run, session, agent, doctor, bench, version, help"),
    (["--frob"], "hutch: option '--frob': is unknown; 'hutch --help' lists the commands"),
    (["version", "x"], "hutch version: argument 'x': is one too many; at most 0 allowed"),
    (["doctor", "-x"], "hutch doctor: option '-x': is unknown; "
                       "'hutch doctor --help' lists the options"),
    (["bench", "-n", "0"], "hutch bench: option '-n': value '0' is not a whole number "
                           "from 1 to 100000"),
    (["bench", "--seconds", "3601"], "hutch bench: option '--seconds': value '3601' is not a "
                                     "whole number from 0 to 3600"),
    (["run"], "hutch run: no program: give -c CODE, a FILE, or - for standard input"),
    (["run", "a", "b"], "hutch run: argument 'b': is one too many; at most 1 allowed"),
    (["run", "-c", "1", "b"], "hutch run: argument 'b': is one too many beside -c CODE"),
    (["run", "-t", "x", "-c", "1"], "hutch run: option '-t': value 'x' is not a number "
                                    "from 0.1 to 300"),
    (["run", "-t0", "-c", "1"], "hutch run: option '-t': value '0' is not a number "
                                "from 0.1 to 300"),
    (["run", "--timeout=300.5", "-c", "1"], "hutch run: option '--timeout': value '300.5' is not "
                                            "a number from 0.1 to 300"),
    (["run", "-t", "inf", "-c", "1"], "hutch run: option '-t': value 'inf' is not a number "
                                      "from 0.1 to 300"),
    (["run", "-t", "0x10", "-c", "1"], "hutch run: option '-t': value '0x10' is not a number "
                                       "from 0.1 to 300"),
    (["run", "-t", "", "-c", "1"], "hutch run: option '-t': value '' is not a number "
                                   "from 0.1 to 300"),
    (["run", "-t"], "hutch run: option '-t': needs a value, SECONDS"),
    (["run", "--memory"], "hutch run: option '--memory': needs a value, MB"),
    (["run", "--json=1"], "hutch run: option '--json': takes no value, got '1'"),
    (["run", "--time", "5"], "hutch run: option '--time': is unknown; "
                             "'hutch run --help' lists the options"),
    (["run", "-qx"], "hutch run: option '-x': is unknown; 'hutch run --help' lists the options"),
    (["run", "-l", "cobol", "-c", "1"], "hutch run: option '-l': value 'cobol' is not one of "
                                        "python, javascript, shell, raw"),
    (["run", "--backend", "x", "-c", "1"], "hutch run: option '--backend': value 'x' is not "
                                           "one of auto, namespace"),
    (["run", "-e", "NAME", "-c", "1"], "hutch run: option '-e': value 'NAME' is not of the form "
                                       "NAME=VALUE"),
    (["run", "--gate", "-l", "shell", "-c", "1"], "hutch run: gate: reads python alone, and the "
                                                  "language is shell; run it without a gate"),
    (["run", "--gate=os", "-c", "1"], "hutch run: option '--gate': takes no value, got 'os'"),
    (["run", "-", "--stdin", "-"], "hutch run: option '--stdin': value '-' and FILE '-' cannot "
                                   "both be standard input"),
]


@pytest.mark.parametrize("arguments, line", REFUSALS, ids=lambda value: " ".join(value)
                         if isinstance(value, list) else "")
def test_refusal(arguments, line):
    assert refusal(*arguments) == line


@pytest.mark.parametrize("option, least", [("-m", "16"), ("--cpus", "0.1")])
def test_refusal_names_what_the_host_has(option, least):
    line = refusal("run", option, "1000000", "-c", "1")
    assert re.fullmatch(rf"hutch run: option '{option}': value '1000000' is not a (whole )?number "
                        rf"from {least} to [0-9.]+", line)


def test_refused_text_cannot_forge_lines():
    line = refusal("run", "--a\nhutch: forged\x1b[2J", "-c", "1")
    assert line.isprintable()


def test_unknown_layer_lists_the_known():
    line = refusal("run", "--require", "moat", "-c", "1")
    assert line.startswith("hutch run: require: 'moat' is no layer; allowed are user_ns, pid_ns, ")


def test_cache_folder_must_be_absolute():
    line = refusal("run", "-c", "1", env=dict(os.environ, HUTCH_CACHE_DIR="here"))
    assert line == "hutch run: HUTCH_CACHE_DIR: value 'here' is not an absolute path"


@pytest.mark.parametrize("arguments, code, status", [
    (["-t", "x", "-c", "1"], "invalid_request", 2),
    (["-c", ""], "invalid_request", 2),
    (["--backend", "microvm", "-c", "1"], "backend_unavailable", 125),
    (["--require", "kvm", "-c", "1"], "layer_missing", 125),
])
def test_refusal_as_json(arguments, code, status):
    plain = hutch("run", *arguments)
    answer = hutch("run", *arguments, "--json")
    assert (plain.returncode, answer.returncode) == (status, status)
    assert (plain.stdout, plain.stderr) == (b"", answer.stderr)
    assert answer.stderr.count(b"\n") == answer.stdout.count(b"\n") == 1
    error = json.loads(answer.stdout)["error"]
    assert error == {"code": code, "message": error["message"], "retry_safe": True}
    assert answer.stderr.decode().endswith(f": {error['message']}\n")


# ---- what is accepted ----

# Read last and answered with 125: a command line that gets so far was accepted.
NOT_HERE = ["--backend", "microvm"]


@pytest.mark.parametrize("arguments", [
    ["-t5", "-c", "1"],
    ["-t", "5", "-c1"],
    ["--timeout=5", "--code=1"],
    ["--timeout", "5", "--code", "1"],
    ["-qt", "5", "-c", "1"],
    ["-qqt5", "-c1", "--json"],
    ["-c", "--json"],
    ["-c", "--", "-m", "64"],
    ["-e", "A=1", "-e", "A==", "--env=B=", "-c", "1"],
    ["--require", "seccomp", "--require=pid_ns", "-c", "1"],
    ["-l", "raw", "-c", "1"],
    ["--cpus", ".5", "-c", "1"],
    ["--gate", "--tidy", "-c", "1"],
])
def test_accepted(arguments):
    answer = hutch("run", *arguments, *NOT_HERE)
    assert answer.returncode == 125
    assert answer.stderr == b"hutch: backend: 'microvm' is not available; allowed are auto and " \
                            b"namespace\n"


def test_options_may_follow_the_file():
    assert hutch("run", "no-such-file", *NOT_HERE).returncode == 125


def test_nothing_is_an_option_after_two_dashes():
    line = refusal("run", "--", "--json")
    assert line == "hutch run: code: file '--json' cannot be read: No such file or directory"


# ---- files that are no program ----


def test_file_missing():
    line = refusal("run", "no-such-file")
    assert line == "hutch run: code: file 'no-such-file' cannot be read: No such file or directory"


def test_file_is_a_folder(tmp_path):
    assert refusal("run", ".", cwd=tmp_path) == "hutch run: code: file '.' is a directory"


@pytest.mark.parametrize("arguments", [["pipe"], ["--stdin", "pipe", "-c", "1"]])
def test_a_fifo_without_a_writer_is_not_waited_for(arguments, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    line = refusal("run", *arguments, cwd=tmp_path)
    assert line.endswith(": file 'pipe' is not a regular file; '-' reads standard input")


def test_code_over_one_mib(tmp_path):
    (tmp_path / "big.py").write_bytes(b"#" * (MIB + 1))
    line = refusal("run", "big.py", cwd=tmp_path)
    assert line == "hutch run: code: file 'big.py' is longer than the 1048576 bytes that are allowed"


def test_code_from_standard_input_over_one_mib():
    line = refusal("run", "-", input=b"#" * (MIB + 1), stdin=None)
    assert line == "hutch run: code: file '-' is longer than the 1048576 bytes that are allowed"


def test_endless_standard_input_is_not_read_to_its_end():
    with open("/dev/zero", "rb") as zero:
        line = refusal("run", "-", stdin=zero)
    assert line.endswith("is longer than the 1048576 bytes that are allowed")


def test_stdin_over_sixteen_mib(tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(16 * MIB + 1)
    line = refusal("run", "--stdin", "big", "-c", "1", cwd=tmp_path)
    assert line == "hutch run: stdin: file 'big' is longer than the 16777216 bytes that are allowed"


@pytest.mark.parametrize("content, word", [(b"", "code"), (b"print(1)\0", "NUL"),
                                           (b"print('\xff')", "UTF-8")])
def test_content_that_is_no_program(content, word, tmp_path):
    (tmp_path / "program.py").write_bytes(content)
    line = refusal("run", "program.py", cwd=tmp_path)
    assert line.startswith("hutch run: code: ") and word in line
