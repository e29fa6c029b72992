#include "tools/serve/service/embedding_service.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace pumice::serve {
namespace {

/// Embedded before it is looked again who else waits.
constexpr size_t kTokensAtOnce = 4096;

}  // namespace

EmbeddingService::EmbeddingService(Embed embed, uint32_t most_open, Post post)
    : embed_(std::move(embed)), most_open_(most_open), post_(std::move(post)) {}

EmbeddingService::~EmbeddingService() { stop(); }

void EmbeddingService::start() {
  thread_ = std::thread([this] { embed_until_stopped(); });
}

void EmbeddingService::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  has_come_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::variant<uint64_t, ApiError> EmbeddingService::submit(Texts texts, Done done) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= most_open_) {
    return overloaded(fmt::format("{} requests run or wait already, at most {} may (--max-queue)",
                                  jobs_.size(), most_open_));
  }
  jobs_.push_back({.id = next_id_, .texts = std::move(texts), .done = std::move(done)});
  has_come_.notify_one();
  return next_id_++;
}

void EmbeddingService::cancel(uint64_t id) {
  const std::lock_guard lock(mutex_);
  jobs_.remove_if([&](const Job& job) { return job.id == id; });
}

void EmbeddingService::cancel_all() {
  const std::lock_guard lock(mutex_);
  while (!jobs_.empty()) {
    finish(jobs_.begin(), make_error(ErrorCode::kCancelled, "the server ends"));
  }
}

size_t EmbeddingService::n_open() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

// ---- the thread that embeds

void EmbeddingService::embed_until_stopped() {
  while (true) {
    std::vector<Part> parts = take_next();
    if (parts.empty()) return;
    embed(std::move(parts));
  }
}

/// Of each job a text in turn, so that nobody waits for all that another one sent. Empty: it stops.
std::vector<EmbeddingService::Part> EmbeddingService::take_next() {
  std::unique_lock lock(mutex_);
  has_come_.wait(lock, [&] { return stops_ || !jobs_.empty(); });
  std::vector<Part> parts;
  if (stops_) return parts;
  for (const Job& job : jobs_) parts.push_back({.job = job.id, .texts = {}});
  size_t n_tokens = 0;
  for (bool took = true; took && n_tokens < kTokensAtOnce;) {
    took = false;
    auto part = parts.begin();
    for (Job& job : jobs_) {
      Part& its = *part++;
      if (job.n_taken == job.texts.size() || n_tokens >= kTokensAtOnce) continue;
      n_tokens += job.texts[job.n_taken].size();
      its.texts.push_back(std::move(job.texts[job.n_taken++]));
      took = true;
    }
  }
  std::erase_if(parts, [](const Part& part) { return part.texts.empty(); });
  return parts;
}

Result<EmbeddingService::Vectors> EmbeddingService::embed_now(
    std::span<const std::vector<TokenId>> texts) {
  Result<Vectors> vectors = Vectors();
  try {
    vectors = embed_(texts, [this](size_t) { return !stops_; });
  } catch (const std::bad_alloc&) {
    vectors = make_error(ErrorCode::kOutOfMemory, "the host is out of memory");
  }
  works_ = vectors.ok() || vectors.error().code != ErrorCode::kDeviceLost;
  return vectors;
}

void EmbeddingService::embed(std::vector<Part> parts) {
  Texts all;
  for (const Part& part : parts) all.insert(all.end(), part.texts.begin(), part.texts.end());
  Result<Vectors> vectors = embed_now(all);
  if (vectors.ok()) {
    auto next = vectors->begin();
    for (const Part& part : parts) {
      const auto end = next + static_cast<std::ptrdiff_t>(part.texts.size());
      give(part.job, Vectors(std::move_iterator(next), std::move_iterator(end)));
      next = end;
    }
  } else if (parts.size() == 1) {
    give(parts[0].job, vectors.error());
  } else {
    // Whose text it was: the others' are embedded all the same.
    for (const Part& part : parts) give(part.job, embed_now(part.texts));
  }
}

/// Nothing for one that was cancelled meanwhile.
void EmbeddingService::give(uint64_t id, Result<Vectors> vectors) {
  const std::lock_guard lock(mutex_);
  const auto job = std::ranges::find(jobs_, id, &Job::id);
  if (job == jobs_.end()) return;
  if (!vectors.ok()) return finish(job, std::move(vectors));
  for (std::vector<float>& vector : *vectors) job->vectors.push_back(std::move(vector));
  if (job->vectors.size() < job->texts.size()) return;
  finish(job, std::move(job->vectors));
}

/// With mutex_ held.
void EmbeddingService::finish(std::list<Job>::iterator job, Result<Vectors> vectors) {
  auto given = std::make_shared<Result<Vectors>>(std::move(vectors));
  post_([done = std::move(job->done), given] { done(std::move(*given)); });
  jobs_.erase(job);
}

}  // namespace pumice::serve
