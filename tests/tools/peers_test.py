#!/usr/bin/env python3
"""bench/peers.py on made-up programs: alternation, ratios from samples, failures, environment."""

import json
import pathlib
import statistics
import subprocess
import sys
import unittest

from command_line import CommandLineTest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/peers.py"

# A llama-bench: notes each start, then prints records of SPEEDS, one a start. FAIL_FROM: the start from
# which it fails.
FAKE = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open("starts", "a") as log:
    log.write(name + " " + os.environ.get("GPU", "") + " " + " ".join(sys.argv[1:]) + "\\n")
n = sum(line.startswith(name + " ") for line in open("starts"))
if n >= int(os.environ.get("FAIL_FROM", 99)):
    print("no device", file=sys.stderr)
    sys.exit(3)
if "GARBAGE" in os.environ:
    print("| model | t/s |")
    sys.exit(0)
speeds = json.loads(os.environ.get("SPEEDS", "[100]"))
speed = speeds[(n - 1) % len(speeds)]
print(json.dumps([{{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "build_commit": name, "build_dirty": name == "ours", "gpu_info": "G",
                   "model_filename": "m.gguf", "avg_ts": 1, "stddev_ts": 0,
                   "samples_ns": [512e9 / speed], "samples_ts": [speed]}},
                  {{"n_prompt": 0, "n_gen": 8, "n_depth": 64, "samples_ns": [8e9 / speed]}}]))
"""


class Peers(CommandLineTest):
    def fake(self, name):
        path = self.write(name, FAKE.format(python=sys.executable))
        path.chmod(0o755)
        return path

    def peers(self, *arguments, pumice="", code=0):
        ours = f"{pumice} {self.fake('ours')}".strip()
        done = subprocess.run([sys.executable, "-B", SCRIPT, "-m", "m.gguf", "--pumice", ours, *map(str, arguments)],
                              cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def starts(self):
        return [line.split()[0] for line in (self.folder / "starts").read_text().splitlines()]

    def result(self):
        return json.loads((self.folder / "r.json").read_text())

    def test_programs_take_turns_and_each_round_begins_with_another(self):
        self.peers("--peer", f"a={self.fake('a')}", "--peer", f"b={self.fake('b')}", "--rounds", 3)
        self.assertEqual(self.starts(), ["ours", "a", "b", "a", "b", "ours", "b", "ours", "a"])

    def test_tests_arguments_and_environment_are_handed_on(self):
        peer = f"a=GPU=7 {self.fake('a')} -ngl 99"
        self.peers("--peer", peer, "--rounds", 1, "-p", "64", "-n", "8", "-pg", "4,4", "-d", "0,64", "-r", 2)
        ours, a = (self.folder / "starts").read_text().splitlines()
        tests = "-m m.gguf -p 64 -n 8 -pg 4,4 -d 0,64 -r 2 -o json"
        self.assertEqual(ours, f"ours  bench {tests}")
        self.assertEqual(a, f"a 7 -ngl 99 {tests}")

    def test_ratios_are_medians_of_rounds_with_an_interval(self):
        done = self.peers("--peer", f"a=SPEEDS=[50,100,25,50,50,50] {self.fake('a')}", "-o", "r.json",
                          pumice="SPEEDS=[100,100,100,110,90,100]")
        result = self.result()
        pp = result["ratios"][0]
        self.assertEqual(pp["test"], "pp512")
        self.assertEqual(pp["round_ratios"], [2, 1, 4, 2.2, 1.8, 2])
        self.assertEqual((pp["ratio"], pp["low"], pp["high"]), (2, 1, 4))
        self.assertAlmostEqual(pp["coverage"], 1 - 2 / 2**6)
        self.assertEqual(result["ratios"][1]["test"], "tg8 @ d64")
        self.assertIn("| pumice | ours (dirty) | G |", done.stdout)
        self.assertIn("| a | a | G |", done.stdout)
        self.assertIn("| pp512 | a | 100 | 50 | 2.000 | 1.000 – 4.000 (97 %) | 6 |", done.stdout)
        ours = result["records"][0]
        self.assertEqual(ours["samples_ts"], [100, 100, 100, 110, 90, 100])
        self.assertEqual(ours["avg_ts"], statistics.mean(ours["samples_ts"]))

    def test_with_more_rounds_the_interval_leaves_out_extremes(self):
        self.peers("--peer", f"a={self.fake('a')}", "--rounds", 9, "-o", "r.json",
                   pumice="SPEEDS=[100,200,300,400,500,600,700,800,900]")
        pp = self.result()["ratios"][0]
        self.assertEqual((pp["ratio"], pp["low"], pp["high"]), (5, 2, 8))
        self.assertGreaterEqual(pp["coverage"], 0.95)

    def test_a_peer_that_is_absent_fails_or_prints_nonsense_is_named_and_the_others_go_on(self):
        done = self.peers("--peer", "gone=nosuch/llama-bench", "--peer", f"bad=FAIL_FROM=2 {self.fake('bad')}",
                          "--peer", f"odd=GARBAGE=1 {self.fake('odd')}", "--peer", f"good={self.fake('good')}",
                          "--rounds", 3, "-o", "r.json", code=1)
        self.assertIn("gone failed in 1 of 3 rounds: cannot be started", done.stdout)
        self.assertIn("bad failed in 2 of 3 rounds: exit code 3: no device", done.stdout)
        self.assertIn("odd failed in 1 of 3 rounds: its output is not JSON", done.stdout)
        rounds = {row["peer"]: len(row["round_ratios"]) for row in self.result()["ratios"]}
        self.assertEqual(rounds, {"bad": 1, "good": 3})

    def test_without_ours_there_are_no_ratios(self):
        done = self.peers("--peer", f"a={self.fake('a')}", pumice="FAIL_FROM=1", code=1)
        self.assertIn("pumice failed in 1 of 1 rounds", done.stdout)

    def test_compare_and_report_read_what_it_writes(self):
        self.peers("--peer", f"a=SPEEDS=[50] {self.fake('a')}", "--rounds", 2, "-o", "r.json")
        text = self.ok("bench", "--compare", "r.json", "r.json").stdout.decode()
        self.assertIn("pp512, peer pumice", text)
        self.assertIn("pp512, peer a", text)

    def test_mistakes_in_flags(self):
        for arguments in ([], ["--peer", "nameless"], ["--peer", "pumice=x"], ["--peer", "a="],
                          ["--peer", "a=A=1"], ["--peer", "a=x", "--rounds", "0"]):
            self.peers(*arguments, code=2)


if __name__ == "__main__":
    unittest.main()
