#!/usr/bin/env python3
"""pumice perplexity: windows, files of predictions, and what is refused."""

import json
import math
import unittest

from command_line import BAD_FILE, SHARED, STORIES, USAGE, CommandLineTest

TEXT = SHARED / "text/tinystories_ppl_200k.txt"


class Perplexity(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.flags = ["perplexity", "-m", self.need(STORIES), "-f", self.need(TEXT), "-c", 64]

    def score(self, *flags):
        return json.loads(self.ok(*self.flags, "--json", *flags).stdout)

    def test_it_is_the_same_however_the_work_is_cut(self):
        whole = self.score("--chunks", 9)
        self.assertEqual(whole["windows"], 9)
        self.assertEqual(whole["tokens"], 9 * 31)
        self.assertAlmostEqual(whole["perplexity"], math.exp(whole["nll"]), places=9)
        for flags in (["-b", 16], ["-b", 128, "-ub", 7]):
            with self.subTest(flags):
                self.assertAlmostEqual(self.score("--chunks", 9, *flags)["nll"], whole["nll"], places=5)
        fewer = self.score("--chunks", 1)
        self.assertNotAlmostEqual(fewer["nll"], whole["nll"], places=2)

    def test_predictions_are_kept_and_compared_with(self):
        base = self.folder / "base.kld"
        self.assertIn(b"base.kld: written", self.ok(*self.flags, "--chunks", 4, "--kl-base", base).stderr)
        same = self.score("--kl-base", base)  # of the base's windows, not of the whole text
        self.assertEqual(same["windows"], 4)
        self.assertLess(same["kl_divergence"]["max"], 1e-3)
        self.assertEqual(same["same_top"], 1)
        self.assertAlmostEqual(same["base_perplexity"], same["perplexity"], places=2)
        done = self.ok("perplexity", "-m", STORIES, "--kl-base", base, "-ctk", "f16", "-ctv", "f16")
        self.assertRegex(done.stdout.decode(),
                         r"\Aperplexity \d\.\d{4} ± \d\.\d{4} over 124 tokens \(4 windows of 64\)\n"
                         r"base's perplexity .*\nKL divergence -?0\.0000")
        self.refuses(USAGE, *self.flags[:-1], 128, "--kl-base", base, says="made with -c 64")
        other = self.write("other.txt", "Another text. " * 100)
        self.refuses(USAGE, "perplexity", "-m", STORIES, "-f", other, "--kl-base", base,
                     says="tokens are not those")
        self.refuses(BAD_FILE, *self.flags, "--kl-base", self.write("no.kld", "_logits_" + "x" * 30))
        self.assertEqual(self.left_behind(), ["base.kld", "no.kld", "other.txt"])

    def test_what_cannot_be_scored_says_why(self):
        short = self.write("short.txt", "Once upon a time")
        self.refuses(USAGE, "perplexity", "-m", STORIES, "-f", short, says=["short.txt", "window of 512"])
        self.refuses(USAGE, "perplexity", "-m", STORIES, "-f", self.write("none.txt", ""),
                     says=["none.txt is empty", "-f FILE"])
        self.refuses(USAGE, *self.flags[:-1], 3, says="have at least 4 tokens")
        self.refuses(BAD_FILE, "perplexity", "-m", STORIES, "-f", "absent.txt", says="absent.txt")


if __name__ == "__main__":
    unittest.main()
