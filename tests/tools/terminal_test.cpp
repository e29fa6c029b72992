#include "tools/terminal.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace pumice::tools {
namespace {

TEST(WordWrapped, LinesBreakBetweenWordsAndNothingIsLost) {
  EXPECT_EQ(word_wrapped("one two three\n", 7), "one two\nthree\n");
  EXPECT_EQ(word_wrapped("one two three\n", 8), "one two\nthree\n");
  EXPECT_EQ(word_wrapped("one two three\n", 13), "one two three\n");
  EXPECT_EQ(word_wrapped("a verylongword b\nc d\n", 5), "a\nverylongword\nb\nc d\n");
  EXPECT_EQ(word_wrapped("\xC3\xA4\xC3\xA4 \xC3\xB6\xC3\xB6 \xC3\xBC", 5),
            "\xC3\xA4\xC3\xA4 \xC3\xB6\xC3\xB6\n\xC3\xBC")
      << "characters are counted, not bytes";
  EXPECT_EQ(word_wrapped("", 5), "");
  const std::string text = "the quick brown fox jumps over the lazy dog and back again";
  for (size_t columns = 6; columns < 70; ++columns) {
    std::istringstream lines(word_wrapped(text, columns));
    std::string joined;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), columns);
      joined += (joined.empty() ? "" : " ") + line;
    }
    EXPECT_EQ(joined, text) << columns;
  }
}

TEST(PrintMessage, ShowsWhatATerminalWouldObey) {
  testing::internal::CaptureStderr();
  print_message(std::string_view("a\x1b]0;owned\x07\tb\nc\x7f\n"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "a\\x1b]0;owned\\x07\tb\nc\\u007f\n");
}

TEST(Counted, OneIsNotMany) {
  EXPECT_EQ(counted(0, "message"), "0 messages");
  EXPECT_EQ(counted(1, "message"), "1 message");
  EXPECT_EQ(counted(2, "message"), "2 messages");
}

}  // namespace
}  // namespace pumice::tools
