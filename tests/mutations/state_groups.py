"""Bugs to seed into what cache/ and scheduler/ know of state groups: see run.py."""

FUZZ = "test_model_fuzz"

MUTATIONS = [
    # Windows and states: how work is cut, shared and taken back never changes what is said.
    ("a window sees one position too few", "cache/page_kind.cpp",
     "kinds_[kind].window_tokens - 1;  // besides its own", "kinds_[kind].window_tokens - 2;", FUZZ),
    ("a window gives back a block that the next position sees", "cache/kv_cache_sequence.cpp",
     "const uint32_t first = kinds_.first_kept_block(kind, committed.computed_tokens);",
     "const uint32_t first = committed.computed_tokens / options_.block_tokens;", FUZZ),
    ("a hit asks no window", "cache/kv_cache_find.cpp",
     "if (has_state && windows_hold(n, edge)) return", "if (has_state) return", FUZZ),
    ("a hit asks no state", "cache/kv_cache_find.cpp",
     "if (has_state && windows_hold(n, edge)) return", "if ((has_state || true) && windows_hold(n, edge)) return", FUZZ),
    ("a commit does not flip the state", "cache/kv_cache_sequence.cpp",
     "    if (kinds_.is_recurrent(g)) flip(committed, g);", "", FUZZ),
    ("rollback leaves states planned", "scheduler/scheduler.cpp",
     "cache_.unplan(*request.sequence, request.scheduled_tokens);", "", FUZZ),
    ("going back writes into a shared block", "cache/kv_cache_sequence.cpp",
     "const bool copies = n_tokens % options_.block_tokens != 0 && n_full < rewound.n_indexed;",
     "const bool copies = false;", "test_model_fuzz:ModelFuzz.TheCacheAlone*"),
]
