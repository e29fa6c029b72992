#include "models/metadata.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/printable.hpp"
#include "shaders/causal_conv/causal_conv.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxHeads = 1024;
constexpr uint32_t kMaxHeadDim = 512;
constexpr uint32_t kMaxContext = 1u << 24;
constexpr uint32_t kMaxExperts = 1024;
constexpr uint64_t kRanks = 4;  // of pooling_type

constexpr std::string_view kTokenEmbd = "token_embd.weight";
constexpr std::string_view kRopeFreqs = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

}  // namespace

Result<uint32_t> Metadata::in_range(std::string_view key, uint64_t value, uint32_t least,
                                    uint32_t most) const {
  if (value >= least && value <= most) return static_cast<uint32_t>(value);
  return make_error(ErrorCode::kBadFile, "{}: {} is not in {}..{}", full(key), value, least, most);
}

Result<uint32_t> Metadata::read_count(std::string_view key, uint32_t limit) const {
  PUMICE_TRY(const uint64_t value, get<uint64_t>(key));
  return in_range(key, value, 1, limit);
}

Result<std::vector<uint32_t>> Metadata::read_layer_counts(std::string_view key, uint32_t n_layers,
                                                          Layers layers) const {
  PUMICE_TRY(const std::vector<uint32_t> counts, get_vector<uint32_t>(key));
  if (counts.size() != 1 && counts.size() != n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} numbers for {} layers", full(key), counts.size(),
                      n_layers);
  }
  for (const uint32_t value : counts) {
    if (value != 0 || layers != Layers::kSomeHaveNone) {
      PUMICE_TRY_STATUS(in_range(key, value, 1, kMaxWidth));
    }
  }
  return counts.size() == n_layers ? counts : std::vector<uint32_t>(n_layers, counts[0]);
}

Result<uint32_t> Metadata::largest_count(std::string_view key, uint32_t limit,
                                         Layers layers) const {
  PUMICE_TRY(const uint32_t n_layers, read_count("block_count", kMaxLayers));
  PUMICE_TRY(const std::vector<uint32_t> counts, read_layer_counts(key, n_layers, layers));
  return in_range(key, *std::ranges::max_element(counts), 1, limit);
}

Result<std::vector<bool>> Metadata::read_layer_flags(std::string_view key,
                                                     uint32_t n_layers) const {
  const GgufValue* const value = find(key);
  std::vector<bool> flags;
  if (value != nullptr && value->is_array() && value->element_type != GgufValueType::kBool) {
    PUMICE_TRY(const std::vector<uint32_t> numbers, get_vector<uint32_t>(key));
    for (const uint32_t number : numbers) {
      if (number > 1) {
        return make_error(ErrorCode::kBadFile, "{}: {} is neither 0 nor 1", full(key), number);
      }
      flags.push_back(number == 1);
    }
  } else {
    PUMICE_TRY(flags, get_vector<bool>(key));
  }
  if (flags.size() != n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} values for {} layers", full(key), flags.size(),
                      n_layers);
  }
  return flags;
}

Result<uint32_t> Metadata::read_head_dim(std::string_view key, uint32_t fallback) const {
  PUMICE_TRY(const uint64_t value, get_or<uint64_t>(key, fallback));
  if (value == 0 || value % 8 != 0 || value > kMaxHeadDim) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not a multiple of 8 up to {}", full(key),
                      value, kMaxHeadDim);
  }
  return static_cast<uint32_t>(value);
}

Result<uint32_t> Metadata::read_taps(std::string_view key) const {
  PUMICE_TRY(const uint64_t value, get<uint64_t>(key));
  return in_range(key, value, 2, ops::CausalConv::kMostTaps);
}

Status Metadata::expect_kv_heads(uint32_t n_kv_heads, const ModelDimensions& dimensions,
                                 uint32_t layer) const {
  if (n_kv_heads == 0 || n_kv_heads == dimensions.n_kv_heads) return {};
  return make_error(ErrorCode::kBadFile, "{}: {} in layer {}, {} in another; not supported",
                    full("attention.head_count_kv"), n_kv_heads, layer, dimensions.n_kv_heads);
}

Result<ScalarSource> Metadata::read_scalar(std::string_view tensor) const {
  const GgufTensor* const found = file_.find_tensor(tensor);
  if (found == nullptr || found->type->name != "F32" || found->n_elements() != 1 ||
      !source_.has_tensor_data()) {
    return make_error(ErrorCode::kBadFile, "{}: expected one F32 value", tensor);
  }
  PUMICE_TRY(const std::vector<float> values, source_.values(*found));
  if (!std::isfinite(values[0])) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not finite", tensor, values[0]);
  }
  return ScalarSource{values[0], {.name = std::string(tensor)}};
}

