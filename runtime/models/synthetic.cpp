#include "models/synthetic.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numbers>

#include "base/printable.hpp"
#include "models/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

constexpr uint32_t kLfm2AttentionLayers[] = {2, 5, 8, 10, 12, 14};

constexpr SyntheticShape kPresets[] = {
    {.name = "tiny", .stands_for = "tests"},
    {.name = "moe-tiny",
     .stands_for = "tests, 4 experts",
     .n_ff = 256,
     .n_experts = 4,
     .n_experts_used = 2},
    {.name = "hybrid-tiny",
     .stands_for = "tests, 3 of 4 layers gated delta nets",
     .n_layers = 4,
     .tied = true,
     .architecture = "qwen35",
     .head_norms = true,
     .rope_dims = 32,
     .eps = 1e-6f,
     .ffn_norm = "post_attention_norm",
     .attention_interval = 4,
     .conv_taps = 4,
     .n_delta_heads = 4,
     .n_delta_keys = 2,
     .delta_head_dim = 32,
     .gated_attention = true},
    {.name = "small-0.1b",
     .stands_for = "a small draft model",
     .n_layers = 12,
     .n_embd = 768,
     .n_heads = 12,
     .n_kv_heads = 4,
     .n_ff = 3072,
     .n_vocab = 32000,
     .context_length = 4096,
     .tied = true},
    {.name = "llama-1b",
     .stands_for = "Llama 3.2 1B",
     .n_layers = 16,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 32.0f,
     .tied = true},
    {.name = "lfm2-1.2b",
     .stands_for = "LFM2 1.2B, 10 of 16 layers short convolutions",
     .n_layers = 16,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 65536,
     .context_length = 128000,
     .rope_base = 1000000.0f,
     .tied = true,
     .architecture = "lfm2",
     .head_norms = true,
     .output_norm = "token_embd_norm",
     .attention_layers = kLfm2AttentionLayers,
     .conv_taps = 3},
    {.name = "qwen3.5-like",
     .stands_for = "a hybrid as Qwen 3.5 2B, 18 of 24 layers gated delta nets",
     .n_layers = 24,
     .n_embd = 2048,
     .n_heads = 8,
     .n_kv_heads = 2,
     .n_ff = 6144,
     .n_vocab = 248320,
     .context_length = 262144,
     .rope_base = 10000000.0f,
     .tied = true,
     .architecture = "qwen35",
     .head_dim = 256,
     .head_norms = true,
     .rope_dims = 64,
     .eps = 1e-6f,
     .ffn_norm = "post_attention_norm",
     .attention_interval = 4,
     .conv_taps = 4,
     .n_delta_heads = 16,
     .n_delta_keys = 16,
     .delta_head_dim = 128,
     .gated_attention = true},
    {.name = "llama-3b",
     .stands_for = "Llama 3.2 3B",
     .n_layers = 28,
     .n_embd = 3072,
     .n_heads = 24,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 32.0f,
     .tied = true},
    {.name = "phi4-mini",
     .stands_for = "Phi-4 mini",
     .n_layers = 32,
     .n_embd = 3072,
     .n_heads = 24,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 200064,
     .context_length = 131072,
     .tied = true,
     .architecture = "phi3",
     .fused = true,
     .rope_dims = 96,
     .original_context = 4096},
    {.name = "gemma3-4b",
     .stands_for = "Gemma 3 4B",
     .n_layers = 34,
     .n_embd = 2560,
     .n_heads = 8,
     .n_kv_heads = 4,
     .n_ff = 10240,
     .n_vocab = 262208,
     .context_length = 131072,
     .rope_base = 1000000.0f,
     .tied = true,
     .architecture = "gemma3",
     .head_dim = 256,
     .head_norms = true,
     .norms_after = true,
     .window = 1024,
     .rope_linear = 8.0f,
     .eps = 1e-6f},
    {.name = "llama-8b",
     .stands_for = "Llama 3.1 8B",
     .n_layers = 32,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 14336,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 8.0f},
    {.name = "qwen3-8b",
     .stands_for = "Qwen 3 8B",
     .n_layers = 36,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 12288,
     .n_vocab = 151936,
     .context_length = 40960,
     .rope_base = 1000000.0f,
     .architecture = "qwen3",
     .head_dim = 128,
     .head_norms = true,
     .eps = 1e-6f},
    {.name = "gpt-oss-20b",
     .stands_for = "gpt-oss 20B, 4 of 32 experts",
     .n_layers = 24,
     .n_embd = 2880,
     .n_heads = 64,
     .n_kv_heads = 8,
     .n_ff = 2880,
     .n_vocab = 201088,
     .context_length = 131072,
     .rope_base = 150000.0f,
     .n_experts = 32,
     .n_experts_used = 4,
     .architecture = "gpt-oss",
     .head_dim = 64,
     .window = 128,
     .rope_yarn = 32.0f,
     .biases = true,
     .sinks = true,
     .ffn_norm = "post_attention_norm"},
    {.name = "qwen3-30b-a3b",
     .stands_for = "Qwen 3 30B, 8 of 128 experts",
     .n_layers = 48,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 4,
     .n_ff = 768,
     .n_vocab = 151936,
     .context_length = 40960,
     .rope_base = 1000000.0f,
     .n_experts = 128,
     .n_experts_used = 8,
     .architecture = "qwen3moe",
     .head_dim = 128,
     .head_norms = true,
     .eps = 1e-6f},
    {.name = "moe-8x7b",
     .stands_for = "Mixtral 8x7B",
     .n_layers = 32,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 14336,
     .n_vocab = 32000,
     .context_length = 32768,
     .rope_base = 1000000.0f,
     .n_experts = 8,
     .n_experts_used = 2},
};

