#!/usr/bin/env python3
"""Servers as a fleet has them: a store of prefixes that they share, answers that depend on what is cached, and KV
events, read by a stand-in for a router."""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from command_line import BINARY, user_environment
from serve_test import MODEL, PROMPT, Server

try:
    import msgpack
    import zmq
except ImportError as missing:
    zmq = None
    WHY_NOT = f"{missing.name} is not installed (python3-zmq, python3-msgpack)"

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
        chat = {"messages": [{"role": "user", "content": f"Tell me. {STORY}"}]}
        for path, prompt in (("/v1/completions", {"prompt": STORY}), ("/v1/chat/completions", chat)):
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


class Router:
    """What an endpoint picker knows of one server: blocks by their tokens, from events alone."""

    def __init__(self, context, endpoint, replay):
        self.replay = context.socket(zmq.DEALER)
        self.replay.connect(replay)
        self.events = context.socket(zmq.SUB)
        self.events.setsockopt(zmq.SUBSCRIBE, b"kv@")
        self.events.connect(endpoint)
        self.blocks = {}  # id → (parent, tokens, medium)
        self.next = 0
        self.n_removed = 0
        self.topics = set()

    def close(self):
        self.replay.close(0)
        self.events.close(0)

    def ask_again(self):
        """All that is still kept, from the first one that is missing."""
        self.replay.send_multipart([b"", struct.pack(">Q", self.next)])
        while True:
            assert self.replay.poll(20000), "no answer to a replay"
            topic, number, batch = self.replay.recv_multipart()
            number, = struct.unpack(">Q", number)
            if number == 2**64 - 1:
                assert (topic, batch) == (b"", b"")
                return
            self.take(topic, number, batch)

    def read(self, wait_ms):
        while self.events.poll(wait_ms):
            topic, number, batch = self.events.recv_multipart()
            number, = struct.unpack(">Q", number)
            if number > self.next:
                self.ask_again()  # this one comes with it
            self.take(topic, number, batch)

    def take(self, topic, number, batch):
        if number < self.next:
            return
        assert number == self.next, (number, self.next)
        self.next += 1
        self.topics.add(topic.decode())
        seconds, events = msgpack.unpackb(batch)
        assert abs(seconds - time.time()) < 600
        for event in events:
            if isinstance(event, list):
                names = {"BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                                         "medium"),
                         "BlockRemoved": ("block_hashes", "medium"), "AllBlocksCleared": ()}[event[0]]
                assert len(event) == 1 + len(names), event
                event = {"type": event[0], **dict(zip(names, event[1:]))}
            self.apply(event)

    def apply(self, event):
        if event["type"] == "AllBlocksCleared":
            self.blocks.clear()
        elif event["type"] == "BlockRemoved":
            for block in event["block_hashes"]:
                assert self.blocks.pop(block)[2] == event["medium"]
                self.n_removed += 1
        else:
            size, parent = event["block_size"], event["parent_block_hash"]
            assert len(event["token_ids"]) == size * len(event["block_hashes"])
            for i, block in enumerate(event["block_hashes"]):
                assert block not in self.blocks
                assert parent is None or parent in self.blocks, "a block comes behind its parent"
                self.blocks[block] = (parent, tuple(event["token_ids"][i * size:(i + 1) * size]), event["medium"])
                parent = block

    def cached_tokens(self, tokens):
        """As it would predict a hit of this prompt."""
        children = {(parent, words): block for block, (parent, words, _) in self.blocks.items()}
        at, n = None, 0
        while n + 16 <= len(tokens) - 1 and (at, tuple(tokens[n:n + 16])) in children:
            at = children[at, tuple(tokens[n:n + 16])]
            n += 16
        return n