Result<ModelDimensions> Metadata::read_widths(Layers layers) const {
  const auto of_layers = [&](std::string_view key, uint32_t limit) {
    return layers == Layers::kAlike ? read_count(key, limit) : largest_count(key, limit, layers);
  };
  ModelDimensions config;
  config.architecture = prefix_;
  PUMICE_TRY(const std::string_view name, file_.get_or<std::string_view>("general.name", ""));
  config.name = name;
  PUMICE_TRY(config.n_layers, read_count("block_count", kMaxLayers));
  PUMICE_TRY(config.n_embd, read_count("embedding_length", kMaxWidth));
  PUMICE_TRY(config.n_ff, of_layers("feed_forward_length", kMaxWidth));
  PUMICE_TRY(config.n_heads, of_layers("attention.head_count", kMaxHeads));
  PUMICE_TRY(config.context_length, read_count("context_length", kMaxContext));
  config.n_kv_heads = config.n_heads;
  if (has("attention.head_count_kv")) {
    PUMICE_TRY(config.n_kv_heads, of_layers("attention.head_count_kv", kMaxHeads));
  }
  if (config.n_heads % config.n_kv_heads != 0) {
    return make_error(ErrorCode::kBadFile, "{}: {} heads cannot share {} kv heads",
                      full("attention.head_count_kv"), config.n_heads, config.n_kv_heads);
  }
  const GgufTensor* embedding = file_.find_tensor(kTokenEmbd);
  if (embedding == nullptr) {
    return make_error(ErrorCode::kBadFile, "the file has no tensor {}: not a model", kTokenEmbd);
  }
  if (embedding->dims[1] > kMaxWidth) {
    return make_error(ErrorCode::kBadFile, "{}: {} vocabulary entries exceed {}", kTokenEmbd,
                      embedding->dims[1], kMaxWidth);
  }
  config.n_vocab = static_cast<uint32_t>(embedding->dims[1]);
  return config;
}

Result<ModelDimensions> Metadata::read_dimensions(Layers layers, Values values) const {
  PUMICE_TRY(ModelDimensions config, read_widths(layers));
  config.head_dim = config.n_embd / config.n_heads;
  if (has("attention.key_length")) {
    PUMICE_TRY(config.head_dim, read_count("attention.key_length", kMaxHeadDim));
  }
  if (config.head_dim == 0 || config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return make_error(ErrorCode::kBadFile, "{}: head_dim {} is not a multiple of 8 up to {}",
                      full("attention.key_length"), config.head_dim, kMaxHeadDim);
  }
  PUMICE_TRY(const uint64_t value_length,
             get_or<uint64_t>("attention.value_length", config.head_dim));
  if (values == Values::kAsKeys && value_length != config.head_dim) {
    return make_error(ErrorCode::kBadFile, "{}: {} differs from key_length {}; not supported",
                      full("attention.value_length"), value_length, config.head_dim);
  }
  if (value_length > config.head_dim) {
    return make_error(ErrorCode::kBadFile, "{}: {} is more than key_length {}; not supported",
                      full("attention.value_length"), value_length, config.head_dim);
  }
  PUMICE_TRY(config.value_dim, read_head_dim("attention.value_length", config.head_dim));
  return config;
}

Result<ModelDimensions> Metadata::read_latent_dimensions(LatentSource& latent,
                                                         Layers layers) const {
  PUMICE_TRY(ModelDimensions config, read_widths(layers));
  const auto heads_of_eights = [&](std::string_view key, uint32_t limit) -> Result<uint32_t> {
    PUMICE_TRY(const uint32_t value, read_count(key, limit));
    if (value % 8 == 0) return value;
    return make_error(ErrorCode::kBadFile, "{}: {} is not a multiple of 8", full(key), value);
  };
  // Where attn_k_b is, key_length and value_length are of what is kept of a token.
  latent.fused = true;
  for (uint32_t i = 0; i < config.n_layers && latent.fused; ++i) {
    latent.fused = !has_tensor(fmt::format("blk.{}.attn_k_b.weight", i));
  }
  const bool has_own = has("attention.key_length_mla") || !latent.fused;
  PUMICE_TRY(latent.rank, heads_of_eights("attention.kv_lora_rank", kMaxHeadDim));
  PUMICE_TRY(latent.n_turning, heads_of_eights("rope.dimension_count", kMaxHeadDim));
  PUMICE_TRY(
      config.head_dim,
      heads_of_eights(has_own ? "attention.key_length_mla" : "attention.key_length", kMaxHeadDim));
  PUMICE_TRY(latent.value_dim,
             heads_of_eights(has_own ? "attention.value_length_mla" : "attention.value_length",
                             kMaxHeadDim));
  if (latent.n_turning >= config.head_dim) {
    return make_error(ErrorCode::kBadFile, "{}: rotates {} of a head's {} dimensions",
                      full("rope.dimension_count"), latent.n_turning, config.head_dim);
  }
  latent.n_still = config.head_dim - latent.n_turning;
  PUMICE_TRY(const uint64_t q_rank, get_or<uint64_t>("attention.q_lora_rank", 0));
  if (q_rank > kMaxWidth) {
    return make_error(ErrorCode::kBadFile, "{}: {} is more than {}", full("attention.q_lora_rank"),
                      q_rank, kMaxWidth);
  }
  latent.q_rank = static_cast<uint32_t>(q_rank);
  return config;
}

