#!/usr/bin/env python3
"""pumice run: text to stdout, everything else to stderr."""

import json
import math
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import unittest

from command_line import CANCELLED, DOES_NOT_FIT, SHARED, STORIES, USAGE, CommandLineTest, needs_file

BUNDLED = pathlib.Path(__file__).resolve().parents[2] / "models/pumice-stories.gguf"
REFERENCE = SHARED / "reference/stories260K.greedy.json"
RATES = re.compile(r"prompt (\d+) tokens?, TTFT [\d.]+ ms, prefill [\d.]+ tok/s, "
                   r"decode (\d+) tokens? [\d.]+ tok/s\n\Z")


class RunTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.need(STORIES)

    def run_json(self, *flags, model=STORIES, **options):
        return json.loads(self.ok("run", "-m", model, "--json", *flags, **options).stdout)


class Greedy(RunTest):
    def test_the_reference_text_and_nothing_else_is_on_stdout_at_every_chunk(self):
        stories = json.loads(self.need(REFERENCE).read_text())
        for story, chunks in zip(stories, ((1, 7, 512), (3,), (16,))):
            for chunk in chunks:
                with self.subTest(story["prompt"], chunk=chunk):
                    done = self.ok("run", "-m", STORIES, "-p", story["prompt"], "--temp", "0",
                                   "-n", len(story["tokens"]), "-ub", chunk)
                    self.assertEqual(done.stdout, story["text"].encode())
                    rates = RATES.search(done.stderr.decode())
                    self.assertTrue(rates, done.stderr)
                    self.assertEqual(rates.groups(), (str(len(story["prompt_tokens"])),
                                                      str(len(story["tokens"]))))
                    self.assertEqual(done.stderr.decode().strip().count("\n"), 0)

    def test_the_prompt_comes_from_flag_file_or_standard_input(self):
        story = json.loads(self.need(REFERENCE).read_text())[1]
        flags = ["run", "-m", STORIES, "--temp", "0", "-n", len(story["tokens"])]
        prompt = story["prompt"].encode()
        for done in (self.ok(*flags, stdin=prompt), self.ok(*flags, "-f", self.write("p", prompt))):
            self.assertEqual(done.stdout, story["text"].encode())


