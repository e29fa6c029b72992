#!/usr/bin/env python3
"""pumice perplexity of a whole text: llama.cpp's number."""

import json
import unittest

from command_line import SHARED, STORIES, CommandLineTest


class OfTheWholeText(CommandLineTest):
    def test_it_is_llama_cpps(self):
        done = self.ok("perplexity", "-m", self.need(STORIES), "-f", self.need(SHARED / "text/tinystories_ppl_200k.txt"), "-c", 256, "--json")
        score = json.loads(done.stdout)
        self.assertEqual(round(score["perplexity"], 4), 4.9551)
        self.assertEqual((score["windows"], score["tokens"]), (388, 388 * 127))


if __name__ == "__main__":
    unittest.main()
