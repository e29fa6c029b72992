#include "cache/prefix_store_file.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "base/path.hpp"

namespace pumice {
namespace {

constexpr std::array<char, 8> kStoredMagic = {'P', 'U', 'M', 'I', 'C', 'E', 'P', 'B'};
constexpr uint32_t kStoredVersion = 1;
constexpr std::string_view kStoredSuffix = ".page";
constexpr std::string_view kUnfinishedSuffix = ".unfinished";
constexpr size_t kHashDigits = 32;

struct StoredHeader {
  std::array<char, 8> magic = kStoredMagic;
  uint32_t version = kStoredVersion;
  uint32_t kind = 0;
  ModelFingerprint model;
  uint64_t layout = 0;
  uint64_t page_bytes = 0;
  uint64_t kinds = 0;
  uint32_t n_kinds = 0;
  uint32_t block_tokens = 0;
  uint64_t n_tokens = 0;
  uint64_t checksum = 0;
  std::array<uint64_t, 1> reserved = {};
};
static_assert(sizeof(StoredHeader) == 88);

StoredHeader header_of(const PromptCacheBinding& binding, uint32_t kind, size_t n_tokens) {
  return {.kind = kind,
          .model = binding.model,
          .layout = binding.layout,
          .page_bytes = binding.page_bytes,
          .kinds = binding.kinds,
          .n_kinds = binding.n_kinds,
          .block_tokens = binding.block_tokens,
          .n_tokens = n_tokens};
}

/// With the checksum's place zeroed.
uint64_t stored_checksum(std::span<const std::byte> file) {
  StoredHeader header;
  std::memcpy(&header, file.data(), sizeof(header));
  header.checksum = 0;
  const uint64_t seed = XXH3_64bits(&header, sizeof(header));
  const std::span<const std::byte> rest = file.subspan(sizeof(header));
  return XXH3_64bits_withSeed(rest.data(), rest.size(), seed);
}

std::string hex_of(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

uint64_t folded(uint64_t low, uint64_t high, uint64_t kind) {
  const std::array<uint64_t, 3> parts = {low, high, kind};
  return XXH3_64bits(parts.data(), sizeof(parts));
}

}  // namespace

std::string prefix_store_folder(const PromptCacheBinding& binding) {
  const StoredHeader header = header_of(binding, 0, 0);
  const XXH128_hash_t hash = XXH3_128bits(&header, sizeof(header));
  return hex_of({hash.low64, hash.high64});
}

std::filesystem::path stored_page_path(const BlockHash& hash, uint32_t kind) {
  const std::string name = hex_of(hash);
  return std::filesystem::path(name.substr(0, 2)) /
         fmt::format("{}.{}{}", name, kind, kStoredSuffix);
}

uint64_t stored_page_key(const BlockHash& hash, uint32_t kind) {
  return folded(hash.low, hash.high, kind);
}

std::optional<uint64_t> stored_page_key(std::string_view name) {
  if (name.size() <= kHashDigits + 1 + kStoredSuffix.size() || !name.ends_with(kStoredSuffix)) {
    return std::nullopt;
  }
  const std::string_view hash = name.substr(0, kHashDigits);
  std::string_view kind = name.substr(kHashDigits);
  kind.remove_suffix(kStoredSuffix.size());
  if (!is_hex(hash) || kind.front() != '.' || kind.size() > 3) return std::nullopt;
  kind.remove_prefix(1);
  if (kind.empty() || kind.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto number = [](std::string_view digits, int base) {
    return std::strtoull(std::string(digits).c_str(), nullptr, base);
  };
  return folded(number(hash.substr(16), 16), number(hash.substr(0, 16), 16), number(kind, 10));
}

bool is_unfinished_stored_page(std::string_view name) {
  const size_t end = name.find(kStoredSuffix);
  return end != std::string_view::npos && name.ends_with(kUnfinishedSuffix) &&
         stored_page_key(name.substr(0, end + kStoredSuffix.size())).has_value();
}

std::vector<std::byte> stored_page_bytes(const PromptCacheBinding& binding, uint32_t kind,
                                         std::span<const uint32_t> tokens,
                                         std::span<const std::byte> page) {
  PUMICE_CHECK(page.size() == binding.page_bytes, "a page is page_bytes long");
  StoredHeader header = header_of(binding, kind, tokens.size());
  std::vector<std::byte> file(sizeof(header) + tokens.size_bytes() + page.size());
  std::memcpy(file.data(), &header, sizeof(header));
  std::ranges::copy(std::as_bytes(tokens), file.begin() + sizeof(header));
  std::ranges::copy(page, file.end() - static_cast<ptrdiff_t>(page.size()));
  header.checksum = stored_checksum(file);
  std::memcpy(file.data(), &header, sizeof(header));
  return file;
}

StoredPageState read_stored_page(const std::filesystem::path& path,
                                 const PromptCacheBinding& binding, uint32_t kind,
                                 std::span<const uint32_t> tokens, std::vector<std::byte>& page) {
  std::error_code error;
  const File file = File::open(path, File::Mode::kReadNoLink, error);
  if (error == std::errc::too_many_symbolic_link_levels) return StoredPageState::kForeign;
  if (error) return StoredPageState::kAbsent;
  const FileInfo info = file.info(error);
  if (error) return StoredPageState::kAbsent;
  if (!info.is_regular()) return StoredPageState::kForeign;
  if (info.size_bytes == 0) return StoredPageState::kDamaged;  // its writer's machine went down
  StoredHeader header;
  const std::span<std::byte> head = std::as_writable_bytes(std::span(&header, 1));
  if (info.size_bytes < header.magic.size()) return StoredPageState::kForeign;
  const size_t n_head = file.read_at(0, head, error);
  if (error) return StoredPageState::kAbsent;
  if (header.magic != kStoredMagic) return StoredPageState::kForeign;
  if (n_head < sizeof(header)) return StoredPageState::kDamaged;
  StoredHeader expected = header_of(binding, kind, tokens.size());
  expected.checksum = header.checksum;
  if (std::memcmp(&expected, &header, sizeof(header)) != 0) return StoredPageState::kOther;
  const uint64_t n_bytes = sizeof(header) + tokens.size_bytes() + binding.page_bytes;
  if (info.size_bytes != n_bytes) return StoredPageState::kDamaged;
  std::vector<std::byte> bytes(n_bytes);
  if (file.read_at(0, bytes, error) != n_bytes) {
    return error ? StoredPageState::kAbsent : StoredPageState::kDamaged;
  }
  if (stored_checksum(bytes) != header.checksum) return StoredPageState::kDamaged;
  if (std::memcmp(bytes.data() + sizeof(header), tokens.data(), tokens.size_bytes()) != 0) {
    return StoredPageState::kOther;
  }
  page.assign(bytes.end() - static_cast<ptrdiff_t>(binding.page_bytes), bytes.end());
  return StoredPageState::kGood;
}

bool is_stored_page(const std::filesystem::path& path) {
  std::error_code error;
  const File file = File::open(path, File::Mode::kReadNoLink, error);
  if (error) return false;
  const FileInfo info = file.info(error);
  if (error || !info.is_regular()) return false;
  if (info.size_bytes == 0) return true;
  std::array<char, 8> magic = {};
  const size_t n = file.read_at(0, std::as_writable_bytes(std::span(magic)), error);
  return n == magic.size() && magic == kStoredMagic;
}

}  // namespace pumice
