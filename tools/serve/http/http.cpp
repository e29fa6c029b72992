#include "tools/serve/http/http.hpp"

#include <fmt/core.h>

namespace pumice::serve {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [its_name, value] : headers) {
    if (its_name == name) return value;
  }
  return {};
}

std::string_view reason_phrase(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string head_of(const HttpResponse& response, std::string_view extra) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                                 reason_phrase(response.status), response.content_type);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += extra;
  return head += "\r\n";
}

}  // namespace pumice::serve
