"""Counts the hot loops of kernels in the machine code that compilers of GPUs make of them.

    hot_loops PLATFORM… [--json] [--listings FOLDER]       what there is
    hot_loops --check [PLATFORM…]                          and whether more than hot_loops.txt says
    hot_loops --write [PLATFORM…]                          which this writes anew

PLATFORM is one of tests/matrix/platforms.sh, "amd-navi31" or "navi31"; --check and --write without any take
all of hot_loops.txt. Builds pipeline_statistics with every shader (tests/matrix/build_all_shaders.sh) and runs it,
or --program as it is. Exit 1 when a check fails, 77 and a reason when compilers cannot be had.

A row: kernel, type (of weights; of keys and values), rows (of x, or of a tile), head_dim (of attention), and
  unit             "weight" or "key" of a lane, "mma" of a subgroup
  instructions     AMD: vector ones besides MMA; others: all besides MMA. A unit's; gemm_matrix: a step of k's
  all              the same of every instruction, AMD too
  mmas             matrix instructions in a turn of the loop, 0 where there are none
  loads_in_flight  of memory: how many are under way at once (listings.py)
  lds_per_mma      shared memory's instructions for each MMA
  registers, waves, spills    as the driver says; waves that a core runs at once, null where it does not say
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import compile_gate
import listings

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "hot_loops.txt"
PROGRAM = HERE.parent.parent / "build/matrix-cores/tests/compile_gate/pipeline_statistics"
PLATFORMS = ["amd-navi31", "amd-gfx1201", "nvidia-ad102", "nvidia-gh100", "intel-dg2", "intel-bmg",
             "adreno-750", "adreno-830"]
KEY = ["kernel", "type", "rows", "head_dim"]
FIGURES = ["unit", "instructions", "all", "mmas", "loads_in_flight", "lds_per_mma", "registers", "waves", "spills"]
# What a count may be above the table's: compilers order things differently after small changes.
TOLERANCE = 1.02


def row_of(statistics, platform):
    """A row of what pipeline_statistics --hot says of a pipeline. ValueError: its listing is not understood."""
    program = listings.parse(statistics["listing"])
    loop = listings.hot_loop(program, statistics["innermost"])
    if loop is None:  # it was unrolled whole
        loop = listings.Loop(set(program.blocks), [])
    of_matrices = statistics["unit"] == "mma"
    products = statistics["products"]
    if not of_matrices and platform.startswith("intel"):  # whose listings say how many lanes each is for
        products *= statistics["Max dispatch width"]
    work = listings.Work(products, statistics["phases"], statistics["trips"],
                         "mma_products" if of_matrices else "products")
    count = listings.tally(program, loop, work)
    if of_matrices and not count["mma"]:
        raise ValueError(f"no MMA in the hot loop of {statistics['pipeline']}")
    units = 1 if statistics["kernel"] == "gemm_matrix" else statistics["units"] or count["mma"]
    figure = {column: sum(statistics.get(name, 0) for name in names) if set(names) & set(statistics) else None
              for column, names in compile_gate.COLUMNS.items()}
    return {**{name: statistics[name] for name in KEY},
            "unit": statistics["unit"],
            "instructions": round(count["vector" if platform.startswith("amd") else "all"] / units, 2),
            "all": round(count["all"] / units, 2),
            "mmas": round(count["mma"]),
            "loads_in_flight": listings.loads_in_flight(program, loop),
            "lds_per_mma": round(count["lds"] / count["mma"], 2) if count["mma"] else None,
            "registers": figure["registers"], "waves": figure["waves"], "spills": figure["spills"]}


def rows_of(program, platform, folder=None):
    """Of one compiler. Raises RuntimeError with its message. Listings go into the folder if there is one."""
    run = subprocess.run([str(compile_gate.MATRIX / "run_on.sh"), platform, str(program), "--hot"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        message = run.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{platform}: exit {run.returncode}: {message[-1]}")
    rows = []
    for line in run.stdout.splitlines():
        statistics = json.loads(line)
        if folder:
            name = "-".join([platform, *(str(statistics[part]) for part in KEY)])
            (folder / f"{name}.txt").write_text(statistics["listing"])
        rows.append(row_of(statistics, platform))
    return rows


def read_table(text):
    """(version, {(platform, *KEY as text): {figure: value}})"""
    version, table = "", {}
    for line in text.splitlines():
        if line.startswith("# Mesa "):
            version = line.split()[2]
        elif line and not line.startswith(("#", "platform")):
            fields = line.split()
            values = [each if name == "unit" else None if each == "-" else float(each)
                      for name, each in zip(FIGURES, fields[5:])]
            table[tuple(fields[:5])] = dict(zip(FIGURES, values))
    return version, table


def write_table(version, table):
    lines = [f"# Mesa {version} : its compilers, counted and written by hot_loops --write (hot_loops.py says what).",
             "# What is worse than here fails the matrix's row compile."]
    rows = [["platform", *KEY, *FIGURES]]
    for key, row in sorted(table.items()):
        rows.append([*key, *("-" if row[name] is None else f"{row[name]:g}" if name != "unit" else row[name]
                             for name in FIGURES)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines += ["  ".join(field.ljust(width) for field, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def key_of(platform, row):
    return (platform, *(str(row[name]) for name in KEY))


def check(known, table):
    """(failures, notes), a line each: what is worse than it was, what is better and may be written down."""
    failures, notes = [], []
    platforms = {key[0] for key in table}
    for key in sorted({key for key in known if key[0] in platforms} | set(table)):
        name, row, before = " ".join(key), table.get(key), known.get(key)
        if before is None or row is None:
            gone = "in the table, but no longer there" if row is None else "not in the table"
            failures.append(f"{name}: {gone}; hot_loops --write")
            continue
        for figure, is_worse in (("instructions", row["instructions"] > before["instructions"] * TOLERANCE),
                                 ("spills", row["spills"] > before["spills"]),
                                 ("loads_in_flight", row["loads_in_flight"] < before["loads_in_flight"])):
            if is_worse:
                failures.append(f"{name}: {figure} {before[figure]:g} to {row[figure]:g}")
        if row["instructions"] * TOLERANCE < before["instructions"]:
            notes.append(f"{name}: instructions {before['instructions']:g} to {row['instructions']:g}")
    return failures, notes


def print_rows(platform, rows):
    print(f"{platform}")
    lines = [[*KEY, *FIGURES]]
    lines += [["-" if row[name] in (None, 0) and name != "spills" else str(row[name]) for name in (*KEY, *FIGURES)]
              for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  " + "  ".join(field.ljust(width) for field, width in zip(line, widths)).rstrip())


def platform_name(text):
    """Of "navi31" "amd-navi31"; what is none is left to fetch_drivers.sh to refuse."""
    return next((name for name in PLATFORMS if text in (name, name.partition("-")[2])), text)


class Skipped(Exception):
    """What cannot be had, with the reason."""


def prepare(platforms, program):
    """(pipeline_statistics, version of the drivers); the first is built unless one is given."""
    if not program:
        built = subprocess.run([str(compile_gate.MATRIX / "build_all_shaders.sh"), "pipeline_statistics"],
                               stdout=sys.stderr)
        if built.returncode == 77:
            raise Skipped("pipeline_statistics cannot be built with every shader")
        built.check_returncode()
    fetched = subprocess.run([str(compile_gate.MATRIX / "fetch_drivers.sh"), *platforms],
                             capture_output=True, text=True)
    if fetched.returncode == 2:
        sys.exit(fetched.stderr.strip())
    if fetched.returncode != 0:
        raise Skipped(next((line for line in fetched.stdout.splitlines() if "SKIPPED" in line), "no driver"))
    return program or PROGRAM, fetched.stdout.splitlines()[0].split()[-1]


def count(program, platforms, folder, jobs):
    """({platform: rows}, failures): of one platform all rows or none."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    found, failures = {}, []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {name: pool.submit(rows_of, program, name, folder) for name in platforms}
        for name, done in running.items():
            try:
                found[name] = done.result()
            except (RuntimeError, ValueError) as error:
                failures.append(str(error))
    return found, failures


