// Where parts of a buffer begin: at what every device lets a storage buffer's range begin.
#pragma once

#include <cstdint>

namespace pumice {

inline constexpr uint64_t kBufferAlignment = 256;

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace pumice
