// A Nemotron 3 made of the golden Nemotron-H: what each of its feed-forwards computes, by experts.
// So it has the other's logits, though the shared data has no file of it.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model_source.hpp"
#include "tests/models/small_file.hpp"

namespace pumice::test {

class SplitNemotron {
 public:
  static constexpr uint32_t kEmbd = 128;
  static constexpr uint32_t kFf = 256;
  static constexpr uint32_t kExperts = 4;
  static constexpr uint32_t kExpertFf = 96;  ///< of experts 1 and 3, which every token takes
  static constexpr uint32_t kSharedFf = kFf - 2 * kExpertFf;
  static constexpr uint32_t kLatent = 160;  ///< the row backwards, then zeros

  explicit SplitNemotron(const ModelSource& golden) {
    for (const GgufTensor& tensor : golden.file().tensors()) {
      const std::vector<float> values = golden.values(tensor).value();
      const std::string name(tensor.name);
      const std::string layer = name.substr(0, name.find("ffn_"));
      if (name.ends_with("ffn_up.weight")) {
        add_router(layer);
        add_up(layer, values);
      } else if (name.ends_with("ffn_down.weight")) {
        add_down(layer, values);
      } else {
        tensors_.push_back(
            {name, {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims}, values});
      }
    }
  }

  std::unique_ptr<SmallFile> file() const {
    GgufHeader header;
    header.set("general.architecture", "nemotron_h_moe");
    const auto set = [&](const std::string& key, auto value) {
      header.set("nemotron_h_moe." + key, value);
    };
    const auto set_layers = [&](const std::string& key, const std::vector<uint32_t>& values) {
      header.set_array("nemotron_h_moe." + key, std::span<const uint32_t>(values));
    };
    set("context_length", 1024u);
    set("embedding_length", kEmbd);
    set("block_count", 5u);
    set_layers("feed_forward_length", {0, kExpertFf, 0, 0, kExpertFf});
    set("attention.head_count", 4u);
    set_layers("attention.head_count_kv", {0, 0, 2, 0, 0});
    set("attention.layer_norm_rms_epsilon", 1e-5f);
    set("ssm.conv_kernel", 4u);
    set("ssm.inner_size", 256u);
    set("ssm.state_size", 32u);
    set("ssm.time_step_rank", 8u);
    set("ssm.group_count", 2u);
    set("expert_count", kExperts);
    set("expert_used_count", 2u);
    set("expert_feed_forward_length", kExpertFf);
    set("expert_shared_feed_forward_length", kSharedFf);
    set("expert_shared_count", 1u);
    set("expert_weights_norm", true);
    set("expert_weights_scale", 2.0f);  // of two weights of a half
    set("moe_latent_size", kLatent);
    return std::make_unique<SmallFile>(tensors_, std::move(header));
  }

 private:
  /// Where of the latent a number of the row is.
  static size_t in_latent(size_t i) { return kEmbd - 1 - i; }
  /// Of experts that nobody takes, and of the latent's zeros.
  static float junk(size_t i) { return std::sin(static_cast<float>(i)); }
  static std::vector<float> all_junk(size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = junk(i);
    return values;
  }

  /// All scores are alike; biases choose.
  void add_router(const std::string& layer) {
    tensors_.push_back({layer + "ffn_gate_inp.weight", {kEmbd, kExperts}});
    tensors_.push_back({layer + "exp_probs_b.bias", {kExperts}, {-1, 1, 0, 1}});
    SmallTensor down{layer + "ffn_latent_down.weight", {kEmbd, kLatent}};
    SmallTensor up{layer + "ffn_latent_up.weight", {kLatent, kEmbd}};
    down.values.resize(size_t{kEmbd} * kLatent);
    up.values.resize(size_t{kEmbd} * kLatent);
    for (size_t i = 0; i < kEmbd; ++i) {
      down.values[in_latent(i) * kEmbd + i] = 1;
      up.values[i * kLatent + in_latent(i)] = 1;
    }
    tensors_.push_back(std::move(down));
    tensors_.push_back(std::move(up));
  }

  /// `values`: [kFf][kEmbd]
  void add_up(const std::string& layer, const std::vector<float>& values) {
    std::vector<float> experts = all_junk(size_t{kExperts} * kExpertFf * kLatent);
    for (size_t unit = 0; unit < 2 * kExpertFf; ++unit) {
      float* const row = &experts[expert_row(unit) * kLatent];
      for (size_t i = 0; i < kEmbd; ++i) row[in_latent(i)] = values[unit * kEmbd + i];
    }
    tensors_.push_back({layer + "ffn_up_exps.weight", {kLatent, kExpertFf, kExperts}, experts});
    tensors_.push_back({layer + "ffn_up_shexp.weight",
                        {kEmbd, kSharedFf},
                        {values.begin() + 2 * kExpertFf * kEmbd, values.end()}});
  }

  /// `values`: [kEmbd][kFf]
  void add_down(const std::string& layer, const std::vector<float>& values) {
    std::vector<float> experts = all_junk(size_t{kExperts} * kLatent * kExpertFf);
    std::vector<float> shared;
    for (size_t i = 0; i < kEmbd; ++i) {
      for (size_t unit = 0; unit < kFf; ++unit) {
        const float value = values[i * kFf + unit];
        if (unit >= 2 * kExpertFf) {
          shared.push_back(value);
          continue;
        }
        const size_t expert = expert_row(unit) / kExpertFf;
        const size_t row = expert * kLatent + in_latent(i);
        experts[row * kExpertFf + unit % kExpertFf] = value;
      }
    }
    tensors_.push_back({layer + "ffn_down_exps.weight", {kExpertFf, kLatent, kExperts}, experts});
    tensors_.push_back({layer + "ffn_down_shexp.weight", {kSharedFf, kEmbd}, shared});
  }

  /// Of all experts' rows of ups, that of a unit of the feed-forward.
  static size_t expert_row(size_t unit) {
    const size_t expert = unit < kExpertFf ? 1 : 3;
    return expert * kExpertFf + unit % kExpertFf;
  }

  std::vector<SmallTensor> tensors_;
};

inline std::unique_ptr<SmallFile> split_nemotron(const ModelSource& golden) {
  return SplitNemotron(golden).file();
}

}  // namespace pumice::test
