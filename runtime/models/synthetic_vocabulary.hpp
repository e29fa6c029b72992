// A vocabulary for models with random weights: SentencePiece-like ("llama"), so that any GGUF
// program can tokenise with it.
#pragma once

#include <cstdint>

#include "format/gguf_writer.hpp"

namespace pumice {

/// Fewer tokens than this are too few for a vocabulary.
inline constexpr uint32_t kMinSyntheticVocabulary = 360;

/// Adds the tokenizer's keys: <unk>, <s>, </s>, the 256 bytes, printable ASCII, then strings of
/// small letters with and without a space before them, shortest first, `n_tokens` in all. Every
/// prefix of a string is a token too, so merges reach the longer ones. Does nothing if n_tokens is
/// below kMinSyntheticVocabulary.
void add_synthetic_vocabulary(GgufHeader& header, uint32_t n_tokens);

}  // namespace pumice
