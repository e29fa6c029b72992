#!/usr/bin/env python3
"""Flags, help and settings: what the program says before it opens a device."""

import re
import unittest

from command_line import BAD_FILE, STORIES, USAGE, CommandLineTest

FLAGS = {
    "run": "-m -hf --offline -p -f -n -c -b -ub -s -ctk -ctv -v --math --device --limit --list-devices --temp --top-k"
           " --top-p --min-p --repeat-penalty --frequency-penalty --presence-penalty --json",
    "info": "-m -hf --offline -v --json --self-test --device --limit --list-devices",
    "tokenize": "-m -hf -p -f --ids --no-bos",
    "pull": "--offline --json",
    "list": "--json",
    "rm": "--json",
    "logits": "-m -hf -p -f -c -b -ub -ctk -ctv -v -o --tokens --math --device --limit --list-devices",
}


class Help(CommandLineTest):
    def test_the_program_names_its_subcommands_exit_codes_and_where_settings_come_from(self):
        text = self.ok("--help").stdout.decode()
        for words in [*FLAGS, "PUMICE_", "config", "3 no usable device", "75 device lost", "130"]:
            self.assertIn(words, text)

    def test_every_subcommand_names_its_flags_and_shows_an_example(self):
        for command, flags in FLAGS.items():
            text = self.ok(command, "--help").stdout.decode()
            self.assertRegex(text, rf"Examples?:\s+pumice {command}")
            for flag in flags.split():
                self.assertRegex(text, rf"(?<![\w-]){flag}(?![\w-])", command)

    def test_without_a_subcommand_the_help_is_printed(self):
        self.assertEqual(self.ok().stdout, self.ok("--help").stdout)

    def test_the_version_is_one_line_on_stdout(self):
        self.assertRegex(self.ok("--version").stdout, rb"\A\d+\.\d+\.\d+\n\Z")


class BadFlags(CommandLineTest):
    def test_an_unknown_subcommand_points_to_the_help(self):
        self.refuses(USAGE, "nosuch", says=["'nosuch'", "see pumice --help"])
        self.refuses(USAGE, "--nosuch", says="'--nosuch'")
        self.refuses(USAGE, "run", "info", says="info")

    def test_an_unknown_flag_is_named_with_the_help_of_its_subcommand(self):
        for command in FLAGS:
            self.refuses(USAGE, command, "-m", "x", "--nosuch",
                         says=["--nosuch", f"see pumice {command} --help"])

    def test_a_bad_value_is_refused_with_the_flag_and_what_it_takes(self):
        cases = [("-n abc", "16777216"), ("-n 0", "range"), ("-n -1", "range"), ("-n 1.5", "range"),
                 ("-n 99999999999999999999", "range"), ("-c 0", "range"), ("-ub 0", "range"),
                 ("-b 70000", "65536"), ("-b 15", "range"), ("--tpot-target nan", "nan"), ("-s abc", "abc"),
                 ("--math f33", "auto,f32,f16,i8"),
                 ("-ctk q9", "f32,f16,bf16,q8_0,q4_0"), ("--temp x", "x"), ("--top-k -1", "-1"),
                 ("-n", "--predict")]
        for flags, words in cases:
            with self.subTest(flags):
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", *flags.split(), says=words)

    def test_no_fraction_may_be_infinite_or_no_number(self):
        cases = [("bench", "--delay"), ("bench", "--seconds"), ("bench", "--tpot-target"),
                 ("bench", "--advise --ttft-target"), ("run", "--tpot-target"),
                 ("logits", "--compare x --max-nmse")]
        for command, flag in cases:
            for value in ("nan", "inf"):
                with self.subTest(flag):
                    self.refuses(USAGE, command, "-m", "x", *flag.split(), value, says=value)

    def test_a_sampling_value_that_makes_no_sense_is_refused_before_a_device_is_opened(self):
        self.need(STORIES)
        cases = [("--temp -1", "0 (greedy) or more"), ("--temp nan", "nan"), ("--top-p 2", "0 to 1"),
                 ("--min-p -0.1", "0 to 1"), ("--repeat-penalty 0", "0")]
        for flags, words in cases:
            with self.subTest(flags):
                self.refuses(USAGE, "run", "-m", STORIES, "-p", "x", *flags.split(), says=words,
                             env={"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"})

    def test_a_limit_that_is_none_is_refused_with_what_is_known_before_anything_is_opened(self):
        for command in ("run", "logits", "info"):
            for limit in ("no-fp61", "shared=8k", "shared=lots", "a\nb", "x" * 5000):
                self.refuses(USAGE, command, "-m", "x", "--limit", limit, says="limit")
                self.refuses(USAGE, command, "-m", "x", env={"PUMICE_LIMIT": limit}, says="limit")
        self.refuses(USAGE, "run", "-m", "x", "--limit", "x", says=["shared= workgroup=", "fp16", "floor"])

    def test_a_prompt_comes_from_one_place(self):
        for command in ("run", "tokenize"):
            self.refuses(USAGE, command, "-m", "x", "-p", "a", "-f", "b", says="--file")
        self.refuses(USAGE, "logits", "-m", "x", "-p", "a", "--tokens", "1", says="--tokens")

    def test_a_missing_model_or_output_says_which_flag_gives_it(self):
        self.refuses(USAGE, "run", "-p", "x", says="-m")
        self.refuses(USAGE, "tokenize", "-p", "x", says="--model")
        self.refuses(USAGE, "logits", "-p", "x", says="-m")
        self.refuses(USAGE, "logits", "-m", "x", "-p", "x", says="-o")


