#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace pumice {
namespace {

Status without_exceptions(const std::function<Status(size_t)>& body, size_t i) {
  try {
    return body(i);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kDoesNotFit, "out of memory"};  // short: it needs none
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal, "{}", error.what());
  } catch (...) {
    return make_error(ErrorCode::kInternal, "an exception of unknown type");
  }
}

}  // namespace

Status for_each_on_threads(size_t n, size_t max_threads,
                           const std::function<Status(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Status first_failure;
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) {
      Status status = without_exceptions(body, i);
      if (status.ok()) continue;
      next = n;
      const std::lock_guard lock(mutex);
      if (first_failure.ok()) first_failure = std::move(status);
    }
  };
  if (max_threads == 0) max_threads = std::max(1u, std::thread::hardware_concurrency());
  const size_t n_threads = std::min(n, max_threads);
  {
    std::vector<std::thread> others;
    others.reserve(n_threads);
    try {
      for (size_t i = 1; i < n_threads; ++i) others.emplace_back(work);
    } catch (const std::system_error&) {
      // Those that started, at least this one, do all of it.
    }
    work();
    for (std::thread& other : others) other.join();
  }
  return first_failure;
}

}  // namespace pumice
