#!/usr/bin/env python3
"""pumice run: what was computed once is not computed again, within a session and from run to run."""

import json
import os
import resource
import struct
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, STORIES, USAGE, CommandLineTest

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


class CacheTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.need(STORIES)

    def run_json(self, *flags):
        return json.loads(self.ok("run", "-m", STORIES, "--temp", "0", "--json", *flags).stdout)


class Repl(CacheTest):
    def test_a_repeated_line_computes_one_token_and_says_the_same(self):
        lines = f"{PROMPT}\n{PROMPT}\n\n{PROMPT} One day\n".encode()
        done = self.ok("run", "-m", STORIES, "--temp", "0", "--json", "-n", 8, "--repl", "-v",
                       stdin=lines)
        first, second, third = (json.loads(line) for line in done.stdout.splitlines())
        n = first["timings"]["prompt_n"]
        self.assertEqual((first["cache"]["cached_tokens"], first["cache"]["miss"]), (0, "no match"))
        self.assertEqual((second["cache"]["cached_tokens"], second["cache"]["miss"]), (n - 1, "none"))
        self.assertGreaterEqual(third["cache"]["cached_tokens"], n)  # what was generated is cached too
        self.assertEqual(first["text"], second["text"])
        log = done.stderr.decode()
        self.assertIn("token cache: miss", log)
        self.assertIn("token cache: hit", log)
        self.assertIn(f"prompt {n} tokens ({n - 1} cached)", log)

    def test_a_line_that_fails_does_not_end_the_session(self):
        lines = (PROMPT * 30 + "\nOnce upon a time\n").encode()
        done = self.ok("run", "-m", STORIES, "--temp", "0", "-n", 4, "-c", 64, "--repl", stdin=lines)
        self.assertIn(b"exceed", done.stderr)
        self.assertTrue(done.stdout)


class PromptCache(CacheTest):
    def test_the_next_run_restores_what_this_one_computed(self):
        file = self.folder / "prompts.kv"
        first = self.run_json("-p", PROMPT, "-n", 8, "--prompt-cache", file)
        self.assertEqual(first["cache"]["cached_tokens"], 0)
        second = self.run_json("-p", PROMPT, "-n", 8, "--prompt-cache", file)
        self.assertEqual(second["cache"]["cached_tokens"], first["timings"]["prompt_n"] - 1)
        self.assertGreater(second["cache"]["file_tokens"], 0)
        self.assertEqual(first["tokens"], second["tokens"])

    def test_the_file_is_written_through_links_and_keeps_its_permissions(self):
        file = self.folder / "prompts.kv"
        (self.folder / "link.kv").symlink_to(file)
        self.run_json("-p", PROMPT, "-n", 2, "--prompt-cache", "link.kv")
        self.assertTrue((self.folder / "link.kv").is_symlink())
        file.chmod(0o640)
        before = file.stat().st_ino
        self.run_json("-p", PROMPT, "-n", 8, "--prompt-cache", "link.kv")
        self.assertNotEqual(file.stat().st_ino, before)
        self.assertEqual(file.stat().st_mode & 0o777, 0o640)
        self.assertEqual(self.left_behind(), ["link.kv", "prompts.kv"])

    def test_what_is_no_regular_file_is_no_prompt_cache(self):
        os.mkfifo(self.folder / "pipe")
        self.refuses(BAD_FILE, "run", "-m", STORIES, "-p", PROMPT, "-n", 2, "--prompt-cache", "pipe",
                     says="not a regular file")
        self.assertTrue((self.folder / "pipe").is_fifo())

    def test_an_input_is_never_the_cache(self):
        prompt = self.write("prompt.txt", PROMPT)
        self.refuses(USAGE, "run", "-m", STORIES, "-f", prompt, "--prompt-cache", "prompt.txt",
                     says="is read too")
        self.assertEqual(prompt.read_text(), PROMPT)

    def test_a_damaged_or_foreign_file_is_refused_with_a_reason_and_kept(self):
        run = ("run", "-m", STORIES, "-p", PROMPT, "-n", 4, "--prompt-cache")
        self.refuses(BAD_FILE, *run, self.write("text.kv", "not a cache at all, but long enough" * 9))
        file = self.folder / "prompts.kv"
        self.ok(*run, file)
        self.refuses(BAD_FILE, *run, file, "-ctk", "f32", "-ctv", "f32", says="another")
        self.refuses(BAD_FILE, *run, file, "-ctv", "bf16", says="another")
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        damaged = self.write("damaged.kv", bytes(content))
        self.refuses(BAD_FILE, *run, damaged)
        self.assertEqual(damaged.read_bytes(), bytes(content))

    def test_damaged_blocks_are_computed_again_and_not_said_to_be_reused(self):
        file = self.folder / "prompts.kv"
        first = self.run_json("-p", PROMPT, "-n", 4, "--prompt-cache", file)
        whole = file.read_bytes()
        block_bytes, = struct.unpack_from("<Q", whole, 16)
        bytes_offset, = struct.unpack_from("<Q", whole, 56)
        n = first["timings"]["prompt_n"]
        for block, reused in ((0, 0), (1, 16)):  # of 16 tokens each
            damaged = bytearray(whole)
            damaged[bytes_offset + block * block_bytes + 5] ^= 1
            file.write_bytes(damaged)
            done = self.ok("run", "-m", STORIES, "--temp", "0", "--json", "-p", PROMPT, "-n", 4,
                           "--prompt-cache", file, "--stats", "json")
            again = json.loads(done.stdout)
            self.assertEqual(again["tokens"], first["tokens"])
            self.assertEqual(again["cache"]["cached_tokens"], reused)
            self.assertEqual(again["timings"]["cache_n"], reused)
            text = done.stderr.decode()
            self.assertIn(f"prompt {n} tokens" + (f" ({reused} cached" if reused else ""), text)
            stats = json.loads(text[text.index("{\n"):])
            self.assertEqual(stats["cache"]["cached_tokens"], reused)
            self.assertEqual(stats["cache"]["queries"], 1)
            self.assertEqual(stats["scheduler"]["cached_tokens"], reused)


