// What rendering a template may cost. Work is charged while it is done; what exceeds the limit is
// noticed by the interpreter after the expression at hand, so operations stop early where they see
// `exhausted` and ask `allows` before they make something large.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace pumice::jinja {

/// Nested values, expressions and calls. What walks them recurses.
constexpr int kMaxDepth = 200;

class Budget {
 public:
  Budget(uint64_t max_steps, size_t max_bytes) : steps_left_(max_steps), max_bytes_(max_bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void step(uint64_t n = 1) {
    if (n > steps_left_) exceed("takes too many steps");
    steps_left_ -= n > steps_left_ ? steps_left_ : n;
  }
  /// The work of looking at so many bytes.
  void scan(size_t n_bytes) { step(1 + n_bytes / 16); }
  /// The work of going through so many names.
  void search(size_t n_names) { step(1 + n_names / 16); }

  void take(size_t n_bytes) {
    bytes_ += n_bytes;
    if (bytes_ > max_bytes_) exceed("needs too much memory");
  }
  void give(size_t n_bytes) { bytes_ -= n_bytes; }
  /// Whether so many more may be taken; if not, the budget is exhausted.
  bool allows(size_t n_bytes) {
    if (bytes_ > max_bytes_ || n_bytes > max_bytes_ - bytes_) exceed("needs too much memory");
    return !exhausted();
  }

  void exceed(const char* what) {
    if (exceeded_ == nullptr) exceeded_ = what;
  }
  bool exhausted() const { return exceeded_ != nullptr; }
  Status status() const {
    if (!exhausted()) return {};
    return make_error(ErrorCode::kDoesNotFit, "the chat template {}", exceeded_);
  }

 private:
  uint64_t steps_left_;
  size_t max_bytes_;
  size_t bytes_ = 0;
  const char* exceeded_ = nullptr;
};

/// Bytes taken while this lives.
class Charge {
 public:
  Charge(Budget* budget, size_t n_bytes) : budget_(budget), n_bytes_(n_bytes) {
    if (budget_ != nullptr) budget_->take(n_bytes);
  }
  ~Charge() {
    if (budget_ != nullptr) budget_->give(n_bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Budget* budget_;
  size_t n_bytes_;
};

/// Text that grows; beyond the budget it stops growing.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}
  ~TextBuilder() { budget_.give(taken_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view text) {
    if (!budget_.allows(text.size())) return;
    budget_.scan(text.size());
    budget_.take(text.size());
    taken_ += text.size();
    text_ += text;
  }
  void append(size_t count, char c) {
    if (budget_.allows(count)) append(std::string(count, c));
  }
  bool full() const { return budget_.exhausted(); }
  Budget& budget() { return budget_; }
  std::string take_text() { return std::move(text_); }

 private:
  Budget& budget_;
  std::string text_;
  size_t taken_ = 0;
};

}  // namespace pumice::jinja
