#!/usr/bin/env python3
"""pumice serve between clients that want more than there is: turns, time limits; and what its flags open or close:
pages of other sites, clients of Ollama, endpoints."""

import json
import pathlib
import shutil
import tempfile
import unittest

from command_line import BAD_FILE, USAGE, CommandLineTest
from serve_test import MODEL, PROMPT, Server

LONG = {"prompt": PROMPT, "max_tokens": 480, "ignore_eos": True}


class LimitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-serve-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *flags):
        server = Server(self.folder, "--temp", "0", *flags)
        self.addCleanup(server.stop)
        return server

    def post(self, server, body, path="/v1/completions", **headers):
        """A request whose answer nobody waits for yet."""
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(body), headers)
        return connection


class Turns(LimitsTest):
    def test_clients_take_turns_however_many_each_sent(self):
        server = self.start("--parallel", "1", "--api-key", "many", "--api-key", "one", "--log", "json")

        def send(key, name, n_tokens):
            body = {"prompt": PROMPT, "max_tokens": n_tokens, "ignore_eos": True}
            return self.post(server, body, **{"Authorization": f"Bearer {key}", "X-Request-Id": name})

        connections = [send("many", "first", 300)]
        server.wait_until(lambda: server.metric("pumice:num_requests_running") > 0, "it runs")
        connections += [send("many", f"many-{i}", 30) for i in range(6)]
        server.wait_until(lambda: server.metric("pumice:num_requests_waiting") == 6, "they wait")
        connections.append(send("one", "one", 30))
        for connection in connections:
            self.assertEqual(connection.getresponse().status, 200)
        server.wait_until(lambda: len([line for line in server.log if "request_id" in line]) == 8, "all are logged")
        order = [json.loads(line)["request_id"] for line in server.log if "request_id" in line]
        self.assertEqual(order[0], "first")
        self.assertLess(order.index("one"), 3, order)

    def test_one_that_waits_too_long_is_told_to_come_again(self):
        server = self.start("--parallel", "1", "--queue-timeout", "0.2")
        running = self.post(server, LONG)
        server.wait_until(lambda: server.metric("pumice:num_requests_running") > 0, "it runs")
        status, headers, text = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 2})
        self.assertEqual((status, headers["Retry-After"]), (503, "1"), text)
        self.assertEqual(json.loads(text)["error"]["code"], "queue_timeout")
        # What has begun is not hurried.
        self.assertEqual(json.loads(running.getresponse().read())["usage"]["completion_tokens"], 480)

    def test_an_answer_has_as_long_as_it_was_given(self):
        server = self.start("--request-timeout", "0.3")
        status, _, text = server.ask("POST", "/v1/completions", LONG)
        self.assertEqual(status, 408, text)
        self.assertEqual(json.loads(text)["error"]["code"], "request_timeout")
        events = server.events("/v1/completions", {**LONG, "timeout_s": 0.2})
        self.assertEqual(json.loads(events[-1])["error"]["code"], "request_timeout")
        self.assertGreater(len(events), 1)
        self.assertEqual(server.json("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 1})["object"], "text_completion")
        status, _, text = server.ask("POST", "/v1/completions", {**LONG, "timeout_s": 0})
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "timeout_s"))


class Classes(LimitsTest):
    def order(self, flags, occupying, batch_tokens=2):
        """In which the requests end that were answered: one for interactive use that takes all there is, and one of
        a batch that comes when the first is under way."""
        server = self.start("--log", "json", *flags)
        shared = {"prompt": PROMPT, "ignore_eos": True}
        first = self.post(server, {**shared, **occupying, "service_class": "interactive"}, **{"X-Request-Id": "first"})
        n = occupying.get("n", 1)
        server.wait_until(lambda: server.metric("pumice:num_requests_running") == n, "the first one runs")
        batch = self.post(server, {**shared, "max_tokens": batch_tokens, "service_class": "batch"}, **{"X-Request-Id": "batch"})
        self.assertEqual((first.getresponse().status, batch.getresponse().status), (200, 200))
        server.wait_until(lambda: sum("request_id" in line for line in server.log) == 2, "both are logged")
        return [json.loads(line)["request_id"] for line in server.log if "request_id" in line]

    def test_a_class_that_is_not_served_gets_a_turn_after_a_time(self):
        occupying = {"max_tokens": 480}
        self.assertEqual(self.order(["--parallel", "1", "--aging", "0"], occupying), ["first", "batch"])
        self.assertEqual(self.order(["--parallel", "1", "--aging", "0.01"], occupying), ["batch", "first"])

    def test_a_class_has_the_tokens_that_are_left_to_it(self):
        # The rows of the first one's choices are all that a step holds, until the first of them ends: others began some
        # steps later, and end as many later.
        flags = ["--parallel", "20", "--batch-size", "16", "--aging", "0"]
        occupying = {"max_tokens": 100, "n": 16}
        self.assertEqual(self.order(flags, occupying, 20), ["first", "batch"])
        self.assertEqual(self.order([*flags, "--reserve-decode", "batch=4"], occupying, 20), ["batch", "first"])


