"""Splits a GGUF file into parts as llama.cpp's tool does, for tests."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, UINT16, INT32 = 8, 9, 2, 5
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(element)
        else:
            self.at += SIZES[kind]


def string(text):
    return struct.pack("<Q", len(text)) + text


def aligned(data):
    return data + bytes(-len(data) % ALIGNMENT)


def split_gguf(data, count):
    """The files of `count` parts, each with some of the tensors, the last with what remains."""
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_keys = reader.number("Q"), reader.number("Q")
    begin = reader.at
    for _ in range(n_keys):
        reader.string()
        reader.skip(reader.number("I"))
    metadata = data[begin:reader.at]
    tensors = []
    for _ in range(n_tensors):
        name = reader.string()
        dims = [reader.number("Q") for _ in range(reader.number("I"))]
        tensors.append((name, dims, reader.number("I"), reader.number("Q")))
    body = aligned(data[:reader.at])
    ends = sorted([offset for *_, offset in tensors] + [len(data) - len(body)])
    parts = []
    for number in range(count):
        mine = tensors[n_tensors * number // count:n_tensors * (number + 1) // count]
        header = struct.pack("<4sIQQ", b"GGUF", 3, len(mine), 3 + (n_keys if number == 0 else 0))
        for key, kind, value in ((b"split.no", UINT16, struct.pack("<H", number)),
                                 (b"split.count", UINT16, struct.pack("<H", count)),
                                 (b"split.tensors.count", INT32, struct.pack("<i", n_tensors))):
            header += string(key) + struct.pack("<I", kind) + value
        header += metadata if number == 0 else b""
        content = b""
        for name, dims, kind, offset in mine:
            header += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(content))
            end = ends[ends.index(offset) + 1]
            content += aligned(data[len(body) + offset:len(body) + end])
        parts.append(aligned(header) + content)
    return parts
