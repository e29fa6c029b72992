// Moving bytes between the host and device memory that the host may not be able to map.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "vk/device.hpp"
#include "vk/memory.hpp"

namespace pumice::vk {

/// Writes device memory: in place where it is mapped, through a staging buffer otherwise. Blocking;
/// for loading, not for steps. Not thread-safe.
class Uploader {
 public:
  /// `force_staging`: never write in place (tests of the staging path on unified memory).
  explicit Uploader(std::shared_ptr<Device> device, bool force_staging = false);

  /// Fill `target` with what `produce(destination)` writes. The destination may be write-combined
  /// memory: write it sequentially and never read it. Errors: out of memory, device loss.
  Status write(const BufferRange& target, const std::function<void(std::span<std::byte>)>& produce);

  template <typename T>
  Status write(const BufferRange& target, std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    return write(target.subrange(0, bytes.size()), [&](std::span<std::byte> destination) {
      std::copy(bytes.begin(), bytes.end(), destination.begin());
    });
  }

 private:
  std::shared_ptr<Device> device_;
  bool force_staging_;
  Arena staging_;
  BufferRange buffer_;  // grows to the largest write
};

/// A copy of a range's bytes, taken after all submitted work. Blocking.
Result<std::vector<std::byte>> download(const std::shared_ptr<Device>& device,
                                        const BufferRange& source);

}  // namespace pumice::vk
