// Rows of KV memory on the host (kv_layout.hpp), for cases: what a row becomes in a type, and what
// is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shaders/common/kv_layout.hpp"

namespace pumice::ops {

/// The scale of 32 elements in a quantised type, before it is rounded to fp16.
double kv_scale_of(KvType type, std::span<const double> elements);

/// `values` as the row of `token` of the head that begins `head`; they become what is stored.
void store_kv_row(std::span<std::byte> head, KvType type, bool is_v, uint32_t token,
                  std::span<float> values);

/// The `head_dim` elements of that row. NaN where bytes are all ones, as outputs of cases are
/// before they are written.
std::vector<double> load_kv_row(std::span<const std::byte> head, KvType type, bool is_v,
                                uint32_t token, uint32_t head_dim);

}  // namespace pumice::ops
