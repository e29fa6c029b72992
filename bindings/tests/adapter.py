#!/usr/bin/env python3
"""A LoRA adapter of the bundled model, for the bindings' tests.

    bindings/tests/adapter.py FILE [WEIGHT]     with the WEIGHT 0 it adds nothing
"""

import pathlib
import struct
import sys


def adapter_bytes(weight):
    """A GGUF of rank 1 that adds `weight` times the sum of what goes into a matrix of the model to half of what comes out."""
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    metadata = [("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")]
    tensors = [("a", (384, 1), [1.0] * 384), ("b", (1, 128), [weight, 0.0] * 64)]
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    data += b"".join(string(key) + struct.pack("<I", 8) + string(value) for key, value in metadata)
    offset = 0
    for name, dims, values in tensors:
        data += string(f"blk.1.ffn_down.weight.lora_{name}") + struct.pack("<IQQIQ", 2, *dims, 0, offset)
        offset += 4 * len(values)
    data += bytes(-len(data) % 32)
    return data + b"".join(struct.pack(f"<{len(values)}f", *values) for _, _, values in tensors)


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_bytes(adapter_bytes(float(sys.argv[2]) if len(sys.argv) > 2 else 0.5))
