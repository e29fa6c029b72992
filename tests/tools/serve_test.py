#!/usr/bin/env python3
"""pumice serve, as clients of OpenAI's API and others meet it: the bundled model behind HTTP."""

import http.client
import json
import os
import pathlib
import queue
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from command_line import BINARY, USAGE, CommandLineTest, user_environment

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/pumice-stories.gguf"
PROMPT = "Once upon a time, there was a little"
LISTENING = re.compile(r"listening on http://([\d.]+):(\d+)")
START_TIMEOUT_S = 300
TIMEOUT_S = 120


class Server:
    """A running `pumice serve`; its log is read as it comes. `model` None: none but those of the flags."""

    def __init__(self, folder, *flags, env=None, model=MODEL):
        words = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", ""))
        self.process = subprocess.Popen(
            [*words, BINARY, "serve", *(() if model is None else ("-m", str(model))), "--port", "0", "-c", "512",
             *map(str, flags)], cwd=folder,
            env=user_environment(folder / "config", env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.log = []
        self.listens = queue.Queue()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        match = self.listens.get(timeout=START_TIMEOUT_S)
        if match is None:
            raise AssertionError("the server did not start:\n" + "".join(self.log))
        self.address = (match[1], int(match[2]))

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            if match := LISTENING.search(line):
                self.listens.put(match)
        self.listens.put(None)

    def connect(self):
        return http.client.HTTPConnection(*self.address, timeout=TIMEOUT_S)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and the body as text."""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        status, _, text = self.ask(method, path, body, headers)
        if status != 200:
            raise AssertionError(f"{path}: {status} {text}")
        return json.loads(text)

    def events(self, path, body):
        """The data of each event of a stream."""
        status, headers, text = self.ask("POST", path, {**body, "stream": True})
        if status != 200 or headers["Content-Type"] != "text/event-stream":
            raise AssertionError(f"{path}: {status} {text}")
        blocks = text.split("\n\n")
        assert blocks.pop() == "", text
        return [block.split("data: ", 1)[1] for block in blocks if not block.startswith(":")]

    def metric(self, name):
        """The sum of its samples."""
        text = self.ask("GET", "/metrics")[2]
        found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def wait_until(self, holds, what):
        end = time.monotonic() + TIMEOUT_S
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}")
            time.sleep(0.02)

    def is_idle(self):
        return (self.metric("pumice:num_requests_running") == 0
                and self.metric("pumice:num_requests_waiting") == 0)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class AsksServer:
    """Of a test case with a `server`."""

    def refused(self, path, body, status, *words, param=None):
        """What it says."""
        got, _, text = self.server.ask("POST", path, body)
        self.assertEqual(got, status, text)
        error = json.loads(text)["error"]
        for word in words:
            self.assertIn(word, error["message"])
        if param is not None:
            self.assertEqual(error["param"], param)
        return error


class ServeTest(AsksServer, unittest.TestCase):
    flags = ("--temp", "0")

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.server = Server(cls.folder, *cls.flags)
        cls.addClassCleanup(cls.server.stop)

    def complete(self, prompt=PROMPT, **fields):
        return self.server.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 24, **fields})

    def assert_close(self, some, others):
        """Equal but for how numbers were rounded: a prompt's end may be computed together with more or less of it."""
        if isinstance(others, float):
            return self.assertAlmostEqual(some, others, places=3)
        self.assertEqual(type(some), type(others))
        if isinstance(others, dict):
            self.assertEqual(some.keys(), others.keys())
            return [self.assert_close(some[key], others[key]) for key in others]
        if isinstance(others, list):
            self.assertEqual(len(some), len(others))
            return [self.assert_close(one, other) for one, other in zip(some, others)]
        return self.assertEqual(some, others)

    def streamed(self, path, body):
        """A stream's chunks, which end as streams end; without [DONE]."""
        events = self.server.events(path, body)
        self.assertEqual(events[-1], "[DONE]")
        chunks = [json.loads(event) for event in events[:-1]]
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertEqual(len({chunk["created"] for chunk in chunks}), 1)
        return chunks


class Texts(ServeTest):
    def test_a_completion_is_what_run_says(self):
        done = subprocess.run([BINARY, "run", "-m", MODEL, "-p", PROMPT, "--temp", "0", "-n", "24", "-c", "512"],
                              capture_output=True, env=user_environment(self.folder / "config", {}), cwd=self.folder)
        answer = self.complete()
        self.assertEqual(answer["choices"][0]["text"], done.stdout.decode())
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 24)
        self.assertEqual(answer["object"], "text_completion")

    def test_a_stream_is_the_answer_in_pieces(self):
        for fields in ({}, {"temperature": 1, "seed": 5}, {"stop": ["little", "the"]}, {"n": 3, "temperature": 1, "seed": 3},
                       {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"stop": "."}):
            with self.subTest(fields):
                whole = self.complete(**fields)
                chunks = self.streamed("/v1/completions", {"prompt": PROMPT, "max_tokens": 24, **fields,
                                                           "stream_options": {"include_usage": True}})
                for choice in whole["choices"]:
                    its = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
                    self.assertEqual("".join(c["text"] for c in its), choice["text"])
                    self.assertEqual([c["finish_reason"] for c in its],
                                     [None] * (len(its) - 1) + [choice["finish_reason"]])
                    self.assertEqual(its[-1]["text"], "")
                    if choice["logprobs"]:
                        for name, values in choice["logprobs"].items():
                            self.assert_close([v for c in its if c["logprobs"] for v in c["logprobs"][name]], values)
                self.assertEqual(chunks[-1]["choices"], [])
                for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                    self.assertEqual(chunks[-1]["usage"][name], whole["usage"][name])

    def test_a_chat_is_streamed_as_strict_clients_want_it(self):
        body = {"messages": [{"role": "system", "content": "Tell a story."},
                             {"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}],
                "max_completion_tokens": 20, "logprobs": True, "top_logprobs": 2}
        whole = self.server.json("POST", "/v1/chat/completions", body)
        message = whole["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        chunks = self.streamed("/v1/chat/completions", body)
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), message["content"])
        self.assertEqual(deltas[-1], {})
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
        self.assertTrue(all(chunk["object"] == "chat.completion.chunk" and "usage" not in chunk for chunk in chunks))
        tokens = whole["choices"][0]["logprobs"]["content"]
        self.assert_close([entry for chunk in chunks if chunk["choices"][0]["logprobs"]
                           for entry in chunk["choices"][0]["logprobs"]["content"]], tokens)
        self.assertEqual(len(tokens), whole["usage"]["completion_tokens"])
        self.assertEqual([len(token["top_logprobs"]) for token in tokens], [2] * len(tokens))
        self.assertTrue(all(token["logprob"] == token["top_logprobs"][0]["logprob"] for token in tokens))

    def test_the_first_token_ends_a_prompt_that_was_seen_before(self):
        long = PROMPT + " dog who liked to play in the park with his friends and his big red ball."
        self.complete(long)
        usage = self.complete(long)["usage"]
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 16)
        self.assertEqual(self.complete(long, cache_salt="other")["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_tokens_are_prompts_and_several_prompts_are_answered_in_their_order(self):
        scored = self.complete(max_tokens=0, echo=True, logprobs=0)
        self.assertEqual(scored["choices"][0]["text"], PROMPT)
        log_probs = scored["choices"][0]["logprobs"]
        self.assertEqual(len(log_probs["tokens"]), scored["usage"]["prompt_tokens"])
        self.assertIsNone(log_probs["token_logprobs"][0])
        self.assertTrue(all(value < 0 for value in log_probs["token_logprobs"][1:]))
        self.assertEqual(scored["usage"]["completion_tokens"], 0)
        one, other = self.complete("The dog")["choices"][0]["text"], self.complete("A cat")["choices"][0]["text"]
        both = self.complete(["The dog", "A cat"], n=2)
        self.assertEqual([choice["text"] for choice in both["choices"]], [one, one, other, other])

    def test_an_answer_is_held_to_its_schema_whatever_the_model_would_say(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                                   "n": {"enum": [1, 2, 3]}},
                  "required": ["name", "n"], "additionalProperties": False}
        chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 200, "temperature": 1, "seed": 4}
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}}
        answer = self.server.json("POST", "/v1/chat/completions", {**chat, **form})["choices"][0]
        said = json.loads(answer["message"]["content"])
        self.assertEqual(sorted(said), ["n", "name"])
        self.assertEqual(answer["finish_reason"], "stop")
        chunks = self.streamed("/v1/chat/completions", {**chat, **form})
        self.assertEqual(json.loads("".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)), said)
        tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
        called = self.server.json("POST", "/v1/chat/completions", {**chat, "tools": tools, "tool_choice": "required",
                                                                   "parallel_tool_calls": False})["choices"][0]
        (call,) = called["message"]["tool_calls"]
        self.assertEqual((called["finish_reason"], call["function"]["name"]), ("tool_calls", "look"))
        self.assertIn(json.loads(call["function"]["arguments"])["n"], (1, 2, 3))
        message = self.server.json("POST", "/v1/messages", {
            "messages": chat["messages"], "max_tokens": 200, "tool_choice": {"type": "any"},
            "tools": [{"name": "look", "input_schema": schema}]})
        self.assertEqual((message["stop_reason"], message["content"][-1]["name"]), ("tool_use", "look"))
        item = self.server.json("POST", "/v1/responses", {"input": PROMPT, "max_output_tokens": 200, "tools": [
            {"type": "function", "name": "look", "parameters": schema}], "tool_choice": "required"})["output"][-1]
        self.assertIn(json.loads(item["arguments"])["n"], (1, 2, 3))
        self.assertIn(self.complete(guided_choice=["yes", "no"])["choices"][0]["text"], ("yes", "no"))

    def test_what_an_answer_is_predicted_to_be_is_guessed_and_verified(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_completion_tokens": 60}

        def ask(server, prediction=None):
            more = {"prediction": {"type": "content", "content": prediction}} if prediction is not None else {}
            answer = server.json("POST", "/v1/chat/completions", {**body, **more})
            details = answer["usage"]["completion_tokens_details"]
            return (answer["choices"][0]["message"]["content"], details["accepted_prediction_tokens"],
                    details["rejected_prediction_tokens"])

        text, _, _ = ask(self.server)
        # As many are verified as the flag's guesses are.
        eager = Server(self.folder, *self.flags, "--spec", "ngram")
        self.addCleanup(eager.stop)
        plain, found, _ = ask(eager)
        same, accepted, rejected = ask(eager, text)
        self.assertEqual((plain, same, rejected), (text, text, 0))
        self.assertGreater(accepted, max(found, 45))
        parts = [{"type": "text", "text": text[:40]}, {"type": "text", "text": text[40:]}]
        self.assertEqual(ask(eager, parts), (text, accepted, 0))
        # What is wrong costs guesses and changes nothing; behind it, it is right again.
        words = text.split(" ")
        other, accepted, rejected = ask(eager, " ".join([*words[:10], "xylophone", *words[11:]]))
        self.assertEqual(other, text)
        self.assertGreater(accepted, max(found, 30))
        self.assertGreater(rejected, 0)
        # Without a flag too it is guessed, as far as that is worth it.
        quiet = Server(self.folder, *self.flags, "--spec", "off")
        self.addCleanup(quiet.stop)
        self.assertEqual(ask(quiet), (text, 0, 0))
        same, accepted, rejected = ask(quiet, text)
        self.assertEqual((same, rejected), (text, 0))
        self.assertGreater(accepted, 0)
        for prediction in ("text", {"type": "content"}, {"type": "other", "content": "a"}, {"type": "content", "content": 3}):
            with self.subTest(prediction):
                self.refused("/v1/chat/completions", {**body, "prediction": prediction}, 400, "prediction")

    def test_a_stop_string_ends_the_text_before_it(self):
        text = self.complete(max_tokens=60)["choices"][0]["text"]
        word = text.split()[4]
        stopped = self.complete(max_tokens=60, stop=[word, "never this"])["choices"][0]
        self.assertEqual(stopped["text"], text[:text.index(word)])
        self.assertEqual(stopped["finish_reason"], "stop")


class Refusals(ServeTest):
    def test_what_is_wrong_is_named(self):
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        for body, param in (({"prompt": PROMPT, "temperature": "hot"}, "temperature"),
                            ({"prompt": PROMPT, "max_tokens": 0}, "max_tokens"),
                            ({"prompt": PROMPT, "n": 0}, "n"),
                            ({"prompt": PROMPT, "stop": [1]}, "stop"),
                            ({"prompt": PROMPT, "logprobs": 99}, "logprobs"),
                            ({"prompt": PROMPT, "logit_bias": {"x": 1}}, "logit_bias"),
                            ({"prompt": PROMPT, "suffix": "end"}, "suffix"),
                            ({"prompt": [10 ** 9]}, "prompt"), ({"prompt": []}, "prompt"), ({}, "prompt")):
            with self.subTest(body):
                self.refused("/v1/completions", body, 400, param, param=param)
        for more, param in (({"messages": []}, "messages"), ({"messages": [{"content": "x"}]}, "messages[0].role"),
                            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
                            ({"top_logprobs": 2}, "top_logprobs"), ({"tools": [{"type": "function"}]}, "tools"),
                            ({"functions": [{"name": "f"}]}, "functions")):
            with self.subTest(more):
                self.refused("/v1/chat/completions", {**chat, **more}, 400, param=param)
        error = self.refused("/v1/chat/completions", {**chat, "model": "gpt-7"}, 404, "gpt-7")
        self.assertEqual(error["code"], "model_not_found")

    def test_a_prompt_beyond_the_context_is_told_as_clients_know_it(self):
        words = "the dog and the cat " * 300
        for path, body, param in (("/v1/completions", {"prompt": words}, "prompt"),
                                  ("/v1/chat/completions", {"messages": [{"role": "user", "content": words}]}, "messages")):
            error = self.refused(path, body, 400, "This model's maximum context length is 512 tokens. However, ",
                                 "exceeds the available context size (512 tokens)", param=param)
            self.assertEqual(error["code"], "context_length_exceeded")

    def test_bodies_that_are_no_json_and_paths_that_are_none(self):
        for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": "a", "prompt": "b"}', b"[" * 100000):
            self.refused("/v1/completions", body, 400, "the body")
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        status, headers, _ = self.server.ask("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertEqual(self.server.ask("POST", "/health", {})[0], 405)

    def test_pages_of_other_sites_are_not_answered(self):
        status, headers, _ = self.server.ask("GET", "/v1/models", headers={"Sec-Fetch-Site": "cross-site"})
        self.assertEqual(status, 403)
        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_what_is_no_http_is_refused_or_cut(self):
        def says(data):
            with socket.create_connection(self.server.address, timeout=TIMEOUT_S) as connection:
                connection.sendall(data)
                return connection.makefile("rb").read()
        self.assertTrue(says(b"HELLO\r\n\r\n").startswith(b"HTTP/1.1 400 "))
        self.assertTrue(says(b"GET / HTTP/1.1\r\nX: " + b"a" * 70000).startswith(b"HTTP/1.1 431 "))
        head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"
        self.assertTrue(says(head).startswith(b"HTTP/1.1 413 "))
        self.assertEqual(self.server.json("GET", "/health"), {"status": "ok"})


class Clients(ServeTest):
    def open(self, **fields):
        """A connection whose request runs."""
        connection = self.server.connect()
        body = {"prompt": PROMPT, "max_tokens": 480, "ignore_eos": True, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body))
        return connection

    def test_models_and_health(self):
        (model,) = self.server.json("GET", "/v1/models")["data"]
        self.assertEqual((model["id"], model["max_model_len"]), ("pumice-stories", 512))
        self.assertEqual(self.server.json("GET", "/v1/models/pumice-stories")["id"], "pumice-stories")
        self.assertEqual(self.server.ask("GET", "/v1/models/other")[0], 404)
        self.assertEqual(self.server.json("GET", "/health/ready"), {"status": "ok"})
        self.assertEqual(self.server.json("GET", "/props")["n_ctx"], 512)

    def test_a_client_that_leaves_is_not_answered_any_more(self):
        for stream in (True, False):
            with self.subTest(stream=stream):
                before = self.server.metric("pumice:generation_tokens_total")
                connection = self.open(stream=stream)
                self.server.wait_until(lambda: self.server.metric("pumice:num_requests_running") > 0, "it runs")
                connection.sock.close()
                connection.close()
                self.server.wait_until(self.server.is_idle, "it ended")
                self.assertLess(self.server.metric("pumice:generation_tokens_total") - before, 480)
        self.assertIn('finished_reason="abort"', self.server.ask("GET", "/metrics")[2])

    def test_one_connection_serves_request_after_request(self):
        connection = self.server.connect()
        texts = set()
        for _ in range(3):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 8}))
            response = connection.getresponse()
            texts.add(json.loads(response.read())["choices"][0]["text"])
            connection.request("GET", "/health", headers={"X-Request-Id": "mine"})
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.headers["X-Request-Id"], "mine")
        connection.close()
        self.assertEqual(len(texts), 1)

    def test_many_clients_at_once_get_what_each_would_get_alone(self):
        chances = random.Random(7)
        prompts = ["Once upon a time", "The dog", "A cat sat", "Tom and Anna went to the park", "One day"]
        alone = {prompt: self.complete(prompt, max_tokens=30)["choices"][0]["text"] for prompt in prompts}
        failures = []

        def client(number, kind, prompt):
            try:
                if kind == "stream":
                    chunks = self.streamed("/v1/completions", {"prompt": prompt, "max_tokens": 30})
                    text = "".join(c["text"] for chunk in chunks for c in chunk["choices"])
                elif kind == "whole":
                    text = self.complete(prompt, max_tokens=30)["choices"][0]["text"]
                elif kind == "leaves":
                    connection = self.open(prompt=prompt, stream=True)
                    time.sleep(number % 7 / 20)
                    connection.sock.close()
                    return
                else:
                    self.refused("/v1/completions", {"prompt": prompt, "temperature": -1}, 400)
                    return
                if text != alone[prompt]:
                    failures.append((kind, prompt, text))
            except Exception as error:  # pylint: disable=broad-except
                failures.append((kind, prompt, repr(error)))

        threads = [threading.Thread(target=client, args=(i, chances.choice(("stream", "stream", "whole", "leaves", "wrong")),
                                                         chances.choice(prompts))) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.server.wait_until(self.server.is_idle, "all ended")

    def test_a_thousand_streams_are_open_at_once(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        n = 1000 if hard == resource.RLIM_INFINITY or hard > 1200 else 500
        # Where requests are slow to come in, the first have ended before the last are there: those take longer ones.
        for max_tokens in (10, 40, 160):
            if self.most_open_streams(n, max_tokens) >= n // 2:
                return
        self.fail("streams ended before half were open at once")

    def most_open_streams(self, n, max_tokens):
        """Of so many streams that begin together, how many were seen at once; all end, and say the same."""
        body = json.dumps({"prompt": "One day", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        connections = []
        for _ in range(n):
            connections.append(socket.create_connection(self.server.address, timeout=TIMEOUT_S))
            self.addCleanup(connections[-1].close)
        for connection in connections:
            connection.sendall(request)
        most = 0
        while most < n // 2:
            open_now = self.server.metric("pumice:num_requests_running") + self.server.metric("pumice:num_requests_waiting")
            if open_now == 0 and most > 0:
                break
            most = max(most, open_now)
        texts = set()
        for connection in connections:
            data = connection.makefile("rb").read()
            self.assertTrue(data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), data[-200:])
            texts.add("".join(re.findall(r'"text":"([^"]*)"', data.decode())))
            connection.close()
        self.assertEqual(len(texts), 1)
        return most

    def test_a_client_that_does_not_read_is_cut_off(self):
        def is_cut():
            return 'finished_reason="abort"' in self.server.ask("GET", "/metrics")[2]
        aborts = self.server.metric("pumice:requests_total")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(self.server.address)
            # Each token tells of twenty others, in forty streams at once: more than anybody keeps.
            body = json.dumps({"prompt": PROMPT, "max_tokens": 470, "ignore_eos": True, "n": 16, "logprobs": 20,
                               "temperature": 1, "stream": True}).encode()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.server.wait_until(lambda: self.server.metric("pumice:requests_total") > aborts, "it ended")
            self.assertTrue(is_cut())
        self.server.wait_until(self.server.is_idle, "it was cancelled")
        self.assertEqual(self.server.json("GET", "/health"), {"status": "ok"})


class Guarded(ServeTest):
    flags = ("--api-key", "first", "--api-key", "second", "--max-queue", "2", "--model-alias", "stories", "--model-alias", "*",
             "--log", "json", "--metrics-compat", "vllm", "--always-usage", "--temp", "0")

    def test_keys_are_asked_for_but_for_health(self):
        for headers, status in (({}, 401), ({"Authorization": "Bearer firs"}, 401), ({"Authorization": "Bearer firstt"}, 401),
                                ({"Authorization": "Bearer first"}, 200), ({"x-api-key": "second"}, 200)):
            self.assertEqual(self.server.ask("GET", "/v1/models", headers=headers)[0], status, headers)
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)
        self.assertIn("vllm:num_requests_running", self.server.ask("GET", "/metrics")[2])
        # Not even a body is read of those who have none.
        self.assertEqual(self.server.ask("POST", "/v1/completions", b"x" * 100000)[0], 401)

    def test_beyond_the_bound_clients_are_told_to_come_again(self):
        key = {"Authorization": "Bearer first"}
        body = {"prompt": PROMPT, "max_tokens": 4, "model": "whatever"}
        status, headers, text = self.server.ask("POST", "/v1/completions", {**body, "n": 3}, key)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"), text)
        status, headers, text = self.server.ask("POST", "/v1/completions", body, {**key, "X-Request-Id": "req-7"})
        self.assertEqual((status, headers["X-Request-Id"]), (200, "req-7"), text)
        self.assertEqual(json.loads(text)["model"], "stories")
        self.server.wait_until(lambda: any("req-7" in line for line in self.server.log), "it is logged")
        (line,) = [json.loads(line) for line in self.server.log if "req-7" in line]
        self.assertEqual((line["status"], line["finish_reason"], line["generated_tokens"]), (200, "length", 4))


class Ends(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *flags):
        server = Server(self.folder, *flags)
        self.addCleanup(server.stop)
        return server

    def test_a_server_that_is_told_to_end_finishes_what_runs_and_takes_nothing_new(self):
        server = self.start("--drain-delay", "1")
        body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True}
        running = server.connect()
        running.request("POST", "/v1/completions", json.dumps(body))
        server.wait_until(lambda: server.metric("pumice:num_requests_running") > 0, "it runs")
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: server.ask("GET", "/health/ready")[0] == 503, "not ready")
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        # Until then routers have heard of it.
        self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": 1})[0], 200)
        answer = json.loads(running.getresponse().read())
        self.assertEqual(answer["usage"]["completion_tokens"], 400)
        running.close()
        self.assertEqual(server.process.wait(TIMEOUT_S), 0)

    def test_a_second_signal_ends_what_runs_too(self):
        server = self.start()
        running = server.connect()
        running.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 450, "n": 16,
                                                               "ignore_eos": True, "stream": True}))
        server.wait_until(lambda: server.metric("pumice:num_requests_running") > 0, "it runs")
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: any("shutting down" in line for line in server.log), "it heard")
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(TIMEOUT_S), 0)
        running.close()


class Usage(CommandLineTest):
    def test_what_cannot_be_served_is_said_in_a_line(self):
        self.refuses(USAGE, "serve", "-m", MODEL, "-c", "128", "--host", "not an address", says="--host")
        self.refuses(USAGE, "serve", says="no model")
        self.refuses(USAGE, "serve", "-m", MODEL, "--port", "70000")
        self.refuses(USAGE, "serve", "-m", MODEL, "--api-key-file", self.write("keys", "\n"), says="no key")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.refuses(USAGE, "serve", "-m", MODEL, "-c", "128", "--port", taken.getsockname()[1], says="--port")


if __name__ == "__main__":
    unittest.main()
