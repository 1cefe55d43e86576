"""Measure figures and write docs/figures.md.

    python benchmarks/figures.py record NAME [NAME ...]    measure what `MEASUREMENTS` says, into benchmarks/results
    python benchmarks/figures.py                           write docs/figures.md from benchmarks/results/*.json

A result holds the command, the figures that its output has, the date, the version, the machine with those flags of its
processor that matter, and the CPU time of the command over its wall time, which tells how much of the machine it had.
"""

import argparse
import datetime
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import heedful

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "figures.md"
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")  # that matter for products
HEAD = """# Figures

Written by `python benchmarks/figures.py` from [benchmarks/results](../benchmarks/results); do not edit it. Earlier
measurements, of other hours and versions, are in [measurements.md](measurements.md).

Machines have two shared, noisy cores: the same command may be a fifth slower in the next hour. `HEEDFUL_DATA` names the
folder of the text. BLEU is sacrebleu's on the test text, greedy unless said
(`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`). CPU/wall is the CPU time of the command over its wall
time, where it was recorded; 2 is the whole machine.
"""
SECTIONS = ("Training", "Training speed beside other toolkits", "Decoding speed beside CTranslate2", "Cost", "Checks")
NUMBER = r"([\d,]+(?:\.\d+)?)"
# Name -> section, what is measured, command, and for each figure its name, unit and pattern in the output.
MEASUREMENTS = {
    "startup": (
        "Cost", "`heedful --help`", "python benchmarks/startup.py", [("median", "s", rf"median {NUMBER} s")],
    ),
    "quickstart": (
        "Training", "quickstart, empty cache", "heedful quickstart --run runs/quickstart-figures --force",
        [("BLEU, unseen sentences", "", rf"BLEU {NUMBER} on unseen sentences"),
         ("BLEU, unseen combinations of words", "", rf"sentences, {NUMBER} on unseen combinations"),
         ("time", "s", rf"in {NUMBER} s$")],
    ),
    "planning": (
        "Cost", "batches of Multi30k, at most 12 shapes", "python benchmarks/planning.py",
        [("padding, pairs in rows of their own", "%", rf"{NUMBER}% in rows of their own"),
         ("padding, packed rows", "%", rf"own, {NUMBER}% packed"),
         ("planning 1,000,000 pairs", "s", rf"planned in {NUMBER} s"),
         ("packing 1,000,000 pairs", "s", rf"packed in {NUMBER} s")],
    ),
    "products": (
        "Cost", "matrix products of an update of size `tutorial`", "python benchmarks/products.py",
        [("products alone", "ms", rf"alone: {NUMBER} of"), ("the whole update", "ms", rf"of {NUMBER} ms"),
         ("the same products in torch", "ms", rf"in torch they take {NUMBER} ms")],
    ),
    "trec": (
        "Training", "TREC, six classes, from scratch", "heedful train trec --run runs/trec-figures --force",
        [("accuracy", "%", rf"test: accuracy {NUMBER}%")],
    ),
    "doctor": (
        "Checks", "the doctor on real text with planted faults", "python benchmarks/doctor.py",
        [("lowest recall", "", rf"lowest recall {NUMBER}"), ("lowest precision", "", rf"lowest precision {NUMBER}")],
    ),
}  # fmt: skip


def main():
    """Record measurements, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", nargs="?", choices=["record"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    options = parser.parse_args()
    for name in options.names:
        if name not in MEASUREMENTS:
            parser.error(f"there is no measurement {name!r}: choose from {', '.join(MEASUREMENTS)}")
    for name in options.names:
        print(f"{name}: {record(name)}")
    if not options.action:
        PAGE.write_text(page(read_results()), encoding="utf-8")


def record(name):
    """Run a measurement; write its result, and return its figures."""
    section, what, command, patterns = MEASUREMENTS[name]
    words = shlex.split(command)
    words[:1] = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = [
        {"name": figure, "value": float(re.findall(pattern, done.stdout)[-1].replace(",", "")), "unit": unit}
        for figure, unit, pattern in patterns
    ]
    result = {
        "section": section, "what": what, "command": command, "date": datetime.date.today().isoformat(),
        "version": heedful.__version__, "machine": machine(), "cpu_over_wall": round(cpu / wall, 2), "figures": figures,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    return figures


def machine():
    """Return the processor, its flags that matter, and the cores that may be used."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    present = set(re.search(r"^flags\s*: (.*)$", info, re.MULTILINE)[1].split())
    return {
        "processor": re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)[1],
        "flags": [flag for flag in FLAGS if flag in present],
        "cores": len(os.sched_getaffinity(0)),
    }


def read_results():
    """Return all results, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def page(results):
    """Return the page: a table for each section, one figure in a row, then commands and machines."""
    machines = []
    for result in results:
        if result["machine"] not in machines:
            machines.append(result["machine"])
    parts = [HEAD]
    for section in [name for name in SECTIONS if any(result["section"] == name for result in results)]:
        rows = ["| what | measure | figure | machine | CPU/wall | date |", "|---|---|---|---|---|---|"]
        commands = []
        for result in [result for result in results if result["section"] == section]:
            commands.append(f"- {result['what']}: `{result['command']}`")
            place = "ABCDEFGH"[machines.index(result["machine"])]
            share = result["cpu_over_wall"] or ""
            for figure in result["figures"]:
                value = f"{shown(figure['value'])} {figure['unit']}".strip()
                rows.append(f"| {result['what']} | {figure['name']} | {value} | {place} | {share} | {result['date']} |")
        commands = "\n".join(dict.fromkeys(commands))
        parts.append(f"## {section}\n\n" + "\n".join(rows) + f"\n\nCommands:\n\n{commands}\n")
    lines = [f"- {'ABCDEFGH'[number]}: {described(one)}" for number, one in enumerate(machines)]
    parts.append("## Machines\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def shown(value):
    """Return a number as it is printed."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1000 else f"{value:,.6g}"


def described(one):
    """Return a machine as a text."""
    flags = "flags not recorded" if one["flags"] is None else f"flags {' '.join(one['flags'])}"
    return f"{one['processor']}, {one['cores']} cores, {flags}"


if __name__ == "__main__":
    main()