Result<ExpertSource> Metadata::read_experts(const ModelDimensions& dimensions, const Router& router,
                                            SharedExperts shared) const {
  ExpertSource experts{.router = router};
  PUMICE_TRY(const uint64_t n_experts, get_or<uint64_t>("expert_count", 0));
  if (n_experts == 0) {  // then the other keys say nothing
    leave_out({"expert_gating_func", "expert_group_count", "expert_shared_count",
               "expert_shared_feed_forward_length", "expert_weights_scale"});
    return experts;
  }
  PUMICE_TRY(const uint64_t n_used, get_or<uint64_t>("expert_used_count", 0));
  if (n_experts > kMaxExperts || n_used > n_experts || n_used == 0) {
    return make_error(ErrorCode::kBadFile, "{}: {} of {} experts, expected 1 to all of at most {}",
                      full("expert_used_count"), n_used, n_experts, kMaxExperts);
  }
  experts.n_experts = static_cast<uint32_t>(n_experts);
  experts.n_used = static_cast<uint32_t>(n_used);
  experts.n_ff = dimensions.n_ff;
  if (has("expert_feed_forward_length")) {
    PUMICE_TRY(experts.n_ff, read_count("expert_feed_forward_length", kMaxWidth));
  }
  if (shared != SharedExperts::kNone) PUMICE_TRY_STATUS(read_shared(experts, shared));
  PUMICE_TRY_STATUS(read_router(experts));
  return experts;
}

Status Metadata::read_shared(ExpertSource& experts, SharedExperts shared) const {
  uint64_t n_shared = 0;
  if (shared == SharedExperts::kCounted) {
    PUMICE_TRY(n_shared, get_or<uint64_t>("expert_shared_count", 0));
  }
  PUMICE_TRY(const uint64_t n_ff_shared,
             get_or<uint64_t>("expert_shared_feed_forward_length",
                              std::min<uint64_t>(n_shared, kMaxExperts) * experts.n_ff));
  if (n_ff_shared > kMaxWidth) {
    return make_error(ErrorCode::kBadFile, "{}: {} is more than {}",
                      full("expert_shared_feed_forward_length"), n_ff_shared, kMaxWidth);
  }
  experts.n_ff_shared = static_cast<uint32_t>(n_ff_shared);
  return {};
}

Result<uint32_t> Metadata::read_dense_layers(const ModelDimensions& dimensions) const {
  PUMICE_TRY(const uint64_t n_dense, get_or<uint64_t>("leading_dense_block_count", 0));
  if (n_dense > dimensions.n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} of {} layers", full("leading_dense_block_count"),
                      n_dense, dimensions.n_layers);
  }
  return static_cast<uint32_t>(n_dense);
}

