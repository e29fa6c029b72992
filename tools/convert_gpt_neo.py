#!/usr/bin/env python3
"""Make a GGUF of a GPT-Neo from Hugging Face (TinyStories-33M and its kin): no other program does.

    convert_gpt_neo.py FOLDER -o model.gguf [--force]

FOLDER has config.json, vocab.json, merges.txt and the weights: model.safetensors, or its parts with
model.safetensors.index.json. Weights keep their type (F32, F16, BF16), vectors become F32. Keys and tensors are
called as llama.cpp calls GPT-2's, under the architecture "gptneo". Needs Python 3.9 and nothing else.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import struct
import sys

ALIGNMENT = 32
COPIED_AT_ONCE = 1 << 24
# safetensors' name → GGUF's number and bytes of an element.
TYPES = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


class Refused(Exception):
    """What cannot be converted, in a sentence."""


# ---- what is read


def read_object(path):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise Refused(f"{path}: not a JSON object")
    return value


class Tensor:
    """Where the bytes of one tensor lie."""

    def __init__(self, path, name, info, data_start, file_bytes):
        self.path, self.name = path, name
        try:
            self.type = info["dtype"]
            self.shape = [int(n) for n in info["shape"]]
            begin, end = info["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise Refused(f"{path}: {name} has no dtype, shape or data_offsets") from None
        self.start, self.n_bytes = data_start + begin, end - begin
        if self.type in TYPES and self.n_bytes != math.prod(self.shape) * TYPES[self.type][1]:
            raise Refused(f"{path}: {name} has {self.n_bytes} bytes, not those of its shape {self.shape}")
        if begin < 0 or self.start + self.n_bytes > file_bytes:
            raise Refused(f"{path}: {name} lies outside of the file, which may be cut short")

    def chunks(self):
        with open(self.path, "rb") as file:
            file.seek(self.start)
            left = self.n_bytes
            while left:
                chunk = file.read(min(left, COPIED_AT_ONCE))
                if not chunk:
                    raise Refused(f"{self.path}: {self.name} ends early")
                left -= len(chunk)
                yield chunk

    def floats(self):
        """All of it as F32 bytes; of vectors."""
        data = b"".join(self.chunks())
        if self.type == "F32":
            return data
        if self.type == "F16":
            return struct.pack(f"<{len(data) // 2}f", *struct.unpack(f"<{len(data) // 2}e", data))
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def read_safetensors(path):
    """{name: Tensor}"""
    try:
        with open(path, "rb") as file:
            file_bytes = os.fstat(file.fileno()).st_size
            start = file.read(8)
            n = struct.unpack("<Q", start)[0] if len(start) == 8 else file_bytes
            if n > file_bytes - 8:
                raise Refused(f"{path}: not a safetensors file")
            header = json.loads(file.read(n))
    except FileNotFoundError:
        raise Refused(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None
    if not isinstance(header, dict):
        raise Refused(f"{path}: not a safetensors file")
    return {name: Tensor(path, name, info, 8 + n, file_bytes)
            for name, info in header.items() if name != "__metadata__"}


def read_weights(folder):
    """{name: Tensor}, without "transformer." in front."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        parts = ["model.safetensors"]
    elif index.exists():
        files = read_object(index).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(part, str) for part in files.values()):
            raise Refused(f"{index}: no weight_map that says which file has which tensor")
        parts = sorted(set(files.values()))
    else:
        raise Refused(f"{folder}: there is no model.safetensors and no index of parts "
                      "(a pytorch_model.bin is a program; save it as safetensors first)")
    tensors = {}
    for part in parts:
        if pathlib.PurePath(part).name != part:
            raise Refused(f"{index}: a part called {part!r}")
        tensors.update(read_safetensors(folder / part))
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


