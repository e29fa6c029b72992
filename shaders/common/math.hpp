// How precisely products may be computed: `--math`. Ops choose their variants by it.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace pumice::ops {

enum class Math {
  kAuto,  ///< the fastest as precise as kF16: that on a GPU's matrix cores, else kF32
  kF32,   ///< fp32 throughout
  kF16,   ///< fp16 inputs, fp32 sums
  kI8,  ///< inputs quantised to 8 bits in blocks, exact integer sums within a block; only if asked
};

/// What users call them, in the order of the enumeration.
constexpr std::array<std::string_view, 4> kMathNames = {"auto", "f32", "f16", "i8"};

constexpr std::string_view math_name(Math math) { return kMathNames[static_cast<size_t>(math)]; }

constexpr std::optional<Math> parse_math(std::string_view name) {
  for (size_t i = 0; i < kMathNames.size(); ++i) {
    if (kMathNames[i] == name) return static_cast<Math>(i);
  }
  return std::nullopt;
}

}  // namespace pumice::ops
