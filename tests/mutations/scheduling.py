"""Bugs to seed into cache/ and scheduler/: see run.py."""

FUZZ = "test_model_fuzz"

MUTATIONS = [
    # Reuse never changes what is said.
    ("content is not compared on a hit", "cache/prefix_index.cpp",
     "if (nodes_[id].parent != parent) return false;", "if (nodes_[id].parent != parent || true) return true;", FUZZ),
    ("the salt is ignored", "cache/prefix_index.cpp",
     "const auto it = roots_.find(RootKey{model, std::string(salt)});",
     "const auto it = roots_.empty() || salt.empty() ? roots_.find(RootKey{model, std::string(salt)}) : roots_.begin();", FUZZ),
    ("the last prompt token may be cached", "cache/kv_cache_find.cpp",
     "const uint32_t n_usable = prompt.n_tokens - 1;", "const uint32_t n_usable = prompt.n_tokens;", FUZZ),
    ("a tail is used without being copied", "cache/kv_cache.cpp",
     "      copy(id, g, tail_sources[g], target, match.tail.n_words);",
     "      pool_.release({&tail_sources[g], 1}); (void)target;", FUZZ),
    ("blocks are shared before they are computed", "cache/kv_cache_sequence.cpp",
     "filled.computed_tokens / options_.block_tokens);", "filled.held[0].blocks.size());", FUZZ),
    ("a copy's source is not held until it is copied", "cache/kv_cache.cpp",
     "if (source != kNoPage && pool_.references(source) == 0) ++n_wanted;", "", FUZZ),
    ("what a failed copy left behind is used", "cache/kv_cache_transfers.cpp",
     "answer(done.sequence, !failures.all);", "answer(done.sequence, true);", FUZZ),
    ("a restore takes bytes that were never saved", "cache/kv_cache_transfers.cpp",
     "!failed(failures.restores, i) && !done.empty;", "!failed(failures.restores, i);", "test_cache:ByteMoverTest.*"),
    ("damage to evicted blocks on disk goes unnoticed", "cache/file_tier.cpp",
     "if (block_checksum(bytes) == content.checksum) return {};", "return {};", "test_cache:Tiers.*"),
    ("an adopted page is found before it is written", "cache/kv_cache_adopt.cpp",
     "if (entry.is_new) entry.page = take_page();",
     "if (page.is_new) {\n      page.block = take_block();\n      index_.attach(page.page, page.block);\n"
     "      pool_.set_cached(page.block, true);\n    }", "test_cache:*Adoption*"),
    ("a sequence looks for moved blocks where they were", "cache/kv_cache_resize.cpp",
     "for (PageId& page : held.blocks) follow(page);", "", "test_cache:CacheResize.*"),
    # One owner: blocks and slots.
    ("a shared block is not referenced", "cache/kv_cache.cpp",
     "      pool_.share(page);\n    } else {", "      if (pool_.references(block) == 0) pool_.share(page);\n    } else {", FUZZ),
    ("a slot that a step names is given out again", "scheduler/request_slots.cpp",
     "if (--uses_[slot] == 0) free_.push_back(slot);", "--uses_[slot];\n  free_.push_back(slot);", "test_scheduler:Slots.*"),
    # A step is a transaction.
    ("rollback forgets the token being sampled", "scheduler/scheduler.cpp",
     "request.pending_samples -= it->chunk.n_samples;", "", FUZZ),
    ("what a refused row wrote is kept", "scheduler/scheduler.cpp",
     "if (n_refused > 0) go_back(request.computed_tokens);", "", FUZZ),
    ("a state that refused rows changed is kept", "scheduler/scheduler.cpp",
     "if (n_refused > 0 && cache_.kinds().recurrent() != 0) {", "if (n_refused > 1000) {", FUZZ),

    ("something is planned behind a draft", "scheduler/scheduler_plan.cpp",
     "  if (request.pending_samples > 1)\n    return false;  // a draft", "  // a draft", FUZZ),

    ("rollback keeps the blocks of a decoding row", "scheduler/scheduler.cpp",
     "if (it->chunk.decodes) cache_.shrink(*request.sequence, request.scheduled_tokens);", "", FUZZ),
    ("rollback leaves started requests running", "scheduler/scheduler.cpp",
     "if (request->epoch == epoch && request->running()) suspend(*request);", "(void)request; (void)epoch;", FUZZ),
    ("steps under way count after a preemption", "scheduler/scheduler.cpp",
     "request.pending_samples = 0;\n  ++request.epoch;", "request.pending_samples = 0;", FUZZ),
    # Who is served.
    ("a step may exceed its budget by one", "scheduler/scheduler_plan.cpp",
     "options_.chunk_tokens, options_.token_budget - used});", "options_.chunk_tokens, options_.token_budget + 1 - used});", FUZZ),
    ("a prompt half read may decode", "scheduler/scheduler_plan.cpp",
     "if (request.generated_tokens == 0 && request.pending_samples == 0) return false;  // a prompt", "", FUZZ),
    ("someone of the same class is preempted for an admission", "scheduler/scheduler_service.cpp",
     "one.service_class > that_starts.service_class", "one.service_class >= that_starts.service_class", FUZZ),
    ("classes do not age", "scheduler/scheduler_service.cpp",
     "if (now_s - since_s >= options_.aging_s) set_turn(*first, true);", "", "test_scheduler:Aging.*"),
    ("a rate is not kept", "scheduler/scheduler_plan.cpp",
     "const bool due = request->due_s <= now_s && request->started_in", "const bool due = request->started_in", "test_scheduler:Rates.*"),
]