class Shape:
    """What config.json says, as far as it can be converted."""

    def __init__(self, config, path):
        def count(key):
            value = config.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
                raise Refused(f"{path}: {key} is {value!r}, not a count")
            return value

        def fixed(key, default, allowed):
            value = config.get(key, default)
            if value not in allowed:
                raise Refused(f"{path}: {key} {value!r} is not supported (only {', '.join(map(repr, allowed))})")

        fixed("model_type", None, ("gpt_neo",))
        fixed("activation_function", "gelu_new", ("gelu_new", "gelu_pytorch_tanh"))
        self.n_layers, self.n_embd, self.n_heads = count("num_layers"), count("hidden_size"), count("num_heads")
        self.n_vocab, self.context = count("vocab_size"), count("max_position_embeddings")
        self.n_ff = count("intermediate_size") if config.get("intermediate_size") is not None else 4 * self.n_embd
        self.window = count("window_size") if "window_size" in config else 256
        self.eps = float(config.get("layer_norm_epsilon", 1e-5))
        if self.n_embd % self.n_heads:
            raise Refused(f"{path}: {self.n_heads} heads do not divide a hidden_size of {self.n_embd}")
        kinds = config.get("attention_layers")
        if kinds is None:
            kinds = [kind for kinds, n in config.get("attention_types", []) for _ in range(n) for kind in kinds]
        if len(kinds) != self.n_layers or set(kinds) - {"global", "local"}:
            raise Refused(f"{path}: the attention of {self.n_layers} layers is {kinds}, "
                          "not 'global' or 'local' for each")
        self.windowed = [kind == "local" for kind in kinds]
        self.special = {key: config[key] for key in ("bos_token_id", "eos_token_id") if config.get(key) is not None}
        for key, token in self.special.items():
            if not isinstance(token, int) or not 0 <= token < self.n_vocab:
                raise Refused(f"{path}: {key} {token!r} is not in the vocabulary of {self.n_vocab}")


def read_shape(path):
    try:
        return Shape(read_object(path), path)
    except (TypeError, ValueError) as error:
        raise Refused(f"{path}: not what a GPT-Neo has ({error})") from None


def read_vocabulary(folder, shape):
    """(tokens by id, their types, merges)"""
    path = folder / "vocab.json"
    vocabulary = read_object(path)
    tokens, types = [None] * shape.n_vocab, [UNUSED] * shape.n_vocab

    def put(text, token, kind, source):
        if not isinstance(token, int) or not 0 <= token < shape.n_vocab:
            raise Refused(f"{source}: token {text!r} has id {token!r} in a vocabulary of {shape.n_vocab}")
        if tokens[token] not in (None, text):
            raise Refused(f"{source}: tokens {tokens[token]!r} and {text!r} have the same id {token}")
        tokens[token], types[token] = text, kind

    for text, token in vocabulary.items():
        put(text, token, NORMAL, path)
    if (folder / "added_tokens.json").exists():
        for text, token in read_object(folder / "added_tokens.json").items():
            put(text, token, USER_DEFINED, folder / "added_tokens.json")
    for token in shape.special.values():
        types[token] = CONTROL
    tokens = [f"[PAD{i}]" if text is None else text for i, text in enumerate(tokens)]
    try:
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise Refused(f"{folder / 'merges.txt'}: {error}") from None
    merges = [line for line in lines if line and not line.startswith("#version")]
    for line in merges:
        if len(line.split(" ")) != 2:
            raise Refused(f"{folder / 'merges.txt'}: {line!r} is not a pair")
    return tokens, types, merges


def wanted_tensors(shape):
    """(GGUF's name, safetensors' name, its shape), in the order of their use."""
    n, ff = [shape.n_embd], [shape.n_ff]
    yield "token_embd.weight", "wte.weight", [shape.n_vocab] + n
    yield "position_embd.weight", "wpe.weight", [shape.context] + n
    for i in range(shape.n_layers):
        layer = [("attn_norm.weight", "ln_1.weight", n), ("attn_norm.bias", "ln_1.bias", n),
                 ("attn_q.weight", "attn.attention.q_proj.weight", n + n),
                 ("attn_k.weight", "attn.attention.k_proj.weight", n + n),
                 ("attn_v.weight", "attn.attention.v_proj.weight", n + n),
                 ("attn_output.weight", "attn.attention.out_proj.weight", n + n),
                 ("attn_output.bias", "attn.attention.out_proj.bias", n),
                 ("ffn_norm.weight", "ln_2.weight", n), ("ffn_norm.bias", "ln_2.bias", n),
                 ("ffn_up.weight", "mlp.c_fc.weight", ff + n), ("ffn_up.bias", "mlp.c_fc.bias", ff),
                 ("ffn_down.weight", "mlp.c_proj.weight", n + ff), ("ffn_down.bias", "mlp.c_proj.bias", n)]
        for name, source, dims in layer:
            yield f"blk.{i}.{name}", f"h.{i}.{source}", dims
    yield "output_norm.weight", "ln_f.weight", n
    yield "output_norm.bias", "ln_f.bias", n


def is_mask(name):
    """Whether it is what old files have of the causal mask."""
    return name.endswith((".attn.attention.bias", ".attn.attention.masked_bias"))


def same_bytes(a, b):
    return a.type == b.type and a.shape == b.shape and all(x == y for x, y in zip(a.chunks(), b.chunks()))


