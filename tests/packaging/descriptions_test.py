#!/usr/bin/env python3
"""Descriptions for packages of others: well formed, and true of this repository."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
VERSION = re.search(r"project\(pumice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
OPTIONS = set(re.findall(r"^option\((PUMICE_\w+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))


class ContainerFile(unittest.TestCase):
    INSTRUCTIONS = {"FROM", "RUN", "CMD", "EXPOSE", "ENV", "COPY", "ENTRYPOINT", "VOLUME", "USER", "WORKDIR", "ARG", "LABEL"}

    def instructions(self):
        text = re.sub(r"^#.*\n", "", (PACKAGING / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        return [line.split(None, 1) for line in text.splitlines() if line.strip()]

    def test_every_instruction_is_one_and_the_first_names_an_image(self):
        instructions = self.instructions()
        self.assertEqual(instructions[0][0], "FROM")
        self.assertLessEqual({name for name, _ in instructions}, self.INSTRUCTIONS)

    def test_what_it_copies_is_here_or_of_a_stage_before(self):
        stages = set()
        for name, rest in self.instructions():
            if name == "FROM":
                stages |= set(re.findall(r" AS (\w+)", rest))
            if name != "COPY":
                continue
            words = rest.split()
            if words[0].startswith("--from="):
                self.assertIn(words[0][len("--from="):], stages)
            else:
                for source in words[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)

    def test_shell_commands_parse_and_lists_are_json(self):
        for name, rest in self.instructions():
            if name == "RUN":
                subprocess.run(["sh", "-n", "-c", rest], check=True)
                for script in re.findall(r"scripts/\S+\.sh", rest):
                    self.assertTrue((ROOT / script).is_file(), script)
            if name in ("CMD", "ENTRYPOINT"):
                self.assertTrue(all(isinstance(word, str) for word in json.loads(rest)))

    def test_the_package_that_it_installs_brings_the_model_that_it_serves(self):
        command = json.loads(next(rest for name, rest in self.instructions() if name == "CMD"))
        model = command[command.index("-m") + 1]
        self.assertIn(f"DESTINATION {str(pathlib.PurePosixPath(model).parent)[len('/usr/'):]} ",
                      (ROOT / "cmake/PumiceDebian.cmake").read_text())
        self.assertTrue((ROOT / "models" / pathlib.PurePosixPath(model).name).is_file())


class StaticLibraries(unittest.TestCase):
    def test_a_program_for_other_distributions_is_linked_with_none_of_this_ones_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DPUMICE_STATIC_LIBRARIES=ON",
                            "-DPUMICE_BUILD_TESTS=OFF"], capture_output=True, check=True)
            links = subprocess.run(["ninja", "-C", folder, "-t", "commands", "-s", "tools/pumice"], capture_output=True,
                                   text=True, check=True).stdout
            self.assertIn("libpcre2-8.a", links)
            self.assertIn("-static-libstdc++", links)
            self.assertEqual(re.findall(r"\S+\.so\b\S*|(?<!\S)-l(?!pthread\b|dl\b|m\b)\w+", links), [])


class Vcpkg(unittest.TestCase):
    def test_the_manifest_is_json_with_the_version_and_licence_of_the_project(self):
        manifest = json.loads((PACKAGING / "vcpkg/pumice/vcpkg.json").read_text())
        self.assertEqual((manifest["name"], manifest["version"], manifest["license"]), ("pumice", VERSION, "MIT"))
        for dependency in manifest["dependencies"]:
            name = dependency if isinstance(dependency, str) else dependency["name"]
            self.assertRegex(name, r"\A[a-z0-9]+(-[a-z0-9]+)*\Z")

    def test_the_port_is_a_script_and_this_project_takes_its_options(self):
        """With functions in the place of vcpkg's that say what they were given."""
        functions = ("vcpkg_cmake_configure", "vcpkg_cmake_install", "vcpkg_cmake_config_fixup", "vcpkg_fixup_pkgconfig",
                     "vcpkg_install_copyright")
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "port.cmake"
            said = "\n".join(f'function({name})\n  message(NOTICE "{name}|${{ARGV}}")\nendfunction()' for name in functions)
            script.write_text(f'{said}\nset(CURRENT_PACKAGES_DIR "{folder}/packages")\nset(CURRENT_HOST_INSTALLED_DIR "{folder}/host")\n'
                              f'include("{PACKAGING}/vcpkg/pumice/portfile.cmake")\n')
            done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, check=True)
            calls = dict(line.split("|", 1) for line in done.stderr.splitlines() if "|" in line)
            self.assertEqual(set(calls), set(functions))
            source, *options = calls["vcpkg_cmake_configure"].split(";")[1:]
            self.assertEqual(pathlib.Path(source), ROOT)
            self.assertTrue(pathlib.Path(calls["vcpkg_install_copyright"].split(";")[-1]).is_file())
            flags = [option for option in options if option.startswith("-DPUMICE_")]
            self.assertLessEqual({flag[2:].split("=")[0] for flag in flags}, OPTIONS)
            configured = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", f"{folder}/build", *flags], capture_output=True,
                                        text=True)
            self.assertEqual(configured.returncode, 0, configured.stderr)
            self.assertNotIn("not used by the project", configured.stderr)
            targets = subprocess.run(["ninja", "-C", f"{folder}/build", "-t", "targets", "all"], capture_output=True, text=True,
                                     check=True).stdout
            self.assertIn("libpumice.so:", targets)
            self.assertNotIn("tools/pumice:", targets)
            refused = subprocess.run(["cmake", "-DPUMICE_BUILD_TESTS=ON", f"{folder}/build"], capture_output=True, text=True)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("The tests need the program", refused.stderr)


