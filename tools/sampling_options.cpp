#include "tools/sampling_options.hpp"

#include <cctype>
#include <cstdint>
#include <random>

#include "text/text_stream.hpp"
#include "tools/flags.hpp"

namespace pumice::tools {

void SamplingOptions::add_to(CLI::App& app) {
  add_number(app, "-s,--seed", seed_, int64_t{-1}, int64_t{1} << 62,
             "Seed; the same seed gives the same text (-1: random)")
      ->envname("PUMICE_SEED");
  app.option_defaults()->group("Sampling");
  const auto add = [&](const std::string& name, auto& value, const char* help) {
    std::string variable = "PUMICE_";  // --top-k is PUMICE_TOP_K
    for (const char c : name.substr(2)) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    app.add_option(name, value, help)->envname(variable)->capture_default_str();
  };
  add("--temp", sampler.temperature, "Temperature; 0 always takes the likeliest token");
  add("--top-k", sampler.top_k, "Keep the k likeliest tokens (0: all)");
  add("--top-p", sampler.top_p, "Keep the likeliest tokens up to this mass (1: all)");
  add("--min-p", sampler.min_p, "Drop tokens less likely than this times the likeliest (0: none)");
  add("--repeat-penalty", sampler.repeat_penalty,
      "Divide the logits of tokens seen before (1: off)");
  add("--frequency-penalty", sampler.frequency_penalty,
      "Subtract this for each earlier occurrence");
  add("--presence-penalty", sampler.presence_penalty,
      "Subtract this from tokens already generated");
  app.add_flag("--ignore-eos", ignore_eos, "Continue after the end-of-text token");
  app.add_option("--stop", stop_strings,
                 "End the text before this string (may be given several times)")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app.option_defaults()->group(kDefaultGroup);
  constraint.add_to(app);
}

Status SamplingOptions::validate() {
  const Status stops = validate_stop_strings(stop_strings);
  if (stops.ok()) return constraint.validate();
  return make_error(stops.error().code, "--stop: {}", stops.error().message);
}

Status SamplingOptions::complete(const host::ModelTexts& texts) {
  PUMICE_TRY_STATUS(sampler.validate(texts.tokenizer->vocabulary().size()));
  PUMICE_TRY_STATUS(constraint.complete(texts));
  sampler.seed = seed_ >= 0 ? static_cast<uint64_t>(seed_) : std::random_device{}();
  return {};
}

}  // namespace pumice::tools
