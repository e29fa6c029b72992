#!/usr/bin/env python3
"""Writes corpus/gguf: the smallest files that get past every check, for the fuzzer to bend."""

import math
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

UNIGRAM = {"tokenizer.ggml.model": "t5",
           "tokenizer.ggml.tokens": ["<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581a"],
           "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -1.5],
           "tokenizer.ggml.token_type": [3, 3, 2, 1, 1, 1],
           # A table of one unit, and the replacement "a".
           "tokenizer.ggml.precompiled_charsmap": [4, 0, 0, 0, 0, 0, 0, 0, 97, 0],
           "tokenizer.ggml.add_space_prefix": True}
WORDS = {"tokenizer.ggml.model": "bert",
         "tokenizer.ggml.tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"],
         "tokenizer.ggml.token_type": [3, 3, 3, 3, 1, 1],
         "tokenizer.ggml.unknown_token_id": 1,
         "tokenizer.ggml.bos_token_id": 2,
         "tokenizer.ggml.seperator_token_id": 3,
         "tokenizer.ggml.normalizer.lowercase": False}


def model(architecture, vocabulary, **more):
    keys = {"block_count": 1, "embedding_length": WIDTH, "feed_forward_length": WIDTH,
            "attention.head_count": 1, "attention.head_count_kv": 1, "context_length": 64,
            "rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-5,
            **{key.replace("__", "."): value for key, value in more.items()}}
    return {"general.architecture": architecture, "general.alignment": 32,
            **{f"{architecture}.{key}": value for key, value in keys.items()}, **vocabulary}


def tensors(n_vocab, matrices=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
            norms=("attn_norm", "ffn_norm"), more={}):
    """Name -> (type, dimensions, fastest first)."""
    names = {"token_embd": (F16, (WIDTH, n_vocab)), "output_norm": (F32, (WIDTH,)),
             **{"blk.0." + name: (F32, (WIDTH,)) for name in norms},
             **{"blk.0." + name: (F16, (WIDTH, WIDTH)) for name in matrices}, **more}
    return {name + ".weight": value for name, value in names.items()}


def experts(n):
    return {"blk.0.ffn_gate_inp": (F32, (WIDTH, n)),
            **{f"blk.0.ffn_{name}_exps": (F16, (WIDTH, WIDTH, n)) for name in ("gate", "up", "down")}}


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
    data = b""
    for name, (kind, dims) in tensor_shapes.items():
        out += string(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", extent) for extent in dims)
        out += struct.pack("<IQ", kind, len(data))
        # Ones: divisors of rotary frequencies must be positive.
        data += math.prod(dims) * (struct.pack("<f", 1.0) if kind == F32 else bytes(2))
        data += bytes(-len(data) % 32)
    return out + bytes(-len(out) % 32) + data


folder = pathlib.Path(__file__).resolve().parent / "corpus/gguf"
folder.mkdir(parents=True, exist_ok=True)
N_VOCAB = len(SPM["tokenizer.ggml.tokens"])
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
GEMMA_NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
(folder / "model").write_bytes(gguf(model("llama", SPM), tensors(N_VOCAB)))
(folder / "model-experts").write_bytes(
    gguf(model("llama", SPM, expert_count=2, expert_used_count=1), tensors(N_VOCAB, ATTENTION, more=experts(2))))
(folder / "model-gemma3").write_bytes(
    gguf(model("gemma3", SPM, attention__sliding_window=16), tensors(N_VOCAB, norms=GEMMA_NORMS)))
(folder / "model-phi3").write_bytes(
    gguf(model("phi3", SPM, rope__scaling__original_context_length=16, rope__scaling__attn_factor=1.25),
         tensors(N_VOCAB, ("attn_output", "ffn_down"),
                 more={"blk.0.attn_qkv": (F16, (WIDTH, 3 * WIDTH)), "blk.0.ffn_up": (F16, (WIDTH, 2 * WIDTH)),
                       "rope_factors_long": (F32, (WIDTH // 2,)), "rope_factors_short": (F32, (WIDTH // 2,))})))
(folder / "vocabulary").write_bytes(gguf(BPE, {}))
(folder / "vocabulary-unigram").write_bytes(gguf(UNIGRAM, {}))
(folder / "vocabulary-words").write_bytes(gguf(WORDS, {}))
