#!/usr/bin/env python3
"""pumice bench --ab: two configurations in turns, and what noise is."""

import json
import math
import statistics
import unittest

from command_line import USAGE, CommandLineTest


class Levers(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")


class Ab(Levers):
    QUICK = ["bench", "-m", "tiny.gguf", "-p", "16", "-n", "4", "-r", "6"]

    def ab(self, *configurations, **options):
        flags = [word for text in configurations for word in ("--ab", text)]
        return json.loads(self.ok(*self.QUICK, *flags, "-o", "json", **options).stdout)

    def test_every_ratio_follows_from_the_samples_of_its_rounds(self):
        report = self.ab("math=f32,kv=f32")
        self.assertEqual(report["a"]["configuration"], "default")
        self.assertEqual(report["b"]["options"]["kv"], "f32")
        self.assertTrue(report["b"]["variants"])
        self.assertTrue(report["device"]["name"])
        self.assertEqual([row["test"] for row in report["rows"]], ["pp16", "tg4"])
        for row in report["rows"]:
            self.assertEqual([sorted(order) for order in row["order"]], [[0, 1, 2]] * 6)
            for other, key in (("b", "b_over_a"), ("a_again", "null")):
                a, b = row["a"]["samples_ns"], row[other]["samples_ns"]
                logs = [math.log(x / y) for x, y in zip(a, b)]
                means = [(x + y) / 2 for i, x in enumerate(logs) for y in logs[i:]]
                interval = row[key]
                self.assertAlmostEqual(interval["ratio"], math.exp(statistics.median(means)))
                # Of six pairs the interval holds all means.
                self.assertAlmostEqual(interval["low"], math.exp(min(means)))
                self.assertAlmostEqual(interval["high"], math.exp(max(means)))
                self.assertAlmostEqual(interval["confidence"], 1 - 2 / 64)

    def test_the_table_prints_the_null_interval_beside_the_result(self):
        text = self.ok(*self.QUICK, "--ab", "null").stdout.decode()
        self.assertIn("A/A interval", text)
        self.assertRegex(text, r"\| pp16 \| 6 \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| "
                               r"[0-9.]+ – [0-9.]+ \| [0-9.]+ – [0-9.]+ \| [0-9.]+ % \|")

    def test_two_configurations_are_compared_with_each_other(self):
        report = self.ab("chunk=8", "chunk=16,run_ahead=off")
        self.assertEqual(report["a"]["options"]["chunk"], 8)
        self.assertEqual(report["b"]["options"]["chunk"], 16)
        self.assertFalse(report["b"]["options"]["run_ahead"])

    def test_a_kernel_that_is_withdrawn_does_not_run(self):
        report = self.ab("variant=-*.broadcast")
        self.assertFalse([name for name in report["b"]["variants"] if "broadcast" in name])

    def test_another_limit_is_another_device_and_says_that_the_model_is_loaded_twice(self):
        done = self.ok(*self.QUICK, "--ab", "limit=no-subgroup", "-o", "json")
        self.assertIn("loaded twice", done.stderr.decode())
        self.assertEqual(json.loads(done.stdout)["b"]["limit"], "no-subgroup")

    def test_what_cannot_be_compared_is_a_usage_error(self):
        for words, says in ((["--ab", "math=f64"], "math=f64"),
                            (["--ab", "fast"], "KEY=VALUE"),
                            (["--ab", "variant=nosuch"], "nosuch"),
                            (["--ab", "variant=-gemm.*"], "variant=-gemm.*"),
                            (["--ab", "null"] * 3, "3 times")):
            self.refuses(USAGE, *self.QUICK, *words, says=says)
        self.refuses(USAGE, *self.QUICK[:-1], "5", "--ab", "null", says="6 rounds")


if __name__ == "__main__":
    unittest.main()
