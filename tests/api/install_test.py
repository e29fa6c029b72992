#!/usr/bin/env python3
"""The library as programs elsewhere meet it: installed, found, linked and run."""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

import header

BUILD = os.environ["PUMICE_TEST_BUILD"]
COMPILERS = {"c": os.environ["PUMICE_TEST_CC"], "c++": os.environ["PUMICE_TEST_CXX"]}
LAUNCHER = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", ""))
MODEL = header.ROOT / "models" / "pumice-stories.gguf"


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.prefix = pathlib.Path(cls.folder.name) / "installed"
        for component in ("library", "sdk"):
            run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", component)
        cls.library = next(cls.prefix.rglob("libpumice.so")).parent
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": str(cls.library / "pkgconfig"),
                           "LD_LIBRARY_PATH": f"{cls.library}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def pkg_config(self, *words):
        return run("pkg-config", *words, "pumice", env=self.environment).split()

    def tells_a_story(self, program):
        said = run(*LAUNCHER, program, MODEL, env=self.environment)
        self.assertTrue(said.startswith("Once upon a time"), said)
        self.assertGreater(len(said), 100)
        return said

    def test_both_libraries_export_what_the_headers_declare_and_nothing_else(self):
        declared = {function for path in (header.INCLUDE / "pumice").glob("*.h")
                    for function in header.functions(path.name)}
        self.assertGreater(len(declared), 20)
        for path, options in [(self.library / "libpumice.so", ["-D"]), (self.library / "libpumice.a", ["-g"])]:
            names = set(re.findall(r"^\S+ \w (\S+)$", run("nm", *options, "--defined-only", path), re.MULTILINE))
            self.assertEqual(names, declared, path)

    def test_the_shared_library_has_a_name_with_a_version_and_needs_no_loader(self):
        dynamic = run("readelf", "-d", self.library / "libpumice.so")
        version = ".".join(self.pkg_config("--modversion")[0].split(".")[:2])
        self.assertIn(f"[libpumice.so.{version}]", dynamic)
        self.assertNotIn("libvulkan", dynamic)

    def test_minimal_is_built_with_pkg_config_and_either_library(self):
        source = header.ROOT / "examples" / "minimal.c"
        cflags = self.pkg_config("--cflags")
        program = pathlib.Path(self.folder.name) / "minimal"
        said = []
        static = [self.library / "libpumice.a", *self.pkg_config("--libs", "--static")]
        static.remove("-lpumice")
        for libraries in (self.pkg_config("--libs"), static):
            run(COMPILERS["c"], "-std=c99", "-Wall", "-Wextra", "-Werror", *cflags, source, "-o", program, *libraries)
            needed = run("readelf", "-d", program)
            self.assertEqual("libpumice.so" in needed, libraries is not static)
            said.append(self.tells_a_story(program))
        self.assertEqual(said[0], said[1])

    def test_a_program_that_has_a_pumice_of_its_own_links_the_static_library(self):
        source = pathlib.Path(self.folder.name) / "host.cpp"
        source.write_text("""#include <string>
#include <vector>
#include "pumice/pumice.hpp"
void* vkGetInstanceProcAddr = nullptr;  // as volk has it
namespace pumice { struct Engine2 {}; int exit_code(int code) { return code; } }
int main() {
  std::vector<std::string> lines(3, std::string(40, 'x'));
  lines.resize(lines.size() + lines[0].size());
  auto model = pumice::Model::load(nullptr, "none");
  return !model && model.status().code() == PUMICE_INVALID_ARGUMENT && lines.size() == 43 ? 0 : 1;
}
""")
        program = pathlib.Path(self.folder.name) / "host"
        libraries = self.pkg_config("--libs", "--static")
        libraries.remove("-lpumice")
        run(COMPILERS["c++"], "-std=c++17", "-Wall", "-Werror", *self.pkg_config("--cflags"), source, "-o", program,
            self.library / "libpumice.a", *libraries)
        run(*LAUNCHER, program, env=self.environment)

    def test_cmake_finds_the_package(self):
        folder = pathlib.Path(self.folder.name) / "project"
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES C CXX)
find_package(Pumice 0.1 REQUIRED)
add_executable(stream {header.ROOT}/examples/stream.cpp)
set_target_properties(stream PROPERTIES CXX_STANDARD 17)
target_link_libraries(stream PRIVATE Pumice::pumice)
add_executable(minimal {header.ROOT}/examples/minimal.c)
target_link_libraries(minimal PRIVATE Pumice::pumice_static)
""")
        run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={COMPILERS['c']}", f"-DCMAKE_CXX_COMPILER={COMPILERS['c++']}")
        run("cmake", "--build", folder / "build")
        self.tells_a_story(folder / "build" / "minimal")
        said = self.tells_a_story(folder / "build" / "stream")
        self.assertIn("a dog", said)
        self.assertIn("[interrupted]", said)


if __name__ == "__main__":
    unittest.main()
