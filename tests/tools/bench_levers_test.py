#!/usr/bin/env python3
"""pumice bench --ab, --advise: what a choice is worth."""

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
        for side in ("a", "b"):
            self.assertTrue(report["evidence"][side]["passed"])
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


class Advice(Levers):
    def advise(self, *words):
        done = self.ok("bench", "-m", "tiny.gguf", "--advise", "-p", "64", "-n", "2", "--streams",
                       "1", *words, "-o", "json")
        return json.loads(done.stdout)

    def test_targets_that_are_met_need_no_lever(self):
        advice = self.advise("--ttft-target", "1e6", "--tpot-target", "1e6")
        self.assertTrue(advice["met"])
        self.assertIn("met as it is: `pumice run -m tiny.gguf`", advice["recommendation"])
        self.assertIn("Beside 1 streams", advice["stream_recommendation"])
        kinds = {row["kind"] for row in advice["levers"]}
        self.assertEqual(kinds, {"configuration", "reuse", "window"})
        for row in advice["levers"]:
            if "note" in row:
                continue
            self.assertEqual(len(row["with"]["ttft_samples_ns"]), 6, row["lever"])
            self.assertAlmostEqual(row["with"]["ttft_ms"],
                                   statistics.median(row["with"]["ttft_samples_ns"]) * 1e-6)
            self.assertTrue(row["meets_targets"])
            if row["kind"] == "configuration":
                self.assertTrue(row["evidence"]["passed"], row["lever"])

    def test_targets_that_nothing_meets_are_said_to_be_out_of_reach(self):
        advice = self.advise("--ttft-target", "1e-6")
        self.assertFalse(advice["met"])
        self.assertIn("Nothing meets the targets", advice["recommendation"])

    def test_advice_needs_a_target(self):
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "--advise", says="--ttft-target")


if __name__ == "__main__":
    unittest.main()
