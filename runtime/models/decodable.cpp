#include "models/decodable.hpp"

#include <algorithm>
#include <cmath>

namespace pumice {
namespace {

/// What the decoder lacks for an operation; empty if nothing. One line for each kind: a new one
/// does not compile without.
class Lacking {
 public:
  explicit Lacking(const Program& program) : program_(program) {}

  std::string operator()(const op::Embed&) const { return ""; }
  std::string operator()(const op::Linear& o) const {
    if (o.bias) return "a bias";
    return o.weight.n_rows == program_.tensors[o.weight.tensor].dims[1] ? ""
                                                                        : "parts of a fused matrix";
  }
  std::string operator()(const op::RmsNorm& o) const {
    return o.group == program_.values[o.x].width ? "" : "a norm of each head";
  }
  std::string operator()(const op::LayerNorm&) const { return "layer_norm"; }
  std::string operator()(const op::Rope&) const { return ""; }
  std::string operator()(const op::Append&) const { return ""; }
  std::string operator()(const op::Attention& o) const {
    if (o.window != 0) return "attention with a window";
    if (o.soft_cap != 0) return "attention with a soft cap";
    if (o.sinks) return "attention with sinks";
    return o.scale == 1 / std::sqrt(o.head_dim) ? "" : "attention with a scale of its own";
  }
  std::string operator()(const op::Activation& o) const {
    return o.kind == ActivationKind::kSilu ? "" : std::string(op_name(o));
  }
  std::string operator()(const op::Mul&) const { return ""; }
  std::string operator()(const op::Add&) const { return ""; }
  std::string operator()(const op::Scale&) const { return "scale"; }
  std::string operator()(const op::SoftCap&) const { return "soft_cap"; }
  std::string operator()(const op::Split&) const { return "split"; }
  std::string operator()(const op::Route&) const { return "a mixture-of-experts"; }
  std::string operator()(const op::ExpertLinear&) const { return "a mixture-of-experts"; }
  std::string operator()(const op::Combine&) const { return "a mixture-of-experts"; }

