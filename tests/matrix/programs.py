#!/usr/bin/env python3
"""What a build folder must build for some of its tests: one Ninja target a line.

    programs.py BUILD ctest-arguments…

A test names its program in its command or, for scripts, in its environment.
"""

import json
import pathlib
import subprocess
import sys


def words(test):
    """The command of a test and the values of its environment."""
    yield from test.get("command", [])
    for each in test.get("properties", []):
        if each["name"] == "ENVIRONMENT":
            yield from (variable.partition("=")[2] for variable in each["value"])


def main():
    build, *arguments = sys.argv[1:]
    build = pathlib.Path(build).resolve()
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *arguments],
                             check=True, capture_output=True, text=True).stdout
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"],
                             check=True, capture_output=True, text=True).stdout
    known = {line.partition(": ")[0] for line in targets.splitlines() if ": phony" not in line}
    named = {word for test in json.loads(listing)["tests"] for word in words(test)}
    for word in sorted(word.removeprefix(f"{build}/") for word in named):
        if word in known:
            print(word)


if __name__ == "__main__":
    main()
