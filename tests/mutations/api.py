"""Bugs to seed into runtime/host/ and runtime/api/: see run.py."""

MUTATIONS = [
    # A conversation that was saved goes on as if it had not been.
    ("a saved answer's seed begins anew", "runtime/host/host_prompt.cpp",
     "request.first_output_index = record.last.next_output_index;", "request.first_output_index = 0;",
     "test_api:SavedSessions.*"),
    # Budgets.
    ("weights make no room for engines", "runtime/host/device_owner.cpp",
     "opened.options.engine = request.engine;", "", "test_api_vulkan:WeightsBeside.MakeRoom*"),
    # A lost device costs time and nothing else.
    ("a poll that notices a lost device says so and no more", "runtime/host/host_poll.cpp",
     "    PUMICE_TRY_STATUS(recover());\n    events =", "    return events.error();\n    events =",
     "test_api_vulkan:ApiLostDevice.*"),
    ("a lost device's model is looked for in another folder", "runtime/api/files.cpp",
     "    PUMICE_TRY(source.path, absolute_path(source.path));\n", "",
     "test_api_vulkan:ApiLostDevice.*"),
    ("a device that never comes back is waited for whatever the policy says", "runtime/host/host_recovery.cpp",
     "  if (retry_.tries >= retry_policy_.most_tries) give_up_waiting();\n", "", "test_host:HostTest.ADeviceThatIsLostAgain*"),
    ("a conversation that is set back goes on with what it was", "runtime/host/host.cpp",
     "  open.tokens.clear();\n  open.last = {};\n  open.turns.clear();\n", "", "test_host:HostTest.AConversationIsWhatWasSaid*"),
    ("what a closed loading had opened is read no more", "runtime/host/model_loading.cpp",
     "  (void)cancel();", "  *cancelled_ = true;", "test_api_vulkan:ApiLostDevice.*Adapters*"),
    # What others hand in is bounded and looked at.
    ("an adapter's name is any adapter's", "runtime/api/options.cpp",
     "static_cast<uint32_t>(found - adapters.begin()) + 1;", "uint32_t{1};", "test_api:ApiAdapters.*"),
    ("text need not be UTF-8", "runtime/api/structs.cpp",
     "if (n_valid == text.size()) return text;", "if (n_valid <= text.size()) return text;", "test_api:Engines.*"),
]
