#include "vk/transfer.hpp"

#include "vk/recorder.hpp"

namespace pumice::vk {
namespace {

Status copy_and_wait(const std::shared_ptr<Device>& device, const BufferRange& source,
                     const BufferRange& target) {
  Recorder recorder(device);
  recorder.copy(source, target);
  PUMICE_TRY(const RecordedWork work, recorder.finish());
  return run(*device, work);
}

}  // namespace

Uploader::Uploader(std::shared_ptr<Device> device, bool force_staging)
    : device_(device),
      force_staging_(force_staging),
      staging_(device, MemoryDomain::kUpload, "staging") {}

Status Uploader::write(const BufferRange& target,
                       const std::function<void(std::span<std::byte>)>& produce) {
  if (target.empty()) return {};
  if (target.slab->mapped != nullptr && !force_staging_) {
    produce(target.mapped<std::byte>());
    return {};
  }
  if (buffer_.size_bytes < target.size_bytes) {
    Arena larger(device_, MemoryDomain::kUpload, "staging", target.size_bytes);
    PUMICE_TRY(buffer_, larger.allocate(target.size_bytes));
    staging_ = std::move(larger);
  }
  const BufferRange source = buffer_.subrange(0, target.size_bytes);
  produce(source.mapped<std::byte>());
  return copy_and_wait(device_, source, target);
}

Result<std::vector<std::byte>> download(const std::shared_ptr<Device>& device,
                                        const BufferRange& source) {
  Arena arena(device, MemoryDomain::kReadback, "readback", source.size_bytes);
  PUMICE_TRY(const BufferRange target, arena.allocate(source.size_bytes));
  PUMICE_TRY_STATUS(copy_and_wait(device, source, target));
  const auto bytes = target.mapped<std::byte>();
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace pumice::vk
