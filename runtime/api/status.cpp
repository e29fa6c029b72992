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
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return PUMICE_INVALID_ARGUMENT;
    case ErrorCode::kNoDevice:
      return PUMICE_NO_DEVICE;
    case ErrorCode::kBadFile:
      return PUMICE_BAD_FILE;
    case ErrorCode::kDoesNotFit:
      return PUMICE_DOES_NOT_FIT;
    case ErrorCode::kSelfTestFailed:
      return PUMICE_SELF_TEST_FAILED;
    case ErrorCode::kDeviceLost:
      return PUMICE_DEVICE_LOST;
    case ErrorCode::kCancelled:
      return PUMICE_CANCELLED;
    case ErrorCode::kNotFound:
      return PUMICE_NOT_FOUND;
    case ErrorCode::kBusy:
      return PUMICE_BUSY;
    case ErrorCode::kOutOfMemory:
      return PUMICE_OUT_OF_MEMORY;
    case ErrorCode::kInternal:
      break;
  }
  return PUMICE_INTERNAL;
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
  switch (status) {
    case PUMICE_OK:
      return "PUMICE_OK";
    case PUMICE_INVALID_ARGUMENT:
      return "PUMICE_INVALID_ARGUMENT";
    case PUMICE_NO_DEVICE:
      return "PUMICE_NO_DEVICE";
    case PUMICE_BAD_FILE:
      return "PUMICE_BAD_FILE";
    case PUMICE_DOES_NOT_FIT:
      return "PUMICE_DOES_NOT_FIT";
    case PUMICE_SELF_TEST_FAILED:
      return "PUMICE_SELF_TEST_FAILED";
    case PUMICE_DEVICE_LOST:
      return "PUMICE_DEVICE_LOST";
    case PUMICE_CANCELLED:
      return "PUMICE_CANCELLED";
    case PUMICE_INTERNAL:
      return "PUMICE_INTERNAL";
    case PUMICE_OUT_OF_MEMORY:
      return "PUMICE_OUT_OF_MEMORY";
    case PUMICE_NOT_FOUND:
      return "PUMICE_NOT_FOUND";
    case PUMICE_BUSY:
      return "PUMICE_BUSY";
    case PUMICE_TOO_SMALL:
      return "PUMICE_TOO_SMALL";
    default:
      return "unknown status";
  }
}