class Doors(LimitsTest):
    def test_pages_of_named_sites_may_ask_and_no_others(self):
        server = self.start("--cors-origin", "https://app.example", "--api-key", "secret")
        page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
        question = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
        status, headers, _ = server.ask("OPTIONS", "/v1/chat/completions", headers={**page, **question})
        self.assertEqual(status, 200)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        self.assertEqual(headers["Access-Control-Allow-Methods"], "GET, POST")
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization, content-type")
        self.assertNotIn("Access-Control-Allow-Credentials", headers)
        key = {"Authorization": "Bearer secret"}
        body = {"prompt": PROMPT, "max_tokens": 2}
        for more in ({}, {"stream": True}):
            status, headers, _ = server.ask("POST", "/v1/completions", {**body, **more}, {**page, **key})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://app.example"))
            self.assertEqual(headers["Vary"], "Origin")
        self.assertEqual(server.ask("POST", "/v1/completions", body, page)[0], 401)
        other = {**page, "Origin": "https://app.example.evil"}
        status, headers, _ = server.ask("OPTIONS", "/v1/chat/completions", headers={**other, **question})
        self.assertNotEqual(status, 200)
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        self.assertEqual(server.ask("POST", "/v1/completions", body, {**other, **key})[0], 403)
        status, headers, _ = server.ask("OPTIONS", "/v1/models", headers={
            **page, **question, "Access-Control-Request-Headers": "a\tb"})
        self.assertNotIn("Access-Control-Allow-Headers", headers)

    def test_clients_of_ollama_find_what_they_look_for(self):
        server = self.start("--ollama")
        self.assertRegex(server.json("GET", "/api/version")["version"], r"^\d+\.\d+\.\d+$")
        (model,) = server.json("GET", "/api/tags")["models"]
        self.assertEqual((model["name"], model["size"]), ("pumice-stories", MODEL.stat().st_size))
        shown = server.json("POST", "/api/show", {"model": "pumice-stories:latest"})
        architecture = shown["model_info"]["general.architecture"]
        self.assertEqual(shown["model_info"][f"{architecture}.context_length"], 512)
        self.assertIn("completion", shown["capabilities"])
        status, _, text = server.ask("POST", "/api/show", {"name": "other"})
        self.assertEqual(status, 404)
        self.assertIn("other", json.loads(text)["error"])

    def test_endpoints_can_be_left_out(self):
        server = self.start("--no-metrics", "--no-chat", "--no-tokenize")
        for path in ("/v1/chat/completions", "/chat/completions", "/tokenize", "/apply-template", "/api/show"):
            self.assertEqual(server.ask("POST", path, {})[0], 404, path)
        self.assertEqual(server.ask("GET", "/metrics")[0], 404)
        self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 1})[0], 200)


class Templates(LimitsTest):
    def test_messages_are_rendered_and_answers_read_as_the_flags_say(self):
        template = self.folder / "chat.jinja"
        template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>")
        server = self.start("--chat-template", template, "--tool-format", "hermes")
        messages = {"messages": [{"role": "user", "content": "Hi"}]}
        self.assertEqual(server.json("POST", "/apply-template", messages)["prompt"], "<user>Hi<assistant>")
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
        answer = server.json("POST", "/v1/chat/completions", {**messages, "tools": tools, "tool_choice": "required",
                                                              "parallel_tool_calls": False, "max_tokens": 200})
        self.assertEqual(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "look")


class Usage(CommandLineTest):
    def test_origins_have_no_paths(self):
        for given in ("app.example", "https://app.example/", "https://", "https://a.example,https://b.example"):
            self.refuses(USAGE, "serve", "-m", MODEL, "--cors-origin", given, "--port", "0", says="--cors-origin")

    def test_a_template_that_is_none_is_refused_at_once(self):
        template = self.write("chat.jinja", "{% for m in messages %}")
        self.refuses(BAD_FILE, "serve", "-m", MODEL, "-c", "128", "--chat-template", template, "--port", "0",
                     says="chat.jinja")
        self.refuses(USAGE, "serve", "-m", MODEL, "-c", "128", "--tool-format", "smoke", "--port", "0", says="smoke")

    def test_what_is_reserved_is_a_class_and_a_number(self):
        for given in ("fast=2", "batch", "batch=", "batch=1,2", "=3"):
            self.refuses(USAGE, "serve", "-m", MODEL, "-c", "128", "--reserve-decode", given, "--port", "0", says="--reserve-decode")
        server = Server(self.folder, "--reserve-decode", "batch=2", "--reserve-decode", "interactive=4", "--aging", "5")
        self.addCleanup(server.stop)
        self.assertEqual(server.json("GET", "/health"), {"status": "ok"})


if __name__ == "__main__":
    unittest.main()
