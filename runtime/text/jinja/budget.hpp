// What rendering a template may cost, in work and in memory. Everything pays in proportion, by
// construction: memory comes from Paid, the allocator of every container and object here, and what
// a value holds can be seen only through functions that pay for the looking. What cannot be paid
// ends the rendering there and then, so nothing has to ask whether it may go on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/result.hpp"

namespace pumice::jinja {

/// Nested values, expressions and calls. What walks them recurses.
constexpr int kMaxDepth = 200;

/// Thrown by Budget alone and caught by Interpreter::run: an allocator has no other way to refuse,
/// and whether it runs out must not depend on callers checking for it.
struct Exhausted {
  Error error;
};

/// A step is about what evaluating a node of an expression takes: 0.1 us.
class Budget {
 public:
  /// Without limits until `limit`. `stopped` is asked every few thousand steps; where it says yes
  /// the rendering ends with kCancelled.
  explicit Budget(std::function<bool()> stopped = {}) : stopped_(std::move(stopped)) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// From here on so many steps, and so many bytes beside those that are taken now.
  void limit(uint64_t max_steps, size_t max_bytes) {
    steps_left_ = max_steps;
    ready_steps_ = 0;
    max_bytes_ = bytes_ + std::min(max_bytes, std::numeric_limits<size_t>::max() - bytes_);
  }

  void step(uint64_t n = 1) {
    if (n > ready_steps_) make_ready(n);
    ready_steps_ -= n;
  }
  /// The work of reading so many bytes, character by character.
  void scan(size_t n_bytes) { step(1 + n_bytes / 16); }
  /// The work of going through so many values or names.
  void walk(size_t n_items) { step(1 + n_items / 8); }

  void take(size_t n_bytes) {
    if (n_bytes > max_bytes_ - bytes_) exceed("needs too much memory");
    step(1 + n_bytes / 64);  // they will be written
    bytes_ += n_bytes;
  }
  void give(size_t n_bytes) noexcept { bytes_ -= n_bytes; }
  size_t bytes() const { return bytes_; }

  /// "the chat template `what`".
  [[noreturn]] static void exceed(const char* what) {
    throw Exhausted{make_error(ErrorCode::kDoesNotFit, "the chat template {}", what)};
  }

 private:
  static constexpr uint64_t kStepsBetweenLooks = 5000;

  void make_ready(uint64_t n) {
    if (stopped_ && stopped_()) {
      throw Exhausted{make_error(ErrorCode::kCancelled, "rendering the chat template was stopped")};
    }
    steps_left_ += ready_steps_;
    ready_steps_ = 0;
    if (n > steps_left_) exceed("takes too many steps");
    ready_steps_ = std::min(steps_left_, std::max(n, kStepsBetweenLooks));
    steps_left_ -= ready_steps_;
  }

  uint64_t ready_steps_ = 0;
  uint64_t steps_left_ = std::numeric_limits<uint64_t>::max();
  size_t bytes_ = 0;
  size_t max_bytes_ = std::numeric_limits<size_t>::max();
  std::function<bool()> stopped_;
};

/// The one allocator. It has no default: each container is told which budget pays.
template <typename T>
class Paid {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Paid(Budget& budget) noexcept : budget_(&budget) {}  // NOLINT: Values items(budget)
  template <typename Other>
  Paid(const Paid<Other>& other) noexcept : budget_(&other.budget()) {}  // NOLINT

  T* allocate(size_t n) {
    if (n > kMostItems) Budget::exceed("needs too much memory");
    budget_->take(n * sizeof(T) + kBlockBytes);
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, size_t n) noexcept {
    budget_->give(n * sizeof(T) + kBlockBytes);
    std::allocator<T>().deallocate(memory, n);
  }

  Budget& budget() const noexcept { return *budget_; }
  template <typename Other>
  bool operator==(const Paid<Other>& other) const noexcept {
    return budget_ == &other.budget();
  }

 private:
  static constexpr size_t kBlockBytes = 16;  // what the heap keeps of a block
  static constexpr size_t kMostItems = (std::numeric_limits<size_t>::max() / 2) / sizeof(T);

  Budget* budget_;
};

}  // namespace pumice::jinja
