#!/usr/bin/env python3
"""Judges the bundled model: at least 90 % of the stories it samples must be stories of the grammar.

    python3 evaluate.py --model ../../models/pumice-stories.gguf    sample and judge (needs numpy)
    python3 evaluate.py --stories FILE                              judge texts made elsewhere

The model is read from the GGUF and run here in numpy, so the figure is the file's, not the
checkpoint's. FILE ("-" is stdin) is a JSON array or JSON lines; each item is a text, or an object
with the text under "text" or "content". Exits 1 below the wanted share, or when the model's
stories are not distinct.
"""

import argparse
import json
import sys

import grammar


def read_stories(path):
    with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as file:
        content = file.read()
    if content.lstrip().startswith("["):
        items = json.loads(content)
    else:
        items = [json.loads(line) for line in content.splitlines() if line.strip()]
    return [i if isinstance(i, str) else i.get("text", i.get("content")) for i in items]


def sample_stories(args):
    from numpy_llama import NumpyLlama, sample

    model = NumpyLlama(args.model)
    greedy = sample(model, 1, args.seed, temperature=0.0, top_p=1.0)[0]
    print(f"greedy ({'a story' if grammar.is_story(greedy) else 'not a story'}):\n{greedy}\n")
    print(f"{args.count} samples from BOS, seed {args.seed}, temperature {args.temperature}, "
          f"top-p {args.top_p}")
    return sample(model, args.count, args.seed, args.temperature, args.top_p)


def report_failures(stories, show):
    for text in stories[:show]:
        offset = grammar.failure(text)
        text = text.strip()
        print(f"  no story from here: ...{text[max(0, offset - 40):offset]!r} "
              f"+ {text[offset:offset + 40]!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model")
    source.add_argument("--stories")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--want", type=float, default=0.9, help="smallest share that passes")
    parser.add_argument("--show", type=int, default=10, help="failures to print")
    parser.add_argument("--save", help="write the sampled stories here as a JSON array")
    args = parser.parse_args()

    stories = sample_stories(args) if args.model else read_stories(args.stories)
    if args.save:
        with open(args.save, "w", encoding="utf-8") as file:
            json.dump(stories, file, indent=0)
    rejected = [text for text in stories if not grammar.is_story(text)]
    report_failures(rejected, args.show)
    share = 1 - len(rejected) / len(stories)
    distinct = len(set(stories))
    words = sorted(len(text.split()) for text in stories)
    print(f"{len(stories) - len(rejected)} of {len(stories)} parse ({100 * share:.1f} %), "
          f"{distinct} distinct, {words[0]} to {words[-1]} words, "
          f"median {words[len(words) // 2]}")
    if share < args.want:
        sys.exit(f"below the wanted {100 * args.want:.0f} %")
    if args.model and args.count > 1 and distinct < 0.9 * len(stories):
        sys.exit("the samples are not distinct")


if __name__ == "__main__":
    main()
