// What only POSIX has: links that anybody may make, pipes with names, permissions, processes by fork.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/output_file.hpp"
#include "base/utf8.hpp"
#include "tests/base/file_fixture.hpp"

namespace pumice {
namespace {

/// The exit code of a process that does this; -1 where a signal ended it.
int in_another_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) _exit(body());
  int ended = -1;
  EXPECT_EQ(::waitpid(child, &ended, 0), child);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

TEST_F(FileTest, ALinkToNothingIsNoPlaceForANewFile) {
  fs::create_symlink("nowhere", path("dangling"));
  open(path("dangling"), File::Mode::kCreate);
  EXPECT_EQ(error_, std::errc::file_exists);
}

TEST_F(FileTest, NamesAreOfAnyBytes) {
  EXPECT_EQ(to_utf8(from_utf8("\xFF\xC3.gguf")), "\xFF\xC3.gguf");
}

TEST_F(FileTest, LinksAreRefusedWhereTheyAreNotMeant) {
  given("x", "old");
  fs::create_symlink("x", path("link"));
  fs::create_symlink("nowhere", path("dangling"));
  for (const auto mode : {File::Mode::kReadNoLink, File::Mode::kReadWrite}) {
    for (const char* name : {"link", "dangling"}) {
      open(path(name), mode);
      EXPECT_EQ(error_, std::errc::too_many_symbolic_link_levels) << name;
    }
    EXPECT_TRUE(open(path("x"), mode).is_open());
  }
  EXPECT_EQ(read(open(path("link"), File::Mode::kRead), 0, 9), "old");
  EXPECT_FALSE(file_info(path("link"), Links::kStay, error_).is_regular());
  EXPECT_TRUE(file_info(path("link"), Links::kFollow, error_).is_regular());
}

TEST_F(FileTest, APipeIsOpenedAtOnceAndKnown) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ::alarm(20);  // ends a program that waits
  for (const auto mode : {File::Mode::kRead, File::Mode::kReadNoLink}) {
    const File pipe = open(path("pipe"), mode);  // nobody writes to it
    ASSERT_TRUE(pipe.is_open());
    EXPECT_EQ(pipe.info(error_).kind, FileKind::kOther);
  }
  open(path("pipe"), File::Mode::kAppend);  // nobody reads it
  EXPECT_TRUE(error_);
  ::alarm(0);
}

TEST_F(FileTest, ALockHasOneHolderAmongProcesses) {
  File file = open(path("x"), File::Mode::kReadWrite);
  File again = open(path("x"), File::Mode::kReadWrite);
  ASSERT_TRUE(file.try_lock(error_));
  EXPECT_TRUE(file.try_lock(error_)) << "who holds it may ask again";
  EXPECT_FALSE(again.try_lock(error_));
  EXPECT_FALSE(error_) << "that another holds it is none";
  const auto try_elsewhere = [&] {
    return in_another_process([&] {
      std::error_code error;
      File other = File::open(path("x"), File::Mode::kReadNoLink, error);
      return other.try_lock(error) ? 1 : 2;
    });
  };
  EXPECT_EQ(try_elsewhere(), 2);
  file = File();
  EXPECT_EQ(try_elsewhere(), 1);
  EXPECT_TRUE(again.try_lock(error_)) << "the lock of a process that ended is free";
}

TEST_F(FileTest, ALockStaysWithTheFileThroughItsNames) {
  File file = open(given("x", "x"), File::Mode::kReadWrite);
  ASSERT_TRUE(file.try_lock(error_));
  EXPECT_FALSE(replace_file(path("x"), path("y")));
  EXPECT_TRUE(file.info(error_).has_name);
  EXPECT_FALSE(open(path("y"), File::Mode::kRead).try_lock(error_));
  EXPECT_FALSE(remove_file(path("y")));
  EXPECT_FALSE(file.info(error_).has_name);
  EXPECT_TRUE(open(path("y"), File::Mode::kReadWrite).try_lock(error_)) << "another file";
}

