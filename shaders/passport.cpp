#include "shaders/passport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/output_file.hpp"
#include "base/path.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

using Json = nlohmann::json;
using State = ModuleVerdict::State;

constexpr int kFormat = 1;
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxNoteBytes = 1000;    // read
constexpr size_t kMaxWrittenBytes = 300;  // of a note, before what is not UTF-8 is replaced
// As it is written, whatever bytes a driver calls itself.
std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

constexpr State kStates[] = {State::kNotRun, State::kPassed, State::kFailed, State::kNotSupported};

Json device_json(const vk::DeviceSnapshot& device) {
  return {{"name", device.name},
          {"device_uuid", vk::format_uuid(device.device_uuid)},
          {"driver_uuid", vk::format_uuid(device.driver_uuid)},
          {"driver_version", device.driver_version},
          {"driver_info", device.driver_info}};
}

std::string hash_text() { return fmt::format("{:016x}", spirv_hash()); }

std::optional<State> state_of(const std::string& name) {
  for (const State state : kStates) {
    if (state_name(state) == name) return state;
  }
  return std::nullopt;
}

/// Text that will be shown on a terminal.
bool is_plain_text(const std::string& text) {
  return text.size() <= kMaxNoteBytes &&
         std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 0x7F; });
}

const std::string* text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  const auto* text = found == json.end() ? nullptr : found->get_ptr<const Json::string_t*>();
  return text != nullptr && is_plain_text(*text) ? text : nullptr;
}

std::optional<ModuleVerdict> parse_module(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const std::string* state_text = text_of(json, "state");
  const std::string* note = text_of(json, "note");
  const auto n_passed = json.find("n_passed");
  if (state_text == nullptr || note == nullptr || n_passed == json.end()) return std::nullopt;
  const std::optional<State> state = state_of(*state_text);
  if (!state || !n_passed->is_number_unsigned()) return std::nullopt;
  const auto n = n_passed->get<uint64_t>();
  if (n > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return ModuleVerdict{*state, static_cast<uint32_t>(n), *note};
}

std::optional<SelfTestVerdict> parse_verdict(const Json& json) {
  const std::string* running = text_of(json, "running");
  const auto running_modules = json.find("running_modules");
  const auto modules = json.find("modules");
  if (running == nullptr || running_modules == json.end() || !running_modules->is_array() ||
      modules == json.end() || !modules->is_object() || modules->size() != spirv_modules().size()) {
    return std::nullopt;
  }
  SelfTestVerdict verdict;
  verdict.running = *running;
  for (const vk::ShaderModule& module : spirv_modules()) {
    const auto found = modules->find(std::string(module.name));
    if (found == modules->end()) return std::nullopt;
    std::optional<ModuleVerdict> parsed = parse_module(*found);
    if (!parsed) return std::nullopt;
    verdict.modules.emplace(module.name, std::move(*parsed));
  }
  for (const Json& name : *running_modules) {
    const auto* text = name.get_ptr<const Json::string_t*>();
    if (text == nullptr || !verdict.modules.contains(*text)) return std::nullopt;
    verdict.running_modules.insert(*text);
  }
  return verdict;
}

/// Beside the passport, which is replaced as a whole.
std::filesystem::path lock_file(const std::filesystem::path& cache_directory,
                                const vk::DeviceSnapshot& device) {
  std::filesystem::path path = passport_file(cache_directory, device);
  return path.empty() ? path : path.replace_extension(".lock");
}

bool is_locked(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return false;
  File file = File::open(path, File::Mode::kReadWrite, error);
  return !error && !file.try_lock(error) && !error;
}

std::string shortened(std::string text) {
  if (text.size() > kMaxWrittenBytes) text.resize(kMaxWrittenBytes);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = ' ';
  }
  return text;
}

}  // namespace

std::filesystem::path passport_file(const std::filesystem::path& cache_directory,
                                    const vk::DeviceSnapshot& device) {
  if (cache_directory.empty()) return {};
  return cache_directory / fmt::format("passport-{}-{:x}-{}.json",
                                       vk::format_uuid(device.device_uuid), device.driver_version,
                                       hash_text());
}

File lock_passport(const std::filesystem::path& cache_directory, const vk::DeviceSnapshot& device) {
  std::error_code error;
  const std::filesystem::path path = lock_file(cache_directory, device);
  if (path.empty()) return {};
  std::filesystem::create_directories(cache_directory, error);
  File file = File::open(path, File::Mode::kReadWrite, error);
  if (error || !file.try_lock(error)) return {};
  return file;
}

std::optional<SelfTestVerdict> load_passport(const std::filesystem::path& cache_directory,
                                             const vk::DeviceSnapshot& device,
                                             const Logger& logger) {
  const std::filesystem::path path = passport_file(cache_directory, device);
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::nullopt;
  const Result<Json> json = read_json_file(path, kMaxFileBytes);
  std::optional<SelfTestVerdict> verdict;
  if (json.ok() && json->is_object() && json->value("format", Json()) == kFormat &&
      json->value("shader_hash", Json()) == hash_text()) {
    verdict = parse_verdict(*json);
  }
  if (!verdict) {
    logger.warning("passport {} is damaged and ignored; pumice info --self-test makes a new one",
                   to_utf8(path));
    return std::nullopt;
  }
  if (dump(json->value("device", Json())) != dump(device_json(device))) {
    logger.debug("passport {} belongs to another driver", to_utf8(path));
    return std::nullopt;
  }
  if (!verdict->running.empty() && is_locked(lock_file(cache_directory, device))) {
    verdict->running.clear();
    verdict->running_modules.clear();
  }
  return verdict;
}

Status save_passport(const std::filesystem::path& cache_directory, const vk::DeviceSnapshot& device,
                     const SelfTestVerdict& verdict) {
  if (cache_directory.empty()) {
    return make_error(ErrorCode::kInternal, "there is no cache directory to keep the verdict in");
  }
  Json json{{"format", kFormat},
            {"device", device_json(device)},
            {"shader_hash", hash_text()},
            {"running", shortened(verdict.running)},
            {"running_modules", verdict.running_modules},
            {"modules", Json::object()}};
  for (const auto& [name, module] : verdict.modules) {
    json["modules"][name] = {{"state", state_name(module.state)},
                             {"n_passed", module.n_passed},
                             {"note", shortened(module.note)}};
  }
  return write_cache_file(passport_file(cache_directory, device), dump(json) + "\n");
}

std::vector<std::string> replacements(const vk::PipelineLibrary& pipelines,
                                      const SelfTestVerdict& verdict) {
  std::vector<std::string> lines;
  const vk::PipelineLibrary::ModuleNames declared = pipelines.declared_modules();
  for (const std::string& name : verdict.rejected()) {
    std::vector<std::string_view> used;
    for (const std::string& other : declared) {
      if (module_family(other) == module_family(name)) used.push_back(other);
    }
    if (used.empty()) continue;
    const auto known = verdict.modules.find(name);
    const bool failed = known != verdict.modules.end() && known->second.state == State::kFailed;
    lines.push_back(fmt::format("{} uses {}: {} failed this device's self-test ({})",
                                module_family(name), fmt::join(used, " and "), name,
                                failed ? known->second.note : "it ended in " + verdict.running));
  }
  return lines;
}

}  // namespace pumice
