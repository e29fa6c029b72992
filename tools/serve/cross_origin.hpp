// Pages of other sites: which of them browsers may let ask this server (CORS).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/serve/http/http.hpp"

namespace pumice::serve {

/// Any thread. Browsers never send cookies or the like along: no answer allows that.
class CrossOrigin {
 public:
  /// `allowed`: origins as browsers name them ("https://app.example"), or "*" for any.
  explicit CrossOrigin(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}

  /// A page of another site asks, and it is not one of those allowed.
  bool refuses(const HttpRequest& request) const;
  /// The answer to a browser that asks whether a page may ask; none: it is no such question, or the
  /// page may not.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;
  /// What every answer says of it.
  std::vector<std::pair<std::string, std::string>> headers(const HttpRequest& request) const;

 private:
  bool allows(const HttpRequest& request) const;

  const std::vector<std::string> allowed_;
};

}  // namespace pumice::serve