class Lines(RunTest):
    def test_a_text_alone_is_what_the_model_wrote_and_answers_have_a_line_each(self):
        run = ["run", "-m", STORIES, "--temp", "0", "-n", 5]
        one = self.ok(*run, "-p", "Once").stdout
        other = self.ok(*run, "-p", "The dog").stdout
        self.assertFalse(one.endswith(b"\n") or other.endswith(b"\n"))
        done = self.ok(*run, "--repl", stdin=b"Once\n\nThe dog\n")
        self.assertEqual(done.stdout, one + b"\n" + other + b"\n")
        # An answer without text is a line too, and a line that is refused none.
        done = self.ok(*run, "--repl", "--stop", " ", "-c", 64,
                       stdin=b"Once upon a time\n" + b"Once " * 300 + b"\nOnce upon a\n")
        self.assertRegex(done.stdout, rb"\A[^\n]*\n[^\n]*\n\Z")
        self.assertIn(b"pumice: ", done.stderr)

    def test_on_a_terminal_the_text_ends_its_line(self):
        master, terminal = pty.openpty()
        self.addCleanup(os.close, master)
        process = self.start("run", "-m", STORIES, "--temp", "0", "-n", 5, "-p", "Once", stdout=terminal)
        os.close(terminal)
        process.communicate(timeout=120)
        seen = b""
        while select.select([master], [], [], 1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
        self.assertTrue(seen.endswith(b"\r\n") and seen.count(b"\n") == 1, seen)


class Json(RunTest):
    def test_one_object_has_text_tokens_timings_and_the_kernels_that_ran(self):
        story = json.loads(self.need(REFERENCE).read_text())[0]
        done = self.ok("run", "-m", STORIES, "-p", story["prompt"], "--temp", "0", "--json", "-n", 40)
        self.assertEqual(done.stdout.count(b"\n"), 1)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["tokens"], story["tokens"][:40])
        self.assertTrue(story["text"].startswith(answer["text"]) and answer["text"])
        timings = answer["timings"]
        self.assertEqual((timings["prompt_n"], timings["predicted_n"]), (5, 40))
        for name in ("prompt_ms", "ttft_ms", "prompt_per_second", "predicted_ms",
                     "predicted_per_second"):
            self.assertGreater(timings[name], 0, name)

    def test_the_tiled_and_single_row_kernels_both_ran(self):
        prompt = "Once upon a time there was a little dog who loved to run in the park. " * 2
        variants = self.run_json("-p", prompt, "-n", 4, "-s", 1)["variants"]
        for kernel in ("flash_attention.tile", "flash_attention.row", "gemm.", "gemv."):
            self.assertTrue(any(name.startswith(kernel) for name in variants), (kernel, variants))

    def test_a_long_context_is_split_and_reduced(self):
        prompt = self.write("prompt", "Lily went to the park to play with her dog. " * 24)
        answer = self.run_json("-f", prompt, "-n", 3, "-s", 1)
        self.assertGreater(answer["timings"]["prompt_n"], 300)
        self.assertIn("attention_reduce", answer["variants"])
        self.assertNotIn("attention_reduce", self.run_json("-p", "Once", "-n", 3, "-s", 1)["variants"])

    def test_the_kv_type_chooses_its_kernels(self):
        variants = self.run_json("-p", "Once", "-n", 2, "-ctk", "f32", "-ctv", "f32")["variants"]
        self.assertIn("rope_kv.f32", variants)
        self.assertIn("rope_kv.f16", self.run_json("-p", "Once", "-n", 2)["variants"])
        variants = self.run_json("-p", "Once", "-n", 2, "-ctk", "bf16")["variants"]
        self.assertIn("rope_kv.bf16-f16", variants)

    def test_heads_too_small_for_a_quantised_type_are_refused_by_name(self):
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "-n", 2, "-ctv", "q8_0",
                     says=["values of 8 elements", "q8_0", "-ctk f16 -ctv f16"])


class Rates(RunTest):
    def test_tokens_that_were_left_out_or_cached_are_not_in_the_rate(self):
        prompt = self.write("prompt", "Lily went to the park. " * 2000)
        timings = self.run_json("-f", prompt, "-c", 64, "-n", 2, "-s", 1, "--overflow",
                                "truncate-oldest")["timings"]
        self.assertGreater(timings["prompt_n"], 4000)
        self.assertLessEqual(timings["prompt_per_second"] * timings["ttft_ms"] / 1e3, 64.001)

    def test_a_prompt_that_was_cached_whole_has_missed_nothing(self):
        line = b"Once upon a time\n"
        done = self.ok("run", "-m", STORIES, "--repl", "-n", 2, "--temp", 0, stdin=2 * line)
        self.assertRegex(done.stderr.decode(), r"\(\d+ cached(; [a-z][^)]*)?\)")
        self.assertNotIn("none", done.stderr.decode())


class Sampling(RunTest):
    def test_the_same_seed_gives_the_same_text_and_another_seed_another(self):
        flags = ["-p", "Once upon a time", "-n", 40, "--temp", 1]
        first = self.run_json(*flags, "-s", 7)
        self.assertEqual(self.run_json(*flags, "-s", 7, "-ub", 2)["text"], first["text"])
        self.assertNotEqual(self.run_json(*flags, "-s", 8)["text"], first["text"])

    def test_a_random_seed_is_reported_and_repeats_the_text(self):
        flags = ["-p", "Once upon a time", "-n", 20]
        first = self.run_json(*flags)
        self.assertEqual(self.run_json(*flags, "-s", first["seed"])["tokens"], first["tokens"])


