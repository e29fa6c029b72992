#!/usr/bin/env python3
"""The ABI: the headers are C99 and C++17 as they stand, and what pumice.abi and pumice_vulkan.abi record of them has not
changed.

    abi_test.py --record      write both anew, after a change that is meant

A record is abidw's (abigail-tools) of functions without bodies, so that it depends on the headers alone; of Vulkan it
has handles, not what grows with each version of its header.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import header

RECORDS = {f"{name}.h": pathlib.Path(__file__).with_name(f"{name}.abi") for name in ("pumice", "pumice_vulkan")}
CC = os.environ.get("PUMICE_TEST_CC", "cc")
CXX = os.environ.get("PUMICE_TEST_CXX", "c++")
DWARF = ["-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types"]


VULKAN = """#pragma once
#include <stdint.h>
typedef enum VkResult { VK_SUCCESS = 0, VK_RESULT_MAX_ENUM = 0x7FFFFFFF } VkResult;
typedef struct VkInstance_T* VkInstance;
typedef struct VkPhysicalDevice_T* VkPhysicalDevice;
typedef struct VkDevice_T* VkDevice;
typedef struct VkQueue_T* VkQueue;
typedef struct VkSemaphore_T* VkSemaphore;
typedef struct VkDeviceMemory_T* VkDeviceMemory;
typedef void (*PFN_vkVoidFunction)(void);
typedef PFN_vkVoidFunction (*PFN_vkGetInstanceProcAddr)(VkInstance instance, const char* name);
"""


def compiled(folder, name):
    """A library with the functions of a header."""
    folder = pathlib.Path(folder)
    (folder / "vulkan").mkdir(exist_ok=True)
    (folder / "vulkan" / "vulkan_core.h").write_text(VULKAN)
    source = folder / f"{name}.c"
    library = source.with_suffix(".so")
    source.write_text(header.trapping_definitions(name))
    subprocess.run([CC, "-std=c99", *DWARF, "-shared", "-fPIC", "-I.", f"-I{header.INCLUDE}", source.name, "-o",
                    library], check=True, cwd=folder)
    return library


class Abi(unittest.TestCase):
    def test_the_headers_are_c99_and_cpp17_without_a_warning(self):
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only", f"-I{header.INCLUDE}"]
        subprocess.run([CC, "-std=c99", "-Wstrict-prototypes", *strict, "-x", "c", "-"],
                       input='#include "pumice/pumice_vulkan.h"\nint main(void) { return 0; }\n', text=True, check=True)
        for standard in ("c++17", "c++20"):
            subprocess.run([CXX, f"-std={standard}", "-fno-exceptions", "-fno-rtti", *strict, "-x", "c++", "-"],
                           input='#include "pumice/pumice.hpp"\n#include "pumice/pumice_vulkan.h"\nint main() {}\n',
                           text=True, check=True)

    def test_every_struct_begins_with_its_size_or_is_known_not_to(self):
        text = "".join((header.INCLUDE / "pumice" / name).read_text() for name in RECORDS)
        structs = re.findall(r"typedef struct (pumice_\w+) \{\s*([^;]*);", text)
        self.assertGreater(len(structs), 12)
        without = {name for name, first in structs if first.split("//")[0].split() != ["size_t", "struct_size"]}
        self.assertEqual(without, {"pumice_string", "pumice_message", "pumice_logit_bias", "pumice_adapter",
                                   "pumice_token_log_prob", "pumice_answer_part"})

    def test_the_guide_has_the_examples_as_they_are_and_names_every_call(self):
        guide = (header.ROOT / "docs" / "API.md").read_text()
        for language, name in [("c", "minimal.c"), ("cpp", "stream.cpp")]:
            example = (header.ROOT / "examples" / name).read_text()
            self.assertIn(f"```{language}\n{example}```\n", guide, f"docs/API.md shows another {name}")
        self.assertEqual([function for name in RECORDS for function in header.functions(name)
                          if function not in guide], [])

    @unittest.skipUnless(shutil.which("abidiff"), "abigail-tools is not installed")
    def test_the_abi_is_the_recorded_one(self):
        for name, record in RECORDS.items():
            with self.subTest(header=name), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(["abidiff", record, compiled(folder, name)], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}\nIf it is meant: abi_test.py --record, "
                                                     "and a new minor version where old programs would break.")


def record_all():
    for name, record in RECORDS.items():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", record,
                            compiled(folder, name)], check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record_all()
    else:
        unittest.main()
