#!/usr/bin/env python3
"""pumice for arm64 under qemu, against the same files and the program of this system.

    tests/matrix/arm64_test.py BUILD_ARM64 BUILD [unittest arguments]

BUILD_ARM64 has been built by scripts/build_arm64.sh, BUILD is of this system. The program of this system runs on
lavapipe-25, which is of the same version of Mesa as that of arm64.
"""

import os
import pathlib
import sys
import unittest

from other_system import CHECKOUT, MODEL, OtherSystemTest

# Those that need neither a device nor another program.
PROGRAMS = ["base/test_base", "sampling/test_sampling", "constraints/test_constraints", "answers/test_answers",
            "tools/test_flag_values"]
# What thousands of states repeat.
LEFT_OUT = "JsonSchema.SharedSchemas*:Matcher.MasksOfRandomGrammars*"
# A kernel takes seconds to compile under the emulator, and some half a minute.
OP_CASES = "*/rms_norm_rows*:*/causal_conv_*:*/gemv_Q4_K_portable_rows_2_n_7_*-*_added_*"
STORY = ["run", "-m", MODEL, "--temp", "0", "-p", "Once upon a time", "-n", "40"]


class Arm64(OtherSystemTest):
    def there(self, program, *arguments, text="", **environment):
        command = [CHECKOUT / "tests/matrix/arm64.sh", self.other / program, *arguments]
        return self.run_command(command, text, {**os.environ, **environment})

    def pumice(self, *arguments):
        return self.there("tools/pumice", *arguments)

    def test_programs_of_unit_tests_pass(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.run_tests(f"tests/{name}", f"-{LEFT_OUT}")

    def test_pages_may_be_of_16_kib(self):
        self.run_tests("tests/base/test_base", PUMICE_TEST_PAGE_BYTES="16384")

    def test_op_cases_pass(self):
        self.run_tests("tests/shaders/test_ops", OP_CASES)

    def test_a_model_with_convolutions_says_what_it_says_here(self):
        self.check_models([("lfm2", "q8_0")], [])

    def test_a_story_and_its_cache_are_those_of_this_system(self):
        expected = self.here(*STORY, "--prompt-cache", "cache")
        ours = (self.folder / "cache").read_bytes()
        self.assertGreater(len(expected), 100)
        # Read from the file of the other system, then without one.
        self.assertEqual(self.output_of(self.pumice(*STORY, "--prompt-cache", "cache")), expected)
        (self.folder / "cache").unlink()
        self.assertEqual(self.output_of(self.pumice(*STORY, "--prompt-cache", "cache")), expected)
        self.assertEqual(len((self.folder / "cache").read_bytes()), len(ours))
        self.assertEqual(self.here(*STORY, "--prompt-cache", "cache"), expected)


if __name__ == "__main__":
    Arm64.other, Arm64.this = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