/// What fits rows of `n_cols`; see SyntheticModel::create.
const WeightType& type_for(const WeightType& wanted, uint64_t n_cols) {
  if (n_cols % wanted.block_elements == 0) return wanted;
  constexpr std::string_view kFallbacks[][2] = {
      {"Q2_K", "Q4_0"},      {"Q3_K", "Q4_0"},      {"Q4_K", "Q5_0"},     {"Q5_K", "Q5_1"},
      {"Q6_K", "Q8_0"},      {"TQ1_0", "Q4_0"},     {"TQ2_0", "Q4_0"},    {"IQ1_S", "IQ4_NL"},
      {"IQ1_M", "IQ4_NL"},   {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"}, {"IQ2_S", "IQ4_NL"},
      {"IQ3_XXS", "IQ4_NL"}, {"IQ3_S", "IQ4_NL"},   {"IQ4_XS", "IQ4_NL"}};
  for (const auto& [type, fallback] : kFallbacks) {
    if (type == wanted.name && n_cols % 32 == 0) return weight_type(fallback);
  }
  return weight_type("F16");
}

const WeightType& output_type(const SyntheticOptions& options) {
  const WeightType& q6_k = weight_type("Q6_K");
  const WeightType& type = *options.type;
  const bool smaller =
      type.block_bytes * q6_k.block_elements < q6_k.block_bytes * type.block_elements;
  return smaller && !options.pure ? q6_k : type;
}

/// llama.cpp's numbers for general.file_type.
uint32_t file_type_of(const WeightType& type) {
  constexpr struct {
    std::string_view type;
    uint32_t number;
    // clang-format off
  } kFileTypes[] = {
      {"F32", 0},
      {"F16", 1},
      {"Q4_0", 2},
      {"Q4_1", 3},
      {"Q8_0", 7},
      {"Q5_0", 8},
      {"Q5_1", 9},
      {"Q2_K", 10},
      {"Q3_K", 11},
      {"Q4_K", 14},
      {"Q5_K", 16},
      {"Q6_K", 18},
      {"IQ2_XXS", 19},
      {"IQ2_XS", 20},
      {"IQ3_XXS", 23},
      {"IQ1_S", 24},
      {"IQ4_NL", 25},
      {"IQ3_S", 26},
      {"IQ2_S", 28},
      {"IQ4_XS", 30},
      {"IQ1_M", 31},
      {"TQ1_0", 36},
      {"TQ2_0", 37},
      {"MXFP4", 38},
      {"BF16", 32},
  };
  // clang-format on
  for (const auto& row : kFileTypes) {
    if (row.type == type.name) return row.number;
  }
  return 1024;  // "guessed"
}

/// Llama 3.1's long-context scaling, as the converter of its models writes it: frequencies that
/// turn less than once in the original 8192 tokens are divided, those that turn more than four
/// times are not, and between them it fades.
std::vector<float> rope_divisors(const SyntheticShape& shape) {
  constexpr double kOriginalContext = 8192;
  constexpr double kLow = 1;
  constexpr double kHigh = 4;
  const uint32_t dims = shape.rotated();
  std::vector<float> divisors;
  for (uint32_t i = 0; i < dims; i += 2) {
    const double frequency = std::pow(static_cast<double>(shape.rope_base), -double(i) / dims);
    const double turns = kOriginalContext * frequency / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / shape.rope_factor + smooth)));
  }
  return divisors;
}

