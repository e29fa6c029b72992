"""Gives a GGUF file a block that predicts tokens after the next, for tests."""

import math
import struct

from gguf_split import Reader, aligned, string

UINT32, F32 = 4, 0


def with_prediction_block(data, architecture, tensors, with_layer=False):
    """The file with one more block of such F32 tensors, zeros, by name and dims; with what the last layer has, too."""
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
    infos = []
    layer = f"blk.{n_blocks - 1}.".encode()
    for _ in range(n_tensors):
        name = reader.string()
        begin = reader.at
        dims = [reader.number("Q") for _ in range(reader.number("I"))]
        kind, _offset = reader.number("I"), reader.number("Q")
        infos.append(string(name) + data[begin:reader.at])
        if with_layer and name.startswith(layer) and kind == F32:
            tensors = tensors | {name[len(layer):].decode(): dims}
    body = aligned(data[len(aligned(data[:reader.at])):])
    for name, dims in tensors.items():
        infos.append(string(f"blk.{n_blocks}.{name}".encode()) +
                     struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32, len(body)))
        body = aligned(body + bytes(4 * math.prod(dims)))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), n_keys + 1)
    return aligned(header + metadata + b"".join(infos)) + body
