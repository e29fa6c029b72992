#!/usr/bin/env python3
"""pumice run and chat with texts that are held to a schema, a grammar or a regular expression, by the bundled model, which
knows stories and has never seen JSON."""

import json
import pathlib
import re
import unittest

from command_line import BAD_FILE, USAGE, CommandLineTest

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/pumice-stories.gguf"
DOG = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "friends": {"type": "array", "items": {"enum": ["Tom", "Mia", "the cat"]}, "maxItems": 3},
    },
    "required": ["name", "age", "friends"],
    "additionalProperties": False,
}


class ConstraintTest(CommandLineTest):
    def says(self, *flags):
        done = self.ok("run", "-m", MODEL, "-p", "Once upon a time", "-n", 400, "--json", *flags)
        return json.loads(done.stdout)

    def check_dog(self, said):
        self.assertEqual(said["end_reason"], "stop", said["text"])
        dog = json.loads(said["text"])
        self.assertEqual(list(dog), ["name", "age", "friends"])
        self.assertLessEqual(len(dog["name"]), 12)
        self.assertIsInstance(dog["age"], int)
        self.assertIn(dog["age"], range(31))
        self.assertLessEqual(len(dog["friends"]), 3)
        self.assertLessEqual(set(dog["friends"]), {"Tom", "Mia", "the cat"})

    def test_json_of_a_schema_is_valid_greedy_and_at_any_seed(self):
        schema = json.dumps(DOG)
        self.check_dog(self.says("-j", schema, "--temp", 0))
        said = self.says("-j", schema, "--temp", 1, "--top-k", 0, "--min-p", 0, "--top-p", 1, "-s", 1, "--choices", 6)
        for choice in said["choices"]:
            self.check_dog(choice)
        file = self.write("dog.json", schema)
        self.check_dog(self.says("-jf", file, "--temp", 1.5, "-s", 3))
        self.check_dog(self.says("--json-schema-file", file, "--temp", 1, "--repeat-penalty", 1.3, "-s", 4))

    def test_text_matches_its_regular_expression(self):
        pattern = r" (yes|no), because [a-z ]{5,20}\."
        for flags in (("--temp", 0), ("--temp", 1, "-s", 2)):
            said = self.says("--regex", pattern, *flags)
            self.assertTrue(re.fullmatch(pattern, said["text"]), said["text"])
            self.assertEqual(said["end_reason"], "stop")
        # Alone in a pipe, too.
        done = self.ok("run", "-m", MODEL, "-p", "Once", "--regex", "[0-9]{4}-[0-9]{2}", "--temp", 1, "-s", 5)
        self.assertTrue(re.fullmatch(rb"[0-9]{4}-[0-9]{2}", done.stdout), done.stdout)

    def test_text_is_one_of_its_grammar(self):
        grammar = 'root ::= move (", " move){2}\nmove ::= [a-h] [1-8] "-" [a-h] [1-8]'
        move = "[a-h][1-8]-[a-h][1-8]"
        for flags in (("--grammar", grammar), ("--grammar-file", self.write("moves.gbnf", grammar))):
            said = self.says(*flags, "--temp", 1, "-s", 3)
            self.assertTrue(re.fullmatch(f"{move}, {move}, {move}", said["text"]), said["text"])

    def test_each_line_and_each_answer_is_held_to_it(self):
        lines = self.ok("run", "-m", MODEL, "--repl", "--regex", "[a-z]{3}", stdin=b"Once upon\nThe dog\n")
        self.assertEqual([len(line) for line in lines.stdout.split()], [3, 3], lines.stdout)
        answers = self.ok("chat", "-m", MODEL, "--regex", "(yes|no)", stdin=b"Was Tom sad?\nWhy?\n")
        self.assertTrue(all(answer in (b"yes", b"no") for answer in answers.stdout.split()), answers.stdout)
        self.assertEqual(len(answers.stdout.split()), 2)

    def test_what_cannot_be_held_to_is_refused_before_there_is_a_model(self):
        nested = '{"properties": {"a": {"items": {"format": "no-such"}}}}'
        for command in ("run", "chat"):
            for flags, says in (
                    (("-j", nested), ("--json-schema", "/properties/a/items/format")),
                    (("-j", "{"), "--json-schema"),
                    (("-j", '{"type": "nosuch"}'), "/type"),
                    (("-j", '{"type": "array", "minItems": 1, "items": {"type": "null", "enum": [1]}}'), "#/items: no value"),
                    (("-jf", self.write("bad.json", nested)), ("bad.json", "/properties/a/items/format")),
                    (("--grammar", "root ::= nosuch"), ("--grammar", "nosuch")),
                    (("--grammar", "root ::= (\"a\""), "--grammar"),
                    (("--regex", "(a"), "--regex"),
                    (("--regex", "(?=a)b"), "--regex"),
                    (("--regex", "(" * 5000 + ")" * 5000), "--regex"),
                    (("--grammar", "root ::= " + "(" * 20000), "--grammar"),
                    (("-j", '{"items":' * 5000 + "{}" + "}" * 5000), "--json-schema"),
                    (("--regex", "a", "-j", "{}"), "--regex")):
                with self.subTest(command=command, flags=flags):
                    self.refuses(USAGE, command, "-m", "nosuch.gguf", "-p", "x", *flags, says=says)
            self.refuses(BAD_FILE, command, "-m", "nosuch.gguf", "-p", "x", "-jf", "nosuch.json", says="nosuch.json")
        # Tokens are the model's.
        self.refuses(USAGE, "run", "-m", MODEL, "-p", "x", "--grammar", "root ::= <nosuch>", says="<nosuch>")


if __name__ == "__main__":
    unittest.main()
