#!/usr/bin/env python3
"""The page at "/" of pumice serve: what it says, what it may load, and, where a Chromium is installed (or named by
PUMICE_TEST_BROWSER), how it looks and what becomes of hostile names."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from headless_browser import Browser, find_browser
from serve_test import PROMPT, Server

HOSTILE = "<img src=x onerror=window.hacked=1>'\"</script>"


class PageTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-page-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *flags):
        self.server = Server(self.folder, "--temp", "0", "--log", "none", *flags)
        self.addCleanup(self.server.stop)
        return self.server


class OverHttp(PageTest):
    def test_the_policy_names_what_is_in_the_page_and_nothing_else(self):
        status, headers, text = self.start().ask("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = dict(one.split(" ", 1) for one in headers["Content-Security-Policy"].split("; "))
        for tag, directive in (("script", "script-src"), ("style", "style-src")):
            (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            self.assertEqual(policy[directive], f"'sha256-{digest}'")
        self.assertEqual((policy["default-src"], policy["connect-src"]), ("'none'", "'self'"))
        self.assertEqual(policy["frame-ancestors"], "'none'")
        self.assertNotRegex(text, r"https?://|//cdn|@import|url\(")
        self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc")
        self.assertNotRegex(text, r"\son\w+=|style=")
        self.assertEqual(self.server.ask("POST", "/", {})[0], 405)

    def test_it_holds_nothing_that_needs_a_key(self):
        self.start("--api-key", "secret", "-a", "a-private-name")
        status, _, text = self.server.ask("GET", "/")
        self.assertEqual(status, 200)
        self.assertNotIn("a-private-name", text)
        self.assertEqual(self.server.ask("GET", "/props")[0], 401)
        props = self.server.json("GET", "/props", headers={"Authorization": "Bearer secret"})
        self.assertTrue(props["device"])

    def test_it_can_be_left_out(self):
        self.start("--no-status-page")
        self.assertEqual(self.server.ask("GET", "/")[0], 404)
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)

    def test_tokens_are_counted_while_they_come(self):
        self.start()
        self.assertEqual(self.server.metric("pumice:generation_tokens_total"), 0)
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", '{"prompt": "Once", "max_tokens": 480, "ignore_eos": true}')
        self.server.wait_until(lambda: self.server.metric("pumice:generation_tokens_total") > 0, "tokens are counted")
        self.assertEqual(self.server.metric("pumice:requests_total"), 0)
        connection.getresponse().read()
        self.assertEqual(self.server.metric("pumice:generation_tokens_total"), 480)
        self.assertGreater(self.server.metric("pumice:uptime_seconds"), 0)


@unittest.skipUnless(find_browser(), "no Chromium here (Debian: chromium); see PUMICE_TEST_BROWSER")
class InABrowser(PageTest):
    SIZES = {"desktop": (1280, 900), "phone": (390, 844)}

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(find_browser())
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def load(self, size="desktop", dark=False):
        self.origin = "http://{}:{}/".format(*self.server.address)
        return self.browser.open(self.origin, *self.SIZES[size], dark=dark, mobile=size == "phone")

    @staticmethod
    def says(page, name):
        return page.evaluate(f"document.getElementById('{name}').innerText")

    def complaints(self, page):
        """But for what it asks of the server."""
        return [one for one in page.complaints() if not one.startswith(f"loads {self.origin}")]

    def test_it_says_what_is_served_and_how_busy_it_is(self):
        self.start()
        self.server.json("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 5})
        for size in self.SIZES:
            for dark in (False, True):
                with self.subTest(size=size, dark=dark):
                    page = self.load(size, dark)
                    page.wait("document.getElementById('speed').innerText.includes('tokens/s')")
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    self.assertLessEqual(wide, self.SIZES[size][0], "the page scrolls sideways")
                    self.assertEqual(self.complaints(page), [])
                    if folder := os.environ.get("PUMICE_TEST_SCREENSHOTS"):
                        page.screenshot(pathlib.Path(folder) / f"status-{size}-{'dark' if dark else 'light'}.png")
        self.assertEqual(self.says(page, "state"), "ready")
        self.assertEqual(self.says(page, "model"), "pumice-stories")
        self.assertEqual(self.says(page, "context"), "512 tokens")
        self.assertEqual(self.says(page, "device"), self.server.json("GET", "/props")["device"])
        self.assertEqual(self.says(page, "base"), self.origin + "v1")
        self.assertEqual(self.says(page, "over"), "1")
        self.assertIn("pumice-stories", self.says(page, "curl"))
        self.assertTrue(page.evaluate("document.getElementById('unlock').hidden"))

    def test_hostile_names_stay_text(self):
        self.start("-a", HOSTILE)
        page = self.load()
        page.wait("document.getElementById('model').innerText !== '–'")
        self.assertEqual(self.says(page, "model"), HOSTILE)
        self.assertEqual(page.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertIsNone(page.evaluate("window.hacked"))
        self.assertEqual(self.complaints(page), [])

    def test_it_asks_for_the_key_and_keeps_it_to_itself(self):
        self.start("--api-key", "secret")
        page = self.load()
        page.wait("!document.getElementById('unlock').hidden")
        self.assertEqual(self.says(page, "model"), "–")
        self.assertIn("Authorization: Bearer KEY", self.says(page, "curl"))
        for given, hidden in (("wrong", "false"), ("secret", "true")):
            page.evaluate(f"document.getElementById('key').value = '{given}'; document.querySelector('#unlock button').click()")
            page.wait(f"document.getElementById('unlock').hidden === {hidden}")
        page.wait("document.getElementById('model').innerText === 'pumice-stories'")
        self.assertNotIn("secret", page.evaluate("document.documentElement.outerHTML + JSON.stringify(localStorage) + "
                                                 "JSON.stringify(sessionStorage) + document.cookie + location"))

    def test_it_says_when_the_server_is_gone(self):
        self.start()
        page = self.load()
        page.wait("document.getElementById('state').innerText === 'ready'")
        self.server.stop()
        page.wait("document.getElementById('state').innerText.includes('does not answer')")


if __name__ == "__main__":
    unittest.main()
