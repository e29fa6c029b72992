#!/usr/bin/env python3
"""Seed bugs into cache/ and scheduler/ one by one; the model-based fuzz must notice each.

    mutations.py BUILD [--steps N] [--only WORD]

BUILD is a Ninja build folder with test_model_fuzz in it. A mutant is one source file with one
change, compiled in a temporary folder as the build compiles it (but -O1) and linked before the
libraries, so that it takes the place of the true one. Exit 0: all were caught.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (what is broken, file, text, its replacement). The text must occur exactly once.
MUTATIONS = [
    ("content is not compared on a hit", "cache/prefix_index.cpp",
     "if (nodes_[id].parent != parent) return false;", "if (nodes_[id].parent != parent || true) return true;"),
    ("the last prompt token may be cached", "cache/kv_cache.cpp",
     "const uint32_t n_usable = prompt.n_tokens - 1;", "const uint32_t n_usable = prompt.n_tokens;"),
    ("a tail is used without being copied", "cache/kv_cache.cpp",
     "    copy(id, tail_source, target, match.tail.n_words);", "    pool_.release({&tail_source, 1}); (void)target;"),
    ("a shared block is not referenced", "cache/kv_cache.cpp",
     "if (block != kNoBlock) pool_.share(block);", "if (block != kNoBlock && pool_.references(block) == 0) pool_.share(block);"),
    ("the block used last is given up first", "cache/block_pool.cpp",
     "entry.previous = entry.cached ? tail_ : kNoBlock;\n  entry.next = entry.cached ? kNoBlock : head_;",
     "entry.previous = kNoBlock;\n  entry.next = head_;"),
    ("a sequence's head is given up before its tail", "cache/block_pool.cpp",
     "for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {", "for (auto it = blocks.begin(); it != blocks.end(); ++it) {"),
    ("blocks are shared before they are computed", "cache/kv_cache.cpp",
     "filled.computed_tokens / options_.block_tokens);", "filled.blocks.size());"),
    ("the salt is ignored", "cache/prefix_index.cpp",
     "const auto it = roots_.find(RootKey{model, std::string(salt)});",
     "const auto it = roots_.empty() || salt.empty() ? roots_.find(RootKey{model, std::string(salt)}) : roots_.begin();"),
    ("a partial block is kept as if all of it were computed", "cache/kv_cache.cpp",
     "std::min<size_t>(ended.prompt.content.size(), ended.computed_tokens);",
     "std::min<size_t>(ended.prompt.content.size(), ended.blocks.size() * options_.block_tokens);"),
    ("a pin holds nothing", "cache/kv_cache.cpp",
     "    pool_.share(block);\n    pins_[id].blocks.push_back(block);", "    if (pins_.size() > 9) pool_.share(block);"),
    ("a step may exceed its budget by one", "scheduler/scheduler.cpp",
     "options_.chunk_tokens, options_.token_budget - used});", "options_.chunk_tokens, options_.token_budget + 1 - used});"),
    ("prefill goes before decode", "scheduler/scheduler.cpp",
     "  plan_decodes(plan, open);\n  plan_prefills(plan, open, now_s);", "  plan_prefills(plan, open, now_s);\n  plan_decodes(plan, open);"),
    ("a prompt half read may decode", "scheduler/scheduler.cpp",
     "if (request.generated_tokens == 0 && request.pending_samples == 0) return false;  // a prompt", ""),
    ("rollback forgets the token being sampled", "scheduler/scheduler.cpp",
     "request.pending_samples -= it->chunk.samples ? 1 : 0;", ""),
    ("rollback keeps the blocks of a decoding row", "scheduler/scheduler.cpp",
     "if (it->chunk.decodes) cache_.shrink(*request.sequence, request.scheduled_tokens);", ""),
    ("rollback leaves started requests running", "scheduler/scheduler.cpp",
     "if (request->epoch == epoch && request->running()) suspend(*request);", "(void)request; (void)epoch;"),
    ("who is served first is preempted first", "scheduler/scheduler.cpp",
     "for (auto it = running_.rbegin(); it != running_.rend(); ++it) {", "for (auto it = running_.begin(); it != running_.end(); ++it) {"),
    ("someone of the same class is preempted for an admission", "scheduler/scheduler.cpp",
     "worst->service_class > request.service_class ? worst", "worst->service_class >= request.service_class ? worst"),
    ("the cap on prompts half read is one too high", "scheduler/scheduler.cpp",
     "n_partial < options_.max_partial_prefills", "n_partial <= options_.max_partial_prefills"),
    ("more requests run than may", "scheduler/scheduler.cpp",
     "while (running_.size() >= options_.max_running) {", "while (running_.size() > options_.max_running) {"),
    ("a request that did not fit is never tried again", "scheduler/scheduler.cpp",
     "  deadlines_.erase({request.deadline_s, request.id});\n  blocked_.reset();", "  deadlines_.erase({request.deadline_s, request.id});"),
    ("deadlines pass unnoticed", "scheduler/scheduler.cpp",
     "deadlines_.begin()->first < now_s", "deadlines_.begin()->first + 1 < now_s"),
    ("the window is one too long", "scheduler/scheduler.cpp",
     "request.sequence_tokens > options_.window_tokens) {", "request.sequence_tokens > options_.window_tokens + 1) {"),
    ("steps under way count after a preemption", "scheduler/scheduler.cpp",
     "request.pending_samples = 0;\n  ++request.epoch;", "request.pending_samples = 0;"),
    ("who may share what was read meanwhile is not tried again", "scheduler/scheduler.cpp",
     "if (!chunk.decodes) blocked_.reset();", ""),
    ("run-ahead does not count tokens being sampled", "scheduler/scheduler.cpp",
     "if (request.generated_tokens + request.pending_samples >= request.max_new_tokens) return false;",
     "if (request.generated_tokens >= request.max_new_tokens) return false;"),
    ("requests run ahead that must not", "scheduler/scheduler.cpp",
     "if (request.pending_samples > 0 && !request.runs_ahead) return false;", ""),
    ("a copy's source is not held until it is copied", "cache/kv_cache.cpp",
     "if (source != kNoBlock && pool_.references(source) == 0) ++n_wanted;  // held until it is copied", ""),
    ("a finished copy keeps its source", "cache/kv_cache_transfers.cpp",
     "    if (done.sequence == kNoSequence) continue;\n    pool_.release({&done.source, 1});",
     "    if (done.sequence == kNoSequence) continue;"),
    ("what a failed copy left behind is used", "cache/kv_cache_transfers.cpp",
     "answer(done.sequence, !failures.all);", "answer(done.sequence, true);"),
]


def commands(build):
    """How the build compiles each source and links the fuzz."""
    compiles = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        compiles[pathlib.Path(entry["directory"], entry["file"]).resolve()] = entry["command"]
    listing = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "test_model_fuzz"],
                             capture_output=True, text=True, check=True)
    link = [line for line in listing.stdout.splitlines() if "-o tests/model_fuzz/test_model_fuzz" in line][-1]
    return compiles, link


def mutated_source(file, text, replacement, folder):
    source = (ROOT / file).read_text()
    if source.count(text) != 1:
        raise SystemExit(f"{file} has {source.count(text)} times: {text}")
    mutant = folder / pathlib.Path(file).name
    mutant.write_text(source.replace(text, replacement))
    return mutant


def build_mutant(build, compiles, link, file, mutant, folder):
    words = [word for word in shlex.split(compiles[(ROOT / file).resolve()]) if not re.fullmatch(r"-O\d|-Werror|-W.*", word)]
    words = [str(mutant) if (build / word).resolve() == (ROOT / file).resolve() else word for word in words]
    words[words.index("-o") + 1] = str(folder / "mutant.o")
    subprocess.run(words + ["-O1", "-w"], cwd=build, check=True)
    # Ninja's link lines are ": && compiler … -o program … && :".
    words = shlex.split(link.removeprefix(": && ").removesuffix(" && :"))
    at = words.index("-o")
    program = folder / "mutant"
    words[at:at + 2] = [str(folder / "mutant.o"), "-o", str(program)]
    subprocess.run(words, cwd=build, check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=40000, help="random steps in which each must be noticed")
    parser.add_argument("--only", default="", help="those whose description has this word")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    compiles, link = commands(build)

    def try_one(mutation):
        what, file, text, replacement = mutation
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            mutant = mutated_source(file, text, replacement, folder)
            program = build_mutant(build, compiles, link, file, mutant, folder)
            try:
                run = subprocess.run([program], env={**os.environ, "PUMICE_FUZZ_STEPS": str(arguments.steps)},
                                     capture_output=True, text=True, timeout=300)
                caught = run.returncode != 0
                found = re.search(r"^seed.*$", run.stdout, re.MULTILINE)
                how = re.sub(r" \(blocks.*?\)", "", found.group(0)) if found else f"exit {run.returncode}"
            except subprocess.TimeoutExpired:
                caught, how = True, "it does not end"
        print(f"{'caught' if caught else 'MISSED'}  {what}: {how} [{time.monotonic() - started:.0f} s]", flush=True)
        return caught

    chosen = [mutation for mutation in MUTATIONS if arguments.only in mutation[0]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        n_caught = sum(pool.map(try_one, chosen))
    print(f"{n_caught} of {len(chosen)} seeded bugs caught")
    return 0 if n_caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
