#include "tools/serve/wires/prompts.hpp"

#include <fmt/core.h>

#include <utility>

namespace pumice::serve {
namespace {

void add_prompt(const Json& json, std::string_view name, Fields& fields, const ServedModel& model,
                std::vector<std::vector<TokenId>>& prompts) {
  if (is_token_array(json)) {
    for (const TokenId token : prompts.emplace_back(json.get<std::vector<TokenId>>())) {
      if (model.tokenizer->vocabulary().contains(token)) continue;
      return fields.fail(name, fmt::format("token {} is outside the vocabulary of {}", token,
                                           model.tokenizer->vocabulary().size()));
    }
    return;
  }
  if (!json.is_string()) {
    return fields.fail(name, "must be a text, an array of token ids, or an array of those");
  }
  Result<std::vector<TokenId>> tokens =
      model.tokenizer->encode(json.get<std::string>(), {.parse_special = true});
  if (!tokens.ok()) return fields.fail(name, tokens.error().message);
  if (tokens->empty()) return fields.fail(name, "is empty");
  prompts.push_back(std::move(tokens).value());
}

}  // namespace

bool is_token_array(const Json& json) {
  if (!json.is_array() || json.empty()) return false;
  for (const Json& one : json) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > UINT32_MAX) return false;
  }
  return true;
}

std::vector<std::vector<TokenId>> read_prompts(Fields& fields, std::string_view name, size_t most,
                                               const ServedModel& model) {
  std::vector<std::vector<TokenId>> prompts;
  const Json* const json = fields.find(name);
  if (json == nullptr) {
    fields.fail(name, "is missing");
  } else if (!json->is_array() || is_token_array(*json)) {
    add_prompt(*json, name, fields, model, prompts);
  } else if (json->empty() || json->size() > most) {
    fields.fail(name, fmt::format("must have from 1 to {} texts", most));
  } else {
    for (const Json& one : *json) add_prompt(one, name, fields, model, prompts);
  }
  return prompts;
}

}  // namespace pumice::serve
