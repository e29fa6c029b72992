#include "engine/memory_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/engine_buffers.hpp"
#include "engine/kv_memory.hpp"
#include "models/weights.hpp"

namespace pumice {
namespace {

uint64_t largest_rope_table(const Program& program, uint32_t context_tokens) {
  uint64_t bytes = 0;
  for (const ops::RopeConfig& rope : program.ropes) {
    bytes = std::max(bytes, sizeof(float) * context_tokens * rope.dims);
  }
  return bytes;
}

}  // namespace

DeviceMemory device_memory(const vk::DeviceSnapshot& snapshot, const vk::DevicePlan& plan,
                           uint64_t used_bytes) {
  const vk::MemoryChoice& device = plan.domain(vk::MemoryDomain::kDevice);
  DeviceMemory memory{
      .name = snapshot.name,
      .free_bytes = plan.device_budget_bytes - std::min(plan.device_budget_bytes, used_bytes),
      .slab_bytes = plan.slab_bytes,
      .max_items = plan.max_workgroup_count[0],
      .maps_all = device.host_visible && device.coherent};
  for (size_t i = 0; i < memory.is_budgeted.size(); ++i) {
    memory.is_budgeted[i] = plan.is_budgeted(static_cast<vk::MemoryDomain>(i));
  }
  memory.beside = plan.beside_device();
  if (memory.beside) {
    const uint32_t heap = plan.domain(*memory.beside).heap;
    // The system and other programs live there too.
    memory.beside_bytes =
        heap < snapshot.heaps.size() ? snapshot.heaps[heap].size_bytes / 4 * 3 : UINT64_MAX;
  }
  return memory;
}

DeviceMemory device_memory(vk::Device& device) {
  return device_memory(device.snapshot(), device.plan(), device.ledger().budgeted_bytes());
}

uint64_t MemoryPlan::bytes(MemoryUse use) const {
  uint64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += line.use == use ? line.bytes : 0;
  return bytes;
}

uint64_t MemoryPlan::total_bytes(bool with_passing) const {
  uint64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += with_passing || !line.passing ? line.bytes : 0;
  return bytes;
}

std::vector<KvType> kv_choices(const Program& program) {
  std::vector<KvType> choices;
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) {
    const auto type = static_cast<KvType>(i);
    const bool holds_all = std::ranges::all_of(program.state_groups, [&](const StateGroup& group) {
      return group.recurrent || check_kv_types("", type, group.head_dim, group.v_dim).ok();
    });
    if (holds_all) choices.push_back(type);
  }
  return choices;
}

Result<MemoryPlanner> MemoryPlanner::of_plan(std::shared_ptr<const ModelPlan> model,
                                             DeviceMemory device, const FusionRules& fusion) {
  PUMICE_TRY(std::shared_ptr<const Lowered> lowered, model->lowered(fusion));
  WeightMemory weights = model->weights().memory(device.slab_bytes);
  return MemoryPlanner(std::move(model), std::move(lowered), std::move(device), std::move(weights));
}

Result<MemoryPlanner> MemoryPlanner::of_loaded(const Model& model, vk::Device& device,
                                               const FusionRules& fusion) {
  PUMICE_TRY(std::shared_ptr<const Lowered> lowered, model.plan->lowered(fusion));
  const uint64_t weights_bytes =
      model.weights->now()->allocated_bytes() - model.weights->beside_bytes();
  const uint64_t all_bytes = device.ledger().budgeted_bytes();
  const uint64_t used_bytes = all_bytes - std::min(all_bytes, weights_bytes);
  WeightMemory weights{.vectors_bytes = weights_bytes};  // and pieces, which lie where they are
  return MemoryPlanner(model.plan, std::move(lowered),
                       device_memory(device.snapshot(), device.plan(), used_bytes),
                       std::move(weights));
}

EngineOptions MemoryPlanner::with_context(EngineOptions options) const {
  if (options.context_tokens == 0) options.context_tokens = program().context_length;
  return options;
}

Result<EngineSizes> MemoryPlanner::sizes(EngineOptions options) const {
  return engine_sizes(program(), *lowered_, with_context(std::move(options)));
}

