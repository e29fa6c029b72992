#!/usr/bin/env python3
"""Runs the program for a few frames, which must do for each character to begin, and looks at what it said and drew.

    check_npc.py NPC MODEL
"""
import os
import shlex
import subprocess
import sys
import tempfile

WIDTH, HEIGHT = 960, 540
SPEAKERS = {"FOX": (235, 128, 51), "OWL": (115, 158, 242), "FROG": (107, 204, 102)}
INK = (31, 31, 38)


def main() -> None:
    program, model = sys.argv[1:]
    launcher = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", ""))
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "npc.ppm")
        command = [*launcher, program, model, "--frames", "60", "--screenshot", picture]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if "no Vulkan device" in run.stderr:
            sys.exit(77)
        assert run.returncode == 0, run.stderr
        with open(picture, "rb") as file:
            data = file.read()
    for name in SPEAKERS:
        assert f"{name}: " in run.stdout, run.stdout
    assert "frames: p50 " in run.stdout, run.stdout

    header = f"P6\n{WIDTH} {HEIGHT}\n255\n".encode()
    assert data.startswith(header) and len(data) == len(header) + 3 * WIDTH * HEIGHT
    pixels = data[len(header):]

    def count(color, left, top, width, height):
        """Pixels of that color; what a driver rounds may differ by one."""
        n = 0
        for y in range(top, top + height):
            for x in range(left, left + width):
                i = 3 * (y * WIDTH + x)
                n += all(abs(pixels[i + c] - color[c]) <= 1 for c in range(3))
        return n

    for i, (name, color) in enumerate(SPEAKERS.items()):
        left = 20 + 310 * i
        assert count(INK, left, 30, 300, 250) > 500, f"{name} has no text in its bubble"
        assert count(color, left, 480, 300, 30) > 50, f"{name} has no name"
    print(run.stdout.splitlines()[-1])


main()
