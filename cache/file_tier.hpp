// The prompt cache file as a tier: slots that hold what the file had when it was opened, and what
// is put there since. New bytes go to an unnamed file beside it, which vanishes with the process;
// the file itself is replaced only by KvCache::save_prompt_cache.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/file.hpp"
#include "cache/prompt_cache_file.hpp"
#include "cache/slot_tier.hpp"

namespace pumice {

class FileTier {
 public:
  /// No tier: no slots.
  FileTier() = default;

  /// What is at `path`, if there is a file, and room up to `limit_bytes`. Errors: kBadFile, when
  /// the file there cannot be used; it is left alone.
  static Result<FileTier> open(const std::filesystem::path& path, const PromptCacheBinding& binding,
                               uint64_t limit_bytes);

  SlotTier slots;

  /// Records of the opened file; nullptr if there was none.
  const PromptCacheFile* opened() const { return opened_ ? &*opened_ : nullptr; }
  /// Slot `slot` holds record `record` of the opened file.
  void adopt(uint32_t slot, uint32_t record);

  const std::filesystem::path& path() const { return path_; }
  const PromptCacheBinding& binding() const { return binding_; }
  uint64_t limit_bytes() const { return limit_bytes_; }

  /// A slot's bytes, verified. Errors: kBadFile.
  Status read(uint32_t slot, std::span<std::byte> bytes) const;
  /// Errors: kInternal (disk full, for instance).
  Status write(uint32_t slot, std::span<const std::byte> bytes);

 private:
  static constexpr uint32_t kNotOpened = UINT32_MAX;
  struct Content {
    uint32_t record = kNotOpened;  // of the opened file; else in the unnamed one
    uint64_t checksum = 0;
  };

  std::filesystem::path path_;
  PromptCacheBinding binding_;
  uint64_t limit_bytes_ = 0;
  std::optional<PromptCacheFile> opened_;
  File unnamed_;
  std::vector<Content> contents_;  // by slot
};

}  // namespace pumice
