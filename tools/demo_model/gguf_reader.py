"""Reads GGUF version 3 files with F32 and F16 tensors: enough to evaluate the bundled model."""

import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9
_TENSORS = {0: np.dtype("<f4"), 1: np.dtype("<f2")}


class _Cursor:
    def __init__(self, data):
        self.data, self.position = data, 0

    def scalar(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.position)
        self.position += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.scalar("Q")
        self.position += length
        return self.data[self.position - length:self.position].decode("utf-8")

    def value(self, kind):
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(_SCALARS[kind])


def read(path):
    """(metadata, tensors): key -> value, and name -> array as gguf_writer.write() took it."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"GGUF":
        raise ValueError(f"{path}: not a GGUF file")
    cursor = _Cursor(data)
    cursor.position = 4
    version = cursor.scalar("I")
    if version != 3:
        raise ValueError(f"{path}: GGUF version {version}, not 3")
    n_tensors, n_keys = cursor.scalar("Q"), cursor.scalar("Q")
    metadata = {}
    for _ in range(n_keys):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    infos = []
    for _ in range(n_tensors):
        name = cursor.string()
        extents = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
        infos.append((name, extents[::-1], cursor.scalar("I"), cursor.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = cursor.position + -cursor.position % alignment
    tensors = {}
    for name, shape, kind, offset in infos:
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(data, _TENSORS[kind], count, start + offset).reshape(shape)
    return metadata, tensors
