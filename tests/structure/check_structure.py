#!/usr/bin/env python3
"""Keep the dependency direction of docs/ARCHITECTURE.md by reading the includes.

    check_structure.py [REPOSITORY]

Also: JSON is read in one place, third-party libraries stay where they belong, headers from outside the tree are of packages that
scripts/install_packages.sh installs, what is used of the standard library is included (a newer compiler's headers
bring fewer others), names in the docs exist (doc_names.py), templates allocate from their budget alone, no file names
a path of somebody's machine, messages are plain English, the program prints in one place, what one system does
differently from another is asked in one place, and models are planned once.
Prints one line per violation; exit 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

import doc_names

# Module → the modules it may include, itself understood. Nothing else is allowed.
ALLOWED = {
    "base": set(),
    "vk": {"base"},
    "format": {"base"},
    "text": {"base"},
    "constraints": {"base", "text"},
    "answers": {"base", "text", "constraints"},
    "hub": {"base"},
    "sampling": {"base"},
    "cache": {"base"},
    "scheduler": {"base", "cache"},
    # Variants name the resident weight layouts they read, and those are defined in format; sampling
    # is defined, constants and all, by its CPU reference.
    "shaders": {"base", "vk", "format", "sampling"},
    "models": {"base", "vk", "shaders", "format", "text", "cache", "scheduler"},
    "engine": {"base", "vk", "shaders", "format", "text", "constraints", "sampling", "cache", "scheduler", "models"},
    "host": {"base", "vk", "shaders", "format", "text", "answers", "constraints", "sampling", "cache", "scheduler", "models", "engine"},
    "pumice": set(),  # runtime/include/pumice: the public headers stand alone
    "api": {"base", "vk", "format", "text", "answers", "constraints", "sampling", "scheduler", "models", "engine", "host",
            "pumice"},
    "bench": {"base", "vk", "shaders", "format", "text", "constraints", "sampling", "cache", "scheduler", "models",
              "engine", "host", "api", "pumice"},
    "tools": {"base", "vk", "shaders", "format", "text", "constraints", "answers", "sampling", "cache", "scheduler",
              "models", "engine", "host", "bench", "hub"},
    "examples": {"pumice"},
}

# Templates are run here, and these take memory from the heap as it is. References to such take none.
TEMPLATES = pathlib.PurePath("runtime/text/jinja")
UNPAID = re.compile(r"\bstd::string\b(?!&)|\bstd::vector<(?:(?!Paid<)[^;{(])*[;{(]|\bstd::(?:deque|list|map|set|unordered_\w+)<"
                    r"|\bstd::make_(?:shared|unique)\b|\bnew\s|\bmalloc\(|\bfmt::to_string\b|\bstd::to_string\b")
COMMENT = re.compile(r"//[^\n]*")

# Tests see whatever they test, except that these are tested without a device.
TESTS_WITHOUT = {
    "cache": {"vk", "shaders", "models", "engine", "host"},
    "scheduler": {"vk", "shaders", "models", "engine", "host"},
    "base": set(ALLOWED) - {"base"},
}

# First folder (or whole name) of a system include → the modules that may have it.
THIRD_PARTY = {
    "boost": {"tools"},
    "volk.h": {"vk", "tests"},
    "vulkan": {"vk", "api", "pumice", "examples", "tests"},
    "curl": {"hub"},
    "sha2.h": {"hub", "tests"},
    "valijson": {"bench", "tests"},
    "CLI": {"tools", "bench", "tests"},
    "spdlog": {"tools", "bench", "examples", "tests"},
    "gtest": {"tests"},
    "gmock": {"tests"},
}

# First folder (or whole name) of a header from outside the tree → the package that has it. What these do not name
# and is no header of C++ or POSIX would be missing on a fresh machine.
PACKAGES = {
    "boost": "libboost-dev",
    "CLI": "libcli11-dev",
    "benchmark": "libbenchmark-dev",
    "curl": "libcurl4-openssl-dev",
    "fmt": "libfmt-dev",
    "SDL2": "libsdl2-dev",
    "glm": "libglm-dev",
    "gmock": "libgmock-dev",
    "gtest": "libgtest-dev",
    "histedit.h": "libedit-dev",
    "nlohmann": "nlohmann-json3-dev",
    "pcre2.h": "libpcre2-dev",
    "sanitizer": "g++",
    "sha2.h": "libmd-dev",
    "spdlog": "libspdlog-dev",
    "valijson": "libvalijson-dev",
    "volk.h": "libvulkan-volk-dev",
    "vulkan": "libvulkan-dev",
    "xxhash.h": "libxxhash-dev",
    "zmq.h": "libzmq3-dev",
}
# Headers that every compiler here brings; those of C++ have no suffix.
POSIX = {"dlfcn.h", "fcntl.h", "malloc.h", "poll.h", "pthread.h", "pwd.h", "signal.h", "strings.h", "sys", "termios.h",
         "unistd.h"}
WINDOWS = {"io.h", "shellapi.h", "shlobj.h", "windows.h", "winioctl.h"}
C = {"assert.h", "errno.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"}
WRITTEN_BY_THE_BUILD = {"pumice_commit.h", "gdextension_interface.h"}

# What systems and compilers do differently is in runtime/base/: headers of a system in a file of that system
# (file_posix.cpp), questions of which it is and what only some compilers have anywhere there. Terminal and signals are
# the program's, in such files of tools/. Examples are programs of others, tests run here.
OF_A_SYSTEM = re.compile(r"runtime/base/\w+_(?:posix|windows)\.cpp|tools/\w+_(?:posix|windows)\.cpp")
SYSTEM_HEADERS = POSIX | WINDOWS | {"arpa", "dirent.h", "grp.h", "linux", "netdb.h", "netinet", "sched.h", "spawn.h", "ucontext.h"}
SYSTEM_NAMES = re.compile(
    r"\b__(?:builtin_\w+|int128\w*|attribute__)|\b_?(?:dl(?:open|sym|close)|mmap|madvise|mkstemp|flock|gmtime_r|localtime_r"
    r"|strptime|timegm|mem(?:mem|rchr)|strerror_r|setenv|unsetenv|putenv|sysconf|getp?pid|getpw\w+|isatty|fork|fileno)\s*\("
    r"|\"/?proc/|^[ \t]*#[ \t]*(?:el)?if.*\b(?:_WIN\w+|_MSC_VER|__\w*(?:linux|APPLE|unix|MINGW)\w*)", re.MULTILINE)
# Of paths. std::filesystem makes of char what the system's code page says.
PATH_TEXT = re.compile(r"\.(?:native|(?:generic_)?string)\(\)")

# Header of the standard library → what needs it, of the names that others' headers tend to bring.
STANDARD = {
    "algorithm": r"(?:std|ranges)::(?:\w*sort\w*|adjacent_find|(?:all|any|none)_of|binary_search|clamp|copy(?:_\w+)?"
                 r"|equal|count(?:_if)?|equal_range|fill(?:_n)?|find(?:_\w+)?|for_each(?:_n)?|generate(?:_n)?|\w+_heap"
                 r"|lexicographical_compare|(?:lower|upper)_bound|m(?:ax|in|inmax)(?:_element)?|mismatch|nth_element"
                 r"|partition|remove_(?:if|copy)|replace(?:_if)?|reverse|rotate|search|set_\w+|shuffle|stable_\w+"
                 r"|swap_ranges|transform|unique)(?:<\w+>)?\(",
    "array": r"std::array<",
    "bit": r"std::(?:bit_cast|popcount|countr_zero|countl_zero|has_single_bit)\b",
    "cmath": r"std::(?:sqrt|exp|log|log2|pow|tanh|erf|isfinite|isnan|cos|sin|floor|ceil|round|llround|lround|ldexp)\(",
    "cstring": r"std::(?:memcpy|memcmp|memset|strlen|strerror)\(",
    "filesystem": r"std::filesystem::",
    "fstream": r"std::[io]fstream\b",
    "functional": r"std::function<",
    "map": r"std::map<",
    "memory": r"std::(?:unique_ptr|shared_ptr|make_unique|make_shared)<",
    "numeric": r"std::(?:accumulate|iota|inner_product|gcd|lcm)\(",
    "optional": r"std::(?:optional<|nullopt\b)",
    "random": r"std::mt19937",
    "set": r"std::set<",
    "thread": r"std::thread\b",
    "variant": r"std::(?:variant<|visit\(|get_if<)",
}
STANDARD = {header: re.compile(names) for header, names in STANDARD.items()}

# Phrases that no message may have, and what to say instead.
RIDDLES = {
    re.compile(r"\b(?:is|are) none\b(?!,)"): "say what it must be, or that there is no such thing",
    re.compile(r"\btoo little\b"): "say how much is missing: short by 1.0 GiB",
    re.compile(r"(?<!there )\b(?:is|are) no (?!longer\b|more\b)"): "say that it is not a …, or what it must be",
    re.compile(r"\b(?:had again|(?:can|could|cannot) be had)\b"): "say that it cannot be reopened, made or found",
    re.compile(r"\bnothing has no\b|\ball the same\b|\bstands? twice\b"): "say it in plain English",
    re.compile(r"\b[Ww]ho(?:ever)? (?:asks|looks|waits|reads|has)\b"): "say who: the caller, a request, the user",
}
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# What the program prints goes through tools/terminal.hpp, where escape sequences of others are made harmless.
PRINTS = re.compile(r"\b(?:fmt::print|std::cout|std::cerr|printf|fprintf|std::fprintf|std::printf|std::puts)\b")

SOURCES = {".cpp", ".hpp", ".c", ".h", ".comp", ".glsl"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
# Every way into the library's parser, by whatever name its types go; `>>` only where a stream fills one of them.
JSON_PARSING = re.compile(r"(?:\w*[Jj]son\w*::(?:(?:sax_)?parse|accept|from_\w+)\s*\(|>>\s*\w*[Jj]son\w*\s*;"
                          r"|(?:\"|'')_json(?:_pointer)?\b)")
JSON_READER = {pathlib.PurePosixPath("runtime/base/json.cpp")}
# A model is planned once: whoever wants its program or its dispatches takes a ModelPlan. What a file says, and what it
# would cost, are asked without one.
PLANNING = re.compile(r"\b(?:build_program\(|lower\(\*?(?:\w+(?:\.|->))*program)")
PLANNERS = {pathlib.PurePosixPath(name) for name in ("bench/model_cost.cpp", "tools/info.cpp")}
# Written so that this line does not match itself.
MACHINE_PATH = re.compile(rb"(?<![\w.$})\]/-])/(?:%s)/[\w.-]" % b"|".join([b"home", b"root", b"work", b"Users"]))


def is_ignored(path):
    """As .gitignore says, for a tree without git."""
    return (path.parts[0].startswith("build") or path.parts[0] in {".git", ".cache", "compile_commands.json"}
            or "__pycache__" in path.parts or path.suffix == ".spv")


def repository_files(root):
    """Tracked and new files; in an archive of the sources, or without git, everything that is not ignored."""
    try:
        listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
                                  "--exclude-standard"], capture_output=True)
    except FileNotFoundError:
        listing = None
    if listing is not None and listing.returncode == 0:
        names = [name.decode() for name in listing.stdout.split(b"\0") if name]
    else:
        paths = (path.relative_to(root) for path in root.rglob("*"))
        names = [str(path) for path in paths if not is_ignored(path)]
    return [pathlib.PurePosixPath(name) for name in sorted(names) if (root / name).is_file()]


def module_of(path):
    """The module a file belongs to, "tests", or None for files outside every module."""
    parts = path.parts
    if parts[:3] == ("runtime", "include", "pumice"):
        return "pumice"
    if parts[0] == "runtime":
        return parts[1]
    return parts[0] if parts[0] in ALLOWED or parts[0] == "tests" else None


def included_file(root, path, name):
    """The repository's file that `#include "name"` in `path` reaches, or None."""
    for base in (path.parent, pathlib.PurePosixPath("runtime"), pathlib.PurePosixPath("."),
                 pathlib.PurePosixPath("runtime/include"), pathlib.PurePosixPath("shaders")):
        if (root / base / name).is_file():
            return base / name
    return None


