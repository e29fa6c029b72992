#include "tools/load_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json.hpp"

namespace pumice::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using ErrorCodeOf = boost::system::error_code;

constexpr std::chrono::milliseconds kStopInterval(100);
constexpr std::chrono::seconds kSilence(600);
constexpr size_t kMostAnswerBytes = size_t{16} << 20;

/// One connection, closed with the object. Every wait ends early if `stop` says so.
class Connection {
 public:
  Connection(const ServerAddress& address, const std::function<bool()>& stop)
      : address_(address), stop_(stop), stream_(io_) {}

  /// The head of the answer, or why there is none.
  std::string open(http::request<http::string_body> request);
  unsigned status() const { return parser_.get().result_int(); }
  /// More of the body; empty at its end. `problem`: why it ended before.
  std::string read(std::string& problem);

 private:
  template <typename Start>
  ErrorCodeOf wait(Start&& begin);

  const ServerAddress& address_;
  const std::function<bool()>& stop_;
  asio::io_context io_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
};

template <typename Start>
ErrorCodeOf Connection::wait(Start&& begin) {
  std::optional<ErrorCodeOf> result;
  stream_.expires_after(kSilence);
  begin([&](ErrorCodeOf error, auto&&...) { result = error; });
  while (!result) {
    if (io_.stopped()) io_.restart();
    io_.run_one_for(kStopInterval);
    if (!result && stop_()) stream_.cancel();
  }
  return *result;
}

std::string Connection::open(http::request<http::string_body> request) {
  ErrorCodeOf error;
  asio::ip::tcp::resolver resolver(io_);
  const auto found = resolver.resolve(address_.host, address_.port, error);
  if (error) return address_.host + ": " + error.message();
  error = wait([&](auto&& done) { stream_.async_connect(found, done); });
  if (error) return "cannot connect: " + error.message();
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), error);
  request.set(http::field::host, address_.host + ":" + address_.port);
  request.set(http::field::content_type, "application/json");
  if (!address_.api_key.empty()) {
    request.set(http::field::authorization, "Bearer " + address_.api_key);
  }
  request.prepare_payload();
  error = wait([&](auto&& done) { http::async_write(stream_, request, done); });
  if (error) return "cannot send: " + error.message();
  parser_.body_limit(std::numeric_limits<uint64_t>::max());
  error = wait([&](auto&& done) { http::async_read_header(stream_, buffer_, parser_, done); });
  return error ? "no answer: " + error.message() : std::string();
}

std::string Connection::read(std::string& problem) {
  std::array<char, 16384> bytes;
  while (!parser_.is_done()) {
    parser_.get().body().data = bytes.data();
    parser_.get().body().size = bytes.size();
    ErrorCodeOf error =
        wait([&](auto&& done) { http::async_read_some(stream_, buffer_, parser_, done); });
    if (error == http::error::need_buffer) error = {};
    if (error) {
      problem = "the answer broke off: " + error.message();
      return {};
    }
    const size_t n = bytes.size() - parser_.get().body().size;
    if (n > 0) return std::string(bytes.data(), n);
  }
  return {};
}

/// The rest of an answer that is no stream.
std::string read_all(Connection& connection, std::string& problem) {
  std::string all;
  while (all.size() < kMostAnswerBytes) {
    const std::string more = connection.read(problem);
    if (more.empty()) break;
    all += more;
  }
  return all;
}

/// "status 400: the message" of an error's body.
std::string error_of(unsigned status, const std::string& body) {
  std::string message = body.substr(0, 200);
  if (const Result<nlohmann::json> json = read_json(body, kMostAnswerBytes); json.ok()) {
    const nlohmann::json error = json->is_object() ? json->value("error", *json) : *json;
    if (error.is_object()) message = error.value("message", message);
  }
  return "status " + std::to_string(status) + ": " + message;
}

void add_usage(const nlohmann::json& event, bench::LoadSample& sample) {
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  sample.prompt_tokens = usage->value("prompt_tokens", 0u);
  sample.output_tokens = usage->value("completion_tokens", 0u);
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object()) {
    const auto cached = details->find("cached_tokens");
    if (cached != details->end() && cached->is_number()) sample.cached_tokens = *cached;
  }
}

