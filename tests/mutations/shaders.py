"""Bugs of the operations' typed calls."""

MUTATIONS = [
    ("every share of a product pays for all of x", "shaders/common/linear_args.cpp",
     "x_bytes * end / part.n_rows - x_bytes * begin / part.n_rows", "x_bytes", "test_linear_shares"),
    ("shares of a product begin between groups of rows", "shaders/common/linear_args.cpp",
     "std::lcm(tile_cols, kRowGroup)", "tile_cols", "test_linear_shares"),
    ("partial sums cost nothing", "shaders/common/linear_args.cpp",
     "some.range.size_bytes + x + copies * rows * n * 4", "some.range.size_bytes + x + rows * n * 4",
     "test_linear_shares"),
    ("every share reads the first weights", "shaders/common/weight_matrix.cpp",
     "part.range.subrange(first_group * group_bytes,", "part.range.subrange(0,", "test_linear_shares"),
    ("every share of gemm writes the first outputs", "shaders/gemm/gemm.cpp",
     "linear_push<GemmPush>(args, share.part)", "linear_push<GemmPush>(args, part)",
     "test_ops:*SegmentLimit*Q8_0"),
    ("every share of gemv writes the first outputs", "shaders/gemv/gemv.cpp",
     "linear_push<GemvPush>(out, share.part)", "linear_push<GemvPush>(out, part)", "test_ops:*SegmentLimit*Q8_0"),
    ("gemv does not split its products", "shaders/gemv/gemv.cpp",
     "linear_shares(args, part, recorder.segment_limit(),", "linear_shares(args, part, {},",
     "test_ops:*SegmentLimit*Q8_0"),
]
