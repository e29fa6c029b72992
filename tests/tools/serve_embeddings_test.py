#!/usr/bin/env python3
"""pumice serve with a model that turns texts into vectors: /v1/embeddings, as clients of OpenAI's API ask it."""

import base64
import json
import math
import pathlib
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

from command_line import BINARY, SHARED, USAGE, CommandLineTest, user_environment
from serve_test import MODEL, PROMPT, AsksServer, Server

BERT = SHARED / "reference/embeddings/bert-cls.gguf"
TEXTS = ["Hello world", "a longer text, of more words than the first one", "x"]


class EmbeddingsTest(AsksServer, unittest.TestCase):
    model = MODEL
    flags = ()

    @classmethod
    def setUpClass(cls):
        if not cls.model.exists():
            raise unittest.SkipTest(f"no {cls.model.name} in the shared data ({SHARED})")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.server = Server(cls.folder, *cls.flags, model=cls.model)
        cls.addClassCleanup(cls.server.stop)

    def embed(self, **fields):
        return self.server.json("POST", "/v1/embeddings", fields)

    def vectors(self, **fields):
        return [one["embedding"] for one in self.embed(**fields)["data"]]

    def assert_close(self, some, others):
        self.assertEqual(len(some), len(others))
        self.assertGreater(sum(a * b for a, b in zip(some, others)), 1 - 1e-5)


