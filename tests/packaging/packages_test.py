#!/usr/bin/env python3
"""Packages of this build: what is in them, and that it runs."""

import gzip
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["PUMICE_TEST_BUILD"])
LAUNCHER = shlex.split(os.environ.get("PUMICE_TEST_LAUNCHER", ""))
PACKAGES = {"pumice", "libpumice-dev"}  # and the library, whose name has its version


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def pack(generator, folder):
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", generator, "-B", folder)


def tells_a_story(test, program, model):
    said = run(*LAUNCHER, program, "run", "-m", model, "-p", "Once upon a time", "-n", 20, "--temp", 0)
    test.assertRegex(said, r"\A there was (\S+ ){8}")


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-archive-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        pack("TGZ", cls.folder)
        cls.archive = next(cls.folder.glob("*.tar.gz"))
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.folder)
        cls.top = cls.folder / cls.archive.name[:-len(".tar.gz")]

    def test_it_has_the_program_its_manual_and_a_model_to_try(self):
        names = {str(path.relative_to(self.top)) for path in self.top.rglob("*") if path.is_file()}
        for name in ("bin/pumice", "README.md", "LICENSE", "models/pumice-stories.gguf", "share/man/man1/pumice-run.1",
                     "share/bash-completion/completions/pumice", "share/zsh/site-functions/_pumice",
                     "share/fish/vendor_completions.d/pumice.fish"):
            self.assertIn(name, names)
        self.assertIn("CLI11", (self.top / "NOTICE").read_text())
        tells_a_story(self, self.top / "bin/pumice", self.top / "models/pumice-stories.gguf")

    def test_its_name_has_the_oldest_glibc_that_it_runs_with(self):
        versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "--dyn-syms", "--wide", self.top / "bin/pumice"))
        newest = max((int(major), int(minor)) for major, minor in versions)
        self.assertRegex(self.archive.name, rf"\Apumice-\d+\.\d+\.\d+-linux-\w+-glibc{newest[0]}\.{newest[1]}\.tar\.gz\Z")


    def test_without_a_licence_of_what_is_compiled_in_nothing_is_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "TGZ", "-B", folder, "-D",
                                   "CPACK_PUMICE_MISSING_LICENCES=/nosuch/copyright"], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("/nosuch/copyright", done.stderr)
            self.assertFalse(list(pathlib.Path(folder).glob("*.tar.gz")))


class Debian(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("dpkg-deb") or not shutil.which("dpkg-shlibdeps"):
            raise unittest.SkipTest("dpkg-deb and dpkg-shlibdeps (dpkg-dev) are not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumice-deb-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        pack("DEB", cls.folder)
        cls.packages = {run("dpkg-deb", "-f", path, "Package").strip(): path for path in cls.folder.glob("*.deb")}
        cls.library = next(name for name in cls.packages if re.fullmatch(r"libpumice[\d.]+", name))
        cls.root = cls.folder / "root"
        for path in cls.packages.values():
            run("dpkg-deb", "-x", path, cls.root)

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.packages[package], name).strip()

    def files(self, package):
        listing = run("dpkg-deb", "-c", self.packages[package])
        return {line.split()[5].split("/", 1)[1] for line in listing.splitlines() if not line.startswith("d")}

    def test_there_are_three_and_no_file_is_in_two(self):
        self.assertEqual(set(self.packages), PACKAGES | {self.library})
        all_files = [name for package in self.packages for name in self.files(package)]
        self.assertEqual(sorted(all_files), sorted(set(all_files)))
        self.assertFalse([name for name in all_files if not name.startswith("usr/")])

    def test_a_description_begins_with_what_its_own_package_is(self):
        heads = {package: self.field(package, "Description").splitlines()[:2] for package in self.packages}
        self.assertEqual(len({head for head, _ in heads.values()}), 3, heads)
        for head, text in heads.values():
            self.assertNotIn(text.strip(), head)

    def test_without_what_finds_dependencies_nothing_is_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder, "-D",
                                   "CMAKE_IGNORE_PATH=/usr/bin;/bin"], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("install dpkg-dev", done.stderr)
            self.assertFalse(list(pathlib.Path(folder).glob("*.deb")))

    def test_the_library_is_named_after_its_soname(self):
        library = next(path for path in self.root.rglob("libpumice.so.*") if not path.is_symlink())
        soname = re.search(r"SONAME.*\[libpumice\.so\.([\d.]+)\]", run("readelf", "-d", library)).group(1)
        self.assertEqual(self.library, f"libpumice{soname}")
        self.assertIn(f"{self.library} (= {self.field(self.library, 'Version')})", self.field("libpumice-dev", "Depends"))

    def test_each_has_a_licence_and_depends_on_what_it_links(self):
        for package in self.packages:
            folder = f"usr/share/doc/{package}"
            self.assertLessEqual({f"{folder}/{name}" for name in ("copyright", "changelog.gz", "NOTICE.gz")}, self.files(package))
            notice = gzip.decompress((self.root / folder / "NOTICE.gz").read_bytes()).decode()
            # Of what is compiled in.
            self.assertIn("Arseny Kapoulkine", notice)
            self.assertEqual("CLI11" in notice, package == "pumice")
        for package in ("pumice", self.library):
            for name in ("libc6 (>= 2.", "libvulkan1", "libstdc++6"):
                self.assertIn(name, self.field(package, "Depends"))

    def test_licences_are_the_same_text(self):
        def words(text):
            return re.findall(r"\w+", text[text.index("Permission is hereby granted"):])

        packaged = (ROOT / "packaging/debian/copyright").read_text()
        self.assertEqual(words(packaged), words((ROOT / "LICENSE").read_text()))

    def test_the_program_runs_with_the_model_it_brings(self):
        tells_a_story(self, self.root / "usr/bin/pumice", self.root / "usr/share/pumice/pumice-stories.gguf")
        page = gzip.decompress((self.root / "usr/share/man/man1/pumice.1.gz").read_bytes()).decode()
        self.assertIn(".TH PUMICE 1", page)
        self.assertTrue((self.root / "usr/share/zsh/vendor-completions/_pumice").is_file())

    @unittest.skipUnless(shutil.which("lintian"), "lintian is not installed")
    def test_lintian_finds_no_error(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *map(str, self.packages.values())],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotRegex(done.stdout, r"(?m)^E: ")


if __name__ == "__main__":
    unittest.main()