def included_module(root, path, name):
    """The module that `#include "name"` in `path` reaches, or None if it is not ours. Whether a file of
    ours exists is the compiler's business."""
    file = included_file(root, path, name)
    if file is not None:
        return module_of(file)
    first = name.split("/")[0]
    return first if first in ALLOWED else None


def include_violations(root, path, text):
    module = module_of(path)
    if module is None:
        return
    if module != "tests" and module not in ALLOWED:
        yield f"{path}: module '{module}' is not in the table of tests/structure/check_structure.py"
        return
    for match in INCLUDE.finditer(text):
        kind, name = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        first = name.split("/")[0]
        if first in THIRD_PARTY and module not in THIRD_PARTY[first]:
            yield f"{where}: <{name}> does not belong in {module}"
        if kind == "<":
            if first in ALLOWED and included_module(root, path, name) == first:
                yield f"{where}: own header <{name}> goes in quotes"
            continue
        if ".." in name.split("/"):
            yield f"{where}: \"{name}\" climbs; include by path below runtime/ or the repository"
            continue
        target = included_module(root, path, name)
        if target is None and name.endswith(".inc"):
            continue  # written by the build, such as compiled shaders
        if target is None:
            yield f"{where}: \"{name}\" is no file of this repository; a library's header goes in <>"
        elif module == "tests":
            if target in TESTS_WITHOUT.get(path.parts[1], set()):
                yield f"{where}: tests of {path.parts[1]} must not need {target} (\"{name}\")"
        elif target != module and target not in ALLOWED[module]:
            yield f"{where}: {module} must not depend on {target} (\"{name}\")"


