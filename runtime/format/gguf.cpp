#include "format/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "base/path.hpp"
#include "base/utf8.hpp"
#include "format/gguf_parts.hpp"

namespace pumice {
namespace {

constexpr size_t kMaxKeyBytes = 65535;  // both by the specification
constexpr size_t kMaxTensorNameBytes = 64;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kFirstBytes = uint64_t{1} << 16;          // of a file, read at once
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;        // key of one byte, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, n_dims, one dim, type, offset

/// Indices of `items` sorted by `name`. `duplicate` becomes a name that appears twice, if any does.
template <typename Item, typename Name>
std::vector<uint32_t> sorted_index(const std::vector<Item>& items, Name name,
                                   std::string_view* duplicate) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto name_of_index = [&](uint32_t index) { return std::invoke(name, items[index]); };
  std::ranges::sort(order, {}, name_of_index);
  const auto equal = std::ranges::adjacent_find(order, {}, name_of_index);
  if (equal != order.end()) *duplicate = name_of_index(*equal);
  return order;
}

template <typename Item, typename Name>
const Item* find_sorted(const std::vector<Item>& items, const std::vector<uint32_t>& order,
                        Name name, std::string_view wanted) {
  const auto name_of_index = [&](uint32_t index) { return std::invoke(name, items[index]); };
  const auto found = std::ranges::lower_bound(order, wanted, {}, name_of_index);
  if (found == order.end() || name_of_index(*found) != wanted) return nullptr;
  return &items[*found];
}

Error bad(const std::filesystem::path& path, std::string_view what) {
  return make_error(ErrorCode::kBadFile, "{}: {}", to_utf8(path), what);
}

}  // namespace

/// Fills a GgufFile from the first bytes of one, which need not be all of its header. Every read is
/// checked against the end of the file; `field` says what is being read, for the error.
class GgufFile::Parser {
 public:
  Parser(GgufFile& file, std::string path, std::span<const std::byte> first_bytes)
      : file_(file), path_(std::move(path)), bytes_(first_bytes) {}

  Status parse() {
    PUMICE_TRY_STATUS(parse_header());
    PUMICE_TRY_STATUS(parse_metadata());
    PUMICE_TRY_STATUS(parse_tensors());
    return place_tensors();
  }
  /// Whether parsing ended because the header goes on behind the bytes given.
  bool needs_more() const { return needs_more_; }

 private:
  template <typename... Args>
  Error bad(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kBadFile, "{}: {}", path_,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  Error truncated(std::string_view field) const {
    return bad("{}: the file ends too early ({} bytes)", field, file_.size_bytes_);
  }
  /// In the file.
  uint64_t left() const { return file_.size_bytes_ - at_; }
  /// `n_bytes`, which the file has, are among the bytes given.
  Status need(uint64_t n_bytes) {
    if (n_bytes <= bytes_.size() - at_) return {};
    needs_more_ = n_bytes <= kMaxHeaderBytes - std::min(at_, kMaxHeaderBytes);
    return bad("the header is larger than {} MiB", kMaxHeaderBytes >> 20);
  }

  template <typename T>
  Result<T> read(std::string_view field) {
    if (left() < sizeof(T)) return truncated(field);
    PUMICE_TRY_STATUS(need(sizeof(T)));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  Result<std::string_view> read_string(std::string_view field) {
    PUMICE_TRY(const auto length, read<uint64_t>(field));
    if (length > left()) {
      return bad("{}: a string of {} bytes, but {} are left in the file", field, length, left());
    }
    PUMICE_TRY_STATUS(need(length));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }

  /// A key or tensor name.
  Result<std::string_view> read_name(const std::string& field, size_t max_bytes) {
    PUMICE_TRY(const std::string_view name, read_string(field));
    if (name.empty()) return bad("{}: is empty", field);
    if (name.size() > max_bytes) {
      return bad("{}: {} bytes long, at most {} are allowed", field, name.size(), max_bytes);
    }
    if (!is_valid_utf8(name)) return bad("{}: '{}' is not valid UTF-8", field, printable(name));
    return name;
  }

  Status parse_header() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      return bad("magic: not a GGUF file (it does not begin with \"GGUF\")");
    }
    at_ = 4;
    PUMICE_TRY(file_.version_, read<uint32_t>("version"));
    if (file_.version_ != 0 && (file_.version_ & 0xFFFF) == 0) {
      return bad("version: this is a big-endian file, which is not supported");
    }
    if (file_.version_ != 2 && file_.version_ != 3) {
      return bad("version: {} is not supported, only 2 and 3 are", file_.version_);
    }
    PUMICE_TRY(n_tensors_, read<uint64_t>("tensor count"));
    PUMICE_TRY(n_metadata_, read<uint64_t>("metadata count"));
    PUMICE_TRY_STATUS(check_count("metadata count", n_metadata_, kMaxMetadata, kMinMetadataBytes));
    return check_count("tensor count", n_tensors_, kMaxTensors, kMinTensorBytes);
  }

  Status check_count(std::string_view field, uint64_t count, uint64_t limit, uint64_t min_bytes) {
    if (count > left() / min_bytes) {
      return bad("{}: {} do not fit in a file of {} bytes", field, count, file_.size_bytes_);
    }
    if (count > limit) return bad("{}: {} is more than the supported {}", field, count, limit);
    return {};
  }

  Status parse_metadata() {
    file_.metadata_.reserve(n_metadata_);
    for (uint64_t i = 0; i < n_metadata_; ++i) {
      GgufValue value;
      PUMICE_TRY(value.key, read_name(fmt::format("metadata key {}", i), kMaxKeyBytes));
      const std::string field = printable(value.key);
      PUMICE_TRY(const auto type, read<uint32_t>(field));
      value.type = GgufValueType{type};
      if (value.is_array()) {
        PUMICE_TRY_STATUS(parse_array(field, 1, &value));
      } else {
        value.data = bytes_.data() + at_;
        PUMICE_TRY_STATUS(skip_values(field, value.type, 1));
      }
      file_.metadata_.push_back(value);
    }
    std::string_view duplicate;
    file_.metadata_by_key_ = sorted_index(file_.metadata_, &GgufValue::key, &duplicate);
    if (!duplicate.empty()) return bad("{}: the key appears twice", printable(duplicate));
    return {};
  }

  Status skip_values(const std::string& field, GgufValueType type, uint64_t count) {
    if (type == GgufValueType::kString) {
      for (uint64_t i = 0; i < count; ++i) PUMICE_TRY_STATUS(skip_string(field));
      return {};
    }
    const size_t size = fixed_size_bytes(type);
    if (size == 0) return bad("{}: unknown value type {}", field, static_cast<uint32_t>(type));
    if (count > left() / size) return truncated(field);
    PUMICE_TRY_STATUS(need(count * size));
    at_ += count * size;
    return {};
  }

  Status skip_string(const std::string& field) {
    PUMICE_TRY([[maybe_unused]] const std::string_view text, read_string(field));
    return {};
  }

  /// The element type, count and elements of an array; `value`, if given, is set to it.
  Status parse_array(const std::string& field, int depth, GgufValue* value) {
    if (depth > kMaxArrayDepth) {
      return bad("{}: arrays nested deeper than {}", field, kMaxArrayDepth);
    }
    PUMICE_TRY(const auto number, read<uint32_t>(field));
    PUMICE_TRY(const auto count, read<uint64_t>(field));
    const GgufValueType element{number};
    if (value != nullptr) {
      value->element_type = element;
      value->count = count;
      value->data = bytes_.data() + at_;
    }
    if (element != GgufValueType::kArray) return skip_values(field, element, count);
    for (uint64_t i = 0; i < count; ++i) {
      PUMICE_TRY_STATUS(parse_array(field, depth + 1, nullptr));
    }
    return {};
  }

  Status parse_tensors() {
    file_.tensors_.reserve(n_tensors_);
    for (uint64_t i = 0; i < n_tensors_; ++i) {
      GgufTensor tensor;
      PUMICE_TRY(tensor.name, read_name(fmt::format("tensor name {}", i), kMaxTensorNameBytes));
      PUMICE_TRY_STATUS(parse_tensor(fmt::format("tensor '{}'", printable(tensor.name)), tensor));
      file_.tensors_.push_back(tensor);
    }
    std::string_view duplicate;
    file_.tensors_by_name_ = sorted_index(file_.tensors_, &GgufTensor::name, &duplicate);
    if (!duplicate.empty()) return bad("tensor '{}': the name appears twice", printable(duplicate));
    return {};
  }

