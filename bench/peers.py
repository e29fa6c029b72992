#!/usr/bin/env python3
"""Run pumice and other programs that speak llama-bench on the same file, in alternation, and compare.

    bench/peers.py -m model.gguf --peer 'llama=GGML_VK_VISIBLE_DEVICES=0 /path/to/llama-bench -ngl 99'
    bench/peers.py -m model.gguf -p 512 -n 128 -d 0,4096 --rounds 10 --peer a=/x/llama-bench --peer b=/y/llama-bench -o r.json

A peer is NAME=COMMAND: words like VAR=value before the program are its environment, what follows the
program are its arguments. --pumice takes a COMMAND too, of which `bench` is added by itself. -m, -p, -n,
-pg, -d and -r are handed to all. A round runs every program once; the next round begins with the
next program, so that what drifts (clocks, temperature, neighbours) falls on all. The table goes to
standard output, everything to -o, which `pumice report` and `pumice bench --compare` read.

A ratio is the median of the rounds' ratios (pumice over peer, above 1: pumice is faster). Its interval
is between order statistics of the rounds and holds the true median with the stated probability,
whatever the distribution: 97 % needs six rounds.

Exit code: 0, or 1 if a program failed (the others are measured all the same), 2 usage.
"""

import argparse
import datetime
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys

OURS = "pumice"
WANTED_COVERAGE = 0.95


