#!/usr/bin/env python3
"""Checks that need neither torch nor the trained model: python3 -m unittest test_demo_model"""

import os
import random
import tempfile
import unittest

import numpy as np

import gguf_reader
import gguf_writer
import grammar
from numpy_llama import pick
from story_rules import RULES
from story_words import CLASSES, SLOTS
from tokenizer import FIRST_BYTE, SPACE, Tokenizer
from train_tokenizer import train

FINN = (
    "Finn was a calm boy who lived by a wide river. He loved his grandmother very much. One misty "
    "afternoon, he was walking at the harbour. All at once he heard someone cry for help. Finn "
    "found a small dog that was caught in a net.\n\nFinn spoke softly to the dog. Then he "
    "pulled it out. The dog jumped up and was well again. He felt very happy. "
    "\"What a wonderful boy you are!\" said his grandmother. From that day on, Finn and the dog were "
    "friends.")


def stories(count, seed=7):
    rng = random.Random(seed)
    return [grammar.generate(rng) for _ in range(count)]


def hero_of(pieces):
    names = {child["name"] for child in CLASSES["hero"]}
    return next(text for text, _ in pieces if text in names)


class Grammar(unittest.TestCase):
    def test_every_generated_story_parses(self):
        for story in stories(500):
            self.assertIsNone(grammar.failure(story), story)

    def test_same_seed_same_stories(self):
        self.assertEqual(stories(5, seed=3), stories(5, seed=3))
        self.assertNotEqual(stories(5, seed=3), stories(5, seed=4))

    def test_pieces_say_what_the_story_has_already_chosen(self):
        for seed in range(50):
            pieces = grammar.derive(random.Random(seed))
            self.assertEqual("".join(text for text, _ in pieces),
                             grammar.generate(random.Random(seed)))
            heroes = [known for text, known in pieces if text == hero_of(pieces)]
            self.assertTrue(all(heroes[1:]))
            self.assertEqual([known for _, known in pieces[:2]], [False, False])

    def test_excerpts_are_no_stories(self):
        for seed in range(50):
            pieces = grammar.derive_excerpt(random.Random(seed), 3)
            self.assertFalse(grammar.is_story("".join(text for text, _ in pieces)))

    def test_stories_are_short_and_have_two_paragraphs(self):
        for story in stories(500):
            self.assertTrue(60 <= len(story.split()) <= 160, story)
            self.assertEqual(story.count("\n\n"), 1)

    def test_every_rule_and_word_is_used(self):
        text = "".join(a for alternatives in RULES.values() for a in alternatives) + "<story>"
        for rule in RULES:
            self.assertRegex(text, f"<{rule}\\??>")
        self.assertEqual(set(SLOTS.values()), set(CLASSES))
        for slot in SLOTS:
            self.assertRegex(text, f"{{{slot}[.}}]")

    def test_a_story_written_by_hand_parses(self):
        self.assertIsNone(grammar.failure(FINN))
        self.assertIsNone(grammar.failure(" " + FINN + "\n"))

    def reject(self, old, new):
        self.assertIn(old, FINN)
        self.assertFalse(grammar.is_story(FINN.replace(old, new, 1)), f"{old!r} -> {new!r}")

    def test_a_wrong_pronoun_is_rejected(self):
        self.reject("He loved", "She loved")
        self.reject("Then he", "Then she")
        self.reject("said his", "said her")

    def test_another_name_is_rejected(self):
        self.reject("Finn spoke", "Leo spoke")
        self.reject("Finn spoke", "Mia spoke")

    def test_a_forgotten_thread_is_rejected(self):
        self.reject("The dog jumped", "The fox jumped")
        self.reject("said his grandmother", "said his mother")
        self.reject("wonderful boy", "wonderful girl")

    def test_a_dropped_or_repeated_sentence_is_rejected(self):
        self.reject("Then he pulled it out. ", "")
        self.reject(" From that day on, Finn and the dog were friends.", "")
        self.reject("He felt very happy. ", "He felt very happy. He felt very happy. ")

    def test_damaged_form_is_rejected(self):
        self.reject("\n\n", " ")
        self.reject("Then he", "Then  he")
        self.assertFalse(grammar.is_story(""))
        self.assertFalse(grammar.is_story(FINN + " " + FINN))
        self.assertFalse(grammar.is_story(FINN[:-1]))

    def test_failure_names_where_it_went_wrong(self):
        broken = FINN.replace("The dog jumped", "The fox jumped")
        self.assertEqual(grammar.failure(broken), broken.index("fox jumped"))


class TokenizerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = train(stories(300), 600)

    def test_stories_round_trip(self):
        for story in stories(50, seed=11):
            self.assertEqual(self.tokenizer.decode(self.tokenizer.encode(story)), story)

    def test_any_text_round_trips(self):
        for text in ("", " ", "  two  spaces ", "Zebra 42!", "caf\u00e9 \u2603 \U0001f98a", "\n\t\n"):
            self.assertEqual(self.tokenizer.decode(self.tokenizer.encode(text)), text)

    def test_unknown_characters_become_bytes(self):
        ids = self.tokenizer.encode("\u00e9")
        self.assertEqual(ids[1:], [FIRST_BYTE + 0xC3, FIRST_BYTE + 0xA9])

    def test_chunks_change_nothing(self):
        for text in stories(20, seed=13) + ["a  b", "x,y \n z", "don't \u00e9t\u00e9"]:
            whole = self.tokenizer.encode_symbols((" " + text).replace(" ", SPACE))
            self.assertEqual(self.tokenizer.encode(text), whole)

    def test_highest_score_merges_first_then_leftmost(self):
        tokens = ["<unk>", "<s>", "</s>", "ab", "bc", "aa", "a", "b", "c"]
        scores = [0.0, 0.0, 0.0, -2.0, -1.0, -3.0, -4.0, -5.0, -6.0]
        small = Tokenizer(tokens, scores, [2, 3, 3] + [1] * 6)
        self.assertEqual(small.encode_symbols("abc"), [6, 4])
        self.assertEqual(small.encode_symbols("aaa"), [5, 6])

    def test_saved_and_loaded_is_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            self.tokenizer.save(path)
            self.assertEqual(vars(Tokenizer.load(path))["tokens"], self.tokenizer.tokens)
            self.assertEqual(Tokenizer.load(path).encode(FINN), self.tokenizer.encode(FINN))


class Gguf(unittest.TestCase):
    def test_what_is_written_is_read(self):
        metadata = {"general.architecture": "llama", "n": 7, "eps": 0.5, "yes": True,
                    "no": False, "words": ["a", "\u2581b"], "scores": [0.0, -1.0], "types": [2, 1]}
        rng = np.random.default_rng(1)
        tensors = {"m.weight": rng.random((3, 5)).astype(np.float16),
                   "v.weight": rng.random(7).astype(np.float32)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.gguf")
            gguf_writer.write(path, metadata, tensors)
            read_metadata, read_tensors = gguf_reader.read(path)
            self.assertEqual(os.path.getsize(path) % gguf_writer.ALIGNMENT, 0)
        self.assertEqual(read_metadata, metadata)
        self.assertEqual(list(read_tensors), list(tensors))
        for name, array in tensors.items():
            self.assertEqual(read_tensors[name].dtype, array.dtype)
            np.testing.assert_array_equal(read_tensors[name], array)

    def test_other_files_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.gguf")
            with open(path, "wb") as file:
                file.write(b"ELF.")
            self.assertRaises(ValueError, gguf_reader.read, path)


class Sampling(unittest.TestCase):
    def test_temperature_zero_takes_the_likeliest(self):
        logits = np.array([[0.0, 3.0, 1.0], [5.0, 0.0, 4.0]])
        rng = np.random.default_rng(1)
        self.assertEqual(pick(logits, rng, 0, 1.0).tolist(), [1, 0])

    def test_top_p_keeps_the_smallest_set_that_reaches_it(self):
        logits = np.log(np.tile([0.5, 0.3, 0.15, 0.05], (4000, 1)))
        drawn = pick(logits, np.random.default_rng(1), 1.0, 0.7)
        self.assertEqual(set(drawn.tolist()), {0, 1})
        self.assertAlmostEqual((drawn == 0).mean(), 0.5 / 0.8, delta=0.03)


if __name__ == "__main__":
    unittest.main()
