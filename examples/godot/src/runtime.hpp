// A model and its engine, shared by all characters that name it: loaded while frames are drawn, then
// polled once a frame.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pumice/pumice.hpp"

/// What a request has said so far.
struct Answer {
  std::string fresh;  ///< whole sentences that nobody has taken yet
  std::string text;   ///< all of it
  bool finished = false;
  pumice_end_reason end_reason = PUMICE_END_NONE;
  pumice::Status status;
};

/// All calls in one thread, the engine's main one.
class Runtime {
 public:
  struct Options {
    std::string model_path;
    std::string cache_directory;
  };
  explicit Runtime(Options options);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Goes on loading, or has the device do up to that much work for all answers. The first call of a
  /// frame counts; waits for nothing. An error of loading stays; one of polling may pass.
  pumice::Status frame(std::int64_t frame, double milliseconds);
  /// From 0 to 1, when it is ready.
  double progress() const { return progress_; }
  bool ready() const { return ready_; }

  /// When it is ready.
  const pumice::Model& model() const { return *model_; }
  pumice::Engine& engine() { return *engine_; }
  /// The answer is complete after some frames.
  pumice::Result<std::shared_ptr<Answer>> submit(pumice_session session,
                                                 const pumice_request_options& options,
                                                 pumice_request& request);

 private:
  pumice::Status load(std::uint64_t microseconds);
  pumice::Status begin_load(const pumice::Device& device);
  pumice::Status poll(std::uint64_t microseconds);
  static pumice_engine_options engine_options();

  const Options options_;
  std::future<pumice::Result<pumice::Device>> opening_;
  std::optional<pumice::Device> device_;
  std::optional<pumice::Loading> loading_;
  std::optional<pumice::Model> model_;
  std::optional<pumice::Engine> engine_;
  bool ready_ = false;
  double progress_ = 0;
  std::int64_t last_frame_ = -1;
  pumice::Status failure_;
  std::map<pumice_request, std::shared_ptr<Answer>> answers_;
};