class Program:
    """One side: its command, and what went wrong with it."""

    def __init__(self, name, command, subcommand=()):
        self.name = name
        words = shlex.split(command)
        self.environment = {}
        while words and re.match(r"^[A-Za-z_]\w*=", words[0]):
            key, value = words.pop(0).split("=", 1)
            self.environment[key] = value
        if not words:
            raise ValueError(f"{name}: no program in '{command}'")
        self.words = [words[0], *subcommand, *words[1:]]
        self.failures = []

    def shown(self):
        return shlex.join([f"{key}={value}" for key, value in self.environment.items()] + self.words)

    def run(self, arguments, timeout_s):
        """Records of one run, or None; a failure is remembered."""
        try:
            done = subprocess.run([*self.words, *arguments], env={**os.environ, **self.environment},
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        except OSError as error:
            return self.fail(f"cannot be started: {error.strerror}")
        except subprocess.TimeoutExpired:
            return self.fail(f"no end after {timeout_s:g} s")
        records = parse_records(done.stdout)
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            self.fail(f"exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
        elif records is None:
            self.fail("its output is not JSON of llama-bench")
        return records

    def fail(self, why):
        self.failures.append(why)
        return None


def parse_records(output):
    """Records of llama-bench's JSON that have samples; None if it is something else."""
    try:
        records = json.loads(output)
    except ValueError:
        return None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return None
    return [record for record in records if not record.get("error") and speeds_of(record)]


def speeds_of(record):
    """Tokens per second of each sample."""
    n_tokens = (record.get("n_prompt", 0) + record.get("n_gen", 0)) * record.get("n_parallel", 1)
    speeds = record.get("samples_ts") or [n_tokens * 1e9 / ns for ns in record.get("samples_ns", [])]
    return speeds if all(isinstance(speed, (int, float)) and speed > 0 for speed in speeds) else []


def test_of(record):
    return tuple(record.get(key, 0) for key in ("n_prompt", "n_gen", "n_depth"))


def test_name(test):
    n_prompt, n_gen, n_depth = test
    parts = [f"pp{n_prompt}" if n_prompt else "", f"tg{n_gen}" if n_gen else ""]
    return "+".join(filter(None, parts)) + (f" @ d{n_depth}" if n_depth else "")


def interval(values):
    """(low, high, coverage): the narrowest pair of order statistics, as far from one end as from the
    other, that holds the median with 95 %; the extremes where there are too few values."""
    ordered = sorted(values)
    n = len(ordered)
    below = [math.comb(n, k) / 2**n for k in range(n + 1)]
    best = 0
    for cut in range(n // 2):
        if 1 - 2 * sum(below[:cut + 1]) >= WANTED_COVERAGE:
            best = cut
    return ordered[best], ordered[n - 1 - best], max(0.0, 1 - 2 * sum(below[:best + 1]))


def merge(records):
    """One record of a test from those of all rounds, its numbers computed from all samples."""
    merged = dict(records[0])
    for key in ("samples_ns", "samples_ts", "samples_prefill_ts", "samples_decode_ts", "samples_ttft_ns"):
        if key in merged:
            merged[key] = [sample for record in records for sample in record.get(key, [])]
    for key in [key for key in merged if key.startswith("median_")]:
        del merged[key]
    for unit in ("ns", "ts"):
        samples = merged.get(f"samples_{unit}")
        if samples:
            merged[f"avg_{unit}"] = statistics.mean(samples)
            merged[f"stddev_{unit}"] = statistics.stdev(samples) if len(samples) > 1 else 0.0
    return merged


def compare(rounds, peer):
    """Ratios of pumice over a peer for each test that both have in at least one round.
    rounds: [{name: {test: record}}]"""
    ratios = []
    tests = dict.fromkeys(test for of_round in rounds for test in of_round.get(OURS, {}))
    for test in tests:
        pairs = [(of_round[OURS][test], of_round[peer][test]) for of_round in rounds
                 if test in of_round.get(OURS, {}) and test in of_round.get(peer, {})]
        if not pairs:
            continue
        ours = [statistics.median(speeds_of(mine)) for mine, _ in pairs]
        theirs = [statistics.median(speeds_of(other)) for _, other in pairs]
        of_rounds = [mine / other for mine, other in zip(ours, theirs)]
        low, high, coverage = interval(of_rounds)
        ratios.append({"test": test_name(test), "peer": peer, "unit": "t/s", "pumice_median": statistics.median(ours),
                       "peer_median": statistics.median(theirs), "ratio": statistics.median(of_rounds),
                       "low": low, "high": high, "coverage": coverage, "round_ratios": of_rounds})
    return ratios


def device_of(record):
    device = record.get("device")
    return device.get("name", "") if isinstance(device, dict) else record.get("gpu_info", "")


def measure(programs, arguments, options):
    """Everything that is known at the end."""
    rounds = []
    able = list(programs)
    for number in range(options.rounds):
        of_round = {}
        first = number % len(able)
        for program in able[first:] + able[:first]:
            print(f"peers: round {number + 1} of {options.rounds}: {program.name}", file=sys.stderr)
            records = program.run(arguments, options.timeout)
            of_round[program.name] = {test_of(record): record for record in records or []}
        rounds.append(of_round)
        if number == 0:  # what measured nothing at first will not later
            able = [program for program in programs if of_round[program.name]]
        if programs[0] not in able or len(able) < 2:
            break
    merged = []
    for program in programs:
        tests = dict.fromkeys(test for of_round in rounds for test in of_round.get(program.name, {}))
        for test in tests:
            records = [of_round[program.name][test] for of_round in rounds
                       if test in of_round.get(program.name, {})]
            merged.append({**merge(records), "peer": program.name, "command": program.shown()})
    ratios = [ratio for program in programs[1:] for ratio in compare(rounds, program.name)]
    return {
        "bench": "peers",
        "model": options.model,
        "arguments": shlex.join(arguments),
        "started": options.started,
        "rounds": len(rounds),
        "programs": [{"name": program.name, "command": program.shown(), "failures": program.failures,
                      "commit": next((commit_of(record) for record in merged
                                      if record["peer"] == program.name), None),
                      "devices": sorted({device_of(record) for record in merged
                                         if record["peer"] == program.name} - {""})}
                     for program in programs],
        "ratios": ratios,
        "records": merged,
    }


def commit_of(record):
    """The commit it was built from; of a work tree that differed from it, marked."""
    commit = record.get("build_commit")
    return f"{commit} (dirty)" if commit and record.get("build_dirty") else commit


def to_markdown(result):
    cell = lambda text: str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    lines = ["| program | commit | device | command |", "|---|---|---|---|"]
    for program in result["programs"]:
        lines.append(f"| {cell(program['name'])} | {cell(program['commit'] or '–')} | "
                     f"{cell(', '.join(program['devices']) or '–')} | {cell(program['command'])} |")
    lines += ["", "| test | peer | pumice t/s | peer t/s | ratio | interval | rounds |",
              "|---|---|---:|---:|---:|---:|---:|"]
    for row in result["ratios"]:
        lines.append(f"| {row['test']} | {cell(row['peer'])} | {row['pumice_median']:.4g} | {row['peer_median']:.4g} | "
                     f"{row['ratio']:.3f} | {row['low']:.3f} – {row['high']:.3f} ({row['coverage'] * 100:.0f} %) | "
                     f"{len(row['round_ratios'])} |")
    names = {tuple(program["devices"]) for program in result["programs"] if program["devices"]}
    if len(names) > 1:
        lines += ["", "The programs name different devices: these ratios may not be of kernels."]
    for program in result["programs"]:
        for why in dict.fromkeys(program["failures"]):
            lines += ["", f"{cell(program['name'])} failed in {program['failures'].count(why)} of "
                      f"{result['rounds']} rounds: {cell(why)}"]
    return "\n".join(lines) + "\n"


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--n-prompt", default="512")
    parser.add_argument("-n", "--n-gen", default="128")
    parser.add_argument("-pg", metavar="P,N")
    parser.add_argument("-d", "--n-depth", metavar="LIST")
    parser.add_argument("-r", "--repetitions", type=int, default=1, help="samples a round (default 1)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="of one run (default 1800)")
    parser.add_argument("--pumice", default="build/release/tools/pumice", metavar="COMMAND")
    parser.add_argument("--peer", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON of everything")
    options = parser.parse_args()
    if options.rounds < 1 or options.repetitions < 1:
        parser.error("--rounds and -r are at least 1")
    try:
        programs = [Program(OURS, options.pumice, ["bench"])]
        for peer in options.peer:
            name, separator, command = peer.partition("=")
            if not name or not separator:
                raise ValueError(f"--peer takes NAME=COMMAND, not '{peer}'")
            if name in [program.name for program in programs]:
                raise ValueError(f"--peer {name}: there is one of that name already")
            programs.append(Program(name, command))
    except ValueError as error:
        parser.error(str(error))
    return options, programs


def main():
    options, programs = parse_command_line()
    options.started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    arguments = ["-m", options.model, "-p", options.n_prompt, "-n", options.n_gen]
    arguments += ["-pg", options.pg] if options.pg else []
    arguments += ["-d", options.n_depth] if options.n_depth else []
    arguments += ["-r", str(options.repetitions), "-o", "json"]
    result = measure(programs, arguments, options)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    print(to_markdown(result), end="")
    return 1 if any(program.failures for program in programs) or not result["ratios"] else 0


if __name__ == "__main__":
    sys.exit(main())
