// How a KV block lies in memory. The cache sees only block numbers; kernels see only this
// (common/kv_layout.glsl says the same to them).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "shaders/common/kv_types.h"

namespace pumice {

/// Tokens in one KV block.
inline constexpr uint32_t kKvBlockTokens = 16;

/// The quantised ones are ggml's: 32 neighbours along a head share a scale d in fp16. Q8_0 stores
/// round(x / d), where d = max |x| / 127; Q4_0 stores round(x / d) + 8 from 0 to 15, where -8 d is
/// the element of largest magnitude.
enum class KvType : uint32_t {
  kF32 = KV_F32,
  kF16 = KV_F16,
  kBF16 = KV_BF16,
  kQ8_0 = KV_Q8_0,
  kQ4_0 = KV_Q4_0,
};

/// What users call them, in the order of the enumeration.
inline constexpr std::array<std::string_view, 5> kKvTypeNames = {"f32", "f16", "bf16", "q8_0",
                                                                 "q4_0"};

constexpr std::string_view kv_type_name(KvType type) {
  return kKvTypeNames[static_cast<size_t>(type)];
}

constexpr std::optional<KvType> parse_kv_type(std::string_view name) {
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) {
    if (kKvTypeNames[i] == name) return static_cast<KvType>(i);
  }
  return std::nullopt;
}

/// Elements that share a scale; 1 of types that have none.
constexpr uint32_t kv_quant_elements(KvType type) { return type >= KvType::kQ8_0 ? 32 : 1; }

/// Bytes of one token's elements of one head.
constexpr uint32_t kv_row_bytes(KvType type, uint32_t head_dim) {
  const uint32_t scale_bytes = (head_dim + 63) / 64 * 4;  // whole words: two scales each
  switch (type) {
    case KvType::kF32:
      return head_dim * 4;
    case KvType::kQ8_0:
      return head_dim + scale_bytes;
    case KvType::kQ4_0:
      return head_dim / 2 + scale_bytes;
    default:
      return head_dim * 2;
  }
}

/// What keys and values are cached in.
struct KvTypes {
  KvType k = KvType::kF16;
  KvType v = KvType::kF16;

  constexpr KvTypes() = default;
  constexpr KvTypes(KvType both) : k(both), v(both) {}  // one type is the usual pair
  constexpr KvTypes(KvType keys, KvType values) : k(keys), v(values) {}

  bool operator==(const KvTypes&) const = default;

  bool quantised() const { return kv_quant_elements(k) > 1 || kv_quant_elements(v) > 1; }
  /// Bytes of one token's keys and values of one head.
  uint32_t row_bytes(uint32_t head_dim) const {
    return kv_row_bytes(k, head_dim) + kv_row_bytes(v, head_dim);
  }
  /// "q8_0", or "q8_0-f16" if keys and values differ.
  std::string name() const;
  /// That text. Nothing if it names no types.
  static std::optional<KvTypes> parse(std::string_view name);
};

/// Errors: kInvalidArgument, naming the types, if keys of `head_dim` and values of `v_dim` elements
/// a head (0: as many) cannot be kept in them; `what` names the one that refuses.
Status check_kv_types(std::string_view what, KvTypes types, uint32_t head_dim, uint32_t v_dim = 0);

/// One block holds `kKvBlockTokens` positions of every layer, contiguously:
///   [layer]{ K: [kv_head][head_dim / u][token][u],  V: [kv_head][token][v_dim] }
/// where u is the number of elements in 16 bytes. K is interleaved by 16-byte units so that lanes
/// that each own one token read contiguous memory; V is read by lanes that each own columns. In
/// quantised types a head's 16 tokens are followed by their scales, K: [head_dim / 64][token] and
/// V: [token][v_dim / 64] words of two. A token's rows are its own, to the last word.
struct KvLayout {
  KvTypes type;
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;   ///< a multiple of 8, and of kv_quant_elements
  bool has_values = true;  ///< else there is K alone, of which values are a part
  uint32_t v_dim = 0;      ///< of V, as head_dim; 0: that

  uint32_t value_dim() const { return v_dim != 0 ? v_dim : head_dim; }
  /// Bytes of one token's K and V of one head.
  uint32_t row_bytes() const {
    return kv_row_bytes(type.k, head_dim) + (has_values ? kv_row_bytes(type.v, value_dim()) : 0);
  }
  /// Bytes of K and V of one layer in a block.
  uint32_t layer_bytes() const { return kKvBlockTokens * n_kv_heads * row_bytes(); }
  uint32_t layer_offset_bytes(uint32_t layer) const { return layer * layer_bytes(); }
  uint64_t block_bytes() const { return uint64_t{n_layers} * layer_bytes(); }
};

}  // namespace pumice
