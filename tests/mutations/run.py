#!/usr/bin/env python3
"""Seed bugs into the sources one by one; a test of the suite must notice each.

    run.py BUILD [--only WORD] [--area NAME]       break, build, test; exit 0: all were caught
    run.py --check                                 whether the lists still fit the sources; builds nothing

BUILD is a Ninja build folder; what is missing of the tests is built first. Each other Python file of this
folder is the list of one area: MUTATIONS = [(what is broken, file, text, replacement, test), …]. The text occurs
exactly once in the file, a .cpp. The test is a name of ctest's, a colon and some of its own tests may follow:
"test_engine:Replay.*" (a GoogleTest filter), "cli_logits:LogitsTest.test_nan" (Python's unittest).

A mutant is one source file with one change, compiled in a temporary folder as the build compiles it (but -O1)
and linked in the true one's place into the program that the test runs.
"""

import argparse
import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT_S = 300
# Random steps in which the model-based fuzz must notice.
FUZZ_STEPS = "40000"


@dataclasses.dataclass(frozen=True)
class Mutation:
    area: str
    what: str
    file: str
    text: str
    replacement: str
    test: str

    @property
    def test_name(self):
        return self.test.partition(":")[0]

    @property
    def test_filter(self):
        return self.test.partition(":")[2]

    def mutated_source(self):
        source = (ROOT / self.file).read_text()
        if source.count(self.text) != 1:
            raise ValueError(f"{self.area}: '{self.what}': {self.file} has {source.count(self.text)} times: {self.text}")
        return source.replace(self.text, self.replacement)


def load_mutations():
    found = []
    for path in sorted(HERE.glob("*.py")):
        if path == pathlib.Path(__file__).resolve():
            continue
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += [Mutation(path.stem, *fields) for fields in module.MUTATIONS]
    return found


def check(mutations):
    """What of the lists no longer fits the sources, a line each."""
    errors = []
    for mutation in mutations:
        if not mutation.file.endswith((".cpp", ".hpp")):
            errors.append(f"{mutation.area}: '{mutation.what}' is in {mutation.file}, and only C++ is compiled anew")
        try:
            if mutation.mutated_source() == (ROOT / mutation.file).read_text():
                errors.append(f"{mutation.area}: '{mutation.what}' changes nothing")
        except (OSError, ValueError) as error:
            errors.append(str(error))
    return errors


class Build:
    """How a Ninja build folder compiles, links and tests."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.compiles = {}
        for entry in json.loads((self.folder / "compile_commands.json").read_text()):
            source = pathlib.Path(entry["directory"], entry["file"]).resolve()
            self.compiles.setdefault(source, []).append(entry["command"])
        listing = subprocess.run(["ctest", "--test-dir", str(self.folder), "--show-only=json-v1"],
                                 capture_output=True, text=True, check=True)
        self.tests = {test["name"]: test for test in json.loads(listing.stdout)["tests"]}
        self.links = {}

    def test(self, name):
        """(command, environment, program) of one of ctest's tests; the program is the one to mutate."""
        if name not in self.tests:
            raise ValueError(f"ctest knows no test '{name}'")
        test = self.tests[name]
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        environment = dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", []))
        if "PUMICE_TEST_BINARY" in environment:
            return test["command"], environment, environment["PUMICE_TEST_BINARY"]
        return test["command"], environment, next(w for w in test["command"] if w.startswith(str(self.folder)))

    def compile_command(self, file, objects):
        """How one source is compiled for a program: where several programs compile it, as one of `objects`."""
        commands = self.compiles.get((ROOT / file).resolve())
        if commands is None:
            raise ValueError(f"{self.folder} compiles {file} with others (PUMICE_UNITY); take a folder of the preset dev")
        for command in commands:
            words = shlex.split(command)
            if words[words.index("-o") + 1] in objects:
                return command
        return commands[0]

    def link_command(self, program):
        if program not in self.links:
            target = os.path.relpath(program, self.folder)
            listing = subprocess.run(["ninja", "-C", str(self.folder), "-t", "commands", target],
                                     capture_output=True, text=True, check=True)
            line = [line for line in listing.stdout.splitlines() if f"-o {target}" in line][-1]
            # Ninja's link lines are ": && compiler … -o program … && :".
            self.links[program] = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
        return list(self.links[program])

    def make(self, programs):
        targets = [os.path.relpath(program, self.folder) for program in programs]
        subprocess.run(["ninja", "-C", str(self.folder), *targets], check=True)

    def run_test(self, mutation, program=None):
        """Runs a mutation's test; `program` takes the place of the test's own."""
        command, environment, true_program = self.test(mutation.test_name)
        program = program or true_program
        command = [str(program) if word == true_program else word for word in command]
        if "PUMICE_TEST_BINARY" in environment:
            environment = {**environment, "PUMICE_TEST_BINARY": str(program)}
            command += mutation.test_filter.split()
        elif mutation.test_filter:
            command.append(f"--gtest_filter={mutation.test_filter}")
        environment = {"PUMICE_FUZZ_STEPS": FUZZ_STEPS, **os.environ, **environment}
        return subprocess.run(command, env=environment, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIMEOUT_S)

    def build_mutant(self, mutation, folder):
        """The program of the mutation's test with the mutated file in place of the true one."""
        true_source = (ROOT / mutation.file).resolve()
        mutant = folder / true_source.name
        mutant.write_text(mutation.mutated_source())
        link = self.link_command(self.test(mutation.test_name)[2])
        words = shlex.split(self.compile_command(mutation.file, link))
        true_object = words[words.index("-o") + 1]
        words = [word for word in words if not re.fullmatch(r"-O\d|-Werror|-W.*", word)]
        words = [str(mutant) if (self.folder / word).resolve() == true_source else word for word in words]
        words[words.index("-o") + 1] = str(folder / "mutant.o")
        # Includes beside the source are found there still.
        words += ["-O1", "-w", "-iquote", str(true_source.parent)]
        subprocess.run(words, cwd=self.folder, check=True)
        # Before the libraries, so that it comes first; in place of its object where the program has that.
        link = [word for word in link if word != true_object]
        at = link.index("-o")
        program = folder / "mutant"
        link[at:at + 2] = [str(folder / "mutant.o"), "-o", str(program)]
        subprocess.run(link, cwd=self.folder, check=True)
        return program


