# SPDX-License-Identifier: Apache-2.0
"""The checks of this folder notice what they are for.

Each case writes one file into a small sound tree and names the check that has
to fail because of it; on the tree as it is every check passes.
"""
import json
import subprocess
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent
TOTALS = HOUSE.parents[1] / "tools" / "totals.py"
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"

SOUND = {
    "include/hutch.h": SPDX + "#include <stdint.h>\n\n"
    "#define HUTCH_PUBLIC __attribute__((visibility(\"default\")))\n\n"
    "HUTCH_PUBLIC int32_t hutch_one(void);\n",
    "include/hutch-agent.h": SPDX + "#include <hutch.h>\n\nHUTCH_PUBLIC int32_t hutch_ask(void);\n",
    "src/agent/ask.c": SPDX + "#include <hutch-agent.h>\n\nint32_t hutch_ask(void)\n{\n"
    "    return 1;\n}\n",
    "src/agent/libhutch-agent.map": SPDX + "HUTCH_AGENT_0 {\n    global:\n        hutch_ask;\n"
    "    local:\n        *;\n};\n",
    "src/base/a.h": SPDX + "#pragma once\n\n#include \"hutch.h\"\n",
    "src/base/a.c": SPDX + "#include \"a.h\"\n\nint32_t hutch_one(void)\n{\n    return 1;\n}\n",
    "src/sandbox/wire.h": SPDX + "#pragma once\n\n#include <stdint.h>\n",
    "src/sandbox/libhutch.map": SPDX + "HUTCH_0 {\n    global:\n        hutch_one;\n"
    "    local:\n        *;\n};\n",
    "src/sandbox/namespace/n.h": SPDX + "#pragma once\n\n#include \"base/a.h\"\n",
    "src/sandbox/namespace/n.c": SPDX + "int f = open(\"/a\", O_RDONLY | O_CLOEXEC);\n"
    "int g = open(\"/a\", 0); /* without O_CLOEXEC: for the program */\n"
    "\n#define FLAGS (O_PATH | O_CLOEXEC)\n\nint h = openat(f, \"a\", FLAGS);\n"
    "const int flags = O_RDONLY | O_CLOEXEC;\nint i = open(\"/a\", flags);\n",
    "src/guest/g.c": SPDX + "#include \"sandbox/wire.h\"\n\n#include <unistd.h>\n",
    "tools/x.sh": "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\necho \"$1\"\n",
    "tests/skips.txt": "escape/IS1  no such device here\n",
}

