#include <bit>
#include <cmath>
#include <tuple>

#include "base/float16.hpp"
#include "shaders/op_case.hpp"
#include "shaders/peak/peak.hpp"

namespace pumice::ops {
namespace {

std::vector<uint32_t> random_words(size_t n) {
  std::mt19937 engine(1);
  std::vector<uint32_t> words(n);
  for (uint32_t& word : words) word = static_cast<uint32_t>(engine());
  return words;
}

Result<PreparedOp> prepare_memory(OpBed& bed, PeakMemory::Kind kind, uint32_t n_workgroups) {
  constexpr uint32_t kLanes = PeakMemory::kWorkgroupSize;
  const uint64_t bytes = n_workgroups * kLanes * PeakMemory::kInvocationBytes;
  const std::vector<uint32_t> words = random_words(bytes / 4);
  const bool copies = kind == PeakMemory::Kind::kCopy;
  PeakMemory::Args args;
  PUMICE_TRY(args.source, bed.input(words));
  PUMICE_TRY(args.target, bed.output(copies ? bytes : PeakMemory::sums_bytes(bytes)));
  PUMICE_TRY(const PeakMemory op, PeakMemory::plan(bed.pipelines(), kind));
  Expectation expected{.name = copies ? "copy" : "sums", .output = args.target, .words = words};
  if (!copies) {
    expected.words.assign(n_workgroups * kLanes, 0);
    for (size_t i = 0; i < words.size(); ++i) {  // lane i of a workgroup reads every kLanes-th unit
      const size_t unit = i / 4;
      const size_t workgroup = i * 4 / (kLanes * PeakMemory::kInvocationBytes);
      expected.words[workgroup * kLanes + unit % kLanes] ^= words[i];
    }
  }
  return prepared_op(op, args, {std::move(expected)});
}

/// After the steps a chain is at 2 - (2 - start) * 2^-steps for a = 1/2, b = 1: exact in fp32 after
/// one iteration; a half rounds it to 2 or its neighbours.
Result<PreparedOp> prepare_float(OpBed& bed, PeakArithmetic::Kind kind) {
  constexpr uint32_t kWorkgroups = 3;
  const std::vector<float> factors = {0.5f, 1.0f};
  const std::vector<double> sums = [&] {
    std::vector<double> values(kWorkgroups * PeakArithmetic::kWorkgroupSize, 0);
    for (size_t i = 0; i < values.size(); ++i) {
      for (uint32_t chain = 0; chain < PeakArithmetic::kChains; ++chain) {
        const double start = static_cast<double>(chain + i % 8);
        values[i] += 2 - std::ldexp(2 - start, -int{PeakArithmetic::kStepsPerIteration});
      }
      if (kind == PeakArithmetic::Kind::kF16) values[i] *= 2;  // pairs
    }
    return values;
  }();
  PeakArithmetic::Args args{.n_workgroups = kWorkgroups, .n_iterations = 1};
  PUMICE_TRY(args.factors, bed.input(factors));
  PUMICE_TRY(args.y, bed.output(sums.size() * 4));
  PUMICE_TRY(const PeakArithmetic op, PeakArithmetic::plan(bed.pipelines(), kind));
  const double bound = kind == PeakArithmetic::Kind::kF16 ? 16 * 0x1p-9 : 1e-6;
  return prepared_op(op, args,
                     {{.name = "y", .output = args.y, .reference = sums, .bound = {bound}}});
}

/// The packed signed bytes of two words, multiplied and added.
uint32_t dot_bytes(uint32_t a, uint32_t b) {
  int32_t sum = 0;
  for (uint32_t shift = 0; shift < 32; shift += 8) {
    sum += static_cast<int8_t>(a >> shift & 0xFF) * static_cast<int8_t>(b >> shift & 0xFF);
  }
  return static_cast<uint32_t>(sum);
}

Result<PreparedOp> prepare_dot(OpBed& bed) {
  constexpr uint32_t kWorkgroups = 2;
  constexpr uint32_t kIterations = 2;
  const std::vector<uint32_t> factors = {0x7F80FF03u, 0x01020381u};
  std::vector<uint32_t> sums(kWorkgroups * PeakArithmetic::kWorkgroupSize, 0);
  for (size_t i = 0; i < sums.size(); ++i) {
    for (uint32_t chain = 0; chain < PeakArithmetic::kChains; ++chain) {
      uint32_t x = (chain + static_cast<uint32_t>(i) % PeakArithmetic::kWorkgroupSize) * factors[1];
      for (uint32_t step = 0; step < kIterations * PeakArithmetic::kStepsPerIteration; ++step) {
        x += dot_bytes(x, factors[0]);
      }
      sums[i] += x;
    }
  }
  PeakArithmetic::Args args{.n_workgroups = kWorkgroups, .n_iterations = kIterations};
  PUMICE_TRY(args.factors, bed.input(factors));
  PUMICE_TRY(args.y, bed.output(sums.size() * 4));
  PUMICE_TRY(const PeakArithmetic op,
             PeakArithmetic::plan(bed.pipelines(), PeakArithmetic::Kind::kInt8Dot));
  return prepared_op(op, args, {{.name = "y", .output = args.y, .words = sums}});
}

/// `values` as elements of a type: the factors of a matrix product.
std::vector<std::byte> encoded(const std::vector<int>& values, PeakMatrix::Type type) {
  std::vector<std::byte> bytes;
  const auto append = [&](uint32_t bits, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) bytes.push_back(static_cast<std::byte>(bits >> 8 * i & 0xFF));
  };
  for (const int value : values) {
    const auto number = static_cast<float>(value);
    if (type == PeakMatrix::Type::kS8S32) {
      append(static_cast<uint32_t>(value), 1);
    } else if (type == PeakMatrix::Type::kBf16F32) {
      append(std::bit_cast<uint32_t>(number) >> 16, 2);
    } else {
      append(float_to_half(number), 2);
    }
  }
  return bytes;
}

/// Small whole numbers, exact in every type. The chains start at 0 to 3 and multiply different
/// factors.
Result<PreparedOp> prepare_matrix(OpBed& bed, PeakMatrix::Type type) {
  constexpr uint32_t kWorkgroups = 2;
  const vk::MatrixShape shape = PeakMatrix::shapes(bed.device()->plan(), type).front();
  const auto& [m, n, k] = std::tie(shape.m, shape.n, shape.k);
  std::mt19937 engine(1);
  std::vector<int> factors(size_t{2} * k * (m + n));
  for (int& factor : factors) factor = static_cast<int>(engine() % 3) - 1;
  Expectation y{.name = "y", .halves = type == PeakMatrix::Type::kF16F16};
  for (uint32_t subgroup = 0; subgroup < kWorkgroups * PeakMatrix::kSubgroups; ++subgroup) {
    for (uint32_t at = 0; at < m * n; ++at) {
      int products = 0;  // of all chains
      for (uint32_t i = 0; i < k; ++i) {
        const uint32_t a = at / n * k + i;
        const uint32_t b = 2 * m * k + i * n + at % n;
        products += (factors[a] + factors[m * k + a]) * (factors[b] + factors[k * n + b]);
      }
      const int sum = 0 + 1 + 2 + 3 + int{PeakMatrix::kStepsPerIteration} * products;
      if (type == PeakMatrix::Type::kS8S32) {
        y.words.push_back(static_cast<uint32_t>(sum));
      } else {
        y.reference.push_back(sum);
      }
    }
  }
  y.bound = {0};
  PUMICE_TRY(const PeakMatrix op, PeakMatrix::plan(bed.pipelines(), type, shape));
  PeakMatrix::Args args{.n_workgroups = kWorkgroups, .n_iterations = 1};
  PUMICE_TRY(args.factors, bed.input(encoded(factors, type)));
  PUMICE_TRY(args.y, bed.output(op.y_bytes(kWorkgroups)));
  y.output = args.y;
  return prepared_op(op, args, {std::move(y)});
}

Result<PreparedOp> prepare_touch(OpBed& bed) {
  PUMICE_TRY(const vk::BufferRange word, bed.output(4));
  PUMICE_TRY(const PeakTouch op, PeakTouch::plan(bed.pipelines()));
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, word, 1);
                          op.record(recorder, word, 2);
                        },
                    .expected = {{.name = "word", .output = word, .words = {2}}}};
}

}  // namespace

