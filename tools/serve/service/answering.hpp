// A request under way, from its submission to the last byte of its answer.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/http/http.hpp"
#include "tools/serve/service/answer_writer.hpp"
#include "tools/serve/service/metrics.hpp"
#include "tools/serve/service/service.hpp"

namespace pumice::serve {

/// What all requests of a model share.
struct AnswerContext {
  Service* service = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer = {};
  Metrics* metrics = nullptr;
  std::function<void(const RequestSummary&)> ended = {};  ///< once for each request
};

/// On the server's thread. Kept alive by the service until its choices have ended, and by its
/// exchange.
class Answering final : public Listener, public std::enable_shared_from_this<Answering> {
 public:
  /// Submits the request and answers, sooner or later.
  /// What `context` belongs to is kept until all is over.
  static void begin(std::shared_ptr<const AnswerContext> context,
                    std::shared_ptr<Exchange> exchange, WireRequest request,
                    ErrorWriter write_error);

  Answering(std::shared_ptr<const AnswerContext> context, std::shared_ptr<Exchange> exchange,
            WireRequest request, ErrorWriter write_error);
  void on_event(uint32_t choice, host::Event& event) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    AnswerReader reader;
    ChoiceResult result = {};
    bool cut = false;  // behind its first call: what still comes is not read
    bool ended = false;
    uint32_t n_tokens = 0;
    std::optional<Clock::time_point> last_token = {};
  };

  void submit();
  void count(Choice& choice, const host::Event& event);
  void give(Choice& choice, ChoicePiece piece);
  void end_choice(uint32_t index, const host::Event& event);
  void add_usage(const RequestReport& report, bool is_first);
  void end();
  void fail(const ApiError& error);
  void left();
  void conclude(unsigned status, std::string finish);

  const std::shared_ptr<const AnswerContext> context_;
  const std::shared_ptr<Exchange> exchange_;
  WireRequest request_;
  const ErrorWriter write_error_;
  const Clock::time_point arrived_ = Clock::now();
  Ticket ticket_;
  std::vector<Choice> choices_;
  size_t n_ended_ = 0;
  Usage usage_;
  RequestSummary summary_;
  bool begun_ = false;  // the stream
  bool over_ = false;
};

}  // namespace pumice::serve