def choose_tensors(weights, shape):
    """[(GGUF's name, Tensor)]"""
    left = {name: tensor for name, tensor in weights.items() if not is_mask(name)}
    chosen = []
    for name, source, dims in wanted_tensors(shape):
        tensor = left.pop(source, None)
        if tensor is None:
            raise Refused(f"there is no tensor {source}")
        if tensor.shape != dims:
            raise Refused(f"{tensor.path}: {tensor.name} has the shape {tensor.shape}, where config.json says {dims}")
        if tensor.type not in TYPES:
            raise Refused(f"{tensor.path}: {tensor.name} has the type {tensor.type}, not {', '.join(TYPES)}")
        chosen.append((name, tensor))
    head = left.pop("lm_head.weight", None)
    if head is not None and not same_bytes(head, chosen[0][1]):
        if head.shape != [shape.n_vocab, shape.n_embd] or head.type not in TYPES:
            raise Refused(f"{head.path}: {head.name} is {head.type} {head.shape}, no matrix of logits")
        chosen.append(("output.weight", head))
    if left:
        raise Refused(f"nothing of a GPT-Neo reads the tensor {min(left)}: this is another model")
    return chosen


# ---- what is written


def text_bytes(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text_bytes(value) if kind == STRING else struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f",
                                                                 BOOL: "<?"}[kind], value)


def entry(key, kind, value):
    if isinstance(value, list):
        body = struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(scalar(kind, one) for one in value)
    else:
        body = struct.pack("<I", kind) + scalar(kind, value)
    return text_bytes(key) + body


def metadata(shape, name, vocabulary):
    tokens, types, merges = vocabulary
    own = "gptneo."
    entries = [("general.architecture", STRING, "gptneo"), ("general.name", STRING, name),
               (own + "context_length", UINT32, shape.context), (own + "embedding_length", UINT32, shape.n_embd),
               (own + "block_count", UINT32, shape.n_layers), (own + "feed_forward_length", UINT32, shape.n_ff),
               (own + "attention.head_count", UINT32, shape.n_heads),
               (own + "attention.layer_norm_epsilon", FLOAT32, shape.eps),
               (own + "attention.sliding_window", UINT32, shape.window),
               (own + "attention.sliding_window_pattern", BOOL, shape.windowed),
               ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
               ("tokenizer.ggml.tokens", STRING, tokens), ("tokenizer.ggml.token_type", INT32, types),
               ("tokenizer.ggml.merges", STRING, merges), ("tokenizer.ggml.add_bos_token", BOOL, False)]
    entries += [(f"tokenizer.ggml.{key}", UINT32, token) for key, token in shape.special.items()]
    return len(entries), b"".join(entry(*one) for one in entries)


def padding(n_bytes):
    return b"\0" * (-n_bytes % ALIGNMENT)


def write_gguf(file, head, tensors):
    n_entries, entries = head
    infos, offset = [], 0
    for name, tensor in tensors:
        is_vector = len(tensor.shape) == 1
        kind, n_bytes = (0, 4 * tensor.shape[0]) if is_vector else (TYPES[tensor.type][0], tensor.n_bytes)
        infos.append(text_bytes(name) + struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape),
                                                    *reversed(tensor.shape)) + struct.pack("<IQ", kind, offset))
        offset += n_bytes + len(padding(n_bytes))
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_entries) + entries + b"".join(infos)
    file.write(start + padding(len(start)))
    for _, tensor in tensors:
        n_bytes = 0
        for chunk in [tensor.floats()] if len(tensor.shape) == 1 else tensor.chunks():
            file.write(chunk)
            n_bytes += len(chunk)
        file.write(padding(n_bytes))


def convert(folder, output, force):
    if not folder.is_dir():
        raise Refused(f"{folder}: not a folder")
    if output.exists() and not force:
        raise Refused(f"{output}: exists already; --force replaces it")
    shape = read_shape(folder / "config.json")
    vocabulary = read_vocabulary(folder, shape)
    tensors = choose_tensors(read_weights(folder), shape)
    head = metadata(shape, folder.resolve().name, vocabulary)
    part = output.with_name(output.name + ".part")
    try:
        with open(part, "wb") as file:
            write_gguf(file, head, tensors)
        os.replace(part, output)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    arguments = parser.parse_args()
    try:
        convert(arguments.folder, arguments.output, arguments.force)
    except (Refused, OSError, UnicodeError) as error:
        sys.exit(f"convert_gpt_neo.py: {error}")
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
