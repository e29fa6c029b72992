#!/usr/bin/env python3
"""tools/gpu-check: the packed folder runs from its own files, and its record is whole."""

import json
import os
import pathlib
import subprocess
import unittest

from command_line import BINARY, SHARED, USAGE, CommandLineTest, user_environment

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/gpu-check"


class GpuCheck(CommandLineTest):
    def run_script(self, script, *arguments, timeout=600, **env):
        return subprocess.run([str(script), *map(str, arguments)], capture_output=True, text=True,
                              cwd=self.folder, timeout=timeout,
                              env=user_environment(self.folder / "config", env))

    def pack(self):
        if "PUMICE_TEST_LAUNCHER" in os.environ:
            self.skipTest("this driver needs another C library than the program was built with")
        done = self.run_script(SCRIPT, "--pack", self.folder / "pack", "--binary", BINARY,
                               "--reference", SHARED / "reference")
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "pack"

    def test_mistakes_are_named(self):
        for arguments, words in ((["--nosuch"], "unknown argument"), (["--out"], "needs a value"),
                                 (["--minutes", "0"], "1 to 99"), (["--binary", "nosuch"], "build first"),
                                 (["--binary", BINARY, "--pack", self.folder.parent], "is not empty")):
            with self.subTest(arguments):
                done = self.run_script(SCRIPT, *arguments)
                self.assertEqual(done.returncode, USAGE)
                self.assertIn(words, done.stderr)

    def test_the_folder_to_carry_holds_all_it_needs(self):
        pack = self.pack()
        for name in ("gpu-check", "bin/pumice", "loader/libvulkan.so.1", "COMMIT"):
            self.assertTrue((pack / name).is_file(), name)
        for folder in ("lib", "c++", "libc"):
            self.assertTrue(list((pack / folder).glob("*.so*")), folder)
        reference = [path.stat().st_size for path in (pack / "reference").iterdir()]
        self.assertLessEqual(sum(reference), 20_000_000)

    def test_a_packed_run_records_every_stage(self):
        pack = self.pack()
        work = self.folder / "work"
        work.mkdir()
        done = self.run_script(pack / "gpu-check", "--models", "tiny:q4_k tiny:f16", "--depths", "0,64",
                               "--ab", "split=64", "--self-test", "embedding,rms_norm", "--ops", "rms_norm",
                               "--work", work)
        self.assertEqual(done.returncode, 0, done.stderr)
        record, table = sorted((pack / "results").iterdir())
        self.assertRegex(record.name, r"^[a-z0-9-]+-\d{4}-\d\d-\d\d\.json$")
        self.assertEqual(table.name, record.stem + ".md")
        result = json.loads(record.read_text())
        stages = {stage["stage"]: stage["status"] for stage in result["stages"]}
        for name in ("info", "peaks", "self-test", "bench ops", "bench tiny:q4_k", "layers tiny:q4_k @ 0",
                     "layers tiny:q4_k @ 64", "bench tiny:f16", "ab split=64"):
            self.assertEqual(stages.pop(name), "ok", done.stderr)
        self.assertIn(stages.pop("self-test of one model"), ("ok", "no time"))  # many kernels, its share is small
        self.assertIn(stages.pop("validation"), ("ok", "skipped"))
        if (SHARED / "reference").exists():
            self.assertEqual({row["status"] for row in result["logits"]}, {"ok"})
            self.assertEqual({row["math"] for row in result["logits"]}, {"auto", "f32"})
            self.assertLess(max(float(row["nmse"]) for row in result["logits"] if row["math"] == "f32"), 1e-9)
        else:
            self.assertEqual(stages["logits"], "skipped")
            self.assertIn("logits not compared", done.stderr)
        self.assertGreater(len(result["self-test"]["kernels"]), 10)
        self.assertGreater(len(result["bench ops"]["peaks"]), 0)
        self.assertIn("dispatch, dependent", {peak["name"] for peak in result["peaks"]["peaks"]})
        records = {model["stage"]: model["records"] for model in result["models"]}
        self.assertIn("pp512", [row["test"] for row in records["bench tiny:q4_k"]])
        self.assertIn("tg128", [row["test"] for row in records["bench tiny:f16"]])
        self.assertEqual(records["layers tiny:f16 @ 64"]["tests"][0]["n_depth"], 64)
        self.assertLess(result["seconds"], 600)
        text = table.read_text()
        for words in ("pp512", "tg128", "| self-test | ok |", "rms_norm", "## ab split=64", result["device"]):
            self.assertIn(words, text)
        self.assertEqual(list(work.iterdir()), [])

    def test_a_stage_without_time_is_named_and_no_failure(self):
        done = self.run_script(SCRIPT, "--binary", BINARY, "--reference", SHARED / "reference", "--out",
                               self.folder / "out", "--models", "small-0.1b:f16", "--minutes", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(next((self.folder / "out").glob("*.json")).read_text())
        stages = {stage["stage"]: stage["status"] for stage in result["stages"]}
        for name in ("peaks", "bench small-0.1b:f16", "layers small-0.1b:f16 @ 0", "ab math=f32", "self-test", "bench ops"):
            self.assertIn(stages[name], ("ok", "no time"), done.stderr)
        self.assertIn("no time", stages.values())
        self.assertLess(result["seconds"], 120)  # a stage that is stopped has 20 seconds to end

    def test_what_the_device_should_reach_is_beside_it(self):
        pack = self.pack()
        (pack / "PERFORMANCE.md").write_text("# Limits\n\n| | a | b |\n|--|--|--|\n| llvmpipe | 1 | 2 |\n\n"
                                             "## Estimates\n\n| | decode | prompt |\n|--|--|--|\n| H100 | 1 % | 2 % |\n"
                                             "| LLVMpipe | 7 % | - |\n")
        done = self.run_script(pack / "gpu-check", "--models", "none:f16", "--ab", "null", "--self-test", "rms_norm",
                               "--ops", "rms_norm", "--minutes", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(next((pack / "results").glob("*.json")).read_text())
        if "llvmpipe" in result["device"]:
            self.assertEqual(result["predicted"], [{"what": "decode", "share": "7 %"},
                                                   {"what": "prompt", "share": "-"}])
        else:
            self.assertEqual(result["predicted"], [])

    def test_what_the_build_lacks_is_named(self):
        old = self.write("old/bin/pumice", f"""#!/bin/sh
case $1 in
  info) [ "$2" != --self-test ] || {{ echo 'pumice: not expected: --self-test' >&2; exit 2; }} ;;
  bench) echo "pumice: unknown subcommand or flag 'bench'" >&2; exit 2 ;;
esac
exec {BINARY} "$@"
""")
        old.chmod(0o755)
        done = self.run_script(SCRIPT, "--binary", old, "--reference", self.folder / "none", "--out",
                               self.folder / "out", "--models", "tiny:q4_k", "--minutes", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "self-test +missing .*not expected: --self-test")
        self.assertRegex(done.stderr, "bench ops +missing .*'bench'")
        self.assertIn("logits not compared", done.stderr)
        record = json.loads(next((self.folder / "out").glob("*.json")).read_text())
        self.assertIsNone(record["bench ops"])


if __name__ == "__main__":
    unittest.main()
