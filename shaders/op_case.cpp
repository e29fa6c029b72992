#include "shaders/op_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/float16.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kPoison = 0xFFFFFFFFu;  // a NaN

Status compare(const std::shared_ptr<vk::Device>& device, const Expectation& expected) {
  PUMICE_TRY(const std::vector<std::byte> bytes, vk::download(device, expected.output));
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  const size_t n = expected.words.empty() ? expected.reference.size() : expected.words.size();
  const std::vector<double> decoded =
      expected.decode ? expected.decode(bytes) : std::vector<double>();
  const size_t n_elements =
      expected.decode ? decoded.size() : words.size() * (expected.halves ? 2 : 1);
  PUMICE_CHECK(n == (expected.elements.empty() ? n_elements : expected.elements.size()),
               "expectation of another size: " + expected.name);
  const auto untouched = [&](size_t i) {
    if (expected.decode) return std::isnan(decoded[i]);
    return (expected.halves ? words[i / 2] >> (i % 2 * 16) | 0xFFFF0000u : words[i]) == kPoison;
  };
  const auto value = [&](size_t i) -> double {
    if (expected.decode) return decoded[i];
    if (!expected.halves) return std::bit_cast<float>(words[i]);
    return half_to_float(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
  };
  for (size_t i = 0; i < n; ++i) {
    const size_t at = expected.elements.empty() ? i : expected.elements[i];
    if (!expected.words.empty()) {
      if (words[at] == expected.words[i]) continue;
      return make_error(ErrorCode::kSelfTestFailed, "{}[{}]: got 0x{:08x}, expected 0x{:08x}",
                        expected.name, at, words[at], expected.words[i]);
    }
    if (std::isnan(expected.reference[i]) && untouched(at)) continue;
    const double got = value(at);
    const double bound = expected.bound.size() == 1 ? expected.bound[0] : expected.bound[i];
    if (!(std::abs(got - expected.reference[i]) <= bound)) {  // catches NaN
      return make_error(ErrorCode::kSelfTestFailed, "{}[{}]: got {:.9g}, expected {:.9g} +- {:.2g}",
                        expected.name, at, got, expected.reference[i], bound);
    }
  }
  for (size_t i = 0; !expected.elements.empty() && i < n_elements; ++i) {
    if (untouched(i)) {
      return make_error(ErrorCode::kSelfTestFailed, "{}[{}]: not written", expected.name, i);
    }
  }
  return {};
}

}  // namespace

OpBed::OpBed(std::shared_ptr<vk::Device> device, vk::PipelineLibrary& pipelines)
    : device_(device),
      pipelines_(pipelines),
      arena_(device, vk::MemoryDomain::kDevice, "op cases", 16 << 20),
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

Result<vk::BufferRange> OpBed::repeat(const vk::BufferRange& pattern, uint64_t size_bytes) {
  PUMICE_TRY(const vk::BufferRange range, allocate(size_bytes));
  vk::Recorder recorder(device_);
  uint64_t done = std::min(pattern.size_bytes, size_bytes);
  recorder.copy(pattern.subrange(0, done), range);
  while (done < size_bytes) {  // doubling: whole patterns until the last
    const uint64_t now = std::min(done, size_bytes - done);
    recorder.copy(range.subrange(0, now), range.from(done));
    done += now;
  }
  PUMICE_TRY(const vk::RecordedWork work, recorder.finish());
  PUMICE_TRY_STATUS(vk::run(*device_, work));
  return range;
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

std::vector<float> OpBed::uniform_floats(size_t n, uint32_t seed, float scale) {
  const float unit = scale * 1.7320508f * 0x1p-31f;
  uint32_t state = seed * 2654435761u + 1;
  std::vector<float> values(n);
  for (float& value : values) {  // Knuth's and Lewis's linear congruence; its high bits are good
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * unit;
  }
  return values;
}

BenchScale BenchScale::of(const vk::DevicePlan& plan) {
  const bool small = plan.device_class == vk::DeviceClass::kCpu;
  // Beyond the last-level caches of GPUs (to 256 MiB); copies must also fit one slab.
  const uint64_t wanted = uint64_t{small ? 128u : 512u} << 20;
  return {.small = small,
          .rotation_bytes = std::min({wanted, plan.slab_bytes, plan.device_budget_bytes / 4})};
}

uint32_t BenchScale::copies(uint64_t bytes) const {
  return static_cast<uint32_t>(std::clamp<uint64_t>(rotation_bytes / bytes, 1, 64));
}

std::vector<uint64_t> sample_elements(uint64_t count, size_t n, uint32_t seed) {
  std::set<uint64_t> chosen;
  if (count <= n) {
    for (uint64_t i = 0; i < count; ++i) chosen.insert(i);
  } else {
    std::mt19937_64 engine(seed);
    chosen = {0, count - 1};
    while (chosen.size() < n) chosen.insert(engine() % count);
  }
  return {chosen.begin(), chosen.end()};
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
