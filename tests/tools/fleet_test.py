#!/usr/bin/env python3
"""Servers as a fleet has them: a store of prefixes that they share."""

import pathlib
import shutil
import tempfile
import threading
import unittest

from serve_test import Server

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


if __name__ == "__main__":
    unittest.main()
