// A synthetic model's tensors: those that its architecture's page reads, made of the metadata alone,
// their numbers spread by the operation that reads them.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "models/families.hpp"
#include "models/model_source.hpp"
#include "models/synthetic.hpp"
#include "models/synthetic_metadata.hpp"

namespace pumice {
namespace {

/// What fits rows of `n_cols`; see SyntheticModel::create.
const WeightType& type_for(const WeightType& wanted, uint64_t n_cols) {
  if (n_cols % wanted.block_elements == 0) return wanted;
  const WeightType* const fallback = find_weight_type(wanted.fallback);
  if (fallback != nullptr && n_cols % fallback->block_elements == 0) return *fallback;
  return weight_type("F16");
}

const WeightType& output_type(const SyntheticOptions& options) {
  const WeightType& q6_k = weight_type("Q6_K");
  const WeightType& type = *options.type;
  const bool smaller =
      type.block_bytes * q6_k.block_elements < q6_k.block_bytes * type.block_elements;
  return smaller && !options.pure ? q6_k : type;
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

constexpr float kNormDeviation = 0.1f;
constexpr float kBiasDeviation = 0.1f;
constexpr float kTapDeviation = 0.5f;
constexpr float kSinkDeviation = 1;
constexpr float kStepDeviation = 1;
constexpr float kMeanStep = -4;  // of a recurrence, before its softplus
constexpr double kFastest = 16;  // of decays

/// As delta nets begin to be trained: -1 to -16.
std::vector<float> decays(uint32_t n) {
  std::vector<float> values;
  for (uint32_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(-std::pow(kFastest, double(i) / std::max(n - 1, 1u))));
  }
  return values;
}

/// How a tensor is made.
struct Making {
  enum class Kind {
    kGiven,   ///< its numbers were read for the program: no operation has it
    kVector,  ///< F32
    kDecays,  ///< likewise
    kMatrix,
    kOutput,  ///< the matrix of the logits
  };
  Kind kind = Kind::kGiven;
  float deviation = 0;
  float mean = 0;
};

/// Goes through a program's operations and says of each tensor how it is made.
class Makings {
 public:
  Makings(const Program& program, float gain)
      : program_(program), gain_(gain), makings_(program.tensors.size()) {
    for (const Op& op : program.ops) {
      const auto* const route = std::get_if<op::Route>(&op.what);
      if (route != nullptr) routers_.push_back(route->scores);
    }
    for (const Op& op : program.ops) {
      result_ = op.result;
      std::visit(*this, op.what);
    }
    if (!program.pooling && last_product_) {
      makings_[*last_product_].kind = Making::Kind::kOutput;
    }
  }

  const Making& operator[](TensorId id) const { return makings_[id]; }

  void operator()(const op::Embed& o) { matrix(o.table); }
  void operator()(const op::EmbedPosition& o) { rows(o.table); }
  void operator()(const op::AddRow& o) { rows(o.table); }
  void operator()(const op::Linear& o) {
    const TensorId id = o.weight.tensor;
    const bool routes = std::ranges::find(routers_, result_) != routers_.end();
    // Files have routers, and what is one row, in F32.
    if (routes || program_.tensors[id].dims[1] == 1) {
      rows(id);
    } else {
      matrix(id);
    }
    if (o.bias) vector(*o.bias, kBiasDeviation);
    last_product_ = id;
  }
  void operator()(const op::RmsNorm& o) {
    if (o.weight) vector(*o.weight, kNormDeviation, 1);
  }
  void operator()(const op::LayerNorm& o) {
    vector(o.weight, kNormDeviation, 1);
    if (o.bias) vector(*o.bias, kBiasDeviation);
  }
  void operator()(const op::Attention& o) {
    if (o.sinks) vector(*o.sinks, kSinkDeviation);
  }
  void operator()(const op::HeadLinear& o) {
    const auto& dims = program_.tensors[o.weight].dims;
    makings_[o.weight] = {Making::Kind::kMatrix,
                          spread(o.transposed ? o.n_rows : static_cast<uint32_t>(dims[0]))};
  }
  void operator()(const op::CausalConv& o) {
    vector(o.weight, kTapDeviation);
    if (o.bias) vector(*o.bias, kBiasDeviation);
  }
  void operator()(const op::Recurrence& o) {
    makings_[o.a].kind = Making::Kind::kDecays;
    vector(o.bias, kStepDeviation, kMeanStep);
    if (o.d) vector(*o.d, kNormDeviation, 1);
  }
  void operator()(const op::Route& o) {
    if (o.bias) vector(*o.bias, kBiasDeviation);
    if (o.gain) vector(*o.gain, kNormDeviation, 1);
  }
  void operator()(const op::ExpertLinear& o) {
    matrix(o.weight);
    if (o.bias) vector(*o.bias, kBiasDeviation);
  }
  /// The others have no tensors.
  void operator()(const auto&) {}