class Settings(CommandLineTest):
    """A model that does not exist is named in the error: so we see whose word counted."""

    def model_named(self, *flags, env=None):
        message = self.refuses(BAD_FILE, "run", "-p", "x", *flags, env=env)
        return re.match(r"pumice: (\S+):", message).group(1)

    def test_flag_beats_environment_beats_config_file(self):
        self.write("config/pumice/config.toml", '[run]\nmodel = "of-config"\n')
        self.assertEqual(self.model_named(), "of-config")
        self.assertEqual(self.model_named(env={"PUMICE_MODEL": "of-env"}), "of-env")
        self.assertEqual(self.model_named("-m", "of-flag", env={"PUMICE_MODEL": "of-env"}), "of-flag")

    def test_a_setting_of_one_subcommand_says_nothing_to_another(self):
        self.write("config/pumice/config.toml", '[run]\nmodel = "of-config"\nverbose = on\n')
        self.refuses(USAGE, "tokenize", "-p", "x", says="--model")

    def test_a_config_file_is_named_by_flag_or_environment_or_found_in_the_xdg_folder(self):
        self.write("config/pumice/config.toml", '[run]\nmodel = "of-xdg"\n')
        chosen = self.write("chosen.toml", '[run]\nmodel = "of-env"\n')
        flag = self.write("flag.toml", '[run]\nmodel = "of-flag"\n')
        env = {"PUMICE_CONFIG": str(chosen)}
        self.assertEqual(self.model_named(env=env), "of-env")
        message = self.refuses(BAD_FILE, "--config", flag, "run", "-p", "x", env=env)
        self.assertIn("of-flag", message)

    def test_every_setting_has_an_environment_variable(self):
        cases = {"PUMICE_PREDICT": "--predict", "PUMICE_CTX_SIZE": "--ctx-size",
                 "PUMICE_UBATCH_SIZE": "--ub", "PUMICE_BATCH_SIZE": "--batch-size",
                 "PUMICE_MATH": "--math", "PUMICE_CACHE_TYPE_K": "--c", "PUMICE_SEED": "--seed",
                 "PUMICE_TEMP": "--temp", "PUMICE_TOP_K": "--top-k",
                 "PUMICE_REPEAT_PENALTY": "--repeat-penalty"}
        for variable, flag in cases.items():
            with self.subTest(variable):
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", env={variable: "wrong"},
                             says=["wrong", flag])

    def test_a_named_config_file_that_is_missing_or_a_folder_is_an_error(self):
        self.refuses(BAD_FILE, "--config", "nosuch.toml", "run", "-m", "x", says="nosuch.toml")
        self.refuses(BAD_FILE, "run", "-m", "x", env={"PUMICE_CONFIG": "nosuch.toml"},
                     says="nosuch.toml")
        self.refuses(BAD_FILE, "run", "-m", "x", env={"PUMICE_CONFIG": str(self.folder)})

    def test_a_misspelt_or_bad_setting_is_named_not_ignored(self):
        for text, words in [('[run]\nmodl = "x"\n', "modl"), ('[run]\npredict = "abc"\n', "abc"),
                            ("garbage\0\1\2 [[[\n", "")]:
            with self.subTest(text):
                self.write("config/pumice/config.toml", text)
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", says=words)

    def test_an_error_names_the_file_and_the_line(self):
        cases = [("# mine\n\n[run]\nmodl = 'x'\n", "line 4: pumice run has no setting 'modl'"),
                 ("[run]\nverbose = on\npredict = abc\n", "line 3: "), ("[\n", "line 1: '['"),
                 ("[]\n", "line 1"), ("[rum]\n", "line 1: there is no subcommand 'rum'"),
                 ("[run]\n=\n", "line 2"), ("[run]\nx\n", "line 2"), ("[run]\npredict =\n", "line 2"),
                 ("rum.model = 1\n", "line 1: there is no subcommand 'rum'"), ("[run]\nmath = [1,\n2\n", "line 2: the list"),
                 ("[run\nmodel = 'x'\n", "line 1: '[run'")]
        for text, words in cases:
            with self.subTest(text):
                path = self.write("config/pumice/config.toml", text)
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", says=f"{path} {words}")

    def test_a_flag_that_beats_a_wrong_setting_is_not_blamed_on_the_file(self):
        path = self.write("config/pumice/config.toml", "[run]\npredict = 5\n")
        message = self.refuses(USAGE, "run", "-m", "x", "-p", "x", "-n", "abc", says="abc")
        self.assertNotIn(str(path), message)

    def test_a_byte_order_mark_is_no_part_of_the_settings(self):
        self.write("config/pumice/config.toml", "\ufeff[run]\nmodel = 'of-config'\n")
        self.assertEqual(self.model_named(), "of-config")
        self.write("config/pumice/config.toml", "run.model = 'of-config'  # by its full name\n")
        self.assertEqual(self.model_named(), "of-config")


if __name__ == "__main__":
    unittest.main()
