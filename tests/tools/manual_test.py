#!/usr/bin/env python3
"""Man pages and completions: they have what the help has, and the programs that read them take them."""

import os
import re
import select
import shutil
import subprocess
import time
import unittest

from command_line import BAD_FILE, USAGE, CommandLineTest

FLAG_LINE = re.compile(r"^  (-[\w-]+(?:, -[\w-]+)*)", re.MULTILINE)
C_LOCALE = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class ManualTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.share = self.folder / "share"
        self.ok("manual", self.share)
        self.pages = sorted((self.share / "man" / "man1").iterdir())

    def commands(self):
        """As the help lists them, "" for the program itself."""
        listed = self.ok("--help").stdout.decode().split("\nSubcommands:\n")[1].split("\n\n")[0]
        return ["", *re.findall(r"^  (\w+)", listed, re.MULTILINE)]

    def flags(self, command):
        """Of the help: a list of names for each flag."""
        text = self.ok(*filter(None, [command]), "--help").stdout.decode()
        return [names.split(", ") for names in FLAG_LINE.findall(text)]

    def run_tool(self, *words, **options):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **options)


class ManPages(ManualTest):
    def test_each_command_has_a_page_with_all_flags_of_its_help_in_their_order(self):
        commands = self.commands()
        self.assertEqual([page.name for page in self.pages],
                         sorted(f"pumice-{name}.1" if name else "pumice.1" for name in commands))
        for command in commands:
            page = (self.share / "man/man1" / (f"pumice-{command}.1" if command else "pumice.1")).read_text()
            heads = re.findall(r"^\.TP\n(\\fB\\-.*)$", page, re.MULTILINE)
            listed = [[name.replace("\\-", "-") for name in re.findall(r"\\fB(.*?)\\fR", head)] for head in heads]
            self.assertEqual(listed, self.flags(command), command)

    def test_a_page_says_what_a_flag_takes_and_where_else_it_can_be_set(self):
        page = (self.share / "man/man1/pumice-run.1").read_text().replace("\\-", "-")
        for words in ("model\\(aqs own", "One of \\fBauto\\fR, \\fBf32\\fR", "Environment: \\fBPUMICE_MODEL\\fR", "Needs \\fB--json\\fR",
                      "Excludes \\fB--messages\\fR, \\fB--repl\\fR", "Default: \\fB40\\fR", "Range: 0 - 20", ".SH EXAMPLES\n.nf\npumice run -m"):
            self.assertIn(words, page)
        self.assertIn("3 no usable device", (self.share / "man/man1/pumice.1").read_text())
        self.assertIn(".SH ARGUMENTS\n.TP\n\\fINAME\\fR", (self.share / "man/man1/pumice-pull.1").read_text())

    def test_equal_programs_write_equal_files(self):
        again = self.folder / "again"
        self.ok("manual", again)
        for path in (path for path in self.share.rglob("*") if path.is_file()):
            self.assertEqual(path.read_bytes(), (again / path.relative_to(self.share)).read_bytes(), path)

    @needs("man")
    @needs("groff")
    def test_man_formats_every_page_without_a_warning(self):
        for page in self.pages:
            done = self.run_tool("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page, env=C_LOCALE)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)

    @needs("mandoc")
    def test_mandoc_finds_no_error(self):
        for page in self.pages:
            done = self.run_tool("mandoc", "-T", "lint", "-W", "error", page)
            self.assertEqual((done.returncode, done.stdout), (0, ""), page.name)

    def prints_letter_by_letter(self, *words):
        text = self.run_tool(*words, self.share / "man/man1/pumice-run.1", env={**C_LOCALE, "MANPAGER": "cat"}).stdout
        text = re.sub(r".\x08", "", text)
        self.assertIn("""-j '{"type":"object","properties":""", text)
        self.assertIn(r"Replace \n \r \t \\ \' \" and \xHH", re.sub(r"\s+", " ", text))

    @needs("man")
    @needs("groff")
    def test_man_prints_what_can_be_copied_letter_by_letter(self):
        self.prints_letter_by_letter("man", "-E", "UTF-8", "-l")

    @needs("mandoc")
    def test_mandoc_prints_what_can_be_copied_letter_by_letter(self):
        self.prints_letter_by_letter("mandoc", "-T", "utf8")


class Completions(ManualTest):
    def complete_in_bash(self, *words):
        script = self.share / "bash-completion/completions/pumice"
        done = self.run_tool("bash", "--norc", "-uc", """
            source "$1"; shift
            complete -p pumice >/dev/null
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _pumice
            printf '%s\\n' "${COMPREPLY[@]}"
            """, "bash", script, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout.split()

    def test_bash_completes_commands_flags_and_values(self):
        self.assertEqual(self.complete_in_bash("pumice", "be"), ["bench"])
        self.assertEqual(sorted(self.complete_in_bash("pumice", "")), sorted([*self.commands()[1:], "help", "version"]))
        self.assertEqual(self.complete_in_bash("pumice", "help", "tok"), ["tokenize"])
        self.assertEqual(self.complete_in_bash("pumice", "--config", "x.toml", "tok"), ["tokenize"])
        self.assertEqual(self.complete_in_bash("pumice", "run", "--math", "f"), ["f32", "f16"])
        self.assertEqual(self.complete_in_bash("pumice", "run", "--math", "=", "i"), ["i8"])
        self.assertEqual(self.complete_in_bash("pumice", "run", "--math", "="), ["auto", "f32", "f16", "i8"])
        self.assertEqual(self.complete_in_bash("pumice", "run", "-m", ""), [])  # files, which bash adds
        for command in self.commands():
            words = filter(None, ["pumice", command, "-"])
            self.assertEqual(self.complete_in_bash(*words), [name for names in self.flags(command) for name in names])

    @needs("zsh")
    def test_zsh_reads_its_completion_and_finds_every_flag_in_it(self):
        script = self.share / "zsh/site-functions/_pumice"
        done = self.run_tool("zsh", "-f", "-c", 'autoload -U compinit; compinit -u -D; source "$1"; print $_comps[pumice]', "zsh",
                             script, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "_pumice\n", ""))
        text = script.read_text()
        for command in self.commands():
            part = text if command == "" else text.split(f"        {command})\n", 1)[1].split(";;")[0]
            for names in self.flags(command):
                for name in names:
                    self.assertRegex(part, rf"'(\({re.escape(' '.join(names))}\)|\*){name}\[")

    @needs("zsh")
    def test_zsh_completes_what_is_typed(self):
        main, other = self.open_terminal()
        environment = {**os.environ, "TERM": "dumb", "PS1": "> ", "HOME": str(self.folder)}
        shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=other, stdout=other, stderr=other, close_fds=True,
                                 start_new_session=True, cwd=self.folder, env=environment)
        os.close(other)
        self.addCleanup(os.close, main)
        self.addCleanup(self.finish, shell)

        def read_until(words):
            text, end = "", time.monotonic() + 120
            while words not in text:
                self.assertLess(time.monotonic(), end, text)
                if select.select([main], [], [], 1)[0]:
                    text += os.read(main, 65536).decode(errors="replace")
            return text

        def send(text):
            os.write(main, text.encode())

        folder = self.share / "zsh/site-functions"
        send(f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n")
        read_until("ready")
        for typed, completed in [("pumice toke\t", "pumice tokenize"), ("pumice run --json-schema-f\t", "run --json-schema-file"),
                                 ("pumice run --overflow tr\t", "--overflow truncate-oldest")]:
            send(typed)
            read_until(completed)
            send("\x15")  # which empties the line

    @needs("fish")
    def test_fish_completes_commands_flags_and_values(self):
        script = self.share / "fish/vendor_completions.d/pumice.fish"
        environment = {**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}

        def complete(line):
            done = self.run_tool("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, line,
                                 cwd=self.folder, env=environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)
            return [entry.split("\t")[0] for entry in done.stdout.splitlines()]

        self.assertEqual(sorted(complete("pumice ")), sorted(self.commands()[1:]))
        self.assertEqual(sorted(complete("pumice run --math ")), ["auto", "f16", "f32", "i8"])
        for command in self.commands():
            offered = set(complete(f"pumice {command} -".replace("  ", " ")))
            offered |= set(complete(f"pumice {command} --".replace("  ", " ")))
            for names in self.flags(command):
                self.assertLessEqual(set(names), offered, command)


class Command(CommandLineTest):
    def test_it_is_hidden_and_says_what_it_takes(self):
        self.assertNotIn("manual", self.ok("--help").stdout.decode())
        self.assertNotIn("did you mean", self.refuses(USAGE, "manul"))
        self.assertIn("FOLDER", self.ok("manual", "--help").stdout.decode())
        self.refuses(USAGE, "manual", says="FOLDER")

    def test_a_folder_that_cannot_be_made_is_named(self):
        path = self.write("file", "x")
        self.refuses(BAD_FILE, "manual", path, says=[str(path), "folder"])


if __name__ == "__main__":
    unittest.main()
