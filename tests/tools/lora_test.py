#!/usr/bin/env python3
"""LoRA adapters from the command line: written by synth, taken by run, chat and serve, and refused by name."""

import json
import re
import unittest

from command_line import BAD_FILE, USAGE, CommandLineTest
from serve_test import MODEL, PROMPT, Server

FLAGS = ("-n", "24", "--temp", "0", "--json")


class LoraTest(CommandLineTest):
    def adapter(self, name="style", *flags):
        path = self.folder / f"{name}.gguf"
        self.ok("synth", "--lora", MODEL, "--rank", "5", "-o", path, *flags)
        return path


class Synth(LoraTest):
    def test_the_same_seed_gives_the_same_file(self):
        first = self.adapter("a", "-s", "7").read_bytes()
        self.assertEqual(self.adapter("b", "-s", "7").read_bytes(), first)
        self.assertNotEqual(self.adapter("c", "-s", "8").read_bytes(), first)

    def test_what_is_no_adapter_of_anything_is_refused(self):
        taken = self.adapter()
        self.refuses(USAGE, "synth", "--lora", MODEL, "-o", taken, says="exists already")
        self.refuses(USAGE, "synth", "--lora", MODEL, "--preset", "llama-1b", "-o", "x", says="--preset")
        self.refuses(USAGE, "synth", "--rank", "4", "--preset", "llama-1b", "-o", "x", says="--lora")
        self.refuses(BAD_FILE, "synth", "--lora", "nosuch.gguf", "-o", "x", says="nosuch.gguf")


class Run(LoraTest):
    def text(self, *flags):
        return json.loads(self.ok("run", "-m", MODEL, "-p", PROMPT, *FLAGS, *flags).stdout)["text"]

    def test_an_adapter_changes_the_text_as_much_as_its_scale_says(self):
        adapter = self.adapter()
        plain = self.text()
        adapted = self.text("--lora", adapter)
        self.assertNotEqual(adapted, plain)
        self.assertEqual(self.text("--lora", f"name={adapter}@1.0"), adapted)
        self.assertEqual(self.text("--lora", f"{adapter}@0"), plain)
        self.assertEqual(self.ok("chat", "-m", MODEL, "--no-history", "-n", "24", "--temp", "0", "--lora", adapter,
                                 stdin=PROMPT.encode()).stdout.decode().strip(), adapted.strip())

    def test_files_that_are_no_adapter_of_the_model_are_refused(self):
        self.refuses(BAD_FILE, "run", "-m", MODEL, "-p", "x", "--lora", MODEL,
                     says="adapter pumice-stories: not a LoRA file")
        self.refuses(BAD_FILE, "run", "-m", MODEL, "-p", "x", "--lora", "nosuch", says="nosuch: ")
        other = self.folder / "other.gguf"
        self.ok("synth", "--preset", "llama", "-o", other)
        self.ok("synth", "--lora", other, "-o", self.folder / "of-other.gguf")
        self.refuses(BAD_FILE, "run", "-m", MODEL, "-p", "x", "--lora", "of-other.gguf",
                     says="adapter of-other: ")


class Serve(LoraTest):
    def test_each_adapter_is_a_model_of_its_name(self):
        a, b = self.adapter("a", "-s", "3"), self.adapter("b", "-s", "4")
        server = Server(self.folder, "--lora", f"tales={a}", "--lora", f"poems={b}", "--metrics-compat", "vllm")
        self.addCleanup(server.stop)
        base = "pumice-stories"
        models = server.json("GET", "/v1/models")["data"]
        self.assertEqual([(m["id"], m["parent"]) for m in models],
                         [(base, None), ("tales", base), ("poems", base)])
        self.assertEqual(server.json("GET", "/v1/models/poems")["parent"], base)

        def ask(name):
            body = {"model": name, "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
            answer = server.json("POST", "/v1/completions", body)
            self.assertEqual(answer["model"], name)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            return answer["choices"][0]["text"], cached

        texts = {name: ask(name)[0] for name in (base, "tales", "poems")}
        self.assertEqual(len(set(texts.values())), 3)
        for name, file in ((base, None), ("tales", a), ("poems", b)):
            flags = () if file is None else ("--lora", file)
            run = json.loads(self.ok("run", "-m", MODEL, "-p", PROMPT, *FLAGS, *flags).stdout)
            self.assertEqual(texts[name], run["text"], name)
        long = {"prompt": PROMPT * 4, "max_tokens": 1, "temperature": 0}
        for name in (base, "tales", "poems"):
            for expected in (False, True):
                answer = server.json("POST", "/v1/completions", {"model": name, **long})
                cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                self.assertEqual(cached >= 16, expected, f"{name}: {cached}")
        chat = server.json("POST", "/v1/chat/completions",
                           {"model": "tales", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4})
        self.assertEqual(chat["model"], "tales")
        status, _, text = server.ask("POST", "/v1/completions", {"model": "nobody", "prompt": "x"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "model_not_found"))
        metrics = server.ask("GET", "/metrics")[2]
        for prefix in ("vllm:", "pumice:"):
            self.assertRegex(metrics, re.escape(prefix) + r'lora_requests_info\{[^}]*max_lora="2",'
                             r'running_lora_adapters="",waiting_lora_adapters=""\} \d')

    def test_an_adapter_that_runs_is_in_the_metrics(self):
        server = Server(self.folder, "--lora", f"tales={self.adapter()}", "--metrics-compat", "vllm")
        self.addCleanup(server.stop)
        connection = server.connect()
        self.addCleanup(connection.close)
        body = {"model": "tales", "prompt": PROMPT, "max_tokens": 400, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        wanted = re.compile(r'^vllm:lora_requests_info\{[^}]*running_lora_adapters="tales"', re.MULTILINE)
        server.wait_until(lambda: wanted.search(server.ask("GET", "/metrics")[2]), "a running adapter")

    def test_names_that_are_taken_are_refused(self):
        adapter = self.adapter()
        self.refuses(USAGE, "serve", "-m", MODEL, "-a", "tales", "--lora", f"tales={adapter}", says="has that name")
        self.refuses(USAGE, "serve", "-m", MODEL, "--lora", f"x={adapter}", "--lora", f"x={adapter}",
                     says="has that name")

    def test_adapters_are_of_one_model(self):
        other = self.folder / "other.gguf"
        self.ok("synth", "--preset", "llama", "-o", other)
        self.refuses(USAGE, "serve", "-m", MODEL, "-m", other, "--lora", f"x={self.adapter()}",
                     says="--lora goes with one model")


if __name__ == "__main__":
    unittest.main()
