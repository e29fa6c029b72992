#!/usr/bin/env python3
"""pumice.exe and pumice.dll under wine, against the same files and the program of this system.

    tests/matrix/windows_test.py BUILD_WINDOWS BUILD [unittest arguments]
    tests/matrix/windows_test.py --targets          what of BUILD_WINDOWS it runs

BUILD_WINDOWS has been built by scripts/build_windows.sh, BUILD is of this system. The program of this system runs on
lavapipe-25, which is of the same version of Mesa as wine's.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

from other_system import CHECKOUT, ENCODERS, KINDS, MODEL, OtherSystemTest

WINE = CHECKOUT / "tests/matrix/wine.sh"
# Every program of unit tests but test_unfinished_files, which has an open() of its own.
PROGRAMS = ["answers/test_answers", "api/test_api_misuse", "base/test_base", "bench/test_bench_host", "cache/test_cache",
            "constraints/test_constraints", "constraints/test_json_schema", "engine/test_engine_host", "format/test_gguf",
            "format/test_weights", "host/test_host_files", "hub/test_hub", "model_fuzz/test_model_fuzz", "models/test_models",
            "models/test_models_reference", "sampling/test_sampling", "scheduler/test_scheduler", "shaders/test_attention_host",
            "shaders/test_choices", "shaders/test_gemm_variants", "shaders/test_gemv_tuning", "shaders/test_linear_shares",
            "shaders/test_passport", "shaders/test_tuning", "shaders/test_variants", "text/test_text", "text/test_text_files",
            "tools/test_embedding_service", "tools/test_flag_values", "tools/test_kv_view", "tools/test_serve_wires",
            "tools/test_terminal", "vk/test_vk_plan"]
NOT_UNDER_WINE = ":".join([
    # Wine has no FileRenameInfoEx, and its MoveFileEx replaces no file that somebody has open.
    "FileTest.AReaderKeepsTheFileThatIsReplaced", "Tiers.APromptIsFoundInTheFileByTheNextProcess",
    # A file that is deleted when it is closed has a name until then, and no other handle may write to it.
    "Tiers.EvictedBlocksGoToTheFileWhereThereIsNoHostMemory", "Tiers.AnEvictedBlockDamagedOnDiskIsAnError",
    # GCC's library makes no links there, and its resize_file ends the program that asks for 2 TiB.
    "ModelCacheTest.follows_no_links_out_of_its_folder", "GgufTensors.AHeaderBeyondTheLimitIsRefusedAndTakesNoMemoryFirst",
    # It is about /proc.
    "Machine.TheProcessorSaysNameClocksAndLoad"])
# Of most kernels every case, of products with weights a small one of each kernel and of two types: compiling takes minutes.
# Of attention those with small heads.
OP_CASES = "*/rms_norm_*:*/layer_norm_*:*/elementwise_*:*/rope_*:*/recurrence_*:*/causal_conv_*:*/embedding_*:" \
    "*/gemv_Q4_K_*_rows_2_n_7_*:*/gemv_Q8_0_*_rows_2_n_7_*:*/gemm_Q4_K_*_rows_3_n_7_*:*/gemm_Q8_0_*_rows_3_n_7_*:" \
    "*/flash_attention_*_head_dim_8_*:*/flash_attention_*_head_dim_16_*:*/flash_attention_*_head_dim_24_*:*/latent_*:" \
    "*/experts_*:*/expert_gemm_Q4_K_*_used_1_experts_3_n_5_*:*/head_linear_F32_*-*_added_*"
NO_DEVICE, BAD_FILE = 3, 4
GREEDY = ["--temp", "0", "-p", "Once upon a time", "-n", "40"]


class Windows(OtherSystemTest):
    def there(self, program, *arguments, text="", **environment):
        return self.run_command([WINE, self.other / f"{program}.exe", *arguments], text, {**os.environ, **environment})

    def pumice(self, *arguments, **options):
        return self.there("tools/pumice", *arguments, **options)

    def refused(self, code, *arguments, **options):
        """The one line of an error."""
        result = self.pumice(*arguments, **options)
        message = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, code, message)
        lines = [line for line in message.splitlines() if line.startswith("pumice: ")]
        self.assertEqual(len(lines), 1, message)
        return lines[0]

    def test_programs_of_unit_tests_pass(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.run_tests(f"tests/{name}", f"-{NOT_UNDER_WINE}", TEST_TMPDIR="C:\\windows\\temp\\")

    def test_op_cases_pass(self):
        self.run_tests("tests/shaders/test_ops", OP_CASES)

    def test_the_device_is_found(self):
        self.assertIn(b"llvmpipe", self.output_of(self.pumice("info")))

    def test_greedy_tokens_are_those_of_this_system(self):
        expected = self.here("run", "-m", MODEL, *GREEDY)
        self.assertGreater(len(expected), 100)
        self.assertEqual(self.output_of(self.pumice("run", "-m", MODEL, *GREEDY)), expected)

    def test_names_and_text_are_utf8(self):
        model = self.folder / "größe 日本語 🪨.gguf"
        shutil.copy(MODEL, model)
        (self.folder / "überschrift.txt").write_text("Once upon a time")
        arguments = ["--temp", "0", "-n", "20", "-f", "überschrift.txt"]
        self.assertEqual(self.output_of(self.pumice("run", "-m", model.name, *arguments)),
                         self.here("run", "-m", model.name, *arguments))
        self.assertIn("日本語 🪨.ggu", self.refused(BAD_FILE, "run", "-m", "日本語 🪨.ggu", "-p", "x"))
        found = self.output_of(self.pumice("run", *arguments, PUMICE_MODEL=model.name))
        self.assertGreater(len(found), 20)

    def test_a_chat_is_read_from_standard_input_and_saved(self):
        typed = "Tell me a story.\n/save talk.json\nGo on.\n"
        arguments = ["chat", "-m", MODEL, "--temp", "0", "-n", "20"]
        ours = self.here(*arguments, text=typed)
        talk = (self.folder / "talk.json").read_bytes()
        values = (self.folder / "talk.json.kv").read_bytes()
        self.assertEqual(self.output_of(self.pumice(*arguments, text=typed)), ours)
        self.assertEqual((self.folder / "talk.json").read_bytes(), talk)
        self.assertEqual((self.folder / "talk.json.kv").read_bytes(), values)
        # Lines that end as Windows' do are the same lines.
        self.assertEqual(self.output_of(self.pumice(*arguments, text=typed.replace("\n", "\r\n"))), ours)

    def test_a_cache_of_one_system_serves_the_other(self):
        arguments = ["run", "-m", MODEL, *GREEDY, "--prompt-cache", "cache"]
        expected = self.here(*arguments)
        ours = (self.folder / "cache").read_bytes()
        (self.folder / "cache").unlink()
        self.assertEqual(self.output_of(self.pumice(*arguments)), expected)
        self.assertEqual((self.folder / "cache").read_bytes(), ours)
        self.assertEqual(self.here(*arguments), expected)
        self.assertEqual(self.output_of(self.pumice(*arguments)), expected)

    def test_speed_is_measured(self):
        self.assertIn(b"tg8", self.output_of(self.pumice("bench", "-m", MODEL, "-p", "16", "-n", "8", "-r", "1")))

    def test_a_writer_that_is_killed_leaves_a_cache_or_none(self):
        arguments = ["run", "-m", MODEL, *GREEDY, "--prompt-cache", "cache"]
        expected = self.output_of(self.pumice(*arguments))
        whole = (self.folder / "cache").read_bytes()
        n_killed = 0
        for tenths in range(2, 16):
            (self.folder / "cache").unlink(missing_ok=True)
            process = subprocess.Popen([WINE, self.other / "tools/pumice.exe", *map(str, arguments)], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(tenths / 10)
            except subprocess.TimeoutExpired:
                n_killed += 1
                process.kill()
                process.wait()
            if (self.folder / "cache").exists():
                self.assertEqual((self.folder / "cache").read_bytes(), whole)
        self.assertGreater(n_killed, 0)
        self.assertEqual(self.output_of(self.pumice(*arguments)), expected)
        self.assertEqual((self.folder / "cache").read_bytes(), whole)

    def test_a_server_answers_many_at_once(self):
        prompts = ["Once upon a time", "One day, a dog", "Lily and Tom", "The sun was"] * 4
        expected = {prompt: self.here("run", "-m", MODEL, "--temp", "0", "-p", prompt, "-n", "24")
                    for prompt in set(prompts)}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen([WINE, self.other / "tools/pumice.exe", "serve", "-m", MODEL, "-c", "512", "--temp",
                                        "0", "--port", "0"], cwd=self.folder, stderr=log)
        try:
            while not (listening := re.search(r"listening on (http://[\d.]+:\d+)", (self.folder / "log").read_text())):
                self.assertIsNone(process.poll(), "the server did not start:\n" + (self.folder / "log").read_text())
                time.sleep(0.1)
            address = listening[1]

            def ask(path, body=None):
                request = urllib.request.Request(address + path, body and json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=300) as response:
                    return response.read().decode()

            def complete(prompt):
                return prompt, json.loads(ask("/v1/completions", {"prompt": prompt, "max_tokens": 24}))

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for prompt, answer in pool.map(complete, prompts):
                    text = answer["choices"][0]["text"]
                    self.assertEqual(text.strip(), expected[prompt].decode().strip())
            chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "stream": True}
            self.assertTrue(ask("/v1/chat/completions", chat).endswith("data: [DONE]\n\n"))
            with self.assertRaises(urllib.error.HTTPError) as refusal:
                ask("/v1/completions", {"prompt": "x", "max_tokens": "many"})
            self.assertEqual(refusal.exception.code, 400)
            refusal.exception.close()
            self.assertIn("pumice:num_requests_running", ask("/metrics"))
        finally:
            process.kill()
            process.wait()

    def test_without_a_loader_of_vulkan_it_says_so(self):
        message = self.refused(NO_DEVICE, "run", "-m", MODEL, "-p", "x", WINEDLLOVERRIDES="vulkan-1=")
        self.assertIn("vulkan-1.dll", message)

    def host_in_c(self, source):
        """It links the library."""
        program = self.folder / f"{source.stem}.exe"
        subprocess.run(["x86_64-w64-mingw32-gcc-posix", "-std=c99", "-DPUMICE_USES_DLL", "-I", CHECKOUT / "runtime/include",
                        "-I", CHECKOUT / "build/windows-libraries/include", source, self.other / "runtime/api/pumice.lib",
                        "-o", program], check=True)
        shutil.copy(self.other / "runtime/api/pumice.dll", self.folder)
        return program

    def test_a_host_in_c_links_the_library(self):
        program = self.host_in_c(CHECKOUT / "examples/minimal.c")
        shown = self.output_of(self.run_command([WINE, program, MODEL])).replace(b"\r\n", b"\n")
        expected = self.here("run", "-m", MODEL, "--temp", "0", "-n", "100", "-p", "Once upon a time")
        self.assertIn(expected.strip()[:100], shown)

    def test_a_host_in_c_lends_its_own_device(self):
        program = self.host_in_c(CHECKOUT / "tests/matrix/own_device.c")
        shown = self.output_of(self.run_command([WINE, program, MODEL, "Once upon a time"]))
        self.assertEqual(shown.strip(), self.here("run", "-m", MODEL, *GREEDY).strip())

    def test_models_of_each_kind_say_what_they_say_here(self):
        self.check_models(KINDS, ENCODERS)

    def test_a_synthetic_model_is_the_same_file(self):
        model = self.synthetic("llama", "q4_k")
        self.output_of(self.pumice("synth", "--preset", "llama", "--type", "q4_k", "-s", 3, "-o", "theirs.gguf"))
        self.assertEqual((self.folder / "theirs.gguf").read_bytes(), model.read_bytes())


if __name__ == "__main__":
    if sys.argv[1:] == ["--targets"]:
        print("pumice pumice_shared test_ops", *(name.split("/")[1] for name in PROGRAMS))
        sys.exit()
    Windows.other, Windows.this = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
