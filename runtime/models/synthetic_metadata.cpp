#include "models/synthetic_metadata.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/check.hpp"

namespace pumice {
namespace {

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<uint32_t> as_count(const std::string& text) {
  uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

std::optional<float> as_number(const std::string& text) {
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

template <typename T>
std::vector<T> repeated(const std::vector<T>& values, uint32_t n) {
  std::vector<T> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back(values[i % values.size()]);
  return all;
}

}  // namespace

SyntheticMetadata::SyntheticMetadata(const SyntheticShape& shape)
    : prefix_(std::string(shape.architecture) + ".") {
  add_usual(shape);
  if (shape.extras.empty()) return;
  for (const std::string& word : parts_of(shape.extras, ' ')) {
    if (word.starts_with("+")) {
      add_tensor(std::string_view(word).substr(1));
    } else {
      add_extra(word);
    }
  }
}

void SyntheticMetadata::add_usual(const SyntheticShape& s) {
  const auto set = [&](std::string_view key, Value value) {
    this->set(prefix_ + std::string(key), std::move(value));
  };
  set("vocab_size", s.n_vocab);
  set("context_length", s.context_length);
  set("embedding_length", s.n_embd);
  set("block_count", s.n_layers);
  set("feed_forward_length", s.n_ff);
  set("attention.head_count", s.n_heads);
  set("attention.head_count_kv", s.n_kv_heads);
  set("attention.key_length", s.heads_of());
  set("attention.value_length", s.heads_of());
  set("attention.layer_norm_rms_epsilon", s.eps);
  if (s.window > 0) set("attention.sliding_window", s.window);
  set("rope.dimension_count", s.rotated());
  set("rope.freq_base", s.rope_base);
  if (s.rope_linear > 1) {
    set("rope.scaling.type", "linear");
    set("rope.scaling.factor", s.rope_linear);
  }
  if (s.rope_yarn > 1) {
    set("rope.scaling.type", "yarn");
    set("rope.scaling.factor", s.rope_yarn);
    set("rope.scaling.original_context_length",
        static_cast<uint32_t>(static_cast<float>(s.context_length) / s.rope_yarn));
  }
  if (s.original_context > 0) {
    const double longer = static_cast<double>(s.context_length) / s.original_context;
    set("rope.scaling.original_context_length", s.original_context);
    set("rope.scaling.attn_factor",
        static_cast<float>(std::sqrt(1 + std::log(longer) / std::log(s.original_context))));
  }
  if (s.n_experts > 0) {
    set("expert_count", s.n_experts);
    set("expert_used_count", s.n_experts_used);
  }
}

uint32_t SyntheticMetadata::n_layers() const {
  const auto key =
      std::ranges::find(keys_, prefix_ + "block_count", &decltype(keys_)::value_type::first);
  return std::get<uint32_t>(key->second);
}

/// "key=value"
void SyntheticMetadata::add_extra(std::string_view word) {
  const size_t equals = word.find('=');
  PUMICE_CHECK(equals != std::string_view::npos, "no key=value: " + std::string(word));
  const std::string name(word.substr(0, equals));
  const std::string key = name.starts_with("@") ? name.substr(1) : prefix_ + name;
  const std::string text(word.substr(equals + 1));
  const std::vector<std::string> parts = parts_of(text, ',');
  if (parts.size() == 1) {
    if (text == "true" || text == "false") return set(key, text == "true");
    if (const auto count = as_count(text)) return set(key, *count);
    if (const auto number = as_number(text)) return set(key, *number);
    return set(key, text);
  }
  std::vector<uint32_t> counts;
  std::vector<float> numbers;
  for (const std::string& part : parts) {
    if (const auto count = as_count(part)) counts.push_back(*count);
    if (const auto number = as_number(part)) numbers.push_back(*number);
  }
  PUMICE_CHECK(numbers.size() == parts.size(), "no list of numbers: " + std::string(word));
  if (counts.size() == parts.size()) return set(key, repeated(counts, n_layers()));
  set(key, repeated(numbers, n_layers()));
}

/// "name" or "name:AxB", in which {} stands for each layer.
void SyntheticMetadata::add_tensor(std::string_view word) {
  const size_t colon = word.find(':');
  Tensor tensor{.name = std::string(word.substr(0, colon)), .dims = {}};
  if (colon != std::string_view::npos) {
    for (const std::string& part : parts_of(word.substr(colon + 1), 'x')) {
      tensor.dims.push_back(as_count(part).value_or(0));
    }
  }
  const size_t layer = tensor.name.find("{}");
  if (layer == std::string::npos) {
    tensors_.push_back(std::move(tensor));
    return;
  }
  for (uint32_t i = 0; i < n_layers(); ++i) {
    Tensor of_layer = tensor;
    of_layer.name.replace(layer, 2, std::to_string(i));
    tensors_.push_back(std::move(of_layer));
  }
}

void SyntheticMetadata::set(std::string key, Value value) {
  const auto known = std::ranges::find(keys_, key, &decltype(keys_)::value_type::first);
  if (known != keys_.end()) {
    known->second = std::move(value);
  } else {
    keys_.emplace_back(std::move(key), std::move(value));
  }
}

void SyntheticMetadata::add_to(GgufHeader& header) const {
  for (const auto& [key, value] : keys_) {
    if (const auto* const counts = std::get_if<std::vector<uint32_t>>(&value)) {
      header.set_array(key, std::span(*counts));
    } else if (const auto* const numbers = std::get_if<std::vector<float>>(&value)) {
      header.set_array(key, std::span(*numbers));
    } else if (const auto* const text = std::get_if<std::string>(&value)) {
      header.set(key, std::string_view(*text));
    } else if (const auto* const flag = std::get_if<bool>(&value)) {
      header.set(key, *flag);
    } else if (const auto* const count = std::get_if<uint32_t>(&value)) {
      header.set(key, *count);
    } else {
      header.set(key, std::get<float>(value));
    }
  }
}

}  // namespace pumice
