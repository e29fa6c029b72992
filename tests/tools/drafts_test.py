#!/usr/bin/env python3
"""bench/drafts.py on a made-up program: ratios of rounds, counts, texts that differ."""

import json
import pathlib
import subprocess
import sys
import unittest

from command_line import CommandLineTest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/drafts.py"

# A pumice whose guesses make it three times as fast; with OTHER they change the text.
FAKE = """#!{python}
import json, os, sys
spec = sys.argv[sys.argv.index("--spec") + 1] if "--spec" in sys.argv else ""
right = [0, 0] if spec == "off" else [4, 2]
print(json.dumps({{"tokens": [1, 2 if spec == os.environ.get("OTHER") else 3],
                  "timings": {{"predicted_per_second": 10 if spec == "off" else 30}},
                  "spec": {{"drafted": 2 * sum(right), "accepted": sum(right), "drafted_by_position": [8, 4],
                           "accepted_by_position": right}}}}))
"""


class Drafts(CommandLineTest):
    def setUp(self):
        super().setUp()
        fake = self.write("pumice", FAKE.format(python=sys.executable))
        fake.chmod(0o755)
        self.write("edit.txt", "some text")

    def drafts(self, *arguments, environment=()):
        return subprocess.run([sys.executable, "-B", str(SCRIPT), "-m", "m.gguf", "--pumice", "./pumice", *arguments],
                              cwd=self.folder, env=dict(environment), capture_output=True, text=True, timeout=60)

    def test_rates_are_compared_round_by_round(self):
        done = self.drafts("--text", "edit=edit.txt", "--spec", "auto", "--rounds", "6", "-o", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| edit | auto | 10 | 30 | 3.000 | 3.000 – 3.000 (97 %) | 12 | 6 |", done.stdout)
        [result] = json.loads((self.folder / "r.json").read_text())["results"]
        self.assertEqual((result["text"], result["ratio"], result["accepted_by_position"]), ("edit", 3, [4, 2]))
        self.assertEqual(result["samples_ts"], [30] * 6)

    def test_a_record_needs_no_git(self):
        done = self.drafts("--text", "edit=edit.txt", "--rounds", "1", "-o", "r.json", environment={"PATH": "/nowhere"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(json.loads((self.folder / "r.json").read_text())["commit"])

    def test_another_text_is_an_error(self):
        done = self.drafts("--rounds", "1", environment={"OTHER": "ngram"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("prose: the text of --spec ngram is another one", done.stderr)


if __name__ == "__main__":
    unittest.main()
