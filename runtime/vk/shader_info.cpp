#include "vk/shader_info.hpp"

#include <algorithm>
#include <unordered_map>

namespace pumice::vk {
namespace {

// The numbers below are the SPIR-V specification's.
constexpr uint32_t kMagic = 0x07230203;
constexpr uint32_t kHeaderWords = 5;
constexpr int kMaxTypeDepth = 16;

enum Op : uint32_t {
  kOpExtension = 10,
  kOpEntryPoint = 15,
  kOpExecutionMode = 16,
  kOpCapability = 17,
  kOpTypeInt = 21,
  kOpTypeFloat = 22,
  kOpTypeVector = 23,
  kOpTypeMatrix = 24,
  kOpTypeArray = 28,
  kOpTypeStruct = 30,
  kOpTypePointer = 32,
  kOpConstant = 43,
  kOpSpecConstant = 50,
  kOpSpecConstantComposite = 51,
  kOpConstantComposite = 44,
  kOpVariable = 59,
  kOpDecorate = 71,
  kOpMemberDecorate = 72,
  kOpExecutionModeId = 331,
};
constexpr uint32_t kExecutionModelGlCompute = 5;
constexpr uint32_t kModeLocalSize = 17;
constexpr uint32_t kModeLocalSizeId = 38;
constexpr uint32_t kStoragePushConstant = 9;
constexpr uint32_t kDecorationSpecId = 1;
constexpr uint32_t kDecorationArrayStride = 6;
constexpr uint32_t kDecorationMatrixStride = 7;
constexpr uint32_t kDecorationBuiltIn = 11;
constexpr uint32_t kDecorationOffset = 35;
constexpr uint32_t kBuiltInWorkgroupSize = 25;

struct Type {
  uint32_t op = 0;
  std::span<const uint32_t> operands;  // after the result id
};

struct Constant {
  uint32_t value = 0;
  bool specialised = false;
};

Error malformed(size_t word, std::string_view what) {
  return make_error(ErrorCode::kInternal, "SPIR-V word {}: {}", word, what);
}

uint64_t member_key(uint32_t id, uint32_t member) { return (uint64_t{id} << 32) | member; }

class Reader {
 public:
  explicit Reader(std::span<const uint32_t> words) : words_(words) {}

  Result<ShaderInfo> read() {
    if (words_.size() < kHeaderWords) return malformed(words_.size(), "too short for a header");
    if (words_[0] != kMagic) return malformed(0, "not SPIR-V of this byte order");
    info_.version = words_[1];
    for (size_t at = kHeaderWords; at < words_.size();) {
      const uint32_t count = words_[at] >> 16;
      if (count == 0) return malformed(at, "an instruction of no words");
      if (count > words_.size() - at) return malformed(at, "an instruction past the end");
      PUMICE_TRY_STATUS(instruction(at, words_[at] & 0xFFFFu, words_.subspan(at + 1, count - 1)));
      at += count;
    }
    if (entry_point_count_ != 1) {
      return malformed(words_.size(), "not exactly one compute entry point");
    }
    for (const auto& [id, spec_id] : spec_ids_) info_.spec_constant_ids.push_back(spec_id);
    std::ranges::sort(info_.spec_constant_ids);
    PUMICE_TRY_STATUS(workgroup());
    PUMICE_TRY_STATUS(push_constants());
    return std::move(info_);
  }

 private:
  using Operands = std::span<const uint32_t>;

  static uint32_t least_operands(uint32_t op) {
    constexpr std::pair<uint32_t, uint32_t> kLeast[] = {
        {kOpExtension, 1},       {kOpCapability, 1},        {kOpTypeStruct, 1},
        {kOpTypeFloat, 2},       {kOpDecorate, 2},          {kOpExecutionMode, 2},
        {kOpExecutionModeId, 2}, {kOpConstantComposite, 2}, {kOpSpecConstantComposite, 2},
        {kOpTypeInt, 3},         {kOpTypeVector, 3},        {kOpTypeMatrix, 3},
        {kOpTypeArray, 3},       {kOpTypePointer, 3},       {kOpEntryPoint, 3},
        {kOpConstant, 3},        {kOpSpecConstant, 3},      {kOpVariable, 3},
        {kOpMemberDecorate, 3}};
    const auto* known = std::ranges::find(kLeast, op, &std::pair<uint32_t, uint32_t>::first);
    return known == std::end(kLeast) ? 0 : known->second;
  }

