#!/usr/bin/env python3
"""Trains the byte-pair tokenizer on generated stories and writes it as JSON.

    python3 train_tokenizer.py --out tokenizer.json

Order of the vocabulary: <unk> <s> </s>, the 256 byte tokens, the merges (score = -rank, so that
an earlier merge wins), the single characters (scores below every merge), as SentencePiece does.
"""

import argparse
import collections
import random

import grammar
from tokenizer import (SPACE, TYPE_BYTE, TYPE_CONTROL, TYPE_NORMAL, TYPE_UNKNOWN, Tokenizer,
                       chunks)


def learn_merges(counts, size):
    """Up to `size` merged strings, best first, from chunk -> count. Ties: the smaller string."""
    words = [(list(chunk), count) for chunk, count in sorted(counts.items())]
    merges = []
    while len(merges) < size:
        pairs = collections.Counter()
        for symbols, count in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(left + right)
        for symbols, _ in words:
            i = 0
            while i + 1 < len(symbols):
                if symbols[i] == left and symbols[i + 1] == right:
                    symbols[i:i + 2] = [left + right]
                i += 1
    return list(dict.fromkeys(merges))


def train(stories, vocab_size):
    counts = collections.Counter(c for story in stories for c in chunks(" " + story))
    characters = {c for chunk in counts for c in chunk if c != "\n"} | {SPACE}
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [TYPE_UNKNOWN, TYPE_CONTROL, TYPE_CONTROL] + [TYPE_BYTE] * 256
    learned = learn_merges(counts, vocab_size - len(tokens) - len(characters))
    learned += sorted(characters)
    scores = [0.0] * len(tokens) + [-float(rank) for rank in range(len(learned))]
    return Tokenizer(tokens + learned, scores, types + [TYPE_NORMAL] * len(learned))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--stories", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    stories = [grammar.generate(rng) for _ in range(args.stories)]
    tokenizer = train(stories, args.vocab)
    tokenizer.save(args.out)
    sample = stories[:1000]
    tokens = sum(len(tokenizer.encode(story)) for story in sample)
    print(f"{len(tokenizer.tokens)} tokens; {tokens / len(sample):.1f} tokens a story, "
          f"{sum(map(len, sample)) / tokens:.2f} characters a token")


if __name__ == "__main__":
    main()
