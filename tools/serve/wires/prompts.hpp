// Texts or tokens, one or several, as completions and embeddings take them.
#pragma once

#include <string_view>
#include <vector>

#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/fields.hpp"

namespace pumice::serve {

/// Prompts of a completion.
constexpr size_t kMostPrompts = 256;

/// Whether it is an array of what may be token ids, and not an empty one.
bool is_token_array(const Json& json);

/// By the field `name`: text, tokens, or an array of either, of `most` at most. In text control
/// tokens are these tokens. What is wrong is the fields' error.
std::vector<std::vector<TokenId>> read_prompts(Fields& fields, std::string_view name, size_t most,
                                               const ServedModel& model);

}  // namespace pumice::serve
