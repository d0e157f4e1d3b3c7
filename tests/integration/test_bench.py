# SPDX-License-Identifier: Apache-2.0
"""
`hutch bench`: its rows, its JSON, its table, and what does not count. How fast
anything is, is no matter here.

HUTCH_BUILD is the build folder, HUTCH the program.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["HUTCH_BUILD"])
HUTCH = os.environ.get("HUTCH") or str(BUILD / "hutch")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TABLE = SOURCE / "tools/bench-table.py"
CACHE = os.environ.get("HUTCH_CACHE_DIR") or str(BUILD / "tests/cache")
PATIENCE = 240  # the first run of all makes the tree of files

PARKED = ["fresh.python.parked", "fresh.python.parked.sporadic", "fresh.javascript.parked",
          "fresh.python.numpy_pandas.parked", "fresh.python.numpy_pandas.sum.parked"]
FORKED = ["fresh.python.forked", "fresh.python.forked.sporadic", "fresh.python.numpy_pandas.forked"]
COLD = ["fresh.python.cold", "fresh.javascript.cold", "fresh.shell", "cli.python"]
PEERS = ["peer.subprocess", "peer.python_bare", "peer.bash", "peer.node", "peer.numpy_pandas",
         "peer.bwrap"]
MEMORY = ["memory.python.parked", "memory.python.zygote"]
IDLE = "memory.session.python"
COPIED = ["session.python.exec.checkpoint" + name for name in
          ("", ".back_to_back", ".numpy_pandas", ".10mb", ".100mb", ".100mb.back_to_back", ".500mb")]
SESSIONS = ["session.python.exec", *COPIED, "session.javascript.exec", "session.shell.exec",
            "session.files"]
AGENTS = ["agent.step.overhead", "agent.stream.first_token", "agent.memory.100"]
LOAD = "throughput.python.fresh"
TIMED = PARKED + FORKED + COLD + SESSIONS + PEERS
ALL = [*TIMED, *MEMORY, IDLE, LOAD]
# What a host need not have.
OPTIONAL = re.compile(r"javascript|numpy_pandas|node|bwrap|500mb")


def bench(*arguments, inside=()):
    done = subprocess.run([*inside, HUTCH, "bench", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "HUTCH_CACHE_DIR": CACHE})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def report_of(*arguments, **keywords):
    text = bench(*arguments, "--json", **keywords)
    assert text.count("\n") == 1
    report = json.loads(text)
    return {row["name"]: row for row in report["rows"]}, report


@pytest.fixture(scope="module", name="whole")
def _whole():
    """All rows, with few samples."""
    return report_of("-n", "3", "--seconds", "1")


def test_every_row_is_there_or_left_out_with_a_reason(whole):
    rows, report = whole
    left_out = {row["name"]: row["reason"] for row in report["left_out"]}
    assert sorted([*rows, *left_out]) == sorted(ALL)
    for name, reason in left_out.items():
        assert OPTIONAL.search(name) and reason, (name, reason)


def test_rows_with_times(whole):
    rows, _ = whole
    for name in set(rows) & set(TIMED):
        row = rows[name]
        assert 1 <= row["n"] <= 3 and 0 < row["min_ms"] <= row["p50_ms"] <= row["p99_ms"]
        assert ("aim_p50_ms" in row) == ("met" in row)
    assert rows["fresh.python.parked"]["n"] == 3
    aims = {name: (row["aim_p50_ms"], row.get("aim_p99_ms")) for name, row in rows.items()
            if "aim_p50_ms" in row}
    expected = {"fresh.python.parked": (0.6, 2), "fresh.python.forked": (2, None),
                "fresh.python.numpy_pandas.parked": (2.5, None),
                "session.python.exec": (0.2, None), "session.python.exec.checkpoint": (0.25, None)}
    assert aims == {name: aim for name, aim in expected.items() if name in rows}


def test_spacing_is_told(whole):
    rows, _ = whole
    for name, row in rows.items():
        if name.endswith(".sporadic"):
            assert row["spacing"] == "50ms"
        elif name in COPIED and not name.endswith(".back_to_back"):
            assert row["spacing"] == "5ms"
        elif name in (*SESSIONS, *PARKED, *FORKED, "peer.subprocess", LOAD):
            assert row["spacing"] == "back_to_back"
        elif name not in (*MEMORY, IDLE):
            assert row["spacing"] == "interleaved"


def test_how_many_met_a_warm_cell_is_told(whole):
    rows, _ = whole
    for name, row in rows.items():
        assert ("hit_rate" in row) == (name in (*PARKED, *FORKED, LOAD))
        assert ("pool_size" in row) == (name in (*PARKED, LOAD))
    assert rows["fresh.python.parked"]["hit_rate"] == 1
    assert rows["fresh.python.parked"]["pool_size"] == 32
    assert rows["fresh.python.forked"]["hit_rate"] == 1


def test_a_row_counts_with_every_layer_and_warm_cells(whole):
    rows, report = whole
    layers = [row["name"] for row in report["doctor"]["layers"] if row["in_force"]]
    assert layers
    for name, row in rows.items():
        isolated = not name.startswith("peer.")
        assert row["layers"] == (layers if isolated else [])
        whole_row = not isolated or len(layers) == 17
        warm = name == LOAD or row.get("hit_rate", 1) >= 0.95
        assert row["valid"] == (whole_row and warm) == (row["invalid_reason"] is None), row


def test_comparisons(whole):
    rows, report = whole
    base = rows["peer.subprocess"]["p50_ms"]
    assert {ratio["name"] for ratio in report["ratios"]} == set(rows) & set(TIMED) - {
        "peer.subprocess"}
    for ratio in report["ratios"]:
        assert ratio["against"] == "peer.subprocess"
        assert ratio["ratio"] == pytest.approx(rows[ratio["name"]]["p50_ms"] / base, rel=1e-3)
        if ratio["name"] == "fresh.python.parked":
            assert ratio["times_faster"] == pytest.approx(1 / ratio["ratio"], rel=1e-3)
            assert ratio["met"] == (ratio["times_faster"] >= ratio["aim_times_faster"] == 5)
    for added in report["added"]:
        expected = rows[added["name"]]["p50_ms"] - rows[added["against"]]["p50_ms"]
        assert added["added_ms"] == pytest.approx(expected, rel=1e-3, abs=1e-2)
        assert added["met"] == (added["added_ms"] <= added["aim_ms"] == 4)
    assert [row["name"] for row in report["added"]] == ["fresh.python.cold", "fresh.shell"]
    assert report["host"]["cpus"] == len(os.sched_getaffinity(0))


def test_throughput(whole):
    row = whole[0][LOAD]
    assert row["threads"] == len(os.sched_getaffinity(0)) + 1
    assert row["window_seconds"] == 1
    assert row["n"] == row["per_second"] == row["min_per_second"] == row["max_per_second"] > 0
    assert row["met"] == (row["per_second"] >= row["aim_per_second"] == 800)


def test_memory(whole):
    rows, _ = whole
    parked, zygote = (rows[name] for name in MEMORY)
    assert (parked["n"], zygote["n"]) == (4, 1)
    for row in (parked, zygote):
        assert 0 < row["private_dirty_bytes"] <= row["pss_bytes"]
    assert parked["met"] == (parked["private_dirty_bytes"] <= 3 << 20)
    assert parked["aim_private_dirty_bytes"] == 3 << 20


def test_sessions(whole):
    rows, _ = whole
    for name in set(rows) & set(SESSIONS):
        assert rows[name]["checkpoint"] == (name in COPIED)
        assert rows[name]["valid"] == (len(rows[name]["layers"]) == 17), rows[name]  # they had a copy
    idle = rows[IDLE]
    assert idle["n"] == 3 and idle["open_p50_ms"] > 0
    assert 0 < idle["private_dirty_bytes"] <= idle["pss_bytes"]


def test_the_documents_name_every_row():
    page = (SOURCE / "docs/man/hutch-bench.1.scd").read_text(encoding="utf-8")
    assert set(re.findall(r"\b(?:fresh|peer|cli|memory|session|throughput)\.[a-z0-9_.]*[a-z]", page)) == set(ALL)
    assert set(re.findall(r"\bagent\.[a-z0-9_.]*[a-z0-9]", page)) == set(AGENTS)


def test_the_numbers_are_written_into_a_document(whole, tmp_path):
    document = tmp_path / "benchmarks.md"
    shutil.copy(SOURCE / "docs/benchmarks.md", document)
    for _ in range(2):  # what is there is replaced
        subprocess.run([TABLE, document], input=json.dumps(whole[1]), text=True, check=True,
                       timeout=60)
    text = document.read_text(encoding="utf-8")
    assert "None yet" not in text
    numbers = text.partition("<!-- numbers: begin -->")[2].partition("<!-- numbers: end -->")[0]
    for name in ALL:
        assert len(re.findall(rf"^(?:\| |- ){re.escape(name)}(?: \||: | was left out: )", numbers,
                              flags=re.MULTILINE)) >= 1, name
    assert text.count("## The rows") == 1


def test_a_table_of_chosen_rows():
    text = bench("-n", "2", "--seconds", "0", "--rows",
                 "fresh.python.parked,fresh.shell,peer.ba,peer.sub,throughput")
    rows = re.findall(r"^(\S+) +(\d+)((?: +[0-9.]+){4}) +(100 %|-) +\S+ +(met|missed|-)(.*)$", text,
                      flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["fresh.python.parked", "fresh.python.parked.sporadic",
                                        "fresh.shell", "peer.subprocess", "peer.bash"]
    assert re.search(r"^fresh.python.parked +.* 0.6/2.0 +(met|missed)  500 runs count", text,
                     flags=re.MULTILINE)
    assert re.search(r"^throughput.python.fresh +left out: not asked for: --seconds 0$", text,
                     flags=re.MULTILINE)
    assert re.search(r"parked is [0-9.]+ times as fast as peer.subprocess \(aim: 5 times; ", text)
    assert len(re.findall(r"\(aim: adds at most 4 ms; (met|missed)\)", text)) == 1
    assert re.search(r"^layers in force: user_ns, ", text, flags=re.MULTILINE)


@pytest.mark.parametrize("rows, wrong", [("fresh.ruby", "fresh.ruby"), ("peer,", ""), ("", ""),
                                         ("peer.bash,python", "python")])
def test_unknown_rows_are_refused_with_the_list(rows, wrong):
    done = subprocess.run([HUTCH, "bench", "--rows", rows], capture_output=True, text=True,
                          timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    start = f"hutch bench: option '--rows': value '{wrong}' is not the beginning of one of "
    assert done.stderr.startswith(start) and done.stderr.count("\n") == 1
    assert sorted(done.stderr[len(start):].strip().split(", ")) == sorted(ALL)


def test_rows_without_a_layer_do_not_count():
    inside = [str(BUILD / "tests/escape/without_layer"), "--answer", "ENOSYS",
              "landlock_create_ruleset", "--"]
    rows, _ = report_of("-n", "1", "--rows", "fresh.python.cold,peer.bash", inside=inside)
    assert not rows["fresh.python.cold"]["valid"]
    assert rows["fresh.python.cold"]["invalid_reason"] == "without landlock"
    assert rows["peer.bash"]["valid"]


# What a host without node, bubblewrap and numpy has there.
HIDDEN = """
for program in /usr/bin/node /usr/bin/bwrap; do
    [ ! -e $program ] || mount --bind /dev/null $program
