// Random LoRA adapters of small models, as files in memory, and what they add.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/adapter.hpp"
#include "models/families.hpp"
#include "tests/models/small_file.hpp"

namespace pumice::test {

/// What tests change of an adapter's file.
struct SmallAdapterFile {
  std::string architecture;
  std::string general_type = "adapter";
  std::string type = "lora";
  float alpha = 0;
  std::vector<SmallTensor> tensors = {};
  bool activated = false;

  std::shared_ptr<const GgufFile> file() const {
    GgufHeader header;
    header.set("general.architecture", architecture);
    header.set("general.type", general_type);
    header.set("adapter.type", type);
    header.set("adapter.lora.alpha", alpha);
    if (activated) {
      const std::vector<uint32_t> words = {1, 2};
      header.set_array("adapter.alora.invocation_tokens", std::span<const uint32_t>(words));
    }
    const auto small = std::make_shared<const SmallFile>(tensors, header);
    return {small, &small->file()};
  }
};

/// Of every matrix that adapters may add to, `rank` ranks, or of every second one one rank more.
class SmallAdapter {
 public:
  SmallAdapter(const Program& base, uint32_t seed, uint32_t rank, float alpha)
      : file_{.architecture = base.architecture, .alpha = alpha} {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.3f);
    std::set<TensorId> seen;
    for (const Op& op : base.ops) {
      const auto* const linear = std::get_if<op::Linear>(&op.what);
      if (linear == nullptr || !seen.insert(linear->weight.tensor).second) continue;
      const TensorSpec& tensor = base.tensors[linear->weight.tensor];
      if (tensor.name == "token_embd.weight") continue;
      const uint64_t ranks = rank + seen.size() % 2;
      SmallTensor a{.name = tensor.name + ".lora_a", .dims = {tensor.dims[0], ranks}};
      SmallTensor b{.name = tensor.name + ".lora_b", .dims = {ranks, tensor.dims[1]}};
      for (uint64_t i = 0; i < tensor.dims[0] * ranks; ++i) a.values.push_back(normal(random));
      for (uint64_t i = 0; i < ranks * tensor.dims[1]; ++i) b.values.push_back(normal(random));
      const double scale = alpha == 0 ? 1 : double{alpha} / static_cast<double>(ranks);
      std::vector<double>& sum = added_[tensor.name];
      sum.assign(tensor.n_elements(), 0);
      for (uint64_t row = 0; row < tensor.dims[1]; ++row) {
        for (uint64_t r = 0; r < ranks; ++r) {
          for (uint64_t i = 0; i < tensor.dims[0]; ++i) {
            sum[row * tensor.dims[0] + i] +=
                scale * b.values[row * ranks + r] * a.values[r * tensor.dims[0] + i];
          }
        }
      }
      file_.tensors.push_back(std::move(a));
      file_.tensors.push_back(std::move(b));
    }
  }

  AdapterSource source(std::string name) const {
    return AdapterSource::of_file(std::move(name), file_.file()).value();
  }
  SmallAdapterFile& description() { return file_; }
  /// By matrix of the base: s B A.
  const std::map<std::string, std::vector<double>>& added() const { return added_; }

 private:
  SmallAdapterFile file_;
  std::map<std::string, std::vector<double>> added_;
};

}  // namespace pumice::test
