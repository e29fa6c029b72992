#!/usr/bin/env python3
"""Writes what the bindings of other languages know of the C ABI, from runtime/include/pumice/pumice.h.

    tools/bindings.py            write what is generated in bindings/ anew, after the header changed
    tools/bindings.py --check    exit 1 if it would change

The header has few forms, and this reads only those: whatever it does not understand is an error, never left out.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "runtime/include/pumice/pumice.h"
PYTHON = ROOT / "bindings/python/pumice/_abi.py"
CSHARP = ROOT / "bindings/csharp/Pumice/Abi.cs"
NODE = ROOT / "bindings/node/abi.mjs"


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


def in_order(header):
    """Structs, each behind those that it points to, which may come later in the header."""
    waiting = dict(header.structs)
    while waiting:
        for name, members in waiting.items():
            needs = {declared.rstrip("*").strip() for _, declared in members} & set(waiting) - {name}
            if not needs:
                yield name, members
                del waiting[name]
                break
        else:
            raise SystemExit(f"bindings: structs that need each other: {', '.join(waiting)}")


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
    for name, members in in_order(header):
        lines += python_struct(header, name, members)
    lines += ["# Name → (result, parameters).", "FUNCTIONS = {"]
    for name, (result, parameters) in header.functions.items():
        kinds = [ctype(header, declared) for _, declared in parameters]
        result = "None" if result == "void" else ctype(header, result.replace("const ", ""))
        text = f'    "{name}": ({result}, [{", ".join(kinds)}]),'
        if len(text) > 120:
            text = f'    "{name}":\n        ({result},\n         [{", ".join(kinds)}]),'
        lines.append(text)
    return "\n".join(lines + ["}", ""])


CSHARP_SCALARS = {"size_t": "UIntPtr", "uint64_t": "ulong", "uint32_t": "uint", "int32_t": "int", "float": "float",
                  "double": "double"}


CSHARP_KEYWORDS = {"event", "object", "string", "params", "in", "out", "ref", "lock", "checked", "fixed"}


def camel(name):
    return "".join(word.capitalize() for word in name.removeprefix("pumice_").split("_"))


def csharp_value(header, declared):
    """The C# type of what is in a struct or passed by value; pointers are IntPtr."""
    if declared == "function" or declared.endswith("*"):
        return "IntPtr"
    if declared in header.enums:
        return camel(declared)
    if declared in header.aliases:
        return csharp_value(header, header.aliases[declared])
    if declared in header.structs:
        return declared
    if declared in CSHARP_SCALARS:
        return CSHARP_SCALARS[declared]
    raise SystemExit(f"bindings: not a type of C#: {declared}")


def csharp_parameter(header, declared, following, closes):
    """A pointer with a number of elements behind it is an array, one to a struct is `ref`, any other is a result."""
    if not declared.endswith("*"):
        return csharp_value(header, declared)
    target = declared[:-1].strip()
    if target in header.handles:
        return "IntPtr" if closes else camel(target) + "Handle"
    if target.removesuffix("*").strip() in header.handles:
        return f"out {camel(target.removesuffix('*').strip())}Handle"
    if following == "size_t":
        return f"[In, Out] {'byte' if target in ('char', 'void') else csharp_value(header, target)}[]"
    if target in header.structs:
        return f"ref {target}"
    return f"out {csharp_value(header, target)}"


def short_names(constants):
    """[(name without the words that all begin with, value)]"""
    words = [constant.split("_") for constant, _ in constants]
    shared = 0
    while len({tuple(one[:shared + 1]) for one in words}) == 1:
        shared += 1
    return [("_".join(one[shared:]), value) for one, (_, value) in zip(words, constants)]


def csharp_enum(name, constants):
    members = [f"{camel(constant)} = {value}," for constant, value in short_names(constants)]
    return [f"public enum {camel(name)} {{", *("  " + member for member in members), "}", ""]


def csharp_handle(name):
    return [f"internal sealed class {camel(name)}Handle : SafeHandle {{",
            f"  public {camel(name)}Handle() : base(IntPtr.Zero, true) {{}}",
            "  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }",
            "  protected override bool ReleaseHandle() {",
            f"    Abi.{name}_close(handle);", "    return true;", "  }", "}", ""]


def csharp_struct(header, name, members):
    lines = ["[StructLayout(LayoutKind.Sequential)]", f"internal struct {name} {{"]
    for member, declared in members:
        if match := re.fullmatch(r"char\[(\d+)\]", declared):
            lines += [f"  [MarshalAs(UnmanagedType.ByValArray, SizeConst = {match[1]})]", f"  public byte[] {member};"]
        else:
            lines.append(f"  public {csharp_value(header, declared)} {member};")
    return lines + ["}", ""]


