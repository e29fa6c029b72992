#include "models/vocabulary_loader.hpp"

namespace pumice {
namespace {

constexpr uint64_t kMaxTokens = 1u << 22;

Result<std::vector<std::string_view>> strings(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::vector<std::string_view>{};
  PUMICE_TRY(const GgufStrings values, file.get_strings(key));
  if (values.size() > kMaxTokens) {
    return make_error(ErrorCode::kBadFile, "{}: {} strings exceed {}", key, values.size(),
                      kMaxTokens);
  }
  return std::vector<std::string_view>(values.begin(), values.end());
}

template <typename T>
Result<std::vector<T>> numbers(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::vector<T>{};
  return file.get_vector<T>(key, kMaxTokens);
}

template <typename T>
Result<std::optional<T>> optional(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::optional<T>{};
  PUMICE_TRY(const T value, file.get<T>(key));
  return std::optional<T>(value);
}

}  // namespace

Result<Tokenizer> load_tokenizer(const GgufFile& file) {
  if (file.find("tokenizer.ggml.tokens") == nullptr) {
    return make_error(ErrorCode::kBadFile, "the file has no tokenizer.ggml.tokens: no vocabulary");
  }
  VocabularyData data;
  PUMICE_TRY(data.model, file.get<std::string_view>("tokenizer.ggml.model"));
  PUMICE_TRY(data.pre_tokenizer, file.get_or<std::string_view>("tokenizer.ggml.pre", ""));
  PUMICE_TRY(data.tokens, strings(file, "tokenizer.ggml.tokens"));
  PUMICE_TRY(data.scores, numbers<float>(file, "tokenizer.ggml.scores"));
  PUMICE_TRY(data.types, numbers<int32_t>(file, "tokenizer.ggml.token_type"));
  PUMICE_TRY(data.merges, strings(file, "tokenizer.ggml.merges"));
  PUMICE_TRY(data.bos_id, optional<uint32_t>(file, "tokenizer.ggml.bos_token_id"));
  PUMICE_TRY(data.eos_id, optional<uint32_t>(file, "tokenizer.ggml.eos_token_id"));
  PUMICE_TRY(data.unknown_id, optional<uint32_t>(file, "tokenizer.ggml.unknown_token_id"));
  PUMICE_TRY(data.eot_id, optional<uint32_t>(file, "tokenizer.ggml.eot_token_id"));
  PUMICE_TRY(data.eom_id, optional<uint32_t>(file, "tokenizer.ggml.eom_token_id"));
  PUMICE_TRY(data.separator_id, optional<uint32_t>(file, "tokenizer.ggml.seperator_token_id"));
  PUMICE_TRY(data.fill_prefix_id, optional<uint32_t>(file, "tokenizer.ggml.fim_pre_token_id"));
  PUMICE_TRY(data.fill_suffix_id, optional<uint32_t>(file, "tokenizer.ggml.fim_suf_token_id"));
  PUMICE_TRY(data.fill_middle_id, optional<uint32_t>(file, "tokenizer.ggml.fim_mid_token_id"));
  PUMICE_TRY(data.add_separator, optional<bool>(file, "tokenizer.ggml.add_sep_token"));
  PUMICE_TRY(data.lower_case, optional<bool>(file, "tokenizer.ggml.normalizer.lowercase"));
  PUMICE_TRY(data.strip_accents, optional<bool>(file, "tokenizer.ggml.normalizer.strip_accents"));
  PUMICE_TRY(data.merge_spaces, optional<bool>(file, "tokenizer.ggml.remove_extra_whitespaces"));
  PUMICE_TRY(const std::vector<int32_t> charsmap,
             numbers<int32_t>(file, "tokenizer.ggml.precompiled_charsmap"));
  for (int32_t byte : charsmap) data.charsmap.push_back(static_cast<uint8_t>(byte));
  PUMICE_TRY(data.model_name, file.get_or<std::string_view>("general.name", ""));
  PUMICE_TRY(data.architecture, file.get_or<std::string_view>("general.architecture", ""));
  PUMICE_TRY(data.add_bos, optional<bool>(file, "tokenizer.ggml.add_bos_token"));
  PUMICE_TRY(data.add_eos, optional<bool>(file, "tokenizer.ggml.add_eos_token"));
  PUMICE_TRY(data.add_space_prefix, optional<bool>(file, "tokenizer.ggml.add_space_prefix"));
  return Tokenizer::create(data);
}

}  // namespace pumice
