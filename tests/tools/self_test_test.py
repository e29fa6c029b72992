#!/usr/bin/env python3
"""The driver passport: a self-test is remembered, and `run` never uses a kernel that failed it."""

import json
import re
import unittest

from command_line import SELF_TEST_FAILED, STORIES, USAGE, CommandLineTest

PROMPT = ("-p", "Once upon a time", "-n", 16, "--temp", "0")


class SelfTest(CommandLineTest):
    """Each test has a cache of its own; compiling takes longer, so tests are few."""

    def setUp(self):
        super().setUp()
        # Nothing is remembered of a device that is limited.
        self.env = {"XDG_CACHE_HOME": str(self.folder / "cache"), "PUMICE_LIMIT": None}

    def passports(self):
        return sorted((self.folder / "cache").rglob("passport-*.json"))

    def device(self):
        """The one that is used when none is named."""
        devices = json.loads(self.ok("info", "--json", env=self.env).stdout)["devices"]
        usable = [device for device in devices if not device["missing_requirements"]]
        if len(usable) != 1:
            self.skipTest("several devices: which is the default is not known here")
        return usable[0]

    def kernels(self):
        return {kernel["name"]: kernel for kernel in self.device()["kernels"] if kernel["in_build"]}

    def passport(self, op="gated_activation"):
        """A passport that says that everything passed, to change."""
        self.ok("info", f"--self-test={op}", env=self.env)
        [path] = self.passports()
        passport = json.loads(path.read_text())
        for module in passport["modules"].values():
            module["state"] = "passed"
        return path, passport

    def run_json(self, *flags):
        done = self.ok("run", "-m", STORIES, *PROMPT, "--json", *flags, env=self.env)
        return json.loads(done.stdout), done.stderr.decode()

    def test_a_self_test_is_remembered_and_shown(self):
        self.device()
        self.assertIsNone(self.kernels()["gated_activation"]["self_test"])
        self.assertRegex(self.ok("info", "-v", env=self.env).stdout.decode(), r"gated_activation +1  never run")
        done = self.ok("info", "--self-test=gated_activation,rms_norm", env=self.env)
        self.assertRegex(done.stdout.decode(), r"gated_activation +1  passed")
        self.assertEqual(done.stderr, b"")
        self.assertEqual(len(self.passports()), 1)
        self.assertRegex(self.ok("info", "-v", env=self.env).stdout.decode(), r"gated_activation +1  passed")

        again = json.loads(self.ok("info", "--self-test", "gated_activation", "--json", env=self.env).stdout)
        kernels = {kernel["name"]: kernel["self_test"] for kernel in again["kernels"]}
        self.assertEqual(kernels["gated_activation"]["state"], "passed")
        self.assertGreater(kernels["gated_activation"]["n_passed"], 0)
        self.assertEqual(kernels["rms_norm"]["state"], "passed", "known from before")
        self.assertEqual(kernels["rope_kv"]["state"], "not run")
        self.assertEqual(again["broken"], [])

    def test_a_limited_device_is_tested_and_not_remembered(self):
        self.device()
        self.ok("info", "--self-test=gated_activation", "--limit", "floor", env=self.env)
        self.assertEqual(self.passports(), [])

    def test_an_unknown_op_is_refused_with_those_there_are(self):
        self.refuses(USAGE, "info", "--self-test=gated_activation,nosuch", says=["'nosuch'", "rms_norm"])

    def test_run_says_nothing_of_a_self_test_that_was_never_run_unless_asked(self):
        self.need(STORIES)
        self.assertNotIn("self-test", self.run_json()[1])
        self.assertIn("pumice info --self-test", self.run_json("-v")[1])

    def test_run_replaces_a_kernel_that_failed_and_says_so(self):
        self.need(STORIES)
        expected, _ = self.run_json()
        replaceable = [name for name in expected["variants"] if name.endswith(".broadcast")
                       and name.startswith("gem")]
        if not replaceable:
            self.skipTest("every op has one variant on this device")
        path, passport = self.passport()
        for name in replaceable:
            passport["modules"][name].update(state="failed", note="y[3]: got 1, expected 2")
        path.write_text(json.dumps(passport))
        got, said = self.run_json()
        self.assertEqual(got["text"], expected["text"])
        self.assertFalse(set(replaceable) & set(got["variants"]))
        for name in replaceable:
            self.assertRegex(said, rf"{name.rsplit('.', 1)[0]} uses [^\n]*: {name} failed[^\n]*got 1")

    def test_run_is_refused_when_an_op_has_no_kernel_left(self):
        self.need(STORIES)
        path, passport = self.passport()
        passport["modules"]["rms_norm"].update(state="failed", note="y[0]: got 1, expected 2")
        path.write_text(json.dumps(passport))
        self.refuses(SELF_TEST_FAILED, "run", "-m", STORIES, *PROMPT, says=["rms_norm", "self-test"],
                     env=self.env)

    def test_a_test_that_ended_with_the_process_is_named_and_its_kernel_not_used(self):
        self.need(STORIES)
        path, passport = self.passport()
        passport.update(running="rope_kv rows=3", running_modules=["rope_kv"])
        path.write_text(json.dumps(passport))
        self.assertIn("the self-test ended in rope_kv rows=3",
                      self.ok("info", "-v", env=self.env).stdout.decode())
        self.refuses(SELF_TEST_FAILED, "run", "-m", STORIES, *PROMPT, says="rope_kv", env=self.env)
        self.ok("info", "--self-test=rope_kv", env=self.env)
        self.ok("run", "-m", STORIES, *PROMPT, env=self.env)

    def test_that_the_verdict_cannot_be_kept_is_said_once(self):
        cache = self.write("no folder", "")
        done = self.ok("info", "--self-test=gated_activation,rms_norm", env={**self.env, "XDG_CACHE_HOME": str(cache)})
        said = done.stderr.decode()
        self.assertGreater(int(re.search(r"(\d+) cases in", done.stdout.decode()).group(1)), 2)
        self.assertEqual(said.count("not remembered"), 1, said)

    def test_a_damaged_passport_is_ignored_with_a_word(self):
        self.need(STORIES)
        path, passport = self.passport()
        path.write_text(json.dumps(passport)[:200])
        _, said = self.run_json()
        self.assertIn("damaged", said)


if __name__ == "__main__":
    unittest.main()