 private:
  const Program& program_;
};

/// Each thing once, in the order of the operations.
std::string lacking_kernels(const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.ops) {
    const std::string name = std::visit(Lacking(program), op.what);
    if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// What the decoder computes in a layer, found backwards from its result. What it finds must be the
/// same in all layers.
struct DecoderLayer {
  float norm_eps = 0;
  uint32_t rope = 0;
  bool rope_halves = false;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t n_ff = 0;

  bool operator==(const DecoderLayer&) const = default;
};

class Matcher {
 public:
  explicit Matcher(const Program& program) : program_(program), makers_(program.values.size()) {
    for (const Op& op : program.ops) makers_[op.result] = &op.what;
  }

  /// The operation that made a value, if it is a T.
  template <typename T>
  const T* made_by(ValueId value) const {
    return makers_[value] == nullptr ? nullptr : std::get_if<T>(makers_[value]);
  }

  /// `value` = weights of that name times something, which `x` becomes.
  bool linear(ValueId value, const std::string& weight, ValueId& x) const {
    const auto* o = made_by<op::Linear>(value);
    if (o == nullptr || program_.tensors[o->weight.tensor].name != weight) return false;
    x = o->x;
    return true;
  }

  /// `value` = the norm of that weight and epsilon of something, which `x` becomes. An epsilon of 0
  /// is not known yet.
  bool norm(ValueId value, const std::string& weight, float& eps, ValueId& x) const {
    const auto* o = made_by<op::RmsNorm>(value);
    if (o == nullptr || program_.tensors[o->weight].name != weight) return false;
    if (eps != 0 && eps != o->eps) return false;
    eps = o->eps;
    x = o->x;
    return true;
  }

  bool layer(uint32_t index, DecoderLayer& found) const {
    const Layer& layer = program_.layers[index];
    const auto name = [&](const std::string& tensor) { return names_.layer(index, tensor); };
    const auto* out = made_by<op::Add>(layer.output);
    ValueId gated = 0;
    if (out == nullptr || !linear(out->b, name(names_.ffn_down), gated)) return false;
    const ValueId middle = out->a;
    const auto* product = made_by<op::Mul>(gated);
    if (product == nullptr) return false;
    const auto* silu = made_by<op::Activation>(product->a);
    ValueId gate_x = 0;
    ValueId up_x = 0;
    ValueId ffn_x = 0;
    if (silu == nullptr || !linear(silu->x, name(names_.ffn_gate), gate_x) ||
        !linear(product->b, name(names_.ffn_up), up_x) || gate_x != up_x ||
        !norm(up_x, name(names_.ffn_norm), found.norm_eps, ffn_x) || ffn_x != middle) {
      return false;
    }
    found.n_ff = program_.values[gated].width;

    const auto* residual = made_by<op::Add>(middle);
    ValueId attended = 0;
    if (residual == nullptr || residual->a != layer.input ||
        !linear(residual->b, name(names_.attn_output), attended)) {
      return false;
    }
    const auto* attention = made_by<op::Attention>(attended);
    if (attention == nullptr) return false;
    const auto* kv = made_by<op::Append>(attention->kv);
    const auto* q_rope = made_by<op::Rope>(attention->q);
    const auto* k_rope = made_by<op::Rope>(kv->k);
    ValueId q_x = 0;
    ValueId k_x = 0;
    ValueId v_x = 0;
    ValueId attention_x = 0;
    if (q_rope == nullptr || k_rope == nullptr || q_rope->rope != k_rope->rope ||
        q_rope->halves != k_rope->halves || kv->slot != index || kv->group != 0 ||
        !linear(q_rope->x, name(names_.attn_q), q_x) ||
        !linear(k_rope->x, name(names_.attn_k), k_x) || !linear(kv->v, name(names_.attn_v), v_x) ||
        q_x != k_x || q_x != v_x ||
        !norm(q_x, name(names_.attn_norm), found.norm_eps, attention_x) ||
        attention_x != layer.input) {
      return false;
    }
    found.rope = q_rope->rope;
    found.rope_halves = q_rope->halves;
    found.n_heads = attention->n_heads;
    found.n_kv_heads = attention->n_kv_heads;
    found.head_dim = attention->head_dim;
    return true;
  }

  /// All of the program but the layers' inside.
  bool frame(float eps) const {
    const auto* embed = made_by<op::Embed>(program_.layers.front().input);
    if (embed == nullptr || program_.tensors[embed->table].name != names_.token_embd) return false;
    ValueId normed = 0;
    ValueId x = 0;
    return (linear(program_.logits, names_.output, normed) ||
            linear(program_.logits, names_.token_embd, normed)) &&
           norm(normed, names_.output_norm, eps, x) && x == program_.layers.back().output;
  }

 private:
  const Program& program_;
  const TensorNames names_;
  std::vector<const Operation*> makers_;
};

Result<ModelDescription> match(const Program& program) {
  const Error otherwise =
      make_error(ErrorCode::kBadFile, "its layers are put together otherwise than the decoder's");
  const Matcher matcher(program);
  DecoderLayer layer;
  if (program.layers.empty() || !matcher.layer(0, layer) || !matcher.frame(layer.norm_eps)) {
    return otherwise;
  }
  for (uint32_t i = 1; i < program.layers.size(); ++i) {
    DecoderLayer another;
    if (!matcher.layer(i, another) || another != layer ||
        program.layers[i].input != program.layers[i - 1].output) {
      return otherwise;
    }
  }
  ModelDescription model;
  model.config = {.architecture = program.architecture,
                  .name = program.name,
                  .n_layers = static_cast<uint32_t>(program.layers.size()),
                  .n_embd = program.values[program.layers.front().input].width,
                  .n_heads = layer.n_heads,
                  .n_kv_heads = layer.n_kv_heads,
                  .head_dim = layer.head_dim,
                  .n_ff = layer.n_ff,
                  .n_vocab = program.n_vocab,
                  .context_length = program.context_length,
                  .norm_eps = layer.norm_eps,
                  .rope_halves = layer.rope_halves,
                  .rope = program.ropes[layer.rope]};
  return model;
}

}  // namespace

Result<ModelDescription> decodable(const Program& program) {
  const auto refused = [&](const std::string& reason) {
    return make_error(
        ErrorCode::kBadFile,
        "architecture {}: Pumice can describe and check this model, not run it yet: {}",
        program.architecture, reason);
  };
  const std::string lacking = lacking_kernels(program);
  if (!lacking.empty()) return refused("there is no kernel for " + lacking);
  Result<ModelDescription> model = match(program);
  if (!model.ok()) return refused(model.error().message);
  return model;
}

}  // namespace pumice
