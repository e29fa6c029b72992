#include "models/families.hpp"

#include "base/printable.hpp"

namespace pumice {
namespace {

constexpr ModelFamily kFamilies[] = {
    {"llama", families::describe_llama},
};

/// Errors unless the tensor exists with these dimensions and a type the kernels can read.
Status check_tensor(const GgufFile& file, const std::string& name, uint64_t n_cols,
                    uint64_t n_rows) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) {
    return make_error(ErrorCode::kBadFile, "the file has no tensor {}", name);
  }
  if (tensor->dims[0] != n_cols || tensor->dims[1] != n_rows ||
      tensor->n_elements() != n_cols * n_rows) {
    return make_error(ErrorCode::kBadFile, "{}: shape {} x {} where the metadata say {} x {}", name,
                      tensor->dims[0], tensor->dims[1], n_cols, n_rows);
  }
  if (!tensor->type->has_codec()) {
    return make_error(ErrorCode::kBadFile, "{}: weight type {} is not supported yet", name,
                      tensor->type->name);
  }
  return {};
}

Status check_tensors(const ModelSource& source, const ModelDescription& model) {
  const GgufFile& file = source.file();
  const ModelConfig& c = model.config;
  const TensorNames& names = model.names;
  if (!source.has_tensor_data()) {
    return make_error(ErrorCode::kBadFile, "the file holds no tensor data: not a model");
  }
  PUMICE_TRY_STATUS(check_tensor(file, names.token_embd, c.n_embd, c.n_vocab));
  PUMICE_TRY_STATUS(check_tensor(file, names.output_norm, c.n_embd, 1));
  if (file.find_tensor(names.output) != nullptr) {
    PUMICE_TRY_STATUS(check_tensor(file, names.output, c.n_embd, c.n_vocab));
  }
  struct Expected {
    const std::string& name;
    uint64_t n_cols;
    uint64_t n_rows;
  };
  // clang-format off
  const Expected per_layer[] = {
      {names.attn_norm, c.n_embd, 1},
      {names.attn_q, c.n_embd, c.q_dim()},
      {names.attn_k, c.n_embd, c.kv_dim()},
      {names.attn_v, c.n_embd, c.kv_dim()},
      {names.attn_output, c.q_dim(), c.n_embd},
      {names.ffn_norm, c.n_embd, 1},
      {names.ffn_gate, c.n_embd, c.n_ff},
      {names.ffn_up, c.n_embd, c.n_ff},
      {names.ffn_down, c.n_ff, c.n_embd},
  };
  // clang-format on
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    for (const Expected& tensor : per_layer) {
      PUMICE_TRY_STATUS(
          check_tensor(file, names.layer(layer, tensor.name), tensor.n_cols, tensor.n_rows));
    }
    // A tensor this decoder would silently leave out makes the model another one.
    for (const char* extra :
         {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias", "ffn_gate.bias",
          "ffn_up.bias", "ffn_down.bias", "ffn_gate_inp.weight"}) {
      if (file.find_tensor(names.layer(layer, extra)) != nullptr) {
        return make_error(ErrorCode::kBadFile, "{}: not supported yet for architecture {}",
                          names.layer(layer, extra), c.architecture);
      }
    }
  }
  return {};
}

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

Result<ModelDescription> describe_model(const ModelSource& source) {
  PUMICE_TRY(const std::string_view architecture,
             source.file().get<std::string_view>("general.architecture"));
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) {
      PUMICE_TRY(ModelDescription model, family.describe(source));
      PUMICE_TRY_STATUS(check_tensors(source, model));
      return model;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  return make_error(ErrorCode::kBadFile, "architecture '{}' is not supported yet (known: {})",
                    printable(architecture), known);
}

}  // namespace pumice
