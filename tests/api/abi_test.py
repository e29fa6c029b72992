#!/usr/bin/env python3
"""The ABI: pumice.h is C99 and C++17 as it stands, and what pumice.abi records of it has not changed.

    abi_test.py --record      write pumice.abi anew, after a change that is meant

The record is abidw's (abigail-tools) of functions without bodies, so that it depends on the headers alone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import header

RECORD = pathlib.Path(__file__).with_name("pumice.abi")
CC = os.environ.get("PUMICE_TEST_CC", "cc")
CXX = os.environ.get("PUMICE_TEST_CXX", "c++")
DWARF = ["-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types"]


def compiled(folder):
    source = pathlib.Path(folder) / "abi.c"
    library = source.with_suffix(".so")
    source.write_text(header.trapping_definitions())
    subprocess.run([CC, "-std=c99", *DWARF, "-shared", "-fPIC", f"-I{header.INCLUDE}", "abi.c", "-o", library],
                   check=True, cwd=folder)
    return library


class Abi(unittest.TestCase):
    def test_the_headers_are_c99_and_cpp17_without_a_warning(self):
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only", f"-I{header.INCLUDE}"]
        subprocess.run([CC, "-std=c99", "-Wstrict-prototypes", *strict, "-x", "c", "-"],
                       input='#include "pumice/pumice.h"\nint main(void) { return 0; }\n', text=True, check=True)
        for standard in ("c++17", "c++20"):
            subprocess.run([CXX, f"-std={standard}", "-fno-exceptions", "-fno-rtti", *strict, "-x", "c++", "-"],
                           input='#include "pumice/pumice.hpp"\nint main() {}\n', text=True, check=True)

    def test_every_struct_begins_with_its_size_or_is_known_not_to(self):
        text = (header.INCLUDE / "pumice" / "pumice.h").read_text()
        structs = re.findall(r"typedef struct (pumice_\w+) \{\s*([^;]*);", text)
        self.assertGreater(len(structs), 8)
        without = {name for name, first in structs if first.split("//")[0].split() != ["size_t", "struct_size"]}
        self.assertEqual(without, {"pumice_string", "pumice_message", "pumice_logit_bias"})

    def test_the_guide_has_the_examples_as_they_are_and_names_every_call(self):
        guide = (header.ROOT / "docs" / "API.md").read_text()
        for language, name in [("c", "minimal.c"), ("cpp", "stream.cpp")]:
            example = (header.ROOT / "examples" / name).read_text()
            self.assertIn(f"```{language}\n{example}```\n", guide, f"docs/API.md shows another {name}")
        self.assertEqual([name for name in header.functions() if f"{name}" not in guide], [])

    @unittest.skipUnless(shutil.which("abidiff"), "abigail-tools is not installed")
    def test_the_abi_is_the_recorded_one(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["abidiff", RECORD, compiled(folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}\nIf it is meant: abi_test.py --record, and "
                                             "a new minor version where old programs would break.")


def record():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", RECORD,
                        compiled(folder)], check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        unittest.main()