std::vector<OpCase> peak_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& name, auto prepare, auto supported) {
    cases.push_back({.op = "peak",
                     .name = name,
                     .prepare = std::move(prepare),
                     .supported = std::move(supported)});
  };
  const auto everywhere = [](const vk::DevicePlan&) { return true; };
  for (const uint32_t n : {1u, 3u}) {
    add(
        fmt::format("read workgroups={}", n),
        [n](OpBed& bed) { return prepare_memory(bed, PeakMemory::Kind::kRead, n); }, everywhere);
    add(
        fmt::format("copy workgroups={}", n),
        [n](OpBed& bed) { return prepare_memory(bed, PeakMemory::Kind::kCopy, n); }, everywhere);
  }
  for (const auto kind : {PeakArithmetic::Kind::kF32, PeakArithmetic::Kind::kF16}) {
    add(
        kind == PeakArithmetic::Kind::kF16 ? "f16" : "f32",
        [kind](OpBed& bed) { return prepare_float(bed, kind); },
        [kind](const vk::DevicePlan& plan) { return PeakArithmetic::supported(plan, kind); });
  }
  add("i8", prepare_dot, [](const vk::DevicePlan& plan) {
    return PeakArithmetic::supported(plan, PeakArithmetic::Kind::kInt8Dot);
  });
  for (const auto type : PeakMatrix::kTypes) {
    add(
        std::string(vk::arithmetic_name(PeakMatrix::arithmetic(type))),
        [type](OpBed& bed) { return prepare_matrix(bed, type); },
        [type](const vk::DevicePlan& plan) { return !PeakMatrix::shapes(plan, type).empty(); });
  }
  add("touch", prepare_touch, everywhere);
  return cases;
}

}  // namespace pumice::ops