constexpr float kBiasDeviation = 0.1f;
constexpr float kTapDeviation = 0.5f;
constexpr float kMeanStep = -4;  // of a delta net, before its softplus
constexpr double kFastest = 16;  // of decays

/// As delta nets begin to be trained: -1 to -16.
std::vector<float> decays(uint32_t n) {
  std::vector<float> values;
  for (uint32_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(-std::pow(kFastest, double(i) / std::max(n - 1, 1u))));
  }
  return values;
}

constexpr double kLongest = 32;  // of LongRoPE's divisors

/// In place of the divisors that models of LongRoPE have learned: from 1 to the longest.
std::vector<float> long_divisors(const SyntheticShape& shape) {
  const uint32_t n = shape.rotated() / 2;
  std::vector<float> divisors;
  for (uint32_t i = 0; i < n; ++i) {
    divisors.push_back(static_cast<float>(std::pow(kLongest, double(i) / std::max(n - 1, 1u))));
  }
  return divisors;
}

std::string layer_tensor(uint32_t layer, const std::string& tensor) {
  return fmt::format("blk.{}.{}", layer, tensor);
}

}  // namespace

bool SyntheticShape::attends(uint32_t layer) const {
  if (!attention_layers.empty())
    return std::ranges::find(attention_layers, layer) != attention_layers.end();
  return (layer + 1) % attention_interval == 0;
}

std::span<const SyntheticShape> synthetic_presets() { return kPresets; }

Result<SyntheticShape> find_synthetic_preset(std::string_view name) {
  std::string known;
  for (const SyntheticShape& preset : kPresets) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no preset '{}' (known: {})",
                    printable(name), known);
}

Result<const WeightType*> parse_weight_type(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string known;
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    if (type.name == upper) return &type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no weight type '{}' (known: {})",
                    printable(upper), known);
}

uint64_t SyntheticTensor::n_elements() const {
  uint64_t n = 1;
  for (const uint64_t dim : dims) n *= dim;
  return n;
}

Result<SyntheticModel> SyntheticModel::create(const SyntheticShape& shape,
                                              const SyntheticOptions& options) {
  if (!options.type->has_codec()) {
    return make_error(ErrorCode::kInvalidArgument, "weight type {} is not supported",
                      options.type->name);
  }
  const SyntheticShape& s = shape;
  const bool positive = s.n_layers > 0 && s.n_embd > 0 && s.n_heads > 0 && s.n_kv_heads > 0 &&
                        s.n_ff > 0 && s.n_vocab > 0 && s.context_length > 0;
  if (!positive || (s.head_dim == 0 && s.n_embd % s.n_heads != 0) ||
      s.n_heads % s.n_kv_heads != 0 || s.attention_interval == 0 ||
      s.n_experts_used > s.n_experts || (s.n_experts > 0 && s.n_experts_used == 0)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "shape '{}': {} layers, width {}, {} heads on {} kv heads, {} of {} experts "
                      "make no model",
                      s.name, s.n_layers, s.n_embd, s.n_heads, s.n_kv_heads, s.n_experts_used,
                      s.n_experts);
  }
  SyntheticModel model(shape, options);
  model.add_tensors();
  return model;
}

