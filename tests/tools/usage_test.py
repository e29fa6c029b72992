#!/usr/bin/env python3
"""Flags, help and settings: what the program says before it opens a device."""

import os
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

    def test_the_version_is_one_line_on_stdout_and_names_the_commit(self):
        for words in (["--version"], ["version"], ["-v"], ["run", "--version"], ["run", "-m", "x", "--version"]):
            self.assertRegex(self.ok(*words).stdout,
                             rb"\A\d+\.\d+\.\d+ \(commit ([0-9a-f]{7,}|unknown)(, dirty)?\)\n\Z")

    def test_help_is_a_word_and_a_flag(self):
        self.assertEqual(self.ok("help").stdout, self.ok("--help").stdout)
        self.assertEqual(self.ok("help", "run").stdout, self.ok("run", "--help").stdout)
        self.assertEqual(self.ok("run", "-m", "x", "-h").stdout, self.ok("run", "--help").stdout)
        self.assertEqual(self.ok("ls", "--help").stdout, self.ok("list", "--help").stdout)
        self.refuses(USAGE, "help", "nosuch", says="'nosuch'")

    def test_names_are_shown_as_they_are_typed(self):
        text = self.ok("run", "--help").stdout.decode()
        for names in ("-hf, --hf-repo NAME", "-ub, --ubatch-size", "-ctk, --cache-type-k", "-dev, --device",
                      "-m, --model", "Env:PUMICE_PREDICT"):
            self.assertIn(names, text)
        self.assertNotRegex(text, r"--(hf|ub|ctk|ctv|dev)\b(?!-)")


class BadFlags(CommandLineTest):
    def test_an_unknown_subcommand_points_to_the_help(self):
        self.refuses(USAGE, "nosuch", says=["'nosuch'", "see pumice --help"])
        self.refuses(USAGE, "--nosuch", says="'--nosuch'")
        self.refuses(USAGE, "run", "info", says="info")
        self.refuses(USAGE, "-m", "x.gguf", says=["'-m'", "pumice run -m"])
        self.refuses(USAGE, "x.gguf", says="pumice run x.gguf")

    def test_near_misses_are_suggested(self):
        cases = {"run --tempp 0": "unknown flag --tempp; did you mean --temp?", "run --tpo-k 0": "did you mean --top-k?",
                 "run --batchsize 9": "did you mean --batch-size?", "run -bu 9": "did you mean -ub?",
                 "chta": "did you mean chat?", "hlep": "did you mean help?", "lst": "did you mean list?",
                 "chat --repl": "pumice run has", "bench --nosuch": "unknown flag --nosuch (see pumice bench --help)"}
        for line, words in cases.items():
            with self.subTest(line):
                self.refuses(USAGE, *line.split(), says=words)
        self.assertNotIn("did you mean", self.refuses(USAGE, "run", "--xyzzy"))

    def test_commands_of_other_runtimes_are_understood_or_say_what_to_do(self):
        self.assertEqual(self.ok("ls").stdout, self.ok("list").stdout)
        for command, words in {"show": "pumice info", "ps": "nothing runs", "quantize": "llama-quantize",
                               "login": "HF_TOKEN"}.items():
            self.refuses(USAGE, command, "x", says=[f"'{command}'", words])

    def test_one_dash_and_several_letters_are_one_name(self):
        # Each of these was once read as a group of flags of one letter.
        for flags in ("-xyz", "-nx 5", "-pm", "-vmp x", "-cx", "-fx", "-sx"):
            name = flags.split()[0]
            with self.subTest(flags):
                self.refuses(USAGE, "run", *flags.split(), says=f"unknown flag {name}")
        self.refuses(BAD_FILE, "run", "-m", "nosuch", "-n5", "-c64", "-p", "x", says="nosuch")
        self.refuses(USAGE, "run", "-m", "x", "-n5x", says="-n: '5x'")

    def test_an_unexpected_argument_is_named_as_it_was_typed(self):
        self.refuses(USAGE, "run", "-m", "x", "a", "b", "c", says="unexpected argument 'b'")
        self.refuses(USAGE, "list", "a", "b", says="unexpected argument 'a'")
        self.refuses(USAGE, "run", "llama3.2", "hello", says="'llama3.2' is neither a file")

    def test_an_error_names_the_flag_that_was_typed(self):
        for flags, words in {"-n abc": "-n: ", "--n-predict abc": "--n-predict: ", "--temperature x": "--temperature = x",
                             "-ctk q9": "-ctk: ", "-p a -f b": "-p excludes -f", "-c x": "-c: "}.items():
            with self.subTest(flags):
                message = self.refuses(USAGE, "run", "-m", "x", *flags.split(), says=words)
                for other in ("--predict", "--temp ", "--ctk", "--ctx-size", "--file"):
                    self.assertNotIn(other, message)
        self.refuses(USAGE, "run", "-n", says="-n needs a value")
        self.refuses(USAGE, "run", "-n", 5, "--predict", 6, says="--predict is given twice")
        self.refuses(BAD_FILE, "run", "-m", "nosuch", "--stop", "a", "--stop", "b", "-v", "-v", says="nosuch")

    def test_an_unknown_flag_is_named_with_the_help_of_its_subcommand(self):
        for command in FLAGS:
            self.refuses(USAGE, command, "--nosuch",
                         says=["--nosuch", f"see pumice {command} --help"])

    def test_a_bad_value_is_refused_with_the_flag_and_what_it_takes(self):
        cases = [("-n abc", "16777216"), ("-n 0", "range"), ("-n -3", "range"), ("-n 1.5", "range"),
                 ("-n 99999999999999999999", "range"), ("-c -1", "range"), ("-ub 0", "range"),
                 ("-b 70000", "65536"), ("-b 15", "range"), ("--tpot-target nan", "nan"), ("-s abc", "abc"),
                 ("--math f33", "auto,f32,f16,i8"),
                 ("-ctk q9", "f32,f16,bf16,q8_0,q4_0"), ("--temp x", "x"), ("--top-k -1", "-1"),
                 ("-n", "-n needs a value")]
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
            self.refuses(USAGE, command, "-m", "x", "-p", "a", "-f", "b", says="-f")
        self.refuses(USAGE, "logits", "-m", "x", "-p", "a", "--tokens", "1", says="--tokens")

    def test_a_missing_model_or_output_says_which_flag_gives_it(self):
        self.refuses(USAGE, "run", "-p", "x", says="-m")
        self.refuses(USAGE, "tokenize", "-p", "x", says="--model")
        self.refuses(USAGE, "logits", "-p", "x", says="-m")
        self.refuses(USAGE, "logits", "-m", "x", "-p", "x", says="-o")