Status Metadata::read_router(ExpertSource& experts) const {
  Router& router = experts.router;
  if (has("expert_gating_func")) {
    PUMICE_TRY(const uint64_t gating, get<uint64_t>("expert_gating_func"));
    constexpr uint64_t kSigmoid = 2;
    constexpr uint64_t kSoftmaxOfChosen = 3;
    if (gating == 0 || gating > kSoftmaxOfChosen) {
      return make_error(ErrorCode::kBadFile,
                        "{}: {} is not supported (1 a softmax, 2 a sigmoid of the scores, 3 a "
                        "softmax of those chosen)",
                        full("expert_gating_func"), gating);
    }
    router.probability =
        gating == kSigmoid ? Router::Probability::kSigmoid : Router::Probability::kSoftmax;
    router.renormalised = router.renormalised || gating == kSoftmaxOfChosen;
  }
  PUMICE_TRY(router.renormalised, get_or<bool>("expert_weights_norm", router.renormalised));
  PUMICE_TRY(const float scale, get_or<float>("expert_weights_scale", 0.0f));
  if (!(scale >= 0) || !std::isfinite(scale)) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not positive", full("expert_weights_scale"),
                      scale);
  }
  if (scale > 0) router.scale = double{scale};
  PUMICE_TRY(const uint64_t n_groups, get_or<uint64_t>("expert_group_count", 1));
  if (n_groups <= 1) return {};
  PUMICE_TRY(const uint64_t n_used_groups, get_or<uint64_t>("expert_group_used_count", 1));
  if (n_groups > experts.n_experts / 2 || experts.n_experts % n_groups != 0 || n_used_groups == 0 ||
      n_used_groups > n_groups || experts.n_experts / n_groups * n_used_groups < experts.n_used) {
    return make_error(ErrorCode::kBadFile,
                      "{}: {} of {} experts cannot be chosen from {} of {} groups of two or more",
                      full("expert_group_count"), experts.n_used, experts.n_experts, n_used_groups,
                      n_groups);
  }
  router.n_groups = static_cast<uint32_t>(n_groups);
  router.n_used_groups = static_cast<uint32_t>(n_used_groups);
  return {};
}

Result<Blocks> Metadata::read_blocks(ModelDimensions& dimensions, ModelPart part) const {
  PUMICE_TRY(const uint64_t n, get_or<uint64_t>("nextn_predict_layers", 0));
  if (n >= dimensions.n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} of {} blocks predict tokens after the next",
                      full("nextn_predict_layers"), n, dimensions.n_layers);
  }
  dimensions.n_layers -= static_cast<uint32_t>(n);
  Blocks blocks{.part = part,
                .end = dimensions.n_layers,
                .n_prediction = static_cast<uint32_t>(n),
                .output = std::string(output_stem())};
  if (!blocks.predicts()) return blocks;
  if (n == 0) {
    return make_error(ErrorCode::kBadFile,
                      "{}: no block of this file predicts tokens after the next",
                      full("nextn_predict_layers"));
  }
  blocks.first = dimensions.n_layers;
  blocks.end = blocks.first + 1;
  const auto own = [&](std::string& stem, std::string_view name) {
    const std::string its = blocks.tensor(name);
    if (has_tensor(its + ".weight")) stem = its;
  };
  own(blocks.embedding, "nextn.embed_tokens");
  own(blocks.norm, "layer_output_norm");  // Ling's
  own(blocks.norm, "nextn.shared_head_norm");
  own(blocks.output, "nextn.shared_head_head");
  return blocks;
}

Result<float> Metadata::read_rms_eps() const {
  return get<float>("attention.layer_norm_rms_epsilon");
}

Result<float> Metadata::read_layer_norm_eps() const {
  return get<float>("attention.layer_norm_epsilon");
}

Result<std::optional<Pooling>> Metadata::read_pooling() const {
  if (!has("pooling_type")) return std::optional<Pooling>();
  PUMICE_TRY(const uint64_t type, get<uint64_t>("pooling_type"));
  constexpr std::array kTypes = {Pooling::kNone, Pooling::kMean, Pooling::kCls, Pooling::kLast};
  if (type == kRanks) return std::optional<Pooling>();
  if (type >= kTypes.size()) {
    return make_error(ErrorCode::kBadFile,
                      "{}: {} is not supported: 0 none, 1 mean, 2 cls, 3 last, 4 rank",
                      full("pooling_type"), type);
  }
  return std::optional(kTypes.at(type));
}

bool Metadata::ranks() const {
  const Result<uint64_t> type = get_or<uint64_t>("pooling_type", 0);
  return type.ok() && *type == kRanks;
}

Result<std::vector<std::string>> Metadata::read_names(std::string_view key, size_t limit) const {
  std::vector<std::string> names;
  if (!has(key)) return names;
  PUMICE_TRY(const GgufStrings strings, file_.get_strings(asking(key)));
  if (strings.size() > limit) {
    return make_error(ErrorCode::kBadFile, "{}: {} names; {} are supported", full(key),
                      strings.size(), limit);
  }
  for (const std::string_view name : strings) names.emplace_back(name);
  return names;
}

Status Metadata::expect_not_causal() const {
  PUMICE_TRY(const bool causal, get_or<bool>("attention.causal", false));
  if (!causal) return {};
  return make_error(ErrorCode::kBadFile, "{}: a causal mask is not supported for this architecture",
                    full("attention.causal"));
}

Result<uint32_t> Metadata::read_window(uint32_t fallback) const {
  return has("attention.sliding_window") ? read_count("attention.sliding_window", kMaxContext)
                                         : fallback;
}

