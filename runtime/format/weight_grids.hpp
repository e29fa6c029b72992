// The grids of the IQ types: points of several values at once, of which blocks hold the numbers.
// They are constants of the file format, chosen by its authors; restated as data from ggml-common.h
// of ggml (https://github.com/ggml-org/ggml, MIT License, Copyright (c) 2023-2026 The ggml
// authors).
//
// Each point is a word, in a form that suits shaders, which are given the same words:
//   IQ1, IQ2  8 values: nibble k of the low halves of the bytes is the code of value k, of the high
//             ones that of value 4 + k. Codes 0, 1, 2 are -1, 0, 1 in IQ1 and 8, 25, 43 in IQ2.
//   IQ3       4 values, a byte each.
#pragma once

#include <array>
#include <cstdint>

namespace pumice {

extern const std::array<uint32_t, 2048> kIq1SGrid;
extern const std::array<uint32_t, 256> kIq2XXSGrid;
extern const std::array<uint32_t, 512> kIq2XSGrid;
extern const std::array<uint32_t, 1024> kIq2SGrid;
extern const std::array<uint32_t, 256> kIq3XXSGrid;
extern const std::array<uint32_t, 512> kIq3SGrid;

}  // namespace pumice
