#!/usr/bin/env python3
"""bench/serve_beside.py on made-up servers and a made-up bench: turns, ratios, what fails."""

import json
import pathlib
import subprocess
import sys
import unittest

from command_line import CommandLineTest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/serve_beside.py"

# A server that is well, and writes down that it began.
SERVER = """#!{python}
import http.server, sys
open("begun", "a").write(sys.argv[1] + "\\n")
if sys.argv[1] == "broken":
    sys.exit("it does not like this machine")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""

# A bench that finds the server called fast five times as fast, and writes down what it was asked to send.
BENCH = """#!{python}
import json, sys, urllib.request
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
name = urllib.request.urlopen(words["--server"]).read().decode()
open("loads", "a").write(" ".join([name, words["--clients"], words["--requests"], words["--load-seed"]]) + "\\n")
times = 10 if name == "fast" else 50
print(json.dumps({{"requests": 4, "failed": 1 if name == "failing" else 0, "errors": {{"no room": 1}},
                  "output_tokens_per_s": 500 / times, "ttft_ms": {{"p50": times, "p99": 2 * times}},
                  "itl_ms": {{"p50": times, "p99": 3 * times}}}}))
"""


class Beside(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name, text in (("server", SERVER), ("pumice", BENCH)):
            self.write(name, text.format(python=sys.executable)).chmod(0o755)

    def beside(self, first, second, *arguments):
        servers = [word for name in (first, second) for word in ("--server", f"{name}=./server {name} {{port}}")]
        return subprocess.run([sys.executable, "-B", str(SCRIPT), "--pumice", "./pumice", *servers, "--clients", "1,4",
                               "--requests", "2", "-o", "r.json", *arguments], cwd=self.folder, capture_output=True,
                              text=True, timeout=120)

    def lines(self, name):
        return (self.folder / name).read_text().splitlines()

    def test_the_same_loads_in_turns(self):
        done = self.beside("fast", "slow", "--rounds", "2")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(self.lines("begun"), ["fast", "slow", "slow", "fast"])
        fast = [line.split()[1:] for line in self.lines("loads") if line.startswith("fast")]
        slow = [line.split()[1:] for line in self.lines("loads") if line.startswith("slow")]
        self.assertEqual(fast, slow)
        self.assertEqual(fast[:3], [["4", "4", "0"], ["1", "2", "1"], ["4", "8", "2"]])  # the first one warms up
        self.assertEqual(len({seed for *_, seed in fast}), 5, "each load has requests of its own")
        result = json.loads((self.folder / "r.json").read_text())
        self.assertEqual({row["ratio"] for row in result["ratios"]}, {5})
        self.assertEqual(len(result["ratios"]), 2 * 5)
        self.assertEqual(len(result["loads"]), 2 * 2 * 2)

    def test_a_server_that_does_not_start_is_named(self):
        done = self.beside("fast", "broken", "--rounds", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken failed: the server ended with exit code 1: it does not like this machine", done.stdout)
        self.assertEqual(self.lines("begun"), ["fast", "broken"])

    def test_requests_that_fail_are_told(self):
        done = self.beside("fast", "failing", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("failing failed: 4 clients: 1 of 4 requests failed: {'no room': 1}", done.stdout)

    def test_two_servers_with_two_names(self):
        done = self.beside("same", "same")
        self.assertEqual(done.returncode, 2)
        self.assertIn("names of their own", done.stderr)


if __name__ == "__main__":
    unittest.main()
