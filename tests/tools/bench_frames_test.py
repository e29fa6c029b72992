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
            slices = row["slice_samples_ns"]
            self.assertEqual(row["slices"], len(slices))
            if slices:
                self.assertAlmostEqual(row["slice_ms"]["p50"], statistics.median(slices) * 1e-6)
                self.assertAlmostEqual(row["slice_over_asked"]["max"], max(slices) * 1e-6 / row["budget_ms"])
            else:
                self.assertIsNone(row["slice_ms"])
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

    def test_frames_have_the_queue_that_was_asked_for(self):
        run = self.pumice(*self.QUICK, "--frame-seconds", "0.02", "--frame-ms", "1", "-o", "json",
                          "--frame-own-queue", "--frame-low-priority")
        if run.returncode != 0:
            self.assertIn(b"VK_KHR_global_priority", run.stderr)
            return
        report = json.loads(run.stdout)
        self.assertEqual((report["queue"], report["low_priority"], len(report["rows"])), ("own", True, 6))

    def test_what_cannot_be_asked_for_is_said(self):
        self.refuses(USAGE, *self.QUICK, "-o", "csv", says="written as md or json only")
        self.refuses(USAGE, *self.QUICK, "--serve", says="one report at a time")
        self.refuses(USAGE, "bench", "--frame-rate", "30", says="--frame-impact")


if __name__ == "__main__":
    unittest.main()
