#!/usr/bin/env python3
"""pumice for arm64 under qemu, against the same files and the program of this system.

    tests/matrix/arm64_test.py BUILD_ARM64 BUILD [unittest arguments]

BUILD_ARM64 has been built by scripts/build_arm64.sh, BUILD is of this system. The program of this system runs on
lavapipe-25, which is of the same version of Mesa as that of arm64.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MODEL = CHECKOUT / "models/pumice-stories.gguf"
ARM64 = SYSTEM = None  # main
# Those that need neither a device nor another program.
PROGRAMS = ["base/test_base", "sampling/test_sampling", "constraints/test_constraints", "answers/test_answers",
            "tools/test_flag_values"]
# What thousands of states repeat.
LEFT_OUT = "JsonSchema.SharedSchemas*:Matcher.MasksOfRandomGrammars*"
STORY = ["run", "-m", MODEL, "--temp", "0", "-p", "Once upon a time", "-n", "40"]


class Arm64(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-arm64-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def output_of(self, *command, **environment):
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, timeout=1800,
                              cwd=self.folder, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, (done.stdout[-4000:] + done.stderr).decode(errors="replace"))
        return done.stdout

    def emulated(self, program, *arguments, **environment):
        return self.output_of(CHECKOUT / "tests/matrix/arm64.sh", ARM64 / program, *arguments, **environment)

    def on_this_system(self, *arguments):
        return self.output_of(CHECKOUT / "tests/matrix/run_on.sh", "lavapipe-25", SYSTEM / "tools/pumice", *arguments)

    def test_programs_of_unit_tests_pass(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.assertIn(b"[  PASSED  ]", self.emulated(f"tests/{name}", f"--gtest_filter=-{LEFT_OUT}"))

    def test_pages_may_be_of_16_kib(self):
        self.assertIn(b"[  PASSED  ]", self.emulated("tests/base/test_base", PUMICE_TEST_PAGE_BYTES="16384"))

    def test_a_story_and_its_cache_are_those_of_this_system(self):
        expected = self.on_this_system(*STORY, "--prompt-cache", "cache")
        ours = (self.folder / "cache").read_bytes()
        self.assertGreater(len(expected), 100)
        # Read from the file of the other system, then without one.
        self.assertEqual(self.emulated("tools/pumice", *STORY, "--prompt-cache", "cache"), expected)
        (self.folder / "cache").unlink()
        self.assertEqual(self.emulated("tools/pumice", *STORY, "--prompt-cache", "cache"), expected)
        self.assertEqual(len((self.folder / "cache").read_bytes()), len(ours))
        self.assertEqual(self.on_this_system(*STORY, "--prompt-cache", "cache"), expected)


if __name__ == "__main__":
    ARM64, SYSTEM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
