#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
bench-table.py FILE <JSON: writes what `hutch bench --json` measured into FILE, as
Markdown between two marks: those of numbers, and of `hutch bench --agent --json` those of
agents. docs/benchmarks.md says how it is used.
"""
import json
import sys
from pathlib import Path

BEGIN, END = "<!-- {}: begin -->\n", "<!-- {}: end -->\n"


def ms(row, name):
    return f"{row[name]:.2f}" if name in row else ""


def aim(row):
    """The aim in words, and whether it was met."""
    words = []
    if "aim_p50_ms" in row:
        words.append(f"p50 ≤ {row['aim_p50_ms']:g} ms")
    if "aim_p99_ms" in row:
        words.append(f"p99 ≤ {row['aim_p99_ms']:g} ms")
    if "aim_per_second" in row:
        words.append(f"≥ {row['aim_per_second']:g} a second")
    if "aim_private_dirty_bytes" in row:
        words.append(f"≤ {row['aim_private_dirty_bytes'] / 2**20:g} MiB")
    if "aim_resident_bytes" in row:
        words.append(f"≤ {row['aim_resident_bytes'] / 1e6:g} MB")
    return (", ".join(words), verdict(row)) if words else ("", "")


def verdict(row):
    return "met" if row["met"] else "missed"


def times(rows, ratios):
    yield "| row | n | p50 ms | p99 ms | ratio | spacing | pool | hits | aim | |"
    yield "|---|--:|--:|--:|--:|---|--:|--:|---|---|"
    for row in rows:
        if "p50_ms" not in row:
            continue
        ratio = f"{ratios[row['name']]:.2f}" if row["name"] in ratios else ""
        hits = f"{100 * row['hit_rate']:.0f} %" if "hit_rate" in row else ""
        cells = [row["name"], row["n"], ms(row, "p50_ms"), ms(row, "p99_ms"), ratio,
                 row["spacing"], row.get("pool_size", ""), hits, *aim(row)]
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


def opened(row):
    if "open_p50_ms" not in row:
        return ""
    return f"; {row['n']} sessions, opened in {row['open_p50_ms']:.1f} ms each (p50)"


def others(report):
    for row in report["rows"]:
        words, met = aim(row)
        judged = f" (aim: {words}; {met})" if words else ""
        if "per_second" in row:
            yield (f"- {row['name']}: {row['per_second']:.0f} a second by {row['threads']} threads, "
                   f"{row['min_per_second']:.0f} to {row['max_per_second']:.0f} in windows of "
                   f"{row['window_seconds']} s, {row['n']} runs{judged}")
        elif "pss_bytes" in row:
            yield (f"- {row['name']}: {row['private_dirty_bytes'] / 2**20:.2f} MiB of its own, "
                   f"{row['pss_bytes'] / 2**20:.2f} MiB with its share of the rest{opened(row)}{judged}")
        elif "resident_bytes" in row:
            yield (f"- {row['name']}: {row['resident_bytes'] / 1e6:.1f} MB resident at the most, "
                   f"{row['growth_bytes'] / 1e6:.1f} MB more than before, with {row['n']} agents at "
                   f"once{judged}")
    for ratio in report["ratios"]:
        if "aim_times_faster" in ratio:
            yield (f"- {ratio['name']}: {ratio['times_faster']:.1f} times as fast as "
                   f"{ratio['against']} (aim: {ratio['aim_times_faster']:g}; {verdict(ratio)})")
    for added in report["added"]:
        yield (f"- {added['name']}: adds {added['added_ms']:.2f} ms to {added['against']} "
               f"(aim: at most {added['aim_ms']:g} ms; {verdict(added)})")
    for row in report["rows"]:
        if not row["valid"]:
            yield f"- {row['name']} does not count: {row['invalid_reason']}"
    for row in report["left_out"]:
        yield f"- {row['name']} was left out: {row['reason']}"


def block(report):
    host = report["host"]
    ratios = {ratio["name"]: ratio["ratio"] for ratio in report["ratios"]}
    yield f"{host['cpus']} processors, {host['memory_mb']} MiB, Linux {host['kernel']}."
    yield ""
    yield from times(report["rows"], ratios)
    yield ""
    yield from others(report)


def main():
    path, report = Path(sys.argv[1]), json.load(sys.stdin)
    of_agents = any(row["name"].startswith("agent.") for row in report["rows"])
    marks = [mark.format("agents" if of_agents else "numbers") for mark in (BEGIN, END)]
    before, begin, rest = path.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        sys.exit(f"{path}: the marks are missing")
    lines = "\n".join(block(report))
    path.write_text(f"{before}{begin}\n{lines}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
