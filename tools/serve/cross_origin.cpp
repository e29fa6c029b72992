#include "tools/serve/cross_origin.hpp"

#include <algorithm>
#include <string_view>

namespace pumice::serve {
namespace {

constexpr size_t kMostHeaderNames = 1024;  // bytes

bool is_list_of_names(std::string_view text) {
  return text.size() <= kMostHeaderNames && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

}  // namespace

bool CrossOrigin::allows(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  return !origin.empty() && std::ranges::any_of(allowed_, [&](const std::string& one) {
    return one == "*" || one == origin;
  });
}

/// Browsers say which site's page asks; where they cannot, they name its origin.
bool CrossOrigin::refuses(const HttpRequest& request) const {
  const std::string_view site = request.header("sec-fetch-site");
  return (site == "cross-site" || site == "same-site") && !allows(request);
}

std::vector<std::pair<std::string, std::string>> CrossOrigin::headers(
    const HttpRequest& request) const {
  if (allowed_.empty()) return {};
  // Caches must not give one origin's answer to another.
  std::vector<std::pair<std::string, std::string>> all = {{"Vary", "Origin"}};
  if (!allows(request)) return all;
  const bool any = std::ranges::find(allowed_, "*") != allowed_.end();
  all.emplace_back("Access-Control-Allow-Origin",
                   any ? std::string("*") : std::string(request.header("origin")));
  all.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return all;
}

std::optional<HttpResponse> CrossOrigin::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || !allows(request)) return std::nullopt;
  if (request.header("access-control-request-method").empty()) return std::nullopt;
  HttpResponse response{.content_type = "text/plain"};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Max-Age", "600"}};
  const std::string_view names = request.header("access-control-request-headers");
  if (!names.empty() && is_list_of_names(names)) {
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(names));
  }
  return response;
}

}  // namespace pumice::serve
