// What the opaque pointers of the C ABI point to.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "answers/answer_constraint.hpp"
#include "base/result.hpp"
#include "constraints/matcher.hpp"
#include "host/device_owner.hpp"
#include "host/host.hpp"
#include "host/lasting_embedder.hpp"
#include "host/log_queue.hpp"
#include "host/model_loading.hpp"
#include "host/model_owner.hpp"
#include "pumice/pumice.h"
#include "vk/device.hpp"

namespace pumice::api {

/// First in each handle, so that one of another kind is noticed.
enum class HandleKind : uint64_t {
  kDevice = 0x6563697665642D70,
  kModel = 0x6C65646F6D2D70,
  kEngine = 0x656E69676E652D70,
  kConstraint = 0x736E6F632D70,
  kLoading = 0x64616F6C2D70,
  kEmbedder = 0x6465626D652D70,
};

}  // namespace pumice::api

struct pumice_device {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kDevice;
  std::shared_ptr<pumice::host::LogQueue> log;
  pumice::host::LogQueue::Line line;  // that was given out last
  std::shared_ptr<pumice::host::DeviceOwner> owner;
};

struct pumice_model {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kModel;
  std::shared_ptr<pumice::host::ModelOwner> owner;
  pumice_model_info info = {};
};

struct pumice_engine {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kEngine;
  std::unique_ptr<pumice::host::Host> host;
  std::vector<pumice_token_log_prob> top_log_probs = {};  // of the event that was given out last
  std::vector<pumice_answer_part> parts = {};             // likewise
};

struct pumice_constraint {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kConstraint;
  std::shared_ptr<const pumice::Constraint> constraint;
  pumice::AnswerWish wish;  // of which it was compiled
};

struct pumice_embedder {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kEmbedder;
  std::mutex mutex = {};  // held by the thread that embeds
  std::unique_ptr<pumice::host::LastingEmbedder> embedder;
  bool normalizes = true;
};

struct pumice_loading {
  const pumice::api::HandleKind kind = pumice::api::HandleKind::kLoading;
  std::unique_ptr<pumice::host::ModelLoading> loading;
};

namespace pumice::api {

template <typename Handle>
constexpr HandleKind kKindOf = HandleKind::kDevice;
template <>
inline constexpr HandleKind kKindOf<pumice_model> = HandleKind::kModel;
template <>
inline constexpr HandleKind kKindOf<pumice_engine> = HandleKind::kEngine;
template <>
inline constexpr HandleKind kKindOf<pumice_constraint> = HandleKind::kConstraint;
template <>
inline constexpr HandleKind kKindOf<pumice_embedder> = HandleKind::kEmbedder;
template <>
inline constexpr HandleKind kKindOf<pumice_loading> = HandleKind::kLoading;

/// Errors (kInvalidArgument): NULL, or a handle of another kind.
template <typename Handle>
Status check_handle(const Handle* handle, std::string_view name) {
  if (handle == nullptr) return make_error(ErrorCode::kInvalidArgument, "{} is NULL", name);
  if (handle->kind != kKindOf<Handle>) {
    return make_error(ErrorCode::kInvalidArgument, "{} is a handle of another kind", name);
  }
  return {};
}

/// What a host asks for of a device, and where what it has to say goes.
struct DeviceOptions {
  host::OpenOptions open;
  std::shared_ptr<host::LogQueue> log;
};
/// NULL: the default. Errors: kInvalidArgument.
Result<DeviceOptions> read_device_options(const pumice_device_options* given);

/// A handle of an open device.
std::unique_ptr<pumice_device> make_device(std::shared_ptr<host::DeviceOwner> owner,
                                           std::shared_ptr<host::LogQueue> log);

/// A handle of a model that was loaded. Errors: ModelOwner::current's.
Result<std::unique_ptr<pumice_model>> make_model(std::shared_ptr<host::ModelOwner> owner);

}  // namespace pumice::api
