#!/usr/bin/env python3
"""Getting models: pull, list, rm and -hf against a server on this machine, which mostly behaves badly."""

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import ssl
import subprocess
import time
import unittest

import hub_server
from command_line import BAD_FILE, CANCELLED, DOES_NOT_FIT, STORIES, USAGE, CommandLineTest
from hub_server import HubServer, body, cut_at, drip, hang_after, redirect, status

TOKEN = "hf_SecretOfMine"
MODEL = b"GGUF" + bytes(range(256)) * 1200  # 300 kB


class HubTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.hub = self.server({"u/r": {"m-Q4_K_M.gguf": MODEL, "README.md": b"# m"}})
        self.cache = self.folder / "cache"
        self.models = self.cache / "pumice/models"
        self.target = self.models / "u/r/m-Q4_K_M.gguf"

    def server(self, repositories=None):
        server = HubServer(repositories)
        self.addCleanup(server.close)
        return server

    def start(self, *arguments, env=None, **options):
        settings = {"XDG_CACHE_HOME": str(self.cache), "HF_ENDPOINT": self.hub.url, "HF_TOKEN": None,
                    "HF_HUB_OFFLINE": None, "no_proxy": "*", **(env or {})}
        return super().start(*arguments, env=settings, launcher=False, **options)

    def pulls(self, name="u/r", content=MODEL, target=None, **options):
        """Ends well with the right content in its place; what was said on stderr."""
        target = target or self.target
        done = self.ok("pull", name, **options)
        self.assertEqual(done.stdout.decode(), f"{target}\n")
        self.assertEqual(target.read_bytes(), content)
        self.assertEqual(self.unfinished(), [])
        return done.stderr.decode()

    def unfinished(self):
        return sorted(path.name for path in self.cache.rglob("*.part"))

    def ggufs(self):
        return sorted(path.name for path in self.cache.rglob("*.gguf"))


