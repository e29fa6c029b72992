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
Status read_source(const pumice_model_options& options, host::ModelRequest& request) {
  PUMICE_TRY(request.path, read_path(options.path, "path"));
  const auto* memory = static_cast<const std::byte*>(options.memory);
  if ((memory == nullptr) != (options.memory_bytes == 0)) {
    return make_error(ErrorCode::kInvalidArgument, "{} is not set, but {} is",
                      memory == nullptr ? "memory" : "memory_bytes",
                      memory == nullptr ? "memory_bytes" : "memory");
  }
  if (memory != nullptr && options.files != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "give files or memory, only one of them");
  }
  if (memory != nullptr) {
    if (request.path.empty()) request.path = from_utf8(kMemoryName);
    request.open_file = memory_of({memory, options.memory_bytes}, request.path);
    return {};
  }
  if (request.path.empty()) return make_error(ErrorCode::kInvalidArgument, "path is empty");
  if (options.files == nullptr) {
    PUMICE_TRY(request.path, absolute_path(request.path));
    return {};
  }
  PUMICE_TRY(request.open_file, files_of(options.files));
  return {};
}

}  // namespace

Result<host::LoadOptions> read_model_options(const pumice_model_options* given) {
  PUMICE_TRY(const pumice_model_options options, read_struct(given, "options"));
  host::LoadOptions load{.request = {.engine_may_differ = options.engine == nullptr}};
  PUMICE_TRY_STATUS(read_source(options, load.request));
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
  if (!pooling.empty()) {
    PUMICE_TRY(load.pooling, parse_pooling(pooling));
  }
  return load;
}

}  // namespace pumice::api
