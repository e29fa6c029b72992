// `pumice bench --advise`: which lever brings a model on this device to a latency target, by
// measuring each beside what runs now.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/configuration.hpp"
#include "bench/ratio.hpp"
#include "bench/serve.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

struct AdviseOptions {
  double ttft_target_s = 0;  ///< 0: any; one of the two is given
  double tpot_target_s = 0;
  uint32_t n_prompt = 512;
  uint32_t n_gen = 16;
  uint32_t rounds = kLeastPairs;
  uint32_t n_streams = 4;     ///< that decode while a prompt arrives
  EngineOptions engine = {};  ///< what runs now; its context is set by the sizes above
  std::function<bool()> stop;
  std::function<void(const std::string& what)> begins = {};  ///< told before each part
  /// Whether a configuration computes what it should, before it is measured; what was found goes
  /// into its row. Errors: kSelfTestFailed if it does not.
  std::function<Result<nlohmann::json>(const std::shared_ptr<vk::PipelineLibrary>&, KvTypes,
                                       ops::Math)>
      check = {};
};

/// Medians of the samples are what is printed.
struct Latencies {
  std::vector<double> ttft_ns;
  std::vector<double> tpot_ns;  ///< of a request: the median of its tokens after the first

  double ttft_s() const;
  double tpot_s() const;
};

/// What changes about a request or the engine, measured in turns with what runs now.
struct LeverRow {
  enum class Kind {
    kConfiguration,  ///< the same work, done otherwise
    kReuse,          ///< the same prompt for the second time
    kWindow,         ///< less context
  };
  Kind kind = Kind::kConfiguration;
  std::string lever;  ///< "kv=f32", "the prompt again", "half the prompt"
  std::string flags;  ///< of `pumice run`; empty if it has none for this
  Latencies base;     ///< what runs now, in the same rounds
  Latencies with;
  std::string note;         ///< why it was not measured
  nlohmann::json evidence;  ///< of a configuration; null: not checked

  bool measured() const { return !with.ttft_ns.empty(); }
  /// Its time over that of what runs now: below 1, it is faster.
  RatioInterval ttft() const { return paired_ratio(with.ttft_ns, base.ttft_ns); }
  RatioInterval tpot() const { return paired_ratio(with.tpot_ns, base.tpot_ns); }
};

struct Advice {
  AdviseOptions options;
  Latencies now;
  std::vector<LeverRow> levers;  ///< the last of kConfiguration may combine others
  std::vector<ArrivalRow> arrivals;
  std::string arrivals_note;   ///< why there are none
  std::optional<Error> ended;  ///< why measuring stopped early

  bool ttft_met(double seconds) const;
  bool tpot_met(double seconds) const;
  bool met(const Latencies& latencies) const;
  /// How far from the targets: the larger of times over targets; at most 1 where both are met.
  double score(const Latencies& latencies) const;
  /// The measured row that meets the targets and changes least, or null.
  const LeverRow* chosen() const;
};

/// Levers share `model`; `open_pipelines` makes more libraries of its device. Never fails: errors
/// are in what it returns.
Advice advise(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
              const std::function<std::shared_ptr<vk::PipelineLibrary>()>& open_pipelines,
              const std::shared_ptr<const Model>& model, const AdviseOptions& options);

/// `command` is how `pumice run` is called with the model: "pumice run -m model.gguf".
nlohmann::json to_json(const Advice& advice, const std::string& command);
std::string to_markdown(const Advice& advice, const std::string& command);

}  // namespace pumice::bench
