// The normalisation that a SentencePiece model was trained with
// (tokenizer.ggml.precompiled_charsmap): which sequences of bytes are replaced by which. Data of
// the file: the length of a table in bytes, the table, and the replacements, each ended by a NUL.
//
// The table is a double array (Aoe 1989, as in the darts-clone library): from the node at index i
// with unit u, byte c leads to the node at i ^ offset(u) ^ c, if that unit's label is c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice {

/// Immutable; safe to use from any thread. Without data it replaces nothing.
class Charsmap {
 public:
  struct Replacement {
    std::string_view text;
    size_t n_replaced;  ///< bytes at the beginning of the text, at least one
  };

  /// Fails with kBadFile when `data` is not of this form.
  static Result<Charsmap> create(const std::vector<uint8_t>& data);

  /// What the longest known beginning of `text` becomes. Where the table leads out of itself
  /// nothing is known.
  std::optional<Replacement> find(std::string_view text) const;

 private:
  /// Longer ones, to replace or to be replaced, are in no model; they bound work and memory.
  static constexpr size_t kMaxBytes = 64;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace pumice