VIOLATIONS = [
    ("includes.py", "src/base/b.c", SPDX + "#include \"sandbox/wire.h\"\n"),
    ("includes.py", "src/base/b.c", SPDX + "#include \"../sandbox/wire.h\"\n"),
    ("includes.py", "src/sandbox/microvm/m.c", SPDX + "#include \"sandbox/namespace/n.h\"\n"),
    ("includes.py", "src/guest/b.c", SPDX + "#include \"base/a.h\"\n"),
    ("includes.py", "src/guest/b.c", SPDX + "#include <jansson.h>\n"),
    ("includes.py", "src/other/b.c", SPDX + "#include <stdint.h>\n"),
    ("includes.py", "src/sandbox/wire.h", SPDX + "#include <stddef.h>\n"),
    ("includes.py", "include/hutch.h", SPDX + "#include \"base/a.h\"\n"),
    ("includes.py", "include/hutch-agent.h", SPDX + "#include \"base/a.h\"\n"),
    ("includes.py", "src/sandbox/b.c", SPDX + "#include <hutch-agent.h>\n"),
    ("headers.py", "src/base/b.h", SPDX + "#pragma once\n\nsize_t b_count(void);\n"),
    ("headers.py", "include/hutch.h", SOUND["include/hutch.h"] + "struct hutch_empty {\n};\n"),
    ("headers.py", "include/hutch-agent.h",
     SOUND["include/hutch-agent.h"] + "struct hutch_empty {\n};\n"),
    ("descriptors.py", "src/base/b.c", SPDX + "int f = open(\"/a\", (0));\n"),
    ("descriptors.py", "src/base/b.c", SPDX + "int f = open(\"/a\", 0 /* O_CLOEXEC */);\n"),
    ("descriptors.py", "src/base/b.c", SPDX + "int d = open(\"/\", O_PATH | O_CLOEXEC);\n"
     "int f = openat(d, \"a\", 0);\n"),
    ("descriptors.py", "src/base/b.c", SPDX + "int f = pipe(both);\n"),
    ("descriptors.py", "src/base/b.c", SPDX + "FILE *f = fopen(\"/a\", \"r\");\n"),
    ("symbols.py", "src/sandbox/libhutch.map", SPDX + "HUTCH_0 {\n    global:\n        hutch_one;\n"
     "        hutch_two;\n    local:\n        *;\n};\n"),
    ("symbols.py", "include/hutch.h",
     SOUND["include/hutch.h"] + "HUTCH_PUBLIC int hutch_two(void);\n"),
    ("symbols.py", "src/base/a.c", SPDX + "int hutch_one(void)\n{\n    return 1;\n}\n\n"
     "int stray(void)\n{\n    return 1;\n}\n"),
    ("symbols.py", "include/hutch-agent.h",
     SOUND["include/hutch-agent.h"] + "HUTCH_PUBLIC int hutch_two(void);\n"),
    ("child_objects.py", "src/guest/g.c", SPDX + "#include <stdlib.h>\n\nvoid *f(void)\n{\n"
     "    return malloc(3);\n}\n"),
    ("words.sh", "docs/a.md", "Here is a " + "TO" + "DO.\n"),
    ("licence.sh", "src/base/b.c", "int b;\n"),
    ("paths.sh", "docs/a.md", "See {root}/docs.\n"),
    ("format.sh", "src/base/b.c", SPDX + "int  b;\n"),
    ("shell.sh", "tools/y.sh", "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\necho $1\n"),
    ("shell.sh", "tools/y", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\necho $1\n"),
    ("spelling.sh", "docs/a.md", "It was re" + "cieved.\n"),
    ("skips.sh", "tests/skips.txt", "escape/IS1\n"),
    ("skips.sh", "tests/skips.txt", "escape/IS1  no such device\nescape/IS1  no such device\n"),
]
CHECKS = sorted({check for check, _, _ in VIOLATIONS})
NEED_BUILD = {"headers.py", "symbols.py", "child_objects.py"}


def build(root):
    """What the checks read of a build folder, made by hand."""
    folder = root / "build"
    folder.mkdir()
    commands = []
    for source in ("src/base/a.c", "src/guest/g.c", "src/agent/ask.c"):
        output = source.replace("/", "_") + ".o"
        command = ["gcc", "-fPIC", f"-I{root}/src", f"-I{root}/include", "-Wall", "-o", output,
                   "-c", f"../{source}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        commands.append({"directory": str(folder), "file": f"../{source}", "output": output,
                         "command": " ".join(command)})
    for library, part in (("libhutch", "base_a"), ("libhutch-agent", "agent_ask")):
        subprocess.run(["gcc", "-shared", "-o", f"{library}.so.0.1.0", f"src_{part}.c.o"],
                       cwd=folder, check=True)
    (folder / "meson-info").mkdir()
    (folder / "meson-info/intro-installed.json").write_text("{}")
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return folder


def run_check(check, root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace("{root}", str(root)))
    (root / ".clang-format").write_bytes((HOUSE.parents[1] / ".clang-format").read_bytes())
    command = [HOUSE / check, root] + ([build(root)] if check in NEED_BUILD else [])
    if check == "child_objects.py":
        (root / "list").write_text("src/guest/g.c\n")
        command.append(root / "list")
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("check", CHECKS)
def test_sound_tree_passes(check, tmp_path):
    result = run_check(check, tmp_path, SOUND)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("check,name,text", VIOLATIONS,
                         ids=[f"{check}-{i}" for i, (check, _, _) in enumerate(VIOLATIONS)])
def test_violation_is_noticed(check, name, text, tmp_path):
    result = run_check(check, tmp_path, {**SOUND, name: text})
    assert result.returncode != 0, result.stdout
    assert "Traceback" not in result.stdout
    assert result.stdout