Result<MemoryPlan> MemoryPlanner::plan(const EngineOptions& given) const {
  const EngineOptions options = with_context(given);
  PUMICE_TRY(MemoryPlan plan, plan_all(options));
  if (plan.budgeted_bytes <= device_.free_bytes || !device_.beside) return plan;
  EngineOptions roomy = options;
  roomy.context_tokens =
      std::max(options.context_tokens, std::min(kRoomTokens, program().context_length));
  const Result<MemoryPlan> room = plan_all(roomy);
  if (room.ok() && place_beside(plan, room->budgeted_bytes - plan.budgeted_bytes)) return plan;
  place_beside(plan, 0);
  return plan;
}

/// Takes pieces off the device from the last one on, until `room_bytes` more are free. False, with
/// nothing changed: not even all are enough, or there is no memory for them.
bool MemoryPlanner::place_beside(MemoryPlan& plan, uint64_t room_bytes) const {
  auto n = static_cast<uint32_t>(weights_.pieces.size());
  uint64_t beside_bytes = 0;
  double read_bytes = 0;
  while (plan.budgeted_bytes - beside_bytes + room_bytes > device_.free_bytes) {
    if (n == 0) return false;
    const WeightMemory::Piece& piece = weights_.pieces[--n];
    beside_bytes += piece.allocated_bytes;
    read_bytes += piece.read_bytes;
  }
  if (beside_bytes > device_.beside_bytes) return false;
  plan.budgeted_bytes -= beside_bytes;
  plan.weight_pieces = n;
  plan.beside_bytes = beside_bytes;
  plan.beside_read_bytes = read_bytes;
  MemoryLine& weights = plan.lines.front();
  weights.bytes -= beside_bytes;
  plan.lines.insert(plan.lines.begin() + 1,
                    {kWeightsBeside, MemoryUse::kWeights, *device_.beside, beside_bytes});
  return true;
}

/// With all weights on the device.
Result<MemoryPlan> MemoryPlanner::plan_all(const EngineOptions& options) const {
  PUMICE_TRY(const EngineSizes sizes, this->sizes(options));
  using Domain = vk::MemoryDomain;
  const uint64_t slab_bytes = device_.slab_bytes;
  const uint64_t page_bytes = sizes.layout.page_bytes;
  MemoryPlan plan{
      .context_tokens = sizes.limits.context_tokens,
      .lines = {{"weights", MemoryUse::kWeights, Domain::kDevice, weights_.allocated_bytes()},
                {"KV cache", MemoryUse::kKv, Domain::kDevice,
                 KvMemory::allocated_bytes(page_bytes, sizes.n_pages, slab_bytes)}}};
  uint64_t largest = std::max(weights_.largest_bytes, page_bytes);
  const auto add = [&](const vk::ArenaLayout& arena, MemoryUse use) {
    const vk::ArenaSizes taken = arena.sizes(slab_bytes);
    largest = std::max(largest, taken.largest_bytes());
    if (plan.lines.back().purpose != arena.purpose()) {
      plan.lines.push_back({arena.purpose(), use, arena.domain()});
    }
    plan.lines.back().bytes += taken.allocated_bytes();
  };
  DecoderBuffers decoder;
  add(decoder.lay_out(*lowered_, program(), sizes.limits, slab_bytes), MemoryUse::kActivations);
  EngineBuffers engine;
  for (const vk::ArenaLayout& arena : engine.lay_out(sizes, options, program().n_vocab)) {
    add(arena, MemoryUse::kReserve);
  }
  // What loading stages is gone before anything but the weights is allocated.
  plan.lines.push_back({"staging", MemoryUse::kReserve, Domain::kUpload,
                        device_.maps_all ? 0 : largest_rope_table(program(), plan.context_tokens),
                        true});
  std::erase_if(plan.lines, [](const MemoryLine& line) { return line.bytes == 0; });
  for (const MemoryLine& line : plan.lines) {
    if (device_.is_budgeted[static_cast<size_t>(line.domain)]) plan.budgeted_bytes += line.bytes;
  }
  if (largest > slab_bytes) {
    plan.obstacle = fmt::format("needs {} in one piece, and {} has pieces of {}",
                                memory_text(largest), device_.name, memory_text(slab_bytes));
  } else if (sizes.step.attention_items > device_.max_items) {
    plan.obstacle = fmt::format("takes {} pieces of attention, and {} can dispatch {}",
                                sizes.step.attention_items, device_.name, device_.max_items);
  }
  return plan;
}

