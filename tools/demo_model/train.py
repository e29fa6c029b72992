#!/usr/bin/env python3
"""Trains the story model on freshly generated stories; one CPU thread and torch are enough.

    python3 train.py --tokenizer tokenizer.json --out DIR

DIR/checkpoint.pt holds weights, optimizers and step, and is written every --save-every steps; the
same command goes on from it. Every story is BOS, text, EOS. A row holds one story, so that it
sits where sampling will put it; every eighth batch holds rows of several stories instead, so that
every position of the context has been trained.
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
from tokenizer import BOS, EOS, Tokenizer

IGNORED = -100
POOL = 16


def pool(index, args, tokenizer):
    """The stories of POOL steps, the same whenever they are drawn: POOL lists of stories of like
    length, so that little of a batch is padding, in random order."""
    rng = random.Random(f"{args.seed} {index}")
    stories = [[BOS] + tokenizer.encode(grammar.generate(rng)) + [EOS]
               for _ in range(POOL * args.batch_stories)]
    stories.sort(key=len)
    batches = [stories[i:i + args.batch_stories]
               for i in range(0, len(stories), args.batch_stories)]
    rng.shuffle(batches)
    return batches


def tensors(rows, n_ctx):
    """Inputs and targets [row, token] of token lists."""
    width = min(n_ctx, max(map(len, rows)) - 1)
    inputs = torch.full((len(rows), width), EOS)
    targets = torch.full((len(rows), width), IGNORED)
    for i, row in enumerate(rows):
        row = row[:width + 1]
        inputs[i, :len(row) - 1] = torch.tensor(row[:-1])
        targets[i, :len(row) - 1] = torch.tensor(row[1:])
    targets[inputs == EOS] = IGNORED  # what follows a story is not for this model to say
    return inputs, targets


def batches(first, args, tokenizer, n_ctx):
    """Inputs and targets of step `first` and every later one."""
    for step in range(first, args.steps):
        if step == first or step % POOL == 0:
            stories = pool(step // POOL, args, tokenizer)
        rows = stories[step % POOL]
        if step % 8 == 7:
            rows = [sum(rows[i:i + 4], []) for i in range(0, len(rows), 4)]
        yield tensors(rows, n_ctx)


def decay(step, args):
    """Share of the peak rate: linear warm-up, then a cosine down to a hundredth."""
    if step < args.warmup:
        return (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


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
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--batch-stories", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW's peak")
    parser.add_argument("--lr-muon", type=float, default=0.02, help="Muon's peak")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--layers", type=int, default=Config.n_layer)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=200)
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
    for step, (inputs, targets) in enumerate(batches(first, args, tokenizer, config.n_ctx), first):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(),
                               ignore_index=IGNORED)
        model.zero_grad()
        loss.backward()
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * decay(step, args)
            optimizer.step()
        losses.append(loss.item())
        seen += int((targets != IGNORED).sum())

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
