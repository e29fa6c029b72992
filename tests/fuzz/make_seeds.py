#!/usr/bin/env python3
"""Writes corpus/gguf: the smallest files that get past every check, for the fuzzer to bend."""

import pathlib
import struct

F32, F16 = 0, 1
WIDTH = 8
SPM = {"tokenizer.ggml.model": "llama",
       "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a"],
       "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
       "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1],
       "tokenizer.ggml.bos_token_id": 1,
       "tokenizer.ggml.add_bos_token": True}
BPE = {"tokenizer.ggml.model": "gpt2",
       "tokenizer.ggml.pre": "llama-bpe",
       "tokenizer.ggml.tokens": ["a", "b", "ab", "\u0120", "\u0120ab", "<|end|>"],
       "tokenizer.ggml.token_type": [1, 1, 1, 1, 1, 3],
       "tokenizer.ggml.merges": ["a b", "\u0120 ab"],
       "tokenizer.ggml.eos_token_id": 5}


def llama(vocabulary):
    return {"general.architecture": "llama", "general.alignment": 32, "llama.block_count": 1,
            "llama.embedding_length": WIDTH, "llama.feed_forward_length": WIDTH,
            "llama.attention.head_count": 1, "llama.attention.head_count_kv": 1,
            "llama.context_length": 64, "llama.rope.freq_base": 10000.0,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, **vocabulary}


def tensors(n_vocab):
    """Name -> (type, dimensions, fastest first)."""
    matrices = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    names = {"token_embd": (F16, (WIDTH, n_vocab)), "output_norm": (F32, (WIDTH,)),
             "blk.0.attn_norm": (F32, (WIDTH,)), "blk.0.ffn_norm": (F32, (WIDTH,)),
             **{"blk.0." + name: (F16, (WIDTH, WIDTH)) for name in matrices}}
    return {name + ".weight": value for name, value in names.items()}


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def element(value):
    """(GGUF's type number, bytes) of a scalar."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    return (6, struct.pack("<f", value)) if isinstance(value, float) else (8, string(value))


def metadata(value):
    if not isinstance(value, list):
        number, data = element(value)
        return struct.pack("<I", number) + data
    number = {4: 5}.get(element(value[0])[0], element(value[0])[0])  # types of tokens are signed
    return struct.pack("<IIQ", 9, number, len(value)) + b"".join(element(item)[1] for item in value)


def gguf(entries, tensor_shapes):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensor_shapes), len(entries))
    out += b"".join(string(key) + metadata(value) for key, value in entries.items())
    offset = 0
    for name, (kind, dims) in tensor_shapes.items():
        out += string(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", extent) for extent in dims)
        out += struct.pack("<IQ", kind, offset)
        n_bytes = (4 if kind == F32 else 2)
        for extent in dims:
            n_bytes *= extent
        offset += n_bytes + -n_bytes % 32
    return out + bytes(-len(out) % 32 + offset)


folder = pathlib.Path(__file__).resolve().parent / "corpus/gguf"
folder.mkdir(parents=True, exist_ok=True)
(folder / "model").write_bytes(gguf(llama(SPM), tensors(len(SPM["tokenizer.ggml.tokens"]))))
(folder / "vocabulary").write_bytes(gguf(BPE, {}))
