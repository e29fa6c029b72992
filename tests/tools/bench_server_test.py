#!/usr/bin/env python3
"""pumice bench --server: a load on a server, timed as its clients see it."""

import http.server
import json
import re
import threading
import unittest

from command_line import BAD_FILE, STORIES, USAGE, CommandLineTest


class Canned(http.server.BaseHTTPRequestHandler):
    """A server that answers as the test says."""

    protocol_version = "HTTP/1.1"
    answer = b""
    asked = []

    def reply(self, body, status=200, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        self.reply(b'{"data": [{"id": "canned"}]}')

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers.get("authorization"), body))
        status = 429 if self.answer.startswith(b"{") else 200
        self.reply(self.answer, status, "application/json" if status != 200 else "text/event-stream")

    def log_message(self, *_):
        pass


def event(**values):
    return b"data: " + json.dumps(values).encode() + b"\n\n"


class BenchServer(CommandLineTest):
    def canned(self, answer):
        handler = type("Handler", (Canned,), {"answer": answer, "asked": []})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}", handler

    def load(self, url, *flags):
        return json.loads(self.ok("bench", "--server", url, "-o", "json", *flags).stdout)

    def test_a_load_on_our_server(self):
        server = self.start("serve", "-m", self.need(STORIES), "--port", 0)
        line = b""
        while b"listening on" not in line:
            line = server.stderr.readline()
            self.assertTrue(line, "the server ended")
        url = re.search(r"listening on (http\S+)", line.decode())[1]
        threading.Thread(target=server.stderr.read, daemon=True).start()
        found = self.load(url, "--clients", 4, "--requests", 12, "--prefix-tokens", 32, "--prompt-tokens", 16,
                          "--output-tokens", 8, "--prefixes", 1, "--goodput", "ttft:100000 tpot:100000")
        self.assertEqual((found["requests"], found["failed"]), (12, 0), found["errors"])
        self.assertGreater(found["cached_tokens"], 0)
        self.assertAlmostEqual(found["goodput_requests_per_s"], found["requests_per_s"])
        for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
            self.assertLessEqual(found[key]["p50"], found[key]["p99"])
        due = self.load(url, "--rate", 50, "--requests", 4, "--prefix-tokens", 0, "--prompt-tokens", 8, "--output-tokens", 4)
        self.assertEqual(due["failed"], 0)

    def test_what_is_sent_and_counted(self):
        answer = event(choices=[{"text": "a"}]) + event(choices=[{"text": " b"}]) + event(
            choices=[], usage={"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
        url, handler = self.canned(answer + b"data: [DONE]\n\n")
        found = self.load(url + "/v1/", "--requests", 3, "--clients", 2, "--api-key", "secret")
        self.assertEqual((found["failed"], found["prompt_tokens"], found["cached_tokens"], found["output_tokens"]),
                         (0, 27, 12, 6))
        self.assertEqual(found["model"], "canned")
        path, key, body = handler.asked[0]
        self.assertEqual((path, key), ("/v1/completions", "Bearer secret"))
        self.assertTrue(body["stream"] and body["ignore_eos"])

    def test_what_fails_is_told(self):
        cut_off = event(choices=[{"text": "a"}])
        for answer, words in ((b'{"error": {"message": "busy"}}', "status 429: busy"), (cut_off, "has no [DONE]"),
                              (b"data: [DONE]\n\n", "the answer is empty"), (b"data: {\n\n", "not a JSON object"),
                              (event(error={"message": "lost"}), "status 200: lost")):
            with self.subTest(words):
                url, _ = self.canned(answer)
                done = self.pumice("bench", "--server", url, "--requests", 2)
                self.assertEqual(done.returncode, BAD_FILE)
                self.assertIn(words, done.stderr.decode())
        self.refuses(USAGE, "bench", "--server", "https://127.0.0.1", says="http://HOST")
        self.refuses(USAGE, "bench", "--server", "http://127.0.0.1:1", "--serve", says="one report at a time")
        self.refuses(BAD_FILE, "bench", "--server", "http://127.0.0.1:1", says="cannot connect")


if __name__ == "__main__":
    unittest.main()
