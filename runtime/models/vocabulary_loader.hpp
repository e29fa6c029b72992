// The tokenizer of a model file.
#pragma once

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// Errors (kBadFile): no vocabulary in the file, a tokenizer model that is not supported, or
/// malformed vocabulary data; each names the key.
Result<Tokenizer> load_tokenizer(const GgufFile& file);

}  // namespace pumice
