// What base asks of POSIX: libraries, folders, time, pipes that break.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

#include "base/dynamic_library.hpp"
#include "base/folders.hpp"
#include "base/local_time.hpp"
#include "base/process.hpp"

namespace pumice {
namespace {

/// Puts a variable back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(DynamicLibrary, TheFirstThatIsThereIsOpened) {
  const DynamicLibrary library =
      DynamicLibrary::open({"libnowhere.so.7", "libm.so.6", "libc.so.6"});
  if (!library.is_open()) GTEST_SKIP() << "another C library";
  double (*const cosine)(double) = library.function<double(double)>("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(library.function<void()>("no_such_function"), nullptr);
}

TEST(Folders, AreBelowHomeUnlessTheirVariableSaysElse) {
  const Variable home("HOME", "/someone");
  const Variable cache("XDG_CACHE_HOME", nullptr);
  const Variable config("XDG_CONFIG_HOME", "");
  const Variable state("XDG_STATE_HOME", "/elsewhere");
  EXPECT_EQ(cache_directory(), "/someone/.cache/pumice");
  EXPECT_EQ(config_directory(), "/someone/.config/pumice") << "an empty variable is none";
  EXPECT_EQ(state_directory(), "/elsewhere/pumice");
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(cache_directory(), "");
  EXPECT_EQ(state_directory(), "/elsewhere/pumice");
}

TEST(LocalTime, IsThatOfTheTimeZone) {
  const Variable zone("TZ", "XYZ-3:30");
  ::tzset();
  const std::tm time = local_time(86400);
  EXPECT_EQ(time.tm_hour, 3);
  EXPECT_EQ(time.tm_min, 30);
  EXPECT_EQ(time.tm_year, 70);
}

TEST(Process, ABrokenPipeIsAnErrorWhileItIsAskedFor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  {
    const WithoutBrokenPipes guard;
    const WithoutBrokenPipes within;
    EXPECT_EQ(::write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  ::close(ends[1]);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0) << "or this process had ended by then";
}

}  // namespace
}  // namespace pumice
