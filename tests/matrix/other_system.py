"""What the rows of other systems have in common: the program of this system, and what both must say alike."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MODEL = CHECKOUT / "models/pumice-stories.gguf"
TIMEOUT_S = 1800
# One of each kind that `pumice synth` makes, as preset and type of weights: dense, with windows, latent, of experts, of
# experts with recurrent layers, with a state beside attention, with convolutions; then types that files have.
KINDS = [("llama", "q4_k"), ("gemma3", "q5_k"), ("deepseek2", "q4_k"), ("gpt-oss", "mxfp4"), ("qwen3moe", "q8_0"),
         ("qwen35moe", "q4_k"), ("falcon-h1", "q4_k"), ("lfm2", "q8_0"),
         ("llama", "f16"), ("llama", "q6_k"), ("llama", "q2_k"), ("llama", "q4_0"), ("llama", "iq4_xs"), ("llama", "iq3_s")]
ENCODERS = [("bert", "q4_k"), ("gemma-embedding", "q8_0")]


class OtherSystemTest(unittest.TestCase):
    """Who derives from it says how a program of the other system is run (`there`)."""

    other = this = None  # folders of builds (main)

    def setUp(self):
        # Below the checkout, as all that wine sees.
        scratch = CHECKOUT / "build/matrix"
        scratch.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="other-system-", dir=scratch))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_command(self, command, text="", environment=None):
        return subprocess.run(list(map(str, command)), input=text.encode(), capture_output=True, timeout=TIMEOUT_S,
                              cwd=self.folder, env=environment)

    def output_of(self, result):
        self.assertEqual(result.returncode, 0, (result.stdout[-4000:] + result.stderr).decode(errors="replace"))
        return result.stdout

    def here(self, *arguments, text=""):
        """The output of this system's program, on the driver that is of the same version of Mesa as the other's."""
        command = [CHECKOUT / "tests/matrix/run_on.sh", "lavapipe-25", self.this / "tools/pumice", *arguments]
        return self.output_of(self.run_command(command, text))

    def run_tests(self, program, chosen="*", **environment):
        """Those of a program of the other system."""
        done = self.there(program, f"--gtest_filter={chosen}", **environment)
        failures = [line for line in done.stdout.decode(errors="replace").splitlines() if "Failure" in line or "FAILED" in line]
        self.assertEqual(done.returncode, 0, "\n".join(failures) + done.stderr.decode(errors="replace"))
        self.assertIn(b"[  PASSED  ]", done.stdout)

    def synthetic(self, preset, weights):
        model = self.folder / f"{preset}-{weights}.gguf"
        self.here("synth", "--preset", preset, "--type", weights, "-s", 3, "-o", model)
        return model

    def check_models(self, kinds, encoders):
        """Both systems' programs say the same with these."""
        for kind in kinds:
            with self.subTest(kind):
                arguments = ["run", "-m", self.synthetic(*kind), "--temp", 0, "-p", "Once upon a time", "-n", 24]
                expected = self.here(*arguments)
                self.assertGreater(len(expected), 20)
                self.assertEqual(self.output_of(self.there("tools/pumice", *arguments)), expected)
        for kind in encoders:
            with self.subTest(kind):
                arguments = ["embed", "-m", self.synthetic(*kind), "--json", "-p", "Once upon a time"]
                expected, got = (json.loads(output)["embedding"] for output in
                                 (self.here(*arguments), self.output_of(self.there("tools/pumice", *arguments))))
                self.assertEqual(len(got), len(expected))
                self.assertGreater(len(expected), 100)
                self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), 1e-5)
