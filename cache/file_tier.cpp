#include "cache/file_tier.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace pumice {

Result<FileTier> FileTier::open(const std::filesystem::path& path,
                                const PromptCacheBinding& binding, uint64_t limit_bytes) {
  FileTier tier;
  tier.path_ = path;
  tier.binding_ = binding;
  tier.limit_bytes_ = limit_bytes;
  tier.slots = SlotTier(SlotTier::slots_for(binding.block_bytes, limit_bytes));
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    PUMICE_TRY(tier.opened_,
               PromptCacheFile::open(path, binding,
                                     SlotTier::slots_for(binding.block_bytes, limit_bytes)));
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
                      path_.string(), slot);
  }
  const Content& content = contents_[slot];
  if (content.record != kNotOpened) return opened_->read(content.record, bytes);
  PUMICE_TRY_STATUS(unnamed_.read(uint64_t{slot} * binding_.block_bytes, bytes));
  if (block_checksum(bytes) == content.checksum) return {};
  return make_error(ErrorCode::kBadFile, "prompt cache {}: evicted block {} is damaged",
                    path_.string(), slot);
}

Status FileTier::write(uint32_t slot, std::span<const std::byte> bytes) {
  if (!unnamed_) {
    std::string name = path_.string() + ".XXXXXX";
    unnamed_ = FileHandle(::mkstemp(name.data()));
    if (!unnamed_) {
      return make_error(ErrorCode::kInternal, "cannot write beside {}: {}", path_.string(),
                        std::strerror(errno));
    }
    ::unlink(name.c_str());
  }
  if (slot >= contents_.size()) contents_.resize(slot + 1);
  PUMICE_TRY_STATUS(unnamed_.write(uint64_t{slot} * binding_.block_bytes, bytes));
  contents_[slot] = {kNotOpened, block_checksum(bytes)};
  return {};
}

}  // namespace pumice
