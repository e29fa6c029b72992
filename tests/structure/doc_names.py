"""Names in the docs are names of the tree: files, flags, functions and types, tests, make targets, matrix rows.

Looked at is what Markdown marks as code, and where links lead. What a word means is not understood: a name with
an underscore or capitals inside must occur somewhere outside the docs, a flag too.
"""

import fnmatch
import itertools
import re

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Of a name only the words count: `EngineOptions::split_tokens` is two.
NAME = re.compile(r"(?<![\w.-])(?:[A-Za-z]\w*_\w+|[A-Z][a-z0-9]+[A-Z]\w*|k[A-Z]\w*)(?![\w-])")
PATH = re.compile(r"(?<![\w./~$}-])[\w.-]+(?:/[\w.*{},-]+)+/?")
FILE = re.compile(r"(?<![\w./*{},-])([\w.*{},-]+)\.(?:cpp|hpp|h|comp|glsl|py|sh|md|cmake)\b")  # without a folder
MAKE = re.compile(r"(?<![\w-])make ([a-z][a-z-]*)")
TEST = re.compile(r"^(?:cli|test)_\w+$")
ROW = re.compile(r"^\| ((?:`[\w<>-]+` ?)+)\|", re.MULTILINE)

# What docs name that is not of this tree.
ELSEWHERE = {
    "VK_EXT_memory_budget",                         # Vulkan
    "GGML_VK_VISIBLE_DEVICES",                      # llama.cpp
    "MESA_SHADER_CACHE_DISABLE",                    # Mesa
    "OPENBLAS_CORETYPE",                            # OpenBLAS
}
EXAMPLE = re.compile(r"add_?bias|build_<|^NAME", re.IGNORECASE)  # the op and the family that guides make up
FOLDERS_OF_INCLUDES = ("", "runtime/", "shaders/", "tests/")


def expanded(path):
    """`a.{hpp,cpp}` → a.hpp, a.cpp."""
    parts = [part.split(",") for part in re.split(r"\{([^{}]*)\}", path)]
    return ["".join(choice) for choice in itertools.product(*([",".join(part)] if i % 2 == 0 else part
                                                              for i, part in enumerate(parts)))]


class Tree:
    """What there is to be named. `texts`: path → text of every file that is not Markdown."""

    def __init__(self, files, texts):
        self.files = {str(path) for path in files}
        self.names = {path.name for path in files}
        self.folders = {str(parent) for path in files for parent in path.parents}
        self.words = set()
        self.flags = set()
        for text in texts.values():
            self.words.update(re.findall(r"\w+", text))
            self.flags.update(FLAG.findall(text))
        self.tests = set()
        for path, text in texts.items():
            if path.endswith("CMakeLists.txt"):
                self.tests.update(re.findall(r"(?:pumice_test|pumice_gpu_test|add_test)\((?:NAME )?(\w+)", text))
                self.tests.update("cli_" + name for name in re.findall(r"pumice_cli_test\((\w+)", text))
        self.make_targets = set(re.findall(r"^([a-z][a-z-]*):", texts.get("Makefile", ""), re.MULTILINE))
        rows = re.findall(r"_rows=\(([^)]*)\)", texts.get("tests/matrix/run.sh", ""))
        self.rows = set(" ".join(rows).split())

    def has_path(self, path):
        for candidate in expanded(path.rstrip("/.,")):
            found = [folder + candidate for folder in FOLDERS_OF_INCLUDES]
            if not any(name in self.files or name in self.folders or
                       ("*" in name and fnmatch.filter(self.files, name)) for name in found):
                return False
        return True


def unknown_names(tree, code):
    """What a piece of code in a doc names that does not exist."""
    code = re.sub(r"<[^<>\s]*>", "*", code)
    for flag in FLAG.findall(code):
        if flag not in tree.flags:
            yield flag
    for target in MAKE.findall(code):
        if target not in tree.make_targets:
            yield f"make {target}"
    for path in PATH.findall(code):
        first = path.split("/")[0]
        ours = any(folder + first in tree.folders for folder in FOLDERS_OF_INCLUDES if folder + first != "build")
        if ours and first != "build" and path.rstrip("/.,") not in ELSEWHERE and not tree.has_path(path):
            yield path
    for match in FILE.finditer(code):
        if not all(fnmatch.filter(tree.names, name) for name in expanded(match.group())):
            yield match.group()
    code = FILE.sub("", PATH.sub("", code))
    for name in NAME.findall(code):
        if TEST.match(name) and name in tree.tests:
            continue
        if name not in tree.words and name not in ELSEWHERE:
            yield name


def violations(files, read):
    """`files`: paths of the repository; `read`: the text of one, or None if it is no text."""
    docs = [path for path in files if path.suffix == ".md" and path.parts[0] != "bench"]
    if not docs:
        return
    texts = {str(path): read(path) for path in files if path.suffix != ".md"}
    tree = Tree(files, {path: text for path, text in texts.items() if text is not None})
    for path in docs:
        text = read(path)

        def where(offset, text=text, path=path):
            return f"{path}:{text.count(chr(10), 0, offset) + 1}"

        pieces = [(match.start(), match.group()) for match in FENCE.finditer(text)]
        prose = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        pieces += [(match.start(), match.group(1)) for match in SPAN.finditer(prose)]
        for offset, code in sorted(pieces):
            if code.lstrip().startswith(("```c\n", "```cpp", "```glsl", "```cmake")):
                continue  # an example, which defines its own names
            for line_number, line in enumerate(code.split("\n")):
                for name in unknown_names(tree, line):
                    if not EXAMPLE.search(name):
                        line_offset = offset + len("\n".join(code.split("\n")[:line_number]))
                        yield f"{where(line_offset + (1 if line_number else 0))}: `{name}` is nothing in this repository"
        for match in LINK.finditer(prose):
            target = (path.parent / match.group(1)).as_posix()
            parts = []
            for part in target.split("/"):
                parts = parts[:-1] if part == ".." else parts + ([part] if part != "." else [])
            target = "/".join(parts)
            if target not in tree.files and target not in tree.folders:
                yield f"{where(match.start())}: the link to {match.group(1)} leads nowhere"
        if "## The matrix" in text:
            section = text[text.find("## The matrix"):]
            section = section[:section.find("\n## ", 4)]
            for match in ROW.finditer(section):
                for row in re.findall(r"`([^`]+)`", match.group(1)):
                    if not fnmatch.filter(tree.rows, re.sub(r"<\w+>", "*", row)):
                        yield f"{path}: the matrix has no row `{row}`"
            named = {row for match in ROW.finditer(section) for row in re.findall(r"`([^`]+)`", match.group(1))}
            for row in sorted(tree.rows):
                if not any(fnmatch.fnmatch(row, re.sub(r"<\w+>", "*", pattern)) for pattern in named):
                    yield f"{path}: the row `{row}` of the matrix is not in the table"
