// Work on several threads: all of it is done, and nothing a thread throws ends the process.
#include "base/parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pumice {
namespace {

TEST(ForEachOnThreads, DoesEachOnce) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}}) {
    for (const size_t threads : {size_t{0}, size_t{1}, size_t{4}}) {
      std::vector<std::atomic<int>> done(n);
      const Status status = for_each_on_threads(n, threads, [&](size_t i) {
        ++done[i];
        return Status();
      });
      EXPECT_TRUE(status.ok());
      EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const auto& d) { return d == 1; }));
    }
  }
}

/// What becomes of `fail`, called on a thread that is not the caller's.
Error failure(const std::function<Status()>& fail) {
  const std::thread::id caller = std::this_thread::get_id();
  std::promise<void> failed;
  const Status status = for_each_on_threads(2, 2, [&](size_t) -> Status {
    if (std::this_thread::get_id() != caller) {
      failed.set_value();
      return fail();
    }
    failed.get_future().wait();  // so that the other thread gets one
    return {};
  });
  return status.ok() ? Error{} : status.error();
}

TEST(ForEachOnThreads, WhatAThreadThrowsIsAnErrorOfTheCall) {
  const Error returned = failure([] { return make_error(ErrorCode::kBadFile, "damaged"); });
  EXPECT_EQ(returned.code, ErrorCode::kBadFile);
  EXPECT_EQ(returned.message, "damaged");
  const Error thrown = failure([]() -> Status { throw std::runtime_error("no luck"); });
  EXPECT_EQ(thrown.code, ErrorCode::kInternal);
  EXPECT_EQ(thrown.message, "no luck");
  EXPECT_EQ(failure([]() -> Status { throw std::bad_alloc(); }).code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(failure([]() -> Status { throw 1; }).code, ErrorCode::kInternal);
}

TEST(ForEachOnThreads, BeginsNothingAfterAFailure) {
  size_t begun = 0;
  const Status status = for_each_on_threads(10, 1, [&](size_t i) -> Status {
    ++begun;
    if (i == 3) return make_error(ErrorCode::kCancelled, "enough");
    return {};
  });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(begun, 4u);
}

}  // namespace
}  // namespace pumice
