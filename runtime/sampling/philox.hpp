// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): four random words as a pure function of a counter and a key, so that a token's randomness
// does not depend on what was drawn before, on which device, or in which batch.
//
// Only 32-bit operations: in GLSL `multiply` is umulExtended and the rest reads the same.
#pragma once

#include <array>
#include <cstdint>

namespace pumice {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  struct Product {
    uint32_t high, low;
  };
  const auto multiply = [](uint32_t a, uint32_t b) {
    const uint64_t product = uint64_t{a} * b;
    return Product{static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product)};
  };
  for (int round = 0; round < 10; ++round) {
    const Product even = multiply(0xD2511F53u, counter[0]);
    const Product odd = multiply(0xCD9E8D57u, counter[2]);
    counter = {odd.high ^ counter[1] ^ key[0], odd.low, even.high ^ counter[3] ^ key[1], even.low};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// What a random word is for; the third counter word. Numbers are never reused.
enum class PhiloxStream : uint32_t { kDraw = 0 };

/// Counter {index low, index high, stream, 0}, key {seed low, seed high}; the first output word.
constexpr uint32_t random_word(uint64_t seed, uint64_t token_index,
                               PhiloxStream stream = PhiloxStream::kDraw) {
  return philox4x32_10({static_cast<uint32_t>(token_index),
                        static_cast<uint32_t>(token_index >> 32), static_cast<uint32_t>(stream), 0},
                       {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0];
}

}  // namespace pumice