done
numpy=/usr/lib/python3/dist-packages/numpy
if [ -e $numpy ]; then
    mount -t tmpfs tmpfs $numpy
    echo 'raise ModuleNotFoundError("hidden")' >$numpy/__init__.py
fi
exec "$@"
"""


def test_rows_without_their_program_are_left_out():
    inside = ["unshare", "--mount", "--", "bash", "-euc", HIDDEN, "bash"]
    rows, report = report_of("-n", "1", "--rows", "peer", inside=inside)
    assert list(rows) == ["peer.subprocess", "peer.python_bare", "peer.bash"]
    reasons = {row["name"]: row["reason"] for row in report["left_out"]}
    assert reasons["peer.node"].startswith("start '/usr/bin/node': ")
    assert reasons["peer.bwrap"].startswith("start '/usr/bin/bwrap': ")
    assert "ModuleNotFoundError" in reasons["peer.numpy_pandas"]


def test_agents(tmp_path):
    rows, report = report_of("--agent", "-n", "3")
    assert list(rows) == AGENTS and report["left_out"] == report["ratios"] == []
    for name, aims in zip(AGENTS, ((1, None), (5, 5))):
        row = rows[name]
        assert row["n"] == 3 and 0 < row["min_ms"] <= row["p50_ms"] <= row["p99_ms"]
        assert (row["aim_p50_ms"], row.get("aim_p99_ms")) == aims and row["valid"]
    memory = rows["agent.memory.100"]
    assert memory["n"] == 100 and memory["aim_resident_bytes"] == 200_000_000
    assert 100 << 10 < memory["growth_bytes"] < memory["resident_bytes"]
    assert [name for name in AGENTS if name not in bench("--agent", "-n", "1")] == []
    document = tmp_path / "benchmarks.md"
    shutil.copy(SOURCE / "docs/benchmarks.md", document)
    before = document.read_text(encoding="utf-8")
    subprocess.run([TABLE, document], input=json.dumps(report), text=True, check=True, timeout=60)
    text = document.read_text(encoding="utf-8").partition("<!-- agents: begin -->")
    assert text[0] == before.partition("<!-- agents: begin -->")[0]
    numbers = text[2].partition("<!-- agents: end -->")[0]
    assert re.findall(r"^(?:\| |- )(agent[\w.]+)(?: \||:)", numbers, flags=re.MULTILINE) == AGENTS
    (row,) = report_of("--agent", "-n", "1", "--rows", "agent.step")[0]
    assert row == "agent.step.overhead"


@pytest.mark.parametrize("arguments", [("--rows", "agent."), ("--agent", "--rows", "fresh.")])
def test_rows_of_the_other_kind(arguments):
    done = subprocess.run([HUTCH, "bench", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 2 and "is not the beginning of one of" in done.stderr
