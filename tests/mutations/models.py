"""Programs, their lowering and what the engine makes of them."""

MUTATIONS = [
    # Partitioning is invisible: chunks, batch mates, pieces of long contexts.
    ("every step begins a recurrence anew", "runtime/models/step_args.cpp",
     "item.begins = before == 0 ? 1 : 0;", "item.begins = 1;", "test_recurrent:*Chunks*lfm2"),
    ("every sequence has the first one's state", "runtime/models/step_args.cpp",
     "  return n_chunks++;", "  return n_chunks == 0 ? n_chunks++ : 0;", "test_recurrent:*BatchMates*lfm2"),
    ("recurrences whose bits must not depend on chunks go in pieces", "runtime/models/calls/recurrent.cpp",
     "binder.shared.invariant\n                                             ? ops::Recurrence::Tuning{}\n                                             : ops::", "ops::",
     "test_recurrent:*Chunks*granitehybrid_invariant"),
    ("expanded latents: where bits are promised too", "runtime/models/latent_expansion.cpp",
     "if (invariant || !one.expands)", "if ((invariant && context_tokens == 0) || !one.expands)", "test_models:LatentExpansion*"),
    ("expanded latents: a chunk's work is the first one's", "runtime/models/latent_expansion.cpp",
     "lists.tile_items.from(uint64_t{first_item} *", "lists.tile_items.from(uint64_t{0} *",
     "test_plain_transformers:ExpandedLatents*"),
    ("a new slot's table begins where its chunk does", "runtime/engine/requests.cpp",
     "const uint32_t first_entry = is_new ? 0 : chunk.first_position / block_tokens;",
     "const uint32_t first_entry = chunk.first_position / block_tokens;", "test_windows:*HostMemory*gemma2_f32"),
    ("logits are those of the step's first rows", "runtime/models/calls/norms.cpp",
     ".residual = step.at(c.residual),\n                              .weight = step.vector(c.weight),\n"
     "                              .y = step.at(c.y),\n"
     "                              .row_index = step.row_index(c.gathers),\n"
     "                              .rows = step.n_rows,\n                              .n = c.n,\n",
     ".residual = step.at(c.residual),\n                              .weight = step.vector(c.weight),\n"
     "                              .y = step.at(c.y),\n"
     "                              .rows = step.n_rows,\n                              .n = c.n,\n",
     "test_reference:*Greedy*families_llama"),
    ("texts of a step share blocks", "runtime/engine/embedder.cpp",
     "n_used += kv_blocks_of(n_tokens);", "n_used += n_tokens / kKvBlockTokens;", "test_embedder:*Together*bert_cls"),
    ("work lists end at a row's own position", "runtime/models/decoder_attention.cpp",
     "own.ahead = one.ahead;", "own.ahead = 0;", "test_embedder:*Together*nomic_bert"),
    # One owner: of activations and of pages.
    ("what is used of few rows alone counts as not in use", "runtime/models/decoder_buffers.cpp",
     "if (!b.few.meets(buffer.few)) continue;", "if (!b.uses.meets(buffer.uses)) continue;",
     "test_models:Lowering.MemoryIsShared*"),
    ("latents: parts of what is read later change in place", "runtime/models/fusion_patterns.cpp",
     "if (overlaps && std::max(reader, last_reader(result)) > op) return true;", "", "test_models:Lowering.APart*"),
    ("blocks of one page lie in the same place", "runtime/engine/device_state.cpp",
     "kv_->address(table.blocks[i]) + (j - first) * layout.kinds[kind].bytes;", "kv_->address(table.blocks[i]);",
     "test_recurrent:*Chunks*granitehybrid"),
    # What a file asks for and we cannot do is refused.
    ("smaller values: any family takes them", "runtime/models/metadata.cpp",
     "values == Values::kAsKeys && value_length != config.head_dim", "false && value_length != config.head_dim",
     "test_models_reference:MiMo2.*"),
    ("a block that predicts may have tensors that nothing reads", "runtime/models/program_tensors.cpp",
     "return !is_of_block(program.predicting_block, tensor);",
     "return true;",
     "test_models_reference:*PlainPrediction*.Tensors*"),
    ("a context is longer than the table of positions", "runtime/engine/engine.cpp",
     "most && options.context_tokens > *most", "most && options.context_tokens > *most + 1",
     "test_plain_transformers:*NoContext*"),
    # What a product of few rows does besides is done, and once.
    ("a norm is computed although products around it share it", "runtime/models/decoder.cpp",
     "if (other && calls_[*other]->covers(*shared_, context.n_rows)) {", "if (other && context.n_rows == 0) {",
     "test_few_rows:*llama"),
    ("products behind a shared norm do not scale", "runtime/models/calls/linear.cpp",
     "if (c_.scale && step.shared.linear.shares_norms(step.n_rows)) {", "if (c_.scale && step.n_rows == 0) {",
     "test_few_rows:*llama"),
    ("products of few rows gate by SiLU whatever the model does", "runtime/models/calls/linear.cpp",
     "finish.gated = c_.gate->kind;", "finish.gated = ActivationKind::kSilu;", "test_few_rows:*/gemma"),
    # The three references: goldens, plain transformers, and work that is given.
    ("Command R's pairs are halves", "runtime/models/families/command_r.cpp", "Pairs::kNeighbours", "Pairs::kHalves",
     "test_models_reference:*LogitsAgree*command_r"),
    ("weights of experts have the bias of the choice", "runtime/models/reference.cpp",
     "total += p[order[rank]];", "total += choosing[order[rank]];", "test_models_reference:*glm4moe*"),
    ("routers choose although experts are given", "runtime/models/calls/experts.cpp",
     ".given = routing == Routing::kGiven", ".given = false", "test_reference:*GivenExperts.*mixtral"),
    # What a reranker says of a text is its formula.
    ("a classifier's bias is dropped", "runtime/models/ranking.cpp",
     "bias_of(\"cls.output\"));", "ProgramBuilder::Bias::kNone);", "test_models_reference:RankingProgram.OfAnEncoder*"),
    ("a label's relevance leaves out the others", "runtime/models/ranking.cpp",
     "if (scores.size() == 1) return", "if (scores.size() <= 2) return", "test_serve_wires:Wires.DocumentsAreRanked*"),
]
