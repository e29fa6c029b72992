#include "shaders/common/kv_row.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kUnitBytes = 16;
constexpr uint16_t kUntouched = 0xFFFF;  // of a scale: a NaN

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof(T));
  return value;
}

template <typename T>
void store(std::span<std::byte> bytes, size_t at, T value) {
  std::memcpy(&bytes[at], &value, sizeof(T));
}

uint32_t bits_of(KvType type) {
  constexpr uint32_t kBits[kKvTypeNames.size()] = {32, 16, 16, 8, 4};
  return kBits[static_cast<size_t>(type)];
}

/// Where rows of a head keep their elements and scales, in bytes from its start.
struct Places {
  KvType type;
  bool is_v;
  uint32_t token;
  uint32_t head_dim;

  size_t element(uint32_t d) const {
    const size_t byte = size_t{d} * bits_of(type) / 8;
    if (is_v) return size_t{token} * head_dim * bits_of(type) / 8 + byte;
    return byte / kUnitBytes * kUnitBytes * kKvBlockTokens + token * kUnitBytes + byte % kUnitBytes;
  }
  size_t scale(uint32_t block) const {
    const size_t words = (head_dim + 63) / 64;
    const size_t word = is_v ? token * words + block / 2 : block / 2 * kKvBlockTokens + token;
    return size_t{kKvBlockTokens} * head_dim * bits_of(type) / 8 + word * 4 + block % 2 * 2;
  }
};

void store_quantised(std::span<std::byte> head, const Places& at, std::span<float> values) {
  const bool q8 = at.type == KvType::kQ8_0;
  for (uint32_t first = 0; first < at.head_dim; first += 32) {
    const std::vector<double> block(&values[first], &values[first] + 32);
    const double scale = kv_scale_of(at.type, block);
    const uint16_t half = float_to_half(static_cast<float>(scale));
    store(head, at.scale(first / 32), half);
    for (uint32_t i = 0; i < 32; ++i) {
      const double steps = scale != 0 ? std::nearbyint(block[i] / scale) : 0;
      const auto q = static_cast<int32_t>(q8 ? steps : std::clamp(steps, -8.0, 7.0));
      const size_t byte = at.element(first + i);
      if (q8) {
        store(head, byte, static_cast<int8_t>(q));
      } else {
        const auto other = load<uint8_t>(head, byte) & (i % 2 == 0 ? 0xF0 : 0x0F);
        store(head, byte, static_cast<uint8_t>(other | (q + 8) << (i % 2 * 4)));
      }
      values[first + i] = half_to_float(half) * static_cast<float>(q);
    }
  }
}

double load_quantised(std::span<const std::byte> head, const Places& at, uint32_t d) {
  const auto byte = load<uint8_t>(head, at.element(d));
  const auto half = load<uint16_t>(head, at.scale(d / 32));
  if (half == kUntouched) return byte == 0xFF ? std::numeric_limits<double>::quiet_NaN() : 0;
  const int32_t q =
      at.type == KvType::kQ8_0 ? static_cast<int8_t>(byte) : (byte >> (d % 2 * 4) & 15) - 8;
  return double{half_to_float(half)} * q;
}

}  // namespace

double kv_scale_of(KvType type, std::span<const double> elements) {
  const double largest = *std::ranges::max_element(
      elements, [](double a, double b) { return std::abs(a) < std::abs(b); });
  return type == KvType::kQ8_0 ? std::abs(largest) / 127 : largest / -8;
}

void store_kv_row(std::span<std::byte> head, KvType type, bool is_v, uint32_t token,
                  std::span<float> values) {
  const Places at{type, is_v, token, static_cast<uint32_t>(values.size())};
  if (kv_quant_elements(type) > 1) return store_quantised(head, at, values);
  for (uint32_t d = 0; d < values.size(); ++d) {
    float& value = values[d];
    if (type == KvType::kF32) {
      store(head, at.element(d), value);
    } else if (type == KvType::kF16) {
      store(head, at.element(d), float_to_half(value));
      value = half_to_float(float_to_half(value));
    } else {
      store(head, at.element(d), float_to_bfloat16(value));
      value = bfloat16_to_float(float_to_bfloat16(value));
    }
  }
}

std::vector<double> load_kv_row(std::span<const std::byte> head, KvType type, bool is_v,
                                uint32_t token, uint32_t head_dim) {
  const Places at{type, is_v, token, head_dim};
  std::vector<double> values(head_dim);
  for (uint32_t d = 0; d < head_dim; ++d) {
    if (kv_quant_elements(type) > 1) {
      values[d] = load_quantised(head, at, d);
    } else if (type == KvType::kF32) {
      values[d] = load<float>(head, at.element(d));
    } else {
      const auto bits = load<uint16_t>(head, at.element(d));
      values[d] = type == KvType::kF16 ? half_to_float(bits) : bfloat16_to_float(bits);
    }
  }
  return values;
}

}  // namespace pumice::ops
