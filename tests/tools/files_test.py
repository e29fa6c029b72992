#!/usr/bin/env python3
"""Files that are not what they should be, and every file that is: no device is opened here."""

import json
import os
import struct
import unittest

from command_line import (BAD_FILE, DOES_NOT_FIT, SHARED, STORIES, USAGE, VOCABULARY,
                          CommandLineTest)
from gguf_split import split_gguf

MALFORMED = SHARED / "gguf-malformed"


class NestedJson(CommandLineTest):
    """Whoever reads JSON of others refuses what is nested a million deep, and does not run out of stack."""

    def test_every_command_that_reads_json(self):
        deep = self.write("deep.json", "[" * 1_000_000)
        objects = self.write("objects.json", '{"a":' * 1_000_000)
        template = self.write("t.jinja", "{{ messages }}")
        for file in (deep, objects):
            jsonl = self.write("trace.jsonl", file.read_text()[:500_000])
            for arguments in (("template", "--file", template, "--context", file),
                              ("bench", "--compare", file, file),
                              ("report", file, "-o", "page.html"),
                              ("sim", "--synthetic", "2", "--device-model", file),
                              ("sim", "--trace", jsonl)):
                with self.subTest(command=arguments[:2], file=file.name):
                    message = self.refuses(BAD_FILE, *arguments)
                    self.assertIn("nested", message)
        self.assertEqual(self.left_behind(), ["deep.json", "objects.json", "t.jinja", "trace.jsonl"])


