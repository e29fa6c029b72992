#include "tools/serve/service/service.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/submitter.hpp"

namespace pumice::serve {
namespace {

/// How long the polling thread sleeps at most; submissions and cancellations wake it.
constexpr std::chrono::milliseconds kLongestWait(200);
/// After a step that failed.
constexpr std::chrono::milliseconds kPause(50);

}  // namespace

Service::Service(std::unique_ptr<host::Host> host, const ServiceOptions& options, Post post,
                 Logger logger)
    : host_(std::move(host)),
      options_(options),
      post_(std::move(post)),
      logger_(std::move(logger)) {}

Service::~Service() { stop(); }

void Service::start() {
  thread_ = std::thread([this] { poll_until_stopped(); });
}

void Service::stop() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

void Service::poll_until_stopped() {
  std::string last_failure;
  while (!stops_) {
    const Status polled = host_->poll(Submitter::kNoBudget);
    works_ = polled.ok();
    if (!polled.ok() && polled.error().message != last_failure) {
      last_failure = polled.error().message;
      logger_.warning("{}", last_failure);
    }
    auto events = std::make_shared<std::vector<host::Event>>();
    while (true) {
      const Result<host::Event*> event = host_->next_event();
      if (!event.ok() || *event == nullptr) break;
      events->push_back(std::move(**event));
    }
    if (!events->empty()) post_([this, events] { deliver(*events); });
    if (polled.ok() && options_.after_poll) {
      options_.after_poll(host_->engine().scheduler().cache());
    }
    if (polled.ok()) {
      last_failure.clear();
      // What an error is, `poll` finds too.
      (void)host_->wait(kLongestWait);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

void Service::deliver(std::vector<host::Event>& events) {
  for (host::Event& event : events) {
    const auto it = open_.find(event.request);
    if (it == open_.end()) continue;  // of the device
    const Open open = it->second;
    if (event.kind == host::Event::Kind::kFinished) open_.erase(it);
    if (open.listener != nullptr) open.listener->on_event(open.choice, event);
  }
}

std::variant<Ticket, ApiError> Service::submit(const GenerationInput& input,
                                               const std::shared_ptr<Listener>& listener,
                                               const std::shared_ptr<const void>& lease) {
  for (const std::vector<TokenId>& prompt : input.prompts) {
    if (prompt.size() < window_tokens()) continue;
    return context_exceeded("prompt", prompt.size(), window_tokens());
  }
  if (open_.size() + input.n_all_choices() > options_.most_open) {
    return overloaded(fmt::format("{} requests run or wait already, at most {} may (--max-queue)",
                                  open_.size(), options_.most_open));
  }
  Ticket ticket;
  for (size_t i = 0; i < input.n_all_choices(); ++i) {
    const Result<host::RequestId> submitted = submit_one(input, i, ticket);
    if (!submitted.ok()) {
      cancel(ticket);
      return api_error_of(submitted.error());
    }
    ticket.push_back(*submitted);
    open_.emplace(*submitted, Open{listener, static_cast<uint32_t>(i), lease});
  }
  return ticket;
}

/// A prediction is looked up whatever else is guessed, as far as that is expected to be faster.
host::Speculation Service::speculation_of(const GenerationInput& input) const {
  using enum host::Speculation::Guesses;
  host::Speculation speculation = options_.speculation;
  if (input.prediction.empty()) return speculation;
  if (speculation.guesses != kLookup) speculation.guesses = kAuto;
  speculation.expected = input.prediction;
  return speculation;
}

Result<host::RequestId> Service::submit_one(const GenerationInput& input, size_t index,
                                            const Ticket& before) {
  const size_t n_shared = index % input.n_choices;  // choices of its prompt before it
  SamplerOptions sampling = input.sampling;
  sampling.seed += n_shared;
  PUMICE_TRY(const host::Submitted submitted,
             host_->submit(host::ConversationId::kNone,
                           {.tokens = input.prompts[index / input.n_choices],
                            .max_new_tokens = input.max_tokens,
                            .within_window = true,
                            .sampling = std::move(sampling),
                            .stops = input.stops,
                            .constraint = input.constraint,
                            .timeout_s = std::min(input.timeout_s, options_.request_timeout_s),
                            .queue_timeout_s = options_.queue_timeout_s,
                            .ignore_end = input.ignore_end,
                            .log_probs = input.log_probs,
                            .scores = input.scores,
                            .speculation = speculation_of(input),
                            .cache_hit_threshold = input.cache_hit_threshold,
                            .shares_prompt_with =
                                n_shared == 0 ? host::RequestId::kNone : before[index - n_shared],
                            .alone = {.service_class = input.service_class,
                                      .priority = input.priority,
                                      .client = input.client,
                                      .salt = input.salt,
                                      .adapter = input.adapter}}));
  return submitted.id;
}

void Service::cancel(const Ticket& ticket) {
  for (const host::RequestId id : ticket) {
    const auto it = open_.find(id);
    if (it == open_.end()) continue;
    it->second.listener = nullptr;
    (void)host_->cancel(id);  // it may have ended meanwhile
  }
}

void Service::cancel_all() {
  for (const auto& [id, open] : open_) (void)host_->cancel(id);
}

}  // namespace pumice::serve
