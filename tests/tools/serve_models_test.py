#!/usr/bin/env python3
"""pumice serve with several models: loaded when they are asked for, and unloaded for one another."""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from command_line import BAD_FILE, BINARY, SHARED, USAGE, CommandLineTest, user_environment
from serve_load_test import NEEDS_LAYER, Driver
from serve_test import MODEL, PROMPT, AsksServer, Server

# Random ones by name: the preset and the seed. Two are large enough that memory can be short.
SYNTHETIC = {"lama": ("small-0.1b", 1), "lima": ("small-0.1b", 2), "quen": ("qwen35", 1), "quin": ("qwen35", 2)}
BERT = SHARED / "reference/embeddings/bert-cls.gguf"


def synthesize(folder, name):
    preset, seed = SYNTHETIC[name]
    subprocess.run([BINARY, "synth", "--preset", preset, "--type", "q4_k", "--seed", str(seed), "-o",
                    folder / f"{name}.gguf"],
                   check=True, capture_output=True, env=user_environment(folder / "config", {}))
    return folder / f"{name}.gguf"


class ModelsTest(AsksServer, unittest.TestCase):
    """One folder of models for all tests; a server for each."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.models = cls.folder / "models"
        cls.models.mkdir()
        for name in SYNTHETIC:
            synthesize(cls.models, name)
        shutil.copy(MODEL, cls.models / "stories.gguf")

    def start(self, *flags, model=None, env=None):
        self.server = Server(self.folder, "--temp", "0", *flags, model=model, env=env)
        self.addCleanup(self.server.stop)
        return self.server

    def complete(self, model=None, **fields):
        named = {} if model is None else {"model": model}
        answer = self.server.json("POST", "/v1/completions",
                                  {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, **named, **fields})
        return answer["model"], answer["choices"][0]["text"]

    def states(self):
        return {one["id"]: one["status"]["value"] for one in self.server.json("GET", "/v1/models")["data"]}

    def loads(self):
        return self.server.metric("pumice:model_loads_total")


class Several(ModelsTest):
    def test_the_first_is_loaded_at_once_and_another_when_it_is_asked_for(self):
        self.start("-m", self.models / "lama.gguf", "-a", "other=lama", "-a", "any", "-a", "*",
                   model=self.models / "stories.gguf")
        self.assertEqual(self.states(), {"any": "loaded", "other": "unloaded"})
        self.assertNotIn("max_model_len", self.server.json("GET", "/v1/models/other"))
        name, text = self.complete()
        self.assertEqual(name, "any")
        self.assertEqual(self.complete("whatever"), ("any", text))
        self.assertEqual(self.states(), {"any": "loaded", "other": "unloaded"})
        name, random_text = self.complete("other")
        self.assertEqual(name, "other")
        self.assertNotEqual(random_text, text)
        self.assertEqual(self.states(), {"any": "loaded", "other": "loaded"})
        self.assertEqual(self.server.json("GET", "/v1/models/other")["max_model_len"], 512)
        # The name of the file goes on being one.
        self.assertEqual(self.complete("lama"), ("other", random_text))
        self.assertEqual(self.complete("any"), ("any", text))
        self.assertEqual(self.loads(), 2)

    def test_a_name_that_no_model_has_is_told_of_those_there_are(self):
        self.start("-m", self.models / "lama.gguf", model=self.models / "stories.gguf")
        error = self.refused("/v1/chat/completions", {"model": "gpt", "messages": []}, 404, "'gpt'", "'stories', 'lama'",
                             param="model")
        self.assertEqual(error["code"], "model_not_found")
        self.assertEqual(self.server.ask("GET", "/v1/models/gpt")[0], 404)

    def test_every_endpoint_takes_the_model_that_is_named(self):
        self.start("-m", self.models / "lama.gguf", "--ollama", model=self.models / "stories.gguf")
        some = self.server.json("POST", "/tokenize", {"content": PROMPT})["tokens"]
        others = self.server.json("POST", "/tokenize", {"content": PROMPT, "model": "lama"})["tokens"]
        self.assertNotEqual(some, others)
        tags = self.server.json("GET", "/api/tags")["models"]
        self.assertEqual([one["name"] for one in tags], ["stories", "lama"])
        shown = self.server.json("POST", "/api/show", {"model": "lama:latest"})
        self.assertEqual(shown["details"]["family"], "llama")
        messages = [{"role": "user", "content": PROMPT}]
        for path in ("/v1/messages", "/v1/chat/completions"):
            answer = self.server.json("POST", path, {"model": "lama", "max_tokens": 4, "messages": messages})
            self.assertEqual(answer["model"], "lama")

    def test_metrics_are_of_each_model(self):
        self.start("-m", self.models / "lama.gguf", "--metrics-compat", "vllm", model=self.models / "stories.gguf")
        self.complete("lama")
        self.complete("stories", max_tokens=5)
        text = self.server.ask("GET", "/metrics")[2]
        self.assertIn('vllm:generation_tokens_total{model_name="lama"} 12\n', text)
        self.assertIn('vllm:generation_tokens_total{model_name="stories"} 5\n', text)
        self.assertEqual(text.count("# TYPE vllm:generation_tokens_total "), 1)


class OneAtATime(ModelsTest):
    def test_models_take_turns_and_no_request_is_lost(self):
        self.start("-m", self.models / "lama.gguf", "-m", self.models / "quen.gguf", "--models-max", "1",
                   model=self.models / "stories.gguf")
        names = ("stories", "lama", "quen")
        texts = {name: self.complete(name)[1] for name in names}
        self.assertEqual(list(self.states().values()), ["unloaded", "unloaded", "loaded"])
        self.assertEqual(self.loads(), 3)
        results = []

        def ask(name):
            results.append((name, self.complete(name)))

        threads = [threading.Thread(target=ask, args=(names[i % 3],)) for i in range(12)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.assertLessEqual(self.server.metric("pumice:model_loaded"), 1)
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), sorted((name, (name, texts[name])) for name in names for _ in range(4)))
        # Those that wait for one are served together.
        self.assertLessEqual(self.loads(), 3 + 12)

    def test_a_stream_ends_before_its_model_goes(self):
        self.start("-m", self.models / "lama.gguf", "--models-max", "1", model=self.models / "stories.gguf")
        plain = self.complete("stories", max_tokens=200)[1]
        got = {}
        streams = threading.Thread(target=lambda: got.update(events=self.server.events(
            "/v1/completions", {"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True, "model": "stories"})))
        streams.start()
        self.server.wait_until(lambda: self.server.metric("pumice:num_requests_running") > 0 or "events" in got, "a step")
        self.assertEqual(self.complete("lama")[0], "lama")
        streams.join()
        pieces = [json.loads(event)["choices"][0]["text"] for event in got["events"][:-1]]
        self.assertEqual("".join(pieces), plain)
        self.assertEqual(got["events"][-1], "[DONE]")

    def test_clients_that_leave_keep_no_model(self):
        self.start("-m", self.models / "lama.gguf", "--models-max", "1", model=self.models / "stories.gguf")
        for name in ("stories", "lama", "stories"):
            connection = self.server.connect()
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True, "model": name}))
            self.server.wait_until(lambda: self.states()[name] == "loaded", name)
            connection.close()
        self.assertEqual(self.complete("lama")[0], "lama")

    def test_what_waits_for_a_model_has_its_time_too(self):
        self.start("-m", self.models / "lama.gguf", "--models-max", "1", "--queue-timeout", "0.001",
                   model=self.models / "stories.gguf")
        error = self.refused("/v1/completions", {"prompt": PROMPT, "model": "lama"}, 503, "--queue-timeout")
        self.assertEqual(error["code"], "queue_timeout")

    def test_sigterm_waits_for_a_model_that_is_being_loaded(self):
        self.start("-m", self.models / "lama.gguf", "--models-max", "1", model=self.models / "stories.gguf")
        got = []
        asks = threading.Thread(target=lambda: got.append(self.complete("lama")[0]))
        asks.start()
        self.server.wait_until(lambda: self.states()["stories"] == "unloaded" or got, "its unloading")
        self.server.process.send_signal(signal.SIGTERM)
        asks.join()
        self.assertEqual(got, ["lama"])
        self.assertEqual(self.server.process.wait(timeout=60), 0)


class MemoryIsShort(ModelsTest):
    def test_the_model_that_was_used_longest_ago_makes_room(self):
        self.start("-m", self.models / "lima.gguf", "-m", self.models / "stories.gguf", "--limit", "budget=240M",
                   model=self.models / "lama.gguf")
        texts = {name: self.complete(name)[1] for name in ("lama", "stories", "lima")}
        self.assertEqual(self.states(), {"lama": "unloaded", "lima": "loaded", "stories": "loaded"})
        for name in ("lama", "lima", "stories"):
            self.assertEqual(self.complete(name), (name, texts[name]))
        used = re.findall(r"^pumice:device_bytes{.*} (\d+)$", self.server.ask("GET", "/metrics")[2], re.MULTILINE)
        self.assertLessEqual(max(map(int, used)), 240 << 20)

    def test_what_cannot_be_loaded_is_an_error_of_its_requests_alone(self):
        self.start("-m", self.models / "lama.gguf", "--limit", "budget=60M", model=self.models / "stories.gguf")
        text = self.complete("stories")[1]
        for _ in range(2):
            error = self.refused("/v1/completions", {"prompt": PROMPT, "model": "lama"}, 503, "lama", "MiB")
            self.assertEqual(error["code"], "model_not_loaded")
        self.assertEqual(self.complete("stories")[1], text)


@NEEDS_LAYER
class LostDevices(ModelsTest):
    N_CLIENTS = 6
    N_LOSSES = 4

    def test_a_model_is_loaded_again(self):
        driver = Driver(self.folder / "faults")
        self.start("-m", self.models / "quen.gguf", model=self.models / "stories.gguf", env=driver.environment())
        text = self.complete("stories")[1]
        (driver.folder / "lose").touch()  # with what is submitted next, and that is the loading's
        self.assertEqual(self.complete("quen")[0], "quen")
        self.assertFalse((driver.folder / "lose").exists())
        self.assertEqual(self.complete("stories"), ("stories", text))

    def test_requests_of_all_models_go_on_and_one_is_loaded_meanwhile(self):
        driver = Driver(self.folder / "faults-of-all")
        names = ("stories", "quen", "quin")
        # Texts of batches are those of single requests, computed again or not.
        self.start("-m", self.models / "quen.gguf", "-m", self.models / "quin.gguf", "--models-max", "2", "--invariant",
                   model=self.models / "stories.gguf", env=driver.environment())
        texts = {name: self.complete(name, max_tokens=60)[1] for name in names}
        results, wrong = [], []

        def ask(i):
            for name in names[i % 3:] + names[:i % 3]:
                try:
                    results.append((name, self.complete(name, max_tokens=60)))
                except Exception as error:  # of a thread nobody hears otherwise
                    wrong.append((name, error))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(self.N_CLIENTS)]
        for thread in threads:
            thread.start()
        for i in range(self.N_LOSSES):
            self.server.wait_until(lambda: len(results) + len(wrong) >= i * 2, "requests")
            driver.lose_device(lambda: not any(thread.is_alive() for thread in threads))
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(sorted(results), sorted((name, (name, texts[name])) for name in names
                                                 for _ in range(self.N_CLIENTS)))
        self.assertGreaterEqual(driver.n_lost, 2)
        for name in names:
            self.assertEqual(self.complete(name, max_tokens=60), (name, texts[name]))


class Folder(ModelsTest):
    def test_each_model_of_a_folder_is_served_and_what_is_none_is_left_out(self):
        folder = self.folder / "all"
        inner = folder / "inner"
        inner.mkdir(parents=True)
        for name in ("lama", "stories"):
            (folder / f"{name}.gguf").symlink_to(self.models / f"{name}.gguf")
        (inner / "quen.gguf").symlink_to(self.models / "quen.gguf")
        (inner / "stories.gguf").write_bytes(MODEL.read_bytes())
        (folder / "broken.gguf").write_bytes(b"GGUF and no more")
        (folder / "large-00002-of-00003.gguf").write_bytes(b"a part, which its first one opens")
        (folder / "notes.txt").write_text("no model")
        server = Server(self.folder, "--models-dir", folder, "--temp", "0", model=None)
        self.addCleanup(server.stop)
        self.server = server
        self.assertEqual(self.states(), {name: "unloaded" for name in ("lama", "quen", "stories")})
        self.assertEqual(server.ask("GET", "/health/ready")[0], 200)
        self.assertEqual(server.json("GET", "/props")["model_alias"], "quen")
        log = "".join(server.log)
        self.assertIn("broken.gguf is not served", log)
        self.assertIn("there is another model called stories", log)
        self.assertNotIn("large", log)
        self.assertEqual(self.complete("stories")[0], "stories")
        self.assertEqual(self.states(), {"lama": "unloaded", "quen": "unloaded", "stories": "loaded"})

    def test_texts_and_vectors_come_from_one_server(self):
        if not BERT.exists():
            self.skipTest(f"no {BERT.name} in the shared data ({SHARED})")
        self.start("-m", BERT, model=self.models / "stories.gguf")
        self.assertEqual(self.complete("stories")[0], "stories")
        answer = self.server.json("POST", "/v1/embeddings", {"model": "bert-cls", "input": "Hello world"})
        self.assertEqual(answer["model"], "bert-cls")
        self.refused("/v1/embeddings", {"model": "stories", "input": "x"}, 400, "stories")
        self.refused("/v1/completions", {"model": "bert-cls", "prompt": "x"}, 400, "bert-cls")


class Flags(CommandLineTest):
    def test_what_is_of_one_model_is_refused_for_several(self):
        other = self.folder / "other.gguf"
        other.write_bytes(MODEL.read_bytes())
        models = ("serve", "-m", MODEL, "-m", other)
        for flags, word in ((("--prompt-cache", "x"), "--prompt-cache"), (("--chat-template", "x"), "--chat-template"), (("--kv-events", "tcp://*:0"), "--kv-events"),
                            (("-a", "a=nothing"), "nothing")):
            self.refuses(USAGE, *models, *flags, says=word)
        self.refuses(USAGE, "serve", "-m", MODEL, "-m", MODEL, says="pumice-stories")
        empty = self.folder / "empty"
        empty.mkdir()
        self.refuses(BAD_FILE, "serve", "--models-dir", empty, says=("empty", "no model"))
        self.refuses(BAD_FILE, "serve", "--models-dir", self.folder / "missing", says="missing")


if __name__ == "__main__":
    unittest.main()