def main():
    parser = argparse.ArgumentParser(prog="hot_loops", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("platform", nargs="*", type=platform_name)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--listings", type=pathlib.Path, metavar="FOLDER", help="write what was counted there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    platforms = options.platform or (PLATFORMS if options.check or options.write else [])
    if not platforms:
        parser.error("which platform?")
    try:
        program, version = prepare(platforms, options.program)
    except Skipped as reason:
        for name in platforms:
            print(f"SKIPPED {name}: {reason}", file=sys.stderr)
        return 77
    found, failures = count(program, platforms, options.listings, options.jobs)

    table = {key_of(name, row): row for name, rows in found.items() for row in rows}
    known_version, known = read_table(TABLE.read_text()) if TABLE.exists() else (version, {})
    if options.json:
        rows = {"platform": platforms[0], "rows": found.get(platforms[0], [])} if len(platforms) == 1 else found
        print(json.dumps({"version": version, **rows}, indent=1))
    elif options.write:
        kept = {key: row for key, row in known.items() if key[0] not in found}
        TABLE.write_text(write_table(version, {**kept, **table}))
    elif options.check:
        worse, notes = check(known, table)
        if version == known_version:
            failures += worse
        else:
            notes += worse + [f"{TABLE.name} is of Mesa {known_version}, this is {version}: nothing fails"]
        for note in notes:
            print(f"note: {note}")
        print(f"{len(table)} hot loops counted of Mesa {version}: {len(failures)} failures, {len(notes)} notes")
    else:
        for name, rows in found.items():
            print_rows(name, rows)
    for failure in failures:
        print(f"FAIL: {failure}", file=sys.stderr if options.json else sys.stdout)
    return 1 if failures else 0
