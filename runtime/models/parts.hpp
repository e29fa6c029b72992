// What of a model an operation is: the parts that reports sum time, flops and bytes by.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "models/program.hpp"

namespace pumice {

/// The parts of a step, as the decoder runs them; layers are summed.
enum class Part {
  kEmbedding,
  kNorms,            ///< with the additions of the residual stream
  kQkv,              ///< projections of q, k and v
  kRopeKv,           ///< rotation, and keys and values written to the cache
  kAttention,        ///< scores and values
  kRecurrence,       ///< of layers that have a state instead of keys and values
  kAttentionOutput,  ///< projection of what attention or a recurrence gives
  kRouter,           ///< scores of experts
  kGateUp,
  kActivation,  ///< of gate times up, and the weighted sum over experts
  kDown,
  kOutput,  ///< logits
};
inline constexpr size_t kPartCount = 12;
std::string_view part_name(Part part);  ///< "attention output"

/// The part that operations of a kind always are of; none where it is that of their neighbours.
std::optional<Part> own_part(const Operation& what);

/// By operation. What an operation is for is told by what it reads and what reads it.
std::vector<Part> parts_of(const Program& program);

}  // namespace pumice
