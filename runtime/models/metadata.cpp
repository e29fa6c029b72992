#include "models/metadata.hpp"

#include <cmath>

#include "base/printable.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kMaxContext = 1u << 24;

}  // namespace

Result<uint32_t> Metadata::count(std::string_view key, uint32_t limit) const {
  PUMICE_TRY(const uint64_t value, get<uint64_t>(key));
  if (value == 0 || value > limit) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not in 1..{}", full(key), value, limit);
  }
  return static_cast<uint32_t>(value);
}

Status Metadata::read_dimensions(ModelConfig& config) const {
  config.architecture = prefix_;
  PUMICE_TRY(const std::string_view name, file_.get_or<std::string_view>("general.name", ""));
  config.name = name;
  PUMICE_TRY(config.n_layers, count("block_count", kMaxLayers));
  PUMICE_TRY(config.n_embd, count("embedding_length", kMaxWidth));
  PUMICE_TRY(config.n_ff, count("feed_forward_length", kMaxWidth));
  PUMICE_TRY(config.n_heads, count("attention.head_count", kMaxHeads));
  PUMICE_TRY(config.context_length, count("context_length", kMaxContext));
  config.n_kv_heads = config.n_heads;
  if (file_.find(full("attention.head_count_kv")) != nullptr) {
    PUMICE_TRY(config.n_kv_heads, count("attention.head_count_kv", kMaxHeads));
  }
  if (config.n_heads % config.n_kv_heads != 0) {
    return make_error(ErrorCode::kBadFile, "{}: {} heads cannot share {} kv heads",
                      full("attention.head_count_kv"), config.n_heads, config.n_kv_heads);
  }
  config.head_dim = config.n_embd / config.n_heads;
  if (file_.find(full("attention.key_length")) != nullptr) {
    PUMICE_TRY(config.head_dim, count("attention.key_length", kMaxHeadDim));
    PUMICE_TRY(const uint64_t value_length,
               get_or<uint64_t>("attention.value_length", config.head_dim));
    if (value_length != config.head_dim) {
      return make_error(ErrorCode::kBadFile, "{}: {} differs from key_length {}; not supported",
                        full("attention.value_length"), value_length, config.head_dim);
    }
  }
  if (config.head_dim == 0 || config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return make_error(ErrorCode::kBadFile, "{}: head_dim {} is not a multiple of 8 up to {}",
                      full("attention.key_length"), config.head_dim, kMaxHeadDim);
  }
  const GgufTensor* embedding = file_.find_tensor(TensorNames{}.token_embd);
  if (embedding == nullptr) {
    return make_error(ErrorCode::kBadFile, "the file has no tensor {}: not a model",
                      TensorNames{}.token_embd);
  }
  if (embedding->dims[1] > kMaxWidth) {
    return make_error(ErrorCode::kBadFile, "{}: {} vocabulary entries exceed {}",
                      TensorNames{}.token_embd, embedding->dims[1], kMaxWidth);
  }
  config.n_vocab = static_cast<uint32_t>(embedding->dims[1]);
  return {};
}

Status Metadata::read_rope(ModelConfig& config) const {
  ops::RopeConfig& rope = config.rope;
  PUMICE_TRY(const uint64_t dims, get_or<uint64_t>("rope.dimension_count", config.head_dim));
  if (dims == 0 || dims % 2 != 0 || dims > config.head_dim) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not an even number up to head_dim {}",
                      full("rope.dimension_count"), dims, config.head_dim);
  }
  rope.dims = static_cast<uint32_t>(dims);
  PUMICE_TRY(const float base, get_or<float>("rope.freq_base", 10000.0f));
  rope.base = base;

  PUMICE_TRY(const std::string_view type, get_or<std::string_view>("rope.scaling.type", ""));
  PUMICE_TRY(float factor, get_or<float>("rope.scaling.factor", 0.0f));
  if (factor == 0.0f) {  // the key older files use
    PUMICE_TRY(factor, get_or<float>("rope.scale_linear", 1.0f));
  }
  if (!(base > 0.0f) || !(factor > 0.0f) || !std::isfinite(base) || !std::isfinite(factor)) {
    return make_error(ErrorCode::kBadFile, "{}: base {} and scaling factor {} must be positive",
                      full("rope.freq_base"), base, factor);
  }
  rope.factor = factor;
  if (type == "none") {
    rope.scaling = ops::RopeScaling::kNone;
  } else if (type.empty() || type == "linear") {
    rope.scaling = factor == 1.0f ? ops::RopeScaling::kNone : ops::RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = ops::RopeScaling::kYarn;
    PUMICE_TRY(const uint64_t original,
               get_or<uint64_t>("rope.scaling.original_context_length", config.context_length));
    if (original == 0 || original > kMaxContext) {
      return make_error(ErrorCode::kBadFile, "{}: {} is not in 1..{}",
                        full("rope.scaling.original_context_length"), original, kMaxContext);
    }
    rope.original_context = static_cast<uint32_t>(original);
    PUMICE_TRY(const float attention, get_or<float>("rope.scaling.attn_factor", 1.0f));
    PUMICE_TRY(const float ext, get_or<float>("rope.scaling.yarn_ext_factor", 1.0f));
    PUMICE_TRY(const float fast, get_or<float>("rope.scaling.yarn_beta_fast", 32.0f));
    PUMICE_TRY(const float slow, get_or<float>("rope.scaling.yarn_beta_slow", 1.0f));
    rope.attn_factor = attention;
    rope.ext_factor = ext;
    rope.beta_fast = fast;
    rope.beta_slow = slow;
  } else {
    return make_error(ErrorCode::kBadFile, "{}: '{}' is not supported (none, linear, yarn)",
                      full("rope.scaling.type"), printable(type));
  }

  if (const GgufTensor* freqs = file_.find_tensor(TensorNames{}.rope_freqs)) {
    if (freqs->type->name != "F32" || freqs->n_elements() != rope.dims / 2 ||
        !source_.has_tensor_data()) {
      return make_error(ErrorCode::kBadFile, "{}: expected {} F32 values", freqs->name,
                        rope.dims / 2);
    }
    PUMICE_TRY(const std::vector<float> divisors, source_.values(*freqs));
    for (const float value : divisors) {
      if (!(value > 0.0f) || !std::isfinite(value)) {
        return make_error(ErrorCode::kBadFile, "{}: divisor {} is not positive", freqs->name,
                          value);
      }
      rope.freq_divisors.push_back(value);
    }
  }
  // What remains to be checked of the scaling is checked where its formulas are.
  const Result<ops::RopeFrequencies> frequencies = ops::rope_frequencies(rope);
  if (!frequencies.ok()) {
    return make_error(ErrorCode::kBadFile, "{}: {}", full("rope"), frequencies.error().message);
  }
  return {};
}

}  // namespace pumice