  Status instruction(size_t at, uint32_t op, Operands operands) {
    if (operands.size() < least_operands(op)) return malformed(at, "too few operands");
    switch (op) {
      case kOpCapability:
        info_.capabilities.push_back(operands[0]);
        break;
      case kOpExtension: {
        PUMICE_TRY(std::string name, literal(at, operands));
        info_.extensions.push_back(std::move(name));
        break;
      }
      case kOpEntryPoint:
        return entry_point(at, operands);
      case kOpExecutionMode:
      case kOpExecutionModeId:
        return execution_mode(at, operands);
      case kOpTypeInt:
      case kOpTypeFloat:
      case kOpTypeVector:
      case kOpTypeMatrix:
      case kOpTypeArray:
      case kOpTypeStruct:
      case kOpTypePointer:
        types_[operands[0]] = {op, operands.subspan(1)};
        break;
      case kOpConstant:
      case kOpSpecConstant:
        constants_[operands[1]] = {operands[2], op == kOpSpecConstant};
        break;
      case kOpConstantComposite:
      case kOpSpecConstantComposite:
        composites_[operands[1]] = operands.subspan(2);
        break;
      case kOpVariable:
        if (operands[2] == kStoragePushConstant) push_pointer_ = operands[0];
        break;
      case kOpDecorate:
        return decoration(at, operands);
      case kOpMemberDecorate:
        return member_decoration(at, operands);
      default:
        break;
    }
    return {};
  }

  Status entry_point(size_t at, Operands operands) {
    if (operands[0] != kExecutionModelGlCompute) return malformed(at, "not a compute shader");
    ++entry_point_count_;
    entry_id_ = operands[1];
    PUMICE_TRY(info_.entry_point, literal(at, operands.subspan(2)));
    return {};
  }

  Status execution_mode(size_t at, Operands operands) {
    const uint32_t mode = operands[1];
    if (mode != kModeLocalSize && mode != kModeLocalSizeId) return {};
    if (operands.size() < 5) return malformed(at, "a workgroup size without three numbers");
    size_is_id_ = mode == kModeLocalSizeId;
    std::copy_n(operands.begin() + 2, 3, size_.begin());
    return {};
  }

  Status decoration(size_t at, Operands operands) {
    const uint32_t kind = operands[1];
    if (kind != kDecorationSpecId && kind != kDecorationArrayStride && kind != kDecorationBuiltIn) {
      return {};
    }
    if (operands.size() < 3) return malformed(at, "a decoration without its number");
    if (kind == kDecorationSpecId) spec_ids_[operands[0]] = operands[2];
    if (kind == kDecorationArrayStride) array_strides_[operands[0]] = operands[2];
    if (kind == kDecorationBuiltIn && operands[2] == kBuiltInWorkgroupSize) {
      workgroup_builtin_ = operands[0];
    }
    return {};
  }

  Status member_decoration(size_t at, Operands operands) {
    const uint32_t kind = operands[2];
    if (kind != kDecorationOffset && kind != kDecorationMatrixStride) return {};
    if (operands.size() < 4) return malformed(at, "a member decoration without its number");
    auto& map = kind == kDecorationOffset ? offsets_ : matrix_strides_;
    map[member_key(operands[0], operands[1])] = operands[3];
    return {};
  }

  Result<std::string> literal(size_t at, Operands operands) {
    std::string text;
    for (const uint32_t word : operands) {
      for (int shift = 0; shift < 32; shift += 8) {
        const char c = static_cast<char>((word >> shift) & 0xFFu);
        if (c == '\0') return text;
        text += c;
      }
    }
    return malformed(at, "a string without an end");
  }

  // Either an execution mode (numbers or ids) or, taking precedence, the WorkgroupSize builtin.
  Status workgroup() {
    if (workgroup_builtin_) {
      const auto composite = composites_.find(*workgroup_builtin_);
      if (composite == composites_.end() || composite->second.size() != 3) {
        return malformed(words_.size(), "a WorkgroupSize that is not three constants");
      }
      std::copy_n(composite->second.begin(), 3, size_.begin());
      size_is_id_ = true;
    }
    if (!size_is_id_) {
      info_.workgroup_size = size_;
      return {};
    }
    for (size_t i = 0; i < 3; ++i) {
      const auto constant = constants_.find(size_[i]);
      if (constant == constants_.end()) {
        return malformed(words_.size(), "a workgroup size that is not a constant");
      }
      info_.workgroup_size[i] = constant->second.value;
      const auto spec = spec_ids_.find(size_[i]);
      if (constant->second.specialised && spec != spec_ids_.end()) {
        info_.workgroup_spec_ids[i] = spec->second;
      }
    }
    return {};
  }

