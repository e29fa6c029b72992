// Models with random weights: real shapes, real metadata, a working vocabulary, and text that means
// nothing. For benchmarks and tests on machines that have no model file. Norms are near one and
// matrices have deviation gain / √fan_in, so activations keep their size and logits stay near a
// normal distribution.
//
// A SyntheticModel holds descriptions only; weights are made piece by piece when asked for
// (format/random_weights.hpp), for a file or for device memory. Everything is a function of
// (shape, options), the same on any host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/gguf_writer.hpp"
#include "format/random_weights.hpp"

namespace pumice {

struct Program;

/// Dimensions as in the GGUF keys of an architecture. All else follows from the architecture's page:
/// which tensors the model has, of which shapes, and from the operations that read them, how their
/// numbers are spread.
struct SyntheticShape {
  std::string_view name;
  std::string_view stands_for;  ///< the model with these dimensions; may be empty
  uint32_t n_layers = 2;
  uint32_t n_embd = 256;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t n_ff = 512;
  uint32_t n_vocab = 512;  ///< below kMinSyntheticVocabulary: no tokenizer
  uint32_t context_length = 2048;
  float rope_base = 10000.0f;
  float rope_factor = 1.0f;  ///< above 1: Llama 3's divisors of the rotary frequencies
  bool tied = false;         ///< the embedding is the output matrix too
  uint32_t n_experts = 0;    ///< 0: a dense feed-forward
  uint32_t n_experts_used = 0;
  float gain = 1.0f;
  std::string_view architecture = "llama";
  uint32_t head_dim = 0;          ///< 0: n_embd / n_heads
  uint32_t window = 0;            ///< keys that layers with a window see; 0: no key says so
  uint32_t rope_dims = 0;         ///< 0: head_dim
  float rope_linear = 1.0f;       ///< above 1: positions are divided by it
  uint32_t original_context = 0;  ///< above 0: LongRoPE's divisors in longer contexts
  float eps = 1e-5f;
  float rope_yarn = 1.0f;  ///< above 1: YaRN's factor, by which the context was lengthened
  bool predicts = false;   ///< with a block that predicts the token after the next, behind n_layers
  /// Further keys of the metadata, or other values of those above, and tensors that files may leave
  /// out, with spaces between them. "key=value": of the architecture, or with @ before it of none;
  /// true, false, a count, a number (with a point or an exponent) or a text; several with commas are
  /// a list by layer, which begins again where there are more layers. "+tensor" or "+tensor:AxB",
  /// where its page reads dimensions of it; {} stands for each layer. "experts" and other names of
  /// groups stand for what architectures have in common (synthetic_metadata.cpp).
  std::string_view extras = {};

  uint32_t heads_of() const { return head_dim != 0 ? head_dim : n_embd / n_heads; }
  uint32_t rotated() const { return rope_dims != 0 ? rope_dims : heads_of(); }
};

/// Models that people run, smallest first, then a small one of each architecture, of its name.
std::vector<SyntheticShape> synthetic_presets();
/// Errors (kInvalidArgument) name the known ones.
Result<SyntheticShape> find_synthetic_preset(std::string_view name);

/// A type of weights by its name in any case, as in "q4_k". Errors (kInvalidArgument) name those
/// that models may use.
Result<const WeightType*> parse_weight_type(std::string_view name);

struct SyntheticOptions {
  /// Of the matrices. As in files that people download, the output matrix (or the tied embedding)
  /// of types below Q6_K is Q6_K, unless `pure`; expert routers and vectors are F32.
  const WeightType* type = &weight_type("Q4_K");
  bool pure = false;
  uint64_t seed = 1;
};

struct SyntheticTensor {
  std::string name;
  const WeightType* type;
  std::vector<uint64_t> dims;  ///< as in GgufTensor
  float deviation = 0;
  float mean = 0;
  std::vector<float> values = {};  ///< if not empty, these instead of random ones; F32

  uint64_t n_elements() const;
  uint64_t n_bytes() const { return type->file_bytes(n_elements()); }
};

class SyntheticModel {
 public:
  /// Rows that are not a multiple of a type's block get the type's fallback, and F16 where they are
  /// not of that one's either. Errors (kInvalidArgument): a type without codec, what the
  /// architecture's page says of the metadata.
  static Result<SyntheticModel> create(const SyntheticShape& shape,
                                       const SyntheticOptions& options);

  /// "preset[:type[:pure]]", as in "llama-8b:q4_k"; seed 1. Errors (kInvalidArgument) name what is
  /// known.
  static Result<SyntheticModel> parse(std::string_view text);

  const SyntheticShape& shape() const { return shape_; }
  /// In file order.
  std::span<const SyntheticTensor> tensors() const& { return tensors_; }
  std::span<const SyntheticTensor> tensors() && = delete;
  uint64_t n_parameters() const;
  uint64_t data_bytes() const;  ///< of the tensors in a file, without padding

  /// Metadata, vocabulary and tensor infos of a GGUF file.
  GgufHeader header() const;

  /// The blocks of a tensor of this model from `first_block` on; any number of threads at once.
  void fill(const SyntheticTensor& tensor, uint64_t first_block, std::span<std::byte> out) const;
  /// The same for many calls; valid as long as the tensor.
  std::function<void(uint64_t first_block, std::span<std::byte> out)> filler(
      const SyntheticTensor& tensor) const;

 private:
  SyntheticModel(const SyntheticShape& shape, const SyntheticOptions& options)
      : shape_(shape), options_(options) {}
  std::vector<SyntheticTensor> asked_for() const;
  Status add_tensors();
  void add_tensors_of(const Program& program, const SyntheticModel& metadata);

  SyntheticShape shape_;
  SyntheticOptions options_;
  std::vector<SyntheticTensor> tensors_;
  bool has_vocabulary_ = true;
};

/// Called with bytes of tensor data done and in all; an error ends the writing and is returned.
using SyntheticProgress = std::function<Status(uint64_t done, uint64_t total)>;

/// Write a GGUF file, filling blocks on several threads in a fixed few MiB of memory. Errors leave
/// nothing behind: kDoesNotFit (the disk, asked before anything is written), else OutputFile's.
Status write_synthetic_model(const SyntheticModel& model, const std::filesystem::path& path,
                             const SyntheticProgress& progress = {},
                             OutputFile::Existing existing = OutputFile::Existing::kReplace);

}  // namespace pumice
