# SPDX-License-Identifier: Apache-2.0
"""
``make install`` as a packager and a user meet it: into a DESTDIR, moved to
another prefix, compiled against, run, and uninstalled without a trace.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from model_server import Server, completion, plain

from model_server import Server, completion, plain

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])


def run(*argv, timeout=120, **keywords):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=timeout,
                          **keywords)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation at another place than the one it was configured for."""
    staging = tmp_path_factory.mktemp("staging")
    run("meson", "install", "--no-rebuild", "-C", str(BUILD), "--destdir", str(staging))
    moved = tmp_path_factory.mktemp("moved") / "place"
    configured = run("meson", "introspect", str(BUILD), "--buildoptions").stdout
    assert '"prefix"' in configured
    (root,) = [path.parent.parent for path in staging.rglob("bin/hutch")]
    shutil.move(str(root), str(moved))
    return moved


def pkg_config(prefix, *arguments, library="libhutch"):
    (folder,) = {path.parent for path in prefix.rglob(f"{library}.pc")}
    environment = dict(os.environ, PKG_CONFIG_PATH=str(folder))
    answer = run("pkg-config", f"--define-variable=prefix={prefix}", *arguments, library,
                 env=environment)
    return answer.stdout.split()


def compile_example(prefix, name, library, program):
    run("gcc", str(SOURCE / "examples" / name),
        *pkg_config(prefix, "--cflags", "--libs", library=library),
        "-Wall", "-Wextra", "-Werror", "-o", str(program))


def library_folder(prefix):
    (path,) = prefix.rglob("libhutch.so")
    return str(path.parent)


def test_the_program_runs_where_it_was_moved_to(prefix):
    answer = run(str(prefix / "bin" / "hutch"), "run", "-c", "print(2+2)")
    assert answer.stdout == "4\n"


def test_the_agent_runs_where_it_was_moved_to(prefix):
    with Server(plain(completion("four"))) as server:
        answer = run(str(prefix / "bin" / "hutch"), "agent", "--base-url", server.url, "2+2?",
                     env={**os.environ, "no_proxy": "127.0.0.1"})
    assert answer.stdout == "four\n"


def test_the_example_compiles_and_runs(prefix, tmp_path):
    program = tmp_path / "run"
    compile_example(prefix, "run.c", "libhutch", program)
    environment = dict(os.environ, LD_LIBRARY_PATH=library_folder(prefix))
    answer = run(str(program), "print('out'); 6*7", env=environment)
    assert answer.stdout == "out\n"
    assert "exit code 0, no error" in answer.stderr
    assert "value 42" in answer.stderr


def test_the_example_of_agents_compiles_and_runs(prefix, tmp_path):
    """The clerk looks into the stock and asks the computer, whose program runs in a cell."""
    def calls(name, arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        return plain(completion(None, "tool_calls", tool_calls=[
            {"id": f"call-{name}", "type": "function", "function": function}]))

    def rule(request):
        names = [tool["function"]["name"] for tool in request.body["tools"]]
        said = request.body["messages"][-1]["content"]
        results = [m["content"] for m in request.body["messages"] if m["role"] == "tool"]
        if names == ["python_executor"]:
            if results:
                return plain(completion(json.loads(results[0])["stdout"].strip()))
            return calls("python_executor", {"code": f"print({said})"})
        if len(results) < 2:
            stock = json.loads(results[0]) if results else {}
            return calls("compute", {"question": f"{stock['screws']} + {stock['nails']}"}
                         ) if results else calls("stock", {})
        return plain(completion(f"There are {results[1]}."))

    program = tmp_path / "agent"
    compile_example(prefix, "agent.c", "libhutch-agent", program)
    with Server(rule=rule) as server:
        environment = {name: value for name, value in os.environ.items()
                       if not name.lower().endswith("_proxy")}
        environment.update(LD_LIBRARY_PATH=library_folder(prefix), OPENAI_BASE_URL=server.url)
        answer = run(str(program), env=environment)
    assert answer.stdout == "There are 197.\n"
    assert "text, 2 tool calls" in answer.stderr


def test_the_header_needs_nothing_but_itself(prefix, tmp_path):
    for compiler, standard, name in (("gcc", "c99", "t.c"), ("g++", "c++11", "t.cpp")):
        if not shutil.which(compiler):
            pytest.fail(f"{compiler} is missing")
        source = tmp_path / name
        source.write_text('#include <hutch-agent.h>\nint main(void) { return !hutch_version(); }\n')
        run(compiler, f"-std={standard}", "-pedantic", "-Wall", "-Werror",
            *pkg_config(prefix, "--cflags"), "-c", str(source), "-o", str(tmp_path / "t.o"))


def test_uninstall_leaves_nothing(tmp_path):
    """In a build folder of its own, because uninstall follows the last install."""
    build = tmp_path / "build"
    prefix = tmp_path / "prefix"
    run("meson", "setup", f"--prefix={prefix}", str(build), str(SOURCE))
    run("ninja", "-C", str(build), timeout=600)
    run("meson", "install", "-C", str(build))
    assert (prefix / "bin" / "hutch").exists()
    assert run(str(prefix / "bin" / "hutch"), "run", "-c", "print(1)").stdout == "1\n"
    run("ninja", "-C", str(build), "uninstall")
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []
