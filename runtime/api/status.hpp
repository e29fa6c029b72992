// What every entry of the C ABI goes through: no exception leaves it, and an error becomes a status
// and the thread's last message.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "pumice/pumice.h"

namespace pumice::api {

pumice_status status_of(ErrorCode code);

/// An Error with the statuses that only the C ABI has. Converts from what the runtime returns, and
/// works with PUMICE_TRY_STATUS.
class [[nodiscard]] ApiStatus {
 public:
  ApiStatus() = default;
  ApiStatus(pumice_status code, std::string message) : code_(code), message_(std::move(message)) {}
  // Implicit by intent, as Result's.
  ApiStatus(const Error& error)
      : code_(status_of(error.code)), message_(error.message) {}  // NOLINT
  ApiStatus(const Status& status) {                               // NOLINT
    if (!status.ok()) *this = status.error();
  }

  bool ok() const { return code_ == PUMICE_OK; }
  pumice_status code() const { return code_; }
  const std::string& message() const { return message_; }
  const ApiStatus& error() const { return *this; }

 private:
  pumice_status code_ = PUMICE_OK;
  std::string message_;
};

template <typename... Args>
ApiStatus invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {PUMICE_INVALID_ARGUMENT, fmt::format(format, std::forward<Args>(args)...)};
}

/// The status of the exception that is being handled. Does not throw.
pumice_status status_of_exception() noexcept;

/// Keeps the message for pumice_last_error, as one line: names of files in it may have anything.
/// Does not throw.
pumice_status fail(pumice_status code, std::string_view message) noexcept;

/// `body`: a function that returns an ApiStatus, or what converts to one.
template <typename Body>
pumice_status guarded(Body&& body) noexcept {
  try {
    const ApiStatus status = body();
    return status.ok() ? PUMICE_OK : fail(status.code(), status.message());
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace pumice::api
