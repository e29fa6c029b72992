// A kernel that is subtly wrong, made from a right one, to see that a self-test notices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice::test {

/// Every fma(a, b, c) becomes mix(a, b, c): valid SPIR-V with the same memory accesses, and other
/// numbers.
inline std::vector<uint32_t> wrong_kernel(std::span<const uint32_t> words) {
  constexpr uint32_t kOpExtInst = 12;
  constexpr uint32_t kFma = 50;
  constexpr uint32_t kFMix = 46;
  constexpr size_t kHeaderWords = 5;
  constexpr size_t kInstruction = 4;  // word of an OpExtInst
  std::vector<uint32_t> result(words.begin(), words.end());
  for (size_t i = kHeaderWords; i < result.size() && result[i] >> 16 != 0; i += result[i] >> 16) {
    if ((result[i] & 0xFFFF) == kOpExtInst && result[i + kInstruction] == kFma) {
      result[i + kInstruction] = kFMix;
    }
  }
  return result;
}

}  // namespace pumice::test