class Ranking(EmbeddingsTest):
    """A reranker, made by `pumice synth`: its scores mean nothing, and are some."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-ranker-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.model = folder / "ranker.gguf"
        subprocess.run([BINARY, "synth", "--preset", "reranker-tiny", "-o", cls.model], check=True, capture_output=True)
        super().setUpClass()

    def rank(self, **fields):
        return self.server.json("POST", "/v1/rerank", fields)

    def test_documents_come_best_first_with_their_places(self):
        answer = self.rank(query="cats", documents=TEXTS + ["about cats"], model="ranker")
        results = answer["results"]
        self.assertEqual(sorted(one["index"] for one in results), [0, 1, 2, 3])
        scores = [one["relevance_score"] for one in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(len(set(scores)), 4)
        self.assertTrue(all(0 < score < 1 for score in scores))
        self.assertEqual(answer["model"], "ranker")
        self.assertGreater(answer["usage"]["total_tokens"], 4)
        best = self.rank(query="cats", documents=[{"text": text} for text in TEXTS + ["about cats"]], top_n=2, return_documents=True)
        self.assertEqual([one["index"] for one in best["results"]], [one["index"] for one in results[:2]])
        self.assertEqual([one["document"]["text"] for one in best["results"]],
                         [(TEXTS + ["about cats"])[one["index"]] for one in best["results"]])
        # One document alone has the score that it has among others.
        (alone,) = self.rank(query="cats", documents=TEXTS[0])["results"]
        self.assertAlmostEqual(alone["relevance_score"], next(one["relevance_score"] for one in results if one["index"] == 0), 5)

    def test_scores_of_pairs(self):
        by_index = {one["index"]: one["relevance_score"] for one in self.rank(query="cats", documents=TEXTS)["results"]}
        answer = self.server.json("POST", "/v1/score", {"text_1": "cats", "text_2": TEXTS})
        for one in answer["data"]:
            self.assertAlmostEqual(one["score"], by_index[one["index"]], 5)
        pairs = self.server.json("POST", "/score", {"text_1": ["cats", "dogs"], "text_2": TEXTS[:2]})
        self.assertAlmostEqual(pairs["data"][0]["score"], by_index[0], 5)

    def test_it_does_nothing_else(self):
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
                           ("/v1/completions", {"prompt": "Hi"}), ("/v1/embeddings", {"input": "Hi"})):
            self.refused(path, body, 400, "ranker", "/v1/rerank", param="model")
        for command in ("embed", "run"):
            done = subprocess.run([BINARY, command, "-m", self.model, "-p", "a"], capture_output=True, cwd=self.folder, check=False,
                                  env=user_environment(self.folder / "config", {}))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"/v1/rerank", done.stderr)


class Vectors(EmbeddingsTest):
    model = BERT

    def test_they_are_those_of_embed(self):
        words = [word for text in TEXTS for word in ("-p", text)]
        done = subprocess.run([BINARY, "embed", "-m", BERT, *words, "--json"], capture_output=True, cwd=self.folder,
                              env=user_environment(self.folder / "config", {}), check=True)
        said = [json.loads(line) for line in done.stdout.decode().splitlines()]
        answer = self.embed(input=TEXTS)
        self.assertEqual([one["index"] for one in answer["data"]], [0, 1, 2])
        self.assertEqual({one["object"] for one in answer["data"]}, {"embedding"})
        self.assertEqual((answer["object"], answer["model"]), ("list", "bert-cls"))
        n_tokens = sum(one["tokens"] for one in said)
        self.assertEqual(answer["usage"], {"prompt_tokens": n_tokens, "total_tokens": n_tokens})
        for one, other in zip(answer["data"], said):
            self.assert_close(one["embedding"], other["embedding"])
            self.assertAlmostEqual(math.hypot(*one["embedding"]), 1, 5)

    def test_a_text_is_its_tokens(self):
        tokens = self.server.json("POST", "/tokenize", {"prompt": TEXTS[0]})["tokens"]
        for field in (tokens, [tokens], TEXTS[0]):
            self.assert_close(self.vectors(input=field)[0], self.vectors(input=[TEXTS[0]])[0])
        self.assertEqual(len(self.vectors(input=[tokens, tokens])), 2)

    def test_base64_is_the_same_numbers_as_bytes(self):
        numbers = self.vectors(input=TEXTS)
        for text, vector in zip(self.vectors(input=TEXTS, encoding_format="base64"), numbers):
            data = base64.b64decode(text, validate=True)
            self.assert_close(struct.unpack(f"<{len(data) // 4}f", data), vector)

    def test_fewer_dimensions_are_the_first_ones_at_length_one(self):
        (whole,), (part,) = self.vectors(input="Hello"), self.vectors(input="Hello", dimensions=16)
        length = math.hypot(*whole[:16])
        self.assert_close(part, [value / length for value in whole[:16]])
        self.refused("/v1/embeddings", {"input": "Hello", "dimensions": len(whole) + 1}, 400, param="dimensions")

    def test_what_is_wrong_is_named(self):
        for body, param in (({}, "input"), ({"input": ""}, "input"), ({"input": ["a", ""]}, "input"), ({"input": []}, "input"),
                            ({"input": [1, "a"]}, "input"), ({"input": [10 ** 7]}, "input"), ({"input": {"a": 1}}, "input"),
                            ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
                            ({"input": "a", "dimensions": 0}, "dimensions")):
            with self.subTest(body):
                self.refused("/v1/embeddings", body, 400, param=param)
        error = self.refused("/v1/embeddings", {"input": ["a", "word " * 600]}, 400, "maximum context length is 512", param="input")
        self.assertEqual(error["code"], "context_length_exceeded")
        self.refused("/v1/embeddings", {"input": "a", "model": "other"}, 404, "other")
        self.assertEqual(len(self.vectors(input="a", model="bert-cls")), 1)

    def test_such_a_model_writes_no_text(self):
        messages = [{"role": "user", "content": "Hi"}]
        for path, body in (("/v1/chat/completions", {"messages": messages}), ("/v1/completions", {"prompt": "Hi"}),
                           ("/v1/responses", {"input": "Hi"})):
            self.refused(path, body, 400, "bert-cls", "/v1/embeddings", param="model")
        status, _, text = self.server.ask("POST", "/v1/messages", {"messages": messages, "max_tokens": 5})
        self.assertEqual((status, json.loads(text)["error"]["type"]), (400, "invalid_request_error"))
        self.refused("/v1/rerank", {"query": "a", "documents": ["b"]}, 400, "does not rank", param="model")

    def test_what_else_is_asked_of_it(self):
        (model,) = self.server.json("GET", "/v1/models")["data"]
        self.assertEqual((model["id"], model["max_model_len"]), ("bert-cls", 512))
        self.assertEqual(self.server.json("GET", "/health/ready"), {"status": "ok"})
        self.assertEqual(self.server.json("GET", "/props")["n_ctx"], 512)
        before = self.server.metric("pumice:embedded_texts_total")
        self.embed(input=TEXTS)
        self.assertEqual(self.server.metric("pumice:embedded_texts_total"), before + 3)

    def test_many_clients_at_once_get_their_own(self):
        texts = [f"text number {i}" for i in range(24)]
        alone = {text: self.vectors(input=text)[0] for text in texts}
        failures = []

        def client(number):
            mine = texts[number::6] * 3
            try:
                for text, vector in zip(mine, self.vectors(input=mine)):
                    self.assert_close(vector, alone[text])
            except Exception as error:  # pylint: disable=broad-except
                failures.append(repr(error))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_a_client_that_leaves_is_forgotten(self):
        connection = self.server.connect()
        connection.request("POST", "/v1/embeddings", json.dumps({"input": ["d " * 400] * 500}))
        self.server.wait_until(lambda: self.server.metric("pumice:num_requests_running") > 0, "it runs")
        connection.sock.close()
        connection.close()
        self.server.wait_until(self.server.is_idle, "it ended")
        self.assertIn('status="499"', self.server.ask("GET", "/metrics")[2])


class OfAWriter(EmbeddingsTest):
    flags = ("--pooling", "mean")

    def test_a_model_that_writes_text_gives_vectors_when_told_how(self):
        one, other, same = self.vectors(input=["The dog ran.", "Once upon a time", "The dog ran."])
        self.assert_close(one, same)
        self.assertNotEqual(one, other)
        self.refused("/v1/completions", {"prompt": PROMPT}, 400, param="model")


class Refusals(CommandLineTest):
    def test_a_model_that_writes_text_gives_none(self):
        server = Server(self.folder)
        self.addCleanup(server.stop)
        for path in ("/v1/embeddings", "/embeddings"):
            status, _, text = server.ask("POST", path, {"input": "a"})
            self.assertEqual(status, 400)
            self.assertEqual(json.loads(text)["error"]["param"], "model")
            self.assertIn("--pooling", json.loads(text)["error"]["message"])

    def test_flags_that_make_no_sense_are_said(self):
        self.refuses(USAGE, "serve", "-m", MODEL, "--pooling", "none", says="--pooling")
        self.refuses(USAGE, "serve", "-m", self.need(BERT), "--kv-events", "tcp://127.0.0.1:0", "--port", 0, says="--kv-events")


if __name__ == "__main__":
    unittest.main()
