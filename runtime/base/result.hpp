// Errors as values: Result<T> carries a T or an Error. Nothing in the runtime throws across a
// module boundary or aborts a host.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.hpp"

namespace pumice {

/// What kind of failure it is. Each kind has one documented process exit code (`exit_code`).
enum class ErrorCode {
  kInvalidArgument,  ///< a flag, option or call argument is wrong
  kNoDevice,        ///< no usable Vulkan device, or the one asked for is missing or lacks something
  kBadFile,         ///< a model or input file is missing, unreadable, malformed or unsupported
  kDoesNotFit,      ///< memory, context length or another capacity is exceeded
  kSelfTestFailed,  ///< a kernel gives wrong results on this device
  kDeviceLost,      ///< the GPU was lost; device state must be rebuilt
  kCancelled,       ///< stopped on request
  // Only users of a shared host (runtime/host) meet these.
  kNotFound,     ///< no conversation or request of that number, or no longer
  kBusy,         ///< another thread is in such a call, or a conversation has a request
  kOutOfMemory,  ///< the host's memory is used up
  kInternal,     ///< a driver or the operating system failed in a way no caller could prevent
};

/// Process exit code of an error: 2 usage, 3 no device, 4 bad file, 5 does not fit, 6 self-test,
/// 75 device lost, 130 cancelled, 1 anything else.
int exit_code(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< one line: what failed, the field or limit, what to do
};

template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

/// Either a value or an Error. Taking from a temporary gives a value, not a reference into it.
/// Check `ok()` (or the bool conversion) before taking either.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit by intent: `return value;` and `return error;`.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return get(); }
  const T& value() const& { return const_cast<Result*>(this)->get(); }
  T value() && { return std::move(get()); }
  T& operator*() & { return get(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(get()); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    PUMICE_CHECK(!ok(), "error() of a successful Result");
    return *std::get_if<1>(&state_);
  }

 private:
  T& get() {
    PUMICE_CHECK(ok(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by intent

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    PUMICE_CHECK(!ok(), "error() of a successful Result");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace pumice

#define PUMICE_CONCAT_INNER(a, b) a##b
#define PUMICE_CONCAT(a, b) PUMICE_CONCAT_INNER(a, b)

/// `PUMICE_TRY(auto x, expr)`: x is the value of expr, or return its error.
#define PUMICE_TRY(declaration, ...) \
  PUMICE_TRY_INNER(PUMICE_CONCAT(pumice_result_, __LINE__), declaration, __VA_ARGS__)
#define PUMICE_TRY_INNER(result, declaration, ...) \
  auto result = (__VA_ARGS__);                     \
  if (!result.ok()) return result.error();         \
  declaration = std::move(result).value()

/// Return the error of a Status-valued expression, if it failed.
#define PUMICE_TRY_STATUS(...)                               \
  do {                                                       \
    auto pumice_status_ = (__VA_ARGS__);                     \
    if (!pumice_status_.ok()) return pumice_status_.error(); \
  } while (false)