def standard_header_violations(root, texts):
    """C++ files that use a name whose header neither they nor our headers that they include name."""
    known = {}

    def system_headers(path):
        if path not in known:
            known[path] = set()  # ends a circle
            for kind, name in INCLUDE.findall(texts.get(path, "")):
                if kind == "<":
                    known[path].add(name)
                elif (file := included_file(root, path, name)) is not None:
                    known[path] |= system_headers(file)
        return known[path]

    for path, text in texts.items():
        if path.suffix not in {".cpp", ".hpp"}:
            continue
        for header, names in STANDARD.items():
            match = names.search(text)
            if match and header not in system_headers(path):
                line = text.count(chr(10), 0, match.start()) + 1
                yield f"{path}:{line}: {match.group().rstrip('(<')} needs <{header}>"


def installed_packages(root):
    """What scripts/install_packages.sh installs for `make run` and `make test`."""
    listing = subprocess.run(["bash", str(root / "scripts/install_packages.sh"), "list"], capture_output=True, text=True)
    return set(listing.stdout.split())


def owners(headers):
    """Header → the packages that this machine's dpkg has it from; without those it does not know, or without dpkg."""
    # A folder between /usr/include and the header is that of the architecture.
    patterns = [f"/usr/include/{folder}{header}" for header in headers for folder in ("", "*-linux-gnu*/")]
    try:
        listing = subprocess.run(["dpkg-query", "--search", *patterns], capture_output=True, text=True)
    except FileNotFoundError:
        return {}
    found = {}
    for line in listing.stdout.splitlines():
        packages, separator, path = line.partition(": ")
        if separator:
            name = re.sub(r"^/usr/include/([^/]*-linux-gnu[^/]*/)?", "", path)
            found.setdefault(name, set()).update(package.split(":")[0] for package in packages.split(", "))
    return found


