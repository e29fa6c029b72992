#include "cache/prompt_cache_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/path.hpp"

namespace pumice {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as memory is");

constexpr std::array<char, 8> kMagic = {'P', 'U', 'M', 'I', 'C', 'E', 'K', 'V'};
constexpr uint32_t kVersion = 2;  // 1 had one kind

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t block_tokens = 0;
  uint64_t page_bytes = 0;
  ModelFingerprint model;
  uint64_t layout = 0;
  uint64_t n_records = 0;
  uint64_t bytes_offset = 0;
  uint64_t checksum = 0;
  uint64_t n_pages = 0;
  uint64_t kinds = 0;
  uint64_t n_kinds = 0;
  std::array<uint64_t, 2> reserved = {};
};
static_assert(sizeof(Header) == 112);
static_assert(sizeof(PromptCacheFile::Record) == 16);

/// Of one record in the table.
uint64_t entry_bytes(const PromptCacheBinding& binding) {
  return sizeof(PromptCacheFile::Record) + uint64_t{binding.n_kinds} * 8 +
         uint64_t{binding.block_tokens} * 4;
}

/// Bytes begin on a page, so that they can be read around the system's cache one day.
uint64_t bytes_offset_for(uint64_t n_records, const PromptCacheBinding& binding) {
  const uint64_t table_end = sizeof(Header) + n_records * entry_bytes(binding);
  return (table_end + 4095) / 4096 * 4096;
}

/// Seed of the table's checksum, so that it covers the header.
uint64_t header_hash(Header header) {
  header.checksum = 0;
  return XXH3_64bits(&header, sizeof(header));
}

std::span<std::byte> bytes_of(Header& header) {
  return std::as_writable_bytes(std::span<Header>(&header, 1));
}

Error bad_file(const std::string& name, std::string_view reason) {
  return make_error(ErrorCode::kBadFile, "prompt cache {}: {}", name, reason);
}

Status check_header(const std::string& name, const Header& header,
                    const PromptCacheBinding& binding, uint64_t file_bytes) {
  if (header.magic != kMagic) return bad_file(name, "not a prompt cache file");
  if (header.version != kVersion) {
    return make_error(ErrorCode::kBadFile, "prompt cache {}: version {}, this program reads {}",
                      name, header.version, kVersion);
  }
  if (!(header.model == binding.model)) {
    return bad_file(name,
                    "written with another model, KV type or arithmetic (--math, --invariant), "
                    "or with --invariant on another device; name another file, or delete this "
                    "one");
  }
  if (header.layout != binding.layout || header.block_tokens != binding.block_tokens ||
      header.page_bytes != binding.page_bytes || header.page_bytes == 0) {
    return bad_file(name, "written with another KV layout or block size");
  }
  if (header.n_kinds != binding.n_kinds || header.kinds != binding.kinds) {
    return bad_file(name, "written with other state groups");
  }
  // Dividing what there is, instead of multiplying what is claimed, cannot overflow.
  if (header.n_pages > file_bytes / header.page_bytes ||
      header.n_records > file_bytes / entry_bytes(binding) ||
      header.bytes_offset < bytes_offset_for(header.n_records, binding) ||
      header.bytes_offset > file_bytes ||
      file_bytes - header.bytes_offset != header.n_pages * header.page_bytes) {
    return make_error(ErrorCode::kBadFile,
                      "prompt cache {}: {} records and {} pages do not make {} bytes", name,
                      header.n_records, header.n_pages, file_bytes);
  }
  return {};
}

}  // namespace

Status read_block(const File& file, uint64_t offset, std::span<std::byte> bytes) {
  std::error_code error;
  const size_t n = file.read_at(offset, bytes, error);
  if (n == bytes.size()) return {};
  return make_error(ErrorCode::kBadFile, "cannot read at {}: {}", offset + n,
                    error ? error.message() : "the file ends");
}

uint64_t block_checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Result<PromptCacheFile> PromptCacheFile::open(const std::filesystem::path& path,
                                              const PromptCacheBinding& binding,
                                              uint32_t max_pages) {
  PromptCacheFile opened;
  opened.name_ = to_utf8(path);
  opened.binding_ = binding;
  std::error_code error;
  opened.file_ = File::open(path, File::Mode::kRead, error);
  if (error) return bad_file(opened.name_, error.message());
  const FileInfo info = opened.file_.info(error);
  if (error || !info.is_regular()) return bad_file(opened.name_, "not a regular file");
  const uint64_t file_bytes = info.size_bytes;
  Header header;
  if (file_bytes < sizeof(header)) return bad_file(opened.name_, "not a prompt cache file");
  PUMICE_TRY_STATUS(read_block(opened.file_, 0, bytes_of(header)));
  PUMICE_TRY_STATUS(check_header(opened.name_, header, binding, file_bytes));

  opened.bytes_offset_ = header.bytes_offset;
  PUMICE_TRY_STATUS(opened.read_table(header.n_records, header.n_pages, header_hash(header),
                                      header.checksum, max_pages));
  return opened;
}

