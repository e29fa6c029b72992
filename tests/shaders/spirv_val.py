#!/usr/bin/env python3
"""Every SPIR-V module of a build is valid: spirv_val.py VALIDATOR FOLDER, the folder of *.inc files that
glslc -mfmt=c wrote. Exit code 77 (skipped) without a validator."""

import concurrent.futures
import pathlib
import re
import struct
import subprocess
import sys

SKIPPED = 77


def words_of(path):
    return [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", path.read_text())]


def complaint(validator, path):
    words = words_of(path)
    run = subprocess.run([validator, "--target-env", "vulkan1.3", "-"], capture_output=True,
                         input=struct.pack(f"<{len(words)}I", *words), check=False)
    return "" if run.returncode == 0 else f"{path.name}: {run.stderr.decode().strip()}"


def main(validator, folder):
    if not validator or validator.endswith("NOTFOUND"):
        print("SKIPPED: no spirv-val beside glslc or on the path")
        return SKIPPED
    modules = sorted(pathlib.Path(folder).glob("*.inc"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        complaints = [text for text in pool.map(lambda path: complaint(validator, path), modules) if text]
    print(f"{len(modules)} modules, {len(complaints)} invalid")
    for text in complaints:
        print(text)
    return 1 if complaints or not modules else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
