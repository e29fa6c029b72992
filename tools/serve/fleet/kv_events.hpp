// Telling routers what is cached, as it changes.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "cache/kv_cache.hpp"
#include "tools/serve/fleet/kv_publisher.hpp"
#include "tools/serve/fleet/kv_view.hpp"

namespace pumice::serve {

/// Of the thread that polls.
class KvEvents {
 public:
  explicit KvEvents(std::shared_ptr<KvPublisher> publisher, std::vector<KvAdapter> adapters = {})
      : publisher_(std::move(publisher)), view_(std::move(adapters)) {}

  /// Publishes what changed. A look reads the whole index, so it is taken 20 times a second at most,
  /// and takes a hundredth of the time at most.
  void look(const KvCache& cache);

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<KvPublisher> publisher_;
  KvView view_;
  Clock::time_point next_ = {};
};

}  // namespace pumice::serve
