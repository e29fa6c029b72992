// Texts to vectors for many clients: one thread embeds what has come, texts of several requests in
// one pass, and each request gets its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "engine/embedder.hpp"
#include "tools/serve/service/api_error.hpp"

namespace pumice::serve {

/// Of the server's thread, but for the thread that embeds, which is its own.
class EmbeddingService {
 public:
  using Texts = std::vector<std::vector<TokenId>>;
  using Vectors = std::vector<std::vector<float>>;
  using Embed = std::function<Result<Vectors>(std::span<const std::vector<TokenId>>,
                                              const Embedder::Progress&)>;
  using Done = std::function<void(Result<Vectors>)>;
  /// Runs a task on the server's thread, soon; any thread may call it.
  using Post = std::function<void(std::function<void()>)>;

  /// `most_open`: requests that run or wait; further ones are refused.
  EmbeddingService(Embed embed, uint32_t most_open, Post post);
  /// Stops; requests that are left end nowhere.
  ~EmbeddingService();
  EmbeddingService(const EmbeddingService&) = delete;
  EmbeddingService& operator=(const EmbeddingService&) = delete;

  void start();
  /// Until the thread has ended, which is behind the texts that it embeds.
  void stop();

  /// `done` is called once, unless it is cancelled. Texts have been checked: only chance makes one
  /// of them fail, which is no other request's business. Errors: 429 at the bound.
  std::variant<uint64_t, ApiError> submit(Texts texts, Done done);
  void cancel(uint64_t id);
  /// Each ends with kCancelled.
  void cancel_all();

  size_t n_open() const;
  /// Whether what was embedded last found a device.
  bool works() const { return works_; }

 private:
  struct Job {
    uint64_t id = 0;
    Texts texts;
    Vectors vectors = {};  // of the first ones
    size_t n_taken = 0;
    Done done;
  };
  /// Texts of a job that are embedded now.
  struct Part {
    uint64_t job = 0;
    Texts texts;
  };

  void embed_until_stopped();
  std::vector<Part> take_next();
  void embed(std::vector<Part> parts);
  void give(uint64_t job, Result<Vectors> vectors);
  void finish(std::list<Job>::iterator job, Result<Vectors> vectors);
  Result<Vectors> embed_now(std::span<const std::vector<TokenId>> texts);

  const Embed embed_;
  const uint32_t most_open_;
  const Post post_;
  std::atomic<bool> stops_ = false;
  std::atomic<bool> works_ = true;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable has_come_;
  std::list<Job> jobs_;
  uint64_t next_id_ = 1;
  std::thread thread_;
};

}  // namespace pumice::serve
