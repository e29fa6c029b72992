#!/usr/bin/env python3
"""Write the table of model families in docs/MODELS.md, and the numbers in README.md's table of status.

    models_page.py [--check] [REPOSITORY]

The families are those of kFamilies (runtime/models/families.cpp). A page's models are what the first comment of its
file names, up to the colon. What holds an architecture is read from the tests: golden logits of an independent
implementation, or a plain forward pass written from the papers. With --check nothing is written; exit 1 if the pages
would change.
"""

import pathlib
import re
import sys

FAMILIES = "runtime/models/families.cpp"
# Golden files that are not named after their architecture.
GOLDEN_OF = {
    "deepseek-v3": "deepseek2",
    "glm47-flash": "deepseek2",
    "mixtral": "llama",
    "llama-linear": "llama",
    "llama-nemo": "llama",
    "llama-tied": "llama",
    "llama-yarn": "llama",
    "llama3-rope": "llama",
    "bert-cls": "bert",
    "qwen3-embedding": "qwen3",
}
BEGIN, END = "<!-- families: written by scripts/models_page.py -->\n", "<!-- end of families -->\n"
COUNTS = re.compile(r"\[\d+ architectures\]\(docs/MODELS\.md\): logits of \d+ are")
FUNCTIONS = re.compile(r"(?<=\(docs/API\.md\), )\d+(?= functions)")


def architectures(root):
    """Architecture → name of its function, in the list's order."""
    listing = re.search(r"kFamilies\[\] = \{(.*?)\n\};", (root / FAMILIES).read_text(), re.DOTALL).group(1)
    found = re.findall(r'\{"([^"]+)", families::(build_\w+)[,}]', listing)
    names = [name for name, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not found or twice:
        raise SystemExit(f"{FAMILIES}: " + (f"listed twice: {', '.join(twice)}" if twice else "no families found"))
    return dict(found)


def pages(root):
    """Name of a family's function → its file and the models that the file's first comment names."""
    found = {}
    for file in sorted((root / "runtime/models/families").glob("*.cpp")):
        text = file.read_text()
        comment = " ".join(line[3:] for line in re.match(r"(?://[^\n]*\n)*", text).group().splitlines())
        for function in re.findall(r"^Result<Program> (build_\w+)\(", text, re.MULTILINE):
            title, colon, _ = comment.partition(":")
            if not colon:
                raise SystemExit(f"{file.relative_to(root)}: its first comment must begin with its models and a colon")
            found[function] = (file.name, title)
    return found


def evidence(root, known):
    """Architecture → what holds it."""
    tests = root / "tests/models"
    goldens = re.findall(r'Golden\{"families/([^"]+)"', (tests / "reference_test.cpp").read_text())
    goldens += re.findall(r'EmbeddingGolden\{"([^"]+)"', (tests / "embedding_test.cpp").read_text())
    spelled = {re.sub(r"[-_]", "", name): name for name in known}
    held = {}
    for name in re.findall(r'architecture = "([^"]+)"', (tests / "plain_forms.cpp").read_text()):
        held[name] = "formulas"
    for name in known:
        if (tests / f"{name.replace('-', '_')}_test.cpp").exists():
            held.setdefault(name, "own test")
    for name in goldens:
        architecture = GOLDEN_OF.get(name, spelled.get(re.sub(r"[-_]", "", name)))
        if architecture not in known:
            raise SystemExit(f"scripts/models_page.py: of which architecture is the golden file '{name}'?")
        held[architecture] = "logits"
    missing = sorted(set(known) - set(held))
    if missing:
        raise SystemExit(f"no test in tests/models/ holds {', '.join(missing)}")
    return held


def render(root):
    """Path → the text that it should have."""
    known = architectures(root)
    files = pages(root)
    held = evidence(root, known)
    rows = {}
    for architecture, function in known.items():
        if function not in files:
            raise SystemExit(f"runtime/models/families/: no file defines {function}")
        rows.setdefault(files[function], []).append(architecture)
    lines = ["| models | architecture | held against |", "|---|---|---|"]
    for (file, title), names in sorted(rows.items(), key=lambda row: row[0][1].lower()):
        proofs = [held[name] for name in names]
        proof = "; ".join(f"{what} (" + ", ".join(f"`{n}`" for n, p in zip(names, proofs) if p == what) + ")"
                          for what in dict.fromkeys(proofs)) if len(set(proofs)) > 1 else proofs[0]
        links = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| [{title}](../runtime/models/families/{file}) | {links} | {proof} |")

    page = root / "docs/MODELS.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit("docs/MODELS.md: the marks around the families' table are missing")
    readme = root / "README.md"
    text, n = COUNTS.subn(f"[{len(known)} architectures](docs/MODELS.md): logits of "
                          f"{list(held.values()).count('logits')} are", readme.read_text())
    headers = (root / "runtime/include/pumice").glob("*.h")
    n_functions = sum(len(re.findall(r"^PUMICE_API ", header.read_text(), re.MULTILINE)) for header in headers)
    text, n_abi = FUNCTIONS.subn(str(n_functions), text)
    if n != 1 or n_abi != 1:
        raise SystemExit("README.md: the lines that count architectures and functions are missing")
    return {page: before + BEGIN + "\n".join(lines) + "\n" + END + after, readme: text}


def main():
    check = "--check" in sys.argv[1:]
    folders = [argument for argument in sys.argv[1:] if argument != "--check"]
    root = pathlib.Path(folders[0]) if folders else pathlib.Path(__file__).resolve().parents[1]
    stale = {path: text for path, text in render(root).items() if path.read_text() != text}
    for path, text in stale.items():
        if check:
            print(f"{path.relative_to(root)} is not what the code says: run scripts/models_page.py")
        else:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
