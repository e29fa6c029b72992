#!/usr/bin/env python3
"""pumice bench: what it measures can be read by programs and computed again from the samples."""

import csv
import io
import json
import sqlite3
import statistics
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, STORIES, USAGE, CommandLineTest

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
        text = self.ok(*QUICK, "--op", "gated_activation rows=1").stdout.decode()
        self.assertIn("timed by device timestamps", text)
        self.assertIn("| read bandwidth |", text)
        self.assertRegex(text, r"\| gated_activation \| rows=1 n=8192 \| gated_activation \| [0-9.]+ \|")

    def test_a_device_without_timestamps_is_timed_by_the_host_and_says_so(self):
        arguments = [*QUICK[:-1], "budget=512M,no-timestamps", "--op", "gated_activation rows=1"]
        self.assertIn("timed by host clock", self.ok(*arguments).stdout.decode())

    def test_what_cannot_be_measured_is_a_usage_error(self):
        self.refuses(USAGE, *QUICK, "--op", "nosuch", says="nosuch")  # before anything is measured
        self.refuses(USAGE, "bench", "--ops", "-r", "0", says="-r: Value 0 not in range")
        self.refuses(USAGE, "bench", "--ops", "-o", "xml", says="xml")
        self.refuses(USAGE, "bench", "--ops", "-o", "csv", says="csv")
        self.refuses(USAGE, "bench", "--ops", "--serve", says="--ops and --serve")


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
                        "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "cpu_info",
                        "gpu_info", "backends", "n_threads", "n_gpu_layers", "split_mode",
                        "main_gpu", "no_kv_offload", "flash_attn", "tensor_split", "use_mmap",
                        "tensor_buft_overrides", "embeddings", "cpu_mask", "cpu_strict", "poll",
                        "type_k", "type_v", "no_op_offload", "build_number"):
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
            self.assertTrue(record["evidence"]["passed"])
            self.assertTrue(record["checked_after"])
            for moment in ("before", "after"):
                machine = record["machine"][moment]
                self.assertTrue(machine["time"] >= record["test_time"] or moment == "before")
                self.assertGreater(machine["processor"]["cores"], 0)
                named = set(machine) | set(machine.get("absent", {}))
                self.assertGreaterEqual(named, {"heaps", "gpu"})
        self.assertIn(b"| tg4 |", done.stderr)

    def test_prefill_and_decode_of_one_test_are_kept_apart(self):
        done = self.ok("bench", "-m", "tiny.gguf", "-p", "0", "-n", "0", "-pg", "32,4", "-d", "0,48",
                       "-np", "2", "-r", "2", "-o", "json")
        records = json.loads(done.stdout)
        self.assertEqual([record["test"] for record in records],
                         ["pp32+tg4 x2", "pp32+tg4 @ d48 x2"])
        for record in records:
            self.assertEqual(len(record["samples_ttft_ns"]), 2 * 2)
            for i, ns in enumerate(record["samples_ns"]):
                parts = 2 * 32 / record["samples_prefill_ts"][i] + 2 * 4 / record["samples_decode_ts"][i]
                self.assertAlmostEqual(parts * 1e9 / ns, 1, places=6)
                last = max(record["samples_ttft_ns"][2 * i:2 * i + 2])
                self.assertAlmostEqual(2 * 32e9 / last / record["samples_prefill_ts"][i], 1, places=6)
            self.assertIn("-pg 32,4", record["command"])

    def test_every_format_holds_the_same_records(self):
        arguments = ["bench", "-m", "tiny.gguf", "-p", "8-16*2", "-n", "2", "-r", "1"]
        lines = self.ok(*arguments, "-o", "jsonl").stdout.decode().splitlines()
        self.assertEqual([json.loads(line)["test"] for line in lines], ["pp8", "pp16", "tg2"])
        table = list(csv.DictReader(io.StringIO(self.ok(*arguments, "-o", "csv").stdout.decode())))
        self.assertEqual([row["test"] for row in table], ["pp8", "pp16", "tg2"])
        self.assertGreater(float(table[0]["avg_ts"]), 0)
        database = sqlite3.connect(":memory:")
        database.executescript(self.ok(*arguments, "-o", "sql").stdout.decode())
        rows = database.execute("SELECT test, n_prompt, avg_ts > 0 FROM llama_bench").fetchall()
        self.assertEqual(rows, [("pp8", 8, 1), ("pp16", 16, 1), ("tg2", 0, 1)])

    def test_what_does_not_fit_is_a_record_and_an_exit_code_and_the_rest_is_measured(self):
        done = self.pumice("bench", "-m", "tiny.gguf", "-p", "16", "-n", "0", "-d", "0,16777216",
                           "-r", "1", "-o", "json")
        self.assertEqual(done.returncode, DOES_NOT_FIT)
        measured, refused = json.loads(done.stdout)
        self.assertGreater(measured["avg_ts"], 0)
        self.assertIsNone(measured["error"])
        self.assertTrue(refused["error"])
        self.assertEqual(refused["samples_ns"], [])

    def test_without_a_model_it_is_a_synthetic_one(self):
        text = self.ok("bench", "-p", "8", "-n", "1", "-r", "1", "--limit", "budget=1G").stdout.decode()
        self.assertIn("No model was given: synthetic:small-0.1b:q4_k", text)
        self.assertIn("| pp8 |", text)

    def test_without_sizes_it_is_pp512_and_tg128_or_less_and_says_so(self):
        text = self.ok("bench", "-m", "tiny.gguf").stdout.decode()
        if "Scaled down" not in text:
            self.assertIn("| pp512 |", text)
            self.assertIn("| tg128 |", text)

    def test_records_say_how_far_logits_are_from_fp64_or_that_nobody_looked(self):
        arguments = ["bench", "-m", "tiny.gguf", "-p", "16", "-n", "2", "-r", "1", "-o", "json",
                     "-oe", "md"]
        done = self.ok(*arguments)
        for record in json.loads(done.stdout):
            evidence = record["evidence"]
            self.assertTrue(evidence["checked"] and evidence["passed"])
            self.assertEqual(evidence["layers_checked"], evidence["layers"])
            self.assertGreaterEqual({p["name"] for p in evidence["passes"]}, {"prefill", "decode"})
            for checked in evidence["passes"]:
                self.assertLess(checked["nmse"], evidence["nmse_bound"])
                self.assertRegex(checked["digest"], "^[0-9a-f]{16}$")
            self.assertEqual(set(record["variants_not_checked"]),
                             set(record["variants"]) - set(evidence["variants"]))
        self.assertIn(b"Checked: logits of 32 tokens within", done.stderr)
        done = self.ok(*arguments, "--no-check")
        self.assertEqual(json.loads(done.stdout)[0]["evidence"], {"checked": False})
        self.assertIn(b"Not checked", done.stderr)

    def test_a_synthetic_model_needs_no_file(self):
        done = self.ok("bench", "--synthetic", "small-0.1b:q4_k", "-p", "8", "-n", "2", "-r", "1",
                       "-o", "json", "-c", "64")
        records = json.loads(done.stdout)
        self.assertEqual([record["test"] for record in records], ["pp8", "tg2"])
        for record in records:
            self.assertEqual(record["model_filename"], "synthetic:small-0.1b:q4_k")
            self.assertEqual(record["model_type"], "llama 128.40 M Q4_K")
            self.assertEqual(record["model_n_params"], 128404224)
        self.refuses(USAGE, "bench", "--synthetic", "llama-2b", says=["llama-1b", "llama-8b"])
        self.refuses(USAGE, "bench", "--synthetic", "tiny:q9", says="Q4_K")
        self.refuses(USAGE, "bench", "--synthetic", "tiny", "-m", "tiny.gguf", says="one model")

    def test_what_cannot_be_measured_says_so(self):
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-p", "0", "-n", "0", says="-p and -n")
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-p", "many", says="many")
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-pg", "512", says="-pg")
        self.refuses(USAGE, "bench", "-m", "tiny.gguf", "-np", "0", says="-np")
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
