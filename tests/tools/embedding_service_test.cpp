// Whose texts are embedded when, without a model.
#include "tools/serve/service/embedding_service.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace pumice::serve {
namespace {

using Vectors = EmbeddingService::Vectors;

constexpr size_t kLong = 3000;  // tokens: two of these are as much as is embedded at once
constexpr TokenId kBad = 13;    // no text that begins so can be embedded
constexpr TokenId kHuge = 14;   // nor this, for want of memory

/// Requests come before it starts, so what is embedded together is no matter of chance. The vector of
/// a text is its first token.
class EmbeddingServiceTest : public testing::Test {
 protected:
  EmbeddingServiceTest()
      : service_([this](auto texts, const Embedder::Progress&) { return embed(texts); }, 4,
                 [](const std::function<void()>& task) { task(); }) {}

  Result<Vectors> embed(std::span<const std::vector<TokenId>> texts) {
    std::string call;
    Vectors vectors;
    bool fails = false;
    for (const std::vector<TokenId>& text : texts) {
      call += (call.empty() ? "" : " ") + std::to_string(text[0]);
      fails |= text[0] == kBad;
      if (text[0] == kHuge) throw std::bad_alloc();
      vectors.push_back({static_cast<float>(text[0])});
    }
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
    if (fails) return make_error(ErrorCode::kInternal, "not a number");
    return vectors;
  }

  std::variant<uint64_t, ApiError> submit(const std::vector<TokenId>& firsts, size_t n_tokens) {
    EmbeddingService::Texts texts;
    for (const TokenId first : firsts) texts.emplace_back(n_tokens, first);
    auto done = std::make_shared<std::promise<Result<Vectors>>>();
    results_.push_back(done->get_future());
    return service_.submit(
        std::move(texts), [done](Result<Vectors> vectors) { done->set_value(std::move(vectors)); });
  }
  /// First numbers of a request's vectors; empty: it failed.
  std::vector<float> result(size_t i) {
    const Result<Vectors> vectors = results_[i].get();
    std::vector<float> firsts;
    for (size_t k = 0; vectors.ok() && k < vectors->size(); ++k) {
      firsts.push_back((*vectors)[k][0]);
    }
    return firsts;
  }

  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::deque<std::future<Result<Vectors>>> results_;
  EmbeddingService service_;
};

TEST_F(EmbeddingServiceTest, TextsOfSeveralRequestsAreEmbeddedTogetherAndEachGetsItsOwn) {
  submit({1, 2}, 2);
  submit({3}, 2);
  service_.start();
  EXPECT_EQ(result(0), (std::vector<float>{1, 2}));
  EXPECT_EQ(result(1), (std::vector<float>{3}));
  service_.stop();
  EXPECT_EQ(calls_, std::vector<std::string>{"1 2 3"});
  EXPECT_EQ(service_.n_open(), 0u);
}

TEST_F(EmbeddingServiceTest, NobodyWaitsForAllThatAnotherOneSent) {
  submit({1, 2, 3, 4}, kLong);
  submit({5}, kLong);
  service_.start();
  EXPECT_EQ(result(0), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(result(1), (std::vector<float>{5}));
  service_.stop();
  EXPECT_EQ(calls_, (std::vector<std::string>{"1 5", "2 3", "4"}));
}

TEST_F(EmbeddingServiceTest, ATextThatCannotBeEmbeddedFailsItsRequestOnly) {
  submit({1, kBad}, 2);
  submit({2}, 2);
  service_.start();
  EXPECT_FALSE(results_[0].get().ok());
  EXPECT_EQ(result(1), (std::vector<float>{2}));
  EXPECT_TRUE(service_.works());
}

TEST_F(EmbeddingServiceTest, WithoutMemoryARequestFailsAndTheNextIsServed) {
  submit({kHuge}, 2);
  submit({2}, 2);
  service_.start();
  EXPECT_EQ(results_[0].get().error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(result(1), (std::vector<float>{2}));
}

TEST_F(EmbeddingServiceTest, WhatWasCancelledIsNotEmbedded) {
  const auto first = submit({1}, 2);
  submit({2}, 2);
  service_.cancel(std::get<uint64_t>(first));
  service_.start();
  EXPECT_EQ(result(1), (std::vector<float>{2}));
  service_.stop();
  EXPECT_EQ(calls_, std::vector<std::string>{"2"});
}

TEST_F(EmbeddingServiceTest, BeyondTheBoundItIsOverloadedAndAllCanBeEnded) {
  for (TokenId i = 0; i < 4; ++i) submit({i}, 2);
  const auto refused = submit({9}, 2);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status, 429u);
  service_.cancel_all();
  EXPECT_EQ(service_.n_open(), 0u);
  EXPECT_EQ(results_[0].get().error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace pumice::serve
