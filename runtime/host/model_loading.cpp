#include "host/model_loading.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/path.hpp"

namespace pumice::host {
namespace {

Error cancelled_loading() {
  return make_error(ErrorCode::kCancelled, "loading the model was cancelled");
}

/// What reads nothing more once `stop` is set, so that whatever loads ends with an error.
OpenFile stoppable(OpenFile open_file, std::shared_ptr<const std::atomic<bool>> stop) {
  return [open_file = std::move(open_file),
          stop = std::move(stop)](const std::filesystem::path& path) -> Result<InputFile> {
    if (*stop) return cancelled_loading();
    PUMICE_TRY(InputFile opened, open_file(path));
    const auto file = std::make_shared<const InputFile>(std::move(opened));
    return InputFile::of(to_utf8(path), file->size_bytes(),
                         [file, stop](uint64_t offset, std::span<std::byte> out) -> Status {
                           if (*stop) return cancelled_loading();
                           return file->read(offset, out);
                         });
  };
}

}  // namespace

Result<std::unique_ptr<ModelLoading>> ModelLoading::begin(std::shared_ptr<DeviceOwner> device,
                                                          LoadOptions options) {
  std::unique_ptr<ModelLoading> loading(new ModelLoading());
  try {
    loading->thread_ = std::thread(
        [self = loading.get(), device = std::move(device), options = std::move(options)]() mutable {
          self->end(self->load(std::move(device), std::move(options)));
        });
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::kInternal, "the system starts no thread to load with: {}",
                      error.what());
  }
  return loading;
}

ModelLoading::~ModelLoading() {
  (void)cancel();  // which leaves one alone that has ended, whose files may be read again
  if (thread_.joinable()) thread_.join();
}

/// Nothing leaves the thread as an exception, which would end the process.
Result<std::shared_ptr<ModelOwner>> ModelLoading::load(std::shared_ptr<DeviceOwner> device,
                                                       LoadOptions options) {
  try {
    const LoadWatch watch{
        .on_progress =
            [this](const LoadProgress& progress) {
              const std::lock_guard lock(mutex_);
              progress_ = progress;
            },
        .opening =
            [this](OpenFile open_file) { return stoppable(std::move(open_file), cancelled_); }};
    return load_model(std::move(device), std::move(options), watch);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, "the host is out of memory");
  } catch (const std::exception& exception) {
    return make_error(ErrorCode::kInternal, "{}", exception.what());
  }
}

void ModelLoading::end(Result<std::shared_ptr<ModelOwner>> result) {
  const std::lock_guard lock(mutex_);
  // What was asked to stop has stopped, though it may have been done by then.
  if (*cancelled_) result = cancelled_loading();
  if (result.ok()) progress_.done_bytes = progress_.total_bytes;  // what is not needed too
  result_ = std::move(result);
  progress_.phase = LoadProgress::Phase::kEnded;
  ended_.notify_all();
}

LoadProgress ModelLoading::wait(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return result_.has_value(); };
  // A point in time that no clock reaches would overflow.
  constexpr std::chrono::microseconds kLong = std::chrono::hours(24 * 365);
  ended_.wait_for(lock, std::min(most, kLong), ended);
  return progress_;
}

Status ModelLoading::cancel() {
  const std::lock_guard lock(mutex_);
  if (result_) {
    return make_error(ErrorCode::kNotFound, "nothing is left to cancel: loading has ended");
  }
  if (cancelled_->exchange(true)) {
    return make_error(ErrorCode::kNotFound, "loading was cancelled before, and ends soon");
  }
  return {};
}

Status ModelLoading::take(const std::function<Status(std::shared_ptr<ModelOwner>)>& use) {
  const std::lock_guard lock(mutex_);
  if (!result_) return make_error(ErrorCode::kBusy, "the model is still being loaded");
  if (!result_->ok()) return result_->error();
  if (**result_ == nullptr) return make_error(ErrorCode::kNotFound, "the model was taken before");
  PUMICE_TRY_STATUS(use(**result_));
  **result_ = nullptr;
  return {};
}

}  // namespace pumice::host
