// Programming errors: PUMICE_CHECK throws CheckFailure, which only the outermost edge of the
// library (the C API, main) catches; it never aborts a host. Expected failures are Result<T>, not
// checks. PUMICE_DEBUG_CHECK is the same in builds for development (presets dev, asan and tsan:
// those without NDEBUG) and nothing elsewhere: it guards a law at each place that relies on it, so
// that a new caller who breaks the law fails in the first test that goes there.
#pragma once

#include <stdexcept>
#include <string>

namespace pumice {

struct CheckFailure : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace pumice

#define PUMICE_CHECK(condition, message)                                                 \
  do {                                                                                   \
    if (!(condition)) ::pumice::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)

#ifdef NDEBUG
#define PUMICE_DEBUG_CHECK(condition, message)   \
  do {                                           \
    if (false) PUMICE_CHECK(condition, message); \
  } while (false)
#else
#define PUMICE_DEBUG_CHECK(condition, message) PUMICE_CHECK(condition, message)
#endif
