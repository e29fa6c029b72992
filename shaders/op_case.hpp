// Op cases: shapes, inputs, fp64 reference and error bound of one op, written once next to the op.
// Two lists of them: all_op_cases() are awkward shapes for tests, all_bench_cases() the shapes of
// real models for `pumice bench --ops`, whose references are a sample of the output where it is
// large.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"

namespace pumice::ops {

/// What an output must hold. Exactly one of `reference` and `words` is used.
struct Expectation {
  std::string name;
  vk::BufferRange output;
  std::vector<double> reference;  ///< expected values, in fp64; NaN: must not be written
  std::vector<double> bound;      ///< allowed |got - reference| per element, or one for all
  std::vector<uint32_t> words;    ///< expected bits, when the op is exact
  bool halves = false;            ///< `reference` is of fp16 values, not fp32
  /// The values that the output's bytes stand for, if they are neither; NaN where it was not
  /// written.
  std::function<std::vector<double>(std::span<const std::byte>)> decode = {};
  /// The elements that `reference`, `bound` or `words` are of, rising; the others must only have
  /// been written. Empty: all elements.
  std::vector<uint64_t> elements;
};

/// An op ready to run: inputs uploaded, outputs poisoned, pipelines declared.
struct PreparedOp {
  std::function<void(vk::Recorder&)> record;
  std::vector<Expectation> expected;
  /// For timing: the op without what `record` does to restore its inputs, each entry on another
  /// copy of what a model reads from memory but once a step (weights, KV), so that no cache serves
  /// it. Activations are shared, as a model finds them in a cache too. Empty: `record`.
  std::vector<std::function<void(vk::Recorder&)>> rotation = {};
};

/// `op` with `args`.
template <typename Op, typename Args>
PreparedOp prepared_op(const Op& op, const Args& args, std::vector<Expectation> expected) {
  return {.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
          .expected = std::move(expected)};
}

/// The same where it changes what it reads, `changed`, of which `pristine` is a copy.
template <typename Op, typename Args>
PreparedOp prepared_op(const Op& op, const Args& args, std::vector<Expectation> expected,
                       const vk::BufferRange& changed, const vk::BufferRange& pristine) {
  PreparedOp prepared = prepared_op(op, args, std::move(expected));
  prepared.rotation = {prepared.record};
  prepared.record = [=](vk::Recorder& recorder) {
    recorder.copy(pristine, changed);
    op.record(recorder, args);
  };
  return prepared;
}

/// Memory, pipelines and deterministic inputs for cases.
class OpBed {
 public:
  OpBed(std::shared_ptr<vk::Device> device, vk::PipelineLibrary& pipelines);

  vk::PipelineLibrary& pipelines() { return pipelines_; }
  const std::shared_ptr<vk::Device>& device() const { return device_; }

  /// A device copy of host values.
  template <typename T>
  Result<vk::BufferRange> input(std::span<const T> values) {
    PUMICE_TRY(vk::BufferRange range, allocate(values.size_bytes()));
    PUMICE_TRY_STATUS(uploader_.write(range, values));
    return range;
  }
  template <typename T>
  Result<vk::BufferRange> input(const std::vector<T>& values) {
    return input(std::span<const T>(values));
  }

  /// The same, or nothing where they are not wanted.
  template <typename T>
  Result<vk::BufferRange> input_if(bool wanted, const std::vector<T>& values) {
    return wanted ? input(values) : vk::BufferRange{};
  }

  /// Like `input`, from a producer (weights that are repacked on the way).
  Result<vk::BufferRange> input(uint64_t size_bytes,
                                const std::function<void(std::span<std::byte>)>& produce);

  /// Memory full of NaNs, between guard zones that `check_guards` verifies.
  Result<vk::BufferRange> output(uint64_t size_bytes);

  /// The same, or nothing of no bytes.
  Result<vk::BufferRange> scratch(uint64_t size_bytes) {
    return size_bytes > 0 ? output(size_bytes) : vk::BufferRange{};
  }

  /// Device memory that holds `pattern` over and over, the last time perhaps in part.
  Result<vk::BufferRange> repeat(const vk::BufferRange& pattern, uint64_t size_bytes);

  /// Fill every output and its guards with the poison again (before a second run).
  Status poison();
  /// Errors: kSelfTestFailed when a byte outside an output was written.
  Status check_guards();

  /// Normally distributed floats; the same for the same arguments on every host.
  static std::vector<float> normal_floats(size_t n, uint32_t seed, float scale = 1.0f);
  /// Uniform in ±sqrt(3) * scale (the variance of the above), at a nanosecond each.
  static std::vector<float> uniform_floats(size_t n, uint32_t seed, float scale = 1.0f);

 private:
  static constexpr uint64_t kGuardBytes = 256;

  Result<vk::BufferRange> allocate(uint64_t size_bytes);

  std::shared_ptr<vk::Device> device_;
  vk::PipelineLibrary& pipelines_;
  vk::Arena arena_;
  vk::Uploader uploader_;
  std::vector<vk::BufferRange> outputs_;  // with their guards
};

struct OpCase {
  std::string op;    ///< the folder's name
  std::string name;  ///< shape and variant, "rows=3 n=257"
  std::function<Result<PreparedOp>(OpBed&)> prepare;
  std::function<bool(const vk::DevicePlan&)> supported = {};  ///< everywhere if empty
};

/// A prepared op's commands. Pipelines must be compiled. `options` lets tests reorder or drop
/// barriers.
Result<vk::RecordedWork> record(OpBed& bed, const PreparedOp& op,
                                const vk::RecorderOptions& options = {});

/// Run what was recorded of a prepared op once and compare. Errors: kSelfTestFailed naming the
/// output, the first bad element and both values.
Status run_and_check(OpBed& bed, const PreparedOp& op, const vk::RecordedWork& work);

/// Both.
Status run_and_check(OpBed& bed, const PreparedOp& op, const vk::RecorderOptions& options = {});

/// How much to benchmark on a device.
struct BenchScale {
  bool small = false;           ///< a few small shapes: CPU drivers
  uint64_t rotation_bytes = 0;  ///< what the copies of streamed operands should come to

  static BenchScale of(const vk::DevicePlan& plan);
  /// Copies of `bytes` to rotate through: at least one, at most 64.
  uint32_t copies(uint64_t bytes) const;
};

/// `n` different elements of [0, count), rising, the first and last among them; the same on every
/// host. All if there are fewer.
std::vector<uint64_t> sample_elements(uint64_t count, size_t n, uint32_t seed);

/// Cases of every op, in the order of their folders. Each op's folder defines its own function.
std::vector<OpCase> all_op_cases();

/// Real models' shapes of the ops that have them (NAME_bench_cases).
std::vector<OpCase> all_bench_cases(const BenchScale& scale);

}  // namespace pumice::ops
