// The C ABI: models that are loaded while the host goes on.
#include <chrono>
#include <memory>
#include <utility>

#include "api/files.hpp"
#include "api/handles.hpp"
#include "api/structs.hpp"
#include "host/model_loading.hpp"

namespace pumice::api {
namespace {

pumice_load_progress progress_of(const host::LoadProgress& progress) {
  constexpr pumice_load_phase kPhases[] = {PUMICE_LOAD_READING, PUMICE_LOAD_WEIGHTS,
                                           PUMICE_LOAD_ENDED};
  pumice_load_progress out{sizeof out};
  out.phase = kPhases[static_cast<size_t>(progress.phase)];
  out.done_bytes = progress.done_bytes;
  out.total_bytes = progress.total_bytes;
  return out;
}

Result<std::unique_ptr<pumice_loading>> begin(const pumice_device& device,
                                              const pumice_model_options* given) {
  PUMICE_TRY(host::LoadOptions options, read_model_options(given));
  auto loading = std::make_unique<pumice_loading>();
  PUMICE_TRY(loading->loading, host::ModelLoading::begin(device.owner, std::move(options)));
  return loading;
}

}  // namespace

}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_model_load_begin(pumice_device* device, const pumice_model_options* options,
                                      pumice_loading** loading) {
  return guarded([&]() -> ApiStatus {
    if (loading == nullptr) return invalid("loading is NULL");
    *loading = nullptr;
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    Result<std::unique_ptr<pumice_loading>> begun = begin(*device, options);
    if (!begun.ok()) return begun.error();
    *loading = begun->release();
    return {};
  });
}

pumice_status pumice_loading_wait(pumice_loading* loading, uint64_t microseconds,
                                  pumice_load_progress* progress) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(progress, "progress"));
    write_struct(pumice_load_progress{}, progress);
    PUMICE_TRY_STATUS(check_handle(loading, "loading"));
    write_struct(progress_of(loading->loading->wait(duration_of(microseconds))), progress);
    return {};
  });
}

pumice_status pumice_loading_cancel(pumice_loading* loading) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(loading, "loading"));
    return loading->loading->cancel();
  });
}

pumice_status pumice_loading_take(pumice_loading* loading, pumice_model** model) {
  return guarded([&]() -> ApiStatus {
    if (model == nullptr) return invalid("model is NULL");
    *model = nullptr;
    PUMICE_TRY_STATUS(check_handle(loading, "loading"));
    return loading->loading->take([&](std::shared_ptr<host::ModelOwner> owner) -> Status {
      PUMICE_TRY(std::unique_ptr<pumice_model> made, make_model(std::move(owner)));
      *model = made.release();
      return {};
    });
  });
}

void pumice_loading_close(pumice_loading* loading) {
  if (loading == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(loading, "loading"));
    delete loading;
    return {};
  });
}