/// Piece by piece: a sparse file can claim any size, and only what is kept takes memory.
Status PromptCacheFile::read_table(uint64_t n_records, uint64_t n_pages, uint64_t seed,
                                   uint64_t checksum, uint32_t max_pages) {
  constexpr uint64_t kPieceRecords = 1024;
  const uint32_t block_tokens = binding_.block_tokens;
  const uint64_t n_bytes = entry_bytes(binding_);
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(
      XXH3_createState(), [](XXH3_state_t* owned) { XXH3_freeState(owned); });
  XXH3_64bits_reset_withSeed(state.get(), seed);
  std::vector<std::byte> piece;
  uint64_t n_seen = 0;  // pages
  bool keeps = true;
  for (uint64_t first = 0; first < n_records; first += kPieceRecords) {
    const uint64_t n = std::min(kPieceRecords, n_records - first);
    piece.resize(n * n_bytes);
    PUMICE_TRY_STATUS(read_block(file_, sizeof(Header) + first * n_bytes, piece));
    XXH3_64bits_update(state.get(), piece.data(), piece.size());
    for (uint64_t i = 0; i < n; ++i) {
      const std::byte* entry = piece.data() + i * n_bytes;
      Record record;
      std::memcpy(&record, entry, sizeof(record));
      const auto n_here = static_cast<uint32_t>(std::popcount(record.kinds));
      n_seen += n_here;
      keeps = keeps && n_seen <= max_pages;
      if (!keeps) continue;
      if (!well_formed(record)) {
        return make_error(ErrorCode::kBadFile, "prompt cache {}: record {} is not well-formed",
                          name_, records_.size());
      }
      first_pages_.push_back(static_cast<uint32_t>(checksums_.size()));
      for (uint32_t g = 0; g < binding_.n_kinds; ++g) {
        if ((record.kinds >> g & 1) == 0) continue;
        std::memcpy(&checksums_.emplace_back(), entry + sizeof(record) + size_t{g} * 8, 8);
      }
      records_.push_back(record);
      tokens_.resize(records_.size() * block_tokens);
      std::memcpy(tokens_.data() + tokens_.size() - block_tokens,
                  entry + n_bytes - size_t{block_tokens} * 4, size_t{block_tokens} * 4);
    }
  }
  if (XXH3_64bits_digest(state.get()) != checksum) {
    return bad_file(name_, "damaged: the checksum of its table does not match");
  }
  if (n_seen != n_pages) return bad_file(name_, "its records do not have the pages it says");
  return {};
}

bool PromptCacheFile::well_formed(const Record& record) const {
  if (record.n_tokens == 0 || record.n_tokens > binding_.block_tokens) return false;
  if (record.kinds >> binding_.n_kinds != 0) return false;
  if (record.parent == kNoParent) return true;
  return record.parent < records_.size() &&
         records_[record.parent].n_tokens == binding_.block_tokens;
}

Status PromptCacheFile::read(uint32_t page, std::span<std::byte> bytes) const {
  PUMICE_CHECK(bytes.size() == binding_.page_bytes, "a page is one block long");
  PUMICE_TRY_STATUS(read_block(file_, bytes_offset_ + uint64_t{page} * binding_.page_bytes, bytes));
  if (block_checksum(bytes) != checksums_[page]) {
    return make_error(ErrorCode::kBadFile, "prompt cache {}: block {} is damaged", name_, page);
  }
  return {};
}

Result<PromptCacheWriter> PromptCacheWriter::create(const std::filesystem::path& path,
                                                    const PromptCacheBinding& binding,
                                                    uint32_t max_records) {
  PUMICE_TRY(OutputFile file, OutputFile::create(path));
  PromptCacheWriter writer(std::move(file));
  writer.binding_ = binding;
  writer.max_records_ = max_records;
  writer.bytes_offset_ = bytes_offset_for(max_records, binding);
  return writer;
}

Status PromptCacheWriter::add(uint32_t parent, std::span<const uint32_t> tokens, uint32_t kinds,
                              std::span<const std::byte> bytes) {
  const uint64_t page_bytes = binding_.page_bytes;
  PUMICE_CHECK(records_.size() < max_records_, "more records than announced");
  PUMICE_CHECK(bytes.size() == static_cast<size_t>(std::popcount(kinds)) * page_bytes,
               "a page for each group");
  PUMICE_TRY_STATUS(file_.write_at(bytes_offset_ + checksums_.size() * page_bytes, bytes));
  for (size_t at = 0; at < bytes.size(); at += page_bytes) {
    checksums_.push_back(block_checksum(bytes.subspan(at, page_bytes)));
  }
  records_.push_back({parent, static_cast<uint32_t>(tokens.size()), kinds});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  tokens_.resize(records_.size() * binding_.block_tokens, 0);
  return {};
}

Status PromptCacheWriter::finish() {
  const uint64_t n_bytes = entry_bytes(binding_);
  const size_t token_bytes = size_t{binding_.block_tokens} * 4;
  std::vector<std::byte> table(records_.size() * n_bytes);
  size_t page = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    std::byte* entry = table.data() + i * n_bytes;
    std::memcpy(entry, &records_[i], sizeof(records_[i]));
    for (uint32_t g = 0; g < binding_.n_kinds; ++g) {
      if ((records_[i].kinds >> g & 1) == 0) continue;
      std::memcpy(entry + sizeof(records_[i]) + size_t{g} * 8, &checksums_[page++], 8);
    }
    std::memcpy(entry + n_bytes - token_bytes, tokens_.data() + i * binding_.block_tokens,
                token_bytes);
  }
  Header header{.block_tokens = binding_.block_tokens,
                .page_bytes = binding_.page_bytes,
                .model = binding_.model,
                .layout = binding_.layout,
                .n_records = records_.size(),
                .bytes_offset = bytes_offset_,
                .n_pages = checksums_.size(),
                .kinds = binding_.kinds,
                .n_kinds = binding_.n_kinds};
  header.checksum = XXH3_64bits_withSeed(table.data(), table.size(), header_hash(header));
  PUMICE_TRY_STATUS(file_.write_at(0, bytes_of(header)));
  PUMICE_TRY_STATUS(file_.write_at(sizeof(header), table));
  PUMICE_TRY_STATUS(file_.resize(bytes_offset_ + checksums_.size() * binding_.page_bytes));
  return file_.finish();
}

}  // namespace pumice
