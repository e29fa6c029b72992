#!/usr/bin/env python3
"""Devices: listed for people and as JSON; a missing or unknown one is exit 3 with what was found."""

import json
import subprocess
import unittest

from command_line import NO_DEVICE, STORIES, CommandLineTest

WITHOUT_DRIVER = {"VK_DRIVER_FILES": "/nonexistent.json", "VK_ICD_FILENAMES": "/nonexistent.json"}


class Devices(CommandLineTest):
    def test_every_device_is_described_for_people_and_as_json(self):
        described = json.loads(self.ok("info", "--json").stdout)
        self.assertGreater(described["shaders"], 10)
        text = self.ok("info").stdout.decode()
        all_of_it = self.ok("info", "-v").stdout.decode()
        self.assertGreaterEqual(len(described["devices"]), 1)
        for index, device in enumerate(described["devices"]):
            self.assertIn(f"{index}  {device['snapshot']['deviceName']}", text)
            if device["missing_requirements"]:
                continue
            self.assertGreater(device["budget_bytes"], 0)
            for feature in device["optional"]:
                self.assertTrue(feature["enabled"] or feature["reason"], feature)
                self.assertIn(feature["name"], all_of_it)

    def test_a_device_is_described_in_a_few_lines_and_in_all_with_verbose(self):
        devices = json.loads(self.ok("info", "--json").stdout)["devices"]
        lines = self.ok("info").stdout.decode().splitlines()
        self.assertLess(len(lines), 10 * len(devices), lines)
        self.assertRegex("\n".join(lines), r"self-test: (never run \(pumice info --self-test\)|\d+ )")
        self.assertGreater(len(self.ok("info", "-v").stdout.decode().splitlines()), len(lines) + 10)

    def test_a_device_is_chosen_as_llama_cpp_calls_it_or_by_its_main_gpu(self):
        name = json.loads(self.ok("info", "--json").stdout)["devices"][0]["snapshot"]["deviceName"]
        for flags in (["--device", "Vulkan0"], ["-mg", "0"]):
            done = self.ok("run", self.need(STORIES), "Once", "-n", 1, "-v", *flags)
            self.assertIn(name, done.stderr.decode())
        self.refuses(NO_DEVICE, "run", STORIES, "Once", "-mg", "99", says=name)

    def test_list_devices_is_a_line_a_device_for_every_subcommand_that_takes_it(self):
        names = [device["snapshot"]["deviceName"]
                 for device in json.loads(self.ok("info", "--json").stdout)["devices"]]
        for command in ("info", "run", "logits"):
            lines = self.ok(command, "--list-devices").stdout.decode().splitlines()
            self.assertEqual(len(lines), len(names))
            for index, (line, name) in enumerate(zip(lines, names)):
                self.assertTrue(line.startswith(f"{index}  {name}  "), line)

    def test_an_unknown_device_is_refused_with_what_was_found(self):
        self.need(STORIES)
        name = json.loads(self.ok("info", "--json").stdout)["devices"][0]["snapshot"]["deviceName"]
        for flag in ("--device", "-dev"):
            self.refuses(NO_DEVICE, "run", "-m", STORIES, "-p", "x", flag, "nosuch",
                         says=['"nosuch"', f"0: {name}"])
        self.refuses(NO_DEVICE, "run", "-m", STORIES, "-p", "x", "--device", "99", says=name)
        self.refuses(NO_DEVICE, "logits", "-m", STORIES, "--tokens", "1", "-o", "out.f32",
                     env={"PUMICE_DEVICE": "nosuch"}, says=name)
        self.assertEqual(self.left_behind(), [])

    def test_a_limited_device_says_what_it_does_without(self):
        device = json.loads(self.ok("info", "--json", "--limit", "floor").stdout)["devices"][0]
        self.assertTrue(device["limit"].endswith("no-all"), device["limit"])
        self.assertEqual([feature for feature in device["optional"] if feature["enabled"]], [])
        text = self.ok("info", "-v", env={"PUMICE_LIMIT": "no-timestamps"}).stdout.decode()
        self.assertIn("limited to no-timestamps", text)
        self.assertRegex(text, "without timestamps: (withdrawn by option|the device lacks it)")
        self.assertNotIn("limited", self.ok("info", "--limit", "none").stdout.decode())

    def test_a_limited_device_runs_and_says_so(self):
        flags = ["run", "-m", self.need(STORIES), "-p", "Once upon a time", "-n", 3, "--temp", 0]
        done = self.ok(*flags, "--json", "-v", "--limit", "no-int64,no-subgroup")
        limit = "no-shaderInt64,no-subgroupOperations"
        self.assertEqual(json.loads(done.stdout)["limit"], limit)
        self.assertIn(f"limited by option: {limit}", done.stderr.decode())
        self.assertEqual(json.loads(self.ok(*flags, "--json", "--limit", "none").stdout)["limit"], "")

    def test_a_machine_without_a_driver_is_told_what_to_install(self):
        self.need(STORIES)
        for arguments in (["info"], ["info", "--list-devices"], ["run", "-m", STORIES, "-p", "x"],
                          ["logits", "-m", STORIES, "--tokens", "1", "-o", "out.f32"]):
            self.refuses(NO_DEVICE, *arguments, env=WITHOUT_DRIVER, launcher=False,
                         says="no Vulkan driver")
        self.assertEqual(self.left_behind(), [])

    def test_the_drivers_shader_cache_is_off_where_its_disk_is_full(self):
        # Mesa maps its cache's index, and 22.3 was killed by the first write to a full disk.
        folder = self.folder / "full"
        folder.mkdir()
        mounted = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                   'mount -t tmpfs -o size=64k tmpfs "$1" && head -c 1M /dev/zero >"$1/full" 2>/dev/null; '
                   'df "$1" | grep -q "100%" || exit 99; shift; exec "$@"', "sh", str(folder)]
        if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
            self.skipTest("this user may not mount a tmpfs")
        flags = ["run", "-m", self.need(STORIES), "-p", "Once upon a time", "-n", 3, "--temp", 0, "-v"]
        usual = self.ok(*flags)
        self.assertNotIn(b"shader cache is off", usual.stderr)
        done = self.ok(*flags, env={"MESA_SHADER_CACHE_DIR": str(folder)}, before=mounted)
        self.assertIn(b"shader cache is off", done.stderr)
        self.assertEqual(done.stdout, usual.stdout)


if __name__ == "__main__":
    unittest.main()
