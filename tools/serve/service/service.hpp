// The host as many clients use it: one thread polls, requests are admitted up to a bound, and what
// comes of them goes to whoever listens, on the server's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "host/host.hpp"
#include "tools/serve/service/api_error.hpp"

namespace pumice::serve {

/// What a client wants generated: the one request that all wires make. The choices of its first
/// prompt come first, then those of the next.
struct GenerationInput {
  std::vector<std::vector<TokenId>> prompts;
  uint32_t n_choices = 1;   ///< of each prompt
  uint32_t max_tokens = 0;  ///< of a choice; 0: what the context holds; never more than that
  SamplerOptions sampling;  ///< of the first choice; the others have the next seeds
  std::vector<std::string> stops;
  std::optional<uint32_t> log_probs;  ///< of each token, and of so many best in its place
  bool scores = false;                ///< the prompt's tokens come as events too
  bool ignore_end = false;
  std::shared_ptr<const Constraint> constraint = {};
  std::string salt;
  uint32_t adapter = 0;  ///< GenerationRequest::adapter
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  uint64_t client = 0;  ///< RequestSpec::client
  double timeout_s = std::numeric_limits<double>::infinity();
  std::vector<TokenId> prediction;  ///< what the answer may repeat
  double cache_hit_threshold = 0;   ///< host::RequestInput::cache_hit_threshold

  size_t n_all_choices() const { return prompts.size() * n_choices; }
};

/// Gets the events of a request's choices, each choice's in order, up to its kFinished. On the
/// server's thread.
class Listener {
 public:
  Listener() = default;
  virtual ~Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual void on_event(uint32_t choice, host::Event& event) = 0;
};

/// The choices of a request that runs, to be cancelled by.
using Ticket = std::vector<host::RequestId>;

struct ServiceOptions {
  host::Speculation speculation = {};
  uint32_t most_open = 1024;  ///< choices that run or wait; further requests are refused
  /// Until a request has to be in a step, and until it has to have ended.
  double queue_timeout_s = std::numeric_limits<double>::infinity();
  double request_timeout_s = std::numeric_limits<double>::infinity();
  /// Called behind each poll, by the thread that polls: it must not take long.
  std::function<void(const KvCache&)> after_poll = {};
};

/// On the server's thread, but for the thread that polls, which is its own.
class Service {
 public:
  /// Runs a task on the server's thread, soon; any thread may call it.
  using Post = std::function<void(std::function<void()>)>;

  Service(std::unique_ptr<host::Host> host, const ServiceOptions& options, Post post,
          Logger logger);
  /// Stops polling; requests that are left end nowhere.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void start();
  /// Until the polling thread has ended.
  void stop();

  /// `lease` is kept until every choice has ended, also one that was cancelled. Errors, with nothing
  /// submitted: the context is too short, what the engine refuses, 429 at the bound.
  std::variant<Ticket, ApiError> submit(const GenerationInput& input,
                                        const std::shared_ptr<Listener>& listener,
                                        const std::shared_ptr<const void>& lease = {});
  /// Within a step; no event of it is heard any more.
  void cancel(const Ticket& ticket);
  /// A choice that has said enough: it ends, with its event.
  void end_early(host::RequestId id) { (void)host_->cancel(id); }
  /// All of them, each of which ends with an event.
  void cancel_all();

  size_t n_open() const { return open_.size(); }
  uint32_t window_tokens() const { return host_->window_tokens(); }
  host::Stats stats() const { return host_->stats(); }
  /// Of the polling thread: when a step last ended well or there was nothing to do.
  bool works() const { return works_; }
  host::Host& host() const { return *host_; }

 private:
  host::Speculation speculation_of(const GenerationInput& input) const;
  Result<host::RequestId> submit_one(const GenerationInput& input, size_t index,
                                     const Ticket& before);

  struct Open {
    std::shared_ptr<Listener> listener;  // null: nobody listens any more
    uint32_t choice = 0;
    std::shared_ptr<const void> lease;
  };

  void poll_until_stopped();
  void deliver(std::vector<host::Event>& events);

  const std::unique_ptr<host::Host> host_;
  const ServiceOptions options_;
  const Post post_;
  const Logger logger_;
  std::map<host::RequestId, Open> open_;
  std::atomic<bool> stops_ = false;
  std::atomic<bool> works_ = true;
  std::thread thread_;
};

}  // namespace pumice::serve
