#include "models/program_tensors.hpp"

#include <set>

#include "base/printable.hpp"

namespace pumice {
namespace {

/// "256 x 512": at least two dimensions, and no ones after those that tell something.
std::string shape(const std::array<uint64_t, 4>& dims) {
  size_t n = dims.size();
  while (n > 2 && dims[n - 1] == 1) --n;
  std::string text;
  for (size_t i = 0; i < n; ++i) text += (i == 0 ? "" : " x ") + std::to_string(dims[i]);
  return text;
}

Status check_tensor(const GgufFile& file, const TensorSpec& spec) {
  const GgufTensor* tensor = file.find_tensor(spec.name);
  if (tensor == nullptr) {
    return make_error(ErrorCode::kBadFile, "the file has no tensor {}", spec.name);
  }
  if (tensor->dims != spec.dims) {
    return make_error(ErrorCode::kBadFile, "{}: shape {} where the metadata say {}", spec.name,
                      shape(tensor->dims), shape(spec.dims));
  }
  if (!tensor->type->has_codec()) {
    return make_error(ErrorCode::kBadFile, "{}: weight type {} is not supported yet", spec.name,
                      tensor->type->name);
  }
  return {};
}

bool is_of_block(size_t block, std::string_view tensor) {
  return tensor.starts_with("blk." + std::to_string(block) + ".");
}

/// "blk.46.…" where 46 layers come before it.
bool is_of_prediction(const Program& program, std::string_view tensor) {
  const size_t n_layers = program.layers.size();
  for (size_t i = n_layers; i < n_layers + program.n_prediction_blocks; ++i) {
    if (is_of_block(i, tensor)) return true;
  }
  return false;
}

/// Whether another program reads it.
bool is_left_out(const Program& program, std::string_view tensor) {
  if (program.predicting_block != 0) return !is_of_block(program.predicting_block, tensor);
  return is_of_prediction(program, tensor);
}

}  // namespace

Status check_tensors(const ModelSource& source, const Program& program) {
  if (!source.has_tensor_data()) {
    return make_error(ErrorCode::kBadFile, "the file holds no tensor data: not a model");
  }
  std::set<std::string_view> read;
  for (const TensorSpec& spec : program.tensors) {
    PUMICE_TRY_STATUS(check_tensor(source.file(), spec));
    read.insert(spec.name);
  }
  for (const GgufTensor& tensor : source.file().tensors()) {
    if (!read.contains(tensor.name) && !is_left_out(program, tensor.name)) {
      return make_error(
          ErrorCode::kBadFile,
          "{}: nothing in architecture {} reads this tensor; ignoring it would compute "
          "a different model",
          printable(tensor.name), program.architecture);
    }
  }
  return {};
}

uint64_t prediction_bytes(const GgufFile& file, const Program& program) {
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (is_of_prediction(program, tensor.name)) bytes += tensor.n_bytes;
  }
  return bytes;
}

}  // namespace pumice
