"""What pumice.h and the headers beside it declare, for the tests of the libraries and of the ABI."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "runtime" / "include"
FUNCTION = re.compile(r"^PUMICE_API\s+([^;{]*?\b(pumice_\w+)\([^;{]*\));", re.MULTILINE)


def functions(name="pumice.h"):
    """Name → declaration without PUMICE_API and semicolon."""
    text = (INCLUDE / "pumice" / name).read_text()
    return {match.group(2): " ".join(match.group(1).split()) for match in FUNCTION.finditer(text)}


def trapping_definitions(name="pumice.h"):
    """A C file that defines every function, to be compared as an ABI and never called."""
    bodies = [f"{declaration} {{ __builtin_trap(); }}" for declaration in functions(name).values()]
    return "\n".join([f'#include "pumice/{name}"', *bodies, ""])
