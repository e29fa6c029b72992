#include "bench/attention_bench.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/statistics.hpp"
#include "shaders/attention_reference/attention_reference.hpp"
#include "shaders/flash_attention/attention_bench_case.hpp"
#include "vk/transfer.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

/// One shape: the same q, K and V for every way to compute it.
class ShapeBench {
 public:
  ShapeBench(vk::PipelineLibrary& pipelines, const ops::AttentionBenchCase& test,
             const TimingOptions& options)
      : pipelines_(pipelines),
        test_(test),
        options_(options),
        bed_(pipelines.device(), pipelines) {}

  Result<AttentionRow> run() {
    PUMICE_TRY(auto inputs, ops::AttentionBenchInputs::make(
                                bed_, test_, ops::BenchScale::of(pipelines_.device()->plan())));
    inputs_.emplace(std::move(inputs));
    const uint64_t context = test_.context();
    const uint64_t row_bytes = test_.shape.n_heads * context * 4;
    AttentionRow row{.context = test_.context(),
                     .rows = test_.rows,
                     .scores_bytes = row_bytes * test_.rows,
                     .unchunked_bytes = row_bytes * context};
    row.reference = side([this](AttentionSide& side) { return reference(side); });
    row.same_tiles = side([this](AttentionSide& side) -> Status {
      PUMICE_TRY(
          const ops::FlashAttention op,
          ops::FlashAttention::plan(
              pipelines_, test_.shape,
              ops::FlashAttention::Tuning{.max_tile_rows = ops::AttentionReference::kTileRows}));
      return flash(op, side);
    });
    row.tuned = side([this](AttentionSide& side) -> Status {
      PUMICE_TRY(const ops::FlashAttention op,
                 ops::FlashAttention::plan(pipelines_, test_.shape, ops::Math::kAuto));
      return flash(op, side);
    });
    return row;
  }

 private:
  using Record = std::function<void(vk::Recorder&, const ops::AttentionBenchInputs::Call&)>;

  static AttentionSide side(const std::function<Status(AttentionSide&)>& measure) {
    AttentionSide side;
    const Status status = measure(side);
    if (!status.ok()) side.error = status.error();
    return side;
  }

  Status reference(AttentionSide& side) {
    PUMICE_TRY(const auto op, ops::AttentionReference::plan(
                                  pipelines_, test_.shape,
                                  test_.rows == 1 ? 1 : ops::AttentionReference::kTileRows));
    vk::Arena scratch(pipelines_.device(), vk::MemoryDomain::kDevice, "attention scratch");
    ops::AttentionReference::Args args{.n_rows = test_.rows, .n_keys = test_.context()};
    side.scratch_bytes = op.scores_bytes(args.n_rows, args.n_keys);
    PUMICE_TRY(args.scores, scratch.allocate(side.scratch_bytes));
    side.allocated_bytes = scratch.allocated_bytes();
    PUMICE_TRY(args.y, bed_.output(inputs_->y_bytes()));
    const Record record = [&](vk::Recorder& recorder, const ops::AttentionBenchInputs::Call& call) {
      args.q = call.q;
      args.positions = call.positions;
      args.block_table = call.block_table;
      args.kv = call.kv;
      args.q_stride = call.q_stride;
      args.scale = call.scale;
      op.record(recorder, args);
    };
    return measure(record, args.y, ops::Math::kF32, side);
  }

  Status flash(const ops::FlashAttention& op, AttentionSide& side) {
    vk::Arena scratch(pipelines_.device(), vk::MemoryDomain::kDevice, "attention scratch");
    PUMICE_TRY(const vk::BufferRange y, bed_.output(inputs_->y_bytes()));
    const auto allocate = [&](uint64_t bytes) {
      side.scratch_bytes += bytes;
      return scratch.allocate(bytes);
    };
    PUMICE_TRY(const auto run,
               ops::FlashAttentionRun::make(bed_, test_, *inputs_, op, y, allocate));
    side.allocated_bytes = scratch.allocated_bytes();
    const Record record = [&](vk::Recorder& recorder, const ops::AttentionBenchInputs::Call& call) {
      run.record(recorder, call);
    };
    return measure(record, y, test_.rows > 1 ? op.tile_math() : op.row_math(), side);
  }

  Status measure(const Record& record, const vk::BufferRange& y, ops::Math math,
                 AttentionSide& side) {
    if (options_.stop && options_.stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    PUMICE_TRY_STATUS(pipelines_.compile());
    std::vector<Run> rotation;
    for (size_t copy = 0; copy < inputs_->n_copies(); ++copy) {
      rotation.emplace_back([&record, call = inputs_->call(copy)](vk::Recorder& recorder) {
        record(recorder, call);
      });
    }
    ops::PreparedOp prepared{.record = rotation[0], .expected = {inputs_->expect(math)}};
    prepared.expected[0].output = y;
    PUMICE_TRY_STATUS(ops::run_and_check(bed_, prepared));
    PUMICE_TRY_STATUS(compare(y, side));
    PUMICE_TRY(side.timing, time_runs(pipelines_.device(), rotation, options_));
    return {};
  }

  /// With the reference's output, which comes first.
  Status compare(const vk::BufferRange& y, AttentionSide& side) {
    PUMICE_TRY(const std::vector<std::byte> bytes, vk::download(pipelines_.device(), y));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    if (reference_y_.empty()) reference_y_ = values;
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(double{values[i]} - reference_y_[i]);
      side.largest_difference = std::max(side.largest_difference, difference);
    }
    return {};
  }

  vk::PipelineLibrary& pipelines_;
  ops::AttentionBenchCase test_;
  TimingOptions options_;
  ops::OpBed bed_;
  std::optional<ops::AttentionBenchInputs> inputs_;
  std::vector<float> reference_y_;
};

