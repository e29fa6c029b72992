#include "base/json.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/printable.hpp"

namespace pumice {
namespace {

/// Walks over the text and counts what the library has taken of it: its handler is told where it is
/// only in errors.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* n_taken) : at_(at), n_taken_(n_taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*n_taken_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  size_t* n_taken_;
};

/// The library's "[json.exception.…] parse error at …: syntax error while parsing X - PROBLEM;
/// expected …": the problem.
std::string problem_of(std::string_view what) {
  const size_t dash = what.find(" - ");
  if (dash == what.npos) return "not valid JSON";
  what.remove_prefix(dash + 3);
  return printable(what.substr(0, what.find("; ")), 120);
}

/// Builds the value from the library's events; the handler's names are the library's.
template <typename Json>
class JsonBuilder {
 public:
  explicit JsonBuilder(const size_t& n_taken) : n_taken_(n_taken) {}

  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(int64_t value) { return put(Json(value)); }
  bool number_unsigned(uint64_t value) { return put(Json(value)); }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == text.npos) return fail("a whole number of more than 64 bits");
    return put(Json(value));
  }
  bool string(std::string& value) { return put(Json(std::move(value))); }
  bool binary(typename Json::binary_t& /*value*/) { return fail("not valid JSON"); }
  bool start_object(size_t /*size*/) { return open(Json::object()); }
  bool start_array(size_t /*size*/) { return open(Json::array()); }
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool end_object() {
    if (const std::string* const twice = name_that_stands_twice(open_.back().members)) {
      return fail(fmt::format("the name \"{}\" appears twice in the object that ends",
                              printable(*twice, 40)));
    }
    auto& object = open_.back().value.template get_ref<typename Json::object_t&>();
    constexpr bool kIsOrdered = requires { object.reserve(1); };
    if constexpr (kIsOrdered) object.reserve(open_.back().members.size());
    for (auto& [name, value] : open_.back().members) {
      if constexpr (kIsOrdered) {  // whose emplace compares with all before
        object.emplace_back(std::move(name), std::move(value));
      } else {
        object.emplace(std::move(name), std::move(value));
      }
    }
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) {
    constexpr int kOutOfRange = 406;
    return fail(
        error.id == kOutOfRange ? "a number beyond the range of doubles" : problem_of(error.what()),
        position);
  }

  Result<Json> result() && {
    if (error_) return *std::move(error_);
    return std::move(root_);
  }

 private:
  struct Open {
    Json value;
    std::vector<std::pair<std::string, Json>> members;  // of an object
    std::string name;                                   // of the member that comes next
  };

  bool fail(std::string_view what) { return fail(what, n_taken_); }
  bool fail(std::string_view what, size_t position) {
    error_ = make_error(ErrorCode::kBadFile, "cannot read JSON at byte {}: {}", position, what);
    return false;
  }

  bool put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_object()) {
      open_.back().members.emplace_back(std::move(open_.back().name), std::move(value));
    } else {
      open_.back().value.push_back(std::move(value));
    }
    return true;
  }
  bool open(Json empty) {
    if (open_.size() == kMaxJsonDepth)
      return fail(fmt::format("nested more than {} deep", kMaxJsonDepth));
    open_.push_back({.value = std::move(empty), .members = {}, .name = {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(value));
  }

  /// By sorting: no names make it slow.
  static const std::string* name_that_stands_twice(
      const std::vector<std::pair<std::string, Json>>& members) {
    std::vector<const std::string*> names;
    names.reserve(members.size());
    for (const auto& member : members) names.push_back(&member.first);
    std::ranges::sort(names, {}, [](const std::string* name) { return std::string_view(*name); });
    const auto found = std::ranges::adjacent_find(
        names, {}, [](const std::string* name) { return std::string_view(*name); });
    return found == names.end() ? nullptr : *found;
  }

  const size_t& n_taken_;
  Json root_;
  std::vector<Open> open_;
  std::optional<Error> error_;
};

template <typename Json>
Result<Json> read_as(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return make_error(ErrorCode::kBadFile, "larger than {} bytes", max_bytes);
  }
  size_t n_taken = 0;
  JsonBuilder<Json> builder(n_taken);
  Json::sax_parse(CountingIterator(text.data(), &n_taken),
                  CountingIterator(text.data() + text.size(), &n_taken), &builder);
  Result<Json> result = std::move(builder).result();
  // The library takes a zero byte behind a value for the text's end.
  const size_t zero = text.find('\0');
  if (result.ok() && zero != text.npos) {
    return make_error(ErrorCode::kBadFile, "cannot read JSON at byte {}: a zero byte", zero + 1);
  }
  return result;
}

}  // namespace

Result<nlohmann::json> read_json(std::string_view text, size_t max_bytes) {
  return read_as<nlohmann::json>(text, max_bytes);
}

Result<nlohmann::ordered_json> read_ordered_json(std::string_view text, size_t max_bytes) {
  return read_as<nlohmann::ordered_json>(text, max_bytes);
}

Result<nlohmann::json> read_json_file(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::directory) {
    return make_error(ErrorCode::kBadFile, "it is a directory");
  }
  if (type != std::filesystem::file_type::regular) {  // opening a FIFO would wait for its other end
    return make_error(ErrorCode::kBadFile, "it is not a regular file");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > max_bytes)
    return make_error(ErrorCode::kBadFile, "larger than {} bytes", max_bytes);
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kBadFile, "it cannot be opened");
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return make_error(ErrorCode::kBadFile, "it cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  return read_json(text, max_bytes);
}

}  // namespace pumice
