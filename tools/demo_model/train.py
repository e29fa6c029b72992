#!/usr/bin/env python3
"""Trains the story model on freshly generated stories; one CPU thread and torch are enough.

    python3 train.py --tokenizer tokenizer.json --out DIR

DIR/checkpoint.pt holds weights, optimizers and step, and is written every --save-every steps; the
same command goes on from it. The first steps train on excerpts, a few sentences of one story:
there the name to be copied is near. Then a row is one story, BOS, text, EOS, so that it sits where
sampling will put it; every eighth batch joins rows in fours, so that every position of the context
has been trained.
"""

import argparse
import dataclasses
import math
import os
import random
import time

import torch
from torch.nn import functional as F

import grammar
from model import Config, Llama
from muon import Muon
from tokenizer import BOS, EOS, Tokenizer, chunks

IGNORED = -100
POOL = 16


def encode(pieces, tokenizer):
    """(token, known) pairs, BOS to EOS, of the (text, known) pieces of a text."""
    pieces = [(" ", False)] + pieces
    flags = [known for text, known in pieces for _ in text]
    pairs, end = [(BOS, False)], 0
    for chunk in chunks("".join(text for text, _ in pieces)):
        end += len(chunk)
        pairs += [(token, flags[end - 1]) for token in tokenizer.encode_chunk(chunk)]
    return pairs + [(EOS, False)]


def pool(index, args, tokenizer):
    """The rows of POOL steps, the same whenever they are drawn: POOL lists of texts of like
    length, so that little of a batch is padding, in random order."""
    rng = random.Random(f"{args.seed} {index}")
    if index * POOL < args.excerpt_steps:
        texts = (grammar.derive_excerpt(rng, rng.randint(2, 4))
                 for _ in range(POOL * args.batch_excerpts))
    else:
        texts = (grammar.derive(rng) for _ in range(POOL * args.batch_stories))
    rows = sorted((encode(text, tokenizer) for text in texts), key=len)
    size = len(rows) // POOL
    lists = [rows[i:i + size] for i in range(0, len(rows), size)]
    rng.shuffle(lists)
    return lists


def tensors(rows, n_ctx):
    """Inputs, targets and whether the target is known, [row, token] each, of (token, known) rows.
    Targets after a story's end are IGNORED: what follows is not for this model to say."""
    width = min(n_ctx, max(map(len, rows)) - 1)
    padded = [(row + [(EOS, False)] * width)[:width + 1] for row in rows]
    tokens = torch.tensor([[token for token, _ in row] for row in padded])
    known = torch.tensor([[flag for _, flag in row] for row in padded])
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    return inputs, targets.masked_fill(inputs == EOS, IGNORED), known[:, 1:]


def batches(first, args, tokenizer, n_ctx):
    """tensors() of step `first` and every later one."""
    for step in range(first, args.steps):
        if step == first or step % POOL == 0:
            lists = pool(step // POOL, args, tokenizer)
        rows = lists[step % POOL]
        if step % 8 == 7:
            rows = [sum(rows[i:i + 4], []) for i in range(0, len(rows), 4)]
        yield tensors(rows, n_ctx)


def decay(step, args):
    """Share of the peak rate: linear warm-up, then a cosine down to a hundredth."""
    if step < args.warmup:
        return (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


def known_weight(step, args):
    """Extra loss weight of names, pronouns and things that the story has already chosen: falls to
    nothing at three quarters of the steps, for it tilts the free choices too."""
    return args.known_weight * max(0.0, 1 - step / (0.75 * args.steps))


def make_optimizers(model, args):
    """Muon for the blocks' matrices, AdamW for the rest; each with its peak rate."""
    matrices = [p for p in model.blk.parameters() if p.dim() == 2]
    taken = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in taken]
    return [(Muon(matrices, args.lr_muon), args.lr_muon),
            (torch.optim.AdamW(others, args.lr, betas=(0.9, 0.98), weight_decay=0.0), args.lr)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch-stories", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW's peak")
    parser.add_argument("--lr-muon", type=float, default=0.02, help="Muon's peak")
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--excerpt-steps", type=int, default=320)
    parser.add_argument("--batch-excerpts", type=int, default=24)
    parser.add_argument("--known-weight", type=float, default=4.0)
    parser.add_argument("--layers", type=int, default=Config.n_layer)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = Tokenizer.load(args.tokenizer)
    config = Config(n_vocab=len(tokenizer.tokens), n_layer=args.layers)
    model = Llama(config)
    optimizers = make_optimizers(model, args)
    path, first = os.path.join(args.out, "checkpoint.pt"), 0
    os.makedirs(args.out, exist_ok=True)
    if os.path.exists(path):
        stored = torch.load(path)
        model.load_state_dict(stored["model"])
        for (optimizer, _), state in zip(optimizers, stored["optimizers"]):
            optimizer.load_state_dict(state)
        first = stored["step"]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, from step {first}", flush=True)

    started, seen, losses = time.monotonic(), 0, []
    data = batches(first, args, tokenizer, config.n_ctx)
    for step, (inputs, targets, known) in enumerate(data, first):
        token_losses = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(),
                                       ignore_index=IGNORED, reduction="none")
        weights = (1 + known_weight(step, args) * known.flatten()) * (targets.flatten() != IGNORED)
        model.zero_grad()
        ((token_losses * weights).sum() / weights.sum()).backward()
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * decay(step, args)
            optimizer.step()
        n_targets = int((targets != IGNORED).sum())
        losses.append(token_losses.sum().item() / n_targets)
        seen += n_targets

        done = step + 1
        if done % 50 == 0 or done == args.steps:
            elapsed = time.monotonic() - started
            left = elapsed / (done - first) * (args.steps - done)
            print(f"step {done}/{args.steps}  loss {sum(losses) / len(losses):.4f}  "
                  f"{seen / elapsed:.0f} tokens/s  {elapsed:.0f} s, {left:.0f} s left", flush=True)
            losses = []
        if done % args.save_every == 0 or done == args.steps:
            torch.save({"model": model.state_dict(), "step": done,
                        "optimizers": [optimizer.state_dict() for optimizer, _ in optimizers],
                        "config": dataclasses.asdict(config)}, path + ".new")
            os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
