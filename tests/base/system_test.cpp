// What base asks of every system: libraries, memory, processors, the environment.
#include <gtest/gtest.h>

#include <string_view>

#include "base/dynamic_library.hpp"
#include "base/memory.hpp"
#include "base/process.hpp"
#include "base/processor.hpp"

namespace pumice {
namespace {

TEST(DynamicLibrary, OneThatIsNotThereHasNoFunctions) {
  const DynamicLibrary library = DynamicLibrary::open({"libnowhere.so.7"});
  EXPECT_FALSE(library.is_open());
  EXPECT_EQ(library.function<void()>("cos"), nullptr);
}

TEST(Memory, OfTheMachineIsMoreThanThatOfACache) {
  EXPECT_GT(physical_memory_bytes(), last_level_cache_bytes());
  EXPECT_GE(physical_memory_bytes(), uint64_t{64} << 20);
}

TEST(Memory, BytesAreFoundWhereTheyFirstStand) {
  EXPECT_EQ(find_bytes("abcabc", "bc"), 1u);
  EXPECT_EQ(find_bytes(std::string_view("a\0b", 3), std::string_view("\0b", 2)), 1u);
  EXPECT_EQ(find_bytes("abc", ""), 0u);
  EXPECT_EQ(find_bytes("abc", "abcd"), std::string_view::npos);
  EXPECT_EQ(find_bytes("aabaabaac", "aabaac"), 3u);
  EXPECT_EQ(find_bytes("aaaaaaaab", "aaab"), 5u);
  EXPECT_EQ(find_bytes("", "a"), std::string_view::npos);
}

TEST(Processor, HasAtLeastOneCore) { EXPECT_GE(read_processor_state().n_cores, 1u); }

TEST(Process, VariablesOfTheEnvironmentAreSet) {
  constexpr const char* kName = "PUMICE_TEST_VARIABLE";
  EXPECT_FALSE(environment_variable(kName).has_value());
  set_environment(kName, "one");
  set_environment(kName, "größe 日本語");
  EXPECT_EQ(environment_variable(kName), "größe 日本語");
}

}  // namespace
}  // namespace pumice
