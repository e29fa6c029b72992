// A GGUF file of any bytes: opened, described as a model and as a vocabulary. Memory stays below
// the file's size and 64 MiB.
#include "format/gguf.hpp"
#include "models/decoder_buffers.hpp"
#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/program_text.hpp"
#include "models/vocabulary_loader.hpp"
#include "models/weights.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "text/detokenizer.hpp"

namespace pumice::fuzz {
namespace {

constexpr size_t kAllowanceBytes = size_t{64} << 20;
constexpr std::string_view kName = "fuzzed";

void read_metadata(const GgufFile& file) {
  for (const GgufValue& value : file.metadata()) {
    promise(file.find(value.key) == &value, "keys are unique");
    promise(value.describe().size() < 4096, "a description is short");
    if (const Result<GgufStrings> strings = value.as_strings(); strings.ok()) {
      size_t bytes = 0;
      for (const std::string_view text : *strings) bytes += text.size();
      promise(bytes <= file.size_bytes(), "strings are inside the file");
    }
    (void)value.as_vector<float>(1 << 20);
    (void)value.as_vector<int32_t>(1 << 20);
  }
}

void read_tensors(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    promise(file.find_tensor(tensor.name) == &tensor, "tensor names are unique");
    if (!file.has_tensor_data() || tensor.n_bytes == 0) continue;
    std::byte end;
    promise(file.read(tensor, 0, {&end, 1}).ok(), "a tensor's first byte is in the file");
    promise(file.read(tensor, tensor.n_bytes - 1, {&end, 1}).ok(), "and its last");
    sum += tensor.n_bytes;
  }
  promise(sum <= file.size_bytes(), "tensors do not overlap");
}

void read_model(const GgufFile& file) {
  const Result<Program> program = build_program(file);
  if (!program.ok()) return check_error(program.error());
  promise(!program_text(*program).empty(), "a program has a text");
  const Result<Lowered> lowered = lower(*program);
  if (!lowered.ok()) return check_error(lowered.error());
  promise(lower(*program, FusionRules::none()).ok(), "rules do not decide what can be run");
  (void)weight_layout(file, *program, *lowered).memory(uint64_t{1} << 30);
  (void)plan_activations(*lowered, {.rows = 512, .logit_rows = 1});
  (void)page_kinds(*program, state_layout(*program, KvType::kF16));
}

void read_vocabulary(const GgufFile& file) {
  const Result<Tokenizer> tokenizer = load_tokenizer(file);
  if (!tokenizer.ok()) return check_error(tokenizer.error());
  const auto ids = tokenizer->encode("a ab <s> \xFF", {.parse_special = true});
  promise(ids.ok(), "any text has tokens");
  for (const TokenId id : *ids) promise(tokenizer->vocabulary().contains(id), "tokens exist");
  (void)detokenize(*tokenizer, *ids);
}

void run(std::span<const std::byte> bytes) {
  const MemoryMeter memory;
  {
    const Result<GgufFile> file = GgufFile::from_memory(bytes, kName);
    if (!file.ok()) {
      check_error(file.error());
      promise(file.error().code == ErrorCode::kBadFile, "a bad file is a bad file");
    } else {
      read_metadata(*file);
      read_tensors(*file);
      read_model(*file);
      read_vocabulary(*file);
    }
  }
  promise(memory.peak_bytes() <= bytes.size() + kAllowanceBytes,
          fmt::format("{} bytes cost {} of memory", bytes.size(), memory.peak_bytes()));
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pumice::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
