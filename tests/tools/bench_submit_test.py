#!/usr/bin/env python3
"""What is measured can be handed on: records follow their schema and carry their evidence, and other suites can run it."""

import json
import os
import pathlib
import re
import subprocess
import tarfile
import unittest
import xml.etree.ElementTree as xml

from command_line import BAD_FILE, BINARY, DOES_NOT_FIT, USAGE, CommandLineTest, user_environment

PROFILE = pathlib.Path(__file__).resolve().parents[2] / "packaging/phoronix-test-suite/pumice-1.0.0"
SYSTEM_PATH = "/usr/bin:/bin"


class Submit(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.ok("synth", "--preset", "tiny", "-o", "tiny.gguf")

    def measure(self, *flags):
        return self.ok("bench", "-m", self.folder / "tiny.gguf", "-p", 16, "-n", 4, "-r", 2, *flags).stdout

    def test_what_was_just_measured_can_be_submitted(self):
        for output in ("json", "jsonl"):
            mine = self.write("mine.json", self.measure("-o", output))
            records = [json.loads(line) for line in mine.read_text().splitlines()] if output == "jsonl" else json.loads(mine.read_bytes())
            sensors = [(record["machine"][when]["processor" if record["device"]["type"] == "cpu" else "gpu"] or {})
                       for record in records for when in ("before", "after")]
            if not all("clock_mhz" in sensor for sensor in sensors):
                self.refuses(BAD_FILE, "bench", "--submit", mine, says="lacks clocks before the test")
                # The rest of the record is good.
                for record in records:
                    for when in ("before", "after"):
                        record["machine"][when]["processor" if record["device"]["type"] == "cpu" else "gpu"] = {"clock_mhz": 1000}
                mine.write_text(json.dumps(records))
            done = self.ok("bench", "--submit", mine)
            ready = json.loads(done.stdout)
            self.assertEqual(ready["pumice_submission"], 1)
            self.assertEqual([record["test"] for record in ready["records"]], ["pp16", "tg4"])
            self.assertEqual([record["samples_ns"] for record in ready["records"]], [record["samples_ns"] for record in records])
            self.assertNotIn(str(self.folder), done.stdout.decode())  # whose disk it was is nobody's business
            self.assertIn("2 records", done.stderr.decode())

    def test_what_was_not_checked_is_refused(self):
        mine = self.write("mine.json", self.measure("-o", "json", "--no-check"))
        self.refuses(BAD_FILE, "bench", "--submit", mine, says=[f"{mine}: record 1", "lacks an output check", "--no-check"])

    def test_the_hash_is_the_models(self):
        of_file, of_shape = (json.loads(self.ok("bench", *model, "-p", 16, "-n", 0, "-r", 1, "--no-check", "-o", "json").stdout)
                             for model in (["-m", "tiny.gguf"], ["--synthetic", "tiny"]))
        self.assertRegex(of_file[0]["model_hash"], r"\A[0-9a-f]{32}\Z")
        self.assertEqual(of_file[0]["model_hash"], of_shape[0]["model_hash"])
        self.ok("synth", "--preset", "tiny", "-s", 2, "-o", "other.gguf")
        other = json.loads(self.ok("bench", "-m", "other.gguf", "-p", 16, "-n", 0, "-r", 1, "--no-check", "-o", "json").stdout)
        self.assertNotEqual(of_file[0]["model_hash"], other[0]["model_hash"])

    def test_what_cannot_be_read_is_refused(self):
        self.refuses(BAD_FILE, "bench", "--submit", "nosuch", says="nosuch")
        for content in (b"", b"[]", b"{}", b"[[]]", b"\xff", b'{"bench": "ops"}', b'[{"n_prompt": 1}]'):
            self.refuses(BAD_FILE, "bench", "--submit", self.write("mine.json", content), says="mine.json")
        self.refuses(USAGE, "bench", "--submit", "x", "--ops", says="--submit and --ops")


class PhoronixTestSuite(CommandLineTest):
    def test_a_test_is_a_line_with_one_number(self):
        text = self.ok("bench", "--synthetic", "tiny", "-p", 16, "-n", 4, "-d", "0,16", "-r", 2, "--pts").stdout.decode()
        self.assertRegex(text, r"\App16: \d+\.\d\d t/s\ntg4: \d+\.\d\d t/s\npp16 @ d16: \d+\.\d\d t/s\ntg4 @ d16: \d+\.\d\d t/s\n\Z")

    def test_a_test_without_a_score_has_no_line_and_the_exit_status_says_so(self):
        done = self.pumice("bench", "--synthetic", "tiny", "-p", "16,65536", "-n", 0, "-r", 1, "--pts", "--limit", "budget=64M")
        self.assertEqual(done.returncode, DOES_NOT_FIT, done.stderr.decode())
        self.assertRegex(done.stdout.decode(), r"\A(pp16: \d+\.\d\d t/s\n)?\Z")

    def test_it_is_one_report_of_several(self):
        self.refuses(USAGE, "bench", "--pts", "--serve", says="--pts and --serve")
        self.refuses(USAGE, "bench", "--synthetic", "tiny", "--pts", "-o", "jsonl", says="--pts")

    def test_a_report_on_standard_error_goes_with_it(self):
        done = self.ok("bench", "--synthetic", "tiny", "-p", 16, "-n", 0, "-r", 1, "--no-check", "--pts", "-oe", "jsonl")
        self.assertRegex(done.stdout.decode(), r"\App16: \d+\.\d\d t/s\n\Z")
        self.assertIn('"test":"pp16"', done.stderr.decode())

    def options(self):
        """The arguments of every choice that the profile offers."""
        choices = [[(option.findtext("ArgumentPrefix") or "") + entry.findtext("Value") for entry in option.iter("Entry")]
                   for option in xml.parse(PROFILE / "test-definition.xml").iter("Option")]
        return [f"{model} {test}".split() for model in choices[0] for test in choices[1]]

    def program(self, folder):
        """A script in the place of the program, which runs it."""
        folder.mkdir(parents=True)
        launcher = os.environ.get("PUMICE_TEST_LAUNCHER", "")
        (folder / "pumice").write_text(f"#!/bin/sh\nexec {launcher} {BINARY} \"$@\"\n")
        (folder / "pumice").chmod(0o755)

    def install(self, path):
        home = self.folder / "installed"
        home.mkdir(exist_ok=True)
        environment = {**user_environment(self.folder / "config", {}), "HOME": str(home), "PATH": path}
        done = subprocess.run(["sh", PROFILE / "install.sh"], cwd=home, env=environment, capture_output=True, text=True)
        return home, environment, done

    def test_the_profile_installs_what_is_on_the_path_and_its_results_are_found(self):
        programs = self.folder / "bin"
        self.program(programs)
        home, environment, done = self.install(f"{programs}:{os.environ['PATH']}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual((home / "install-exit-status").read_text(), "0\n")
        log = self.folder / "log"
        executable = xml.parse(PROFILE / "test-definition.xml").findtext("TestInformation/Executable")
        # A tiny model in the place of the large ones, and the smallest of its tests.
        subprocess.run([home / executable, "--synthetic", "tiny", "-p", "512", "-n", "0", "-r", "1"], cwd=home,
                       env={**environment, "LOG_FILE": str(log)}, check=True)
        self.assertEqual((home / "test-exit-status").read_text(), "0\n")
        template = xml.parse(PROFILE / "results-definition.xml").findtext("ResultsParser/OutputTemplate")
        self.assertRegex(log.read_text(), "(?m)^" + re.escape(template).replace(re.escape("#_RESULT_#"), r"\d+\.\d+") + "$")
        subprocess.run([home / executable, "--nosuch"], cwd=home, env={**environment, "LOG_FILE": str(log)}, check=True)
        self.assertEqual((home / "test-exit-status").read_text(), f"{USAGE}\n")

    def test_the_archive_that_the_profile_asks_for_is_unpacked_and_measured(self):
        self.program(self.folder / "pumice-1-linux/bin")
        home = self.folder / "installed"
        home.mkdir()
        name = xml.parse(PROFILE / "downloads.xml").findtext("Downloads/Package/FileName")
        with tarfile.open(home / name, "w:gz") as archive:
            archive.add(self.folder / "pumice-1-linux", "pumice-1-linux")
        home, _, done = self.install(SYSTEM_PATH)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((home / "pumice-bench").read_text().split("\n")[1].startswith(f'"{home}/pumice/bin/pumice" bench --pts'))

    @unittest.skipIf(os.path.exists("/usr/bin/pumice"), "a pumice is installed")
    def test_without_a_program_the_installation_fails(self):
        home, _, done = self.install(SYSTEM_PATH)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual((home / "install-exit-status").read_text(), "2\n")

    def test_each_choice_has_one_result_that_is_looked_for(self):
        hints = [parser.findtext("LineHint") for parser in xml.parse(PROFILE / "results-definition.xml").iter("ResultsParser")]
        for words in self.options():
            model, flags = words[1], dict(zip(words[2::2], words[3::2]))
            paper = json.loads(self.ok("bench", "--explain", "--no-measure", "--synthetic", model, *words[2:], "-o", "json").stdout)
            name = f"pp{flags['-p']}" if flags["-n"] == "0" else f"tg{flags['-n']}"
            name += f" @ d{flags['-d']}" if "-d" in flags else ""
            self.assertEqual(hints.count(name + ":"), 1, words)
            self.assertIn(name, json.dumps(paper))


if __name__ == "__main__":
    unittest.main()
