// Chat templates: what Jinja2 renders, what it refuses, and what no template may cost.
#include "text/chat_template.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <string>

#include "tests/shared_data.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::tm july_2025() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 6;
  time.tm_mday = 10;
  time.tm_hour = 12;
  time.tm_wday = 4;
  time.tm_yday = 190;
  return time;
}

Result<std::string> render(std::string_view source, const Json& context = Json::object(),
                           RenderOptions options = {}) {
  PUMICE_TRY(const ChatTemplate compiled, ChatTemplate::parse(source));
  if (!options.now) options.now = july_2025();
  return compiled.render(context, options);
}

/// The text, or what went wrong.
std::string shown(std::string_view source, const Json& context = Json::object()) {
  const Result<std::string> text = render(source, context);
  return text.ok() ? *text : "error: " + text.error().message;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

TEST(SharedTemplates, RenderAsJinja2RendersThemAndFailWhereItFails) {
  PUMICE_REQUIRE_SHARED(folder, "templates");
  const auto context_file = [&](const std::string& name) {
    const bool ours = name == "tool_use_objargs" || name == "multi";
    return Json::parse(read(folder / ((ours ? "ctx_" : "minja_ctx_") + name + ".json")));
  };
  std::ifstream goldens(folder / "goldens.jsonl");
  int n_errors = 0;
  int n_texts = 0;
  for (std::string line; std::getline(goldens, line);) {
    const Json golden = Json::parse(line);
    SCOPED_TRACE(golden["template"].dump() + golden["context"].dump());
    Json context = context_file(golden["context"]);
    context["add_generation_prompt"] = golden["add_generation_prompt"];
    const Result<std::string> text =
        render(read(folder / "jinja" / golden["template"].get<std::string>()), context);
    if (golden.contains("error")) {
      ++n_errors;
      ASSERT_FALSE(text.ok()) << *text;
      const std::string error = golden["error"];
      EXPECT_THAT(text.error().message, HasSubstr(error.substr(error.find(' ') + 1)));
      continue;
    }
    ++n_texts;
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, golden["expected"].get<std::string>());
  }
  EXPECT_GT(n_texts, 200);
  EXPECT_GT(n_errors, 20);
}

TEST(SharedTemplates, UnitCasesRenderAsExpected) {
  PUMICE_REQUIRE_SHARED(path, "templates/jinja_unit_cases.json");
  const Json cases = Json::parse(read(path));
  EXPECT_GT(cases.size(), 90u);
  for (const Json& one : cases) {
    EXPECT_EQ(shown(one["template"].get<std::string>(), one["context"]),
              one["expected"].get<std::string>())
        << one["name"];
  }
}

}  // namespace
}  // namespace pumice