std::vector<const AttentionSide*> sides(const AttentionRow& row) {
  return {&row.reference, &row.same_tiles, &row.tuned};
}

/// How many times as fast as the reference; 0 if one of them has no time.
double speedup(const AttentionRow& row, const AttentionSide& side) {
  if (row.reference.error || side.error) return 0;
  return row.reference.median_ns() / side.median_ns();
}

Json to_json(const AttentionRow& row, const AttentionSide& side) {
  Json json{{"scratch_bytes", side.scratch_bytes},
            {"allocated_bytes", side.allocated_bytes},
            {"largest_difference", side.largest_difference},
            {"samples_ns", side.timing.samples_ns},
            {"bytes", side.timing.cost().bytes},
            {"flops", side.timing.cost().flops},
            {"device_clock", side.timing.device_clock}};
  std::vector<std::string> labels;
  for (const TimedCommand& command : side.timing.commands) labels.push_back(command.label);
  json["labels"] = labels;
  if (side.error) {
    json["error"] = side.error->message;
    return json;
  }
  json["median_ns"] = side.median_ns();
  if (const double factor = speedup(row, side); factor > 0) json["speedup"] = factor;
  return json;
}

std::string time_cell(const AttentionSide& side) {
  if (!side.error) return fmt::format("{:.3f}", side.median_ns() * 1e-6);
  return side.error->code == ErrorCode::kDoesNotFit ? "does not fit" : "WRONG or failed";
}

std::string factor_cell(const AttentionRow& row, const AttentionSide& side) {
  const double factor = speedup(row, side);
  return factor > 0 ? fmt::format("{:.2f}", factor) : "";
}

}  // namespace

double AttentionSide::median_ns() const { return summarize(timing.samples_ns).median; }

AttentionReport bench_attention(vk::PipelineLibrary& pipelines, const TimingOptions& options,
                                const std::function<bool(size_t done, size_t total)>& progress) {
  const bool is_cpu = pipelines.device()->plan().device_class == vk::DeviceClass::kCpu;
  AttentionReport report{.shape = {.n_heads = 32,
                                   .n_kv_heads = 8,
                                   .head_dim = is_cpu ? 64u : 128u,
                                   .kv_type = KvType::kF16},
                         .scaled_down = is_cpu};
  const uint32_t longest = is_cpu ? 2048 : 8192;
  const uint32_t chunk = is_cpu ? 64 : 512;
  std::vector<ops::AttentionBenchCase> tests;
  for (const uint32_t most_rows : {chunk, 1u}) {
    for (uint32_t context = 256; context <= longest; context *= 2) {
      const uint32_t rows = std::min(most_rows, context);
      tests.push_back({report.shape, context - rows, rows});
    }
  }
  for (size_t i = 0; i < tests.size(); ++i) {
    if (!progress(i, tests.size())) {
      report.ended = make_error(ErrorCode::kCancelled, "interrupted");
      break;
    }
    Result<AttentionRow> row = ShapeBench(pipelines, tests[i], options).run();
    if (row.ok()) {
      for (const AttentionSide* side : sides(*row)) {
        if (side->error && side->error->code == ErrorCode::kCancelled) row = *side->error;
        if (!row.ok()) break;
      }
    }
    if (!row.ok()) {
      report.ended = row.error();
      break;
    }
    report.rows.push_back(*std::move(row));
  }
  return report;
}

Status verdict(const AttentionReport& report) {
  if (report.ended) return *report.ended;
  for (const AttentionRow& row : report.rows) {
    for (const AttentionSide* side : sides(row)) {
      if (side->error && side->error->code != ErrorCode::kDoesNotFit) return *side->error;
    }
  }
  return {};
}

Json to_json(const AttentionReport& report) {
  Json rows = Json::array();
  for (const AttentionRow& row : report.rows) {
    rows.push_back({{"context", row.context},
                    {"rows", row.rows},
                    {"scores_bytes", row.scores_bytes},
                    {"unchunked_bytes", row.unchunked_bytes},
                    {"reference", to_json(row, row.reference)},
                    {"flash_same_tiles", to_json(row, row.same_tiles)},
                    {"flash", to_json(row, row.tuned)}});
  }
  Json json{{"bench", "attention"},
            {"n_heads", report.shape.n_heads},
            {"n_kv_heads", report.shape.n_kv_heads},
            {"head_dim", report.shape.head_dim},
            {"kv", "f16"},
            {"scaled_down", report.scaled_down},
            {"rows", rows}};
  if (report.ended) json["error"] = report.ended->message;
  return json;
}

std::string to_markdown(const AttentionReport& report) {
  std::string text = fmt::format(
      "Attention of one layer, {} heads that share {} of K and V, head_dim {}, KV f16{}. Times in "
      "ms; scratch in MiB, as the device gave it.\n\n"
      "| context | rows | scores in memory | flash, same tiles | times as fast | flash, as tuned | "
      "times as fast | scores MiB | allocated | flash allocated | whole prompt at once MiB |\n"
      "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n",
      report.shape.n_heads, report.shape.n_kv_heads, report.shape.head_dim,
      report.scaled_down ? "; scaled down for a CPU device" : "");
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const AttentionRow& row : report.rows) {
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.0f} |\n", row.context,
        row.rows, time_cell(row.reference), time_cell(row.same_tiles),
        factor_cell(row, row.same_tiles), time_cell(row.tuned), factor_cell(row, row.tuned),
        mib(row.scores_bytes), mib(row.reference.allocated_bytes), mib(row.tuned.allocated_bytes),
        mib(row.unchunked_bytes));
  }
  return text;
}

}  // namespace pumice::bench