/// Whether it is over. An event that is no JSON object breaks a promise of the protocol.
bool add_event(const std::string& data, double now_s, bench::LoadSample& sample) {
  if (data == "[DONE]") return true;
  const Result<nlohmann::json> event = read_json(data, kMostAnswerBytes);
  if (!event.ok() || !event->is_object()) {
    sample.error = "an event of the stream is not a JSON object";
    return true;
  }
  if (event->contains("error")) {
    sample.error = error_of(200, data);
    return true;
  }
  add_usage(*event, sample);
  const auto choices = event->find("choices");
  if (choices == event->end() || !choices->is_array() || choices->empty()) return false;
  const auto text = choices->front().find("text");
  if (text == choices->front().end() || !text->is_string() ||
      text->get_ref<const std::string&>().empty()) {
    return false;
  }
  if (sample.first_s == 0) {
    sample.first_s = now_s;
  } else {
    sample.gaps_s.push_back(now_s - sample.last_s);
  }
  sample.last_s = now_s;
  return false;
}

http::request<http::string_body> completion(const ServerAddress& address, const std::string& model,
                                            const bench::LoadRequest& request) {
  const nlohmann::json body = {{"model", model},
                               {"prompt", request.prompt},
                               {"max_tokens", request.output_tokens},
                               {"temperature", 0},
                               {"ignore_eos", true},
                               {"stream", true},
                               {"stream_options", {{"include_usage", true}}}};
  http::request<http::string_body> message(http::verb::post, address.base + "/v1/completions", 11);
  message.body() = body.dump();
  return message;
}

}  // namespace

Result<ServerAddress> ServerAddress::parse(std::string_view url, std::string api_key) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "--server {}: expected http://HOST[:PORT][/BASE] (a proxy may speak https)",
                      url);
  };
  if (!url.starts_with(kScheme)) return refuse();
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view place = rest.substr(0, slash);
  ServerAddress address{.base = std::string(rest.substr(slash)), .api_key = std::move(api_key)};
  while (address.base.ends_with('/')) address.base.pop_back();
  if (address.base.ends_with("/v1")) address.base.resize(address.base.size() - 3);
  const size_t bracket = place.find(']');  // of an IPv6 address
  const size_t colon = place.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  address.port = has_port ? place.substr(colon + 1) : "80";
  address.host = place.substr(0, has_port ? colon : place.size());
  if (address.host.starts_with('[') && address.host.ends_with(']')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  const bool is_number = address.port.find_first_not_of("0123456789") == std::string::npos;
  if (address.host.empty() || address.port.empty() || !is_number) return refuse();
  return address;
}

Result<std::string> first_model(const ServerAddress& address) {
  const std::function<bool()> never = [] { return false; };
  Connection connection(address, never);
  std::string problem = connection.open(
      http::request<http::string_body>(http::verb::get, address.base + "/v1/models", 11));
  std::string body;
  if (problem.empty()) body = read_all(connection, problem);
  if (problem.empty() && connection.status() != 200) problem = error_of(connection.status(), body);
  const std::string where = "http://" + address.host + ":" + address.port + address.base;
  if (!problem.empty()) return make_error(ErrorCode::kBadFile, "{}: {}", where, problem);
  const Result<nlohmann::json> json = read_json(body, kMostAnswerBytes);
  const nlohmann::json::json_pointer id("/data/0/id");
  if (!json.ok() || !json->contains(id) || !json->at(id).is_string()) {
    return make_error(ErrorCode::kBadFile, "{}: /v1/models names no model", where);
  }
  return json->at(id).get<std::string>();
}

bench::LoadSample send_request(const ServerAddress& address, const std::string& model,
                               const bench::LoadRequest& request, Clock::time_point start,
                               const std::function<bool()>& stop) {
  const auto now_s = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  bench::LoadSample sample{.sent_s = now_s()};
  Connection connection(address, stop);
  sample.error = connection.open(completion(address, model, request));
  if (sample.error.empty() && connection.status() != 200) {
    const std::string body = read_all(connection, sample.error);
    sample.error = error_of(connection.status(), body);
  }
  bench::EventStreamReader reader;
  bool over = false;
  while (sample.error.empty() && !over) {
    const std::string bytes = connection.read(sample.error);
    if (bytes.empty()) break;
    const double now = now_s();
    for (const std::string& data : reader.feed(bytes)) over = over || add_event(data, now, sample);
    if (reader.n_pending() > kMostAnswerBytes) sample.error = "an event of the stream has no end";
  }
  sample.ended_s = now_s();
  if (sample.error.empty() && !over) sample.error = "the stream has no [DONE]";
  if (sample.error.empty() && sample.first_s == 0) sample.error = "the answer is empty";
  if (sample.output_tokens == 0) {  // of a server without usage in streams
    sample.output_tokens = static_cast<uint32_t>(sample.gaps_s.size() + 1);
  }
  return sample;
}

}  // namespace pumice::tools
