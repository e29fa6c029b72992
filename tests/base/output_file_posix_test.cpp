// Permissions, links, pipes and devices that are written to, and writers that are killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/output_file.hpp"
#include "tests/base/file_fixture.hpp"

namespace pumice {
namespace {

class OutputFilePosixTest : public FileTest {};

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(OutputFilePosixTest, PermissionsStayAndNewFilesHaveTheUsersOwn) {
  for (const mode_t permissions : {0640, 0600, 0755}) {
    const fs::path target = given("x", "old");
    ASSERT_EQ(::chmod(target.c_str(), permissions), 0);
    ASSERT_TRUE(write_file(target, "new").ok());
    EXPECT_EQ(mode_of(target), permissions);
  }
  const mode_t usual = ::umask(027);
  EXPECT_TRUE(write_file(path("fresh"), "new").ok());
  ::umask(usual);
  EXPECT_EQ(mode_of(path("fresh")), 0640u);
}

TEST_F(OutputFilePosixTest, AFileThatMayNotBeWrittenIsNotReplaced) {
  const fs::path target = given("x", "old");
  ASSERT_EQ(::chmod(target.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) _exit(2);  // root may write everything
    const Status status = write_file(target, "new");
    _exit(!status.ok() && status.error().code == ErrorCode::kBadFile ? 0 : 1);
  }
  int ended = -1;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(content(target), "old");
}

TEST_F(OutputFilePosixTest, SymbolicLinksStayAndTheirTargetIsWritten) {
  const fs::path target = given("target", "old");
  fs::create_directory(path("folder"));
  fs::create_symlink("../target", path("folder/link"));
  fs::create_symlink(path("folder/link"), path("link"));
  ASSERT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(fs::is_symlink(path("folder/link")));
  EXPECT_EQ(content(target), "new");
  EXPECT_TRUE(!fs::is_symlink(target));

  fs::create_symlink("not-there-yet", path("dangling"));
  ASSERT_TRUE(write_file(path("dangling"), "made").ok());
  EXPECT_EQ(content(path("not-there-yet")), "made");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));

  fs::create_symlink("loop", path("loop"));
  EXPECT_EQ(write_file(path("loop"), "x").error().code, ErrorCode::kBadFile);
}

TEST_F(OutputFilePosixTest, PipesAreWrittenToAndStay) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  std::string received;
  std::thread reader([&] { received = content(path("pipe")); });
  EXPECT_TRUE(write_file(path("link"), "through").ok());
  reader.join();
  EXPECT_EQ(received, "through");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(names(), (Names{"link", "pipe"}));
}

TEST_F(OutputFilePosixTest, DevicesAreWrittenToAndStay) {
  // Nodes of our own: were this wrong, /dev/null of the whole machine would be gone.
  const fs::path null = path("null");
  const fs::path full = path("full");
  if (::mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
      ::mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 || !std::ofstream(null).is_open()) {
    GTEST_SKIP() << "this user or file system has no device nodes";
  }
  EXPECT_TRUE(write_file(null, "gone").ok());
  const Status status = write_file(full, "too much");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(status.error().message, full.string() + ": cannot be written: No space left on device");
  EXPECT_TRUE(fs::is_character_file(null) && fs::is_character_file(full));
  EXPECT_EQ(names(), (Names{"full", "null"}));
}

TEST_F(OutputFilePosixTest, DescriptorsAreContinuedWhereTheyStand) {
  if (!fs::exists("/dev/fd")) GTEST_SKIP() << "no /dev/fd on this machine";
  const int descriptor = ::open(given("x", "").c_str(), O_WRONLY);
  ASSERT_EQ(::write(descriptor, "head ", 5), 5);
  EXPECT_TRUE(write_file("/dev/fd/" + std::to_string(descriptor), "tail").ok());
  EXPECT_EQ(::write(descriptor, " end", 4), 4);
  ::close(descriptor);
  EXPECT_EQ(content(path("x")), "head tail end");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(OutputFilePosixTest, WhatAKilledWriterLeftIsRemovedByTheNextOne) {
  const pid_t child = ::fork();
  if (child == 0) {
    Result<OutputFile> file = OutputFile::create(path("x"));
    _exit(file.ok() && file->write("half").ok() ? 0 : 1);  // no destructor, as after SIGKILL
  }
  int ended = -1;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  ASSERT_EQ(ended, 0);
  ASSERT_EQ(names().size(), 1u);
  EXPECT_TRUE(write_file(path("y"), "another").ok());
  EXPECT_EQ(names().size(), 2u) << "left-overs of other files are not ours to remove";
  EXPECT_TRUE(write_file(path("x"), "whole").ok());
  EXPECT_EQ(names(), (Names{"x", "y"}));
}

TEST_F(OutputFilePosixTest, TheLongestNamesWork) {
  const std::string longest(255, 'n');
  EXPECT_TRUE(write_file(path(longest), "x").ok());
  EXPECT_EQ(names(), Names{longest});
  EXPECT_EQ(write_file(path(longest + "n"), "x").error().code, ErrorCode::kBadFile);
}

TEST_F(OutputFilePosixTest, AnInputByAnyNameIsRecognised) {
  const fs::path input = given("input", "precious");
  fs::create_hard_link(input, path("hard"));
  fs::create_symlink("input", path("soft"));
  const fs::path other = given("other", "precious");
  const std::vector<fs::path> inputs = {"", path("not-there"), input};
  for (const fs::path& name : {input, path("hard"), path("soft"), path("./input")}) {
    const Status status = check_not_an_input(name, inputs);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  for (const fs::path& name : {other, path("not-there"), fs::path(), fs::path("/dev/null")}) {
    EXPECT_TRUE(check_not_an_input(name, inputs).ok()) << name;
  }
  EXPECT_TRUE(check_not_an_input("/dev/null", std::vector<fs::path>{"/dev/null"}).ok());
}

}  // namespace
}  // namespace pumice