  Status parse_tensor(const std::string& field, GgufTensor& tensor) {
    PUMICE_TRY(tensor.n_dims, read<uint32_t>(field));
    if (tensor.n_dims < 1 || tensor.n_dims > 4) {
      return bad("{}: {} dimensions, expected 1 to 4", field, tensor.n_dims);
    }
    uint64_t n_elements = 1;
    for (uint32_t d = 0; d < tensor.n_dims; ++d) {
      PUMICE_TRY(tensor.dims[d], read<uint64_t>(field));
      if (tensor.dims[d] == 0) return bad("{}: dimension {} is zero", field, d);
      const std::optional<uint64_t> product = checked_multiply(n_elements, tensor.dims[d]);
      if (!product) return bad("{}: the dimensions overflow", field);
      n_elements = *product;
    }
    PUMICE_TRY(const auto type, read<uint32_t>(field));
    tensor.type = find_weight_type(type);
    if (tensor.type == nullptr) return bad("{}: unknown type number {}", field, type);
    if (tensor.dims[0] % tensor.type->block_elements != 0) {
      return bad("{}: rows of {} values are not whole blocks of {} ({})", field, tensor.dims[0],
                 tensor.type->block_elements, tensor.type->name);
    }
    const std::optional<uint64_t> n_bytes = checked_multiply(
        n_elements / tensor.type->block_elements, uint64_t{tensor.type->block_bytes});
    if (!n_bytes) return bad("{}: the dimensions overflow", field);
    tensor.n_bytes = *n_bytes;
    PUMICE_TRY(tensor.offset, read<uint64_t>(field));
    return {};
  }

  Status place_tensors() {
    PUMICE_TRY_STATUS(read_alignment());
    file_.header_bytes_ = file_.size_bytes_;
    if (file_.tensors_.empty()) return {};
    const uint64_t alignment = file_.alignment_;
    const uint64_t data_start = (at_ + alignment - 1) / alignment * alignment;
    if (data_start > file_.size_bytes_) return truncated("tensor data");
    file_.header_bytes_ = data_start;
    file_.has_data_ = data_start < file_.size_bytes_;
    const uint64_t data_bytes = file_.size_bytes_ - data_start;
    for (const GgufTensor& tensor : file_.tensors_) {
      if (tensor.offset % alignment != 0) {
        return bad("tensor '{}': offset {} is not a multiple of the alignment {}",
                   printable(tensor.name), tensor.offset, alignment);
      }
      const std::optional<uint64_t> padded = checked_add(tensor.n_bytes, alignment - 1);
      const std::optional<uint64_t> end =
          padded ? checked_add(tensor.offset, *padded / alignment * alignment) : std::nullopt;
      if (!end) {
        return bad("tensor '{}': offset {} overflows", printable(tensor.name), tensor.offset);
      }
      if (!file_.has_data_) continue;
      if (*end > data_bytes) {
        return bad(
            "tensor '{}': ends at byte {} of the tensor data (with padding), of which the "
            "file has {}",
            printable(tensor.name), *end, data_bytes);
      }
    }
    return check_overlap();
  }

  Status read_alignment() {
    const Result<uint32_t> given = file_.get_or<uint32_t>("general.alignment", 32);
    if (!given.ok()) return bad("{}", given.error().message);
    const uint32_t alignment = *given;
    if (!std::has_single_bit(alignment)) {
      return bad("general.alignment: {} is not a power of two", alignment);
    }
    file_.alignment_ = alignment;
    return {};
  }

  Status check_overlap() const {
    std::vector<const GgufTensor*> order;
    order.reserve(file_.tensors_.size());
    for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
    std::ranges::sort(order, {}, &GgufTensor::offset);
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->n_bytes > order[i]->offset) {
        return bad("tensor '{}': overlaps tensor '{}'", printable(order[i]->name),
                   printable(order[i - 1]->name));
      }
    }
    return {};
  }

  GgufFile& file_;
  std::string path_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  bool needs_more_ = false;
  uint64_t n_tensors_ = 0;
  uint64_t n_metadata_ = 0;
};

Result<GgufFile> GgufFile::open_one(const std::filesystem::path& path, const OpenFile& open_file) {
  PUMICE_TRY(InputFile input, open_file(path));
  // Where the header ends is known when it has been parsed: as long as it goes on behind what has
  // been read, more is.
  std::vector<std::byte> header;
  for (uint64_t n_bytes = kFirstBytes;; n_bytes *= 4) {
    const size_t n_before = header.size();
    header.resize(std::min({n_bytes, kMaxHeaderBytes, input.size_bytes()}));
    PUMICE_TRY_STATUS(input.read(n_before, std::span(header).subspan(n_before)));
    GgufFile file;
    file.size_bytes_ = input.size_bytes();
    Parser parser(file, to_utf8(path), header);
    const Status parsed = parser.parse();
    if (parser.needs_more()) continue;
    PUMICE_TRY_STATUS(parsed);
    file.header_ = std::move(header);
    file.input_ = std::move(input);
    return file;
  }
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path, const OpenFile& open_file) {
  PUMICE_TRY(GgufFile file, open_one(path, open_file));
  PUMICE_TRY_STATUS(file.open_others(path, open_file));
  return file;
}

