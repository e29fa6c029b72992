// The prompt cache file: blocks with the tokens they stand for and their pages of each kind,
// bound to one model, layout and list of kinds.
//
//     offset 0   header, 112 bytes: "PUMICEKV", version, block_tokens, page_bytes, model (16),
//                layout, number of records, offset of the bytes, checksum of header and table
//                (this field as 0), number of pages, signature of the kinds, number of kinds
//     then       table: per record parent (a record before it, or 2^32 − 1), n_tokens (fewer than
//                block_tokens: a partial block, nobody's parent), kinds (a bit for each whose page
//                is there), 0; a checksum of each kind's page, 0 where there is none;
//                token ids [block_tokens], 0 behind n_tokens
//     at that offset, on or after the end of the table: pages, page_bytes each, in order of
//                records and of kinds; the file ends there
//
// Little-endian; checksums are XXH3-64. Only prefixes without a salt are stored: a salt is a
// secret between users. A file is replaced as a whole (OutputFile), so a reader sees an old or a
// new one. Files are untrusted in their structure: whatever does not hold is refused with a reason,
// and memory is bounded by the size the file really has.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/output_file.hpp"
#include "base/result.hpp"
#include "cache/block_hash.hpp"

namespace pumice {

/// What a file must agree with to be used.
struct PromptCacheBinding {
  ModelFingerprint model;
  uint64_t layout = 0;  ///< of KV bytes in a block; opaque
  uint32_t block_tokens = 0;
  uint64_t page_bytes = 0;  ///< of a page
  uint32_t n_kinds = 1;
  uint64_t kinds = 0;  ///< PageKinds::signature
};

/// All of `bytes` at `offset`. Errors: kBadFile (ends early, read error).
Status read_block(const File& file, uint64_t offset, std::span<std::byte> bytes);

/// Checksum of a block's bytes.
uint64_t block_checksum(std::span<const std::byte> bytes);

/// A file opened for reading.
class PromptCacheFile {
 public:
  static constexpr uint32_t kNoParent = UINT32_MAX;
  struct Record {
    uint32_t parent = kNoParent;
    uint32_t n_tokens = 0;
    uint32_t kinds = 0;  ///< a bit for each kind whose page is there
    uint32_t zero = 0;
  };

  /// Read header and table, and keep the first records, of at most `max_pages` together. Errors:
  /// kBadFile saying what is wrong: not a prompt cache, a version, model, layout, kinds or block
  /// size that are not `binding`'s, damage.
  static Result<PromptCacheFile> open(const std::filesystem::path& path,
                                      const PromptCacheBinding& binding,
                                      uint32_t max_pages = UINT32_MAX);

  uint32_t n_records() const { return static_cast<uint32_t>(records_.size()); }
  const Record& record(uint32_t i) const { return records_[i]; }
  std::span<const uint32_t> tokens(uint32_t i) const {
    return {tokens_.data() + size_t{i} * binding_.block_tokens, records_[i].n_tokens};
  }
  /// Number of a record's page of one of its kinds.
  uint32_t page(uint32_t i, uint32_t kind) const {
    const uint32_t before = records_[i].kinds & ((1u << kind) - 1);
    return first_pages_[i] + static_cast<uint32_t>(std::popcount(before));
  }
  /// A page's bytes, page_bytes of them, verified. Errors: kBadFile.
  Status read(uint32_t page, std::span<std::byte> bytes) const;

 private:
  Status read_table(uint64_t n_records, uint64_t n_pages, uint64_t seed, uint64_t checksum,
                    uint32_t max_pages);
  bool well_formed(const Record& record) const;

  File file_;
  std::string name_;
  PromptCacheBinding binding_;
  uint64_t bytes_offset_ = 0;
  std::vector<Record> records_;
  std::vector<uint32_t> first_pages_;  // by record
  std::vector<uint64_t> checksums_;    // by page
  std::vector<uint32_t> tokens_;
};

/// Writes a new file beside `path` and puts it in its place at the end; until then, and if anything
/// fails, what was at `path` stays.
class PromptCacheWriter {
 public:
  /// Room for at most `max_records`. Errors of all calls: OutputFile's.
  static Result<PromptCacheWriter> create(const std::filesystem::path& path,
                                          const PromptCacheBinding& binding, uint32_t max_records);
  PromptCacheWriter(PromptCacheWriter&&) noexcept = default;
  PromptCacheWriter& operator=(PromptCacheWriter&&) = delete;

  /// Append a record with the pages of these kinds, one behind the other; its number is the count
  /// of those before.
  Status add(uint32_t parent, std::span<const uint32_t> tokens, uint32_t kinds,
             std::span<const std::byte> bytes);
  uint32_t n_records() const { return static_cast<uint32_t>(records_.size()); }
  Status finish();

 private:
  explicit PromptCacheWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  PromptCacheBinding binding_;
  uint32_t max_records_ = 0;
  uint64_t bytes_offset_ = 0;
  std::vector<PromptCacheFile::Record> records_;
  std::vector<uint64_t> checksums_;  // by page
  std::vector<uint32_t> tokens_;
};

}  // namespace pumice