class OtherRuntimes(CommandLineTest):
    """Flags that llama.cpp's and ollama's users type. The model does not exist, so that nothing runs."""

    def notes(self, command, flags):
        """The lines said before the model is looked for."""
        done = self.pumice(command, "-m", "nosuch.gguf", *flags.split())
        message = done.stderr.decode()
        self.assertEqual(done.returncode, BAD_FILE, f"{command} {flags}\n{message}")
        self.assertIn("nosuch.gguf: ", message.splitlines()[-1])
        return message.splitlines()[:-1]

    def test_what_does_nothing_here_is_taken_with_a_line_that_says_why(self):
        run = ("-ngl 99", "--gpu-layers 99", "--n-gpu-layers 0", "-fa on", "-fa", "--flash-attn auto", "-t 4", "-t4",
               "--threads 8", "-tb 2", "-no-cnv", "-sm none", "-ts 1,1", "-nkvo", "-ncmoe 4", "-ot exps=CPU", "-cmoe",
               "-np 2", "-cb", "--mlock", "--no-mmap", "--mmap", "--no-warmup", "--color", "--simple-io",
               "--no-display-prompt", "--log-disable", "--verbose-prompt", "--numa distribute", "--prio 2", "--poll 50",
               "-C 0xf", "--perf", "--no-perf", "--jinja", "-st", "--keepalive 5m", "--nowordwrap", "--draft-min 1",
               "--swa-full", "--prompt-cache-all", "--mirostat 0", "--typical 1.0", "--think", "--log-file x", "-lv 3")
        for flags in run:
            with self.subTest(flags):
                notes = self.notes("run", f"-p x {flags}")
                name = re.sub(r"^(-t)4$", r"\1", flags.split()[0])
                self.assertEqual(len(notes), 1, notes)
                self.assertRegex(notes[0], rf"\Apumice: {name}( \S+)?: ignored, \w")
        self.assertEqual(len(self.notes("chat", "-cnv -i --color -ngl 99 -ngl 99")), 4)
        for flags in ("-mmp 0", "-fa 0,1", "-ngl 99", "-t 2", "--progress", "--no-warmup", "-nkvo 0", "-embd 0"):
            with self.subTest(flags):
                self.assertEqual(len(self.notes("bench", flags)), 1)
        self.assertEqual(self.notes("run", "-p -ngl"), [], "a text is no flag")

    def test_what_is_here_by_another_name_is_that(self):
        for flags in ("--temperature 0.5", "--n-predict 5", "--num-predict 5", "-c 0", "-n -1", "-n -2", "-e", "--escape",
                      "-r END", "--reverse-prompt END", "--no-context-shift", "--context-shift", "--num-ctx 64",
                      "--no-cache-prompt", "-hf=", "-n=5", "--predict=5"):
            with self.subTest(flags):
                self.assertEqual(self.notes("run", f"-p x {flags}"), [])
        self.refuses(USAGE, "run", "-m", "x", "--temperature", "x", says="--temperature")
        self.refuses(USAGE, "run", "-m", "x", "--n-predict", "0", says="--n-predict")

    def test_what_would_change_the_text_is_refused_by_name(self):
        for flags in ("--mirostat 2", "--lora-scaled a.gguf", "--rope-scaling yarn", "--rope-freq-base 1e6",
                      "--typical 0.5", "--dry-multiplier 0.8", "--xtc-probability 0.5",
                      "--samplers top_k", "--logit-bias 1+1", "--override-kv a=int:1", "-bf x", "-hff x.gguf",
                      "--repeat-last-n 64", "--in-prefix x", "--mmproj x", "-sp", "-cnv", "--think=false",
                      "--reasoning-budget 0", "--hf-token x", "--rpc a:1"):
            with self.subTest(flags):
                name = re.split("[ =]", flags)[0]
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", *flags.split(),
                             says=f"{name} is not supported: ")
        self.refuses(USAGE, "chat", "-m", "x", "-no-cnv", says="pumice run")
        self.assertNotIn("hf_secret", self.refuses(USAGE, "run", "-m", "x", "-hft", "hf_secret", says="HF_TOKEN"))

    def test_a_model_and_a_prompt_may_stand_without_a_flag(self):
        self.refuses(BAD_FILE, "run", "nosuch.gguf", "Once", says="nosuch.gguf: ")
        self.refuses(BAD_FILE, "chat", "./nosuch", says="./nosuch: ")
        self.refuses(BAD_FILE, "info", "nosuch.gguf", says="nosuch.gguf: ")
        self.refuses(BAD_FILE, "run", "-m", "nosuch.gguf", "Once", says="nosuch.gguf: ")
        self.refuses(BAD_FILE, "run", "-n", 5, "--", "nosuch.gguf", "-x", says="nosuch.gguf: ")
        cache = {"XDG_CACHE_HOME": str(self.folder)}
        self.refuses(BAD_FILE, "run", "user/repo:Q4_K_M", "Once", "--offline", env=cache,
                     says="user/repo:Q4_K_M is not in the cache")
        self.refuses(BAD_FILE, "chat", "user/repo:a.gguf", "--offline", env=cache, says="user/repo:a.gguf is not in")
        self.write("user/repo", "no model")
        self.assertNotIn("cache", self.refuses(BAD_FILE, "run", "user/repo", "Once", says="user/repo: "))
        text = self.ok("tokenize", self.need(STORIES), "Once").stdout
        self.assertEqual(text, self.ok("tokenize", "-m", STORIES, "-p", "Once").stdout)


