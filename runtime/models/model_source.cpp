#include "models/model_source.hpp"

#include <utility>

namespace pumice {

Result<ModelSource> ModelSource::open(const std::filesystem::path& path) {
  PUMICE_TRY(GgufFile file, GgufFile::open(path));
  const auto owned = std::make_shared<const GgufFile>(std::move(file));
  ModelSource source(*owned);
  source.file_ = owned;
  return source;
}

Result<ModelSource> ModelSource::synthetic(const SyntheticModel& model) {
  struct Made {
    SyntheticModel model;
    std::string header;
    std::optional<GgufFile> file;  // reads `header`
  };
  PUMICE_TRY(std::string header, model.header().to_bytes());
  const auto made = std::make_shared<Made>(Made{model, std::move(header), std::nullopt});
  PUMICE_TRY(made->file,
             GgufFile::from_memory(std::as_bytes(std::span(made->header)), model.shape().name));
  ModelSource source(*made->file);
  source.file_ = std::shared_ptr<const GgufFile>(made, &*made->file);
  source.synthetic_ = std::shared_ptr<const SyntheticModel>(made, &made->model);
  return source;
}

ModelSource ModelSource::with_adapters(std::vector<AdapterSource> adapters) const {
  ModelSource source = *this;
  source.adapters_ = std::make_shared<const std::vector<AdapterSource>>(std::move(adapters));
  return source;
}

const SyntheticTensor& ModelSource::made(const GgufTensor& tensor) const {
  return synthetic_->tensors()[static_cast<size_t>(&tensor - file_->tensors().data())];
}

Status ModelSource::read(const GgufTensor& tensor, uint64_t first_block,
                         std::span<std::byte> out) const {
  if (!synthetic_) return file_->read(tensor, first_block * tensor.type->block_bytes, out);
  synthetic_->fill(made(tensor), first_block, out);
  return {};
}

Result<std::vector<float>> ModelSource::values(const GgufTensor& tensor) const {
  std::vector<std::byte> blocks(tensor.n_bytes);
  PUMICE_TRY_STATUS(read(tensor, 0, blocks));
  std::vector<float> values(tensor.n_elements());
  dequantize(*tensor.type, blocks.data(), values.size(), values.data());
  return values;
}

WeightSource ModelSource::matrix(const GgufTensor& tensor, uint32_t first_row,
                                 uint32_t n_rows) const {
  WeightSource source{
      .type = tensor.type, .n_rows = n_rows, .n_cols = static_cast<uint32_t>(tensor.dims[0])};
  const uint64_t skipped =
      first_row * (tensor.type->file_bytes(tensor.dims[0]) / tensor.type->block_bytes);
  if (synthetic_) {
    source.fill = [fill = synthetic_->filler(made(tensor)), skipped](
                      uint64_t first_block, std::span<std::byte> out) -> Status {
      fill(skipped + first_block, out);
      return {};
    };
  } else {
    source.fill = [file = file_, &tensor, skipped](uint64_t first_block, std::span<std::byte> out) {
      return file->read(tensor, (skipped + first_block) * tensor.type->block_bytes, out);
    };
  }
  return source;
}

}  // namespace pumice
