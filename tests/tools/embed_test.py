#!/usr/bin/env python3
"""pumice embed: a vector a text, as the reference gives it, however the texts come."""

import array
import json
import math
import sys
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, SHARED, STORIES, USAGE, CommandLineTest

FOLDER = SHARED / "reference/embeddings"
BERT = FOLDER / "bert-cls.gguf"
LLAMA = SHARED / "reference/families/llama.gguf"
WIDTH = 128


def floats(path):
    values = array.array("f", path.read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def nmse(reference, values):
    return sum((a - b) ** 2 for a, b in zip(reference, values)) / sum(a * a for a in reference)


def ids(tokens):
    return ",".join(map(str, tokens))


def objects(done):
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


class Vectors(CommandLineTest):
    def test_they_are_the_references(self):
        for name in ("bert-cls", "nomic-bert", "gemma-embedding", "qwen3-embedding"):
            with self.subTest(name):
                model = self.need(FOLDER / f"{name}.gguf")
                facts = json.loads((FOLDER / f"{name}.json").read_text())
                tokens = facts["sequences"][2]
                expected = floats(FOLDER / f"{name}.f32")[2 * WIDTH:3 * WIDTH]
                [said] = objects(self.ok("embed", "-m", model, "--tokens", ids(tokens), "--math", "f32",
                                         "--no-normalize", "--json"))
                self.assertEqual(len(said["embedding"]), WIDTH)
                self.assertLess(nmse(expected, said["embedding"]), 1e-9)
                self.assertEqual((said["pooling"], said["tokens"], said["normalized"], said["index"]),
                                 (facts["pooling"], len(tokens), False, 0))

    def test_pooling_may_be_another(self):
        model = self.need(BERT)
        facts = json.loads(BERT.with_suffix(".json").read_text())
        rows = floats(FOLDER / "bert-cls.tok.f32")
        n = len(rows) // WIDTH
        flags = ["embed", "-m", model, "--tokens", ids(facts["sequences"][3]), "--no-normalize", "--json"]
        [said] = objects(self.ok(*flags, "--pooling", "none"))
        self.assertEqual([len(said["embedding"]), len(said["embedding"][0])], [n, WIDTH])
        self.assertLess(nmse(rows, sum(said["embedding"], [])), 1e-5)
        expected = {"cls": rows[:WIDTH], "last": rows[-WIDTH:],
                    "mean": [sum(rows[i::WIDTH]) / n for i in range(WIDTH)]}
        for pooling, reference in expected.items():
            [said] = objects(self.ok(*flags, "--pooling", pooling))
            self.assertEqual(said["pooling"], pooling)
            self.assertLess(nmse(reference, said["embedding"]), 1e-5)
        # As lines of numbers: one a token.
        done = self.ok(*flags[:-1], "--pooling", "none")
        self.assertEqual([len(line.split(" ")) for line in done.stdout.decode().splitlines()], [WIDTH] * n)

    def test_they_have_length_one_unless_told_otherwise(self):
        model = self.need(BERT)
        flags = ["embed", "-m", model, "-p", "Hello world", "--math", "f32"]
        raw = [float(x) for x in self.ok(*flags, "--no-normalize").stdout.split()]
        unit = [float(x) for x in self.ok(*flags).stdout.split()]
        self.assertEqual(len(unit), WIDTH)
        self.assertAlmostEqual(math.hypot(*unit), 1, 6)
        self.assertNotAlmostEqual(math.hypot(*raw), 1, 2)
        for a, b in zip(raw, unit):
            self.assertAlmostEqual(a / math.hypot(*raw), b, 6)

    def test_texts_together_are_texts_alone(self):
        model = self.need(BERT)
        texts = ["Hello world", "a longer text, of more words than the first one", "x", "Hello world"]
        prompts = [word for text in texts for word in ("-p", text)]
        together = objects(self.ok("embed", "-m", model, *prompts, "--json", "--invariant"))
        self.assertEqual([said["index"] for said in together], [0, 1, 2, 3])
        self.assertEqual(together[0]["embedding"], together[3]["embedding"])
        self.assertNotEqual(together[0]["embedding"], together[2]["embedding"])
        for text, said in zip(texts, together):
            [alone] = objects(self.ok("embed", "-m", model, "-p", text, "--json", "--invariant", "-b", 16))
            self.assertEqual(alone["embedding"], said["embedding"])
        lines = self.write("texts.txt", "\n".join(texts) + "\n")
        self.assertEqual(objects(self.ok("embed", "-m", model, "-f", lines, "--json", "--invariant")), together)
        spoken = "\r\n".join(texts).encode()
        self.assertEqual(
            objects(self.ok("embed", "-m", model, "--json", "--invariant", stdin=spoken)), together)

    def test_a_text_is_its_tokens(self):
        for name in ("bert-cls", "qwen3-embedding"):
            model = self.need(FOLDER / f"{name}.gguf")
            facts = json.loads((FOLDER / f"{name}.json").read_text())
            [example] = [one for one in facts["tokenize"] if one["text"] == "Hello world"]
            flags = ["embed", "-m", model, "--json", "--invariant"]
            self.assertEqual(
                self.ok(*flags, "-p", "Hello world").stdout,
                self.ok(*flags, "--tokens", ids(example["ids_add_special_parse_special"])).stdout)

    def test_a_model_that_writes_text_embeds_when_told_how(self):
        model = self.need(LLAMA)
        self.refuses(USAGE, "embed", "-m", model, "--tokens", "1,2,3",
                     says=["not an embedding model", "llama.pooling_type", "--pooling last"])
        [said] = objects(self.ok("embed", "-m", model, "--tokens", "1,2,3", "--pooling", "last", "--json"))
        self.assertAlmostEqual(math.hypot(*said["embedding"]), 1, 6)


class Refusals(CommandLineTest):
    def test_texts_that_have_no_vector(self):
        model = self.need(BERT)
        self.refuses(USAGE, "embed", "-m", model, "-p", "one", "-p", "", says=["text 2", "empty"])
        self.refuses(USAGE, "embed", "-m", model, "-p", "", says="text 1 is empty: an empty text has no embedding")
        lines = self.write("gap.txt", "one\n\nthree\n")
        self.refuses(USAGE, "embed", "-m", model, "-f", lines, says=["gap.txt, line 2", "empty"])
        self.refuses(USAGE, "embed", "-m", model, "-f", self.write("none.txt", ""),
                     says=["none.txt is empty", "-p TEXT"])
        self.refuses(USAGE, "embed", "-m", model, stdin=b"", says="standard input is empty")
        self.refuses(USAGE, "embed", "-m", model, stdin=b"one\nt\xffwo\n",
                     says=["standard input, line 2", "byte 2", "UTF-8"])
        self.refuses(BAD_FILE, "embed", "-m", model, "-f", "nosuch.txt", says="nosuch.txt")
        self.refuses(USAGE, "embed", "-m", model, "--tokens", "1,512", says=["512", "vocabulary of 512"])
        self.refuses(USAGE, "embed", "-m", model, "--tokens", "1", "-p", "x", says="--tokens")
        self.refuses(USAGE, "embed", "-m", model, "-p", "x", "--pooling", "max", says="--pooling")

    def test_texts_beyond_what_the_model_was_trained_for(self):
        model = self.need(BERT)
        long = "a " * 600
        # Position embeddings end there, whatever is asked for.
        for flags in ([], ["-c", 4096]):
            message = self.refuses(DOES_NOT_FIT, "embed", "-m", model, "-p", "x", "-p", long, *flags,
                                   says=["text 2: 602 tokens", "90 more", "512"])
            self.assertNotIn("-c 602", message)
        roped = self.need(FOLDER / "nomic-bert.gguf")
        self.refuses(DOES_NOT_FIT, "embed", "-m", roped, "-p", long, says="-c 602 goes beyond it")

    def test_an_embedding_model_writes_no_text(self):
        model = self.need(BERT)
        for words in (["run", "-p", "x"], ["chat", "-p", "x"], ["logits", "--tokens", "1", "-o", "x.f32"],
                      ["bench", "-p", "8", "-n", "1"], ["info", "--fit"]):
            self.refuses(USAGE, words[0], "-m", model, *words[1:], says=["embedding model", "pumice embed"])
        self.assertEqual(self.left_behind(), [])

    def test_what_is_no_such_model(self):
        self.need(STORIES)
        self.refuses(USAGE, "embed", "-p", "x", says="no model")
        self.refuses(BAD_FILE, "embed", "-m", "nosuch.gguf", "-p", "x", says="nosuch.gguf")


class Info(CommandLineTest):
    def test_the_program_of_an_embedding_model_is_shown(self):
        text = self.ok("info", "-m", self.need(BERT), "--program").stdout.decode()
        self.assertIn("not causal", text)
        self.assertIn("add_row(", text)
        self.assertIn("pooling cls", text)
        text = self.ok("info", "-m", self.need(FOLDER / "gemma-embedding.gguf"), "--program").stdout.decode()
        self.assertIn("window 33, 16 ahead", text)


if __name__ == "__main__":
    unittest.main()