class Pull(HubTest):
    def test_a_model_is_pulled_once_listed_and_removed(self):
        self.assertEqual(self.pulls(), "pulled u/r:Q4_K_M (307.2 kB)\n")
        self.assertEqual([path for path, _ in self.hub.requests],
                         ["/api/models/u/r?blobs=true", f"/u/r/resolve/{hub_server.COMMIT}/m-Q4_K_M.gguf"])
        self.assertEqual(self.pulls("u/r:q4_k_m"), "")
        self.assertEqual(len(self.hub.files_asked_for()), 1)
        [listed] = json.loads(self.ok("list", "--json").stdout)
        self.assertEqual((listed["name"], listed["quant"], listed["size_bytes"], listed["complete"], listed["files"]),
                         ("u/r:Q4_K_M", "Q4_K_M", len(MODEL), True, [str(self.target)]))
        self.assertRegex(listed["pulled"], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
        self.assertRegex(self.ok("list").stdout.decode(),
                         r"\ANAME +QUANT +SIZE +PULLED\nu/r:Q4_K_M +Q4_K_M +307.2 kB +\d{4}-\d\d-\d\d\n\Z")
        self.refuses(BAD_FILE, "rm", "u/r:Q8_0", says="it has Q4_K_M")
        self.refuses(BAD_FILE, "rm", "u/other", says="not in the cache")
        self.assertEqual(self.ok("rm", "u/r:Q4_K_M").stderr, b"removed u/r:Q4_K_M (307.2 kB)\n")
        self.assertEqual(list(self.models.iterdir()), [])
        self.assertEqual(json.loads(self.ok("list", "--json").stdout), [])

    def test_all_parts_of_a_split_model_come_and_nothing_else(self):
        parts = {f"q8/m-Q8_0-0000{i}-of-00003.gguf": MODEL[i:] for i in (1, 2, 3)}
        self.hub.repositories["u/r"].update({**parts, "mmproj-f16.gguf": b"x", "n-Q8_0-00001-of-00002.gguf": b"x"})
        self.hub.plan("file", lambda exchange: exchange.well(), *[cut_at(1000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r:Q8_0", says=["1000 of", "run the same command to continue"])
        [listed] = json.loads(self.ok("list", "--json").stdout)
        self.assertEqual((listed["name"], listed["complete"]), ("u/r:Q8_0", False))
        self.assertIn("unfinished", self.ok("list").stdout.decode())
        self.hub.requests.clear()
        self.pulls("u/r:Q8_0", MODEL[1:], self.models / "u/r/q8/m-Q8_0-00001-of-00003.gguf")
        self.assertEqual(self.hub.files_asked_for(), [("q8/m-Q8_0-00002-of-00003.gguf", "bytes=1000-"),
                                                      ("q8/m-Q8_0-00003-of-00003.gguf", None)])
        self.assertEqual(self.ggufs(), [path.removeprefix("q8/") for path in parts])

    def test_a_newer_version_is_pulled_when_asked_for_and_not_mixed_with_the_old(self):
        self.hub.plan("file", *[cut_at(1000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says="1000 of")
        newer = MODEL[::-1]
        self.hub.repositories["u/r"]["m-Q4_K_M.gguf"] = newer
        self.pulls(content=newer)
        self.assertEqual(self.hub.files_asked_for()[-1], ("m-Q4_K_M.gguf", None))
        self.hub.repositories["u/r"]["m-Q4_K_M.gguf"] = MODEL
        self.pulls()

    def test_two_at_once_download_once(self):
        self.hub.plan("file", drip(0.05))
        both = [self.start("pull", "u/r") for _ in range(2)]
        ends = [process.communicate(timeout=60) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0])
        self.assertEqual([out for out, _ in ends], [f"{self.target}\n".encode()] * 2)
        self.assertEqual(len(self.hub.files_asked_for()), 1)
        self.assertIn(b"u/r:Q4_K_M is being pulled by another process; waiting\n", [err for _, err in ends])

    def test_progress_is_drawn_on_a_terminal(self):
        self.hub.plan("file", drip(0.1))
        ours, theirs = self.open_terminal()
        self.addCleanup(os.close, ours)
        self.assertEqual(self.pumice("pull", "u/r", stderr=theirs).returncode, 0)
        os.close(theirs)
        shown = ""
        with contextlib.suppress(OSError):  # the end of a terminal
            while True:
                shown += os.read(ours, 1 << 16).decode()
        self.assertRegex(shown, r"\r\x1b\[Kpulling u/r:Q4_K_M +\d+%  [\d.]+ kB of 307.2 kB")
        self.assertTrue(shown.endswith("pulled u/r:Q4_K_M (307.2 kB)\r\n"), shown)


class Interrupted(HubTest):
    def test_a_connection_that_breaks_is_continued(self):
        self.hub.plan("file", cut_at(100000), cut_at(200000))
        self.pulls()
        self.assertEqual([asked for _, asked in self.hub.files_asked_for()],
                         [None, "bytes=100000-", "bytes=200000-"])

    def test_what_is_given_up_is_continued_by_the_next_call(self):
        self.hub.plan("file", *[cut_at(100000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says=["m-Q4_K_M.gguf: 100000 of 307204 bytes arrived", "4 attempts"])
        self.assertEqual((len(self.unfinished()), self.ggufs()), (1, []))
        self.hub.requests.clear()
        self.pulls()
        self.assertEqual(self.hub.files_asked_for(), [("m-Q4_K_M.gguf", "bytes=100000-")])

    def test_a_signal_keeps_what_came(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.hub.plan("file", hang_after(100000))
            process = self.start("pull", "u/r")
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                part = next(self.cache.rglob("*.part"), None)
                if part and part.stat().st_size == 100000:
                    break
                time.sleep(0.01)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out, err), (CANCELLED, b"", b"pumice: interrupted\n"))
            self.hub.requests.clear()
            self.pulls()
            self.assertEqual(self.hub.files_asked_for(), [("m-Q4_K_M.gguf", "bytes=100000-")])
            self.ok("rm", "u/r")

    def test_silence_is_a_broken_connection(self):
        self.hub.plan("api", hang_after(0))
        self.hub.plan("file", hang_after(100))  # libcurl looks at the mean rate of five seconds
        self.pulls(env={"PUMICE_NETWORK_TIMEOUT": "1"})
        self.assertEqual([asked for _, asked in self.hub.files_asked_for()], [None, "bytes=100-"])

    def test_a_full_disk_keeps_what_came(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, resource.RLIM_INFINITY))
        self.refuses(DOES_NOT_FIT, "pull", "u/r", says="cannot be written", preexec_fn=limit)
        self.pulls()
        self.assertEqual(self.hub.files_asked_for()[-1], ("m-Q4_K_M.gguf", "bytes=100000-"))

    def test_more_than_the_disk_has_is_refused_before_it_begins(self):
        self.hub.entries = [{"rfilename": "huge-Q8_0.gguf", "size": 1 << 50, "lfs": {"sha256": "0" * 64}}]
        self.refuses(DOES_NOT_FIT, "pull", "u/r:Q8_0", says=["1125899.91 GB", "GB free"])
        self.assertEqual((self.unfinished(), self.hub.files_asked_for()), ([], []))


class Ranges(HubTest):
    """A server that continues badly costs time, not content."""

    def continues(self, *answers, asked):
        self.hub.plan("file", cut_at(100000), *answers)
        self.pulls()
        self.assertEqual([asked for _, asked in self.hub.files_asked_for()], asked)

    def test_ignored(self):
        self.continues(body(MODEL), asked=[None, "bytes=100000-"])

    def test_another_than_was_asked_for(self):
        for content_range in ("bytes 0-307203/307204", "bytes 100001-307203/307204", "bytes 100000-307203/999999",
                              "bytes 100000-307203/*", "bytes */307204", "nonsense"):
            with self.subTest(content_range):
                self.hub.requests.clear()
                wrong = status(206, Content_Range=content_range, Retry_After="0")
                self.continues(wrong, asked=[None, "bytes=100000-", None])
                self.ok("rm", "u/r")

    def test_not_asked_for(self):
        self.hub.plan("file", status(206, Content_Range="bytes 0-999/1000", Retry_After="0"))
        self.pulls()

    def test_refused(self):
        self.continues(status(416, Retry_After="0"), asked=[None, "bytes=100000-", None])

    def test_a_part_that_is_not_the_files_is_thrown_away(self):
        self.hub.plan("file", *[cut_at(100000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says="100000 of")
        for wrong in (b"x" * 100000, b"x" * len(MODEL), b"x" * 400000):
            with self.subTest(len(wrong)):
                if not self.unfinished():
                    self.ok("rm", "u/r")
                    self.hub.plan("file", *[cut_at(100000)] * 4)
                    self.pumice("pull", "u/r")
                next(self.cache.rglob("*.part")).write_bytes(wrong)
                self.pulls()

    def test_without_a_checksum_only_the_same_entity_is_continued(self):
        self.hub.checksums = False
        newer = MODEL[::-1]

        def changed_meanwhile(exchange):
            exchange.hub.repositories["u/r"]["m-Q4_K_M.gguf"] = newer
            exchange.well()
        self.hub.plan("file", cut_at(1000), changed_meanwhile)
        self.pulls(content=newer)
        self.hub.plan("file", cut_at(1000))
        self.pulls(content=newer)
        self.assertEqual([asked for _, asked in self.hub.files_asked_for()], [None, "bytes=1000-"] * 2)
        self.hub.plan("file", *[cut_at(1000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says="1000 of")
        next(self.cache.rglob("*.part")).write_bytes(b"x" * len(MODEL))
        self.hub.requests.clear()
        self.pulls(content=newer)
        self.assertEqual([asked for _, asked in self.hub.files_asked_for()], [None])

    def test_what_could_not_be_compared_is_told(self):
        self.assertNotIn("checksum", self.pulls())
        self.hub.checksums = False
        self.ok("rm", "u/r")
        self.assertIn("m-Q4_K_M.gguf: the server names no checksum; only the size was compared\n", self.pulls())

    def test_a_checksum_may_come_with_the_file(self):
        self.hub.checksums = False
        other = '"' + hashlib.sha256(b"other").hexdigest() + '"'
        self.hub.plan("file", *[lambda exchange: exchange.send(200, MODEL, X_Linked_Etag=other)] * 2)
        self.refuses(BAD_FILE, "pull", "u/r", says="checksum of the download")
        self.assertEqual((self.ggufs(), self.unfinished()), ([], []))


class BadServer(HubTest):
    def test_wrong_content_never_gets_the_name(self):
        self.hub.plan("file", body(MODEL[:-1] + b"x"))
        self.refuses(BAD_FILE, "pull", "u/r", says=["checksum of the download", "try again"])
        self.assertEqual((self.ggufs(), self.unfinished()), ([], []))
        self.pulls()

    def test_more_or_less_than_was_listed_never_gets_the_name(self):
        def endless(exchange):
            exchange.handler.send_response(200)
            exchange.handler.send_header("Retry-After", "0")
            exchange.handler.end_headers()
            for _ in range(100):
                exchange.handler.wfile.write(MODEL)
        self.hub.plan("file", endless, lambda exchange: exchange.send(200, MODEL + b"x", Retry_After="0"),
                      lambda exchange: exchange.send(200, MODEL[:-1], Retry_After="0"))
        self.pulls()

    def test_what_is_no_listing_is_refused(self):
        answers = [b"<html>", b"{", b"[]", b"", b"[" * 5000000, b'{"siblings": [' * 1000, b"x" * (17 << 20),
                   b'{"siblings": []}']
        for answer in answers:
            with self.subTest(answer[:20]):
                self.hub.plan("api", body(answer))
                self.refuses(BAD_FILE, "pull", "u/r")
        self.assertEqual(self.ggufs(), [])

    def test_names_that_lead_elsewhere_are_no_files(self):
        entry = {"size": 3, "lfs": {"sha256": hashlib.sha256(b"bad").hexdigest(), "size": 3}}
        self.hub.repositories["u/r"] = {}
        names = ["../../../evil.gguf", "/tmp/pumice-evil.gguf", "a/../../evil.gguf", "..\\evil.gguf", ".evil.gguf",
                 "a/.lock/evil.gguf", "evil\n.gguf", "x" * 201 + ".gguf", "\x1b[2Jevil.gguf", "a//evil.gguf"]
        self.hub.entries = [{"rfilename": name, **entry} for name in names]
        before = self.left_behind()
        self.refuses(BAD_FILE, "pull", "u/r", says="u/r has no GGUF model")
        self.assertEqual((self.left_behind(), self.hub.files_asked_for()), (before, []))

    def test_overload_is_waited_for_and_not_for_ever(self):
        self.hub.plan("api", status(503, Retry_After="0"), status(500), status(429, Retry_After="1"))
        start = time.monotonic()
        self.pulls()
        self.assertGreater(time.monotonic() - start, 1.5)  # 0 and 0.5 and 1 s
        self.hub.plan("api", *[status(502, Retry_After="0")] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says=["HTTP 502", "4 attempts"])
        self.hub.plan("api", status(429, Retry_After="100000"))
        self.refuses(BAD_FILE, "pull", "u/r", says=["HTTP 429", "try again in 100000 s"])
        self.ok("rm", "u/r")
        self.hub.plan("file", status(503, Retry_After="0"), status(500, Retry_After="0"))
        self.pulls()

    def test_a_refusal_says_what_to_do(self):
        page = f"{self.hub.url}/u/r"
        self.hub.plan("api", status(401), status(403), status(401), status(403), status(404), status(451))
        self.refuses(BAD_FILE, "pull", "u/r", says=[page, "HF_TOKEN", "accept its licence", "/settings/tokens"])
        self.refuses(BAD_FILE, "pull", "u/r", says=[page, "HF_TOKEN", "accept its licence"])
        for _ in range(2):
            message = self.refuses(BAD_FILE, "pull", "u/r", says=[page, "this HF_TOKEN", "licence"],
                                   env={"HF_TOKEN": TOKEN})
            self.assertNotIn(TOKEN, message)
        self.refuses(BAD_FILE, "pull", "u/r", says="is the name right?")
        self.refuses(BAD_FILE, "pull", "u/r", says="HTTP 451")
        self.refuses(BAD_FILE, "pull", "u/nosuch", says="is the name right?")
        self.hub.plan("file", status(403))
        self.refuses(BAD_FILE, "pull", "u/r", says="accept its licence")

    def test_a_server_that_is_not_there_is_told_from_one_that_says_no(self):
        self.refuses(BAD_FILE, "pull", "u/r", says="is there a network", env={"HF_ENDPOINT": "http://127.0.0.1:1"})

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_a_certificate_that_nobody_vouches_for_is_refused(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=127.0.0.1", "-days", "2"],
                       cwd=self.folder, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "certificate.pem", self.folder / "key.pem")
        self.hub.server.socket = context.wrap_socket(self.hub.server.socket, server_side=True)
        self.refuses(BAD_FILE, "pull", "u/r", says="ca-certificates",
                     env={"HF_ENDPOINT": self.hub.url.replace("http:", "https:"), "HF_TOKEN": TOKEN})
        self.assertEqual(self.hub.requests, [])


class Token(HubTest):
    def tokens(self, server):
        return [headers.get("authorization") for _, headers in server.requests]

    def test_a_token_goes_to_its_server_and_to_no_other(self):
        other = self.server(self.hub.repositories)
        self.hub.plan("file", redirect(other.url))
        self.pulls(env={"HF_TOKEN": TOKEN})
        self.assertEqual(self.tokens(self.hub), [f"Bearer {TOKEN}"] * 2)
        self.assertEqual(self.tokens(other), [None])

    def test_a_token_is_never_sent_where_others_can_read_it(self):
        for address in ("http://mirror.invalid", "http://127.example.com:80", "http://localhost.example.com"):
            message = self.refuses(USAGE, "pull", "u/r", says=["HF_TOKEN", "https://", address],
                                   env={"HF_ENDPOINT": address, "HF_TOKEN": TOKEN})
            self.assertNotIn(TOKEN, message)
            self.ok("list", env={"HF_ENDPOINT": address, "HF_TOKEN": TOKEN})
        for endpoint in ("https://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):  # gets as far as connecting
            self.refuses(BAD_FILE, "pull", "u/r", says="is there a network",
                         env={"HF_ENDPOINT": endpoint, "HF_TOKEN": TOKEN})
        self.refuses(BAD_FILE, "pull", "u/r", env={"HF_ENDPOINT": "http://mirror.invalid"})

    def test_a_token_goes_along_where_a_redirection_stays(self):
        self.hub.plan("api", redirect("/api/models/u/r?blobs=true"))
        self.pulls(env={"HF_TOKEN": TOKEN})
        self.assertEqual(self.tokens(self.hub), [f"Bearer {TOKEN}"] * 3)

    def test_redirections_end_and_lead_to_servers_only(self):
        self.hub.plan("api", *[redirect(self.hub.url)] * 20)
        self.refuses(BAD_FILE, "pull", "u/r", says="more than 8 redirections")
        self.hub.planned["api"].clear()
        port = self.hub.url.rpartition(":")[2]
        for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", f"http://a@127.0.0.1:{port}/x",
                    f"http://127.0.0.1:{port}\\@localhost/x"):
            with self.subTest(url):
                self.hub.plan("file", redirect(url))
                self.refuses(BAD_FILE, "pull", "u/r", says="which is not followed", env={"HF_TOKEN": TOKEN})

    def test_what_is_no_token_is_refused_without_showing_it(self):
        for token in ("hf_two words", "hf_x\r\nEvil: yes", "x" * 600):
            message = self.refuses(USAGE, "pull", "u/r", says="HF_TOKEN", env={"HF_TOKEN": token})
            self.assertNotIn("two", message)
        self.assertEqual(self.hub.requests, [])

    def test_what_is_no_address_is_refused(self):
        for url in ("huggingface.co", "ftp://x", "https://", "http://u:p@x", "http://x?y", "http://x y"):
            self.refuses(USAGE, "pull", "u/r", says="HF_ENDPOINT", env={"HF_ENDPOINT": url})


class Offline(HubTest):
    def test_only_the_cache_is_asked(self):
        for env, flags in (({}, ["--offline"]), ({"PUMICE_OFFLINE": "on"}, []), ({"HF_HUB_OFFLINE": "1"}, [])):
            self.refuses(BAD_FILE, "pull", "u/r", *flags, env=env, says="not in the cache")
            self.refuses(BAD_FILE, "run", "-hf", "u/r", "-p", "x", *flags, env=env, says="not in the cache")
        self.assertEqual(self.hub.requests, [])
        self.pulls("u/r:Q4_K_M")
        self.hub.close()
        self.assertEqual(self.ok("pull", "u/r", "--offline").stdout.decode(), f"{self.target}\n")
        self.refuses(BAD_FILE, "pull", "u/r:Q8_0", "--offline", says="not in the cache")

    def test_a_model_cut_short_is_not_in_the_cache(self):
        self.hub.plan("file", *[cut_at(1000)] * 4)
        self.refuses(BAD_FILE, "pull", "u/r", says="1000 of")
        self.refuses(BAD_FILE, "pull", "u/r", "--offline", says="not in the cache")


class Names(HubTest):
    """-hf in place of -m."""

    def test_a_model_is_pulled_when_it_is_not_there_and_then_nobody_is_asked(self):
        self.hub.repositories["u/r"] = {"stories-F16.gguf": self.need(STORIES).read_bytes()}
        words = ["-p", "Once upon a time"]
        here = self.ok("tokenize", "-m", STORIES, *words).stdout
        for name in ("u/r", "u/r:F16", "u/r:f16", "u/r:stories-f16.gguf"):
            self.assertEqual(self.ok("tokenize", "-hf", name, *words).stdout, here)
        self.assertEqual(len(self.hub.files_asked_for()), 1)
        self.hub.close()
        self.assertEqual(self.ok("tokenize", "-hf", "u/r", *words).stderr, b"")
        self.assertIn("attention(", self.ok("info", "-hf", "u/r", "--program").stdout.decode())
        path = self.models / "u/r/stories-F16.gguf"
        self.assertEqual(json.loads(self.ok("info", "-hf", "u/r", "--json").stdout)["file"], str(path))
        paper = ["--explain", "--no-measure", "-p", "8", "-n", "0"]
        self.ok("bench", "-hf", "u/r", *paper)
        for command, *more in (["run"], ["logits", "-o", "x"]):  # the model is read before the prompt
            self.refuses(USAGE, command, "-hf", "u/r", *more, stdin=b"", says="no prompt",
                         env={"PUMICE_MODEL": "nosuch.gguf"})

    def test_there_is_one_model(self):
        for command in ("run", "tokenize", "info", "logits", "bench"):
            more = ["-o", "x"] if command == "logits" else []
            self.refuses(USAGE, command, "-hf", "u/r", "-m", "x.gguf", *more, says="-hf and -m")
        self.refuses(USAGE, "bench", "-hf", "u/r", "--synthetic", "tiny", says="--synthetic and -hf")
        self.assertEqual(self.hub.requests, [])

    def test_what_is_no_name_is_refused(self):
        for name in ("model.gguf", "u", "u/r/x", "../x", "u/..", "u/r:", "u/r:../x", "https://huggingface.co/u/r"):
            self.refuses(USAGE, "pull", name, says="names no model")
            self.refuses(USAGE, "run", "-hf", name, "-p", "x", says="names no model")
            self.refuses(USAGE, "rm", name, says="names no model")

    def test_a_wrong_flag_is_told_before_anything_is_downloaded(self):
        self.refuses(USAGE, "run", "-hf", "u/r", "-p", "x", "--stop", "", says="--stop")
        self.assertEqual(self.hub.requests, [])


if __name__ == "__main__":
    unittest.main()
