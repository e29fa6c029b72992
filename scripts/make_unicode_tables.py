#!/usr/bin/env python3
"""Writes runtime/text/unicode_tables.inc from the Unicode data that Python carries.

    scripts/make_unicode_tables.py | clang-format --assume-filename=unicode_tables.cpp > runtime/text/unicode_tables.inc
"""

import unicodedata

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)


def ranges(wanted):
    """[first, last] of each run of characters whose category is wanted."""
    result = []
    for c in SCALARS:
        if unicodedata.category(chr(c)) not in wanted:
            continue
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def lower_case_runs():
    """[first, last, step, distance]; every other character where capital and small letter alternate."""
    result = []
    for c in SCALARS:
        lower = chr(c).lower()
        if lower == chr(c) or len(lower) != 1:
            continue
        distance = ord(lower) - c
        last = result[-1] if result else None
        if last and last[3] == distance and c - last[1] in (1, 2) and last[2] in (0, c - last[1]):
            last[1], last[2] = c, c - last[1]
        else:
            result.append([c, c, 0, distance])
    return [[first, end, step or 1, distance] for first, end, step, distance in result]


def base(c):
    """The canonical decomposition without nonspacing marks."""
    return "".join(part for part in unicodedata.normalize("NFD", chr(c)) if unicodedata.category(part) != "Mn")


def has_base(c):
    return c not in HANGUL and unicodedata.category(chr(c)) != "Mn" and base(c) != chr(c)


def base_runs():
    """(first, the bases of it and its neighbours), for those with one."""
    result = []
    for c in SCALARS:
        if not has_base(c) or len(base(c)) != 1:
            continue
        if result and result[-1][0] + len(result[-1][1]) == c:
            result[-1][1].append(ord(base(c)))
        else:
            result.append((c, [ord(base(c))]))
    return result


def literal(characters):
    text = "".join(chr(c) if chr(c).isascii() and chr(c).isalnum() else f"\\U{c:08x}" if c > 0xFFFF else f"\\u{c:04x}"
                   for c in characters)
    return f'U"{text}"'


def print_table(kind, name, rows):
    print(f"constexpr {kind} {name}[] = {{")
    print(", ".join("{" + ", ".join(row) + "}" for row in rows))
    print("};\n")


def print_ranges(name, wanted):
    print_table("UnicodeRange", name, [(hex(first), hex(last)) for first, last in ranges(wanted)])


print(f"// Unicode {unicodedata.unidata_version}, written by scripts/make_unicode_tables.py.")
print_ranges("kPunctuation", {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"})
print_ranges("kNonspacingMarks", {"Mn"})
print_ranges("kControls", {"Cc", "Cf", "Co"})
print_table("LowerCaseRun", "kLowerCase",
            [(hex(first), hex(last), str(step), str(distance)) for first, last, step, distance in lower_case_runs()])
print_table("BaseRun", "kBases", [(hex(first), literal(bases)) for first, bases in base_runs()])
print_table("BaseSequence", "kBaseSequences",
            [(hex(c), literal(map(ord, base(c)))) for c in SCALARS if has_base(c) and len(base(c)) > 1])
