// The end of a program while another thread hangs in a file system that does not answer: here in an
// open() of ours, in the place of the C library's.
#include "base/unfinished_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <string_view>
#include <thread>

#include "base/output_file.hpp"

namespace {
std::atomic<bool> g_hangs = false;
}

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  if (std::string_view(path).find("hangs.txt.") != std::string_view::npos) {
    g_hangs = true;
    for (;;) pause();
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace pumice {
namespace {

TEST(UnfinishedFiles, TheEndDoesNotWaitForWhoHangsInOpeningOne) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("pumice-unfinished-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::thread([folder] { (void)OutputFile::create(folder / "hangs.txt"); }).detach();
  while (!g_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::promise<void> ended;
  std::thread([&ended] {
    remove_unfinished_files();
    ended.set_value();
  }).detach();
  const bool in_time =
      ended.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  std::filesystem::remove_all(folder);
  if (!in_time) std::_Exit(1);  // a thread still uses `ended`
}

}  // namespace
}  // namespace pumice
