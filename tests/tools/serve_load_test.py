#!/usr/bin/env python3
"""A server under a random mix of everything that clients do: answers of all kinds, streams, clients that leave, that
read slowly or not at all, bodies that are cut off or make no sense; while the device is lost again and again, and the
driver takes half of its memory away and gives it back. Each request ends as it must, nothing is left of any, and texts
are those of single runs.

--requests 10000 makes it the long run; it prints what it counted. faulty_layer.cpp does what a driver has to."""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

import serve_test
from command_line import USAGE, CommandLineTest
from serve_test import MODEL, Server

LAYER = pathlib.Path(os.environ.get("PUMICE_TEST_LAYER", "")).resolve()  # faulty_layer.cpp, beside its manifest
N_CLIENTS = 16
# A lesser class waits for all others, which is long where a machine has much else to do; ctest ends what hangs.
TIMEOUT_S = serve_test.TIMEOUT_S = 900
PARTS = 4
LOSSY, HALVED = (1, 3), (2, 3)  # parts with lost devices, and with half the memory
HOST_TIER_KIB = 256 << 10  # that a server with a prefix store has; it fills as contexts come and go
WORDS = ("the a big red ball tree dog cat ran saw and then happy sad little girl boy park day was very house sun Lily "
         "Tom Mom played with found under over said").split()
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}
    for name in ("weather", "time")]
SCHEMA = {"type": "object", "properties": {"mood": {"enum": ["happy", "sad"]}, "n": {"type": "integer", "minimum": 0,
          "maximum": 99}}, "required": ["mood", "n"], "additionalProperties": False}
FINISHES = {"stop", "length", "tool_calls"}


