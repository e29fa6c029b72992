#include "tools/serve/fleet/kv_events.hpp"

#include <algorithm>

namespace pumice::serve {
namespace {

constexpr std::chrono::milliseconds kLookInterval(50);
constexpr int kShare = 100;  // of the time is a look's at most

}  // namespace

void KvEvents::look(const KvCache& cache) {
  const Clock::time_point start = Clock::now();
  if (start < next_) return;
  publisher_->publish(view_.look(cache));
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(kLookInterval, kShare * (end - start));
}

}  // namespace pumice::serve