Status GgufFile::open_others(const std::filesystem::path& path, const OpenFile& open_file) {
  const Result<GgufPart> own = part_of(*this);
  if (!own.ok()) return bad(path, own.error().message);
  if (own->count == 1) return {};
  PUMICE_TRY(const std::filesystem::path first, path_of_part(path, *own, 1));
  if (own->number != 1) {
    return bad(path, fmt::format("is part {} of {} of a model; open the first, {}", own->number,
                                 own->count, to_utf8(first)));
  }
  std::vector<std::filesystem::path> paths{path};
  for (uint32_t number = 2; number <= own->count; ++number) {
    PUMICE_TRY(paths.emplace_back(), path_of_part(path, *own, number));
    const Status added = add_part(paths.back(), {.number = number, .count = own->count}, open_file);
    if (!added.ok()) {
      return make_error(added.error().code, "{} (part {} of {})", added.error().message, number,
                        to_utf8(path));
    }
  }
  return check_parts(paths);
}

Status GgufFile::add_part(const std::filesystem::path& path, const GgufPart& expected,
                          const OpenFile& open_file) {
  PUMICE_TRY(GgufFile file, open_one(path, open_file));
  const Result<GgufPart> part = part_of(file);
  if (!part.ok()) return bad(path, part.error().message);
  if (*part != expected) {
    return bad(path, fmt::format("is part {} of {} by its metadata, not by its name", part->number,
                                 part->count));
  }
  if (file.tensors_.size() > kMaxTensors - tensors_.size()) {
    return bad(path, fmt::format("more than the supported {} tensors in all parts", kMaxTensors));
  }
  for (GgufTensor& tensor : file.tensors_) {
    tensor.part = expected.number - 1;
    tensors_.push_back(tensor);
  }
  others_.push_back(std::move(file));
  return {};
}

Status GgufFile::check_parts(std::span<const std::filesystem::path> paths) {
  std::string_view duplicate;
  tensors_by_name_ = sorted_index(tensors_, &GgufTensor::name, &duplicate);
  if (!duplicate.empty()) {
    const auto last =
        std::ranges::find(tensors_.rbegin(), tensors_.rend(), duplicate, &GgufTensor::name);
    return bad(paths[last->part],
               fmt::format("tensor '{}': an earlier part has a tensor of that name",
                           printable(duplicate)));
  }
  const Result<uint64_t> n_tensors = get<uint64_t>("split.tensors.count");
  if (!n_tensors.ok()) return bad(paths[0], n_tensors.error().message);
  if (*n_tensors != tensors_.size()) {
    return bad(paths[0], fmt::format("split.tensors.count: {}, but the {} parts have {}",
                                     *n_tensors, paths.size(), tensors_.size()));
  }
  return {};
}

Result<GgufFile> GgufFile::from_memory(std::span<const std::byte> bytes, std::string_view name) {
  GgufFile file;
  file.memory_ = bytes;
  file.size_bytes_ = bytes.size();
  PUMICE_TRY_STATUS(Parser(file, std::string(name), bytes).parse());
  return file;
}

uint64_t GgufFile::size_bytes() const {
  uint64_t bytes = size_bytes_;
  for (const GgufFile& other : others_) bytes += other.size_bytes_;
  return bytes;
}

bool GgufFile::has_tensor_data() const {
  return has_data_ && std::ranges::all_of(others_, &GgufFile::has_data_);
}

Status GgufFile::read(const GgufTensor& tensor, uint64_t first_byte,
                      std::span<std::byte> out) const {
  const GgufFile& part = tensor.part == 0 ? *this : others_[tensor.part - 1];
  return part.read_own(tensor, first_byte, out);
}

Status GgufFile::read_own(const GgufTensor& tensor, uint64_t first_byte,
                          std::span<std::byte> out) const {
  PUMICE_CHECK(
      has_data_ && first_byte <= tensor.n_bytes && out.size() <= tensor.n_bytes - first_byte,
      "reading beyond a tensor");
  const uint64_t at = header_bytes_ + tensor.offset + first_byte;
  if (input_) return input_->read(at, out);
  std::ranges::copy(memory_.subspan(at, out.size()), out.begin());
  return {};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  return find_sorted(metadata_, metadata_by_key_, &GgufValue::key, key);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_sorted(tensors_, tensors_by_name_, &GgufTensor::name, name);
}

Error GgufFile::missing(std::string_view key) {
  return make_error(ErrorCode::kBadFile, "{}: the key is missing", printable(key));
}

}  // namespace pumice