class Context(RunTest):
    def test_more_than_the_asked_context_says_by_how_much(self):
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-p", "Once upon a time", "-n", 10, "-c", 8,
                     says=["5 prompt + 10 new", "context of 8", "by 7 tokens"])

    def test_more_than_the_models_context_says_by_how_much_unless_asked_for(self):
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-p", "Once upon a time", "-n", 510,
                     says=["5 prompt + 510 new", "context of 512", "by 3 tokens", "-c 515"])
        self.refuses(DOES_NOT_FIT, "logits", "-m", STORIES, "--tokens", ",".join(["1"] * 513),
                     "-o", "out.f32", says="by 1 tokens")
        self.assertEqual(self.left_behind(), [])
        self.ok("run", "-m", STORIES, "-p", "Once upon a time", "-n", 2, "-c", 600)

    def test_a_text_without_an_end_fills_the_context(self):
        # Of 512 tokens 5 are the prompt's; what is computed is as with a number.
        run = ["run", "-m", STORIES, "-p", "Once upon a time", "-s", 3, "--ignore-eos", "--json"]
        counted = json.loads(self.ok(*run, "-n", 507).stdout)
        for n in (-1, -2):
            endless = self.ok(*run, "-n", n)
            answer = json.loads(endless.stdout)
            self.assertEqual((answer["text"], answer["end_reason"]), (counted["text"], "window"))
            self.assertIn("the context is full", endless.stderr.decode())
        short = json.loads(self.ok(*run, "-n", -1, "-c", 40).stdout)
        self.assertEqual(short["timings"]["predicted_n"], 35)
        shifted = json.loads(self.ok(*run, "-n", -2, "-c", 40, "--overflow", "shift").stdout)
        self.assertEqual((shifted["timings"]["predicted_n"], shifted["shifts"]), (35, 0))

    def test_a_text_without_an_end_may_end(self):
        run = ["run", "-m", STORIES, "-p", "Once upon a time", "-s", 3, "--json"]
        answer = json.loads(self.ok(*run, "-n", -1, "--stop", ".").stdout)
        self.assertEqual(answer["end_reason"], "stop_string")

    def test_escapes_stand_for_characters_where_that_is_asked_for(self):
        run = ["run", "-m", STORIES, "-n", 20, "--temp", 0]
        plain = self.ok(*run, "-p", "Tim\nSue").stdout
        self.assertEqual(self.ok(*run, "-e", "-p", r"Tim\nSue").stdout, plain)
        self.assertEqual(self.ok(*run, "-e", "--repl", stdin=rb"Tim\nSue" + b"\n").stdout.strip(), plain.strip())
        self.assertNotEqual(self.ok(*run, "-p", r"Tim\nSue").stdout, plain)

    def test_a_prompt_longer_than_the_context_is_refused(self):
        prompt = self.write("prompt", "Lily went to the park. " * 200)
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-f", prompt, says="by")
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-f", prompt, "-c", 64, says="context of 64")

    def test_a_context_beyond_the_memory_says_by_how_much(self):
        devices = json.loads(self.ok("info", "--json").stdout)["devices"]
        model = json.loads(self.ok("info", "-m", STORIES, "--json").stdout)["memory"]
        needed_bytes = 2 * model["kv_bytes_per_token"] << 24  # the estimate is for F16
        if needed_bytes < max(device.get("budget_bytes", 0) for device in devices):
            self.skipTest("this device holds the longest context that can be asked for")
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-p", "Once", "-n", 4, "-c", 1 << 24,
                     "-ctk", "f32", "-ctv", "f32", says=["context of 16777216", "weights", "KV", "short by"])


