"""A wheel that carries the library: the one that PUMICE_LIBRARY names, else the one of build/release."""

import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = pathlib.Path(os.environ.get("PUMICE_LIBRARY") or
                               HERE / "../../build/release/runtime/api/libpumice.so")
        if not library.exists():
            raise SystemExit(f"{library} does not exist: build it first (target pumice_shared), or name it by PUMICE_LIBRARY")
        name = "pumice.dll" if library.suffix == ".dll" else "libpumice.so"
        shutil.copyfile(library, pathlib.Path(self.build_lib) / "pumice" / name)


class OfOnePlatform(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildWithLibrary}, distclass=OfOnePlatform)
