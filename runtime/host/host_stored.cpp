// Host: requests that wait for a prefix from the store. Nothing else waits with them.
#include <algorithm>
#include <utility>

#include "host/host.hpp"

namespace pumice::host {
namespace {

/// A store that takes longer, a server that is gone perhaps, holds nobody up: what it would have
/// brought is computed.
constexpr std::chrono::seconds kLongestReading(2);

}  // namespace

/// True: it is begun later. Choices wait for the one whose prompt they share.
bool Host::waits_for_stored(Submission& submission) {
  const GenerationRequest& request = submission.request;
  const bool follows = std::ranges::any_of(
      reading_, [&](const Reading& one) { return one.submission.id == submission.choice_of; });
  std::shared_ptr<PrefixStore::Reading> stored;
  if (!follows && !submission.scores && !request.on_logits) {
    stored = engine_->read_stored(request.prompt, request.salt, request.adapter);
  }
  if (!follows && stored == nullptr) return false;
  reading_.push_back({std::move(submission), std::move(stored), Clock::now() + kLongestReading});
  return true;
}

/// Begin those whose prefix is there, or is not waited for any more.
void Host::begin_read() {
  const Clock::time_point now = Clock::now();
  std::vector<Reading> waiting;
  for (Reading& one : std::exchange(reading_, {})) {
    if (has_ended(one.submission.id)) {
      if (one.stored) one.stored->cancel();
      continue;
    }
    const bool is_ready = one.stored ? one.stored->done() || now >= one.until
                                     : std::ranges::none_of(waiting, [&](const Reading& first) {
                                         return first.submission.id == one.submission.choice_of;
                                       });
    if (!is_ready) {
      waiting.push_back(std::move(one));
      continue;
    }
    if (one.stored && one.stored->done()) {
      engine_->adopt_stored(one.submission.request.prompt, *one.stored);
    } else if (one.stored) {
      one.stored->cancel();
    }
    give_to_engine(std::move(one.submission));
  }
  reading_ = std::move(waiting);
}

/// True: it has ended. What the store has for it is in the cache by now.
bool Host::ends_at_threshold(const Submission& submission) {
  if (submission.cache_hit_threshold <= 0) return false;
  const std::vector<TokenId>& prompt = submission.request.prompt;
  const KvCache& cache = engine_->scheduler().cache();
  const CacheReport report = cache.look_up(
      engine_->hash_prompt(prompt, submission.request.salt, submission.request.adapter));
  const double most = std::max(static_cast<double>(report.prompt_tokens) - 1, 1.0);
  if (report.cached_tokens >= submission.cache_hit_threshold * most) return false;
  Event event;
  const std::lock_guard lock(mutex_);
  finish(submission.id, requests_.at(submission.id),
         {.end_reason = EndReason::kCacheThreshold,
          .prompt_tokens = report.prompt_tokens,
          .cache = report},
         event);
  events_.push_back(std::move(event));
  return true;
}

bool Host::has_ended(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  return it == requests_.end() || it->second.ended;
}

}  // namespace pumice::host