class Interrupted(RunTest):
    def generating(self, *flags, n=500):
        process = self.start("run", "-m", STORIES, "-p", "Once upon a time", "-n", n, "-s", 3,
                             "--ignore-eos", "-b", 16, "-ub", 1, *flags)
        return process, process.stdout.read1(16)

    def test_ctrl_c_keeps_the_text_so_far_and_the_rates(self):
        for interrupt in (signal.SIGINT, signal.SIGTERM):
            process, first = self.generating()
            process.send_signal(interrupt)
            rest, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, CANCELLED, err)
            self.assertGreater(len(first + rest), 0)
            self.assertRegex(err.decode(), r"\Aprompt 5 tokens, .*\npumice: interrupted\n\Z")
            generated = int(RATES.search(err.decode().replace("pumice: interrupted\n", "")).group(2))
            self.assertLess(generated, 500)

    def test_ctrl_c_leaves_json_whole(self):
        process = self.start("run", "-m", STORIES, "-p", "Once upon a time", "-n", 500, "--json", "-v",
                             "--ignore-eos")
        for line in process.stderr:
            if b"kernels ready" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, CANCELLED, err)
        if out:  # else it came before there was anything to keep
            self.assertLess(len(json.loads(out)["tokens"]), 500)

    def test_ctrl_c_before_anything_was_computed_ends_it_at_once(self):
        process = self.start("tokenize", "-m", STORIES, stdin=subprocess.PIPE)
        process.stdin.write(b"x" * 300_000)  # more than a pipe holds: it is reading
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=10), CANCELLED)
        self.assertEqual(process.stderr.read(), b"pumice: interrupted\n")

    def test_a_reader_that_leaves_ends_it_in_silence(self):
        process, first = self.generating()
        self.assertGreater(len(first), 0)
        process.stdout.close()
        err = process.stderr.read()
        self.assertIn(process.wait(timeout=60), (0, -signal.SIGPIPE))
        self.assertNotRegex(err.decode(), "(?i)traceback|internal|terminate")

    @needs_file("/dev/full")
    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "wb") as full:
            for flags in ([], ["--json"]):
                done = self.pumice("run", "-m", STORIES, "-p", "Once", "-n", 3, "-s", 3, *flags,
                                   stdout=full)
                self.assertEqual(done.returncode, DOES_NOT_FIT)
                self.assertTrue(done.stderr.endswith(
                    b"pumice: standard output: cannot be written: No space left on device\n"))

    @needs_file("/dev/full")
    def test_messages_that_cannot_be_written_are_an_error_after_the_work(self):
        with open("/dev/full", "wb") as full:
            done = self.pumice("run", "-m", STORIES, "-p", "Once", "-n", 3, "-s", 3, "-v", stderr=full)
        self.assertEqual(done.returncode, DOES_NOT_FIT)
        self.assertGreater(len(done.stdout), 0)

    def test_a_file_of_costs_that_cannot_be_read_is_a_warning(self):
        cache = self.folder / "cache"
        run = ("run", "-m", STORIES, "-p", "Once", "-n", 8, "-s", 3)
        self.ok(*run, env={"XDG_CACHE_HOME": str(cache)})
        costs = list(cache.rglob("cost-*.json"))
        for path in costs:
            path.unlink()
            path.mkdir()
        done = self.ok(*run, env={"XDG_CACHE_HOME": str(cache)})
        self.assertEqual(b"is a directory" in done.stderr, bool(costs))


class Arithmetic(RunTest):
    def test_8_bit_products_are_refused_where_there_are_none_whatever_the_weights(self):
        for kind in ("f16", "q8_0"):
            self.ok("synth", "--preset", "tiny", "--type", kind, "--pure", "-o", f"{kind}.gguf")
            self.refuses(USAGE, "run", "-m", f"{kind}.gguf", "-p", "a", "-n", 1, "--math", "i8", "--limit", "no-intdot",
                         says=["--math i8", "8-bit", "gemm.q8_0.i8"])


class Stop(RunTest):
    def setUp(self):
        super().setUp()
        story = json.loads(self.need(REFERENCE).read_text())[0]
        self.prompt, self.text = story["prompt"], story["text"]
        self.stop = self.text[30:45]  # several tokens, from and to the middle of words
        self.before = self.text[:self.text.index(self.stop)]
        self.assertTrue(self.before)
        self.flags = ("--temp", "0", "-n", len(story["tokens"]))

    def test_the_text_ends_before_the_string_and_nothing_of_it_is_printed(self):
        run = ("run", "-m", STORIES, "-p", self.prompt, *self.flags)
        self.assertEqual(self.ok(*run, "--stop", self.stop).stdout, self.before.encode())
        first = self.text[10:14]
        done = self.ok(*run, "--stop", self.stop, "--stop", "[no, such]", "--stop", first)
        self.assertEqual(done.stdout, self.text[:self.text.index(first)].encode())

    def test_json_names_it_as_the_reason(self):
        answer = self.run_json("-p", self.prompt, *self.flags, "--stop", self.stop)
        self.assertEqual((answer["text"], answer["end_reason"]), (self.before, "stop_string"))
        self.assertEqual(answer["timings"]["predicted_n"], len(answer["tokens"]))

    def test_every_line_of_a_repl_ends_there(self):
        run = ("run", "-m", STORIES, "--repl", *self.flags, "--stop", self.stop)
        lines = f"{self.prompt}\n{self.prompt}\n".encode()
        self.assertEqual(self.ok(*run, stdin=lines).stdout, 2 * f"{self.before}\n".encode())
        answers = [json.loads(line) for line in self.ok(*run, "--json", stdin=lines).stdout.splitlines()]
        self.assertEqual([(answer["text"], answer["end_reason"]) for answer in answers],
                         2 * [(self.before, "stop_string")])

    def test_a_string_that_only_begins_holds_nothing_back_for_good(self):
        answer = self.run_json("-p", self.prompt, *self.flags, "--stop", self.text[-3:] + "and never this")
        self.assertEqual((answer["text"], answer["end_reason"]), (self.text, "length"))

    def test_what_no_text_or_every_text_has_is_a_usage_error(self):
        for stop in ("", "\udcff", "x" * 5000):
            self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--stop", stop, says="--stop")


