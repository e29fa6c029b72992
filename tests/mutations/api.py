"""Bugs to seed into runtime/api/: see run.py."""

HOST = "runtime/api/engine_host.cpp"
PROMPT = "runtime/api/engine_host_prompt.cpp"

MUTATIONS = [
    ("weights make no room for engines", "runtime/api/device_owner.cpp",
     "session.options.engine = request.engine;", "", "test_api_vulkan:WeightsBeside.MakeRoom*"),
    ("an engine that is named need not fit", "runtime/api/model.cpp",
     ".engine_may_differ = options.engine == nullptr", ".engine_may_differ = true", "test_api_vulkan:WeightsBeside.*"),
    ("a model is loaded for the default engine only", "runtime/engine/session.cpp",
     "if (!planner.fits(plan)) {", "if (false) {", "test_api_vulkan:WeightsBeside.AreLoadedWhere*"),
    ("a new engine's memory is not counted", "runtime/api/engine_host.cpp",
     "  see_device();\n  update_stats();\n}", "  see_device();\n}", "test_api_vulkan:WeightsBeside.*"),
    ("a saved answer counts as its prompt", HOST,
     ".n_prompt = n_tokens - session.last.n_tokens,", ".n_prompt = n_tokens,", "test_api:SavedSessions.*"),
    ("a saved answer's seed begins anew", PROMPT,
     "request.first_output_index = record.last.next_output_index;", "request.first_output_index = 0;",
     "test_api:SavedSessions.*"),
    ("text that no event brought is lost when a session is saved", HOST,
     "request->last.held_bytes = held.size();", "(void)held;", "test_api:SavedSessions.*"),
    ("a saved conversation forgets its messages", "runtime/api/session_note.cpp",
     ".n_messages = static_cast<uint32_t>(messages.size()),", ".n_messages = 0,", "test_api_misuse:SessionNotes.*"),
    ("who waits for a token that is due later polls all the time", HOST,
     "const double idle_s = engine_->next_due_s() - engine_->now();",
     "const double idle_s = engine_->idle() ? 1e9 : 0;", "test_api:Control.*"),
    ("who waits sleeps while memory is being given back", "runtime/engine/engine.cpp",
     "if (stepper_ != nullptr && stepper_->changes_memory()) return 0;", "", "test_api:Control.*"),
    ("a session's rate is dropped", PROMPT,
     "request.max_tokens_per_s = session.defaults.max_tokens_per_s;", "", "test_api:Control.*"),
    ("a poll that notices a lost device says so and no more", HOST,
     "      PUMICE_TRY_STATUS(recover());\n      events =", "      return events.error();\n      events =",
     "test_api_vulkan:ApiLostDevice.*"),
    ("a device that is not back is opened at every poll", HOST,
     "if (now < retry_.next) return", "if (false) return", "test_api_vulkan:ApiLostDevice.*"),
    ("the host's replacement is not noticed by engines that work", HOST,
     "return is_lost_ || generation_ != model_.owner->generation();", "return is_lost_;",
     "test_api_vulkan:ApiLostDevice.*"),
]
