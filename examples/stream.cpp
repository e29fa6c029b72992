// Two characters speak at once, and one is interrupted: stream MODEL.gguf
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>

#include "pumice/pumice.hpp"

namespace {

int failed(const pumice::Status& status) {
  std::fprintf(stderr, "%s: %s\n", pumice_status_name(status.code()), status.message().c_str());
  return 1;
}

/// Both sessions share the weights, and what their prompts have in common is computed once.
int converse(pumice::Engine& engine) {
  auto sampling = pumice::options<pumice_sampling>();
  sampling.temperature = 0.8f;
  sampling.top_k = 40;
  auto character = pumice::options<pumice_session_options>();
  character.sampling = &sampling;

  std::map<pumice_request, std::string> said;
  pumice_request last = 0;
  for (const char* prompt :
       {"Once upon a time there was a cat. The cat", "Once upon a time there was a dog. The dog"}) {
    ++sampling.seed;
    auto session = engine.open_session(&character);
    if (!session) return failed(session.status());
    auto request = engine.submit(*session, prompt, 60);
    if (!request) return failed(request.status());
    last = *request;
    said[last] = prompt;
  }
  bool interrupted = false;
  for (std::size_t n_open = said.size(); n_open > 0;) {
    if (const auto status = engine.poll(); !status) return failed(status);
    while (true) {
      auto event = engine.next_event();
      if (!event) return failed(event.status());
      if (event->kind == PUMICE_EVENT_NONE) break;
      said[event->request] += event->text;
      if (event->kind == PUMICE_EVENT_FINISHED) --n_open;
    }
    if (!interrupted && said[last].size() > 100) {
      interrupted = true;
      if (const auto status = engine.cancel(last); !status) return failed(status);
      said[last] += " [interrupted]";
    }
    if (n_open == 0) break;
    if (const auto status = engine.wait(); !status) return failed(status);
  }
  for (const auto& [request, text] : said) std::printf("%s\n\n", text.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: stream MODEL.gguf\n");
    return 2;
  }
  auto device = pumice::Device::open();
  if (!device) return failed(device.status());
  auto model = device->load(argv[1]);
  if (!model) return failed(model.status());
  auto options = pumice::options<pumice_engine_options>();
  options.n_sequences = 2;
  auto engine = model->make_engine(&options);
  if (!engine) return failed(engine.status());
  return converse(*engine);
}
