#include "models/fusion_patterns.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace pumice {

Error cannot_be_lowered(const Program& program, const std::string& reason) {
  return make_error(
      ErrorCode::kBadFile,
      "architecture {}: Pumice can describe and check this model but not run it yet: {}",
      program.architecture, reason);
}

FusionPatterns::FusionPatterns(const Program& program, const FusionRules& rules)
    : program_(&program),
      rules_(rules),
      makers_(program.values.size(), kNone),
      readers_(program.values.size()),
      absorbed_(program.ops.size(), false),
      bundle_of_(program.ops.size()) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    makers_[program.ops[i].result] = i;
    for (const ValueId input : op_inputs(program.ops[i].what)) readers_[input].push_back(i);
  }
}

Result<FusionPatterns> FusionPatterns::find(const Program& program, const FusionRules& rules) {
  FusionPatterns patterns(program, rules);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* o = std::get_if<op::Attention>(&program.ops[i].what)) {
      PUMICE_TRY_STATUS(patterns.find_heads(i, *o));
      patterns.find_latents(i, *o);
    }
    if (const auto* o = std::get_if<op::Mul>(&program.ops[i].what)) patterns.find_gate(i, *o);
  }
  return patterns;
}

/// Bundle products of one value; nothing if they are not.
std::optional<size_t> FusionPatterns::bundle(std::string label,
                                             const std::vector<ValueId>& values) {
  Bundle found{.label = std::move(label)};
  std::optional<ValueId> x;
  for (const ValueId value : values) {
    const auto* linear = made_by<op::Linear>(value);
    if (linear == nullptr || !has_one_reader(value) || bundle_of_[makers_[value]] ||
        (x && *x != linear->x)) {
      return std::nullopt;
    }
    x = linear->x;
    found.linears.push_back(makers_[value]);
    found.matrices.push_back(linear->weight);
  }
  if (std::set(found.linears.begin(), found.linears.end()).size() != values.size()) {
    return std::nullopt;
  }
  found.biases = biases_of(found.linears);
  for (const size_t linear : found.linears) bundle_of_[linear] = bundles_.size();
  bundles_.push_back(std::move(found));
  return bundles_.size() - 1;
}

/// Their biases one after the other; none if some have none, or there would be other numbers too.
std::vector<TensorId> FusionPatterns::biases_of(const std::vector<size_t>& linears) const {
  std::vector<TensorId> tensors;
  uint64_t next = 0;  // of the last tensor; 0: it is used up
  for (const size_t index : linears) {
    const auto& linear = std::get<op::Linear>(program_->ops[index].what);
    if (!linear.bias) return {};
    if (next == 0) tensors.push_back(*linear.bias);
    if (*linear.bias != tensors.back() || linear.weight.first_row != next) return {};
    next = (next + linear.weight.n_rows) % program_->tensors[*linear.bias].dims[0];
  }
  return next == 0 ? tensors : std::vector<TensorId>();
}

bool FusionPatterns::is_read_after(ValueId value, size_t op) const {
  const auto last_reader = [&](ValueId v) { return readers_[v].empty() ? 0 : readers_[v].back(); };
  if (last_reader(value) > op) return true;
  const uint32_t width = program_->values[value].width;
  uint32_t first = 0;  // in the value that it is a part of
  while (const auto* split = made_by<op::Split>(value)) {
    first += split->first;
    for (const size_t reader : readers_[split->x]) {
      const auto* other = std::get_if<op::Split>(&program_->ops[reader].what);
      const ValueId result = program_->ops[reader].result;
      if (other == nullptr) {
        if (reader > op) return true;
        continue;
      }
      const bool overlaps =
          other->first < first + width && first < other->first + program_->values[result].width;
      if (overlaps && std::max(reader, last_reader(result)) > op) return true;
    }
    value = split->x;
  }
  return false;
}

/// Whether one operation reads a value and only it reads what it is made of.
bool FusionPatterns::is_only_for(ValueId value) const {
  return has_one_reader(value) && has_one_reader(op_inputs(program_->ops[makers_[value]].what)[0]);
}

/// What a value of heads begins as, before what is computed in place.
ValueId FusionPatterns::product_under(ValueId value) const {
  while (has_one_reader(value)) {
    if (const auto* norm = made_by<op::RmsNorm>(value)) {
      value = norm->x;
    } else if (const auto* layer_norm = made_by<op::LayerNorm>(value)) {
      value = layer_norm->x;
    } else if (const auto* rope = made_by<op::Rope>(value)) {
      value = rope->x;
    } else {
      break;
    }
  }
  return value;
}