 private:
  float spread(uint64_t n_inputs) const { return gain_ / std::sqrt(static_cast<float>(n_inputs)); }
  void matrix(TensorId id) {
    makings_[id] = {Making::Kind::kMatrix, spread(program_.tensors[id].dims[0])};
  }
  /// As a matrix, in F32.
  void rows(TensorId id) {
    makings_[id] = {Making::Kind::kVector, spread(program_.tensors[id].dims[0])};
  }
  void vector(TensorId id, float deviation, float mean = 0) {
    makings_[id] = {Making::Kind::kVector, deviation, mean};
  }

  const Program& program_;
  const float gain_;
  std::vector<Making> makings_;
  std::vector<ValueId> routers_;  // values that experts are chosen by
  std::optional<TensorId> last_product_;
  ValueId result_ = 0;  // of the operation that is looked at
};

/// Without ones at the end, but for one dimension.
std::vector<uint64_t> dims_of(const TensorSpec& spec) {
  std::vector<uint64_t> dims(spec.dims.begin(), spec.dims.end());
  while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
  return dims;
}

SyntheticTensor given(std::string name, std::vector<float> values) {
  const uint64_t n = values.size();
  return {std::move(name), &weight_type("F32"), {n}, 0, 0, std::move(values)};
}

}  // namespace

/// What a page asks of tensors: which of those that files may leave out are there, and the numbers
/// of a few.
std::vector<SyntheticTensor> SyntheticModel::asked_for() const {
  const SyntheticShape& s = shape_;
  const WeightType& f32 = weight_type("F32");
  std::vector<SyntheticTensor> tensors = {{"token_embd.weight", &f32, {s.n_embd, s.n_vocab}}};
  if (!s.tied) tensors.push_back({"output.weight", &f32, {s.n_embd, s.n_vocab}});
  if (s.rope_factor > 1) tensors.push_back(given("rope_freqs.weight", rope_divisors(s)));
  if (s.original_context > 0) {
    tensors.push_back(given("rope_factors_long.weight", long_divisors(s)));
    tensors.push_back(
        given("rope_factors_short.weight", std::vector<float>(s.rotated() / 2, 1.0f)));
  }
  const SyntheticMetadata metadata(s);
  for (const SyntheticMetadata::Tensor& extra : metadata.tensors()) {
    if (extra.dims.empty()) {
      tensors.push_back(given(extra.name, {1.0f}));
    } else {
      tensors.push_back({extra.name, &f32, extra.dims});
    }
  }
  return tensors;
}

Status SyntheticModel::add_tensors() {
  SyntheticModel metadata(shape_, options_);
  metadata.tensors_ = asked_for();
  metadata.has_vocabulary_ = false;
  PUMICE_TRY(const ModelSource source, ModelSource::synthetic(metadata));
  PUMICE_TRY(const Program program, build_of_metadata(source));
  add_tensors_of(program, metadata);
  if (!shape_.predicts) return {};
  PUMICE_TRY(const Program block, build_of_metadata(source, ModelPart::kPrediction));
  add_tensors_of(block, metadata);
  return {};
}

/// Those that are not there yet. `metadata`: what asked_for says.
void SyntheticModel::add_tensors_of(const Program& program, const SyntheticModel& metadata) {
  const Makings makings(program, shape_.gain);
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    const TensorSpec& spec = program.tensors[id];
    if (std::ranges::find(tensors_, spec.name, &SyntheticTensor::name) != tensors_.end()) continue;
    const Making& making = makings[id];
    SyntheticTensor tensor{spec.name, &weight_type("F32"), dims_of(spec), making.deviation,
                           making.mean};
    if (making.kind == Making::Kind::kMatrix || making.kind == Making::Kind::kOutput) {
      const bool is_output = making.kind == Making::Kind::kOutput;
      tensor.type = &type_for(is_output ? output_type(options_) : *options_.type, tensor.dims[0]);
    } else if (making.kind == Making::Kind::kDecays) {
      tensor.values = decays(static_cast<uint32_t>(spec.n_elements()));
    } else if (making.kind == Making::Kind::kGiven) {
      const auto known = std::ranges::find(metadata.tensors_, spec.name, &SyntheticTensor::name);
      PUMICE_CHECK(known != metadata.tensors_.end() && known->n_elements() == spec.n_elements(),
                   "nothing says what is in " + spec.name);
      tensor.values = known->values;
    }
    tensors_.push_back(std::move(tensor));
  }
}

Result<SyntheticModel> SyntheticModel::create(const SyntheticShape& shape,
                                              const SyntheticOptions& options) {
  if (!options.type->has_codec()) {
    return make_error(ErrorCode::kInvalidArgument, "weight type {} is not supported",
                      options.type->name);
  }
  const auto no_model = [&](std::string_view why) {
    return make_error(ErrorCode::kInvalidArgument, "shape '{}' makes no model: {}", shape.name,
                      why);
  };
  if (shape.n_heads == 0 || (shape.head_dim == 0 && shape.n_embd % shape.n_heads != 0)) {
    return no_model(
        fmt::format("{} heads cannot share a width of {}", shape.n_heads, shape.n_embd));
  }
  if (shape.n_embd == 0 || shape.n_vocab == 0) return no_model("it has no width or no vocabulary");
  SyntheticModel model(shape, options);
  const Status made = model.add_tensors();
  if (!made.ok()) return no_model(made.error().message);
  return model;
}

}  // namespace pumice
