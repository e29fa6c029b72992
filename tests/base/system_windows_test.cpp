// What base asks of Windows: libraries, folders, time, devices, files that may not be written.
#include <gtest/gtest.h>

#include <ctime>

#include "base/dynamic_library.hpp"
#include "base/folders.hpp"
#include "base/local_time.hpp"
#include "base/output_file.hpp"
#include "base/process.hpp"
#include "tests/base/file_fixture.hpp"

namespace pumice {
namespace {

TEST(DynamicLibrary, TheFirstThatIsThereIsOpened) {
  const DynamicLibrary library = DynamicLibrary::open({"nowhere-7.dll", "msvcrt.dll"});
  ASSERT_TRUE(library.is_open());
  double (*const cosine)(double) = library.function<double(double)>("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(library.function<void()>("no_such_function"), nullptr);
}

TEST(Folders, AreBelowThatOfTheUsersPrograms) {
  set_environment("LOCALAPPDATA", "C:\\some one");
  EXPECT_EQ(cache_directory(), fs::path(L"C:\\some one\\pumice\\cache"));
  EXPECT_EQ(config_directory(), fs::path(L"C:\\some one\\pumice\\config"));
  EXPECT_EQ(state_directory(), fs::path(L"C:\\some one\\pumice\\state"));
  set_environment("LOCALAPPDATA", "");
  EXPECT_EQ(cache_directory().filename(), "cache") << "an empty variable is none";
  EXPECT_TRUE(cache_directory().is_absolute());
  EXPECT_TRUE(account_home().is_absolute());
}

TEST(LocalTime, IsOfThisMachine) {
  const std::tm time = local_time(std::time_t{200} * 86400);
  EXPECT_EQ(time.tm_year, 70);
  EXPECT_EQ(time.tm_mon, 6);
}

TEST_F(FileTest, DevicesAreNoFilesToReplace) {
  EXPECT_TRUE(is_made_up_path("NUL"));
  EXPECT_TRUE(is_made_up_path(path("con")));
  EXPECT_FALSE(is_made_up_path(path("console.txt")));
  EXPECT_TRUE(write_file("NUL", "gone").ok());
  EXPECT_EQ(names(), Names{});
}

TEST_F(FileTest, AFileThatIsReadOnlyIsNotReplaced) {
  const fs::path target = given("x", "old");
  fs::permissions(target, fs::perms::owner_write, fs::perm_options::remove);
  EXPECT_EQ(write_file(target, "new").error().code, ErrorCode::kBadFile);
  EXPECT_EQ(content(target), "old");
  fs::permissions(target, fs::perms::owner_write, fs::perm_options::add);
}

}  // namespace
}  // namespace pumice
