#include "base/file.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/output_file.hpp"
#include "tests/base/file_fixture.hpp"

namespace pumice {
namespace {

TEST_F(FileTest, WhatIsWrittenIsReadUpToTheEnd) {
  const File file = open(path("x"), File::Mode::kReadWrite);
  EXPECT_EQ(file.write_at(2, bytes_of("cdef"), error_), 4u);
  EXPECT_EQ(file.write_at(0, bytes_of("ab"), error_), 2u);
  EXPECT_EQ(read(file, 1, 3), "bcd");
  EXPECT_EQ(read(file, 4, 100), "ef");
  EXPECT_FALSE(error_) << "the end is none";
  EXPECT_EQ(read(file, 6, 1), "");
  const FileInfo info = file.info(error_);
  EXPECT_TRUE(info.is_regular());
  EXPECT_EQ(info.size_bytes, 6u);
}

TEST_F(FileTest, OffsetsGoBeyondFourGigabytes) {
  constexpr uint64_t kFar = (uint64_t{5} << 30) + 1;
  File file = open(path("sparse"), File::Mode::kReadWrite);
  EXPECT_EQ(file.write_at(kFar, bytes_of("far"), error_), 3u);
  EXPECT_EQ(file.info(error_).size_bytes, kFar + 3);
  EXPECT_EQ(read(file, kFar, 3), "far");
  EXPECT_EQ(read(file, kFar - (uint64_t{1} << 32), 1), std::string(1, '\0'));
  EXPECT_FALSE(file.resize(kFar + 1));
  EXPECT_EQ(read(file, kFar, 3), "f");
  EXPECT_EQ(file_info(path("sparse"), Links::kFollow, error_).size_bytes, kFar + 1);
}

TEST_F(FileTest, ErrorsAreTheSystems) {
  open(path("none"), File::Mode::kRead);
  EXPECT_EQ(error_, std::errc::no_such_file_or_directory);
  const File folder = open(folder_.path(), File::Mode::kRead);
  EXPECT_EQ(folder.info(error_).kind, FileKind::kFolder);
  EXPECT_EQ(read(folder, 0, 1), "");
  EXPECT_EQ(error_, std::errc::is_a_directory);
  file_info(path("none"), Links::kFollow, error_);
  EXPECT_EQ(error_, std::errc::no_such_file_or_directory);
}

TEST_F(FileTest, ANewFileIsNew) {
  given("x", "old");
  open(path("x"), File::Mode::kCreate);
  EXPECT_EQ(error_, std::errc::file_exists);
  EXPECT_TRUE(open(path("y"), File::Mode::kCreate).is_open());
  EXPECT_EQ(content(path("x")), "old");
}

TEST_F(FileTest, WhatIsAppendedStandsBehindWhatOthersAppended) {
  File one = open(path("x"), File::Mode::kAppend);
  File two = open(path("x"), File::Mode::kAppend);
  for (File* file : {&one, &two, &one}) EXPECT_EQ(file->write(bytes_of("ab"), error_), 2u);
  EXPECT_EQ(content(path("x")), "ababab");
}

TEST_F(FileTest, ALockHasOneHolder) {
  File file = open(path("x"), File::Mode::kReadWrite);
  File again = open(path("x"), File::Mode::kReadNoLink);
  ASSERT_TRUE(file.try_lock(error_));
  EXPECT_TRUE(file.try_lock(error_)) << "who holds it may ask again";
  EXPECT_FALSE(again.try_lock(error_));
  EXPECT_FALSE(error_) << "that another holds it is none";
  EXPECT_EQ(file.write_at(0, bytes_of("text"), error_), 4u);
  EXPECT_EQ(read(again, 0, 9), "text") << "it is a word among writers; others read";
  file = File();
  EXPECT_TRUE(again.try_lock(error_));
}

TEST_F(FileTest, AnUnnamedFileIsGoneWhenItIsClosed) {
  File file = File::create_unnamed(path("x"), error_);
  ASSERT_TRUE(file.is_open());
  EXPECT_EQ(file.write_at(1 << 20, bytes_of("text"), error_), 4u);
  EXPECT_EQ(read(file, 1 << 20, 4), "text");
  file = File();
  EXPECT_EQ(names(), Names{});
  File::create_unnamed(path("none/x"), error_);
  EXPECT_EQ(error_, std::errc::no_such_file_or_directory);
}

TEST_F(FileTest, LockWaitsForItsHolder) {
  File holder = open(path("x"), File::Mode::kReadWrite);
  ASSERT_TRUE(holder.try_lock(error_));
  std::atomic<bool> released = false;
  std::thread waiting([&] {
    std::error_code error;
    File file = File::open(path("x"), File::Mode::kReadWrite, error);
    EXPECT_FALSE(file.lock());
    EXPECT_TRUE(released);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  released = true;
  holder = File();
  waiting.join();
}

TEST_F(FileTest, AReaderKeepsTheFileThatIsReplaced) {
  const File reader = open(given("x", "old"), File::Mode::kRead);
  given("y", "new");
  EXPECT_FALSE(replace_file(path("y"), path("x")));
  EXPECT_EQ(read(reader, 0, 9), "old");
  EXPECT_FALSE(reader.info(error_).has_name);
  EXPECT_EQ(content(path("x")), "new");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(FileTest, ANameThatIsTakenIsNotTaken) {
  given("x", "old");
  given("y", "new");
  EXPECT_EQ(rename_to_new(path("y"), path("x")), std::errc::file_exists);
  EXPECT_EQ(content(path("x")), "old");
  EXPECT_FALSE(rename_to_new(path("y"), path("z")));
  EXPECT_EQ(names(), (Names{"x", "z"}));
}

TEST_F(FileTest, NamesAreUtf8AtTheEdges) {
  const std::string name = "größe 日本語 🪨.txt";
  EXPECT_TRUE(write_file(path(name), "x").ok());
  EXPECT_EQ(names(), Names{name});
  EXPECT_EQ(to_utf8(from_utf8(name)), name);
  EXPECT_EQ(content(path(name)), "x");
  const Status refused = write_file(path(name) / "y", "x");
  EXPECT_NE(refused.error().message.find(name), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace pumice