def package_violations(root, sources, owners=owners):
    """Headers from outside the tree that no package of scripts/install_packages.sh is known to have. `sources`:
    pairs of a path and its text."""
    first_use = {}
    for path, text in sources:
        for match in INCLUDE.finditer(text):
            kind, name = match.groups()
            first = name.split("/")[0]
            outside = kind == "<" and "." in name and first not in C | POSIX | WINDOWS and name not in WRITTEN_BY_THE_BUILD
            if outside and included_module(root, path, name) is None:
                first_use.setdefault(name, f"{path}:{text.count(chr(10), 0, match.start()) + 1}")
    if not first_use:
        return
    installed = installed_packages(root)
    known = owners(sorted(first_use))
    for name, where in first_use.items():
        package = PACKAGES.get(name.split("/")[0])
        if package is None:
            yield f"{where}: <{name}> belongs to no package in the table of tests/structure/check_structure.py"
        elif package not in installed:
            yield f"{where}: <{name}> is of {package}, which scripts/install_packages.sh does not install"
        # Boost's headers are in the package of a version, which that one needs.
        elif package not in {"g++", "libboost-dev"} and package not in known.get(name, {package}):
            yield f"{where}: <{name}> is of {' and '.join(sorted(known[name]))} here, not of {package}"


def unpaid_violations(path, text):
    """Memory of a rendered template that its budget does not pay for. The parser's is bounded by the source."""
    if path.parent != TEMPLATES or path.stem in {"ast", "budget", "expression_parser", "lexer", "parser", "token_stream"}:
        return
    for match in UNPAID.finditer(COMMENT.sub("", text)):
        yield f"{path}: {match.group().strip()}: what a template makes is paid for: Text, Values, Paid, make_object"


