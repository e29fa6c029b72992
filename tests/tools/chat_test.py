#!/usr/bin/env python3
"""pumice chat: piped, on a terminal, and what it says when something is wrong."""

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
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
        self.assertIn("has no chat template, so it is not a chat model: it only continues the text you type", said)

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
        self.assertIn("pumice: /undo: nothing to undo\n", said)
        self.assertIn("(4 messages saved to ", said)
        self.assertIn("(taken back; 2 messages left)\n", said)

    def test_counts_are_of_what_was_said(self):
        saved = self.write("one.json", json.dumps({"messages": [{"role": "system", "content": "Be kind."}]}))
        _, said = self.say(f"/load {saved}", "/stats", "/undo", "/retry", flags=["-sys", "Be brief."])
        self.assertIn("(0 messages from ", said)
        self.assertIn("0 messages\n", said)
        self.assertIn("pumice: /undo: nothing to undo\n", said)
        self.assertIn("pumice: /retry: nothing to answer again\n", said)
        _, said = self.say("/load late.json", "/stats", flags=["--overflow", "stop"])
        self.assertIn("pumice: late.json: ", said)

    def test_a_saved_question_is_answered(self):
        asked = {"messages": [{"role": "user", "content": "Once upon a time"}]}
        self.write("asked.json", json.dumps(asked))
        self.write("unanswerable.json", json.dumps({"messages": [{"role": "user", "content": "word " * 3000}]}))
        out, said = self.say("Hello", "/load unanswerable.json", "/undo", "/load asked.json", "Then", "/save all.json")
        self.assertIn("pumice: the message has ", said)
        self.assertIn("(taken back; 0 messages left)", said, "what cannot be answered is not loaded")
        self.assertIn("(1 message from asked.json)\n(the last one has no answer yet)\n", said)
        roles = [m["role"] for m in json.loads((self.folder / "all.json").read_text())["messages"]]
        self.assertEqual(roles, 2 * ["user", "assistant"])
        alone, _ = self.say("Once upon a time")
        self.assertIn(alone, out)
        self.say("/load all.json", "/save again.json")
        self.assertEqual((self.folder / "all.json").read_text(), (self.folder / "again.json").read_text())

    def test_what_was_computed_is_saved_and_taken_back(self):
        reused = lambda said: int(re.search(r"prompt \d+, (\d+) of it reused", said)[1])
        flags = ["--chat-template", self.write("t.jinja", TEMPLATE)]
        self.say("Once upon a time there was a little dog who liked to run", "/save a.json", flags=flags)
        kept = (self.folder / "a.json.kv").read_bytes()
        went_on, said = self.say("/load a.json", "Then", flags=flags)
        self.assertRegex(said, r"\(\d+ tokens of it need not be computed again\)")
        self.assertGreater(reused(said), 15)
        (self.folder / "a.json.kv").unlink()
        computed, said = self.say("/load a.json", "Then", "/save a.json", flags=flags)
        self.assertEqual(reused(said), 0)
        self.assertEqual(computed, went_on)
        self.assertTrue((self.folder / "a.json.kv").exists(), "an answer was computed")
        # What does not belong to the messages is no harm.
        for state, reason in ((kept, "a.json.kv belongs to other messages"), (kept[:-1], "a.json.kv: saved conversation")):
            (self.folder / "a.json.kv").write_bytes(state)
            again, said = self.say("/load a.json", "Go on", flags=flags)
            self.assertIn(f"(what was computed of it cannot be used: {reason}", " ".join(said.split()))
            (self.folder / "a.json.kv").unlink()
            self.assertEqual(again, self.say("/load a.json", "Go on", flags=flags)[0])

    def test_only_a_file_that_loses_nothing_is_replaced(self):
        more = {"title": "kept", "messages": [{"role": "user", "content": "a", "name": "Ann"},
                                              {"role": "assistant", "content": "b"}]}
        mine = self.write("more.json", json.dumps(more))
        _, said = self.say("/load more.json", "/save more.json", "/save own.json", "/undo", "/save own.json")
        self.assertEqual(json.loads(mine.read_text()), more)
        self.assertRegex(said, r"pumice: more.json: .*exists")
        self.assertEqual(json.loads((self.folder / "own.json").read_text()), {"messages": []})

    def test_names_of_files_do_not_reach_the_terminal_raw(self):
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")
        model = (self.folder / "tiny.gguf").read_bytes()
        key = b"general.name"
        at = model.index(key) + len(key) + 4
        length = int.from_bytes(model[at:at + 8], "little")
        name = (b"\x1b]0;owned\x07" + length * b"x")[:length]
        self.write("named.gguf", model[:at + 8] + name + model[at + 8 + length:])
        done = self.pumice("chat", "-m", "named.gguf", "-n", 2, stdin=b"")
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertIn(b"\\x1b]0", done.stderr)

    def test_messages_hold_control_tokens_only_where_they_are_trusted(self):
        template = self.write("t.jinja", TEMPLATE)
        plain = "u: a</s>b\na: "
        ids = {flags: len(json.loads(self.ok("tokenize", "-m", STORIES, "-p", plain, "--ids", *flags).stdout))
               for flags in ((), ("--parse-special",))}
        self.assertGreater(ids[()], ids[("--parse-special",)])
        flags = ["--chat-template", template]
        for trust, parse in (((), ()), (("--trust-special",), ("--parse-special",))):
            _, said = self.say("a</s>b", flags=[*flags, *trust])
            self.assertIn(f"prompt {ids[parse]},", said)

    def test_sampling_can_be_changed(self):
        _, said = self.say("/set", "/set temp 0.5", "/set top-k 7", "/set seed 9", "/set temp warm", "/set top-p 2",
                           "/set colour red", "/set", "/set temp 0", "/bye", "never read")
        self.assertRegex(said, r"\(temp 0, top-k 40, .*presence-penalty 0\)\n")
        self.assertRegex(said, r"\(temp 0.5, top-k 7, top-p 0.95, min-p 0.05, seed 9, ")
        for words in ("/set temp: 'warm' is not a value for it", "pumice: /set top-p: ",
                      "pumice: /set colour: no such setting; /set lists them"):
            self.assertIn(words, said)
        # What was set counts, and what was not stays.
        first, _ = self.say("Once", "/set temp 1", "/set seed 3", "/clear", "Once", n=30)
        second, _ = self.say("Once", "/set temp 1", "/set seed 4", "/clear", "Once", n=30)
        again, _ = self.say("Once", "/set temp 1", "/set seed 3", "/clear", "Once", n=30)
        self.assertEqual(first, again)
        self.assertNotEqual(first, second)

    def test_nobodys_file_is_replaced(self):
        mine = self.write("mine.txt", "mine")
        _, said = self.say("/save mine.txt", "/save", "/load mine.txt", "/load absent.json")
        self.assertEqual(mine.read_text(), "mine")
        self.assertRegex(said, r"pumice: mine.txt: .*exists")
        self.assertIn("pumice: /save: give a file name: /save FILE\n", said)
        self.assertIn("mine.txt: no conversation", said)
        self.assertIn("absent.json: cannot be opened", said)

    def test_a_full_context_is_told_and_follows_the_policy(self):
        lines = ["The little dog ran and ran and ran until it was home again."] * 6
        flags = ["-c", 64]
        _, said = self.say(*lines, flags=flags)
        self.assertRegex(said, r"the context is full: the model no longer sees the first (exchange|\d exchanges)\]")
        _, said = self.say(*lines, flags=[*flags, "--overflow", "stop"])
        self.assertRegex(said, r"pumice: the conversation has \d+ tokens, \d+ more than the context has room")
        self.assertIn("/clear", said)
        _, said = self.say("The little dog", flags=[*flags, "--ignore-eos"], n=0)
        self.assertIn("ends here because the context is full", said)
        _, said = self.say("The little dog", flags=[*flags, "--ignore-eos", "--overflow", "shift"], n=70)
        self.assertRegex(said, r"the context was full \d+ times?: older text was dropped")

    def test_what_is_wrong_says_so_and_the_conversation_goes_on(self):
        out, said = self.say("/nonsense", "/help", "/system", "/system Be kind.", "/system", "Hello", "/stats",
                             "/exit", "never read")
        for words in ("pumice: /nonsense: no such command; /help lists them\n", "/retry", "(no system prompt)\n",
                      "Be kind.\n", "1 request finished"):
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
        self.open_chat()

    def open_chat(self, *flags, columns=80, **environment):
        self.master, terminal = self.open_terminal()
        self.addCleanup(os.close, self.master)
        self.resize(columns)
        # An answer that goes on until it is stopped.
        self.process = self.start("chat", "-m", self.need(STORIES), "--temp", 0, "-c", 512, "--ignore-eos",
                                  "--overflow", "shift", *flags,
                                  stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                                  preexec_fn=self.take_terminal,
                                  env={"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        os.close(terminal)
        self.seen = ""

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    @staticmethod
    def take_terminal():
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

    def wait_for_prompt(self, seconds=60):
        """Until the editor reads keys: what is typed before that the terminal itself echoes, or takes."""
        self.wait_for("> ")
        deadline = time.monotonic() + seconds
        while termios.tcgetattr(self.master)[3] & termios.ICANON:
            self.assertLess(time.monotonic(), deadline, "the editor does not take the terminal")
            time.sleep(0.01)

    def type(self, text):
        os.write(self.master, text.encode())

    def ended_by_ctrl_d(self):
        self.type("\x04")
        return self.process.wait(60)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        self.wait_for_prompt()
        self.type("Once upon a time\n")
        self.wait_for("Once upon a time")
        time.sleep(0.5)
        self.type("\x03")
        self.wait_for("[stopped")
        self.wait_for_prompt()
        self.type("half a line\x03")
        self.wait_for("(type /exit or press Ctrl-D to leave)")
        self.wait_for_prompt()
        self.type("/system caf\u00e9\n")
        self.wait_for("(applies from the next")
        self.wait_for_prompt()
        self.type("/system\n")
        self.wait_for("caf\u00e9")
        self.wait_for_prompt()
        self.assertEqual(self.ended_by_ctrl_d(), 0)

    def test_a_request_to_end_ends_it(self):
        self.wait_for_prompt()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(60), CANCELLED)

    def test_what_is_typed_during_an_answer_waits_for_its_end(self):
        self.wait_for_prompt()
        self.ended_by_ctrl_d()
        self.open_chat("-n", 400)
        self.wait_for_prompt()
        self.type("Once upon a time\n")
        self.wait_for("there was")
        self.type("/system typed ahead\n")
        self.assertNotIn("typed ahead", self.wait_for("[400 tokens"))
        self.wait_for("typed ahead")
        self.wait_for("(applies from the next")
        self.wait_for_prompt()

    def test_lines_are_remembered_by_the_next_chat(self):
        self.wait_for_prompt()
        self.type("/system first\n")
        self.wait_for("(applies from")
        self.wait_for_prompt()
        self.type("/system second\n")
        self.wait_for("(applies from")
        self.wait_for_prompt()
        self.assertEqual(self.ended_by_ctrl_d(), 0)
        file = self.folder / "config/pumice/chat_history"
        self.assertEqual(file.read_text(), "/system first\n/system second\n")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.open_chat()
        self.wait_for_prompt()
        self.type("\x1b[A\x1b[A\n")  # up twice
        self.wait_for("(applies from")
        self.wait_for_prompt()
        self.type("/system\n")
        self.wait_for("first\r\n")
        self.wait_for_prompt()
        self.assertEqual(self.ended_by_ctrl_d(), 0)
        self.assertEqual(file.read_text().count("/system first\n"), 2)

    def test_a_history_that_cannot_be_kept_or_is_not_wanted_stops_nothing(self):
        self.wait_for_prompt()
        self.assertEqual(self.ended_by_ctrl_d(), 0)
        state = self.write("state", "a file")
        fifo = self.folder / "fifos/pumice/chat_history"
        fifo.parent.mkdir(parents=True)
        os.mkfifo(fifo)
        for flags, environment in (((), {"XDG_STATE_HOME": str(state)}),
                                   ((), {"XDG_STATE_HOME": str(self.folder / "fifos")}),
                                   (("--no-history",), {}), ((), {"PUMICE_NO_HISTORY": "1"})):
            self.open_chat(*flags, **environment)
            self.wait_for_prompt()
            self.type("/system Be kind.\n")
            self.wait_for("(applies from")
            self.wait_for_prompt()
            self.assertEqual(self.ended_by_ctrl_d(), 0)
        self.assertFalse((self.folder / "config/pumice/chat_history").exists())

    def test_a_line_is_drawn_again_when_the_terminal_becomes_narrower(self):
        self.wait_for_prompt()
        words = " ".join(f"word{i}" for i in range(20))  # two lines of 80 columns, three of 60
        self.type("/system " + words)
        self.wait_for("word19")
        self.resize(60)
        drawn = self.wait_for("word19")
        self.assertIn("\x1b[2A\x1b[J", drawn, "from where the prompt stands now")
        self.assertIn("> /system word0 word1", drawn)
        self.type("\n")
        self.wait_for("(applies from")
        self.wait_for_prompt()
        self.type("/system\n")
        self.assertIn(words.removesuffix("word19"), self.wait_for("word19"))


if __name__ == "__main__":
    unittest.main()
