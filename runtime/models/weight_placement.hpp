// Where a model's weights lie while engines use them: on the device, or the last pieces of them in
// memory beside it, which kernels read more slowly. What moves is copied; users of the
// old copy keep it alive, and its memory is freed when there are none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "models/weights.hpp"
#include "vk/device.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// Shared by all engines of a model. Thread-safe.
class WeightPlacement {
 public:
  /// Of the weights' pieces the first `n_on_device` lie on the device, and no more ever will.
  WeightPlacement(std::shared_ptr<vk::Device> device, ModelWeights weights,
                  uint32_t n_on_device = UINT32_MAX);

  /// What is to be recorded with from now on. Its memory stays while it is held.
  std::shared_ptr<const ModelWeights> now() const;

  uint32_t n_pieces() const { return static_cast<uint32_t>(piece_bytes_.size()); }
  /// That can be on the device at once.
  uint32_t most_pieces() const { return most_pieces_; }
  /// The first pieces' bytes; of them the device's budget has so many when they lie on the device.
  uint64_t bytes_of_first(uint32_t n_pieces) const;
  /// Of the device's memory, what pieces have now, also those that somebody still holds.
  uint64_t device_bytes() const;
  /// There is memory beside the device's (vk::DevicePlan::beside_device).
  bool can_move() const { return beside_.has_value(); }

  /// One of those who use the weights wants only the first `n_pieces` on the device, and its ledger
  /// to have `most_bytes` at most when some come back. The least that anybody wants holds.
  void want(const void* user, uint32_t n_pieces, uint64_t most_bytes);
  /// It wants nothing any more. Never fails.
  void forget(const void* user);
  /// All is as wanted.
  bool settled() const;
  /// It is not, and nobody moves a piece.
  bool can_begin() const;
  /// Bytes that lie beside the device.
  uint64_t beside_bytes() const;

  /// A piece on its way, owned by whatever began the move; destroyed early, it stays where it was.
  struct Move {
    struct Copy {
      vk::BufferRange source;
      vk::BufferRange target;
    };
    uint32_t piece = 0;
    std::shared_ptr<const ModelWeights> weights;  ///< of which it is a piece
    std::shared_ptr<const vk::Arena> arena;       ///< where it goes
    std::vector<Copy> copies;
    std::shared_ptr<const void> token;  ///< there is one move at a time
  };
  /// The next one, if there is any and nobody moves one. Errors: kDoesNotFit.
  Result<std::unique_ptr<Move>> begin();
  /// It has been copied.
  void finish(const Move& move);

 private:
  struct Want {
    uint32_t n_pieces = 0;
    uint64_t most_bytes = 0;
  };
  Want wanted() const;  // with mutex_ held

  const std::shared_ptr<vk::Device> device_;
  const std::optional<vk::MemoryDomain> beside_;
  std::vector<uint64_t> piece_bytes_;
  uint32_t most_pieces_ = 0;  // on the device

  mutable std::mutex mutex_;
  std::shared_ptr<const ModelWeights> now_;
  uint32_t n_on_device_ = 0;  // the first
  std::map<const void*, Want> wants_;
  std::weak_ptr<const void> moving_;
  std::vector<std::weak_ptr<const vk::Arena>> arenas_;  // that pieces have been in
};

}  // namespace pumice
