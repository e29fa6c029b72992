"""Gives a GGUF file a block that predicts tokens after the next, for tests."""

import struct

from gguf_split import Reader, aligned, string

UINT32, F32 = 4, 0


def with_prediction_block(data, architecture, n_floats):
    """The file with one more block, whose only tensor has so many floats."""
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_keys = reader.number("Q"), reader.number("Q")
    metadata = b""
    for _ in range(n_keys):
        begin = reader.at
        key = reader.string()
        kind = reader.number("I")
        value_at = reader.at
        reader.skip(kind)
        if key == f"{architecture}.block_count".encode():
            (n_blocks,) = struct.unpack_from("<I", data, value_at)
            metadata += string(key) + struct.pack("<II", UINT32, n_blocks + 1)
        else:
            metadata += data[begin:reader.at]
    metadata += string(f"{architecture}.nextn_predict_layers".encode()) + struct.pack("<II", UINT32, 1)
    begin = reader.at
    for _ in range(n_tensors):
        reader.string()
        for _ in range(reader.number("I")):
            reader.number("Q")
        reader.number("I")
        reader.number("Q")
    tensors = data[begin:reader.at]
    body = aligned(data[len(aligned(data[:reader.at])):])
    tensors += string(f"blk.{n_blocks}.nextn.enorm.weight".encode())
    tensors += struct.pack("<IQIQ", 1, n_floats, F32, len(body))
    header = struct.pack("<4sIQQ", b"GGUF", 3, n_tensors + 1, n_keys + 1)
    return aligned(header + metadata + tensors) + body + bytes(4 * n_floats)
