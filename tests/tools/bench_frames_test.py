#!/usr/bin/env python3
"""pumice bench --frame-impact: a render loop beside generation."""

import json
import statistics
import unittest

from command_line import USAGE, CommandLineTest


class Frames(CommandLineTest):
    QUICK = ["bench", "--synthetic", "tiny:f16", "--no-check", "--frame-impact"]

    def test_every_number_follows_from_the_frames_that_were_drawn(self):
        report = json.loads(self.ok(*self.QUICK, "--frame-seconds", "0.3", "--frame-ms", "1", "-o", "json").stdout)
        self.assertEqual(report["frame_work_ms"], 1)
        self.assertTrue(report["device"]["name"])
        rows = report["rows"]
        self.assertEqual([row["budget"] for row in rows], ["alone", "1 ms", "2 ms", "5 ms", "10 ms", "unlimited"])
        self.assertEqual([row["budget_ms"] for row in rows], [None, 1, 2, 5, 10, None])
        alone = statistics.median(rows[0]["samples_ns"])
        for row in rows:
            frames = sorted(row["samples_ns"])
            self.assertEqual(row["frames"], len(frames))
            self.assertAlmostEqual(row["frame_ms"]["p50"], statistics.median(frames) * 1e-6)
            self.assertAlmostEqual(row["frame_ms"]["max"], frames[-1] * 1e-6)
            self.assertAlmostEqual(row["delta_frame_ms"]["p50"], (statistics.median(frames) - alone) * 1e-6)
            if row["budget"] == "alone":
                self.assertEqual(row["tokens_per_s"], 0)
            elif row["budget"] == "unlimited" and len(frames) > 10:  # a step lands in every call
                self.assertGreater(row["tokens_per_s"], 0)
            if row["budget_ms"]:
                self.assertAlmostEqual(row["delta_over_budget"]["max"], row["delta_frame_ms"]["max"] / row["budget_ms"])
            else:
                self.assertIsNone(row["delta_over_budget"])

    def test_what_cannot_be_asked_for_is_said(self):
        self.refuses(USAGE, *self.QUICK, "-o", "csv", says="written as md or json only")
        self.refuses(USAGE, *self.QUICK, "--serve", says="one report at a time")
        self.refuses(USAGE, "bench", "--frame-rate", "30", says="--frame-impact")


if __name__ == "__main__":
    unittest.main()
