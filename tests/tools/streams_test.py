#!/usr/bin/env python3
"""Standard streams that are closed or cannot be written: an exit code, never an abort."""

import os
import subprocess
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, VOCABULARY, CommandLineTest, needs_file


class Streams(CommandLineTest):
    def without(self, descriptor, *arguments, **options):
        # Not by a launcher: what is closed would be taken by the files that it opens.
        return self.pumice(*arguments, launcher=False, preexec_fn=lambda: os.close(descriptor), **options)

    @needs_file("/dev/full")
    def test_standard_output_that_is_full_is_an_error_of_every_command(self):
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")
        with open("/dev/full", "wb") as full:
            for arguments in (["--help"], ["--version"], [], ["run", "--help"], ["synth", "--list"],
                              ["info", "-m", "tiny.gguf"], ["info", "-m", "tiny.gguf", "--json"],
                              ["tokenize", "-m", "tiny.gguf", "-p", "x" * 9000, "--ids"],
                              ["sim", "--synthetic", "5"], ["sim", "--sweep", "--json"]):
                with self.subTest(arguments[:2]):
                    done = self.pumice(*arguments, stdout=full)
                    self.assertEqual(done.returncode, DOES_NOT_FIT, done.stderr)
                    self.assertEqual(done.stderr.decode(),
                                     "pumice: standard output: cannot be written: No space left on device\n")

    def test_standard_output_that_is_closed_is_an_error_only_if_there_is_something_to_say(self):
        for arguments in (["--help"], ["synth", "--list"]):
            done = self.without(1, *arguments)
            self.assertEqual(done.returncode, BAD_FILE, done.stderr)
            self.assertIn(b"standard output: cannot be written: Bad file descriptor", done.stderr)
        done = self.without(1, "synth", "--preset", "tiny", "-o", "x.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)

    @needs_file("/dev/full")
    def test_standard_error_that_is_full_aborts_nothing_and_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = self.pumice("synth", "--preset", "tiny", "-o", "x.gguf", stderr=full)
            self.assertEqual(done.returncode, DOES_NOT_FIT)
            self.assertTrue((self.folder / "x.gguf").exists())
            self.assertEqual(self.pumice("nosuch", stderr=full).returncode, 2)
            self.assertEqual(self.pumice("info", "-m", "nosuch", stderr=full).returncode, BAD_FILE)

    def test_no_file_takes_the_number_of_a_closed_stream(self):
        self.ok("synth", "--preset", "tiny", "-o", "true.gguf")
        for descriptor in (0, 1, 2):
            done = self.without(descriptor, "synth", "--preset", "tiny", "-o", "x.gguf", "--force",
                                stderr=subprocess.DEVNULL if descriptor == 2 else subprocess.PIPE)
            self.assertEqual(done.returncode, 0)
            self.assertEqual((self.folder / "x.gguf").read_bytes(),
                             (self.folder / "true.gguf").read_bytes())
        self.assertEqual(self.without(2, "nosuch", stderr=subprocess.DEVNULL).returncode, 2)

    def test_standard_input_that_is_closed_is_no_empty_prompt(self):
        model = self.need(VOCABULARY)
        done = self.without(0, "tokenize", "-m", model)
        self.assertEqual(done.returncode, BAD_FILE)
        self.assertEqual(done.stderr, b"pumice: standard input: cannot be read\n")


if __name__ == "__main__":
    unittest.main()
