// A program for people to read.
#pragma once

#include <string>
#include <vector>

#include "models/program.hpp"

namespace pumice {

/// An operation in words: what its value is called, which kind it is, what it reads, and its
/// constants ("4 heads of 64, 2 kv heads, scale 0.125").
struct OpText {
  std::string result;
  std::string kind;
  std::vector<std::string> inputs;   ///< names of values
  std::vector<std::string> tensors;  ///< names in the file
  std::string constants;             ///< may be empty
};
OpText describe_op(const Program& program, const Op& op);

/// Of consecutive layers that are alike but for their number the first is printed, under all their
/// numbers. One operation a line, ending in the width of its value:
///
///     attn_q = linear(attn_norm; attn_q.weight)  256
std::string program_text(const Program& program);

/// Layers [first, end) that are alike but for their number and the slots of their states.
struct AlikeLayers {
  uint32_t first = 0;
  uint32_t end = 0;
};
std::vector<AlikeLayers> alike_layers(const Program& program);

}  // namespace pumice
