#!/usr/bin/env python3
"""pumice template: the text alone, from a file or a model, and what is said where there is none."""

import json
import signal
import struct
import subprocess
import time
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, STORIES, USAGE, CommandLineTest

CHAT = {"messages": [{"role": "user", "content": "Grüße"}]}
TURNS = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
         "{% if add_generation_prompt %}<assistant>{% endif %}")


def gguf(metadata):
    """A file of nothing but metadata: strings, lists of strings and 32-bit numbers."""
    def string(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()

    def value(item):
        if isinstance(item, int):
            return struct.pack("<II", 4, item)
        if isinstance(item, str):
            return struct.pack("<I", 8) + string(item)
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(string, item))

    return (b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
            + b"".join(string(key) + value(item) for key, item in metadata.items()))


class Template(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.context = self.write("chat.json", json.dumps(CHAT))
        self.file = self.write("t.jinja", TURNS)
        self.model = self.write("m.gguf", gguf({
            "tokenizer.chat_template": "{{ bos_token }}" + TURNS + "{{ eos_token }}",
            "tokenizer.chat_template.tool_use": "tools",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"],
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}))

    def text(self, *flags, context=None, **options):
        done = self.ok("template", *flags, "--context", context or self.context, **options)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode()

    def test_the_text_alone_is_printed(self):
        self.assertEqual(self.text("--file", self.file), "<user>Grüße")
        self.assertEqual(self.text("--file", self.file, "--add-generation-prompt"), "<user>Grüße<assistant>")

    def test_a_model_brings_its_template_and_tokens(self):
        self.assertEqual(self.text("-m", self.model), "<s><user>Grüße</s>")
        self.assertEqual(self.text("-m", self.model, "--name", "tool_use"), "tools")
        self.assertEqual(self.text("-m", self.model, "--file", self.write("b.jinja", "{{ bos_token }}")), "<s>")
        own = self.write("own.json", json.dumps({**CHAT, "bos_token": "<mine>"}))
        self.assertEqual(self.text("-m", self.model, context=own), "<mine><user>Grüße</s>")

    def test_the_context_may_come_from_standard_input(self):
        done = self.ok("template", "--file", self.file, stdin=json.dumps(CHAT).encode())
        self.assertEqual(done.stdout.decode(), "<user>Grüße")

    def test_the_time_is_that_of_the_flag(self):
        clock = self.write("clock.jinja", "{{ strftime_now('%A %d %B %Y %H:%M:%S') }}")
        for now, shown in (("2025-07-10T12:30:05", "Thursday 10 July 2025 12:30:05"),
                           ("2025-07-10 12:30", "Thursday 10 July 2025 12:30:00"),
                           ("2025-07-10", "Thursday 10 July 2025 00:00:00")):
            self.assertEqual(self.text("--file", clock, "--now", now), shown)
        for wrong in ("noon", "2025-02-29", "2025-07-10T24:00", "2025-07-10T12", "2025-07-10 12:30:05 x", "-025-07-10"):
            self.refuses(USAGE, "template", "--file", clock, "--context", self.context, "--now=" + wrong,
                         says=["--now", wrong])

    def test_what_is_missing_is_said(self):
        self.refuses(USAGE, "template", "--context", self.context, says=["-m", "--file"])
        bare = self.write("bare.gguf", gguf({"general.name": "x"}))
        self.refuses(BAD_FILE, "template", "-m", bare, "--context", self.context, says=["no chat template", "--file"])
        self.refuses(BAD_FILE, "template", "-m", self.model, "--name", "rag", "--context", self.context,
                     says=["'rag'", "--name tool_use"])
        self.refuses(BAD_FILE, "template", "--file", self.file, "--context", self.write("bad.json", "[1]"),
                     says=["bad.json", "messages"])
        self.refuses(BAD_FILE, "template", "--file", "nosuch.jinja", "--context", self.context, says="nosuch.jinja")

    def test_errors_of_a_template_name_the_line(self):
        bad = self.write("bad.jinja", "a\n{% if %}")
        self.refuses(BAD_FILE, "template", "--file", bad, "--context", self.context, says="line 2")
        refusing = self.write("no.jinja", "\n\n{{ raise_exception('only\nusers') }}")
        self.refuses(USAGE, "template", "--file", refusing, "--context", self.context, says=["line 3", "only"])
        endless = self.write("endless.jinja", "{% for a in range(99999) %}{% for b in range(99999) %}"
                             "{% endfor %}{% endfor %}")
        self.refuses(DOES_NOT_FIT, "template", "--file", endless, "--context", self.context, says="steps")

    def test_an_interrupt_ends_a_long_rendering(self):
        # What a template may take grows with its context: this one would take seconds.
        context = self.write("long.json", json.dumps({"text": "x" * 30_000_000}))
        endless = self.write("endless.jinja", "{% for a in range(99999) %}{% for b in range(99999) %}"
                             "{% endfor %}{% endfor %}")
        process = self.start("template", "--file", endless, "--context", context, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - start, 1)

    def test_the_bundled_kind_of_model_has_none(self):
        self.need(STORIES)
        self.refuses(BAD_FILE, "template", "-m", STORIES, "--context", self.context, says="no chat template")


if __name__ == "__main__":
    unittest.main()
