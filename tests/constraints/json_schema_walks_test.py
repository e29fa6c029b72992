"""Texts of random walks by the mask are valid for python3-jsonschema.

json_schema_walks_test.py PROGRAM SHARED_FOLDER CASES.jsonl [WALKS]: PROGRAM is json_schema_walks. Skips (77) without the
module or the shared files.
"""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

SKIPPED = 77


def validator_of(module, schema):
    """The schema's own draft; 2020-12 where it does not say."""
    kind = module.validators.validator_for(schema, default=module.Draft202012Validator)
    # Exact, where the module's own rule divides doubles.
    def multiple_of(validator, unit, value, schema):
        if validator.is_type(value, "number") and Fraction(repr(value)) % Fraction(repr(unit)) != 0:
            yield module.ValidationError(f"{value} is not a multiple of {unit}")

    exact = module.validators.extend(kind, {"multipleOf": multiple_of})
    # Without helpers the module takes `time` for draft 3's, which has no zone.
    formats = [name for name in module.FormatChecker.checkers if name != "time"]
    return exact(schema, format_checker=module.FormatChecker(formats))


def check(module, program, schemas, vocabulary, walks):
    rows = [json.loads(line)["schema"] for line in schemas.read_text(encoding="utf-8").splitlines()]
    output = subprocess.run([program, schemas, vocabulary, str(walks), "1"], capture_output=True, check=False)
    if output.returncode != 0:
        return 0, [output.stderr.decode()]
    validators, failures, n_texts = {}, [], 0
    for line in filter(None, output.stdout.decode().split("\n")):
        walk = json.loads(line)
        n_texts += 1
        if walk["row"] not in validators:
            validators[walk["row"]] = validator_of(module, rows[walk["row"]])
        try:
            error = next(validators[walk["row"]].iter_errors(json.loads(walk["text"])), None)
        except ValueError as broken:
            error = broken
        if error is not None:
            failures.append(f"{schemas.name} row {walk['row']}: {walk['text']}\n  {str(error).splitlines()[0]}")
    return n_texts, failures


def main():
    program, shared, cases = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    walks = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    try:
        import jsonschema
    except ImportError:
        print("skipped: no module jsonschema (python3-jsonschema)")
        return SKIPPED
    schemas = shared / "jsonschema" / "schemas.jsonl"
    vocabularies = [shared / "tokenizers" / name for name in ("ggml-vocab-llama-spm.gguf", "qwen3-151k.gguf")]
    missing = [str(path) for path in [schemas, *vocabularies] if not path.exists()]
    if missing:
        print("skipped: no", ", ".join(missing))
        return SKIPPED
    failed = False
    for file in (cases, schemas):
        for vocabulary in vocabularies:
            n_texts, failures = check(jsonschema, program, file, vocabulary, walks)
            print(f"{file.name}, {vocabulary.name}: {n_texts} texts, {len(failures)} not valid")
            print("\n".join(failures[:20]))
            failed |= bool(failures) or n_texts == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