def passes_unbroken(build, mutations):
    """Whether the tests pass before anything is broken: otherwise they would catch everything."""
    good = True
    for mutation in {mutation.test: mutation for mutation in mutations}.values():
        run = build.run_test(mutation)
        if run.returncode != 0:
            print(f"FAILS   {mutation.test} without any seeded bug:\n{run.stdout[-2000:]}")
            good = False
        elif re.search(r"^\[  PASSED  \] 0 tests|^Ran 0 tests|\[  SKIPPED \]|skipped=", run.stdout, re.MULTILINE):
            print(f"SKIPS   {mutation.test}, or part of it, and shows nothing:\n{run.stdout[-500:]}")
            good = False
    return good


def try_one(build, mutation):
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        program = build.build_mutant(mutation, pathlib.Path(name))
        try:
            run = build.run_test(mutation, program)
            caught = run.returncode != 0
            found = re.search(r"^(seed.*|\[  FAILED  \] .*|(FAIL|ERROR): .*)$", run.stdout, re.MULTILINE)
            how = re.sub(r" \(blocks.*?\)| \(\d+ ms\)", "", found.group(0)) if found else f"exit {run.returncode}"
        except subprocess.TimeoutExpired:
            caught, how = True, "it does not end"
    print(f"{'caught' if caught else 'MISSED'}  {mutation.area}: {mutation.what}: {how} "
          f"[{time.monotonic() - started:.0f} s]", flush=True)
    return caught


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="only whether the lists fit the sources")
    parser.add_argument("--only", default="", help="those whose description has this word")
    parser.add_argument("--area", default="", help="those of this list")
    arguments = parser.parse_args()
    chosen = [mutation for mutation in load_mutations()
              if arguments.only in mutation.what and arguments.area in ("", mutation.area)]
    errors = check(chosen)
    for error in errors:
        print(error)
    if arguments.check or errors:
        return 1 if errors else 0
    if arguments.build is None:
        parser.error("BUILD is missing (or --check)")
    if not chosen:
        parser.error("no mutation is chosen")

    build = Build(arguments.build)
    build.make({build.test(mutation.test_name)[2] for mutation in chosen})
    if not passes_unbroken(build, chosen):
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        n_caught = sum(pool.map(lambda mutation: try_one(build, mutation), chosen))
    print(f"{n_caught} of {len(chosen)} seeded bugs caught")
    return 0 if n_caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
