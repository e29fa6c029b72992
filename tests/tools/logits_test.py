#!/usr/bin/env python3
"""pumice logits: little-endian float32, positions x vocabulary, whole or not at all."""

import array
import json
import math
import os
import re
import signal
import sys
import threading
import time
import unittest

from command_line import BAD_FILE, CANCELLED, SELF_TEST_FAILED, SHARED, STORIES, USAGE, CommandLineTest

FAMILY = SHARED / "reference/families/llama"


def floats(data):
    values = array.array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def nmse(reference, values):
    return (sum((a - b) ** 2 for a, b in zip(reference, values)) / sum(a * a for a in reference))


class Logits(CommandLineTest):
    def test_they_match_the_reference_at_any_chunk_with_no_flag_for_precision(self):
        model = self.need(FAMILY.with_suffix(".gguf"))
        tokens = json.loads(FAMILY.with_suffix(".json").read_text())["tokens"]
        reference = floats(FAMILY.with_suffix(".f32").read_bytes())
        for flags in ([], ["-ub", 7]):
            with self.subTest(flags):
                done = self.ok("logits", "-m", model, "--tokens", ",".join(map(str, tokens)), *flags,
                               "-o", "out.f32")
                self.assertEqual(done.stdout, b"")
                values = floats((self.folder / "out.f32").read_bytes())
                self.assertEqual(len(values), len(tokens) * 512)
                self.assertLess(nmse(reference, values), 1e-9)
        self.assertEqual(self.left_behind(), ["out.f32"])

    def test_the_scores_of_a_text_are_of_each_token_but_the_first(self):
        model = self.need(FAMILY.with_suffix(".gguf"))
        tokens = json.loads(FAMILY.with_suffix(".json").read_text())["tokens"]
        rows = floats(FAMILY.with_suffix(".f32").read_bytes())
        given = ",".join(map(str, tokens))
        alone = json.loads(self.ok("logits", "-m", model, "--tokens", given, "--score").stdout)["scores"]
        both = self.ok("logits", "-m", model, "--tokens", given, "--score", "-o", "out.f32", "-ub", 7)
        for scores in (alone, json.loads(both.stdout)["scores"]):
            self.assertEqual(len(scores), len(tokens) - 1)
            for i, score in enumerate(scores):
                row = rows[i * 512:(i + 1) * 512]
                expected = row[tokens[i + 1]] - math.log(sum(map(math.exp, row)))
                self.assertAlmostEqual(score, expected, delta=1e-3)
        self.assertEqual(self.left_behind(), ["out.f32"])

    def test_they_are_compared_with_a_reference_on_request(self):
        model = self.need(FAMILY.with_suffix(".gguf"))
        tokens = ",".join(map(str, json.loads(FAMILY.with_suffix(".json").read_text())["tokens"]))
        flags = ["-m", model, "--tokens", tokens, "--compare"]
        done = self.ok("logits", *flags, FAMILY.with_suffix(".f32"), "--max-nmse", "1e-9")
        said = re.fullmatch(r"NMSE (\S+) over 96 positions, the likeliest token is the same at 96\n",
                            done.stdout.decode())
        self.assertLess(float(said.group(1)), 1e-9)
        other = floats(FAMILY.with_suffix(".f32").read_bytes())
        other[5] += 1
        wrong = self.write("wrong.f32", other.tobytes())
        self.assertIn(b"NMSE", self.ok("logits", *flags, wrong).stdout)
        done = self.pumice("logits", *flags, wrong, "--max-nmse", "1e-9")
        self.assertEqual(done.returncode, SELF_TEST_FAILED)
        self.assertIn(b"wrong.f32: NMSE", done.stderr)
        self.refuses(BAD_FILE, "logits", *flags, self.write("short.f32", b"1234"), says="96 x 512")
        self.refuses(BAD_FILE, "logits", *flags, "nosuch.f32", says="nosuch.f32")
        self.assertEqual(self.left_behind(), ["short.f32", "wrong.f32"])

    def test_a_reference_of_no_numbers_is_beyond_every_bound(self):
        self.need(STORIES)
        nothing = self.write("nan.f32", array.array("f", [float("nan")] * 512).tobytes())
        done = self.pumice("logits", "-m", STORIES, "--tokens", "1", "--compare", nothing,
                           "--max-nmse", "1e9")
        self.assertEqual(done.returncode, SELF_TEST_FAILED, done.stderr)
        self.refuses(USAGE, "logits", "-m", STORIES, "--tokens", "1", "--compare", nothing,
                     "--max-nmse", "nan", says=["--max-nmse", "nan"])

    def test_invariant_they_are_the_same_to_the_bit_at_any_chunk(self):
        self.need(STORIES)
        tokens = ",".join(str(3 + i % 500) for i in range(70))
        for chunk in (70, 7):
            self.ok("logits", "-m", STORIES, "--tokens", tokens, "--invariant", "-ub", chunk,
                    "-o", f"{chunk}.f32")
        self.assertEqual((self.folder / "70.f32").read_bytes(), (self.folder / "7.f32").read_bytes())

    def test_half_precision_kv_is_worse_so_the_default_is_single(self):
        model = self.need(FAMILY.with_suffix(".gguf"))
        tokens = json.loads(FAMILY.with_suffix(".json").read_text())["tokens"]
        self.ok("logits", "-m", model, "--tokens", ",".join(map(str, tokens)), "-ctk", "f16", "-ctv", "f16",
                "-o", "out.f32")
        error = nmse(floats(FAMILY.with_suffix(".f32").read_bytes()),
                     floats((self.folder / "out.f32").read_bytes()))
        self.assertGreater(error, 1e-9)
        self.assertLess(error, 1e-6)

    def test_a_prompt_gives_a_row_per_token(self):
        self.need(STORIES)
        self.ok("logits", "-m", STORIES, "-p", "Once upon a time", "-o", "text.f32")
        self.ok("logits", "-m", STORIES, "--tokens", "1,403,407,261,378", "-o", "ids.f32")
        text = (self.folder / "text.f32").read_bytes()
        self.assertEqual(len(text), 5 * 512 * 4)
        self.assertEqual(text, (self.folder / "ids.f32").read_bytes())


