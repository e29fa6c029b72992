#!/usr/bin/env python3
"""Run clang-tidy over the repository's sources, as many at a time as there are processors.

    scripts/tidy.py BUILD [--changed REF] [path…]

BUILD is a configured and built folder: compile_commands.json says how a file is compiled, Ninja's
record of dependencies says what it includes. A file that passed is not checked again until it, one
of its headers, the configuration or clang-tidy changes: results live in
${XDG_CACHE_HOME:-~/.cache}/pumice/tidy. --changed checks only what differs from REF, paths only
what lies below them. Exit 1 if anything is reported, 77 without clang-tidy.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def dependencies(build):
    """Object file → files it was compiled from, as Ninja recorded them."""
    depends, current = {}, None
    for line in output_of("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line.startswith("    "):
            depends[current].append(build / line.strip())
        elif ": #deps" in line:
            current = line.split(": #deps")[0]
            depends[current] = []
    return depends


class Checker:
    def __init__(self, tool, build):
        self.tool, self.build = tool, build
        self.cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        self.cache = self.cache / "pumice" / "tidy"
        self.cache.mkdir(parents=True, exist_ok=True)
        self.depends = dependencies(build)
        self.digests = {}
        self.version = output_of(tool, "--version")

    def digest(self, path):
        if path not in self.digests:
            self.digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self.digests[path]

    def key(self, entry):
        """Everything that decides the result, or None where the dependencies are not known."""
        files = self.depends.get(entry.get("output", ""))
        if not files:
            return None
        parts = [self.version, entry["command"], self.digest(ROOT / ".clang-tidy")]
        try:
            parts += [f"{path} {self.digest(path)}" for path in files]
        except OSError:
            return None
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check(self, entry):
        """Output of clang-tidy, empty if the file passes; and seconds, None if it was remembered."""
        key = self.key(entry)
        if key and (self.cache / key).exists():
            return "", None
        start = time.monotonic()
        run = subprocess.run([self.tool, "-p", str(self.build), "--quiet", entry["file"]], cwd=ROOT,
                             capture_output=True, text=True)
        if run.returncode == 0:
            if key:
                (self.cache / key).touch()
            return "", time.monotonic() - start
        return run.stdout.strip() or run.stderr.strip(), time.monotonic() - start


def selected(build, arguments):
    """The compile commands of sources in the repository that the arguments ask for, each file once."""
    wanted = [pathlib.Path(path).resolve() for path in arguments.path]
    changed = None
    if arguments.changed:
        base = output_of("git", "merge-base", arguments.changed, "HEAD").strip()
        names = output_of("git", "diff", "--name-only", base)
        names += output_of("git", "ls-files", "--others", "--exclude-standard")
        changed = {ROOT / name for name in names.splitlines()}
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not path.is_relative_to(ROOT) or path.is_relative_to(build) or path.suffix != ".cpp":
            continue
        if wanted and not any(path.is_relative_to(place) for place in wanted):
            continue
        if changed is not None and path not in changed:
            continue
        entries.setdefault(path, entry)
    return [entries[path] for path in sorted(entries)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--changed", metavar="REF")
    parser.add_argument("path", nargs="*")
    arguments = parser.parse_args()
    tool = shutil.which("clang-tidy")
    if not tool:
        print("tidy: needs clang-tidy", file=sys.stderr)
        return 77
    build = arguments.build.resolve()
    entries = selected(build, arguments)
    checker = Checker(tool, build)
    failed, timed = 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, (report, seconds) in zip(entries, pool.map(checker.check, entries)):
            if seconds is not None:
                timed.append((seconds, entry["file"]))
            if report:
                failed += 1
                print(report)
    slowest = ", ".join(f"{pathlib.Path(name).name} {seconds:.0f} s"
                        for seconds, name in sorted(timed, reverse=True)[:3])
    print(f"tidy: {len(entries)} files, {len(timed)} checked now"
          f"{f' (slowest {slowest})' if timed else ''}, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
