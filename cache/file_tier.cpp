#include "cache/file_tier.hpp"

#include <system_error>

#include "base/path.hpp"

namespace pumice {

Result<FileTier> FileTier::open(const std::filesystem::path& path,
                                const PromptCacheBinding& binding, uint64_t limit_bytes) {
  FileTier tier;
  tier.path_ = path;
  tier.binding_ = binding;
  tier.limit_bytes_ = limit_bytes;
  tier.slots = SlotTier(SlotTier::slots_for(binding.page_bytes, limit_bytes));
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    PUMICE_TRY(
        tier.opened_,
        PromptCacheFile::open(path, binding, SlotTier::slots_for(binding.page_bytes, limit_bytes)));
  }
  return tier;
}

void FileTier::adopt(uint32_t slot, uint32_t record) {
  if (slot >= contents_.size()) contents_.resize(slot + 1);
  contents_[slot] = {record, 0};
}

Status FileTier::read(uint32_t slot, std::span<std::byte> bytes) const {
  if (slot >= contents_.size()) {
    return make_error(ErrorCode::kBadFile, "prompt cache {}: block {} could not be written",
                      to_utf8(path_), slot);
  }
  const Content& content = contents_[slot];
  if (content.record != kNotOpened) return opened_->read(content.record, bytes);
  PUMICE_TRY_STATUS(read_block(unnamed_, uint64_t{slot} * binding_.page_bytes, bytes));
  if (block_checksum(bytes) == content.checksum) return {};
  return make_error(ErrorCode::kBadFile, "prompt cache {}: evicted block {} is damaged",
                    to_utf8(path_), slot);
}

Status FileTier::write(uint32_t slot, std::span<const std::byte> bytes) {
  std::error_code error;
  if (!unnamed_.is_open()) unnamed_ = File::create_unnamed(path_, error);
  if (error) {
    return make_error(ErrorCode::kInternal, "cannot write beside {}: {}", to_utf8(path_),
                      error.message());
  }
  if (slot >= contents_.size()) contents_.resize(slot + 1);
  const uint64_t offset = uint64_t{slot} * binding_.page_bytes;
  const size_t n = unnamed_.write_at(offset, bytes, error);
  if (error) {
    return make_error(ErrorCode::kInternal, "cannot write at {}: {}", offset + n, error.message());
  }
  contents_[slot] = {kNotOpened, block_checksum(bytes)};
  return {};
}

}  // namespace pumice
