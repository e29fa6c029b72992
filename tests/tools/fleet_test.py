#!/usr/bin/env python3
"""Servers as a fleet has them: a store of prefixes that they share, and answers that depend on what is
cached."""

import json
import pathlib
import shutil
import tempfile
import threading
import unittest

from serve_test import PROMPT, Server

STORY = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friend "
         "Tom. One day they found a big red ball under a tree, and they were very happy to see it. ")


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-fleet-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *flags):
        server = Server(self.folder, "--temp", "0", *flags)
        self.addCleanup(server.stop)
        return server

    def complete(self, server, prompt=STORY, **fields):
        return server.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 12, **fields})

    def cached(self, answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Stores(FleetTest):
    def with_store(self, *flags):
        return self.start("--prefix-store", self.folder / "store", *flags)

    def written(self, server):
        return server.metric("pumice:prefix_store_written_pages_total")

    def test_what_one_server_computed_another_need_not(self):
        first = self.with_store()
        expected = self.complete(first)
        n_blocks = expected["usage"]["prompt_tokens"] // 16
        self.assertGreaterEqual(n_blocks, 2)
        first.wait_until(lambda: self.written(first) >= n_blocks, "the blocks are written")
        second = self.with_store()
        answer = self.complete(second)
        self.assertEqual(answer["choices"][0]["text"], expected["choices"][0]["text"])
        self.assertGreaterEqual(self.cached(answer), (answer["usage"]["prompt_tokens"] - 1) // 16 * 16)
        self.assertEqual(second.metric("pumice:prefix_store_read_pages_total"),
                         (answer["usage"]["prompt_tokens"] - 1) // 16)
        # n answers of one prompt, and a prompt with a salt, which nobody shares.
        several = self.complete(second, n=3)
        self.assertEqual({choice["text"] for choice in several["choices"]}, {expected["choices"][0]["text"]})
        salted = self.complete(self.with_store(), cache_salt="mine")
        self.assertEqual(self.cached(salted), 0)

    def test_a_store_is_taken_over_after_a_restart_and_by_other_commands(self):
        first = self.with_store()
        expected = self.complete(first)
        first.process.terminate()
        self.assertEqual(first.process.wait(60), 0)
        self.assertGreater(len(list((self.folder / "store").rglob("*.page"))), 2)
        answer = self.complete(self.with_store())
        self.assertEqual(answer["choices"][0]["text"], expected["choices"][0]["text"])
        self.assertGreaterEqual(self.cached(answer), 32)

    def test_damaged_files_cost_time_and_nothing_else(self):
        first = self.with_store()
        expected = self.complete(first)
        first.process.terminate()
        self.assertEqual(first.process.wait(60), 0)
        files = sorted((self.folder / "store").rglob("*.page"))
        for i, path in enumerate(files):
            data = bytearray(path.read_bytes())
            data[(i * 977 + 100) % len(data)] ^= 0x40
            path.write_bytes(bytes(data))
        second = self.with_store()
        answer = self.complete(second)
        self.assertEqual(answer["choices"][0]["text"], expected["choices"][0]["text"])
        self.assertEqual(self.cached(answer), 0)
        self.assertEqual(sum("is damaged" in line for line in second.log), 1, second.log)

    def test_many_clients_of_two_servers_get_what_each_would_get_alone(self):
        alone = self.start()
        prompts = [STORY * (1 + i % 3) + f"Then number {i} " for i in range(8)]
        expected = [self.complete(alone, prompt)["choices"][0]["text"] for prompt in prompts]
        servers = [self.with_store("--prefix-store-size", 1), self.with_store()]
        wrong = []

        def client(number):
            for i in range(number, number + 8):
                text = self.complete(servers[i % 2], prompts[i % 8])["choices"][0]["text"]
                if text != expected[i % 8]:
                    wrong.append((number, i, text, expected[i % 8]))

        threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Thresholds(FleetTest):
    def test_a_prompt_that_is_not_cached_ends_at_once(self):
        server = self.start("--prefix-store", self.folder / "store")
        for path, prompt in (("/v1/completions", {"prompt": STORY}),
                             ("/v1/chat/completions", {"messages": [{"role": "user", "content": f"Tell me. {STORY}"}]})):
            body = {**prompt, "max_tokens": 8, "cache_hit_threshold": 0.5}
            answer = server.json("POST", path, body)
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "cache_threshold")
            self.assertEqual(choice.get("text") or choice.get("message", {}).get("content") or "", "")
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
            events = server.events(path, body)
            self.assertEqual(json.loads(events[0])["choices"][0]["finish_reason"], "cache_threshold")
            self.assertEqual(events[-1], "[DONE]")
            # As a router goes on: the prompt is read elsewhere, here with a threshold that all prompts meet.
            server.json("POST", path, {**body, "max_tokens": 1, "cache_hit_threshold": 0})
            for threshold in (0.5, 1):
                again = server.json("POST", path, {**body, "cache_hit_threshold": threshold})
                self.assertNotEqual(again["choices"][0]["finish_reason"], "cache_threshold", threshold)
        text = server.ask("GET", "/metrics")[2]
        self.assertIn('finished_reason="cache_threshold"', text)

    def test_what_another_server_has_stored_counts(self):
        store = ("--prefix-store", self.folder / "store")
        prefill = self.start(*store)
        decode = self.start(*store)
        body = {"prompt": STORY, "max_tokens": 8, "cache_hit_threshold": 0.5}
        first = decode.json("POST", "/v1/completions", body)
        self.assertEqual(first["choices"][0]["finish_reason"], "cache_threshold")
        prefill.json("POST", "/v1/completions", {**body, "max_tokens": 1, "cache_hit_threshold": 0})
        prefill.wait_until(lambda: prefill.metric("pumice:prefix_store_written_pages_total") >= 2, "it is stored")
        answer = decode.json("POST", "/v1/completions", body)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertGreaterEqual(self.cached(answer), 32)

    def test_a_threshold_that_is_none_is_named(self):
        server = self.start()
        for bad in (-0.1, 1.5, "half"):
            status, _, text = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "cache_hit_threshold": bad})
            self.assertEqual(status, 400, text)
            self.assertEqual(json.loads(text)["error"]["param"], "cache_hit_threshold")


if __name__ == "__main__":
    unittest.main()