Status FusionPatterns::find_heads(size_t index, const op::Attention& attention) {
  Heads heads{.append = made_by<op::Append>(attention.kv)};
  if (heads.append == nullptr) {
    return cannot_be_lowered(*program_, "there is no kernel for attention to such a state");
  }
  heads.appends = readers_[attention.kv].front() == index;
  if (!heads.appends) {  // its q comes by itself
    heads_.emplace(index, heads);
    return {};
  }
  absorb(makers_[attention.kv]);
  if (!heads.append->v) {  // keys alone, of a value by itself
    heads.k = heads.append->k;
    heads_.emplace(index, heads);
    return {};
  }
  const auto* q_rope = made_by<op::Rope>(attention.q);
  const auto* k_rope = made_by<op::Rope>(heads.append->k);
  const bool turn_alike = q_rope != nullptr && k_rope != nullptr && q_rope->rope == k_rope->rope &&
                          q_rope->halves == k_rope->halves && is_only_for(attention.q) &&
                          is_only_for(heads.append->k);
  heads.rope = turn_alike ? q_rope : nullptr;
  heads.q = turn_alike ? q_rope->x : attention.q;
  heads.k = turn_alike ? k_rope->x : heads.append->k;
  heads.v = *heads.append->v;
  if (turn_alike) {
    absorb(makers_[attention.q]);
    absorb(makers_[heads.append->k]);
  }
  heads.bundle =
      bundle("qkv", {product_under(heads.q), product_under(heads.k), product_under(heads.v)});
  const auto head_norm_of = [&](ValueId value) -> const op::RmsNorm* {
    const auto* norm = made_by<op::RmsNorm>(value);
    const bool of_heads = norm != nullptr && norm->weight && norm->group == attention.head_dim &&
                          program_->tensors[*norm->weight].dims[1] == 1 && is_only_for(value);
    return of_heads ? norm : nullptr;
  };
  const op::RmsNorm* const q_norm = head_norm_of(heads.q);
  const op::RmsNorm* const k_norm = head_norm_of(heads.k);
  if (rules_.has(FusionRule::kHeadNorm) && q_norm != nullptr && k_norm != nullptr &&
      q_norm->eps == k_norm->eps) {
    absorb(makers_[heads.q]);
    absorb(makers_[heads.k]);
    heads.q_norm = q_norm;
    heads.k_norm = k_norm;
    heads.q = q_norm->x;
    heads.k = k_norm->x;
  }
  if (heads.bundle) {
    Bundle& found = bundles_[*heads.bundle];
    // Biases come before all else.
    const bool are_products = product_under(heads.q) == heads.q &&
                              product_under(heads.k) == heads.k &&
                              product_under(heads.v) == heads.v;
    found.bias_is_fused = !found.biases.empty() && rules_.has(FusionRule::kBias) && are_products;
  }
  heads_.emplace(index, heads);
  return {};
}

void FusionPatterns::find_latents(size_t index, const op::Attention& o) {
  const ValueId result = program_->ops[index].result;
  const auto* const keys = made_by<op::HeadLinear>(o.q);
  if (!rules_.has(FusionRule::kExpand) || o.latent_dim == 0 || o.n_kv_heads != 1 || o.window != 0 ||
      o.ahead != 0 || keys == nullptr || !has_one_reader(o.q) || !has_one_reader(keys->x) ||
      !has_one_reader(result)) {
    return;
  }
  const auto* const values =
      std::get_if<op::HeadLinear>(&program_->ops[readers_[result].front()].what);
  if (values == nullptr || values->transposed) return;
  const HeadProduct in = head_product(*program_, *keys);
  const HeadProduct out = head_product(*program_, *values);
  const auto head_rows = [&](const op::HeadLinear& heads) {
    const auto& dims = program_->tensors[heads.weight].dims;
    return dims[1] * dims[2] / heads.n_heads;
  };
  const Latents found{.keys = makers_[o.q],
                      .attention = index,
                      .values = readers_[result].front(),
                      .fused = keys->weight == values->weight,
                      .n_still = in.n_in,
                      .n_turned = in.n_kept,
                      .value_dim = out.n_out};
  const bool apart = !found.fused && !keys->transposed && values->first_row == 0 &&
                     head_rows(*keys) == o.latent_dim && head_rows(*values) == found.value_dim;
  const bool together = found.fused && keys->transposed && values->first_row == found.n_still &&
                        head_rows(*keys) == found.n_still + found.value_dim;
  const bool in_eights =
      found.n_still % 8 == 0 && found.n_turned % 8 == 0 && found.value_dim % 8 == 0;
  if (keys->n_heads != o.n_heads || values->n_heads != o.n_heads || keys->first_row != 0 ||
      in.n_out != o.latent_dim || out.n_in != o.latent_dim ||
      o.head_dim != o.latent_dim + found.n_turned || found.value_dim > in.n_in + in.n_kept ||
      !in_eights || !(apart || together)) {
    return;
  }
  for (const size_t op : {index, found.keys, found.values}) latents_.emplace(op, found);
}

void FusionPatterns::find_gate(size_t index, const op::Mul& mul) {
  const auto* activation = made_by<op::Activation>(mul.a);
  ValueId up = mul.b;
  if (activation == nullptr) {
    activation = made_by<op::Activation>(mul.b);
    up = mul.a;
  }
  if (activation == nullptr || mul.a == mul.b) return;
  if (program_->values[mul.a].width != program_->values[mul.b].width) return;
  const ValueId activated = activation == made_by<op::Activation>(mul.a) ? mul.a : mul.b;
  const auto found = bundle("gate_up", {activation->x, up});
  if (!found || !has_one_reader(activated) || !rules_.has(FusionRule::kGate)) return;
  absorb(makers_[activated]);
  gates_.emplace(index, Gate{.bundle = *found, .kind = activation->kind});
}

}  // namespace pumice
