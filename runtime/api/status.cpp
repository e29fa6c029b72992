#include "api/status.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <new>

#include "api/structs.hpp"

namespace pumice::api {
namespace {

// A buffer, since keeping the message of a failed allocation must not allocate.
thread_local std::array<char, 1024> last_message = {};

}  // namespace

pumice_status status_of(ErrorCode code) {
  constexpr pumice_status kStatuses[] = {
      PUMICE_INVALID_ARGUMENT, PUMICE_NO_DEVICE,        PUMICE_BAD_FILE,
      PUMICE_DOES_NOT_FIT,     PUMICE_SELF_TEST_FAILED, PUMICE_DEVICE_LOST,
      PUMICE_CANCELLED,        PUMICE_NOT_FOUND,        PUMICE_BUSY,
      PUMICE_OUT_OF_MEMORY,    PUMICE_INTERNAL};
  return kStatuses[static_cast<size_t>(code)];
}

pumice_status fail(pumice_status code, std::string_view message) noexcept {
  const size_t n_bytes = write_text(message, last_message);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; };
  std::replace_if(last_message.begin(), last_message.begin() + static_cast<ptrdiff_t>(n_bytes),
                  is_control, '?');
  return code;
}

pumice_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(PUMICE_OUT_OF_MEMORY, "the host is out of memory");
  } catch (const std::exception& exception) {
    return fail(PUMICE_INTERNAL, exception.what());
  } catch (...) {
    return fail(PUMICE_INTERNAL, "an exception of unknown type");
  }
}

}  // namespace pumice::api

using namespace pumice::api;

const char* pumice_version(void) { return PUMICE_VERSION; }

const char* pumice_last_error(void) { return last_message.data(); }

const char* pumice_status_name(pumice_status status) {
  constexpr const char* kNames[] = {
      "PUMICE_OK",           "PUMICE_INVALID_ARGUMENT", "PUMICE_NO_DEVICE",   "PUMICE_BAD_FILE",
      "PUMICE_DOES_NOT_FIT", "PUMICE_SELF_TEST_FAILED", "PUMICE_DEVICE_LOST", "PUMICE_CANCELLED",
      "PUMICE_INTERNAL",     "PUMICE_OUT_OF_MEMORY",    "PUMICE_NOT_FOUND",   "PUMICE_BUSY",
      "PUMICE_TOO_SMALL"};
  static_assert(std::size(kNames) == PUMICE_TOO_SMALL + 1);
  const bool is_known = status >= 0 && static_cast<size_t>(status) < std::size(kNames);
  return is_known ? kNames[status] : "unknown status";
}
