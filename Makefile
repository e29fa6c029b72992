# The commands a person types; CMake does the work.
#
#   make run          install what is missing, build, generate text with the bundled model
#   make test         install what is missing, build, run the tests
#   make build        build only (PRESET=release|dev|asan|tsan)
#   make test-matrix  other drivers, sanitizers, validation layers, linters, slow tests
#   make format       rewrite C++ in the repository's format
#   make lint         check format, clang-tidy, shell scripts
#   make archive      release archive with every shader variant, in build/archive/
#   make clean        remove every build folder
#
# PUMICE_NO_INSTALL=1 installs nothing. `make run` takes MODEL=, PROMPT= and N=.
PRESET ?= release
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
MODEL ?= models/pumice-stories.gguf
PROMPT ?= Once upon a time
N ?= 100

.NOTPARALLEL:
.PHONY: archive run test build test-matrix format lint clean install install-lint binary

# Build chatter goes to stderr, so that stdout holds the generated text alone.
run: install binary
	@build/$(PRESET)/tools/pumice run -m "$(MODEL)" -p "$(PROMPT)" -n $(N)

test: install build
	@ctest --test-dir build/$(PRESET) -LE 'slow|matrix' -j $(JOBS) --output-on-failure --no-tests=error

build: build/$(PRESET)/build.ninja
	@cmake --build build/$(PRESET) -j $(JOBS) >&2

binary: build/$(PRESET)/build.ninja
	@cmake --build build/$(PRESET) -j $(JOBS) --target pumice >&2

# Configured once; Ninja reconfigures by itself. Warnings are errors only in CI: a user's newer compiler
# may know warnings that ours does not.
# `make build` installs nothing, but names what is missing.
build/%/build.ninja:
	@PUMICE_NO_INSTALL=1 scripts/install_packages.sh
	@cmake --preset $* $(if $(CI),-DPUMICE_WARNINGS_AS_ERRORS=ON) >&2

test-matrix: install-lint
	@tests/matrix/run.sh

format:
	@scripts/format.sh

lint: install-lint build/dev/build.ninja
	@scripts/format.sh --check
	@scripts/lint_shell.sh
	@cmake --build build/dev -j $(JOBS) >&2
	@scripts/tidy.py build/dev

archive:
	@scripts/make_archive.sh

clean:
	@rm -rf build

install:
	@scripts/install_packages.sh

install-lint:
	@scripts/install_packages.sh lint