Result<SyntheticModel> SyntheticModel::parse(std::string_view text) {
  std::array<std::string_view, 3> parts{"", "q4_k", ""};
  std::string_view rest = text;
  for (std::string_view& part : parts) {
    const size_t colon = rest.find(':');
    part = rest.substr(0, colon);
    if (colon == std::string_view::npos) {
      rest = {};
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  PUMICE_TRY(const SyntheticShape shape, find_synthetic_preset(parts[0]));
  PUMICE_TRY(const WeightType* const type, parse_weight_type(parts[1]));
  if (!rest.empty() || (!parts[2].empty() && parts[2] != "pure")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "'{}': expected preset:type or preset:type:pure, as in llama-8b:q4_k",
                      printable(text));
  }
  return create(shape, {.type = type, .pure = !parts[2].empty()});
}

void SyntheticModel::add_matrix(const std::string& name, const WeightType& type,
                                std::vector<uint64_t> dims) {
  const float deviation = shape_.gain / std::sqrt(static_cast<float>(dims[0]));
  const WeightType& fitting = type_for(type, dims[0]);
  tensors_.push_back({name, &fitting, std::move(dims), deviation});
}

void SyntheticModel::add_norm(const std::string& name, uint64_t n) {
  tensors_.push_back({name, &weight_type("F32"), {n}, 0.1f, 1.0f});
}

void SyntheticModel::add_layer_matrix(uint32_t layer, const char* tensor,
                                      std::vector<uint64_t> dims) {
  add_matrix(layer_tensor(layer, tensor), *options_.type, std::move(dims));
}

void SyntheticModel::add_layer_vector(uint32_t layer, const char* tensor,
                                      std::vector<uint64_t> dims, float deviation, float mean) {
  tensors_.push_back(
      {layer_tensor(layer, tensor), &weight_type("F32"), std::move(dims), deviation, mean});
}

void SyntheticModel::add_layer(uint32_t layer) {
  const SyntheticShape& s = shape_;
  add_norm(layer_tensor(layer, "attn_norm.weight"), s.n_embd);
  if (s.attends(layer)) {
    add_attention(layer);
  } else if (s.n_delta_heads > 0) {
    add_delta_net(layer);
  } else {
    add_short_conv(layer);
  }
  if (s.norms_after) add_norm(layer_tensor(layer, "post_attention_norm.weight"), s.n_embd);
  add_norm(layer_tensor(layer, fmt::format("{}.weight", s.ffn_norm)), s.n_embd);
  add_feed_forward(layer);
  if (s.norms_after) add_norm(layer_tensor(layer, "post_ffw_norm.weight"), s.n_embd);
}

void SyntheticModel::add_attention(uint32_t layer) {
  const SyntheticShape& s = shape_;
  const uint64_t q_dim = uint64_t{s.heads_of()} * s.n_heads;
  const uint64_t kv_dim = uint64_t{s.heads_of()} * s.n_kv_heads;
  if (s.fused) {
    add_layer_matrix(layer, "attn_qkv.weight", {s.n_embd, q_dim + 2 * kv_dim});
  } else {
    add_layer_matrix(layer, "attn_q.weight", {s.n_embd, (s.gated_attention ? 2 : 1) * q_dim});
    add_layer_matrix(layer, "attn_k.weight", {s.n_embd, kv_dim});
    add_layer_matrix(layer, "attn_v.weight", {s.n_embd, kv_dim});
  }
  if (s.head_norms) {
    add_norm(layer_tensor(layer, "attn_q_norm.weight"), s.heads_of());
    add_norm(layer_tensor(layer, "attn_k_norm.weight"), s.heads_of());
  }
  add_layer_matrix(layer, "attn_output.weight", {q_dim, s.n_embd});
  if (s.biases) {
    add_layer_vector(layer, "attn_q.bias", {q_dim}, kBiasDeviation);
    add_layer_vector(layer, "attn_k.bias", {kv_dim}, kBiasDeviation);
    add_layer_vector(layer, "attn_v.bias", {kv_dim}, kBiasDeviation);
    add_layer_vector(layer, "attn_output.bias", {s.n_embd}, kBiasDeviation);
  }
  if (s.sinks) add_layer_vector(layer, "attn_sinks.weight", {s.n_heads}, 1);
}

void SyntheticModel::add_short_conv(uint32_t layer) {
  const SyntheticShape& s = shape_;
  add_layer_matrix(layer, "shortconv.in_proj.weight", {s.n_embd, uint64_t{3} * s.n_embd});
  add_layer_vector(layer, "shortconv.conv.weight", {s.conv_taps, s.n_embd}, kTapDeviation);
  add_layer_matrix(layer, "shortconv.out_proj.weight", {s.n_embd, s.n_embd});
}

void SyntheticModel::add_delta_net(uint32_t layer) {
  const SyntheticShape& s = shape_;
  const uint64_t n_values = uint64_t{s.n_delta_heads} * s.delta_head_dim;
  const uint64_t n_qkv = uint64_t{2} * s.n_delta_keys * s.delta_head_dim + n_values;
  add_layer_matrix(layer, "attn_qkv.weight", {s.n_embd, n_qkv});
  add_layer_matrix(layer, "attn_gate.weight", {s.n_embd, n_values});
  add_layer_vector(layer, "ssm_conv1d.weight", {s.conv_taps, n_qkv}, kTapDeviation);
  add_layer_vector(layer, "ssm_dt.bias", {s.n_delta_heads}, 1, kMeanStep);
  tensors_.push_back({layer_tensor(layer, "ssm_a"),
                      &weight_type("F32"),
                      {s.n_delta_heads},
                      0,
                      0,
                      decays(s.n_delta_heads)});
  add_layer_matrix(layer, "ssm_beta.weight", {s.n_embd, s.n_delta_heads});
  add_layer_matrix(layer, "ssm_alpha.weight", {s.n_embd, s.n_delta_heads});
  add_norm(layer_tensor(layer, "ssm_norm.weight"), s.delta_head_dim);
  add_layer_matrix(layer, "ssm_out.weight", {n_values, s.n_embd});
}

void SyntheticModel::add_feed_forward(uint32_t layer) {
  const SyntheticShape& s = shape_;
  if (s.n_experts > 0) {
    add_matrix(layer_tensor(layer, "ffn_gate_inp.weight"), weight_type("F32"),
               {s.n_embd, s.n_experts});
    add_layer_matrix(layer, "ffn_gate_exps.weight", {s.n_embd, s.n_ff, s.n_experts});
    add_layer_matrix(layer, "ffn_up_exps.weight", {s.n_embd, s.n_ff, s.n_experts});
    add_layer_matrix(layer, "ffn_down_exps.weight", {s.n_ff, s.n_embd, s.n_experts});
    if (s.biases) {
      add_layer_vector(layer, "ffn_gate_inp.bias", {s.n_experts}, kBiasDeviation);
      add_layer_vector(layer, "ffn_gate_exps.bias", {s.n_ff, s.n_experts}, kBiasDeviation);
      add_layer_vector(layer, "ffn_up_exps.bias", {s.n_ff, s.n_experts}, kBiasDeviation);
      add_layer_vector(layer, "ffn_down_exps.bias", {s.n_embd, s.n_experts}, kBiasDeviation);
    }
    return;
  }
  if (!s.fused) add_layer_matrix(layer, "ffn_gate.weight", {s.n_embd, s.n_ff});
  add_layer_matrix(layer, "ffn_up.weight", {s.n_embd, uint64_t{s.fused ? 2u : 1u} * s.n_ff});
  add_layer_matrix(layer, "ffn_down.weight", {s.n_ff, s.n_embd});
}

void SyntheticModel::add_rope_divisors() {
  const auto add = [&](const char* name, std::vector<float> divisors) {
    tensors_.push_back({name, &weight_type("F32"), {divisors.size()}, 0, 0, std::move(divisors)});
  };
  if (shape_.rope_factor > 1) add("rope_freqs.weight", rope_divisors(shape_));
  if (shape_.original_context > 0) {
    add("rope_factors_long.weight", long_divisors(shape_));
    add("rope_factors_short.weight", std::vector<float>(shape_.rotated() / 2, 1.0f));
  }
}

void SyntheticModel::add_tensors() {
  const SyntheticShape& s = shape_;
  const WeightType& type = *options_.type;
  add_matrix("token_embd.weight", s.tied ? output_type(options_) : type, {s.n_embd, s.n_vocab});
  for (uint32_t i = 0; i < s.n_layers; ++i) add_layer(i);
  add_norm(fmt::format("{}.weight", s.output_norm), s.n_embd);
  if (!s.tied) add_matrix("output.weight", output_type(options_), {s.n_embd, s.n_vocab});
  add_rope_divisors();
}

uint64_t SyntheticModel::n_parameters() const {
  uint64_t n = 0;
  for (const SyntheticTensor& tensor : tensors_) n += tensor.n_elements();
  return n;
}

uint64_t SyntheticModel::data_bytes() const {
  uint64_t n = 0;
  for (const SyntheticTensor& tensor : tensors_) n += tensor.n_bytes();
  return n;
}

GgufHeader SyntheticModel::header() const {
  const SyntheticShape& s = shape_;
  const std::string prefix = std::string(s.architecture) + ".";
  GgufHeader header;
  const auto set = [&](std::string_view key, auto value) {
    header.set(prefix + std::string(key), value);
  };
  header.set("general.architecture", s.architecture);
  header.set("general.type", "model");
  header.set("general.name",
             fmt::format("synthetic {} {} seed {}", s.name, options_.type->name, options_.seed));
  header.set("general.description", "random weights written by pumice synth");
  header.set("general.file_type", file_type_of(*options_.type));
  header.set("general.quantization_version", uint32_t{2});
  set("vocab_size", s.n_vocab);
  set("context_length", s.context_length);
  set("embedding_length", s.n_embd);
  set("block_count", s.n_layers);
  set("feed_forward_length", s.n_ff);
  set("attention.head_count", s.n_heads);
  if (s.attention_layers.empty()) {
    set("attention.head_count_kv", s.n_kv_heads);
  } else {
    std::vector<uint32_t> kv_heads(s.n_layers, 0);
    for (uint32_t i = 0; i < s.n_layers; ++i) kv_heads[i] = s.attends(i) ? s.n_kv_heads : 0;
    header.set_array(prefix + "attention.head_count_kv", std::span<const uint32_t>(kv_heads));
    set("shortconv.l_cache", s.conv_taps);
  }
  if (s.n_delta_heads > 0) {
    set("full_attention_interval", s.attention_interval);
    set("ssm.conv_kernel", s.conv_taps);
    set("ssm.inner_size", s.n_delta_heads * s.delta_head_dim);
    set("ssm.state_size", s.delta_head_dim);
    set("ssm.time_step_rank", s.n_delta_heads);
    set("ssm.group_count", s.n_delta_keys);
  }
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
  add_synthetic_vocabulary(header, s.n_vocab);
  for (const SyntheticTensor& tensor : tensors_) {
    header.add_tensor(tensor.name, *tensor.type, tensor.dims);
  }
  return header;
}

std::function<void(uint64_t, std::span<std::byte>)> SyntheticModel::filler(
    const SyntheticTensor& tensor) const {
  if (!tensor.values.empty()) {
    return [values = std::as_bytes(std::span(tensor.values))](uint64_t first_block,
                                                              std::span<std::byte> out) {
      std::ranges::copy(values.subspan(first_block * sizeof(float), out.size()), out.begin());
    };
  }
  const uint64_t key = random_key(options_.seed, tensor.name);
  return [weights = RandomWeights(*tensor.type, key, tensor.deviation, tensor.mean)](
             uint64_t first_block, std::span<std::byte> out) { weights.fill(first_block, out); };
}

void SyntheticModel::fill(const SyntheticTensor& tensor, uint64_t first_block,
                          std::span<std::byte> out) const {
  filler(tensor)(first_block, out);
}

}  // namespace pumice