def text_of(rng, n_words):
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class Load:
    """Requests of one random mix; what ended otherwise than it must is in `wrong`."""

    def __init__(self, server, expected):
        self.server = server
        self.expected = expected  # greedy answers of single runs, by prompt
        self.counts = collections.Counter()
        self.wrong = []
        self.lock = threading.Lock()
        self.ends = False  # the server was told to: what cannot be had any more is no error

    def run(self, n_requests, seed):
        left = iter(range(n_requests))

        def client():
            while True:
                with self.lock:
                    number = next(left, None)
                if number is None:
                    return
                self.one(random.Random(seed * 1000003 + number), number)

        threads = [threading.Thread(target=client, daemon=True) for _ in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        return threads

    def one(self, rng, number):
        kinds = {self.answered: 40, self.streamed: 25, self.repeated: 15, self.left: 12, self.slow: 4, self.unread: 2,
                 self.malformed: 12, self.cut: 4}
        kind = rng.choices(list(kinds), kinds.values())[0]
        try:
            result = kind(rng)
        except (OSError, http.client.HTTPException) as error:
            if not self.ends:
                result = f"wrong: {type(error).__name__} {error}"
            else:
                result = "refused at the end"
        except Exception as error:  # an answer that makes no sense
            result = f"wrong: {type(error).__name__} {error}"
        with self.lock:
            self.counts[f"{kind.__name__}: {'wrong' if result.startswith('wrong') else result}"] += 1
            if result.startswith("wrong"):
                self.wrong.append((number, kind.__name__, result))

    # ---- requests

    def body(self, rng):
        """A path, a body, and how its answer ends (None: in any way)."""
        body = {"max_tokens": rng.randrange(1, 13), "temperature": rng.choice([0, 0.8, 1.3]),
                "seed": rng.randrange(999),
                "service_class": rng.choice(["interactive", "normal", "batch"]), "priority": rng.randrange(-2, 3),
                "n": rng.choice([1, 1, 1, 1, 2, 4])}
        if rng.random() < 0.2:
            body["cache_salt"] = rng.choice("ab")
        if rng.random() < 0.2:
            body["stop"] = [rng.choice(WORDS), "."]
        words = text_of(rng, rng.choice([1, 3, 10, 10, 40, 80]))
        which = rng.random()
        if which < 0.5:
            if rng.random() < 0.15:
                body["logprobs"] = rng.randrange(0, 5)
            return "/v1/completions", {**body, "prompt": words}
        body["messages"] = [{"role": "user", "content": words}]
        if which < 0.6:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}}
            body["max_tokens"] = 64
            body.pop("stop", None)
        elif which < 0.7:
            # What the tools are takes most of the context.
            body.update(tools=TOOLS, tool_choice="required", max_tokens=64,
                        messages=[{"role": "user", "content": text_of(rng, 4)}])
            body.pop("stop", None)
        return "/v1/chat/completions", body

    def check_choice(self, body, finish, text, calls):
        if finish not in FINISHES:
            return f"wrong: finish {finish!r}"
        if finish == "length":
            return None
        if "response_format" in body:
            mood = json.loads(text)
            if mood["mood"] not in ("happy", "sad") or not 0 <= mood["n"] <= 99:
                return f"wrong: {text}"
        if "tools" in body:
            if not calls or any(json.loads(arguments)["city"] not in ("Rome", "Oslo") for arguments in calls):
                return f"wrong: calls {calls}"
        return None

    def answered(self, rng):
        path, body = self.body(rng)
        status, _, text = self.server.ask("POST", path, body)
        if status != 200:
            return self.not_taken(status, text)
        choices = json.loads(text)["choices"]
        if len(choices) != body["n"]:
            return f"wrong: {len(choices)} choices"
        for choice in choices:
            message = choice.get("message", {})
            said = choice["text"] if "text" in choice else message["content"]
            calls = [call["function"]["arguments"] for call in message.get("tool_calls") or []]
            if bad := self.check_choice(body, choice["finish_reason"], said, calls):
                return bad
        return "answered"

    def not_taken(self, status, text):
        return "refused at the end" if self.ends and status == 503 else f"wrong: {status} {text[:200]}"

    def streamed(self, rng):
        path, body = self.body(rng)
        status, _, text = self.server.ask("POST", path, {**body, "stream": True})
        if status != 200:
            return self.not_taken(status, text)
        return self.check_stream(body, text)

    def check_stream(self, body, text):
        blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        if not blocks or blocks.pop() != "data: [DONE]":
            return f"wrong: a stream ends with {text[-100:]!r}"
        finishes = {}
        texts = collections.defaultdict(str)
        calls = collections.defaultdict(lambda: collections.defaultdict(str))
        for block in blocks:
            for choice in json.loads(block.removeprefix("data: "))["choices"]:
                delta = choice.get("delta", {})
                texts[choice["index"]] += choice.get("text") or delta.get("content") or ""
                for call in delta.get("tool_calls", []):
                    calls[choice["index"]][call["index"]] += call["function"].get("arguments", "")
                if choice["finish_reason"] is not None:
                    finishes[choice["index"]] = choice["finish_reason"]
        if len(finishes) != body["n"]:
            return f"wrong: {len(finishes)} of {body['n']} choices have an end"
        for index, finish in finishes.items():
            if bad := self.check_choice(body, finish, texts[index], list(calls[index].values())):
                return bad
        return "streamed"

    def repeated(self, rng):
        """A greedy answer that is known from a single run."""
        prompt, expected = rng.choice(list(self.expected.items()))
        status, _, text = self.server.ask("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": 12, "temperature": 0, "priority": rng.randrange(3)})
        if status != 200:
            return self.not_taken(status, text)
        said = json.loads(text)["choices"][0]["text"]
        return "as alone" if said == expected else f"wrong: {said!r}, alone {expected!r}"

    def connect(self, rng):
        path, body = self.body(rng)
        body["stream"] = rng.random() < 0.6
        body["max_tokens"] = rng.randrange(50, 300)
        data = json.dumps(body).encode()
        connection = socket.create_connection(self.server.address, timeout=TIMEOUT_S)
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data))
        return connection

    def left(self, rng):
        with self.connect(rng) as connection:
            time.sleep(rng.choice([0, 0.001, 0.01, 0.05, 0.2]) * rng.random())
            if rng.random() < 0.5:  # with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return "left"

    def slow(self, rng):
        path, body = self.body(rng)
        data = json.dumps({**body, "stream": True}).encode()
        with socket.create_connection(self.server.address, timeout=TIMEOUT_S) as connection:
            connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)))
            for i in range(0, len(data), 64):
                connection.sendall(data[i:i + 64])
                time.sleep(0.002)
            received = b""
            while piece := connection.recv(rng.choice([1, 16, 256])):
                received += piece
                if rng.random() < 0.05:
                    time.sleep(0.01)
        if b" 503 " in received[:20] and self.ends:
            return "refused at the end"
        if not received.startswith(b"HTTP/1.1 200"):
            return f"wrong: {received[:100]!r}"
        return "read slowly" if b"[DONE]" in received else f"wrong: a stream ends with {received[-100:]!r}"

    def unread(self, rng):
        with self.connect(rng):
            time.sleep(rng.random() * 0.5)
        return "not read"

    def malformed(self, rng):
        good = {"prompt": "a", "max_tokens": 2}
        path, data, expected = rng.choice([
            ("/v1/completions", b'{"prompt": ', 400), ("/v1/completions", b"\xff\xfe", 400),
            ("/v1/completions", b"[" * 5000, 400), ("/v1/completions", {**good, "n": 0}, 400),
            ("/v1/completions", {**good, "temperature": "hot"}, 400),
            ("/v1/completions", {**good, "prompt": [[1, -5]]}, 400),
            ("/v1/completions", {**good, "prompt": text_of(rng, 900)}, 400),
            ("/v1/completions", {**good, "model": "another"}, 404),
            ("/v1/chat/completions", {"messages": "hello"}, 400), ("/v1/chat/completions", {"messages": [{}]}, 400),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}}, 400),
            ("/nowhere", good, 404), ("/v1/embeddings", b"{", None)])
        status, _, text = self.server.ask("POST", path, data)
        if expected is None:
            return "named" if 400 <= status < 500 else self.not_taken(status, text)
        if status != expected:
            return self.not_taken(status, f"for {path} {str(data)[:80]}: {text}")
        return "named" if json.loads(text)["error"]["message"] else "wrong: no message"

    def cut(self, rng):
        """What breaks off, or was no HTTP."""
        data = rng.choice([b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"prompt\"",
                           b"POST /v1/completions HTTP/1.1\r\nHo", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                           b"GET / HTTP/9.9\r\n\r\n", b""])
        with socket.create_connection(self.server.address, timeout=TIMEOUT_S) as connection:
            connection.sendall(data)
            if rng.random() < 0.5:
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
        return "cut"


