// The page at "/": what is served and how busy it is, from /metrics, /props and /v1/models, which it asks as any
// client does. It holds nothing itself, so that it needs no key.
#pragma once

#include <string_view>

namespace pumice::serve {

struct StatusPage {
  std::string_view html;  ///< one file that loads nothing
  std::string_view
      policy;  ///< its Content-Security-Policy, which names its script and style by their hashes
};

const StatusPage& status_page();

}  // namespace pumice::serve
