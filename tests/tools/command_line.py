"""What the tests of the command line share: starting the program as a user would, and what every
failure must look like.

ctest names the program in PUMICE_TEST_BINARY and the shared data in PUMICE_TEST_SHARED_DIR.
"""

import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest

USAGE, NO_DEVICE, BAD_FILE, DOES_NOT_FIT, SELF_TEST_FAILED, CANCELLED = 2, 3, 4, 5, 6, 130

BINARY = os.environ["PUMICE_TEST_BINARY"]
SHARED = pathlib.Path(os.environ.get("PUMICE_TEST_SHARED_DIR", "../shared")).resolve()
STORIES = SHARED / "models/stories260K.gguf"
VOCABULARY = SHARED / "tokenizers/ggml-vocab-llama-spm.gguf"
TIMEOUT_S = 500  # hangs; a slow machine is no failure, and ctest has a limit of its own

# Tests started in the background ignore Ctrl-C, and what they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def user_environment(home, changes):
    """Nobody's settings: those of the developer who runs the tests must not show. Pipelines stay
    cached between tests, and a device chosen for all tests stays chosen, as limited as it is."""
    keep = ("PUMICE_DEVICE", "PUMICE_LIMIT", "PUMICE_VALIDATION")
    environment = {name: value for name, value in os.environ.items()
                   if name in keep or not name.startswith("PUMICE_")}
    environment["XDG_CONFIG_HOME"] = str(home)
    environment["XDG_STATE_HOME"] = str(home)
    # A launcher finds the driver it was told even where a test has a cache folder of its own.
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    environment["PUMICE_DRIVER_CACHE"] = os.environ.get("PUMICE_DRIVER_CACHE") or f"{caches}/pumice/drivers"
    # An interrupted run has this long to end on its own; a slow machine needs more than users like.
    environment["PUMICE_GRACE_SECONDS"] = "60"
    environment.update(changes)
    return {name: value for name, value in environment.items() if value is not None}


def needs_file(path):
    """A test that is left out where the machine has no such file: a minimal /dev has only null, zero and urandom."""
    return unittest.skipUnless(os.path.exists(path), f"no {path} on this machine")


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def open_terminal(self):
        """Both ends of a new terminal; skips where the machine has none to give."""
        try:
            return pty.openpty()
        except OSError as error:
            self.skipTest(f"no terminals on this machine (/dev/ptmx, /dev/pts): {error.strerror}")

    def need(self, path):
        if not path.exists():
            self.skipTest(f"no {path.name} in the shared data ({SHARED})")
        return path

    def start(self, *arguments, env=None, launcher=True, before=(), **popen):
        """`before`: a command that runs the program given behind it."""
        words = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", "")) if launcher else []
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            [*before, *words, BINARY, *map(str, arguments)], cwd=self.folder,
            env=user_environment(self.folder / "config", env or {}), **popen)
        self.addCleanup(self.finish, process)
        return process

    @staticmethod
    def finish(process):
        """Also after a failed assertion, nothing started stays behind."""
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def pumice(self, *arguments, stdin=subprocess.DEVNULL, **options):
        """Runs to the end: returncode, stdout and stderr as bytes. `stdin`: bytes or a file."""
        text = stdin if isinstance(stdin, bytes) else None
        process = self.start(*arguments, stdin=stdin if text is None else subprocess.PIPE, **options)
        out, err = process.communicate(input=text, timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def ok(self, *arguments, **options):
        done = self.pumice(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done

    def refuses(self, code, *arguments, says=(), **options):
        """The program ends with `code`, one line that starts with its name, and no output."""
        done = self.pumice(*arguments, **options)
        message = done.stderr.decode()
        shown = f"{' '.join(map(str, arguments))[:200]}\n{message}"
        self.assertEqual(done.returncode, code, shown)
        self.assertRegex(message, r"\Apumice: [^\n]+\n\Z", shown)
        self.assertLess(len(message), 700, shown)
        self.assertEqual(done.stdout, b"", shown)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, message, shown)
        return message

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def left_behind(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
