#include "format/gguf_writer.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/path.hpp"
#include "base/utf8.hpp"

namespace pumice {
namespace {

Error bad(const std::string& message) { return Error{ErrorCode::kBadFile, message}; }

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Status check_names(std::vector<std::string_view> names, std::string_view kind) {
  std::ranges::sort(names);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || !is_valid_utf8(names[i])) {
      return bad(fmt::format("{} '{}' is empty or not UTF-8", kind, printable(names[i])));
    }
    if (i > 0 && names[i] == names[i - 1]) {
      return bad(fmt::format("{} '{}' is given twice", kind, printable(names[i])));
    }
  }
  return {};
}

}  // namespace

void GgufHeader::append_string(std::string_view text) {
  append(uint64_t{text.size()});
  metadata_.append(text);
}

void GgufHeader::begin_value(std::string_view key, GgufValueType type) {
  keys_.emplace_back(key);
  append_string(key);
  append(static_cast<uint32_t>(type));
}

void GgufHeader::begin_array(std::string_view key, GgufValueType element_type, uint64_t count) {
  begin_value(key, GgufValueType::kArray);
  append(static_cast<uint32_t>(element_type));
  append(count);
}

void GgufHeader::set(std::string_view key, std::string_view text) {
  begin_value(key, GgufValueType::kString);
  append_string(text);
}

void GgufHeader::set_array(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufValueType::kString, values.size());
  for (const std::string& value : values) append_string(value);
}

void GgufHeader::add_tensor(std::string_view name, const WeightType& type,
                            std::vector<uint64_t> dims) {
  tensors_.push_back({std::string(name), &type, std::move(dims)});
}

Status GgufHeader::place_tensors() {
  if (!std::has_single_bit(alignment_)) {
    return bad(fmt::format("alignment {} is not a power of two", alignment_));
  }
  if (alignment_ != 32) set("general.alignment", alignment_);
  std::vector<std::string_view> names(keys_.begin(), keys_.end());
  PUMICE_TRY_STATUS(check_names(std::move(names), "key"));
  names = {};
  uint64_t offset = 0;
  for (Tensor& tensor : tensors_) {
    names.push_back(tensor.name);
    uint64_t n_elements = 1;
    bool fits = !tensor.dims.empty() && tensor.dims.size() <= 4 && tensor.dims[0] != 0 &&
                tensor.dims[0] % tensor.type->block_elements == 0;
    for (const uint64_t dim : tensor.dims) {
      const std::optional<uint64_t> product = checked_multiply(n_elements, dim);
      fits = fits && dim != 0 && product;
      n_elements = product.value_or(0);
    }
    if (!fits || n_elements >> 56 != 0) {
      return bad(fmt::format("tensor '{}': dimensions are not possible for type {}",
                             printable(tensor.name), tensor.type->name));
    }
    tensor.n_bytes = tensor.type->file_bytes(n_elements);
    tensor.offset = offset;
    offset += round_up(tensor.n_bytes, alignment_);
  }
  return check_names(std::move(names), "tensor");
}

std::string GgufHeader::encode() const {
  GgufHeader out(alignment_);
  out.metadata_ = "GGUF";
  out.append(uint32_t{3});
  out.append(uint64_t{tensors_.size()});
  out.append(uint64_t{keys_.size()});
  out.metadata_ += metadata_;
  for (const Tensor& tensor : tensors_) {
    out.append_string(tensor.name);
    out.append(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) out.append(dim);
    out.append(tensor.type->ggml_id);
    out.append(tensor.offset);
  }
  out.metadata_.resize(round_up(out.metadata_.size(), alignment_));
  return std::move(out.metadata_);
}

Result<std::string> GgufHeader::to_bytes() const {
  GgufHeader placed = *this;
  PUMICE_TRY_STATUS(placed.place_tensors());
  return placed.encode();
}

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path, GgufHeader header,
                                      OutputFile::Existing existing) {
  if (const Status placed = header.place_tensors(); !placed.ok()) {
    return bad(fmt::format("{}: {}", to_utf8(path), placed.error().message));
  }
  PUMICE_TRY(OutputFile file, OutputFile::create(path, existing));
  GgufWriter writer(path, std::move(header), std::move(file));
  PUMICE_TRY_STATUS(writer.file_.write(writer.header_.encode()));
  const std::vector<GgufHeader::Tensor>& tensors = writer.header_.tensors_;
  if (!tensors.empty()) writer.left_in_tensor_ = tensors[0].n_bytes;
  return writer;
}

Error GgufWriter::failed(std::string_view what) const {
  return bad(fmt::format("{}: {}", to_utf8(path_), what));
}

Status GgufWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (tensor_ == header_.tensors_.size()) return failed("more data than the tensors hold");
    const size_t n = std::min<uint64_t>(bytes.size(), left_in_tensor_);
    PUMICE_TRY_STATUS(file_.write(bytes.first(n)));
    bytes = bytes.subspan(n);
    left_in_tensor_ -= n;
    if (left_in_tensor_ == 0) PUMICE_TRY_STATUS(start_next_tensor());
  }
  return {};
}

Status GgufWriter::start_next_tensor() {
  const uint64_t n_bytes = header_.tensors_[tensor_].n_bytes;
  const std::vector<std::byte> padding(round_up(n_bytes, header_.alignment_) - n_bytes);
  PUMICE_TRY_STATUS(file_.write(padding));
  ++tensor_;
  if (tensor_ < header_.tensors_.size()) left_in_tensor_ = header_.tensors_[tensor_].n_bytes;
  return {};
}

Status GgufWriter::finish() {
  if (tensor_ != header_.tensors_.size()) {
    return failed(
        fmt::format("data of tensor '{}' is missing", printable(header_.tensors_[tensor_].name)));
  }
  return file_.finish();
}

}  // namespace pumice
