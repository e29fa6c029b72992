// Ragged chunks, their KV in no order, and what attention makes of them: for the cases of
// attention.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/common/paged_kv_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/flash_attention_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

inline constexpr uint32_t kAttentionLayers = 2;  // in a block
inline constexpr uint32_t kAttentionLayer = 1;   // the one that is read

struct AttentionChunk {
  uint32_t before;  // tokens already in the cache
  uint32_t rows;
};

struct AttentionInputs {
  std::vector<SequenceChunk> chunks;
  std::vector<uint32_t> contexts;   // of each sequence
  std::vector<uint32_t> positions;  // of each row
  uint32_t rows = 0;
};

inline AttentionInputs attention_inputs(std::span<const AttentionChunk> chunks) {
  AttentionInputs in;
  for (const AttentionChunk& chunk : chunks) {
    in.chunks.push_back({.seq = static_cast<uint32_t>(in.chunks.size()),
                         .first_row = in.rows,
                         .n_rows = chunk.rows,
                         .first_position = chunk.before});
    in.contexts.push_back(chunk.before + chunk.rows);
    for (uint32_t i = 0; i < chunk.rows; ++i) in.positions.push_back(chunk.before + i);
    in.rows += chunk.rows;
  }
  return in;
}

/// K and V of every sequence as they are stored: [seq] -> [position][kv_head][head_dim], and of V
/// [value_dim]; of a latent V is K.
struct AttentionKv {
  std::vector<std::vector<float>> k;
  std::vector<std::vector<float>> v;
};

/// KV memory of kAttentionLayer; NaN where nothing is stored.
inline Result<vk::BufferRange> fill_attention_kv(OpBed& bed, const PagedKvCase& paged,
                                                 const AttentionInputs& in, AttentionKv& values) {
  const KvLayout& layout = paged.layout();
  return bed.input(paged.size_bytes(), [&](std::span<std::byte> memory) {
    std::vector<std::byte> image(memory.size(), std::byte{0xFF});  // NaN where nothing is stored
    for (uint32_t seq = 0; seq < in.contexts.size(); ++seq) {
      const size_t n = size_t{in.contexts[seq]} * layout.n_kv_heads;
      auto& k = values.k.emplace_back(OpBed::normal_floats(n * layout.head_dim, 100 + 2 * seq));
      auto& v = values.v.emplace_back(OpBed::normal_floats(n * layout.value_dim(), 101 + 2 * seq));
      size_t at = 0;
      for (uint32_t position = 0; position < in.contexts[seq]; ++position) {
        for (uint32_t head = 0; head < layout.n_kv_heads; ++head, ++at) {
          paged.store(image, paged.k_row(kAttentionLayer, seq, position, head),
                      std::span(k).subspan(at * layout.head_dim, layout.head_dim));
          if (!layout.has_values) continue;
          paged.store(image, paged.v_row(kAttentionLayer, seq, position, head),
                      std::span(v).subspan(at * layout.value_dim(), layout.value_dim()));
        }
      }
      if (!layout.has_values) v = k;
    }
    std::copy(image.begin(), image.end(), memory.begin());
  });
}

/// Blocks of each sequence that lie wholly behind the window of its chunk's first row.
inline std::vector<uint32_t> blocks_behind(uint32_t window, const AttentionInputs& in) {
  std::vector<uint32_t> blocks;
  for (const SequenceChunk& chunk : in.chunks) {
    const uint32_t seen = chunk.first_position + 1;
    blocks.push_back(window != 0 && seen > window ? (seen - window) / kKvBlockTokens : 0);
  }
  return blocks;
}

/// Tiles of which each subgroup has rows of its own: the smallest of two, which CPU drivers compile
/// in seconds. Of a device that has matrices.
inline FlashAttention::Tuning own_rows_tuning(const vk::DevicePlan& plan) {
  const vk::MatrixShape& matrix = *half_matrix_shape(plan);
  return {.path = FlashAttention::Path::kMatrix,
          .workgroup_size = 2 * plan.matrix_subgroup_size,
          .max_tile_rows = 2 * matrix.m,
          .key_tile = std::max({kKvBlockTokens, matrix.n, matrix.k}),
          .n_subgroups = 2,
          .matrix = matrix,
          .own_rows = true};
}

/// Of single rows: whole subgroups of the device's size, which it must know.
inline FlashAttention::Tuning subgroup_tuning(const vk::DevicePlan& plan, bool shared_q) {
  return {.path = FlashAttention::Path::kSubgroup,
          .workgroup_size = 4 * plan.subgroup_size,
          .max_tile_rows = 8,
          .subgroup_size = plan.subgroup_size,
          .flight = shared_q ? 2u : 1u,
          .unroll = 2,
          .shared_q = shared_q};
}

/// All of y. `tile_math` and `row_math` are of chunks of several rows and of one.
inline Expectation expect_attention(const FlashAttention::Shape& shape, Math tile_math,
                                    Math row_math, const AttentionInputs& in,
                                    const std::vector<float>& q, uint32_t q_stride, double scale,
                                    const AttentionKv& kv, std::span<const float> sinks = {}) {
  const uint32_t group = shape.n_heads / shape.n_kv_heads;
  const uint32_t v_stride = shape.latent_dim != 0 ? shape.head_dim : shape.value_dim();
  Expectation expected{.name = "y"};
  for (const SequenceChunk& chunk : in.chunks) {
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      for (uint32_t head = 0; head < shape.n_heads; ++head) {
        std::vector<const float*> k;
        std::vector<const float*> v;
        const uint32_t last = chunk.first_position + i;
        const uint32_t first =
            shape.window != 0 && last >= shape.window ? last + 1 - shape.window : 0;
        for (uint32_t position = first; position <= last; ++position) {
          const size_t at = size_t{position} * shape.n_kv_heads + head / group;
          k.push_back(&kv.k[chunk.seq][at * shape.head_dim]);
          v.push_back(&kv.v[chunk.seq][at * v_stride]);
        }
        const size_t row = chunk.first_row + i;
        expect_attention_row(&q[row * q_stride + head * shape.head_dim], k, v, shape.head_dim,
                             shape.value_dim(), scale, shape.soft_cap,
                             sinks.empty() ? std::nullopt : std::optional<double>(sinks[head]),
                             chunk.n_rows > 1 ? tile_math : row_math, shape.kv_type, expected);
      }
    }
  }
  return expected;
}

}  // namespace pumice::ops
