#!/usr/bin/env python3
"""The checker itself: each rule is broken once in a small made-up repository."""

import os
import pathlib
import tempfile
import unittest
import unittest.mock

import check_structure


class Structure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("scripts/install_packages.sh", "echo g++ libfmt-dev libvulkan-volk-dev\n")
        self.write("runtime/base/result.hpp", "#include <fmt/format.h>\n")
        self.write("runtime/vk/device.hpp", '#include "base/result.hpp"\n#include <volk.h>\n')
        self.write("cache/page_pool.hpp", '#include "base/result.hpp"\n')
        self.write("shaders/common/interface.h", "")
        self.write("shaders/rope/rope.comp", '#include "common/interface.h"\n#include "rope.h"\n')
        self.write("shaders/rope/rope.h", "")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def found(self):
        return "\n".join(check_structure.violations(self.root, owners=lambda headers: {}))

    def test_a_tree_that_keeps_the_direction_passes(self):
        self.write("scheduler/plan.cpp", '#include "cache/page_pool.hpp"\n#include <vector>\n')
        self.assertEqual(self.found(), "")

    def test_what_a_template_makes_comes_from_its_budget(self):
        path = "runtime/text/jinja/filters.cpp"
        for unpaid in ("std::string text(n, ' ');", "std::vector<Value> items;", "std::make_shared<Loop>();",
                       "new Loop();", "std::vector<\n    std::pair<A, B>> all;"):
            self.write(path, "#include <memory>\n#include <string>\n#include <vector>\n" + unpaid)
            self.assertIn(f"{path}: {unpaid.split('(')[0].split('<')[0].split(' ')[0]}", self.found())
        self.write(path, "#include <string>\n#include <vector>\n// a new std::string\nconst std::string& a;\n"
                         "std::vector<A, Paid<A>> b;\nstd::string_view c;\n")
        self.assertEqual(self.found(), "")

    def test_a_dependency_against_the_direction_is_named_with_its_line(self):
        self.write("scheduler/plan.cpp", '#include <vector>\n#include "vk/device.hpp"\n')
        self.assertEqual(self.found(),
                         'scheduler/plan.cpp:2: scheduler must not depend on vk ("vk/device.hpp")')

    def test_a_path_that_climbs_is_refused(self):
        self.write("runtime/base/log.hpp", '#include "../vk/device.hpp"\n')
        self.assertIn("climbs", self.found())

    def test_a_quoted_include_is_a_file_of_the_repository(self):
        self.write("runtime/base/log.hpp", '#include "fmt/format.h"\n')
        self.assertIn("goes in <>", self.found())

    def test_what_the_build_writes_need_not_be_in_the_repository(self):
        self.write("tests/vk/shader_test.cpp", '#include "compiled.inc"\n')
        self.assertEqual(self.found(), "")

    def test_what_is_used_of_the_standard_library_is_included(self):
        self.write("cache/lru.hpp", "#include <algorithm>\n#include <memory>\n")
        self.write("cache/lru.cpp", '#include "cache/lru.hpp"\nstd::sort(a, b);\nstd::unique_ptr<int> p;\n')
        self.assertEqual(self.found(), "")
        self.write("cache/tier.cpp", "#include <memory>\n\nint n = std::max(a, b);\n")
        self.assertEqual(self.found(), "cache/tier.cpp:3: std::max needs <algorithm>")

    def test_json_is_read_by_the_one_reader(self):
        for text in ("auto a = nlohmann::json::parse(text);", "Json::parse(t, nullptr, false)", "OrderedJson::accept(t)",
                     "nlohmann::ordered_json::sax_parse(t, &s)", "file >> json;", "Json::from_cbor(bytes)"):
            with self.subTest(text):
                self.write("tools/sim.cpp", f"\n{text}\n")
                self.assertRegex(self.found(), r"\Atools/sim\.cpp:2: .* reads JSON without bounds; use read_json of base/json\.hpp\Z")
        self.write("tools/sim.cpp", "const Result<Json> json = read_json(text, kMost);\nfloats >> shift;\n")
        self.write("runtime/base/json.cpp", "Json::sax_parse(a, b, &builder);\n")
        self.write("tests/text/json_test.cpp", "Json::parse(text)\n")
        self.assertEqual(self.found(), "")

    def test_a_model_is_planned_once(self):
        for text in ("build_program(file)", "lower(program)", "lower(*program, rules)", "lower(model->program)"):
            with self.subTest(text):
                self.write("tools/run.cpp", f"// build_program(all)\nauto a = {text};\n")
                self.assertRegex(self.found(), r"\Atools/run\.cpp: .*: take the model's ModelPlan")
        self.write("tools/run.cpp", "lower(text);\nbuild_program_text(a);\n")
        self.write("runtime/models/model_plan.cpp", "build_program(source), lower(program_, rules);\n")
        self.write("tools/info.cpp", "build_program(file);\n")
        self.assertEqual(self.found(), "")

    def test_without_git_the_same_files_are_read_but_for_what_is_ignored(self):
        self.write("runtime/base/log.hpp", '#include "../vk/device.hpp"\n')
        with_git = self.found()
        for name in ("build/a.hpp", ".cache/b.hpp", "tests/__pycache__/c.hpp"):
            self.write(name, '#include "../vk/device.hpp"\n')
        with unittest.mock.patch.dict(os.environ, PATH=str(self.root)):
            self.write("bash", "#!/bin/sh\nexec /bin/bash \"$@\"\n")
            (self.root / "bash").chmod(0o755)
            self.assertEqual(self.found(), with_git)

    def test_an_own_header_in_angle_brackets_is_refused(self):
        self.write("runtime/vk/plan.cpp", "#include <base/result.hpp>\n")
        self.assertIn("goes in quotes", self.found())

    def test_only_the_device_layer_sees_volk(self):
        self.write("runtime/engine/step.cpp", "#include <volk.h>\n")
        self.assertIn("<volk.h> does not belong in engine", self.found())

    def test_a_module_missing_from_the_table_is_named(self):
        self.write("runtime/novel/novel.cpp", "")
        self.assertIn("module 'novel' is not in the table", self.found())

    def test_the_cache_is_tested_without_a_device(self):
        self.write("tests/cache/pool_test.cpp", '#include "vk/device.hpp"\n')
        self.assertIn("tests of cache must not need vk", self.found())

    def test_a_header_of_an_unknown_library_is_named(self):
        self.write("tools/terminal_posix.cpp", "#include <novel/novel.hpp>\n#include <sys/stat.h>\n")
        self.assertEqual(self.found(), "tools/terminal_posix.cpp:1: <novel/novel.hpp> belongs to no package in the table of "
                                       "tests/structure/check_structure.py")

    def test_a_library_that_is_not_installed_is_named(self):
        self.write("tests/cache/pool_test.cpp", "#include <gtest/gtest.h>\n\n#include <gmock/gmock.h>\n")
        self.write("scripts/install_packages.sh", "echo libfmt-dev libvulkan-volk-dev libgtest-dev\n")
        self.assertEqual(self.found(), "tests/cache/pool_test.cpp:3: <gmock/gmock.h> is of libgmock-dev, which "
                                       "scripts/install_packages.sh does not install")

    def test_a_library_of_another_package_than_the_table_says_is_named(self):
        source = (pathlib.PurePosixPath("tools/main.cpp"), "#include <fmt/format.h>\n")
        for owner, count in {"libother-dev": 1, "libfmt-dev": 0}.items():
            found = list(check_structure.package_violations(self.root, [source], lambda headers: {headers[0]: {owner}}))
            self.assertEqual(len(found), count, found)

    def test_a_path_of_one_machine_is_refused_in_any_text(self):
        self.write("docs/guide.md", "see\n/" + "home/somebody/notes\n")
        self.assertIn("docs/guide.md:2: path of one machine", self.found())

    def test_relative_and_variable_paths_are_no_machine_paths(self):
        self.write("docs/guide.md", "see ./home/x, $D/home/x, ../root/x, https://a.b/home/x\n")
        self.assertEqual(self.found(), "")

    def test_a_message_that_is_a_riddle_is_named(self):
        self.write("tools/run.cpp", 'refuse("mode is {}, which is none");\n// there is none\nadd("x", "none");\n')
        self.assertIn('tools/run.cpp:1: "mode is {}, which is none" is a riddle', self.found())
        self.assertEqual(self.found().count("is a riddle"), 1)
        self.write("tools/run.cpp", 'f("these bytes are none", "1 GiB too little");\n')
        self.assertEqual(self.found().count("is a riddle"), 2)
        for message in ("{} is no file", "could not be had again", "nothing has no embedding", "the name stands twice",
                        "goes beyond it all the same", "who asks for it is told"):
            self.write("tools/run.cpp", f'f("{message}");\n')
            self.assertEqual(self.found().count("is a riddle"), 1, message)
        self.write("tools/run.cpp", 'f("there is no model", "there are no tokens", "it is no longer there");\n')
        self.assertEqual(self.found(), "")

    def test_the_program_prints_in_one_place(self):
        self.write("tools/run.cpp", 'fmt::print("{}", path);\n')
        self.assertIn("tools/run.cpp:1: print with tools/terminal.hpp", self.found())
        self.write("tools/run.cpp", 'print_text("fmt::print {}", path);  // not fmt::print\n')
        self.assertEqual(self.found(), "")
        self.write("bench/bench.cpp", 'fmt::print("{}", path);\n')
        self.assertEqual(self.found(), "")

    def docs(self, text):
        """What is found where the docs say this of a small tree."""
        self.write("Makefile", "run: install\ntest:\n")
        self.write("runtime/vk/device.cpp", "")
        self.write("tools/run.cpp", 'add_option("--chunk", BlockPool::take, n_free_blocks);\n')
        self.write("tests/cache/CMakeLists.txt", "pumice_test(test_cache LABELS unit)\npumice_cli_test(run LABELS gpu)\n")
        self.write("tests/matrix/run.sh", "default_rows=(shell gpu-lavapipe-22\n  asan)\nother_rows=(tsan)\n")
        self.write("docs/TESTING.md", text)
        return self.found()

    def test_what_one_system_has_is_asked_in_base(self):
        for path in ("runtime/hub/download.cpp", "cache/big_array.hpp", "runtime/base/output_file.cpp", "tools/run.cpp"):
            for header in ("fcntl.h", "sys/mman.h", "dlfcn.h", "windows.h"):
                self.write(path, f"\n#include <{header}>\n")
                self.assertIn(f"{path}:2: <{header}> is of one system", self.found())
            self.write(path, "")
        for path in ("runtime/base/file_posix.cpp", "tools/signals_posix.cpp", "tools/terminal_windows.cpp", "tests/base/file_test.cpp",
                     "examples/npc/renderer.cpp"):
            self.write(path, "#include <fcntl.h>\n")
        self.assertEqual(self.found(), "")

    def test_what_not_every_compiler_has_is_said_in_base(self):
        path = "runtime/text/unicode.cpp"
        for code in ("__builtin_add_overflow(a, b, &c)", "__int128 wide = 0;", "::localtime_r(&t, &tm);", "::dlsym(a, b);",
                     'read("/proc/cpuinfo");', 'root / "proc/loadavg"', "#ifdef _WIN32", "#if defined(__linux__)"):
            self.write(path, f"// ::dlopen(x), _WIN32\n{code}\n")
            self.assertRegex(self.found(), f"{path}:2: .*: not every system or compiler has it")
        self.write(path, "// ::dlopen(x)\nsettings(x); isatty_of(y); std::localtime(z);\n#ifdef NDEBUG\n#endif\n")
        self.write("runtime/base/memory.hpp", "#ifdef _MSC_VER\n#endif\n__builtin_prefetch(x);\n")
        self.assertEqual(self.found(), "")

    def test_text_of_a_path_is_utf8(self):
        for code in ("path.string()", "folder.filename().native()", "a.generic_string()"):
            self.write("runtime/text/unicode.cpp", code + ";\n")
            self.assertIn("not UTF-8 on every system; use base/path.hpp", self.found())
        self.write("runtime/text/unicode.cpp", "bound.string(0); json.string;\n")
        self.assertEqual(self.found(), "")

    def test_names_in_docs_that_exist_pass(self):
        self.assertEqual(self.docs(
            "`BlockPool::take` `n_free_blocks()` `--chunk N` `tools/run.cpp` `vk/device.{hpp,cpp}` `shaders/*/rope.h` "
            "`run.cpp` `make run` `test_cache` `cli_run` [here](../tools/run.cpp), [there](../Makefile#x)\n"
            "```cpp\nNewType new_type;\n```\nplain NewType is no code\n"), "")

    def test_names_in_docs_that_do_not_exist_are_named_with_their_line(self):
        for name, code in {"NewType": "`NewType::take`", "new_function": "`new_function()`", "--new": "`--new`",
                           "tools/new.cpp": "`tools/new.cpp`", "new.hpp": "`new.hpp`", "make new": "`make new`",
                           "test_new": "`test_new`", "cli_new": "```\nctest -R cli_new\n```"}.items():
            found = self.docs(f"one\n{code}\n")
            self.assertIn(f"`{name}` is nothing in this repository", found)
            self.assertIn("docs/TESTING.md:3:" if "```" in code else "docs/TESTING.md:2:", found)
        self.assertIn("the link to new.md leads nowhere", self.docs("[x](new.md)"))

    def test_rows_of_the_matrix_and_of_its_table_are_the_same(self):
        table = "## The matrix\n\n| row | what |\n|---|---|\n| `shell` | |\n| `gpu-<driver>` | |\n"
        self.assertEqual(self.docs(table + "| `asan` `tsan` | |\n"), "")
        self.assertIn("the row `tsan` of the matrix is not in the table", self.docs(table + "| `asan` | |\n"))
        self.assertIn("the matrix has no row `new`", self.docs(table + "| `asan` `tsan` `new` | |\n"))


if __name__ == "__main__":
    unittest.main()
