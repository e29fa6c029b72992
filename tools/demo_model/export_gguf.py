#!/usr/bin/env python3
"""Writes a checkpoint of train.py and its tokenizer as one GGUF: matrices F16, norms F32.

    python3 export_gguf.py --checkpoint DIR/checkpoint.pt --tokenizer tokenizer.json --out FILE
"""

import argparse
import os

import numpy as np
import torch

import gguf_writer
from model import Config
from tokenizer import BOS, EOS, UNKNOWN, Tokenizer

MOSTLY_F16 = 1  # llama.cpp's general.file_type


def metadata(config, tokenizer):
    return {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "Pumice Stories",
        "general.description": "Short English stories from the grammar in tools/demo_model.",
        "general.license": "mit",
        "general.file_type": MOSTLY_F16,
        "general.quantization_version": 2,
        "general.alignment": gguf_writer.ALIGNMENT,
        "llama.vocab_size": config.n_vocab,
        "llama.context_length": config.n_ctx,
        "llama.embedding_length": config.n_embd,
        "llama.block_count": config.n_layer,
        "llama.feed_forward_length": config.n_ff,
        "llama.attention.head_count": config.n_head,
        "llama.attention.head_count_kv": config.n_kv_head,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.dimension_count": config.head_dim,
        "llama.rope.freq_base": config.rope_base,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.scores": tokenizer.scores,
        "tokenizer.ggml.token_type": tokenizer.types,
        "tokenizer.ggml.unknown_token_id": UNKNOWN,
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }


def tensors(weights):
    """The model's parameters carry GGUF's names already."""
    return {name: array.numpy().astype(np.float16 if array.dim() == 2 else np.float32)
            for name, array in weights.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    stored = torch.load(args.checkpoint, map_location="cpu")
    tokenizer = Tokenizer.load(args.tokenizer)
    gguf_writer.write(args.out, metadata(Config(**stored["config"]), tokenizer),
                      tensors(stored["model"]))
    print(f"{args.out}: {os.path.getsize(args.out)} bytes, step {stored['step']}")


if __name__ == "__main__":
    main()