class Output(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.need(STORIES)

    def test_a_token_outside_the_vocabulary_is_refused(self):
        for token in (512, 2147483647):
            self.refuses(USAGE, "logits", "-m", STORIES, "--tokens", f"1,{token}", "-o", "out.f32",
                         says=[str(token), "vocabulary of 512"])
        self.assertEqual(self.left_behind(), [])

    def test_a_place_that_cannot_be_written_is_refused(self):
        self.refuses(BAD_FILE, "logits", "-m", STORIES, "--tokens", "1", "-o", "nosuch/out.f32",
                     says="nosuch/out.f32: cannot be written")
        (self.folder / "folder").mkdir()
        self.refuses(BAD_FILE, "logits", "-m", STORIES, "--tokens", "1", "-o", "folder", says="folder")
        self.assertEqual(self.left_behind(), ["folder"])

    def test_an_earlier_result_is_replaced_only_by_a_whole_one(self):
        self.write("out.f32", "earlier")
        self.refuses(USAGE, "logits", "-m", STORIES, "--tokens", "999", "-o", "out.f32")
        self.assertEqual((self.folder / "out.f32").read_text(), "earlier")
        self.ok("logits", "-m", STORIES, "--tokens", "1", "-o", "out.f32")
        self.assertEqual((self.folder / "out.f32").stat().st_size, 512 * 4)

    def test_a_pipe_or_device_is_written_to_not_replaced(self):
        os.mkfifo(self.folder / "pipe")
        received = []
        reader = threading.Thread(
            target=lambda: received.append((self.folder / "pipe").read_bytes()), daemon=True)
        reader.start()
        self.ok("logits", "-m", STORIES, "--tokens", "1,403", "-o", "pipe")
        reader.join(timeout=10)
        self.assertEqual([len(data) for data in received], [2 * 512 * 4])
        self.assertTrue((self.folder / "pipe").is_fifo())

    def test_an_input_is_never_the_output(self):
        model = self.write("model.gguf", STORIES.read_bytes())
        (self.folder / "link").symlink_to(model)
        prompt = self.write("prompt.txt", "Once")
        for output in ("model.gguf", "link"):
            self.refuses(USAGE, "logits", "-m", model, "--tokens", "1", "-o", output, says="is read too")
        self.refuses(USAGE, "logits", "-m", model, "-f", prompt, "-o", "prompt.txt", says="is read too")
        reference = self.write("reference.f32", bytes(4 * 512))
        self.refuses(USAGE, "logits", "-m", model, "--tokens", "1", "--compare", reference,
                     "-o", "reference.f32", says="is read too")
        self.assertEqual(model.read_bytes(), STORIES.read_bytes())

    def test_a_model_cut_while_it_loads_is_a_bad_file(self):
        model = self.write("model.gguf", STORIES.read_bytes())
        os.mkfifo(self.folder / "prompt")
        process = self.start("logits", "-m", model, "-f", "prompt", "-o", "out.f32")
        with (self.folder / "prompt").open("wb") as prompt:  # opened once the model has been
            os.truncate(model, model.stat().st_size // 2)
            prompt.write(b"Once")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, BAD_FILE, err)
        self.assertRegex(err.decode(), r"\Apumice: [^\n]*model.gguf: ends at byte [^\n]*\n\Z")
        self.assertEqual(self.left_behind(), ["model.gguf", "prompt"])

    def test_two_at_once_onto_one_path_leave_a_whole_file(self):
        runs = [self.start("logits", "-m", STORIES, "--tokens", tokens, "-o", "out.f32")
                for tokens in ("1,403,407", "1,5,6,7")]
        for run in runs:
            _, err = run.communicate(timeout=60)
            self.assertEqual(run.returncode, 0, err)
        self.assertEqual(self.left_behind(), ["out.f32"])
        self.assertIn((self.folder / "out.f32").stat().st_size, (3 * 512 * 4, 4 * 512 * 4))

    def start_and_interrupt(self, interrupt):
        process = self.start("logits", "-m", STORIES, "--tokens", ",".join(["1"] * 20000), "-c", 20000,
                             "-ub", 1, "-b", 16, "-o", "out.f32")
        deadline = time.monotonic() + 60
        while not self.left_behind() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(interrupt)
        _, err = process.communicate(timeout=60)
        return process.returncode, err.decode()

    def test_interrupted_it_leaves_nothing(self):
        for interrupt in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(self.start_and_interrupt(interrupt), (CANCELLED, "pumice: interrupted\n"))
            self.assertEqual(self.left_behind(), [])

    def test_killed_it_leaves_no_file_of_that_name(self):
        self.assertEqual(self.start_and_interrupt(signal.SIGKILL), (-signal.SIGKILL, ""))
        self.assertFalse((self.folder / "out.f32").exists())
        self.assertEqual(len(self.left_behind()), 1)
        self.ok("logits", "-m", STORIES, "--tokens", "1", "-o", "out.f32")  # cleans up
        self.assertEqual(self.left_behind(), ["out.f32"])


if __name__ == "__main__":
    unittest.main()
