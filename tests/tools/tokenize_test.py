#!/usr/bin/env python3
"""pumice tokenize: ids as JSON, a listing for people; a file with only a vocabulary will do."""

import json
import os
import unittest

from command_line import SHARED, STORIES, VOCABULARY, CommandLineTest


class Tokenize(CommandLineTest):
    def ids(self, *flags, model=VOCABULARY, **options):
        done = self.ok("tokenize", "-m", model, "--ids", *flags, **options)
        self.assertEqual(done.stderr, b"")
        return json.loads(done.stdout)

    def test_ids_are_those_of_the_reference(self):
        texts = self.need(VOCABULARY.with_suffix(".gguf.inp")).read_bytes()
        lines = VOCABULARY.with_suffix(".gguf.out").read_text().split("\n")
        cases = [(text, [int(token) for token in line.split()])
                 for text, line in zip(texts.split(b"\n__ggml_vocab_test__\n"), lines) if text]
        self.assertGreater(len(cases), 30)
        for text, expected in cases:
            with self.subTest(text):
                self.assertEqual(self.ids("--no-bos", "-f", self.write("text", text)), expected)

    def test_the_beginning_of_sequence_comes_first_unless_told_otherwise(self):
        self.need(VOCABULARY)
        self.assertEqual(self.ids("-p", "Hello world"), [1, 15043, 3186])
        self.assertEqual(self.ids("-p", "Hello world", "--no-bos"), [15043, 3186])

    def test_the_prompt_comes_from_flag_file_or_standard_input(self):
        self.need(STORIES)
        text = "Once upon a time, \u00c4pfel\n"
        expected = self.ids("-p", text, model=STORIES)
        self.assertEqual(self.ids("-f", self.write("prompt", text), model=STORIES), expected)
        self.assertEqual(self.ids(stdin=text.encode(), model=STORIES), expected)

    def test_a_prompt_may_look_like_a_flag(self):
        self.need(STORIES)
        for text in ("-x", "--ids", "-- dashes", "-ub", "run"):
            from_file = self.ids("-f", self.write("prompt", text), model=STORIES)
            self.assertEqual(self.ids("-p", text, model=STORIES), from_file, text)

    def test_an_empty_text_has_the_tokens_that_every_text_has(self):
        self.need(STORIES)
        qwen = self.need(SHARED / "tokenizers/qwen3-151k.gguf")
        for empty in ({"flags": ("-p", "")}, {"flags": ("-f", os.devnull)}, {"flags": (), "stdin": b""}):
            flags = empty.pop("flags")
            self.assertEqual(self.ids(*flags, model=qwen, **empty), [])
            self.assertEqual(self.ids(*flags, model=STORIES, **empty), [1])
            self.assertEqual(self.ids(*flags, "--no-bos", model=STORIES, **empty), [])
        self.assertEqual(self.ok("tokenize", "-m", qwen, "-p", "").stdout, b"")

    def test_any_bytes_have_tokens(self):
        self.need(STORIES)
        self.assertGreater(len(self.ids("-f", self.write("bytes", bytes(range(256)) * 40), model=STORIES)), 999)

    def test_the_listing_has_a_line_per_token_with_its_text(self):
        self.need(VOCABULARY)
        lines = self.ok("tokenize", "-m", VOCABULARY, "-p", "Hello world").stdout.decode().splitlines()
        self.assertEqual([line.split(maxsplit=1) for line in lines],
                         [["1", '"<s>"'], ["15043", '"\u2581Hello"'], ["3186", '"\u2581world"']])


if __name__ == "__main__":
    unittest.main()
