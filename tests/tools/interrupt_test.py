#!/usr/bin/env python3
"""Ctrl-C, termination requests and hang-ups: exit code 130 everywhere, files whole or not there.

Nothing is timed: a run that cannot be interrupted would outlast the timeouts here by far.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from command_line import CANCELLED, STORIES, CommandLineTest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMEOUT_S = 120
AT_ONCE = {"PUMICE_GRACE_SECONDS": "0"}


class InterruptTest(CommandLineTest):
    def until_it_listens(self, process):
        """Python starts programs that die of these signals, until they say otherwise."""
        status = pathlib.Path(f"/proc/{process.pid}/status")
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) >> (signal.SIGHUP - 1) & 1:
                return
            time.sleep(0.01)

    def until_it_says(self, process, words):
        for line in process.stderr:
            if words in line.decode():
                return
        self.fail(f"ended without saying '{words}'")

    def ended(self, process, number=signal.SIGINT):
        """Standard output and error after the signal."""
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, CANCELLED, err)
        self.assertEqual(err.decode().splitlines()[-1], "pumice: interrupted")
        self.assertEqual(err.count(b"pumice: interrupted"), 1)
        return out.decode(), err.decode()


class AtOnce(InterruptTest):
    def test_a_simulation_ends_at_every_signal(self):
        for number in SIGNALS:
            for flags in (["--synthetic", 1000000, "--rate", 1e5, "--uncalibrated"],
                          ["--sweep", "--decodes", "16384", "--chunks", "1"]):
                process = self.start("sim", *flags)
                self.until_it_listens(process)
                self.assertEqual(self.ended(process, number)[0], "")

    def test_a_hang_up_that_the_parent_ignores_stays_ignored(self):
        self.need(STORIES)
        process = self.start("tokenize", "-m", STORIES, "--ids", stdin=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(input=b"Once", timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertIn(403, json.loads(out))

    def test_a_pipe_that_nobody_reads_is_not_waited_for(self):
        self.need(STORIES)
        os.mkfifo(self.folder / "pipe")
        process = self.start("logits", "-m", STORIES, "--tokens", "1", "-o", "pipe", "-v")
        self.until_it_says(process, "kernels ready")
        time.sleep(0.3)  # also before it opens the pipe it must end
        self.ended(process)

    def test_what_is_left_unfinished_when_its_time_is_over_is_removed(self):
        process = self.start("synth", "--preset", "small-0.1b", "-o", "x.gguf", env=AT_ONCE)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.left_behind() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self.ended(process)
        self.assertEqual(self.left_behind(), [])

    def test_a_self_test_cut_short_blames_no_kernel(self):
        cache = self.folder / "cache"
        process = self.start("info", "--self-test",
                             env={**AT_ONCE, "XDG_CACHE_HOME": str(cache), "PUMICE_LIMIT": None})
        deadline = time.monotonic() + TIMEOUT_S
        while not list(cache.rglob("passport-*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.ended(process)
        [path] = cache.rglob("passport-*.json")
        passport = json.loads(path.read_text())
        self.assertEqual((passport["running"], passport["running_modules"]), ("", []))
        self.assertNotIn("failed", {module["state"] for module in passport["modules"].values()})


class Bench(InterruptTest):
    """What was measured is printed; the rest says why it was not."""

    def setUp(self):
        super().setUp()
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")

    def bench(self, *flags, says):
        process = self.start("bench", *flags, "-v", "-o", "json", "--limit", "budget=512M")
        self.until_it_says(process, says)
        return process

    def test_a_delay_ends_at_every_signal(self):
        for number in SIGNALS:
            process = self.bench("-m", "tiny.gguf", "--no-check", "-p", 8, "-n", 0, "-r", 1, "--delay",
                                 3600, says="kernels ready")
            [record] = json.loads(self.ended(process, number)[0])
            self.assertEqual((record["error"], record["samples_ns"]), ("interrupted", []))

    def test_ops_keep_the_rows_that_are_done(self):
        process = self.bench("--ops", "--op", "rows=1", "-r", 3, says=" 2/")
        report = json.loads(self.ended(process)[0])
        self.assertEqual(report["ended"], "interrupted")
        self.assertGreaterEqual(len(report["ops"]), 2)
        for row in report["ops"]:
            self.assertEqual(len(row["samples_ns"]), 3)

    def test_the_peaks_of_the_device_count_as_well(self):
        for mode in ("--explain", "--layers"):
            process = self.bench(mode, "-m", "tiny.gguf", "--no-check", "-p", 8, "-n", 0, "-r", 1,
                                 says="bandwidth")
            report = json.loads(self.ended(process)[0])
            self.assertEqual(report["ended"], "interrupted")
            self.assertEqual(len(report["tests"]), 1)

    def test_several_requests_at_once(self):
        self.assertEqual(self.ended(self.bench("-m", "tiny.gguf", "--no-check", "--serve",
                                               says="calibration"))[0], "")


if __name__ == "__main__":
    unittest.main()
