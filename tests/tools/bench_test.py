#!/usr/bin/env python3
"""pumice bench: what it measures can be read by programs and computed again from the samples."""

import json
import statistics
import unittest

from command_line import BAD_FILE, STORIES, USAGE, CommandLineTest

# A small budget makes what bandwidth is measured over small, so the tests are quick.
QUICK = ["bench", "--ops", "-r", "3", "--limit", "budget=512M"]


class Ops(CommandLineTest):
    def test_json_holds_device_peaks_and_rows_with_their_samples(self):
        report = json.loads(self.ok(*QUICK, "--op", "rms_norm rows=1", "-o", "json").stdout)
        self.assertEqual(report["bench"], "ops")
        for key in ("name", "uuid", "driver_name", "api_version"):  # some drivers have no info
            self.assertTrue(report["device"][key], key)
        peaks = {peak["name"]: peak for peak in report["peaks"]}
        for name in ("read bandwidth", "copy bandwidth", "f32", "dispatch, dependent",
                     "dispatch, independent", "submit, host"):
            self.assertGreater(peaks[name]["value"], 0, name)
        read = peaks["read bandwidth"]
        self.assertAlmostEqual(read["value"], read["bytes"] / min(read["samples_ns"]), places=6)

        self.assertTrue(report["ops"])
        for row in report["ops"]:
            self.assertEqual(row["op"], "rms_norm")
            self.assertEqual(row["labels"], ["rms_norm"])
            self.assertEqual(len(row["samples_ns"]), 3)
            median_ns = statistics.median(row["samples_ns"])
            self.assertAlmostEqual(row["median_ns"], median_ns)
            self.assertAlmostEqual(row["gigabytes_per_second"], row["bytes"] / median_ns)
            self.assertAlmostEqual(row["teraflops"], row["flops"] / median_ns / 1e3)
            self.assertAlmostEqual(row["percent_of_limit"], 100 * row["limit_ns"] / median_ns)

    def test_the_table_names_device_clock_and_kernels(self):
        text = self.ok(*QUICK, "--op", "swiglu rows=1").stdout.decode()
        self.assertIn("timed by device timestamps", text)
        self.assertIn("| read bandwidth |", text)
        self.assertRegex(text, r"\| swiglu \| rows=1 n=8192 \| swiglu \| [0-9.]+ \|")

    def test_a_device_without_timestamps_is_timed_by_the_host_and_says_so(self):
        arguments = [*QUICK[:-1], "budget=512M,no-timestamps", "--op", "swiglu rows=1"]
        self.assertIn("timed by host clock", self.ok(*arguments).stdout.decode())

    def test_what_cannot_be_measured_is_a_usage_error(self):
        self.refuses(USAGE, "bench", says="--ops")
        self.refuses(USAGE, *QUICK, "--op", "nosuch", says="nosuch")
        self.refuses(USAGE, "bench", "--ops", "-r", "0", says="repetitions")
        self.refuses(USAGE, "bench", "--ops", "-o", "xml", says="xml")


class Models(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")

    def test_records_have_the_keys_of_llama_bench_and_follow_from_their_samples(self):
        done = self.ok("bench", "-m", "tiny.gguf", "-p", "16,32", "-n", "4", "-r", "3", "-o", "json",
                       "-oe", "md")
        records = json.loads(done.stdout)
        self.assertEqual([record["test"] for record in records], ["pp16", "pp32", "tg4"])
        for record in records:
            for key in ("build_commit", "model_filename", "model_type", "model_size",
                        "model_n_params", "n_batch", "n_ubatch", "n_prompt", "n_gen", "n_depth",
                        "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"):
                self.assertIn(key, record)
            n_tokens = record["n_prompt"] + record["n_gen"]
            self.assertEqual(len(record["samples_ns"]), 3)
            for ns, rate in zip(record["samples_ns"], record["samples_ts"]):
                self.assertGreater(ns, 0)
                self.assertAlmostEqual(rate, n_tokens * 1e9 / ns)
            self.assertAlmostEqual(record["avg_ts"], statistics.mean(record["samples_ts"]))
            self.assertAlmostEqual(record["stddev_ns"] / statistics.stdev(record["samples_ns"]), 1)
            self.assertTrue(record["variants"])
            self.assertTrue(record["device"]["name"])
        self.assertIn(b"| tg4 |", done.stderr)

    def test_what_cannot_be_measured_says_so(self):
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-p", "0", "-n", "0", says="-p and -n")
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-p", "many", says="many")
        self.refuses(BAD_FILE, "bench", "-m", "none.gguf", says="none.gguf")


class Serve(CommandLineTest):
    def test_streams_prompts_agents_and_cancels_are_measured_and_no_block_is_lost(self):
        self.need(STORIES)
        done = self.ok("bench", "-m", STORIES, "--serve", "--long-prompt", 256, "--streams", 2,
                       "-o", "json")
        report = json.loads(done.stdout)
        rows = {row["chunk"]: row for row in report["arrivals"]}
        self.assertEqual(rows["monolithic"]["prefill_iterations"], 1)
        self.assertEqual(rows["16"]["prefill_iterations"], 16)
        self.assertGreater(rows["adaptive"]["tpot_target_s"], 0)
        self.assertGreater(report["shared_prompt"]["warm_cached"], 0.5)
        last = report["agent"][-1]
        self.assertGreater(last["cached_tokens"], last["prompt_tokens"] / 2)
        self.assertEqual(report["cancels"]["blocks"], report["cancels"]["blocks_free"])
        self.assertTrue(report["profile"]["calibrated"])


if __name__ == "__main__":
    unittest.main()
