#!/usr/bin/env python3
"""tools/convert_gpt_neo.py: tiny checkpoints as Hugging Face writes them become files whose logits are those of a
forward pass written from the definition."""

import array
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import unittest

from command_line import CommandLineTest

CONVERTER = pathlib.Path(__file__).resolve().parents[2] / "tools/convert_gpt_neo.py"
WIDTH, HEADS, LAYERS, CONTEXT, FF, WINDOW, EPS = 32, 2, 2, 32, 48, 6, 0.01
MERGES = ["h e", "l l", "he ll"]


def byte_characters():
    """GPT-2's printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


TOKENS = [byte_characters()[byte] for byte in range(256)] + ["he", "ll", "hell", "<|endoftext|>"]
CONFIG = {"model_type": "gpt_neo", "activation_function": "gelu_new", "num_layers": LAYERS, "hidden_size": WIDTH,
          "num_heads": HEADS, "vocab_size": len(TOKENS) + 2, "max_position_embeddings": CONTEXT,
          "intermediate_size": FF, "window_size": WINDOW, "layer_norm_epsilon": EPS,
          "attention_types": [[["global", "local"], 1]], "bos_token_id": 259, "eos_token_id": 259}


def random_checkpoint():
    """{name: (shape, values)}; the values are exact in F16 and BF16 too."""
    made = random.Random(5)
    tensors = {}

    def add(name, *shape):
        mean = 1 if name.startswith("ln_") or ".ln_" in name else 0
        mean *= name.endswith("weight")
        tensors[name] = (list(shape), [mean + made.randrange(-40, 41) / 128 for _ in range(math.prod(shape))])

    add("wte.weight", CONFIG["vocab_size"], WIDTH)
    add("wpe.weight", CONTEXT, WIDTH)
    for layer in (f"h.{i}." for i in range(LAYERS)):
        for norm in ("ln_1", "ln_2"):
            add(layer + norm + ".weight", WIDTH)
            add(layer + norm + ".bias", WIDTH)
        for product in "qkv":
            add(f"{layer}attn.attention.{product}_proj.weight", WIDTH, WIDTH)
        for product, rows, columns in (("attn.attention.out_proj", WIDTH, WIDTH), ("mlp.c_fc", FF, WIDTH),
                                       ("mlp.c_proj", WIDTH, FF)):
            add(layer + product + ".weight", rows, columns)
            add(layer + product + ".bias", rows)
    add("ln_f.weight", WIDTH)
    add("ln_f.bias", WIDTH)
    return tensors


def pack(dtype, values):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{'e' if dtype == 'F16' else 'f'}", *values)


def safetensors(tensors, dtype="F32", prefix=""):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        packed = pack(dtype, values)
        header[prefix + name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def forward(tensors, tokens, output="wte.weight"):
    """[token][vocabulary] after each token, in the order of the definition and in Python's doubles."""

    def linear(x, name):
        rows, columns = tensors[name + ".weight"][0]
        weight = tensors[name + ".weight"][1]
        bias = tensors.get(name + ".bias", (None, [0] * rows))[1]
        return [bias[r] + sum(map(lambda a, b: a * b, weight[r * columns:(r + 1) * columns], x)) for r in range(rows)]

    def norm(x, name):
        mean = sum(x) / len(x)
        variance = sum((value - mean) ** 2 for value in x) / len(x)
        return [(value - mean) / math.sqrt(variance + struct.unpack("<f", struct.pack("<f", EPS))[0]) * weight + bias
                for value, weight, bias in zip(x, tensors[name + ".weight"][1], tensors[name + ".bias"][1])]

    def gelu(x):
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def attention(q, keys, values):
        head_dim, result = WIDTH // HEADS, []
        for first in range(0, WIDTH, head_dim):
            scores = [math.exp(sum(q[first + i] * k[first + i] for i in range(head_dim))) for k in keys]
            result += [sum(score * v[first + i] for score, v in zip(scores, values)) / sum(scores)
                       for i in range(head_dim)]
        return result

    caches = [([], []) for _ in range(LAYERS)]
    logits = []
    for position, token in enumerate(tokens):
        x = [tensors["wte.weight"][1][token * WIDTH + i] + tensors["wpe.weight"][1][position * WIDTH + i]
             for i in range(WIDTH)]
        for i, (keys, values) in enumerate(caches):
            name = f"h.{i}."
            h = norm(x, name + "ln_1")
            q, k, v = (linear(h, f"{name}attn.attention.{product}_proj") for product in "qkv")
            keys.append(k)
            values.append(v)
            seen = WINDOW if i % 2 else CONTEXT
            a = linear(attention(q, keys[-seen:], values[-seen:]), name + "attn.attention.out_proj")
            x = [p + r for p, r in zip(x, a)]
            up = [gelu(value) for value in linear(norm(x, name + "ln_2"), name + "mlp.c_fc")]
            x = [p + r for p, r in zip(x, linear(up, name + "mlp.c_proj"))]
        logits += linear(norm(x, "ln_f"), output.removesuffix(".weight"))
    return logits