class NuGet(unittest.TestCase):
    NAMESPACE = {"n": "http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd"}

    def test_it_names_the_version_and_files_that_are_here_or_that_it_says_how_to_make(self):
        text = (PACKAGING / "nuget/Pumice.nuspec").read_text()
        package = xml.fromstring(text.encode())
        metadata = {child.tag.split("}")[1]: child.text for child in package.find("n:metadata", self.NAMESPACE)}
        self.assertEqual((metadata["id"], metadata["version"]), ("Pumice", VERSION))
        for required in ("authors", "description", "license", "readme"):
            self.assertTrue(metadata[required], required)
        targets = []
        for file in package.findall("n:files/n:file", self.NAMESPACE):
            targets.append(file.get("target"))
            source = file.get("src")
            if source.startswith("build/nuget/"):
                self.assertRegex(text.split("-->")[0], re.escape(source) + r"|\S+/" + re.escape(pathlib.Path(source).name) + " build/nuget/")
            else:
                self.assertTrue((ROOT / source).is_file(), source)
        self.assertIn(metadata["readme"], targets)
        # What the binding asks the system for.
        library = re.search(r'const string Library = "(\w+)"', (ROOT / "bindings/csharp/Pumice/Abi.cs").read_text()).group(1)
        self.assertIn(f"runtimes/linux-x64/native/lib{library}.so", targets)


class PhoronixTestSuite(unittest.TestCase):
    PROFILE = PACKAGING / "phoronix-test-suite/pumice-1.0.0"

    def test_every_file_is_well_formed_and_has_what_the_suite_asks_for(self):
        profile = xml.parse(self.PROFILE / "test-definition.xml")
        self.assertEqual(profile.findtext("TestInformation/AppVersion"), VERSION)
        self.assertEqual(f"pumice-{profile.findtext('TestProfile/Version')}", self.PROFILE.name)
        self.assertEqual(profile.findtext("TestInformation/Proportion"), "HIB")
        self.assertEqual(profile.findtext("TestProfile/RequiresDisplay"), "FALSE")  # which one of graphics has else
        for field in ("TestInformation/Title", "TestInformation/ResultScale", "TestProfile/License", "TestProfile/Status",
                      "TestProfile/TestType", "TestProfile/SoftwareType"):
            self.assertTrue(profile.findtext(field), field)
        for parser in xml.parse(self.PROFILE / "results-definition.xml").iter("ResultsParser"):
            self.assertEqual(parser.findtext("OutputTemplate").count("#_RESULT_#"), 1)
        package = xml.parse(self.PROFILE / "downloads.xml").find("Downloads/Package")
        self.assertTrue(package.findtext("FileName").endswith(".tar.gz"))
        self.assertEqual(package.findtext("Optional"), "TRUE")  # an installed program does

    def test_its_script_is_of_any_shell(self):
        subprocess.run(["sh", "-n", self.PROFILE / "install.sh"], check=True)
        self.assertTrue((self.PROFILE / "install.sh").read_text().startswith("#!/bin/sh\n"))


class Debian(unittest.TestCase):
    def test_the_changelog_is_one(self):
        text = (PACKAGING / "debian/changelog.in").read_text()
        self.assertRegex(text, r"\Apumice \(@PROJECT_VERSION@\) \w+; urgency=\w+\n\n(  .*\n)+\n -- @\w+@  \w{3}, \d\d \w{3} \d{4} [\d:]{8} \+0000\n\Z")


if __name__ == "__main__":
    unittest.main()
