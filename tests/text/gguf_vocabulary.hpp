// Vocabularies out of GGUF files, for tests (the models layer has its own, with better errors).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf.hpp"
#include "text/tokenizer.hpp"

namespace pumice::test {

constexpr uint64_t kMaxTokens = uint64_t{1} << 20;

template <typename T>
std::optional<T> optional_value(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  return value->as<T>().value();
}

inline std::vector<std::string_view> optional_strings(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return {};
  const GgufStrings strings = file.get_strings(key).value();
  return {strings.begin(), strings.end()};
}

template <typename T>
std::vector<T> optional_vector(const GgufFile& file, std::string_view key) {
  return file.find(key) == nullptr ? std::vector<T>() : file.get_vector<T>(key, kMaxTokens).value();
}

/// Views into `file`.
inline VocabularyData vocabulary_data(const GgufFile& file) {
  VocabularyData data;
  data.model = optional_value<std::string_view>(file, "tokenizer.ggml.model").value_or("");
  data.pre_tokenizer = optional_value<std::string_view>(file, "tokenizer.ggml.pre").value_or("");
  data.tokens = optional_strings(file, "tokenizer.ggml.tokens");
  data.scores = optional_vector<float>(file, "tokenizer.ggml.scores");
  data.types = optional_vector<int32_t>(file, "tokenizer.ggml.token_type");
  data.merges = optional_strings(file, "tokenizer.ggml.merges");
  data.bos_id = optional_value<uint32_t>(file, "tokenizer.ggml.bos_token_id");
  data.eos_id = optional_value<uint32_t>(file, "tokenizer.ggml.eos_token_id");
  data.unknown_id = optional_value<uint32_t>(file, "tokenizer.ggml.unknown_token_id");
  data.eot_id = optional_value<uint32_t>(file, "tokenizer.ggml.eot_token_id");
  data.eom_id = optional_value<uint32_t>(file, "tokenizer.ggml.eom_token_id");
  data.separator_id = optional_value<uint32_t>(file, "tokenizer.ggml.seperator_token_id");
  data.add_separator = optional_value<bool>(file, "tokenizer.ggml.add_sep_token");
  data.lower_case = optional_value<bool>(file, "tokenizer.ggml.normalizer.lowercase");
  data.strip_accents = optional_value<bool>(file, "tokenizer.ggml.normalizer.strip_accents");
  data.merge_spaces = optional_value<bool>(file, "tokenizer.ggml.remove_extra_whitespaces");
  for (int32_t byte : optional_vector<int32_t>(file, "tokenizer.ggml.precompiled_charsmap")) {
    data.charsmap.push_back(static_cast<uint8_t>(byte));
  }
  data.model_name = optional_value<std::string_view>(file, "general.name").value_or("");
  data.architecture = optional_value<std::string_view>(file, "general.architecture").value_or("");
  data.add_bos = optional_value<bool>(file, "tokenizer.ggml.add_bos_token");
  data.add_eos = optional_value<bool>(file, "tokenizer.ggml.add_eos_token");
  data.add_space_prefix = optional_value<bool>(file, "tokenizer.ggml.add_space_prefix");
  return data;
}

inline Tokenizer load_tokenizer(const std::filesystem::path& path) {
  const GgufFile file = GgufFile::open(path).value();
  return Tokenizer::create(vocabulary_data(file)).value();
}

}  // namespace pumice::test
