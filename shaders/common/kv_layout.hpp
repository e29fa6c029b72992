// How a KV block lies in memory. The cache sees only block numbers; kernels see only this.
#pragma once

#include <cstdint>

namespace pumice {

/// Tokens in one KV block.
inline constexpr uint32_t kKvBlockTokens = 16;

enum class KvType : uint32_t { kF32, kF16 };

/// One block holds `kKvBlockTokens` positions of every layer, contiguously:
///   [layer]{ K: [kv_head][head_dim / u][token][u],  V: [kv_head][token][head_dim] }
/// where u is the number of elements in 16 bytes. K is interleaved by 16-byte units so that lanes
/// that each own one token read contiguous memory; V is read by lanes that each own columns.
struct KvLayout {
  KvType type = KvType::kF16;
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;  ///< a multiple of 8

  uint32_t element_bytes() const { return type == KvType::kF32 ? 4 : 2; }
  /// Bytes of K (or of V) of one layer in a block.
  uint32_t plane_bytes() const { return kKvBlockTokens * n_kv_heads * head_dim * element_bytes(); }
  uint32_t layer_offset_bytes(uint32_t layer) const { return layer * 2 * plane_bytes(); }
  uint64_t block_bytes() const { return uint64_t{n_layers} * 2 * plane_bytes(); }
};

}  // namespace pumice