uint32_t MemoryPlanner::largest_context(EngineOptions options, uint32_t most) const {
  const uint32_t fitting = longest(options, most, false);
  const uint32_t room = std::min(most, kRoomTokens);
  if (fitting >= room || !device_.beside) return fitting;
  return std::max(fitting, longest(std::move(options), room, true));
}

uint32_t MemoryPlanner::longest(EngineOptions options, uint32_t most, bool beside) const {
  const auto holds = [&](uint32_t tokens) {
    options.context_tokens = tokens;
    const Result<MemoryPlan> plan = beside ? this->plan(options) : plan_all(options);
    return plan.ok() && fits(*plan);
  };
  if (most > 0 && holds(most)) return most;
  uint32_t fitting = 0;  // blocks; a longer context takes no less of anything
  uint32_t too_many = (most + kKvBlockTokens - 1) / kKvBlockTokens;
  while (too_many - fitting > 1) {
    const uint32_t middle = fitting + (too_many - fitting) / 2;
    (holds(middle * kKvBlockTokens) ? fitting : too_many) = middle;
  }
  return fitting * kKvBlockTokens;
}

std::string MemoryPlanner::what_would_fit(const EngineOptions& options) const {
  EngineOptions other = options;
  other.kv_blocks = 0;
  const uint32_t asked = options.context_tokens;
  std::vector<std::string> hints;
  uint32_t longest = largest_context(other, asked);
  if (longest > 0) hints.push_back(fmt::format("-c {}", longest));
  const uint64_t own_bytes = model_->state(options.kv_type).page_bytes;
  for (const KvType type : kv_choices(program())) {
    if (model_->state(type).page_bytes >= own_bytes) continue;
    other.kv_type = type;
    const uint32_t fitting = largest_context(other, asked);
    if (fitting <= longest) continue;
    longest = fitting;
    hints.push_back(fmt::format("-ctk {} -ctv {}{}", kv_type_name(type), kv_type_name(type),
                                fitting < asked ? fmt::format(" -c {}", fitting) : ""));
    if (fitting == asked) break;  // smaller types would lose more for nothing
  }
  if (hints.empty()) {
    if (device_.beside && !weights_.pieces.empty()) {
      const uint64_t too_many =
          weights_.allocated_bytes() - std::min(weights_.allocated_bytes(), device_.free_bytes);
      if (too_many <= device_.beside_bytes) {
        return "no context fits, even with weights in host memory";
      }
      return fmt::format("the weights alone are too large, even with the {} of host memory",
                         memory_text(device_.beside_bytes));
    }
    return weights_.allocated_bytes() > device_.free_bytes ? "the weights alone are too large"
                                                           : "no context fits beside the weights";
  }
  return fmt::format("{} would fit", fmt::join(hints, ", or "));
}

Status MemoryPlanner::check(const EngineOptions& given) const {
  const EngineOptions options = with_context(given);
  PUMICE_TRY(const MemoryPlan plan, this->plan(options));
  if (fits(plan)) return {};
  const std::string what =
      options.n_sequences == 1
          ? fmt::format("a context of {} tokens", options.context_tokens)
          : fmt::format("{} contexts of {} tokens", options.n_sequences, options.context_tokens);
  if (plan.budgeted_bytes <= device_.free_bytes) {
    return make_error(ErrorCode::kDoesNotFit, "{} {}: {}", what, plan.obstacle,
                      what_would_fit(options));
  }
  return make_error(
      ErrorCode::kDoesNotFit,
      "{} needs {} with the model: weights {}, KV {}, activations {}, reserve {}; {} has {} free, "
      "short by {}: {}",
      what, memory_text(plan.budgeted_bytes), memory_text(plan.bytes(MemoryUse::kWeights)),
      memory_text(plan.bytes(MemoryUse::kKv)), memory_text(plan.bytes(MemoryUse::kActivations)),
      memory_text(plan.bytes(MemoryUse::kReserve)), device_.name, memory_text(device_.free_bytes),
      memory_text(plan.budgeted_bytes - device_.free_bytes), what_would_fit(options));
}

std::string memory_text(uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.1f} MiB", mebibytes)
                          : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

}  // namespace pumice