class HostMemory(CacheTest):
    def test_what_is_allowed_costs_nothing_until_it_is_used(self):
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 >> 20
        self.ok("run", "-m", STORIES, "-p", "Once", "-n", 2, "--cache-ram", half,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)))

    def test_more_than_the_machine_has_is_refused_with_numbers(self):
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        for asked in (has + 1, 1 << 24):
            self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, "-p", "Once", "-n", 2, "--cache-ram", asked,
                         says=["--cache-ram", f"{asked} MiB", f"{has} MiB"])


class Overflow(CacheTest):
    def test_a_full_context_is_an_error_unless_a_policy_says_what_to_do(self):
        run = ("-p", "Once upon a time", "-n", 60, "-c", 32, "--ignore-eos")
        self.refuses(DOES_NOT_FIT, "run", "-m", STORIES, *run, says="by")
        shifted = self.run_json(*run, "--overflow", "shift")
        self.assertEqual(len(shifted["tokens"]), 60)
        self.assertGreater(shifted["shifts"], 0)
        long = self.run_json("-p", PROMPT, "-n", 4, "-c", 16, "--ignore-eos",
                             "--overflow", "truncate-oldest")
        self.assertEqual(len(long["tokens"]), 4)
        self.assertGreater(long["truncated_tokens"], 0)


class Invariant(CacheTest):
    def test_it_says_the_same_as_without(self):
        flags = ("-p", PROMPT, "-n", 12)
        self.assertEqual(self.run_json(*flags, "--invariant")["tokens"], self.run_json(*flags)["tokens"])


class Stats(CacheTest):
    def test_json_has_telemetry_cache_and_profile(self):
        done = self.ok("run", "-m", STORIES, "-p", PROMPT, "--temp", "0", "-n", 8, "--ignore-eos",
                       "--tpot-target", 500, "--stats", "json")
        text = done.stderr.decode()
        stats = json.loads(text[text.index("{"):])
        self.assertEqual(stats["scheduler"]["requests"]["finished"], 1)
        self.assertEqual(stats["scheduler"]["generated_tokens"], 8)
        self.assertEqual(stats["scheduler"]["itl_s"]["count"], 7)
        self.assertTrue(stats["profile"]["calibrated"])
        self.assertGreater(stats["profile"]["prefill_tokens_per_s"], 0)
        self.assertEqual(stats["profile"]["block_tokens"], 16)

    def test_json_has_the_states_of_a_hybrid(self):
        self.ok("synth", "--preset", "hybrid-tiny", "-o", "hybrid.gguf")
        done = self.ok("run", "-m", "hybrid.gguf", "-p", "x" * 600, "--temp", "0", "-n", 4,
                       "--ignore-eos", "--stats", "json")
        text = done.stderr.decode()
        cache = json.loads(text[text.index("{"):])["cache"]
        kinds = {group["kind"]: group for group in cache["groups"]}
        self.assertEqual(set(kinds), {"full", "recurrent"})
        # At the last edge of the prompt, and at the end.
        self.assertEqual(kinds["recurrent"]["kept_states"], 2)
        self.assertEqual(kinds["full"]["kept_states"], 0)
        self.assertGreater(kinds["recurrent"]["cached_bytes"], 0)
        self.assertEqual(sum(group["cached_bytes"] for group in cache["groups"]),
                         cache["cached_bytes"])
        self.assertLessEqual(cache["used_bytes"], cache["pool_bytes"])

    def test_a_target_that_one_row_cannot_meet_is_refused(self):
        self.refuses(USAGE, "run", "-m", STORIES, "-p", PROMPT, "--tpot-target", 0.0001,
                     says="one row alone")


if __name__ == "__main__":
    unittest.main()