class ModelFile(CommandLineTest):
    def refused_by_all(self, path, says=()):
        self.refuses(BAD_FILE, "info", "-m", path, says=says)
        self.refuses(BAD_FILE, "tokenize", "-m", path, "-p", "x", says=says)
        self.refuses(BAD_FILE, "run", "-m", path, "-p", "x", says=says)
        self.refuses(BAD_FILE, "logits", "-m", path, "--tokens", "1", "-o", "out.f32", says=says)

    def test_a_missing_file_a_folder_and_an_empty_file_say_so(self):
        self.refused_by_all("nosuch.gguf", says="nosuch.gguf: No such file")
        self.refused_by_all(self.folder, says="not a regular file")
        self.refused_by_all(self.write("empty.gguf", ""), says="empty")
        self.assertEqual(self.left_behind(), ["empty.gguf"])

    def test_a_file_of_another_kind_is_no_gguf(self):
        self.refused_by_all(self.write("text.gguf", "Once upon a time, there was a file.\n" * 99))

    def part(self, number, count):
        """A file that says it is a part, with nothing in it."""
        content = struct.pack("<4sIQQ", b"GGUF", 3, 0, 3)
        for key, value in (("split.no", number - 1), ("split.count", count), ("split.tensors.count", 0)):
            content += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value)
        return self.write(f"x-{number:05}-of-{count:05}.gguf", content)

    def test_parts_of_a_model_are_opened_by_the_first_and_named_when_they_are_missing(self):
        first, second = self.part(1, 3), self.part(2, 3)
        self.refused_by_all(second, says=("part 2 of 3", "open the first", "x-00001-of-00003.gguf"))
        self.refused_by_all(first, says=("x-00003-of-00003.gguf: No such file", "part 3 of"))
        self.part(3, 3)
        self.assertIn("in 3 files", self.ok("info", "-m", first).stdout.decode())
        self.assertEqual(json.loads(self.ok("info", "-m", first, "--json").stdout)["files"], 3)

    def test_a_model_in_parts_is_described_as_the_whole_one(self):
        for number, content in enumerate(split_gguf(self.need(STORIES).read_bytes(), 3), 1):
            self.write(f"s-{number:05}-of-00003.gguf", content)
        whole, split = (json.loads(self.ok("info", "-m", path, "--json").stdout)
                        for path in (STORIES, self.folder / "s-00001-of-00003.gguf"))
        self.assertEqual(split["tensors"], whole["tensors"])
        self.assertEqual(split["memory"], whole["memory"])

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_file_without_permission_says_so(self):
        path = self.write("secret.gguf", "x")
        path.chmod(0)
        self.refused_by_all(path, says="Permission denied")

    def test_malformed_files_are_refused_and_valid_ones_listed(self):
        files = sorted(self.need(MALFORMED).glob("*.gguf"))
        for path in files:
            with self.subTest(path.name):
                if "ACCEPT" in path.name:
                    self.ok("info", "-m", path)
                else:
                    self.refused_by_all(path)
        self.assertGreaterEqual(len(files), 14)
        self.assertEqual(self.left_behind(), [])

    def test_a_model_cut_anywhere_is_refused(self):
        whole = self.need(STORIES).read_bytes()
        every = [len(whole) * i // 32 for i in range(1, 32)]
        early = [1, 3, 4, 7, 8, 15, 16, 23, 24, 25, 40, 100, 1000, len(whole) - 1]
        for size in sorted(every + early):
            with self.subTest(bytes=size):
                self.refuses(BAD_FILE, "info", "-m", self.write("cut.gguf", whole[:size]))
        for size in (20, 5000, len(whole) // 2, len(whole) - 1):
            with self.subTest(bytes=size):
                self.refused_by_all(self.write("cut.gguf", whole[:size]))
        self.assertEqual(self.left_behind(), ["cut.gguf"])

    def test_a_models_program_can_be_read(self):
        path = self.need(SHARED / "reference/families/gemma3.gguf")
        text = self.ok("info", "-m", path, "--program").stdout.decode()
        self.assertIn("attention = attention(attn_q_norm.rope, kv; 4 heads of 64", text)
        listed = json.loads(self.ok("info", "-m", path, "--program", "--json").stdout)["program"]
        self.assertEqual([group["window"] for group in listed["state_groups"]], [32, 0])
        attention = [op for op in listed["ops"] if op["op"] == "attention"]
        self.assertEqual([op["layer"] for op in attention], list(range(6)))
        self.assertEqual(listed["ops"][0]["layer"], None)
        self.assertEqual(listed["ops"][2]["tensors"], ["blk.0.attn_norm.weight"])
        self.assertEqual(listed["ops"][-1]["tensors"], ["token_embd.weight"])
        self.refuses(BAD_FILE, "info", "-m", self.need(VOCABULARY), "--program", says="not a model")
        self.refuses(USAGE, "info", "--program", says="-m FILE")

    def test_every_valid_gguf_is_listed_with_its_metadata_and_tensors(self):
        files = [path for folder in ("models", "reference/families", "reference/quants", "tokenizers")
                 for path in sorted(self.need(SHARED / folder).glob("*.gguf"))]
        self.assertGreater(len(files), 30)
        for path in files:
            with self.subTest(path.name):
                listed = json.loads(self.ok("info", "-m", path, "--json").stdout)
                self.assertIn("general.architecture", listed["metadata"])
                if path.parent.name != "tokenizers":
                    self.assertIn("token_embd.weight", [t["name"] for t in listed["tensors"]])
                self.assertIn("memory" if listed["runnable"] else "reason", listed)

    def test_info_for_people_shows_metadata_tensors_and_the_memory_estimate(self):
        text = self.ok("info", "-m", self.need(STORIES)).stdout.decode()
        for words in ("GGUF v3", "llama.context_length = 512", "token_embd.weight", "64 x 512",
                      "memory estimate", "KV cache", "for 512 tokens"):
            self.assertIn(words, text)
        self.assertIn("not a model", self.ok("info", "-m", self.need(VOCABULARY)).stdout.decode())

    def test_a_vocabulary_alone_cannot_run(self):
        path = self.need(VOCABULARY)
        self.refuses(BAD_FILE, "run", "-m", path, "-p", "x", says="not a model")
        self.refuses(BAD_FILE, "logits", "-m", path, "--tokens", "1", "-o", "out.f32",
                     says="not a model")
        self.assertEqual(self.left_behind(), [])


class Prompt(CommandLineTest):
    def each(self, code, *flags, **options):
        self.need(STORIES)
        for command, more in (("run", ()), ("tokenize", ()), ("logits", ("-o", "out.f32"))):
            self.refuses(code, command, "-m", STORIES, *flags, *more, **options)

    def test_an_empty_prompt_is_the_beginning_of_a_text(self):
        self.need(STORIES)
        for empty in (("-p", ""), ("-f", os.devnull)):
            done = self.ok("run", "-m", STORIES, "-n", 4, "--temp", 0, "--json", *empty)
            self.assertEqual(json.loads(done.stdout)["timings"]["prompt_n"], 1)
            self.ok("logits", "-m", STORIES, "-o", "out.f32", *empty)
            self.assertEqual((self.folder / "out.f32").stat().st_size, 512 * 4)

    def test_a_model_without_a_beginning_needs_text(self):
        model = self.need(SHARED / "reference/families/bailingmoe2.gguf")
        for command, *more in (["run"], ["logits", "-o", "out.f32"]):
            self.refuses(USAGE, command, "-m", model, "-p", "", *more,
                         says=["the prompt is empty", "no beginning-of-text token", "give it some text"])
        self.assertEqual(self.left_behind(), [])

    def test_nothing_on_standard_input_is_no_prompt(self):
        self.need(STORIES)
        for command, *more in (["run"], ["logits", "-o", "out.f32"]):
            self.refuses(USAGE, command, "-m", STORIES, *more, stdin=b"",
                         says=["standard input is empty", "-p TEXT"])
        self.assertEqual(self.left_behind(), [])

    def test_a_prompt_file_that_cannot_be_read_is_named(self):
        self.each(BAD_FILE, "-f", "nosuch.txt", says="nosuch.txt")
        self.each(BAD_FILE, "-f", self.folder, says="is a directory")
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.each(BAD_FILE, stdin=folder, says="standard input: cannot be read")
        self.assertEqual(self.left_behind(), [])

    def test_a_prompt_without_end_stops_at_a_limit(self):
        self.need(STORIES)
        self.refuses(DOES_NOT_FIT, "tokenize", "-m", STORIES, "-f", "/dev/zero", says="larger than")


class TokenList(CommandLineTest):
    def test_tokens_that_are_no_ids_are_refused_with_what_was_read(self):
        self.need(STORIES)
        for text, words in (("1,a", "'a'"), ("1,,2", "'1,,2'"), ("", "expected numbers"), ("1,", "expected"),
                            ("-1", "'-1'"), ("1 2", "1 2"), ("1.5", "1.5"), ("99999999999999", "999")):
            with self.subTest(text):
                self.refuses(USAGE, "logits", "-m", STORIES, "--tokens", text, "-o", "out.f32",
                             says=words)
        self.assertEqual(self.left_behind(), [])


if __name__ == "__main__":
    unittest.main()
