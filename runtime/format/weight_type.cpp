#include "format/weight_type.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "format/weight_codecs.hpp"
#include "format/weight_codecs_iq.hpp"
#include "format/weight_grids.hpp"

namespace pumice {
namespace {

template <typename Codec>
constexpr WeightType usable(uint32_t ggml_id, std::string_view name, uint32_t block_elements,
                            uint32_t block_bytes, uint32_t file_type,
                            std::string_view fallback = {}, std::span<const uint32_t> grid = {},
                            std::string_view shaders = {}) {
  static_assert(Codec::kLayout.n_units <= TileRow::kMaxUnits);
  static_assert(Codec::kLayout.n_words <= TileRow::kMaxWords);
  static_assert(Codec::kLayout.tile_cols % kWeightBlockCols == 0);
  // clang-format off
  return {ggml_id, name, block_elements, block_bytes,
          Codec::kLayout, &*Codec::pack, &*Codec::unpack,
          grid, shaders.empty() ? name : shaders, file_type, fallback};
  // clang-format on
}
constexpr WeightType listed(uint32_t ggml_id, std::string_view name, uint32_t block_elements,
                            uint32_t block_bytes) {
  return {ggml_id, name, block_elements, block_bytes, {}, nullptr, nullptr, {}, {}, 0, {}};
}

// ggml's number, the name, elements and bytes of a block, the file type; then the fallback, the grid
// and whose shaders, where a type has them.
// 31–33 and 36–38 left ggml but are in files of 2024; 4 and 5 left before GGUF existed.
constexpr WeightType kTypes[] = {
    usable<codecs::F32>(0, "F32", 1, 4, 0),
    usable<codecs::F16>(1, "F16", 1, 2, 1),
    usable<codecs::Q4_0>(2, "Q4_0", 32, 18, 2),
    usable<codecs::Q4_1>(3, "Q4_1", 32, 20, 3),
    usable<codecs::Q5_0>(6, "Q5_0", 32, 22, 8),
    usable<codecs::Q5_1>(7, "Q5_1", 32, 24, 9),
    usable<codecs::Q8_0>(8, "Q8_0", 32, 34, 7),
    listed(9, "Q8_1", 32, 36),
    usable<codecs::Q2_K>(10, "Q2_K", 256, 84, 10, "Q4_0"),
    usable<codecs::Q3_K>(11, "Q3_K", 256, 110, 11, "Q4_0"),
    usable<codecs::Q4_K>(12, "Q4_K", 256, 144, 14, "Q5_0"),
    usable<codecs::Q5_K>(13, "Q5_K", 256, 176, 16, "Q5_1"),
    usable<codecs::Q6_K>(14, "Q6_K", 256, 210, 18, "Q8_0"),
    listed(15, "Q8_K", 256, 292),
    usable<codecs::IQ2_XXS>(16, "IQ2_XXS", 256, 66, 19, "IQ4_NL", kIq2XXSGrid),
    usable<codecs::IQ2_XS>(17, "IQ2_XS", 256, 74, 20, "IQ4_NL", kIq2XSGrid),
    usable<codecs::IQ3_XXS>(18, "IQ3_XXS", 256, 98, 23, "IQ4_NL", kIq3XXSGrid),
    usable<codecs::IQ1_S>(19, "IQ1_S", 256, 50, 24, "IQ4_NL", kIq1SGrid),
    usable<codecs::IQ4_NL>(20, "IQ4_NL", 32, 18, 25),
    usable<codecs::IQ3_S>(21, "IQ3_S", 256, 110, 26, "IQ4_NL", kIq3SGrid),
    usable<codecs::IQ2_S>(22, "IQ2_S", 256, 82, 28, "IQ4_NL", kIq2SGrid),
    usable<codecs::IQ4_XS>(23, "IQ4_XS", 256, 136, 30, "IQ4_NL"),
    listed(24, "I8", 1, 1),
    listed(25, "I16", 1, 2),
    listed(26, "I32", 1, 4),
    listed(27, "I64", 1, 8),
    listed(28, "F64", 1, 8),
    usable<codecs::IQ1_M>(29, "IQ1_M", 256, 56, 31, "IQ4_NL", kIq1SGrid),
    usable<codecs::BF16>(30, "BF16", 1, 2, 32),
    listed(31, "Q4_0_4_4", 32, 18),
    listed(32, "Q4_0_4_8", 32, 18),
    listed(33, "Q4_0_8_8", 32, 18),
    usable<codecs::TQ1_0>(34, "TQ1_0", 256, 54, 36, "Q4_0", {}, "TQ2_0"),
    usable<codecs::TQ2_0>(35, "TQ2_0", 256, 66, 37, "Q4_0"),
    listed(36, "IQ4_NL_4_4", 32, 18),
    listed(37, "IQ4_NL_4_8", 32, 18),
    listed(38, "IQ4_NL_8_8", 32, 18),
    usable<codecs::MXFP4>(39, "MXFP4", 32, 17, 38),
    listed(40, "NVFP4", 64, 36),
    listed(41, "Q1_0", 128, 18),
};

}  // namespace

std::span<const WeightType> weight_types() { return kTypes; }

const WeightType* find_weight_type(uint32_t ggml_id) {
  const auto* found = std::ranges::find(kTypes, ggml_id, &WeightType::ggml_id);
  return found == std::end(kTypes) ? nullptr : found;
}

const WeightType* find_weight_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &WeightType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

const WeightType& weight_type(std::string_view name) {
  const WeightType* type = find_weight_type(name);
  PUMICE_CHECK(type != nullptr, "no weight type is called " + std::string(name));
  return *type;
}

void dequantize(const WeightType& type, const std::byte* blocks, size_t n_elements, float* out) {
  PUMICE_CHECK(type.has_codec(), "this type cannot be dequantised");
  PUMICE_CHECK(n_elements % type.block_elements == 0, "only whole blocks can be dequantised");
  const uint32_t tile_cols = type.layout.tile_cols;
  for (size_t first = 0; first < n_elements; first += tile_cols) {
    const auto n_cols = static_cast<uint32_t>(std::min<size_t>(tile_cols, n_elements - first));
    TileRow row;
    type.pack(blocks + type.file_bytes(first), n_cols, row);
    for (uint32_t col = 0; col < n_cols; col += kWeightBlockCols) {
      float values[kWeightBlockCols];
      type.unpack(row, col / kWeightBlockCols, values);
      std::memcpy(out + first + col, values,
                  std::min(kWeightBlockCols, n_cols - col) * sizeof(float));
    }
  }
}

}  // namespace pumice
