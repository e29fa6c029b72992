// Matrices of random blocks, for tests of the resident layout.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "format/resident_layout.hpp"

namespace pumice::test {

/// Random bytes, with one byte of slack in front so that nothing is aligned.
struct RandomMatrix {
  const WeightType& type;
  uint64_t n_rows;
  uint64_t n_cols;
  std::vector<std::byte> storage;

  RandomMatrix(const WeightType& weight_type, uint64_t rows, uint64_t cols)
      : type(weight_type), n_rows(rows), n_cols(cols), storage(1 + rows * type.file_bytes(cols)) {
    std::minstd_rand random(static_cast<uint32_t>(rows * 1000 + cols));
    // Without bits 2 and 6 no half or float has all exponent bits set: no infinities, no NaNs.
    for (std::byte& byte : storage) byte = static_cast<std::byte>(random() >> 8 & 0xBB);
  }
  const std::byte* blocks() const { return storage.data() + 1; }

  std::vector<float> dequantized() const {
    std::vector<float> out(n_rows * n_cols);
    dequantize(type, blocks(), out.size(), out.data());
    return out;
  }
  std::vector<std::byte> resident() const {
    std::vector<std::byte> out(resident_bytes(type, n_rows, n_cols), std::byte{0xEE});
    repack(type, blocks(), n_rows, n_cols, 0, n_row_groups(n_rows), out.data());
    return out;
  }
};

}  // namespace pumice::test
