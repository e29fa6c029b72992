#!/usr/bin/env python3
"""What fits: plans of models that nobody loads, and refusals that say what would fit; models in several files."""

import json
import re
import unittest

from command_line import DOES_NOT_FIT, SHARED, STORIES, USAGE, CommandLineTest
from gguf_prediction import with_prediction_block
from gguf_split import split_gguf

HUGE = ["info", "--fit", "--synthetic", "moe-8x7b:q4_k", "--limit", "budget=2G"]


class Fit(CommandLineTest):
    def does_not_fit(self, *arguments):
        """The plan is printed all the same, and the exit code says it."""
        done = self.pumice(*arguments)
        self.assertEqual(done.returncode, DOES_NOT_FIT, done.stderr.decode())
        self.assertRegex(done.stderr.decode(), r"\Apumice: [^\n]+ with -c \d+: does not fit[^\n]*\n\Z")
        return done

    def test_a_context_beyond_what_the_model_was_trained_for_is_told(self):
        model = self.need(STORIES)
        trained = json.loads(self.ok("info", model, "--fit", "--json").stdout)["trained_tokens"]
        beyond = f"more than the {trained} that the model was trained for"
        self.assertNotIn(beyond, self.ok("info", model, "--fit", "-c", trained).stdout.decode())
        self.assertIn(beyond, self.ok("info", model, "--fit", "-c", trained + 1).stdout.decode())
        run = ["run", model, "Once", "-n", 1]
        self.assertNotIn(beyond, self.ok(*run, "-c", trained).stderr.decode())
        self.assertIn(beyond, self.ok(*run, "-c", trained + 1).stderr.decode())
        said = self.ok("run", model, "--repl", "-n", 1, "-c", trained + 1, stdin=b"Once\n").stderr.decode()
        self.assertEqual(said.count(beyond), 1, said)

    def test_a_model_larger_than_the_memory_is_planned_without_being_loaded(self):
        plan = json.loads(self.does_not_fit(*HUGE, "-c", 4096, "--json").stdout)
        self.assertIs(plan["fits"], False)
        self.assertEqual(plan["context_tokens"], 4096)
        self.assertLessEqual(plan["free_bytes"], 2 << 30)
        self.assertGreater(plan["weights_bytes"], 20e9)
        uses = ("weights", "kv", "activations", "reserve")
        self.assertEqual(plan["total_bytes"], sum(plan[f"{use}_bytes"] for use in uses))
        self.assertEqual(plan["total_bytes"], sum(line["bytes"] for line in plan["lines"]))
        self.assertEqual(plan["kv_bytes"], 4096 * plan["kv_bytes_per_token"])
        self.assertEqual([one["kv_type"] for one in plan["alternatives"] if one["current"]], ["f16"])
        self.assertEqual({one["longest_context_tokens"] for one in plan["alternatives"]}, {0})
        text = self.does_not_fit(*HUGE).stdout.decode()
        self.assertRegex(text, r"does not fit: short by \d+\.\d+ GiB\n")
        self.assertRegex(text, r"\* f16 .* none\n")

    def test_flags_of_the_engine_count(self):
        def plan(*flags):
            return json.loads(self.does_not_fit(*HUGE, "-c", 1024, "--json", *flags).stdout)
        self.assertEqual(plan("-ctk", "f32", "-ctv", "f32")["kv_bytes"], 2 * plan()["kv_bytes"])
        self.assertGreater(plan("-b", 2048)["activations_bytes"], plan()["activations_bytes"])

    def test_mistakes_are_usage_errors(self):
        self.refuses(USAGE, "info", "--fit", says="no model")
        self.refuses(USAGE, "info", "-c", 100, says="--fit")
        self.refuses(USAGE, *HUGE, "-m", "x.gguf")
        self.refuses(USAGE, "info", "--fit", "--synthetic", "nosuch", says="nosuch")

    def test_a_refusal_names_a_context_that_does_fit(self):
        run = ["run", "-m", self.need(STORIES), "-p", "Once upon a time", "-n", 2, "--temp", 0,
               "--limit", "budget=8M"]
        said = self.refuses(DOES_NOT_FIT, *run, "-c", 65536,
                            says=["a context of 65536 tokens needs", "weights", "KV", "activations", "reserve"])
        fitting = int(re.search(r"-c (\d+) would fit", said).group(1))
        self.ok(*run, "-c", fitting)
        self.refuses(DOES_NOT_FIT, *run, "-c", fitting + 16, says="short by")
        plan = json.loads(self.does_not_fit("info", "-m", STORIES, "--fit", "-c", 65536, "--limit",
                                            "budget=8M", "--json").stdout)
        self.assertIs(plan["fits"], False)
        self.assertGreater(plan["alternatives"][-1]["longest_context_tokens"], 0)
        # Nothing lies beside the device, so that nothing was timed.
        self.assertIsNone(plan["weights_beside_ms_per_token"])

    def test_a_model_in_parts_says_what_the_whole_one_says(self):
        for number, content in enumerate(split_gguf(self.need(STORIES).read_bytes(), 3), 1):
            self.write(f"s-{number:05}-of-00003.gguf", content)
        run = ["-p", "Once upon a time", "-n", 20, "--temp", 0]
        self.assertEqual(self.ok("run", "-m", self.folder / "s-00001-of-00003.gguf", *run).stdout,
                         self.ok("run", "-m", STORIES, *run).stdout)

    def test_blocks_that_predict_tokens_after_the_next_are_told_and_not_counted(self):
        plain = self.need(SHARED / "reference/families/glm4moe.gguf")
        n_floats = 1 << 20
        path = self.write("predicts.gguf", with_prediction_block(plain.read_bytes(), "glm4moe",
                                                               {"nextn.enorm.weight": (n_floats,)}))
        for flags in ((), ("--fit", "-c", 64)):
            with self.subTest(flags=flags):
                without, told = (json.loads(self.ok("info", "-m", model, "--json", *flags).stdout)
                                 for model in (plain, path))
                self.assertEqual(without["prediction"], {"blocks": 0, "bytes": 0, "loaded": False})
                self.assertEqual(told["prediction"], {"blocks": 1, "bytes": 4 * n_floats, "loaded": False})
                for key in ("memory", "weights_bytes", "total_bytes"):
                    self.assertEqual(told.get(key), without.get(key))
        self.assertRegex(self.ok("info", "-m", path).stdout.decode(),
                         r"not loaded +4\.0 MiB of a block that predicts tokens after the next\n")
        self.assertRegex(self.ok("info", "-m", path, "--fit").stdout.decode(), r"not counted +4\.0 MiB  of blocks that")
        for flags in ((), ("--fit",)):
            self.assertNotIn("after the next", self.ok("info", "-m", plain, *flags).stdout.decode())
        run = ["-p", "a", "-n", 4, "--temp", 0]
        self.assertEqual(self.ok("run", "-m", path, *run).stdout, self.ok("run", "-m", plain, *run).stdout)

    def test_the_program_of_a_block_that_predicts_is_shown(self):
        plain = self.need(SHARED / "reference/families/glm4moe.gguf").read_bytes()
        own = {"nextn.enorm.weight": (128,), "nextn.hnorm.weight": (128,)}
        short = self.write("short.gguf", with_prediction_block(plain, "glm4moe", own))
        own["nextn.eh_proj.weight"] = (256, 128)
        whole = self.write("whole.gguf", with_prediction_block(plain, "glm4moe", own, with_layer=True))
        reason = "the file has no tensor blk.3.nextn.eh_proj.weight"
        self.assertIn(f"block 3, which predicts the token after the next: {reason}\n",
                      self.ok("info", "-m", short, "--program").stdout.decode())
        listed = json.loads(self.ok("info", "-m", short, "--program", "--json").stdout)
        self.assertEqual(listed["prediction"], {"reason": reason})
        text = self.ok("info", "-m", whole, "--program").stdout.decode()
        self.assertIn("block 3, which predicts the token after the next\nglm4moe, 1 layers", text)
        self.assertIn("hidden = given_rows(the model's)  128\n", text)
        listed = json.loads(self.ok("info", "-m", whole, "--program", "--json").stdout)
        self.assertEqual(listed["program"]["n_layers"], 3)
        self.assertEqual({op["layer"] for op in listed["prediction"]["ops"]}, {None, 3})


if __name__ == "__main__":
    unittest.main()
