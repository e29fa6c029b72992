#!/usr/bin/env python3
"""pumice bench --compare: ratios between files of results, and no trust in what they say."""

import json
import unittest

from command_line import BAD_FILE, USAGE, CommandLineTest


def record(test_tokens=512, speeds=(100.0, 110.0, 90.0), **more):
    return {"model_filename": "tiny.gguf", "gpu_info": "A GPU", "build_commit": "abc",
            "n_prompt": test_tokens, "n_gen": 0, "avg_ts": 12345.0,
            "samples_ns": [test_tokens * 1e9 / speed for speed in speeds],
            "samples_ts": list(speeds), **more}


class Compare(CommandLineTest):
    def compare(self, *contents, arguments=()):
        names = [self.write(f"{chr(97 + i)}.json", content if isinstance(content, (str, bytes))
                            else json.dumps(content)) for i, content in enumerate(contents)]
        return ["bench", "--compare", *names, *arguments]

    def test_ratios_are_of_medians_computed_from_the_samples(self):
        arguments = self.compare([record()], [record(speeds=(300, 200, 100), build_commit="def")],
                                 arguments=["-o", "json"])
        comparison = json.loads(self.ok(*arguments).stdout)
        self.assertEqual(comparison["files"], ["a.json", "b.json"])
        self.assertEqual(comparison["head"]["commit"], {"values": ["abc", "def"], "differs": True})
        self.assertFalse(comparison["head"]["device"]["differs"])
        base, other = comparison["rows"][0]["files"]
        self.assertEqual(base["median"], 100)
        self.assertEqual(other["ratio"], 2)
        self.assertAlmostEqual(other["ratio_low"], 150 / 105)
        self.assertAlmostEqual(other["ratio_high"], 250 / 95)

    def test_the_table_shows_what_differs_and_what_is_only_on_one_side(self):
        arguments = self.compare([record(), record(64)], [record(), record(32)])
        text = self.ok(*arguments).stdout.decode()
        self.assertIn("| pp512 | t/s | 100 ± 5.0 % | 100 ± 5.0 % | 1.000 (0.905 – 1.105) |", text)
        self.assertIn("Only in a.json: pp64\n", text)
        self.assertIn("Only in b.json: pp32\n", text)

    def test_lines_of_json_and_a_single_base_are_read(self):
        lines = "\n".join(json.dumps(record(n)) for n in (16, 32)) + "\n"
        text = self.ok(*self.compare(lines, [record(32)], lines)).stdout.decode()
        self.assertRegex(text, r"\| pp32 \|.* 1\.000 .* 1\.000 ")

    def test_what_has_no_score_gets_no_ratio(self):
        wrong = record(64, evidence={"passed": False})
        arguments = self.compare([record(), record(64), record(32)],
                                 [record(error="device lost"), wrong, record(32)])
        text = self.ok(*arguments).stdout.decode()
        self.assertIn("no score: device lost", text)
        self.assertIn("no score: wrong logits", text)

    def test_nothing_in_common_is_an_error_after_the_table(self):
        done = self.pumice(*self.compare([record(16)], [record(32)]))
        self.assertEqual(done.returncode, BAD_FILE)
        self.assertIn(b"Only in b.json: pp32", done.stdout)
        self.assertRegex(done.stderr.decode(), r"\Apumice: --compare: [^\n]+\n\Z")

    def test_foreign_and_hostile_files_are_one_line(self):
        good = [record()]
        for content, says in ((b"\x7fELF\x00\xff", "cannot read JSON"), ("", "cannot read JSON"), ("{}", "neither"),
                              ("[" * 200_000, "cannot read JSON"), ({"a": {"b": 1}}, "neither"),
                              ([record(samples_ts=[-1])], "record 1: samples_ts"),
                              ([record(), record(model_filename=[1])], "record 2: model_filename"),
                              ([record(n_prompt=1e300)], "n_prompt")):
            with self.subTest(says):
                self.refuses(BAD_FILE, *self.compare(good, content), says=("b.json", says))
        self.refuses(BAD_FILE, *self.compare(good), "nosuch.json", says="nosuch.json")
        self.refuses(BAD_FILE, *self.compare(good), self.folder, says="is a directory")
        self.refuses(USAGE, *self.compare(good), says="at least one file")

    def test_text_of_a_file_cannot_leave_its_cell_or_reach_the_terminal(self):
        text = self.ok(*self.compare([record()], [record(build_commit="x|y\x1b[31m\n<b>&amp;*[a](b)")]))
        shown = text.stdout.decode()
        self.assertNotIn("\x1b", shown)
        self.assertIn(r"x\|y\\x1b\[31m\\x0a&lt;b&gt;&amp;amp;\*\[a](b)", shown)

    def test_results_of_a_changed_work_tree_are_marked(self):
        arguments = self.compare([record()], [record(build_dirty=True)], [record(build_dirty=False)])
        self.assertIn("| commit | abc | abc (dirty) | abc | differs |", self.ok(*arguments).stdout.decode())


if __name__ == "__main__":
    unittest.main()
