#!/usr/bin/env python3
"""Runs the program for a few frames, which must do for each character to begin, looks at what it said and drew, and
lets another process go on from what that saved.

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


def stories(output):
    """What each character said, which may be several lines."""
    starts = [output.index(f"{name}: ") for name in SPEAKERS] + [output.index("frames: p50 ")]
    return [output[start:end].rstrip("\n") for start, end in zip(starts, starts[1:])]


def main() -> None:
    program, model = sys.argv[1:]
    launcher = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", ""))
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "npc.ppm")
        game = os.path.join(folder, "game")

        def play(frames, *options):
            command = [*launcher, program, model, "--frames", str(frames), "--save", game, *options]
            return subprocess.run(command, capture_output=True, text=True, timeout=600)

        run = play(60, "--screenshot", picture)
        if "no Vulkan device" in run.stderr:
            sys.exit(77)
        assert run.returncode == 0, run.stderr
        with open(picture, "rb") as file:
            data = file.read()
        later = play(40, "--restore", game)
        assert later.returncode == 0, later.stderr
        with open(game, "r+b") as file:
            file.truncate(os.path.getsize(game) - 1)
        damaged = play(1, "--restore", game)
        assert damaged.returncode == 1 and "is not a saved game" in damaged.stderr, damaged.stderr
    grown = 0
    for name, before, after in zip(SPEAKERS, stories(run.stdout), stories(later.stdout), strict=True):
        assert before.startswith(f"{name}: ") and after.startswith(before), f"{before!r} became {after!r}"
        grown += len(after) - len(before)
    assert grown > 0, "nobody went on"
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