class LogProbs(RunTest):
    def test_each_token_has_its_own_and_those_of_the_best_in_its_place(self):
        flags = ["-p", "Once upon a time", "-n", 6]
        for sampling in (["--temp", "0"], ["--temp", "1", "-s", 3]):
            plain = self.run_json(*flags, *sampling)
            answer = self.run_json(*flags, *sampling, "--logprobs", 4)
            self.assertEqual((answer["text"], answer["tokens"]), (plain["text"], plain["tokens"]))
            self.assertNotIn("logprobs", plain)
            self.assertEqual([one["token"] for one in answer["logprobs"]], answer["tokens"])
            for one in answer["logprobs"]:
                best = [other["logprob"] for other in one["top"]]
                self.assertEqual(len(best), 4)
                self.assertEqual(best, sorted(best, reverse=True))
                self.assertLessEqual(sum(map(math.exp, best)), 1.0001)
                same = [other for other in one["top"] if other["token"] == one["token"]]
                self.assertTrue(not same or same[0]["logprob"] == one["logprob"])
                if sampling[1] == "0":
                    self.assertEqual(one["top"][0]["token"], one["token"])
        self.assertEqual(self.run_json(*flags, "-s", 1, "--logprobs", 0)["logprobs"][0]["top"], [])

    def test_they_are_json_and_as_many_as_there_are(self):
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--logprobs", 3, says="--json")
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--json", "--logprobs", 21, says="--logprobs")


class Choices(RunTest):
    def test_each_is_what_its_seed_says(self):
        flags = ["-p", "Once upon a time, there was a little girl", "-n", 12, "--temp", "1", "--invariant"]
        answer = self.run_json(*flags, "-s", 5, "--choices", 3, "--logprobs", 1)
        self.assertEqual(len(answer["choices"]), 3)
        for i, choice in enumerate(answer["choices"]):
            alone = self.run_json(*flags, "-s", 5 + i)
            for key in ("text", "tokens", "end_reason"):
                self.assertEqual(choice[key], alone[key])
            self.assertEqual([one["token"] for one in choice["logprobs"]], choice["tokens"])
        self.assertEqual(answer["text"], answer["choices"][0]["text"])
        self.assertNotEqual(answer["choices"][0]["text"], answer["choices"][1]["text"])
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--choices", 3, says="--json")