@unittest.skipIf(zmq is None, "" if zmq else WHY_NOT)
class Events(FleetTest):
    def start_published(self, *flags):
        server = self.start("--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*",
                            "--pod-ip", "10.1.2.3", *flags)
        line = next(line for line in server.log if line.startswith("KV events at "))
        endpoint, replay = line.removeprefix("KV events at ").strip().split(", again at ")
        return server, self.router(endpoint, replay)

    def router(self, endpoint, replay):
        context = zmq.Context()
        router = Router(context, endpoint, replay)
        self.addCleanup(context.term)
        self.addCleanup(router.close)
        return router

    def agrees(self, server, router, prompts):
        """What the router predicts of each prompt is what it finds cached, down to a block. Nothing is computed: each
        goes on with words that nobody said, and all of it would have to be there."""
        for prompt in prompts:
            asked = f"{prompt} {'girl ' * 40}"
            tokens = server.json("POST", "/v1/completions/render", {"prompt": asked})[0]["token_ids"]
            answer = server.json("POST", "/v1/completions",
                                 {"prompt": asked, "max_tokens": 1, "cache_hit_threshold": 1})
            self.assertEqual(answer["choices"][0]["finish_reason"], "cache_threshold")
            self.assertEqual(self.cached(answer) // 16 * 16, router.cached_tokens(tokens), prompt)

    def load(self, server, prompts, n, seed):
        def client(number):
            rng = random.Random(seed + number)
            for _ in range(n):
                self.complete(server, rng.choice(prompts), max_tokens=rng.randrange(1, 20))

        threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def prompts(self, n_prompts):
        rng = random.Random(5)
        words = "the a big red ball tree dog cat ran saw and then happy sad little girl boy park day".split()
        beginnings = [" ".join(rng.choice(words) for _ in range(40)) for _ in range(4)]
        return [f"{rng.choice(beginnings)} {' '.join(rng.choice(words) for _ in range(rng.randrange(1, 100)))}"
                for _ in range(n_prompts)]

    def check_random_load(self, n_prompts, *flags):
        server, router = self.start_published(*flags)
        router.ask_again()
        prompts = self.prompts(n_prompts)
        for seed in range(3):
            self.load(server, prompts, 6, seed)
            time.sleep(0.5)
            router.read(500)
            self.assertGreater(len(router.blocks), 5)
            self.agrees(server, router, prompts)
        self.assertEqual(router.topics, {f"kv@10.1.2.3:{server.address[1]}@pumice-stories"})
        # One that comes late has the same from the replay alone.
        late = self.router(router.events.LAST_ENDPOINT.decode(), router.replay.LAST_ENDPOINT.decode())
        time.sleep(0.5)
        router.read(500)
        late.ask_again()
        self.assertEqual(late.blocks, router.blocks)
        self.assertEqual(late.next, router.next)
        return router

    def test_a_router_knows_what_is_cached_after_random_load(self):
        self.check_random_load(24)

    def test_the_same_in_maps_where_blocks_come_and_go(self):
        # More than its pool of 128 blocks and a mebibyte beside it hold.
        router = self.check_random_load(90, "--kv-events-format", "map", "-np", "1", "--cache-ram", "1")
        self.assertGreater(router.n_removed, 0)
        self.assertLessEqual({medium for _, _, medium in router.blocks.values()}, {"GPU", "cpu"})

    def test_salted_prompts_are_nobodys_to_know(self):
        server, router = self.start_published()
        router.ask_again()
        self.complete(server, cache_salt="mine")
        time.sleep(0.5)
        router.read(300)
        self.assertEqual(router.blocks, {})

    def test_an_address_that_cannot_be_bound_is_said(self):
        command = [BINARY, "serve", "-m", str(MODEL), "--port", "0", "--kv-events", "tcp://256.0.0.1:5557"]
        ended = subprocess.run(command, env=user_environment(self.folder, {}), capture_output=True, text=True,
                               timeout=120)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("cannot listen on tcp://256.0.0.1:5557", ended.stderr)


if __name__ == "__main__":
    unittest.main()
