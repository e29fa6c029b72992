// What a host says of a model, and how its files are read.
#include "api/files.hpp"

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "api/options.hpp"
#include "api/structs.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "models/embedding.hpp"

namespace pumice::api {
namespace {

/// Of errors, where the host names none.
constexpr const char* kMemoryName = "model in memory";

/// A file that the host has opened. Any number of threads may read.
class HostFile {
 public:
  HostFile(const pumice_files& files, std::string name) : files_(files), name_(std::move(name)) {}
  ~HostFile() {
    if (is_open_ && files_.close != nullptr) files_.close(files_.user, file_);
  }
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  Status open() {
    const pumice_status status = files_.open(files_.user, name_.c_str(), &file_, &size_bytes_);
    is_open_ = status == PUMICE_OK;
    if (is_open_) return {};
    return failed("the host's function cannot open it ({})", pumice_status_name(status));
  }
  uint64_t size_bytes() const { return size_bytes_; }

  /// Again as long as there is something: the host may give less at once than is asked for.
  Status read(uint64_t offset, std::span<std::byte> out) const {
    for (size_t done = 0; done < out.size();) {
      const size_t wanted = out.size() - done;
      const uint64_t at = offset + done;
      const size_t n = files_.read_at(files_.user, file_, at, out.data() + done, wanted);
      if (n == 0) {
        return failed(
            "the host's function reads nothing at byte {}, where there were {} bytes when it was "
            "opened",
            at, size_bytes_);
      }
      if (n > wanted) {
        return failed("the host's function says it read {} bytes where {} were asked for", n,
                      wanted);
      }
      done += n;
    }
    return {};
  }

 private:
  template <typename... Args>
  Error failed(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kBadFile, "{}: {}", printable(name_),
                      fmt::format(format, std::forward<Args>(args)...));
  }

  const pumice_files files_;
  const std::string name_;
  void* file_ = nullptr;
  uint64_t size_bytes_ = 0;
  bool is_open_ = false;
};

Result<OpenFile> files_of(const pumice_files* given) {
  PUMICE_TRY(const pumice_files files, read_struct(given, "files"));
  if (files.open == nullptr || files.read_at == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "files: open or read_at is NULL");
  }
  return OpenFile([files](const std::filesystem::path& path) -> Result<InputFile> {
    std::string name = to_utf8(path);
    const auto file = std::make_shared<HostFile>(files, name);
    PUMICE_TRY_STATUS(file->open());
    return InputFile::of(
        std::move(name), file->size_bytes(),
        [file](uint64_t offset, std::span<std::byte> out) { return file->read(offset, out); });
  });
}

/// GgufFile reads within the size it was told, so nothing is checked here.
OpenFile memory_of(std::span<const std::byte> memory, std::filesystem::path path) {
  return [memory,
          path = std::move(path)](const std::filesystem::path& opened) -> Result<InputFile> {
    if (opened != path) {
      return make_error(ErrorCode::kBadFile,
                        "{}: only one file is in memory; a model in several parts needs `files`",
                        printable(to_utf8(opened)));
    }
    return InputFile::of(to_utf8(path), memory.size(),
                         [memory](uint64_t offset, std::span<std::byte> out) -> Status {
                           std::memcpy(out.data(), memory.data() + offset, out.size());
                           return {};
                         });
  };
}

/// What is opened and how.
struct Source {
  std::filesystem::path path;
  OpenFile open_file = InputFile::open;
};

/// Of a model's or an adapter's options. `files`: NULL, or what opens the path unless it is in
/// memory.
template <typename Options>
Result<Source> read_source(const Options& options, const pumice_files* files,
                           const char* memory_name) {
  Source source;
  PUMICE_TRY(source.path, read_path(options.path, "path"));
  const auto* memory = static_cast<const std::byte*>(options.memory);
  if ((memory == nullptr) != (options.memory_bytes == 0)) {
    return make_error(ErrorCode::kInvalidArgument, "{} is not set, but {} is",
                      memory == nullptr ? "memory" : "memory_bytes",
                      memory == nullptr ? "memory_bytes" : "memory");
  }
  if (memory != nullptr) {
    if (source.path.empty()) source.path = from_utf8(memory_name);
    source.open_file = memory_of({memory, options.memory_bytes}, source.path);
    return source;
  }
  if (source.path.empty()) return make_error(ErrorCode::kInvalidArgument, "path is empty");
  if (files == nullptr) {
    PUMICE_TRY(source.path, absolute_path(source.path));
  } else {
    PUMICE_TRY(source.open_file, files_of(files));
  }
  return source;
}

Result<host::AdapterRequest> read_adapter(const pumice_adapter& given, const pumice_files* files) {
  PUMICE_TRY(const std::string_view name, read_text(given.name, "an adapter's name"));
  Result<Source> source = read_source(given, files, "adapter in memory");
  if (!source.ok()) {
    return make_error(source.error().code, "adapter {}: {}", printable(name),
                      source.error().message);
  }
  return host::AdapterRequest{.name = std::string(name),
                              .path = std::move(source->path),
                              .open_file = std::move(source->open_file),
                              .scale = given.scale != 0 ? given.scale : 1};
}

}  // namespace

Result<host::LoadOptions> read_model_options(const pumice_model_options* given) {
  PUMICE_TRY(const pumice_model_options options, read_struct(given, "options"));
  host::LoadOptions load{.request = {.engine_may_differ = options.engine == nullptr}};
  PUMICE_TRY(Source source, read_source(options, options.files, kMemoryName));
  if (options.memory != nullptr && options.files != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "give files or memory, only one of them");
  }
  load.request.path = std::move(source.path);
  load.request.open_file = std::move(source.open_file);
  PUMICE_TRY(const std::span<const pumice_adapter> adapters,
             read_array(options.adapters, options.n_adapters, "adapters"));
  for (const pumice_adapter& adapter : adapters) {
    PUMICE_TRY(load.adapters.emplace_back(), read_adapter(adapter, options.files));
  }
  PUMICE_TRY(const std::string_view chat_template,
             read_text(options.chat_template, "chat_template"));
  if (!chat_template.empty()) load.chat_template = chat_template;
  PUMICE_TRY(load.answer_format, read_text(options.answer_format, "answer_format"));
  PUMICE_TRY(EngineInput engine, read_engine_options(options.engine, "engine"));
  load.request.engine = std::move(engine.engine);
  load.predicts = engine.predicts;
  PUMICE_TRY(load.embeds, read_bool(options.embeds, "embeds"));
  PUMICE_TRY(const std::string_view pooling, read_text(options.pooling, "pooling"));
  if (!load.embeds && pooling.empty()) return load;
  if (!load.embeds) {
    return make_error(ErrorCode::kInvalidArgument,
                      "pooling is of a model that embeds: set `embeds` to 1");
  }
  if (options.engine != nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a model that embeds gets no engine: leave `engine` NULL");
  }
  if (!load.adapters.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a model that embeds gets no adapters: leave `n_adapters` 0");
  }
  if (!pooling.empty()) {
    PUMICE_TRY(load.pooling, parse_pooling(pooling));
  }
  return load;
}

}  // namespace pumice::api
