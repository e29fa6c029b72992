#include "models/synthetic_metadata.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "base/ascii.hpp"
#include "base/check.hpp"

namespace pumice {
namespace {

/// Words of SyntheticShape::extras for several others each.
constexpr std::pair<std::string_view, std::string_view> kGroups[] = {
    {"delta_net",
     "ssm.conv_kernel=4 ssm.inner_size=128 ssm.state_size=32 ssm.time_step_rank=4 "
     "ssm.group_count=2 rope.dimension_count=32"},
    {"mamba2",
     "ssm.inner_size=256 ssm.time_step_rank=4 ssm.group_count=2 ssm.state_size=16 "
     "ssm.conv_kernel=4"},
    {"latents",
     "attention.kv_lora_rank=64 attention.key_length_mla=64 attention.value_length_mla=32 "
     "rope.dimension_count=16"},
    {"yarn",
     "rope.scaling.type=yarn rope.scaling.factor=4.0 rope.scaling.original_context_length=512"},
    {"temperature", "attention.temperature_scale=0.1 attention.temperature_length=4"},
    {"scales", "embedding_scale=12.0 residual_scale=0.25 logit_scale=8.0 attention.scale=0.0625"},
    {"experts", "expert_count=4 expert_used_count=2 expert_feed_forward_length=128"},
    {"one_dense", "expert_shared_count=1 leading_dense_block_count=1"},
    {"layer_norm", "attention.layer_norm_epsilon=1e-5"},
    {"window", "attention.sliding_window=8"},
};

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) parts.emplace_back(take_part(text, separator));
  return parts;
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
  add_extras(shape.extras);
}

void SyntheticMetadata::add_extras(std::string_view words) {
  for (const std::string& word : parts_of(words, ' ')) {
    const auto group =
        std::ranges::find(kGroups, word, &std::pair<std::string_view, std::string_view>::first);
    if (group != std::end(kGroups)) {
      add_extras(group->second);
    } else if (word.starts_with("+")) {
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
  set("block_count", s.n_layers + (s.predicts ? 1 : 0));
  if (s.predicts) set("nextn_predict_layers", 1u);
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
    if (const auto count = parse_whole<uint32_t>(text)) return set(key, *count);
    if (const auto number = parse_whole<float>(text)) return set(key, *number);
    return set(key, text);
  }
  std::vector<uint32_t> counts;
  std::vector<float> numbers;
  for (const std::string& part : parts) {
    if (const auto count = parse_whole<uint32_t>(part)) counts.push_back(*count);
    if (const auto number = parse_whole<float>(part)) numbers.push_back(*number);
  }
  if (numbers.empty()) return set(key, parts);
  PUMICE_CHECK(numbers.size() == parts.size(), "numbers and words: " + std::string(word));
  if (counts.size() == parts.size()) return set(key, repeated(counts, n_layers()));
  set(key, repeated(numbers, n_layers()));
}

/// "name" or "name:AxB", in which {} stands for each layer.
void SyntheticMetadata::add_tensor(std::string_view word) {
  const size_t colon = word.find(':');
  Tensor tensor{.name = std::string(word.substr(0, colon)), .dims = {}};
  if (colon != std::string_view::npos) {
    for (const std::string& part : parts_of(word.substr(colon + 1), 'x')) {
      tensor.dims.push_back(parse_whole<uint32_t>(part).value_or(0));
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
  for (const auto& one : keys_) {
    const auto set = [&](const auto& value) {
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_arithmetic_v<T>) {
        header.set(one.first, value);
      } else if constexpr (std::is_same_v<T, std::string>) {
        header.set(one.first, std::string_view(value));
      } else {
        header.set_array(one.first, std::span(value));
      }
    };
    std::visit(set, one.second);
  }
}

}  // namespace pumice