TEST_F(FileTest, AnUnnamedFileIsGoneHoweverItsProcessEnds) {
  const auto write_and_end = [&] {
    std::error_code error;
    File file = File::create_unnamed(path("x"), error);
    if (file.write_at(1 << 20, bytes_of("text"), error) != 4) return 1;
    if (read(file, 1 << 20, 4) != "text") return 2;
    return 7;  // no destructor
  };
  EXPECT_EQ(in_another_process(write_and_end), 7);
  EXPECT_EQ(names(), Names{});
  const File file = File::create_unnamed(path("x"), error_);
  EXPECT_TRUE(file.is_open());
  EXPECT_FALSE(file.info(error_).has_name);
  EXPECT_EQ(file.info(error_).access.permissions, 0600u);
  EXPECT_EQ(names(), Names{});
  File::create_unnamed(path("none/x"), error_);
  EXPECT_EQ(error_, std::errc::no_such_file_or_directory);
}

TEST_F(FileTest, ProgramsThatThisOneStartsInheritNoFile) {
  if (!fs::exists("/proc/self/fd")) GTEST_SKIP() << "no /proc on this machine";
  using Mode = File::Mode;
  std::vector<File> files;
  files.push_back(open(path("a"), Mode::kReadWrite));
  for (const Mode mode : {Mode::kRead, Mode::kReadNoLink, Mode::kWriteInPlace, Mode::kAppend}) {
    files.push_back(open(path("a"), mode));
  }
  files.push_back(open(path("b"), Mode::kCreate));
  files.push_back(File::create_unnamed(path("c"), error_));
  size_t n_found = 0;
  for (int descriptor = 0; descriptor < 256; ++descriptor) {
    const fs::path link = "/proc/self/fd/" + std::to_string(descriptor);
    std::error_code none;
    if (!fs::read_symlink(link, none).native().starts_with(folder_.path().native())) continue;
    ++n_found;
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), FD_CLOEXEC) << fs::read_symlink(link, none);
  }
  EXPECT_EQ(n_found, files.size());
}

TEST_F(FileTest, RemovingTakesOneThingOfItsKind) {
  fs::create_directories(path("folder/full"));
  fs::create_directory_symlink("folder", path("link"));
  EXPECT_TRUE(remove_file(path("folder")));
  EXPECT_TRUE(remove_empty_folder(path("folder")));
  EXPECT_TRUE(remove_empty_folder(path("link")));
  EXPECT_FALSE(remove_file(path("link")));
  EXPECT_FALSE(remove_empty_folder(path("folder/full")));
  EXPECT_EQ(names(), Names{"folder"});
}

TEST_F(FileTest, OwnerAndPermissionsAreTakenOver) {
  ASSERT_EQ(::chmod(given("x", "").c_str(), 0640), 0);
  const FileAccess access = file_info(path("x"), Links::kFollow, error_).access;
  EXPECT_EQ(access.permissions, 0640u);
  File file = open(path("y"), File::Mode::kCreate);
  EXPECT_FALSE(file.set_access(access));
  EXPECT_EQ(file.info(error_).access.permissions, 0640u);
}

/// A write that fails in the midst: here at a limit of sizes, as on a full disk.
TEST_F(FileTest, AReplacementThatFailsHalfWayLeavesTheOldFileAndNothingElse) {
  const fs::path target = given("x", "old");
  const auto write_too_much = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status status = write_file(target, std::string(1000, 'x'));
    return !status.ok() && status.error().code == ErrorCode::kDoesNotFit ? 7 : 1;
  };
  EXPECT_EQ(in_another_process(write_too_much), 7);
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(names(), Names{"x"});
}

TEST_F(FileTest, TemporariesOfLongNamesAreCutBetweenCharacters) {
  for (const size_t n_ascii : {0u, 1u, 2u, 3u}) {
    std::string name(n_ascii, 'a');
    while (name.size() + 4 <= 255) name += "🪨";
    Result<OutputFile> file = OutputFile::create(path(name));
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(names().size(), 1u);
    EXPECT_TRUE(is_valid_utf8(names()[0])) << names()[0];
  }
}

}  // namespace
}  // namespace pumice
