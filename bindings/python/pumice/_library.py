"""Finds libpumice, declares its functions, and turns statuses into exceptions."""

import ctypes
import ctypes.util
import os
import pathlib
import sys

from . import _abi

_NAMES = ("pumice.dll",) if sys.platform == "win32" else ("libpumice.so.0.1", "libpumice.so")


class Error(Exception):
    """What a call failed with. `status` is its name ("DOES_NOT_FIT"), the text says what was wrong."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.status = _library.pumice_status_name(code).decode().removeprefix("PUMICE_")


def _open():
    named = os.environ.get("PUMICE_LIBRARY")
    here = pathlib.Path(__file__).resolve().parent
    candidates = [named] if named else [str(here / name) for name in _NAMES if (here / name).exists()]
    candidates += [] if named else [ctypes.util.find_library("pumice"), *_NAMES]
    problem = None
    for candidate in filter(None, candidates):
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            problem = problem or error
            continue
        for name, (result, parameters) in _abi.FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise ImportError(f"{candidate} is older than this package: it has no {name}") from None
            function.restype, function.argtypes = result, parameters
        return library
    raise ImportError(f"no libpumice: {problem}; PUMICE_LIBRARY may name the file")


_library = _open()


def call(name, *arguments):
    """Calls pumice_NAME. Raises Error."""
    code = getattr(_library, f"pumice_{name}")(*arguments)
    if code is not None and code != _abi.PUMICE_OK:
        raise Error(code, _library.pumice_last_error().decode(errors="replace"))


def version():
    """Of the library, "0.1.0"."""
    return _library.pumice_version().decode()


def string(text):
    """A pumice_string of str, bytes or a path; it must be kept as long as the call lasts (`keep` of Options)."""
    data = os.fsencode(text) if isinstance(text, os.PathLike) else text.encode() if isinstance(text, str) else bytes(text)
    result = _abi.pumice_string(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))
    result.keep = data
    return result


def text_of(value, errors="strict"):
    """The str that a pumice_string of the library's holds."""
    return ctypes.string_at(value.data, value.length).decode(errors=errors) if value.data else ""


def new(struct, **members):
    """A struct of the C ABI with its size set. None leaves a default; str, bytes and paths become strings."""
    value = struct(struct_size=ctypes.sizeof(struct))
    value.keep = []  # what members point to
    kinds = dict(struct._fields_)
    for name, member in members.items():
        if name not in kinds:
            raise TypeError(f"unknown option: {name}")
        if member is None:
            continue
        if kinds[name] is _abi.pumice_string:
            member = string(member)
        elif hasattr(kinds[name], "contents") and not isinstance(member, ctypes.Array):
            member, target = ctypes.pointer(member), member
            value.keep.append(target)
        value.keep.append(member)
        setattr(value, name, ctypes.cast(member, kinds[name]) if isinstance(member, ctypes.Array) else member)
    return value


def microseconds(seconds):
    """At least one, or None, which leaves a default."""
    return None if seconds is None else max(1, int(seconds * 1e6))


def array(kind, values):
    """A ctypes array that keeps what its elements point to."""
    result = (kind * len(values))(*values)
    result.keep = list(values)
    return result


def counted(call_with, kind):
    """What `call_with(array, capacity, pointer to count)` gives, asked for its size first: a list, or bytes of c_char."""
    count = ctypes.c_size_t()
    values = (kind * 0)()  # slices of it are lists, or bytes
    while True:
        try:
            call_with(values if len(values) else None, len(values), ctypes.byref(count))
        except Error as error:
            if error.code != _abi.PUMICE_TOO_SMALL:
                raise
        if count.value <= len(values):
            return values[:count.value]
        values = (kind * count.value)()
