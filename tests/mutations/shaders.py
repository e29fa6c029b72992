"""Bugs of the operations' typed calls."""

MUTATIONS = [
    # However an operation is cut, each share does its own part.
    ("every share of a recurrence is of the first heads", "shaders/recurrence/recurrence.cpp",
     "moved.first_head = first;", "moved.first_head = first * 0;", "test_ops:*recurrence*"),
    ("every share of attention is of the first heads", "shaders/flash_attention/flash_attention.cpp",
     "moved.first_head_tile = tiles.first;", "", "test_attention_invariance:*"),
    ("every share of an item's keys begins at the first", "shaders/flash_attention/flash_attention.cpp",
     "moved.first_key_tile = key_tiles[k].first;", "", "test_attention_invariance:*"),
    ("every share of a product that begins a norm writes the first squares", "shaders/gemv/gemv.cpp",
     "added.squares, first_row / GEMV_SQUARES);", "added.squares, 0);", "test_ops:*gemv_Q8_0_portable_added_rows_8*"),
    ("every share of gates takes the first ups", "shaders/gemv/gemv.cpp",
     "n + first, share.part.n_rows", "n, share.part.n_rows", "test_ops:*gemv_Q8_0_portable_gated_rows_3*"),
    ("gemm's rows are not shared out", "shaders/gemm/gemm.cpp",
     "rows_within(recorder.segment_limit(), n_tiles,", "rows_within({}, n_tiles,",
     "test_ops:*SegmentLimit*Q8_0"),
    # What a dispatch declares is what it does: costs, shared memory, ranges.
    ("every share of a product pays for all of x", "shaders/common/linear_args.cpp",
     "x_bytes * end / part.n_rows - x_bytes * begin / part.n_rows", "x_bytes", "test_linear_shares"),
    ("partial sums cost nothing", "shaders/common/linear_args.cpp",
     "some.range.size_bytes + x + copies * rows * n * 4", "some.range.size_bytes + x + rows * n * 4",
     "test_linear_shares"),
    ("pieces ask for less shared memory than they take", "shaders/recurrence/recurrence.cpp",
     "return floats * kFloat;", "return floats;", "test_ops:RecurrenceTest.*"),
    ("latents: parts of a transposed matrix need no barrier", "shaders/head_linear/head_linear.cpp",
     "first || transposed_ ? all : none", "first ? all : none", "test_ops:*head_linear*F32*"),
    # A kernel does what its formula says.
    ("a point of a grid is another", "runtime/format/weight_grids.cpp",
     "& 7u) + 1)", "& 7u) + 3)", "test_weights:*GridsAreThoseOfTheFormat"),
    ("heads of no whole scales are quantised", "shaders/common/kv_layout.cpp",
     "if (n % kv_quant_elements(type) == 0) return {};", "if (n > 0) return {};", "test_attention_host:KvTypes*"),
    ("values are read in the keys' type", "shaders/flash_attention/flash_attention.cpp",
     ".v_type = static_cast<uint32_t>(shape.kv_type.v)", ".v_type = static_cast<uint32_t>(shape.kv_type.k)",
     "test_ops:*flash_attention*head_dim_128_q8_0_q4_0*"),
    ("pairs are gathered from the first rank's rows", "shaders/expert_gemm/expert_gemm.cpp",
     "push.x_rank_stride = args.x_rank_stride;", "push.x_rank_stride = 0;", "test_ops:*expert_gemm*F32_shared*"),
]
