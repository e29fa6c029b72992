#!/usr/bin/env python3
"""Compile every pipeline with AMD's compiler, for GPUs that are not here, and compare with the baseline.

    compile_gate.py PROGRAM [--update] [--family NAME…]

PROGRAM is build/…/tests/compile_gate/pipeline_statistics. A pipeline that does not compile, or that
spills registers or uses scratch memory beyond what baseline.tsv says, fails (exit 1). Other growth, and
pipelines that are new or gone, are notes; --update writes them into the baseline. Exit 77 and a reason
when the compiler cannot be had.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MATRIX = HERE.parent / "matrix"
BASELINE = HERE / "baseline.tsv"
FAMILIES = ["vega10", "navi21", "navi31", "gfx1201"]

# Column of the baseline → the driver's name for it.
COLUMNS = {
    "vgprs": "VGPRs",
    "sgprs": "SGPRs",
    "spilled_vgprs": "Spilled VGPRs",
    "spilled_sgprs": "Spilled SGPRs",
    "scratch_bytes": "Scratch size",
    "lds_bytes": "LDS size",
    "waves_per_simd": "Subgroups per SIMD",
    "code_bytes": "Code size",
    "valu": "VALU",
    "vmem": "VMEM",
    "latency": "Latency",
}
MUST_NOT_GROW = ("spilled_vgprs", "spilled_sgprs", "scratch_bytes")


def statistics_of(program, family):
    """{(family, pipeline): {column: value}} of one compiler. Raises RuntimeError with its message."""
    run = subprocess.run([str(MATRIX / "run_on.sh"), f"radv-{family}", str(program)],
                         capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"{family}: exit {run.returncode}: {run.stderr.strip()}")
    table = {}
    for line in run.stdout.splitlines():
        row = json.loads(line)
        table[family, row["pipeline"]] = {name: int(row.get(theirs, 0)) for name, theirs in COLUMNS.items()}
    return table


def read_table(text):
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    names = lines[0][2:] if lines else []
    return {(line[0], line[1]): dict(zip(names, map(int, line[2:]))) for line in lines[1:]}


def write_table(table, version):
    lines = [f"# RADV of Mesa {version}; written by compile_gate.py --update",
             "\t".join(["family", "pipeline", *COLUMNS])]
    for (family, pipeline), row in sorted(table.items()):
        lines.append("\t".join([family, pipeline, *(str(row[name]) for name in COLUMNS)]))
    return "\n".join(lines) + "\n"


def compare(baseline, table):
    """(failures, notes), a line each. Only families in `table` are looked at."""
    failures, notes = [], []
    families = {family for family, _ in table}
    for key, row in sorted(table.items()):
        before = baseline.get(key)
        name = " ".join(key)
        for column in MUST_NOT_GROW:
            allowed = before.get(column, 0) if before else 0
            if row[column] > allowed:
                failures.append(f"{name}: {column} {row[column]}, was {allowed}")
        if before is None:
            notes.append(f"{name}: new, {row['vgprs']} vgprs, {row['waves_per_simd']} waves")
            continue
        if row["vgprs"] > before["vgprs"] or row["waves_per_simd"] < before["waves_per_simd"]:
            notes.append(f"{name}: vgprs {before['vgprs']} to {row['vgprs']}, "
                         f"waves {before['waves_per_simd']} to {row['waves_per_simd']}")
    for key in sorted(baseline.keys() - table.keys()):
        if key[0] in families:
            notes.append(f"{' '.join(key)}: no longer declared")
    return failures, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--family", nargs="+", default=FAMILIES, choices=FAMILIES)
    options = parser.parse_args()

    fetched = subprocess.run([str(MATRIX / "fetch_drivers.sh"), "radv-navi31"], capture_output=True, text=True)
    if fetched.returncode != 0:
        print(fetched.stdout.strip() or fetched.stderr.strip())
        return 77
    version = fetched.stdout.split()[-1]

    failures, table = [], {}
    for family in options.family:
        try:
            table.update(statistics_of(options.program, family))
        except RuntimeError as error:
            failures.append(str(error))
    baseline = read_table(BASELINE.read_text()) if BASELINE.exists() else {}
    if options.update and not failures:
        kept = {key: row for key, row in baseline.items() if key[0] not in options.family}
        BASELINE.write_text(write_table({**kept, **table}, version))
        print(f"{BASELINE.name}: {len(table)} pipelines written")
        return 0
    worse, notes = compare(baseline, table)
    failures += worse
    for note in notes:
        print(f"note: {note}")
    for failure in failures:
        print(f"FAIL: {failure}")
    print(f"{len(table)} pipelines compiled by RADV {version}: {len(failures)} failures, {len(notes)} notes"
          + ("; --update accepts the rest" if notes and not failures else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
