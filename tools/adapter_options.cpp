#include "tools/adapter_options.hpp"

#include <fmt/core.h>

#include <charconv>
#include <optional>

#include "base/path.hpp"

namespace pumice::tools {
namespace {

struct GivenAdapter {
  std::string name;
  std::string file;
  float scale = 1;
};

/// What stands behind the last @, if it is a number.
std::optional<float> number_of(std::string_view text) {
  float number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

GivenAdapter read_adapter(const std::string& text) {
  GivenAdapter adapter;
  const size_t sign = text.find('=');
  adapter.file = sign == std::string::npos ? text : text.substr(sign + 1);
  if (const size_t at = adapter.file.rfind('@'); at != std::string::npos) {
    if (const auto scale = number_of(std::string_view(adapter.file).substr(at + 1))) {
      adapter.scale = *scale;
      adapter.file.resize(at);
    }
  }
  adapter.name =
      sign == std::string::npos ? to_utf8(from_utf8(adapter.file).stem()) : text.substr(0, sign);
  return adapter;
}

}  // namespace

void AdapterOptions::add_to(CLI::App& app, bool several) {
  CLI::Option* const option = app.add_option(
      "--lora", given,
      several ? "LoRA adapter to serve as a model of that name beside the base, NAME=FILE (may be "
                "given several times); FILE@SCALE multiplies what it adds"
              : "LoRA adapter of the model, a GGUF file; FILE@SCALE multiplies what it adds");
  option->envname("PUMICE_LORA")->allow_extra_args(false);
  if (several) {
    option->take_all()->type_name("NAME=FILE");
  } else {
    option->take_last()->type_name("FILE");
  }
}

std::vector<std::string> AdapterOptions::names() const {
  std::vector<std::string> names;
  for (const std::string& text : given) names.push_back(read_adapter(text).name);
  return names;
}

Result<ModelSource> AdapterOptions::apply_to(const ModelSource& source) const {
  if (given.empty()) return source;
  std::vector<AdapterSource> adapters;
  for (const std::string& text : given) {
    const GivenAdapter adapter = read_adapter(text);
    PUMICE_TRY(adapters.emplace_back(),
               AdapterSource::open(adapter.name, from_utf8(adapter.file), adapter.scale));
  }
  return source.with_adapters(std::move(adapters));
}

}  // namespace pumice::tools
