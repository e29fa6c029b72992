#!/usr/bin/env python3
"""Compile every pipeline with the compilers of GPUs that are not here, and look for spilled registers.

    compile_gate.py PROGRAM [--compare TABLE] [--platform NAME…] [--jobs N]

PROGRAM is build/…/tests/compile_gate/pipeline_statistics; platforms are tests/matrix/platforms.sh's.
A pipeline that does not compile fails, and so does one that spills registers unless allowed_spills.txt
gives the reason (exit 1). What the compilers say of each pipeline goes into pipelines.tsv beside PROGRAM.
With the table of another build, growth and pipelines that are new or gone are notes.
Exit 77 and a reason when the compilers cannot be had.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MATRIX = HERE.parent / "matrix"
ALLOWED = HERE / "allowed_spills.txt"
# What is compiled unless others are named, longest first: they share the cores.
PLATFORMS = ["intel-dg2", "nvidia-ad102", "adreno-750", "adreno-830", "amd-navi31"]

# Column of the table → the drivers' names for it; what several of them name is added up.
COLUMNS = {
    "instructions": ["Instructions", "Instruction count", "Instruction Count"],
    "registers": ["VGPRs", "Max live registers", "Number of GPRs", "Registers used", "GPRs"],
    "spills": ["Spilled VGPRs", "Spilled SGPRs", "Spills", "Spills to memory", "STP Count"],
    "scratch_bytes": ["Scratch size", "Scratch Memory Size", "Scratch"],
    "code_bytes": ["Code size"],
    "cycles": ["Latency", "Cycles", "Static cycle count"],
    "waves": ["Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core"],
    "valu": ["VALU"],
    "vmem": ["VMEM", "SENDs"],
}


def statistics_of(program, platform):
    """{(platform, pipeline): {column: value}} of one compiler. Raises RuntimeError with its message."""
    run = subprocess.run([str(MATRIX / "run_on.sh"), platform, str(program)], capture_output=True, text=True)
    if run.returncode != 0:
        message = run.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{platform}: exit {run.returncode}: {message[-1]}")
    table = {}
    for line in run.stdout.splitlines():
        row = json.loads(line)
        table[platform, row["pipeline"]] = {
            column: sum(int(row.get(name, 0)) for name in names) for column, names in COLUMNS.items()}
    return table


def read_table(text):
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    names = lines[0][2:] if lines else []
    return {(line[0], line[1]): dict(zip(names, map(int, line[2:]))) for line in lines[1:]}


def write_table(table, version):
    lines = [f"# Mesa {version}'s compilers; written by compile_gate.py",
             "\t".join(["platform", "pipeline", *COLUMNS])]
    for (platform, pipeline), row in sorted(table.items()):
        lines.append("\t".join([platform, pipeline, *(str(row[name]) for name in COLUMNS)]))
    return "\n".join(lines) + "\n"


def read_allowed(text):
    """[(platform, pipeline, most, reason)] of lines "PLATFORM | PIPELINE | MOST | REASON"; the first two
    are patterns, MOST is of spills."""
    allowed = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not fields[2].isdigit() or not fields[3]:
            raise ValueError(f"{ALLOWED.name}:{number}: not PLATFORM | PIPELINE | MOST | REASON")
        allowed.append((fields[0], fields[1], int(fields[2]), fields[3]))
    return allowed


def check_spills(allowed, table):
    """Failures, a line each: spills that no line allows, and lines that allow more than there is."""
    failures = []
    used = [0] * len(allowed)
    for (platform, pipeline), row in sorted(table.items()):
        if row["spills"] == 0 and row["scratch_bytes"] == 0:
            continue
        lines = [i for i, (platforms, pipelines, _, _) in enumerate(allowed)
                 if fnmatch.fnmatch(platform, platforms) and fnmatch.fnmatch(pipeline, pipelines)]
        for i in lines:
            used[i] = max(used[i], row["spills"])
        most = max((allowed[i][2] for i in lines), default=None)
        said = f"{row['spills']} spills, {row['scratch_bytes']} bytes of scratch"
        if most is None:
            failures.append(f"{platform} {pipeline}: {said}")
        elif row["spills"] > most:
            failures.append(f"{platform} {pipeline}: {said}; at most {most} are allowed")
    compiled = {platform for platform, _ in table}
    for i, (platforms, pipelines, most, _) in enumerate(allowed):
        if fnmatch.filter(compiled, platforms) and set(fnmatch.filter(PLATFORMS, platforms)) <= compiled:
            if used[i] == 0:
                failures.append(f"{ALLOWED.name}: nothing spills that {platforms} | {pipelines} allows: remove it")
            elif used[i] < most:
                failures.append(f"{ALLOWED.name}: {platforms} | {pipelines} allows {most}, {used[i]} are enough")
    return failures


def compare(other, table):
    """Notes, a line each. Only platforms of `table` that the other one covers are looked at."""
    notes = []
    platforms = {platform for platform, _ in table} & {platform for platform, _ in other}
    for key, row in sorted(table.items()):
        if key[0] not in platforms:
            continue
        before = other.get(key)
        name = " ".join(key)
        if before is None:
            notes.append(f"{name}: new, {row['instructions']} instructions, {row['registers']} registers")
        elif row["registers"] > before["registers"] or row["waves"] < before["waves"]:
            notes.append(f"{name}: registers {before['registers']} to {row['registers']}, "
                         f"waves {before['waves']} to {row['waves']}")
        elif row["instructions"] > before["instructions"] * 1.02:
            notes.append(f"{name}: instructions {before['instructions']} to {row['instructions']}")
    for key in sorted(other.keys() - table.keys()):
        if key[0] in platforms:
            notes.append(f"{' '.join(key)}: no longer declared")
    return notes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path, metavar="TABLE", help="another build's pipelines.tsv")
    parser.add_argument("--platform", nargs="+", default=PLATFORMS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    other = read_table(options.compare.read_text()) if options.compare else {}

    fetched = subprocess.run([str(MATRIX / "fetch_drivers.sh"), *options.platform], capture_output=True, text=True)
    if fetched.returncode != 0:
        print(fetched.stderr.strip() or next(line for line in fetched.stdout.splitlines() if "SKIPPED" in line))
        return 2 if fetched.returncode == 2 else 77
    version = fetched.stdout.splitlines()[0].split()[-1]

    failures, table = [], {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(statistics_of, options.program, name) for name in options.platform]:
            try:
                table.update(done.result())
            except RuntimeError as error:
                failures.append(str(error))
    if not failures:
        failures += check_spills(read_allowed(ALLOWED.read_text()), table)
    written = options.program.parent / "pipelines.tsv"
    written.write_text(write_table(table, version))
    notes = compare(other, table)
    for note in notes:
        print(f"note: {note}")
    for failure in failures:
        print(f"FAIL: {failure}")
    print(f"{len(table)} pipelines compiled by Mesa {version}: {len(failures)} failures, {len(notes)} notes; "
          f"all are in {written}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
