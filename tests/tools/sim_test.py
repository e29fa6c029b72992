#!/usr/bin/env python3
"""pumice sim: the scheduler and the cache in virtual time."""

import json
import unittest

from command_line import BAD_FILE, SHARED, USAGE, CommandLineTest

MOONCAKE = SHARED / "traces/mooncake_conversation_trace.jsonl"
AZURE = SHARED / "traces/AzureLLMInferenceTrace_conv.csv"


class Sim(CommandLineTest):
    def json(self, *flags):
        return json.loads(self.ok("sim", "--json", *flags).stdout)

    def test_mooncakes_trace_has_its_known_hit_rate(self):
        self.need(MOONCAKE)
        report = self.json("--trace", MOONCAKE, "--speed-up", 4)
        self.assertAlmostEqual(report["prefix_hit_rate"], 0.3819, delta=5e-5)
        self.assertEqual(report["scheduler"]["requests"]["finished"], 12031)
        bounded = self.json("--trace", MOONCAKE, "--blocks", 10000, "--requests", 500)
        self.assertGreater(bounded["scheduled_hit_rate"], 0)

    def test_states_are_kept_where_it_is_told(self):
        flags = ("--synthetic", 200, "--rate", 20, "--blocks", 20000)
        self.assertIsNone(self.json(*flags)["states"])
        both = self.json(*flags, "--state-pages", 3)
        none = self.json(*flags, "--state-pages", 3, "--keep-states", "none")
        self.assertGreater(both["states"]["scheduled"]["kept"], 0)
        self.assertGreater(both["prefix_hit_rate"], 0)
        self.assertEqual(none["prefix_hit_rate"], 0)
        self.assertGreater(none["states"]["scheduled"]["missed"],
                           10 * both["states"]["scheduled"]["missed"])
        self.assertIn("states of 3 pages kept",
                      self.ok("sim", *flags, "--state-pages", 3).stdout.decode())
        self.refuses(USAGE, "sim", *flags, "--keep-states", "some", says="branch")
        self.assertRegex(self.ok("sim", "--help").stdout.decode(),
                         r"--keep-states TEXT:\{none,edge,branch,both,every\}=both\b")
        self.refuses(USAGE, "sim", *flags, "--state-pages", 16, says="15")

    def test_azures_trace_runs_through(self):
        self.need(AZURE)
        report = self.json("--trace", AZURE, "--requests", 2000, "--goodput", "ttft:2000 tpot:100")
        self.assertEqual(report["scheduler"]["requests"]["finished"], 2000)
        self.assertEqual(report["prefix_hit_rate"], 0)
        self.assertGreater(report["goodput_requests_per_s"], 0)

    def test_a_synthetic_mix_is_the_same_for_the_same_seed(self):
        flags = ("--synthetic", 200, "--rate", 20, "--seed", 3)
        first, second = self.json(*flags), self.json(*flags)
        first.pop("wall_s"), second.pop("wall_s")
        self.assertEqual(first, second)
        text = self.ok("sim", *flags).stdout.decode()
        for word in ("TTFT ms", "ITL ms", "prefix hit rate", "p99"):
            self.assertIn(word, text)

    def test_a_slower_device_changes_the_chunks(self):
        slow = {"fixed_s": 4e-2, "per_row_s": 1e-4, "per_row_context_s": 3e-7, "per_token_s": 4e-4,
                "per_token_context_s": 1e-8}
        model = self.write("slow.json", json.dumps(slow))
        flags = ("--synthetic", 100, "--rate", 2, "--tpot-target", 100)
        fast = self.json(*flags)["scheduler"]["chunk_tokens"]["p50"]
        slow = self.json(*flags, "--device-model", model)["scheduler"]["chunk_tokens"]["p50"]
        self.assertLess(slow, fast)

    def test_the_sweep_shows_the_stall_of_a_monolithic_prefill(self):
        report = self.json("--sweep", "--chunks", "0,8192", "--decodes", "8", "--tpot-target", 20)
        adaptive, monolithic = report["rows"]
        self.assertLessEqual(adaptive["itl_p99_s"], 2 * 20e-3)
        self.assertGreater(monolithic["itl_p99_s"], 10 * 20e-3)
        self.assertIn("adaptive", self.ok("sim", "--sweep").stdout.decode())

    def test_a_latecomer_is_served_amid_batch_requests_and_behind_a_long_prompt(self):
        report = self.json("--latecomer", "--batch", 8, "--long-prompt", 100000, "--aging", 20)
        alone, *amid_others = report["rows"]
        self.assertEqual(alone["amid"], "nobody")
        self.assertEqual([row["amid"] for row in amid_others],
                         ["8 batch requests", "a prompt of 100000 tokens",
                          "8 batch requests and a prompt of 100000 tokens"])
        for row in amid_others:
            self.assertLessEqual(row["steps"], alone["steps"] + 2, row)
        self.assertAlmostEqual(report["batch_ttft_s"], 20, delta=0.1)
        self.assertIsNone(self.json("--latecomer", "--aging", 0)["batch_ttft_s"])
        text = self.ok("sim", "--latecomer").stdout.decode()
        for word in ("steps to first token", "8 batch requests", "first token after 60.0 s"):
            self.assertIn(word, text)
        self.assertIn("may wait for ever", self.ok("sim", "--latecomer", "--aging", 0).stdout.decode())
        self.assertIn("--latecomer", self.ok("sim", "--help").stdout.decode())

    def test_bad_input_is_one_line(self):
        self.refuses(USAGE, "sim", says="--trace")
        self.refuses(USAGE, "sim", "--latecomer", "--aging", -1, says="--aging")
        self.refuses(USAGE, "sim", "--latecomer", "--batch", 0, says="--batch")
        self.refuses(USAGE, "sim", "--synthetic", 5, "--blocks", "many", says="inf")
        self.refuses(USAGE, "sim", "--synthetic", 5, "--goodput", "fast", says="ttft:500")
        self.refuses(USAGE, "sim", "--sweep", "--chunks", "1,x", says="--chunks")
        self.refuses(BAD_FILE, "sim", "--trace", "/no/such.csv", says="/no/such.csv")
        self.refuses(BAD_FILE, "sim", "--trace", self.write("t.jsonl", "{}\n"), says="line 1")
        self.refuses(BAD_FILE, "sim", "--synthetic", 5, "--device-model", self.write("m.json", "[]"))
        self.refuses(USAGE, "sim", "--synthetic", 5, "-b", 8, says="below one block")

    def test_what_is_no_finite_number_is_refused_and_so_is_what_takes_all_memory(self):
        for flag in ("--rate", "--tpot-target", "--speed-up"):
            for value in ("nan", "inf", "-inf", "1e999", "0", "-1"):
                self.refuses(USAGE, "sim", "--synthetic", 5, f"{flag}={value}", says=[flag, value])
        self.refuses(USAGE, "sim", "--synthetic", 5, "--goodput", "ttft:inf", says="ttft:500")
        self.refuses(USAGE, "sim", "--sweep", "--decodes", 100000000, says=["--decodes", "100000000"])
        self.refuses(USAGE, "sim", "--sweep", "--chunks", 4000000000, says="--chunks")
        self.refuses(USAGE, "sim", "--synthetic", 4000000000, says="--synthetic")


if __name__ == "__main__":
    unittest.main()
