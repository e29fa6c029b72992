#!/usr/bin/env python3
"""pumice tune: races rows of tuning and keeps the fastest."""

import json
import pathlib
import unittest

from command_line import USAGE, CommandLineTest

# On CPU drivers a bad idea: 64 workgroups a row, of far more lanes than a core has.
MINE = "# Mine.\nsampling use workgroup_size=1024 flight=4 slices=64\n"


class Tune(CommandLineTest):
    def ok(self, *arguments):
        """With a cache of its own: the rows in the user's are the user's."""
        return super().ok(*arguments, env={"XDG_CACHE_HOME": str(self.folder)})

    def overlay(self):
        files = list(self.folder.glob("**/tuning-*.tune"))
        self.assertLessEqual(len(files), 1)
        return files[0] if files else None

    def tune(self, *flags):
        return json.loads(self.ok("tune", "--op", "sampling", "--minutes", 0.2, "--json", *flags).stdout)

    def test_what_it_finds_is_told_kept_and_used(self):
        found = self.tune("--dry-run")
        self.assertIsNone(self.overlay())
        self.assertGreater(found["choices"], 0)
        self.assertEqual(found["rows_wrong"], 0)
        # A row that is slow here: tuning drops it, and keeps what else is in the file.
        path = self.tuning_file()
        self.assertTrue(path.is_relative_to(self.folder), path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MINE)
        found = self.tune()
        text = path.read_text()
        self.assertIn(MINE, text)
        for row in found["rows"]:
            self.assertEqual(row["op"], "sampling")
            self.assertGreaterEqual(row["gain"], 1.03)
            self.assertIn(row["row"] + "\n", text)
            self.assertIn(f'times as fast as "{row["before"]}"', text)
        self.assertEqual(bool(found["rows"]), text.startswith("# tuned "))

    def tuning_file(self):
        said = self.ok("info", "-v").stdout.decode()
        lines = [line for line in said.splitlines() if "tuning-" in line and ".tune" in line]
        self.assertTrue(lines, said)
        name = [word for word in lines[0].split() if word.endswith(".tune")][0]
        return pathlib.Path(name)

    def test_an_op_that_does_not_exist_is_named(self):
        self.refuses(USAGE, "tune", "--op", "cooking", "--dry-run", says="--op 'cooking'")


if __name__ == "__main__":
    unittest.main()