def csharp_function(header, name, result, parameters):
    closes = result == "void"
    following = [declared for _, declared in parameters[1:]] + [None]
    texts = [f"{csharp_parameter(header, declared, after, closes)} {'@' * (member in CSHARP_KEYWORDS)}{member}"
             for (member, declared), after in zip(parameters, following)]
    result = "void" if closes else csharp_value(header, result.replace("const ", ""))
    text = f"  internal static extern {result} {name}({', '.join(texts)});"
    if len(text) > 120:
        text = f"  internal static extern {result} {name}(\n      {', '.join(texts)});"
    return ["  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]", text, ""]


def csharp(header):
    lines = ["// Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them.", "using System;",
             "using System.Runtime.InteropServices;", "", "// Members are set by the library.", "#pragma warning disable 0649",
             "namespace Pumice {", ""]
    for name, constants in header.enums.items():
        lines += csharp_enum(name, constants)
    for name in header.handles:
        lines += csharp_handle(name)
    for name, members in header.structs.items():
        lines += csharp_struct(header, name, members)
    lines += ["internal static class Abi {", '  private const string Library = "pumice";', ""]
    values = {"UINT64_MAX": ("ulong", "ulong.MaxValue")}
    for name, value in header.constants.items():
        if value != "SIZE_MAX":  # strings of C# have a length
            kind, value = values.get(value, ("int", value))
            lines.append(f"  internal const {kind} {name} = {value};")
    lines.append("")
    for name, (result, parameters) in header.functions.items():
        lines += csharp_function(header, name, result, parameters)
    return "\n".join(lines[:-1] + ["}", "}", ""])


def node_member(declared):
    if match := re.fullmatch(r"char\[(\d+)\]", declared):
        return f'koffi.array("char", {match[1]})'
    if "[" in declared:
        raise SystemExit(f"bindings: not a type of koffi's: {declared}")
    # Bytes with a length are no "char *": that would end at a NUL.
    return '"void *"' if declared in ("function", "char*") else f'"{declared.replace("*", " *")}"'


def node_parameter(header, name, declared, following):
    """As csharp_parameter. Elements are typed arrays, which are read and written in place, but for structs."""
    spaced = re.sub(r"(\*+)$", r" \1", declared) + " "
    if not declared.endswith("*") or declared[:-1].strip() in header.handles:
        return f"{spaced}{name}"
    if declared[:-1].strip() in header.structs:
        return f"_Inout_ {spaced}{name}"
    if following == "size_t":
        return f"void * {name}"
    return f"_Out_ {spaced}{name}"


def node(header):
    lines = ["// Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them.", "",
             'import koffi from "koffi";', ""]
    # Strings of JavaScript have a length.
    lines += [f"export const {name} = {'2n ** 64n - 1n' if value == 'UINT64_MAX' else value};"
              for name, value in header.constants.items() if value != "SIZE_MAX"]
    lines += ["", "// Of each type: name → value.", "export const ENUMS = {"]
    for name, constants in header.enums.items():
        lines += [f"  {name}: {{", *(f"    {short.lower()}: {value}," for short, value in short_names(constants)), "  },"]
    lines += ["};", ""]
    lines += [f'koffi.opaque("{name}");' for name in header.handles]
    lines += [f'koffi.alias("{name}", "{target}");' for name, target in header.aliases.items()]
    lines += ["", "// Name → member → type.", "export const STRUCTS = {"]
    for name, members in in_order(header):
        lines += [f"  {name}: {{", *(f"    {member}: {node_member(declared)}," for member, declared in members), "  },"]
    lines += ["};", "for (const [name, members] of Object.entries(STRUCTS)) koffi.struct(name, members);", "",
              "export const FUNCTIONS = ["]
    for name, (result, parameters) in header.functions.items():
        following = [declared for _, declared in parameters[1:]] + [None]
        texts = [node_parameter(header, member, declared, after) for (member, declared), after in zip(parameters, following)]
        lines.append(f'  "{result.replace("char*", "char *")} {name}({", ".join(texts) or "void"})",')
    return "\n".join(lines + ["];", ""])


OUTPUTS = {PYTHON: python, CSHARP: csharp, NODE: node}


def main():
    header = Header(HEADER.read_text())
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    for path, written in OUTPUTS.items():
        text = written(header)
        if not sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise SystemExit(f"{path.relative_to(ROOT)} is not what the header says: run tools/bindings.py")


if __name__ == "__main__":
    main()
