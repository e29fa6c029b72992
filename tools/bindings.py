#!/usr/bin/env python3
"""Writes what the bindings of other languages know of the C ABI, from runtime/include/pumice/pumice.h.

    tools/bindings.py            write bindings/python/pumice/_abi.py anew, after the header changed
    tools/bindings.py --check    exit 1 if it would change

The header has few forms, and this reads only those: whatever it does not understand is an error, never left out.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "runtime/include/pumice/pumice.h"
PYTHON = ROOT / "bindings/python/pumice/_abi.py"


class Header:
    """`handles`: opaque structs. `aliases`: name → C type. `enums`: name of the type → [(constant, value)]. `structs`:
    name → [(member, declared C type)]. `functions`: name → (C type, [(parameter, C type)])."""

    def __init__(self, text):
        self.handles, self.aliases, self.enums, self.structs, self.functions = [], {}, {}, {}, {}
        self.constants = dict(re.findall(r"^#define (PUMICE_VERSION_\w+|PUMICE_N\w+) (\w+)$", text, re.MULTILINE))
        text = re.sub(r"//[^\n]*", "", text)
        text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"static inline .*?\n}\n", "", text, flags=re.DOTALL)
        text = text.replace('extern "C" {', "", 1)
        text = re.sub(r"\n}\s*\Z", "\n", text)  # of extern "C"
        for declaration in self.split(text):
            self.read(declaration)

    @staticmethod
    def split(text):
        """Declarations, without the semicolons that end them."""
        depth, start = 0, 0
        for i, char in enumerate(text):
            depth += (char == "{") - (char == "}")
            if char == ";" and depth == 0:
                yield " ".join(text[start:i].split())
                start = i + 1
        if text[start:].strip():
            raise SystemExit(f"bindings: not understood: {text[start:].strip()[:200]}")

    def read(self, text):
        if match := re.fullmatch(r"typedef struct (\w+) \1", text):
            self.handles.append(match[1])
        elif match := re.fullmatch(r"typedef (\w+) (\w+)", text):
            self.aliases[match[2]] = match[1]
        elif match := re.fullmatch(r"enum \{(.*)\}", text):
            self.enums[list(self.aliases)[-1]] = self.values_of(match[1])
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} \1", text):
            self.structs[match[1]] = [self.member(one.strip()) for one in match[2].split(";") if one.strip()]
        elif match := re.fullmatch(r"PUMICE_API (.*?)(\w+)\((.*)\)", text):
            parameters = [] if match[3] == "void" else [self.member(one.strip()) for one in match[3].split(",")]
            self.functions[match[2]] = (match[1].strip(), parameters)
        else:
            raise SystemExit(f"bindings: not understood: {text[:200]}")

    @staticmethod
    def values_of(body):
        values, last = [], -1
        for one in filter(None, (part.strip() for part in body.split(","))):
            name, _, value = (part.strip() for part in one.partition("="))
            last = int(value) if value else last + 1
            values.append((name, last))
        return values

    @staticmethod
    def member(text):
        """(name, type); a type ends with [N] for an array and is "function" for a pointer to one."""
        if match := re.fullmatch(r"[^()]*\(\*(\w+)\)\(.*\)", text):
            return match[1], "function"
        match = re.fullmatch(r"(.*?[\s*])(\w+)(\[\d+\])?", text)
        if match is None:
            raise SystemExit(f"bindings: not understood: {text}")
        return match[2], " ".join(match[1].replace("const ", "").replace("struct ", "").split()) + (match[3] or "")


SCALARS = {"size_t": "c_size_t", "uint64_t": "c_uint64", "uint32_t": "c_uint32", "int32_t": "c_int32", "float": "c_float",
           "double": "c_double"}


def ctype(header, declared):
    """The ctypes expression of a C type."""
    if match := re.fullmatch(r"(.*)\[(\d+)\]", declared):
        return f"{'c_char' if match[1] == 'char' else ctype(header, match[1])} * {match[2]}"
    if declared == "function":
        return "c_void_p"
    if declared.endswith("*"):
        target = declared[:-1].strip()
        if target in header.handles or target in ("void", "char"):
            return {"char": "c_char_p"}.get(target, "c_void_p")
        return f"POINTER({ctype(header, target)})"
    if declared in SCALARS:
        return SCALARS[declared]
    if declared in header.aliases:
        return ctype(header, header.aliases[declared])
    if declared in header.structs:
        return declared
    raise SystemExit(f"bindings: no such type: {declared}")


def python_struct(header, name, members):
    lines = [f"class {name}(Structure):", "    _fields_ = ["]
    for member, declared in members:
        kind = ctype(header, declared)
        # Bytes with a length, which may have no NUL, are no c_char_p: that would stop at one.
        lines.append(f'        ("{member}", {"c_void_p" if kind == "c_char_p" else kind}),')
    return lines + ["    ]", "", ""]


def python(header):
    lines = ['"""Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them."""', "",
             "# pylint: disable=invalid-name,too-few-public-methods,missing-class-docstring",
             "from ctypes import (POINTER, Structure, c_char, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64,",
             "                    c_void_p)", ""]
    values = {"SIZE_MAX": "c_size_t(-1).value", "UINT64_MAX": "c_uint64(-1).value"}
    lines += [f"{name} = {values.get(value, value)}" for name, value in header.constants.items()]
    for name, constants in header.enums.items():
        lines += ["", f"# {name}", *(f"{constant} = {value}" for constant, value in constants)]
    lines += ["", ""]
    # A struct may point to one that comes later in the header.
    done, waiting = [], dict(header.structs)
    while waiting:
        for name, members in waiting.items():
            needs = {declared.rstrip("*").strip() for _, declared in members} & set(waiting) - {name}
            if not needs:
                lines += python_struct(header, name, members)
                done.append(name)
                del waiting[name]
                break
        else:
            raise SystemExit(f"bindings: structs that need each other: {', '.join(waiting)}")
    lines += ["# Name → (result, parameters).", "FUNCTIONS = {"]
    for name, (result, parameters) in header.functions.items():
        kinds = [ctype(header, declared) for _, declared in parameters]
        result = "None" if result == "void" else ctype(header, result.replace("const ", ""))
        text = f'    "{name}": ({result}, [{", ".join(kinds)}]),'
        if len(text) > 120:
            text = f'    "{name}":\n        ({result},\n         [{", ".join(kinds)}]),'
        lines.append(text)
    return "\n".join(lines + ["}", ""])


def main():
    text = python(Header(HEADER.read_text()))
    if sys.argv[1:] == ["--check"]:
        if not PYTHON.exists() or PYTHON.read_text() != text:
            raise SystemExit(f"{PYTHON.relative_to(ROOT)} is not what the header says: run tools/bindings.py")
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    else:
        PYTHON.write_text(text)


if __name__ == "__main__":
    main()