def entry(name, result, stdout="", protocol="tap", returncode=0):
    """One test as meson logs it, and as meson lists it."""
    return ({"name": f"hutch:unit / {name}", "command": [name], "result": result, "stdout": stdout,
             "returncode": returncode},
            {"name": name, "cmd": [name], "suite": ["hutch:unit"], "protocol": protocol})


JUNIT = """<testsuites><testsuite><testcase classname="a" name="one"/>
<testcase classname="a" name="two"><failure message="no"/></testcase>
<testcase classname="a" name="three"><skipped message="why"/></testcase></testsuite></testsuites>"""

TOTALS_OF = [
    ("1 passed, 0 failed, 0 skipped", entry("t", "OK", "1..1\nok 1 - a\n# ok - tests\n")),
    ("1 passed, 1 failed, 0 skipped", entry("t", "FAIL", "1..2\nok 1 - a\nnot ok 2 - b\n")),
    ("1 passed, 1 failed, 0 skipped", entry("t", "OK", "1..2\nok 1 - a\nok 2 - b # SKIP why\n")),
    ("1 passed, 0 failed, 1 skipped", entry("t", "OK", "1..2\nok 1 - a\nok 2 - IS1: b # SKIP x\n")),
    ("1 passed, 1 failed, 0 skipped", entry("t", "ERROR", "1..3\nok 1 - a\n")),
    ("1 passed, 1 failed, 0 skipped", entry("t", "ERROR", "1..1\nok 1 - a\n", returncode=-11)),
    ("1 passed, 1 failed, 0 skipped", entry("t", "OK", "ok 1 - a\n")),
    ("0 passed, 1 failed, 0 skipped", entry("t", "SKIP")),
    ("0 passed, 1 failed, 0 skipped", entry("t", "SKIP", "1..0 # SKIP why\n")),
    ("0 passed, 0 failed, 1 skipped", entry("IS1", "SKIP", "1..0 # SKIP why\n")),
    ("0 passed, 1 failed, 0 skipped", entry("t", "TIMEOUT", "", "exitcode", -15)),
    ("1 passed, 0 failed, 0 skipped", entry("t", "OK", "", "exitcode")),
    ("0 passed, 1 failed, 0 skipped", entry("t", "SKIP", "no root", "exitcode", 77)),
    ("1 passed, 2 failed, 0 skipped", entry("junit", "FAIL", "", "exitcode", 1)),
    ("0 passed, 1 failed, 0 skipped", None),
]


@pytest.mark.parametrize("expected,test", TOTALS_OF)
def test_totals_are_true(expected, test, tmp_path):
    for folder in ("meson-logs", "meson-info", "junit"):
        (tmp_path / folder).mkdir()
    logged, known = test or (None, None)
    (tmp_path / "meson-logs/testlog.json").write_text(json.dumps(logged) + "\n" if logged else "")
    (tmp_path / "meson-info/intro-tests.json").write_text(json.dumps([known] if known else []))
    (tmp_path / "junit/junit.xml").write_text(JUNIT)
    (tmp_path / "skips").write_text("unit/IS1  a reason for it\n")
    (tmp_path / "steps").write_text("")
    result = subprocess.run([TOTALS, tmp_path / "skips", tmp_path / "steps", tmp_path],
                            text=True, stdout=subprocess.PIPE)
    passed, failed, _ = (int(part.split()[0]) for part in expected.split(", "))
    assert result.stdout.splitlines()[-1] == expected
    assert result.returncode == (1 if failed or not passed else 0)


@pytest.mark.parametrize(
    "expected,text",
    [
        ("1 passed, 1 failed, 1 skipped", "1..3\nok 1 - a\nok 2 - IS1: b # SKIP x\nnot ok 3 - c\n"),
        ("1 passed, 1 failed, 0 skipped", "1..2\nok 1 - a\n"),
        ("0 passed, 1 failed, 0 skipped", ""),
    ],
)
def test_totals_of_a_tap_file(expected, text, tmp_path):
    (tmp_path / "unit.program.tap").write_text(text)
    (tmp_path / "skips").write_text("unit/IS1  a reason for it\n")
    result = subprocess.run([TOTALS, tmp_path / "skips", "/dev/null", tmp_path / "unit.program.tap"],
                            text=True, stdout=subprocess.PIPE)
    assert result.stdout.splitlines()[-1] == expected
    assert result.returncode == 1