class Guesses(RunTest):
    # Behind it the greedy text comes to repeat itself.
    prompt = 3 * "The dog said woof. "

    def test_the_text_is_the_same_with_them(self):
        for sampling in (["--temp", "0"], ["--temp", "1", "-s", 3], ["--temp", "0.8", "-s", 4, "--repeat-penalty", "1.3"]):
            greedy = sampling == ["--temp", "0"]
            flags = ["-p", self.prompt, "-n", 250 if greedy else 60, "--ignore-eos", *sampling]
            plain = self.run_json(*flags)
            self.assertEqual(plain["spec"], {"drafted": 0, "accepted": 0, "drafted_by_position": [],
                                             "accepted_by_position": []})
            for spec in (["ngram"], ["ngram", "--draft-max", 2], ["ngram", "--invariant", "--draft-max", 12], ["auto"]):
                with self.subTest(spec, sampling=sampling):
                    if "--invariant" in spec:
                        plain = self.run_json(*flags, "--invariant")
                    answer = self.run_json(*flags, "--spec", *spec)
                    self.assertEqual((answer["text"], answer["tokens"]), (plain["text"], plain["tokens"]))
                    counts = answer["spec"]
                    self.assertEqual(sum(counts["drafted_by_position"]), counts["drafted"])
                    self.assertEqual(sum(counts["accepted_by_position"]), counts["accepted"])
                    self.assertLessEqual(counts["accepted"], counts["drafted"])
                    if spec[0] == "ngram" and greedy:
                        self.assertGreater(counts["accepted"], 0)
                    if spec == ["auto"] and greedy:
                        self.assertGreater(counts["drafted"], 0, "one is tried, to see what steps with it cost")
                    if spec[1:] == ["--draft-max", 2]:
                        self.assertLessEqual(len(counts["drafted_by_position"]), 2)

    def test_a_draft_model_may_make_them(self):
        for flags in (["--temp", "0"], ["--temp", "1", "-s", 3]):
            flags = ["-p", "Once upon a time", "-n", 40, *flags]
            plain = self.run_json(*flags)
            answer = self.run_json(*flags, "--spec", "draft", "-md", STORIES, "--draft-max", 3)
            self.assertEqual((answer["text"], answer["tokens"]), (plain["text"], plain["tokens"]))
            self.assertGreater(answer["spec"]["accepted"], 0)
            if flags[-1] == "0":
                self.assertEqual(answer["spec"]["accepted"], answer["spec"]["drafted"], "it is the same model")
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--spec", "draft", "-md",
                     BUNDLED, says="pumice-stories.gguf has another vocabulary: ")

    def test_the_block_of_a_file_that_predicts_may_make_them(self):
        self.ok("synth", "--preset", "qwen35", "--type", "q8_0", "--mtp", "-o", "hybrid.gguf")
        for flags in (["--temp", "0"], ["--temp", "1", "-s", 3]):
            flags = ["-p", "Once upon a time", "-n", 40, "--ignore-eos", *flags]
            plain = self.run_json(*flags, model="hybrid.gguf")
            answer = self.run_json(*flags, "--spec", "mtp", "--draft-max", 3, model="hybrid.gguf")
            self.assertEqual((answer["text"], answer["tokens"]), (plain["text"], plain["tokens"]))
            self.assertGreater(answer["spec"]["drafted"], 40)
            self.assertEqual(len(answer["spec"]["drafted_by_position"]), 3)
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--spec", "mtp", says="nextn_predict_layers")
        self.refuses(USAGE, "synth", "--preset", "llama", "--mtp", "-o", "never.gguf", says="nextn_predict_layers")

    def test_they_are_counted(self):
        done = self.ok("run", "-m", STORIES, "-p", self.prompt, "-n", 250, "--ignore-eos", "--temp", "0",
                       "--spec", "ngram", "--stats")
        self.assertRegex(done.stderr.decode(), r"\d+ tokens? guessed, \d+ accepted\n")
        self.assertRegex(done.stderr.decode(), r"\d+ tokens? guessed, \d+ of them accepted\n")

    def test_what_is_not_built_says_so(self):
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--spec", "draft", says="-md")
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "-md", STORIES, says="--spec draft")
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--spec", "some", says="--spec")
        self.refuses(USAGE, "run", "-m", STORIES, "-p", "Once", "--draft-max", 0, says="--draft-max")


class Verbose(RunTest):
    def test_every_stage_is_logged_to_stderr(self):
        done = self.ok("run", "-m", STORIES, "-p", "Once upon a time", "-n", 2, "--temp", "0", "-v")
        log = done.stderr.decode()
        for words in ("16 bytes are 5 tokens", "5 layers", "kernels ready", "prompt 5 tokens"):
            self.assertIn(words, log)
        self.assertEqual(done.stdout, b", there")


if __name__ == "__main__":
    unittest.main()