class WhatTerminalsObey(CommandLineTest):
    """Escape sequences in what others wrote are shown, not sent."""

    EVIL = "a\x1b]0;x\x07\x1b[31m\u009b31m\r\x7f"

    def assert_harmless(self, data):
        text = data.decode()
        self.assertNotRegex(text, r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", repr(text))
        return text

    def test_in_paths_flags_values_names_and_settings(self):
        evil = self.EVIL
        path = self.write("config/" + evil.replace("/", "") + ".toml", f"[run]\npredict = 'x'\n")
        cases = [["run", "-m", evil, "-p", "x"], ["run", "-m", "x", "-n", evil], ["run", "--" + evil], [evil],
                 ["run", evil], ["run", "-m", "x", "--math", evil], ["info", "--program", "-m", evil],
                 ["run", "-hf", evil], ["rm", evil], ["run", "-m", "x", "-f", evil], ["--config", path, "run", "-m", "x"],
                 ["--config", evil, "run"], ["run", "-m", "x", "--device", evil], ["run", "-m", "x", "--limit", evil],
                 ["bench", "-m", "x", "-p", evil], ["report", evil, "-o", "x"], ["info", "--self-test", evil],
                 ["run", "-ngl", evil, "-m", "x", "--mirostat", evil], ["run", "-m", "x", "--think=" + evil]]
        for case in cases:
            with self.subTest(case):
                done = self.pumice(*case)
                self.assertNotEqual(done.returncode, 0)
                self.assert_harmless(done.stderr + done.stdout)
        for variable in ("PUMICE_PREDICT", "PUMICE_MATH", "PUMICE_CONFIG"):
            self.assert_harmless(self.pumice("run", "-m", "x", env={variable: evil}).stderr)
        for text in (f"[run]\nmath = '{evil[0]}\\u001b[31m'\n", f'[run]\n"\\u001b[31m" = 1\n', '["\\u001b"]\n',
                     "[run]\nmodel = \"\\u001b[31m\"\n"):
            self.write("config/pumice/config.toml", text)
            self.assert_harmless(self.pumice("run", "-p", "x").stderr)

    def test_in_what_is_printed_of_a_file(self):
        path = self.folder / ("e\x1b[31m" + ".gguf")
        path.write_bytes(self.need(STORIES).read_bytes())
        for flags in ([], ["--program"]):
            self.assertIn("metadata" if not flags else "llama",
                          self.assert_harmless(self.ok("info", "-m", path, *flags).stdout))
        self.assert_harmless(self.ok("run", "-m", path, "-p", "x", "-n", 1, "-v").stderr)


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
        self.write("config/pumice/config.toml", '[run]\nmodel = "of-config"\nverbose = true\n')
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
                 "PUMICE_UBATCH_SIZE": "--ubatch-size", "PUMICE_BATCH_SIZE": "--batch-size",
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
                 ("[run]\nverbose = true\npredict = 'abc'\n", "line 3: "), ("[\n", "line 1: "),
                 ("[]\n", "line 1"), ("[rum]\n", "line 1: there is no subcommand 'rum'"),
                 ("[run]\n=\n", "line 2"), ("[run]\nx\n", "line 2"), ("[run]\npredict =\n", "line 2"),
                 ("rum.model = 1\n", "line 1: there is no subcommand 'rum'"), ("[run]\nmath = [1,\n2\n", "line "),
                 ("[run\nmodel = 'x'\n", "line 1: "), ("model = 'x'\n", "line 1: 'model' belongs to no subcommand")]
        for text, words in cases:
            with self.subTest(text):
                path = self.write("config/pumice/config.toml", text)
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", says=f"{path} {words}")

    def test_toml_that_is_no_setting_is_an_error_with_its_line_and_never_dropped(self):
        cases = [("[run]\nverbose = on\n", "line 2: "), ("[run]\npredict = 2020-01-01\n", "line 2: 'predict' takes"),
                 ("[run]\nmath = {a = 1}\n", "line 2: 'math' takes"), ("[run.more]\nx = 1\n", "line 1: '[run.more]'"),
                 ("[[run]]\npredict = 1\n", "line 1: '[[run]]'"), ("run = {predict = 1}\n", "line 1: 'run' takes"),
                 ('[run]\nmodel = """x\ny"""\n', "line 2: strings of several"), ("[run]\npredict = 0x10\n", "line 2: "),
                 ("[run]\nmodel = 'x\n", "line 2: a string does not end"), ("[run]\nmodel = '\xff'\n".encode("latin-1"), "line 2: "),
                 ("[run]\na.b = 1\n", "line 2: "), ("[run]\npredict = 1__0\n", "line 2: "), ("[run]\npredict = 010\n", "line 2: "),
                 ("[run]\nstop = ['a' 'b']\n", "line 2: "), ("[run]\nstop = [['a']]\n", "line 2: "),
                 ("[run]\npredict = 5\npredict = 6\n", "line 3: "), ("[run]\nmodel = 'x' junk\n", "line 2: "),
                 ("[run]\nmodel = \"x\\q\"\n", "line 2: "), ("[run]\n\n[run]\n", "line 3: "), ("; x\n", "line 1: "),
                 ("[run]\npredict = 99999999999999999999\n", "line 2: "), ("[run]\nhelp = true\n", "line 2: pumice run has")]
        for text, words in cases:
            with self.subTest(text):
                path = self.write("config/pumice/config.toml", text)
                self.refuses(USAGE, "run", "-m", "x", "-p", "x", says=f"{path} {words}")

    def test_toml_is_read_as_its_standard_has_it(self):
        for text in ("run.model = 'of-config'\n", "[ run ]\r\nmodel='of-config'\r\n", "[run]\nmodel = 'of-config'",
                     "['run']\n\"model\" = 'of-config' # x\n", "[run]\nmodel = \"of-\\u0063onfig\"\npredict = +1_0\n",
                     "[run]\ntemp = 1_0.5e-1\nstop = ['a', \n 'b#',\n]\nmodel = 'of-config'\n"):
            with self.subTest(text):
                self.write("config/pumice/config.toml", text)
                self.assertEqual(self.model_named(), "of-config")
        self.write("config/pumice/config.toml", "[run]\nmodel = 'a#b=c'\n")
        self.assertEqual(self.model_named(), "a#b=c")

    def test_a_settings_file_is_a_regular_one_of_modest_size(self):
        path = self.folder / "config/pumice/config.toml"
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        self.start("list").communicate(timeout=30)  # and does not wait for a writer
        self.refuses(BAD_FILE, "list", says=[str(path), "regular file"])
        self.refuses(BAD_FILE, "--config", path, "run", "-m", "x", says="regular file")
        self.refuses(BAD_FILE, "--config", "/dev/zero", "run", "-m", "x", says="regular file")
        self.ok("--help")
        path.unlink()
        path.write_bytes(b"#" * ((1 << 20) + 1))
        self.refuses(BAD_FILE, "list", says="1 MiB")

    def test_a_value_that_one_command_cannot_use_is_an_error_of_that_command_only(self):
        env = {"PUMICE_PREDICT": "zero", "PUMICE_TEMP": "hot"}
        for words in (["list"], ["help"], ["info", "--help"], ["tokenize", self.need(STORIES), "x"]):
            self.ok(*words, env=env)
        self.refuses(USAGE, "run", "-m", "x", env=env, says="PUMICE_")
        self.assertIn("PUMICE_PREDICT=zero: ", self.refuses(USAGE, "chat", "-m", "x", "--temp", 0, env=env))
        self.write("config/pumice/config.toml", "[run]\npredict = 0\n[chat]\ntemp = 'hot'\n")
        self.ok("list")
        self.refuses(USAGE, "run", "-m", "x", says="line 2: ")

    def test_a_flag_beats_what_cannot_be_used(self):
        self.write("config/pumice/config.toml", "[run]\ntemp = 'hot'\n")
        env = {"PUMICE_PREDICT": "zero"}
        self.refuses(BAD_FILE, "run", "-m", "nosuch", "-p", "x", "-n", 5, "--temp", 0, env=env, says="nosuch")
        self.refuses(BAD_FILE, "run", "-m", "nosuch", "-p", "x", "-n", 5, env={**env, "PUMICE_TEMP": "0.5"}, says="nosuch")

    def test_a_setting_gives_way_to_a_flag_that_excludes_it(self):
        self.write("config/pumice/config.toml", "[run]\nprompt = 'of-config'\n")
        self.refuses(BAD_FILE, "run", "-m", self.need(STORIES), "-f", "nosuch", says="nosuch: ")
        self.write("config/pumice/config.toml", "[run]\nmodel = 'of-config'\n")
        for env in ({}, {"PUMICE_MODEL": "of-env"}):
            self.refuses(BAD_FILE, "run", "user/repo", "--offline", says="user/repo is not in",
                         env={"XDG_CACHE_HOME": str(self.folder), **env})

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
