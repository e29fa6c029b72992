"""Writes GGUF version 3, little-endian, alignment 32: the part of the format this model needs."""

import struct

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_F16 = 0, 1
TENSOR_TYPES = {np.dtype(np.float32): TENSOR_F32, np.dtype(np.float16): TENSOR_F16}


def padding(size):
    return -size % ALIGNMENT


def _string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _type_of(value):
    if isinstance(value, bool):
        return BOOL
    return {int: UINT32, float: FLOAT32, str: STRING, list: ARRAY}[type(value)]


def _element_type(values):
    kind = _type_of(values[0])
    return INT32 if kind == UINT32 else kind  # the tokenizer's types are an i32 array by custom


def _scalar(kind, value):
    if kind == STRING:
        return _string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _value(value):
    kind = _type_of(value)
    if kind != ARRAY:
        return struct.pack("<I", kind) + _scalar(kind, value)
    element = _element_type(value)
    head = struct.pack("<IIQ", ARRAY, element, len(value))
    return head + b"".join(_scalar(element, item) for item in value)


def write(path, metadata, tensors):
    """metadata: key -> bool, int (u32), float (f32), str or non-empty list of one of these.
    tensors: name -> numpy array, float32 or float16, row-major [out, in]; GGUF lists dimensions
    the other way round, fastest first."""
    out = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out += _string(key) + _value(value)
    offset = 0
    for name, array in tensors.items():
        out += _string(name) + struct.pack("<I", array.ndim)
        out += b"".join(struct.pack("<Q", extent) for extent in reversed(array.shape))
        out += struct.pack("<IQ", TENSOR_TYPES[array.dtype], offset)
        offset += array.nbytes + padding(array.nbytes)
    out += bytes(padding(len(out)))
    for array in tensors.values():
        out += np.ascontiguousarray(array).tobytes() + bytes(padding(array.nbytes))
    with open(path, "wb") as file:
        file.write(out)