  Status push_constants() {
    if (!push_pointer_) return {};
    const auto pointer = types_.find(*push_pointer_);
    if (pointer == types_.end() || pointer->second.op != kOpTypePointer) {
      return malformed(words_.size(), "a push constant block that is not behind a pointer");
    }
    PUMICE_TRY(const uint64_t bytes, size_of(pointer->second.operands[1], 0));
    info_.push_constant_bytes = static_cast<uint32_t>(bytes);
    return {};
  }

  // `steps_` bounds the whole walk, since struct members may repeat a type to any depth.
  Result<uint64_t> size_of(uint32_t id, int depth) {
    const auto found = types_.find(id);
    if (found == types_.end() || depth > kMaxTypeDepth || ++steps_ > words_.size()) {
      return malformed(words_.size(), "a push constant of unknown or endless type");
    }
    const Type& type = found->second;
    uint64_t bytes = 0;
    switch (type.op) {
      case kOpTypeInt:
      case kOpTypeFloat:
        bytes = type.operands[0] / 8;
        break;
      case kOpTypePointer:
        bytes = 8;
        break;
      case kOpTypeVector: {
        PUMICE_TRY(const uint64_t element, size_of(type.operands[0], depth + 1));
        bytes = element * type.operands[1];
        break;
      }
      case kOpTypeArray: {
        const auto length = constants_.find(type.operands[1]);
        const auto stride = array_strides_.find(id);
        if (length == constants_.end() || stride == array_strides_.end()) {
          return malformed(words_.size(), "a push constant array without length or stride");
        }
        bytes = uint64_t{length->second.value} * stride->second;
        break;
      }
      case kOpTypeStruct:
        for (uint32_t i = 0; i < type.operands.size(); ++i) {
          PUMICE_TRY(const uint64_t end, member_end(id, type, i, depth));
          bytes = std::max(bytes, end);
        }
        break;
      default:
        return malformed(words_.size(), "a push constant of unsupported type");
    }
    if (bytes > UINT32_MAX) return malformed(words_.size(), "a push constant block too large");
    return bytes;
  }

  Result<uint64_t> member_end(uint32_t id, const Type& type, uint32_t member, int depth) {
    const auto offset = offsets_.find(member_key(id, member));
    if (offset == offsets_.end()) {
      return malformed(words_.size(), "a push constant member without an offset");
    }
    const auto matrix = types_.find(type.operands[member]);
    if (matrix != types_.end() && matrix->second.op == kOpTypeMatrix) {
      const auto stride = matrix_strides_.find(member_key(id, member));
      if (stride == matrix_strides_.end()) {
        return malformed(words_.size(), "a push constant matrix without a stride");
      }
      return offset->second + uint64_t{stride->second} * matrix->second.operands[1];
    }
    PUMICE_TRY(const uint64_t bytes, size_of(type.operands[member], depth + 1));
    return offset->second + bytes;
  }

  std::span<const uint32_t> words_;
  ShaderInfo info_;
  uint32_t entry_point_count_ = 0;
  uint32_t entry_id_ = 0;
  size_t steps_ = 0;
  bool size_is_id_ = false;
  std::array<uint32_t, 3> size_ = {1, 1, 1};
  std::optional<uint32_t> workgroup_builtin_;
  std::optional<uint32_t> push_pointer_;
  std::unordered_map<uint32_t, Type> types_;
  std::unordered_map<uint32_t, Constant> constants_;
  std::unordered_map<uint32_t, Operands> composites_;
  std::unordered_map<uint32_t, uint32_t> spec_ids_;
  std::unordered_map<uint32_t, uint32_t> array_strides_;
  std::unordered_map<uint64_t, uint32_t> offsets_;
  std::unordered_map<uint64_t, uint32_t> matrix_strides_;
};

}  // namespace

bool ShaderInfo::has_capability(uint32_t capability) const {
  return std::ranges::find(capabilities, capability) != capabilities.end();
}

bool ShaderInfo::has_spec_constant(uint32_t id) const {
  return std::binary_search(spec_constant_ids.begin(), spec_constant_ids.end(), id);
}

Result<ShaderInfo> read_shader_info(std::span<const uint32_t> words) {
  return Reader(words).read();
}

}  // namespace pumice::vk
