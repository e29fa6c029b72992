#!/usr/bin/env python3
"""pumice eval: suites of questions, their scores, and runs that go on."""

import json
import unittest

from command_line import BAD_FILE, STORIES, USAGE, CommandLineTest

CHOICES = [{"prompt": "Once upon a time, there was a little", "choices": [" girl", " xylophone"], "answer": 0},
           {"prompt": "Once upon a time, there was a little", "choices": [" zebra crossing", " girl"], "answer": 1},
           {"prompt": "Once upon a", "choices": [" time", " spoon"], "answer": 1}]


class Eval(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.need(STORIES)

    def suite(self, *items, name="suite.jsonl"):
        return self.write(name, "".join(json.dumps(item) + "\n" for item in items))

    def eval(self, suite, *flags):
        return json.loads(self.ok("eval", "-m", STORIES, "--suite", suite, "--json", *flags).stdout)

    def test_each_kind_is_judged(self):
        said = json.loads(self.ok("run", "-m", STORIES, "-p", "Once upon a time", "-n", 6, "--temp", 0,
                                  "--json").stdout)["text"]
        suite = self.suite(*({**item, "task": "endings"} for item in CHOICES),
                           {"prompt": "Once upon a time", "answer": said, "max_tokens": 6, "id": "says"},
                           {"prompt": "Once upon a time", "answer": "nothing", "max_tokens": 6},
                           {"prompt": "Once upon a time", "schema": {"type": "object"}, "max_tokens": 6})
        found = self.eval(suite, "-o", "results.jsonl")
        self.assertEqual(found["items"], 6)
        self.assertEqual(found["correct"], 3)
        endings, exact, schema = found["tasks"]
        self.assertEqual((endings["task"], endings["kind"], endings["n"]), ("endings", "choice", 3))
        self.assertAlmostEqual(endings["accuracy"], 2 / 3)
        self.assertIn("accuracy_normalized", endings)
        self.assertEqual((exact["kind"], exact["accuracy"]), ("exact", 0.5))
        self.assertEqual((schema["kind"], schema["accuracy"]), ("schema", 0))
        lines = [json.loads(line) for line in (self.folder / "results.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), 7)
        by_id = {line["id"]: line for line in lines[1:]}
        self.assertEqual(by_id["says"]["text"], said)
        self.assertIn("problem", by_id["6"])
        # By the same numbers as `logits --score` has.
        ids = [json.loads(self.ok("tokenize", "-m", STORIES, "-p", CHOICES[0]["prompt"] + choice, "--ids").stdout)
               for choice in ("", CHOICES[0]["choices"][0])]
        scores = json.loads(self.ok("logits", "-m", STORIES, "--score", "--math", "auto", "-ctk", "f16", "-ctv", "f16",
                                    "--tokens", ",".join(map(str, ids[1]))).stdout)["scores"]
        common = next(i for i in range(len(ids[1])) if ids[0][:i + 1] != ids[1][:i + 1])
        self.assertAlmostEqual(by_id["1"]["log_probs"][0], sum(scores[common - 1:]), places=3)

    def test_a_run_goes_on_where_it_was_stopped(self):
        suite = self.suite(*CHOICES)
        whole = self.eval(suite, "-o", "whole.jsonl")
        lines = (self.folder / "whole.jsonl").read_text().splitlines(keepends=True)
        self.write("part.jsonl", "".join(lines[:2]) + lines[2][:9])  # killed in the middle of a line
        done = self.ok("eval", "-m", STORIES, "--suite", suite, "--json", "-o", "part.jsonl")
        self.assertIn(b"1 of 3 items are answered there", done.stderr)
        part = json.loads(done.stdout)
        self.assertEqual(part["tasks"], whole["tasks"])
        self.assertEqual(sorted((self.folder / "part.jsonl").read_text().splitlines(keepends=True)), sorted(lines))
        again = self.eval(suite, "-o", "part.jsonl")  # nothing is left to ask
        self.assertEqual(again["tasks"], whole["tasks"])
        self.assertEqual(self.eval(suite, "--items", 2)["items"], 2)

    def test_files_of_others_stay_as_they_are(self):
        suite = self.suite(*CHOICES)
        mine = self.write("mine.txt", "My own notes.\n")
        self.refuses(BAD_FILE, "eval", "-m", STORIES, "--suite", suite, "-o", mine, says="not a file of results")
        self.assertEqual(mine.read_text(), "My own notes.\n")
        self.eval(suite, "--items", 1, "-o", "results.jsonl")
        before = (self.folder / "results.jsonl").read_bytes()
        self.refuses(BAD_FILE, "eval", "-m", STORIES, "--suite", self.suite(CHOICES[0], name="other.jsonl"), "-o",
                     "results.jsonl", says="of another suite, model or settings")
        self.assertEqual((self.folder / "results.jsonl").read_bytes(), before)

    def test_what_is_no_suite_says_why(self):
        self.refuses(USAGE, "eval", "-m", STORIES, says="--suite")
        self.refuses(BAD_FILE, "eval", "-m", STORIES, "--suite", "absent.jsonl", says="absent.jsonl")
        self.refuses(BAD_FILE, "eval", "-m", STORIES, "--suite", self.suite({"prompt": "a"}), says="suite.jsonl, line 1")
        long = self.suite({"prompt": "a " * 4000, "answer": "b", "id": "long"})
        self.assertNotEqual(self.pumice("eval", "-m", STORIES, "--suite", long, "-c", 128).returncode, 0)


if __name__ == "__main__":
    unittest.main()
