"""Programs, their lowering and what the engine makes of them."""

MUTATIONS = [
    ("buffers in use at once share memory", "runtime/models/lowering.cpp",
     "b.first_use <= buffer.last_use && buffer.first_use <= b.last_use", "b.first_use == buffer.last_use",
     "test_models:Lowering.*"),
    ("layers of other windows share work lists", "runtime/models/lowering.cpp",
     "const auto found = std::ranges::find(classes, wanted);", "const auto found = classes.begin();",
     "test_reference:*WithF32Kv*gemma2"),
    ("a slot is sought from the start of its group's first page", "runtime/models/state_layout.cpp",
     "layer_offset_bytes(slot.slot - pages[i].first_slot)", "layer_offset_bytes(slot.slot)", "test_models:Lowering.*"),
    ("every state group keeps all", "runtime/models/state_layout.cpp",
     "group.window == 0 ? GroupKind::kFull : GroupKind::kWindow", "GroupKind::kFull", "test_models:Lowering.*"),
    ("what follows a cut reads a layer that is gone", "runtime/models/lowering.cpp",
     "if (cut.ops[i].result == last.output) cut.ops[i].result = output;", "(void)output;", "test_models:Lowering.*"),
    ("a factor of the embedding is lost", "runtime/models/lowering.cpp",
     "scale = static_cast<float>(factor->factor);", "scale = 1;", "test_reference:*WithF32Kv*gemma2"),
    ("every bias of a bundle is the first", "runtime/models/lowering.cpp",
     "add_bias({*bundle.bias, column}, y", "add_bias({*bundle.bias, 0}, y", "test_families:*Fusion*qwen2"),
    ("keys are as wide as queries", "runtime/models/lowering.cpp",
     "const uint32_t kv_dim = width(heads.k);", "const uint32_t kv_dim = width(heads.q);", "test_families:*Chunk*llama"),
    ("logits are those of the step's first rows", "runtime/models/decoder.cpp",
     "return gathers ? step_.logit_rows : vk::BufferRange{};", "(void)gathers; return {};",
     "test_reference:*Greedy*families_llama"),
    ("block tables are those of the first page", "runtime/models/decoder.cpp",
     "                    .block_table = memory_.block_tables[place.page],\n                    .kv = memory_.kv,\n"
     "                    .rows = n_rows_,",
     "                    .block_table = memory_.block_tables[0],\n                    .kv = memory_.kv,\n"
     "                    .rows = n_rows_,", "test_families:*gemma2"),
    ("long contexts begin a token early", "shaders/rope_kv/rope_table.cpp",
     "context_tokens > original_context", "context_tokens >= original_context", "test_models:LongRope.*"),
    ("angles are those of short contexts", "runtime/models/decoder.cpp",
     "rope.for_context(limits.context_tokens)", "rope.for_context(0)", "test_families:LongRope.*"),
]
