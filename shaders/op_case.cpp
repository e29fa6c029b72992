#include "shaders/op_case.hpp"

#include <cmath>
#include <cstring>

#include "base/float16.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kPoison = 0xFFFFFFFFu;  // a NaN

Status compare(const std::shared_ptr<vk::Device>& device, const Expectation& expected) {
  PUMICE_TRY(const std::vector<std::byte> bytes, vk::download(device, expected.output));
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  const size_t n = expected.words.empty() ? expected.reference.size() : expected.words.size();
  PUMICE_CHECK(n == words.size() * (expected.halves ? 2 : 1),
               "expectation of another size: " + expected.name);
  const auto untouched = [&](size_t i) {
    return (expected.halves ? words[i / 2] >> (i % 2 * 16) | 0xFFFF0000u : words[i]) == kPoison;
  };
  const auto value = [&](size_t i) -> double {
    if (!expected.halves) return std::bit_cast<float>(words[i]);
    return half_to_float(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
  };
  for (size_t i = 0; i < n; ++i) {
    if (!expected.words.empty()) {
      if (words[i] == expected.words[i]) continue;
      return make_error(ErrorCode::kSelfTestFailed, "{}[{}]: got 0x{:08x}, expected 0x{:08x}",
                        expected.name, i, words[i], expected.words[i]);
    }
    if (std::isnan(expected.reference[i]) && untouched(i)) continue;
    const double got = value(i);
    const double bound = expected.bound.size() == 1 ? expected.bound[0] : expected.bound[i];
    if (!(std::abs(got - expected.reference[i]) <= bound)) {  // catches NaN
      return make_error(ErrorCode::kSelfTestFailed, "{}[{}]: got {:.9g}, expected {:.9g} +- {:.2g}",
                        expected.name, i, got, expected.reference[i], bound);
    }
  }
  return {};
}

}  // namespace

OpBed::OpBed(std::shared_ptr<vk::Device> device, vk::PipelineLibrary& pipelines)
    : device_(device),
      pipelines_(pipelines),
      arena_(device, MemoryDomain::kDevice, "op cases", 16 << 20),
      uploader_(device) {}

Result<vk::BufferRange> OpBed::allocate(uint64_t size_bytes) { return arena_.allocate(size_bytes); }

Result<vk::BufferRange> OpBed::input(uint64_t size_bytes,
                                     const std::function<void(std::span<std::byte>)>& produce) {
  PUMICE_TRY(vk::BufferRange range, allocate(size_bytes));
  PUMICE_TRY_STATUS(uploader_.write(range, produce));
  return range;
}

Result<vk::BufferRange> OpBed::output(uint64_t size_bytes) {
  PUMICE_CHECK(size_bytes % 4 == 0, "outputs are whole words");
  PUMICE_TRY(const vk::BufferRange guarded, allocate(size_bytes + 2 * kGuardBytes));
  outputs_.push_back(guarded);
  const std::vector<uint32_t> poison(guarded.size_bytes / 4, kPoison);
  PUMICE_TRY_STATUS(uploader_.write(guarded, std::span<const uint32_t>(poison)));
  return guarded.subrange(kGuardBytes, size_bytes);
}

Status OpBed::poison() {
  for (const vk::BufferRange& guarded : outputs_) {
    const std::vector<uint32_t> poison(guarded.size_bytes / 4, kPoison);
    PUMICE_TRY_STATUS(uploader_.write(guarded, std::span<const uint32_t>(poison)));
  }
  return {};
}

Status OpBed::check_guards() {
  for (const vk::BufferRange& guarded : outputs_) {
    const uint64_t after = guarded.size_bytes - kGuardBytes;
    for (const uint64_t first : {uint64_t{0}, after}) {
      PUMICE_TRY(const auto bytes, vk::download(device_, guarded.subrange(first, kGuardBytes)));
      for (const std::byte byte : bytes) {
        if (byte != std::byte{0xFF}) {
          return make_error(ErrorCode::kSelfTestFailed, "wrote {} an output",
                            first == 0 ? "before" : "past the end of");
        }
      }
    }
  }
  return {};
}

std::vector<float> OpBed::normal_floats(size_t n, uint32_t seed, float scale) {
  std::mt19937 engine(seed);
  const auto uniform = [&] { return (static_cast<double>(engine()) + 0.5) * 0x1p-32; };
  std::vector<float> values(n);
  for (float& value : values) {  // Box-Muller; std::normal_distribution differs between hosts
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    value = static_cast<float>(radius * std::cos(6.283185307179586 * uniform())) * scale;
  }
  return values;
}

Result<vk::RecordedWork> record(OpBed& bed, const PreparedOp& op,
                                const vk::RecorderOptions& options) {
  vk::Recorder recorder(bed.device(), options);
  op.record(recorder);
  return recorder.finish();
}

Status run_and_check(OpBed& bed, const PreparedOp& op, const vk::RecorderOptions& options) {
  PUMICE_TRY(const vk::RecordedWork work, record(bed, op, options));
  return run_and_check(bed, op, work);
}

Status run_and_check(OpBed& bed, const PreparedOp& op, const vk::RecordedWork& work) {
  PUMICE_TRY_STATUS(vk::run(*bed.device(), work));
  for (const Expectation& expected : op.expected) {
    PUMICE_TRY_STATUS(compare(bed.device(), expected));
  }
  return bed.check_guards();
}

}  // namespace pumice::ops
