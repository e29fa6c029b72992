// A caller's options as the host takes them: checked, and copied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "constraints/constraint_compiler.hpp"
#include "engine/embedder.hpp"
#include "engine/engine_options.hpp"
#include "engine/saved_sequence.hpp"
#include "host/host.hpp"
#include "models/adapter.hpp"
#include "pumice/pumice.h"

namespace pumice::api {

// Errors of all (kInvalidArgument): what is wrong, and of which field. NULL is the default, but of
// a request.

/// An engine, and what guesses for it.
struct EngineInput {
  EngineOptions engine;               ///< a context of 0 stays one
  std::filesystem::path draft_model;  ///< empty: none
  bool predicts = false;              ///< by the model's own block
};
/// `given`, an argument of that name.
Result<EngineInput> read_engine_options(const pumice_engine_options* given, std::string_view name);
struct EmbedderInput {
  EmbedderOptions embedder;  ///< `text_tokens` of 0 stays one
  bool normalizes = true;
};
Result<EmbedderInput> read_embedder_options(const pumice_embedder_options* given);
/// A view of the caller's text.
struct ConstraintText {
  ConstraintKind kind = ConstraintKind::kJsonSchema;
  std::string_view text = {};
};
Result<ConstraintText> read_constraint_options(const pumice_constraint_options* given);
Result<EngineMode> read_mode(pumice_mode mode);
Result<host::LatencyKind> read_latency_kind(pumice_latency_kind kind);
/// `adapters`: the model's.
Result<host::ConversationDefaults> read_session_options(const pumice_session_options* given,
                                                        std::span<const AdapterSource> adapters);
Result<RestoreOptions> read_restore_options(const pumice_restore_options* given);
Result<host::RequestInput> read_request_options(const pumice_request_options* given,
                                                bool has_session,
                                                std::span<const AdapterSource> adapters);

}  // namespace pumice::api
