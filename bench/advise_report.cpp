#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "bench/advise.hpp"

namespace pumice::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RatioInterval, ratio, low, high, confidence)

namespace {

using Json = nlohmann::json;

std::string_view kind_name(LeverRow::Kind kind) {
  constexpr std::string_view kNames[] = {"configuration", "reuse", "window"};
  return kNames[static_cast<size_t>(kind)];
}

Json to_json(const Latencies& latencies) {
  return {{"ttft_samples_ns", latencies.ttft_ns},
          {"tpot_samples_ns", latencies.tpot_ns},
          {"ttft_ms", latencies.ttft_s() * 1e3},
          {"tpot_ms", latencies.tpot_s() * 1e3}};
}

Json to_json(const Advice& advice, const LeverRow& row) {
  Json json{{"kind", kind_name(row.kind)}, {"lever", row.lever}, {"flags", row.flags}};
  if (!row.note.empty()) json["note"] = row.note;
  if (!row.evidence.is_null()) json["evidence"] = row.evidence;
  if (!row.measured()) return json;
  json["base"] = to_json(row.base);
  json["with"] = to_json(row.with);
  json["ttft"] = row.ttft();
  json["tpot"] = row.tpot();
  json["meets_targets"] = advice.met(row.with);
  return json;
}

/// "-12.3 % (-15.0 to -9.1)"; a change whose interval holds none says so.
std::string change_cell(const RatioInterval& interval) {
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f}){}", percent(interval.ratio),
                     percent(interval.low), percent(interval.high),
                     interval.contains(1) ? " not shown" : "");
}

std::string target_line(const char* name, double seconds, double target_s) {
  if (target_s <= 0) return fmt::format("- {}: {:.2f} ms, no target\n", name, seconds * 1e3);
  return fmt::format("- {}: {:.2f} ms, target {:.2f} ms: {}\n", name, seconds * 1e3, target_s * 1e3,
                     seconds <= target_s ? "met" : "MISSED");
}

/// The arrival that keeps the target of streams with the shortest wait for the prompt, or null.
const ArrivalRow* best_arrival(const Advice& advice) {
  const ArrivalRow* best = nullptr;
  for (const ArrivalRow& row : advice.arrivals) {
    if (!advice.tpot_met(row.gap_p99_s)) continue;
    if (best == nullptr || row.ttft_s < best->ttft_s) best = &row;
  }
  return best;
}

std::string with_flags(const std::string& command, const std::string& flags) {
  return flags.empty() ? command : command + " " + flags;
}

/// For one request at a time.
std::string recommendation(const Advice& advice, const std::string& command) {
  if (advice.now.ttft_ns.empty()) return "Nothing was measured.";
  if (advice.met(advice.now)) {
    return fmt::format("The targets are met as it is: `{}`", command);
  }
  const LeverRow* const row = advice.chosen();
  if (row == nullptr) {
    const LeverRow* nearest = nullptr;
    for (const LeverRow& other : advice.levers) {
      if (other.measured() &&
          (nearest == nullptr || advice.score(other.with) < advice.score(nearest->with))) {
        nearest = &other;
      }
    }
    if (nearest == nullptr) return "Nothing meets the targets.";
    return fmt::format(
        "Nothing meets the targets on this device with this model. Nearest: {}, TTFT {:.2f} ms and "
        "TPOT {:.2f} ms. A smaller or more strongly quantised model is what is left.",
        nearest->lever, nearest->with.ttft_s() * 1e3, nearest->with.tpot_s() * 1e3);
  }
  const std::string run =
      row->flags.empty()
          ? std::string(
                "no flag of `pumice run` does it: a better choice of kernels for this "
                "device is worth a report")
          : fmt::format("`{}`", with_flags(command, row->flags));
  const char* condition = "";
  if (row->kind == LeverRow::Kind::kReuse) condition = " where prompts begin alike";
  if (row->kind == LeverRow::Kind::kWindow) condition = ", at the price of context";
  return fmt::format("The targets are met with {}{}: {}", row->lever, condition, run);
}

