#!/usr/bin/env python3
"""Trains the story model on freshly generated stories; one CPU thread and torch are enough.

    python3 train.py --tokenizer tokenizer.json --out DIR

DIR/checkpoint.pt holds weights, optimizer and step, and is written every --save-every steps; the
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


def learning_rate(step, args):
    """Linear warm-up, then a cosine down to a hundredth of the peak at the last step."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def make_optimizer(model, args):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=args.weight_decay),
              dict(params=vectors, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--batch-stories", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--weight-decay", type=float, default=0.05)
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
    optimizer = make_optimizer(model, args)
    path, first = os.path.join(args.out, "checkpoint.pt"), 0
    os.makedirs(args.out, exist_ok=True)
    if os.path.exists(path):
        stored = torch.load(path)
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
        first = stored["step"]
    print(f"{sum(p.numel() for p in model.parameters())} parameters, from step {first}", flush=True)

    started, seen, losses = time.monotonic(), 0, []
    for step, (inputs, targets) in enumerate(batches(first, args, tokenizer, config.n_ctx), first):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(),
                               ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": done, "config": dataclasses.asdict(config)}, path + ".new")
            os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
