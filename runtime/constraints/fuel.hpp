// How much work and memory constraints may take. Grammars come from strangers, and small ones can cost without end:
// every operation inside this library pays before it works, and who cannot pay leaves by an exception, so that nothing
// half done is ever taken for a result. The library's doors (functions that return Result) catch it: within_fuel().
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.hpp"

namespace pumice {

/// Thrown inside runtime/constraints only, and to who composes a grammar within within_fuel().
struct OutOfFuel {};

/// A unit is about one word of memory kept, or some ten nanoseconds.
class Fuel {
 public:
  explicit Fuel(uint64_t units) : left_(units) {}

  void spend(uint64_t units) {
    if (units > left_) {
      left_ = 0;
      throw OutOfFuel{};
    }
    left_ -= units;
  }
  void refill(uint64_t units) { left_ = units; }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
};

/// What `work` returns (a Result), or kDoesNotFit if it runs out of fuel. `what`: "the JSON schema", "the grammar".
template <typename Work>
auto within_fuel(std::string_view what, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const OutOfFuel&) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} takes more work than a constraint may cost; make it simpler", what);
  }
}

}  // namespace pumice
