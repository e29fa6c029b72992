// The protocols in which clients ask for text. Each is a pure function: a body becomes a request
// with a writer of its answer. Any thread.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/wires/fields.hpp"

namespace pumice::serve {

/// Says of each field that means nothing here once that it was ignored. Any thread.
class FieldWarnings {
 public:
  explicit FieldWarnings(Logger logger) : logger_(std::move(logger)) {}
  void add(const std::vector<std::string>& names);
  const Logger& logger() const { return logger_; }

 private:
  static constexpr size_t kMostNames = 256;

  const Logger logger_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

/// What wires need to know of their server.
struct WireContext {
  const ServedModel& model;
  bool always_usage = false;          ///< streams tell it unasked
  bool both_reasonings = false;       ///< "reasoning" beside "reasoning_content"
  FieldWarnings* warnings = nullptr;  ///< null: nobody wants to hear
};

using Wire = ParsedRequest (*)(const Json& body, const WireContext& context);

ParsedRequest read_chat(const Json& body, const WireContext& context);
ParsedRequest read_completion(const Json& body, const WireContext& context);
ParsedRequest read_messages(const Json& body, const WireContext& context);
ParsedRequest read_response(const Json& body, const WireContext& context);

/// Anthropic's errors; OpenAI's are openai_common.hpp's.
std::string anthropic_error(const ApiError& error, std::string_view request_id);

/// Fields that mean nothing here.
void warn_of_unknown(const Fields& fields, const WireContext& context);
/// A tool that this server could not run is left out.
void warn_of_tool(const Json& type, const WireContext& context);

}  // namespace pumice::serve