NEEDS_LAYER = unittest.skipUnless(LAYER.is_file(), "needs PUMICE_TEST_LAYER, a layer that is built where programs are native")


class Driver:
    """What is asked of faulty_layer.cpp."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.n_lost = 0

    def environment(self):
        # A path takes the place of the system's own, which has the validation layer.
        others = os.environ.get("VK_LAYER_PATH") or "/usr/share/vulkan/explicit_layer.d"
        return {"VK_INSTANCE_LAYERS": "VK_LAYER_PUMICE_faults", "VK_LAYER_PATH": f"{LAYER.parent}:{others}",
                "PUMICE_TEST_FAULTS": str(self.folder)}

    def lose_device(self, give_up):
        """With the next submission; not, if `give_up` says so before there is one."""
        asked = self.folder / "lose"
        asked.touch()
        while asked.exists():
            if give_up():
                try:
                    asked.unlink()
                    return
                except FileNotFoundError:  # it came to that meanwhile
                    break
            time.sleep(0.005)
        self.n_lost += 1

    def grant(self, n_bytes):
        """So much of the device's memory; None: all of it."""
        if n_bytes is None:
            (self.folder / "grant").unlink()
            return
        new = self.folder / "grant.new"
        new.write_text(str(n_bytes))
        new.rename(self.folder / "grant")


@NEEDS_LAYER
class YieldTest(CommandLineTest):
    def test_a_driver_that_does_not_say_what_it_grants_is_refused(self):
        driver = Driver(self.folder / "faults")
        (driver.folder / "silent").touch()
        self.refuses(USAGE, "serve", "-m", MODEL, "-c", "128", "--port", "0", "--yield-memory", env=driver.environment(),
                     says="VK_EXT_memory_budget")


