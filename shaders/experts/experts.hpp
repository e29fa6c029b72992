// A mixture of experts: which experts a token takes, their matrix products and the sum of what they
// give. Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts
// Layer", 2017.
//
// Between them lie routes, uint32 and float [rows][n_used][2]: the id of an expert and its weight,
// for each token its experts in rank order, the highest score first.
#pragma once

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

inline constexpr uint32_t kMostExperts = 512;     ///< of a layer
inline constexpr uint32_t kMostUsedExperts = 16;  ///< of a token
inline constexpr uint32_t kMostExpertGroups = 64;
inline constexpr uint32_t kRouteBytes = 8;

/// The n_used experts of the highest probabilities, ties to the lowest id, and their weights. Ids
/// are in range and all different whatever the scores are; a NaN counts as the lowest.
class Route {
 public:
  struct Kind {
    enum class Probability { kSoftmax, kSigmoid };
    Probability probability = Probability::kSoftmax;  ///< softmax over all of a row's scores
    bool biased = false;       ///< a bias is added to probabilities for the choice, not for weights
    bool grouped = false;      ///< only experts of the best groups are chosen
    bool renormalised = true;  ///< weights are divided by their sum, or 6.1e-5 if that is less
    bool gained = false;       ///< the weight of an expert is then times a factor of its own
    /// Nothing is chosen: routes name each row's experts already, and get their weights.
    bool given = false;

    auto operator<=>(const Kind&) const = default;
  };

  struct Args {
    vk::BufferRange scores;      ///< float [rows][n_experts]
    vk::BufferRange bias = {};   ///< float [n_experts], if biased
    vk::BufferRange gains = {};  ///< float [n_experts], if gained
    vk::BufferRange routes;  ///< [rows][n_used], kRouteBytes each; 8-byte aligned; read if given
    uint32_t rows = 0;       ///< at most 65535
    uint32_t n_experts = 0;  ///< at most kMostExperts
    uint32_t n_used = 0;     ///< at most kMostUsedExperts and the experts of n_used_groups
    /// Groups are of consecutive experts, as many in each, at most kMostExpertGroups; the best are
    /// those whose two best experts have the highest sums of probability and bias.
    uint32_t n_groups = 1;
    uint32_t n_used_groups = 1;
    float scale = 1;  ///< of the weights
  };

  static Result<Route> plan(vk::PipelineLibrary& pipelines, const Kind& kind);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Kind kind_;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// y[row][rank] = x Wᵀ + bias for each of a row's experts, in fp32. Weights are read again for
/// every row that takes them.
class ExpertLinear {
 public:
  struct Args {
    const WeightMatrix& weights;  ///< of the planned type: n_experts times the rows of an expert
    uint32_t n_experts = 0;
    vk::BufferRange x;           ///< float, 16-byte aligned: weights.n_cols of each row are read
    uint32_t x_stride = 0;       ///< floats from row to row, a multiple of 4
    uint32_t x_rank_stride = 0;  ///< floats from rank to rank, likewise; 0: one x for all ranks
    vk::BufferRange routes;      ///< Route's
    vk::BufferRange bias = {};   ///< float, one for each row of weights, if planned
    vk::BufferRange y;           ///< float [rows][n_used][y_stride]
    uint32_t y_stride = 0;       ///< floats; weights.n_rows / n_experts are written, nothing else
    uint32_t rows = 0;           ///< at most 65535; rows times each stride below 2^32
    uint32_t n_used = 0;
  };

  /// Declare the pipeline for weights of `type`, with a bias or without, with K cut into
  /// `n_slices`, at most 4; 0: as suits the device. Errors: kInvalidArgument when this build has no
  /// shader for the type.
  static Result<ExpertLinear> plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                                   bool has_bias, uint32_t n_slices = 0);

  /// One dispatch per part of the weights.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  bool has_bias_ = false;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// y[row] = the sum over ranks, in their order, of the route's weight times x[row][rank].
class Combine {
 public:
  struct Args {
    vk::BufferRange x;       ///< float [rows][n_used][n]; 16-byte aligned
    vk::BufferRange routes;  ///< Route's
    vk::BufferRange y;       ///< float [rows][n]; 16-byte aligned
    uint32_t rows = 0;       ///< at most 65535; rows * n_used * n below 2^32
    uint32_t n_used = 0;
    uint32_t n = 0;
  };

  static Result<Combine> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t columns_per_workgroup_ = 0;
};

}  // namespace pumice::ops
