// Attention of one model's shapes for timing.
#pragma once

#include <span>
#include <vector>

#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// Of each a prompt's first chunk, and one token after many; as flash_attention_bench_cases has of
/// well-known models. Without sinks and latents.
std::vector<OpCase> flash_attention_bench_cases(const BenchScale& scale,
                                                std::span<const FlashAttention::Shape> shapes);

}  // namespace pumice::ops
