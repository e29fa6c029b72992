// Work on several threads at once.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.hpp"

namespace pumice {

/// body(i) for each i below n, on up to `max_threads` threads (0: one per core), the caller's among
/// them; returns when all have ended. A thread that the system refuses to start is done without.
/// After a failure no further i is begun. Nothing leaves a thread as an exception, which would end
/// the process: Errors: the first that a body returned; of what it threw, kDoesNotFit for a failed
/// allocation and kInternal for anything else.
Status for_each_on_threads(size_t n, size_t max_threads, const std::function<Status(size_t)>& body);

}  // namespace pumice
