// A library of pipelines: shared by threads, and unharmed by what is thrown while it compiles.
#include "vk/pipeline.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/gpu_fixture.hpp"
#include "vk/recorder.hpp"

namespace pumice {
namespace {

const uint32_t kNothing[] =
#include "no_interface.inc"
    ;

class Pipelines : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    library_ = std::make_unique<vk::PipelineLibrary>(device_, "", 0);
  }

  /// Pipelines differ by their label alone.
  const vk::Pipeline* declare(size_t number) {
    return *library_->declare(
        {.module = {"nothing", kNothing}, .label = "nothing." + std::to_string(number)});
  }

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::PipelineLibrary> library_;
};

TEST_F(Pipelines, WhatProgressThrowsIsAnErrorAndTheNextCompileDoesTheRest) {
  for (size_t i = 0; i < 8; ++i) declare(i);
  const Status thrown =
      library_->compile([](size_t, size_t) { throw std::runtime_error("a host's bug"); });
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().code, ErrorCode::kInternal);
  EXPECT_EQ(thrown.error().message, "a host's bug");
  declare(8);
  const Status no_memory = library_->compile([](size_t, size_t) { throw std::bad_alloc(); });
  ASSERT_FALSE(no_memory.ok());
  EXPECT_EQ(no_memory.error().code, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(library_->compile().ok());
  EXPECT_EQ(library_->compiled_count(), 9u);
  for (const vk::Pipeline* pipeline : library_->declared()) {
    EXPECT_NE(pipeline->handle(), VK_NULL_HANDLE);
  }
}

TEST_F(Pipelines, CompileInPiecesOneAtLeastACall) {
  constexpr size_t kPipelines = 5;
  for (size_t i = 0; i < kPipelines; ++i) declare(i);
  const bool dispatches = device_->plan().quirks.compiles_at_first_dispatch;
  EXPECT_EQ(library_->readiness().done, 0u);
  size_t n_told = 0;
  size_t n_calls = 0;
  auto readiness = library_->readiness();
  for (; !readiness.complete(); ++n_calls) {
    const auto piece = library_->compile_for(0, [&](size_t, size_t) { ++n_told; });
    ASSERT_TRUE(piece.ok());
    EXPECT_EQ(piece->total, kPipelines);
    EXPECT_EQ(n_told, n_calls + 1) << "one, whatever the budget";
    readiness = *piece;
  }
  EXPECT_EQ(n_calls, kPipelines * (dispatches ? 2 : 1));
  EXPECT_EQ(library_->compiled_count(), kPipelines);
  declare(kPipelines);
  library_->reject({"nothing"});
  EXPECT_TRUE(library_->readiness().complete()) << "nobody waits for what is rejected";
  EXPECT_EQ(library_->compile_for(10)->total, 0u);
}

TEST_F(Pipelines, WhatIsSeldomUsedIsNotDispatchedAhead) {
  const vk::Pipeline* const seldom = *library_->declare(
      {.module = {"nothing", kNothing}, .label = "nothing.seldom", .seldom = true});
  declare(0);
  const size_t dispatches = device_->plan().quirks.compiles_at_first_dispatch ? 1 : 0;
  size_t n_told = 0;
  ASSERT_TRUE(library_->compile([&](size_t, size_t) { ++n_told; }).ok());
  EXPECT_EQ(n_told, 2 + dispatches);
  EXPECT_NE(seldom->handle(), VK_NULL_HANDLE);
  EXPECT_TRUE(library_->readiness().complete());
  vk::Recorder recorder(device_);
  recorder.dispatch_bytes(*seldom, {}, vk::Grid{1, 1, 1}, {}, {}, {});
  const auto work = recorder.finish();
  ASSERT_TRUE(work.ok());
  const auto value = vk::submit(*device_, *work);
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(device_->wait(*value).ok());
}

// ThreadSanitizer (the matrix's row tsan) sees here what a lock does not cover. Between two calls
// of one kind in a thread there is no other lock, which would order them by chance.
TEST_F(Pipelines, EachCallLocksByItself) {
  constexpr size_t kCalls = 32;
  using Call = std::function<void(size_t)>;
  const std::vector<Call> writers = {
      [&](size_t i) { library_->reject({fmt::format("wrong.{}", i)}); },
      [&](size_t i) { library_->accept({fmt::format("new.{}", i)}); },
      [&](size_t i) { declare(i); },
  };
  const std::vector<Call> readers = {
      [&](size_t i) { library_->is_rejected(fmt::format("wrong.{}", i)); },
      [&](size_t) {
        (void)library_->obstacle({"nothing", kNothing});
      },
      [&](size_t) { (void)library_->declared_modules(); },
      [&](size_t) { (void)library_->pending_modules(); },
      [&](size_t) { (void)library_->declared(); },
      [&](size_t) { (void)library_->compiled_count(); },
  };
  for (const Call& writer : writers) {
    std::vector<std::jthread> threads;
    const auto run = [&](const Call& call) {
      threads.emplace_back([&call] {
        for (size_t i = 0; i < kCalls; ++i) call(i);
      });
    };
    run(writer);
    for (const Call& reader : readers) run(reader);
  }
  EXPECT_TRUE(library_->is_rejected("wrong.0"));
  EXPECT_EQ(library_->declared().size(), kCalls);
}

// The same with all of them at once, and what they give.
TEST_F(Pipelines, ThreadsShareThem) {
  constexpr size_t kThreads = 4;
  constexpr size_t kPipelines = 24;
  std::vector<std::vector<const vk::Pipeline*>> declared(kThreads);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < kPipelines; ++i) {
          declared[t].push_back(declare(i));
          const std::string wrong = fmt::format("wrong.{}.{}", t, i);
          library_->accept({fmt::format("new.{}.{}", t, i)});
          library_->reject({wrong});
          EXPECT_EQ(library_->obstacle({"nothing", kNothing}), "");
          EXPECT_TRUE(library_->is_rejected(wrong));
          EXPECT_TRUE(library_->declared_modules().contains("nothing"));
          library_->pending_modules();
          EXPECT_GE(library_->declared().size(), i + 1);
          if (i % 4 != t) continue;
          ASSERT_TRUE(library_->compile().ok());
          EXPECT_GE(library_->compiled_count(), i + 1);
          vk::Recorder recorder(device_);
          for (const vk::Pipeline* pipeline : declared[t]) {
            recorder.dispatch_bytes(*pipeline, {}, {1, 1, 1}, {}, {}, {});
          }
          ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
        }
      });
    }
  }
  EXPECT_EQ(library_->compiled_count(), kPipelines);
  for (const auto& pipelines : declared) EXPECT_EQ(pipelines, declared[0]);
}

}  // namespace
}  // namespace pumice
