#!/usr/bin/env python3
"""pumice bench --layers: where a step goes, as a report and as a trace."""

import json
import statistics
import unittest

from command_line import USAGE, CommandLineTest

LAYERS = ["bench", "--layers", "--synthetic", "tiny:Q8_0", "-r", "2", "--limit", "budget=512M"]


class Layers(CommandLineTest):
    def test_rows_cover_every_dispatch_and_follow_from_their_samples(self):
        report = json.loads(self.ok(*LAYERS, "-p", "40", "-n", "3", "-d", "0,16", "-ub", "32",
                                    "-o", "json").stdout)
        tests = {test["test"]: test for test in report["tests"]}
        self.assertEqual(list(tests), ["pp40", "tg3", "pp40 @ d16", "tg3 @ d16"])
        self.assertEqual(tests["pp40"]["n_steps"], 2 * 2)  # of 32 and 8 tokens, twice
        self.assertEqual(tests["tg3 @ d16"]["n_steps"], 2 * 3)
        for test in tests.values():
            rows = {row["part"]: row for row in test["rows"]}
            for part in ("attn_norm", "qkv", "rope_kv", "attention", "attn_output", "ffn_norm",
                         "gate_up", "activation", "ffn_down"):
                self.assertEqual(rows[part]["dispatches_per_layer"] * report["n_layers"],
                                 rows[part]["dispatches"], part)
            self.assertAlmostEqual(sum(row["dispatches"] for row in test["rows"]),
                                   test["dispatches"])
            for row in test["rows"]:
                self.assertEqual(len(row["samples_ns"]), test["n_steps"])
                self.assertAlmostEqual(row["mean_ns"], statistics.mean(row["samples_ns"]))
            for step, (device, idle) in enumerate(zip(test["device_ns"], test["idle_ns"])):
                busy = sum(row["samples_ns"][step] for row in test["rows"])
                self.assertAlmostEqual(device, busy + idle, delta=1)
            self.assertEqual(len(test["untraced_step_ns"]), 2)
        # Twice the context, and nothing else, makes attention read more.
        bytes_of = lambda name: next(row["bytes"] for row in tests[name]["rows"]
                                     if row["part"] == "attention")
        self.assertGreater(bytes_of("tg3 @ d16"), bytes_of("tg3"))

    def test_the_trace_is_one_that_perfetto_loads(self):
        text = self.ok(*LAYERS, "-p", "8", "-n", "2", "--trace", "steps.json").stdout.decode()
        self.assertIn("| idle between dispatches |", text)
        self.assertRegex(text, r"\| ffn_down \| gemv\.q8_0[^|]* \| 2 \| 1 \|")
        trace = json.loads((self.folder / "steps.json").read_text())
        events = trace["traceEvents"]
        self.assertLessEqual({event["ph"] for event in events}, {"X", "M"})
        complete = [event for event in events if event["ph"] == "X"]
        for event in complete:
            self.assertIsInstance(event["name"], str)
            for key in ("ts", "dur"):
                self.assertGreaterEqual(event[key], 0, event)
            for key in ("pid", "tid"):
                self.assertIsInstance(event[key], int)
        named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
        self.assertEqual({(event["pid"], event["tid"]) for event in complete}, named)
        # Dispatches lie in their steps.
        steps = [event for event in complete if event["cat"] == "device" and event["tid"] == 1]
        self.assertEqual([step["name"] for step in steps], ["pp8"] * 2 + ["tg2"] * 4)
        dispatches = [event for event in complete if "kernel" in event["args"]]
        self.assertTrue(dispatches)
        for event in dispatches:
            self.assertTrue(any(step["ts"] - 0.01 <= event["ts"] and
                                event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 0.01
                                for step in steps), event)

    def test_the_trace_never_takes_the_place_of_the_model(self):
        model = self.write("model.gguf", "not even a model")
        self.refuses(USAGE, "bench", "--layers", "-m", model, "--trace", "model.gguf",
                     says="is read too")
        self.assertEqual(model.read_text(), "not even a model")

    def test_what_cannot_be_looked_at_says_so(self):
        self.refuses(USAGE, *LAYERS, "-np", "2", says="-np")
        self.refuses(USAGE, *LAYERS, "-pg", "8,8", says="-pg")
        self.refuses(USAGE, *LAYERS, "-p", "0", "-n", "0", says="-p and -n")
        self.refuses(USAGE, "bench", "--trace", "steps.json", says="--layers")
        self.refuses(USAGE, *LAYERS[:-1], "budget=512M,no-timestamps", says="timestamps")


if __name__ == "__main__":
    unittest.main()
