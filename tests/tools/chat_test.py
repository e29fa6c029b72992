#!/usr/bin/env python3
"""pumice chat: piped, on a terminal, and what it says when something is wrong."""

import json
import os
import re
import select
import signal
import subprocess
import time
import unittest

from command_line import BAD_FILE, CANCELLED, SHARED, STORIES, USAGE, CommandLineTest

# Words for the model go to standard output, all else to standard error.
TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}a: {% endif %}")


class Chat(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.chat = ["chat", "-m", self.need(STORIES), "--temp", 0]

    def say(self, *lines, flags=(), n=8):
        done = self.ok(*self.chat, "-n", n, *flags, stdin="".join(f"{line}\n" for line in lines).encode())
        return done.stdout.decode(), done.stderr.decode()

    def test_each_line_is_a_message_and_what_was_said_is_read_no_second_time(self):
        out, said = self.say("Once upon a time", "Then")
        self.assertEqual(out.count("\n"), 2, out)
        turns = re.findall(r"\[8 tokens, [\d.]+ tok/s; prompt (\d+), (\d+) of it reused", said)
        self.assertEqual([int(reused) for _, reused in turns][0], 0)
        self.assertGreater(int(turns[1][1]), int(turns[0][0]) - 1, said)
        self.assertIn("has no chat template", said)
        self.assertIn("as a story", said)

    def test_a_template_shapes_what_the_model_sees(self):
        template = self.write("t.jinja", TEMPLATE)
        saved = self.folder / "saved.json"
        flags = ["--chat-template", template, "-sys", "Be kind."]
        _, said = self.say("Hello", f"/save {saved}", flags=flags)
        self.assertNotIn("no chat template", said)
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        text = "s: Be kind.\nu: Hello\na: "
        ids = json.loads(self.ok("tokenize", "-m", STORIES, "-p", text, "--ids").stdout)
        self.assertIn(f"prompt {len(ids)},", said)

    def test_several_lines_are_one_message(self):
        saved = self.folder / "saved.json"
        self.say('"""One', "two", 'three"""', "four\\", "five", f"/save {saved}")
        asked = [m["content"] for m in json.loads(saved.read_text())["messages"] if m["role"] == "user"]
        self.assertEqual(asked, ["One\ntwo\nthree", "four\nfive"])

    def test_undo_regen_load_and_save_change_what_they_say(self):
        first, second = self.folder / "first.json", self.folder / "second.json"
        _, said = self.say("One", "Two", f"/save {first}", "/undo", f"/save {second}", "/regen",
                           f"/load {first}", "/undo", "/undo", "/undo", f"/save {first}", f"/save {first}")
        read = lambda path: json.loads(path.read_text())["messages"]
        self.assertEqual(len(read(second)), 2)
        self.assertEqual(read(first), [], "the file it was loaded from may be replaced")
        self.assertIn("pumice: /undo: nothing was said yet\n", said)

    def test_nobodys_file_is_replaced(self):
        mine = self.write("mine.txt", "mine")
        _, said = self.say("/save mine.txt", "/save", "/load mine.txt", "/load absent.json")
        self.assertEqual(mine.read_text(), "mine")
        self.assertRegex(said, r"pumice: mine.txt: .*exists")
        self.assertIn("/save: no file is named", said)
        self.assertIn("mine.txt: no conversation", said)
        self.assertIn("absent.json: cannot be opened", said)

    def test_a_full_context_is_told_and_follows_the_policy(self):
        lines = ["The little dog ran and ran and ran until it was home again."] * 6
        flags = ["-c", 64]
        _, said = self.say(*lines, flags=flags)
        self.assertRegex(said, r"the context is full: the first (exchange was|\d exchanges were) left out")
        _, said = self.say(*lines, flags=[*flags, "--overflow", "stop"])
        self.assertRegex(said, r"pumice: the conversation has \d+ tokens, \d+ more than the context has room")
        self.assertIn("/clear", said)
        _, said = self.say("The little dog", flags=[*flags, "--ignore-eos"], n=0)
        self.assertIn("ended because the context is full", said)
        _, said = self.say("The little dog", flags=[*flags, "--ignore-eos", "--overflow", "shift"], n=70)
        self.assertIn("made room by dropping older text", said)

    def test_what_is_wrong_says_so_and_the_conversation_goes_on(self):
        out, said = self.say("/nonsense", "/help", "/system", "/system Be kind.", "/system", "Hello", "/stats",
                             "/exit", "never read")
        for words in ("pumice: /nonsense: no such command; /help lists them\n", "/regen", "(no system prompt)\n",
                      "Be kind.\n", "1 requests finished"):
            self.assertIn(words, said)
        self.assertEqual(out.count("\n"), 1)
        refusing = self.write("r.jinja", "{{ raise_exception('Conversation roles must alternate') }}")
        _, said = self.say("Hello", flags=["--chat-template", refusing])
        self.assertIn("roles must alternate", said)
        broken = self.write("b.jinja", "{% for")
        self.refuses(BAD_FILE, *self.chat, "--chat-template", broken, says="b.jinja")
        self.refuses(BAD_FILE, *self.chat, "--chat-template", "absent.jinja", says="absent.jinja")
        self.refuses(USAGE, *self.chat, "--stop", "", says="--stop")


class OnATerminal(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.master, terminal = self.open_terminal()
        self.addCleanup(os.close, self.master)
        # An answer that goes on until it is stopped.
        self.process = self.start("chat", "-m", self.need(STORIES), "--temp", 0, "-c", 512, "--ignore-eos",
                                  "--overflow", "shift",
                                  stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                                  preexec_fn=self.take_terminal, env={"TERM": "xterm", "LC_ALL": "C.UTF-8"})
        os.close(terminal)
        self.seen = ""

    @staticmethod
    def take_terminal():
        import fcntl
        import termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def wait_for(self, words, seconds=120):
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            self.assertLess(time.monotonic(), deadline, self.seen)
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # it ended
                    self.fail(self.seen)
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, text):
        os.write(self.master, text.encode())

    def ended_by_ctrl_d(self, seconds=60):
        """The editor takes the terminal only once it reads, after the prompt: a Ctrl-D before that is lost."""
        for _ in range(seconds):
            self.type("\x04")
            try:
                return self.process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        self.fail("Ctrl-D does not end it")

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        self.wait_for("> ")
        self.type("Once upon a time\n")
        self.wait_for("Once upon a time")
        time.sleep(0.5)
        self.type("\x03")
        self.wait_for("[stopped")
        self.wait_for("> ")
        self.type("half a line\x03")
        self.wait_for("(/exit or Ctrl-D to leave)")
        self.wait_for("> ")
        self.type("/system caf\u00e9\n")
        self.wait_for("(from the next")
        self.wait_for("> ")
        self.type("/system\n")
        self.wait_for("caf\u00e9")
        self.wait_for("> ")
        self.assertEqual(self.ended_by_ctrl_d(), 0)

    def test_a_request_to_end_ends_it(self):
        self.wait_for("> ")
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(60), CANCELLED)


if __name__ == "__main__":
    unittest.main()
