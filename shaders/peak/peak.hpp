// Kernels that do one thing as fast as the device can, for measuring what it can: memory bandwidth,
// arithmetic in registers, the cost of a dispatch. `pumice bench` divides by what they reach.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// Reads, or copies, a range from one end to the other, 16 bytes a lane.
class PeakMemory {
 public:
  enum class Kind { kRead, kCopy };

  struct Args {
    vk::BufferRange source;  ///< `source_bytes` of it are read
    vk::BufferRange target;  ///< kRead: target_bytes(); kCopy: as large as the source
  };

  /// Declare "peak.read" or "peak.copy".
  static Result<PeakMemory> plan(vk::PipelineLibrary& pipelines, Kind kind);

  /// The largest size up to `available_bytes` that whole workgroups share out; 0 if there is none.
  static uint64_t source_bytes(uint64_t available_bytes);
  /// What kRead writes: a word an invocation, the xor of all it read.
  static uint64_t sums_bytes(uint64_t source_bytes) { return source_bytes / kInvocationBytes * 4; }

  void record(vk::Recorder& recorder, const Args& args) const;

  static constexpr uint32_t kWorkgroupSize = 128;
  static constexpr uint32_t kPasses = 16;
  static constexpr uint64_t kInvocationBytes = uint64_t{kPasses} * 4 * 16;

 private:
  Kind kind_ = Kind::kRead;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// Chains of x = a * x + b in registers, with two words from memory for a and b.
class PeakArithmetic {
 public:
  enum class Kind {
    kF32,
    kF16,      ///< pairs of halves; needs shaderFloat16
    kInt8Dot,  ///< x = dot(x, a) + x on packed signed bytes; chains start at multiples of b
  };

  static constexpr Kind kKinds[] = {Kind::kF32, Kind::kF16, Kind::kInt8Dot};

  struct Args {
    vk::BufferRange factors;  ///< a and b: two floats, also for kF16, or two ints
    vk::BufferRange y;        ///< a word an invocation: the sum of its chains, float or int
    uint32_t n_workgroups = 0;
    uint32_t n_iterations = 0;
  };

  /// Whether this build and device can run it.
  static bool supported(const vk::DevicePlan& plan, Kind kind);

  /// Declare "peak.f32", "peak.f16" or "peak.i8". Errors: kInvalidArgument if unsupported.
  static Result<PeakArithmetic> plan(vk::PipelineLibrary& pipelines, Kind kind);

  void record(vk::Recorder& recorder, const Args& args) const;

  static constexpr uint32_t kWorkgroupSize = 128;
  static constexpr uint32_t kChains = 8;
  static constexpr uint32_t kStepsPerIteration = 16;

 private:
  Kind kind_ = Kind::kF32;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// Chains of c = a * b + c on KHR cooperative matrices in registers, four subgroups a workgroup.
class PeakMatrix {
 public:
  enum class Type { kF16F16, kF16F32, kBf16F32, kS8S32 };  ///< of the factors and of the sum
  static constexpr Type kTypes[] = {Type::kF16F16, Type::kF16F32, Type::kBf16F32, Type::kS8S32};

  struct Args {
    vk::BufferRange factors;  ///< a [m][k], then b [k][n]
    vk::BufferRange y;        ///< the sum of the four chains, [m][n] a subgroup: y_bytes()
    uint32_t n_workgroups = 0;
    uint32_t n_iterations = 0;
  };

  static std::string_view module_name(Type type);
  /// The device's shapes of a type, if this build can multiply them; factors alike, not saturating.
  static std::vector<vk::MatrixShape> shapes(const vk::DevicePlan& plan, Type type);
  static vk::Arithmetic arithmetic(Type type);

  /// Declare "peak.matrix.f16.f32" and so on for one of shapes(). Errors: kInvalidArgument if this
  /// build or device cannot run it.
  static Result<PeakMatrix> plan(vk::PipelineLibrary& pipelines, Type type,
                                 const vk::MatrixShape& shape);

  void record(vk::Recorder& recorder, const Args& args) const;

  uint64_t factors_bytes() const;
  uint64_t y_bytes(uint32_t n_workgroups) const;

  static constexpr uint32_t kChains = 4;
  static constexpr uint32_t kSubgroups = 4;
  static constexpr uint32_t kStepsPerIteration = 4;

 private:
  Type type_ = Type::kF16F16;
  vk::MatrixShape shape_;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// Writes one word: a dispatch with nothing to do.
class PeakTouch {
 public:
  static Result<PeakTouch> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const vk::BufferRange& word, uint32_t value) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
