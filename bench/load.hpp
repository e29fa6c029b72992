// A load on a server, as its clients send and see it: requests made of a trace, and what was measured of them.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "scheduler/trace.hpp"

namespace pumice::bench {

struct LoadRequest {
  double arrival_s = 0;  ///< since the first
  std::string prompt;
  uint32_t output_tokens = 0;
};

/// The requests of a trace as texts of common words, of which most vocabularies have each as one token. A block's words
/// follow from its key, so that what the trace shares is shared; what is beyond a prompt's full blocks is its own.
std::vector<LoadRequest> load_of(const pumice::Trace& trace);

/// What a client saw of one request; seconds since the load began.
struct LoadSample {
  double due_s = 0;  ///< by the trace; without one, `sent_s`
  double sent_s = 0;
  double first_s = 0;  ///< the first piece of text
  double last_s = 0;
  double ended_s = 0;
  std::vector<double> gaps_s;  ///< from piece to piece
  uint32_t prompt_tokens = 0;  ///< this and the next two as the server counts them
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  std::string error;  ///< empty: none
};

/// What a request must meet to count for goodput.
struct LoadObjectives {
  double ttft_s = std::numeric_limits<double>::infinity();
  double tpot_s = std::numeric_limits<double>::infinity();
};

/// {"requests", "failed", "errors", "seconds", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s",
/// "goodput_requests_per_s", "prompt_tokens", "cached_tokens", "output_tokens", and "ttft_ms", "tpot_ms", "itl_ms",
/// "e2el_ms" with "mean", "p50", "p90", "p99" each}. TTFT counts from when a request was due, so that a client that fell
/// behind shows; TPOT leaves the first token out; ITL is each gap between pieces of text.
nlohmann::json load_report_json(std::span<const LoadSample> samples, double seconds,
                                const LoadObjectives& objectives);
/// The same in Markdown.
std::string load_report_text(const nlohmann::json& report);

/// Text of an event stream, cut at any byte, to its events' data.
class EventStreamReader {
 public:
  /// The data of events that became whole, in order.
  std::vector<std::string> feed(std::string_view bytes);
  /// Of an event that is not whole yet.
  size_t n_pending() const { return line_.size() + data_.size(); }

 private:
  std::string line_;
  std::string data_;
};

}  // namespace pumice::bench
