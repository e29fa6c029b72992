#!/usr/bin/env python3
"""What guesses (--spec) do to the speed of a text: with and without them, in alternation.

    bench/drafts.py -m model.gguf --rounds 15 -o r.json
    bench/drafts.py -m model.gguf --text edit=edit.txt --spec auto,ngram -n 400

Prompts are the three below (a story, a program, and words that repeat themselves) or the files of --text.
A round generates each text once without guesses and once with each kind of --spec; the next round begins with the
next kind, so that what drifts falls on all. Texts that differ from those without guesses are an error.

A ratio is the median of the rounds' ratios of decode rates (above 1: guesses are faster), with an interval as in
bench/peers.py. The table goes to standard output, everything to -o.

Exit code: 0, or 1 if a run failed or a text differs, 2 usage.
"""

import argparse
import datetime
import json
import shlex
import statistics
import subprocess
import sys

import peers

PLAIN = "off"
TEXTS = {
    "prose": "Once upon a time, there was a little girl named Lily. She had a big red ball. One day",
    "code": "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n\n\ndef",
    "copy": "Lily, Lily, Lily, Lily, Lily, Lily,",
}


def generate(options, prompt, spec):
    command = [*shlex.split(options.pumice), "run", "-m", options.model, "-p", prompt, "-n", str(options.n_gen),
               "--ignore-eos", "--temp", "0", "--spec", spec, "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=options.timeout)
    if done.returncode != 0:
        sys.exit(f"drafts: {shlex.join(command)}: exit code {done.returncode}: "
                 f"{done.stderr.decode(errors='replace').strip()}")
    return json.loads(done.stdout)


def measure(options, name, prompt):
    """Every kind of guesses for one text: {spec: [answer of each round]}."""
    specs = [PLAIN, *options.spec]
    answers = {spec: [] for spec in specs}
    for number in range(options.rounds):
        first = number % len(specs)
        for spec in specs[first:] + specs[:first]:
            print(f"drafts: {name}, round {number + 1} of {options.rounds}: {spec}", file=sys.stderr)
            answers[spec].append(generate(options, prompt, spec))
            if answers[spec][-1]["tokens"] != next(filter(None, answers.values()))[0]["tokens"]:
                sys.exit(f"drafts: {name}: the text of --spec {spec} is another one")
    return answers


def summary(name, spec, answers):
    rates = {one: [answer["timings"]["predicted_per_second"] for answer in answers[one]] for one in (PLAIN, spec)}
    ratios = [with_guesses / plain for with_guesses, plain in zip(rates[spec], rates[PLAIN])]
    low, high, coverage = peers.interval(ratios)
    counts = [answer["spec"] for answer in answers[spec]]
    middle = sorted(counts, key=lambda count: count["drafted"])[len(counts) // 2]
    return {"text": name, "spec": spec, "plain_median": statistics.median(rates[PLAIN]),
            "median": statistics.median(rates[spec]), "ratio": statistics.median(ratios), "low": low, "high": high,
            "coverage": coverage, "samples_ts": rates[spec], "plain_samples_ts": rates[PLAIN], **middle}


def to_markdown(rows):
    lines = ["| text | guesses | plain t/s | t/s | ratio | interval | guessed | accepted |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    lines += [f"| {row['text']} | {row['spec']} | {row['plain_median']:.4g} | {row['median']:.4g} | {row['ratio']:.3f} | "
              f"{row['low']:.3f} – {row['high']:.3f} ({row['coverage'] * 100:.0f} %) | {row['drafted']} | "
              f"{row['accepted']} |" for row in rows]
    return "\n".join(lines) + "\n"


def commit():
    """Of the tree this is in; none where it is an archive of the sources or git is missing."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-n", "--n-gen", type=int, default=256)
    parser.add_argument("--spec", default="auto,ngram", metavar="LIST")
    parser.add_argument("--text", action="append", metavar="NAME=FILE")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="of one run (default 600)")
    parser.add_argument("--pumice", default="build/release/tools/pumice", metavar="COMMAND")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON of everything")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    options.spec = options.spec.split(",")
    texts = TEXTS
    if options.text:
        texts = {}
        for text in options.text:
            name, _, path = text.partition("=")
            with open(path, encoding="utf-8") as file:
                texts[name] = file.read()
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = []
    for name, prompt in texts.items():
        answers = measure(options, name, prompt)
        rows += [summary(name, spec, answers) for spec in options.spec]
    sys.stdout.write(to_markdown(rows))
    if options.output:
        info = subprocess.run([*shlex.split(options.pumice), "info"], capture_output=True, text=True)
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump({"bench": "drafts", "model": options.model, "command": shlex.join(sys.argv), "started": started,
                       "commit": commit(), "device": info.stdout.strip(), "n_gen": options.n_gen,
                       "prompts": texts, "results": rows}, file, ensure_ascii=False, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
