#!/usr/bin/env python3
"""pumice bench --explain: the paper needs no device, and floors stand beside what was measured."""

import json
import statistics
import unittest

from command_line import BAD_FILE, NO_DEVICE, USAGE, CommandLineTest

PAPER = ["bench", "--explain", "--no-measure"]
NO_DRIVER = {"VK_ICD_FILENAMES": "/nonexistent.json", "VK_DRIVER_FILES": "/nonexistent.json"}


class Paper(CommandLineTest):
    def explain(self, *arguments, **options):
        return json.loads(self.ok(*PAPER, *arguments, "-o", "json", **options).stdout)

    def test_known_models_have_known_figures_without_any_device(self):
        report = self.explain("--synthetic", "llama-8b:Q4_K", "-p", "512", "-n", "128",
                              "-d", "0,4096", env=NO_DRIVER, launcher=False)
        self.assertEqual(report["model"]["kv_bytes_per_token"], 131072)
        crossings = {line["counting"]: line for line in report["crossings"]}
        # Three matrices of 4096 x 14336 against four flops a key and value of 4096.
        self.assertEqual(crossings["flops, all keys"]["scores_only"], 3 * 14336 // 2 + 1)
        self.assertEqual(crossings["flops, causal"]["scores_only"], 3 * 14336)
        tests = {test["test"]: test for test in report["tests"]}
        self.assertEqual(list(tests), ["pp512", "tg128", "pp512 @ d4096", "tg128 @ d4096"])
        attention = {name: next(part for part in test["phases"][0]["parts"]
                                if part["part"] == "attention") for name, test in tests.items()}
        pairs = 512 * 513 // 2
        self.assertEqual(attention["pp512"]["flops"], 4 * 4096 * 32 * pairs)
        self.assertEqual(attention["pp512 @ d4096"]["flops"], 4 * 4096 * 32 * (pairs + 512 * 4096))
        keys = sum(range(4097, 4097 + 128))
        self.assertEqual(attention["tg128 @ d4096"]["kv_bytes"], 131072 * keys)

    def test_a_phase_is_the_sum_of_its_parts(self):
        report = self.explain("--synthetic", "moe-tiny:Q8_0", "-pg", "40,3", "-p", "0", "-n", "0",
                              "-ub", "16")
        prefill, decode = report["tests"][0]["phases"]
        self.assertEqual((prefill["n_steps"], decode["n_steps"]), (3, 3))
        for phase in (prefill, decode):
            for key in ("flops", "weight_bytes", "kv_bytes", "activation_bytes"):
                self.assertEqual(phase["total"][key], sum(part[key] for part in phase["parts"]))
            self.assertEqual(phase["samples_ns"], [])
        self.assertGreater(next(part["flops"] for part in prefill["parts"]
                                if part["part"] == "router"), 0)

    def test_a_hybrid_is_the_sum_of_its_parts(self):
        report = self.explain("--synthetic", "hybrid-tiny:Q8_0", "-pg", "40,3", "-p", "0", "-n", "0")
        prefill, decode = report["tests"][0]["phases"]
        for phase, rows in ((prefill, 40), (decode, 3)):
            for key in ("flops", "weight_bytes", "kv_bytes", "activation_bytes"):
                self.assertEqual(phase["total"][key], sum(part[key] for part in phase["parts"]))
            part = {part["part"]: part for part in phase["parts"]}
            # Three layers of 4 heads, 32 columns of 32 keys, 7 flops each; and a convolution of 4
            # taps, then silu, of two heads of q and of k and four of v.
            n_state, n_conv = 4 * 32 * 32, (2 + 2 + 4) * 32
            self.assertEqual(part["recurrence"]["flops"],
                             3 * rows * (7 * n_state + (2 * 4 + 3) * n_conv))
        # A step reads and writes the whole state, the convolution's last three rows too.
        self.assertEqual(part["recurrence"]["kv_bytes"], 3 * 3 * 2 * (n_state + 3 * n_conv) * 4)

    def test_requests_at_once_read_the_weights_once(self):
        one, four = self.explain("--synthetic", "tiny:Q8_0", "-p", "0", "-n", "4",
                                 "-np", "1,4")["tests"]
        part = {name: [test["phases"][0]["parts"][index] for test in (one, four)]
                for index, name in ((2, "qkv"), (4, "attention"))}
        self.assertEqual(part["qkv"][0]["weight_bytes"], part["qkv"][1]["weight_bytes"])
        self.assertEqual(4 * part["qkv"][0]["flops"], part["qkv"][1]["flops"])
        self.assertEqual(4 * part["attention"][0]["kv_bytes"], part["attention"][1]["kv_bytes"])

    def test_the_tables_name_conventions_parts_and_crossings(self):
        text = self.ok(*PAPER, "--synthetic", "tiny:Q4_K", "-p", "8", "-n", "0").stdout.decode()
        self.assertIn("A multiply-add is 2 flops", text)
        self.assertRegex(text, r"\| attention output \| [0-9.e-]+ \|")
        self.assertIn("| flops, causal |", text)
        self.assertNotIn("floor", text)

    def test_what_cannot_be_explained_says_so(self):
        self.refuses(USAGE, "bench", "--no-measure", says="--explain")
        self.refuses(USAGE, *PAPER, "--synthetic", "tiny:Q4_K", "-p", "0", "-n", "0", says="-p and -n")
        self.refuses(USAGE, *PAPER, "--synthetic", "tiny:Q4_K", "-o", "csv", says="csv")
        self.refuses(USAGE, *PAPER, "--synthetic", "llama-8b:Q4_K", "-p", 1 << 24,
                     says="too large to count")
        self.refuses(BAD_FILE, *PAPER, "-m", "none.gguf", says="none.gguf")

    def test_without_a_device_the_paper_is_printed_all_the_same(self):
        done = self.pumice("bench", "--explain", "--synthetic", "tiny:Q4_K", "-p", "8", "-n", "2",
                           env=NO_DRIVER, launcher=False)
        self.assertEqual(done.returncode, NO_DEVICE)
        self.assertIn(b"| pp8 | prefill |", done.stdout)
        self.assertIn(b"Measuring ended early: ", done.stdout)


class Measured(CommandLineTest):
    def test_floors_follow_from_the_peaks_and_stand_beside_the_samples(self):
        report = json.loads(self.ok("bench", "--explain", "--synthetic", "tiny:Q4_K", "-p", "24",
                                    "-n", "3", "-d", "16", "-r", "3", "--limit", "budget=512M",
                                    "-o", "json").stdout)
        self.assertTrue(report["device"]["name"])
        bandwidth, peaks = report["bytes_per_ns"], report["flops_per_ns"]
        self.assertGreater(bandwidth, 0)
        self.assertEqual([test["test"] for test in report["tests"]], ["pp24 @ d16", "tg3 @ d16"])
        for test in report["tests"]:
            self.assertTrue(test["variants"])
            for phase in test["phases"]:
                for part in phase["parts"]:
                    moving = (part["weight_bytes"] + part["kv_bytes"]) / bandwidth
                    peak = peaks[part["arithmetic"]]
                    computing = part["flops"] / peak if peak else 0
                    self.assertAlmostEqual(part["floor_ns"], max(moving, computing))
                self.assertAlmostEqual(phase["floor_ns"],
                                       sum(part["floor_ns"] for part in phase["parts"]))
                self.assertEqual(len(phase["samples_ns"]), 3)
                median = statistics.median(phase["samples_ns"])
                self.assertAlmostEqual(phase["measured_over_floor"], median / phase["floor_ns"])

    def test_experts_have_a_router(self):
        done = self.ok("bench", "--explain", "--synthetic", "moe-tiny:Q4_K", "-p", "8", "-n", "0", "-r", "1")
        self.assertIn(b"| router |", done.stdout)


if __name__ == "__main__":
    unittest.main()