@NEEDS_LAYER
class LoadTest(unittest.TestCase):
    n_requests = 120

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-load-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.driver = Driver(self.folder / "faults")
        # A pool that does not hold all that runs, so that requests make room for others.
        self.server = Server(self.folder, "--temp", "0", "-np", "8", "--log", "none", "--yield-memory",
                             "--prefix-store", self.folder / "store", "--prefix-store-size", "4",
                             env=self.driver.environment())
        self.addCleanup(self.server.stop)

    def single_runs(self):
        """Greedy answers whose tokens are clear choices, one request at a time."""
        rng = random.Random(3)
        expected = {}
        while len(expected) < 12:
            prompt = text_of(rng, rng.randrange(2, 60))
            answer = self.server.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0,
                                                                  "logprobs": 2})
            best = [sorted(top.values(), reverse=True) for top in answer["choices"][0]["logprobs"]["top_logprobs"]]
            if all(len(two) < 2 or two[0] - two[1] > 0.01 for two in best):
                expected[prompt] = answer["choices"][0]["text"]
        return expected

    def n_files(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def memory_kib(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def settled(self):
        self.server.wait_until(self.server.is_idle, "all requests have ended")
        self.server.wait_until(lambda: self.server.metric("pumice:kv_cache_usage_perc") == 0, "all blocks are free")

    def lose_devices(self, load, part, n_times):
        """Spread over what is left of a part."""
        def n_over():
            return sum(load.counts.values())

        end = (part + 1) * (self.n_requests // PARTS)
        begin = n_over()
        for i in range(n_times):
            due = begin + (end - begin) * i // n_times
            while n_over() < due:
                time.sleep(0.01)
            self.driver.lose_device(lambda: n_over() >= end)

    def test_every_request_ends_as_it_must_and_nothing_is_left_of_it(self):
        expected = self.single_runs()
        start = time.monotonic()
        load = Load(self.server, expected)
        kv_bytes = self.server.metric("pumice:kv_bytes")
        tight = int(self.server.metric("pumice:device_bytes") - kv_bytes // 2)
        n_losses = max(1, min(10, self.n_requests // PARTS // 40))  # in a part that has any
        memory, files, least = [], [], []
        for part in range(PARTS):
            threads = load.run(self.n_requests // PARTS, part)
            if part in LOSSY:
                threads.append(threading.Thread(target=self.lose_devices, args=(load, part, n_losses)))
                threads[-1].start()
            if part in HALVED:
                self.driver.grant(tight)
                self.server.wait_until(lambda: self.server.metric("pumice:kv_bytes") <= kv_bytes // 2, "memory is given back")
            for thread in threads:
                thread.join()
            self.settled()
            if part in HALVED:
                least.append(self.server.metric("pumice:kv_bytes"))
                self.driver.grant(None)
                self.server.wait_until(lambda: self.server.metric("pumice:kv_bytes") == kv_bytes, "memory is back")
            # Connections are closed a moment after their clients are gone.
            deadline = time.monotonic() + 20
            while files and self.n_files() > files[0] and time.monotonic() < deadline:
                time.sleep(0.1)
            memory.append(self.memory_kib())
            files.append(self.n_files())
        print(f"{sum(load.counts.values())} requests in {time.monotonic() - start:.0f} s; open files {files}, "
              f"resident KiB {memory}, preemptions {self.server.metric('pumice:num_preemptions_total'):.0f}, "
              f"lost devices {self.driver.n_lost}, KV bytes {kv_bytes:.0f}, under pressure {least}", file=sys.stderr)
        for what, n in sorted(load.counts.items()):
            print(f"  {n:6} {what}", file=sys.stderr)
        self.assertEqual(load.wrong, [])
        self.assertLessEqual(max(files[1:]), files[0], "files are left open")
        self.assertLess(memory[-1] - memory[0], HOST_TIER_KIB + (32 << 10), f"memory grows: {memory}")
        if self.n_requests >= 10000:  # that tier is full by then
            self.assertLess(memory[-1] - memory[-2], 16 << 10, f"memory grows: {memory}")
        self.assertGreater(self.driver.n_lost, 0)
        self.assertEqual(self.server.metric("pumice:lost_devices_total"), self.driver.n_lost)
        self.assertLessEqual(max(least), kv_bytes // 2)
        for prompt, text in expected.items():
            answer = self.server.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0})
            self.assertEqual(answer["choices"][0]["text"], text)

    def test_a_server_that_is_told_to_end_amid_it_ends_well(self):
        load = Load(self.server, self.single_runs())
        threads = load.run(min(self.n_requests, 400), 99)
        time.sleep(1.5)
        self.driver.lose_device(lambda: not any(thread.is_alive() for thread in threads))
        load.ends = True
        self.server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(TIMEOUT_S)
            self.assertFalse(thread.is_alive(), "a request does not end")
        self.assertEqual(self.server.process.wait(TIMEOUT_S), 0)
        self.assertEqual(load.wrong, [])
        self.assertGreater(sum(n for what, n in load.counts.items() if "at the end" not in what), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=LoadTest.n_requests)
    arguments, others = parser.parse_known_args()
    LoadTest.n_requests = arguments.requests
    unittest.main(argv=[sys.argv[0], *others])