class ConvertGptNeo(CommandLineTest):
    def folder_of(self, files):
        usual = {"config.json": json.dumps(CONFIG), "merges.txt": "\n".join(["#version: 0.2", *MERGES, ""]),
                 "vocab.json": json.dumps({text: i for i, text in enumerate(TOKENS)})}
        for name, content in {**usual, **files}.items():
            self.write(f"model/{name}", content)
        return self.folder / "model"

    def convert(self, *flags, output="out.gguf"):
        command = [sys.executable, "-B", CONVERTER, self.folder / "model", "-o", self.folder / output, *flags]
        return subprocess.run(command, capture_output=True, text=True)

    def expect_logits(self, tensors, **options):
        done = self.convert("--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        tokens = [7 * i * i % 259 for i in range(20)]
        self.ok("logits", "-m", "out.gguf", "--tokens", ",".join(map(str, tokens)), "-o", "out.f32")
        got = array.array("f", (self.folder / "out.f32").read_bytes())
        expected = forward(tensors, tokens, **options)
        self.assertEqual(len(got), len(expected))
        error = sum((a - b) ** 2 for a, b in zip(got, expected)) / sum(b * b for b in expected)
        self.assertLess(error, 1e-6)  # keys and values are F16

    def test_logits_are_those_of_the_definition_in_every_type_and_from_parts(self):
        tensors = random_checkpoint()
        self.folder_of({"model.safetensors": safetensors(tensors, prefix="transformer.")})
        self.expect_logits(tensors)
        as_f32 = (self.folder / "out.gguf").stat().st_size
        (self.folder / "model/model.safetensors").unlink()
        names = sorted(tensors)
        parts = {"a.safetensors": ("F16", names[::2]), "b.safetensors": ("BF16", names[1::2])}
        config = {**CONFIG, "attention_layers": ["global", "local"], "attention_types": None}
        self.folder_of({"config.json": json.dumps(config), "model.safetensors.index.json": json.dumps(
            {"weight_map": {name: part for part, (_, chosen) in parts.items() for name in chosen}})})
        for part, (dtype, chosen) in parts.items():
            self.write(f"model/{part}", safetensors({name: tensors[name] for name in chosen}, dtype))
        self.expect_logits(tensors)
        self.assertLess((self.folder / "out.gguf").stat().st_size, 0.7 * as_f32)
        text = self.ok("tokenize", "-m", "out.gguf", "--ids", "-p", "hello").stdout
        self.assertEqual(json.loads(text), [258, ord("o")])

    def test_logits_have_a_matrix_of_their_own_where_it_differs_from_the_embedding(self):
        tensors = random_checkpoint()
        tensors["lm_head.weight"] = tensors["wte.weight"]
        self.folder_of({"model.safetensors": safetensors(tensors)})
        self.assertEqual(self.convert().returncode, 0)
        tied = (self.folder / "out.gguf").stat().st_size
        shape, values = tensors["wte.weight"]
        tensors["lm_head.weight"] = (shape, values[::-1])
        self.folder_of({"model.safetensors": safetensors(tensors)})
        self.expect_logits(tensors, output="lm_head.weight")
        self.assertGreater((self.folder / "out.gguf").stat().st_size, tied + 4 * len(values))

    def test_what_cannot_be_converted_is_said_in_a_sentence(self):
        tensors = random_checkpoint()
        good = safetensors(tensors)
        less = {name: tensor for name, tensor in tensors.items() if name != "h.1.ln_2.bias"}
        more = {**tensors, "h.0.attn.rotary": ([1], [0.0])}
        wrong = {**tensors, "wpe.weight": ([CONTEXT - 1, WIDTH], tensors["wpe.weight"][1][WIDTH:])}
        cases = [
            ({}, "there is no model.safetensors"),
            ({"model.safetensors": good[:-9]}, "lies outside of the file"),
            ({"model.safetensors": b"\xff" * 64}, "not a safetensors file"),
            ({"model.safetensors": safetensors(less)}, "there is no tensor h.1.ln_2.bias"),
            ({"model.safetensors": safetensors(more)}, "nothing of a GPT-Neo reads the tensor h.0.attn.rotary"),
            ({"model.safetensors": safetensors(wrong)},
             "wpe.weight has the shape [31, 32], where config.json says [32, 32]"),
            ({"config.json": json.dumps({**CONFIG, "model_type": "gpt2"})}, "model_type 'gpt2' is not supported"),
            ({"config.json": json.dumps({**CONFIG, "num_layers": 3})}, "the attention of 3 layers"),
            ({"config.json": json.dumps({**CONFIG, "num_heads": 5})}, "5 heads do not divide"),
            ({"config.json": json.dumps({**CONFIG, "attention_types": 7})}, "not what a GPT-Neo has"),
            ({"config.json": "[]"}, "not a JSON object"),
            ({"vocab.json": json.dumps({"a": 999})}, "token 'a' has id 999 in a vocabulary of 262"),
            ({"merges.txt": "a b c\n"}, "'a b c' is not a pair"),
        ]
        for files, says in cases:
            with self.subTest(says):
                if says != "there is no model.safetensors":
                    files.setdefault("model.safetensors", good)
                self.folder_of(files)
                done = self.convert()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"\Aconvert_gpt_neo.py: [^\n]+\n\Z")
                self.assertIn(says, done.stderr)
                self.assertEqual([path.name for path in self.folder.glob("out*")], [])

    def test_a_file_that_exists_is_only_replaced_on_request(self):
        self.folder_of({"model.safetensors": safetensors(random_checkpoint())})
        path = self.write("out.gguf", "mine")
        done = self.convert()
        self.assertEqual(done.returncode, 1)
        self.assertIn("exists already; --force replaces it", done.stderr)
        self.assertEqual(path.read_bytes(), b"mine")
        self.assertEqual(self.convert("--force").returncode, 0)
        self.assertEqual(path.read_bytes()[:4], b"GGUF")


if __name__ == "__main__":
    unittest.main()
