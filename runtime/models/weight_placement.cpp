#include "models/weight_placement.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace pumice {

WeightPlacement::WeightPlacement(std::shared_ptr<vk::Device> device, ModelWeights weights,
                                 uint32_t n_on_device)
    : device_(std::move(device)),
      beside_(device_->plan().beside_device()),
      now_(std::make_shared<const ModelWeights>(std::move(weights))) {
  for (const auto& piece : now_->pieces()) {
    piece_bytes_.push_back(piece->allocated_bytes());
    arenas_.emplace_back(piece);
  }
  most_pieces_ = n_on_device_ = std::min(n_on_device, n_pieces());
}

std::shared_ptr<const ModelWeights> WeightPlacement::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

uint64_t WeightPlacement::bytes_of_first(uint32_t n) const {
  return std::accumulate(piece_bytes_.begin(), piece_bytes_.begin() + n, uint64_t{0});
}

uint64_t WeightPlacement::device_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& held : arenas_) {
    const std::shared_ptr<const vk::Arena> arena = held.lock();
    if (arena != nullptr && arena->domain() == vk::MemoryDomain::kDevice) {
      bytes += arena->allocated_bytes();
    }
  }
  return bytes;
}

void WeightPlacement::want(const void* user, uint32_t n, uint64_t most_bytes) {
  const std::lock_guard lock(mutex_);
  wants_[user] = {n, most_bytes};
}

void WeightPlacement::forget(const void* user) {
  const std::lock_guard lock(mutex_);
  wants_.erase(user);
}

WeightPlacement::Want WeightPlacement::wanted() const {
  Want least{most_pieces_, UINT64_MAX};
  for (const auto& [user, want] : wants_) {
    least.n_pieces = std::min(least.n_pieces, want.n_pieces);
    least.most_bytes = std::min(least.most_bytes, want.most_bytes);
  }
  return least;
}

bool WeightPlacement::settled() const {
  const std::lock_guard lock(mutex_);
  return wanted().n_pieces == n_on_device_;
}

bool WeightPlacement::can_begin() const {
  const std::lock_guard lock(mutex_);
  return wanted().n_pieces != n_on_device_ && moving_.expired();
}

uint64_t WeightPlacement::beside_bytes() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(piece_bytes_.begin() + n_on_device_, piece_bytes_.end(), uint64_t{0});
}

Result<std::unique_ptr<WeightPlacement::Move>> WeightPlacement::begin() {
  const std::lock_guard lock(mutex_);
  const Want want = wanted();
  if (want.n_pieces == n_on_device_ || !moving_.expired()) return std::unique_ptr<Move>();
  const bool leaves = want.n_pieces < n_on_device_;
  PUMICE_CHECK(beside_, "weights leave a device beside which there is no memory");
  auto move = std::make_unique<Move>();
  move->piece = leaves ? n_on_device_ - 1 : n_on_device_;
  if (!leaves && device_->ledger().budgeted_bytes() + piece_bytes_[move->piece] > want.most_bytes) {
    return std::unique_ptr<Move>();
  }
  move->weights = now_;
  const vk::Arena& from = *now_->pieces()[move->piece];
  PUMICE_TRY(vk::Arena to, from.same_slabs(leaves ? *beside_ : vk::MemoryDomain::kDevice,
                                           leaves ? kWeightsBeside : "weights"));
  move->arena = std::make_shared<const vk::Arena>(std::move(to));
  const std::vector<vk::BufferRange> sources = from.slabs();
  const std::vector<vk::BufferRange> targets = move->arena->slabs();
  for (size_t i = 0; i < sources.size(); ++i) move->copies.push_back({sources[i], targets[i]});
  std::erase_if(arenas_, [](const auto& held) { return held.expired(); });
  arenas_.emplace_back(move->arena);
  move->token = std::make_shared<const int>(0);
  moving_ = move->token;
  return move;
}

void WeightPlacement::finish(const Move& move) {
  const std::lock_guard lock(mutex_);
  now_ = std::make_shared<const ModelWeights>(now_->with_piece(move.piece, move.arena));
  n_on_device_ = move.piece < n_on_device_ ? move.piece : move.piece + 1;
}

}  // namespace pumice