/// For streams beside a prompt.
std::string stream_recommendation(const Advice& advice, const std::string& command) {
  if (advice.arrivals.empty() || advice.options.tpot_target_s <= 0) return "";
  const ArrivalRow* const best = best_arrival(advice);
  if (best == nullptr) {
    return fmt::format(
        "Beside {} streams no chunk keeps their gaps (p99) below {:.2f} ms while a prompt of {} "
        "tokens is read.",
        advice.options.n_streams, advice.options.tpot_target_s * 1e3, advice.options.n_prompt);
  }
  const std::string flags =
      best->chunk == "adaptive"
          ? fmt::format("--tpot-target {:g}", advice.options.tpot_target_s * 1e3)
          : fmt::format("-ub {}", best->chunk == "monolithic"
                                      ? std::to_string(advice.options.n_prompt)
                                      : best->chunk);
  return fmt::format(
      "Beside {} streams, chunks: {} keep gaps (p99) at {:.2f} ms with the shortest wait for the "
      "prompt, {:.2f} ms{}: `{}`",
      advice.options.n_streams, best->chunk, best->gap_p99_s * 1e3, best->ttft_s * 1e3,
      advice.ttft_met(best->ttft_s) ? "" : " (which misses the TTFT target)",
      with_flags(command, flags));
}

}  // namespace

Json to_json(const Advice& advice, const std::string& command) {
  Json levers = Json::array();
  for (const LeverRow& row : advice.levers) levers.push_back(to_json(advice, row));
  ServeReport arrivals;
  arrivals.arrivals = advice.arrivals;
  Json json{{"bench", "advise"},
            {"n_prompt", advice.options.n_prompt},
            {"n_gen", advice.options.n_gen},
            {"n_streams", advice.options.n_streams},
            {"ttft_target_ms", advice.options.ttft_target_s * 1e3},
            {"tpot_target_ms", advice.options.tpot_target_s * 1e3},
            {"options", options_to_json(advice.options.engine)},
            {"now", to_json(advice.now)},
            {"met", !advice.now.ttft_ns.empty() && advice.met(advice.now)},
            {"levers", levers},
            {"arrivals", serve_report_json(arrivals)["arrivals"]},
            {"recommendation", recommendation(advice, command)},
            {"stream_recommendation", stream_recommendation(advice, command)}};
  if (!advice.arrivals_note.empty()) json["arrivals_note"] = advice.arrivals_note;
  if (advice.ended) json["error"] = advice.ended->message;
  return json;
}

std::string to_markdown(const Advice& advice, const std::string& command) {
  std::string text = fmt::format("A prompt of {} tokens, {} generated after it, now:\n",
                                 advice.options.n_prompt, advice.options.n_gen);
  text += target_line("TTFT", advice.now.ttft_s(), advice.options.ttft_target_s);
  text += target_line("TPOT", advice.now.tpot_s(), advice.options.tpot_target_s);
  text +=
      "\n| lever | TTFT ms | change (95 %) | TPOT ms | change (95 %) | targets |\n"
      "| :-- | --: | :-- | --: | :-- | :-- |\n";
  for (const LeverRow& row : advice.levers) {
    if (!row.measured()) {
      text += fmt::format("| {} | | {} | | | |\n", row.lever, row.note);
      continue;
    }
    text += fmt::format("| {} | {:.2f} | {} | {:.2f} | {} | {} |\n", row.lever,
                        row.with.ttft_s() * 1e3, change_cell(row.ttft()), row.with.tpot_s() * 1e3,
                        change_cell(row.tpot()), advice.met(row.with) ? "met" : "missed");
  }
  if (!advice.arrivals.empty()) {
    text += fmt::format(
        "\nThe prompt beside {} streams, by chunk\n\n"
        "| chunk | TTFT ms | gap p50 ms | p99 ms | idle gap ms |\n| :-- | --: | --: | --: | --: "
        "|\n",
        advice.options.n_streams);
    for (const ArrivalRow& row : advice.arrivals) {
      text +=
          fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", row.chunk, row.ttft_s * 1e3,
                      row.gap_p50_s * 1e3, row.gap_p99_s * 1e3, row.idle_gap_s * 1e3);
    }
  }
  if (!advice.arrivals_note.empty()) {
    text += fmt::format("\nNo streams: {}\n", advice.arrivals_note);
  }
  text += fmt::format("\n{}\n", recommendation(advice, command));
  const std::string streams = stream_recommendation(advice, command);
  if (!streams.empty()) text += streams + "\n";
  return text;
}

}  // namespace pumice::bench
