#!/usr/bin/env python3
"""pumice synth: files that a reader written from the GGUF specification alone accepts."""

import os
import re
import resource
import signal
import struct
import unittest

from command_line import BAD_FILE, CANCELLED, DOES_NOT_FIT, USAGE, CommandLineTest

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# ggml type → name, elements and bytes of a block
TYPES = {0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20),
         6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 10: ("q2_k", 256, 84),
         11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176),
         14: ("q6_k", 256, 210), 20: ("iq4_nl", 32, 18), 30: ("bf16", 1, 2)}


class Gguf:
    """Metadata and tensors (name → type, dimensions, bytes), every rule of the format asserted."""

    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 0
        assert self.take(4) == b"GGUF"
        version, n_tensors, n_keys = struct.unpack("<IQQ", self.take(20))
        assert version == 3
        self.metadata = {}
        for _ in range(n_keys):
            key = self.text()
            assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", key) and key not in self.metadata, key
            self.metadata[key] = self.value(self.scalar("I"))
        infos = [(self.text(), [self.scalar("Q") for _ in range(self.scalar("I"))], self.scalar("I"),
                  self.scalar("Q")) for _ in range(n_tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors, expected = {}, 0
        for name, dims, number, offset in infos:
            assert len(name) < 64 and name not in self.tensors, name
            kind, elements, size = TYPES[number]
            assert dims[0] % elements == 0, name
            count = 1
            for dim in dims:
                count *= dim
            assert offset == expected, name
            n_bytes = count // elements * size
            expected += -(-n_bytes // alignment) * alignment
            self.tensors[name] = (kind, dims, self.data[start + offset:start + offset + n_bytes])
        assert len(self.data) == start + expected

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data)
        return self.data[self.at - n:self.at]

    def scalar(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.scalar("Q")).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(SCALARS[kind])


class Synth(CommandLineTest):
    def synth(self, *arguments, output="x.gguf"):
        done = self.ok("synth", "--preset", "tiny", *arguments, "-o", output)
        self.assertEqual(done.stdout, b"")
        return self.folder / output

    def test_a_reader_of_its_own_accepts_every_type(self):
        for kind, _, _ in TYPES.values():
            with self.subTest(kind):
                file = Gguf(self.synth("--type", kind, "--force"))
                self.assertEqual(file.tensors["blk.0.ffn_down.weight"][:2], (kind, [512, 256]))
                self.assertEqual(file.tensors["blk.1.attn_norm.weight"][:2], ("f32", [256]))
                self.assertEqual(len(file.tensors), 3 + 2 * 9)

    def test_metadata_hold_what_loaders_ask_for(self):
        keys = Gguf(self.synth()).metadata
        self.assertEqual(keys["general.architecture"], "llama")
        for key, expected in (("block_count", 2), ("embedding_length", 256), ("vocab_size", 512),
                              ("feed_forward_length", 512), ("attention.head_count", 4),
                              ("attention.head_count_kv", 2), ("rope.dimension_count", 64),
                              ("context_length", 2048)):
            self.assertEqual(keys["llama." + key], expected, key)
        self.assertAlmostEqual(keys["llama.attention.layer_norm_rms_epsilon"], 1e-5)
        tokens = keys["tokenizer.ggml.tokens"]
        self.assertEqual(len(set(tokens)), 512)
        self.assertEqual(len(keys["tokenizer.ggml.scores"]), 512)
        self.assertEqual(len(keys["tokenizer.ggml.token_type"]), 512)
        self.assertEqual(tokens[keys["tokenizer.ggml.eos_token_id"]], "</s>")
        self.assertEqual(tokens[3:259], [f"<0x{byte:02X}>" for byte in range(256)])

    def test_experts_have_a_dimension_of_their_own(self):
        self.ok("synth", "--preset", "moe-tiny", "-o", "x.gguf")
        file = Gguf(self.folder / "x.gguf")
        self.assertEqual(file.metadata["llama.expert_count"], 4)
        self.assertEqual(file.metadata["llama.expert_used_count"], 2)
        self.assertEqual(file.tensors["blk.1.ffn_up_exps.weight"][:2], ("q4_k", [256, 256, 4]))
        self.assertTrue(self.ok("run", "-m", "x.gguf", "-p", "x", "-n", 4, "--ignore-eos").stdout)

    def test_the_seed_decides_the_file_and_the_number_of_processors_does_not(self):
        one = self.synth("-s", 7).read_bytes()
        self.assertEqual(self.synth("-s", 7, output="again.gguf").read_bytes(), one)
        self.assertNotEqual(self.synth("-s", 8, output="other.gguf").read_bytes(), one)
        if hasattr(os, "sched_setaffinity"):
            first = min(os.sched_getaffinity(0))
            done = self.pumice("synth", "--preset", "tiny", "-s", 7, "-o", "single.gguf",
                               preexec_fn=lambda: os.sched_setaffinity(0, {first}))
            self.assertEqual(done.returncode, 0)
            self.assertEqual((self.folder / "single.gguf").read_bytes(), one)

    def test_layers_and_context_can_be_others(self):
        file = Gguf(self.synth("--layers", 3, "--context", 77))
        self.assertEqual(file.metadata["llama.block_count"], 3)
        self.assertEqual(file.metadata["llama.context_length"], 77)
        self.assertIn("blk.2.ffn_up.weight", file.tensors)

    def test_presets_are_listed(self):
        listed = self.ok("synth", "--list").stdout.decode()
        for words in ("tiny", "small-0.1b", "llama-1b", "llama-8b", "moe-8x7b", "Llama 3.1 8B",
                      "8.03B"):
            self.assertIn(words, listed)

    def test_mistakes_are_named(self):
        self.refuses(USAGE, "synth", "-o", "x.gguf", says="--list")
        self.refuses(USAGE, "synth", "--preset", "tiny", says="-o FILE")
        self.refuses(USAGE, "synth", "--preset", "llama-2b", "-o", "x.gguf", says="llama-3b")
        self.refuses(USAGE, "synth", "--preset", "tiny", "--type", "q9", "-o", "x.gguf", says="Q8_0")
        self.refuses(USAGE, "synth", "--preset", "tiny", "--type", "nvfp4", "-o", "x.gguf",
                     says="IQ4_NL")
        self.refuses(USAGE, "synth", "--preset", "tiny", "--layers", 0, "-o", "x.gguf")
        self.assertEqual(self.left_behind(), [])

    def test_a_file_is_replaced_only_on_request(self):
        self.write("x.gguf", "precious")
        self.refuses(USAGE, "synth", "--preset", "tiny", "-o", "x.gguf", says="--force")
        self.assertEqual((self.folder / "x.gguf").read_bytes(), b"precious")
        self.synth("--force")
        self.assertEqual(self.left_behind(), ["x.gguf"])

    def test_of_several_at_once_one_writes_the_file_and_the_others_say_it_is_there(self):
        started = [self.start("synth", "--preset", "small-0.1b", "--layers", 1, "-o", "x.gguf")
                   for _ in range(3)]
        # All have begun before any is done: each writes a file of its own name.
        ended = [(process.communicate(timeout=120)[1].decode(), process.returncode)
                 for process in started]
        codes = sorted(code for _, code in ended)
        self.assertEqual(codes[0], 0, ended)
        for message, code in ended:
            if code != 0:
                self.assertEqual(code, USAGE, message)
                self.assertIn("x.gguf: exists already", message)
        self.assertEqual(codes, [0, USAGE, USAGE], ended)
        self.assertEqual(self.left_behind(), ["x.gguf"])
        self.ok("info", "-m", "x.gguf")

    def test_a_path_that_cannot_be_written_leaves_nothing(self):
        self.refuses(BAD_FILE, "synth", "--preset", "tiny", "-o", "nosuch/x.gguf", says="nosuch/x.gguf")
        self.refuses(BAD_FILE, "synth", "--preset", "tiny", "-o", self.folder, says="not a regular file")
        self.refuses(BAD_FILE, "synth", "--preset", "tiny", "-o", os.devnull, says="not a regular file")
        self.assertEqual(self.left_behind(), [])

    def test_a_disk_that_is_full_leaves_nothing(self):
        self.refuses(DOES_NOT_FIT, "synth", "--preset", "tiny", "-o", "x.gguf", says="too large",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
        self.refuses(DOES_NOT_FIT, "synth", "--preset", "moe-8x7b", "--layers", 1024, "--type", "f32",
                     "-o", "x.gguf", says="the disk has")
        self.assertEqual(self.left_behind(), [])

    def test_ctrl_c_leaves_nothing(self):
        process = self.start("synth", "--preset", "llama-8b", "--layers", 2, "-o", "x.gguf")
        while not self.left_behind():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, CANCELLED, err)
        self.assertEqual(err, b"pumice: interrupted\n")
        self.assertEqual(self.left_behind(), [])


if __name__ == "__main__":
    unittest.main()