Result<uint32_t> Metadata::read_window_period(uint32_t fallback) const {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  if (!has(kKey)) return fallback;
  PUMICE_TRY(const std::vector<uint32_t> counts, read_layer_counts(kKey, 1));
  return counts[0];
}

Result<double> Metadata::read_positive(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  PUMICE_TRY(const float value, get<float>(key));
  if (!(value > 0.0f) || !std::isfinite(value)) {
    return make_error(ErrorCode::kBadFile, "{}: {} is not positive", full(key), value);
  }
  return double{value};
}

Result<std::vector<double>> Metadata::read_layer_numbers(std::string_view key, uint32_t n_layers,
                                                         double fallback) const {
  if (!has(key)) return std::vector<double>(n_layers, fallback);
  PUMICE_TRY(const std::vector<float> numbers, get_vector<float>(key));
  if (numbers.size() != 1 && numbers.size() != n_layers) {
    return make_error(ErrorCode::kBadFile, "{}: {} numbers for {} layers", full(key),
                      numbers.size(), n_layers);
  }
  for (const float number : numbers) {
    if (!(number >= 0) || !std::isfinite(number)) {
      return make_error(ErrorCode::kBadFile, "{}: {} is not positive", full(key), number);
    }
  }
  if (numbers.size() != n_layers) return std::vector<double>(n_layers, numbers[0]);
  return std::vector<double>(numbers.begin(), numbers.end());
}

Result<uint32_t> Metadata::original_context(const ModelDimensions& dimensions) const {
  constexpr std::string_view kKey = "rope.scaling.original_context_length";
  PUMICE_TRY(const uint64_t original, get_or<uint64_t>(kKey, dimensions.context_length));
  return in_range(kKey, original, 1, kMaxContext);
}

Result<std::vector<float>> Metadata::read_divisors(std::string_view tensor,
                                                   RopeSource& rope) const {
  const uint32_t n = rope.config.dims / 2;
  const GgufTensor* const found = file_.find_tensor(tensor);
  if (found == nullptr || found->type->name != "F32" || found->n_elements() != n ||
      !source_.has_tensor_data()) {
    return make_error(ErrorCode::kBadFile, "{}: expected {} F32 values", tensor, n);
  }
  PUMICE_TRY(std::vector<float> divisors, source_.values(*found));
  for (const float value : divisors) {
    if (!(value > 0.0f) || !std::isfinite(value)) {
      return make_error(ErrorCode::kBadFile, "{}: divisor {} is not positive", tensor, value);
    }
  }
  rope.tensors.push_back({.name = std::string(tensor), .dims = {n, 1, 1, 1}});
  return divisors;
}

Result<RopeSource> Metadata::read_rope(const ModelDimensions& config) const {
  RopeSource result;
  ops::RopeConfig& rope = result.config;
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
  PUMICE_TRY(rope.attn_factor, get_or<float>("rope.scaling.attn_factor", 1.0f));
  const bool long_rope = type == "longrope" || (type.empty() && has_tensor(kLongFactors));
  if (long_rope) {
    PUMICE_TRY(rope.original_context, original_context(config));
    PUMICE_TRY(rope.freq_divisors, read_divisors(kShortFactors, result));
    PUMICE_TRY(rope.long_divisors, read_divisors(kLongFactors, result));
  } else if (type == "none") {
    rope.scaling = ops::RopeScaling::kNone;
  } else if (type.empty() || type == "linear") {
    rope.scaling = factor == 1.0f ? ops::RopeScaling::kNone : ops::RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = ops::RopeScaling::kYarn;
    PUMICE_TRY(rope.original_context, original_context(config));
    PUMICE_TRY(rope.ext_factor, get_or<float>("rope.scaling.yarn_ext_factor", 1.0f));
    PUMICE_TRY(rope.beta_fast, get_or<float>("rope.scaling.yarn_beta_fast", 32.0f));
    PUMICE_TRY(rope.beta_slow, get_or<float>("rope.scaling.yarn_beta_slow", 1.0f));
  } else {
    return make_error(ErrorCode::kBadFile,
                      "{}: '{}' is not supported (none, linear, yarn, longrope)",
                      full("rope.scaling.type"), printable(type));
  }

  if (!long_rope && has_tensor(kRopeFreqs)) {
    PUMICE_TRY(rope.freq_divisors, read_divisors(kRopeFreqs, result));
  }
  // What remains to be checked of the scaling is checked where its formulas are.
  const auto frequencies = ops::rope_frequencies(rope.for_context(config.context_length));
  if (!frequencies.ok()) {
    return make_error(ErrorCode::kBadFile, "{}: {}", full("rope"), frequencies.error().message);
  }
  return result;
}

}  // namespace pumice
