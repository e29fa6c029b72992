#include "tools/serve/wires/wires.hpp"

#include <fmt/core.h>

#include "base/printable.hpp"

namespace pumice::serve {

void FieldWarnings::add(const std::vector<std::string>& names) {
  std::string news;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : names) {
      if (seen_.size() >= kMostNames || !seen_.insert(name).second) continue;
      news += (news.empty() ? "" : ", ") + printable(name, 40);
    }
  }
  if (!news.empty()) logger_.warning("ignored in requests, as it means nothing here: {}", news);
}

void warn_of_unknown(const Fields& fields, const WireContext& context) {
  if (context.warnings != nullptr) context.warnings->add(fields.unknown());
}

void warn_of_tool(const Json& type, const WireContext& context) {
  if (context.warnings != nullptr) {
    context.warnings->add({fmt::format("a tool of type {}", printable(dumped(type), 40))});
  }
}

}  // namespace pumice::serve
