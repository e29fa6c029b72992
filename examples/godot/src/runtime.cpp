#include "runtime.hpp"

#include <chrono>
#include <utility>

namespace {

constexpr double kShareOfWeights = 0.8;  // of the progress; the rest is compiling kernels

}  // namespace

Runtime::Runtime(Options options) : options_(std::move(options)) {
  // Slow, as drivers are loaded: not for a frame.
  opening_ = std::async(std::launch::async, [cache_directory = options_.cache_directory] {
    auto open = pumice::options<pumice_device_options>();
    open.cache_directory = pumice::view(cache_directory);
    return pumice::Device::open(&open);
  });
}

pumice_engine_options Runtime::engine_options() {
  auto engine = pumice::options<pumice_engine_options>();
  engine.context_tokens = 0;
  engine.n_sequences = 4;  // characters that speak at once
  engine.overflow = PUMICE_OVERFLOW_TRUNCATE;
  engine.prewarm_later = 1;
  return engine;
}

pumice::Status Runtime::frame(std::int64_t frame, double milliseconds) {
  if (!failure_.ok()) return failure_;
  if (frame == last_frame_) return {};
  last_frame_ = frame;
  const auto microseconds = static_cast<std::uint64_t>(milliseconds * 1000);
  if (ready_) return poll(microseconds);
  failure_ = load(microseconds);
  return failure_;
}

pumice::Status Runtime::load(std::uint64_t microseconds) {
  if (!device_) {
    if (opening_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    auto device = opening_.get();
    if (!device) return device.status();
    device_ = std::move(*device);
    return begin_load(*device_);
  }
  if (!model_) {
    auto progress = loading_->wait(0);
    if (!progress) return progress.status();
    if (progress->total_bytes > 0) {
      progress_ = kShareOfWeights * static_cast<double>(progress->done_bytes) /
                  static_cast<double>(progress->total_bytes);
    }
    if (progress->phase != PUMICE_LOAD_ENDED) return {};
    auto model = loading_->take();
    if (!model) return model.status();
    model_ = std::move(*model);
    loading_.reset();
    const pumice_engine_options options = engine_options();
    auto engine = model_->make_engine(&options);
    if (!engine) return engine.status();
    engine_ = std::move(*engine);
    return engine_->set_mode(PUMICE_MODE_GRAPHICS);
  }
  std::uint32_t done = 0, total = 0;
  const pumice::Status status = engine_->prewarm(microseconds, done, total);
  if (!status) return status;
  ready_ = done == total;
  progress_ = ready_ ? 1 : kShareOfWeights + (1 - kShareOfWeights) * done / total;
  return {};
}

pumice::Status Runtime::begin_load(const pumice::Device& device) {
  const pumice_engine_options engine = engine_options();
  auto load = pumice::options<pumice_model_options>();
  load.path = pumice::view(options_.model_path);
  load.engine = &engine;
  auto loading = pumice::Loading::begin(device.get(), load);
  if (!loading) return loading.status();
  loading_ = std::move(*loading);
  return {};
}

pumice::Status Runtime::poll(std::uint64_t microseconds) {
  const pumice::Status polled = engine_->poll(microseconds);
  // Also after an error: what ended because of it says so.
  while (true) {
    auto event = engine_->next_event();
    if (!event) return event.status();
    if (event->kind == PUMICE_EVENT_NONE) return polled;
    const auto it = answers_.find(event->request);
    if (it == answers_.end()) continue;
    Answer& answer = *it->second;
    answer.fresh += event->text;
    answer.text += event->text;
    if (event->kind != PUMICE_EVENT_FINISHED) continue;
    answer.finished = true;
    answer.end_reason = event->details.end_reason;
    answer.status = event->status;
    answers_.erase(it);
  }
}

pumice::Result<std::shared_ptr<Answer>> Runtime::submit(pumice_session session,
                                                        const pumice_request_options& options,
                                                        pumice_request& request) {
  auto submitted = engine_->submit(session, options);
  if (!submitted) return submitted.status();
  request = *submitted;
  auto answer = std::make_shared<Answer>();
  answers_.emplace(request, answer);
  return answer;
}
