#include "hub/listing.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"

namespace pumice {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAnswerBytes = 16 << 20;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 50;
constexpr size_t kCommitDigits = 40;
constexpr size_t kSha256Digits = 64;

bool is_hexadecimal(std::string_view text, size_t n_digits) {
  return text.size() == n_digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

const std::string* string_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

uint64_t size_in(const Json& object) {
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_unsigned()) return 0;
  const uint64_t size = found->get<uint64_t>();
  return size <= kMaxFileBytes ? size : 0;
}

/// Nothing useful (an empty path) for an entry that makes no sense.
RemoteFile file_of(const Json& entry) {
  if (!entry.is_object()) return {};
  const std::string* const path = string_in(entry, "rfilename");
  RemoteFile file{.path = path != nullptr ? *path : "", .size_bytes = size_in(entry), .sha256 = {}};
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    const std::string* digits = string_in(*lfs, "sha256");
    if (digits == nullptr) digits = string_in(*lfs, "oid");
    if (digits != nullptr && is_hexadecimal(*digits, kSha256Digits)) file.sha256 = *digits;
    if (const uint64_t size = size_in(*lfs); size > 0) file.size_bytes = size;
  }
  return file;
}

}  // namespace

Result<Listing> parse_listing(std::string_view text) {
  const Result<Json> answer = read_json(text, kMaxAnswerBytes);
  if (!answer.ok()) {
    return make_error(ErrorCode::kBadFile, "the server's answer is not a list of files: {}",
                      answer.error().message);
  }
  const Json& json = *answer;
  const auto siblings = json.is_object() ? json.find("siblings") : json.end();
  if (siblings == json.end() || !siblings->is_array()) {
    return make_error(ErrorCode::kBadFile, "the server's answer is not a list of files");
  }
  Listing listing{.commit = "main", .files = {}};
  const std::string* const commit = string_in(json, "sha");
  if (commit != nullptr && is_hexadecimal(*commit, kCommitDigits)) listing.commit = *commit;
  for (const Json& entry : *siblings) {
    RemoteFile file = file_of(entry);
    if (is_safe_path(file.path) && file.size_bytes > 0) listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace pumice