def message_violations(path, text):
    """Messages that are riddles, and what the program prints past tools/terminal.cpp."""
    if module_of(path) not in set(ALLOWED) - {"examples"} or path.suffix not in {".cpp", ".hpp"}:
        return
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0] if not line.lstrip().startswith("#") else ""
        for string in STRING.findall(code):
            for riddle, better in RIDDLES.items():
                if riddle.search(string):
                    yield f"{path}:{number}: {string} is a riddle; {better}"
        if path.parts[0] == "tools" and PRINTS.search(STRING.sub('""', code)):
            yield f"{path}:{number}: print with tools/terminal.hpp, which shows escape sequences and sends none"


def system_violations(path, text):
    """What only some systems or compilers have, outside runtime/base/."""
    module = module_of(path)
    if module not in set(ALLOWED) - {"examples"} or OF_A_SYSTEM.fullmatch(str(path)):
        return
    for match in INCLUDE.finditer(text):
        if match.group(1) == "<" and match.group(2).split("/")[0] in SYSTEM_HEADERS:
            line = text.count(chr(10), 0, match.start()) + 1
            yield f"{path}:{line}: <{match.group(2)}> is of one system; it belongs in runtime/base/*_posix.cpp"
    if module == "base" or module == "pumice":
        return
    code = COMMENT.sub("", text)
    for names, instead in ((SYSTEM_NAMES, "not every system or compiler has it; runtime/base/ has what stands for it"),
                           (PATH_TEXT, "not UTF-8 on every system; use base/path.hpp")):
        for match in names.finditer(code):
            line = code.count(chr(10), 0, match.start()) + 1
            yield f"{path}:{line}: {match.group().strip().rstrip('(')}: {instead}"


def machine_path_violations(path, content):
    if b"\0" in content[:8192]:
        return  # not a text
    for match in MACHINE_PATH.finditer(content):
        line = content.count(b"\n", 0, match.start()) + 1
        yield f"{path}:{line}: path of one machine: {match.group().decode(errors='replace')}…"


def json_violations(path, text):
    """JSON of others is read by base/json.hpp, which bounds it. Tests trust what they read."""
    if module_of(path) not in ALLOWED or path in JSON_READER:
        return
    for match in JSON_PARSING.finditer(text):
        line = text.count(chr(10), 0, match.start()) + 1
        yield f"{path}:{line}: {match.group().strip()} reads JSON without bounds; use read_json of base/json.hpp"


def planning_violations(path, text):
    """A program built or lowered a second time, past the ModelPlan of its model."""
    if module_of(path) not in set(ALLOWED) - {"models"} or path in PLANNERS:
        return
    for match in PLANNING.finditer(COMMENT.sub("", text)):
        yield f"{path}: {match.group()}: take the model's ModelPlan (models/model_plan.hpp), which is made once"


def violations(root, owners=owners):
    sources = []
    contents = {path: (root / path).read_bytes() for path in repository_files(root)}
    for path, content in contents.items():
        yield from machine_path_violations(path, content)
        if path.suffix in SOURCES:
            sources.append((path, content.decode(errors="replace")))
            yield from include_violations(root, *sources[-1])
            yield from unpaid_violations(*sources[-1])
            yield from message_violations(*sources[-1])
            yield from json_violations(*sources[-1])
            yield from system_violations(*sources[-1])
            yield from planning_violations(*sources[-1])
    yield from package_violations(root, sources, owners)
    yield from standard_header_violations(root, dict(sources))

    def read(path):
        content = contents[path]
        return None if b"\0" in content[:8192] or len(content) > 2**20 else content.decode(errors="replace")

    yield from doc_names.violations(list(contents), read)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if root.is_file():
        root = root.parents[2]
    found = list(violations(root))
    print("\n".join(found) or "structure: no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
